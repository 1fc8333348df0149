//! `narma`: a nonlinear moving average with a memory of ten steps.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{PLAIN, Request, Samples, Stream};

pub(super) static STREAM: Stream = Stream {
    name: "narma",
    summary: "NARMA-10: a nonlinear recursion with a memory of 10 steps",
    is_time_series: true,
    generate: samples,
    ..PLAIN
};

/// Steps that the recursion looks back.
const MEMORY: usize = 10;
/// Upper bound of labels. The recursion's mean map has an unstable fixed point near 1.02 and
/// diverges above it; just below, it returns.
const CLIP: f64 = 1.0;
/// Steps after which the start no longer matters.
const TRANSIENT: usize = 200;

/// Features: the last ten inputs, doubled to fill [0, 1], then the last ten labels, both latest
/// first. Labels are not scaled.
fn samples(request: &Request, rng: &mut ChaCha8Rng) -> Samples {
    // Latest first, as the features are.
    let mut inputs = [0.0; MEMORY];
    let mut labels = [0.0; MEMORY];
    let mut advance = |_: usize, rng: &mut ChaCha8Rng| {
        inputs.rotate_right(1);
        inputs[0] = rng.random_range(0.0..0.5);
        let features: [f64; 2 * MEMORY] =
            std::array::from_fn(|feature| match feature.checked_sub(MEMORY) {
                Some(lag) => labels[lag],
                None => 2.0 * inputs[feature],
            });
        let label = narma(&inputs, &labels).min(CLIP);
        labels.rotate_right(1);
        labels[0] = label;
        (features, label)
    };
    for step in 0..TRANSIENT {
        advance(step, rng);
    }
    request.draw_each(rng, advance)
}

/// The next label before clipping, from the last ten inputs and labels, latest first.
fn narma(inputs: &[f64; MEMORY], labels: &[f64; MEMORY]) -> f64 {
    let sum: f64 = labels.iter().sum();
    0.3 * labels[0] + 0.05 * labels[0] * sum + 1.5 * inputs[MEMORY - 1] * inputs[0] + 0.1
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NODES, assert_close};
    use super::*;

    #[test]
    fn narma_follows_its_recursion() {
        // 0.3 · 0.4 + 0.05 · 0.4 · 2.2 + 1.5 · 0.5 · 0.2 + 0.1
        let (mut inputs, mut labels) = ([0.3; 10], [0.2; 10]);
        (inputs[0], inputs[9], labels[0]) = (0.2, 0.5, 0.4);
        assert_close(narma(&inputs, &labels), 0.414, 1e-12);

        let data = STREAM.generate(100, NODES, 5);
        for t in 1..data.len() {
            let (x, y) = data.sample(t);
            assert_eq!(x[10], data.y[t - 1]);
            assert_eq!(x[1], data.sample(t - 1).0[0]);
            let inputs = std::array::from_fn(|lag| f64::from(x[lag]) / 2.0);
            let labels = std::array::from_fn(|lag| f64::from(x[10 + lag]));
            assert_close(narma(&inputs, &labels), f64::from(y), 1e-6);
        }
    }
}
