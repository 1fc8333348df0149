//! Importance of columns over all nodes: the server has what nodes measured, once, whatever becomes
//! of messages.

#![allow(clippy::unwrap_used)]

use hedgerow::importance::{GroupImportance, ImportanceScope, SHARED_EVERY};
use hedgerow::message::{Numbers, Rejected, ToNode, ToServer, Upload, UploadMessage};
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::relay::Relay;
use hedgerow::{Federation, Node, Plan, PlanConfig, Server};

use crate::importance::{NODES, config, friedman, inputs, learned, learned_mapped, online};

fn shared(config: PlanConfig) -> PlanConfig {
    config.importance(ImportanceScope::Shared)
}

/// Friedman's function in the order of one.
fn sample(node: usize, round: usize) -> (Vec<f32>, f32) {
    let (x, y) = friedman(node, round);
    (x, y / 30.0)
}

fn told(server: &Server) -> &[GroupImportance] {
    server.importance().unwrap().groups()
}

/// The server has all that nodes measured. What nodes tell has the precision of f32, and what that
/// leaves is told later.
fn assert_all_is_told<'a>(server: &Server, nodes: impl Iterator<Item = &'a Node> + Clone) {
    for (group, told) in told(server).iter().enumerate() {
        let own = nodes.clone().map(|node| node.importance()[group]);
        let (increase, size, measured) = own.fold((0.0, 0.0, 0), |sum, own| {
            (sum.0 + own.increase, sum.1 + own.increase.abs(), sum.2 + own.measured)
        });
        assert!(told.measured == measured && measured > 0, "{told:?} {measured}");
        assert!((told.increase - increase).abs() <= 1e-6 * size, "{told:?} {increase}");
    }
}

#[test]
fn the_server_has_what_nodes_measured() {
    let last = 3 * SHARED_EVERY;
    for (method, is_scaled) in [("tr", false), ("gr", true), ("mk", true)] {
        let config = shared(config(method, 10));
        let config = if is_scaled { online(config) } else { config };
        let mut rounds = last as usize;
        let federation = loop {
            // Rounds begin with the first scale.
            let federation = learned(config.clone(), rounds, sample);
            match federation.server().round() {
                round if round > last => break federation,
                _ => rounds += 1,
            }
        };
        assert_eq!(federation.server().round(), last + 1);
        assert_all_is_told(federation.server(), federation.nodes().iter());
        let windows = federation.server().importance().unwrap().windows();
        assert_eq!(windows.iter().map(|window| window.round).max(), Some(last));
    }
}

#[test]
fn drivers_that_map_samples_share_the_same_bits() {
    let plan = Plan::new(shared(config("tr", 10))).unwrap();
    let raw = learned(plan.config().clone(), 100, sample);
    let mapped = learned_mapped(&plan, 100, sample);
    let state = |federation: &Federation| {
        let shared = federation.server().importance().unwrap().clone();
        (shared.groups().to_vec(), shared.windows().to_vec())
    };
    assert_eq!(state(&raw), state(&mapped));
    assert!(state(&raw).0.iter().all(|group| group.measured > 0));
}

#[test]
fn only_the_numbers_that_travel_change() {
    let rounds = 70;
    let with = |scope| learned(config("gr", 10).importance(scope), rounds, sample);
    let (plain, shared) = (with(ImportanceScope::Local), with(ImportanceScope::Shared));
    for (one, other) in plain.nodes().iter().zip(shared.nodes()) {
        assert!(one.save() == other.save() && one.importance() == other.importance());
    }
    assert!(plain.server().broadcast(0) == shared.server().broadcast(0));
    // Two numbers for each of ten columns, in rounds 32 and 64.
    let more = 2 * 10 * 2 * NODES as u64;
    assert_eq!(shared.traffic().numbers_up, plain.traffic().numbers_up + more);
    assert_eq!(shared.traffic().bytes_up, plain.traffic().bytes_up + 4 * more);
    let mapped = |scope| {
        let plan = Plan::new(config("gr", 10).importance(scope)).unwrap();
        learned_mapped(&plan, rounds, sample).traffic().numbers_up
    };
    assert_eq!(mapped(ImportanceScope::Shared), mapped(ImportanceScope::Local) + more);
}

/// What a node says now.
fn said(node: &mut Node) -> Vec<ToServer> {
    let mut said = Vec::new();
    node.speak(false, |message| said.push(message));
    said
}

#[test]
fn lost_and_repeated_messages_never_count_twice() {
    let plan = Plan::new(shared(config("gr", 4))).unwrap();
    let (mut server, mut nodes) = (plan.server(), Vec::new());
    let mut taken = [0; NODES];
    for id in 0..NODES {
        nodes.push(plan.node(id as u32));
        nodes[id].connected();
    }
    let chance = CounterRng::from_seed(9).derive(Purpose::Data, 0);
    let draw = |node: usize, step: usize, which: u64| {
        chance.uniform_at((step * NODES + node) as u64 * 4 + which)
    };
    let last = 12 * SHARED_EVERY;
    let mut lost = 0;
    for step in 0.. {
        let round = server.round();
        if round > last {
            break;
        }
        let is_last = round == last;
        for (id, node) in nodes.iter_mut().enumerate() {
            // Some don't hear what opens the round, and are a round behind.
            if draw(id, step, 0) < 0.8 || is_last {
                server.opening(taken[id], false).for_each(|message| node.hear(&message).unwrap());
            }
            if node.round() != round {
                continue;
            }
            let learn = |node: &mut Node, part: usize| {
                let x = inputs(id, 2 * step + part, 4);
                node.learn(&x, &[x[0] + x[1] / 2.0]).unwrap();
            };
            learn(node, 0);
            let mut messages = said(node);
            if draw(id, step, 1) < 0.4 && !is_last {
                // The connection breaks. On the next one the same round is answered again, with
                // more samples behind it.
                let has_arrived = draw(id, step, 2) < 0.5;
                for message in messages.iter().filter(|_| has_arrived) {
                    server.accept(id as u32, message).unwrap();
                    taken[id] = round;
                }
                node.disconnected();
                learn(node, 1);
                node.connected();
                server.connected(id as u32);
                let before = if taken[id] == round { 0 } else { taken[id] };
                server.opening(before, false).for_each(|message| node.hear(&message).unwrap());
                messages = said(node);
            }
            if draw(id, step, 3) < 0.7 || is_last {
                for message in &messages {
                    match server.accept(id as u32, message) {
                        Ok(()) => taken[id] = round,
                        Err(Rejected::Duplicate { .. }) => assert_eq!(taken[id], round),
                        Err(other) => panic!("{other}"),
                    }
                }
            }
            lost += usize::from(taken[id] != round && round.is_multiple_of(SHARED_EVERY));
        }
        // Without uploads the round stays open.
        _ = server.close_round();
    }
    assert!(lost > 5, "{lost} lost");
    assert_all_is_told(&server, nodes.iter());
}

#[test]
fn relays_and_restarts_keep_every_bit() {
    let plan = Plan::new(shared(config("gr", 4))).unwrap();
    let mut nodes: Vec<Node> = (0..NODES).map(|id| plan.node(id as u32)).collect();
    nodes.iter_mut().for_each(Node::connected);
    let (mut flat, mut tree) = (plan.server(), plan.server());
    let (mut upper, mut lower) = (Relay::new(&plan).unwrap(), Relay::new(&plan).unwrap());
    for round in 1..=2 * SHARED_EVERY {
        for (id, node) in nodes.iter_mut().enumerate() {
            flat.opening(round - 1, false).for_each(|message| node.hear(&message).unwrap());
            let x = inputs(id, round as usize, 4);
            node.learn(&x, &[x[0]]).unwrap();
            let messages = said(node);
            let [ToServer::Upload(message)] = &messages[..] else { panic!("{messages:?}") };
            flat.accept(id as u32, &messages[0]).unwrap();
            let (uploads, relay) = (uploads(message), if id < 3 { &mut lower } else { &mut upper });
            relay.accept_with(id as u32, &uploads, &message.importance).unwrap();
            let again = relay.accept_with(id as u32, &uploads, &message.importance);
            assert!(matches!(again, Err(Rejected::Duplicate { .. })), "{again:?}");
        }
        let sum = upper.read_importance(&lower.importance().unwrap().to_bytes()).unwrap();
        upper.merge_with(lower.sums(), &sum).unwrap();
        assert!(upper.merge_with(lower.sums(), &sum).is_err(), "it counts once");
        tree.merge_with(upper.sums(), upper.importance()).unwrap();
        assert!(tree.merge_with(upper.sums(), upper.importance()).is_err(), "it counts once");
        for server in [&mut flat, &mut tree] {
            assert!(server.close_round().has_uploads);
        }
        for relay in [&mut upper, &mut lower] {
            relay.follow(&[flat.broadcast(0).clone()]).unwrap();
        }
        tree = Server::restore(&plan, &tree.save(), None).unwrap();
    }
    assert!(flat.save() == tree.save());
    assert!(told(&flat).iter().all(|group| group.measured > 0));
    // A server that was saved without it goes on, and begins to measure.
    let without = Plan::new(plan.config().clone().importance(ImportanceScope::None)).unwrap();
    let mut older = without.server();
    older.accept_uploads(0, &[Upload { round: 1, ..first_upload(&without) }]).unwrap();
    assert!(older.close_round().has_uploads);
    let server = Server::restore(&plan, &older.save(), None).unwrap();
    assert_eq!((server.round(), told(&server)[0].measured), (2, 0));
}

fn uploads(message: &UploadMessage) -> Vec<Upload> {
    let head = |head: &hedgerow::message::UploadHead| {
        let Numbers::Plain(numbers) = &head.numbers else { panic!("not compressed") };
        Upload { round: message.round, vote: head.vote, numbers: numbers.clone() }
    };
    message.heads.iter().map(head).collect()
}

fn first_upload(plan: &Plan) -> Upload {
    let mut node = plan.node(0);
    node.connected();
    plan.server().opening(0, false).for_each(|message: ToNode| node.hear(&message).unwrap());
    node.learn(&[0.5; 4], &[0.5]).unwrap();
    let messages = said(&mut node);
    let ToServer::Upload(message) = &messages[0] else { panic!("{messages:?}") };
    uploads(message).remove(0)
}

#[test]
fn hostile_numbers_are_refused_and_change_nothing() {
    let config = shared(config("gr", 4));
    let plan = Plan::new(config.clone()).unwrap();
    let mut server = plan.server();
    let upload = first_upload(&plan);
    // Nothing is told in the first round.
    let refused = server.accept_with(0, std::slice::from_ref(&upload), &[0.0; 8]).unwrap_err();
    assert_eq!(refused, Rejected::WrongLength { expected: 0, found: 8 });
    assert_eq!(server.uploads(), 0);
    server.accept_with(0, std::slice::from_ref(&upload), &[]).unwrap();
    let without = Plan::new(config.importance(ImportanceScope::Local)).unwrap();
    let refused = without.server().accept_with(0, &[upload], &[0.0; 8]).unwrap_err();
    assert_eq!(refused, Rejected::WrongLength { expected: 0, found: 8 });
    let mut relay = Relay::new(&without).unwrap();
    let sum = Relay::new(&plan).unwrap().importance().unwrap().clone();
    assert!(relay.importance().is_none() && relay.read_importance(&sum.to_bytes()).is_err());
    assert!(relay.merge_with(&without.server().parts(), &sum).is_err());
}

#[test]
fn a_sensor_that_dies_is_seen_at_the_server() {
    let half = 640;
    let sample = |node: usize, round: usize| {
        let mut x = inputs(node, round, 3);
        let y = 4.0 * x[0] + 2.0 * x[1];
        if round >= half {
            x[0] = 0.7;
        }
        (x, y)
    };
    let recent = |rounds: usize| {
        let federation = learned(online(shared(config("gr", 3))), rounds, sample);
        let unit = federation.server().importance_unit();
        told(federation.server()).iter().map(|group| group.recent * unit).collect::<Vec<f64>>()
    };
    let (before, after) = (recent(half), recent(3 * half));
    assert!(before[0] > before[1] && before[1] > 0.2, "{before:?}");
    assert!(after[0].abs() < before[0] / 5.0 && after[1] > 0.2, "{before:?} {after:?}");
}
