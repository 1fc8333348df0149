//! Models survive a change of scale: exactly up to rounding if it only shifts inputs or scales
//! labels, as the nearest function if it scales inputs, and within bounds for all scales.

#![allow(clippy::unwrap_used)]

use crate::common::{
    Case, FREQUENCIES, INPUTS, World, cases, config, federation, few_cases, is_linear, map_for,
    methods, numbers, scales_of_ranges,
};
use hedgerow::baseline::Omkl;
use hedgerow::features::{
    Amplitude, Draw, Family, FeatureMap, FeatureSpec, Features, Kernel, SampleMap,
};
use hedgerow::federation::{Contact, NodeRound, RoundError};
use hedgerow::learning::Loss;
use hedgerow::limits::MAX_NORM;
use hedgerow::message::{Broadcast, Selection};
use hedgerow::scaling::{Scale, ScaleKind, Summary};
use hedgerow::{Federation, NodeMethod};
use proptest::prelude::*;

/// What shifts inputs is exact, but for cosines with phases, which a shift takes out of GR-OFL's
/// dictionary: for it only labels change.
fn exact_shift(method: &'static str, shift: f64) -> f64 {
    if matches!(method, "gr" | "tr") { 0.0 } else { shift }
}

/// Inputs `shift` away from where they were, as wide as before, and labels from 0 to `top`.
fn scale(shift: f64, top: f64) -> Scale {
    let mut ranges: Vec<_> =
        (0..INPUTS).map(|i| (i as f64 + shift, i as f64 + shift + 2.0)).collect();
    ranges.push((-3.0, -3.0 + top));
    Scale::from_ranges(&ranges).unwrap()
}

/// What a method learns from where a sample is raw.
fn features(map: &SampleMap, scale: &Scale, raw: &[f32]) -> Vec<f32> {
    let x: Vec<f32> = raw
        .iter()
        .enumerate()
        .map(|(input, raw)| scale.scale_input(input, f64::from(*raw)))
        .collect();
    crate::common::features(map, &x)
}

/// Predictions of a half for some raw samples, in the label's own units.
fn predictions(predict: impl Fn(Features<'_>) -> f32, map: &SampleMap, scale: &Scale) -> Vec<f32> {
    let points = numbers(77, 12 * map.inputs());
    let points = points.chunks_exact(map.inputs()).map(|raw| {
        let z = features(map, scale, raw);
        scale.unscale_label(predict(Features::checked(&z).unwrap()))
    });
    points.collect()
}

/// Whether predictions follow the unit of the label. Log-odds have none, and classes are never
/// scaled.
fn has_unit(case: &Case) -> bool {
    case.config().loss != Loss::Logistic || !["gr", "tr"].contains(&case.name())
}

#[track_caller]
fn assert_same(found: &[f32], expected: &[f32], room: f32, what: impl std::fmt::Debug) {
    let size = expected.iter().fold(0f32, |size, value| size.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= room * size, "{found}, expected {expected}: {what:?}");
    }
}

#[test]
fn offsets_and_label_factors_leave_all_predictions_as_they_were() {
    let from = scale(0.0, 4.0);
    for case in cases().into_iter().filter(has_unit) {
        let to = scale(exact_shift(case.name(), 0.7), 9.0);
        let mut world = World::after(&case, 3);
        // In the middle of a round.
        (0..world.nodes.len()).for_each(|node| world.learn(node, 3));
        let map = case.map();
        let rescaling = map.rescaling(&from, &to);
        for node in &mut world.nodes {
            let before = predictions(|z| node.predict(z), map, &from);
            let mut restored = case.node(0);
            restored.restore(&node.save()).unwrap();
            node.rescale(&rescaling);
            assert_same(&predictions(|z| node.predict(z), map, &to), &before, 1e-4, &case);
            let untouched = predictions(|z| node.predict(z), map, &from);
            // POF-MKL may trust a kernel whose model nobody has chosen yet, and that is zero in any
            // scale.
            let is_zero = before.iter().all(|value| *value == from.unscale_label(0.0));
            assert!(
                untouched != before || (is_zero && case.is_personal()),
                "the scales differ: {case:?}"
            );
            restored.rescale(&rescaling);
            assert!(restored.save() == node.save(), "{case:?}");
        }
    }
}

#[test]
fn servers_broadcast_what_their_nodes_would_have_had() {
    let from = scale(0.0, 4.0);
    // A new node has none of the state that nodes keep.
    let is_shared = |case: &Case| case.name() != "local" && !case.is_personal();
    for case in cases().into_iter().filter(has_unit).filter(is_shared) {
        let to = scale(exact_shift(case.name(), -0.4), 1.0);
        let mut world = World::after(&case, 4);
        let map = case.map();
        let before = predictions(|z| world.nodes[0].predict(z), map, &from);
        world.server.rescale(&map.rescaling(&from, &to));
        // A new node gets it only through the broadcast.
        let mut newcomer = case.node(99);
        newcomer.adopt(&world.server.catch_up()).unwrap();
        assert_same(&predictions(|z| newcomer.predict(z), map, &to), &before, 1e-4, &case);
    }
}

#[test]
fn uploads_of_the_old_scale_are_forgotten_and_can_be_sent_again() {
    let (from, to) = (scale(0.0, 4.0), scale(0.5, 4.0));
    for case in few_cases(3).into_iter().filter(|case| case.name() != "local") {
        let rescaling = case.map().rescaling(&from, &to);
        let mut world = World::after(&case, 2);
        world.learn(0, 2);
        world.send(0);
        world.server.rescale(&rescaling);
        assert_eq!(world.server.uploads(), 0, "{case:?}");
        let mut restored = case.server();
        restored.restore(&world.server.save()).unwrap();
        world.nodes[0].rescale(&rescaling);
        world.send(0);
        assert_eq!(world.server.uploads(), 1, "{case:?}");
    }
}

/// A node that has been told this model of a kernel.
fn told(method: &str, kernels: usize, kernel: usize, model: &[f32]) -> Box<dyn NodeMethod> {
    let mut node = Case::new(config(method, kernels)).node(0);
    let current = kernel as u32;
    let kernels = (method == "mk").then_some(Selection { current, next: 0 });
    node.adopt(&Broadcast { round: 2, kernels, numbers: model.to_vec() }).unwrap();
    node
}

#[test]
fn every_draw_and_family_turns_as_its_angles_do() {
    let spread = |mean: f64| {
        let mut summary = Summary::new(INPUTS + 1);
        for at in 0..40 {
            let sign = if at % 2 == 0 { 1.0 } else { -1.0 };
            (0..INPUTS).for_each(|input| summary.add(input, mean + sign * (1.0 + input as f64)));
            summary.add(INPUTS, 5.0 * sign);
        }
        Scale::from_summary(ScaleKind::Spread, &summary, None)
    };
    for draw in Draw::ALL {
        for family in Family::ALL {
            if draw.is_for_isotropic() && !family.is_isotropic() {
                continue;
            }
            // The other families make shared draws begin elsewhere.
            let others =
                [Family::Gaussian, Family::Matern32].map(|family| Kernel { family, variance: 2.0 });
            let own = [0.5, 1.0, 3.0].map(|variance| Kernel { family, variance });
            let kernels = [&others[..], &own].concat();
            let spec = FeatureSpec {
                kernels: kernels.clone(),
                draw,
                inputs: INPUTS,
                frequencies: FREQUENCIES,
                seed: 11,
                amplitude: Amplitude::Normalised,
            };
            let map = SampleMap::Kernels(FeatureMap::new(&spec).unwrap());
            let changes = [(spread(0.0), spread(1.7)), (scale(0.0, 1.0), scale(-1.3, 1.0))];
            for (from, to) in &changes {
                let rescaling = map.rescaling(from, to);
                for kernel in 0..kernels.len() {
                    let model = numbers(kernel as u64, 2 * FREQUENCIES);
                    for method in [&format!("sk:{}", kernel + 1), "mk"] {
                        let mut node = told(method, kernels.len(), kernel, &model);
                        let before = predictions(|z| node.predict(z), &map, from);
                        node.rescale(&rescaling);
                        assert_same(
                            &predictions(|z| node.predict(z), &map, to),
                            &before,
                            1e-4,
                            (draw, kernels[kernel]),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn learning_in_one_place_survives_too() {
    let (from, to) = (scale(0.0, 4.0), scale(0.7, 0.5));
    let world = World::new(&Case::new(config("local", 4)));
    let (map, mut learner) = (world.case.map(), Omkl::new(world.case.plan.setup()));
    for t in 0..30 {
        let (z, y) = world.sample(0, t);
        learner.learn(Features::checked(&z).unwrap(), y).unwrap();
    }
    let before = predictions(|z| learner.predict(z), map, &from);
    learner.rescale(&map.rescaling(&from, &to));
    assert_same(&predictions(|z| learner.predict(z), map, &to), &before, 1e-4, "omkl");
}

#[test]
fn a_stretch_takes_the_nearest_function() {
    let ranges = |low: f64, high: f64| {
        let mut ranges = vec![(low, high); INPUTS];
        ranges.push((0.0, 1.0));
        Scale::from_ranges(&ranges).unwrap()
    };
    let variances = [1e-4, 0.3, 3.0];
    let spec = FeatureSpec {
        kernels: variances.map(Kernel::gaussian).to_vec(),
        draw: Draw::Independent,
        inputs: INPUTS,
        frequencies: 30,
        seed: 3,
        amplitude: Amplitude::Normalised,
    };
    let map = SampleMap::Kernels(FeatureMap::new(&spec).unwrap());
    let from = ranges(0.0, 1.0);
    for (low, high) in [(-0.5, 1.5), (0.0, 2.0), (0.3, 0.8)] {
        let to = ranges(low, high);
        let rescaling = map.rescaling(&from, &to);
        let points = numbers(9, 400 * INPUTS);
        let middle_half = |x: &f32| (low + (high - low) * (0.5 + 0.25 * f64::from(*x))) as f32;
        let points: Vec<f32> = points.iter().map(middle_half).collect();
        for (kernel, variance) in variances.into_iter().enumerate() {
            let config = config(&format!("sk:{}", kernel + 1), 3).frequencies(Some(30));
            let mut node = Case::new(config).node(0);
            let model = numbers(4, 2 * 30);
            node.adopt(&Broadcast { round: 2, kernels: None, numbers: model }).unwrap();
            let said = |node: &dyn NodeMethod, scale: &Scale| -> Vec<f64> {
                let said = points.chunks_exact(INPUTS).map(|raw| {
                    let z = features(&map, scale, raw);
                    f64::from(node.predict(Features::checked(&z).unwrap()))
                });
                said.collect()
            };
            let before = said(node.as_ref(), &from);
            node.rescale(&rescaling);
            let after = said(node.as_ref(), &to);
            let energy: f64 = before.iter().map(|value| value * value).sum();
            let off: f64 = before.iter().zip(&after).map(|(a, b)| (a - b) * (a - b)).sum();
            // A kernel too narrow for the new scale forgets; the others know nearly all that they
            // knew.
            let most = if variance < 0.01 { 1.01 } else { 0.1 };
            assert!(off <= most * energy, "σ² = {variance}, {low} to {high}: {}", off / energy);
        }
    }
}

#[test]
fn there_and_back_is_nowhere() {
    let here = scale(0.0, 4.0);
    for case in few_cases(3) {
        let there = scale(exact_shift(case.name(), 2.5), 70.0);
        let map = case.map();
        let mut world = World::after(&case, 3);
        let before = predictions(|z| world.nodes[1].predict(z), map, &here);
        world.nodes[1].rescale(&map.rescaling(&here, &there));
        world.nodes[1].rescale(&map.rescaling(&there, &here));
        assert_same(&predictions(|z| world.nodes[1].predict(z), map, &here), &before, 1e-5, &case);
        // A change to the same scale changes no bit, except that GR-OFL's slices start again.
        if matches!(case.name(), "gr" | "tr") {
            let before = predictions(|z| world.nodes[1].predict(z), map, &here);
            world.nodes[1].rescale(&map.rescaling(&here, &here));
            assert_eq!(predictions(|z| world.nodes[1].predict(z), map, &here), before);
            continue;
        }
        let mut saved = world.nodes[1].save();
        world.nodes[1].rescale(&map.rescaling(&here, &here));
        assert!(saved == world.nodes[1].save(), "{case:?}");
        saved = world.server.save();
        world.server.rescale(&map.rescaling(&here, &here));
        assert!(saved == world.server.save(), "{case:?}");
    }
}

#[test]
fn models_stay_within_bounds_whatever_the_gain() {
    let labels_up_to =
        |top: f64| Scale::from_ranges(&[(0.0, 1.0), (0.0, 1.0), (0.0, top)]).unwrap();
    let (small, large) = (labels_up_to(1e-20), labels_up_to(1e25));
    let map = map_for("sk:1", 1);
    for (from, to) in [(&large, &small), (&small, &large)] {
        for size in [1e-30, 1.0, 1e30] {
            let model: Vec<f32> = numbers(1, 2 * FREQUENCIES).iter().map(|v| v * size).collect();
            let mut node = told("sk:1", 1, 0, &model);
            node.rescale(&map.rescaling(from, to));
            assert!(node.norm2() <= 1.001 * f64::from(MAX_NORM).powi(2), "{}", node.norm2());
        }
    }
    let constant = |label: f64| {
        let mut summary = Summary::new(INPUTS + 1);
        (0..4).for_each(|_| summary.add(INPUTS, label));
        Scale::from_summary(ScaleKind::Spread, &summary, None)
    };
    // A label that has never varied has no scale, and no model either.
    let mut node = told("sk:1", 1, 0, &numbers(1, 2 * FREQUENCIES));
    node.rescale(&map.rescaling(&constant(3.0), &scale(0.0, 1.0)));
    assert_eq!(node.norm2(), 0.0);
}

const NODES: usize = 4;

#[test]
fn a_move_in_the_middle_of_a_run_changes_nothing_that_follows() {
    // Learning commutes with a rotation: two runs, one of which changes its scale, stay together
    // for good. What a shift does to a linear model or to GR-OFL's is no rotation.
    let (here, there) = (scale(0.0, 4.0), scale(1.1, 4.0));
    let is_turned = |method: &&str| !is_linear(method) && !matches!(*method, "gr" | "tr");
    for method in methods(4).into_iter().filter(is_turned) {
        let map = map_for(method, 4);
        let to_there = [Some(map.rescaling(&here, &there))];
        let [mut moved, mut stayed] = [(); 2].map(|()| federation(config(method, 4).nodes(NODES)));
        for t in 0..60 {
            if t == 25 {
                moved.rescale_server(&to_there);
                (0..NODES as u32).for_each(|node| moved.rescale_node(node, &to_there).unwrap());
            }
            let raw = numbers(t, NODES * INPUTS);
            let y: Vec<f32> = raw.chunks_exact(INPUTS).map(|x| (3.0 * x[0]).sin() + x[1]).collect();
            let play = |federation: &mut Federation, scale: &Scale| {
                let z: Vec<_> =
                    raw.chunks_exact(INPUTS).map(|raw| features(&map, scale, raw)).collect();
                let visits: Vec<_> = (0..NODES)
                    .map(|node| NodeRound {
                        node: node as u32,
                        z: Features::checked(&z[node]).unwrap(),
                        y: &y[node..=node],
                        contact: Contact::Full,
                    })
                    .collect();
                let mut said = Vec::new();
                federation.round(&visits, |prediction| said.push(prediction.value)).unwrap();
                said
            };
            let expected = play(&mut stayed, &here);
            let found = play(&mut moved, if t < 25 { &here } else { &there });
            assert_same(&found, &expected, 1e-4, (method, t));
        }
        assert_eq!(moved.votes(), stayed.votes());
        let stranger = moved.rescale_node(NODES as u32, &to_there);
        assert_eq!(stranger, Err(RoundError::NoSuchNode { node: NODES as u32, nodes: NODES }));
    }
}

proptest! {
    #[test]
    fn any_scale_takes_any_model_anywhere(
        ranges in proptest::collection::vec((-1e30f64..1e30, -30i32..30), 2 * (INPUTS + 1)),
        size in -30i32..30,
    ) {
        let scales = scales_of_ranges(&ranges);
        let map = map_for("mk", 2);
        let rescaling = map.rescaling(&scales[0], &scales[1]);
        let model: Vec<f32> = numbers(1, 2 * FREQUENCIES).iter().map(|v| v * 10f32.powi(size)).collect();
        let mut node = told("mk", 2, 1, &model);
        node.rescale(&rescaling);
        prop_assert!(node.norm2() <= 1.001 * f64::from(MAX_NORM).powi(2));
        for value in predictions(|z| node.predict(z), &map, &scales[1]) {
            prop_assert!(value.is_finite());
        }
    }
}
