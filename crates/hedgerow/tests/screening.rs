//! Screening: nodes whose uploads look wrong are named and left out, come back when they look right
//! again, and nothing depends on the order of uploads or on a restart.

#![allow(clippy::unwrap_used)]

use hedgerow::aggregation::{Aggregation, Statistic};
use hedgerow::importance::ImportanceScope;
use hedgerow::message::{Numbers, ToServer};
use hedgerow::{Node, NodeId, Plan, PlanConfig, Server};

use crate::importance::{friedman, online};

const NODES: usize = 8;

/// Rounds in which the first node's labels have the wrong sign.
const LIES: core::ops::Range<usize> = 40..80;

struct World {
    plan: Plan,
    server: Server,
    nodes: Vec<Node>,
    round: usize,
}

impl World {
    fn new(config: PlanConfig) -> Self {
        let plan = Plan::new(config.nodes(NODES).aggregation(Aggregation::Screened)).unwrap();
        let (server, nodes) = (plan.server(), (0..NODES as NodeId).map(|id| plan.node(id)));
        let mut world = Self { server, nodes: nodes.collect(), plan, round: 0 };
        for node in &mut world.nodes {
            world.server.connected(node.id());
            node.connected();
            world.server.opening(0, false).for_each(|message| node.hear(&message).unwrap());
        }
        world
    }

    /// What nodes say in the next round.
    fn said(&mut self) -> Vec<(NodeId, ToServer)> {
        let mut said = Vec::new();
        for (id, node) in self.nodes.iter_mut().enumerate() {
            let (x, y) = friedman(id, self.round);
            let sign = if id == 0 && LIES.contains(&self.round) { -1.0 } else { 1.0 };
            let y: Vec<f32> = (0..self.plan.outputs()).map(|at| sign * y + at as f32).collect();
            node.learn(&x, &y).unwrap();
            node.speak(false, |message| said.push((id as NodeId, message)));
        }
        self.round += 1;
        said
    }

    fn close(&mut self) {
        let taken = self.server.round();
        if self.server.close_round().is_news() {
            for node in &mut self.nodes {
                self.server.opening(taken, true).for_each(|message| node.hear(&message).unwrap());
            }
        }
    }

    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for (id, message) in self.said() {
                self.server.accept(id, &message).unwrap();
            }
            self.close();
        }
    }

    fn left_out(&self) -> Vec<NodeId> {
        let out = self.server.suspects().filter(|(_, suspect)| suspect.is_left_out);
        out.map(|(node, _)| node).collect()
    }
}

fn config(method: &str) -> PlanConfig {
    PlanConfig::default().personal(false).inputs(10).method(method.parse().unwrap())
}

#[test]
fn who_lies_is_named_with_the_evidence() {
    for (method, outputs) in [("gr", 1), ("tr", 1), ("gr", 2)] {
        let mut world = World::new(online(config(method).outputs(outputs)));
        world.run(LIES.start);
        assert!(world.left_out().is_empty(), "{method}");
        world.run(LIES.len());
        assert_eq!(world.left_out(), [0], "{method}");
        let (node, suspect) = world.server.suspects().next().unwrap();
        assert_eq!(node, 0);
        assert!((8.0..=16.0).contains(&suspect.evidence), "{suspect:?}");
        let of = suspect.difference.statistic;
        assert!(matches!(of, Statistic::Gradient | Statistic::Errors), "{suspect:?}");
        assert!(suspect.difference.multiple > 7.0, "{suspect:?}");
        // Whoever operates the server may decide otherwise.
        world.server.forget_node(0);
        assert!(world.server.suspects().next().is_none());
    }
}

#[test]
fn the_order_of_uploads_is_irrelevant_and_a_restart_changes_nothing() {
    let config = online(config("gr")).importance(ImportanceScope::Shared);
    let mut one = World::new(config.clone());
    let mut other = World::new(config);
    for round in 0..LIES.end {
        let said = one.said();
        assert_eq!(said, other.said());
        for (id, message) in &said {
            one.server.accept(*id, message).unwrap();
        }
        for (id, message) in said.iter().rev() {
            other.server.accept(*id, message).unwrap();
        }
        assert_eq!(one.server.uploads(), other.server.uploads());
        one.close();
        other.close();
        if round % 7 == 0 {
            let (saved, scaling) = (other.server.save(), other.server.save_scaling());
            other.server = Server::restore(&other.plan, &saved, scaling.as_deref()).unwrap();
        }
        assert!(one.server.save() == other.server.save(), "round {round}");
    }
    assert_eq!(one.left_out(), [0]);
    // Damaged states are refused.
    let saved = one.server.save();
    let scaling = one.server.save_scaling();
    for len in (0..saved.len()).step_by(97) {
        assert!(Server::restore(&one.plan, &saved[..len], scaling.as_deref()).is_err(), "{len}");
    }
}

#[test]
fn what_a_liar_tells_of_columns_does_not_count() {
    let mut world = World::new(online(config("gr")).importance(ImportanceScope::Shared));
    world.run(200);
    let before = world.server.importance().unwrap().clone();
    for _ in 0..64 {
        for (id, mut message) in world.said() {
            if let (0, ToServer::Upload(upload)) = (id, &mut message) {
                upload.heads[0].numbers = Numbers::Plain(vec![1e20; number_count(upload)]);
                upload.importance.iter_mut().step_by(2).for_each(|sum| *sum = 1e20);
            }
            // Impossible numbers are refused.
            let accepted = world.server.accept(id, &message);
            assert!(accepted.is_ok() || id == 0, "{accepted:?}");
        }
        world.close();
    }
    let after = world.server.importance().unwrap();
    assert_ne!(format!("{before:?}"), format!("{after:?}"));
    assert!(!format!("{after:?}").contains("e20"), "{after:?}");
    let (node, suspect) = world.server.suspects().next().unwrap();
    assert_eq!(node, 0);
    assert!(suspect.evidence > 8.0, "{suspect:?}");
}

fn number_count(upload: &hedgerow::message::UploadMessage) -> usize {
    match &upload.heads[0].numbers {
        Numbers::Plain(numbers) => numbers.len(),
        Numbers::Compressed(_) => 0,
    }
}

#[test]
fn a_node_that_looks_right_again_comes_back() {
    let mut world = World::new(config("gr"));
    world.run(LIES.start);
    let mut rounds_left_out = 0;
    for round in 0..200 {
        for (id, mut message) in world.said() {
            if let (1, 0..10, ToServer::Upload(upload)) = (id, round, &mut message) {
                let Numbers::Plain(numbers) = &mut upload.heads[0].numbers else { continue };
                numbers[0] = 1e10;
            }
            world.server.accept(id, &message).unwrap();
        }
        world.close();
        rounds_left_out += usize::from(world.left_out().contains(&1));
    }
    assert!((10..60).contains(&rounds_left_out), "{rounds_left_out}");
    // What the first node has learned stays wrong.
    assert_eq!(world.left_out(), [0]);
}

#[test]
fn uploads_are_checked_when_they_come() {
    let mut world = World::new(config("gr"));
    world.run(10);
    let said = world.said();
    let (id, message) = &said[3];
    world.server.accept(*id, message).unwrap();
    let twice = world.server.accept(*id, message).unwrap_err().to_string();
    assert!(twice.contains("node 3"), "{twice}");
    assert_eq!(world.server.uploads(), 1);
    let ToServer::Upload(mut short) = said[4].1.clone() else { panic!("an upload") };
    short.heads[0].numbers = Numbers::Plain(vec![0.0; 3]);
    assert!(world.server.accept(4, &ToServer::Upload(short)).is_err());
    // Too few to compare: whoever comes counts.
    world.close();
    assert_eq!(world.server.round(), 12);
}
