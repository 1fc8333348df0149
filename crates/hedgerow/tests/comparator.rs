//! References: the naive extension with all nodes present equals centralised mini-batch learning,
//! one sample per step is the sequential form, and no fixed function has less loss than the best
//! one in hindsight. The reference is implemented here again, simply and in f64.

#![allow(clippy::unwrap_used)]

use crate::common::{Case, FREQUENCIES, INPUTS, config, federation, map, numbers};
use hedgerow::Federation;
use hedgerow::baseline::{BestFunction, Hindsight, Omkl};
use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::learning::{Loss, Objective};

use proptest::prelude::*;

const KERNELS: usize = 4;
const LEN: usize = 2 * FREQUENCIES;

/// Features and labels of so many samples.
fn samples(count: usize, loss: Loss) -> (Vec<f32>, Vec<f32>) {
    let map = map(KERNELS);
    let x = numbers(12, count * INPUTS);
    let mut z = vec![0.0; count * map.width()];
    map.map_batch(&x, &mut z);
    let y = x.chunks_exact(INPUTS).map(|x| (5.0 * x[0]).sin() + 0.2 * x[1] - 0.4);
    (z, y.map(|y| if loss == Loss::Logistic { y.signum() } else { y }).collect())
}

fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|number| f64::from(*number)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Online multi-kernel learning on mini-batches.
struct Reference {
    objective: Objective,
    step: u64,
    models: Vec<Vec<f64>>,
    log_weights: Vec<f64>,
}

impl Reference {
    fn new(objective: Objective) -> Self {
        let models = vec![vec![0.0; LEN]; KERNELS];
        Self { objective, step: 0, models, log_weights: vec![0.0; KERNELS] }
    }

    fn weights(&self) -> Vec<f64> {
        let largest = self.log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = self.log_weights.iter().map(|log| (log - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    fn predict(&self, z: &[f64]) -> f64 {
        let parts = self.models.iter().zip(z.chunks_exact(LEN)).map(|(model, z)| dot(model, z));
        self.weights().iter().zip(parts).map(|(weight, part)| weight * part).sum()
    }

    fn learn(&mut self, batch: &[(Vec<f64>, f64)]) {
        self.step += 1;
        let root = (self.step as f64).sqrt();
        let ridge = self.objective.ridge;
        for (p, model) in self.models.iter_mut().enumerate() {
            let mut gradient = vec![0.0; LEN];
            for (z, y) in batch {
                let z = &z[p * LEN..(p + 1) * LEN];
                let prediction = dot(model, z);
                let (value, slope) = match self.objective.loss {
                    Loss::Squared => ((prediction - y).powi(2), 2.0 * (prediction - y)),
                    Loss::Logistic => {
                        ((-y * prediction).exp().ln_1p(), -y / (1.0 + (y * prediction).exp()))
                    }
                    Loss::Huber { delta } => {
                        let (error, sign) = ((prediction - y).abs(), (prediction - y).signum());
                        let far = (delta * (2.0 * error - delta), 2.0 * delta * sign);
                        if error > delta { far } else { (error * error, 2.0 * error * sign) }
                    }
                };
                self.log_weights[p] -=
                    (KERNELS as f64).ln() / root * (value + ridge * dot(model, model));
                for ((gradient, z), w) in gradient.iter_mut().zip(z).zip(model.iter()) {
                    *gradient += (slope * z + 2.0 * ridge * w) / batch.len() as f64;
                }
            }
            model.iter_mut().zip(&gradient).for_each(|(w, g)| *w -= g / root);
        }
    }
}

const LOSSES: [Loss; 3] = [Loss::Squared, Loss::Logistic, Loss::Huber { delta: 0.3 }];

fn case(method: &str, loss: Loss, nodes: usize) -> Case {
    Case::new(config(method, KERNELS).loss(loss).nodes(nodes))
}

#[test]
fn naive_with_everyone_present_is_centralised_mini_batch_learning() {
    for loss in LOSSES {
        for nodes in [1, 5] {
            let (case, rounds) = (case("naive", loss, nodes), 300);
            let (z, y) = samples(rounds * nodes, loss);
            let width = z.len() / y.len();
            let mut federation = Federation::new(&case.plan);
            let mut reference = Reference::new(case.plan.objective());
            for (z, y) in z.chunks_exact(nodes * width).zip(y.chunks_exact(nodes)) {
                let features = Features::checked(z).unwrap().samples(width);
                let visits: Vec<_> = features
                    .zip(y.chunks(1))
                    .zip(0..)
                    .map(|((z, y), node)| NodeRound { node, z, y, contact: Contact::Full })
                    .collect();
                let batch: Vec<_> = z.chunks_exact(width).map(wide).zip(wide(y)).collect();
                federation
                    .round(&visits, |prediction| {
                        let expected = reference.predict(&batch[prediction.node as usize].0);
                        let error = (f64::from(prediction.value) - expected).abs();
                        assert!(error < 2e-6, "{loss:?}, {nodes} nodes: {error}");
                    })
                    .unwrap();
                reference.learn(&batch);
            }
        }
    }
}

#[test]
fn omkl_is_mini_batch_learning_with_one_sample() {
    for loss in LOSSES {
        let plan = case("local", loss, 1).plan;
        let mut reference = Reference::new(plan.objective());
        let mut omkl = Omkl::new(plan.setup());
        let (z, y) = samples(1000, loss);
        for (features, &y) in Features::checked(&z).unwrap().samples(z.len() / y.len()).zip(&y) {
            let z = wide(features.numbers());
            let error = (f64::from(omkl.predict(features)) - reference.predict(&z)).abs();
            assert!(error < 2e-6, "{loss:?}: {error}");
            omkl.learn(features, y).unwrap();
            reference.learn(&[(z, f64::from(y))]);
            for (found, expected) in omkl.weights().iter().zip(reference.weights()) {
                assert!((found - expected).abs() < 2e-6, "{loss:?}");
            }
            let norms = reference.models.iter().map(|model| dot(model, model));
            let norm2: f64 =
                reference.weights().iter().zip(norms).map(|(q, norm2)| q * norm2).sum();
            assert!((omkl.norm2() - norm2).abs() < 1e-5 * (1.0 + norm2), "{loss:?}");
        }
    }
}

const RIDGE: f64 = 0.01;

/// The samples as one kernel sees them.
fn one_kernel(count: usize, kernel: usize) -> Vec<(Vec<f64>, f64)> {
    let (z, y) = samples(count, Loss::Squared);
    let parts = z.chunks_exact(KERNELS * LEN).map(|z| wide(&z[kernel * LEN..(kernel + 1) * LEN]));
    parts.zip(wide(&y)).collect()
}

fn total_loss(samples: &[(Vec<f64>, f64)], model: &[f64], ridge: f64) -> f64 {
    samples.iter().map(|(z, y)| (dot(model, z) - y).powi(2) + ridge * dot(model, model)).sum()
}

fn best(count: usize, kernel: usize, ridge: f64) -> BestFunction {
    let (z, y) = samples(count, Loss::Squared);
    let mut hindsight = Hindsight::new(LEN);
    // In blocks of different sizes.
    let (width, mut at) = (KERNELS * LEN, 0);
    for block in (1..).take_while(|block| block * (block - 1) / 2 < count) {
        let end = (at + block).min(count);
        let z = Features::checked(&z[at * width..end * width]).unwrap();
        hindsight.add(z, width, kernel * LEN, &y[at..end]);
        at = end;
    }
    assert_eq!(hindsight.samples(), count as u64);
    hindsight.best(ridge)
}

#[test]
fn losses_in_hindsight_are_those_of_the_model() {
    for kernel in 0..KERNELS {
        // Without a ridge the sums are nearly singular.
        for (ridge, room) in [(0.0, 1e-6), (RIDGE, 1e-9), (3.0, 1e-9)] {
            let (samples, best) = (one_kernel(200, kernel), best(200, kernel, ridge));
            let exact = total_loss(&samples, &best.model, ridge);
            assert!(
                (best.total_loss - exact).abs() < room * (1.0 + exact),
                "{} {exact}",
                best.total_loss
            );
            let exact = total_loss(&samples, &best.model, 0.0);
            assert!(
                (best.squared_error - exact).abs() < room * (1.0 + exact),
                "{} {exact}",
                best.squared_error
            );
        }
    }
}

proptest! {
    #[test]
    fn no_other_function_beats_the_best_in_hindsight(
        kernel in 0..KERNELS,
        count in 1usize..150,
        size in -6i32..2,
        direction in proptest::collection::vec(-1.0f64..1.0, LEN),
    ) {
        let (samples, best) = (one_kernel(count, kernel), best(count, kernel, RIDGE));
        let other: Vec<f64> =
            best.model.iter().zip(&direction).map(|(w, d)| w + d * 10f64.powi(size)).collect();
        let loss = total_loss(&samples, &other, RIDGE);
        prop_assert!(loss >= best.total_loss - 1e-9 * loss, "{} beats {}", loss, best.total_loss);
    }
}

#[test]
fn regret_stays_below_the_bound_of_online_gradient_descent() {
    let rounds = 3000;
    for kernel in 0..KERNELS {
        let (points, best) = (one_kernel(rounds, kernel), best(rounds, kernel, RIDGE));
        let mut federation = federation(config(&format!("sk:{}", kernel + 1), KERNELS).nodes(1));
        let (z, y) = samples(rounds, Loss::Squared);
        let (mut suffered, mut farthest, mut steps) = (0.0, 0.0f64, 0.0);
        for (t, (exact, label)) in points.iter().enumerate() {
            let model = wide(&federation.server().broadcast(0).numbers);
            let error = dot(&model, exact) - label;
            suffered += error * error + RIDGE * dot(&model, &model);
            let away: f64 = model.iter().zip(&best.model).map(|(w, b)| (w - b).powi(2)).sum();
            farthest = farthest.max(away);
            let gradient = exact.iter().zip(&model).map(|(z, w)| 2.0 * error * z + 2.0 * RIDGE * w);
            steps += gradient.map(|g| g * g).sum::<f64>() / (2.0 * ((t + 1) as f64).sqrt());
            let z = Features::checked(&z[t * KERNELS * LEN..(t + 1) * KERNELS * LEN]).unwrap();
            let visit = NodeRound { node: 0, z, y: &y[t..=t], contact: Contact::Full };
            federation.round(&[visit], |_| {}).unwrap();
        }
        // Zinkevich's bound for steps of 1/√t, with the distances and gradients that really
        // occurred.
        let bound = farthest * (rounds as f64).sqrt() / 2.0 + steps;
        let regret = suffered - best.total_loss;
        assert!(regret <= bound, "kernel {kernel}: {regret} above {bound}");
        // The final model is also a fixed function, and so is zero.
        for fixed in [wide(&federation.server().broadcast(0).numbers), vec![0.0; LEN]] {
            assert!(total_loss(&points, &fixed, RIDGE) >= best.total_loss);
        }
    }
}
