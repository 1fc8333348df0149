//! What every method must refuse: bad samples, hostile messages, wrong saved states. A refusal
//! changes nothing, to the bit, and nothing panics. Saved states carry no checksum, so a changed
//! number in a model can't be detected; an accepted state must still give finite predictions and
//! valid messages.

#![allow(clippy::unwrap_used)]

use crate::common::{BUDGET, Case, TAIL, World, cases, config, federation, few_cases, has_kernels};
use hedgerow::aggregation::Aggregation;
use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound, RoundError};
use hedgerow::learning::{Loss, WeightRule};
use hedgerow::limits::{MAX_LABEL, MAX_NUMBER};
use hedgerow::message::{Broadcast, Rejected, Selection, Upload};
use hedgerow::method::{Average, BadSample};
use hedgerow::{NodeMethod, PlanConfig, ServerMethod};
use proptest::prelude::*;

#[test]
fn bad_samples_are_refused_and_change_nothing() {
    for case in cases() {
        let mut world = World::after(&case, 3);
        let before = world.state();
        let (z, y) = world.sample(0, 3);
        let node = &mut world.nodes[0];
        let features = Features::checked(&z).unwrap();
        for label in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0 * MAX_LABEL, -2.0 * MAX_LABEL]
        {
            let refused = node.learn(features, label);
            assert!(matches!(refused, Err(BadSample::Label { .. })), "{case:?}: {refused:?}");
        }
        if case.config().loss == Loss::Logistic {
            for label in [0.5, 0.0, -2.0] {
                assert_eq!(
                    node.learn(features, label),
                    Err(BadSample::NotASign { label }),
                    "{case:?}"
                );
            }
        }
        let longer = [z.as_slice(), &[0.0]].concat();
        for wrong in [&[], &z[1..], &longer[..]] {
            let (expected, found) = (z.len(), wrong.len());
            let refused = node.learn(Features::checked(wrong).unwrap(), y);
            assert_eq!(refused, Err(BadSample::Width { expected, found }), "{case:?}");
        }
        assert_eq!(before, world.state(), "{case:?}");
    }
}

#[test]
fn numbers_that_are_no_features_are_refused() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 33.0, -32.001] {
        for position in [0, 7, 16, 36] {
            let mut numbers = vec![0.5; 37];
            numbers[position] = value;
            let refused = Features::checked(&numbers).unwrap_err();
            assert_eq!((refused.position, refused.value.to_bits()), (position, value.to_bits()));
        }
    }
    assert!(Features::checked(&[32.0, -32.0, 0.0]).is_ok());
}

#[test]
fn hostile_broadcasts_are_refused_and_change_nothing() {
    for case in cases().into_iter().filter(|case| case.name() != "local") {
        let mut world = World::after(&case, 3);
        let before = world.state();
        let sound = Broadcast { round: 9, ..world.server.broadcast().clone() };
        let mut hostile = vec![
            Broadcast { round: 0, ..sound.clone() },
            Broadcast { round: u64::MAX, ..sound.clone() },
            Broadcast { numbers: Vec::new(), ..sound.clone() },
        ];
        // Models of GR-OFL may have any length from that of the first to that of the whole
        // dictionary.
        let (shortest, longest) = match case.name() {
            "gr" => (first_model(&case) + TAIL, case.plan.width() + TAIL),
            _ => (sound.numbers.len(), sound.numbers.len()),
        };
        let tail =
            |len: usize| &sound.numbers[sound.numbers.len() - len.min(sound.numbers.len())..];
        for len in [shortest - 1, longest + 1] {
            let kept = tail(len.min(TAIL));
            let numbers = [&vec![0.0; len - kept.len()], kept].concat();
            hostile.push(Broadcast { numbers, ..sound.clone() });
        }
        for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -2.0 * MAX_NUMBER] {
            for at in [0, sound.numbers.len() - 1] {
                let mut numbers = sound.numbers.clone();
                numbers[at] = number;
                hostile.push(Broadcast { numbers, ..sound.clone() });
            }
        }
        if case.name() == "gr" {
            hostile.push(Broadcast {
                kernels: Some(Selection { current: 0, next: 0 }),
                ..sound.clone()
            });
        }
        if matches!(case.name(), "mk" | "emk") {
            let kernels = case.plan.kernels() as u32;
            for (current, next) in [(kernels, 0), (0, kernels), (u32::MAX, u32::MAX)] {
                hostile.push(Broadcast {
                    kernels: Some(Selection { current, next }),
                    ..sound.clone()
                });
            }
            hostile.push(Broadcast { kernels: None, ..sound.clone() });
        }
        for broadcast in &hostile {
            assert!(world.nodes[0].adopt(broadcast).is_err(), "{case:?}: {broadcast:?}");
        }
        assert_eq!(before, world.state(), "{case:?}");
        world.nodes[0].adopt(&sound).unwrap();
        assert_eq!(world.nodes[0].round(), 9);
    }
}

/// Features of GR-OFL's first model.
fn first_model(case: &Case) -> usize {
    case.server().broadcast().numbers.len() - TAIL
}

#[test]
fn hostile_uploads_are_refused_and_change_nothing() {
    for case in cases() {
        let mut world = World::after(&case, 3);
        (0..world.nodes.len()).for_each(|node| world.learn(node, 3));
        let Some(sound) = world.upload(0) else {
            assert_eq!(world.server.accept(0, &Upload::default()), Err(Rejected::NotExpected));
            continue;
        };
        let before = world.state();
        let (open, kernels) = (sound.round, case.plan.kernels() as u32);
        for round in [0, open - 1, open + 1, u64::MAX] {
            let refused = world.server.accept(0, &Upload { round, ..sound.clone() });
            assert_eq!(refused, Err(Rejected::WrongRound { open, found: round }), "{case:?}");
        }
        for number in [f32::NAN, f32::INFINITY, 2.0 * MAX_NUMBER] {
            let mut upload = sound.clone();
            upload.numbers[1] = number;
            let refused = world.server.accept(0, &upload);
            assert!(matches!(refused, Err(Rejected::OutOfBounds { position: 1, .. })), "{case:?}");
        }
        if matches!(case.name(), "naive" | "emk" | "gr" | "tr") {
            let mut upload = sound.clone();
            *upload.numbers.last_mut().unwrap() = -1e-3;
            assert!(matches!(world.server.accept(0, &upload), Err(Rejected::Negative { .. })));
        }
        let shorter = Upload { numbers: sound.numbers[1..].to_vec(), ..sound.clone() };
        assert!(matches!(world.server.accept(0, &shorter), Err(Rejected::WrongLength { .. })));
        // A vote beyond the dictionary; none where one is needed; one where none is.
        let votes =
            if sound.vote.is_some() { [Some(kernels), None] } else { [Some(0), Some(u32::MAX)] };
        for vote in votes {
            let refused = world.server.accept(0, &Upload { vote, ..sound.clone() });
            assert!(matches!(refused, Err(Rejected::WrongKernel { .. })), "{case:?}: {refused:?}");
        }
        assert_eq!(before, world.state(), "{case:?}");

        world.server.accept(0, &sound).unwrap();
        let once = world.server.save();
        let refused = world.server.accept(0, &sound);
        assert_eq!(refused, Err(Rejected::Duplicate { node: 0, round: open }), "{case:?}");
        assert_eq!(once, world.server.save(), "{case:?}");
        world.server.close_round();
        let late = world.server.accept(1, &sound);
        assert_eq!(late, Err(Rejected::WrongRound { open: open + 1, found: open }), "{case:?}");
    }
}

/// A node or a server method that can be saved and restored.
enum Half {
    Node(Box<dyn NodeMethod>),
    Server(Box<dyn ServerMethod>),
}

impl Half {
    fn save(&self) -> Vec<u8> {
        match self {
            Self::Node(half) => half.save(),
            Self::Server(half) => half.save(),
        }
    }

    /// Whether it accepts the state. A refusal must change nothing.
    fn takes(&mut self, saved: &[u8]) -> bool {
        let before = self.save();
        let taken = match self {
            Self::Node(half) => half.restore(saved),
            Self::Server(half) => half.restore(saved),
        };
        assert!(taken.is_ok() || self.save() == before, "a refused state left traces");
        taken.is_ok()
    }
}

/// A node and a server of every case in the middle of a round.
fn halves(cases: impl IntoIterator<Item = Case>) -> Vec<(Case, Half)> {
    let mut halves = Vec::new();
    for case in cases {
        let mut world = World::after(&case, 3);
        world.learn(0, 3);
        world.learn(1, 3);
        world.send(1);
        halves.push((case.clone(), Half::Node(world.nodes.swap_remove(0))));
        halves.push((case, Half::Server(world.server)));
    }
    halves
}

#[test]
fn truncated_and_extended_states_are_refused() {
    for (case, mut half) in halves([few_cases(1), few_cases(3)].concat()) {
        let saved = half.save();
        for len in 0..saved.len() {
            assert!(!half.takes(&saved[..len]), "{case:?}: {len} of {} bytes", saved.len());
        }
        for more in [&[0][..], &[1; 8]] {
            assert!(!half.takes(&[&saved, more].concat()), "{case:?}");
        }
        assert!(half.takes(&saved));
    }
}

/// What tells a saved state from others: some name one kernel, have no weights, no kernels, or
/// nothing at all.
fn shape(
    case: &Case,
    half: &Half,
) -> (bool, &'static str, usize, usize, WeightRule, bool, usize, Aggregation) {
    let PlanConfig { frequencies, weight_rule, mk, pof, aggregation, .. } = *case.config();
    let (kernels, frequencies) = (case.plan.kernels(), frequencies.unwrap());
    let is_node = matches!(half, Half::Node(_));
    let any_rule = WeightRule::default();
    let (kernels, frequencies, rule) = match case.name() {
        "sk" if is_node => (case.plan.setup().kernel(), frequencies, any_rule),
        "sk" => (1, frequencies, any_rule),
        "local" if !is_node => (0, 0, any_rule),
        "mk" if !is_node => (kernels, frequencies, any_rule),
        "naive" | "emk" if is_node => (kernels, frequencies, any_rule),
        "pof" | "fedpoe" if !is_node => (kernels, frequencies, any_rule),
        "linear" | "linear-newton" | "gr" | "tr" => (0, 0, any_rule),
        _ => (kernels, frequencies, weight_rule),
    };
    // One kernel has the same voters as votes.
    let by_vote = !is_node && kernels > 1 && mk.average == Average::Voters;
    let per_upload = if case.name() == "pof" { pof.kernels_per_upload } else { 1 };
    // Nodes don't depend on it, and local learning has nothing to aggregate.
    let is_agnostic = is_node || case.name() == "local";
    let aggregation = if is_agnostic { Aggregation::Mean } else { aggregation };
    (is_node, case.name(), kernels, frequencies, rule, by_vote, per_upload, aggregation)
}

#[test]
fn foreign_states_are_refused() {
    let is_cumulative = |config: PlanConfig| config.weight_rule(WeightRule::Cumulative);
    let cumulative = few_cases(3).iter().map(|case| case.with(is_cumulative)).collect();
    let mut all = halves([few_cases(1), few_cases(3), few_cases(4), cumulative].concat());
    for case in few_cases(3).iter().take(10) {
        let case = case.with(|config| config.frequencies(Some(7)));
        all.push((case.clone(), Half::Node(case.node(0))));
        all.push((case.clone(), Half::Server(case.server())));
    }
    let origins: Vec<_> = all.iter().map(|(case, half)| (shape(case, half), half.save())).collect();
    for (case, half) in &mut all {
        for (origin, saved) in &origins {
            assert_eq!(half.takes(saved), shape(case, half) == *origin, "{case:?} from {origin:?}");
        }
    }
}

/// What a method must still do after it accepted any state.
fn check_works(case: &Case, half: &mut Half) {
    let world = World::new(case);
    let (z, y) = world.sample(0, 5);
    let z = Features::checked(&z).unwrap();
    let mut upload = Upload::default();
    match half {
        Half::Node(node) => {
            for _ in 0..3 {
                let mut shares = vec![0.0; case.plan.kernels()];
                node.shares(&mut shares);
                let total = if has_kernels(case.name()) { 1.0 } else { 0.0 };
                assert!((shares.iter().sum::<f64>() - total).abs() < 1e-6, "{case:?}: {shares:?}");
                assert!(node.predict(z).is_finite(), "{case:?}");
                node.learn(z, y).unwrap();
                node.upload(&mut upload);
                assert!(upload.numbers.iter().all(|number| number.abs() <= MAX_NUMBER), "{case:?}");
                if matches!(case.name(), "gr" | "tr") {
                    // What is in an upload depends on the round: only its own server could say
                    // more.
                    assert!(upload.numbers.len() <= BUDGET, "{case:?}");
                } else if case.name() != "local" {
                    let first = Upload { round: 1, ..upload.clone() };
                    case.server().accept(0, &first).unwrap();
                }
            }
        }
        Half::Server(server) => {
            for id in 20..23 {
                let broadcast = server.catch_up().into_owned();
                let mut node = case.node(id);
                node.adopt(&broadcast).unwrap();
                node.learn(z, y).unwrap();
                if node.upload(&mut upload) && upload.round == broadcast.round {
                    server.accept(id, &upload).unwrap();
                }
                node.adopt(server.close_round()).unwrap();
                assert!(node.predict(z).is_finite(), "{case:?}");
            }
        }
    }
}

#[test]
fn any_flipped_bit_is_refused_or_harmless() {
    for (case, mut half) in halves(few_cases(3)) {
        let saved = half.save();
        for bit in 0..8 * saved.len() {
            let mut damaged = saved.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if half.takes(&damaged) {
                check_works(&case, &mut half);
            }
            assert!(half.takes(&saved));
        }
    }
}

#[test]
fn states_at_the_end_of_time_are_refused_or_harmless() {
    for (case, mut half) in halves(few_cases(3)) {
        // Every state begins with a counter, and here it is a single byte: seven bits and no
        // continuation.
        if let [0..128, rest @ ..] = &half.save()[..] {
            let last = [&[0xFF; 9][..], &[1], rest].concat();
            if half.takes(&last) {
                check_works(&case, &mut half);
            }
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_are_refused_or_harmless(
        which in any::<prop::sample::Index>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut all = halves(few_cases(3));
        let (case, mut half) = all.swap_remove(which.index(all.len()));
        if half.takes(&bytes) {
            check_works(&case, &mut half);
        }
    }

    #[test]
    fn several_damaged_bytes_are_refused_or_harmless(
        which in any::<prop::sample::Index>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut all = halves(few_cases(3));
        let (case, mut half) = all.swap_remove(which.index(all.len()));
        let mut saved = half.save();
        if !saved.is_empty() {
            for (at, byte) in damage {
                *at.get_mut(&mut saved) = byte;
            }
        }
        if half.takes(&saved) {
            check_works(&case, &mut half);
        }
    }
}

#[test]
fn the_state_of_another_kernel_is_refused() {
    let node = |method: &str| Case::new(config(method, 3)).node(0);
    let saved = node("sk:2").save();
    assert!(node("sk:3").restore(&saved).is_err());
    assert!(node("sk:2").restore(&saved).is_ok());
}

#[test]
fn labels_without_their_features_are_refused() {
    let mut federation = federation(config("mk", 2).frequencies(Some(2)).nodes(1));
    let numbers = [0.1; 16];
    let z = Features::checked(&numbers).unwrap();
    for (z, y) in
        [(z, &[1.0][..]), (z.part(0..7), &[1.0]), (z.part(0..8), &[]), (z.part(0..0), &[1.0])]
    {
        let visit = NodeRound { node: 0, z, y, contact: Contact::Full };
        assert!(matches!(federation.round(&[visit], |_| {}), Err(RoundError::Shape { .. })));
    }
    assert_eq!(federation.traffic().numbers_up, 0);
}

#[test]
fn states_of_another_version_or_kind_are_refused_by_name() {
    let node = |method: &str| Case::new(config(method, 2)).node(0);
    let mut saved = node("mk").save();
    let refused = node("naive").restore(&saved).unwrap_err().to_string();
    assert!(refused.contains("mk-node") && refused.contains("naive-node"), "{refused}");
    // The version comes first.
    saved[0] += 1;
    let refused = node("mk").restore(&saved).unwrap_err().to_string();
    assert!(refused.contains("versions 4 to 4") && refused.contains("it has 5"), "{refused}");
}
