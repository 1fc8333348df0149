//! A million corrupted messages to every reader: nothing panics or allocates beyond its bounds, and
//! accepted messages are finite.

#![allow(clippy::unwrap_used)]

use crate::common::Engine;
use crate::common::{Plan, Scaling};
use crate::common::{broadcast_to_wire, scale_to_wire};
use crate::common::{learning, plan, sample};
use hedgerow::codec::{Coding, Compression, NumberFormat, Reader, Reference};
use hedgerow::message::{Report, Upload};
use hedgerow_net::plan_json::plan_from_json;
use hedgerow_net::transport::protocol::{numbers_from_bytes, wire};
use prost::Message;

const INPUTS: usize = 1_000_000;

/// Deterministic pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Changes of a message: some random, some malicious.
    fn spoil(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len().max(1));
            match self.below(7) {
                0 if !bytes.is_empty() => bytes[at] = self.next() as u8,
                1 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                2 => bytes.truncate(at),
                3 => bytes.insert(at.min(bytes.len()), self.next() as u8),
                4 if !bytes.is_empty() => {
                    drop(bytes.drain(at..(at + self.below(9)).min(bytes.len())))
                }
                5 => bytes.extend_from_slice(&other[self.below(other.len())..]),
                _ => {
                    // Numbers that are too large, or aren't.
                    let odd =
                        [f32::NAN, f32::INFINITY, -1e38, 1e30, f32::MIN_POSITIVE][self.below(5)];
                    let end = (at + 4).min(bytes.len());
                    bytes.splice(at..end, odd.to_le_bytes());
                }
            }
        }
        bytes.truncate(10_000);
    }
}

/// What a server reads of a node.
struct Listener {
    plan: Plan,
    server: Box<dyn hedgerow::ServerMethod>,
    scaling: hedgerow::scaling::ServerScaling,
    reader: Reader,
    known: Reference,
    numbers: Vec<f32>,
    taken: u64,
}

impl Listener {
    fn new(plan: Plan) -> Self {
        let online = Scaling::Online { kind: hedgerow::scaling::ScaleKind::Range };
        let online = hedgerow::Plan::new(plan.config().clone().scaling(online)).unwrap();
        let scaling = online.server_scaling().unwrap();
        let (mut known, mut sections) = (Reference::default(), Vec::new());
        let server = plan.server();
        plan.layout().broadcast.sections(server.broadcast(), &mut sections);
        known.set(&sections, &server.broadcast().numbers);
        Self {
            server,
            scaling,
            reader: Reader::default(),
            known,
            numbers: Vec::new(),
            taken: 0,
            plan,
        }
    }

    fn hear(&mut self, from: u32, bytes: &[u8]) {
        let Ok(wire::FromNode { message: Some(message) }) = wire::FromNode::decode(bytes) else {
            return;
        };
        let most = self.plan.most_numbers();
        match message {
            wire::from_node::Message::Upload(upload) => {
                let read = match self.plan.is_plain_up() {
                    true => numbers_from_bytes(&upload.numbers, most, &mut self.numbers),
                    false => self
                        .reader
                        .read(&upload.numbers, &self.known, most, &mut self.numbers)
                        .map(drop),
                };
                assert!(self.numbers.len() <= most && self.numbers.capacity() <= 8 * most + 8192);
                let numbers = std::mem::take(&mut self.numbers);
                let upload = Upload { round: upload.round, vote: upload.vote, numbers };
                if read.is_ok() && self.server.accept(from, &upload).is_ok() {
                    assert!(upload.numbers.iter().all(|number| number.is_finite()));
                    self.taken += 1;
                }
                self.numbers = upload.numbers;
            }
            wire::from_node::Message::Report(report) => {
                if numbers_from_bytes(&report.numbers, most, &mut self.numbers).is_ok() {
                    _ = self.scaling.accept(from % 64, &Report { numbers: self.numbers.clone() });
                }
            }
            wire::from_node::Message::Idle(_) => {}
            wire::from_node::Message::Hello(hello) => assert!(hello.name.len() <= bytes.len()),
        }
    }
}

fn compressed(method: &str) -> Plan {
    let coding = Coding { numbers: NumberFormat::Bits8, ..Coding::default() };
    let compression = Compression { up: coding, down: coding, ..Compression::default() };
    Plan::new(learning(method, 4).compression(compression)).unwrap()
}

/// Messages of an honest node in its first round.
fn honest(plan: &Plan) -> Vec<Vec<u8>> {
    let mut engine = Engine::new(plan.clone(), "run", 0);
    engine.connected();
    let opening = broadcast_to_wire(plan.server().broadcast());
    engine.hear(&wire::from_server::Message::Broadcast(opening).into()).unwrap();
    let (x, y) = sample(0, 1);
    engine.learn(&x, y).unwrap();
    let mut messages = Vec::new();
    engine.speak(false, &mut messages);
    let report =
        wire::Report { numbers: hedgerow_net::transport::protocol::numbers_to_bytes(&[1.0; 20]) };
    messages.push(wire::from_node::Message::Report(report).into());
    let hello = wire::Hello { protocol: 2, name: "node".into(), ..wire::Hello::default() };
    messages.push(wire::from_node::Message::Hello(hello).into());
    messages.push(wire::from_node::Message::Idle(wire::Idle {}).into());
    messages.iter().map(Message::encode_to_vec).collect()
}

#[test]
fn a_server_hears_a_million_odd_messages() {
    let mut dice = Dice(0x1234_5678_9ABC_DEF1);
    let plans = [plan("mk", 4), compressed("mk"), compressed("gr"), plan("pof", 4)];
    let mut heard = 0;
    for plan in plans {
        let honest = honest(&plan);
        let mut listener = Listener::new(plan);
        let mut bytes = Vec::new();
        for from in 0..INPUTS as u32 / 4 {
            let (model, other) = (dice.below(honest.len()), dice.below(honest.len()));
            bytes.clone_from(&honest[model]);
            dice.spoil(&mut bytes, &honest[other]);
            listener.hear(from, &bytes);
            heard += 1;
        }
        assert!(listener.taken > 0, "some that are only a little odd are fine");
        // Accepted messages must not make the output infinite.
        assert!(listener.server.close_round().numbers.iter().all(|number| number.is_finite()));
        _ = listener.scaling.close_round();
    }
    assert_eq!(heard, INPUTS);
}

#[test]
fn a_node_hears_odd_messages() {
    let mut dice = Dice(0x0FED_CBA9_8765_4321);
    for plan in [plan("mk", 4), compressed("mk"), plan("gr", 4)] {
        let scale = hedgerow::scaling::Scale::from_ranges(&[(0.0, 1.0); 4]).unwrap();
        let opening = broadcast_to_wire(plan.server().broadcast());
        let honest = [
            wire::from_server::Message::Broadcast(opening.clone()),
            wire::from_server::Message::Broadcast(wire::Broadcast {
                round: 2,
                compressed: true,
                ..opening.clone()
            }),
            wire::from_server::Message::Scale(scale_to_wire(1, &scale)),
            wire::from_server::Message::Refusal(wire::Refusal { round: 1, reason: "no".into() }),
        ]
        .map(|message| wire::FromServer::from(message).encode_to_vec());
        let mut engine = Engine::new(plan.clone(), "run", 0);
        let (mut bytes, mut spoken) = (Vec::new(), Vec::new());
        for at in 0..100_000 {
            if at % 50 == 0 {
                engine = Engine::new(plan.clone(), "run", 0);
                engine.connected();
                engine
                    .hear(&wire::from_server::Message::Broadcast(opening.clone()).into())
                    .unwrap();
            }
            bytes.clone_from(&honest[dice.below(4)]);
            let other = dice.below(4);
            dice.spoil(&mut bytes, &honest[other]);
            let Ok(message) = wire::FromServer::decode(&bytes[..]) else { continue };
            _ = engine.hear(&message);
            if let Some(wire::from_server::Message::Scale(scale)) = &message.message {
                _ = hedgerow::scaling::Scale::from_bytes(&scale.scale);
            }
            let (x, y) = sample(0, at);
            assert!(engine.learn(&x, y).unwrap().value.is_finite());
            engine.speak(true, &mut spoken);
            spoken.clear();
        }
    }
}

#[test]
fn a_node_is_told_odd_configurations() {
    let mut dice = Dice(0x00C0_FFEE_1234_5677);
    let honest = plan("mk", 4).to_json().into_bytes();
    let (mut bytes, mut good) = (Vec::new(), 0);
    for _ in 0..20_000 {
        bytes.clone_from(&honest);
        for _ in 0..=dice.below(2) {
            let at = dice.below(bytes.len());
            // Digits become other digits, so that some are still JSON.
            if bytes[at].is_ascii_digit() {
                bytes.splice(
                    at..=at,
                    b"90e7-.1"[dice.below(7)..].iter().copied().take(1 + dice.below(3)),
                );
            }
        }
        good += u32::from(
            std::str::from_utf8(&bytes).is_ok_and(|json| plan_from_json(json, &[]).is_ok()),
        );
    }
    assert!(good > 100, "{good}");
}
