//! Nodes that lose contact, upload late, join late, and have no sample or several. Everything stays
//! finite, every node catches up, and traffic is counted exactly.

#![allow(clippy::unwrap_used)]

use std::ops::RangeInclusive;

use crate::common::{
    BUDGET, FREQUENCIES, INPUTS, TAIL, TR_TAIL, config, features, few_cases, is_personal, map_for,
    methods, name, numbers, speaks_of_its_past,
};
use hedgerow::features::{Draw, Features, Kernel, SampleMap};
use hedgerow::federation::{Contact, NodeRound, Prediction, RoundError};
use hedgerow::learning::Schedule;
use hedgerow::message::Upload;
use hedgerow::metrics::{Tally, Traffic};
use hedgerow::random::CounterRng;
use hedgerow::{Federation, NodeMethod, Plan, PlanConfig};

const KERNELS: usize = 4;
const NODES: usize = 6;

/// Samples of one node in one round.
struct Samples {
    z: Vec<f32>,
    y: Vec<f32>,
}

fn samples(map: &SampleMap, seed: u64, count: usize) -> Samples {
    let x = numbers(seed, count * INPUTS);
    Samples {
        z: features(map, &x),
        y: x.chunks_exact(INPUTS).map(|x| (5.0 * x[0]).sin()).collect(),
    }
}

impl Samples {
    fn visit(&self, node: u32, contact: Contact) -> NodeRound<'_> {
        NodeRound { node, z: Features::checked(&self.z).unwrap(), y: &self.y, contact }
    }
}

fn federation(method: &'static str) -> Federation {
    crate::common::federation(config(method, KERNELS).nodes(NODES))
}

/// A round of all nodes with one sample each, in this order and contact.
fn round(
    method: &'static str,
    federation: &mut Federation,
    t: u64,
    who: &[(u32, Contact)],
) -> Vec<(u32, u32)> {
    let map = map_for(method, KERNELS);
    let samples: Vec<_> =
        who.iter().map(|(node, _)| samples(&map, 100 * t + u64::from(*node), 1)).collect();
    let visits: Vec<_> =
        who.iter().zip(&samples).map(|(&(node, contact), s)| s.visit(node, contact)).collect();
    let mut predictions = Vec::new();
    federation.round(&visits, |p| predictions.push((p.node, p.value.to_bits()))).unwrap();
    predictions.sort_unstable();
    predictions
}

fn everyone(contact: Contact) -> Vec<(u32, Contact)> {
    (0..NODES as u32).map(|node| (node, contact)).collect()
}

fn node(federation: &Federation, node: usize) -> &dyn NodeMethod {
    federation.nodes()[node].method(0)
}

fn states(federation: &Federation) -> Vec<Vec<u8>> {
    federation
        .nodes()
        .iter()
        .map(|node| node.method(0).save())
        .chain([federation.server().save()])
        .collect()
}

/// Numbers of a method's messages, up and down.
fn message_sizes(method: &'static str) -> [RangeInclusive<u64>; 2] {
    let (model, kernels) = (2 * FREQUENCIES as u64, KERNELS as u64);
    let (all, linear) = (kernels * model, INPUTS as u64 + 1);
    let (up, down) = match name(method) {
        // Models grow, and a slice ends with its matrix.
        "gr" | "tr" => {
            let width = map_for(method, KERNELS).width() as u64;
            let tail = TAIL + if name(method) == "tr" { TR_TAIL } else { 0 };
            return [width..=BUDGET as u64, TAIL as u64 + 1..=width + tail as u64];
        }
        "sk" => (model, model),
        "mk" => (model + 1, model + 2),
        "naive" => (all + kernels, all + kernels),
        "local" => (0, 0),
        "emk" => (model + kernels, model + 2),
        "pof" => (model + 1, all),
        "fedpoe" => (all, all),
        _ => (linear, linear),
    };
    [up..=up, down..=down]
}

fn assert_traffic(
    federation: &Federation,
    method: &'static str,
    ups: u64,
    downs: u64,
    accepted: u64,
    late: u64,
) {
    let traffic = *federation.traffic();
    let [up, down] = message_sizes(method);
    for (found, messages, size) in
        [(traffic.numbers_up, ups, up), (traffic.numbers_down, downs, down)]
    {
        let expected = messages * size.start()..=messages * size.end();
        assert!(expected.contains(&found), "{method:?}: {found}, expected {expected:?}");
    }
    let expected = Traffic {
        bytes_up: 4 * traffic.numbers_up,
        bytes_down: 4 * traffic.numbers_down,
        uploads_accepted: accepted,
        uploads_late: late,
        ..traffic
    };
    assert_eq!(traffic, expected, "{method:?}");
}

fn travelling() -> impl Iterator<Item = &'static str> {
    methods(KERNELS).into_iter().filter(|method| *method != "local")
}

#[test]
fn order_of_visits_is_irrelevant_in_full_contact() {
    for method in methods(KERNELS) {
        let (mut one, mut other) = (federation(method), federation(method));
        for t in 0..40 {
            let mut who = everyone(Contact::Full);
            let first = round(method, &mut one, t, &who);
            let stream = CounterRng::from_seed(t);
            who.sort_by_key(|(node, _)| stream.bits_at(u64::from(*node)));
            assert_eq!(first, round(method, &mut other, t, &who), "{method:?}");
            assert_eq!(states(&one), states(&other), "{method:?}");
        }
        assert_eq!(one.traffic(), other.traffic());
        assert_eq!(one.votes(), other.votes());
    }
}

#[test]
fn lost_nodes_keep_their_round_and_catch_up() {
    for method in travelling() {
        let mut federation = federation(method);
        round(method, &mut federation, 0, &everyone(Contact::Full));
        let mut who = everyone(Contact::Full);
        who[2].1 = Contact::Lost;
        for t in 1..5 {
            round(method, &mut federation, t, &who);
            assert_eq!(
                (node(&federation, 2).round(), node(&federation, 1).round()),
                (2, t + 2),
                "{method:?}"
            );
        }
        // Five rounds: everyone up and down once, then one less each time.
        assert_traffic(&federation, method, 6 + 4 * 5, 6 + 4 * 5, 6 + 4 * 5, 0);

        let predictions = round(method, &mut federation, 5, &everyone(Contact::Full));
        assert_eq!(predictions.len(), NODES);
        assert!(federation.nodes().iter().all(|node| node.round() == 7), "{method:?}");
        // A returning node receives the latest broadcast before it uploads, and the next one after
        // it.
        assert_traffic(&federation, method, 32, 26 + 7, 32, 0);
        let z = samples(&map_for(method, KERNELS), 77, 1).z;
        let z = Features::checked(&z).unwrap();
        let back = node(&federation, 2).predict(z);
        let same = back.to_bits() == node(&federation, 0).predict(z).to_bits();
        // What a node keeps to itself is its own.
        assert_eq!(same, !is_personal(method, KERNELS), "{method:?}");
    }
}

#[test]
fn a_late_joiner_adopts_the_latest_broadcast_at_its_first_visit() {
    for method in travelling() {
        let mut federation = federation(method);
        let early = &everyone(Contact::Full)[..5];
        (0..8).for_each(|t| drop(round(method, &mut federation, t, early)));
        assert_eq!(node(&federation, 5).round(), 1);
        let map = map_for(method, KERNELS);
        let sample = samples(&map, 9, 1);
        let visits = [sample.visit(0, Contact::Full), sample.visit(5, Contact::Full)];
        let mut said = Vec::new();
        federation.round(&visits, |prediction| said.push(prediction.value.to_bits())).unwrap();
        // Both predict with the same global model, but for what they keep to themselves.
        assert_eq!(said[0] == said[1], !is_personal(method, KERNELS), "{method:?}");
        assert_ne!(said[1], 0, "it is no longer the first one: {method:?}");
        assert_eq!(node(&federation, 5).round(), 10);
        assert_traffic(&federation, method, 8 * 5 + 2, 8 * 5 + 1 + 2, 42, 0);
    }
}

#[test]
fn late_uploads_are_counted_and_left_out() {
    for method in travelling() {
        let (mut with, mut without) = (federation(method), federation(method));
        for t in 0..6 {
            let mut who = everyone(Contact::Full);
            who[4].1 = Contact::Late;
            round(method, &mut with, t, &who);
            who[4].1 = Contact::Lost;
            round(method, &mut without, t, &who);
            // The late one changes nothing for the server, but hears the broadcast like everyone.
            assert_eq!(with.server().save(), without.server().save(), "{method:?}");
            assert!(with.nodes().iter().all(|node| node.round() == t + 2), "{method:?}");
        }
        assert_traffic(&with, method, 36, 36, 30, 6);
    }
}

#[test]
fn a_round_with_late_uploads_only_stays_open_for_them() {
    for method in travelling() {
        let mut federation = federation(method);
        round(method, &mut federation, 0, &everyone(Contact::Full));
        round(method, &mut federation, 1, &everyone(Contact::Late));
        // No upload was in time, so the round stayed open, and the late uploads still count.
        assert_eq!(federation.server().broadcast(0).round, 2, "{method:?}");
        assert_traffic(&federation, method, 12, 6, 12, 0);
        // They are part of the round when it closes; sending again is not counted twice.
        round(method, &mut federation, 2, &everyone(Contact::Full));
        assert_eq!(federation.server().broadcast(0).round, 3, "{method:?}");
        assert_traffic(&federation, method, 18, 12, 12, 0);
        round(method, &mut federation, 3, &everyone(Contact::Full));
        assert_traffic(&federation, method, 24, 18, 18, 0);
    }
}

#[test]
fn nodes_without_a_sample_listen_and_say_nothing() {
    for method in travelling() {
        let mut federation = federation(method);
        let map = map_for(method, KERNELS);
        let (none, several) = (samples(&map, 1, 0), samples(&map, 2, 3));
        let visits = [none.visit(0, Contact::Full), several.visit(1, Contact::Full)];
        let mut said = Vec::new();
        federation
            .round(&visits, |prediction| said.push((prediction.node, prediction.label)))
            .unwrap();
        assert_eq!(said, several.y.iter().map(|y| (1, *y)).collect::<Vec<_>>(), "{method:?}");
        assert_eq!((node(&federation, 0).round(), node(&federation, 1).round()), (2, 2));
        // One upload for three samples.
        assert_traffic(&federation, method, 1, 2, 1, 0);
        // No node uploads: the round stays open, and nothing travels.
        let before = states(&federation);
        federation.round(&[], |_| {}).unwrap();
        if speaks_of_its_past(method) {
            // But for who has learned before: its past is news to the new model.
            federation.round(&[none.visit(0, Contact::Full)], |_| {}).unwrap();
            assert_eq!(before, states(&federation), "{method:?}");
            federation
                .round(&[none.visit(0, Contact::Full), none.visit(1, Contact::Full)], |_| {})
                .unwrap();
            assert_eq!((node(&federation, 0).round(), node(&federation, 1).round()), (3, 3));
            assert_traffic(&federation, method, 2, 4, 2, 0);
            continue;
        }
        federation
            .round(&[none.visit(0, Contact::Full), none.visit(1, Contact::Late)], |_| {})
            .unwrap();
        assert_eq!(before, states(&federation), "{method:?}");
        assert_traffic(&federation, method, 1, 2, 1, 0);
    }
}

#[test]
fn nothing_travels_where_everyone_learns_alone() {
    let method = "local";
    let mut federation = federation(method);
    for contact in [Contact::Full, Contact::Late, Contact::Lost] {
        round(method, &mut federation, 0, &everyone(contact));
    }
    assert_eq!(*federation.traffic(), Traffic::default());
}

#[test]
fn whoever_comes_and_goes_everything_stays_finite_and_is_learned() {
    let rounds = 1500;
    for method in methods(KERNELS) {
        let map = map_for(method, KERNELS);
        // POF-MKL's steps are divided by the odds of its choices: rates near one are far too long
        // for it.
        let step_size = match name(method) {
            "pof" => Schedule::Horizon { scale: 1.0, rounds },
            _ => Schedule::Anytime { scale: 1.0 },
        };
        let config = config(method, KERNELS).nodes(NODES).step_size(step_size);
        let mut federation = crate::common::federation(config);
        let chance = CounterRng::from_seed(8);
        let (mut first, mut last) = (Tally::default(), Tally::default());
        for t in 0..rounds {
            // The last node joins in the middle.
            let nodes = if t < rounds / 2 { NODES - 1 } else { NODES };
            let dice = |node: usize, throw: u64| chance.bits_at(100 * t + 10 * throw + node as u64);
            let all: Vec<_> = (0..nodes)
                .map(|node| samples(&map, dice(node, 0), dice(node, 1) as usize % 4))
                .collect();
            let visits: Vec<_> = (0..nodes)
                .zip(&all)
                .map(|(node, samples)| match dice(node, 2) % 10 {
                    0..6 => samples.visit(node as u32, Contact::Full),
                    6..8 => samples.visit(node as u32, Contact::Late),
                    _ => samples.visit(node as u32, Contact::Lost),
                })
                .collect();
            let tally = if t < 20 { &mut first } else { &mut last };
            let seen = |p: Prediction<'_>| {
                assert!(p.value.is_finite() && p.method.norm2().is_finite(), "{method:?}");
                tally.add(f64::from(p.value - p.label).powi(2));
            };
            federation.round(&visits, seen).unwrap();
            assert!(
                federation.server().broadcast(0).numbers.iter().all(|number| number.is_finite())
            );
        }
        // With small steps there are no large errors to begin with.
        let most = if method == "pof" { 0.95 } else { 0.8 };
        assert!(last.mean() < most * first.mean(), "{method:?} learns: {last:?} after {first:?}");
    }
}

#[test]
fn strangers_and_bad_samples_are_named() {
    for case in few_cases(KERNELS) {
        let mut federation = Federation::new(&case.plan);
        let mut sample = samples(case.map(), 1, 1);
        let stranger = federation.round(&[sample.visit(3, Contact::Full)], |_| {});
        assert_eq!(stranger, Err(RoundError::NoSuchNode { node: 3, nodes: 3 }));
        sample.y[0] = f32::NAN;
        let bad = federation.round(&[sample.visit(1, Contact::Full)], |_| {});
        assert!(matches!(bad, Err(RoundError::BadSample { node: 1, .. })), "{bad:?}");
    }
}

#[test]
fn a_thousand_samples_in_a_round_are_learned_like_a_thousand_rounds() {
    // A kernel so wide that every sample looks alike: a rate that stayed at its first value would
    // make the model swing out.
    let config = PlanConfig::default().kernels(vec![Kernel::gaussian(1e5)]).nodes(1);
    let config = config.draw(Draw::Independent);
    for method in methods(1).into_iter().filter(|method| *method != "local") {
        let config = config.clone().frequencies(Some(4)).method(method.parse().unwrap());
        let plan = Plan::new(config).unwrap();
        let z = features(plan.map(), &[0.5]);
        let z = Features::checked(&z).unwrap();
        let (mut node, mut server) = (plan.node_method(0), plan.server_method());
        (0..1000).for_each(|_| node.learn(z, 1.0).unwrap());
        let mut upload = Upload::default();
        assert!(node.upload(&mut upload));
        server.accept(0, &upload).unwrap();
        node.adopt(server.close_round()).unwrap();
        assert!((node.predict(z) - 1.0).abs() < 0.05, "{method:?}: {}", node.predict(z));
    }
}
