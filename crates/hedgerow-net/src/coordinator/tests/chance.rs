//! Random events in random order.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Event {
    Join(NodeId, u64),
    Leave(NodeId, u64),
    Upload(NodeId, u64, i8, f32, u8),
    Report(NodeId, f32),
    Idle(NodeId, u64),
    Pass(u16),
    Close,
    Commit,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let (node, stream) = (0u32..5, 0u64..3);
    let event = prop_oneof![
        2 => (node.clone(), stream.clone()).prop_map(|(node, stream)| Event::Join(node, stream)),
        1 => (node.clone(), stream.clone()).prop_map(|(node, stream)| Event::Leave(node, stream)),
        1 => (node.clone(), stream.clone()).prop_map(|(node, stream)| Event::Idle(node, stream)),
        8 => (node.clone(), stream, -4i8..2, prop_oneof![Just(1.0f32), any::<f32>()], 0u8..5)
            .prop_map(|(node, stream, ago, number, vote)| Event::Upload(node, stream, ago, number, vote)),
        1 => (node, 1.0f32..50.0).prop_map(|(node, count)| Event::Report(node, count)),
        2 => (0u16..200).prop_map(Event::Pass),
        1 => Just(Event::Close),
        4 => Just(Event::Commit),
    ];
    proptest::collection::vec(event, 1..200)
}

proptest! {
    #[test]
    fn whatever_happens_rounds_only_grow_and_nothing_counts_twice(
        events in events(),
        quorum in prop_oneof![(1usize..5).prop_map(Quorum::Count), (0.1f64..=1.0).prop_map(Quorum::Share)],
        least in 1usize..3,
        deadline in proptest::option::of(1u64..150),
        cadence in proptest::option::weighted(0.2, 1u64..150),
        silent_after in proptest::option::of(1u32..4),
        merges in any::<bool>(),
        online in any::<bool>(),
    ) {
        let span = |ms: Option<u64>| ms.map(Duration::from_millis);
        let late = if merges { Late::Merge { rounds: 2 } } else { Late::Drop };
        let (deadline, cadence) = (span(deadline), span(cadence));
        let rules = Rules { quorum, least, deadline, cadence, silent_after, late };
        let scaling = if online { Scaling::Online { kind: ScaleKind::Spread } } else { Scaling::None };
        let limits = Limits { messages_per_second: 20, ..Limits::default() };
        let mut fixture = coordinator_of(learning("mk").scaling(scaling), rules, limits);
        let (mut told, mut counted, mut merged, mut again, mut recorded, mut in_round) = (1, 0, 0, 0, 0, vec![]);
        for event in events {
            match event {
                Event::Join(node, stream) => _ = fixture.join_on(node, stream),
                Event::Leave(node, stream) => fixture.coordinator.leave(Sender { node, stream }, Sent::default(), 0),
                Event::Upload(node, stream, ago, number, vote) => {
                    let open = fixture.coordinator.round;
                    let round = open.saturating_add_signed(i64::from(ago));
                    let upload = Upload { vote: Some(vote.into()), ..upload(round, number) };
                    let sender = Sender { node, stream };
                    let (before, samples) = (fixture.saved(), fixture.coordinator.tally.samples);
                    match fixture.hear(sender, Said::Upload(&mut [upload], ERRORS, &[])) {
                        Ok(Some((verdict @ (Verdict::Taken | Verdict::Merged), _))) => {
                            counted += 1;
                            merged += u64::from(verdict == Verdict::Merged);
                            prop_assert!(!in_round.contains(&(open, node)));
                            in_round.push((open, node));
                        }
                        _ => {
                            prop_assert_eq!(fixture.saved(), before);
                            again += fixture.coordinator.tally.samples - samples;
                        }
                    }
                }
                Event::Report(node, count) => {
                    let numbers = [[count.floor(), 0.5, 0.25, 0.0, 1.0]; 3].concat();
                    _ = fixture.hear(fixture.sender(node), Said::Report(Report { numbers }));
                }
                Event::Idle(node, stream) => {
                    _ = fixture.hear(Sender { node, stream }, Said::Idle);
                }
                Event::Pass(ms) => fixture.pass(ms.into()),
                Event::Close => drop(fixture.close().map(|_| ())),
                Event::Commit => {
                    if let Some((opening, commit)) = fixture.coordinator.committed(fixture.now) {
                        let record = commit.record.as_ref();
                        prop_assert!(opening.round >= told);
                        prop_assert_eq!(opening.round - told, u64::from(record.is_some()));
                        told = opening.round;
                        recorded += record.map_or(0, |record| record.uploads);
                    }
                }
            }
            if fixture.is_due() {
                prop_assert!(fixture.close().is_some());
            }
            prop_assert!(fixture.coordinator.wake_at(fixture.now).is_none_or(|wake| wake > fixture.now));
            let Coordinator { members, connected, answered, answered_connected, turn, .. } = &fixture.coordinator;
            prop_assert_eq!(members.iter().filter(|member| member.is_connected()).count(), *connected);
            prop_assert_eq!(members.iter().filter(|member| member.is_idle).count(), fixture.coordinator.idle);
            let here = |member: &&Member| member.answered == *turn && member.is_connected();
            prop_assert_eq!(members.iter().filter(here).count(), *answered_connected);
            prop_assert_eq!(members.iter().filter(|member| member.answered == *turn).count(), *answered);
        }
        if let Some((_, commit)) = fixture.coordinator.committed(fixture.now) {
            recorded += commit.record.as_ref().map_or(0, |record| record.uploads);
        }
        prop_assert_eq!(recorded + fixture.coordinator.uploads() as u64, counted);
        let totals = fixture.coordinator.totals();
        prop_assert_eq!(totals.uploads, recorded);
        let samples = totals.samples + fixture.coordinator.tally.samples;
        prop_assert_eq!(samples, 2 * (counted - merged) + again);
        prop_assert!(again <= 2 * merged, "errors of merged ones come again, and only those");
    }
}
