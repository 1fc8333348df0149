//! Ten million nodes upload through relays. Nodes are simulated, their uploads are real. Prints how
//! long each tier takes and what it sends, and checks that the server gets the same bits as without
//! relays.
//!
//! cargo run --release --example relays -- [NODES] [PER RELAY] [RELAYS PER UPPER RELAY]

// Results go to the terminal.
#![allow(clippy::print_stdout, clippy::expect_used)]

use std::time::{Duration, Instant};

use hedgerow::message::Upload;
use hedgerow::random::CounterRng;
use hedgerow::relay::Relay;
use hedgerow::{NodeId, Plan, PlanConfig};

/// What a node of MK-OFL with r = 100 might send in the first round.
fn upload(chance: CounterRng, node: NodeId, out: &mut Upload) {
    out.round = 1;
    let dice = chance.bits_at(u64::from(node));
    out.vote = Some((dice % 11) as u32);
    let mut state = dice | 1;
    for number in &mut out.numbers {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *number = ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * 0.2;
    }
}

/// A tier of relays: its size, its time and what it sent.
#[derive(Default)]
struct Tier {
    relays: usize,
    messages: usize,
    time: Duration,
    bytes: usize,
}

impl Tier {
    fn report(&self, name: &str) {
        let Self { relays, messages, time, bytes } = self;
        let each = time.as_secs_f64() / *messages as f64;
        println!(
            "| {name} | {relays} | {messages} | {:.2} | {:.3} | {:.3} | {:.2} |",
            time.as_secs_f64(),
            1e6 * each,
            1e3 * time.as_secs_f64() / *relays as f64,
            *bytes as f64 / 1e6,
        );
    }
}

fn main() {
    let mut arguments =
        std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let nodes: usize = arguments.next().unwrap_or(10_000_000);
    let per_relay: usize = arguments.next().unwrap_or(1000);
    let fan: usize = arguments.next().unwrap_or(100);
    let plan = Plan::new(PlanConfig::default().nodes(nodes)).expect("a plan");
    let (mut server, mut flat) = (plan.server(), plan.server());
    let relay = || Relay::new(&plan).expect("a mean can be added up");
    let chance = CounterRng::from_seed(3);
    let mut message = Upload { numbers: vec![0.0; 98], ..Upload::default() };
    let (mut first, mut second, mut top, mut direct) = (
        Tier::default(),
        Tier::default(),
        Tier { relays: 1, ..Tier::default() },
        Tier { relays: 1, ..Tier::default() },
    );
    let timed = |tier: &mut Tier, work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        tier.time += start.elapsed();
        tier.messages += 1;
    };
    let mut node = 0;
    while node < nodes {
        let mut upper = relay();
        second.relays += 1;
        for _ in 0..fan {
            if node == nodes {
                break;
            }
            let mut lower = relay();
            first.relays += 1;
            let own = node..nodes.min(node + per_relay);
            node = own.end;
            // A batch at a time, so that reading the clock takes no share of the time.
            let uploads: Vec<(NodeId, [Upload; 1])> = own
                .map(|node| {
                    upload(chance, node as NodeId, &mut message);
                    (node as NodeId, [message.clone()])
                })
                .collect();
            timed(&mut first, &mut || {
                uploads
                    .iter()
                    .for_each(|(node, upload)| lower.accept(*node, upload).expect("a good upload"));
            });
            timed(&mut direct, &mut || {
                uploads.iter().for_each(|(node, upload)| {
                    flat.accept_uploads(*node, upload).expect("a good upload")
                });
            });
            first.messages += uploads.len() - 1;
            direct.messages += uploads.len() - 1;
            let bytes = lower.sums()[0].to_bytes();
            first.bytes += bytes.len();
            timed(&mut second, &mut || {
                let sum = upper.read(0, &bytes).expect("a relay's bytes");
                upper.merge(&[sum]).expect("other nodes");
            });
        }
        let bytes = upper.sums()[0].to_bytes();
        second.bytes += bytes.len();
        timed(&mut top, &mut || {
            let sum = upper.read(0, &bytes).expect("a relay's bytes");
            server.merge(&[sum]).expect("other nodes");
        });
    }
    let uploaded = nodes * 4 * 99;
    println!("{nodes} uploads of {} bytes, {:.0} MB in all", 4 * 99, uploaded as f64 / 1e6);
    println!("| tier | relays | messages in | CPU, s | µs a message | ms a relay | MB out |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    first.report("first relays");
    second.report("second relays");
    top.report("server");
    direct.report("server without relays");
    assert_eq!(server.uploads(), nodes);
    assert!(server.close_round().has_uploads && flat.close_round().has_uploads);
    assert_eq!(server.broadcast(0), flat.broadcast(0), "relays changed a bit");
    println!("the next broadcast is the same, bit for bit");
}
