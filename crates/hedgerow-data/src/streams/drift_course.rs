//! [`DriftCourse`]: when a stream changes its function.

/// How a stream gets from its first function to its second. It changes between two rounds only, so
/// all nodes have the same function in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DriftCourse {
    /// At once, after half of the rounds.
    Sudden,
    /// In equal steps over the middle third.
    Gradual,
    /// Back and forth between the two, in [`RECURRING_PARTS`] equal parts.
    Recurring,
}

/// Rounds over which a stream changes from one function to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The last round of the old function alone, counted from 1.
    pub after: u64,
    /// The first round of the new function alone.
    pub complete: u64,
}

impl Change {
    /// Whether it happens between two rounds.
    pub fn is_sudden(self) -> bool {
        self.complete == self.after + 1
    }
}

const RECURRING_PARTS: usize = 6;

impl DriftCourse {
    /// Share of the second function in a round, counted from 0, of this number of rounds.
    pub(super) fn share(self, round: usize, rounds: usize) -> f64 {
        match self {
            Self::Sudden => f64::from(round >= rounds / 2),
            Self::Gradual => {
                let (start, end) = (rounds / 3, 2 * rounds / 3);
                ((round + 1).saturating_sub(start) as f64 / (end + 1 - start) as f64).min(1.0)
            }
            Self::Recurring => {
                let passed = (1..RECURRING_PARTS)
                    .filter(|part| round >= part * rounds / RECURRING_PARTS)
                    .count();
                (passed % 2) as f64
            }
        }
    }

    /// The changes of a stream with this number of rounds, in order.
    pub(super) fn changes(self, rounds: usize) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        for round in 1..rounds {
            if self.share(round, rounds) == self.share(round - 1, rounds) {
                continue;
            }
            let (after, complete) = (round as u64, round as u64 + 1);
            match changes.last_mut() {
                Some(last) if self == Self::Gradual => last.complete = complete,
                _ => changes.push(Change { after, complete }),
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::super::{STREAMS, Stream};

    #[test]
    fn changes_are_in_order_and_within_however_short_the_stream() {
        for rounds in 0..40 {
            for stream in STREAMS {
                let changes = stream.changes(rounds);
                assert!(changes.iter().all(|c| 1 <= c.after && c.after < c.complete));
                assert!(
                    changes.iter().all(|c| c.complete <= rounds as u64),
                    "{rounds} {changes:?}"
                );
                assert!(changes.windows(2).all(|pair| pair[0].complete <= pair[1].after + 1));
            }
        }
        let drifts = |stream: &&&Stream| stream.drift.is_some();
        assert!(STREAMS.iter().filter(drifts).all(|stream| !stream.changes(12).is_empty()));
    }
}
