//! No two modules of a crate import each other, directly or through others.

use multirail_checks::imports::cycles;
use std::path::{Path, PathBuf};

fn crate_roots() -> Vec<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut roots = Vec::new();
    for folder in ["crates", "examples"] {
        for entry in std::fs::read_dir(workspace.join(folder)).unwrap() {
            let source = entry.unwrap().path().join("src");
            let found = ["lib.rs", "main.rs"].map(|name| source.join(name)).into_iter().filter(|root| root.exists());
            roots.extend(found);
        }
    }
    roots.sort();
    roots
}

#[test]
fn no_crate_has_an_import_cycle() {
    let roots = crate_roots();
    assert!(roots.len() > 12, "{roots:?}");
    let mut text = String::new();
    for root in roots {
        for cycle in cycles(&root) {
            text += &format!("{}:\n{cycle}\n", root.display());
        }
    }
    assert!(text.is_empty(), "modules import each other; put what they share into a module of its own:\n{text}");
}

#[test]
fn a_cycle_is_found_and_a_reexport_is_none() {
    let folder = std::env::temp_dir().join(format!("multirail-checks-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("c")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("lib.rs", "mod a; mod b; pub mod c; pub use a::A;");
    write("a.rs", "use crate::b::B; pub struct A(B);");
    write("b.rs", "pub struct B;");
    write("c/mod.rs", "mod d; pub use d::D; pub use crate::A as E;");
    write("c/d.rs", "pub struct D(super::E);");
    assert_eq!(cycles(&folder.join("lib.rs")), Vec::<String>::new());

    write("b.rs", "pub struct B; impl B { fn f(a: &crate::A) {} }");
    let found = cycles(&folder.join("lib.rs"));
    assert_eq!(found, ["  crate::a uses crate::b\n  crate::b uses crate::a"]);

    write("b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }");
    assert_eq!(cycles(&folder.join("lib.rs")), Vec::<String>::new());
    std::fs::remove_dir_all(folder).unwrap();
}
