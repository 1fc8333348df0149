//! [`Shard`]: one of several machines that share the runs of a grid.

use std::fmt;
use std::str::FromStr;

use hedgerow_config::ConfigError;

/// Most machines.
const MOST_SHARDS: usize = 10_000;

/// One of several machines, written as `3/8`: the third of eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Which of the machines this is, counted from 1.
    number: usize,
    count: usize,
}

impl Default for Shard {
    /// The only one.
    fn default() -> Self {
        Self { number: 1, count: 1 }
    }
}

impl Shard {
    /// Whether it makes the run at this place of the grid.
    pub(crate) fn has(self, place: usize) -> bool {
        place % self.count == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let parsed = text.trim().split_once('/').and_then(|(number, count)| {
            Some(Self { number: number.parse().ok()?, count: count.parse().ok()? })
        });
        let is_one = |shard: &Self| {
            (1..=MOST_SHARDS).contains(&shard.count) && (1..=shard.count).contains(&shard.number)
        };
        parsed.filter(is_one).ok_or_else(|| {
            let bound =
                format!("N/M with M from 1 to {MOST_SHARDS} and N from 1 to M, such as 3/8");
            ConfigError::out_of_bounds("shard", bound, format!("{text:?}"))
        })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_in_one_shard() {
        for count in [1, 3, 8] {
            let shards: Vec<Shard> =
                (1..=count).map(|number| format!("{number}/{count}").parse().unwrap()).collect();
            for place in 0..20 {
                assert_eq!(shards.iter().filter(|shard| shard.has(place)).count(), 1);
            }
        }
        assert_eq!("3/8".parse::<Shard>().unwrap().to_string(), "3/8");
    }

    #[test]
    fn what_is_no_shard_is_refused_with_the_bound() {
        for text in ["0/8", "9/8", "x", "", "3", "3/", "/8", "-1/8", "3/0", "1.5/8", "1/10001"] {
            let message = text.parse::<Shard>().unwrap_err().to_string();
            assert!(message.contains("N from 1 to M"), "{message}");
            assert!(message.contains(&format!("{text:?}")), "{message}");
        }
    }
}
