//! [`Pending`]: predictions that wait for their labels.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::engine::{Answer, BadInput};
use super::sample::MAX_ID;

/// Memory for predictions without a label, all together: a node is to stay small, and saving takes
/// as much again.
const MAX_BYTES: usize = 3 << 20;

/// What a sample takes beside its id, which is kept twice, and its inputs: about.
const OVERHEAD: usize = 160;

/// Samples by id, and ids in the order in which they came.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Pending {
    samples: BTreeMap<String, Sample>,
    order: BTreeMap<u64, String>,
    /// What they take.
    bytes: usize,
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

    /// Remembers a sample; how many old ones had to be forgotten for it.
    pub(super) fn insert(&mut self, id: &str, x: &[f32], answer: Answer) -> Result<u64, BadInput> {
        if id.len() > MAX_ID {
            return Err(BadInput::LongId { bound: MAX_ID, found: id.len() });
        }
        if self.samples.contains_key(id) {
            return Err(BadInput::RepeatedId { id: id.to_owned() });
        }
        let mut forgotten = 0;
        while self.bytes + size(id, x.len()) > MAX_BYTES
            && let Some(oldest) = self.order.first_key_value().map(|(_, id)| id.clone())
        {
            self.take(&oldest);
            forgotten += 1;
        }
        let turn = self.order.last_key_value().map_or(0, |(turn, _)| turn + 1);
        let Answer { value, round, known } = answer;
        self.samples.insert(id.to_owned(), Sample { turn, x: x.to_vec(), value, round, known });
        self.order.insert(turn, id.to_owned());
        self.bytes += size(id, x.len());
        Ok(forgotten)
    }

    pub(super) fn take(&mut self, id: &str) -> Option<(Vec<f32>, Answer)> {
        let Sample { turn, x, value, round, known } = self.samples.remove(id)?;
        self.order.remove(&turn);
        self.bytes -= size(id, x.len());
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
        self.bytes == self.samples.keys().map(|id| size(id, inputs)).sum::<usize>()
            && self.order.len() == self.samples.len()
            && self.samples.iter().all(is_sample)
    }
}

fn size(id: &str, inputs: usize) -> usize {
    2 * id.len() + size_of::<f32>() * inputs + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Answer = Answer { value: 1.5, round: 3, known: true };

    #[test]
    fn labels_find_their_samples_once() {
        let mut pending = Pending::default();
        assert_eq!(pending.insert("a", &[1.0], ANSWER), Ok(0));
        assert_eq!(pending.insert("b", &[2.0], ANSWER), Ok(0));
        assert!(matches!(pending.insert("a", &[3.0], ANSWER), Err(BadInput::RepeatedId { .. })));
        assert!(matches!(
            pending.insert(&"x".repeat(257), &[3.0], ANSWER),
            Err(BadInput::LongId { .. })
        ));
        assert_eq!(pending.take("a"), Some((vec![1.0], ANSWER)));
        assert_eq!((pending.take("a"), pending.len()), (None, 1));
        assert!(pending.is_sound(1) && !pending.is_sound(2));
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut pending = Pending::default();
        let wide = vec![0.5; MAX_BYTES / 3 / size_of::<f32>() - OVERHEAD];
        for id in ["a", "b", "c"] {
            assert_eq!(pending.insert(id, &wide, ANSWER), Ok(0));
        }
        assert!(pending.take("b").is_some());
        assert_eq!(pending.insert("d", &wide, ANSWER), Ok(0));
        assert_eq!(pending.insert("e", &wide, ANSWER), Ok(1));
        assert_eq!((pending.take("a"), pending.len()), (None, 3));
        assert!(pending.is_sound(wide.len()));
        // A wide one takes the place of many.
        let mut pending = Pending::default();
        let count = (0..100_000)
            .take_while(|id| pending.insert(&id.to_string(), &[0.5], ANSWER) == Ok(0))
            .count();
        assert!((10_000..20_000).contains(&count), "{count}");
        assert!(pending.insert("wide", &wide, ANSWER).unwrap() > 3_000);
        assert!(
            pending.bytes <= MAX_BYTES
                && pending.take("wide").is_some()
                && pending.take("1").is_none()
        );
    }
}
