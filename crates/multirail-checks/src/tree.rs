//! A crate's source as a tree of modules.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use syn::{Attribute, Item, UseTree, Visibility};

/// A module of a crate.
#[derive(Debug)]
pub struct Module {
    /// The path from the crate's root; empty for the root.
    pub path: Vec<String>,
    /// The file that holds it.
    pub file: PathBuf,
    /// Its items, without test code and without the items of its own inline modules.
    pub items: Vec<Item>,
    /// Names that `use` declarations bring into scope: the path of each, and whether it is
    /// exported.
    pub imports: HashMap<String, Import>,
}

/// A name that a `use` declaration brings into scope.
#[derive(Debug, Clone)]
pub struct Import {
    /// The path as it is written.
    pub path: Vec<String>,
    /// Whether the declaration re-exports the name.
    pub exported: bool,
}

/// All modules of the crate whose root file is `root`, by path.
///
/// # Panics
///
/// If a file is missing or is not valid Rust.
pub fn modules_of(root: &Path) -> HashMap<Vec<String>, Module> {
    let mut found = HashMap::new();
    let folder = root.parent().expect("a file is in a folder");
    read_file(root, folder, Vec::new(), &mut found);
    found
}

fn read_file(file: &Path, folder: &Path, path: Vec<String>, found: &mut HashMap<Vec<String>, Module>) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    read_items(parsed.items, file, folder, path, found);
}

fn read_items(all: Vec<Item>, file: &Path, folder: &Path, path: Vec<String>, found: &mut HashMap<Vec<String>, Module>) {
    let mut module = Module { path: path.clone(), file: file.to_owned(), items: Vec::new(), imports: HashMap::new() };
    for item in all {
        if is_test(attributes(&item)) {
            continue;
        }
        match item {
            Item::Mod(child) => {
                let name = child.ident.to_string();
                let child_path = [path.clone(), vec![name.clone()]].concat();
                match child.content {
                    Some((_, items)) => read_items(items, file, &folder.join(&name), child_path, found),
                    None => {
                        let (flat, nested) = (folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs"));
                        let child_file = if flat.exists() { flat } else { nested };
                        read_file(&child_file, &folder.join(&name), child_path, found);
                    }
                }
            }
            Item::Use(declaration) => {
                let exported = !matches!(declaration.vis, Visibility::Inherited);
                flatten(&declaration.tree, Vec::new(), &mut |name, import_path| {
                    module.imports.insert(name, Import { path: import_path, exported });
                });
            }
            other => module.items.push(other),
        }
    }
    found.insert(path, module);
}

/// Calls `add` with the name and the path of each leaf of a `use` tree. A glob has the name `*` and
/// its path.
fn flatten(tree: &UseTree, before: Vec<String>, add: &mut impl FnMut(String, Vec<String>)) {
    match tree {
        UseTree::Path(path) => {
            flatten(&path.tree, [before, vec![path.ident.to_string()]].concat(), add);
        }
        UseTree::Name(name) if name.ident == "self" => {
            add(before.last().cloned().unwrap_or_default(), before);
        }
        UseTree::Name(name) => add(name.ident.to_string(), [before, vec![name.ident.to_string()]].concat()),
        UseTree::Rename(rename) => {
            let leaf = if rename.ident == "self" { Vec::new() } else { vec![rename.ident.to_string()] };
            // `as _` brings no name into scope, but it is a use.
            let name = format!("{}#{}", rename.rename, before.join("::"));
            let name = if rename.rename == "_" { name } else { rename.rename.to_string() };
            add(name, [before, leaf].concat());
        }
        UseTree::Glob(_) => add(format!("*{}", before.join("::")), before),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, before.clone(), add);
            }
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
