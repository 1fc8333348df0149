//! `fleet`: one function for all nodes, seen through offsets and gains of their own.

use rand::RngExt;

use super::friedman::{FRIEDMAN_MEAN, friedman};
use super::{PLAIN, Stream, gaussian};

/// Deviation of the noise: no forecast has a smaller mean squared error than its square.
const NOISE: f64 = 0.03;

pub(super) static STREAM: Stream = Stream {
    name: "fleet",
    summary: "Friedman #1 at every node, with an offset and a gain of the node's own",
    names_owners: true,
    generate: |request, rng| {
        let nodes = request.each_node(rng, |rng| Sensor {
            offset: rng.random_range(-0.4..0.4),
            gain: rng.random_range(0.6..1.4),
        });
        request.draw_each(rng, |index, rng| {
            let x = rng.random::<[f64; 10]>();
            (x, nodes[index % nodes.len()].label(&x) + gaussian(rng, NOISE))
        })
    },
    ..PLAIN
};

/// How a node sees the function.
struct Sensor {
    offset: f64,
    gain: f64,
}

impl Sensor {
    /// The function is within ±0.52 about its mean.
    fn label(&self, x: &[f64; 10]) -> f64 {
        self.offset + self.gain * (friedman(x) - FRIEDMAN_MEAN) / 30.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NODES, assert_close};
    use super::*;

    #[test]
    fn labels_of_a_node_are_a_line_in_the_shared_function() {
        let data = STREAM.generate(200 * NODES, NODES, 3);
        let mut found = Vec::new();
        for node in 0..NODES {
            let points: Vec<(f64, f64)> = (0..200)
                .map(|round| {
                    let (x, y) = data.sample(round * NODES + node);
                    let x = std::array::from_fn(|input| f64::from(x[input]));
                    ((friedman(&x) - FRIEDMAN_MEAN) / 30.0, f64::from(y))
                })
                .collect();
            let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / 200.0;
            let (f, y) = (mean(&|point| point.0), mean(&|point| point.1));
            let gain =
                mean(&|point| (point.0 - f) * (point.1 - y)) / mean(&|point| (point.0 - f).powi(2));
            let sensor = Sensor { offset: y - gain * f, gain };
            let rest = mean(&|point| (point.1 - sensor.offset - gain * point.0).powi(2));
            assert_close(rest.sqrt(), NOISE, 0.006);
            found.push(sensor);
        }
        for of in [|sensor: &Sensor| sensor.offset, |sensor: &Sensor| sensor.gain] {
            let values = || found.iter().map(of);
            let spread = values().fold(f64::MIN, f64::max) - values().fold(f64::MAX, f64::min);
            assert!((0.5..0.85).contains(&spread), "{spread}");
        }
    }
}
