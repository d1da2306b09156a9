#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| multirail_fuzz_checks::streams(bytes));
