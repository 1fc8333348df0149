//! Methods of other papers compared with their definitions. Each is implemented here again, simply,
//! in f64 and without the library except for its random numbers, and must agree in every round.
//! Random choices are unbiased, and every method learns.

#![allow(clippy::unwrap_used)]

use crate::common::{
    Case, FREQUENCIES, INPUTS, config, features, is_linear, map, map_for, methods, numbers,
};
use hedgerow::features::{FeatureMap, Features};
use hedgerow::federation::{Contact, NodeRound, Prediction};
use hedgerow::learning::{Schedule, WeightRule};
use hedgerow::message::{Broadcast, Upload};
use hedgerow::method::PofOptions;
use hedgerow::metrics::Tally;
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::{Plan, PlanConfig};

const KERNELS: usize = 3;
const NODES: usize = 4;
const ROUNDS: usize = 25;
const LEN: usize = 2 * FREQUENCIES;
const RIDGE: f64 = 0.02;
const SEED: u64 = 11;
/// η_l and η_g/ln P begin with these and fall as 1/√t.
const STEP: f64 = 0.2;
const WEIGH: f64 = 0.9;

type Vector = Vec<f64>;

fn dot(a: &[f64], b: &[f64]) -> f64 {
    (0..a.len()).map(|i| a[i] * b[i]).sum()
}

/// L(w; z, y).
fn objective(w: &[f64], z: &[f64], y: f64) -> f64 {
    (dot(w, z) - y).powi(2) + RIDGE * dot(w, w)
}

fn gradient(w: &[f64], z: &[f64], y: f64) -> Vector {
    let error = dot(w, z) - y;
    (0..w.len()).map(|i| 2.0 * error * z[i] + 2.0 * RIDGE * w[i]).collect()
}

/// w − rate·direction.
fn stepped(w: &[f64], rate: f64, direction: &[f64]) -> Vector {
    (0..w.len()).map(|i| w[i] - rate * direction[i]).collect()
}

fn mean(vectors: &[Vector]) -> Vector {
    let sum = |i: usize| vectors.iter().map(|vector| vector[i]).sum::<f64>();
    (0..vectors[0].len()).map(|i| sum(i) / vectors.len() as f64).collect()
}

/// Weights that sum to one, from what each was charged.
fn shares(charged: &[f64]) -> Vector {
    let least = charged.iter().copied().fold(f64::INFINITY, f64::min);
    let weights: Vector = charged.iter().map(|charge| (least - charge).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Where `uniform` falls among probabilities laid end to end.
fn falls_on(probabilities: &[f64], uniform: f64) -> usize {
    let mut end = 0.0;
    for (index, probability) in probabilities.iter().enumerate() {
        end += probability;
        if uniform < end {
            return index;
        }
    }
    probabilities.len() - 1
}

fn step_size(round: usize) -> f64 {
    STEP / (round as f64).sqrt()
}

fn weight_rate(round: usize, experts: usize) -> f64 {
    WEIGH / (round as f64).sqrt() * (experts as f64).ln()
}

/// Features of a sample, one kernel after the other, and its label.
struct Sample {
    z: Vec<Vector>,
    linear: Vector,
    y: f64,
}

/// Who learns what: in round t (from 1) node k learns this many samples, some rounds none and some
/// rounds two.
fn arrivals(t: usize, k: usize) -> usize {
    match (t + 2 * k) % 7 {
        0 => 0,
        1 => 2,
        _ => 1,
    }
}

fn raw(t: usize, k: usize, which: usize) -> (Vec<f32>, f32) {
    let x = numbers((100 * t + 10 * k + which) as u64, INPUTS);
    let y = (2.0 * x[0]).sin() + 0.3 * x[1] + 0.2 * k as f32;
    (x, y)
}

fn sample(map: &FeatureMap, t: usize, k: usize, which: usize) -> Sample {
    let (x, y) = raw(t, k, which);
    let wide = |numbers: Vec<f32>| -> Vector { numbers.into_iter().map(f64::from).collect() };
    let mut z = vec![0.0; map.width()];
    map.map(&x, &mut z);
    let z = wide(z);
    let z = z.chunks(LEN).map(<[f64]>::to_vec).collect();
    Sample { z, linear: wide([&[1.0], &x[..]].concat()), y: f64::from(y) }
}

fn case(method: &str, pof: PofOptions) -> Case {
    let config = config(method, KERNELS)
        .nodes(NODES)
        .ridge(RIDGE)
        .step_size(Schedule::Anytime { scale: STEP })
        .weight_rate(Schedule::Anytime { scale: WEIGH })
        .weight_rule(WeightRule::Incremental)
        .seed(SEED)
        .pof(pof);
    Case::new(config)
}

/// What the library says: predictions of all nodes on all their samples, and the numbers of each
/// broadcast.
fn found(method: &'static str, pof: PofOptions) -> (Vec<f64>, Vec<Vector>) {
    let (map, case) = (map_for(method, KERNELS), case(method, pof));
    let mut nodes: Vec<_> = (0..NODES as u32).map(|id| case.node(id)).collect();
    let mut server = case.server();
    let (mut said, mut broadcasts) = (Vec::new(), Vec::new());
    for t in 1..=ROUNDS {
        for (k, node) in nodes.iter_mut().enumerate() {
            for which in 0..arrivals(t, k) {
                let (x, y) = raw(t, k, which);
                let z = features(&map, &x);
                let z = Features::checked(&z).unwrap();
                said.push(f64::from(node.predict(z)));
                node.learn(z, y).unwrap();
            }
            let mut upload = Upload::default();
            if node.upload(&mut upload) {
                server.accept(k as u32, &upload).unwrap();
            }
        }
        let broadcast = server.close_round();
        nodes.iter_mut().for_each(|node| node.adopt(broadcast).unwrap());
        broadcasts.push(broadcast.numbers.iter().map(|number| f64::from(*number)).collect());
    }
    (said, broadcasts)
}

/// Models are f32, and what they lose in rounding goes through exponentials.
#[track_caller]
fn assert_close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let room = 2e-5 * (1.0 + expected.abs());
        assert!((found - expected).abs() < room, "{what} {at}: {found}, expected {expected}");
    }
}

#[track_caller]
fn assert_agrees(method: &'static str, pof: PofOptions, (said, models): (Vec<f64>, Vec<Vector>)) {
    let (found_said, found_models) = found(method, pof);
    assert_close("prediction", &found_said, &said);
    for (t, (found, expected)) in found_models.iter().zip(&models).enumerate() {
        assert_close(&format!("{method:?}, broadcast {t}, number"), found, expected);
    }
    // Nothing is compared with nothing.
    let size = said.iter().fold(0f64, |size, value| size.max(value.abs()));
    assert!((0.1..10.0).contains(&size), "{size}");
}

#[test]
fn em_kofl_is_as_defined() {
    let map = map(KERNELS);
    let draws = CounterRng::from_seed(SEED).derive(Purpose::Selection, 0);
    let mut own = vec![vec![vec![0.0; LEN]; KERNELS]; NODES];
    let (mut global, mut current, mut next) = (vec![0.0; LEN], 0, 0);
    let mut charged = vec![0.0; KERNELS];
    let (mut said, mut broadcasts, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
    for t in 1..=ROUNDS {
        let (mut uploads, mut lost) = (Vec::new(), vec![0.0; KERNELS]);
        for (k, own) in own.iter_mut().enumerate() {
            for which in 0..arrivals(t, k) {
                let Sample { z, y, .. } = sample(&map, t, k, which);
                said.push(dot(&global, &z[current]));
                for p in 0..KERNELS {
                    lost[p] += objective(&own[p], &z[p], y);
                    own[p] = stepped(&own[p], step_size(t + which), &gradient(&own[p], &z[p], y));
                }
            }
            if arrivals(t, k) > 0 {
                uploads.push(own[next].clone());
            }
        }
        global = mean(&uploads);
        (0..KERNELS).for_each(|p| charged[p] += weight_rate(t, KERNELS) * lost[p]);
        current = next;
        next = falls_on(&shares(&charged), draws.uniform_at(t as u64));
        drawn.push(next);
        own.iter_mut().for_each(|own| own[current].clone_from(&global));
        broadcasts.push(global.clone());
    }
    assert!(drawn.iter().any(|kernel| *kernel != drawn[0]), "the draw is a draw: {drawn:?}");
    assert_agrees("emk", PofOptions::default(), (said, broadcasts));
}

/// POF-MKL as its authors have it.
fn pof_mkl(options: PofOptions) -> (Vec<f64>, Vec<Vector>) {
    let (map, most) = (map(KERNELS), options.kernels_per_upload);
    let mut theta = vec![vec![0.0; LEN]; KERNELS];
    let mut charged = vec![vec![0.0; KERNELS]; NODES];
    let (mut said, mut broadcasts) = (Vec::new(), Vec::new());
    for t in 1..=ROUNDS {
        let (mut uploads, mut sums) = (0.0, vec![vec![0.0; LEN]; KERNELS]);
        for (k, charged) in charged.iter_mut().enumerate() {
            let q = shares(charged);
            let mut order: Vec<usize> = (0..KERNELS).collect();
            order.sort_by(|a, b| charged[*a].total_cmp(&charged[*b]));
            let bins: Vec<&[usize]> = order.chunks(most).collect();
            let probabilities: Vector = bins
                .iter()
                .map(|bin| {
                    let weight: f64 = bin.iter().map(|p| q[*p]).sum();
                    (1.0 - options.exploration) * weight + options.exploration / bins.len() as f64
                })
                .collect();
            let stream = CounterRng::from_seed(SEED).derive(Purpose::Vote, k as u64);
            let bin = falls_on(&probabilities, stream.uniform_at(t as u64));
            let mut local = theta.clone();
            for which in 0..arrivals(t, k) {
                let Sample { z, y, .. } = sample(&map, t, k, which);
                let q = shares(charged);
                said.push((0..KERNELS).map(|p| q[p] * dot(&theta[p], &z[p])).sum());
                for p in 0..KERNELS {
                    charged[p] += weight_rate(t + which, KERNELS) * objective(&theta[p], &z[p], y);
                    local[p] =
                        stepped(&local[p], step_size(t + which), &gradient(&local[p], &z[p], y));
                }
            }
            if arrivals(t, k) > 0 {
                uploads += 1.0;
                for &p in bins[bin] {
                    let whole_step = stepped(&theta[p], 1.0, &local[p]);
                    sums[p] = stepped(&sums[p], -1.0 / probabilities[bin], &whole_step);
                }
            }
        }
        for p in 0..KERNELS {
            theta[p] = stepped(&theta[p], 1.0 / uploads, &sums[p]);
        }
        broadcasts.push(theta.concat());
    }
    (said, broadcasts)
}

#[test]
fn pof_mkl_is_as_defined() {
    for kernels_per_upload in 1..=KERNELS {
        for exploration in [0.1, 0.4, 1.0] {
            let options = PofOptions { kernels_per_upload, exploration };
            assert_agrees("pof", options, pof_mkl(options));
        }
    }
}

#[test]
fn fed_poe_is_as_defined() {
    let map = map(KERNELS);
    let mut theta = vec![vec![0.0; LEN]; KERNELS];
    let mut own = vec![vec![vec![0.0; LEN]; KERNELS]; NODES];
    let mut of_federated = vec![vec![0.0; KERNELS]; NODES];
    let mut of_own = vec![vec![0.0; KERNELS]; NODES];
    let mut of_both = [[0.0; 2]; NODES];
    let mut seen = [0; NODES];
    let (mut said, mut broadcasts) = (Vec::new(), Vec::new());
    for t in 1..=ROUNDS {
        let mut uploads = Vec::new();
        for k in 0..NODES {
            let mut local = theta.clone();
            for which in 0..arrivals(t, k) {
                let Sample { z, y, .. } = sample(&map, t, k, which);
                seen[k] += 1;
                let mixture = |weights: &[f64], models: &[Vector]| -> f64 {
                    (0..KERNELS).map(|p| weights[p] * dot(&models[p], &z[p])).sum()
                };
                let both = [
                    mixture(&shares(&of_federated[k]), &theta),
                    mixture(&shares(&of_own[k]), &own[k]),
                ];
                said.push(dot(&shares(&of_both[k]), &both));
                for part in 0..2 {
                    of_both[k][part] += weight_rate(t + which, 2) * (both[part] - y).powi(2);
                }
                for p in 0..KERNELS {
                    of_federated[k][p] +=
                        weight_rate(t + which, KERNELS) * objective(&theta[p], &z[p], y);
                    local[p] =
                        stepped(&local[p], step_size(t + which), &gradient(&local[p], &z[p], y));
                    // Sequential, time is counted in samples.
                    of_own[k][p] += weight_rate(seen[k], KERNELS) * objective(&own[k][p], &z[p], y);
                    own[k][p] =
                        stepped(&own[k][p], step_size(seen[k]), &gradient(&own[k][p], &z[p], y));
                }
            }
            if arrivals(t, k) > 0 {
                uploads.push(local.concat());
            }
        }
        let averaged = mean(&uploads);
        broadcasts.push(averaged.clone());
        theta = averaged.chunks(LEN).map(<[f64]>::to_vec).collect();
    }
    assert_agrees("fedpoe", PofOptions::default(), (said, broadcasts));
}

/// A⁻¹b by elimination.
fn solved(a: &[Vector], b: &[f64]) -> Vector {
    let (mut a, mut b, n) = (a.to_vec(), b.to_vec(), b.len());
    for pivot in 0..n {
        for row in (0..n).filter(|row| *row != pivot) {
            let factor = a[row][pivot] / a[pivot][pivot];
            (0..n).for_each(|column| a[row][column] -= factor * a[pivot][column]);
            b[row] -= factor * b[pivot];
        }
    }
    (0..n).map(|i| b[i] / a[i][i]).collect()
}

#[test]
fn linear_models_are_as_defined() {
    let (map, len) = (map(KERNELS), INPUTS + 1);
    for method in ["linear", "linear-newton"] {
        let mut w = vec![0.0; len];
        let identity: Vec<Vector> =
            (0..len).map(|i| (0..len).map(|j| if i == j { 1.0 } else { 0.0 }).collect()).collect();
        let mut curvature = vec![identity; NODES];
        let (mut said, mut broadcasts) = (Vec::new(), Vec::new());
        for t in 1..=ROUNDS {
            let mut uploads = Vec::new();
            for (k, curvature) in curvature.iter_mut().enumerate() {
                let mut local = w.clone();
                for which in 0..arrivals(t, k) {
                    let Sample { linear: z, y, .. } = sample(&map, t, k, which);
                    said.push(dot(&w, &z));
                    let g = gradient(&local, &z, y);
                    for (i, row) in curvature.iter_mut().enumerate() {
                        (0..len).for_each(|j| row[j] += g[i] * g[j]);
                    }
                    local = match method {
                        "linear" => stepped(&local, step_size(t + which) / len as f64, &g),
                        _ => stepped(&local, STEP, &solved(curvature, &g)),
                    };
                }
                if arrivals(t, k) > 0 {
                    uploads.push(local);
                }
            }
            w = mean(&uploads);
            broadcasts.push(w.clone());
        }
        assert_agrees(method, PofOptions::default(), (said, broadcasts));
    }
}

#[test]
fn what_is_chosen_by_chance_is_the_whole_step_on_average() {
    for kernels_per_upload in [1, 2] {
        let case = case("pof", PofOptions { kernels_per_upload, exploration: 0.3 });
        let (map, nodes) = (map_for("pof", KERNELS), 20_000);
        let (x, y) = raw(1, 0, 0);
        let z = features(&map, &x);
        let z = Features::checked(&z).unwrap();
        let theta = numbers(5, KERNELS * LEN);
        let opened = Broadcast { round: 2, kernels: None, numbers: theta.clone() };
        let mut upload = Upload::default();
        let (mut sums, mut squares) = (vec![0.0; KERNELS * LEN], vec![0.0; KERNELS * LEN]);
        let mut weights = [0.0; KERNELS];
        for id in 0..nodes {
            let mut node = case.node(id);
            // One round in which weights part, and the round that is looked at.
            node.adopt(&opened).unwrap();
            (0..6).for_each(|_| node.learn(z, y).unwrap());
            node.adopt(&Broadcast { round: 3, ..opened.clone() }).unwrap();
            node.learn(z, y).unwrap();
            node.shares(&mut weights);
            assert!(node.upload(&mut upload));
            let parts = (upload.numbers.len() + 1) / (LEN + 1);
            let (numbers, others) = upload.numbers.split_at(parts * LEN);
            let kernels = upload.vote.into_iter().chain(others.iter().map(|kernel| *kernel as u32));
            for (kernel, numbers) in kernels.zip(numbers.chunks(LEN)) {
                for (i, number) in numbers.iter().enumerate() {
                    sums[kernel as usize * LEN + i] += f64::from(*number);
                    squares[kernel as usize * LEN + i] += f64::from(*number).powi(2);
                }
            }
        }
        let spread = weights.iter().copied().fold(0.0, f64::max)
            - weights.iter().copied().fold(1.0, f64::min);
        assert!(spread > 0.05, "{weights:?}");
        for p in 0..KERNELS {
            let wide =
                |numbers: &[f32]| -> Vector { numbers.iter().map(|v| f64::from(*v)).collect() };
            let (w, z) = (wide(&theta[p * LEN..][..LEN]), wide(&z.numbers()[p * LEN..][..LEN]));
            let whole = gradient(&w, &z, f64::from(y));
            for i in 0..LEN {
                let count = f64::from(nodes);
                let average = sums[p * LEN + i] / count;
                let deviation = (squares[p * LEN + i] / count - average * average).sqrt();
                let expected = step_size(3) * whole[i];
                let room = 5.0 * deviation / count.sqrt() + 1e-6;
                assert!(
                    (average - expected).abs() < room,
                    "kernel {p}, {i}: {average}, expected {expected}"
                );
            }
        }
    }
}

#[test]
fn every_method_learns_what_it_can() {
    // A slow wave, of which a straight line leaves 4 %.
    let rounds = 600;
    for method in methods(KERNELS) {
        let map = map_for(method, KERNELS);
        let step_size = match method {
            "pof" => Schedule::Horizon { scale: 1.0, rounds },
            _ => Schedule::Anytime { scale: 1.0 },
        };
        let config = config(method, KERNELS).nodes(NODES).step_size(step_size).ridge(1e-4);
        let mut federation = crate::common::federation(config);
        let (mut error, mut label) = (Tally::default(), Tally::default());
        for t in 0..rounds {
            let x: Vec<Vec<f32>> = (0..NODES).map(|k| numbers(10 * t + k as u64, INPUTS)).collect();
            let y: Vec<f32> = x.iter().map(|x| (2.0 * x[0]).sin()).collect();
            let z: Vec<Vec<f32>> = x.iter().map(|x| features(&map, x)).collect();
            let visits: Vec<_> = (0..NODES)
                .map(|k| NodeRound {
                    node: k as u32,
                    z: Features::checked(&z[k]).unwrap(),
                    y: &y[k..=k],
                    contact: Contact::Full,
                })
                .collect();
            let seen = |prediction: Prediction<'_>| {
                if t >= rounds / 2 {
                    error.add(f64::from(prediction.value - prediction.label).powi(2));
                    label.add(f64::from(prediction.label).powi(2));
                }
            };
            federation.round(&visits, seen).unwrap();
        }
        let share = error.mean() / label.mean();
        // A kernel chosen beforehand may be any.
        let most = match method {
            _ if method.starts_with("sk") => 0.2,
            _ if is_linear(method) => 0.07,
            _ => 0.025,
        };
        assert!(share < most, "{method:?}: {share}");
    }
}

#[test]
fn options_of_pof_mkl_are_checked() {
    let refused = |kernels_per_upload, exploration| {
        let pof = PofOptions { kernels_per_upload, exploration };
        Plan::new(config("pof", 3).pof(pof)).unwrap_err().to_string()
    };
    assert_eq!(refused(0, 0.1), "pof.kernels_per_upload must be at least 1, but is 0");
    assert_eq!(refused(4, 0.1), "pof.kernels_per_upload must be at most 3, but is 4");
    assert_eq!(refused(1, 1.5), "pof.exploration must be between 0 and 1, but is 1.5");
    assert!(refused(1, f64::NAN).contains("is NaN"));
    let refused = Plan::new(PlanConfig::default().inputs(0)).unwrap_err().to_string();
    assert_eq!(refused, "inputs must be at least 1, but is 0");
}
