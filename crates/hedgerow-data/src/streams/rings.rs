//! `rings`: two classes with labels -1 and 1.

use std::f64::consts::TAU;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{PLAIN, Stream, gaussian};

pub(super) static STREAM: Stream = Stream {
    name: "rings",
    summary: "classification: two noisy concentric rings, labels ±1, 5% of them wrong",
    generate: |request, rng| request.draw_each(rng, |_, rng| sample(rng)),
    ..PLAIN
};

/// Rings of radius 0.4 (label 1) and 0.8 (label -1) with a deviation of 0.07; one label in twenty
/// is wrong.
fn sample(rng: &mut ChaCha8Rng) -> ([f64; 2], f64) {
    let inner = rng.random_bool(0.5);
    let radius = if inner { 0.4 } else { 0.8 } + gaussian(rng, 0.07);
    let angle = rng.random_range(0.0..TAU);
    let is_wrong = rng.random_bool(0.05);
    ([radius * angle.cos(), radius * angle.sin()], if inner != is_wrong { 1.0 } else { -1.0 })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NODES, assert_close};
    use super::*;

    #[test]
    fn rings_have_two_classes_and_a_twentieth_of_them_wrong() {
        let data = STREAM.generate(20_000, NODES, 9);
        assert!(data.y.iter().all(|y| y.abs() == 1.0));
        let inner = data.y.iter().filter(|y| **y == 1.0).count();
        assert_close(inner as f64 / 20_000.0, 0.5, 0.02);
        let wrong = (0..data.len()).filter(|t| {
            let (x, y) = data.sample(*t);
            (x[0].hypot(x[1]) < 0.6) != (y == 1.0)
        });
        assert_close(wrong.count() as f64 / 20_000.0, 0.05, 0.01);
    }
}
