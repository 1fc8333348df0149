use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::aggregation::{PartialSum, Participants};
use crate::message::{Broadcast, Errors, NodeId, Rejected, Upload};
use crate::random::CounterRng;
use crate::{Plan, PlanConfig};

const NODES: usize = 24;
const RUN: &str = "run 1";

fn plan(method: &str, holders: u8, cohort: Option<usize>) -> Plan {
    let holders = (0..holders).map(|holder| secret(200 + holder).public()).collect();
    let settings = MaskedSums { least: LEAST, cohort, ..MaskedSums::new(holders) };
    let config = PlanConfig::default().method(method.parse().unwrap()).nodes(NODES).budget(40);
    Plan::new(config.inputs(2).privacy(Privacy::Masked(settings))).unwrap()
}

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes([byte; 32])
}

/// All parties of a plan.
struct World {
    rules: MaskRules,
    nodes: Vec<NodeMasks>,
    holders: Vec<MaskHolder>,
    broadcast: Broadcast,
    part: PartialSum,
}

impl World {
    fn new(plan: &Plan) -> Self {
        let rules = plan.mask_rules().unwrap();
        let stream = |node: NodeId| {
            NodeMasks::new(rules.clone(), RUN, node, secret(node as u8 + 1), [node as u8; 16])
                .unwrap()
        };
        let nodes: Vec<_> = (0..NODES as NodeId).map(stream).collect();
        let holder = |at| MaskHolder::new(rules.clone(), RUN, secret(200 + at));
        let mut holders: Vec<_> = (0..rules.holders().len() as u8).map(holder).collect();
        for holder in &mut holders {
            nodes.iter().for_each(|node| holder.enrol(*node.offer()).unwrap());
        }
        let server = plan.server_method();
        let (broadcast, part) = (server.broadcast().clone(), server.part());
        Self { rules, nodes, holders, broadcast, part }
    }

    fn sum(&self) -> MaskedSum {
        let parts = core::slice::from_ref(&self.part);
        MaskedSum::new(self.rules.clone(), &[&self.broadcast], parts)
    }

    /// What a node might upload.
    fn upload(&self, node: NodeId, seed: u64) -> (Upload, Errors) {
        let chance = CounterRng::from_seed(seed).derive(crate::random::Purpose::Data, node.into());
        let numbers = 0..self.part.gathering().upload_len() as u64;
        let numbers = numbers.map(|at| (20.0 * chance.uniform_at(at) - 10.0) as f32).collect();
        let kernels = self.rules.kernels() as u64;
        let vote = (kernels > 0).then(|| (chance.bits_at(1000) % kernels) as u32);
        let errors = Errors { samples: node, squared_error: chance.uniform_at(1001) as f32 };
        (Upload { round: self.broadcast.round, vote, numbers }, errors)
    }

    fn mask(&mut self, node: NodeId, seed: u64) -> MaskedUpload {
        let (upload, errors) = self.upload(node, seed);
        let tag = RoundTag::new(&[&self.broadcast]);
        self.nodes[node as usize].mask(tag, &[upload], errors).unwrap().clone()
    }

    fn answers(&mut self, request: &MaskRequest) -> Vec<MaskAnswer> {
        self.holders.iter_mut().map(|holder| holder.answer(request).unwrap()).collect()
    }

    fn open(&self, sum: &MaskedSum, answers: &[MaskAnswer]) -> Result<OpenedSum, BadMasks> {
        sum.open(answers, alloc::vec![self.part.clone()])
    }
}

fn request(world: &World, nodes: impl IntoIterator<Item = NodeId>) -> MaskRequest {
    let mut set = Participants::default();
    nodes.into_iter().for_each(|node| _ = set.insert(node));
    let lens = alloc::vec![world.part.gathering().upload_len()];
    MaskRequest { tag: RoundTag::new(&[&world.broadcast]), lens, nodes: set }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn an_opened_sum_has_the_bits_of_the_sum_without_masks(
        seed in any::<u64>(),
        missing in 0..(1_u32 << NODES),
        order in any::<u64>(),
        cohort in proptest::option::of(Just(10)),
        holders in 1..4_u8,
    ) {
        for method in ["sk:3", "mk", "emk", "fedpoe", "naive", "gr", "tr", "linear", "linear-newton"] {
            let mut world = World::new(&plan(method, holders, cohort));
            // Many nodes are there in most cases, few of each cohort in some.
            let missing = missing & (order as u32 | if order % 3 == 0 { u32::MAX } else { 0xff });
            let mut present: Vec<_> =
                (0..NODES as NodeId).filter(|node| missing >> node & 1 == 0).collect();
            let shuffle = CounterRng::from_seed(order);
            present.sort_by_key(|node| shuffle.bits_at(u64::from(*node)));
            // A tree of sums, which are bytes on their way.
            let mut sums = [(); 4].map(|()| world.sum());
            for node in &present {
                let upload = world.mask(*node, seed);
                let at = shuffle.bits_at(100 + u64::from(*node)) % 4;
                sums[at as usize].accept(*node, &upload).unwrap();
            }
            let [mut top, mut left, right, other] = sums;
            left.merge(&MaskedSum::read(world.rules.clone(), &right.to_bytes()).unwrap()).unwrap();
            top.merge(&left).unwrap();
            top.merge(&MaskedSum::read(world.rules.clone(), &other.to_bytes()).unwrap()).unwrap();
            prop_assert_eq!(top.uploads(), present.len());

            let cohorts = world.rules.cohorts();
            let is_summed = |node: &NodeId| {
                let members = cohorts.members(cohorts.cohort_of(*node).unwrap());
                cohorts.is_whole(0, 0)
                    || members.into_iter().all(|other| present.contains(&(other as NodeId)))
            };
            let summed: Vec<_> = present.iter().copied().filter(is_summed).collect();
            if summed.len() < LEAST {
                let found = summed.len();
                prop_assert_eq!(top.request(), Err(MaskRefusal::TooFew { least: LEAST, found }));
                continue;
            }
            let request = top.request().unwrap();
            prop_assert_eq!(request.nodes.iter().count(), summed.len());
            let answers = world.answers(&request);
            let opened = world.open(&top, &answers).unwrap();

            let layout = world.rules.layout(&request.lens).unwrap();
            let mut expected = alloc::vec![0_i64; layout.words()];
            for node in &summed {
                let (upload, errors) = world.upload(*node, seed);
                let terms = world.rules.terms(core::slice::from_ref(&upload), errors);
                let words = layout.formats().zip(terms).map(|(format, term)| format.encode(term));
                expected.iter_mut().zip(words).for_each(|(sum, word)| *sum += word);
            }
            let exact = |(sum, format): (&i64, FixedPoint)| {
                *sum as f64 / (1_u64 << format.fraction()) as f64
            };
            let expected: Vec<_> = expected.iter().zip(layout.formats()).map(exact).collect();
            let gathering = opened.parts[0].gathering();
            let votes = gathering.votes().iter().map(|votes| *votes as f64);
            let found = [summed.len() as f64, opened.samples as f64, opened.squared_error];
            let found = found.into_iter().chain(gathering.totals()).chain(votes);
            prop_assert!(found.eq(expected), "{}", method);
            prop_assert!(gathering.is_sound(world.part.gathering()));
            prop_assert!(summed.iter().all(|node| gathering.has_heard(*node)));
            prop_assert_eq!(gathering.count(), summed.len());
        }
    }
}

/// χ² of bytes against even chances, less its 255 degrees of freedom, in standard deviations.
fn unevenness(bytes: impl Iterator<Item = u8>) -> f64 {
    let mut counts = [0_u32; 256];
    bytes.for_each(|byte| counts[byte as usize] += 1);
    let expected = f64::from(counts.iter().sum::<u32>()) / 256.0;
    let chi2: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2)).sum();
    (chi2 / expected - 255.0) / (2.0 * 255.0_f64).sqrt()
}

/// All bytes that a server gets in many rounds.
fn views(world: &mut World, rounds: u64) -> Vec<Vec<u8>> {
    let mut views = alloc::vec![Vec::new(); NODES];
    for round in 1..=rounds {
        world.broadcast.round = round;
        for node in 0..NODES as NodeId {
            views[node as usize].extend(world.mask(node, 1).bytes);
        }
    }
    views
}

#[test]
fn masked_uploads_are_random_bytes_and_others_are_not() {
    const ROUNDS: u64 = 300;
    let mut world = World::new(&plan("mk", 1, None));
    let views = views(&mut world, ROUNDS);
    assert!(unevenness(views.iter().flatten().copied()).abs() < 5.0);
    // Neither what differs between nodes nor what differs between rounds is less random.
    let len = views[0].len() / ROUNDS as usize;
    let between = views
        .windows(2)
        .flat_map(|pair| pair[0].iter().zip(&pair[1]).map(|(one, other)| one.wrapping_sub(*other)));
    assert!(unevenness(between).abs() < 5.0);
    let across = views.iter().flat_map(|view| view.iter().zip(&view[len..]));
    assert!(unevenness(across.map(|(one, other)| one.wrapping_sub(*other))).abs() < 5.0);
    // Of the same place in every upload, too.
    for at in 0..len {
        let at_place = views.iter().flat_map(|view| view.iter().skip(at).step_by(len).copied());
        assert!(unevenness(at_place).abs() < 6.0, "{at}");
    }
    // The test can tell: the same uploads without masks.
    let unmasked = MaskRules::without_holders(&world.rules);
    for (node, masks) in (0..).zip(&mut world.nodes) {
        *masks = NodeMasks::new(unmasked.clone(), RUN, node, secret(1), [0; 16]).unwrap();
    }
    let views = self::views(&mut world, ROUNDS);
    assert!(unevenness(views.iter().flatten().copied()) > 1000.0);
}

#[test]
fn a_server_can_t_tell_who_sent_what() {
    // Nodes swap what they upload: the server opens the same sum, and no upload is one it has seen.
    let plan = plan("mk", 1, None);
    let opened = [0, 1].map(|shift| {
        let mut world = World::new(&plan);
        let (mut sum, mut seen) = (world.sum(), Vec::new());
        for node in 0..12 {
            let (upload, errors) = world.upload((node + shift) % 12, 1);
            let masked = world.nodes[node as usize].mask(sum.tag(), &[upload], errors).unwrap();
            sum.accept(node, masked).unwrap();
            seen.push(masked.bytes.clone());
        }
        let asked = sum.request().unwrap();
        let answers = world.answers(&asked);
        (world.open(&sum, &answers).unwrap(), seen)
    });
    let [(one, first), (other, second)] = opened;
    assert_eq!(one, other);
    assert!(first.iter().all(|bytes| !second.contains(bytes)));
}

#[test]
fn an_upload_is_masked_once_whatever_is_learned_later() {
    let plan = plan("mk", 2, None);
    let (mut world, mut other) = (World::new(&plan), World::new(&plan));
    let first = world.mask(3, 1);
    assert_eq!(other.mask(3, 1), first);
    let masks = &mut world.nodes[3];
    let mut restored = NodeMasks::restore(world.rules.clone(), &masks.save()).unwrap();
    let (later, errors) = other.upload(3, 2);
    let uploads = [later];
    for masks in [masks, &mut restored] {
        assert_eq!(masks.mask(first.tag, &uploads, errors).unwrap(), &first);
        assert_eq!(masks.frozen(&first.tag), Some(&first));
        // Another broadcast of the round, or an earlier round.
        let swapped = RoundTag { broadcast: [9; 16], ..first.tag };
        assert_eq!(
            masks.mask(swapped, &uploads, errors).unwrap_err(),
            SpentRound { round: 1, last: 1 }
        );
        let early = RoundTag { round: 0, ..first.tag };
        assert!(masks.mask(early, &uploads, errors).is_err());
        assert_eq!(masks.mask(first.tag, &uploads, errors).unwrap(), &first);
        // The next round has other masks.
        let next = RoundTag { round: 2, ..first.tag };
        let second = masks.mask(next, &uploads, errors).unwrap().clone();
        assert_ne!(second.bytes, first.bytes);
        assert!(masks.mask(first.tag, &uploads, errors).is_err(), "masked twice");
        assert_eq!(masks.frozen(&first.tag), None);
    }
    let (one, two) = (world.nodes[3].save(), restored.save());
    assert_eq!(one, two);
    for at in 0..one.len() {
        assert!(NodeMasks::restore(world.rules.clone(), &one[..at]).is_err());
    }
}

#[test]
fn no_masks_are_used_twice_whatever_happens() {
    // Crashes before and after a state is stored, resends, set-backs and other broadcasts.
    let plan = plan("mk", 1, None);
    let world = World::new(&plan);
    let chance = CounterRng::from_seed(8);
    let mut sent = alloc::collections::BTreeMap::new();
    let mut masks = NodeMasks::restore(world.rules.clone(), &world.nodes[0].save()).unwrap();
    let mut stored = masks.save();
    for at in 0..3000 {
        let dice = chance.bits_at(at);
        if dice.is_multiple_of(5) {
            masks = NodeMasks::restore(world.rules.clone(), &stored).unwrap();
        }
        let round = 1 + at / 50 + (dice >> 8) % 4;
        let tag = RoundTag { round, broadcast: [(dice >> 16) as u8 % 2; 16] };
        let (upload, errors) = world.upload(0, at);
        let Ok(upload) = masks.mask(tag, &[upload], errors).cloned() else { continue };
        if dice.is_multiple_of(7) {
            // It crashes before the state is stored, and so before anything is sent.
            masks = NodeMasks::restore(world.rules.clone(), &stored).unwrap();
            continue;
        }
        stored = masks.save();
        let first = sent.entry((round, tag.broadcast)).or_insert_with(|| upload.clone());
        assert_eq!(*first, upload);
    }
    assert!(sent.len() > 50, "{}", sent.len());
}

#[test]
fn a_mask_holder_tells_one_large_set_of_each_round() {
    let mut world = World::new(&plan("mk", 1, None));
    let mut asked = request(&world, 4..20);
    let holder = &mut world.holders[0];
    let answer = holder.answer(&asked).unwrap();
    // Again, and after a restart, and after a node has opened another stream.
    assert_eq!(holder.answer(&asked).unwrap(), answer);
    let saved = holder.save();
    let mut restored = MaskHolder::restore(world.rules.clone(), secret(200), &saved).unwrap();
    let renewed = NodeMasks::new(world.rules.clone(), RUN, 5, secret(99), [99; 16]).unwrap();
    for holder in [&mut world.holders[0], &mut restored] {
        holder.enrol(*renewed.offer()).unwrap();
        assert_eq!(holder.answer(&asked).unwrap(), answer);
    }
    for other in [request(&world, 4..19), request(&world, 0..20), request(&world, 0..10)] {
        for holder in [&mut world.holders[0], &mut restored] {
            assert_eq!(holder.answer(&other), Err(MaskRefusal::OtherSet { round: 1 }));
        }
    }
    let swapped =
        MaskRequest { tag: RoundTag { broadcast: [9; 16], ..asked.tag }, ..asked.clone() };
    assert_eq!(restored.answer(&swapped), Err(MaskRefusal::OtherSet { round: 1 }));
    let shorter = MaskRequest { lens: alloc::vec![1], ..asked.clone() };
    assert!(restored.answer(&shorter).is_err());
    // The next round.
    asked.tag.round = 2;
    let next = restored.answer(&asked).unwrap();
    assert_ne!(next.bytes, answer.bytes);
    asked.tag.round = 1;
    let refused = MaskRefusal::OldRound { answered: 2, found: 1 };
    assert_eq!(restored.answer(&asked), Err(refused));
    for at in 0..saved.len() {
        let read = MaskHolder::restore(world.rules.clone(), secret(200), &saved[..at]);
        assert!(read.is_err());
    }
}

#[test]
fn a_mask_holder_refuses_small_sets_and_unknown_nodes_and_stays_as_it_was() {
    let mut world = World::new(&plan("gr", 1, None));
    assert!(world.holders[0].remove(23));
    let before = world.holders[0].save();
    for (nodes, words) in [
        ((0..9).collect::<Vec<_>>(), "at least 10 nodes, but this one has 9"),
        (Vec::new(), "but this one has 0"),
        ((0..11).collect(), "cohort 1 isn't whole"),
        ((1..11).collect(), "cohort 0 isn't whole"),
        ((0..24).collect(), "node 23 has no stream"),
        ((0..10).chain([24]).collect(), "node 24 has no stream"),
        ((0..10).chain([NodeId::MAX]).collect(), "has no stream"),
    ] {
        let request = request(&world, nodes);
        let refused = world.holders[0].answer(&request).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
    for lens in [Vec::new(), alloc::vec![41], alloc::vec![4, 4], alloc::vec![usize::MAX]] {
        let request = MaskRequest { lens, ..request(&world, 0..10) };
        assert_eq!(world.holders[0].answer(&request), Err(MaskRefusal::Malformed));
    }
    assert_eq!(world.holders[0].save(), before);
    let asked = request(&world, 0..10);
    assert!(world.holders[0].answer(&asked).is_ok());
}

#[test]
fn sums_refuse_what_does_not_belong() {
    let mut world = World::new(&plan("mk", 1, None));
    let mut sum = world.sum();
    let uploads: Vec<_> = (0..12).map(|node| world.mask(node, 1)).collect();
    for (node, upload) in (0..).zip(&uploads[..11]) {
        sum.accept(node, upload).unwrap();
    }
    let before = sum.to_bytes();
    let tag = uploads[11].tag;
    let with = |tag| MaskedUpload { tag, ..uploads[11].clone() };
    let short = MaskedUpload { tag, bytes: uploads[11].bytes[1..].to_vec() };
    let refused = [
        sum.accept(3, &uploads[3]),
        sum.accept(24, &uploads[11]),
        sum.accept(11, &short),
        sum.accept(11, &with(RoundTag { round: 2, ..tag })),
        sum.accept(11, &with(RoundTag { broadcast: [9; 16], ..tag })),
    ];
    assert!(matches!(
        refused.map(Result::unwrap_err),
        [
            Rejected::Duplicate { node: 3, round: 1 },
            Rejected::UnknownNode { node: 24 },
            Rejected::Garbled { .. },
            Rejected::WrongRound { open: 1, found: 2 },
            Rejected::OtherBroadcast { round: 1 },
        ]
    ));
    assert!(matches!(sum.merge(&sum.clone()), Err(Rejected::Duplicate { .. })));
    assert_eq!(sum.to_bytes(), before);
    assert_eq!(world.open(&sum, &[]), Err(BadMasks::NotAsked));
    let asked = sum.request().unwrap();
    assert_eq!(sum.accept(11, &uploads[11]), Err(Rejected::MasksAsked { round: 1 }));
    assert_eq!(sum.request().unwrap(), asked);
    // So after a restart.
    let mut restored = MaskedSum::read(world.rules.clone(), &sum.to_bytes()).unwrap();
    assert_eq!(restored.accept(11, &uploads[11]), Err(Rejected::MasksAsked { round: 1 }));
    assert_eq!(restored.request().unwrap(), asked);
    let answers = world.answers(&asked);
    assert_eq!(world.open(&restored, &answers), world.open(&sum, &answers));
    for at in 0..before.len() {
        assert!(MaskedSum::read(world.rules.clone(), &before[..at]).is_err());
    }
}

#[test]
fn masks_that_do_not_fit_are_noticed() {
    let mut world = World::new(&plan("mk", 2, None));
    let mut sum = world.sum();
    for node in 0..12 {
        let upload = world.mask(node, 1);
        sum.accept(node, &upload).unwrap();
    }
    let asked = sum.request().unwrap();
    let answers = world.answers(&asked);
    let holder = world.rules.holders()[1];
    assert_eq!(world.open(&sum, &answers[..1]), Err(BadMasks::Missing { holder }));
    let mut late = answers.clone();
    late[1].tag.round = 2;
    assert_eq!(world.open(&sum, &late), Err(BadMasks::Missing { holder }));
    let mut swapped = answers.clone();
    swapped[0].bytes = answers[1].bytes.clone();
    let mut short = answers.clone();
    short[1].bytes.pop();
    for spoilt in [swapped, short] {
        assert_eq!(world.open(&sum, &spoilt), Err(BadMasks::Senseless));
    }
    assert!(world.open(&sum, &answers).is_ok());
    // A node with a stream that the mask holders don't know.
    let mut world = World::new(&plan("mk", 1, None));
    world.nodes[3] = NodeMasks::new(world.rules.clone(), RUN, 3, secret(99), [3; 16]).unwrap();
    let mut sum = world.sum();
    for node in 0..12 {
        let upload = world.mask(node, 1);
        sum.accept(node, &upload).unwrap();
    }
    let asked = sum.request().unwrap();
    let answers = world.answers(&asked);
    assert_eq!(world.open(&sum, &answers), Err(BadMasks::Senseless));
}
