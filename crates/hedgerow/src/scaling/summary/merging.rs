//! What several nodes have seen together, so that no single one decides.
//!
//! With three nodes or more, a column is merged like this. A node counts at most as much as the
//! middle one. The centre is the middle mean. A node's distance is the root mean square distance of
//! its values from that centre; the usual distance is that of all nodes but the farthest quarter
//! (at least one). No mean may be more than [`REACH`] usual distances from the centre, no deviation
//! larger, and no value farther out than [`RANGE_REACH`] times the farthest of those nodes. What
//! exceeds that is moved to the limit. Then counts, means and deviations are merged as they are, so
//! that where nothing exceeds anything the result is that of all samples.
//!
//! So a quarter of the nodes at most can be anywhere: the others are covered wherever each of them
//! has its own level, also if there are two groups of similar size far from each other. A column
//! that is the same at all those nodes has no usual distance, and no limits: whoever sees the first
//! other value of a rare event isn't wrong.

use alloc::vec::Vec;

use super::{Column, Summary};
use crate::math;

/// Fewer nodes can't tell which of them is wrong.
const FEWEST_NODES: usize = 3;

/// One of so many nodes, but at least one, may be wrong.
const TRUSTED_OF: usize = 4;

/// How many usual distances from the centre a node's mean may be, and how large its deviation.
const REACH: f64 = 5.0;

/// How many times as far as those of trusted nodes values may be from the centre.
const RANGE_REACH: f64 = 3.0;

impl Summary {
    /// What nodes have seen together.
    pub(in crate::scaling) fn merged(columns: usize, all: &[&Self]) -> Self {
        let mut sorted = Vec::with_capacity(all.len());
        let merge = |at: usize| {
            let seen = all.iter().map(|summary| &summary.columns[at]);
            merge_column(seen.filter(|column| column.count > 0.0), &mut sorted)
        };
        Self { columns: (0..columns).map(merge).collect() }
    }
}

fn merge_column<'a>(
    seen: impl Iterator<Item = &'a Column> + Clone,
    sorted: &mut Vec<f64>,
) -> Column {
    let limits = Limits::of(seen.clone(), sorted);
    let mut merged = Column::default();
    for column in seen {
        match &limits {
            Some(limits) => merged.merge(&limits.apply(column)),
            None => merged.merge(column),
        }
    }
    merged
}

/// What a node's summary of a column may be.
struct Limits {
    count: f64,
    centre: f64,
    distance: f64,
    range: f64,
}

impl Limits {
    /// None if there are too few nodes.
    fn of<'a>(
        seen: impl Iterator<Item = &'a Column> + Clone,
        sorted: &mut Vec<f64>,
    ) -> Option<Self> {
        let count = middle(seen.clone().map(|column| column.count), sorted);
        let nodes = sorted.len();
        if nodes < FEWEST_NODES {
            return None;
        }
        let trusted = nodes - (nodes / TRUSTED_OF).max(1);
        let centre = middle(seen.clone().map(|column| column.mean), sorted);
        sorted.clear();
        sorted.extend(seen.clone().map(|column| {
            let apart = math::hypot(column.deviation(), column.mean - centre);
            apart * apart
        }));
        sorted.sort_unstable_by(f64::total_cmp);
        let usual = math::sqrt(sorted[..trusted].iter().sum::<f64>() / trusted as f64);
        sorted.clear();
        sorted.extend(seen.map(|column| (column.max - centre).max(centre - column.min)));
        let (_, farthest, _) = sorted.select_nth_unstable_by(trusted - 1, f64::total_cmp);
        let or_none = |limit: f64| if limit > 0.0 { limit } else { f64::INFINITY };
        let distance = or_none(REACH * usual);
        let range = or_none(RANGE_REACH * *farthest).max(distance);
        Some(Self { count, centre, distance, range })
    }

    fn apply(&self, column: &Column) -> Column {
        let within = |value: f64, most: f64| value.clamp(self.centre - most, self.centre + most);
        let count = column.count.min(self.count);
        let mean = within(column.mean, self.distance);
        let deviation = column.deviation().min(self.distance);
        Column {
            count,
            mean,
            m2: deviation * deviation * count,
            min: within(column.min, self.range).min(mean),
            max: within(column.max, self.range).max(mean),
            reach: column.reach,
        }
    }
}

/// The middle value, the upper one of two; 0 of none. The values are left in `sorted`, in no order.
fn middle(values: impl Iterator<Item = f64>, sorted: &mut Vec<f64>) -> f64 {
    sorted.clear();
    sorted.extend(values);
    let at = sorted.len() / 2;
    if at >= sorted.len() {
        return 0.0;
    }
    *sorted.select_nth_unstable_by(at, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Report;

    /// A node with so many values around a mean.
    fn node(count: u32, mean: f64, deviation: f64) -> Summary {
        let mut summary = Summary::new(1);
        for at in 0..count {
            let sign = if at % 2 == 0 { 1.0 } else { -1.0 };
            summary.add(0, mean + sign * deviation);
        }
        summary
    }

    fn merged(nodes: &[Summary]) -> (f64, f64) {
        let all: Vec<&Summary> = nodes.iter().collect();
        let merged = Summary::merged(1, &all);
        (merged.mean(0).unwrap_or(f64::NAN), merged.deviation(0))
    }

    #[test]
    fn nodes_that_are_alike_are_merged_as_their_samples() {
        let nodes: Vec<_> = (0..20).map(|at| node(10, f64::from(at % 3), 2.0)).collect();
        let mut all = Summary::new(1);
        nodes.iter().for_each(|node| all.merge(node));
        let (mean, deviation) = merged(&nodes);
        assert!((mean - all.mean(0).unwrap()).abs() < 1e-12);
        assert!((deviation - all.deviation(0)).abs() < 1e-12);
    }

    #[test]
    fn a_node_that_is_far_from_all_others_hardly_counts() {
        for honest in [2, 3, 19] {
            let mut nodes: Vec<_> = (0..honest).map(|at| node(8, f64::from(at % 2), 1.0)).collect();
            let (mean, deviation) = merged(&nodes);
            for wild in [node(20, 1e11, 1e10), node(20, -1e30, 0.0), node(20, 0.0, 1e20)] {
                nodes.push(wild);
                let (moved, widened) = merged(&nodes);
                nodes.pop();
                assert!((moved - mean).abs() < 4.0 * deviation, "{honest}: {moved}");
                assert!((0.5..5.0).contains(&(widened / deviation)), "{honest}: {widened}");
            }
        }
    }

    #[test]
    fn a_count_that_no_other_node_has_counts_like_the_middle_one() {
        let mut nodes: Vec<_> = (0..9).map(|at| node(8, f64::from(at % 2), 1.0)).collect();
        let (mean, deviation) = merged(&nodes);
        let numbers = vec![1e15, 0.5, 1e-5, 0.4, 0.6];
        nodes.push(Summary::read(1, &Report { numbers }).unwrap());
        let (moved, narrowed) = merged(&nodes);
        assert!((moved - mean).abs() < 0.1 * deviation);
        assert!(narrowed > 0.9 * deviation, "{narrowed}, without it {deviation}");
    }

    #[test]
    fn nodes_with_levels_of_their_own_are_covered() {
        // Each its own level, and two groups far apart.
        let own: Vec<_> = (0..20).map(|at| node(8, 100.0 * f64::from(at), 1.0)).collect();
        let groups: Vec<_> =
            (0..20).map(|at| node(8, if at < 12 { 0.0 } else { 1e4 }, 1.0)).collect();
        for nodes in [own, groups] {
            let mut all = Summary::new(1);
            nodes.iter().for_each(|node| all.merge(node));
            let (mean, deviation) = merged(&nodes);
            assert!((mean - all.mean(0).unwrap()).abs() < 1e-6, "{mean}");
            assert!((deviation / all.deviation(0) - 1.0).abs() < 1e-6, "{deviation}");
        }
    }

    #[test]
    fn the_first_to_see_a_rare_event_is_believed() {
        let mut nodes = vec![node(50, 0.0, 0.0); 19];
        let mut lucky = node(50, 0.0, 0.0);
        lucky.add(0, 7.0);
        nodes.push(lucky);
        assert!(merged(&nodes).1 > 0.1);
    }
}
