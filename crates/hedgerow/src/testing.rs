//! The laws that every method obeys, as a suite for methods inside and outside this crate.
//!
//! ```
//! for info in hedgerow::method::METHODS.iter().filter(|info| info.halves.is_some()) {
//!     hedgerow::testing::check_method(info);
//! }
//! ```

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::aggregation::Aggregation;
use crate::features::{Draw, Features, Kernel};
use crate::learning::{Loss, Schedule, WeightRule};
use crate::message::{Broadcast, Upload};
use crate::method::{MethodInfo, MethodSpec, NodeMethod, ServerMethod};
use crate::plan::{Plan, PlanConfig};
use crate::random::CounterRng;

/// Rounds that are run where a law needs some.
const ROUNDS: u64 = 6;

/// Times of the rounds before a law is checked begin here.
const EARLY: u64 = 1_000_000;

/// Checks all laws for a method in several plans: one and three kernels, one and three nodes,
/// every loss and aggregation that it supports, both rules of weights.
///
/// # Panics
/// If the method breaks a law. The message names the law and the plan.
pub fn check_method(info: &'static MethodInfo) {
    let aggregations =
        [Aggregation::Mean, Aggregation::TrimmedMean { share: 0.4 }, Aggregation::Median];
    for (kernels, nodes) in [(1, 1), (1, 3), (3, 3)] {
        for loss in [Loss::Squared, Loss::Logistic, Loss::Huber { delta: 0.5 }] {
            for weight_rule in [WeightRule::Incremental, WeightRule::Cumulative] {
                for aggregation in aggregations {
                    if !(info.supports_loss)(&loss) || !info.supports(aggregation) {
                        continue;
                    }
                    let config = PlanConfig::default()
                        .kernels(Kernel::paper_dictionary()[..kernels].to_vec())
                        .draw(Draw::Independent)
                        .nodes(nodes)
                        .loss(loss)
                        .weight_rule(weight_rule)
                        .aggregation(aggregation)
                        .frequencies(Some(5))
                        .inputs(2)
                        .budget(24)
                        .step_size(Schedule::Constant { scale: 0.2 });
                    check_method_in(info, config);
                }
            }
        }
    }
}

/// Checks all laws for a method in one plan; a method with a single kernel uses the last.
///
/// # Panics
/// If the method breaks a law, or the configuration makes no sense.
pub fn check_method_in(info: &'static MethodInfo, config: PlanConfig) {
    check_method_after(info, config, 0);
}

/// The same after some rounds, for methods that do more once they have seen enough.
///
/// # Panics
/// If the method breaks a law, or the configuration makes no sense.
#[expect(clippy::expect_used, reason = "a suite of tests fails by panics")]
pub fn check_method_after(info: &'static MethodInfo, config: PlanConfig, rounds: u64) {
    let (spec, last) = (MethodSpec::from(info), config.kernels.len().saturating_sub(1));
    let spec = if info.takes_kernel { spec.with_kernel(last) } else { spec };
    let plan = Plan::with_methods(config.method(spec), &[info]).expect("a sound configuration");
    let laws = Laws { info, plan, rounds };
    laws.predictions_and_uploads_change_nothing();
    laws.the_order_of_uploads_is_irrelevant();
    laws.partial_sums_are_the_same_sums();
    laws.a_restored_state_goes_on_with_the_same_bits();
    laws.damaged_states_are_refused_or_harmless();
    laws.bad_samples_are_refused_and_change_nothing();
    laws.bad_messages_are_refused_and_change_nothing();
    laws.an_empty_round_changes_nothing();
    laws.old_broadcasts_change_nothing();
    laws.nodes_catch_up();
    laws.shares_sum_to_one();
    laws.messages_have_the_described_layout();
}

struct Laws {
    info: &'static MethodInfo,
    plan: Plan,
    /// Rounds before a law is checked.
    rounds: u64,
}

/// A server and its nodes.
struct World<'a> {
    laws: &'a Laws,
    nodes: Vec<Box<dyn NodeMethod>>,
    server: Box<dyn ServerMethod>,
}

#[expect(clippy::expect_used, reason = "a suite of tests fails by panics")]
impl<'a> World<'a> {
    fn new(laws: &'a Laws) -> Self {
        let plan = &laws.plan;
        Self {
            laws,
            nodes: (0..plan.config().nodes as u32).map(|id| plan.node_method(id)).collect(),
            server: plan.server_method(),
        }
    }

    fn after(laws: &'a Laws, rounds: u64) -> Self {
        let mut world = Self::new(laws);
        // Times of their own, so that laws count from 0.
        (0..laws.rounds).for_each(|time| world.round(EARLY + time));
        (0..rounds).for_each(|time| world.round(time));
        world
    }

    /// Features and label of a node's sample at a time.
    fn sample(&self, node: usize, time: u64) -> (Vec<f32>, f32) {
        let noise = CounterRng::from_seed(1000 * time + node as u64);
        let (map, inputs) = (self.laws.plan.map(), self.laws.plan.inputs() as u64);
        let x: Vec<f32> = (0..inputs).map(|at| 2.0 * noise.uniform_at(at) as f32 - 1.0).collect();
        let mut z = vec![0.0; map.width()];
        map.map_batch(&x, &mut z);
        let y = x[0] * x[0] - 0.4 + 0.3 * x.iter().sum::<f32>();
        let is_class = self.laws.plan.config().loss == Loss::Logistic;
        (z, if is_class { y.signum() } else { y })
    }

    fn prediction(&self, node: usize, time: u64) -> f32 {
        let (z, _) = self.sample(node, time);
        self.nodes[node].predict(Features::checked(&z).expect("features"))
    }

    fn learn(&mut self, node: usize, time: u64) {
        let (z, y) = self.sample(node, time);
        self.nodes[node].learn(Features::checked(&z).expect("features"), y).expect("a sample");
    }

    fn upload(&self, node: usize) -> Option<Upload> {
        let mut upload = Upload::default();
        self.nodes[node].upload(&mut upload).then_some(upload)
    }

    fn send(&mut self, node: usize) {
        if let Some(upload) = self.upload(node) {
            self.server.accept(node as u32, &upload).expect("an upload that is taken");
        }
    }

    fn close(&mut self) {
        let broadcast = self.server.close_round().clone();
        self.nodes.iter_mut().for_each(|node| node.adopt(&broadcast).expect("a broadcast"));
    }

    fn round(&mut self, time: u64) {
        for node in 0..self.nodes.len() {
            self.learn(node, time);
            self.send(node);
        }
        self.close();
    }

    fn state(&self) -> Vec<Vec<u8>> {
        self.nodes.iter().map(|node| node.save()).chain([self.server.save()]).collect()
    }

    /// A copy that was made of saved states.
    fn restored(&self) -> Self {
        let mut copy = Self::new(self.laws);
        for (copy, node) in copy.nodes.iter_mut().zip(&self.nodes) {
            copy.restore(&node.save()).expect("a saved node");
        }
        copy.server.restore(&self.server.save()).expect("a saved server");
        copy
    }
}

#[expect(clippy::expect_used, reason = "a suite of tests fails by panics")]
impl Laws {
    fn name(&self, law: &str) -> String {
        format!("{}: {law} in {:?}", self.info.name, self.plan.config())
    }

    fn predictions_and_uploads_change_nothing(&self) {
        assert_eq!(World::new(self).upload(0), None, "{}", self.name("an upload of nothing"));
        let mut world = World::after(self, 3);
        world.learn(0, 3);
        let (before, law) = (world.state(), self.name("predicting and uploading change nothing"));
        let prediction = world.prediction(0, 7);
        world.prediction(0, 8);
        assert_eq!(prediction.to_bits(), world.prediction(0, 7).to_bits(), "{law}");
        let first = world.upload(0);
        assert_eq!(first.is_some(), self.info.travels(), "{law}");
        let mut used = Upload { round: 99, vote: Some(7), numbers: vec![f32::NAN; 300] };
        let says = world.nodes[0].upload(&mut used);
        assert_eq!(first, says.then_some(used), "{law}: a used buffer");
        assert_eq!(before, world.state(), "{law}");
    }

    fn the_order_of_uploads_is_irrelevant(&self) {
        let law = self.name("the order of uploads is irrelevant");
        let (mut one, mut other) = (World::after(self, 0), World::after(self, 0));
        for time in 0..ROUNDS {
            let nodes = one.nodes.len();
            for world in [&mut one, &mut other] {
                (0..nodes).for_each(|node| world.learn(node, time));
            }
            (0..nodes).for_each(|node| one.send(node));
            (0..nodes).rev().for_each(|node| other.send(node));
            assert_eq!(one.state(), other.state(), "{law}");
            one.close();
            other.close();
            assert_eq!(one.state(), other.state(), "{law}");
        }
    }

    fn partial_sums_are_the_same_sums(&self) {
        let (mut whole, mut parts) = (World::after(self, 2), World::after(self, 2));
        for node in 0..whole.nodes.len() {
            whole.learn(node, 2);
            whole.send(node);
            parts.learn(node, 2);
            let mut part = parts.server.part();
            if let Some(upload) = parts.upload(node) {
                parts.server.accept_into(&mut part, node as u32, &upload).expect("an upload");
            }
            parts.server.merge(&part).expect("a part of the round");
        }
        assert_eq!(whole.server.uploads(), parts.server.uploads());
        whole.close();
        parts.close();
        let law = self.name("partial sums are the same sums");
        assert_eq!(whole.server.broadcast(), parts.server.broadcast(), "{law}");
    }

    fn a_restored_state_goes_on_with_the_same_bits(&self) {
        let law = self.name("a restored state goes on with the same bits");
        for (rounds, within) in [(0, false), (3, false), (3, true)] {
            let mut world = World::after(self, rounds);
            if within {
                (0..world.nodes.len()).for_each(|node| world.learn(node, rounds));
                world.send(0);
            }
            let mut copy = world.restored();
            for time in rounds + 1..rounds + 1 + ROUNDS {
                for node in 0..world.nodes.len() {
                    let (a, b) = (world.prediction(node, time), copy.prediction(node, time));
                    assert_eq!(a.to_bits(), b.to_bits(), "{law}");
                }
                for world in [&mut world, &mut copy] {
                    // The first node may have sent in this round already.
                    let first = usize::from(within && time == rounds + 1);
                    (first..world.nodes.len()).for_each(|node| {
                        world.learn(node, time);
                        world.send(node);
                    });
                    world.close();
                }
                assert_eq!(world.state(), copy.state(), "{law}");
            }
        }
    }

    fn damaged_states_are_refused_or_harmless(&self) {
        let world = World::after(self, 2);
        let (node, server) = (world.nodes[0].save(), world.server.save());
        let mut copy = World::new(self);
        for end in (0..node.len()).step_by(7) {
            assert!(copy.nodes[0].restore(&node[..end]).is_err(), "{}", self.name("a cut state"));
        }
        let noise = CounterRng::from_seed(11);
        for at in 0..100 {
            let damage = |saved: &[u8]| {
                let mut saved = saved.to_vec();
                if !saved.is_empty() {
                    let place = noise.bits_at(2 * at) as usize % saved.len();
                    saved[place] ^= 1 << (noise.bits_at(2 * at + 1) % 8);
                }
                saved
            };
            // Whatever is taken can be used.
            if copy.nodes[0].restore(&damage(&node)).is_ok() {
                copy.learn(0, 1);
                copy.upload(0);
                assert!(!copy.prediction(0, 1).is_nan(), "{}", self.name("a damaged state"));
            }
            if copy.server.restore(&damage(&server)).is_ok() {
                copy.server.close_round();
            }
        }
    }

    fn bad_samples_are_refused_and_change_nothing(&self) {
        let mut world = World::after(self, 2);
        let (before, law) = (world.state(), self.name("bad samples are refused"));
        let (z, y) = world.sample(0, 9);
        let (short, whole) = (&z[..z.len() - 1], &z[..]);
        for (z, y) in [(whole, f32::NAN), (whole, f32::INFINITY), (whole, 1e30), (short, y)] {
            let refused = world.nodes[0].learn(Features::checked(z).expect("features"), y);
            assert!(refused.is_err(), "{law}: {y}");
        }
        assert_eq!(before, world.state(), "{law}");
    }

    fn bad_messages_are_refused_and_change_nothing(&self) {
        let mut world = World::after(self, 2);
        world.learn(0, 2);
        let law = self.name("bad messages are refused");
        let Some(upload) = world.upload(0) else { return };
        let mut bad = vec![
            Upload { round: upload.round + 1, ..upload.clone() },
            Upload { round: 0, ..upload.clone() },
            Upload { numbers: vec![], ..upload.clone() },
        ];
        for number in [f32::NAN, f32::INFINITY, 1e31] {
            let mut numbers = upload.numbers.clone();
            numbers[0] = number;
            bad.push(Upload { numbers, ..upload.clone() });
        }
        let before = world.state();
        for upload in &bad {
            assert!(world.server.accept(0, upload).is_err(), "{law}: {upload:?}");
        }
        let latest = world.server.broadcast().clone();
        let next = Broadcast { round: latest.round + 1, ..latest };
        let mut beyond = next.clone();
        beyond.numbers[0] = f32::NAN;
        let bad = [beyond, Broadcast { numbers: vec![], ..next.clone() }];
        for broadcast in bad.iter().chain([&Broadcast { round: 1 << 63, ..next }]) {
            assert!(world.nodes[0].adopt(broadcast).is_err(), "{law}: {broadcast:?}");
        }
        assert_eq!(before, world.state(), "{law}");
        world.server.accept(0, &upload).expect("a sound upload");
        assert!(world.server.accept(0, &upload).is_err(), "{law}: twice");
    }

    fn an_empty_round_changes_nothing(&self) {
        let mut world = World::after(self, 3);
        let (before, law) = (world.state(), self.name("an empty round changes nothing"));
        let broadcast = world.server.broadcast().clone();
        assert_eq!(*world.server.close_round(), broadcast, "{law}");
        world.close();
        assert_eq!(before, world.state(), "{law}");
        let round = if self.info.travels() { 4 + self.rounds } else { 1 };
        assert_eq!((broadcast.round, world.nodes[0].round()), (round, round), "{law}");
    }

    fn old_broadcasts_change_nothing(&self) {
        let mut world = World::after(self, 3);
        (0..world.nodes.len()).for_each(|node| world.learn(node, 3));
        let before = world.state();
        let latest = world.server.broadcast().clone();
        for round in latest.round.saturating_sub(3).max(1)..=latest.round {
            let mut numbers = latest.numbers.clone();
            numbers.iter_mut().take(2).for_each(|number| *number += 1.0);
            let sound = Broadcast { round, ..latest.clone() };
            let other = Broadcast { numbers, ..sound.clone() };
            for node in &mut world.nodes {
                node.adopt(&sound).expect("an old broadcast");
                // Not every change leaves a broadcast that a server could send.
                _ = node.adopt(&other);
            }
        }
        assert_eq!(before, world.state(), "{}", self.name("old broadcasts change nothing"));
    }

    fn nodes_catch_up(&self) {
        let law = self.name("a node that missed broadcasts catches up");
        let mut world = World::after(self, 2);
        let mut absent = self.plan.node_method(0);
        absent.restore(&world.nodes[0].save()).expect("a saved node");
        (2..2 + ROUNDS).for_each(|time| world.round(time));
        let mut newcomer = self.plan.node_method(1 << 20);
        let (z, y) = world.sample(0, 99);
        let z = Features::checked(&z).expect("features");
        for node in [&mut absent, &mut newcomer] {
            node.adopt(&world.server.catch_up()).expect("all that there is to know");
            assert_eq!(node.round(), world.server.broadcast().round, "{law}");
            assert!(node.predict(z).is_finite(), "{law}");
            node.learn(z, y).expect("a sample");
        }
        // It goes on like all others.
        world.nodes[0] = absent;
        (10..10 + ROUNDS).for_each(|time| world.round(time));
    }

    fn shares_sum_to_one(&self) {
        let law = self.name("shares sum to one, or to zero without kernels");
        let total = if self.info.uses_kernels() { 1.0 } else { 0.0 };
        let mut world = World::new(self);
        for time in 0..ROUNDS {
            for node in &world.nodes {
                let mut shares = vec![f64::NAN; self.plan.kernels()];
                node.shares(&mut shares);
                assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{law}");
                assert!((shares.iter().sum::<f64>() - total).abs() < 1e-12, "{law}: {shares:?}");
                assert!(node.norm2() >= 0.0 && node.norm2().is_finite(), "{law}: norm");
            }
            world.round(time);
        }
    }

    fn messages_have_the_described_layout(&self) {
        let law = self.name("messages have the described layout");
        let layout = self.plan.layout();
        for rounds in [0, 1, 4] {
            let mut world = World::after(self, rounds);
            world.learn(0, rounds);
            let mut sections = Vec::new();
            if let Some(upload) = world.upload(0) {
                assert!(upload.numbers.len() <= layout.upload.max_len(), "{law}");
                let in_vectors: usize =
                    layout.upload.vectors(&upload.numbers).map(<[f32]>::len).sum();
                assert!((1..=upload.numbers.len()).contains(&in_vectors), "{law}");
                world.nodes[0].sections(&mut sections);
                let named: usize = sections.iter().map(|section| section.len).sum();
                assert!(named <= upload.numbers.len(), "{law}");
            }
            sections.clear();
            layout.broadcast.sections(world.server.broadcast(), &mut sections);
            let named: usize = sections.iter().map(|section| section.len).sum();
            assert!(named <= world.server.broadcast().numbers.len(), "{law}");
        }
    }
}
