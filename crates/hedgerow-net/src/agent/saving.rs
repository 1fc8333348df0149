//! How an agent saves its state: regularly, without waiting for the disk, and once more at the end.

use std::future::pending;

use tokio::task::JoinHandle;
use tracing::{error, info};

use super::driver::Agent;
use super::state::Reading;
use crate::file::FileError;

/// Writing to disk.
#[derive(Default)]
pub(super) struct Saving {
    /// Whether something has changed.
    pub(super) is_due: bool,
    task: Option<JoinHandle<Result<(), FileError>>>,
    /// The error of the last save.
    pub(super) trouble: Option<String>,
}

impl Saving {
    /// Waits for the running save; for ever if there is none.
    pub(super) async fn finished(&mut self) -> Result<(), String> {
        match &mut self.task {
            // A task that panicked or was ended has saved nothing.
            Some(task) => match task.await {
                Ok(written) => written.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            },
            None => pending().await,
        }
    }

    /// Ends a save. After a failure there is still something to save.
    pub(super) fn end(&mut self, outcome: Result<(), String>) {
        self.task = None;
        let trouble = outcome.err();
        self.is_due |= trouble.is_some();
        if trouble != self.trouble {
            match &trouble {
                Some(trouble) => error!("the node's state could not be saved: {trouble}"),
                None => info!("the node's state can be saved again"),
            }
        }
        self.trouble = trouble;
    }
}

impl Agent {
    /// The position in the input.
    fn reading(&self) -> Option<Reading> {
        let bookmark = self.input.bookmark()?;
        let header = self.rows.header().map(<[u8]>::to_vec).or_else(|| self.header.clone());
        Some(Reading { path: self.settings.samples.path.clone(), bookmark, header })
    }

    /// Begins to save, if something has changed and no save is running.
    pub(super) fn save(&mut self) {
        let Some(node) =
            self.node.as_ref().filter(|_| self.saving.is_due && self.saving.task.is_none())
        else {
            return;
        };
        let write = self.file.save(&node.node, self.reading(), node.series.save());
        self.saving.is_due = false;
        self.saving.task = Some(tokio::task::spawn_blocking(write));
    }

    /// Waits for a running save.
    pub(super) async fn finish_saving(&mut self) {
        if self.saving.task.is_some() {
            let outcome = self.saving.finished().await;
            self.saving.end(outcome);
        }
    }

    /// Saves changes and waits for it.
    pub(super) async fn save_at_last(&mut self) -> Result<(), FileError> {
        self.finish_saving().await;
        let node = self.node.as_ref().filter(|_| self.saving.is_due);
        node.map_or(Ok(()), |node| self.file.save(&node.node, self.reading(), node.series.save())())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_save_that_panicked_has_saved_nothing() {
        let task = tokio::task::spawn_blocking(|| panic!("the disk has gone"));
        let mut saving = Saving { task: Some(task), ..Saving::default() };
        let outcome = saving.finished().await;
        saving.end(outcome);
        assert!(saving.is_due && saving.task.is_none());
        assert!(saving.trouble.as_ref().unwrap().contains("panicked"), "{:?}", saving.trouble);
        saving.is_due = false;
        saving.task = Some(tokio::task::spawn_blocking(|| Ok(())));
        let outcome = saving.finished().await;
        saving.end(outcome);
        assert_eq!((saving.is_due, saving.trouble), (false, None));
    }
}
