//! The modules of the core form a directed acyclic graph.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which modules a module names in its code, tests left out.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let nested = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    nested.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// The names that follow `crate::` in the code before the tests, comments left out.
fn named(code: &str) -> impl Iterator<Item = String> {
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.flat_map(|line| line.split("crate::").skip(1)).map(|rest| {
        rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
    })
}

fn graph(source: &Path) -> Graph {
    let mut graph = Graph::new();
    for file in files(source) {
        let path = file.strip_prefix(source).unwrap();
        let module = path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let code = fs::read_to_string(&file).unwrap();
        let others = named(&code).filter(|other| other != module);
        graph.entry(module.to_owned()).or_default().extend(others);
    }
    graph
}

/// A cycle, if there is one: whatever is left when modules that name nobody are taken away.
fn cycle(mut graph: Graph) -> Vec<String> {
    loop {
        let left: BTreeSet<String> = graph.keys().cloned().collect();
        graph.values_mut().for_each(|others| others.retain(|other| left.contains(other)));
        graph.retain(|_, others| !others.is_empty());
        if graph.len() == left.len() {
            return left.into_iter().collect();
        }
    }
}

#[test]
fn no_module_needs_itself() {
    let graph = graph(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(graph["method"].contains("features") && graph["features"].contains("simd"));
    assert_eq!(cycle(graph), [""; 0]);
}

#[test]
fn a_cycle_is_found() {
    let edge = |(from, to): (&str, &str)| (from.to_owned(), BTreeSet::from([to.to_owned()]));
    let graph = [("a", "b"), ("b", "c"), ("c", "b"), ("d", "e")].map(edge);
    assert_eq!(cycle(graph.into()), ["a", "b", "c"]);
}
