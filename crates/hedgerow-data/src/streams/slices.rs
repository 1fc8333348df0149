//! `slices`: every node sees its own part of the inputs and labels.

use std::f64::consts::TAU;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{PLAIN, Stream, gaussian};

pub(super) static STREAM: Stream = Stream {
    name: "slices",
    summary: "heterogeneous: every node sees its own slice of the inputs and labels",
    names_owners: true,
    generate: |request, rng| {
        request.draw_each(rng, |index, rng| sample(index % request.nodes, request.nodes, rng))
    },
    ..PLAIN
};

/// The first input is from the node's slice of [0, 1] and determines most of the label. Two more
/// inputs, with the same distribution for all nodes, change it a little.
fn sample(node: usize, nodes: usize, rng: &mut ChaCha8Rng) -> ([f64; 3], f64) {
    let within = rng.random::<[f64; 3]>();
    let x = [(node as f64 + within[0]) / nodes as f64, within[1], within[2]];
    let y = 0.8 * x[0] + 0.1 * (1.0 + (TAU * x[1]).sin() * x[2]) + gaussian(rng, 0.01);
    (x, y)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NODES, assert_close};
    use super::*;

    #[test]
    fn slices_give_every_node_its_own_inputs_and_labels() {
        let data = STREAM.generate(2_019, NODES, 6);
        assert_eq!(data.len(), 2_000);
        let owner = data.owners.clone().unwrap().ids;
        let mut label_means = [0.0; NODES];
        for (t, owner) in owner.into_iter().enumerate() {
            let node = t % NODES;
            assert_eq!(owner as usize, node);
            let (x, y) = data.sample(t);
            assert_close(f64::from(x[0]) * NODES as f64, node as f64 + 0.5, 0.5001);
            label_means[node] += f64::from(y) / 100.0;
        }
        // 0.04 apart from node to node by design.
        assert!(label_means.windows(2).all(|pair| pair[1] > pair[0]), "{label_means:?}");
    }
}
