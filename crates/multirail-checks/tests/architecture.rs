//! Every function that ARCHITECTURE.md names exists.
//!
//! `Type::function` is a function of that type or trait in any crate. `function()` is one of the
//! BPF program. `CONSTANT` is a constant in any crate.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::{ImplItem, Item, TraitItem, Type};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below `folder` with one of these extensions.
fn files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extensions, found);
        } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
            found.push(path);
        }
    }
}

fn add_names(items: &[Item], names: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Impl(block) => {
                let Type::Path(of) = &*block.self_ty else { continue };
                let Some(of) = of.path.segments.last() else { continue };
                for item in &block.items {
                    if let ImplItem::Fn(function) = item {
                        names.insert(format!("{}::{}", of.ident, function.sig.ident));
                    }
                }
            }
            Item::Trait(block) => {
                for item in &block.items {
                    if let TraitItem::Fn(function) = item {
                        names.insert(format!("{}::{}", block.ident, function.sig.ident));
                    }
                }
            }
            Item::Const(constant) => {
                names.insert(constant.ident.to_string());
            }
            Item::Mod(module) => {
                if let Some((_, items)) = &module.content {
                    add_names(items, names);
                }
            }
            _ => {}
        }
    }
}

/// The names in the source: `Type::function`, `CONSTANT`, and `function()` of the BPF program.
fn existing() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rust = Vec::new();
    files(&workspace().join("crates"), &["rs"], &mut rust);
    for path in rust {
        let text = std::fs::read_to_string(&path).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        add_names(&parsed.items, &mut names);
    }
    let mut c = Vec::new();
    files(&workspace().join("crates/multirail-place/bpf"), &["c", "h"], &mut c);
    for path in c {
        let text = std::fs::read_to_string(&path).unwrap();
        // A definition begins at the start of a line and has its brace on the next one.
        for (line, next) in text.lines().zip(text.lines().skip(1)) {
            if !line.starts_with(char::is_whitespace) && next == "{" {
                let name = line.split('(').next().and_then(|head| head.split([' ', '*']).next_back());
                names.insert(format!("{}()", name.unwrap_or_default()));
            }
        }
    }
    names
}

/// The names in backquotes in a text that are of one of the three kinds.
fn named(text: &str) -> BTreeSet<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_name = |name: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match name.split_once("::") {
            Some((of, function)) => of.starts_with(char::is_uppercase) && (of.to_owned() + function).chars().all(plain),
            None => {
                name.strip_suffix("()").is_some_and(|function| function.chars().all(plain))
                    || name.len() > 3 && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            }
        }
    };
    quoted.filter(is_name).map(ToOwned::to_owned).collect()
}

#[test]
fn every_function_that_the_architecture_names_exists() {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let (named, existing) = (named(&text), existing());
    assert!(named.len() > 40, "only {} names were found", named.len());
    let missing: Vec<&String> = named.difference(&existing).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what does not exist: {missing:?}");
}

#[test]
fn names_are_told_from_other_code() {
    let text = "`Machine::claim` of `session`, `place()`, `LIMIT_MS`, `make check`, `a::b`, `--rails`";
    assert_eq!(named(text).into_iter().collect::<Vec<_>>(), ["LIMIT_MS", "Machine::claim", "place()"]);
}
