//! Both sides of streams, without sockets, on simulated time.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::features::Kernel;
use hedgerow::message::{Errors, Rejected, ToNode, ToServer, Upload};
use hedgerow::plan::{Plan, PlanConfig, Scaling};
use hedgerow::scaling::ScaleKind;
use hedgerow::{Node, NodeId};

use super::*;
use crate::coordinator::records::{Commit, NodeRecord, Saved};
use crate::coordinator::rules::{Limits, Quorum, Rules};
use crate::coordinator::{Coordinator, Envelope, Ledger, Newcomer, Said, Sender, WireBytes};
use crate::pki::identity::{Peer, Role};
use crate::plan_json::plan_to_json;
use crate::transport::convert::{
    from_node_from_wire, from_node_to_wire, from_server_from_wire, from_server_to_wire,
};

const NODES: usize = 4;
const PATIENCE: Duration = Duration::from_millis(500);

/// Both ends of a stream.
struct Stream {
    node: Node,
    near: NodeSession,
    far: ServerSession,
}

struct World {
    plan: Plan,
    coordinator: Coordinator,
    now: Instant,
    streams: Vec<Stream>,
    /// What a store would have.
    saved: Option<Saved>,
}

impl World {
    fn new(config: PlanConfig, patience: Option<Duration>) -> Self {
        let (plan, now) = (Plan::new(config).unwrap(), Instant::now());
        let coordinator = coordinator(&plan, None, vec![], now);
        let mut world = Self { plan, coordinator, now, streams: vec![], saved: None };
        for number in 0..NODES as NodeId {
            let (far, Joined { plan, number, .. }) = world.join(number);
            let mut node = plan.node(number);
            let near = NodeSession::new(&mut node, patience);
            world.streams.push(Stream { node, near, far });
        }
        world
    }

    /// The server is killed and continues from what is stored. All nodes join again.
    fn restart(&mut self) {
        let members = self.coordinator.members().iter();
        let nodes = members.map(|member| member.record.clone()).collect();
        self.coordinator = coordinator(&self.plan, self.saved.as_ref(), nodes, self.now);
        for (number, Stream { mut node, .. }) in (0..).zip(std::mem::take(&mut self.streams)) {
            node.disconnected();
            let (far, joined) = self.join(number);
            assert_eq!((joined.number, &joined.plan), (node.id(), node.plan()));
            let near = NodeSession::new(&mut node, None);
            self.streams.push(Stream { node, near, far });
        }
    }

    fn session(&self) -> ServerSession {
        let opening = Arc::clone(self.coordinator.opening());
        ServerSession::new(&self.plan, None, self.now + Duration::from_secs(10), opening)
    }

    fn join(&mut self, number: NodeId) -> (ServerSession, Joined) {
        let mut far = self.session();
        let hello = FromNode::Hello(hello(&format!("n{number}"), ""));
        let Hello { name, software, .. } = far.greet(Some(hello)).unwrap();
        let sender = Sender { node: number, stream: u64::from(number) + 1 };
        let newcomer = Newcomer {
            sender,
            name: &name,
            certificate: None,
            software: &software,
            address: "here",
        };
        let (ledger, _) = self.coordinator.join(newcomer, 0);
        let learning = plan_to_json(&self.plan);
        let (protocol, newest) = (VERSION, VERSION);
        let welcome =
            Welcome { protocol, newest, run: "run".into(), node: number, learning, epoch: 0 };
        far.admit(sender, ledger, welcome);
        let joined = Joined::from_first(travel_down(far.transmit().unwrap()), &[]).unwrap();
        (far, joined)
    }

    /// Moves messages until neither side has any.
    fn exchange(&mut self, even_so: bool) {
        for Stream { node, near, far } in &mut self.streams {
            while let Some(message) = far.transmit() {
                near.receive(node, &travel_down(message), self.now).unwrap();
            }
            let mut said = vec![];
            near.speak(node, even_so, self.now, |message| said.push(message));
            for message in said {
                let message = travel_up(message, &self.plan);
                far.receive(message, 10, |sender, said, envelope| {
                    self.coordinator.hear(sender, said, envelope, (self.now, 0))
                });
                assert_eq!(far.ended(), None);
            }
        }
    }

    /// Closes the round if it is due, stores it and tells it.
    fn close(&mut self) -> u64 {
        if self.coordinator.is_due(self.now) {
            let closing = self.coordinator.close(0, WireBytes::default()).unwrap();
            self.coordinator.closed(closing.work());
            let (opening, commit) = self.coordinator.committed(self.now).unwrap();
            let before = self.saved.take().and_then(|saved| saved.scaling);
            let Commit { round, server, scaling, totals, .. } = Commit::clone(&commit);
            self.saved = Some(Saved { round, server, scaling: scaling.or(before), totals });
            self.streams.iter_mut().for_each(|stream| stream.far.open(Arc::clone(&opening)));
        }
        self.coordinator.opening().round
    }

    fn learn(&mut self, time: u64, sample: fn(NodeId, u64) -> Sample) {
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let (x, y) = sample(number as NodeId, time);
            stream.node.learn(&x, &[y]).unwrap();
        }
    }
}

fn coordinator(
    plan: &Plan,
    saved: Option<&Saved>,
    nodes: Vec<NodeRecord>,
    now: Instant,
) -> Coordinator {
    let rules = Rules { quorum: Quorum::Count(NODES), ..Rules::default() };
    Coordinator::new(plan.clone(), rules, Limits::default(), saved, nodes, now).unwrap()
}

/// Through the bytes of the protocol.
fn travel_down(message: FromServer) -> FromServer {
    let arrived = from_server_from_wire(from_server_to_wire(message.clone())).unwrap();
    assert_eq!(arrived, message);
    arrived
}

fn travel_up(message: ToServer, plan: &Plan) -> Result<FromNode, Rejected> {
    let wire = from_node_to_wire(FromNode::Message(message.clone()));
    let arrived = from_node_from_wire(wire, plan.is_plain_up(), plan.most_numbers());
    assert_eq!(arrived, Ok(FromNode::Message(message)));
    arrived
}

type Sample = ([f32; 2], f32);

fn sample(node: NodeId, time: u64) -> Sample {
    let phase = (u64::from(node) * 31 + time * 17) as f32;
    let x = [phase.sin(), 0.5 + 0.5 * (1.7 * phase).cos()];
    (x, 0.5 + (3.0 * x[0]).sin() * x[1])
}

/// The same in other units, and ever larger.
fn growing_sample(node: NodeId, time: u64) -> Sample {
    let ([a, b], y) = sample(node, time);
    ([300.0 + 10.0 * a * time as f32, b - 9.0], 1000.0 * y)
}

fn config(method: &str) -> PlanConfig {
    let budget = if matches!(method, "gr" | "tr") { 24 } else { 6 };
    PlanConfig::default()
        .method(method.parse().unwrap())
        .kernels([0.1, 1.0, 10.0].map(Kernel::gaussian).to_vec())
        .inputs(2)
        .nodes(NODES)
        .budget(budget)
        .seed(3)
        .target("y".into())
}

#[test]
fn rounds_are_those_of_one_process_to_the_bit() {
    const ROUNDS: u64 = 40;
    for method in ["mk", "naive", "gr", "linear"] {
        for (up, down) in [
            (NumberFormat::F32, NumberFormat::F32),
            (NumberFormat::Bits8, NumberFormat::Bits8),
            (NumberFormat::Bits4, NumberFormat::F32),
            (NumberFormat::F32, NumberFormat::F16),
        ] {
            let coding = |numbers| Coding { numbers, ..Coding::default() };
            let compression =
                Compression { up: coding(up), down: coding(down), ..Compression::default() };
            let mut world = World::new(config(method).compression(compression), None);
            let mut server = world.plan.server();
            let mut nodes: Vec<Node> =
                (0..NODES as NodeId).map(|number| world.plan.node(number)).collect();
            for (number, node) in nodes.iter_mut().enumerate() {
                node.connected();
                server.connected(number as NodeId);
            }
            for time in 1..=ROUNDS {
                world.exchange(false);
                world.learn(time, sample);
                world.exchange(false);
                assert_eq!(world.close(), time + 1);
                for (number, node) in nodes.iter_mut().enumerate() {
                    server
                        .opening(time - 1, time > 1)
                        .for_each(|message| node.hear(&message).unwrap());
                    let (x, y) = sample(number as NodeId, time);
                    node.learn(&x, &[y]).unwrap();
                    node.speak(false, |said| server.accept(number as NodeId, &said).unwrap());
                }
                assert!(server.close_round().has_uploads);
                for has_previous in [false, true] {
                    assert_eq!(
                        world.coordinator.opening().broadcast(time, has_previous),
                        server.broadcast_message(time, has_previous),
                        "{method:?} {up:?} {down:?} round {time}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_scale_is_agreed_on_before_anything_else() {
    let online = Scaling::Online { kind: ScaleKind::Range };
    let mut world = World::new(config("mk").scaling(online), None);
    let mut versions = vec![];
    for time in 1..=30 {
        world.exchange(false);
        world.learn(time, growing_sample);
        world.exchange(false);
        world.close();
        let opening = world.coordinator.opening();
        versions.push((opening.round, opening.scale_version));
    }
    // Four nodes have seen sixteen samples after four rounds each.
    assert_eq!(versions[..5], [(1, 0), (1, 0), (1, 0), (1, 1), (2, 1)], "{versions:?}");
    assert!(versions.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0 || pair[1].0 == 1));
    assert!(versions[29].1 > 1, "it grows with the samples");
    assert!(world.streams.iter().all(|stream| stream.node.is_scaled()));
    assert_eq!(world.coordinator.totals().rounds, 26);
}

#[test]
fn scale_and_broadcast_survive_a_restart_of_the_server() {
    let online = Scaling::Online { kind: ScaleKind::Range };
    for method in ["mk", "gr"] {
        let [mut killed, mut other] =
            [(); 2].map(|()| World::new(config(method).scaling(online.clone()), None));
        let mut restarts = 0;
        for time in 1..=40 {
            for world in [&mut killed, &mut other] {
                world.exchange(false);
                world.learn(time, growing_sample);
                world.exchange(false);
                world.close();
            }
            if time % 8 == 0 {
                killed.restart();
                restarts += 1;
            }
            let [opening, expected] = [&killed, &other].map(|world| world.coordinator.opening());
            assert_eq!(opening.scale, expected.scale, "{method}, time {time}");
            assert_eq!(opening.scale_version, expected.scale_version, "{method}, time {time}");
            assert_eq!(opening.broadcast(0, false), expected.broadcast(0, false), "time {time}");
        }
        let opening = killed.coordinator.opening();
        assert!(opening.scale_version > 1 && opening.round > 30 && restarts == 5);
    }
}

#[test]
fn a_node_answers_with_what_it_has_when_its_patience_ends() {
    // More samples are wanted than come.
    let compression = Compression { every: 3.try_into().unwrap(), ..Compression::default() };
    let mut world = World::new(config("mk").compression(compression), Some(PATIENCE));
    let learn_until = |world: &mut World, round| {
        while world.coordinator.opening().round < round {
            world.exchange(false);
            world.learn(round, sample);
            world.exchange(false);
            world.close();
        }
        world.exchange(false);
    };
    learn_until(&mut world, 10);
    world.learn(1, sample);
    world.exchange(false);
    assert_eq!(world.close(), 10, "nobody has learned enough");
    let wake = world.streams[0].near.wake_at().unwrap();
    assert_eq!(wake, world.now + PATIENCE);
    world.now += PATIENCE / 2;
    let now = world.now;
    assert!(world.streams.iter_mut().all(|stream| !stream.near.wake(now)));
    world.now += PATIENCE / 2;
    let now = world.now;
    assert!(world.streams.iter_mut().all(|stream| stream.near.wake(now)));
    world.exchange(true);
    assert_eq!(world.close(), 11);
    // A node in step has no patience: it waits for its samples.
    let mut world = World::new(config("mk").compression(compression), None);
    learn_until(&mut world, 10);
    world.learn(1, sample);
    world.exchange(false);
    assert_eq!((world.close(), world.streams[0].near.wake_at()), (10, None));
}

#[test]
fn a_node_without_a_scale_waits_for_one_and_then_takes_another_sample() {
    let online = Scaling::Online { kind: ScaleKind::Range };
    let mut world = World::new(config("mk").scaling(online), None);
    world.exchange(false);
    for time in 1..=4 {
        world.learn(time, sample);
    }
    // The server is slow: no scale comes.
    world.exchange(false);
    let near = &mut world.streams[0].near;
    assert!(near.awaits_scale());
    let until = near.wake_at().unwrap();
    assert!(!near.wake(until - Duration::from_millis(1)) && near.awaits_scale());
    assert!(!near.wake(until) && !near.awaits_scale());
    assert_eq!(near.wake_at(), None);
    // With the scale, nobody waits.
    world.close();
    world.exchange(false);
    assert!(world.streams.iter().all(|stream| !stream.near.awaits_scale()));
}

#[test]
fn a_stream_begins_with_a_hello_that_fits() {
    let world = World::new(config("mk"), None);
    let peer = |name: &str, role| {
        let (name, serial) = (name.to_owned(), name.as_bytes().to_vec());
        Peer { name, role, serial, end: i64::MAX }
    };
    let greet_as = |certified, message| {
        let opening = Arc::clone(world.coordinator.opening());
        let mut session = ServerSession::new(&world.plan, certified, world.now, opening);
        assert_eq!(session.deadline(), Some(world.now));
        session.greet(message).map(|request| request.name)
    };
    let greet = |certified: Option<&str>, message| {
        greet_as(certified.map(|name| peer(name, Role::Node)), message)
    };
    let said = |hello| Some(FromNode::Hello(hello));
    assert_eq!(greet(None, said(hello("a", ""))), Ok("a".to_owned()));
    assert_eq!(greet(Some("a"), said(hello("a", ""))), Ok("a".to_owned()));
    assert_eq!(greet(Some("b"), said(hello("a", ""))), Err(CloseReason::OtherName));
    let operator = peer("a", Role::Operator);
    assert_eq!(greet_as(Some(operator), said(hello("a", ""))), Err(CloseReason::NotANode));
    assert!(matches!(greet(None, said(hello("A b", ""))), Err(CloseReason::BadName(_))));
    assert_eq!(greet(None, Some(ToServer::Idle.into())), Err(CloseReason::NotHello));
    assert_eq!(greet(None, None), Err(CloseReason::NotHello));
    let spoken =
        |oldest, newest| greet(None, said(Hello { protocol: oldest, newest, ..hello("a", "") }));
    // 0.1.0 names one version.
    for (oldest, newest) in [(1, 0), (1, 1), (2, 0), (1, 9), (2, 9)] {
        assert_eq!(spoken(oldest, newest), Ok("a".to_owned()), "{oldest} to {newest}");
    }
    for (oldest, newest, words) in [
        (9, 0, "in version 1 to 2, and this node in version 9: update the server"),
        (3, 4, "in version 1 to 2, and this node in version 3 to 4: update the server"),
        (0, 0, "in version 1 to 2, and this node in version 0: update the node"),
    ] {
        let refused = spoken(oldest, newest).unwrap_err().to_string();
        assert!(refused.ends_with(words), "{refused}");
    }
}

#[test]
fn both_sides_speak_the_newest_version_that_both_know() {
    let world = World::new(config("mk"), None);
    for (oldest, newest, expected) in [(1, 0, 1), (1, 2, 2), (2, 0, 2), (1, 7, 2)] {
        let now = Instant::now();
        let mut session =
            ServerSession::new(&world.plan, None, now, Arc::clone(world.coordinator.opening()));
        let hello = Hello { protocol: oldest, newest, ..hello("a", "") };
        session.greet(Some(FromNode::Hello(hello))).unwrap();
        let learning = plan_to_json(&world.plan);
        let (protocol, newest) = (VERSION, VERSION);
        let welcome = Welcome { protocol, newest, run: "run".into(), node: 0, learning, epoch: 0 };
        session.admit(Sender { node: 0, stream: 1 }, Ledger::default(), welcome);
        let Some(FromServer::Welcome(welcome)) = session.transmit() else { panic!("no welcome") };
        assert_eq!(welcome.protocol, expected, "{oldest} to {newest}");
    }
}

#[test]
fn a_welcome_is_checked() {
    let world = World::new(config("mk"), None);
    let learning = plan_to_json(&world.plan);
    let good =
        Welcome { protocol: VERSION, newest: 0, run: "run".into(), node: 3, learning, epoch: 0 };
    let first = |message: FromServer| Joined::from_first(message, &[]);
    let joined = first(FromServer::Welcome(good.clone())).unwrap();
    assert_eq!((joined.run.as_str(), joined.number, joined.plan), ("run", 3, world.plan.clone()));
    // 0.1.0 welcomes in version 1, and a newer server in the newest that this node knows.
    for (protocol, newest) in [(1, 0), (2, 9)] {
        assert!(first(FromServer::Welcome(Welcome { protocol, newest, ..good.clone() })).is_ok());
    }
    for (protocol, words) in [
        (3, "version 3, and this node version 1 to 2: update the node"),
        (0, "version 0, and this node version 1 to 2: update the server"),
    ] {
        let other = Welcome { protocol, ..good.clone() };
        let refused = first(FromServer::Welcome(other)).unwrap_err();
        assert!(
            matches!(&refused, ConnectError::Foreign(found) if found.ends_with(words)),
            "{refused}"
        );
    }
    let odd = Welcome { learning: "{}".into(), ..good };
    assert!(matches!(first(FromServer::Welcome(odd)), Err(ConnectError::Plan(_))));
    let refusal = FromServer::Refusal { round: 1, reason: "no".into() };
    assert_eq!(first(refusal).unwrap_err(), ConnectError::Refused("no".into()));
    let broadcast = world.coordinator.opening().broadcast(0, false);
    assert!(matches!(first(broadcast.into()), Err(ConnectError::Foreign(_))));
}

#[test]
fn a_server_whose_messages_have_another_revision_is_refused_with_advice() {
    let join = |method: &str, other: Option<u32>| {
        let plan = Plan::new(config(method)).unwrap();
        let mut written: serde_json::Value = serde_json::from_str(&plan_to_json(&plan)).unwrap();
        let fields = written.as_object_mut().unwrap();
        // 0.1.0 wrote none.
        _ = fields.remove("revision");
        other.map(|other| fields.insert("revision".into(), other.into()));
        let learning = written.to_string();
        let (protocol, newest) = (VERSION, VERSION);
        let welcome = Welcome { protocol, newest, run: "run".into(), node: 3, learning, epoch: 0 };
        Joined::from_first(FromServer::Welcome(welcome), &[]).map_err(|error| error.to_string())
    };
    assert!(join("mk", None).is_ok() && join("gr", Some(2)).is_ok());
    for method in ["gr", "tr"] {
        let refused = join(method, None).unwrap_err();
        assert!(refused.contains(&format!("messages of {method} in revision 1")), "{refused}");
        assert!(refused.contains("update the server, or join with a node of"), "{refused}");
        let refused = join(method, Some(9)).unwrap_err();
        assert!(refused.contains("but the plan has 9: update this program"), "{refused}");
    }
    assert!(join("tr", Some(2)).is_err() && join("tr", Some(3)).is_ok());
}

#[test]
fn bad_messages_are_refused_and_too_many_end_the_stream() {
    let mut world = World::new(config("mk"), None);
    world.exchange(false);
    let World { coordinator, now, streams, .. } = &mut world;
    let Stream { node, near, far } = &mut streams[0];
    let bad = Limits::default().bad_messages;
    for count in 1..=bad {
        let message = match count % 2 {
            0 => Ok(FromNode::Hello(hello("n0", ""))),
            _ => Err(Rejected::Garbled { what: "an empty message" }),
        };
        far.receive(message, 10, |sender, said, envelope| {
            coordinator.hear(sender, said, envelope, (*now, 0))
        });
        if count < bad {
            let refusal = far.transmit().unwrap();
            let heard = near.receive(node, &travel_down(refusal), *now).unwrap();
            let ServerNews::Refused { round: 1, reason } = heard else { panic!("{heard:?}") };
            assert!(reason.contains("can't be read"), "{reason}");
        }
    }
    assert_eq!(far.transmit(), None);
    assert!(matches!(far.ended(), Some(CloseReason::BadMessages(_))), "{:?}", far.ended());
    assert_eq!(node.tally().refused, u64::from(bad) - 1);
    // What no server says.
    let (protocol, newest, learning) = (VERSION, VERSION, String::new());
    let welcome = Welcome { protocol, newest, run: String::new(), node: 0, learning, epoch: 0 };
    assert!(near.receive(node, &FromServer::Welcome(welcome), *now).is_err());
}

#[test]
fn a_node_of_another_epoch_takes_a_broadcast_of_its_own_round() {
    let mut world = World::new(config("mk"), None);
    world.exchange(false);
    let mut stream = world.streams.pop().unwrap();
    let told = |number: f32| {
        let mut broadcast = world.coordinator.opening().broadcast(0, false);
        let ToNode::Broadcast(message) = &mut broadcast else { panic!() };
        message.heads[0].numbers = hedgerow::message::Numbers::Plain(vec![number; 4]);
        FromServer::from(broadcast)
    };
    let now = world.now;
    let round = stream.node.round();
    let mut hear = |number: f32| {
        stream.near.receive(&mut stream.node, &told(number), now).unwrap();
        (stream.node.round(), stream.node.method(0).norm2())
    };
    let before = hear(0.0);
    // A round that the node is in already is the same.
    assert_eq!(hear(3.0), before);
    assert_eq!(before.0, round);
    stream.node.set_back();
    let mut hear = |number: f32| {
        stream.near.receive(&mut stream.node, &told(number), now).unwrap();
        (stream.node.round(), stream.node.method(0).norm2())
    };
    let after = hear(3.0);
    assert_eq!(after.0, round);
    assert_ne!(after.1, before.1);
    // Once.
    assert_eq!(hear(5.0), after);
}

#[test]
fn a_slow_node_hears_the_latest_round_only_and_the_end_last() {
    let mut world = World::new(config("mk"), None);
    let mut slow = world.streams.pop().unwrap();
    let sender = slow.far.sender().unwrap();
    world.exchange(false);
    for time in 1..=5 {
        world.learn(time, sample);
        let upload = Upload { round: time, vote: Some(0), numbers: vec![0.5; 4] };
        let said = Said::Upload(&mut [upload], Errors::default(), &[]);
        world.coordinator.hear(sender, said, Envelope::default(), (world.now, 0)).unwrap();
        world.exchange(false);
        assert_eq!(world.close(), time + 1);
        world.exchange(false);
    }
    slow.far.open(Arc::clone(world.coordinator.opening()));
    let first = slow.far.transmit().unwrap();
    let FromServer::Message(ToNode::Broadcast(broadcast)) = &first else { panic!("{first:?}") };
    assert_eq!(broadcast.round, 6);
    assert_eq!((slow.far.transmit(), slow.far.unaccounted().broadcasts), (None, 1));
    // The server has lost rounds: the node continues from the server's.
    slow.near.receive(&mut slow.node, &first, world.now).unwrap();
    let older = World::new(config("mk"), None).coordinator.opening().broadcast(0, false);
    let heard = slow.near.receive(&mut slow.node, &older.into(), world.now).unwrap();
    assert_eq!(heard, ServerNews::Round { lost_from: Some(6) });
    let mut last = world.coordinator.opening().as_ref().clone();
    last.is_last = true;
    slow.far.open(Arc::new(last));
    assert_eq!((slow.far.transmit(), slow.far.ended()), (None, Some(&CloseReason::GoingDown)));
}
