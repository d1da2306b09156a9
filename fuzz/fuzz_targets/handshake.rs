#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| multirail::handshake::decode_any(bytes));
