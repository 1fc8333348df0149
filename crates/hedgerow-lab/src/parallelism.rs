//! [`Parallelism`]: the threads inside a trial.

use hedgerow::executor::Executor;
use rayon::prelude::*;

/// The threads inside a trial. They change only the time, not the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parallelism {
    /// Each trial runs on one thread.
    OverTrials,
    /// All threads share the nodes of one trial.
    OverNodes,
}

impl Executor for Parallelism {
    fn each<T: Send>(&self, tasks: &mut [T], act: impl Fn(&mut T) + Sync) {
        match self {
            Self::OverTrials => tasks.iter_mut().for_each(&act),
            Self::OverNodes => tasks.par_iter_mut().with_max_len(1).for_each(&act),
        }
    }
}
