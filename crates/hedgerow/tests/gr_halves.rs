//! Node and server of GR-OFL: refused and accepted messages, states saved at every moment of an
//! epoch, and changes of scale.

#![allow(clippy::unwrap_used)]

use crate::common::{
    BUDGET, Case, INPUTS, TAIL, World, config, features, numbers, scales_of_ranges,
};
use hedgerow::features::Features;
use hedgerow::limits::{MAX_LABEL, MAX_NUMBER};
use hedgerow::message::{Broadcast, Rejected, Upload};
use hedgerow::metrics::Tally;
use hedgerow::scaling::Scale;

use proptest::prelude::*;

const NODES: usize = 3;

fn case() -> Case {
    Case::new(config("gr", 4).nodes(NODES))
}

/// Numbers of an upload that are never negative, from its end: counts, squares, and in odd rounds
/// what exceeds the range.
fn never_negative(round: u64) -> &'static [usize] {
    match round {
        1 => &[1, 2],
        odd if odd % 2 == 1 => &[1, 2, 3, 4, 5, 6, 7],
        _ => &[1, 2, 4, 5, 6, 7],
    }
}

#[test]
fn hostile_uploads_are_refused_in_every_round_and_change_nothing() {
    let mut world = World::new(&case());
    for t in 0..40 {
        world.learn(0, t);
        let sound = world.upload(0).unwrap();
        let len = sound.numbers.len();
        let before = world.server.save();
        let mut refuse = |upload: Upload| {
            let refused = world.server.accept(0, &upload).unwrap_err();
            assert_eq!(before, world.server.save(), "round {}: {refused}", t + 1);
            refused
        };
        for at in 0..len {
            for number in
                [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0 * MAX_NUMBER, -2.0 * MAX_NUMBER]
            {
                let mut upload = sound.clone();
                upload.numbers[at] = number;
                refuse(upload);
            }
        }
        for &from_end in never_negative(t + 1) {
            let mut upload = sound.clone();
            upload.numbers[len - from_end] = -1e-30;
            assert!(
                matches!(refuse(upload), Rejected::Negative { position, .. } if position == len - from_end)
            );
        }
        for wrong in [0, 1, len - 1, len + 1, 2 * len + 1, 1000] {
            let mut upload = sound.clone();
            upload.numbers.resize(wrong, 0.0);
            assert!(matches!(refuse(upload), Rejected::WrongLength { .. }), "{wrong} of {len}");
        }
        world.round(t);
    }
    let first = World::new(&case());
    assert!(
        world.server.broadcast().numbers.len() > first.server.broadcast().numbers.len(),
        "it has grown"
    );
}

#[test]
fn hostile_broadcasts_are_refused_in_every_round_and_change_nothing() {
    let mut world = World::new(&case());
    for t in 0..40 {
        world.round(t);
        let sound = Broadcast { round: t + 9, ..world.server.broadcast().clone() };
        let len = sound.numbers.len();
        let before = world.nodes[0].save();
        let mut hostile = Vec::new();
        for at in 0..len {
            for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0 * MAX_NUMBER] {
                hostile.push((at, number));
            }
        }
        // Trust, epoch, place of the slice, orders to forget, moves.
        for (from_end, number) in [
            (5, -0.1),
            (5, 1.1),
            (4, -1.0),
            (4, 0.5),
            (3, 1e9),
            (3, 0.5),
            (2, -1.0),
            (2, 1e30),
            (1, 3.0),
            (1, 0.5),
        ] {
            hostile.push((len - from_end, number));
        }
        // A range with its ends exchanged.
        hostile.push((len - TAIL + 2, MAX_NUMBER));
        for (at, number) in hostile {
            let mut broadcast = sound.clone();
            broadcast.numbers[at] = number;
            assert!(
                world.nodes[0].adopt(&broadcast).is_err(),
                "round {t}: {number} at {at} of {len}"
            );
            assert!(before == world.nodes[0].save());
        }
    }
}

/// Any number that a message may have.
fn any_number() -> impl Strategy<Value = f32> {
    prop_oneof![
        Just(0.0),
        Just(MAX_NUMBER),
        Just(-MAX_NUMBER),
        Just(1e-38),
        -1.0f32..1.0,
        (-38i32..30, -1.0f32..1.0).prop_map(|(power, part)| part * 10f32.powi(power)),
    ]
}

proptest! {
    #[test]
    fn accepted_uploads_never_make_a_broadcast_that_nodes_refuse(
        before in 0u64..30,
        wild in proptest::collection::vec(proptest::collection::vec(any_number(), BUDGET), 1..8),
    ) {
        let mut world = World::after(&case(), before);
        for (t, wild) in wild.iter().enumerate() {
            let t = before + t as u64;
            world.learn(0, t);
            let mut upload = world.upload(0).unwrap();
            upload.numbers.iter_mut().zip(wild).for_each(|(number, wild)| *number = *wild);
            let len = upload.numbers.len();
            for from_end in never_negative(t + 1) {
                upload.numbers[len - from_end] = upload.numbers[len - from_end].abs();
            }
            let accepted = world.server.accept(0, &upload);
            // Products of the first round that no samples have are refused.
            prop_assert!(accepted.is_ok() || t == 0, "{accepted:?}");
            // Sometimes with an honest upload.
            if t.is_multiple_of(2) {
                world.learn(1, t);
                world.send(1);
            }
            world.close();
            prop_assert!((0..NODES).all(|node| world.prediction(node, t).is_finite()));
            // The states can be saved and restored.
            world = world.restored();
        }
        for t in 0..5 {
            world.round(before + 10 + t);
        }
    }

    #[test]
    fn adopted_broadcasts_never_make_an_upload_that_servers_refuse(
        before in 0u64..30,
        model in proptest::collection::vec(any_number(), 13),
        labels in proptest::collection::vec(any_number(), 4),
        own in -MAX_LABEL..MAX_LABEL,
    ) {
        let mut world = World::after(&case(), before);
        let mut broadcast = world.server.broadcast().clone();
        let len = broadcast.numbers.len() - TAIL;
        broadcast.round += 1;
        broadcast.numbers[..len].iter_mut().zip(&model).for_each(|(number, wild)| *number = *wild);
        let tail = &mut broadcast.numbers[len..];
        tail[..2].copy_from_slice(&labels[..2]);
        (tail[2], tail[3]) = (labels[2].min(labels[3]), labels[2].max(labels[3]));
        let (z, _) = world.sample(0, 99);
        let z = Features::checked(&z).unwrap();
        for _ in 0..3 {
            world.nodes[0].adopt(&broadcast).unwrap();
            prop_assert!(world.nodes[0].predict(z).is_finite());
            world.nodes[0].learn(z, own).unwrap();
            let upload = world.upload(0).unwrap();
            prop_assert!(upload.numbers.iter().all(|number| number.abs() <= MAX_NUMBER));
            let saved = world.nodes[0].save();
            world.case.node(0).restore(&saved).unwrap();
            broadcast.round += 1;
        }
    }
}

#[test]
fn a_model_that_shrinks_is_lived_with() {
    // As after a server restarts from an older state.
    let (early, mut world) = (World::after(&case(), 2), World::after(&case(), 30));
    for more in 1..4 {
        let older = early.server.broadcast().clone();
        let broadcast = Broadcast { round: world.nodes[0].round() + more % 2, ..older };
        assert!(broadcast.numbers.len() < world.server.broadcast().numbers.len());
        world.nodes[0].adopt(&broadcast).unwrap();
        world.learn(0, 30 + more);
        let saved = world.nodes[0].save();
        world.nodes[0].restore(&saved).unwrap();
        assert!(world.upload(0).is_some() && world.prediction(0, 50).is_finite());
    }
}

/// A round with several samples or none, in which some nodes don't upload or receive.
fn uneven_round(world: &mut World, t: u64) {
    for node in 0..NODES {
        let chance = t + node as u64;
        let latest = world.server.broadcast().clone();
        if !chance.is_multiple_of(3) {
            // A rival of a model that it missed is no use to a node.
            let adopted = world.nodes[node].adopt(&latest);
            if matches!(adopted, Err(Rejected::MissedBroadcast { .. })) {
                world.nodes[node].adopt(&world.server.catch_up()).unwrap();
            } else {
                adopted.unwrap();
            }
        }
        (0..chance % 3).for_each(|which| world.learn(node, 100 * t + which));
        let upload = world.upload(node).filter(|upload| upload.round == latest.round);
        // A second upload is refused.
        let taken = upload.map_or(Ok(()), |upload| world.server.accept(node as u32, &upload));
        assert!(matches!(taken, Ok(()) | Err(Rejected::Duplicate { .. })), "{taken:?}");
    }
    world.server.close_round();
}

#[test]
fn saved_at_any_moment_it_goes_on_bit_by_bit() {
    let (here, there) = (scale(-1.0, 1.0, 1.0), scale(-1.3, 0.9, 2.0));
    let case = case();
    let map = case.map();
    let rescaling = map.rescaling(&here, &there);
    let mut world = World::new(&case);
    let (mut epochs, mut lengths) = (vec![], vec![]);
    for t in 0..60 {
        // Some samples of the round are there, and some uploads.
        world.learn(0, t);
        world.send(0);
        world.learn(1, t);
        if t % 25 == 24 {
            world.server.rescale(&rescaling);
            world.nodes.iter_mut().for_each(|node| node.rescale(&rescaling));
        }
        let [mut one, mut other] = [world.restored(), world.restored()];
        assert_eq!(one.state(), world.state(), "round {t}");
        // The other is restored after every round.
        for later in 0..6 {
            uneven_round(&mut one, t + later);
            uneven_round(&mut other, t + later);
            other = other.restored();
            assert!(one.state() == other.state(), "round {t} and {later} later");
        }
        world.close();
        let numbers = &world.server.broadcast().numbers;
        epochs.push(numbers[numbers.len() - 4] as u32);
        lengths.push(numbers.len() - TAIL);
    }
    // The run had several epochs, growth, and states between them.
    epochs.dedup();
    lengths.dedup();
    assert!(epochs.len() > 5 && lengths.len() > 3, "{epochs:?}, {lengths:?}");
}

/// Inputs from `low` to `high`, labels up to `top`.
fn scale(low: f64, high: f64, top: f64) -> Scale {
    let mut ranges = vec![(low, high); INPUTS];
    // The offset of labels never changes.
    ranges.push((-2.0, top));
    Scale::from_ranges(&ranges).unwrap()
}

/// A world on raw samples.
struct Raw {
    world: World,
    scale: Scale,
}

impl Raw {
    fn new(scale: Scale) -> Self {
        // With the few features of the other tests much of a function is lost in another scale.
        Self { world: World::new(&case().with(|config| config.budget(60))), scale }
    }

    fn sample(&self, node: usize, t: u64) -> (Vec<f32>, f32) {
        let raw = numbers(1_000 * t + node as u64, INPUTS);
        let x: Vec<f32> =
            (0..INPUTS).map(|i| self.scale.scale_input(i, f64::from(raw[i]))).collect();
        (features(self.world.case.map(), &x), (3.0 * raw[0]).sin() + raw[1])
    }

    /// The mean square error of a round, in the label's own units.
    fn round(&mut self, t: u64) -> f64 {
        let mut tally = Tally::default();
        for node in 0..NODES {
            let (z, label) = self.sample(node, t);
            let z = Features::checked(&z).unwrap();
            let said = self.scale.unscale_label(self.world.nodes[node].predict(z));
            tally.add(f64::from(said - label).powi(2));
            self.world.nodes[node].learn(z, self.scale.scale_label(label)).unwrap();
            self.world.send(node);
        }
        self.world.close();
        tally.mean()
    }

    fn go_to(&mut self, scale: Scale) {
        let rescaling = self.world.case.map().rescaling(&self.scale, &scale);
        self.world.server.rescale(&rescaling);
        self.world.nodes.iter_mut().for_each(|node| node.rescale(&rescaling));
        self.scale = scale;
    }
}

#[test]
fn a_change_of_scale_costs_little() {
    // Mean square errors right after the change and long after it.
    let errors = |first: Scale, second: Scale| {
        let mut raw = Raw::new(first);
        let (mut soon, mut late) = (0.0, 0.0);
        for t in 0..300 {
            if t == 150 {
                raw.go_to(second.clone());
            }
            let error = raw.round(t);
            match t {
                150..170 => soon += error / 20.0,
                250.. => late += error / 50.0,
                _ => {}
            }
        }
        (soon, late)
    };
    let here = scale(-1.0, 1.0, 2.0);
    let stayed = errors(here.clone(), here.clone());
    // Labels have a variance of about 0.8; the last scale is nearly twice as wide.
    for (there, most) in [
        (scale(-1.0, 1.0, 9.0), 1e-5),
        (scale(-1.2, 1.2, 2.0), 0.002),
        (scale(-0.8, 1.4, 2.0), 0.002),
        (scale(-1.5, 2.0, 7.0), 0.1),
    ] {
        let (moved, always) =
            (errors(here.clone(), there.clone()), errors(there.clone(), there.clone()));
        assert!(moved.0 < stayed.0 + most, "{there:?}: {moved:?}, and {stayed:?} without a change");
        assert!(
            moved.1 < always.1 + 0.1 * most,
            "{there:?}: {moved:?}, and {always:?} from the beginning"
        );
    }
}

#[test]
fn there_and_back_sums_are_nearly_what_they_were() {
    for (there, most) in [
        (scale(-1.0, 1.0, 9.0), 1e-3),
        (scale(-1.1, 1.1, 2.0), 0.02),
        (scale(-0.9, 1.2, 2.0), 0.02),
    ] {
        let mut raw = Raw::new(scale(-1.0, 1.0, 2.0));
        (0..100).for_each(|t| assert!(raw.round(t).is_finite()));
        let here = raw.scale.clone();
        // In a scale of its own too, so that the orders are the same.
        raw.go_to(here.clone());
        let len = raw.world.server.broadcast().numbers.len() - TAIL;
        let before = raw.world.upload(1).unwrap().numbers;
        raw.go_to(there.clone());
        let between = raw.world.upload(1).unwrap().numbers;
        assert_ne!(between[..len], before[..len]);
        raw.go_to(here);
        let after = raw.world.upload(1).unwrap().numbers;
        // Gradients of a hundred samples, whose errors are about a quarter of a label's deviation.
        let apart =
            before[..len].iter().zip(&after).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
                / 100.0;
        assert!(apart < most, "{there:?}: {before:?}, then {after:?}");
        for (before, after) in before[len..].iter().zip(&after[len..]) {
            assert!(
                (before - after).abs() <= 1e-4 * before.abs(),
                "{there:?}: {before}, then {after}"
            );
        }
    }
}

proptest! {
    #[test]
    fn any_scale_takes_it_anywhere(
        ranges in proptest::collection::vec((-1e30f64..1e30, -30i32..30), 2 * (INPUTS + 1)),
        before in 0u64..20,
    ) {
        let scales = scales_of_ranges(&ranges);
        let mut world = World::after(&case(), before);
        let rescaling = world.case.map().rescaling(&scales[0], &scales[1]);
        for t in 0..3 {
            world.server.rescale(&rescaling);
            world.nodes.iter_mut().for_each(|node| node.rescale(&rescaling));
            world = world.restored();
            prop_assert!((0..NODES).all(|node| world.prediction(node, t).is_finite()));
            world.round(before + t);
        }
    }
}
