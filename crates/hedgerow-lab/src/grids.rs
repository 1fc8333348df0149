//! [`Grids`]: the rounds at which curves are recorded.

/// Points of a curve, and of the regret, which costs more.
const CURVE_POINTS: usize = 1000;
const REGRET_POINTS: usize = 40;

/// Of a live stream: points per e-fold of rounds.
const OPEN_CURVE: f64 = 200.0;
const OPEN_REGRET: f64 = 4.0;

/// The rounds at which curves and the regret are recorded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grids {
    pub(crate) curve: RoundGrid,
    pub(crate) regret: RoundGrid,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RoundGrid {
    /// The number of rounds is known: these rounds.
    Closed(Vec<u64>),
    /// The end is unknown: rounds are recorded more and more rarely, so many per e-fold.
    Open(f64),
}

impl Grids {
    /// Of a live stream.
    pub(crate) const OPEN: Self =
        Self { curve: RoundGrid::Open(OPEN_CURVE), regret: RoundGrid::Open(OPEN_REGRET) };

    pub(crate) fn closed(rounds: usize) -> Self {
        Self {
            curve: RoundGrid::Closed(curve_grid(rounds)),
            regret: RoundGrid::Closed(logarithmic_grid(rounds, REGRET_POINTS)),
        }
    }
}

impl RoundGrid {
    pub(crate) fn has(&self, round: u64) -> bool {
        match self {
            Self::Closed(rounds) => rounds.binary_search(&round).is_ok(),
            Self::Open(density) => is_milestone(round, *density),
        }
    }

    /// All points, now that the last round is known.
    pub(crate) fn points(&self, last: u64) -> Vec<u64> {
        match self {
            Self::Closed(rounds) => rounds.clone(),
            Self::Open(_) => {
                (1..=last).filter(|round| *round == last || self.has(*round)).collect()
            }
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
            for grids in [Grids::closed(rounds), Grids::OPEN] {
                let last = rounds as u64;
                let (curve, regret) = (grids.curve.points(last), grids.regret.points(last));
                for grid in [&curve, &regret] {
                    assert_eq!((grid[0], *grid.last().unwrap()), (1, rounds as u64));
                    assert!(grid.is_sorted() && grid.windows(2).all(|pair| pair[0] < pair[1]));
                    assert!(grid.len() <= 2 * CURVE_POINTS);
                }
                assert!(curve.iter().rev().skip(1).all(|round| grids.curve.has(*round)));
                assert!(regret.len() <= 2 * REGRET_POINTS);
            }
        }
    }

    #[test]
    fn an_open_grid_does_not_depend_on_the_end() {
        let (long, short) = (Grids::OPEN.curve.points(10_000), Grids::OPEN.curve.points(5_000));
        assert_eq!(short[..short.len() - 1], long[..short.len() - 1]);
    }
}
