//! `unrelated`: every node has a function of its own, and nothing is to be had from others.

use std::f64::consts::TAU;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{PLAIN, Stream, gaussian};

/// Deviation of the noise: no forecast has a smaller mean squared error than its square.
const NOISE: f64 = 0.05;

pub(super) static STREAM: Stream = Stream {
    name: "unrelated",
    summary: "every node has a function of its own: nodes have nothing to learn from each other",
    names_owners: true,
    generate: |request, rng| {
        let nodes = request.each_node(rng, Wave::draw);
        request.draw_each(rng, |index, rng| {
            let x = rng.random::<[f64; 3]>();
            (x, nodes[index % nodes.len()].label(&x) + gaussian(rng, NOISE))
        })
    },
    ..PLAIN
};

/// The function of a node: 0.8 cos(ω·x + φ). At every input the mean over φ is zero, so the best
/// function for all nodes together is zero.
struct Wave {
    frequencies: [f64; 3],
    phase: f64,
}

impl Wave {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        let frequencies = std::array::from_fn(|_| gaussian(rng, 2.0));
        Self { frequencies, phase: rng.random_range(0.0..TAU) }
    }

    fn label(&self, x: &[f64; 3]) -> f64 {
        let angle: f64 = self.frequencies.iter().zip(x).map(|(frequency, x)| frequency * x).sum();
        0.8 * (angle + self.phase).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NODES, assert_close};
    use super::*;

    #[test]
    fn labels_have_nothing_in_common_but_much_at_each_node() {
        let nodes = 400;
        let data = STREAM.generate(50 * nodes, nodes, 5);
        let of_node = |node: usize| (0..50).map(move |round| round * nodes + node);
        let mean = |node: usize| of_node(node).map(|t| f64::from(data.y[t])).sum::<f64>() / 50.0;
        let means: Vec<f64> = (0..nodes).map(mean).collect();
        assert_close(means.iter().sum::<f64>() / nodes as f64, 0.0, 0.05);
        assert!(means.iter().filter(|mean| mean.abs() > 0.1).count() > nodes / 2);
    }

    #[test]
    fn noise_is_what_is_left_at_each_node() {
        use rand::SeedableRng;
        let data = STREAM.generate(100 * NODES, NODES, 5);
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let waves: Vec<Wave> = (0..NODES).map(|_| Wave::draw(&mut rng)).collect();
        let rest = |t: usize| {
            let (x, y) = data.sample(t);
            let x = std::array::from_fn(|input| f64::from(x[input]));
            (f64::from(y) - waves[t % NODES].label(&x)).powi(2)
        };
        let left = (0..data.len()).map(rest).sum::<f64>() / data.len() as f64;
        assert_close(left.sqrt(), NOISE, 0.003);
    }
}
