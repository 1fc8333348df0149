//! Federations whose server sees sums alone: nodes, a server and mask holders that exchange
//! messages.

#![allow(clippy::unwrap_used)]

use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::features::{Draw, Features};
use hedgerow::masking::{
    LEAST, MaskHolder, MaskRefusal, MaskedSum, MaskedSums, MaskedUpload, NodeMasks, Privacy,
    RoundTag, SecretKey,
};
use hedgerow::message::{Errors, Rejected, ToServer, Upload};
use hedgerow::node::BadStream;
use hedgerow::plan::Scaling;
use hedgerow::scaling::Scale;
use hedgerow::{Node, NodeId, Plan, PlanConfig, Server};

use crate::common::{Case, dictionary, numbers};

const NODES: usize = 20;
const INPUTS: usize = 2;
const RUN: &str = "run 1";

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes([byte; 32])
}

fn config(method: &str) -> PlanConfig {
    let scale = Scale::from_ranges(&[(-1.0, 1.0), (-1.0, 1.0), (90.0, 110.0)]).unwrap();
    PlanConfig::default()
        .method(method.parse().unwrap())
        .kernels(dictionary(5))
        .draw(Draw::Independent)
        .inputs(INPUTS)
        .nodes(NODES)
        .scaling(Scaling::Fixed(scale))
}

fn masked(config: PlanConfig, holders: u8) -> PlanConfig {
    let holders = (0..holders).map(|at| secret(200 + at).public()).collect();
    config.privacy(Privacy::Masked(MaskedSums { least: LEAST, ..MaskedSums::new(holders) }))
}

fn mask_holders(plan: &Plan) -> Vec<MaskHolder> {
    let rules = plan.mask_rules().unwrap();
    let holders = 0..rules.holders().len() as u8;
    holders.map(|at| MaskHolder::new(rules.clone(), RUN, secret(200 + at))).collect()
}

/// Raw inputs and label of a node at a time. Labels have noise: without it, the error of `gr` is
/// that of the rounding of f32.
fn sample(node: NodeId, time: u64) -> (Vec<f32>, f32) {
    let mut x = numbers(1_000 * time + u64::from(node), INPUTS + 1);
    let noise = x.pop().unwrap();
    let y = 100.0 + 4.0 * (3.0 * x[0]).sin() + 2.0 * x[1] * x[1] + noise;
    (x, y)
}

/// Server, nodes and mask holders of a plan.
struct World {
    server: Server,
    nodes: Vec<Node>,
    holders: Vec<MaskHolder>,
    taken: Vec<u64>,
    /// Sum of the squared errors of all predictions after the first rounds.
    squares: f64,
}

impl World {
    fn new(plan: &Plan) -> Self {
        let mut holders = mask_holders(plan);
        let mut nodes: Vec<_> = (0..NODES as NodeId).map(|id| plan.node(id)).collect();
        for node in &mut nodes {
            node.set_run(RUN);
            let pinned = plan.mask_rules().unwrap().holders().to_vec();
            let id = node.id() as u8;
            let offer = node.open_stream(&pinned, secret(id + 1), [id; 16]).unwrap();
            holders.iter_mut().for_each(|holder| holder.enrol(offer).unwrap());
        }
        let (server, taken) = (plan.server(), vec![0; NODES]);
        let mut world = Self { server, nodes, holders, taken, squares: 0.0 };
        (0..NODES).for_each(|node| world.connect(node));
        world
    }

    fn connect(&mut self, node: usize) {
        let opening = self.server.opening(self.taken[node], false);
        let node = &mut self.nodes[node];
        node.connected();
        opening.for_each(|message| node.hear(&message).unwrap());
    }

    fn learn(&mut self, node: usize, time: u64) {
        let (x, y) = sample(node as NodeId, time);
        let node = &mut self.nodes[node];
        let labels = vec![y; node.plan().outputs()];
        let answer = node.learn(&x, &labels).unwrap();
        if time >= 50 {
            self.squares += f64::from(answer.value - y).powi(2);
        }
    }

    /// The node's upload; it has nothing else to say.
    fn speak(&mut self, node: usize) -> Option<MaskedUpload> {
        let node = &mut self.nodes[node];
        node.speak(false, |message| assert_eq!(message, ToServer::Idle));
        node.masked_upload(false).unwrap()
    }

    fn send(&mut self, node: usize) {
        if let Some(upload) = self.speak(node) {
            self.server.accept_masked(node as NodeId, &upload).unwrap();
            self.taken[node] = upload.tag.round;
        }
    }

    /// The mask holders answer, and the round closes.
    fn close(&mut self) -> u64 {
        let request = self.server.ask_for_masks().unwrap();
        let answer = |holder: &mut MaskHolder| holder.answer(&request).unwrap();
        let answers: Vec<_> = self.holders.iter_mut().map(answer).collect();
        let opened = self.server.open_masked(&answers).unwrap();
        assert!(self.server.close_round().has_uploads);
        for (node, taken) in self.nodes.iter_mut().zip(&self.taken) {
            let in_step = node.round() + 1 == self.server.round();
            self.server.opening(*taken, in_step).for_each(|message| node.hear(&message).unwrap());
        }
        opened.samples
    }

    fn round(&mut self, time: u64) {
        for node in 0..NODES {
            self.learn(node, time);
            self.send(node);
        }
        assert_eq!(self.close(), NODES as u64);
    }
}

/// The same without masks: squared errors of a server and nodes that read and write f32.
fn squares_in_the_open(plan: &Plan, rounds: u64) -> f64 {
    let mut server = plan.server();
    let mut nodes: Vec<_> = (0..NODES as NodeId).map(|id| plan.node(id)).collect();
    let mut squares = 0.0;
    nodes.iter_mut().for_each(Node::connected);
    for time in 0..rounds {
        for node in &mut nodes {
            server.opening(time, time > 0).for_each(|message| node.hear(&message).unwrap());
        }
        for node in &mut nodes {
            let (x, y) = sample(node.id(), time);
            let answer = node.learn(&x, &vec![y; plan.outputs()]).unwrap();
            if time >= 50 {
                squares += f64::from(answer.value - y).powi(2);
            }
            let id = node.id();
            node.speak(false, |message| server.accept(id, &message).unwrap());
        }
        assert!(server.close_round().has_uploads);
    }
    squares
}

#[test]
fn fixed_point_costs_less_than_a_thousandth_of_the_error() {
    const ROUNDS: u64 = 300;
    for method in ["sk:3", "gr", "tr", "linear", "linear-newton", "naive", "fedpoe"] {
        let plain = Plan::new(config(method)).unwrap();
        let open = squares_in_the_open(&plain, ROUNDS);
        let mut world = World::new(&Plan::new(masked(config(method), 2)).unwrap());
        (0..ROUNDS).for_each(|time| world.round(time));
        let ratio = world.squares / open;
        assert!((ratio - 1.0).abs() < 1e-3, "{method}: {ratio}");
        assert!(open / ((ROUNDS - 50) as f64 * NODES as f64) < 10.0, "{method} learns");
    }
}

#[test]
fn several_outputs_and_compressed_broadcasts_go_with_masks() {
    let columns = [(-1.0, 1.0), (-1.0, 1.0), (90.0, 110.0), (80.0, 120.0)];
    let two = Scaling::Fixed(Scale::from_ranges(&columns).unwrap());
    let coding = Coding { numbers: NumberFormat::F16, ..Coding::default() };
    let compression = Compression { down: coding, ..Compression::default() };
    for config in [
        config("sk:3").outputs(2).scaling(two),
        config("sk:3").compression(compression),
        config("linear").compression(compression),
    ] {
        let open = squares_in_the_open(&Plan::new(config.clone()).unwrap(), 100);
        let mut world = World::new(&Plan::new(masked(config, 1)).unwrap());
        (0..100).for_each(|time| world.round(time));
        let ratio = world.squares / open;
        assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
    }
}

#[test]
fn relays_add_up_what_they_can_t_read() {
    let plan = Plan::new(masked(config("mk"), 2)).unwrap();
    let (mut world, mut other) = (World::new(&plan), World::new(&plan));
    for time in 0..3 {
        let mut relays = [(); 2].map(|()| world.server.masked_sum().unwrap());
        for node in 0..NODES {
            world.learn(node, time);
            let upload = world.speak(node).unwrap();
            relays[node % 2].accept(node as NodeId, &upload).unwrap();
            world.taken[node] = upload.tag.round;
        }
        for relay in relays {
            world.server.merge_masked(&relay).unwrap();
            let refused = world.server.merge_masked(&relay).unwrap_err();
            assert!(matches!(refused, Rejected::Duplicate { .. }));
        }
        assert_eq!(world.close(), NODES as u64);
        other.round(time);
        assert_eq!(world.server.save(), other.server.save());
    }
    let relay = other.server.masked_sum().unwrap();
    let refused = Plan::new(config("mk")).unwrap().server().merge_masked(&relay);
    assert_eq!(refused, Err(Rejected::NotExpected));
}

/// Nodes of MK-OFL vote by the plan's seed here, as they do without masks.
#[test]
fn votes_that_are_counts_select_the_same_kernels() {
    let case = Case::new(config("mk"));
    let plan = Plan::new(masked(config("mk"), 1)).unwrap();
    let rules = plan.mask_rules().unwrap();
    let (mut server, mut open) = (plan.server_method(), case.server());
    let mut holders = mask_holders(&plan);
    let mut nodes: Vec<_> = (0..NODES as NodeId)
        .map(|id| {
            let masks = NodeMasks::new(rules.clone(), RUN, id, secret(id as u8 + 1), [0; 16]);
            let masks = masks.unwrap();
            holders.iter_mut().for_each(|holder| holder.enrol(*masks.offer()).unwrap());
            (case.node(id), case.node(id), masks)
        })
        .collect();
    let mut squares = [0.0; 2];
    for time in 0..300 {
        let parts = [server.part()];
        let mut sum = MaskedSum::new(rules.clone(), &[server.broadcast()], &parts);
        let tag = RoundTag::new(&[server.broadcast()]);
        for (id, (node, plain, masks)) in (0..).zip(&mut nodes) {
            let (x, y) = sample(id, time);
            let (z, y) = (crate::common::features(case.map(), &x), (y - 100.0) / 10.0);
            let z = Features::checked(&z).unwrap();
            let mut upload = Upload::default();
            for (squares, node) in squares.iter_mut().zip([&mut *node, plain]) {
                *squares += f64::from(node.predict(z) - y).powi(2);
                node.learn(z, y).unwrap();
            }
            assert!(plain.upload(&mut upload));
            open.accept(id, &upload).unwrap();
            assert!(node.upload(&mut upload));
            let masked = masks.mask(tag, std::slice::from_ref(&upload), Errors::default());
            sum.accept(id, masked.unwrap()).unwrap();
        }
        let request = sum.request().unwrap();
        let answers: Vec<_> =
            holders.iter_mut().map(|holder| holder.answer(&request).unwrap()).collect();
        server.merge(&sum.open(&answers, parts.to_vec()).unwrap().parts[0]).unwrap();
        let (masked, plain) = (server.close_round().clone(), open.close_round().clone());
        assert_eq!(masked.kernels, plain.kernels, "round {time}");
        for (node, other, _) in &mut nodes {
            node.adopt(&masked).unwrap();
            other.adopt(&plain).unwrap();
        }
    }
    let ratio = squares[0] / squares[1];
    assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
}

#[test]
fn nodes_vote_by_what_nobody_else_knows() {
    // The server's broadcasts say which kernels were drawn from the counts of all votes.
    let kernels = |run: u8| {
        let plan = Plan::new(masked(config("mk"), 1)).unwrap();
        let mut world = World::new(&plan);
        for (id, node) in (0..).zip(&mut world.nodes) {
            let pinned = plan.mask_rules().unwrap().holders().to_vec();
            let offer = node.open_stream(&pinned, secret(id + run), [run; 16]).unwrap();
            world.holders[0].enrol(offer).unwrap();
        }
        let next = |time| {
            world.round(time);
            world.server.broadcast(0).kernels.unwrap().next
        };
        (0..40).map(next).collect::<Vec<_>>()
    };
    assert_eq!(kernels(1), kernels(1));
    assert_ne!(kernels(1), kernels(60));
}

#[test]
fn the_server_and_its_relays_take_no_upload_that_they_could_read() {
    let plain = Plan::new(config("mk")).unwrap();
    let plan = Plan::new(masked(config("mk"), 1)).unwrap();
    let (mut open, mut node) = (plain.server(), plain.node(0));
    node.connected();
    open.opening(0, false).for_each(|message| node.hear(&message).unwrap());
    let (x, y) = sample(0, 0);
    node.learn(&x, &[y]).unwrap();
    let mut said = Vec::new();
    node.speak(false, |message| said.push(message));
    open.accept(0, &said[0]).unwrap();
    let mut server = plan.server();
    assert_eq!(server.accept(0, &said[0]), Err(Rejected::Unmasked));
    let upload = Upload { round: 1, vote: Some(0), numbers: vec![0.0; 98] };
    let mut relay = hedgerow::relay::Relay::new(&plan).unwrap();
    assert_eq!(relay.accept(0, std::slice::from_ref(&upload)), Err(Rejected::Unmasked));
    assert_eq!(server.accept_uploads(0, &[upload]), Err(Rejected::Unmasked));
    assert_eq!(server.uploads(), 0);
    assert!(!server.close_round().has_uploads);

    // A node without a stream says nothing, and one with mask holders that it doesn't know opens
    // none.
    let mut node = plan.node(0);
    node.connected();
    server.opening(0, false).for_each(|message| node.hear(&message).unwrap());
    node.learn(&x, &[y]).unwrap();
    node.speak(true, |message| panic!("{message:?}"));
    assert_eq!(node.masked_upload(true), Ok(None));
    let others = [secret(1).public()];
    let refused = node.open_stream(&others, secret(2), [0; 16]);
    assert_eq!(refused, Err(BadStream::OtherHolders));
    let refused = plain.node(0).open_stream(&others, secret(2), [0; 16]);
    assert_eq!(refused, Err(BadStream::NotMasked));
    // A masked upload in a plan without masks.
    let tag = RoundTag { round: 1, broadcast: [0; 16] };
    let upload = MaskedUpload { tag, bytes: Vec::new() };
    assert_eq!(open.accept_masked(0, &upload), Err(Rejected::NotExpected));
    assert!(open.masked().is_none() && open.save_masked().is_none());
}

#[test]
fn an_upload_comes_again_as_it_was() {
    for method in ["sk:3", "gr"] {
        let plan = Plan::new(masked(config(method), 1)).unwrap();
        let mut world = World::new(&plan);
        (0..5).for_each(|time| world.round(time));
        world.learn(3, 5);
        let first = world.speak(3).unwrap();
        assert_eq!(world.speak(3), None, "said once a connection");
        // The connection breaks, and the node learns more.
        world.nodes[3].disconnected();
        world.learn(3, 6);
        let saved = world.nodes[3].save();
        world.connect(3);
        assert_eq!(world.speak(3), Some(first.clone()));
        // So after a restart.
        world.nodes[3] = Node::restore(&plan, &saved).unwrap();
        world.connect(3);
        assert_eq!(world.speak(3), Some(first.clone()), "{method}");
        assert_eq!(world.nodes[3].stream().unwrap().stream, [3; 16]);
        // Another broadcast of the same round gets no other upload.
        let mut swapped = first.clone();
        swapped.tag.broadcast = [9; 16];
        assert_eq!(
            world.server.accept_masked(3, &swapped),
            Err(Rejected::OtherBroadcast { round: 6 })
        );
        world.server.accept_masked(3, &first).unwrap();
        for node in (0..NODES).filter(|node| *node != 3) {
            world.learn(node, 5);
            world.send(node);
        }
        // What was learned after the upload is told with the next one.
        assert_eq!(world.close(), NODES as u64, "{method}");
        world.taken[3] = 6;
        for node in 0..NODES {
            world.learn(node, 7);
        }
        let next = world.speak(3).unwrap();
        assert_ne!(next.bytes, first.bytes);
        for at in 0..saved.len().min(400) {
            assert!(Node::restore(&plan, &saved[..at]).is_err());
        }
        let id = plan.node(4).save();
        assert!(Node::restore(&plan, &id).unwrap().stream().is_none());
        assert!(saved.len() < Node::most_saved(&plan));
    }
}

#[test]
fn a_server_goes_on_in_the_middle_of_a_round() {
    let plan = Plan::new(masked(config("mk"), 2)).unwrap();
    let (mut world, mut other) = (World::new(&plan), World::new(&plan));
    for time in 0..4 {
        world.round(time);
        other.round(time);
    }
    for node in 0..NODES {
        world.learn(node, 4);
        other.learn(node, 4);
        if node % 3 > 0 {
            world.send(node);
            other.send(node);
        }
    }
    assert_eq!(world.server.uploads(), 13);
    let asked = world.server.ask_for_masks().unwrap();
    for holder in &mut world.holders {
        holder.answer(&asked).unwrap();
    }
    // Server and mask holders restart before the answers arrive.
    let (saved, sum) = (world.server.save(), world.server.save_masked().unwrap());
    world.server = Server::restore(&plan, &saved, None).unwrap();
    assert_eq!(world.server.uploads(), 0);
    world.server.restore_masked(&sum).unwrap();
    assert_eq!(world.server.ask_for_masks().unwrap(), asked);
    let rules = plan.mask_rules().unwrap();
    for (at, holder) in (0..).zip(&mut world.holders) {
        let key = secret(200 + at);
        *holder = MaskHolder::restore(rules.clone(), key, &holder.save()).unwrap();
    }
    // A late upload would be in no sum.
    let late = world.speak(3).unwrap();
    assert_eq!(world.server.accept_masked(3, &late), Err(Rejected::MasksAsked { round: 5 }));
    assert_eq!(world.close(), other.close());
    assert_eq!(world.server.save(), other.server.save());
    assert!(world.server.restore_masked(&sum).is_err(), "a sum of another round");
    assert!(Plan::new(config("mk")).unwrap().server().restore_masked(&sum).is_err());
}

#[test]
fn a_cohort_counts_as_a_whole_or_not_at_all() {
    let plan = Plan::new(masked(config("gr"), 1)).unwrap();
    let mut world = World::new(&plan);
    world.round(0);
    for node in 0..NODES {
        world.learn(node, 1);
    }
    // A node of the first cohort is missing, and then one of each.
    (1..NODES - 1).for_each(|node| world.send(node));
    assert_eq!((world.server.uploads(), world.server.masked().unwrap().summed()), (18, 0));
    let refused = MaskRefusal::TooFew { least: LEAST, found: 0 };
    assert_eq!(world.server.ask_for_masks(), Err(refused));
    world.send(NODES - 1);
    let request = world.server.ask_for_masks().unwrap();
    assert!(request.nodes.iter().eq(10..20));
    assert_eq!(world.close(), 10);
}
