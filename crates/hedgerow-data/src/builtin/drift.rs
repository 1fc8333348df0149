//! Streams whose function changes from one concept to another. A change is always between two
//! rounds, so that all nodes see the same concept in a round.

use std::f64::consts::{FRAC_PI_2, TAU};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{friedman, gaussian};

/// How a stream changes from one concept to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// At once, at half time.
    Sudden,
    /// In equal steps over the middle third.
    Gradual,
    /// Alternating, in six equal parts.
    Recurring,
}

/// Rounds over which a stream changes: from the last one of the old concept to the first of the
/// new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The last round before it, counted from 1.
    pub after: u64,
    /// The first round of the new concept alone.
    pub complete: u64,
}

impl Change {
    /// Whether it happens between two rounds.
    pub fn is_sudden(self) -> bool {
        self.complete == self.after + 1
    }
}

const PARTS: usize = 6;

impl Course {
    /// The share of the second concept in a round, counted from 0.
    pub(super) fn share(self, round: usize, rounds: usize) -> f64 {
        match self {
            Self::Sudden => f64::from(round >= rounds / 2),
            Self::Gradual => {
                let (start, end) = (rounds / 3, 2 * rounds / 3);
                ((round + 1).saturating_sub(start) as f64 / (end + 1 - start) as f64).min(1.0)
            }
            Self::Recurring => {
                let passed = (1..PARTS).filter(|part| round >= part * rounds / PARTS).count();
                (passed % 2) as f64
            }
        }
    }

    /// The changes of a stream of this number of rounds, in order.
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

/// A point on the unit circle at angle θ: 0.8 cos(θ - 0.5) before the change and 0.8 sin 8θ after,
/// plus noise. Linear in the inputs, the first wants a wide Gaussian (σ² = 1 of the powers of ten);
/// eight waves around want one a hundred times narrower.
pub(super) fn kernel_sample(share: f64, rng: &mut ChaCha8Rng) -> ([f64; 2], f64) {
    let angle = rng.random_range(0.0..TAU);
    let y = if share > 0.0 { (8.0 * angle).sin() } else { (angle - 0.5).cos() };
    let y = 0.8 * y + gaussian(rng, 0.05);
    ([angle.cos(), angle.sin()], y)
}

/// Mean of Friedman's function over its inputs: 10·Cin(π)/π + 20/12 + 5 + 5/2.
const FRIEDMAN_MEAN: f64 = 14.413;

/// Friedman's function of the first five inputs, and the same of the last five: what mattered no
/// longer does. Between the two it turns, cos φ of the one and sin φ of the other about their mean,
/// so that labels are as spread, and as hard to tell, all the way. Scaled as the stream without
/// drift.
pub(super) fn handover_sample(share: f64, rng: &mut ChaCha8Rng) -> ([f64; 10], f64) {
    let x = rng.random::<[f64; 10]>();
    let mut turned = x;
    turned.rotate_left(5);
    let (sin, cos) = (share * FRAC_PI_2).sin_cos();
    let y = FRIEDMAN_MEAN
        + cos * (friedman(&x) - FRIEDMAN_MEAN)
        + sin * (friedman(&turned) - FRIEDMAN_MEAN);
    (x, (y + gaussian(rng, 1.0)) / 30.0)
}

/// Friedman's function about its mean, so that a change of sign moves neither the mean nor the
/// spread of the labels.
pub(super) fn flip_sample(share: f64, rng: &mut ChaCha8Rng) -> ([f64; 10], f64) {
    let x = rng.random::<[f64; 10]>();
    let y = (1.0 - 2.0 * share) * (friedman(&x) - FRIEDMAN_MEAN) + gaussian(rng, 1.0);
    (x, y / 15.0)
}

#[cfg(test)]
mod tests {
    use super::super::Builtin;
    use super::*;
    use crate::Dataset;

    const NODES: usize = 20;
    const STREAMS: [Builtin; 4] =
        [Builtin::Drift, Builtin::DriftGradual, Builtin::DriftRecurring, Builtin::DriftFlip];

    /// Labels of both concepts without noise, for a stream made of Friedman's function.
    fn concepts(stream: Builtin, x: &[f32]) -> (f64, f64) {
        let mut x: [f64; 10] = std::array::from_fn(|input| f64::from(x[input]));
        let first = friedman(&x);
        x.rotate_left(5);
        match stream {
            Builtin::DriftFlip => ((first - FRIEDMAN_MEAN) / 15.0, (FRIEDMAN_MEAN - first) / 15.0),
            _ => (first / 30.0, friedman(&x) / 30.0),
        }
    }

    /// Root mean square difference between labels and what they should be, round by round.
    fn noise(data: &Dataset, expected: impl Fn(usize, &[f32]) -> f64) -> Vec<f64> {
        let square = |t: usize| {
            let (x, y) = data.sample(t);
            (f64::from(y) - expected(t / NODES, &x)).powi(2)
        };
        let round = |round: usize| (0..NODES).map(|node| square(round * NODES + node)).sum::<f64>();
        (0..data.len() / NODES).map(|r| (round(r) / NODES as f64).sqrt()).collect()
    }

    #[test]
    fn drift_changes_its_function_between_two_rounds_at_half() {
        let residual = |data: &Dataset, t: usize, wiggly: bool| {
            let (x, y) = data.sample(t);
            let angle = x[1].atan2(x[0]);
            y - 0.8 * if wiggly { (8.0 * angle).sin() } else { (angle - 0.5).cos() }
        };
        for seed in 0..10 {
            let data = Builtin::Drift.generate(1_010, NODES, seed);
            // 50 whole rounds of 20: the change comes after 25.
            for t in 0..data.len() {
                let residual = residual(&data, t, t >= 500);
                assert!(residual.abs() < 0.3, "{residual} at {t} from seed {seed}");
            }
        }
        assert_eq!(Builtin::Drift.changes(50), [Change { after: 25, complete: 26 }]);
    }

    #[test]
    fn a_flip_changes_signs_at_half_and_nothing_else() {
        let data = Builtin::DriftFlip.generate(600 * NODES, NODES, 3);
        let spread = noise(&data, |round, x| {
            let (first, second) = concepts(Builtin::DriftFlip, x);
            if round < 300 { first } else { second }
        });
        assert!(spread.iter().all(|spread| (0.02..0.14).contains(spread)), "{spread:?}");
        let (before, after) = data.y.split_at(300 * NODES);
        for half in [before, after] {
            let mean = half.iter().map(|y| f64::from(*y)).sum::<f64>() / half.len() as f64;
            let variance = half.iter().map(|y| (f64::from(*y) - mean).powi(2)).sum::<f64>()
                / half.len() as f64;
            // A deviation of 0.33 of 6000 labels.
            assert!(mean.abs() < 0.02, "{mean}");
            assert!((0.09..0.14).contains(&variance), "{variance}");
        }
        assert_eq!(Builtin::DriftFlip.changes(600), [Change { after: 300, complete: 301 }]);
    }

    #[test]
    fn a_gradual_drift_slides_over_the_middle_third() {
        let stream = Builtin::DriftGradual;
        let data = stream.generate(300 * NODES, NODES, 5);
        let mean = FRIEDMAN_MEAN / 30.0;
        // Least squares on both concepts: how far each round has got between them.
        let got: Vec<f64> = (0..300)
            .map(|round| {
                let [mut aa, mut ab, mut bb, mut ay, mut by] = [0.0; 5];
                for t in round * NODES..(round + 1) * NODES {
                    let (x, y) = data.sample(t);
                    let (a, b) = concepts(stream, &x);
                    let (a, b, y) = (a - mean, b - mean, f64::from(y) - mean);
                    (aa, ab, bb, ay, by) =
                        (aa + a * a, ab + a * b, bb + b * b, ay + a * y, by + b * y);
                }
                (aa * by - ab * ay).atan2(bb * ay - ab * by) / FRAC_PI_2
            })
            .collect();
        for (round, got) in got.iter().enumerate() {
            let expected = ((round as f64 - 99.0) / 101.0).clamp(0.0, 1.0);
            assert!((got - expected).abs() < 0.2, "{got} instead of {expected} in round {round}");
        }
        let means: Vec<f64> =
            got.chunks(100).map(|third| third.iter().sum::<f64>() / 100.0).collect();
        for (mean, expected) in means.iter().zip([0.0, 0.5, 1.0]) {
            assert!((mean - expected).abs() < 0.01, "{means:?}");
        }
        let spread = |third: &[f32]| {
            third.iter().map(|y| (f64::from(*y) - mean).powi(2)).sum::<f64>() / third.len() as f64
        };
        let spreads: Vec<f64> = data.y.chunks(100 * NODES).map(spread).collect();
        // Friedman's variance of 24 and the noise's of 1, over 30².
        assert!(spreads.iter().all(|spread| (0.025..0.031).contains(spread)), "{spreads:?}");
        assert_eq!(stream.changes(300), [Change { after: 100, complete: 201 }]);
    }

    #[test]
    fn a_recurring_drift_goes_back_and_forth() {
        let stream = Builtin::DriftRecurring;
        let data = stream.generate(60 * NODES + 7, NODES, 5);
        let spread = noise(&data, |round, x| {
            let (first, second) = concepts(stream, x);
            if (round / 10).is_multiple_of(2) { first } else { second }
        });
        assert!(spread.iter().all(|spread| (0.01..0.07).contains(spread)), "{spread:?}");
        let after: Vec<u64> = stream.changes(60).iter().map(|change| change.after).collect();
        assert_eq!(after, [10, 20, 30, 40, 50]);
    }

    #[test]
    fn concepts_differ_by_more_than_the_noise() {
        for stream in STREAMS.into_iter().filter(|stream| *stream != Builtin::Drift) {
            let data = stream.generate(100 * NODES, NODES, 1);
            let wrong = noise(&data, |_, x| concepts(stream, x).1);
            // The first concept has at least the first sixth.
            assert!(wrong[..16].iter().all(|spread| *spread > 0.14), "{wrong:?}");
        }
    }

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
            assert!(Builtin::Friedman.changes(rounds).is_empty());
        }
        assert!(STREAMS.iter().all(|stream| !stream.changes(12).is_empty()));
    }
}
