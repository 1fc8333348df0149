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
        Self::of(NODES, config)
    }

    fn of(count: usize, config: PlanConfig) -> Self {
        let plan = Plan::new(config.nodes(count).aggregation(Aggregation::Screened)).unwrap();
        let (server, nodes) = (plan.server(), (0..count as NodeId).map(|id| plan.node(id)));
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

    /// All nodes send what they have to say.
    fn speak(&mut self) {
        for (id, node) in self.nodes.iter_mut().enumerate() {
            node.speak(false, |message| self.server.accept(id as NodeId, &message).unwrap());
        }
    }

    /// A round in which a node's upload is absurd.
    fn round_with_lies_of(&mut self, liar: NodeId) {
        for (id, mut message) in self.said() {
            if let (true, ToServer::Upload(upload)) = (id == liar, &mut message) {
                let Numbers::Plain(numbers) = &mut upload.heads[0].numbers else { continue };
                numbers[0] = 1e10;
            }
            self.server.accept(id, &message).unwrap();
        }
        self.close();
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
    for method in ["gr", "tr"] {
        let config = online(config(method)).importance(ImportanceScope::Shared);
        let (mut one, mut other) = (World::new(config.clone()), World::new(config));
        for round in 0..400 {
            let (mut said, same) = (one.said(), other.said());
            assert_eq!(said, same);
            // Now and then a node is absurd for a while, in rounds of every kind.
            if round % 31 < 4 {
                for (_, message) in said.iter_mut().filter(|(id, _)| *id == 5) {
                    let ToServer::Upload(upload) = message else { continue };
                    let Numbers::Plain(numbers) = &mut upload.heads[0].numbers else { continue };
                    numbers[0] = 1e12;
                }
            }
            for (id, message) in &said {
                _ = one.server.accept(*id, message);
            }
            for (id, message) in said.iter().rev() {
                _ = other.server.accept(*id, message);
            }
            assert_eq!(one.server.uploads(), other.server.uploads());
            one.close();
            other.close();
            let (saved, scaling) = (other.server.save(), other.server.save_scaling());
            other.server = Server::restore(&other.plan, &saved, scaling.as_deref()).unwrap();
            assert!(one.server.save() == saved, "{method}, round {round}");
        }
        assert!(one.left_out().contains(&0), "{method}");
        // Damaged states are refused.
        let (saved, scaling) = (one.server.save(), one.server.save_scaling());
        for len in (0..saved.len()).step_by(97) {
            assert!(Server::restore(&one.plan, &saved[..len], scaling.as_deref()).is_err());
        }
    }
}

#[test]
fn honest_nodes_that_have_much_in_common_or_a_long_history_are_not_suspected() {
    // Eleven nodes with one stream, nine with others.
    let mut world = World::of(20, config("gr"));
    for round in 0..200 {
        for id in 0..20 {
            let (x, y) = friedman(if id < 11 { 0 } else { id }, round);
            world.nodes[id].learn(&x, &[y]).unwrap();
        }
        world.speak();
        world.close();
    }
    assert!(world.server.suspects().next().is_none());
    // Four nodes for long, then sixteen more.
    let mut world = World::of(20, config("gr"));
    for round in 0..1200 {
        for id in 0..if round < 1000 { 4 } else { 20 } {
            let (x, y) = friedman(id, round);
            world.nodes[id].learn(&x, &[y]).unwrap();
        }
        world.speak();
        world.close();
        assert!(world.left_out().is_empty(), "round {round}");
    }
}

#[test]
fn who_is_left_out_again_and_again_comes_back_later_each_time() {
    let mut world = World::new(config("gr"));
    world.run(LIES.start);
    let mut left_out = Vec::new();
    for _ in 0..4 {
        let mut rounds = 0;
        for _ in 0..4 {
            world.round_with_lies_of(1);
        }
        while world.left_out().contains(&1) {
            world.run(1);
            rounds += 1;
        }
        left_out.push(rounds);
    }
    assert!(left_out.is_sorted_by(|one, next| one < next), "{left_out:?}");
    assert!(left_out[3] > 4 * left_out[0], "{left_out:?}");
}

#[test]
fn what_a_liar_tells_of_columns_does_not_count() {
    let importance_after = |lies: bool| {
        let mut world = World::new(online(config("gr")).importance(ImportanceScope::Shared));
        world.run(30);
        for _ in 0..40 {
            for (id, mut message) in world.said() {
                let ToServer::Upload(upload) = &mut message else { continue };
                let Numbers::Plain(numbers) = &mut upload.heads[0].numbers else { continue };
                if id == 3 {
                    numbers[0] = 1e10;
                    if lies {
                        for told in upload.importance.chunks_exact_mut(2) {
                            told[0] += 0.5 * told[1];
                        }
                    }
                }
                world.server.accept(id, &message).unwrap();
            }
            world.close();
        }
        assert_eq!(world.left_out(), [0, 3]);
        format!("{:?}", world.server.importance().unwrap())
    };
    assert_eq!(importance_after(true), importance_after(false));
}

#[test]
fn a_node_that_looks_right_again_comes_back() {
    let mut world = World::new(config("gr"));
    world.run(LIES.start);
    let mut rounds_left_out = 0;
    for round in 0..200 {
        if round < 10 {
            world.round_with_lies_of(1);
        } else {
            world.run(1);
        }
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
