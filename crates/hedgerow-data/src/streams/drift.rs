//! `drift`: the best kernel changes after half of the rounds.

use std::f64::consts::TAU;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::drift_course::DriftCourse;
use super::{PLAIN, Stream, gaussian};

pub(super) static STREAM: Stream = Stream {
    name: "drift",
    summary: "smooth in the first half, wiggly in the second: the best kernel changes midway",
    drift: Some(DriftCourse::Sudden),
    generate: |request, rng| {
        request.draw_each(rng, |index, rng| sample(request.drift_share(index), rng))
    },
    ..PLAIN
};

/// A point on the unit circle at angle θ: 0.8 cos(θ - 0.5) before the change and 0.8 sin 8θ after,
/// plus noise. The first is linear in the inputs and needs a wide Gaussian (σ² = 1 of the powers of
/// ten); the second has eight periods and needs one a hundred times narrower.
fn sample(share: f64, rng: &mut ChaCha8Rng) -> ([f64; 2], f64) {
    let angle = rng.random_range(0.0..TAU);
    let y = if share > 0.0 { (8.0 * angle).sin() } else { (angle - 0.5).cos() };
    let y = 0.8 * y + gaussian(rng, 0.05);
    ([angle.cos(), angle.sin()], y)
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use super::super::tests::NODES;
    use super::*;
    use crate::Dataset;

    #[test]
    fn drift_changes_its_function_between_two_rounds_at_half() {
        let residual = |data: &Dataset, t: usize, wiggly: bool| {
            let (x, y) = data.sample(t);
            let angle = x[1].atan2(x[0]);
            y - 0.8 * if wiggly { (8.0 * angle).sin() } else { (angle - 0.5).cos() }
        };
        for seed in 0..10 {
            let data = STREAM.generate(1_010, NODES, seed);
            // 50 whole rounds of 20: the change comes after 25.
            for t in 0..data.len() {
                let residual = residual(&data, t, t >= 500);
                assert!(residual.abs() < 0.3, "{residual} at {t} from seed {seed}");
            }
        }
        assert_eq!(STREAM.changes(50), [Change { after: 25, complete: 26 }]);
    }
}
