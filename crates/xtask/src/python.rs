//! The Python package in `cargo xtask test`: its own environment, the compiled module, pytest.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, ensure};

use crate::{cargo, output, root};

const PACKAGE: &str = "crates/hedgerow-py";
const REQUIREMENTS: &str = "requirements-test.txt";
// As the tests are built, so that only the module itself is left to be built.
const BUILD: &str = "build --workspace --all-features --lib --bins --tests --examples";

/// The package's tests while they run, beside other steps.
pub(crate) struct Tests {
    pytest: Child,
    log: PathBuf,
}

impl Tests {
    /// Builds the module and starts the tests.
    pub(crate) fn start(python: &Path) -> Result<Self> {
        println!("\n== python: cargo {BUILD}, pytest");
        let package = package()?;
        let status =
            cargo(&BUILD.split(' ').collect::<Vec<_>>()).status().context("can't run cargo")?;
        ensure!(status.success(), "`cargo {BUILD}` ended with {status}");
        place_module(&target()?.join("debug"))?;
        let log = target()?.join("python/pytest.log");
        let output = File::create(&log).with_context(|| log.display().to_string())?;
        let pytest = Command::new(python)
            .current_dir(&package)
            .args(["-m", "pytest", "--quiet"])
            .env("HEDGEROW", target()?.join("debug/hedgerow"))
            .stderr(output.try_clone()?)
            .stdout(output)
            .spawn()
            .context("can't run pytest")?;
        Ok(Self { pytest, log })
    }

    /// Waits until they have ended, and prints their output.
    pub(crate) fn finish(mut self) -> Result<()> {
        println!("\n== python: pytest");
        let status = self.pytest.wait()?;
        print!("{}", fs::read_to_string(&self.log)?);
        ensure!(status.success(), "pytest ended with {status}");
        Ok(())
    }
}

impl Drop for Tests {
    fn drop(&mut self) {
        // Another step has failed.
        _ = self.pytest.kill();
        _ = self.pytest.wait();
    }
}

/// Makes the environment in the background. The result is the path of its interpreter.
pub(crate) fn prepare() -> JoinHandle<Result<PathBuf>> {
    thread::spawn(|| environment(&target()?.join("python"), &package()?))
}

/// Copies the module from this folder to the package's sources.
pub(crate) fn place_module(built: &Path) -> Result<()> {
    let built = built.join(format!("{DLL_PREFIX}_hedgerow{DLL_SUFFIX}"));
    let module = package()?.join("python/hedgerow/_hedgerow.abi3.so");
    // By renaming, so that a process that has the old file open keeps it.
    let beside = module.with_extension("new");
    fs::copy(&built, &beside).with_context(|| format!("can't copy {}", built.display()))?;
    fs::rename(&beside, &module)?;
    Ok(())
}

fn package() -> Result<PathBuf> {
    Ok(root().canonicalize()?.join(PACKAGE))
}

pub(crate) fn target() -> Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(root().canonicalize()?.join(target))
}

/// A virtual environment with the required packages and the package's sources. It is made again
/// when the requirements change.
fn environment(folder: &Path, package: &Path) -> Result<PathBuf> {
    let (python, stamp) = (folder.join("bin/python"), folder.join(REQUIREMENTS));
    let wanted = package.join(REQUIREMENTS);
    let sources = package.join("python");
    let needed = fs::read_to_string(&wanted).with_context(|| wanted.display().to_string())?;
    let needed = format!("{needed}# {}\n", sources.display());
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == needed) {
        return Ok(python);
    }
    output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))
        .context("python3, 3.11 or later, with its venv module is needed")?;
    output(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--requirement"])
            .arg(&wanted),
    )
    .context("pip could not install what the tests need")?;
    let site = output(
        Command::new(&python)
            .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]),
    )?;
    fs::write(Path::new(site.trim()).join("hedgerow.pth"), format!("{}\n", sources.display()))?;
    fs::write(&stamp, needed)?;
    Ok(python)
}
