//! The binary as a process, and the files it is given.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

/// A command in this folder with its own cache and without the user's environment.
pub(crate) fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
    command.env_remove("HEDGEROW_DATA_DIR").env_remove("HEDGEROW_MIRROR");
    command.env("HEDGEROW_CACHE_DIR", folder.join("cache"));
    command.args(arguments).current_dir(folder);
    command
}

pub(crate) fn hedgerow(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

/// A demonstration. Only one at a time looks for the usual port of the dashboard.
pub(crate) fn demo(folder: &Path, arguments: &[&str]) -> Output {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    hedgerow(folder, &[&["demo"], arguments].concat())
}

/// Longer than anything takes, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for a process whose input stays open: it has to end by itself. One that waits for the end
/// of its input all the same gets it in the end.
pub(crate) fn ended_by_itself(child: Child, held_open: ChildStdin) -> Output {
    let (ended, end) = channel::<()>();
    let holder = std::thread::spawn(move || {
        let _ = end.recv_timeout(PATIENCE);
        drop(held_open);
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    holder.join().unwrap();
    output
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The JSON output of a process that succeeded.
pub(crate) fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts that it failed with this code and one line that has all these parts, and left nothing
/// behind.
pub(crate) fn assert_refused(output: &Output, code: i32, parts: &[&str], folder: &Path) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert!(message.starts_with("error: "), "{message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    assert!(!message.contains("panicked"), "{message}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(!folder.join("hedgerow-out").exists(), "something was left behind");
}

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// Not with println, because the test runner captures it.
pub(crate) fn skipped(why: &str) {
    let told = writeln!(std::io::stderr(), "SKIPPED: {why}");
    told.unwrap();
}

/// The folder of the real data sets. Prints a message and returns `None` if there is none.
pub(crate) fn real_data() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("HEDGEROW_DATA_DIR").map_or_else(beside, PathBuf::from);
    let found = folder.canonicalize().ok().filter(|folder| folder.join("authors_csv").is_dir());
    if found.is_none() {
        skipped("no data sets (set HEDGEROW_DATA_DIR to the folder that has them)");
    }
    found
}
