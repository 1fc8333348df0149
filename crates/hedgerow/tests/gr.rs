//! Properties of GR-OFL: it reaches the ridge solution of all data, in any unit of the labels and
//! for any partition; it is rarely worse than a running mean; and it handles missing nodes, drift,
//! extreme labels and hostile messages.

#![allow(clippy::unwrap_used)]

use crate::common::{TAIL, numbers};
use hedgerow::features::{Draw, Features, SampleMap};
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::learning::Loss;
use hedgerow::metrics::Tally;
use hedgerow::random::CounterRng;
use hedgerow::{Federation, Plan, PlanConfig};

#[derive(Debug, Clone, Copy)]
struct Shape {
    nodes: usize,
    inputs: usize,
    budget: usize,
    loss: Loss,
}

const USUAL: Shape = Shape { nodes: 4, inputs: 2, budget: 60, loss: Loss::Squared };

impl Shape {
    fn plan(&self) -> Plan {
        let Self { nodes, inputs, budget, loss } = *self;
        let config = PlanConfig::default().method("gr".parse().unwrap()).seed(3).personal(false);
        let config = config.draw(Draw::Independent);
        Plan::new(config.nodes(nodes).inputs(inputs).budget(budget).loss(loss)).unwrap()
    }

    fn map(&self) -> SampleMap {
        self.plan().map().clone()
    }
}

/// A node's samples in a round: inputs and labels.
#[derive(Debug, Clone)]
struct Arrival {
    node: u32,
    x: Vec<f32>,
    y: Vec<f32>,
    contact: Contact,
}

struct Fleet {
    map: SampleMap,
    federation: Federation,
}

impl Fleet {
    fn new(shape: &Shape) -> Self {
        Self { map: shape.map(), federation: Federation::new(&shape.plan()) }
    }

    /// Predictions and labels of a round.
    fn round(&mut self, arrivals: &[Arrival]) -> Vec<(f32, f32)> {
        let z: Vec<_> =
            arrivals.iter().map(|arrival| crate::common::features(&self.map, &arrival.x)).collect();
        let visits: Vec<_> = arrivals
            .iter()
            .zip(&z)
            .map(|(arrival, z)| NodeRound {
                node: arrival.node,
                z: Features::checked(z).unwrap(),
                y: &arrival.y,
                contact: arrival.contact,
            })
            .collect();
        let mut said = Vec::new();
        self.federation
            .round(&visits, |prediction| said.push((prediction.value, prediction.label)))
            .unwrap();
        assert!(said.iter().all(|(value, _)| value.is_finite()), "{said:?}");
        assert!(
            self.federation.server().broadcast(0).numbers.iter().all(|number| number.is_finite())
        );
        said
    }
}

/// One sample of every node in each round.
fn everyone(
    shape: &Shape,
    t: u64,
    inputs: impl Fn(&mut [f32]),
    label: impl Fn(&[f32], f32) -> f32,
) -> Vec<Arrival> {
    (0..shape.nodes as u32)
        .map(|node| {
            let seed = 1_000 * t + u64::from(node);
            let mut x = numbers(seed, shape.inputs);
            inputs(&mut x);
            let chance = CounterRng::from_seed(seed).uniform_at(999) as f32 * 2.0 - 1.0;
            let y = vec![label(&x, chance)];
            Arrival { node, x, y, contact: Contact::Full }
        })
        .collect()
}

type Inputs = fn(&mut [f32]);
type Labels = fn(&[f32], f32) -> f32;

fn as_they_are(_: &mut [f32]) {}

/// A smooth function of the inputs and some noise.
fn wave(x: &[f32], chance: f32) -> f32 {
    (3.0 * x[0]).sin() + 0.5 * x[x.len() - 1] + 0.2 * chance
}

/// Rounds without samples: histories answer.
fn silence(fleet: &mut Fleet, shape: &Shape, rounds: u64) {
    for _ in 0..rounds {
        let nobody = |node| Arrival { node, x: vec![], y: vec![], contact: Contact::Full };
        fleet.round(&(0..shape.nodes as u32).map(nobody).collect::<Vec<_>>());
    }
}

/// Solves A w = b by elimination.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for i in 0..n {
        let pivot = (i..n).max_by(|p, q| a[*p][i].abs().total_cmp(&a[*q][i].abs())).unwrap();
        a.swap(i, pivot);
        b.swap(i, pivot);
        let (above, below) = a.split_at_mut(i + 1);
        for (row, entry) in below.iter_mut().zip(i + 1..) {
            let factor = row[i] / above[i][i];
            row.iter_mut().zip(&above[i]).for_each(|(entry, pivot)| *entry -= factor * pivot);
            b[entry] -= factor * b[i];
        }
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| a[i][j] * b[j]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    b
}

#[test]
fn it_comes_to_the_ridge_solution_of_everybody_s_data() {
    // δ of the method.
    const PENALTY: f64 = 1e-5;
    for budget in [24, 60, 100] {
        let shape = Shape { budget, ..USUAL };
        let mut fleet = Fleet::new(&shape);
        let mut data = Vec::new();
        for t in 0..150 {
            let arrivals = everyone(&shape, t, as_they_are, wave);
            data.extend(
                arrivals
                    .iter()
                    .map(|arrival| (crate::common::features(&fleet.map, &arrival.x), arrival.y[0])),
            );
            fleet.round(&arrivals);
        }
        silence(&mut fleet, &shape, 100);
        let broadcast = &fleet.federation.server().broadcast(0).numbers;
        let len = broadcast.len() - TAIL;
        let origin = f64::from(broadcast[len]);
        let mut gram = vec![vec![0.0; len]; len];
        let mut moment = vec![0.0; len];
        for (z, y) in &data {
            for i in 0..len {
                (0..len).for_each(|j| gram[i][j] += f64::from(z[i]) * f64::from(z[j]));
                moment[i] += f64::from(z[i]) * (f64::from(*y) - origin);
            }
        }
        (0..len).for_each(|i| gram[i][i] += PENALTY);
        let best = solve(gram, moment);
        let found: Vec<f64> = broadcast[..len].iter().map(|w| f64::from(*w)).collect();
        let squares = |w: &[f64]| -> f64 {
            let errors = data.iter().map(|(z, y)| {
                let says: f64 = w.iter().zip(z).map(|(w, z)| w * f64::from(*z)).sum();
                (says - (f64::from(*y) - origin)).powi(2)
            });
            errors.sum::<f64>() + PENALTY * w.iter().map(|w| w * w).sum::<f64>()
        };
        let (found, best) = (squares(&found), squares(&best));
        assert!(len > shape.budget / 2, "{budget}: {len} features");
        // To a millionth of the least sum: messages are f32, and a model that has just grown is a
        // few steps away.
        assert!((found / best - 1.0).abs() < 1e-6, "{budget}: {found}, and {best} is possible");
        assert!(best > 1.0, "there is something that can't be explained");
    }
}

#[test]
fn predictions_follow_the_unit_of_the_labels() {
    let run = |factor: f32, offset: f32| {
        let mut fleet = Fleet::new(&USUAL);
        let label = |x: &[f32], chance: f32| factor * (wave(x, chance) + offset);
        let rounds = (0..200).map(|t| fleet.round(&everyone(&USUAL, t, as_they_are, label)));
        rounds
            .flatten()
            .map(|(said, _)| f64::from(said) / f64::from(factor) - f64::from(offset))
            .collect()
    };
    let plain: Vec<f64> = run(1.0, 0.0);
    for (factor, offset) in [(1e6, 0.0), (1e-6, 0.0), (1e6, 7.0), (1e-6, -7.0), (1.0, 7.0)] {
        let other: Vec<f64> = run(factor, offset);
        // The offset is unknown in the first round.
        let apart = plain.iter().zip(&other).skip(USUAL.nodes).map(|(a, b)| (a - b).abs());
        let most = apart.fold(0.0, f64::max);
        assert!(most < 1e-3, "times {factor}, after adding {offset}: {most}");
    }
}

#[test]
fn samples_may_be_dealt_in_any_way() {
    let run = |nodes: usize, deal: &dyn Fn(u64, usize) -> usize| {
        let shape = Shape { nodes, ..USUAL };
        let mut fleet = Fleet::new(&shape);
        let mut said = Vec::new();
        for t in 0..150 {
            let nobody = |node| Arrival { node, x: vec![], y: vec![], contact: Contact::Full };
            let mut arrivals: Vec<_> = (0..nodes as u32).map(nobody).collect();
            for (at, sample) in
                everyone(&Shape { nodes: 12, ..USUAL }, t, as_they_are, wave).iter().enumerate()
            {
                let to = &mut arrivals[deal(t, at)];
                to.x.extend(&sample.x);
                to.y.extend(&sample.y);
            }
            let mut round = fleet.round(&arrivals);
            round.sort_by(|a, b| a.1.total_cmp(&b.1));
            said.extend(round.into_iter().map(|(said, _)| f64::from(said)));
        }
        said
    };
    let alone = run(1, &|_, _| 0);
    let chance = CounterRng::from_seed(1);
    for (name, other) in [
        ("one each", run(12, &|_, at| at)),
        ("at random", run(5, &|t, at| (chance.bits_at(100 * t + at as u64) % 5) as usize)),
        ("most to one", run(3, &|_, at| at.saturating_sub(9))),
        ("in turns", run(4, &|t, _| t as usize % 4)),
    ] {
        // At first the bounds of predictions differ: a node with several samples reports only the
        // largest.
        let apart = alone.iter().zip(&other).skip(20 * 12).map(|(a, b)| (a - b).powi(2));
        let apart = (apart.sum::<f64>() / (alone.len() - 20 * 12) as f64).sqrt();
        assert!(apart < 0.01, "{name}: {apart}, where labels are about one");
    }
}

#[test]
fn whoever_comes_and_goes_it_learns() {
    let shape = Shape { nodes: 8, ..USUAL };
    let chance = CounterRng::from_seed(4);
    for (loss_rate, most) in [(0.0, 0.03), (0.3, 0.15), (0.7, 0.25)] {
        let mut fleet = Fleet::new(&shape);
        let (mut late, mut labels) = (Tally::default(), Tally::default());
        for t in 0..600u64 {
            let mut arrivals = everyone(&shape, t, as_they_are, wave);
            // Node 6 joins late, node 7 leaves, node 5 is absent for many rounds and returns.
            arrivals.retain(|arrival| match arrival.node {
                6 => t >= 200,
                7 => t < 300,
                5 => !(100..400).contains(&t),
                _ => true,
            });
            for arrival in &mut arrivals {
                let dice =
                    |throw: u64| chance.uniform_at(100 * t + 10 * throw + u64::from(arrival.node));
                if dice(0) < loss_rate {
                    arrival.contact = if dice(1) < 0.5 { Contact::Late } else { Contact::Lost };
                }
            }
            for (said, label) in fleet.round(&arrivals) {
                if t >= 500 {
                    late.add(f64::from(said - label).powi(2));
                    labels.add(f64::from(label).powi(2));
                }
            }
        }
        // Noise alone is 2 %.
        let share = late.mean() / labels.mean();
        assert!(share < most, "{loss_rate} of all contacts lost: {share} unexplained");
    }
}

#[test]
fn many_new_nodes_with_other_inputs_do_no_harm() {
    let shape = Shape { nodes: 20, inputs: 3, budget: 100, ..USUAL };
    let joins = 150;
    for seed in [0, 1, 2] {
        let mut fleet = Fleet::new(&shape);
        // Of old and new nodes: before, in the round in which half of all nodes join, after it.
        let mut errors = [[Tally::default(); 3]; 2];
        for t in 0..joins + 20 {
            let mut arrivals = everyone(&shape, 1_000 * seed + t, as_they_are, wave);
            for Arrival { node, x, y, .. } in &mut arrivals {
                let centre = if *node < 10 { -0.3 } else { 0.3 };
                x.iter_mut().for_each(|x| *x = centre + 0.1 * *x);
                y[0] = wave(x, 0.0);
            }
            arrivals.retain(|arrival| arrival.node < 10 || t >= joins);
            let when = usize::from(t >= joins) + usize::from(t > joins);
            for (node, (said, label)) in fleet.round(&arrivals).into_iter().enumerate() {
                if t + 20 >= joins {
                    errors[node / 10][when].add(f64::from(said - label).powi(2));
                }
            }
        }
        let [[before, _, old], [_, first, new]] = errors.map(|errors| errors.map(Tally::mean));
        assert!(old < 1e-3, "{seed}: old nodes {old}, before {before}");
        assert!(new < 0.5 * first, "{seed}: new nodes {new}, at first {first}");
    }
}

#[test]
fn an_abrupt_change_is_recovered_from() {
    let mut fleet = Fleet::new(&USUAL);
    let mut errors = [Tally::default(); 8];
    let mut forgotten = [0; 2];
    for t in 0..1600 {
        let sign = if t < 800 { 1.0 } else { -1.0 };
        for (said, label) in
            fleet.round(&everyone(&USUAL, t, as_they_are, |x, chance| sign * wave(x, chance)))
        {
            errors[t as usize / 200].add(f64::from(said - label).powi(2));
        }
        let broadcast = &fleet.federation.server().broadcast(0).numbers;
        // The last number also says what uploads look like, and what became of the past.
        forgotten[t as usize / 800] = broadcast[broadcast.len() - 1] as u32 / 512 % 16;
    }
    let errors = errors.map(Tally::mean);
    assert_eq!(
        forgotten,
        [0, 1],
        "times that all were told to forget, before the change and after it"
    );
    assert!(errors[4] > 3.0 * errors[3] && errors[7] < 1.15 * errors[3], "{errors:?}");
}

#[test]
fn huber_lives_with_wild_labels() {
    let error = |loss: Loss| {
        let shape = Shape { loss, ..USUAL };
        let mut fleet = Fleet::new(&shape);
        let mut clean = Tally::default();
        for t in 0..500 {
            let wild = |x: &[f32], chance: f32| {
                // One in twenty.
                if chance.abs() > 0.95 { 50.0 * chance } else { wave(x, chance) }
            };
            for (said, label) in fleet.round(&everyone(&shape, t, as_they_are, wild)) {
                if label.abs() < 10.0 {
                    clean.add(f64::from(said - label).powi(2));
                }
            }
        }
        clean.mean()
    };
    let (robust, squared) = (error(Loss::Huber { delta: 0.5 }), error(Loss::Squared));
    assert!(robust < 0.05 && squared > 10.0 * robust, "{robust}, {squared}");
}

#[test]
fn it_is_hardly_ever_worse_than_a_running_mean() {
    let inputs: [(&str, Inputs); 4] = [
        ("as they are", as_they_are),
        ("constant", |x| x.fill(0.3)),
        ("one of them constant", |x| x[0] = 1.0),
        ("all the same", |x| x.fill(x[0])),
    ];
    let labels: [(f64, &str, Labels); 6] = [
        (1.0, "noise", |_, chance| chance),
        (2.0, "smooth", |x, _| (3.0 * x[0]).sin() + 0.5),
        (2.0, "smooth and noise", |x, chance| (3.0 * x[0]).sin() + chance),
        (3.7, "constant", |_, _| 3.7),
        (1e12, "large", |x, _| 1e12 * (0.6 * x[0] + 0.4)),
        (1e12, "large noise", |_, chance| 1e12 * chance),
    ];
    // Nodes, inputs, budgets. A node alone has few samples: what its model costs at first is made
    // up for later.
    let shapes = [
        (1, 1, &[16, 100][..]),
        (1, 3, &[16, 17, 24, 100, 300]),
        (4, 1, &[16, 17, 24, 100]),
        (4, 3, &[16, 24, 100, 300]),
        (20, 10, &[17, 100]),
    ];
    for (of_inputs, inputs_of) in inputs {
        for (size, of_labels, label) in labels {
            for (nodes, inputs, budgets) in shapes {
                let rounds = if nodes == 1 { 600 } else { 150 };
                for &budget in budgets {
                    let shape = Shape { nodes, inputs, budget, ..USUAL };
                    let (own, mean) = against_a_mean(&shape, rounds, inputs_of, label);
                    // Where all labels are the same a mean is perfect.
                    let most = 1.05 * mean + (2e-5 * size).powi(2);
                    let what = format!("inputs {of_inputs}, labels {of_labels}, {shape:?}");
                    assert!(own <= most, "{what}: {own}, and {mean} for the mean");
                }
            }
        }
    }
}

/// Mean square errors of the method and of the mean of all labels so far, from the second round on.
fn against_a_mean(shape: &Shape, rounds: u64, inputs: Inputs, label: Labels) -> (f64, f64) {
    let mut fleet = Fleet::new(shape);
    let (mut own, mut mean, mut seen) = (Tally::default(), Tally::default(), Tally::default());
    for t in 0..rounds {
        let said = fleet.round(&everyone(shape, t, inputs, label));
        let before = seen.mean();
        for (value, label) in said {
            if t > 0 {
                own.add(f64::from(value - label).powi(2));
                mean.add((before - f64::from(label)).powi(2));
            }
            seen.add(f64::from(label));
        }
    }
    (own.mean(), mean.mean())
}
