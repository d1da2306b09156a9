#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| multirail::multicast::read_any(bytes));
