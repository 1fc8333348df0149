//! [`Writer`]: a thread that owns a [`Storage`], so that no other thread waits for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::{Storage, StoreError};

type Job = Box<dyn FnOnce(&mut dyn Storage) + Send>;

/// The writing thread. Jobs run one after the other, in the order in which they were queued. When
/// the writer is dropped, the thread ends after the queued jobs.
pub struct Writer {
    jobs: Sender<Job>,
    is_abandoned: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(storage: Box<dyn Storage>) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let skips = Arc::clone(&is_abandoned);
        let thread = std::thread::Builder::new().name("storage".to_owned());
        let thread = thread.spawn(move || work(storage, &queue, &skips))?;
        Ok(Self { jobs, is_abandoned, thread })
    }

    /// Queues a job. `done` gets its outcome, on the writing thread.
    pub fn queue<T: 'static>(
        &self,
        job: impl FnOnce(&mut dyn Storage) -> Result<T, StoreError> + Send + 'static,
        done: impl FnOnce(Result<T, StoreError>) + Send + 'static,
    ) {
        // This fails only if a job panicked; then `done` is dropped.
        _ = self.jobs.send(Box::new(move |storage| done(job(storage))));
    }

    /// Queues a job; the future is its outcome.
    pub fn run<T, J>(&self, job: J) -> impl Future<Output = Result<T, StoreError>> + use<T, J>
    where
        T: Send + 'static,
        J: FnOnce(&mut dyn Storage) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, outcome) = oneshot::channel();
        self.queue(job, |done| _ = reply.send(done));
        async { outcome.await.unwrap_or(Err(StoreError::Closed)) }
    }

    /// Runs the queued jobs and closes the storage.
    pub async fn close(self) {
        drop(self.jobs);
        // A job that panicked has been reported by the panic.
        _ = tokio::task::spawn_blocking(|| self.thread.join()).await;
    }

    /// Drops the queued jobs, waits for the running one, and closes the storage.
    pub fn abandon(self) {
        self.is_abandoned.store(true, Relaxed);
        drop(self.jobs);
        _ = self.thread.join();
    }
}

fn work(mut storage: Box<dyn Storage>, queue: &Receiver<Job>, is_abandoned: &AtomicBool) {
    while let Ok(job) = queue.recv() {
        if is_abandoned.load(Relaxed) {
            return;
        }
        job(storage.as_mut());
    }
}
