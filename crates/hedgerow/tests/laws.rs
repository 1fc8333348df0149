//! Laws of all methods, checked in many setups. `refusals.rs` has what they must refuse.

#![allow(clippy::unwrap_used)]

use crate::common::{
    BUDGET, Case, FREQUENCIES, INPUTS, TAIL, TR_TAIL, World, cases, config, few_cases, has_kernels,
    methods, mk_weights, name, numbers, speaks_of_its_past,
};
use hedgerow::codec::{Kind, Reference, Section};
use hedgerow::features::Features;
use hedgerow::message::{Broadcast, Selection, Upload};
use hedgerow::method::{Average, METHODS, MkOptions, PofOptions, find};

const ROUNDS: u64 = 12;

#[test]
fn every_method_obeys_the_laws() {
    for info in METHODS.iter().filter(|info| info.halves.is_some()) {
        hedgerow::testing::check_method(info);
    }
    // Some of the cases with other schedules, more kernels and nodes, and variants.
    for case in cases().into_iter().step_by(7) {
        hedgerow::testing::check_method_in(case.plan.method(), case.config().clone());
    }
}

#[test]
fn predictions_change_with_a_round_only() {
    // Otherwise predictions would depend on whether the node has already learned. Local learning
    // has no rounds, and a node's own state acts at once.
    let of_rounds = |case: &Case| case.name() != "local" && !case.is_personal();
    for case in cases().into_iter().filter(of_rounds) {
        let mut world = World::after(&case, 3);
        let before = world.prediction(0, 9);
        world.learn(0, 3);
        assert_eq!(before.to_bits(), world.prediction(0, 9).to_bits(), "{case:?}");
        world.send(0);
        world.close();
        assert_ne!(before.to_bits(), world.prediction(0, 9).to_bits(), "{case:?}");
    }
}

#[test]
fn upload_is_pure() {
    for case in cases() {
        assert_eq!(World::new(&case).upload(0), None, "nothing learned, nothing to say: {case:?}");
        let mut world = World::after(&case, 2);
        // Nor in a round without samples, unless the method uploads its history.
        assert_eq!(world.upload(0).is_some(), speaks_of_its_past(case.name()), "{case:?}");
        world.learn(0, 2);
        let before = world.state();
        let first = world.upload(0);
        assert_eq!(first.is_some(), case.name() != "local");
        // For any earlier content of the buffer.
        let mut used = Upload { round: 99, vote: Some(7), numbers: vec![f32::NAN; 300] };
        let says = world.nodes[0].upload(&mut used);
        assert_eq!(first, says.then_some(used), "{case:?}");
        assert_eq!(before, world.state(), "{case:?}");
    }
}

#[test]
fn order_of_uploads_is_irrelevant_where_plain_sums_would_round() {
    for case in few_cases(3).into_iter().filter(|case| case.name() != "local") {
        let mut world = World::new(&case);
        world.learn(0, 0);
        let sound = world.upload(0).unwrap();
        // Sizes from 1e-9 to 1e3: more digits than an f64 has.
        let uploads: Vec<Upload> = (0..40)
            .map(|node| {
                let size = 10f32.powi(node % 13 - 9);
                // Some upload losses too, which are never negative.
                let has_losses = matches!(case.name(), "naive" | "emk");
                let signed = |value: &f32| if has_losses { value.abs() } else { *value };
                let numbers = numbers(node as u64, sound.numbers.len());
                let mut numbers: Vec<f32> =
                    numbers.iter().map(|value| signed(value) * size).collect();
                if matches!(case.name(), "gr" | "tr") {
                    // Sums of products have to belong together.
                    numbers = sound.numbers.iter().map(|value| value * size).collect();
                }
                if case.name() == "pof" {
                    // Kernels are named after their numbers.
                    let named = sound.numbers.len() / (2 * FREQUENCIES) * 2 * FREQUENCIES;
                    numbers[named..].copy_from_slice(&sound.numbers[named..]);
                }
                Upload { numbers, ..sound.clone() }
            })
            .collect();
        let after = |order: &mut dyn Iterator<Item = usize>| {
            let mut server = case.server();
            order.for_each(|node| server.accept(node as u32, &uploads[node]).unwrap());
            let sums = server.save();
            server.close_round();
            (sums, server.save())
        };
        let forward = after(&mut (0..40));
        assert_eq!(forward, after(&mut (0..40).rev()), "{case:?}");
        // Seven has no factor in common with forty.
        assert_eq!(forward, after(&mut (0..40).map(|node| node * 7 % 40)), "{case:?}");
    }
}

#[test]
fn weights_and_shares_sum_to_one() {
    for case in cases() {
        let mut world = World::new(&case);
        let kernels = case.plan.kernels();
        // Methods without kernels have no weights.
        let total = if has_kernels(case.name()) { 1.0 } else { 0.0 };
        for t in 0..ROUNDS {
            for node in &world.nodes {
                let mut shares = vec![f64::NAN; kernels];
                node.shares(&mut shares);
                let of_votes = (case.name() == "mk").then(|| mk_weights(node.as_ref()));
                for parts in [Some(shares), of_votes].into_iter().flatten() {
                    assert!(
                        parts.iter().all(|part| (0.0..=1.0).contains(part)),
                        "{case:?}: {parts:?}"
                    );
                    assert!(
                        (parts.iter().sum::<f64>() - total).abs() < 1e-12,
                        "{case:?}: {parts:?}"
                    );
                }
            }
            world.round(t);
        }
    }
}

#[test]
fn shares_of_a_selecting_method_are_one_kernel_s() {
    for case in few_cases(11) {
        let (method, world) = (case.name(), World::after(&case, 4));
        let mut shares = [0.0; 11];
        world.nodes[1].shares(&mut shares);
        let selected = match method {
            "sk" => Some(case.plan.setup().kernel()),
            "mk" | "emk" => {
                world.server.broadcast().kernels.map(|kernels| kernels.current as usize)
            }
            _ => None,
        };
        assert_eq!(shares.iter().position(|share| *share == 1.0), selected, "{method:?}");
    }
}

#[test]
fn a_round_advances_by_one() {
    for case in cases().into_iter().filter(|case| case.name() != "local") {
        let mut world = World::new(&case);
        for t in 0..ROUNDS {
            assert_eq!(world.server.broadcast().round, t + 1);
            assert!(world.nodes.iter().all(|node| node.round() == t + 1), "{case:?}");
            world.round(t);
        }
    }
}

#[test]
fn whoever_missed_rounds_goes_on_from_the_latest_broadcast() {
    // What a node keeps to itself has missed its samples.
    let is_shared = |case: &Case| case.name() != "local" && !case.is_personal();
    for case in cases().into_iter().filter(is_shared) {
        let mut world = World::after(&case, 2);
        let mut absent = case.node(0);
        absent.restore(&world.nodes[0].save()).unwrap();
        (2..6).for_each(|t| world.round(t));
        absent.adopt(&world.server.catch_up()).unwrap();
        let (z, _) = world.sample(0, 9);
        let prediction = absent.predict(Features::checked(&z).unwrap());
        assert_eq!(prediction.to_bits(), world.prediction(0, 9).to_bits(), "{case:?}");
    }
}

#[test]
fn messages_have_exactly_the_numbers_they_are_said_to_have() {
    for kernels in [1, 11] {
        for case in few_cases(kernels) {
            let mut world = World::after(&case, 2);
            world.learn(0, 2);
            let (model, all) = (2 * FREQUENCIES, kernels * 2 * FREQUENCIES);
            let chosen = case.config().pof.kernels_per_upload;
            let expected = match case.name() {
                // Both vary: a model grows, and a slice ends with its matrix.
                "gr" | "tr" => {
                    // TR-OFL says beside what the next uploads are.
                    let tail = if case.name() == "tr" { TR_TAIL } else { 0 };
                    let [up, down] =
                        [world.upload(0).unwrap().count(), world.server.broadcast().count()];
                    assert!(
                        up <= BUDGET && down <= case.plan.width() + TAIL + tail,
                        "{up}, {down}"
                    );
                    (up, down)
                }
                "sk" => (model, model),
                "mk" => (model + 1, model + 2),
                "naive" => (all + kernels, all + kernels),
                "local" => (0, 0),
                "emk" => (model + kernels, model + 2),
                // A last bin has one kernel where pairs don't come out even.
                "pof" => {
                    let mut upload = Upload::default();
                    world.nodes[0].upload(&mut upload);
                    let sent = (upload.numbers.len() + 1) / (model + 1);
                    assert!((1..=chosen).contains(&sent), "{sent} kernels sent: {case:?}");
                    (sent * (model + 1), all)
                }
                "fedpoe" => (all, all),
                _ => (INPUTS + 1, INPUTS + 1),
            };
            let mut upload = Upload::default();
            world.nodes[0].upload(&mut upload);
            let broadcast = world.server.broadcast();
            assert_eq!((upload.count(), broadcast.count()), expected, "{case:?}");
            assert_eq!((upload.bytes(), broadcast.bytes()), (4 * expected.0, 4 * expected.1));
        }
    }
}

#[test]
fn a_budget_buys_as_many_frequencies_as_fit_its_messages() {
    let frequencies = |method: &str, budget: usize, pof: &PofOptions| {
        find(method).unwrap().frequencies(budget, pof)
    };
    let usual = PofOptions::default();
    for method in methods(11).into_iter().map(name) {
        let indices = match method {
            "sk" => 0,
            "pof" => 1,
            _ => 2,
        };
        let least = if matches!(method, "gr" | "tr") { 16 } else { 2 + indices };
        for budget in 0..least {
            let error = frequencies(method, budget, &usual).unwrap_err().to_string();
            assert!(error.starts_with(method), "{error}");
            assert!(
                error.contains(&format!("at least {least} numbers, but has {budget}")),
                "{error}"
            );
        }
        for budget in least..300 {
            let found = frequencies(method, budget, &usual);
            assert_eq!(found, Ok((budget - indices) / 2), "{method:?}");
        }
    }
    assert_eq!(frequencies("sk", 100, &usual), Ok(50));
    assert_eq!(frequencies("mk", 100, &usual), Ok(49));
    assert_eq!(frequencies("pof", 100, &usual), Ok(49));
    let three = PofOptions { kernels_per_upload: 3, ..PofOptions::default() };
    for budget in 9..300 {
        let frequencies = frequencies("pof", budget, &three).unwrap();
        assert!(3 * (2 * frequencies + 1) <= budget && 3 * (2 * frequencies + 3) > budget);
    }
    let error = frequencies("pof", 8, &three).unwrap_err().to_string();
    assert!(error.contains("at least 9 numbers, but has 8"), "{error}");
}

#[test]
fn nodes_that_don_t_count_leave_the_weights_of_one() {
    let weights = |nodes: usize, count_nodes: bool| {
        let mk = MkOptions { count_nodes, ..MkOptions::default() };
        let world = World::new(&Case::new(config("mk", 4).nodes(nodes).mk(mk)));
        let mut node = world.case.node(0);
        for t in 0..5 {
            let (z, y) = world.sample(0, t);
            node.learn(Features::checked(&z).unwrap(), y).unwrap();
        }
        mk_weights(node.as_ref())
    };
    assert_eq!(weights(20, false), weights(1, true));
    assert_ne!(weights(20, false), weights(20, true));
}

#[test]
fn where_only_voters_count_the_mean_is_theirs() {
    for average in [Average::All, Average::Voters] {
        for seed in 0..20 {
            let mk = MkOptions { average, ..MkOptions::default() };
            let mut server = Case::new(config("mk", 3).mk(mk).seed(seed)).server();
            // Node i uploads i; two votes for the first kernel, two for the last.
            for node in 0..4 {
                let numbers = vec![node as f32; 2 * FREQUENCIES];
                server
                    .accept(node, &Upload { round: 1, vote: Some(node / 2 * 2), numbers })
                    .unwrap();
            }
            let broadcast = server.close_round();
            let drawn = broadcast.kernels.unwrap().next;
            let expected = match average {
                Average::All => 1.5,
                Average::Voters => drawn as f32 + 0.5,
            };
            assert_eq!(
                broadcast.numbers,
                [expected; 2 * FREQUENCIES],
                "{average:?}, kernel {drawn}"
            );
        }
    }
}

#[test]
fn sections_of_a_broadcast_fit_its_numbers_and_kernels() {
    for case in cases() {
        let layout = case.plan.layout().broadcast;
        for rounds in [0, 1, 5] {
            let world = World::after(&case, rounds);
            let broadcast = world.server.broadcast();
            let mut known = vec![];
            layout.sections(broadcast, &mut known);
            let named: usize = known.iter().map(|section| section.len).sum();
            assert!(named <= broadcast.numbers.len(), "{case:?}");
            if let Some(Selection { current, .. }) = broadcast.kernels {
                let kind = Kind::Model { slot: current as usize };
                assert_eq!(known, [Section { len: 2 * FREQUENCIES, kind }], "{case:?}");
            }
            // A broadcast that is none has no sections that it has no numbers for, nor slots that
            // ask for memory.
            for count in [0, 1, broadcast.numbers.len() / 2, 10_000] {
                let kernels = Some(Selection { current: u32::MAX, next: u32::MAX });
                let other = Broadcast { round: 1, kernels, numbers: vec![0.0; count] };
                known.clear();
                layout.sections(&other, &mut known);
                Reference::default().set(&known, &other.numbers);
                let kernels = case.plan.kernels();
                let is_known = |section: &Section| matches!(section.kind, Kind::Model { slot } if slot < kernels);
                assert!(known.iter().all(is_known), "{case:?}: {known:?}");
            }
        }
    }
}
