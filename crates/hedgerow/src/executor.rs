//! [`Executor`]: runs work that can be divided.

/// Does tasks that have nothing to do with one another, in any order or at the same time.
pub trait Executor {
    /// Does all tasks and comes back when they are done.
    fn each<T: Send>(&self, tasks: &mut [T], act: impl Fn(&mut T) + Sync);
}

/// One worker that runs tasks in order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequential;

impl Executor for Sequential {
    fn each<T: Send>(&self, tasks: &mut [T], act: impl Fn(&mut T) + Sync) {
        tasks.iter_mut().for_each(act);
    }
}
