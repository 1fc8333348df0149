//! `cargo xtask previous`: builds the previous release and runs its programs with those of this
//! version.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{cargo, output, root};

/// The newest commit of 0.1.0: in the next one the changelog begins with 0.2.0.
const COMMIT: &str = "324343125b1a373e026442d844d7d4e5bc1b3270";

/// A server of that release. Its command line would be built three times as long, because it
/// contains the simulator.
const SERVER: &str = include_str!("../previous/server.rs");

/// Where the tests look for its programs.
const PROGRAMS: &str = "HEDGEROW_PREVIOUS";

/// Builds the release, and runs the tests with its programs; with `write` records them instead.
pub(crate) fn run(write: bool) -> Result<()> {
    let folder = root().canonicalize()?.join("target/previous");
    let source = folder.join("source");
    unpack(&source)?;
    println!("\n== programs of {COMMIT}");
    let build = folder.join("build");
    let arguments = "build -p hedgerow-node -p hedgerow-net --features hedgerow-net/server \
                     --bin hedgerow-node --example previous_server";
    let mut command = cargo(&arguments.split_whitespace().collect::<Vec<_>>());
    let status = command.current_dir(&source).env("CARGO_TARGET_DIR", &build).status()?;
    ensure!(status.success(), "the previous release can't be built: {status}");

    let name = if write { "previous::recorder" } else { "previous::full" };
    println!("\n== {name}");
    let tests = ["test", "-p", "hedgerow-net", "--all-features", "--test", "all", name, "--"];
    let mut command = cargo(&[&tests[..], &["--ignored", "--nocapture"]].concat());
    let status = command.env(PROGRAMS, build.join("debug")).status()?;
    ensure!(status.success(), "{name}: {status}");
    Ok(())
}

/// The files of the release.
fn unpack(source: &Path) -> Result<()> {
    let server = source.join("crates/hedgerow-net/examples/previous_server.rs");
    if !source.join("Cargo.toml").exists() {
        fs::create_dir_all(source)?;
        let archive = source.with_extension("tar");
        let name = archive.to_string_lossy();
        let mut git = Command::new("git");
        git.current_dir(root()).args(["archive", "--output", &name, COMMIT]);
        output(&mut git).context("the history is needed: fetch all of it")?;
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(&archive).arg("-C").arg(source).stdin(Stdio::null());
        output(&mut tar)?;
    }
    Ok(fs::write(server, SERVER)?)
}
