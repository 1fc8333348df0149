//! [`Grids`]: the rounds at which curves are recorded.

/// Points of a curve, and of the regret, which costs more.
const CURVE_POINTS: usize = 1000;
const REGRET_POINTS: usize = 40;

/// Of a live stream: points per e-fold of rounds.
const OPEN_CURVE: f64 = 200.0;
const OPEN_REGRET: f64 = 4.0;

/// The rounds at which curves are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grids {
    /// The number of rounds is known: these rounds.
    Closed { curve: Vec<u64>, regret: Vec<u64> },
    /// The end is unknown: rounds are recorded more and more rarely.
    Open,
}

impl Grids {
    pub(crate) fn closed(rounds: usize) -> Self {
        Self::Closed { curve: curve_grid(rounds), regret: logarithmic_grid(rounds, REGRET_POINTS) }
    }

    pub(crate) fn has_curve_point(&self, round: u64) -> bool {
        match self {
            Self::Closed { curve, .. } => curve.binary_search(&round).is_ok(),
            Self::Open => is_milestone(round, OPEN_CURVE),
        }
    }

    pub(crate) fn has_regret_point(&self, round: u64) -> bool {
        match self {
            Self::Closed { regret, .. } => regret.binary_search(&round).is_ok(),
            Self::Open => is_milestone(round, OPEN_REGRET),
        }
    }

    /// The points of curves and of the regret, now that the last round is known.
    pub(crate) fn points(&self, last: u64) -> (Vec<u64>, Vec<u64>) {
        let chosen = |is_chosen: &dyn Fn(u64) -> bool| -> Vec<u64> {
            (1..=last).filter(|round| *round == last || is_chosen(*round)).collect()
        };
        match self {
            Self::Closed { curve, regret } => (curve.clone(), regret.clone()),
            Self::Open => (
                chosen(&|round| self.has_curve_point(round)),
                chosen(&|round| self.has_regret_point(round)),
            ),
        }
    }
}

/// Whether the logarithm of the round passes a multiple of 1/`density`.
fn is_milestone(round: u64, density: f64) -> bool {
    let steps = |round: u64| ((round as f64).ln() * density).floor();
    round <= 1 || steps(round) > steps(round - 1)
}

/// Every round if there are few; else as many as a figure can show, half of them evenly and half on
/// a logarithmic scale.
fn curve_grid(rounds: usize) -> Vec<u64> {
    if rounds <= CURVE_POINTS {
        return (1..=rounds as u64).collect();
    }
    let half = CURVE_POINTS / 2;
    let mut grid = logarithmic_grid(rounds, half);
    grid.extend((1..=half).map(|i| (i * rounds / half) as u64));
    grid.sort_unstable();
    grid.dedup();
    grid
}

fn logarithmic_grid(rounds: usize, points: usize) -> Vec<u64> {
    let exponent = |i: usize| i as f64 / (points - 1).max(1) as f64;
    let mut grid: Vec<u64> = (0..points)
        .map(|i| ((rounds as f64).powf(exponent(i)).round() as u64).clamp(1, rounds as u64))
        .collect();
    grid.dedup();
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_begin_with_one_end_with_the_last_round_and_ascend() {
        for rounds in [1, 2, 999, 1000, 1001, 123_456] {
            for grids in [Grids::closed(rounds), Grids::Open] {
                let (curve, regret) = grids.points(rounds as u64);
                for grid in [&curve, &regret] {
                    assert_eq!((grid[0], *grid.last().unwrap()), (1, rounds as u64));
                    assert!(grid.is_sorted() && grid.windows(2).all(|pair| pair[0] < pair[1]));
                    assert!(grid.len() <= 2 * CURVE_POINTS);
                }
                assert!(curve.iter().rev().skip(1).all(|round| grids.has_curve_point(*round)));
                assert!(regret.len() <= 2 * REGRET_POINTS);
            }
        }
    }

    #[test]
    fn an_open_grid_does_not_depend_on_the_end() {
        let (long, _) = Grids::Open.points(10_000);
        let (short, _) = Grids::Open.points(5_000);
        assert_eq!(short[..short.len() - 1], long[..short.len() - 1]);
    }
}
