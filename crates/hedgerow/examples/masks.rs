//! What masked sums cost: prints the time of a node, of the server and of a mask holder for each
//! upload of a round, and checks that the sum is that of the uploads.
//!
//! cargo run --release --example masks -- [NODES]

// Results go to the terminal.
#![allow(clippy::print_stdout, clippy::expect_used)]

use std::time::Instant;

use hedgerow::masking::{MaskHolder, MaskedSum, MaskedSums, NodeMasks, Privacy, SecretKey};
use hedgerow::message::{Errors, Upload};
use hedgerow::random::CounterRng;
use hedgerow::{NodeId, Plan, PlanConfig};

/// Not random: this shows what masks cost, and hides nothing.
fn secret(number: u64) -> SecretKey {
    let chance = CounterRng::from_seed(number);
    SecretKey::from_bytes(core::array::from_fn(|at| chance.bits_at(at as u64) as u8))
}

fn report(what: &str, began: Instant, nodes: usize) {
    println!("{what}: {:.2} µs per node", 1e6 * began.elapsed().as_secs_f64() / nodes as f64);
}

fn main() {
    let nodes = std::env::args().nth(1).map_or(10_000, |nodes| nodes.parse().expect("a number"));
    let key = secret(0);
    let privacy = Privacy::Masked(MaskedSums::new(vec![key.public()]));
    let plan = Plan::new(PlanConfig::default().nodes(nodes).privacy(privacy)).expect("a plan");
    let rules = plan.mask_rules().expect("uploads are masked");
    let mut holder = MaskHolder::new(rules.clone(), "run", key);

    let began = Instant::now();
    let stream = |node: NodeId| {
        let key = secret(u64::from(node) + 1);
        NodeMasks::new(rules.clone(), "run", node, key, [0; 16]).expect("a sound key")
    };
    let mut streams: Vec<_> = (0..nodes as NodeId).map(stream).collect();
    report("key of a node", began, nodes);
    let began = Instant::now();
    streams.iter().for_each(|masks| holder.enrol(*masks.offer()).expect("a sound key"));
    report("key at the mask holder", began, nodes);

    let server = plan.server();
    let mut sum = MaskedSum::new(rules, &[server.broadcast(0)], &server.parts());
    let upload = Upload { round: 1, vote: Some(3), numbers: vec![0.5; 98] };
    let tag = sum.tag();
    let began = Instant::now();
    let mask = |masks: &mut NodeMasks| {
        let masked = masks.mask(tag, std::slice::from_ref(&upload), Errors::default());
        masked.expect("the first upload").clone()
    };
    let uploads: Vec<_> = streams.iter_mut().map(mask).collect();
    report("masked upload", began, nodes);
    let began = Instant::now();
    for (node, upload) in (0..).zip(&uploads) {
        sum.accept(node, upload).expect("a new node");
    }
    report("sum at the server", began, nodes);

    let request = sum.request().expect("enough nodes");
    let began = Instant::now();
    let answer = holder.answer(&request).expect("the first request");
    report("sum of masks", began, nodes);
    let opened = sum.open(&[answer], server.parts()).expect("masks that fit");
    assert_eq!(opened.parts[0].uploads(), nodes);
    println!("upload: {} bytes instead of {}", uploads[0].bytes.len(), upload.bytes());
}
