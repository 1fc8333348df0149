//! `friedman`: Friedman's first regression problem.

use std::f64::consts::PI;

use rand::RngExt;

use super::{PLAIN, Stream, gaussian};

/// The function is within [0, 30] without its noise. Labels are divided by 30, so the noise has
/// deviation 1/30.
pub(super) static STREAM: Stream = Stream {
    name: "friedman",
    summary: "Friedman #1: five inputs that matter, five that don't, and noise",
    generate: |request, rng| {
        request.draw_each(rng, |_, rng| {
            let x = rng.random::<[f64; 10]>();
            let y = friedman(&x) + gaussian(rng, 1.0);
            (x, y / 30.0)
        })
    },
    ..PLAIN
};

/// Mean of Friedman's function over its inputs: 10·Cin(π)/π + 20/12 + 5 + 5/2.
pub(super) const FRIEDMAN_MEAN: f64 = 14.413;

/// Friedman's function of the first five inputs.
pub(super) fn friedman(x: &[f64; 10]) -> f64 {
    10.0 * (PI * x[0] * x[1]).sin() + 20.0 * (x[2] - 0.5).powi(2) + 10.0 * x[3] + 5.0 * x[4]
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_close;
    use super::*;

    #[test]
    fn friedman_at_a_point_worked_out_by_hand() {
        let mut x = [0.9; 10];
        x[..5].copy_from_slice(&[0.5, 1.0, 0.0, 0.25, 0.4]);
        // 10 sin(π/2) + 20 · 0.25 + 2.5 + 2
        assert_close(friedman(&x), 19.5, 1e-12);
    }
}
