#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| multirail::pipeline::prepare_any(bytes));
