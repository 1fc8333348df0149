//! Man pages and completions name every command and flag that the parser knows.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use crate::process::hedgerow;

fn printed(arguments: &[&str]) -> String {
    let done = hedgerow(Path::new("."), arguments);
    assert!(done.status.success(), "{arguments:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn completions_and_man_pages_have_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        for part in ["simulate", "renew-server", "memory-limit", "plain-text"] {
            assert!(script.contains(part), "{shell}: {part}");
        }
    }
    let page = printed(&["man"]);
    assert!(page.starts_with(".ie") && page.contains("simulate") && page.contains("Exit codes"));
    let page = printed(&["man", "simulate"]).replace('\\', "");
    for part in ["--memory-limit", "--set", "linear-newton", "Built-in streams"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let refused = hedgerow(Path::new("."), &["man", "simulat"]);
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(message.contains("did you mean \"simulate\"?"), "{message}");
}
