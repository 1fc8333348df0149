//! [`Aggregation`]: how the server combines uploads, so that a few bad nodes can't decide the
//! result.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use crate::message::check_numbers;

pub(crate) mod comparison;
mod gathering;
mod partial;
mod participants;
mod sum;

pub use comparison::{Compared, Difference, Limits, Measure, Statistic};
pub use gathering::Gathering;
pub use partial::PartialSum;
pub use participants::Participants;
pub use sum::ExactSum;

/// What becomes of the numbers that nodes upload in a round, coordinate by coordinate. Votes are
/// counted, whatever is chosen.
///
/// A mean goes wherever a single upload wants it. Trimmed means and medians leave out what is
/// farthest out at either end, however far that is, so that their result lies between numbers of
/// good nodes as long as no more are bad than they leave out at one end. They cost accuracy: nodes
/// whose data differ are left out too where they differ. A screened mean leaves out whole nodes,
/// and only those whose uploads look wrong. [`crate::method::MethodInfo::supports`] says which
/// methods can do with which.
///
/// Between numbers of good nodes is not yet near their mean. Bad nodes that agree move a centre by
/// up to the spread of the good ones in each round, the farther the more they are: a quarter of the
/// nodes is a nuisance, nearly half can ruin even a median. All votes count, so bad nodes that hold
/// many can have a poor kernel selected, and where only voters are averaged, the uploads that count
/// are fewer.
///
/// ```
/// use hedgerow::{Federation, Plan, PlanConfig};
/// use hedgerow::aggregation::Aggregation;
///
/// let aggregation = Aggregation::TrimmedMean { share: 0.2 };
/// let plan = Plan::new(PlanConfig::default().aggregation(aggregation))?;
/// assert!(plan.method().supports(aggregation));
/// let federation = Federation::new(&plan); // 20 nodes, of which 4 may be bad
/// # Ok::<(), hedgerow::PlanError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Aggregation {
    /// The mean: exact for any order of the uploads, and without copies of them.
    #[default]
    Mean,
    /// The mean of what is left without the least and the greatest, a share of the uploads each.
    TrimmedMean {
        /// From 0 to 0.5, both excluded; of n uploads the whole part of share·n is left out at
        /// either end.
        share: f64,
    },
    /// The number in the middle, or the mean of both that are.
    Median,
    /// The mean over nodes whose uploads don't look wrong: the server compares each upload with
    /// those of the other nodes, and leaves out nodes that differ by more than honest ones do. At
    /// most half of the nodes are left out. See [`crate::Server::suspects`].
    Screened,
}

impl Aggregation {
    /// Whether uploads can be added up as they come.
    pub(crate) fn is_mean(self) -> bool {
        matches!(self, Self::Mean | Self::Screened)
    }

    /// How many of this many numbers are left out at either end, so that at least one stays.
    fn cut(self, count: usize) -> usize {
        let most = count.saturating_sub(1) / 2;
        match self {
            Self::Mean | Self::Screened => 0,
            // A third of three is one, also where a third is a little less than that.
            Self::TrimmedMean { share } => most.min((share * count as f64 + 1e-9) as usize),
            Self::Median => most,
        }
    }

    /// Combines numbers, independent of their order. The result of no numbers is zero. Reorders
    /// them.
    fn centre(self, numbers: &mut [f32]) -> f64 {
        let cut = self.cut(numbers.len());
        let left = numbers.len() - 2 * cut;
        let (mut inner, order) = (numbers, f32::total_cmp);
        if cut > 0 {
            inner.select_nth_unstable_by(cut, order);
            inner = &mut inner[cut..];
            inner.select_nth_unstable_by(left, order);
            inner = &mut inner[..left];
        }
        // A sum depends on the order of its terms.
        inner.sort_unstable_by(order);
        inner.iter().map(|number| f64::from(*number)).sum::<f64>() / left.max(1) as f64
    }
}

/// A name that no aggregation has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is none of mean, median, screened and trimmed-mean:SHARE, such as trimmed-mean:0.2"
)]
pub struct NotAnAggregation {
    text: String,
}

impl FromStr for Aggregation {
    type Err = NotAnAggregation;

    /// Reads what is written; whether a share makes sense is for [`crate::Plan`] to say.
    fn from_str(text: &str) -> Result<Self, NotAnAggregation> {
        let unknown = || NotAnAggregation { text: text.to_owned() };
        match text.split_once(':') {
            None if text == "mean" => Ok(Self::Mean),
            None if text == "median" => Ok(Self::Median),
            None if text == "screened" => Ok(Self::Screened),
            Some(("trimmed-mean", share)) => {
                share.parse().map(|share| Self::TrimmedMean { share }).map_err(|_| unknown())
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Aggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            Self::TrimmedMean { share } => write!(f, "trimmed-mean:{share}"),
            Self::Median => f.write_str("median"),
            Self::Screened => f.write_str("screened"),
        }
    }
}

/// The vectors of an open round, number by number: coordinates are all that the centres of
/// [`Aggregation`] ask for, so it doesn't matter which numbers came together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Columns {
    #[serde(serialize_with = "write_sorted")]
    columns: Vec<Vec<f32>>,
}

impl Columns {
    /// For vectors of this length.
    pub(crate) fn new(len: usize) -> Self {
        Self { columns: vec![Vec::new(); len] }
    }

    /// Keeps a vector.
    pub(crate) fn push(&mut self, numbers: &[f32]) {
        assert_eq!(numbers.len(), self.columns.len());
        self.columns.iter_mut().zip(numbers).for_each(|(column, number)| column.push(*number));
    }

    /// Keeps the vectors that another keeps.
    pub(crate) fn append(&mut self, other: &Self) {
        assert_eq!(other.columns.len(), self.columns.len());
        self.columns
            .iter_mut()
            .zip(&other.columns)
            .for_each(|(column, other)| column.extend(other));
    }

    /// Forgets all vectors.
    pub(crate) fn clear(&mut self) {
        self.columns.iter_mut().for_each(Vec::clear);
    }

    /// As many times the centre of each column as it has numbers.
    pub(crate) fn totals(&mut self, aggregation: Aggregation) -> impl Iterator<Item = f64> {
        self.columns.iter_mut().map(move |column| column.len() as f64 * aggregation.centre(column))
    }

    /// Whether these are `count` vectors of this length, of numbers that can be.
    pub(crate) fn is_sound(&self, len: usize, count: u64) -> bool {
        self.columns.len() == len
            && self
                .columns
                .iter()
                .all(|column| column.len() as u64 == count && check_numbers(column).is_ok())
    }
}

/// Saved states don't depend on the order of uploads.
fn write_sorted<S: Serializer>(columns: &[Vec<f32>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(columns.iter().map(|column| {
        let mut sorted = column.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        sorted
    }))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use proptest::prelude::*;

    const ALL: [Aggregation; 5] = [
        Aggregation::Mean,
        Aggregation::TrimmedMean { share: 0.1 },
        Aggregation::TrimmedMean { share: 1.0 / 3.0 },
        Aggregation::TrimmedMean { share: 0.499_999_999_999 },
        Aggregation::Median,
    ];

    #[test]
    fn centres_are_those_of_their_definitions() {
        let centre =
            |aggregation: Aggregation, numbers: &[f32]| aggregation.centre(&mut numbers.to_vec());
        let numbers = [7.0, -1e30, 1.0, 4.0, 2.0, 1e30];
        assert_eq!(centre(Aggregation::Median, &numbers), 3.0);
        assert_eq!(centre(Aggregation::Median, &numbers[..5]), 2.0);
        assert_eq!(centre(Aggregation::TrimmedMean { share: 0.2 }, &numbers), 3.5);
        assert_eq!(centre(Aggregation::TrimmedMean { share: 1.0 / 3.0 }, &numbers), 3.0);
        assert_eq!(centre(Aggregation::TrimmedMean { share: 0.24 }, &[7.0, 1.0, 4.0, 2.0]), 3.5);
        for aggregation in ALL {
            assert_eq!(centre(aggregation, &[]), 0.0);
            assert_eq!(centre(aggregation, &[2.5]), 2.5);
            assert_eq!(centre(aggregation, &[2.5, 3.5]), 3.0);
        }
    }

    #[test]
    fn whole_shares_are_left_out_and_somebody_stays() {
        for count in 1..200 {
            for hundredths in 1..50 {
                let cut =
                    Aggregation::TrimmedMean { share: f64::from(hundredths) / 100.0 }.cut(count);
                assert_eq!(cut, (hundredths as usize * count / 100).min((count - 1) / 2));
            }
            assert!(ALL.iter().all(|aggregation| 2 * aggregation.cut(count) < count));
        }
    }

    #[test]
    fn settings_are_read_by_their_names() {
        for (aggregation, written) in [
            (Aggregation::Mean, r#""mean""#),
            (Aggregation::Median, r#""median""#),
            (Aggregation::Screened, r#""screened""#),
            (Aggregation::TrimmedMean { share: 0.25 }, r#"{"trimmed-mean":{"share":0.25}}"#),
        ] {
            assert_eq!(serde_json::to_string(&aggregation).unwrap(), written);
            assert_eq!(serde_json::from_str::<Aggregation>(written).unwrap(), aggregation);
            assert_eq!(aggregation.to_string().parse(), Ok(aggregation));
        }
        assert_eq!("trimmed-mean:0.2".parse(), Ok(Aggregation::TrimmedMean { share: 0.2 }));
        for bad in ["", "Mean", "trimmed-mean", "trimmed-mean:", "trimmed-mean:a", "median:0.2"] {
            let error = bad.parse::<Aggregation>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{bad:?} is none of mean, median")), "{error}");
        }
        for bad in
            [r#""average""#, r#"{"trimmed-mean":{}}"#, r#"{"trimmed-mean":{"share":0.1,"part":1}}"#]
        {
            assert!(serde_json::from_str::<Aggregation>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_the_bad_cannot_decide(
            good in proptest::collection::vec((-30i32..30, -1.0f32..1.0), 5..60),
            bad in proptest::collection::vec(prop_oneof![Just(1e30f32), Just(-1e30), -3.0f32..3.0], 0..60),
            seed in any::<u64>(),
        ) {
            let good: Vec<f32> = good.iter().map(|(e, m)| m * 2f32.powi(*e)).collect();
            for aggregation in ALL {
                let mut numbers = good.clone();
                // As many bad ones as are left out at one end.
                for number in &bad {
                    let bad = numbers.len() - good.len();
                    if bad < aggregation.cut(numbers.len() + 1) {
                        numbers.push(*number);
                    }
                }
                let stream = crate::random::CounterRng::from_seed(seed);
                let mut other: Vec<(u64, f32)> = numbers.iter().copied().enumerate()
                    .map(|(at, number)| (stream.bits_at(at as u64), number)).collect();
                other.sort_by_key(|(key, _)| *key);
                let mut other: Vec<f32> = other.into_iter().map(|(_, number)| number).collect();
                let centre = aggregation.centre(&mut numbers);
                prop_assert_eq!(centre.to_bits(), aggregation.centre(&mut other).to_bits());
                let least = good.iter().copied().fold(f32::INFINITY, f32::min);
                let greatest = good.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let room = 1e-9 * f64::from(greatest - least);
                prop_assert!(centre >= f64::from(least) - room && centre <= f64::from(greatest) + room);
            }
        }
    }
}
