//! [`Pending`]: predictions that wait for their labels.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::BadInput;
use crate::limits::MAX_ID;

/// Memory for all predictions without a label: a node stays small, and saving takes as much again.
pub(super) const MAX_BYTES: usize = 3 << 20;

/// About what a sample takes beside its id, which is kept twice, and its numbers.
const OVERHEAD: usize = 160;

/// Samples by id, and ids in the order in which they came.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Pending {
    samples: BTreeMap<String, Waiting>,
    order: BTreeMap<u64, String>,
    /// What they take.
    bytes: usize,
}

/// A sample, and what was predicted from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Prediction {
    pub(super) x: Vec<f32>,
    /// What the node keeps of a prediction: one number for each output, or two of classes.
    pub(super) values: Vec<f32>,
    pub(super) round: u64,
    pub(super) known: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Waiting {
    turn: u64,
    prediction: Prediction,
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Remembers a prediction; says how many old ones had to be forgotten for it.
    pub(super) fn insert(&mut self, id: &str, prediction: Prediction) -> Result<u64, BadInput> {
        if id.len() > MAX_ID {
            return Err(BadInput::LongId { bound: MAX_ID, found: id.len() });
        }
        if self.samples.contains_key(id) {
            return Err(BadInput::RepeatedId { id: id.to_owned() });
        }
        let size = size(id, &prediction);
        let mut forgotten = 0;
        while self.bytes + size > MAX_BYTES
            && let Some(oldest) = self.order.first_key_value().map(|(_, id)| id.clone())
        {
            self.take(&oldest);
            forgotten += 1;
        }
        let turn = self.order.last_key_value().map_or(0, |(turn, _)| turn + 1);
        self.samples.insert(id.to_owned(), Waiting { turn, prediction });
        self.order.insert(turn, id.to_owned());
        self.bytes += size;
        Ok(forgotten)
    }

    pub(super) fn take(&mut self, id: &str) -> Option<Prediction> {
        let Waiting { turn, prediction } = self.samples.remove(id)?;
        self.order.remove(&turn);
        self.bytes -= size(id, &prediction);
        Some(prediction)
    }

    pub(super) fn is_sound(&self, inputs: usize, values: usize) -> bool {
        let is_sample = |(id, Waiting { turn, prediction }): (&String, &Waiting)| {
            id.len() <= MAX_ID
                && (prediction.x.len(), prediction.values.len()) == (inputs, values)
                && prediction.values.iter().all(|value| value.is_finite())
                && *turn < u64::MAX
                && self.order.get(turn) == Some(id)
        };
        self.order.len() == self.samples.len()
            && self.samples.iter().all(is_sample)
            && self.bytes
                == self.samples.iter().map(|(id, one)| size(id, &one.prediction)).sum::<usize>()
    }
}

/// The first output is part of the overhead.
fn size(id: &str, Prediction { x, values, .. }: &Prediction) -> usize {
    2 * id.len() + size_of::<f32>() * (x.len() + values.len() - 1) + OVERHEAD
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn prediction(x: &[f32]) -> Prediction {
        Prediction { x: x.to_vec(), values: vec![1.5], round: 3, known: true }
    }

    #[test]
    fn labels_find_their_samples_once() {
        let mut pending = Pending::default();
        let mut insert = |id: &str, x| pending.insert(id, prediction(&[x]));
        assert_eq!(insert("a", 1.0), Ok(0));
        assert_eq!(insert("b", 2.0), Ok(0));
        assert!(matches!(insert("a", 3.0), Err(BadInput::RepeatedId { .. })));
        assert!(matches!(insert(&"x".repeat(257), 3.0), Err(BadInput::LongId { .. })));
        assert_eq!(pending.take("a"), Some(prediction(&[1.0])));
        assert_eq!((pending.take("a"), pending.len()), (None, 1));
        assert!(pending.is_sound(1, 1) && !pending.is_sound(2, 1) && !pending.is_sound(1, 2));
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut pending = Pending::default();
        let wide = prediction(&vec![0.5; MAX_BYTES / 3 / size_of::<f32>() - OVERHEAD]);
        for id in ["a", "b", "c"] {
            assert_eq!(pending.insert(id, wide.clone()), Ok(0));
        }
        assert!(pending.take("b").is_some());
        assert_eq!(pending.insert("d", wide.clone()), Ok(0));
        assert_eq!(pending.insert("e", wide.clone()), Ok(1));
        assert_eq!((pending.take("a"), pending.len()), (None, 3));
        assert!(pending.is_sound(wide.x.len(), 1));
        // A wide one takes the place of many.
        let mut pending = Pending::default();
        let count = (0..100_000)
            .take_while(|id| pending.insert(&id.to_string(), prediction(&[0.5])) == Ok(0))
            .count();
        assert!((10_000..20_000).contains(&count), "{count}");
        assert!(pending.insert("wide", wide).unwrap() > 3_000);
        assert!(
            pending.bytes <= MAX_BYTES
                && pending.take("wide").is_some()
                && pending.take("1").is_none()
        );
    }
}
