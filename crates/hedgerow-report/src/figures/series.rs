//! The curves of the results, for the figures and the report.

use super::number;
use super::palette::{self, Dash, LineStyle};
use super::scale::Axis;
use hedgerow::method::{Reference, Role};
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::{Curve, MethodResult, Moments, Results};

/// One curve over rounds.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// Name of its method; empty for a guide.
    pub(crate) method: String,
    pub(crate) style: LineStyle,
    pub(crate) points: Vec<Point>,
    /// Of the best fixed function, known only afterwards.
    pub(crate) in_hindsight: bool,
}

/// Mean and standard deviation over trials at one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// On an axis of dates the time.
    pub(crate) round: f64,
    pub(crate) mean: f64,
    pub(crate) sd: f64,
}

impl Line {
    pub(super) fn of(results: &Results, method: &MethodResult, points: Vec<Point>) -> Self {
        let style = palette::method(results, &method.name);
        let label = if is_best_single(results, method) {
            format!("{} (best)", method.label())
        } else {
            method.label()
        };
        Self {
            label,
            method: method.name.clone(),
            style,
            points,
            in_hindsight: method.is(Reference::Hindsight),
        }
    }

    /// A reference that belongs to no method.
    pub(crate) fn guide(label: String, points: Vec<Point>) -> Self {
        let style = palette::GUIDE;
        Self { label, method: String::new(), style, points, in_hindsight: false }
    }

    pub(crate) fn last(&self) -> f64 {
        self.points.last().map_or(f64::NEG_INFINITY, |point| point.mean)
    }

    /// Where its values mean something: the later half in rounds of what is known only in
    /// hindsight, else all of it.
    pub(super) fn settled(&self) -> &[Point] {
        let half = self.points.last().map_or(0.0, |point| point.round) / 2.0;
        let start = if self.in_hindsight {
            self.points.partition_point(|point| point.round < half)
        } else {
            0
        };
        &self.points[start..]
    }

    /// Of what is known only in hindsight, without the points before it comes into the range of the
    /// axis for good; else all of it.
    pub(crate) fn entering(&self, axis: &Axis) -> Self {
        let outside = |point: &Point| self.in_hindsight && !axis.holds(point.mean);
        let start = self.points.iter().rposition(outside).map_or(0, |last| last + 1);
        Self { points: self.points[start..].to_vec(), ..self.clone() }
    }

    /// Averages over `span` points on either side; fewer at the start, where a method may rise
    /// fast, and at the end.
    fn smoothed(&self, span: usize) -> Self {
        let mean = |i: usize| {
            let end = (i + span.min(i) + 1).min(self.points.len());
            let near = &self.points[i - span.min(i)..end];
            near.iter().map(|point| point.mean).sum::<f64>() / near.len() as f64
        };
        let at = |(i, point): (usize, &Point)| Point { mean: mean(i), ..*point };
        Self { points: self.points.iter().enumerate().map(at).collect(), ..self.clone() }
    }

    /// Whether the line goes up and down much more than it gets anywhere.
    fn is_rough(&self) -> bool {
        let means = || self.points.iter().map(|point| point.mean);
        let travelled: f64 = means().zip(means().skip(1)).map(|(a, b)| (b - a).abs()).sum();
        let reach = means().fold(f64::MIN, f64::max) - means().fold(f64::MAX, f64::min);
        travelled > 4.0 * reach
    }
}

/// The best single kernel: as marked, else by its error.
pub(crate) fn best_single(results: &Results) -> Option<&MethodResult> {
    let singles = || results.methods.iter().filter(|method| method.info().takes_kernel);
    singles().find(|method| method.best).or_else(|| {
        let error = |method: &MethodResult| Measure::of(results).moments(method).mean;
        singles().min_by(|a, b| error(a).total_cmp(&error(b)))
    })
}

/// Whether this is the best single kernel.
pub(crate) fn is_best_single(results: &Results, method: &MethodResult) -> bool {
    method.info().takes_kernel
        && best_single(results).is_some_and(|best| best.kernel == method.kernel)
}

/// Whether this is a single kernel besides the best.
pub(crate) fn is_other_single(results: &Results, method: &MethodResult) -> bool {
    method.info().takes_kernel && !is_best_single(results, method)
}

/// The kernel that made most of a method's predictions, counted from 1, and its share of them.
pub(crate) fn favourite(method: &MethodResult) -> Option<(usize, f64)> {
    let used = method.selected.iter().copied().enumerate().filter(|(_, share)| *share > 0.0);
    used.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, share)| (index + 1, share))
}

pub(super) fn points(rounds: &[u64], values: &[Moments]) -> Vec<Point> {
    rounds
        .iter()
        .zip(values)
        .filter(|(_, value)| value.mean.is_finite())
        .map(|(round, value)| Point {
            round: *round as f64,
            mean: value.mean,
            sd: if value.sd.is_finite() { value.sd } else { 0.0 },
        })
        .collect()
}

/// How much more shares over trials jump than with the fifty trials of a paper.
fn unrest(results: &Results) -> f64 {
    (50.0 / results.trials.max(1) as f64).sqrt().clamp(1.0, 4.0)
}

/// Methods that choose or mix kernels while they learn.
pub(crate) fn choosers(results: &Results) -> impl Iterator<Item = &MethodResult> {
    let chooses =
        |method: &&MethodResult| !matches!(method.role(), Role::Hindsight | Role::Trivial);
    // Methods without kernels have no shares.
    let has_shares =
        |method: &&MethodResult| method.curve.shares.iter().flatten().any(|share| *share > 0.0);
    results.methods.iter().filter(chooses).filter(has_shares)
}

/// How the methods that choose find the best kernel.
pub(crate) struct Convergence {
    /// The best kernel, counted from 1.
    pub(crate) kernel: usize,
    /// Its share in each method over time, averaged over neighbouring points where it jumps.
    pub(crate) lines: Vec<Line>,
    /// Faint, before averaging.
    pub(crate) raw: Vec<Line>,
    /// How many neighbouring points make up one average.
    pub(crate) averaged: usize,
}

/// The share of the best kernel over time.
pub(crate) fn convergence(results: &Results) -> Option<Convergence> {
    let kernel = results.best_kernel?;
    let share = |shares: &Vec<f64>| shares.get(kernel.wrapping_sub(1)).copied();
    let raw: Vec<Line> = choosers(results)
        .map(|method| {
            let Curve { rounds, shares, .. } = &method.curve;
            let points = rounds
                .iter()
                .zip(shares)
                .filter_map(|(round, shares)| Some((round, share(shares)?)))
                .filter(|(_, share)| share.is_finite())
                .map(|(round, share)| Point { round: *round as f64, mean: share, sd: 0.0 });
            Line::of(results, method, points.collect())
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    // Few trials make the fraction of them jump from round to round.
    let longest = raw.iter().map(|line| line.points.len()).max()?;
    let span = (longest as f64 / 120.0 * unrest(results)) as usize;
    let rough = |line: &Line| span > 0 && line.is_rough();
    let lines = raw
        .iter()
        .map(|line| if rough(line) { line.smoothed(span) } else { line.clone() })
        .collect();
    let faint = |line: Line| {
        let style = LineStyle { width: 0.7, opacity: 0.35, dash: Dash::Solid, ..line.style };
        Line { style, ..line }
    };
    let raw = raw.into_iter().filter(rough).map(faint).collect();
    Some(Convergence { kernel, lines, raw, averaged: 2 * span + 1 })
}

/// The regret of every method that has one; of the single kernels only the best.
pub(crate) fn regrets(results: &Results) -> Vec<Line> {
    results
        .methods
        .iter()
        .filter(|method| !is_other_single(results, method))
        .map(|method| {
            let points = points(&method.curve.regret_rounds, &method.curve.regret);
            Line::of(results, method, points)
        })
        .filter(|line| !line.points.is_empty())
        .collect()
}

/// Whether logarithmic axes can show nearly all of the regret: it may be negative where a method
/// beats the best fixed function.
pub(crate) fn mostly_positive(lines: &[Line]) -> bool {
    let all = || lines.iter().flat_map(|line| &line.points);
    let positive = all().filter(|point| point.mean > 0.0).count();
    positive * 10 >= all().count() * 9 && lines.iter().all(|line| line.last() > 0.0)
}

/// A line through the last point of the middle one of the regrets that grows as √t: only its slope
/// means something.
pub(crate) fn root_guide(lines: &[Line]) -> Option<[(f64, f64); 2]> {
    let first = lines
        .iter()
        .flat_map(|line| line.points.first())
        .map(|point| point.round)
        .reduce(f64::min)?;
    let mut ends: Vec<_> = lines.iter().filter_map(|line| line.points.last()).collect();
    ends.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    let end = ends.get(ends.len() / 2)?;
    (first > 0.0 && first < end.round)
        .then(|| [(first, end.mean * (first / end.round).sqrt()), (end.round, end.mean)])
}

/// Shares of kernels over time.
pub(crate) struct Shares {
    /// The method they belong to.
    pub(crate) method: String,
    /// Ascending, from 0 to the last round, so that the areas fill the frame; two or more.
    pub(crate) rounds: Vec<f64>,
    /// Neighbouring kernels, one each if there are few; in order of the dictionary.
    pub(crate) groups: Vec<Group>,
    /// How many neighbouring points make up one average.
    pub(crate) averaged: usize,
}

/// One area: a kernel, or neighbours in a long dictionary.
pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) has_best: bool,
    pub(crate) shares: Vec<f64>,
}

/// More areas than this can't be told apart.
const MOST_GROUPS: usize = 16;
/// More columns than this turn into noise.
const MOST_COLUMNS: f64 = 180.0;

/// Shares of the baseline, or else of the first method that chooses kernels.
pub(crate) fn shares(results: &Results) -> Option<Shares> {
    let method = choosers(results)
        .find(|method| method.info().is_baseline)
        .or_else(|| choosers(results).next())?;
    let curve = &method.curve;
    let length = curve.rounds.len().min(curve.shares.len());
    let kernels = curve.shares.iter().map(Vec::len).max().unwrap_or(0);
    if length == 0 || kernels == 0 {
        return None;
    }
    let averaged = length.div_ceil((MOST_COLUMNS / unrest(results)) as usize);
    let columns: Vec<&[Vec<f64>]> = curve.shares[..length].chunks(averaged).collect();
    let mut rounds: Vec<f64> = curve.rounds[..length]
        .chunks(averaged)
        .map(|chunk| chunk.iter().map(|round| *round as f64).sum::<f64>() / chunk.len() as f64)
        .collect();
    let last = curve.rounds[length - 1] as f64;
    rounds[0] = 0.0;
    match rounds.as_mut_slice() {
        [_] => rounds.push(last),
        [.., end] => *end = last,
        [] => {}
    }
    let per_group = kernels.div_ceil(MOST_GROUPS);
    let groups = (0..kernels)
        .step_by(per_group)
        .map(|first| {
            let members = first..(first + per_group).min(kernels);
            let mean = |column: &&[Vec<f64>]| {
                let all =
                    column.iter().flat_map(|shares| members.clone().filter_map(|p| shares.get(p)));
                all.filter(|share| share.is_finite()).sum::<f64>() / column.len() as f64
            };
            let mut shares: Vec<f64> = columns.iter().map(mean).collect();
            shares.resize(rounds.len(), shares.last().copied().unwrap_or(0.0));
            let has_best =
                results.best_kernel.is_some_and(|best| members.contains(&best.wrapping_sub(1)));
            Group { label: group_label(results, first + 1, members.end), has_best, shares }
        })
        .collect();
    Some(Shares { method: method.label(), rounds, groups, averaged })
}

fn group_label(results: &Results, first: usize, last: usize) -> String {
    if first == last { kernel_label(results, first) } else { format!("kernels {first} to {last}") }
}

/// `6: gaussian σ²=1`, or the number alone if the dictionary has no name for it.
pub(crate) fn kernel_label(results: &Results, kernel: usize) -> String {
    match results.kernels.get(kernel.wrapping_sub(1)) {
        Some(name) if !name.is_empty() => format!("{kernel}: {name}"),
        _ => format!("kernel {kernel}"),
    }
}

/// The last round of any of the lines.
pub(crate) fn last_round<'l>(lines: impl IntoIterator<Item = &'l Line>) -> f64 {
    let ends = lines.into_iter().filter_map(|line| line.points.last());
    ends.map(|point| point.round).fold(1.0, f64::max)
}

/// The lines as text for screen readers.
pub(crate) fn describe(lines: &[Line], quantity: &str) -> String {
    let mut ends: Vec<&Line> = lines.iter().filter(|line| !line.points.is_empty()).collect();
    ends.sort_by(|a, b| a.last().total_cmp(&b.last()));
    let last = if ends.is_empty() { 0.0 } else { last_round(lines) };
    let values: Vec<String> = ends
        .iter()
        .map(|line| format!("{} {}", line.label, number::significant(line.last(), 3)))
        .collect();
    format!("{quantity} at round {}: {}.", number::fixed(last, 0), values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::results;

    #[test]
    fn the_lowest_error_decides_where_nothing_is_marked() {
        let mut results = results(4, 5, 2);
        results.methods.iter_mut().for_each(|method| method.best = false);
        assert_eq!(best_single(&results).unwrap().kernel, results.best_kernel);
    }

    #[test]
    fn a_thousand_kernels_are_grouped() {
        let results = results(1000, 20, 2);
        let shares = shares(&results).unwrap();
        assert!(shares.groups.len() <= MOST_GROUPS);
        assert_eq!(shares.groups.iter().filter(|group| group.has_best).count(), 1);
        assert_eq!(shares.groups.last().unwrap().label, "kernels 946 to 1000");
    }

    #[test]
    fn averaged_shares_still_add_up_to_one() {
        for (kernels, rounds) in [(11, 700), (1000, 7), (1, 1)] {
            let shares = shares(&results(kernels, rounds, 3)).unwrap();
            assert_eq!((shares.rounds[0], *shares.rounds.last().unwrap()), (0.0, rounds as f64));
            assert!(shares.rounds.len() <= 180);
            for column in 0..shares.rounds.len() {
                let sum: f64 = shares.groups.iter().map(|group| group.shares[column]).sum();
                assert!((sum - 1.0).abs() < 1e-9, "{sum}");
            }
        }
    }

    #[test]
    fn shares_fall_back_to_another_method_that_chooses() {
        let mut results = results(3, 5, 2);
        results.methods.retain(|method| method.name != "mk");
        assert_eq!(shares(&results).unwrap().method, "naive");
        results.methods.retain(|method| method.name == "sk");
        assert!(shares(&results).is_none());
    }

    #[test]
    fn jumps_from_round_to_round_are_averaged_and_kept_in_sight() {
        let mut results = results(3, 600, 1);
        assert!(convergence(&results).unwrap().raw.is_empty());
        for (t, shares) in results.methods[0].curve.shares.iter_mut().enumerate() {
            shares.fill(0.0);
            shares[t % 2] = 1.0;
        }
        let convergence = convergence(&results).unwrap();
        assert_eq!((convergence.raw.len(), convergence.averaged), (1, 41));
        assert!((convergence.lines[0].points[300].mean - 0.5).abs() < 0.1);
    }

    #[test]
    fn a_best_kernel_out_of_range_draws_nothing() {
        let mut results = results(3, 5, 2);
        for outside in [0, 4] {
            results.best_kernel = Some(outside);
            assert!(convergence(&results).is_none());
        }
    }

    #[test]
    fn negative_regret_is_not_for_logarithms() {
        let mut results = results(3, 50, 2);
        assert!(mostly_positive(&regrets(&results)));
        results.methods[0].curve.regret.last_mut().unwrap().mean = -1.0;
        assert!(!mostly_positive(&regrets(&results)));
    }
}
