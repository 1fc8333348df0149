//! A node compared with a federation in one process: the same bits, message by message.

#![allow(clippy::unwrap_used)]

use crate::common::Engine;
use crate::common::{Plan, Scaling};
use crate::common::{broadcast_to_wire, scale_to_wire};
use crate::common::{learning, methods, plan, sample};
use hedgerow::Federation;
use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::message::{Broadcast, Upload};
use hedgerow::scaling::{Scale, ScaleKind};
use hedgerow_net::transport::protocol;
use hedgerow_net::transport::protocol::{numbers_from_bytes, wire};

fn message(broadcast: &Broadcast, taken: u64) -> wire::FromServer {
    wire::from_server::Message::Broadcast(wire::Broadcast { taken, ..broadcast_to_wire(broadcast) })
        .into()
}

/// A connected node in the current round.
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
    Some(upload_in(engine, message))
}

fn upload_in(engine: &Engine, message: wire::FromNode) -> Upload {
    let Some(wire::from_node::Message::Upload(upload)) = message.message else {
        panic!("an upload")
    };
    let mut numbers = Vec::new();
    numbers_from_bytes(&upload.numbers, engine.plan().most_numbers(), &mut numbers).unwrap();
    Upload { round: upload.round, vote: upload.vote, numbers }
}

#[test]
fn who_has_nothing_to_answer_with_says_so_once() {
    let plan = plan("mk", 2);
    let mut engine = node(&plan, 0);
    let says = |engine: &mut Engine, even_so| {
        let mut said = Vec::new();
        engine.speak(even_so, &mut said);
        said.into_iter().map(|said| said.message.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(says(&mut engine, false), []);
    let idle = wire::from_node::Message::Idle(wire::Idle {});
    assert_eq!(says(&mut engine, true), std::slice::from_ref(&idle));
    assert_eq!(says(&mut engine, true), []);
    let (x, y) = sample(0, 1);
    engine.learn(&x, y).unwrap();
    assert!(matches!(says(&mut engine, false)[..], [wire::from_node::Message::Upload(_)]));
    assert_eq!(says(&mut engine, true), [], "it has answered");
    // On a new stream nobody knows.
    let mut engine = node(&plan, 0);
    says(&mut engine, true);
    engine.disconnected();
    engine.connected();
    engine.hear(&message(plan.server().broadcast(), 0)).unwrap();
    assert_eq!(says(&mut engine, true), [idle]);
}

#[test]
fn who_has_another_scale_than_the_server_waits_for_its() {
    let scaling = Scaling::Online { kind: ScaleKind::Range };
    let plan = Plan::new(learning("mk", 2).scaling(scaling)).unwrap();
    let scale = Scale::from_ranges(&vec![(0.0, 2.0); plan.inputs() + 1]).unwrap();
    let scale = wire::FromServer::from(wire::from_server::Message::Scale(scale_to_wire(1, &scale)));
    let mut engine = node(&plan, 0);
    engine.hear(&scale).unwrap();
    let uploads = |engine: &mut Engine| {
        let (x, y) = sample(0, 1);
        engine.learn(&x, y).unwrap();
        let mut said = Vec::new();
        engine.speak(false, &mut said);
        said.iter().any(|said| matches!(said.message, Some(wire::from_node::Message::Upload(_))))
    };
    assert!(uploads(&mut engine));
    // The server comes back from before its first scale: it would take a model for one of a scale
    // that it is yet to make.
    engine.disconnected();
    engine.connected();
    engine.hear(&message(plan.server().broadcast(), 0)).unwrap();
    assert!(!uploads(&mut engine));
    engine.hear(&scale).unwrap();
    assert!(uploads(&mut engine));
}

#[test]
fn engines_and_a_server_half_are_the_federation() {
    for method in methods() {
        let nodes = 5;
        let plan = plan(method, nodes);
        let mut federation = Federation::new(&plan);
        let mut engines: Vec<Engine> =
            (0..nodes as u32).map(|number| node(&plan, number)).collect();
        let mut server = plan.server();
        let mut z = vec![0.0; plan.map().width()];
        for time in 0..60 {
            let mut predicted = Vec::new();
            let samples: Vec<_> = (0..nodes as u32).map(|node| sample(node, time)).collect();
            let features: Vec<Vec<f32>> = samples
                .iter()
                .map(|(x, _)| plan.map().map_batch(x, &mut z).numbers().to_vec())
                .collect();
            let visits: Vec<NodeRound<'_>> = (0..nodes)
                .map(|node| NodeRound {
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
            assert_eq!(&closed, federation.server().broadcast(0), "{method:?} round {time}");
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
    for method in methods() {
        let plan = plan(method, 1);
        let (mut engine, mut server) = (node(&plan, 0), plan.server());
        for time in 0..20 {
            let (x, y) = sample(0, time);
            engine.predict_later(&format!("p{time}"), &x).unwrap();
            engine.learn(&x, y).unwrap();
            // After a disconnection in the middle of a round, the upload is repeated.
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
    let plan = plan("sk:7", 1);
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

/// A node that has followed its server for a while, under two scales, and what was heard at an
/// early round.
struct Lost {
    plan: Plan,
    engine: Engine,
    scale: wire::FromServer,
    broadcast: wire::FromServer,
}

fn scale(version: u64, high: f64) -> wire::FromServer {
    let ranges = [(0.0, high), (0.0, high), (0.0, high), (0.0, 1.0)];
    wire::from_server::Message::Scale(scale_to_wire(version, &Scale::from_ranges(&ranges).unwrap()))
        .into()
}

fn before_the_loss(method: &str) -> Lost {
    let online = Scaling::Online { kind: ScaleKind::Range };
    let plan = Plan::new(learning(method, 1).personal(false).scaling(online)).unwrap();
    let (mut engine, mut server) = (node(&plan, 0), plan.server());
    let mut early = None;
    engine.hear(&scale(1, 1.0)).unwrap();
    for time in 0..10 {
        let (x, y) = sample(0, time);
        engine.learn(&x, y).unwrap();
        let mut said = Vec::new();
        engine.speak(false, &mut said);
        server.accept(0, &upload_in(&engine, said.pop().unwrap())).unwrap();
        let closed = server.close_round().clone();
        early = early.or_else(|| (closed.round == 4).then(|| message(&closed, 0)));
        if closed.round == 8 {
            engine.hear(&scale(2, 2.0)).unwrap();
        }
        engine.hear(&message(&closed, 0)).unwrap();
    }
    assert_eq!(engine.round(), 11);
    Lost { plan, engine, scale: scale(1, 1.0), broadcast: early.unwrap() }
}

#[test]
fn a_server_that_has_lost_rounds_is_followed() {
    for method in methods() {
        let Lost { plan, mut engine, scale, broadcast } = before_the_loss(method);
        // One that knows nothing but what the server has now.
        let mut fresh = Engine::new(plan, "run", 0);
        let (x, y) = sample(0, 50);
        for engine in [&mut engine, &mut fresh] {
            engine.connected();
            engine.hear(&scale).unwrap();
            engine.hear(&broadcast).unwrap();
            assert_eq!(engine.round(), 4, "{method:?}");
        }
        // The server's scale and its model are the node's, however old they are; weights of its own
        // it keeps.
        let value = |engine: &mut Engine| engine.predict(&x).unwrap().value;
        let is_as_fresh = value(&mut engine) == value(&mut fresh);
        assert_eq!(is_as_fresh, !matches!(method, "pof" | "fedpoe"), "{method:?}");
        assert_eq!((engine.tally().samples, engine.learned()), (10, 0));
        // And from here on it goes on with it.
        engine.learn(&x, y).unwrap();
        let mut said = Vec::new();
        engine.speak(false, &mut said);
        assert_eq!(upload_in(&engine, said.pop().unwrap()).round, 4);
    }
}

#[test]
fn what_was_learned_outlives_the_rounds_that_were_lost() {
    let Lost { plan, mut engine, scale, broadcast } = before_the_loss("gr");
    let mut fresh = Engine::new(plan, "run", 0);
    let said = [&mut engine, &mut fresh].map(|engine| {
        engine.connected();
        engine.hear(&scale).unwrap();
        engine.hear(&broadcast).unwrap();
        let mut said = Vec::new();
        engine.speak(true, &mut said);
        said.retain(|said| matches!(said.message, Some(wire::from_node::Message::Upload(_))));
        said.pop().map(|said| upload_in(engine, said))
    });
    // Ten samples in the scale of today are news to the server; a fresh node has none.
    let [Some(upload), None] = said else { panic!("{said:?}") };
    assert!(upload.round == 4 && upload.numbers.iter().any(|number| *number != 0.0), "{upload:?}");
    // Saved and restored it is the same.
    let saved = engine.save();
    let mut again = Engine::restore(Plan(engine.plan().clone()), &saved).unwrap();
    again.connected();
    again.hear(&scale).unwrap();
    again.hear(&broadcast).unwrap();
    let mut said = Vec::new();
    again.speak(true, &mut said);
    assert_eq!(upload_in(&again, said.pop().unwrap()), upload);
}

#[test]
fn nonsense_changes_nothing() {
    let plan = plan("mk", 1);
    let mut engine = node(&plan, 0);
    let before = engine.save();
    let good = broadcast_to_wire(plan.server().broadcast());
    let nonsense = [
        wire::Broadcast { round: 0, ..good.clone() },
        wire::Broadcast { round: u64::MAX, ..good.clone() },
        wire::Broadcast { round: 2, numbers: good.numbers.slice(4..), ..good.clone() },
        wire::Broadcast { round: 2, numbers: good.numbers.slice(1..), ..good.clone() },
        wire::Broadcast { round: 2, kernels: None, ..good.clone() },
        wire::Broadcast {
            round: 2,
            kernels: Some(wire::Selection { current: 99, next: 0 }),
            ..good.clone()
        },
        wire::Broadcast { round: 2, compressed: true, ..good.clone() },
        wire::Broadcast {
            round: 2,
            numbers: protocol::numbers_to_bytes(&[f32::NAN; 98]),
            ..good.clone()
        },
    ];
    for broadcast in nonsense {
        let message = wire::from_server::Message::Broadcast(broadcast.clone()).into();
        assert!(engine.hear(&message).is_err(), "{broadcast:?}");
    }
    assert!(engine.hear(&wire::FromServer { message: None }).is_err());
    assert!(engine.learn(&[0.0; 2], 1.0).is_err() && engine.learn(&[0.0; 3], f32::NAN).is_err());
    assert!(engine.predict(&[0.0; 4]).is_err() && engine.learn_by_id("nobody", 1.0).is_err());
    assert_eq!(engine.save(), before);
    assert!(
        Engine::restore(plan.clone(), &before[1..]).is_err() && Engine::restore(plan, &[]).is_err()
    );
}
