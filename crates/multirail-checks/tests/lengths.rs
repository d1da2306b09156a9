//! Files that a reader can hold in mind: source files of at most 500 lines, and two documents of at most
//! 120.

use std::fs;
use std::path::{Path, PathBuf};

const MAX_SOURCE_LINES: usize = 500;
const MAX_DOCUMENT_LINES: usize = 120;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap().lines().count()
}

/// All Rust files below `folder`, without build output.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_file_is_too_long() {
    let mut all = Vec::new();
    for folder in ["crates", "examples", "fuzz"] {
        sources(&workspace().join(folder), &mut all);
    }
    assert!(all.len() > 300, "the sources are elsewhere: {} found", all.len());
    let long: Vec<_> = all.iter().map(|path| (lines(path), path)).filter(|(n, _)| *n > MAX_SOURCE_LINES).collect();
    assert!(long.is_empty(), "split these by subject: {long:?}");
}

#[test]
fn the_first_documents_fit_a_head() {
    for name in ["README.md", "ARCHITECTURE.md"] {
        let count = lines(&workspace().join(name));
        assert!(count <= MAX_DOCUMENT_LINES, "{name} has {count} lines, at most {MAX_DOCUMENT_LINES} are allowed");
    }
}
