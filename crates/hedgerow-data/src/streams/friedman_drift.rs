//! `drift-gradual`, `drift-recurring` and `drift-flip`: Friedman's function, changing over time.

use std::f64::consts::FRAC_PI_2;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::drift_course::DriftCourse;
use super::friedman::{FRIEDMAN_MEAN, friedman};
use super::{PLAIN, Request, Samples, Stream, gaussian};

pub(super) static GRADUAL: Stream = Stream {
    name: "drift-gradual",
    summary: "Friedman #1 hands over from its first five inputs to the last five, slowly",
    drift: Some(DriftCourse::Gradual),
    generate: handover,
    ..PLAIN
};

pub(super) static RECURRING: Stream = Stream {
    name: "drift-recurring",
    summary: "the same back and forth: six parts, sudden changes between them",
    drift: Some(DriftCourse::Recurring),
    generate: handover,
    ..PLAIN
};

pub(super) static FLIP: Stream = Stream {
    name: "drift-flip",
    summary: "Friedman #1 about its mean: labels change sign midway",
    drift: Some(DriftCourse::Sudden),
    generate: |request, rng| {
        request.draw_each(rng, |index, rng| flip_sample(request.drift_share(index), rng))
    },
    ..PLAIN
};

fn handover(request: &Request, rng: &mut ChaCha8Rng) -> Samples {
    request.draw_each(rng, |index, rng| handover_sample(request.drift_share(index), rng))
}

/// Friedman's function of the first five inputs, then of the last five. Between the two the label
/// is cos φ of the one and sin φ of the other about their mean, so its variance and its noise stay
/// the same. Scaled as the stream without drift.
fn handover_sample(share: f64, rng: &mut ChaCha8Rng) -> ([f64; 10], f64) {
    let x = rng.random::<[f64; 10]>();
    let mut turned = x;
    turned.rotate_left(5);
    let (sin, cos) = (share * FRAC_PI_2).sin_cos();
    let y = FRIEDMAN_MEAN
        + cos * (friedman(&x) - FRIEDMAN_MEAN)
        + sin * (friedman(&turned) - FRIEDMAN_MEAN);
    (x, (y + gaussian(rng, 1.0)) / 30.0)
}

/// Friedman's function about its mean: a change of sign changes neither the mean nor the variance
/// of the labels.
fn flip_sample(share: f64, rng: &mut ChaCha8Rng) -> ([f64; 10], f64) {
    let x = rng.random::<[f64; 10]>();
    let y = (1.0 - 2.0 * share) * (friedman(&x) - FRIEDMAN_MEAN) + gaussian(rng, 1.0);
    (x, y / 15.0)
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use super::super::tests::NODES;
    use super::*;
    use crate::Dataset;

    /// Labels of both concepts without noise, for a stream made of Friedman's function.
    fn concepts(stream: &Stream, x: &[f32]) -> (f64, f64) {
        let mut x: [f64; 10] = std::array::from_fn(|input| f64::from(x[input]));
        let first = friedman(&x);
        x.rotate_left(5);
        match stream.name {
            "drift-flip" => ((first - FRIEDMAN_MEAN) / 15.0, (FRIEDMAN_MEAN - first) / 15.0),
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
    fn a_flip_changes_signs_at_half_and_nothing_else() {
        let data = FLIP.generate(600 * NODES, NODES, 3);
        let spread = noise(&data, |round, x| {
            let (first, second) = concepts(&FLIP, x);
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
        assert_eq!(FLIP.changes(600), [Change { after: 300, complete: 301 }]);
    }

    #[test]
    fn a_gradual_drift_slides_over_the_middle_third() {
        let stream = &GRADUAL;
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
        let stream = &RECURRING;
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
        for stream in [&GRADUAL, &RECURRING, &FLIP] {
            let data = stream.generate(100 * NODES, NODES, 1);
            let wrong = noise(&data, |_, x| concepts(stream, x).1);
            // The first concept has at least the first sixth.
            assert!(wrong[..16].iter().all(|spread| *spread > 0.14), "{wrong:?}");
        }
    }
}
