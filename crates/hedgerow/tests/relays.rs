//! A tree of relays of any shape gives the server the same bits as all nodes directly.

#![allow(clippy::unwrap_used)]

use crate::common::{World, dictionary, few_cases};
use hedgerow::aggregation::{Aggregation, PartialSum};
use hedgerow::message::{Rejected, Upload};
use hedgerow::relay::Relay;
use hedgerow::{NodeId, Plan, PlanConfig};
use proptest::prelude::*;

const KERNELS: usize = 4;
const NODES: usize = 23;
const ROUNDS: u64 = 12;

/// Adds up uploads in a tree whose shape `bits` decides; some of them come to the upper relay
/// directly.
fn through_relays(
    top: &mut Relay,
    make: &dyn Fn() -> Relay,
    uploads: &[(NodeId, Upload)],
    bits: u64,
) {
    if uploads.len() < 2 || bits & 7 == 0 {
        for (node, upload) in uploads {
            top.accept(*node, std::slice::from_ref(upload)).unwrap();
        }
        return;
    }
    let cut = 1 + (bits >> 3) as usize % (uploads.len() - 1);
    let (left, right) = uploads.split_at(cut);
    let next = bits.rotate_right(11).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut lower = make();
    through_relays(&mut lower, make, left, next);
    // On its way it is bytes, and may come last.
    let sum = top.read(0, &lower.sums()[0].to_bytes()).unwrap();
    assert_eq!(&sum, &lower.sums()[0]);
    through_relays(top, make, right, next ^ bits);
    top.merge(&[sum]).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_tree_of_relays_is_a_flat_server(shape in any::<u64>()) {
        for case in few_cases(KERNELS) {
            let case = case.with(|config| config.nodes(NODES));
            let config = case.config();
            if config.aggregation != Aggregation::Mean {
                let refused = Relay::new(&case.plan).map(drop).unwrap_err().to_string();
                let expected = format!("relays can't add up uploads for a {}", config.aggregation);
                prop_assert!(refused.starts_with(&expected), "{}", refused);
                continue;
            }
            let (mut flat, mut tree) = (World::new(&case), World::new(&case));
            for t in 0..ROUNDS {
                let mut uploads = Vec::new();
                for node in 0..NODES {
                    flat.learn(node, t);
                    tree.learn(node, t);
                    flat.send(node);
                    uploads.extend(tree.upload(node).map(|upload| (node as NodeId, upload)));
                }
                let broadcast = tree.server.broadcast().clone();
                let make = || {
                    let mut relay = Relay::new(&case.plan).unwrap();
                    relay.follow(std::slice::from_ref(&broadcast)).unwrap();
                    relay
                };
                let mut top = make();
                through_relays(&mut top, &make, &uploads, shape.rotate_left(t as u32));
                prop_assert_eq!(top.sums()[0].uploads(), uploads.len());
                tree.server.merge(&top.sums()[0]).unwrap();
                prop_assert_eq!(tree.server.uploads(), flat.server.uploads());
                flat.close();
                tree.close();
            }
            prop_assert_eq!(flat.state(), tree.state(), "{:?}", case);
        }
    }
}

#[test]
fn sums_that_do_not_belong_are_refused_and_change_nothing() {
    for case in few_cases(KERNELS) {
        if case.config().aggregation != Aggregation::Mean || case.name() == "local" {
            continue;
        }
        let mut world = World::after(&case, 3);
        let mut relay = Relay::new(&case.plan).unwrap();
        let early = relay.sums()[0].clone();
        let before = world.server.save();
        assert!(matches!(world.server.merge(&early), Err(Rejected::WrongRound { .. })), "{case:?}");
        relay.follow(std::slice::from_ref(world.server.broadcast())).unwrap();
        let old = early.to_bytes();
        assert!(relay.read(0, &old).is_err(), "a sum of another round: {case:?}");
        world.learn(0, 9);
        let upload = world.upload(0).unwrap();
        relay.accept(0, std::slice::from_ref(&upload)).unwrap();
        assert!(matches!(
            relay.accept(0, std::slice::from_ref(&upload)),
            Err(Rejected::Duplicate { node: 0, .. })
        ));
        let of_another_kernel_count = case.with(|config| {
            config.kernels(dictionary(KERNELS + 1)).frequencies(Some(9)).inputs(5).budget(40)
        });
        let mut other = of_another_kernel_count.server();
        assert!(other.merge(&relay.sums()[0]).is_err(), "{case:?}");
        assert_eq!(world.server.save(), before);
        world.server.merge(&relay.sums()[0]).unwrap();
        let after = world.server.save();
        assert!(matches!(
            world.server.merge(&relay.sums()[0]),
            Err(Rejected::Duplicate { node: 0, .. })
        ));
        assert!(world.server.accept(0, &upload).is_err());
        assert_eq!(world.server.save(), after);
        // A state of an unknown kind can't be read.
        let sound = relay.sums()[0].to_bytes();
        for at in 0..sound.len() {
            for flip in [1, 0x80, 0xff] {
                let mut spoilt = sound.clone();
                spoilt[at] ^= flip;
                let read: Result<PartialSum, _> = relay.read(0, &spoilt);
                let sum = read.ok().filter(|sum| sum.uploads() <= 1);
                assert!(sum.is_none_or(|sum| sum.round() == relay.sums()[0].round()));
            }
            assert!(relay.read(0, &sound[..at]).is_err());
        }
    }
}

#[test]
fn a_sum_is_as_large_as_a_few_uploads_however_many_are_in_it() {
    let plan = Plan::new(PlanConfig::default().nodes(10_000)).unwrap();
    let mut relay = Relay::new(&plan).unwrap();
    let upload = Upload { round: 1, vote: Some(2), numbers: vec![0.1; 98] };
    for node in 50_000..60_000 {
        relay.accept(node, std::slice::from_ref(&upload)).unwrap();
    }
    assert_eq!(relay.sums()[0].bytes_of_sums(), 98 * 24 + 11 * 8);
    // A little more than a bit for each node.
    let bytes = relay.sums()[0].to_bytes().len();
    assert!(bytes < 98 * 24 + 11 * 8 + 10_000 / 6, "{bytes}");
}
