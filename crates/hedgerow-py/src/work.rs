//! Long work on its own thread, which Ctrl-C ends.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

/// Interval of checks for Ctrl-C.
const SIGNAL_POLL: Duration = Duration::from_millis(20);

/// Whether the work is to end.
pub(crate) struct Stop(AtomicBool);

/// The panic payload that ends interrupted work.
struct Stopped;

impl Stop {
    /// Ends the work that calls it if the user wants that.
    pub(crate) fn check(&self) {
        if self.0.load(Ordering::Relaxed) {
            resume_unwind(Box::new(Stopped));
        }
    }
}

/// Does work that calls [`Stop::check`] now and then, and waits for it.
pub(crate) fn run<T: Send>(py: Python<'_>, work: impl FnOnce(&Stop) -> T + Send) -> PyResult<T> {
    let stop = Stop(AtomicBool::new(false));
    thread::scope(|scope| {
        let working = scope.spawn(|| catch_unwind(AssertUnwindSafe(|| work(&stop))));
        let mut interrupted = Ok(());
        while !working.is_finished() {
            py.detach(|| thread::sleep(SIGNAL_POLL));
            if interrupted.is_ok() {
                interrupted = py.check_signals();
                stop.0.store(interrupted.is_err(), Ordering::Relaxed);
            }
        }
        let outcome = py.detach(|| working.join());
        interrupted?;
        match outcome {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) | Err(panic) => resume_unwind(panic),
        }
    })
}
