//! Randomness that needs no state: the i-th number of a named stream is a pure function of (seed,
//! name, i).
//!
//! Every draw in the library belongs to a stream of its own, one per (seed, purpose, owner), and
//! asks for the number of its round. So results don't depend on threads or on who was asked first,
//! and a restored node goes on exactly where it was.

mod laws;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

pub use laws::{cauchy, chi_squared, exponential, gamma, normal};

/// What a stream is for. Streams of different purposes are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A repetition of an experiment.
    Trial,
    /// The frequencies of a feature map.
    Features,
    /// A node's vote.
    Vote,
    /// The server's choice among the votes.
    Selection,
    /// The samples of a generated stream.
    Data,
    /// Which node gets which sample.
    Partition,
    /// Missed rounds, late uploads, and arrivals of samples.
    Participation,
    /// The features of a dictionary that grows.
    Dictionary,
    /// Which way a number of a message is rounded.
    Rounding,
    /// The first frequencies of units that are learned.
    Units,
    /// Synthetic inputs.
    Synthetic,
    /// Which predictions are kept for figures.
    Sampling,
    /// Which earlier sample a column's values are taken from.
    Importance,
}

/// A stream of random numbers that can be read at any position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterRng(u64);

impl CounterRng {
    /// The stream that all others of one run are derived from.
    pub fn from_seed(seed: u64) -> Self {
        Self(scramble(seed))
    }

    /// The stream of one owner and purpose within this one.
    pub fn derive(self, purpose: Purpose, owner: u64) -> Self {
        Self(scramble(scramble(self.0 ^ (purpose as u64 + 1)).wrapping_add(scramble(owner))))
    }

    /// 64 random bits at a position.
    pub fn bits_at(self, position: u64) -> u64 {
        scramble(self.0.wrapping_add(position.wrapping_mul(GOLDEN)))
    }

    /// A number in [0, 1) at a position.
    pub fn uniform_at(self, position: u64) -> f64 {
        unit_interval(self.bits_at(position))
    }

    /// A generator for bulk draws, seeded by this stream.
    pub fn generator(self) -> ChaCha8Rng {
        let mut seed = [0; 32];
        for (position, bytes) in seed.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.bits_at(position as u64).to_le_bytes());
        }
        ChaCha8Rng::from_seed(seed)
    }
}

/// A number in [0, 1) of random bits.
fn unit_interval(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

// 2^64 over the golden ratio: consecutive positions land far apart.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The SplitMix64 finaliser: every input bit flips each output bit with probability a half.
fn scramble(value: u64) -> u64 {
    let value = value.wrapping_add(GOLDEN);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_number_of_splitmix64_is_the_published_one() {
        assert_eq!(scramble(1_234_567), 6_457_827_717_110_365_317);
    }

    #[test]
    fn uniform_numbers_fill_the_interval_evenly() {
        let stream = CounterRng::from_seed(7).derive(Purpose::Vote, 3);
        let mut bins = [0u32; 10];
        for position in 0..100_000 {
            let value = stream.uniform_at(position);
            assert!((0.0..1.0).contains(&value));
            bins[(value * 10.0) as usize] += 1;
        }
        // Five standard deviations of a binomial with n = 100,000 and p = 0.1.
        assert!(bins.iter().all(|b| b.abs_diff(10_000) < 475), "{bins:?}");
    }

    #[test]
    fn streams_differ_by_seed_purpose_and_owner() {
        let root = CounterRng::from_seed(1);
        let mut seen = std::collections::HashSet::new();
        for owner in 0..1000 {
            for purpose in [Purpose::Vote, Purpose::Selection, Purpose::Data] {
                assert!(seen.insert(root.derive(purpose, owner).bits_at(0)));
            }
        }
        assert_ne!(CounterRng::from_seed(2).bits_at(0), root.bits_at(0));
    }
}
