//! Rounds with invented time, nodes and faults.

use std::time::Duration;

use hedgerow::PlanConfig;
use hedgerow::features::Kernel;
use hedgerow::message::{Errors, Numbers, Rejected, Report, ToNode, Upload};
use hedgerow::plan::Scaling;
use hedgerow::scaling::ScaleKind;

use super::*;

mod chance;
mod messages;
mod silence;
mod suspicion;

const NODES: usize = 4;
/// Numbers of a model.
const LEN: usize = 4;

fn learning(method: &str) -> PlanConfig {
    let budget = if method == "gr" { 24 } else { LEN + 2 };
    PlanConfig::default()
        .method(method.parse().unwrap())
        .kernels([0.1, 1.0, 10.0].map(Kernel::gaussian).to_vec())
        .inputs(2)
        .nodes(NODES)
        .budget(budget)
        .seed(3)
        .target("y".into())
}

/// A coordinator and its clock.
struct TestCoordinator {
    coordinator: Coordinator,
    now: Instant,
}

const RULES: Rules = Rules {
    quorum: Quorum::Share(1.0),
    least: 1,
    deadline: None,
    cadence: None,
    silent_after: None,
    late: Late::Drop,
};

fn coordinator_of(learning: PlanConfig, rules: Rules, limits: Limits) -> TestCoordinator {
    let now = Instant::now();
    let plan = Plan::new(learning).unwrap();
    TestCoordinator {
        coordinator: Coordinator::new(plan, rules, limits, None, vec![], now).unwrap(),
        now,
    }
}

fn fixture(rules: Rules) -> TestCoordinator {
    coordinator_of(learning("mk"), rules, Limits::default())
}

fn upload(round: u64, number: f32) -> Upload {
    Upload { round, vote: Some(1), numbers: vec![number; LEN] }
}

const ERRORS: Errors = Errors { samples: 2, squared_error: 3.0 };

impl TestCoordinator {
    fn sender(&self, node: NodeId) -> Sender {
        let stream = self.coordinator.members.get(node as usize).and_then(|member| member.stream);
        Sender { node, stream: stream.unwrap_or(0) }
    }

    /// Joins on a stream.
    fn join_on(&mut self, node: NodeId, stream: u64) -> (Ledger, Option<u64>) {
        let (name, sender) = (format!("n{node}"), Sender { node, stream });
        self.coordinator.join(
            Newcomer { sender, name: &name, certificate: None, software: "test", address: "here" },
            1,
        )
    }

    fn join(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        for node in nodes {
            self.join_on(node, u64::from(node) + 1);
        }
    }

    fn leave(&mut self, node: NodeId) {
        self.coordinator.leave(self.sender(node), Sent::default(), 2);
    }

    fn hear(&mut self, sender: Sender, said: Said<'_>) -> HearingResult {
        self.coordinator.hear(sender, said, Envelope::default(), (self.now, 0))
    }

    fn send(&mut self, node: NodeId, upload: Upload) -> Result<(Verdict, Ledger), Refusal> {
        let envelope = Envelope { bytes: 100, sent: Sent { bytes: 50, broadcasts: 1 } };
        let said = Said::Upload(&mut [upload], ERRORS, &[]);
        let heard = self.coordinator.hear(self.sender(node), said, envelope, (self.now, 3));
        heard.map(Option::unwrap)
    }

    fn verdict(&mut self, node: NodeId, round: u64) -> Verdict {
        self.send(node, upload(round, node as f32)).unwrap().0
    }

    fn idle(&mut self, node: NodeId) {
        self.hear(self.sender(node), Said::Idle).unwrap();
    }

    fn refusal(&mut self, node: NodeId, upload: Upload) -> String {
        self.send(node, upload).unwrap_err().reason.to_string()
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    fn is_due(&mut self) -> bool {
        self.coordinator.is_due(self.now)
    }

    fn close(&mut self) -> Option<&Arc<Commit>> {
        let closing = self.coordinator.close(4, WireBytes::default())?;
        Some(self.coordinator.closed(closing.work()))
    }

    fn saved(&self) -> Vec<u8> {
        self.coordinator.server.as_ref().unwrap().save()
    }

    /// Closes the round if it is due, and stores it; the round that is open then.
    fn step(&mut self) -> u64 {
        if self.is_due() {
            self.close().unwrap();
            self.coordinator.committed(self.now).unwrap();
        }
        self.coordinator.opening.round
    }
}

#[test]
fn a_round_closes_when_all_who_are_there_have_answered() {
    let mut fixture = fixture(RULES);
    assert!(!fixture.is_due() && fixture.close().is_none());
    fixture.join(0..3);
    for node in 0..2 {
        assert_eq!(fixture.verdict(node, 1), Verdict::Taken);
        assert!(!fixture.is_due());
    }
    assert_eq!(fixture.coordinator.needed(), Some(3));
    fixture.verdict(2, 1);
    assert_eq!(fixture.step(), 2);
    let mean = (0.0 + 1.0 + 2.0) / 3.0;
    let ToNode::Broadcast(told) = fixture.coordinator.opening.broadcast(0, false) else { panic!() };
    assert_eq!(told.heads[0].numbers, Numbers::Plain(vec![mean; LEN]));
    assert_eq!(fixture.coordinator.uploads(), 0);
    // A node that left is not expected; its upload still counts.
    fixture.verdict(0, 2);
    fixture.verdict(1, 2);
    fixture.leave(0);
    assert!(!fixture.is_due());
    fixture.leave(2);
    assert_eq!(fixture.step(), 3);
    // No node is connected, so nothing closes. A returning node counts again.
    fixture.verdict(1, 3);
    fixture.join([2]);
    fixture.leave(1);
    fixture.leave(2);
    assert!(!fixture.is_due());
    fixture.join([1]);
    assert_eq!(fixture.step(), 4);
}

#[test]
fn a_quorum_may_be_a_count_or_a_share() {
    let mut count = fixture(Rules { quorum: Quorum::Count(3), ..RULES });
    count.join(0..4);
    count.verdict(0, 1);
    count.verdict(1, 1);
    // It counts answers, independent of nodes that leave.
    (1..4).for_each(|node| count.leave(node));
    assert!(!count.is_due());
    count.join([3]);
    count.verdict(3, 1);
    assert!(count.is_due());

    let mut share = fixture(Rules { quorum: Quorum::Share(0.5), ..RULES });
    share.join(0..4);
    share.verdict(0, 1);
    assert!(!share.is_due());
    share.verdict(1, 1);
    assert!(share.is_due());
    // What those who left have said doesn't make it a quorum of those who are there.
    share.leave(0);
    share.leave(1);
    assert!(!share.is_due());

    let mut least = fixture(Rules { least: 2, ..RULES });
    least.join([0]);
    least.verdict(0, 1);
    assert!(!least.is_due());
    least.join([1]);
    least.verdict(1, 1);
    assert!(least.is_due());
}

#[test]
fn a_deadline_counts_from_the_first_answer() {
    let deadline = Duration::from_millis(100);
    let mut fixture = fixture(Rules { deadline: Some(deadline), least: 2, ..RULES });
    fixture.join(0..4);
    let start = fixture.now;
    assert_eq!(fixture.coordinator.wake_at(fixture.now), Some(start + deadline));
    fixture.pass(5000);
    fixture.verdict(0, 1);
    fixture.verdict(1, 1);
    assert!(!fixture.is_due(), "the others have time from the first answer on");
    assert_eq!(fixture.coordinator.wake_at(fixture.now), Some(start + Duration::from_millis(5100)));
    fixture.pass(99);
    assert!(!fixture.is_due());
    fixture.pass(1);
    assert_eq!(fixture.step(), 2);
    // Too few by then: it closes with the one that is missing.
    fixture.verdict(0, 2);
    fixture.pass(200);
    assert!(!fixture.is_due());
    assert!(fixture.coordinator.wake_at(fixture.now) > Some(fixture.now));
    fixture.verdict(3, 2);
    assert_eq!(fixture.step(), 3);
}

#[test]
fn a_cadence_is_a_fixed_beat() {
    let mut fixture = fixture(Rules { cadence: Some(Duration::from_millis(100)), ..RULES });
    fixture.join([0]);
    let start = fixture.now;
    fixture.verdict(0, 1);
    assert!(!fixture.is_due(), "all have answered, but it isn't time");
    fixture.pass(100);
    assert_eq!(fixture.step(), 2);
    // A beat without anybody passes.
    fixture.pass(100);
    assert!(!fixture.is_due());
    fixture.pass(30);
    fixture.verdict(0, 2);
    assert!(!fixture.is_due());
    assert_eq!(fixture.coordinator.wake_at(fixture.now), Some(start + Duration::from_millis(300)));
    // Looked at too late, the next one is still on the beat.
    fixture.pass(1_234);
    assert_eq!(fixture.step(), 3);
    assert_eq!(
        fixture.coordinator.wake_at(fixture.now),
        Some(start + Duration::from_millis(1_500))
    );
    assert_eq!(fixture.coordinator.needed(), None);
}

#[test]
fn what_is_not_committed_is_not_told_and_nothing_is_lost_or_counted_twice() {
    let mut fixture = fixture(Rules { quorum: Quorum::Count(2), ..RULES });
    fixture.join(0..3);
    fixture.verdict(0, 1);
    fixture.verdict(1, 1);
    let first = fixture.close().unwrap();
    assert_eq!((first.round, first.record.as_ref().unwrap().round), (2, 1));
    let bytes = (first.server.clone(), first.totals.clone());
    // The disk is full: nodes know round 1 still, and what comes for it is too late.
    for _ in 0..3 {
        assert_eq!(fixture.coordinator.opening().round, 1);
        assert!(!fixture.is_due() && fixture.close().is_none());
    }
    let (verdict, ledger) = fixture.send(2, upload(1, 7.0)).unwrap();
    assert_eq!((verdict, ledger.taken(2)), (Verdict::Late, 0));
    fixture.leave(0);
    fixture.join_on(0, 50);
    assert_eq!(fixture.coordinator.members[0].ledger.taken(1), 0, "not before it is committed");
    // There is room again: the very same is committed, once.
    let pending = fixture.coordinator.closing().unwrap();
    assert_eq!((&pending.server, &pending.totals), (&bytes.0, &bytes.1));
    let (opening, commit) = fixture.coordinator.committed(fixture.now).unwrap();
    assert_eq!((opening.round, commit.record.as_ref().unwrap().uploads), (2, 2));
    assert!(fixture.coordinator.committed(fixture.now).is_none());
    assert_eq!(fixture.coordinator.members[0].ledger.taken(2), 1);
    fixture.verdict(0, 2);
    fixture.verdict(2, 2);
    assert_eq!(fixture.step(), 3);
    let totals = fixture.coordinator.totals();
    assert_eq!((totals.rounds, totals.uploads, totals.samples, totals.late), (2, 4, 8, 1));
    assert_eq!((totals.votes.as_slice(), totals.selected.iter().sum::<u64>()), (&[0, 4, 0][..], 2));
}

#[test]
fn reports_that_come_during_the_work_of_a_round_count_after_it() {
    let [mut waiting, mut undisturbed] = [(); 2].map(|()| {
        let online = Scaling::Online { kind: ScaleKind::Range };
        coordinator_of(learning("mk").scaling(online), RULES, Limits::default())
    });
    let column = |count: f32| [count, 0.5, 0.25, 0.0, 1.0];
    let report = |count| Said::Report(Report { numbers: [column(count); 3].concat() });
    for fixture in [&mut waiting, &mut undisturbed] {
        fixture.join(0..2);
        fixture.hear(fixture.sender(0), report(10.0)).unwrap();
    }
    let closing = waiting.coordinator.close(4, WireBytes::default()).unwrap();
    assert!(!waiting.is_due() && waiting.close().is_none());
    for count in [3.0, 20.0] {
        waiting.hear(waiting.sender(1), report(count)).unwrap();
    }
    let lying = Said::Report(Report { numbers: vec![-1.0; 15] });
    assert!(waiting.hear(waiting.sender(0), lying).is_ok(), "nobody can tell yet");
    waiting.coordinator.closed(closing.work());
    assert_eq!((waiting.coordinator.answered, waiting.coordinator.totals.refused), (1, 1));
    undisturbed.close().unwrap();
    undisturbed.hear(undisturbed.sender(1), report(20.0)).unwrap();
    let scaling =
        |fixture: &TestCoordinator| fixture.coordinator.server.as_ref().unwrap().save_scaling();
    assert_eq!(scaling(&waiting), scaling(&undisturbed));
}

#[test]
fn a_run_goes_on_from_what_was_committed() {
    let rules = Rules { quorum: Quorum::Count(2), ..RULES };
    let (mut undisturbed, mut killed) = (fixture(rules), fixture(rules));
    let mut saved = None;
    for round in 1..=3 {
        for fixture in [&mut undisturbed, &mut killed] {
            fixture.join(0..2);
            (0..2).for_each(|node| assert_eq!(fixture.verdict(node, round), Verdict::Taken));
        }
        undisturbed.step();
        let Commit { round, server, scaling, totals, .. } = Commit::clone(killed.close().unwrap());
        saved = Some(Saved { round, server, scaling, totals });
        // Killed before anybody hears of it.
        let nodes = killed.coordinator.changed_nodes(9);
        assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n0", "n1"]);
        let plan = killed.coordinator.plan.clone();
        killed.coordinator =
            Coordinator::new(plan, rules, Limits::default(), saved.as_ref(), nodes, killed.now)
                .unwrap();
    }
    assert_eq!(killed.coordinator.opening().round, 4);
    assert_eq!(killed.saved(), undisturbed.saved());
    let told = |fixture: &TestCoordinator| fixture.coordinator.opening().broadcast(0, false);
    assert_eq!(told(&killed), told(&undisturbed));
    // Who was taken is known, and what was counted.
    let (ledger, _) = killed.join_on(1, 9);
    assert_eq!(ledger.taken(4), 3);
    assert_eq!(killed.join_on(3, 9).0.taken(4), 0);
    let [a, b] = [&killed, &undisturbed].map(|fixture| fixture.coordinator.totals().clone());
    assert_eq!(
        (a.rounds, a.samples, a.squared_error, a.acknowledged),
        (3, b.samples, b.squared_error, b.acknowledged)
    );
    // What doesn't fit is refused.
    let restore = |method, saved: &Saved| {
        let plan = Plan::new(learning(method)).unwrap();
        Coordinator::new(plan, rules, Limits::default(), Some(saved), vec![], Instant::now())
            .map(|_| ())
    };
    let saved = saved.unwrap();
    assert!(restore("mk", &saved).is_ok());
    assert!(restore("naive", &saved).is_err());
    let error = restore("mk", &Saved { round: 9, ..saved.clone() }).unwrap_err().to_string();
    assert!(error.contains("round 4") && error.contains("round 9"), "{error}");
    assert!(restore("mk", &Saved { scaling: Some(vec![]), ..saved.clone() }).is_err());
    assert!(restore("mk", &Saved { totals: vec![], ..saved }).is_err());
}

#[test]
fn nobody_waits_for_those_who_have_nothing_to_answer_with() {
    let mut fixture = fixture(RULES);
    fixture.join(0..4);
    for round in 1..=3 {
        fixture.verdict(0, round);
        fixture.verdict(1, round);
        if round == 1 {
            assert!(!fixture.is_due());
            [2, 3].into_iter().for_each(|node| fixture.idle(node));
        }
        assert_eq!((fixture.coordinator.needed(), fixture.step()), (Some(2), round + 1));
    }
    // A node that answers again is expected again.
    (0..3).for_each(|node| _ = fixture.verdict(node, 4));
    assert_eq!((fixture.coordinator.needed(), fixture.step()), (Some(3), 5));
    (0..2).for_each(|node| _ = fixture.verdict(node, 5));
    assert!(!fixture.is_due());
    // So is a returning node, until it says that it is idle.
    fixture.idle(2);
    fixture.join_on(3, 99);
    assert!(!fixture.is_due());
    fixture.leave(3);
    assert_eq!(fixture.step(), 6);
    // Without expected nodes nothing happens.
    [0, 1].into_iter().for_each(|node| fixture.idle(node));
    assert!(!fixture.is_due());
}

#[test]
fn takers_are_those_of_the_latest_round() {
    let rules = Rules { quorum: Quorum::Count(1), ..RULES };
    let mut fixture = fixture(rules);
    fixture.join(0..2);
    for (node, round) in [(0, 1), (1, 2), (1, 3)] {
        assert_eq!(fixture.verdict(node, round), Verdict::Taken);
        assert_eq!(fixture.step(), round + 1);
    }
    let acknowledged = &fixture.coordinator.totals().acknowledged;
    assert_eq!([0, 1].map(|node| acknowledged.contains(node)), [false, true]);
}

#[test]
fn nodes_are_stored_when_they_have_changed() {
    let mut fixture = fixture(RULES);
    fixture.join(0..3);
    assert_eq!(fixture.coordinator.changed_nodes(2).len(), 2);
    let last = fixture.coordinator.changed_nodes(2);
    assert_eq!((last.len(), last[0].number), (1, 2));
    assert!(fixture.coordinator.changed_nodes(2).is_empty());
    fixture.coordinator.changed_again(&last);
    fixture.verdict(1, 1);
    let changed = fixture.coordinator.changed_nodes(9);
    assert_eq!(changed.iter().map(|node| node.number).collect::<Vec<_>>(), [1, 2]);
    let NodeRecord { uploads, samples, squared_error, bytes_up, bytes_down, last_seen_ms, .. } =
        changed[0];
    assert_eq!(
        (uploads, samples, squared_error, bytes_up, bytes_down, last_seen_ms),
        (1, 2, 3.0, 100, 50, 3)
    );
}

#[test]
fn without_a_scale_there_are_no_uploads_and_reports_are_answers() {
    let online = Scaling::Online { kind: ScaleKind::Range };
    let deadline = Some(Duration::from_millis(100));
    let mut fixture = coordinator_of(
        learning("mk").scaling(online).scale_nodes(2),
        Rules { deadline, ..RULES },
        Limits::default(),
    );
    fixture.join(0..2);
    assert_eq!(
        fixture.send(0, upload(1, 1.0)).unwrap_err().reason,
        Refused::Rejected(Rejected::Unscaled)
    );
    // Count, mean, deviation, least and greatest of each column.
    let column = |count: f32| [count, 0.5, 0.25, 0.0, 1.0];
    let report = |count| Report { numbers: [column(count); 3].concat() };
    let send = |fixture: &mut TestCoordinator, node, report: &Report| {
        fixture.hear(fixture.sender(node), Said::Report(report.clone()))
    };
    send(&mut fixture, 0, &report(10.0)).unwrap();
    send(&mut fixture, 0, &report(11.0)).unwrap();
    assert_eq!((fixture.coordinator.answered, fixture.is_due()), (1, false));
    assert_eq!(fixture.coordinator.scale_shortage(), Some((1, 2)));
    let lying = Report { numbers: vec![-1.0; 15] };
    assert!(send(&mut fixture, 1, &lying).unwrap_err().reason.to_string().contains("column 0"));
    fixture.pass(100);
    assert!(fixture.is_due());
    // Too few labels: what was said is stored, and nothing is told.
    let before = Arc::clone(fixture.coordinator.opening());
    let closing = fixture.close().unwrap();
    assert_eq!((closing.round, closing.record.is_some()), (1, false));
    let (opening, _) = fixture.coordinator.committed(fixture.now).unwrap();
    assert!(Arc::ptr_eq(&opening, &before));
    send(&mut fixture, 1, &report(20.0)).unwrap();
    send(&mut fixture, 0, &report(22.0)).unwrap();
    assert_eq!(fixture.step(), 1);
    assert_eq!(fixture.coordinator.opening().scale_version, 1);
    // From now on reports are no answers.
    send(&mut fixture, 0, &report(44.0)).unwrap();
    assert_eq!(fixture.coordinator.answered, 0);
    assert_eq!(fixture.verdict(0, 1), Verdict::Taken);
}
