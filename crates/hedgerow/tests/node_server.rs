//! Nodes and a server that exchange messages give the same bits as a federation, for one output or
//! several, plain or compressed, with any scaling.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroU16;

use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::message::{Errors, Numbers, Rejected, ToNode, ToServer};
use hedgerow::node::{Answer, BadInput};
use hedgerow::plan::Scaling;
use hedgerow::scaling::{Scale, ScaleKind};
use hedgerow::{Federation, Node, Plan, PlanConfig, Server};

use crate::common::{INPUTS, methods, numbers};

const NODES: u32 = 3;

fn config(method: &'static str) -> PlanConfig {
    let kernels = crate::common::dictionary(3);
    let config = PlanConfig::default()
        .personal(false)
        .method(method.parse().unwrap())
        .kernels(kernels)
        .inputs(INPUTS);
    config.nodes(NODES as usize).budget(24).frequencies(Some(5))
}

fn compression() -> Compression {
    let coding = Coding { numbers: NumberFormat::Bits8, part: NonZeroU16::new(2).unwrap() };
    Compression { up: coding, down: coding, ..Compression::default() }
}

/// Raw inputs and two labels of a node at a time.
fn sample(node: u32, time: u64) -> (Vec<f32>, [f32; 2]) {
    let x: Vec<f32> =
        numbers(1_000 * time + u64::from(node), INPUTS).iter().map(|x| 3.0 * x + 1.0).collect();
    (x.clone(), [x[0].sin() + 5.0, 10.0 * x[0] * x[1]])
}

/// A server and its nodes.
struct World {
    server: Server,
    nodes: Vec<Node>,
    taken: Vec<u64>,
}

impl World {
    fn new(plan: &Plan) -> Self {
        let nodes = (0..NODES).map(|id| plan.node(id)).collect();
        let mut world = Self { server: plan.server(), nodes, taken: vec![0; NODES as usize] };
        for node in &mut world.nodes {
            node.connected();
            world.server.connected(node.id());
            world.server.opening(0, false).for_each(|message| node.hear(&message).unwrap());
        }
        world
    }

    /// A round: all nodes learn their sample and upload, and receive the new broadcast. Returns the
    /// predictions of all outputs.
    fn round(&mut self, time: u64, labels: &[usize]) -> Vec<Vec<f32>> {
        let mut predicted = Vec::new();
        for node in &mut self.nodes {
            let (x, y) = sample(node.id(), time);
            let y: Vec<f32> = labels.iter().map(|label| y[*label]).collect();
            node.learn(&x, &y).unwrap();
            predicted.push(node.values().to_vec());
            let mut said = Vec::new();
            node.speak(false, |message| said.push(message));
            for message in said {
                self.server.accept(node.id(), &message).unwrap();
                if let ToServer::Upload(upload) = message {
                    self.taken[node.id() as usize] = upload.round;
                }
            }
        }
        if self.server.close_round().is_news() {
            for node in &mut self.nodes {
                let taken = self.taken[node.id() as usize];
                let in_step = node.round() + 1 == self.server.round();
                for message in self.server.opening(taken, in_step) {
                    node.hear(&message).unwrap();
                }
            }
        }
        predicted
    }
}

#[test]
fn two_outputs_are_two_plans_of_one() {
    let scalings = [
        Scaling::None,
        Scaling::Fixed(Scale::from_ranges(&[(-2.0, 4.0), (-2.0, 4.0), (4.0, 6.0)]).unwrap()),
        Scaling::Online { kind: ScaleKind::Spread },
    ];
    for method in methods(3) {
        for scaling in &scalings {
            let personal = method != "naive";
            let config = config(method).scaling(scaling.clone()).personal(personal);
            let both = match scaling {
                Scaling::Fixed(_) => {
                    let ranges = [(-2.0, 4.0), (-2.0, 4.0), (4.0, 6.0), (4.0, 6.0)];
                    Scaling::Fixed(Scale::from_ranges(&ranges).unwrap())
                }
                other => other.clone(),
            };
            let both = Plan::new(config.clone().outputs(2).scaling(both)).unwrap();
            let one = Plan::new(config).unwrap();
            let (mut both, mut first, mut second) =
                (World::new(&both), World::new(&one), World::new(&one));
            for time in 0..40 {
                let predicted = both.round(time, &[0, 1]);
                let alone = [first.round(time, &[0]), second.round(time, &[1])];
                for (node, values) in predicted.iter().enumerate() {
                    let expected = [alone[0][node][0], alone[1][node][0]];
                    assert_eq!(values[..], expected, "{method:?} {scaling:?} time {time}");
                }
            }
            assert!(both.server.round() > 20 || method == "local");
        }
    }
}

/// The same samples as features and scaled labels, and as raw samples.
#[test]
fn a_federation_is_its_nodes_and_its_server() {
    for method in methods(3) {
        let plan = Plan::new(config(method).outputs(2)).unwrap();
        let mut world = World::new(&plan);
        let (mut mapped, mut raw) = (Federation::new(&plan), Federation::new(&plan));
        raw.connect();
        for time in 0..30 {
            let samples: Vec<_> = (0..NODES).map(|node| sample(node, time)).collect();
            let x: Vec<f32> = samples.iter().flat_map(|(x, _)| x.clone()).collect();
            let mut z = vec![0.0; NODES as usize * plan.width()];
            let features = plan.map().map_batch(&x, &mut z).samples(plan.width());
            let visits: Vec<_> = (0..)
                .zip(features.zip(&samples))
                .map(|(node, (z, (_, y)))| NodeRound { node, z, y, contact: Contact::Full })
                .collect();
            let mut predicted = Vec::new();
            mapped.round(&visits, |prediction| predicted.push(prediction.value)).unwrap();
            for (node, (x, y)) in raw.nodes_mut().iter_mut().zip(&samples) {
                node.learn(x, y).unwrap();
            }
            let answers: Vec<f32> =
                raw.nodes().iter().flat_map(|node| node.values().to_vec()).collect();
            raw.exchange();
            assert_eq!(predicted, world.round(time, &[0, 1]).concat(), "{method:?} time {time}");
            assert_eq!(predicted, answers, "{method:?} time {time}");
        }
        for output in 0..2 {
            let broadcasts = [mapped.server(), raw.server()].map(|server| server.broadcast(output));
            assert_eq!(broadcasts, [world.server.broadcast(output); 2], "{method:?}");
        }
        assert_eq!(mapped.traffic().uploads_accepted, raw.traffic().uploads_accepted);
        assert_eq!(mapped.traffic().numbers_up, raw.traffic().numbers_up);
    }
}

#[test]
fn a_restored_federation_has_the_layers_of_its_nodes() {
    for method in ["gr", "mk", "linear"] {
        let plan = Plan::new(config(method).personal(true)).unwrap();
        let mut federation = Federation::new(&plan);
        let round = |federation: &mut Federation, time: u64| {
            let (x, y) = sample(0, time);
            let mut z = vec![0.0; plan.width()];
            let z = plan.map().map_batch(&x, &mut z);
            // Far from what all nodes have in common.
            let y = [y[0] + 9.0];
            let (mut predicted, visit) =
                ((0.0, 0.0), NodeRound { node: 0, z, y: &y, contact: Contact::Full });
            federation
                .round(&[visit], |prediction| predicted = (prediction.global, prediction.value))
                .unwrap();
            predicted
        };
        (0..30).for_each(|time| _ = round(&mut federation, time));
        let mut copy = Federation::new(&plan);
        copy.restore(&federation.save()).unwrap();
        for time in 30..40 {
            let (global, value) = round(&mut federation, time);
            assert_eq!(round(&mut copy, time), (global, value), "{method}");
            assert_ne!(global, value, "{method}");
        }
        let without = Plan::new(config(method)).unwrap();
        assert!(Federation::new(&without).restore(&federation.save()).is_err(), "{method}");
    }
}

#[test]
fn a_restored_world_goes_on_as_if_nothing_had_happened() {
    for method in methods(3) {
        for outputs in [1, 2] {
            let config = config(method).outputs(outputs).personal(true);
            let scaling = Scaling::Online { kind: ScaleKind::Range };
            let plan = Plan::new(config.scaling(scaling)).unwrap();
            let labels: Vec<usize> = (0..outputs).collect();
            let mut world = World::new(&plan);
            (0..20).for_each(|time| _ = world.round(time, &labels));
            world.nodes[1].predict_later("later", &sample(1, 50).0).unwrap();
            let scaling = world.server.save_scaling();
            let server = Server::restore(&plan, &world.server.save(), scaling.as_deref()).unwrap();
            let nodes = world.nodes.iter().map(|node| {
                let mut restored = Node::restore(&plan, &node.save()).unwrap();
                restored.resume(node.link());
                assert_eq!(restored.save(), node.save());
                restored
            });
            let mut copy = World { server, nodes: nodes.collect(), taken: world.taken.clone() };
            for time in 20..30 {
                assert_eq!(world.round(time, &labels), copy.round(time, &labels), "{method:?}");
            }
            let y = &[0.5, 0.25][..outputs];
            for world in [&mut world, &mut copy] {
                world.nodes[1].learn_by_id("later", y).unwrap();
            }
            assert_eq!(world.nodes[1].save(), copy.nodes[1].save());
            assert!(Server::restore(&plan, &world.server.save(), None).is_err());
        }
    }
}

#[test]
fn compressed_messages_carry_the_same_rounds() {
    for method in methods(3) {
        let plan = Plan::new(config(method).compression(compression()).outputs(2)).unwrap();
        let mut world = World::new(&plan);
        let last: Vec<Vec<f32>> = (0..60).map(|time| world.round(time, &[0, 1])).last().unwrap();
        assert!(last.iter().flatten().all(|value| value.is_finite()));
        assert!(world.server.round() == 61 || method == "local");
        for node in &world.nodes {
            let expected = if method == "local" { 0 } else { 60 };
            assert_eq!((node.tally().uploads, node.tally().taken), (expected, expected));
        }
        let sends_differences = !matches!(method, "local" | "gr" | "tr");
        let ToNode::Broadcast(message) = world.server.broadcast_message(0, true) else { panic!() };
        let is_compressed = |numbers: &Numbers| matches!(numbers, Numbers::Compressed(_));
        assert!(
            !sends_differences || message.heads.iter().all(|head| is_compressed(&head.numbers))
        );
        // A node that comes back hears the whole model.
        world.nodes[0].disconnected();
        world.nodes[0].connected();
        let difference = world.server.broadcast_message(0, true);
        if world.server.has_difference() {
            assert!(world.nodes[0].hear(&difference).is_err());
        }
        world.nodes[0].hear(&world.server.broadcast_message(0, false)).unwrap();
    }
}

#[test]
fn what_a_server_refuses_changes_nothing() {
    let scaling = Scaling::Online { kind: ScaleKind::Spread };
    let online = Plan::new(config("mk").scaling(scaling)).unwrap();
    let plan = Plan::new(config("mk").outputs(2)).unwrap();
    let mut world = World::new(&plan);
    world.round(0, &[0, 1]);
    let node = &mut world.nodes[0];
    let (x, y) = sample(0, 1);
    node.learn(&x, &y).unwrap();
    let mut said = Vec::new();
    node.speak(false, |message| said.push(message));
    let [ToServer::Upload(upload)] = &said[..] else { panic!("one upload") };
    let refused = |server: &mut Server, change: fn(&mut hedgerow::message::UploadMessage)| {
        let mut bad = upload.clone();
        change(&mut bad);
        let rejected = server.accept(0, &ToServer::Upload(bad)).unwrap_err();
        assert_eq!(server.uploads(), 0);
        rejected
    };
    let server = &mut world.server;
    let bad = refused(server, |upload| upload.errors = Errors { samples: 1, squared_error: -1.0 });
    assert!(matches!(bad, Rejected::SquaredError { .. }));
    let bad = refused(server, |upload| _ = upload.heads.pop());
    assert!(matches!(bad, Rejected::WrongLength { expected: 2, found: 1 }));
    let bad = refused(server, |upload| upload.heads[1].vote = None);
    assert!(matches!(bad, Rejected::WrongKernel { .. }));
    refused(server, |upload| upload.heads[1].numbers = Numbers::Compressed(vec![0; 8]));
    assert_eq!(refused(&mut online.server(), |_| ()), Rejected::Unscaled);
    server.accept(0, &said[0]).unwrap();
    assert!(matches!(server.accept(0, &said[0]), Err(Rejected::Duplicate { .. })));
    assert_eq!(server.uploads(), 1);
}

#[test]
fn what_a_node_refuses_changes_nothing() {
    let plan = Plan::new(config("mk").outputs(2)).unwrap();
    let mut world = World::new(&plan);
    (0..3).for_each(|time| _ = world.round(time, &[0, 1]));
    let node = &mut world.nodes[0];
    let before = node.save();
    let bad = node.learn(&[1.0], &[1.0, 2.0]);
    assert_eq!(bad, Err(BadInput::WrongLength { expected: INPUTS, found: 1 }));
    let bad = node.learn(&[1.0; INPUTS], &[1.0]);
    assert_eq!(bad, Err(BadInput::WrongLabels { expected: 2, found: 1 }));
    assert!(node.learn(&[1.0; INPUTS], &[1.0, f32::NAN]).is_err());
    assert!(matches!(node.learn_by_id("a", &[1.0, 2.0]), Err(BadInput::UnknownId { .. })));
    let ToNode::Broadcast(mut broadcast) = world.server.broadcast_message(0, false) else {
        panic!("a broadcast")
    };
    broadcast.round += 1;
    broadcast.heads[1].numbers = Numbers::Plain(vec![f32::NAN; 10]);
    assert!(node.hear(&ToNode::Broadcast(broadcast)).is_err());
    assert_eq!(node.save(), before);
    let answer = node.predict(&[1.0; INPUTS]).unwrap();
    assert_eq!(node.predict_later("a", &[1.0; INPUTS]), Ok(answer));
    assert!(matches!(node.predict_later("a", &[1.0; INPUTS]), Err(BadInput::RepeatedId { .. })));
    let late = Answer { interval: None, ..answer };
    assert_eq!(node.learn_by_id("a", &[1.0, 2.0]), Ok(late));
}
