//! The engine of a node beside the federation in one process: the same bits, message by message.

#![allow(clippy::unwrap_used)]

mod common;

use common::{METHODS, plan, sample};
use hedgerow::{Broadcast, Contact, Features, Federation, Method, Upload, Visit};
use hedgerow_net::node::Engine;
use hedgerow_net::protocol::{broadcast_to_wire, numbers_from_bytes, wire};
use hedgerow_net::{Plan, protocol};

fn message(broadcast: &Broadcast, taken: u64) -> wire::FromServer {
    wire::from_server::Message::Broadcast(wire::Broadcast { taken, ..broadcast_to_wire(broadcast) }).into()
}

/// A node that is connected and in step.
fn node(plan: &Plan, number: u32) -> Engine {
    let mut engine = Engine::new(plan.clone(), "run", number);
    engine.connected();
    engine.hear(&message(plan.server().broadcast(), 0)).unwrap();
    engine
}

fn spoken(engine: &mut Engine) -> Option<Upload> {
    let mut messages = Vec::new();
    engine.speak(false, &mut messages);
    let [message] = messages.try_into().ok()?;
    let Some(wire::from_node::Message::Upload(upload)) = message.message else { panic!("an upload") };
    let mut numbers = Vec::new();
    numbers_from_bytes(&upload.numbers, engine.plan().most_numbers(), &mut numbers).unwrap();
    Some(Upload { round: upload.round, vote: upload.vote, numbers })
}

#[test]
fn engines_and_a_server_half_are_the_federation() {
    for method in METHODS {
        let nodes = 5;
        let plan = plan(method, nodes);
        let mut federation = Federation::new(method, plan.setup());
        let mut engines: Vec<Engine> = (0..nodes as u32).map(|number| node(&plan, number)).collect();
        let mut server = plan.server();
        let mut z = vec![0.0; plan.map().width()];
        for time in 0..60 {
            let mut predicted = Vec::new();
            let samples: Vec<_> = (0..nodes as u32).map(|node| sample(node, time)).collect();
            let features: Vec<Vec<f32>> =
                samples.iter().map(|(x, _)| plan.map().map_batch(x, &mut z).numbers().to_vec()).collect();
            let visits: Vec<Visit<'_>> = (0..nodes)
                .map(|node| Visit {
                    node: node as u32,
                    z: Features::checked(&features[node]).unwrap(),
                    y: std::slice::from_ref(&samples[node].1),
                    contact: Contact::Full,
                })
                .collect();
            federation.round(&visits, |prediction| predicted.push(prediction.value)).unwrap();
            for (engine, (x, y)) in engines.iter_mut().zip(&samples) {
                assert_eq!(spoken(engine), None, "nothing learned, nothing to say");
                let answer = engine.learn(x, *y).unwrap();
                assert_eq!(
                    answer.value.to_bits(),
                    predicted[engine.number() as usize].to_bits(),
                    "{method:?}"
                );
                let upload = spoken(engine).unwrap();
                assert!(engine.awaits_broadcast() && spoken(engine).is_none());
                server.accept(engine.number(), &upload).unwrap();
            }
            let closed = server.close_round().clone();
            assert_eq!(&closed, federation.server().broadcast(), "{method:?} round {time}");
            for engine in &mut engines {
                engine.hear(&message(&closed, closed.round - 1)).unwrap();
                assert!(!engine.awaits_broadcast());
            }
        }
        let tally = engines[0].tally();
        assert_eq!((tally.samples, tally.uploads, tally.taken), (60, 60, 60));
    }
}

#[test]
fn a_restored_node_goes_on_as_if_nothing_had_happened() {
    for method in METHODS {
        let plan = plan(method, 1);
        let (mut engine, mut server) = (node(&plan, 0), plan.server());
        for time in 0..20 {
            let (x, y) = sample(0, time);
            engine.predict_later(&format!("p{time}"), &x).unwrap();
            engine.learn(&x, y).unwrap();
            // Away and back in the middle of a round: the upload is said again.
            let before = spoken(&mut engine).unwrap();
            engine = Engine::restore(plan.clone(), &engine.save()).unwrap();
            assert_eq!(spoken(&mut engine), None, "not connected");
            engine.connected();
            assert_eq!(spoken(&mut engine), None, "not in step");
            engine.hear(&message(server.broadcast(), 0)).unwrap();
            let again = spoken(&mut engine).unwrap();
            assert_eq!(before, again, "{method:?}");
            server.accept(0, &again).unwrap();
            let closed = server.close_round().clone();
            engine.hear(&message(&closed, closed.round - 1)).unwrap();
        }
        assert_eq!(engine.waiting(), (20, 0));
        assert!(engine.learn_by_id("p3", 0.5).is_ok() && engine.learn_by_id("p3", 0.5).is_err());
    }
}

#[test]
fn samples_after_the_upload_wait_for_the_next_round() {
    let plan = plan(Method::SkOfl { kernel: 6 }, 1);
    let (mut engine, mut server) = (node(&plan, 0), plan.server());
    let (x, y) = sample(0, 0);
    engine.learn(&x, y).unwrap();
    server.accept(0, &spoken(&mut engine).unwrap()).unwrap();
    for time in 1..4 {
        let (x, y) = sample(0, time);
        engine.learn(&x, y).unwrap();
    }
    assert_eq!(engine.waiting(), (0, 3));
    let closed = server.close_round().clone();
    engine.hear(&message(&closed, 1)).unwrap();
    assert_eq!(engine.waiting(), (0, 0));
    // A node that was told the three in the new round says the same.
    let mut other = Engine::new(plan.clone(), "run", 0);
    other.connected();
    other.hear(&message(&closed, 0)).unwrap();
    for time in 1..4 {
        let (x, y) = sample(0, time);
        other.learn(&x, y).unwrap();
    }
    assert_eq!(spoken(&mut engine), spoken(&mut other));
}

#[test]
fn a_server_that_has_lost_rounds_is_followed() {
    let plan = plan(Method::MkOfl, 1);
    let (mut engine, mut server) = (node(&plan, 0), plan.server());
    let mut early = None;
    for time in 0..10 {
        let (x, y) = sample(0, time);
        engine.learn(&x, y).unwrap();
        server.accept(0, &spoken(&mut engine).unwrap()).unwrap();
        let closed = server.close_round().clone();
        early = early.or_else(|| (closed.round == 4).then(|| closed.clone()));
        engine.hear(&message(&closed, 0)).unwrap();
    }
    assert_eq!(engine.round(), 11);
    engine.connected();
    engine.hear(&message(&early.unwrap(), 0)).unwrap();
    assert_eq!(engine.round(), 4);
}

#[test]
fn nonsense_changes_nothing() {
    let plan = plan(Method::MkOfl, 1);
    let mut engine = node(&plan, 0);
    let before = engine.save();
    let good = broadcast_to_wire(plan.server().broadcast());
    let nonsense = [
        wire::Broadcast { round: 0, ..good.clone() },
        wire::Broadcast { round: u64::MAX, ..good.clone() },
        wire::Broadcast { round: 2, numbers: good.numbers.slice(4..), ..good.clone() },
        wire::Broadcast { round: 2, numbers: good.numbers.slice(1..), ..good.clone() },
        wire::Broadcast { round: 2, kernels: None, ..good.clone() },
        wire::Broadcast { round: 2, kernels: Some(wire::Selection { current: 99, next: 0 }), ..good.clone() },
        wire::Broadcast { round: 2, compressed: true, ..good.clone() },
        wire::Broadcast { round: 2, numbers: protocol::numbers_to_bytes(&[f32::NAN; 98]), ..good.clone() },
    ];
    for broadcast in nonsense {
        let message = wire::from_server::Message::Broadcast(broadcast.clone()).into();
        assert!(engine.hear(&message).is_err(), "{broadcast:?}");
    }
    assert!(engine.hear(&wire::FromServer { message: None }).is_err());
    assert!(engine.learn(&[0.0; 2], 1.0).is_err() && engine.learn(&[0.0; 3], f32::NAN).is_err());
    assert!(engine.predict(&[0.0; 4]).is_err() && engine.learn_by_id("nobody", 1.0).is_err());
    assert_eq!(engine.save(), before);
    assert!(Engine::restore(plan.clone(), &before[1..]).is_err() && Engine::restore(plan, &[]).is_err());
}
