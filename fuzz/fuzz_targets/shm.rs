#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| multirail::pipeline::edge::read_any(bytes));
