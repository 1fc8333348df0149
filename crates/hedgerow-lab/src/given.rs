//! [`GivenSamples`]: samples that a caller has in memory, instead of data that settings name.

use hedgerow_data::columns::Task;
use hedgerow_data::{Dataset, Owners};
use sha2::{Digest, Sha256};

use crate::run::RunError;
use crate::settings::{Scaling, Settings};

/// Samples in memory.
#[derive(Debug, Clone)]
pub struct GivenSamples {
    /// What to call them.
    pub name: String,
    /// Numbers per sample, d.
    pub features: usize,
    /// All inputs, row by row; NaN is missing.
    pub x: Vec<f32>,
    /// The labels; NaN is missing.
    pub y: Vec<f32>,
    /// The node of each sample, if they have nodes.
    pub owners: Option<Owners>,
}

impl GivenSamples {
    /// As the settings ask for them: with labels of the past, and scaled if that needs all of them.
    pub fn dataset(self, settings: &Settings) -> Result<Dataset, RunError> {
        let Self { name, features, x, y, owners } = self;
        let data = Dataset::from_arrays(&name, features, x, y, owners)?;
        let mut data = data.with_past(&settings.data.columns)?;
        if settings.data.columns.task == Task::Classes {
            data = data.with_classes()?;
        }
        if let Scaling::WholeFile { jointly } = settings.scaling {
            data.scale_with_hindsight(jointly);
        }
        Ok(data)
    }

    /// Differs if any number or node differs.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(format!("{} {} ", self.name, self.features));
        for number in self.x.iter().chain(&self.y) {
            hash.update(number.to_le_bytes());
        }
        if let Some(Owners { ids, names }) = &self.owners {
            ids.iter().for_each(|id| hash.update(id.to_le_bytes()));
            hash.update(format!("{names:?}"));
        }
        hash.finalize().into()
    }
}
