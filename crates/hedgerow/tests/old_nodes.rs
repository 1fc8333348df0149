//! Nodes, federations and plans that were saved by the version before nodes had a version of their
//! own are still read, and go on with the same bits. Their own layers were of another kind and
//! start afresh.

#![allow(clippy::unwrap_used)]

use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::{Federation, Node, Plan, PlanConfig};

/// The plan of the fixtures of a method, as it was stored.
fn config(method: &str) -> PlanConfig {
    let json = match method {
        "mk" => include_str!("fixtures/node-mk.json"),
        _ => include_str!("fixtures/node-gr.json"),
    };
    let config: PlanConfig = serde_json::from_str(json).unwrap();
    // Messages of `gr` have changed since.
    let written = serde_json::to_string(&config).unwrap().replace(",\"revision\":2}", "}");
    assert_eq!(written, json);
    config
}

fn sample(time: u64) -> ([f32; 3], [f32; 1]) {
    let t = time as f32;
    let x = [(t * 0.7) % 3.0, (t * 1.3) % 2.0, (t * 0.9) % 5.0];
    (x, [x[0] * x[1] - x[2]])
}

#[test]
fn nodes_without_a_version_go_on() {
    for (method, saved, bits) in [
        ("mk", &include_bytes!("fixtures/node-mk.bin")[..], 3_229_653_975),
        ("gr", include_bytes!("fixtures/node-gr.bin"), 3_227_634_071),
    ] {
        let plan = Plan::new(config(method)).unwrap();
        let mut node = Node::restore(&plan, saved).unwrap();
        assert_eq!((node.run(), node.id(), node.round()), ("a run", 1, 24));
        assert_eq!(node.waiting(), (3, 3));
        let tally = node.tally();
        assert_eq!((tally.samples, tally.scored, tally.uploads, tally.taken), (43, 27, 24, 23));
        assert!(plan.has_own_layers());
        let global = Plan::new(plan.config().clone().personal(false)).unwrap();
        let mut global = Node::restore(&global, saved).unwrap();
        for node in [&mut node, &mut global] {
            assert_eq!(node.predict(&sample(99).0).unwrap().value.to_bits(), bits, "{method}");
        }
        let again = Node::restore(&plan, &node.save()).unwrap();
        assert_eq!(again.save(), node.save());
        node.learn_by_id("id 41", &[1.0]).unwrap();
        for end in 0..saved.len() {
            assert!(Node::restore(&plan, &saved[..end]).is_err());
        }
    }
}

#[test]
fn federations_go_on() {
    let two = 2.try_into().unwrap();
    let compression = Compression {
        every: two,
        up: Coding { numbers: NumberFormat::Bits8, part: two },
        down: Coding { numbers: NumberFormat::F16, ..Coding::default() },
    };
    for (method, compression, saved, bits, bytes) in [
        (
            "mk",
            Compression::default(),
            &include_bytes!("fixtures/federation-mk-plain.bin")[..],
            1_060_781_926,
            (6960, 7200),
        ),
        (
            "mk",
            compression,
            include_bytes!("fixtures/federation-mk-compressed.bin"),
            1_062_720_411,
            (808, 2112),
        ),
        (
            "gr",
            Compression::default(),
            include_bytes!("fixtures/federation-gr-plain.bin"),
            1_071_164_212,
            (7192, 3768),
        ),
        (
            "gr",
            compression,
            include_bytes!("fixtures/federation-gr-compressed.bin"),
            1_073_542_036,
            (3508, 1984),
        ),
    ] {
        let plan = Plan::new(config(method).compression(compression)).unwrap();
        // Its samples come scaled.
        let plan = Plan::new(plan.config().clone().scaling(hedgerow::plan::Scaling::None)).unwrap();
        let mut federation = Federation::new(&plan);
        federation.restore(saved).unwrap();
        let (mut last, mut z) = (0.0f32, vec![0.0; plan.width()]);
        for time in 15..30 {
            let (x, y) = sample(time);
            let z = plan.map().map_batch(&x, &mut z);
            let visits = [0, 1].map(|node| NodeRound { node, z, y: &y, contact: Contact::Full });
            federation.round(&visits, |prediction| last = prediction.global).unwrap();
        }
        assert_eq!(last.to_bits(), bits, "{method} {compression:?}");
        let traffic = federation.traffic();
        assert_eq!((traffic.bytes_up, traffic.bytes_down), bytes);
    }
}
