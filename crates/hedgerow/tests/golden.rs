//! Golden values: runs of a reference implementation in f64, with given frequencies, samples and,
//! for MK-OFL, an imposed sequence of selected kernels. Everything that the reference wrote down is
//! compared. The models here are f32: predictions, losses and models reach 3e-6 of their size plus
//! 3e-7, and three times that is allowed; weights reach 2e-5 of their size however small they are;
//! the loss of the best function in hindsight 5e-8; the server's draw, all f64, 2e-16.

#![allow(clippy::unwrap_used)]

use hedgerow::baseline::Hindsight;
use hedgerow::features::{FeatureMap, Features, Kernel};
use hedgerow::learning::weights::{softmax, vote_log_weights};
use hedgerow::message::{Broadcast, Selection, Upload};
use hedgerow::{NodeMethod, Plan, PlanConfig};

use crate::common::mk_weights;
use serde_json::Value;

/// One file: a small federation, and the values of the reference.
struct Golden {
    file: Value,
    nodes: usize,
    rounds: usize,
    map: FeatureMap,
    config: PlanConfig,
}

fn goldens() -> [Golden; 2] {
    [include_str!("golden/tiny.json"), include_str!("golden/medium.json")].map(|text| {
        let file: Value = serde_json::from_str(text).unwrap();
        let size = |name: &str| file[name].as_u64().unwrap() as usize;
        let (kernels, frequencies, inputs, nodes) = (size("P"), size("D"), size("d"), size("K"));
        let rows = flat(&file["frequencies"]);
        let map = FeatureMap::from_frequencies(&rows, kernels, frequencies, inputs).unwrap();
        let ridge = file["lam"].as_f64().unwrap();
        // Frequencies come from the file: only the number of kernels counts.
        let dictionary = Kernel::paper_dictionary().into_iter().cycle().take(kernels).collect();
        let config = PlanConfig::default().kernels(dictionary).frequencies(Some(frequencies));
        let config = config.inputs(inputs).nodes(nodes).ridge(ridge);
        Golden { nodes, rounds: size("T"), map, config, file }
    })
}

impl Golden {
    /// Features of every node's sample in a round (from 0), node after node.
    fn features<'z>(&self, round: usize, buffer: &'z mut Vec<f32>) -> Features<'z> {
        let x: Vec<f32> = flat(&self.file["x"][round]).iter().map(|v| *v as f32).collect();
        buffer.resize(self.nodes * self.map.width(), 0.0);
        self.map.map_batch(&x, buffer)
    }

    fn labels(&self, round: usize) -> Vec<f32> {
        flat(&self.file["y"][round]).iter().map(|v| *v as f32).collect()
    }

    fn plan(&self, method: &str) -> Plan {
        Plan::new(self.config.clone().method(method.parse().unwrap())).unwrap()
    }

    fn node_halves(&self, method: &str) -> Vec<Box<dyn NodeMethod>> {
        (0..self.nodes as u32).map(|id| self.plan(method).node_method(id)).collect()
    }

    /// Predictions of all nodes in a round. Then they learn and upload.
    fn play(&self, method: &str, mut each: impl FnMut(usize, &[f32], &Broadcast, &Broadcast)) {
        let (mut nodes, mut server) = (self.node_halves(method), self.plan(method).server_method());
        let (mut buffer, mut upload) = (Vec::new(), Upload::default());
        for round in 0..self.rounds {
            let before = server.broadcast().clone();
            let mut predictions = Vec::new();
            let z = self.features(round, &mut buffer).samples(self.map.width());
            for (id, ((node, z), y)) in nodes.iter_mut().zip(z).zip(self.labels(round)).enumerate()
            {
                predictions.push(node.predict(z));
                node.learn(z, y).unwrap();
                assert!(node.upload(&mut upload));
                server.accept(id as u32, &upload).unwrap();
            }
            let after = server.close_round();
            nodes.iter_mut().for_each(|node| node.adopt(after).unwrap());
            each(round, &predictions, &before, after);
        }
    }
}

/// All numbers of a nested list, in order.
fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        number => vec![number.as_f64().unwrap()],
    }
}

fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|v| f64::from(*v)).collect()
}

/// Everything within `relative` of its size plus `absolute`.
fn assert_close(what: &str, found: &[f64], expected: &[f64], (relative, absolute): (f64, f64)) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (position, (found, expected)) in found.iter().zip(expected).enumerate() {
        let room = relative * expected.abs() + absolute;
        assert!(
            (found - expected).abs() <= room,
            "{what}[{position}]: {found}, expected {expected}"
        );
    }
}

/// The tolerance for f32.
const SINGLE: (f64, f64) = (1e-5, 1e-6);

#[test]
fn features_are_the_reference_s() {
    for golden in goldens() {
        let mut buffer = Vec::new();
        let z = golden.features(0, &mut buffer);
        // Sizes at most one: the absolute error is what counts.
        assert_close(
            "features",
            &wide(z.numbers()),
            &flat(&golden.file["features_t1"]),
            (0.0, 3e-7),
        );
    }
}

#[test]
fn mk_ofl_with_imposed_kernels_is_the_reference_s() {
    for golden in goldens() {
        let kernels = golden.map.kernels();
        let imposed: Vec<u32> =
            flat(&golden.file["imposed_kernels"]).iter().map(|kernel| *kernel as u32).collect();
        assert_eq!(imposed[..2], [0, 0], "nodes begin with the first kernel");
        let mut nodes = golden.node_halves("mk");
        let (mut buffer, mut upload) = (Vec::new(), Upload::default());
        for round in 0..golden.rounds {
            let step = &golden.file["mk_ofl"]["steps"][round];
            let at = |what: &str| format!("round {}: {what}", round + 1);
            let mut model = vec![0.0; golden.map.model_len()];
            let z = golden.features(round, &mut buffer).samples(golden.map.width());
            for (k, ((node, z), y)) in nodes.iter_mut().zip(z).zip(golden.labels(round)).enumerate()
            {
                let prediction = f64::from(node.predict(z));
                let before = mk_weights(node.as_ref());
                let objective = golden.plan("mk").objective();
                let global_loss = objective.value(prediction, f64::from(y), node.norm2());
                node.learn(z, y).unwrap();
                let after = mk_weights(node.as_ref());
                assert!(node.upload(&mut upload));
                model.iter_mut().zip(&upload.numbers).for_each(|(sum, v)| *sum += f64::from(*v));

                // Weights show how much more each kernel lost than the global one, whose loss is
                // known.
                let rate =
                    (kernels as f64).ln() / ((round + 1) as f64).sqrt() * golden.nodes as f64;
                let fall = |p: usize| before[p].ln() - after[p].ln();
                let global = imposed[round] as usize;
                let losses: Vec<f64> =
                    (0..kernels).map(|p| global_loss + (fall(p) - fall(global)) / rate).collect();

                assert_close(
                    &at("prediction"),
                    &[prediction],
                    &flat(&step["prediction"][k]),
                    SINGLE,
                );
                assert_close(&at("loss"), &losses, &flat(&step["loss"][k]), SINGLE);
                assert_close(
                    &at("upload"),
                    &wide(&upload.numbers),
                    &flat(&step["upload"][k]),
                    SINGLE,
                );
                assert_close(&at("weights"), &after, &flat(&step["weights"][k]), (5e-5, 0.0));
            }
            model.iter_mut().for_each(|sum| *sum /= golden.nodes as f64);
            assert_close(&at("model"), &model, &flat(&step["model"]), SINGLE);
            let broadcast = Broadcast {
                round: round as u64 + 2,
                kernels: Some(Selection { current: imposed[round + 1], next: imposed[round + 2] }),
                numbers: model.iter().map(|v| *v as f32).collect(),
            };
            nodes.iter_mut().for_each(|node| node.adopt(&broadcast).unwrap());
        }
    }
}

#[test]
fn sk_ofl_of_every_kernel_is_the_reference_s() {
    for golden in goldens() {
        for kernel in 0..golden.map.kernels() {
            golden.play(&format!("sk:{}", kernel + 1), |round, predictions, _, after| {
                let step = &golden.file["sk_ofl_per_kernel"][round];
                let expected: Vec<f64> =
                    (0..golden.nodes).flat_map(|k| flat(&step["prediction"][k][kernel])).collect();
                assert_close("prediction", &wide(predictions), &expected, SINGLE);
                assert_close("model", &wide(&after.numbers), &flat(&step["model"][kernel]), SINGLE);
            });
        }
    }
}

#[test]
fn naive_extension_is_the_reference_s() {
    for golden in goldens() {
        golden.play("naive", |round, predictions, before, _| {
            let step = &golden.file["naive"][round];
            let weights = wide(&before.numbers[golden.map.width()..]);
            assert_close("weights", &weights, &flat(&step["weights"]), SINGLE);
            assert_close("prediction", &wide(predictions), &flat(&step["prediction"]), SINGLE);
        });
    }
}

#[test]
fn server_draw_is_the_reference_s() {
    for golden in goldens() {
        let kernels = golden.map.kernels();
        for draw in golden.file["server_draw"].as_array().unwrap() {
            let mut votes = vec![0; kernels];
            flat(&draw["candidates"]).iter().for_each(|kernel| votes[*kernel as usize] += 1);
            let (mut log, mut probability) = (vec![0.0; kernels], vec![0.0; kernels]);
            vote_log_weights(&votes, &mut log);
            softmax(&log, &mut probability);
            assert_close("probability", &probability, &flat(&draw["probability"]), (1e-14, 0.0));
        }
    }
}

#[test]
fn best_function_in_hindsight_is_the_reference_s() {
    for golden in goldens() {
        let len = golden.map.model_len();
        for kernel in 0..golden.map.kernels() {
            let mut hindsight = Hindsight::new(len);
            let mut buffer = Vec::new();
            for round in 0..golden.rounds {
                let z = golden.features(round, &mut buffer);
                hindsight.add(z, golden.map.width(), kernel * len, &golden.labels(round));
            }
            assert_eq!(hindsight.samples(), (golden.rounds * golden.nodes) as u64);
            let best = hindsight.best(golden.config.ridge);
            let expected = &golden.file["hindsight"];
            assert_close("model", &best.model, &flat(&expected["model"][kernel]), SINGLE);
            assert_close(
                "loss",
                &[best.total_loss],
                &flat(&expected["total_loss"][kernel]),
                (1e-7, 0.0),
            );
        }
    }
}
