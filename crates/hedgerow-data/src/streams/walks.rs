//! `walks`: labels are random walks, one at each node. The node's last label is the best forecast.

use rand::RngExt;

use super::{PLAIN, Stream, gaussian};

/// Deviation of a step: the mean squared error of the last label is its square.
const STEP: f64 = 0.05;

/// A walk turns back at these labels, so that it stays near the unit scale for ever.
const BOUND: f64 = 1.0;

pub(super) static STREAM: Stream = Stream {
    name: "walks",
    summary: "a random walk at every node: only the node's last label tells anything",
    names_owners: true,
    is_time_series: true,
    generate: |request, rng| {
        let mut labels = request.each_node(rng, |rng| rng.random_range(-0.5..0.5));
        let nodes = labels.len();
        request.draw_each(rng, |index, rng| {
            let label = &mut labels[index % nodes];
            *label = reflected(*label + gaussian(rng, STEP));
            (rng.random::<[f64; 3]>(), *label)
        })
    },
    ..PLAIN
};

/// What is beyond a bound comes back by as much.
fn reflected(label: f64) -> f64 {
    let inside = label.clamp(-BOUND, BOUND);
    2.0 * inside - label
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NODES, assert_close};
    use super::*;

    #[test]
    fn steps_are_noise_within_the_bounds() {
        let data = STREAM.generate(1000 * NODES, NODES, 1);
        let steps = data.y.iter().zip(&data.y[NODES..]).map(|(a, b)| f64::from(b - a));
        let steps: Vec<f64> = steps.collect();
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / steps.len() as f64;
        assert_close(mean(&mut steps.iter().copied()), 0.0, 0.001);
        assert_close(mean(&mut steps.iter().map(|step| step * step)), STEP * STEP, 2e-4);
        let following = steps.iter().zip(&steps[NODES..]).map(|(a, b)| a * b);
        assert_close(mean(&mut following.into_iter()), 0.0, 5e-5);
        for (label, kept) in [(1.25, 0.75), (-1.5, -0.5), (0.5, 0.5)] {
            assert_eq!(reflected(label), kept);
        }
    }
}
