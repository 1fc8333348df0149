//! Importance of columns: it finds what labels depend on and sensors that die, and changes nothing
//! of what is learned.

#![allow(clippy::unwrap_used)]

use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::importance::{GroupImportance, ImportanceScope};
use hedgerow::method::METHODS;
use hedgerow::plan::Scaling;
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::scaling::ScaleKind;
use hedgerow::{Federation, Plan, PlanConfig};

pub(crate) const NODES: usize = 4;

pub(crate) fn config(method: &str, inputs: usize) -> PlanConfig {
    PlanConfig::default().method(method.parse().unwrap()).inputs(inputs).nodes(NODES)
}

pub(crate) fn online(config: PlanConfig) -> PlanConfig {
    config.scaling(Scaling::Online { kind: ScaleKind::Spread })
}

/// Uniform inputs of a sample.
pub(crate) fn inputs(node: usize, round: usize, count: usize) -> Vec<f32> {
    let random = CounterRng::from_seed(5).derive(Purpose::Data, node as u64);
    (0..count).map(|i| random.uniform_at((round * count + i) as u64) as f32).collect()
}

/// Learns in rounds; `sample` gives inputs and label of a node.
pub(crate) fn learned(
    config: PlanConfig,
    rounds: usize,
    sample: impl Fn(usize, usize) -> (Vec<f32>, f32),
) -> Federation {
    let mut federation = Federation::new(&Plan::new(config).unwrap());
    federation.connect();
    for round in 0..rounds {
        for (id, node) in federation.nodes_mut().iter_mut().enumerate() {
            let (x, y) = sample(id, round);
            node.learn(&x, &[y]).unwrap();
        }
        federation.exchange();
    }
    federation
}

/// Friedman's function: the last five inputs say nothing, and the fourth says most.
pub(crate) fn friedman(node: usize, round: usize) -> (Vec<f32>, f32) {
    let x = inputs(node, round, 10);
    let y = 10.0 * (std::f32::consts::PI * x[0] * x[1]).sin()
        + 20.0 * (x[2] - 0.5).powi(2)
        + 10.0 * x[3]
        + 5.0 * x[4];
    (x, y)
}

/// Mean increase at each group, over nodes, in the label's own unit.
fn importance(federation: &mut Federation) -> Vec<f64> {
    mean(federation, GroupImportance::mean)
}

fn recent(federation: &mut Federation) -> Vec<f64> {
    mean(federation, |group| group.recent)
}

fn mean(federation: &mut Federation, value: fn(&GroupImportance) -> f64) -> Vec<f64> {
    let nodes = federation.nodes_mut();
    let groups = nodes[0].importance().len();
    let of = |group: usize| {
        let each =
            nodes.iter().map(|node| value(&node.importance()[group]) * node.importance_unit());
        each.sum::<f64>() / nodes.len() as f64
    };
    (0..groups).map(of).collect()
}

#[test]
fn columns_are_as_important_as_the_truth_says() {
    for method in ["tr", "gr", "mk"] {
        let config = online(config(method, 10)).importance(ImportanceScope::Local);
        let found = importance(&mut learned(config, 1500, friedman));
        let most = found[3];
        assert!(found.iter().all(|other| *other <= most), "{method}: {found:?}");
        for useless in &found[5..] {
            assert!(useless.abs() < most / 10.0, "{method}: {found:?}");
        }
        let least = found[..5].iter().copied().fold(f64::MAX, f64::min);
        let clearly = found[5..].iter().all(|useless| *useless < least / 2.0);
        assert!(clearly || method != "tr", "{method}: {found:?}");
    }
}

#[test]
fn a_sensor_that_dies_is_seen() {
    let half = 600;
    // From half time on the first sensor sends a constant, or noise, while the label still follows
    // what it would have measured.
    let sample = |is_noise: bool| {
        move |node: usize, round: usize| {
            let mut x = inputs(node, round, 3);
            let y = 4.0 * x[0] + 2.0 * x[1];
            if round >= half {
                x[0] = if is_noise { inputs(node + 100, round, 1)[0] } else { 0.7 };
            }
            (x, y)
        }
    };
    for is_noise in [false, true] {
        for method in ["tr", "gr"] {
            let config = online(config(method, 3)).importance(ImportanceScope::Local);
            let before = recent(&mut learned(config.clone(), half, sample(is_noise)));
            let after = recent(&mut learned(config, 5 * half / 2, sample(is_noise)));
            let seen = format!("{method}, noise {is_noise}: {before:?} {after:?}");
            assert!(before[0] > before[1] && before[1] > 0.2, "{seen}");
            assert!(after[0].abs() < before[0] / 5.0 && after[1] > 0.2, "{seen}");
        }
    }
}

#[test]
fn what_is_learned_stays_the_same_to_the_bit() {
    for info in METHODS.iter().filter(|info| info.halves.is_some()) {
        let name = if info.takes_kernel { format!("{}:3", info.name) } else { info.name.into() };
        let Ok(method) = name.parse() else { continue };
        let config = online(PlanConfig::default().method(method).inputs(10).nodes(NODES));
        let with = config.clone().importance(ImportanceScope::Local);
        let (Ok(_), Ok(_)) = (Plan::new(config.clone()), Plan::new(with.clone())) else {
            panic!("{name}");
        };
        let mut plain = learned(config, 150, friedman);
        let mut measured = learned(with, 150, friedman);
        for (one, other) in plain.nodes_mut().iter().zip(measured.nodes_mut().iter()) {
            assert!(one.save() == other.save(), "{name}");
            assert!(other.importance().iter().any(|group| group.measured > 0), "{name}");
        }
        assert!(plain.save() == measured.save(), "{name}");
    }
}

/// The same with a driver that maps samples itself.
pub(crate) fn learned_mapped(
    plan: &Plan,
    rounds: usize,
    sample: impl Fn(usize, usize) -> (Vec<f32>, f32),
) -> Federation {
    let mut mapped = Federation::new(plan);
    for round in 0..rounds {
        let samples: Vec<_> = (0..NODES).map(|node| sample(node, round)).collect();
        let mut z = vec![vec![0.0; plan.width()]; NODES];
        let z: Vec<Features<'_>> =
            samples.iter().zip(&mut z).map(|((x, _), z)| plan.map().map_batch(x, z)).collect();
        let mut visits = Vec::new();
        for (node, (x, y)) in samples.iter().enumerate() {
            let (id, y) = (node as u32, core::slice::from_ref(y));
            mapped.hear(id).unwrap();
            mapped.measure_importance(id, x, z[node], y).unwrap();
            visits.push(NodeRound { node: id, z: z[node], y, contact: Contact::Full });
        }
        mapped.round(&visits, |_| {}).unwrap();
    }
    mapped
}

#[test]
fn drivers_that_map_samples_measure_the_same_bits() {
    let plan = Plan::new(config("tr", 10).importance(ImportanceScope::Local)).unwrap();
    let sample = |node, round| {
        let (x, y) = friedman(node, round);
        (x, y / 30.0)
    };
    let mut raw = learned(plan.config().clone(), 200, sample);
    let mut mapped = learned_mapped(&plan, 200, sample);
    for (one, other) in raw.nodes_mut().iter().zip(mapped.nodes_mut().iter()) {
        assert_eq!(one.importance(), other.importance());
    }
}

#[test]
fn inputs_of_one_column_are_replaced_together() {
    // Three inputs say which of three texts stands in a column; the fourth says nothing.
    let sample = |node: usize, round: usize| {
        let x = inputs(node, round, 2);
        let text = ((x[0] * 3.0) as usize).min(2);
        let mut row = vec![0.0, 0.0, 0.0, x[1]];
        row[text] = 1.0;
        (row, [0.0, 1.0, 4.0][text])
    };
    let config = online(config("gr", 4)).importance(ImportanceScope::Local);
    let found = importance(&mut learned(config.column_groups(vec![0, 0, 0, 1]), 500, sample));
    // Another text in two of three cases: a difference of 1, 3 or 4 as often in each direction.
    let truth = 2.0 / 9.0 * (1.0 + 9.0 + 16.0);
    assert!(found.len() == 2 && (found[0] / truth - 1.0).abs() < 0.3, "{found:?} {truth}");
    assert!(found[1].abs() < 0.1, "{found:?}");
}

#[test]
fn wrong_groups_are_refused() {
    for (groups, words) in [
        (vec![0, 1], "column_groups must be 3, but is 2"),
        (vec![0, 3, 1], "at most 2"),
        (vec![0, 2, 2], "1 is missing"),
    ] {
        let error = Plan::new(config("gr", 3).column_groups(groups)).err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn plans_say_so_only_if_they_ask_for_it() {
    let plain = serde_json::to_value(config("gr", 3)).unwrap();
    assert!(plain.get("importance").is_none() && plain.get("column_groups").is_none());
    let read: PlanConfig = serde_json::from_value(plain).unwrap();
    assert_eq!(read.importance, ImportanceScope::None);
    let asks = config("gr", 3).importance(ImportanceScope::Local).column_groups(vec![0, 0, 1]);
    let written = serde_json::to_value(&asks).unwrap();
    assert_eq!(written["importance"], "local");
    let read: PlanConfig = serde_json::from_value(written).unwrap();
    assert_eq!((read.importance, read.column_groups), (asks.importance, asks.column_groups));
}

#[test]
fn kept_samples_are_forgotten_on_request() {
    let config = config("gr", 3).importance(ImportanceScope::Local);
    let sample = |node, round| (inputs(node, round, 3), 0.5);
    let mut federation = learned(config, 40, sample);
    let node = &mut federation.nodes_mut()[0];
    assert!((1..20).contains(&node.forget_samples().compared));
    assert_eq!(node.forget_samples().compared, 0);
}
