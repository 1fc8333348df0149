//! Nodes that say nothing while rounds wait for them.

use super::*;

const DEADLINE: u64 = 1_000;

fn rules(silent_after: Option<u32>) -> Rules {
    Rules { deadline: Some(Duration::from_millis(DEADLINE)), silent_after, ..RULES }
}

/// The three others answer; whether the round closes without waiting.
fn others_answer(fixture: &mut TestCoordinator) -> bool {
    let round = fixture.coordinator.opening.round;
    (0..3).for_each(|node| assert_eq!(fixture.verdict(node, round), Verdict::Taken));
    let closes = fixture.step() > round;
    if !closes {
        fixture.pass(DEADLINE);
        assert_eq!(fixture.step(), round + 1);
    }
    closes
}

fn told(fixture: &mut TestCoordinator) -> Vec<&'static str> {
    let kinds: Vec<_> = fixture.coordinator.events.take().iter().map(Event::kind).collect();
    kinds.into_iter().filter(|kind| *kind != "node-joined" && *kind != "node-left").collect()
}

fn silent(fixture: &TestCoordinator) -> Option<u32> {
    fixture.coordinator.members[3].silent_for()
}

#[test]
fn a_silent_node_is_waited_for_a_few_times_only_and_until_it_speaks() {
    let mut fixture = fixture(rules(Some(3)));
    fixture.join(0..4);
    let closes: Vec<bool> = (0..10).map(|_| others_answer(&mut fixture)).collect();
    assert_eq!(closes, [[false; 3].as_slice(), &[true; 7]].concat());
    assert_eq!((silent(&fixture), told(&mut fixture)), (Some(3), vec!["node-silent"]));
    assert_eq!(fixture.coordinator.needed(), Some(3));
    // An upload that comes late is a sign, too.
    assert_eq!(fixture.verdict(3, 10), Verdict::Late);
    assert_eq!((silent(&fixture), told(&mut fixture)), (None, vec!["node-back"]));
    assert_eq!(fixture.coordinator.needed(), Some(4));
    // It is waited for again, as often as before.
    let closes: Vec<bool> = (0..5).map(|_| others_answer(&mut fixture)).collect();
    assert_eq!(closes, [false, false, false, true, true]);
}

#[test]
fn who_answers_now_and_then_is_waited_for() {
    let mut fixture = fixture(rules(Some(3)));
    fixture.join(0..4);
    for _ in 0..4 {
        assert!(!others_answer(&mut fixture) && !others_answer(&mut fixture));
        let round = fixture.coordinator.opening.round;
        fixture.verdict(3, round);
        assert!(others_answer(&mut fixture));
    }
    assert_eq!(told(&mut fixture), Vec::<&str>::new());
    // Nor is one silent that has nothing to say, or that has left.
    (0..2).for_each(|_| _ = others_answer(&mut fixture));
    fixture.idle(3);
    assert!((0..5).all(|_| others_answer(&mut fixture)));
    fixture.leave(3);
    assert!((0..5).all(|_| others_answer(&mut fixture)));
    assert_eq!((silent(&fixture), told(&mut fixture)), (None, vec![]));
}

#[test]
fn a_new_stream_is_a_new_chance() {
    let mut fixture = fixture(rules(Some(2)));
    fixture.join(0..4);
    (0..5).for_each(|_| _ = others_answer(&mut fixture));
    assert_eq!(silent(&fixture), Some(2));
    fixture.join_on(3, 9);
    assert_eq!((silent(&fixture), fixture.coordinator.needed()), (None, Some(4)));
    let closes: Vec<bool> = (0..3).map(|_| others_answer(&mut fixture)).collect();
    assert_eq!(closes, [false, false, true]);
    fixture.leave(3);
    assert_eq!((fixture.coordinator.connected(), fixture.coordinator.needed()), (3, Some(3)));
}

#[test]
fn rounds_may_wait_for_everybody_for_ever() {
    let mut fixture = fixture(rules(None));
    fixture.join(0..4);
    assert!((0..10).all(|_| !others_answer(&mut fixture)));
    assert_eq!((silent(&fixture), told(&mut fixture)), (None, vec![]));
}
