//! Federations with compressed messages: equal to the bit without rounding, nearly as accurate with
//! rounding, and consistent if nodes are missing.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroU16;

use crate::common::{
    BUDGET, Case, FREQUENCIES, INPUTS, config, features, federation, few_cases, map_for, methods,
    name, numbers,
};
use hedgerow::codec::{Coding, Compression, Kind, NumberFormat, Section};
use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound, RoundError};
use hedgerow::message::Upload;
use hedgerow::random::CounterRng;
use hedgerow::scaling::Scale;
use hedgerow::{Federation, PlanConfig};

const KERNELS: usize = 4;
const NODES: usize = 6;

fn count(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

fn both(numbers: NumberFormat, part: u16) -> Compression {
    let coding = Coding { numbers, part: count(part) };
    Compression { up: coding, down: coding, ..Compression::default() }
}

fn travelling() -> impl Iterator<Item = &'static str> {
    methods(KERNELS).into_iter().filter(|method| *method != "local")
}

fn small(method: &str) -> PlanConfig {
    config(method, KERNELS).nodes(NODES)
}

/// All nodes with one sample each; the missing nodes depend on the time.
fn play(method: &str, federation: &mut Federation, t: u64, order: &[u32], size: f32) -> Vec<u32> {
    try_play(method, federation, t, order, size).unwrap()
}

fn try_play(
    method: &str,
    federation: &mut Federation,
    t: u64,
    order: &[u32],
    size: f32,
) -> Result<Vec<u32>, RoundError> {
    let map = map_for(method, KERNELS);
    let chance = CounterRng::from_seed(t);
    let samples: Vec<(Vec<f32>, f32, Contact)> = (0..NODES as u64)
        .map(|node| {
            let x = numbers(100 * t + node, INPUTS);
            let z = features(&map, &x);
            let contact = match chance.bits_at(node) % 8 {
                0 => Contact::Lost,
                1 => Contact::Late,
                _ => Contact::Full,
            };
            (z, size * (5.0 * x[0]).sin(), contact)
        })
        .collect();
    let visits: Vec<NodeRound<'_>> = order
        .iter()
        .map(|&node| {
            let (z, y, contact) = &samples[node as usize];
            let z = Features::checked(z).unwrap();
            NodeRound { node, z, y: std::slice::from_ref(y), contact: *contact }
        })
        .collect();
    let mut predictions = vec![0; NODES];
    federation.round(&visits, |prediction| {
        predictions[prediction.node as usize] = prediction.value.to_bits()
    })?;
    Ok(predictions)
}

const FORWARD: [u32; NODES] = [0, 1, 2, 3, 4, 5];

fn states(federation: &Federation) -> Vec<Vec<u8>> {
    federation
        .nodes()
        .iter()
        .map(|node| node.method(0).save())
        .chain([federation.server().save()])
        .collect()
}

#[test]
fn what_is_never_rounded_arrives_as_it_is() {
    // Broadcasts of GR-OFL have no section that may be rounded, but the codec carries them.
    let down = Coding { numbers: NumberFormat::Bits4, part: count(3) };
    let compression = Compression { down, ..Compression::default() };
    for method in ["gr", "local"] {
        let mut plain = federation(small(method));
        let mut compressed = federation(small(method).compression(compression));
        for t in 0..40 {
            let expected = play(method, &mut plain, t, &FORWARD, 1.0);
            assert_eq!(expected, play(method, &mut compressed, t, &FORWARD, 1.0), "{method:?}");
        }
        assert_eq!(states(&plain), states(&compressed), "{method:?}");
        assert_eq!(plain.traffic(), compressed.traffic(), "{method:?}");
        assert_eq!(plain.votes(), compressed.votes(), "{method:?}");
    }
}

#[test]
fn everything_stays_finite_in_every_format() {
    for case in few_cases(KERNELS) {
        let method = case.config().method.to_string();
        for format in NumberFormat::ALL {
            for (part, every) in [(1, 1), (3, 1), (1, 3), (4, 2), (1000, 1000)] {
                for size in [1e-12, 1.0, 1e12] {
                    let compression = Compression { every: count(every), ..both(format, part) };
                    let change = |config: PlanConfig| config.nodes(NODES).compression(compression);
                    let mut federation = Federation::new(&case.with(change).plan);
                    for t in 0..60 {
                        let predictions = play(&method, &mut federation, t, &FORWARD, size);
                        // Newton steps begin with a curvature of one, in whatever unit labels have.
                        let is_newton = case.name() == "linear-newton";
                        let bound = 1e4 * if is_newton { size.max(1.0) } else { size };
                        let sound =
                            predictions.iter().all(|bits| f32::from_bits(*bits).abs() <= bound);
                        assert!(sound, "{case:?}, {compression:?}, {size}: {predictions:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn order_of_uploads_is_irrelevant() {
    for method in methods(KERNELS) {
        for compression in [both(NumberFormat::Bits4, 1), both(NumberFormat::Bits8, 3)] {
            let [mut one, mut other] =
                [(); 2].map(|()| federation(small(method).compression(compression)));
            for t in 0..30 {
                let forward = play(method, &mut one, t, &FORWARD, 1.0);
                assert_eq!(
                    forward,
                    play(method, &mut other, t, &[3, 0, 5, 4, 2, 1], 1.0),
                    "{method:?}"
                );
            }
            assert_eq!(one.save(), other.save(), "{method:?}");
        }
    }
}

#[test]
fn a_restored_federation_goes_on_the_same() {
    for method in methods(KERNELS) {
        for every in [1, 3] {
            let compression = Compression { every: count(every), ..both(NumberFormat::Bits4, 2) };
            let new = || federation(small(method).compression(compression));
            let mut federation = new();
            (0..29).for_each(|t| drop(play(method, &mut federation, t, &FORWARD, 1.0)));
            let saved = federation.save();
            let mut copy = new();
            copy.restore(&saved).unwrap();
            assert_eq!(copy.save(), saved);
            for t in 29..60 {
                let expected = play(method, &mut federation, t, &FORWARD, 1.0);
                assert_eq!(expected, play(method, &mut copy, t, &FORWARD, 1.0), "{method:?}");
            }
            assert_eq!(federation.save(), copy.save(), "{method:?}");
            assert_eq!(federation.traffic(), copy.traffic(), "{method:?}");

            // A message of the wrong size is refused and changes nothing.
            let before = copy.save();
            assert!(crate::common::federation(small(method)).restore(&saved).is_err());
            let more = config(method, KERNELS).nodes(NODES + 1).compression(compression);
            assert!(crate::common::federation(more).restore(&saved).is_err());
            for len in 0..saved.len() {
                assert!(copy.restore(&saved[..len]).is_err());
            }
            let stream = CounterRng::from_seed(1);
            for i in 0..300 {
                let mut spoiled = saved.clone();
                let at = stream.bits_at(2 * i) as usize % spoiled.len();
                spoiled[at] ^= stream.bits_at(2 * i + 1) as u8 | 1;
                if copy.restore(&spoiled).is_ok() {
                    // Node and server may disagree about the round or the size of an upload. Then
                    // they refuse the message.
                    let played = try_play(method, &mut copy, 60, &FORWARD, 1.0);
                    let is_told = matches!(&played, Ok(_) | Err(RoundError::Rejected { .. }));
                    assert!(is_told, "{method:?}: {played:?}");
                    copy.restore(&before).unwrap();
                }
                assert_eq!(copy.save(), before);
            }
        }
    }
}

#[test]
fn everyone_holds_what_the_server_was_told_they_hold() {
    // Whether they received a difference, or the whole model after an absence.
    let method = "sk:2";
    let mut federation = federation(small(method).compression(both(NumberFormat::Bits4, 2)));
    for t in 0..50 {
        play(method, &mut federation, t, &FORWARD, 1.0);
        let server = federation.server().broadcast(0).clone();
        let expected: f32 = server.numbers.iter().map(|number| number * number).sum();
        for node in federation.nodes().iter().filter(|node| node.round() == server.round) {
            assert!(
                (node.method(0).norm2() - f64::from(expected)).abs() <= 1e-5 * f64::from(expected),
                "round {t}"
            );
        }
        let behind = federation.nodes().iter().filter(|node| node.round() < server.round).count();
        if t == 49 {
            (0..NODES as u32).for_each(|node| federation.hear(node).unwrap());
            assert!(
                behind > 0 && federation.nodes().iter().all(|node| node.round() == server.round)
            );
        }
    }
}

#[test]
fn servers_settle_for_what_nodes_were_told() {
    // Broadcasts of GR-OFL are never rounded.
    let is_rounded = |case: &Case| !matches!(case.name(), "local" | "gr" | "tr");
    for case in few_cases(KERNELS).into_iter().filter(is_rounded) {
        let mut server = case.server();
        let before = server.broadcast().clone();
        let mut sections = vec![];
        case.plan.layout().broadcast.sections(&before, &mut sections);
        let rounded: usize = sections.iter().map(|section| section.len).sum();
        let mut told = before.numbers.clone();
        told[..rounded].iter_mut().enumerate().for_each(|(at, told)| *told = at as f32);
        assert!(rounded > 0 && told != before.numbers, "{case:?}");
        server.replace_broadcast(&told);
        case.server().restore(&server.save()).unwrap();
        assert_eq!(
            (server.broadcast().round, server.broadcast().kernels),
            (before.round, before.kernels)
        );
        assert_eq!(server.broadcast().numbers, told, "{case:?}");
    }
}

#[test]
fn broadcasts_are_rounded_for_everyone() {
    for method in travelling() {
        let down = Coding { numbers: NumberFormat::Bits4, ..Coding::default() };
        let compression = Compression { down, ..Compression::default() };
        let mut plain = federation(small(method));
        let mut rounded = federation(small(method).compression(compression));
        round(method, &mut plain, 1);
        round(method, &mut rounded, 1);
        let mut sections = vec![];
        let layout = plain.server().plan().layout();
        layout.broadcast.sections(plain.server().broadcast(0), &mut sections);
        let [plain, rounded] =
            [plain, rounded].map(|federation| federation.server().broadcast(0).numbers.clone());
        let (mut plain, mut rounded) = (&plain[..], &rounded[..]);
        for section in sections {
            let ((exact, plain_rest), (model, rounded_rest)) =
                (plain.split_at(section.len), rounded.split_at(section.len));
            (plain, rounded) = (plain_rest, rounded_rest);
            let largest = exact.iter().fold(0f32, |largest, number| largest.max(number.abs()));
            // Of POF-MKL nobody may have chosen a kernel.
            assert_eq!(exact != model, largest > 0.0, "{method:?}");
            assert!(
                exact
                    .iter()
                    .zip(model)
                    .all(|(exact, model)| (exact - model).abs() <= largest / 6.9)
            );
        }
        // Weights and what else comes after models is exact.
        assert_eq!(plain, rounded, "{method:?}");
    }
}

#[test]
fn halves_name_the_sections_of_their_messages() {
    let model = |slot, len| Section { len, kind: Kind::Model { slot } };
    for case in few_cases(KERNELS) {
        let (mut up, mut down) = (vec![], vec![]);
        let node = case.node(0);
        node.sections(&mut up);
        case.plan.layout().broadcast.sections(case.server().broadcast(), &mut down);
        let all: Vec<_> = (0..KERNELS).map(|slot| model(slot, 2 * FREQUENCIES)).collect();
        let (expected_up, expected_down) = match case.name() {
            // In the first round sums travel as they are, and so do all its broadcasts.
            "gr" | "tr" => (vec![], vec![]),
            "sk" => (vec![all[KERNELS - 1]], vec![all[KERNELS - 1]]),
            "mk" | "emk" => (vec![all[0]], vec![all[0]]),
            "naive" | "fedpoe" => (all.clone(), all),
            "local" => (vec![], vec![]),
            "pof" => {
                let mut upload = Upload::default();
                node.upload(&mut upload);
                let others = &upload.numbers[up.len() * 2 * FREQUENCIES..];
                let chosen =
                    upload.vote.into_iter().chain(others.iter().map(|kernel| *kernel as u32));
                let kind = |kernel| Kind::Steady { slot: kernel as usize };
                (
                    chosen
                        .map(|kernel| Section { len: 2 * FREQUENCIES, kind: kind(kernel) })
                        .collect(),
                    all,
                )
            }
            _ => (vec![model(0, INPUTS + 1)], vec![model(0, INPUTS + 1)]),
        };
        assert_eq!((up, down), (expected_up, expected_down), "{case:?}");
    }
}

/// A round with everyone there.
fn round(method: &'static str, federation: &mut Federation, seed: u64) {
    let map = map_for(method, KERNELS);
    let samples: Vec<_> = (0..NODES as u64)
        .map(|node| {
            let x = numbers(100 * seed + node, INPUTS);
            (features(&map, &x), [x[0] + 0.5])
        })
        .collect();
    let visits: Vec<_> = samples
        .iter()
        .zip(0..)
        .map(|((z, y), node)| NodeRound {
            node,
            z: Features::checked(z).unwrap(),
            y,
            contact: Contact::Full,
        })
        .collect();
    federation.round(&visits, |_| {}).unwrap();
}

#[test]
fn traffic_is_counted_to_the_byte() {
    let (model, all) = (2 * FREQUENCIES as u64, KERNELS as u64);
    for format in NumberFormat::ALL {
        // Of a model, which is one block with a scale of two bytes.
        let bytes = |len: u64| match format {
            NumberFormat::F32 => 4 * len,
            NumberFormat::F16 => 2 + 2 * len,
            NumberFormat::Bits8 => 2 + len,
            NumberFormat::Bits4 => 2 + len.div_ceil(2),
        };
        // Length and number of the models in a message, and what else is in it: up and down.
        for (method, len, [models_up, models_down], [others_up, others_down]) in [
            ("sk:1", model, [1, 1], [0, 0]),
            ("mk", model, [1, 1], [1, 2]),
            ("naive", model, [all, all], [all, all]),
            ("emk", model, [1, 1], [all, 2]),
            ("pof", model, [1, all], [1, 0]),
            ("fedpoe", model, [all, all], [0, 0]),
            ("linear", INPUTS as u64 + 1, [1, 1], [0, 0]),
            ("linear-newton", INPUTS as u64 + 1, [1, 1], [0, 0]),
        ] {
            let mut federation = federation(small(method).compression(both(format, 1)));
            (0..20).for_each(|seed| round(method, &mut federation, seed));
            let (traffic, messages) = (federation.traffic(), 20 * NODES as u64);
            assert_eq!(traffic.numbers_up, messages * (models_up * len + others_up), "{method:?}");
            assert_eq!(
                traffic.numbers_down,
                messages * (models_down * len + others_down),
                "{method:?}"
            );
            let [up, down] = [models_up, models_down].map(|models| models * bytes(len));
            assert_eq!(traffic.bytes_up, messages * (up + 4 * others_up), "{method:?}, {format:?}");
            assert_eq!(
                traffic.bytes_down,
                messages * (down + 4 * others_down),
                "{method:?}, {format:?}"
            );
        }
    }
}

#[test]
fn messages_of_gr_ofl_shrink_with_the_format() {
    let method = "gr";
    let bytes = NumberFormat::ALL.map(|format| {
        let mut federation = federation(small(method).compression(both(format, 1)));
        (0..60).for_each(|t| round(method, &mut federation, t));
        let traffic = federation.traffic();
        assert!(traffic.numbers_up <= (60 * NODES * BUDGET) as u64);
        assert_eq!(
            traffic.bytes_down,
            4 * traffic.numbers_down,
            "models are exact: moves of them are searched"
        );
        traffic.bytes_up as f64 / traffic.numbers_up as f64
    });
    let [exact, half, eight, four] = bytes;
    assert_eq!(exact, 4.0);
    // Gradients have half precision for every requested format; slices and counts are exact.
    assert!(half < 3.4 && eight == half && four == half, "{bytes:?}");
}

#[test]
fn who_was_away_gets_the_whole_broadcast() {
    let mut federation = federation(small("sk:1").compression(both(NumberFormat::Bits8, 1)));
    let z = numbers(1, KERNELS * 2 * FREQUENCIES);
    let z = Features::checked(&z).unwrap();
    let visit = |node, contact| NodeRound { node, z, y: &[0.5], contact };
    for _ in 0..5 {
        federation.round(&[visit(0, Contact::Full), visit(1, Contact::Lost)], |_| {}).unwrap();
    }
    let before = federation.traffic().bytes_down;
    assert_eq!(before, 5 * (2 + 2 * FREQUENCIES as u64));
    federation.hear(1).unwrap();
    assert_eq!(federation.traffic().bytes_down - before, 4 * 2 * FREQUENCIES as u64);
    assert_eq!(federation.nodes()[1].method(0).norm2(), federation.nodes()[0].method(0).norm2());

    // And so does who hears of it in another scale.
    federation.round(&[visit(0, Contact::Full), visit(1, Contact::Lost)], |_| {}).unwrap();
    let scale = Scale::from_ranges(&[(-1.0, 1.0); INPUTS + 1]).unwrap();
    let rescaling = map_for("sk:1", KERNELS).rescaling(&scale, &scale);
    federation.rescale_server(&[Some(rescaling)]);
    let before = federation.traffic().bytes_down;
    federation.hear(1).unwrap();
    assert_eq!(federation.traffic().bytes_down - before, 4 * 2 * FREQUENCIES as u64);
}

#[test]
fn uploads_wait_for_their_round_and_numbers_for_their_turn() {
    for method in travelling() {
        let compression = Compression { every: count(4), ..Compression::default() };
        let mut slow = federation(small(method).compression(compression));
        // Rounds 1 to 3 last one visit, 4 to 8 two, 9 to 15 three, all others four.
        let visits = 3 + 5 * 2 + 7 * 3 + 10 * 4;
        (0..visits).for_each(|seed| round(method, &mut slow, seed));
        assert_eq!(slow.server().broadcast(0).round, 1 + 25, "{method:?}");
        assert_eq!(slow.traffic().uploads_accepted, 25 * NODES as u64);

        let mut partial = federation(small(method).compression(both(NumberFormat::F32, 4)));
        (0..100).for_each(|seed| round(method, &mut partial, seed));
        let whole = (100 * NODES * 2 * FREQUENCIES) as u64;
        let sent = partial.traffic().numbers_up;
        let most = match name(method) {
            // What is fresh can't wait.
            "gr" | "tr" => (100 * NODES * BUDGET) as u64,
            "sk" | "pof" => whole / 2,
            // Votes or losses, and the whole model where the kernel has just changed.
            "mk" => whole,
            "emk" => whole + (100 * NODES * KERNELS) as u64,
            "linear" | "linear-newton" => (100 * NODES * (INPUTS + 1)) as u64 / 2,
            _ => KERNELS as u64 * whole / 2,
        };
        assert!(sent < most, "{method:?}: {sent} of {most}");
    }
}

#[test]
fn late_uploads_are_counted_and_owe_nothing() {
    let [mut with, mut without] =
        [(); 2].map(|()| federation(small("sk:1").compression(both(NumberFormat::Bits4, 2))));
    let z = numbers(1, KERNELS * 2 * FREQUENCIES);
    let z = Features::checked(&z).unwrap();
    let visit = |node, contact| NodeRound { node, z, y: &[0.5], contact };
    for _ in 0..10 {
        with.round(&[visit(0, Contact::Full), visit(1, Contact::Late)], |_| {}).unwrap();
        without.round(&[visit(0, Contact::Full), visit(1, Contact::Lost)], |_| {}).unwrap();
        without.hear(1).unwrap();
    }
    assert_eq!(with.traffic().uploads_late, 10);
    // Both have lost all that node 1 learned, and nothing else.
    for federation in [&mut with, &mut without] {
        federation.round(&[visit(1, Contact::Full)], |_| {}).unwrap();
    }
    assert_eq!(states(&with), states(&without));
    // With nobody in time the round stays open, and the late one is taken after all; its second
    // upload is not.
    with.round(&[visit(1, Contact::Late)], |_| {}).unwrap();
    without.round(&[visit(1, Contact::Late)], |_| {}).unwrap();
    assert_eq!((with.traffic().uploads_late, with.traffic().uploads_accepted), (10, 12));
    with.round(&[visit(1, Contact::Full)], |_| {}).unwrap();
    without.round(&[visit(1, Contact::Lost)], |_| {}).unwrap();
    without.hear(1).unwrap();
    assert_eq!((with.traffic().uploads_late, with.traffic().uploads_accepted), (10, 12));
    // From then on both owe the same.
    for federation in [&mut with, &mut without] {
        federation.round(&[visit(1, Contact::Full)], |_| {}).unwrap();
    }
    assert_eq!(states(&with), states(&without));
}

#[test]
fn compressed_federations_follow_a_change_of_scale() {
    let [from, to] =
        [(-1.0, 1.0), (-1.2, 1.5)].map(|range| Scale::from_ranges(&[range; INPUTS + 1]).unwrap());
    for method in methods(KERNELS) {
        let rescalings = [Some(map_for(method, KERNELS).rescaling(&from, &to))];
        let mut plain = federation(small(method));
        let mut coarse = federation(small(method).compression(both(NumberFormat::Bits4, 3)));
        let mut forgotten = vec![];
        for t in 0..60 {
            let mut seen = vec![];
            for federation in [&mut plain, &mut coarse] {
                if t % 20 == 19 {
                    let before = federation.save().len();
                    federation.rescale_server(&rescalings);
                    (0..NODES as u32)
                        .for_each(|node| federation.rescale_node(node, &rescalings).unwrap());
                    // What was owed is forgotten: all by the server, and all by the nodes.
                    forgotten.push((before as f64 - federation.save().len() as f64) / 4.0);
                }
                seen.push(play(method, federation, t, &FORWARD, 1.0));
            }
            assert!(seen[1].iter().all(|bits| f32::from_bits(*bits).abs() < 10.0), "{method:?}");
        }
        let (nodes, model) = (NODES as f64, 2.0 * FREQUENCIES as f64);
        let owed = match name(method) {
            "local" => 0.0,
            "sk" | "mk" | "emk" => (nodes + 1.0) * model,
            "naive" | "fedpoe" => (nodes + 1.0) * KERNELS as f64 * model,
            "pof" => (nodes + KERNELS as f64) * model,
            // Halves forget what was owed in the old scale too: the last moves, and at what they
            // looked.
            "gr" | "tr" => continue,
            _ => (nodes + 1.0) * (INPUTS as f64 + 1.0),
        };
        for forgotten in forgotten.chunks(2) {
            // Sizes of numbers in saved states vary by a few bytes.
            assert!(forgotten[0].abs() < 3.0, "{method:?}: {forgotten:?}");
            assert!(forgotten[1] >= owed - 3.0, "{method:?}: {forgotten:?}, {owed} owed");
        }
    }
}
