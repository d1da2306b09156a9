//! Which module of a crate uses which, and the cycles among them.

use crate::tree::{Module, modules_of};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use syn::visit::{self, Visit};

/// How many re-exports a path may pass before it is taken to be recursive.
const MAX_REEXPORTS: usize = 16;

type Modules = HashMap<Vec<String>, Module>;

/// Each cycle of modules in the crate whose root file is `root`: the modules of the cycle and the
/// uses between them, one text each.
///
/// A module uses another one if it names an item that is defined there, in a `use` declaration or
/// in a path. A re-export is no use: a parent may re-export what its children define.
pub fn cycles(root: &Path) -> Vec<String> {
    let modules = modules_of(root);
    let mut names: Vec<&Vec<String>> = modules.keys().collect();
    names.sort();
    let number: HashMap<&Vec<String>, usize> = names.iter().enumerate().map(|(n, path)| (*path, n)).collect();
    let mut graph: DiGraphMap<usize, ()> = DiGraphMap::new();
    for (from, module) in &modules {
        for to in uses_of(module, &modules) {
            graph.add_edge(number[from], number[&to], ());
        }
    }
    let text = |path: &[String]| ["crate".to_owned()].iter().chain(path).cloned().collect::<Vec<_>>().join("::");
    let cycles = tarjan_scc(&graph).into_iter().filter(|cycle| cycle.len() > 1);
    cycles
        .map(|cycle| {
            let members: BTreeSet<usize> = cycle.into_iter().collect();
            let edges = graph.all_edges().filter(|(from, to, ())| members.contains(from) && members.contains(to));
            let edges = edges.map(|(from, to, ())| format!("  {} uses {}", text(names[from]), text(names[to])));
            edges.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("\n")
        })
        .collect()
}

/// The other modules that define what `module` names.
fn uses_of(module: &Module, modules: &Modules) -> BTreeSet<Vec<String>> {
    let mut paths = Paths::default();
    for item in &module.items {
        paths.visit_item(item);
    }
    let imported = module.imports.values().filter(|import| !import.exported).map(|import| &import.path);
    let named = imported.chain(&paths.found);
    named.filter_map(|path| definition(path, module, modules, 0)).filter(|found| *found != module.path).collect()
}

/// All paths of more than one segment in an item.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.found.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

/// The module that defines what `path` names when it is written in `from`; `None` if it is of
/// another crate.
fn definition(path: &[String], from: &Module, modules: &Modules, depth: usize) -> Option<Vec<String>> {
    if depth > MAX_REEXPORTS {
        return None;
    }
    let mut at = from.path.clone();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while let Some(first) = rest.first()
                && first == "super"
            {
                at.pop()?;
                rest = &rest[1..];
            }
        }
        first => {
            let child = [at.clone(), vec![first.to_owned()]].concat();
            if !modules.contains_key(&child) {
                let import = from.imports.get(first)?;
                if import.path == path {
                    return None;
                }
                let whole = [&import.path[..], &rest[1..]].concat();
                return definition(&whole, from, modules, depth + 1);
            }
        }
    }
    while let Some(next) = rest.first() {
        let child = [at.clone(), vec![next.clone()]].concat();
        if modules.contains_key(&child) {
            at = child;
            rest = &rest[1..];
            continue;
        }
        let module = &modules[&at];
        return match module.imports.get(next) {
            Some(import) => {
                let whole = [&import.path[..], &rest[1..]].concat();
                definition(&whole, module, modules, depth + 1)
            }
            None => Some(at),
        };
    }
    Some(at)
}
