//! Methods of other papers under changes of scale: linear models are converted exactly, Newton
//! steps are invariant, and earlier losses count in the label's new unit.

#![allow(clippy::unwrap_used)]

use crate::common::{Case, FREQUENCIES, INPUTS, config, features, map_for, numbers};
use hedgerow::features::Features;
use hedgerow::learning::Schedule;
use hedgerow::message::Upload;
use hedgerow::method::PofOptions;
use hedgerow::scaling::{Scale, ScaleKind, Summary};
use hedgerow::{NodeMethod, PlanConfig, ServerMethod};

const KERNELS: usize = 3;
const LEN: usize = 2 * FREQUENCIES;

fn slow(method: &str, kernels: usize) -> PlanConfig {
    config(method, kernels).nodes(2).step_size(Schedule::Anytime { scale: 0.2 })
}

fn raw(t: usize, k: usize) -> (Vec<f32>, f32) {
    let x = numbers((100 * t + k) as u64, INPUTS);
    let y = (2.0 * x[0]).sin() + 0.3 * x[1] + 0.6 * k as f32;
    (x, y)
}

/// Inputs from `low` on, `wide` in size, and labels up to `top`.
fn scale(low: f64, wide: f64, top: f64) -> Scale {
    let mut ranges: Vec<_> = (0..INPUTS).map(|i| (low - i as f64, low + wide)).collect();
    ranges.push((0.0, top));
    Scale::from_ranges(&ranges).unwrap()
}

/// What fits a first input of this spread, a second that never varies, and labels from 0 to 1.
fn with_a_constant(mean: f64, spread: f64) -> Scale {
    let mut summary = Summary::new(INPUTS + 1);
    for at in 0..8 {
        let sign = if at % 2 == 0 { 1.0 } else { -1.0 };
        summary.add(0, mean + sign * spread);
        (1..INPUTS).for_each(|input| summary.add(input, 3.0));
        summary.add(INPUTS, 0.5 + 0.5 * sign);
    }
    Scale::from_summary(ScaleKind::Spread, &summary, None)
}

#[test]
fn linear_models_survive_every_change_of_inputs() {
    check_moves(&scale(-1.7, 3.5, 1.0), &scale(-1.0, 2.0, 1.0));
    check_moves(&with_a_constant(0.4, 2.0), &with_a_constant(0.0, 1.0));
}

fn check_moves(here: &Scale, there: &Scale) {
    let map = map_for("linear", KERNELS);
    let scaled = |scale: &Scale, raw: &[f32]| -> Vec<f32> {
        let x: Vec<f32> = (0..INPUTS).map(|i| scale.scale_input(i, f64::from(raw[i]))).collect();
        features(&map, &x)
    };
    // Without a ridge, Newton steps don't know that the inputs' scale narrows; gradient steps do.
    for method in ["linear", "linear-newton"] {
        let case = Case::new(config(method, KERNELS).nodes(1).ridge(0.0));
        let (mut moved, mut stayed) = (case.node(0), case.node(0));
        let (mut server, mut other) = (case.server(), case.server());
        let rescaling = map.rescaling(here, there);
        for t in 0..40u64 {
            let now = if t < 20 { here } else { there };
            if t == 20 {
                server.rescale(&rescaling);
                moved.rescale(&rescaling);
                let mut newcomer = case.node(1);
                newcomer.adopt(&server.catch_up()).unwrap();
                let z = scaled(now, &[0.3, 0.4]);
                let z = Features::checked(&z).unwrap();
                assert_eq!(newcomer.predict(z).to_bits(), moved.predict(z).to_bits());
            }
            let x = numbers(t, INPUTS);
            let y = 0.4 + 0.2 * x[0] - 0.1 * x[1];
            let mut said = Vec::new();
            let halves = [(&mut moved, &mut server, now), (&mut stayed, &mut other, here)];
            for (node, server, scale) in halves {
                let z = scaled(scale, &x);
                let z = Features::checked(&z).unwrap();
                said.push(scale.unscale_label(node.predict(z)));
                play(node.as_mut(), server.as_mut(), z, scale.scale_label(y));
            }
            if t <= 20 || method == "linear-newton" {
                assert!((said[0] - said[1]).abs() < 1e-4, "{method:?}, round {t}: {said:?}");
            }
        }
    }
}

#[test]
fn what_was_charged_counts_in_the_label_s_new_unit() {
    let (from, to) = (scale(-1.0, 2.0, 1.0), scale(-1.0, 2.0, 0.5));
    // What Fed-POE's two parts have lost depends on how they mixed kernels then: a single one needs
    // no mixing.
    let methods = [("naive", 3), ("local", 3), ("pof", 3), ("fedpoe", 1)];
    for (method, kernels) in methods {
        let map = map_for(method, kernels);
        let rescaling = map.rescaling(&from, &to);
        // All kernels in every upload, so that chance doesn't part the runs.
        let pof = PofOptions { kernels_per_upload: kernels, exploration: 0.1 };
        let case = Case::new(slow(method, kernels).pof(pof));
        let run = |moves: bool| {
            // Two nodes, so that what is federated and what is a node's own differ.
            let mut nodes = [case.node(0), case.node(1)];
            let (mut server, mut said) = (case.server(), Vec::new());
            for t in 0..16 {
                let scale = if moves && t < 8 { &from } else { &to };
                if moves && t == 8 {
                    server.rescale(&rescaling);
                    nodes.iter_mut().for_each(|node| node.rescale(&rescaling));
                }
                for (k, node) in nodes.iter_mut().enumerate() {
                    let (x, y) = raw(t, k);
                    let z = features(&map, &x);
                    let z = Features::checked(&z).unwrap();
                    // The mixture of the old unit is at hand until the next sample.
                    if t > 9 {
                        said.push(f64::from(node.predict(z)));
                    }
                    node.learn(z, scale.scale_label(y)).unwrap();
                    let mut upload = Upload::default();
                    if node.upload(&mut upload) {
                        server.accept(k as u32, &upload).unwrap();
                    }
                }
                let broadcast = server.close_round();
                nodes.iter_mut().for_each(|node| node.adopt(broadcast).unwrap());
            }
            let mut weights = vec![0.0; kernels];
            nodes[0].shares(&mut weights);
            (said, weights)
        };
        let (moved, stayed) = (run(true), run(false));
        assert_close(&moved.0, &stayed.0, method);
        assert_close(&moved.1, &stayed.1, method);
    }
}

#[test]
fn em_kofl_takes_losses_to_the_label_s_new_unit() {
    let map = map_for("emk", KERNELS);
    // Twice the factor, four times the loss.
    let rescaling = map.rescaling(&scale(-1.0, 2.0, 1.0), &scale(-1.0, 2.0, 0.5));
    let drawn = |seed: u64, size: f32, moves: bool| {
        let mut server = Case::new(slow("emk", KERNELS).seed(seed)).server();
        for (round, size) in [(1, size), (2, 0.0)] {
            let losses: Vec<f32> = (0..KERNELS).map(|p| p as f32 * size).collect();
            let numbers = [vec![0.0; LEN], losses].concat();
            server.accept(0, &Upload { round, vote: None, numbers }).unwrap();
            server.close_round();
            if moves && round == 1 {
                server.rescale(&rescaling);
            }
        }
        server.broadcast().kernels.unwrap().next
    };
    let draws = |size: f32, moves: bool| -> Vec<u32> {
        (0..60).map(|seed| drawn(seed, size, moves)).collect()
    };
    assert_eq!(draws(0.5, true), draws(2.0, false));
    assert_ne!(draws(0.5, false), draws(2.0, false));

    let mut node = Case::new(slow("emk", KERNELS)).node(0);
    let (x, y) = raw(1, 0);
    let z = features(&map, &x);
    node.learn(Features::checked(&z).unwrap(), y).unwrap();
    let losses = |node: &dyn NodeMethod| {
        let mut upload = Upload::default();
        assert!(node.upload(&mut upload));
        upload.numbers.split_off(LEN)
    };
    let before = losses(node.as_ref());
    node.rescale(&rescaling);
    let expected: Vec<f32> = before.iter().map(|loss| 4.0 * loss).collect();
    assert_eq!(losses(node.as_ref()), expected);
    assert!(before.iter().all(|loss| *loss > 0.0));
}

/// A round of one node.
fn play(node: &mut dyn NodeMethod, server: &mut dyn ServerMethod, z: Features<'_>, y: f32) {
    node.learn(z, y).unwrap();
    let mut upload = Upload::default();
    assert!(node.upload(&mut upload));
    server.accept(0, &upload).unwrap();
    node.adopt(server.close_round()).unwrap();
}

#[test]
fn curvature_without_use_starts_anew() {
    // Labels that have lost their unit, inputs that never vary: steps go on, and stay finite.
    let case = Case::new(slow("linear-newton", KERNELS));
    let mut summary = Summary::new(INPUTS + 1);
    (0..4).for_each(|_| (0..=INPUTS).for_each(|column| summary.add(column, 3.0)));
    let constant = Scale::from_summary(ScaleKind::Spread, &summary, None);
    let (wide, narrow) = (scale(-1e20, 2e20, 1e20), scale(-1e-3, 2e-3, 1e-9));
    let scales = [scale(0.0, 1.0, 1.0), constant.clone(), wide, narrow.clone(), constant, narrow];
    let mut node = case.node(0);
    for pair in scales.windows(2) {
        let z = [1.0, 0.5, -0.5];
        let z = Features::checked(&z).unwrap();
        (0..5).for_each(|_| node.learn(z, 0.5).unwrap());
        node.rescale(&case.map().rescaling(&pair[0], &pair[1]));
        let mut restored = case.node(0);
        restored.restore(&node.save()).unwrap();
        assert!(node.predict(z).is_finite() && node.norm2().is_finite());
    }
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64], method: &'static str) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 2e-5, "{method:?}: {found}, expected {expected}");
    }
}
