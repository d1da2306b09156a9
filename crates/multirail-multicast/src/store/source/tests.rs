use super::*;
use crate::store::testing::{Temp, content, make_tree, snapshot};
use std::fs;

fn recursive() -> SourceOptions {
    SourceOptions { recursive: true, piece_bytes: Some(1 << 14), ..SourceOptions::default() }
}

/// All data of the store, read piece by piece.
fn data(store: &SourceStore) -> Vec<u8> {
    let manifest = store.manifest();
    let mut data = Vec::new();
    for piece in 0..manifest.pieces().count() {
        let mut buffer = vec![0; manifest.piece_len(piece)];
        store.read(piece, 0, &mut buffer).unwrap();
        manifest.check(piece, &buffer).unwrap();
        data.extend(buffer);
    }
    data
}

#[test]
fn the_data_is_the_files_in_order() {
    for seed in 0..20 {
        println!("seed {seed}");
        let temp = Temp::new();
        make_tree(seed, &temp.join("from/tree"));
        fs::write(temp.join("from/single"), content(seed, 50_000)).unwrap();
        let sources = [temp.join("from/tree"), temp.join("from/single")];
        let store = SourceStore::open(&sources, &recursive()).unwrap();
        let manifest = store.manifest();
        let mut expected = snapshot(&temp.join("from"));
        expected.remove(Path::new(""));
        let mut all = Vec::new();
        for (index, entry) in manifest.entries().iter().enumerate() {
            let (mode, mtime_s, mtime_ns, content) = expected.remove(&manifest.path(index as u32)).unwrap();
            assert_eq!(entry.meta, Meta { mode: mode & 0o777, mtime_s, mtime_ns: mtime_ns as u32 });
            assert_eq!(
                content
                    .as_ref()
                    .map(|c| EntryKind::File { total_bytes: c.len() as u64 })
                    .unwrap_or(EntryKind::Directory),
                entry.kind()
            );
            all.extend(content.unwrap_or_default());
        }
        assert!(expected.is_empty(), "{expected:?} are left out");
        assert!(data(&store) == all);
        assert!(store.held().is_full());
        // The manifest does not depend on the order of the sources, and it survives encoding.
        let again = SourceStore::open(&[sources[1].clone(), sources[0].clone()], &recursive()).unwrap();
        assert_eq!(again.manifest().id(), manifest.id());
        assert_eq!(Manifest::decode(&manifest.encode()).unwrap().id(), manifest.id());
        let report = store.finish().unwrap();
        assert_eq!((report.files + report.directories) as usize, manifest.entries().len());
    }
}

#[test]
fn many_pieces_by_many_threads() {
    let temp = Temp::new();
    let content = content(1, 20_000_001);
    fs::write(temp.join("from/large"), &content).unwrap();
    let options = SourceOptions::default();
    let store = SourceStore::open(&[temp.join("from/large")], &options).unwrap();
    assert!(store.manifest().pieces().count() > 100);
    assert!(data(&store) == content);
    assert_eq!(options.progress.bytes(), 20_000_001, "each byte is read once");
}

#[test]
fn special_files_are_skipped_or_refused() {
    let temp = Temp::new();
    fs::create_dir(temp.join("from/tree")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", temp.join("from/tree/link")).unwrap();
    fs::write(temp.join("from/tree/.x.0.multirail-part"), "x").unwrap();
    fs::write(temp.join("from/tree/file"), "x").unwrap();
    let store = SourceStore::open(&[temp.join("from/tree")], &recursive()).unwrap();
    assert_eq!(store.manifest().entries().len(), 2);
    let skipped: Vec<_> = store.skipped.skipped.iter().map(|s| s.what.as_str()).collect();
    assert_eq!((skipped.len(), store.skipped.skipped_count), (2, 2));
    assert!(skipped.contains(&"a symlink"));
    let refused =
        |sources: &[PathBuf], options: &SourceOptions| SourceStore::open(sources, options).unwrap_err().to_string();
    assert!(refused(&[temp.join("from/tree")], &SourceOptions::default()).contains("not recursive"));
    assert!(refused(&[temp.join("from/nothing")], &recursive()).contains("from/nothing"));
    assert!(refused(&["/dev/null".into()], &recursive()).contains("neither"));
    assert!(refused(&[temp.join("from/tree"), temp.join("to/../from/tree")], &recursive()).contains("two sources"));
    let odd = SourceOptions { piece_bytes: Some(5), ..recursive() };
    assert!(refused(&[temp.join("from/tree")], &odd).contains("power of two"));
}

#[test]
fn a_file_that_changes_is_noticed() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 5] = [
        ("changed: ", |path| File::options().write(true).open(path).unwrap().set_len(39_999).unwrap()),
        ("changed: ", |path| File::options().write(true).open(path).unwrap().set_len(40_001).unwrap()),
        ("changed: ", |path| File::open(path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap()),
        ("No such file", |path| fs::remove_file(path).unwrap()),
        ("", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (why, change) in changes {
        // The change happens during hashing, and later.
        for hashed in [false, true] {
            let temp = Temp::new();
            fs::create_dir(temp.join("from/tree")).unwrap();
            let path = temp.join("from/tree/file");
            fs::write(&path, content(1, 40_000)).unwrap();
            let error = if hashed {
                let store = SourceStore::open(&[temp.join("from/tree")], &recursive()).unwrap();
                // The file is not among those that are kept open.
                store.files.open.lock().unwrap().remove(1);
                change(&path);
                store.read(2, 0, &mut [0; 40_000 - (2 << 14)]).unwrap_err()
            } else {
                let (files, entries, _) = list(&[temp.join("from/tree")], true).unwrap();
                change(&path);
                files.hash(cut(40_000, None).unwrap(), entries, &Progress::default()).unwrap_err()
            };
            assert!(error.to_string().contains(why) && error.to_string().contains("tree/file"), "{why}: {error}");
            assert_eq!(matches!(error, StoreError::Changed { .. }), why == "changed: ", "{error:?}");
        }
    }
}
