//! [`MaskRules`]: what nodes, server and mask holders of a plan agree on.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Cohorts, FixedPoint, MaskedLayout, PublicKey};
use crate::message::{Errors, Upload};
use crate::method::{Layout, UploadLayout, Votes};

/// Nodes in a sum, at least, whatever a plan says: smaller sums give samples away
/// (`docs/privacy.md` of the project).
pub const LEAST: usize = 10;

/// Nodes in a sum, at least, unless a plan says otherwise.
pub const DEFAULT_LEAST: usize = 20;

/// What the server sees of uploads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Privacy {
    /// Every upload.
    #[default]
    None,
    /// Sums of uploads alone; see [`crate::masking`].
    Masked(MaskedSums),
}

impl Privacy {
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// How uploads are masked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskedSums {
    /// Nodes in a sum, at least, m.
    #[serde(default = "default_least")]
    pub least: usize,
    /// Nodes of a cohort, at least: a cohort counts as a whole or not at all. None where any nodes
    /// may be summed. A plan of a method that sends sums of whole histories always has one.
    #[serde(default)]
    pub cohort: Option<usize>,
    /// The keys of the mask holders.
    pub holders: Vec<PublicKey>,
}

impl MaskedSums {
    /// With these mask holders, and the default for all else.
    pub fn new(holders: Vec<PublicKey>) -> Self {
        Self { least: DEFAULT_LEAST, cohort: None, holders }
    }
}

fn default_least() -> usize {
    DEFAULT_LEAST
}

/// What nodes, relays, server and mask holders of a plan agree on; see
/// [`crate::Plan::mask_rules`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskRules {
    least: usize,
    cohorts: Cohorts,
    holders: Vec<PublicKey>,
    nodes: usize,
    outputs: usize,
    upload: UploadLayout,
    /// Kernels that can be voted for.
    kernels: usize,
}

impl MaskRules {
    /// For uploads of this layout, if a masked sum says all that the server needs of them.
    pub(crate) fn new(
        settings: &MaskedSums,
        layout: &Layout,
        nodes: usize,
        outputs: usize,
    ) -> Option<Self> {
        let MaskedSums { least, cohort, ref holders } = *settings;
        let upload = layout.upload;
        if !matches!(upload, UploadLayout::Models { .. } | UploadLayout::Sums { .. }) {
            return None;
        }
        let kernels = match layout.votes {
            Votes::None => 0,
            Votes::Counted { kernels } => kernels,
            Votes::Summed { .. } => return None,
        };
        let (cohorts, holders) = (Cohorts::new(nodes, cohort), holders.clone());
        Some(Self { least, cohorts, holders, nodes, outputs, upload, kernels })
    }

    /// The same without masks, to show what they do.
    #[cfg(test)]
    pub(super) fn without_holders(&self) -> Self {
        Self { holders: Vec::new(), ..self.clone() }
    }

    /// Nodes in a sum, at least.
    pub fn least(&self) -> usize {
        self.least
    }

    /// Which nodes are summed as a whole or not at all.
    pub fn cohorts(&self) -> Cohorts {
        self.cohorts
    }

    /// The keys of the mask holders.
    pub fn holders(&self) -> &[PublicKey] {
        &self.holders
    }

    /// Kernels that can be voted for.
    pub(super) fn kernels(&self) -> usize {
        self.kernels
    }

    /// The words of an upload with so many numbers for each output; none if no upload has so many.
    pub fn layout(&self, lens: &[usize]) -> Option<MaskedLayout> {
        if lens.len() != self.outputs {
            return None;
        }
        let format = |magnitude, fractions| FixedPoint::new(self.nodes, magnitude, fractions);
        let count = format(0, (0, 0));
        // One for each node, which tells whether the masks fit, samples, and squared errors.
        let mut fields = vec![(1, count), (1, format(32, (0, 0))), (1, format(24, (16, 30)))];
        for len in lens {
            match self.upload {
                UploadLayout::Models { models, len: of_each, losses } => {
                    fields.push((models * of_each, format(8, (16, 30))));
                    fields.push((losses, format(16, (16, 30))));
                    if *len != models * of_each + losses {
                        return None;
                    }
                }
                UploadLayout::Sums { len: most } if *len <= most => {
                    fields.push((*len, format(28, (24, 30))));
                }
                _ => return None,
            }
            fields.push((self.kernels, count));
        }
        Some(MaskedLayout::new(fields))
    }

    /// Bytes of a masked upload, at most.
    pub(crate) fn most_bytes(&self) -> usize {
        let layout = self.layout(&vec![self.upload.max_len(); self.outputs]);
        layout.map_or(0, |layout| layout.bytes())
    }

    /// The terms of an upload, in the order of its words.
    pub(super) fn terms(&self, uploads: &[Upload], errors: Errors) -> impl Iterator<Item = f64> {
        let Errors { samples, squared_error } = errors;
        let heads = uploads.iter().flat_map(|Upload { vote, numbers, .. }| {
            let voted = |kernel: usize| *vote == Some(kernel as u32);
            let votes = (0..self.kernels).map(move |kernel| f64::from(u8::from(voted(kernel))));
            numbers.iter().map(|number| f64::from(*number)).chain(votes)
        });
        [1.0, f64::from(samples), f64::from(squared_error)].into_iter().chain(heads)
    }
}
