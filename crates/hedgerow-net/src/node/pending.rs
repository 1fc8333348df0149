//! [`Pending`]: predictions that wait for their labels.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::engine::{Answer, BadInput};

/// Numbers that a node remembers for predictions without a label, all samples together.
const MAX_NUMBERS: usize = 1 << 20;

/// Most predictions without a label.
const MAX_PENDING: usize = 100_000;

/// Longest id.
const MAX_ID: usize = 256;

/// Samples by id, and ids in the order in which they came.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Pending {
    samples: BTreeMap<String, Sample>,
    order: BTreeMap<u64, String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sample {
    turn: u64,
    x: Vec<f32>,
    value: f32,
    round: u64,
    known: bool,
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Remembers a sample; whether the oldest had to be forgotten for it.
    pub(super) fn insert(&mut self, id: &str, x: &[f32], answer: Answer) -> Result<bool, BadInput> {
        if id.len() > MAX_ID {
            return Err(BadInput::LongId { bound: MAX_ID, found: id.len() });
        }
        if self.samples.contains_key(id) {
            return Err(BadInput::RepeatedId { id: id.to_owned() });
        }
        let is_full = self.samples.len() >= most(x.len());
        if is_full && let Some((_, oldest)) = self.order.pop_first() {
            self.samples.remove(&oldest);
        }
        let turn = self.order.last_key_value().map_or(0, |(turn, _)| turn + 1);
        let Answer { value, round, known } = answer;
        self.samples.insert(id.to_owned(), Sample { turn, x: x.to_vec(), value, round, known });
        self.order.insert(turn, id.to_owned());
        Ok(is_full)
    }

    pub(super) fn take(&mut self, id: &str) -> Option<(Vec<f32>, Answer)> {
        let Sample { turn, x, value, round, known } = self.samples.remove(id)?;
        self.order.remove(&turn);
        Some((x, Answer { value, round, known }))
    }

    pub(super) fn is_sound(&self, inputs: usize) -> bool {
        let is_sample = |(id, sample): (&String, &Sample)| {
            id.len() <= MAX_ID
                && sample.x.len() == inputs
                && sample.value.is_finite()
                && sample.turn < u64::MAX
                && self.order.get(&sample.turn) == Some(id)
        };
        self.samples.len() <= most(inputs)
            && self.order.len() == self.samples.len()
            && self.samples.iter().all(is_sample)
    }
}

fn most(inputs: usize) -> usize {
    (MAX_NUMBERS / inputs.max(1)).clamp(1, MAX_PENDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Answer = Answer { value: 1.5, round: 3, known: true };

    #[test]
    fn labels_find_their_samples_once() {
        let mut pending = Pending::default();
        assert_eq!(pending.insert("a", &[1.0], ANSWER), Ok(false));
        assert_eq!(pending.insert("b", &[2.0], ANSWER), Ok(false));
        assert!(matches!(pending.insert("a", &[3.0], ANSWER), Err(BadInput::RepeatedId { .. })));
        assert!(matches!(pending.insert(&"x".repeat(257), &[3.0], ANSWER), Err(BadInput::LongId { .. })));
        assert_eq!(pending.take("a"), Some((vec![1.0], ANSWER)));
        assert_eq!((pending.take("a"), pending.len()), (None, 1));
        assert!(pending.is_sound(1) && !pending.is_sound(2));
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut pending = Pending::default();
        let wide = vec![0.5; MAX_NUMBERS / 3];
        for id in ["a", "b", "c"] {
            assert_eq!(pending.insert(id, &wide, ANSWER), Ok(false));
        }
        assert!(pending.take("b").is_some());
        assert_eq!(pending.insert("d", &wide, ANSWER), Ok(false));
        assert_eq!(pending.insert("e", &wide, ANSWER), Ok(true));
        assert_eq!((pending.take("a"), pending.len()), (None, 3));
        assert!(pending.is_sound(wide.len()));
    }
}
