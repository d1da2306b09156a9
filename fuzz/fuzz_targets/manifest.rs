#![no_main]

use multirail::multicast::Manifest;
use std::path::Component;

// What is decoded encodes to the same bytes, and no path in it leads elsewhere.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::decode(bytes) else { return };
    assert_eq!(manifest.encode(), bytes);
    for entry in 0..manifest.entries().len() as u32 {
        let path = manifest.path(entry);
        let mut names = path.components();
        assert!(matches!(names.next(), Some(Component::Normal(_) | Component::CurDir)), "{path:?}");
        assert!(names.all(|name| matches!(name, Component::Normal(_))), "{path:?}");
    }
});
