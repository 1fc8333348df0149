//! [`Crew`]: who works inside a trial.

use hedgerow::executor::Executor;
use rayon::prelude::*;

/// Who works inside a trial. It changes nothing but the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crew {
    /// One thread: the others have trials of their own.
    Alone,
    /// All threads.
    Everybody,
}

impl Executor for Crew {
    fn each<T: Send>(&self, tasks: &mut [T], act: impl Fn(&mut T) + Sync) {
        match self {
            Self::Alone => tasks.iter_mut().for_each(&act),
            Self::Everybody => tasks.par_iter_mut().with_max_len(1).for_each(&act),
        }
    }
}
