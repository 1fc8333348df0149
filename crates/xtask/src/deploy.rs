//! Checks the files of `deploy`: the alarms with Prometheus' own `promtool`, the units with
//! `systemd-analyze`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{output, root};

/// Debian's package that has `promtool`. Installing it would start a server, so it is only
/// unpacked.
pub(crate) const PACKAGE: &str = "prometheus";

/// Debian's package, and a file of it.
pub(crate) const SYSTEMD: (&str, &str) = ("systemd", "/usr/bin/systemd-analyze");

/// The largest exposure of a unit, in tenths of `systemd-analyze security`.
const EXPOSURE: &str = "25";

/// Where `promtool` is, if anywhere.
pub(crate) fn promtool() -> Option<PathBuf> {
    let places = [PathBuf::from("/usr/bin/promtool"), unpacked().join("usr/bin/promtool")];
    places.into_iter().find(|place| place.exists())
}

fn unpacked() -> PathBuf {
    root().join("target/tools").join(PACKAGE)
}

/// Unpacks the package below target/. Whether it succeeded shows in [`promtool`].
pub(crate) fn unpack() {
    let folder = unpacked();
    if fs::create_dir_all(&folder).is_err() {
        return;
    }
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
        _ = command.status();
    };
    run("apt-get", &["download", "-q", PACKAGE]);
    let packages = fs::read_dir(&folder).into_iter().flatten().flatten();
    for package in packages.map(|entry| entry.path()) {
        if package.extension().is_some_and(|ending| ending == "deb") {
            run("dpkg-deb", &["--extract", &package.to_string_lossy(), "."]);
        }
    }
}

/// Checks what there are tools for.
pub(crate) fn check() -> Result<()> {
    if let Some(promtool) = promtool() {
        check_alarms(&promtool).context("alarms")?;
    }
    if Path::new(SYSTEMD.1).exists() {
        check_units().context("units")?;
    }
    Ok(())
}

fn check_alarms(promtool: &Path) -> Result<()> {
    println!("\n== alarms: promtool test rules");
    let folder = root().join("deploy/prometheus");
    let run =
        |arguments: &[&str]| output(Command::new(promtool).args(arguments).current_dir(&folder));
    print!("{}", run(&["check", "rules", "hedgerow.rules.yml"])?);
    print!("{}", run(&["test", "rules", "hedgerow.test.yml"])?);
    Ok(())
}

fn check_units() -> Result<()> {
    println!("\n== units: systemd-analyze security");
    for unit in ["hedgerow-server.service", "hedgerow-node.service"] {
        let mut command = Command::new(SYSTEMD.1);
        command.args(["security", "--no-pager", "--offline=true", "--threshold", EXPOSURE]);
        let table = output(command.arg(root().join("deploy").join(unit)))?;
        table.lines().last().into_iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}
