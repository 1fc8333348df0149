//! [`ImportanceCourse`]: the importance of columns over time, in windows whose number is bounded
//! for runs of any length.

use hedgerow_data::schema::grouped;

use crate::results::{ColumnImportance, ImportanceResult};

/// Windows are joined in pairs whenever there are so many.
const MOST_WINDOWS: usize = 24;

/// The sum of increases of the loss where the values of a column were replaced, in the label's own
/// unit, and how many there were.
pub(crate) type Increases = (f64, u64);

/// Of a method in a trial.
pub(crate) struct ImportanceCourse {
    /// Of the columns.
    names: Vec<String>,
    round: u64,
    /// Rounds in a window.
    span: u64,
    /// Up to the end of the last window.
    before: Vec<Increases>,
    /// The last round of each, and what was measured in it.
    windows: Vec<(u64, Vec<Increases>)>,
}

/// The groups of inputs that come from one column: names, and the group of each input. Inputs
/// without names are groups of their own.
pub(crate) fn groups(sources: &[String], inputs: usize) -> (Vec<String>, Vec<usize>) {
    if sources.len() != inputs {
        return ((1..=inputs).map(|input| format!("x{input}")).collect(), (0..inputs).collect());
    }
    grouped(sources)
}

impl ImportanceCourse {
    pub(crate) fn new(names: Vec<String>) -> Self {
        let before = vec![Increases::default(); names.len()];
        Self { names, round: 0, span: 1, before, windows: Vec::new() }
    }

    /// Ends a round; `so_far` gives what was measured up to here.
    pub(crate) fn close_round(&mut self, so_far: impl FnOnce() -> Vec<Increases>) {
        self.round += 1;
        if self.round.is_multiple_of(self.span) {
            self.close_window(so_far());
        }
    }

    fn close_window(&mut self, so_far: Vec<Increases>) {
        let new = so_far.iter().zip(&self.before);
        let new = new.map(|((sum, count), before)| (sum - before.0, count - before.1)).collect();
        self.windows.push((self.round, new));
        self.before = so_far;
        if self.windows.len() < MOST_WINDOWS {
            return;
        }
        let pairs = self.windows.chunks_exact(2).map(|pair| {
            let both = pair[0].1.iter().zip(&pair[1].1);
            (pair[1].0, both.map(|(one, other)| (one.0 + other.0, one.1 + other.1)).collect())
        });
        self.windows = pairs.collect();
        self.span *= 2;
    }

    pub(crate) fn finish(mut self, so_far: Vec<Increases>) -> ImportanceResult {
        if !self.round.is_multiple_of(self.span) {
            self.close_window(so_far);
        }
        let mean = |(sum, count): Increases| {
            let mean = sum / count as f64;
            mean.is_finite().then_some(mean)
        };
        let column = |(place, name): (usize, String)| ColumnImportance {
            name,
            increase: mean(self.before[place]).unwrap_or(0.0),
            measured: self.before[place].1,
            windows: self.windows.iter().map(|(_, groups)| mean(groups[place])).collect(),
        };
        ImportanceResult {
            columns: self.names.into_iter().enumerate().map(column).collect(),
            rounds: self.windows.iter().map(|(round, _)| *round).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_one_column_are_one_group() {
        let sources = ["wind", "hour", "hour", "load", "wind"].map(str::to_owned);
        let (names, group_of) = groups(&sources, 5);
        assert_eq!((names.join(" ").as_str(), group_of), ("wind hour load", vec![0, 1, 1, 2, 0]));
        assert_eq!(groups(&[], 2), (vec!["x1".to_owned(), "x2".to_owned()], vec![0, 1]));
    }

    #[test]
    fn windows_are_bounded_and_reach_to_the_end() {
        for rounds in [1, 23, 24, 25, 1000, 12_345_u64] {
            let mut course = ImportanceCourse::new(vec!["a".into()]);
            // The increase is the number of the round.
            let so_far = |round: u64| vec![((round * (round + 1) / 2) as f64, round)];
            (1..=rounds).for_each(|round| course.close_round(|| so_far(round)));
            let ImportanceResult { columns, rounds: ends } = course.finish(so_far(rounds));
            assert!(ends.len() <= MOST_WINDOWS && ends.last() == Some(&rounds), "{ends:?}");
            assert!(rounds < 24 || ends.len() >= MOST_WINDOWS / 2);
            assert_eq!(columns[0].increase, (rounds + 1) as f64 / 2.0);
            let mut start = 0;
            for (end, window) in ends.iter().zip(&columns[0].windows) {
                assert_eq!(*window, Some((start + 1 + end) as f64 / 2.0));
                start = *end;
            }
        }
    }

    #[test]
    fn what_was_not_measured_is_not_said() {
        let course = ImportanceCourse::new(vec!["a".into()]);
        let ImportanceResult { columns, rounds } = course.finish(vec![(0.0, 0)]);
        assert_eq!((columns[0].increase, columns[0].measured, rounds.len()), (0.0, 0, 0));
    }
}
