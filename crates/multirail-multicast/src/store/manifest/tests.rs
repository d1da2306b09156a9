use super::*;
use proptest::prelude::*;

const META: Meta = Meta { mode: 0o644, mtime_s: -3, mtime_ns: 999_999_999 };

fn entry(parent: Option<u32>, name: &str, total_bytes: Option<u64>) -> Entry {
    let kind = total_bytes.map_or(EntryKind::Directory, |total_bytes| EntryKind::File { total_bytes });
    Entry { parent, name: name.as_bytes().into(), kind, meta: META }
}

/// A manifest of these entries with empty hashes.
fn of(entries: Vec<Entry>) -> Result<Manifest, ManifestError> {
    let total_bytes = entries.iter().map(Entry::total_bytes).sum();
    let pieces = cut(total_bytes, None)?;
    Manifest::new(pieces, vec![[7; 32]; pieces.count() as usize], Layout::Files(entries))
}

fn tree() -> Vec<Entry> {
    vec![
        entry(None, "top", None),
        entry(Some(0), "a", None),
        entry(Some(1), "x", Some(20_000)),
        entry(Some(1), "y", Some(0)),
        entry(Some(0), "a.b", Some(1)),
        entry(Some(0), "b", None),
        entry(Some(0), "c", Some(40_000)),
    ]
}

#[test]
fn manifests_survive_encoding() {
    for manifest in [
        of(tree()).unwrap(),
        of(vec![entry(None, "one file", Some(5))]).unwrap(),
        of(vec![]).unwrap(),
        of(vec![entry(None, ".", None), entry(Some(0), ".hidden", Some(1))]).unwrap(),
        Manifest::of_memory(&[1; 100_000], None).unwrap(),
        Manifest::of_memory(&[], Some(1 << 20)).unwrap(),
    ] {
        let bytes = manifest.encode();
        let again = Manifest::decode(&bytes).unwrap();
        assert_eq!((again.id(), again.layout(), again.pieces()), (manifest.id(), manifest.layout(), manifest.pieces()));
        assert_eq!(again.hashes, manifest.hashes);
        assert_eq!(again.id_hex(), blake3::hash(&bytes).to_hex().to_string());
        // One byte less and one byte more.
        for end in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..end]).is_err(), "{end} of {}", bytes.len());
        }
        assert!(Manifest::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}

#[test]
fn paths_and_spans_are_those_of_the_files() {
    let manifest = of(tree()).unwrap();
    let paths: Vec<_> = (0..7).map(|e| manifest.path(e).display().to_string()).collect();
    assert_eq!(paths, ["top", "top/a", "top/a/x", "top/a/y", "top/a.b", "top/b", "top/c"]);
    let spans: Vec<_> = manifest.spans(16_384..32_768).collect();
    let span = |entry, offset, part| Span { entry, offset, part };
    assert_eq!(spans, [span(2, 16_384, 0..3616), span(4, 0, 3616..3617), span(6, 0, 3617..16_384)]);
    assert_eq!(manifest.spans(20_000..20_001).collect::<Vec<_>>(), [span(4, 0, 0..1)]);
    assert_eq!(manifest.spans(60_000..60_001).collect::<Vec<_>>(), [span(6, 39_999, 0..1)]);
    assert_eq!(manifest.spans(5..5).count() + manifest.spans(60_001..60_001).count(), 0);
}

#[test]
fn paths_that_escape_or_repeat_are_refused() {
    let refused = |change: &dyn Fn(&mut Vec<Entry>)| {
        let mut entries = tree();
        change(&mut entries);
        let error = of(entries).unwrap_err();
        assert!(matches!(error, ManifestError::Path { .. } | ManifestError::Malformed(_)), "{error}");
        error.to_string()
    };
    for name in ["", ".", "..", "a/b", "/", "a\0", "x.multirail-part", &"x".repeat(256)] {
        let why = refused(&|entries| {
            let last = entries.len() - 1;
            entries[last].name = name.as_bytes().into();
        });
        assert!(!why.contains("out of order"), "{name:?}: {why}");
    }
    let of_one = |name: &str, bytes| of(vec![entry(None, name, bytes)]);
    assert!(of_one(&"x".repeat(255), Some(1)).is_ok());
    assert!(of_one(".", None).is_ok() && of_one(".", Some(1)).is_err());
    assert!(of_one("..", None).is_err() && of_one("/etc", None).is_err());
    // Duplicate names, names out of order, and names below a file, in a closed directory, before
    // their directory, or in no directory.
    assert!(refused(&|entries| entries[6].name = b"b"[..].into()).contains("duplicate"));
    refused(&|entries| entries.swap(2, 3));
    assert!(refused(&|entries| entries[3].parent = Some(2)).contains("no directory"));
    assert!(refused(&|entries| entries[6].parent = Some(1)).contains("no directory"));
    assert!(refused(&|entries| entries[1].parent = Some(1)).contains("follows its content"));
    assert!(refused(&|entries| entries[1].parent = Some(u32::MAX)).contains("follows its content"));
    refused(&|entries| entries[1].meta.mode = 0o1755);
    refused(&|entries| entries[1].meta.mtime_ns = 1_000_000_000);
}

#[test]
fn limits_from_both_sides() {
    // Paths: 16 names of 255 bytes and slashes are 4095 bytes.
    let nested = |last: usize| {
        let dirs = (0..15).map(|i: u32| entry(i.checked_sub(1), &"d".repeat(255), None));
        of(dirs.chain([entry(Some(14), &"f".repeat(last), Some(1))]).collect())
    };
    assert!(nested(255).is_ok());
    let deeper = |name: &str| {
        let dirs = (0..16).map(|i: u32| entry(i.checked_sub(1), &"d".repeat(if i == 15 { 253 } else { 255 }), None));
        of(dirs.chain([entry(Some(15), name, Some(1))]).collect())
    };
    assert!(deeper("f").is_ok(), "4095 bytes");
    assert!(deeper("ff").is_err(), "4096 bytes");
    // Entries.
    let many = |count: usize| of((0..count).map(|i| entry(None, &format!("{i:07}"), Some(0))).collect());
    assert_eq!(many(MAX_ENTRIES).unwrap().entries().len(), MAX_ENTRIES);
    assert_eq!(many(MAX_ENTRIES + 1).unwrap_err(), ManifestError::TooMany);
    // Encoded bytes.
    let long = |count: usize| of((0..count).map(|i| entry(None, &format!("{i:0200}"), Some(0))).collect());
    let each = long(2).unwrap().encode().len() - long(1).unwrap().encode().len();
    let fits = (MAX_ENCODED_BYTES - 16) / each;
    assert!(long(fits).is_ok());
    assert_eq!(long(fits + 1).unwrap_err(), ManifestError::TooLong);
    // Pieces.
    assert!(cut(1 << 40, None).is_ok());
    assert_eq!(cut((1 << 40) + 1, None).unwrap_err(), ManifestError::TooLong);
    for (piece_bytes, fine) in
        [(0, false), (1 << 13, false), (1 << 14, true), (20_000, false), (1 << 20, true), (1 << 21, false)]
    {
        assert_eq!(cut(5, Some(piece_bytes)).is_ok(), fine, "{piece_bytes}");
    }
    assert!(matches!(cut(u64::MAX, None), Err(ManifestError::TooLong)));
}

proptest! {
    /// Any bytes are refused, or are a manifest that encodes to the same bytes.
    #[test]
    fn decoding_never_panics(
        which in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
    ) {
        let manifest = match which {
            0 => of(tree()).unwrap(),
            1 => of((0..40).map(|i| entry(None, &format!("{i:02}"), Some(i))).collect()).unwrap(),
            _ => Manifest::of_memory(&[0; 50_000], None).unwrap(),
        };
        let mut bytes = manifest.encode();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        if let Ok(decoded) = Manifest::decode(&bytes) {
            prop_assert_eq!(decoded.encode(), bytes);
        }
    }

    #[test]
    fn random_bytes_are_not_a_manifest(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(decoded) = Manifest::decode(&bytes) {
            prop_assert_eq!(decoded.encode(), bytes);
        }
    }
}

/// The corpus of fuzzing; see `fuzz/fuzz_targets/manifest.rs`.
#[test]
fn saved_inputs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/manifest");
    let mut decoded = 0;
    for input in std::fs::read_dir(folder).unwrap() {
        let path = input.unwrap().path();
        println!("{}", path.display());
        let bytes = std::fs::read(&path).unwrap();
        if let Ok(manifest) = Manifest::decode(&bytes) {
            assert_eq!(manifest.encode(), bytes);
            decoded += 1;
        }
    }
    assert!(decoded > 0, "none of them is a manifest");
}
