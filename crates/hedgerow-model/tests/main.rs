//! A stored node predicts what the live one predicts, bit for bit, with every method.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use hedgerow::learning::{Level, Loss};
use hedgerow::method::METHODS;
use hedgerow::node::ForgottenSamples;
use hedgerow::plan::Scaling;
use hedgerow::scaling::{Scale, ScaleKind};
use hedgerow::{Federation, Node, Plan, PlanConfig};
use hedgerow_model::Model;

const NODES: usize = 3;
const INPUTS: usize = 2;

/// Raw numbers that are not of the order of one, some of them missing.
fn sample(node: usize, t: usize) -> ([f32; INPUTS], f32) {
    let (a, b) = ((t * 37 % 101) as f32 / 2.5, ((t + 5 * node) * 53 % 97) as f32 * 10.0);
    let y = 3.0 + node as f32 + (a / 8.0).sin() * b / 200.0;
    let is_missing = (t + node).is_multiple_of(11);
    ([if is_missing { f32::NAN } else { a }, b], y)
}

fn train(plan: &Plan, rounds: usize) -> Federation {
    let mut federation = Federation::new(plan);
    federation.connect();
    for t in 0..rounds {
        for (number, node) in federation.nodes_mut().iter_mut().enumerate() {
            let (x, y) = sample(number, t);
            let y = if plan.objective().loss == Loss::Logistic { (y - 4.0).signum() } else { y };
            node.learn(&x, &vec![y; plan.outputs()]).unwrap();
        }
        federation.exchange();
    }
    federation
}

/// All that a node says of a sample, as bits.
fn said(node: &mut Node, x: &[f32]) -> Vec<u32> {
    let answer = node.predict(x).unwrap();
    let mut said = vec![answer.value, answer.interval.map_or(0.0, |interval| interval.upper)];
    said.extend_from_slice(node.values());
    for level in [0.5, 0.95] {
        let interval = node.interval(0, Level::new(level).unwrap());
        said.extend(interval.map_or([0.0; 2], |interval| [interval.lower, interval.upper]));
    }
    said.into_iter().map(f32::to_bits).collect()
}

fn assert_same_bits(plan: &Plan, rounds: usize, name: &str) {
    let mut federation = train(plan, rounds);
    let mut model = Model::of_server(federation.server()).unwrap();
    for (number, node) in federation.nodes().iter().enumerate() {
        model.add_node(&format!("node {number}"), node).unwrap();
    }
    let model = Model::from_bytes(Path::new("m"), &model.to_bytes()).unwrap();
    assert_eq!(model.is_shared(), plan.method().travels(), "{name}");
    let rows: Vec<_> = (0..30).map(|t| sample(1, rounds + t).0).chain([[f32::NAN; 2]]).collect();
    for number in 0..NODES {
        let mut stored = model.node(&format!("node {number}")).unwrap();
        let live = &mut federation.nodes_mut()[number];
        for x in &rows {
            assert_eq!(said(&mut stored, x), said(live, x), "{name}, node {number}, {x:?}");
        }
        assert_eq!(stored.forget_samples(), ForgottenSamples::default(), "{name}: no samples");
    }
    if model.is_shared() {
        // As a node that joins now.
        let mut joined = plan.node(7);
        joined.connected();
        let mut opening = federation.server().opening(0, false);
        opening.try_for_each(|message| joined.hear(&message)).unwrap();
        let mut shared = model.shared().unwrap();
        for x in &rows {
            assert_eq!(said(&mut shared, x), said(&mut joined, x), "{name}, shared, {x:?}");
        }
    }
}

fn plan(method: &str) -> PlanConfig {
    PlanConfig::default().method(method.parse().unwrap()).inputs(INPUTS).nodes(NODES)
}

#[test]
fn stored_nodes_say_what_live_ones_say() {
    let fixed = Scale::from_ranges(&[(0.0, 40.0), (0.0, 960.0), (-2.0, 9.0)]).unwrap();
    let mut tried = 0;
    for info in METHODS.iter().filter(|info| info.halves.is_some()) {
        let name =
            if info.takes_kernel { format!("{}:2", info.name) } else { info.name.to_owned() };
        for personal in [true, false] {
            for scaling in
                [Scaling::Online { kind: ScaleKind::Spread }, Scaling::Fixed(fixed.clone())]
            {
                let config = plan(&name).scaling(scaling).personal(personal);
                assert_same_bits(&Plan::new(config).unwrap(), 60, &name);
                tried += 1;
            }
        }
    }
    assert!(tried >= 40, "{tried} plans");
}

#[test]
fn units_of_tr_are_stored_without_the_samples_that_made_them() {
    let online = Scaling::Online { kind: ScaleKind::Spread };
    let plan = Plan::new(plan("tr").scaling(online)).unwrap();
    assert_same_bits(&plan, 700, "tr");
    let mut federation = train(&plan, 700);
    let kept = federation.nodes_mut()[0].forget_samples();
    assert!(kept.remembered > 500, "{kept:?}");
}

#[test]
fn several_outputs_and_classes_are_stored_too() {
    let online = Scaling::Online { kind: ScaleKind::Spread };
    let two = Plan::new(plan("tr").outputs(2).scaling(online.clone())).unwrap();
    assert_same_bits(&two, 40, "two outputs");
    let classes = Plan::new(plan("gr").loss(Loss::Logistic).scaling(online)).unwrap();
    assert_same_bits(&classes, 40, "classes");
}
