//! Step sizes over time.

use crate::math;

use serde::{Deserialize, Serialize};

/// How a rate changes with the round t = 1, 2, …
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// c/√t: needs no horizon; the paper's experiments.
    Anytime {
        /// c.
        scale: f64,
    },
    /// c/√T for a known number of rounds T: the theorem.
    Horizon {
        /// c.
        scale: f64,
        /// T.
        rounds: u64,
    },
    /// c for ever: follows drift, never settles.
    Constant {
        /// c.
        scale: f64,
    },
}

impl Schedule {
    /// The rate in round t, counted from 1.
    pub fn rate(self, round: u64) -> f64 {
        match self {
            Self::Anytime { scale } => scale / math::sqrt(round.max(1) as f64),
            Self::Horizon { scale, rounds } => scale / math::sqrt(rounds.max(1) as f64),
            Self::Constant { scale } => scale,
        }
    }

    /// The constant c.
    pub fn scale(self) -> f64 {
        match self {
            Self::Anytime { scale } | Self::Horizon { scale, .. } | Self::Constant { scale } => {
                scale
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_as_named() {
        assert_eq!(Schedule::Anytime { scale: 3.0 }.rate(9), 1.0);
        let horizon = Schedule::Horizon { scale: 2.0, rounds: 100 };
        assert_eq!((horizon.rate(1), horizon.rate(77)), (0.2, 0.2));
        assert_eq!(Schedule::Constant { scale: 0.5 }.rate(1_000_000), 0.5);
        assert_eq!(Schedule::Anytime { scale: 1.0 }.rate(0), 1.0);
    }
}
