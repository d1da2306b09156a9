//! Every input that fuzzing has saved for the products' decoders goes through them.

use std::path::Path;

fn run(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("a corpus") {
        let path = entry.expect("an entry").path();
        println!("{target}: {}", path.display());
        check(&std::fs::read(&path).expect("a saved input"));
        count += 1;
    }
    assert!(count > 0, "no input in {}", folder.display());
}

#[test]
fn items_of_copies() {
    run("items", multirail::files::read_any);
}

#[test]
fn frames_of_broadcasts() {
    run("links", multirail::multicast::read_any);
}

#[test]
fn groups_of_pipelines() {
    run("prepare", multirail::pipeline::prepare_any);
}
