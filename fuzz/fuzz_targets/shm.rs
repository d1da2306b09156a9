#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| multirail::transport::shm::read_any(bytes));
