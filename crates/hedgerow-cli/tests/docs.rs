//! The documents: links lead somewhere, and the book has every page.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Markdown files of a folder, without those of folders in it.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|file| file.extension().is_some_and(|ending| ending == "md")).collect()
}

/// Targets of links outside code blocks.
fn links(text: &str) -> Vec<&str> {
    let outside_code = text.split("```").step_by(2);
    outside_code
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')').map(|(link, _)| link))
        .filter(|link| !link.starts_with("http") && !link.contains(char::is_whitespace))
        .collect()
}

/// The names that GitHub and mdBook give to headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let name = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        words.chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    headings.map(name).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let root = root();
    let mut files = pages(&root);
    files.extend(pages(&root.join("docs")));
    files.push(root.join("examples/own-method/README.md"));
    let mut seen = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for link in links(&text) {
            seen += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => file.clone(),
                path => file.parent().unwrap().join(path),
            };
            assert!(target.exists(), "{}: {link}", file.display());
            if !anchor.is_empty() {
                let there = anchors(&fs::read_to_string(&target).unwrap());
                assert!(there.iter().any(|name| name == anchor), "{}: {link}", file.display());
            }
        }
    }
    assert!(seen > 80, "{seen} links");
}

#[test]
fn the_book_has_every_page_and_its_links_stay_within() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    assert!(pages(&docs).len() > 10);
    for page in pages(&docs) {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "SUMMARY.md" || summary.contains(&format!("({name})")), "{name}");
        let text = fs::read_to_string(&page).unwrap();
        assert!(links(&text).iter().all(|link| !link.starts_with("..")), "{name}");
    }
}
