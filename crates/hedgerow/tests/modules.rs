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

/// The code before the unit tests, comments left out.
fn product(code: &str) -> String {
    let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// The first names of a list that begins after its opening brace: `a, b` of `a::{c, d}, b}`.
fn listed(list: &str) -> Vec<String> {
    let (mut names, mut depth, mut is_first) = (Vec::new(), 0, true);
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_first = true,
            _ if is_first && !letter.is_whitespace() => {
                names.push(identifier(&list[at..]));
                is_first = false;
            }
            _ => {}
        }
    }
    names
}

/// The names that follow `crate::` in code.
fn named(code: &str) -> Vec<String> {
    let after = code.split("crate::").skip(1);
    after
        .flat_map(|rest| match rest.strip_prefix('{') {
            Some(list) => listed(list),
            None => vec![identifier(rest)],
        })
        .collect()
}

/// The module of each name that the root exports.
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for item in root.split("pub use ").skip(1) {
        let (module, rest) = item.split_once("::").unwrap();
        let names = match rest.strip_prefix('{') {
            Some(list) => listed(list),
            None => vec![identifier(rest)],
        };
        exports.extend(names.into_iter().map(|name| (name, module.to_owned())));
    }
    exports
}

fn graph(source: &Path) -> Graph {
    let exports = exports(&product(&fs::read_to_string(source.join("lib.rs")).unwrap()));
    let mut graph = Graph::new();
    for file in files(source) {
        let path = file.strip_prefix(source).unwrap();
        let module = path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if module == "lib" || path.ends_with("tests.rs") {
            continue;
        }
        let code = product(&fs::read_to_string(&file).unwrap());
        let others = named(&code).into_iter();
        let others = others.map(|name| exports.get(&name).cloned().unwrap_or(name));
        graph.entry(module.to_owned()).or_default().extend(others.filter(|name| name != module));
    }
    for (module, others) in &graph {
        let unknown: Vec<_> = others.iter().filter(|name| !graph.contains_key(*name)).collect();
        assert!(unknown.is_empty(), "{module} names {unknown:?}, which are no modules");
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
fn names_are_found_in_every_form() {
    let code = "use crate::a::B;\nuse crate::{\n    c::{D, E},\n    F,\n};\n\
                // crate::comment\n#[cfg(test)]\nconst G: u8 = crate::g();\n\
                #[cfg(test)]\nmod tests {\n    use crate::h;\n}\n";
    assert_eq!(named(&product(code)), ["a", "c", "F", "g"]);
    let root = "pub mod a;\npub use a::{B, C};\npub use c::D;\n";
    let exported = ["B", "C", "D"].into_iter().zip(["a", "a", "c"]);
    assert!(exports(root).iter().map(|(name, module)| (&**name, &**module)).eq(exported));
}

#[test]
fn a_cycle_is_found() {
    let edge = |(from, to): (&str, &str)| (from.to_owned(), BTreeSet::from([to.to_owned()]));
    let graph = [("a", "b"), ("b", "c"), ("c", "b"), ("d", "e")].map(edge);
    assert_eq!(cycle(graph.into()), ["a", "b", "c"]);
}
