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
            let labels: Vec<f32> = match plan.classes() {
                Some(classes) => {
                    classes.labels((y.abs() * 3.0) as usize % classes.count()).collect()
                }
                None if plan.objective().loss == Loss::Logistic => vec![(y - 4.0).signum()],
                None => (1..=plan.outputs()).map(|output| y * output as f32).collect(),
            };
            node.learn(&x, &labels).unwrap();
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
    said.extend_from_slice(node.probabilities());
    said.extend(answer.class.map(|class| class as f32));
    for (output, level) in (0..node.values().len()).flat_map(|at| [(at, 0.5), (at, 0.95)]) {
        let interval = node.interval(output, Level::new(level).unwrap());
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
    let names = |count: usize| (0..count).map(|class| format!("class {class}")).collect();
    let mut tried = 0;
    for method in ["gr", "tr", "mk"] {
        for personal in [true, false] {
            let config = plan(method).personal(personal).scaling(online.clone());
            for config in [
                config.clone().outputs(2),
                config.clone().classes(names(2)),
                config.clone().classes(names(5)),
            ] {
                let plan = Plan::new(config).unwrap();
                assert_same_bits(&plan, 40, &format!("{method} {personal} {}", plan.outputs()));
                tried += 1;
            }
        }
    }
    assert_eq!(tried, 18);
    let logistic = Plan::new(plan("gr").loss(Loss::Logistic).scaling(online)).unwrap();
    assert_same_bits(&logistic, 40, "logistic");
}

#[test]
fn a_node_keeps_its_calibration_and_the_shared_model_has_the_first_one() {
    let online = Scaling::Online { kind: ScaleKind::Spread };
    let classes = vec!["no".to_owned(), "yes".to_owned()];
    let plan = Plan::new(plan("gr").classes(classes).scaling(online).personal(false)).unwrap();
    let federation = train(&plan, 200);
    let mut model = Model::of_server(federation.server()).unwrap();
    model.add_node("a", &federation.nodes()[0]).unwrap();
    let (x, _) = sample(0, 300);
    let [mut stored, mut shared] = [model.node("a").unwrap(), model.shared().unwrap()];
    // Without an own layer only the calibration differs.
    assert_eq!(stored.predict(&x).unwrap().value, shared.predict(&x).unwrap().value);
    assert_ne!(stored.probabilities(), shared.probabilities());
}
