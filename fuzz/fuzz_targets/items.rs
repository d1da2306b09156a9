#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| multirail::files::read_any(bytes));
