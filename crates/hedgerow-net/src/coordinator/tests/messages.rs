//! What becomes of single messages.

use hedgerow::learning::Loss;

use super::*;

#[test]
fn late_uploads_are_dropped_and_counted() {
    let mut fixture = fixture(Rules { quorum: Quorum::Count(1), ..RULES });
    fixture.join(0..2);
    fixture.verdict(0, 1);
    fixture.step();
    let (verdict, ledger) = fixture.send(1, upload(1, 9.0)).unwrap();
    assert_eq!((verdict, ledger.taken(2)), (Verdict::Late, 0));
    assert_eq!(fixture.coordinator.uploads(), 0);
    assert_eq!(
        (fixture.coordinator.totals.late, fixture.coordinator.members[1].record.late),
        (1, 1)
    );
    assert_eq!(fixture.coordinator.totals.refused, 0);
    fixture.verdict(1, 2);
    let closing = fixture.close().unwrap();
    assert_eq!(closing.record.as_ref().map(|record| (record.late, record.uploads)), Some((1, 1)));
}

#[test]
fn late_models_may_count_in_the_open_round() {
    let mut fixture =
        fixture(Rules { quorum: Quorum::Count(1), late: Late::Merge { rounds: 2 }, ..RULES });
    fixture.join(0..4);
    // All vote for kernel 1 from round 2 on, so that the same kernel is asked for.
    for round in 1..=4 {
        fixture.verdict(0, round);
        assert_eq!(fixture.step(), round + 1);
    }
    let asked: Vec<_> =
        fixture.coordinator.asked.iter().map(|asked| (asked.round, asked.kernel)).collect();
    assert_eq!(asked, [(3, Some(1)), (4, Some(1)), (5, Some(1))]);
    assert_eq!(fixture.verdict(1, 2), Verdict::Late, "too old");
    let (verdict, ledger) = fixture.send(1, upload(3, 1.0)).unwrap();
    // Its errors come again with the next upload, so they don't count here, and it isn't told that
    // it was taken.
    assert_eq!((verdict, ledger.taken(5), ledger.taken(6)), (Verdict::Merged, 0, 0));
    assert_eq!(
        (fixture.coordinator.tally.samples, fixture.coordinator.members[1].record.samples),
        (0, 0)
    );
    assert!(!fixture.coordinator.acknowledged.contains(1));
    assert_eq!(fixture.verdict(1, 4), Verdict::Late, "it has one in the open round");
    assert_eq!((fixture.coordinator.uploads(), fixture.coordinator.totals.late), (1, 3));
    // Another kernel is asked for: an old model is of no use.
    fixture.coordinator.asked.back_mut().unwrap().kernel = Some(2);
    assert_eq!(fixture.verdict(2, 4), Verdict::Late);
    fixture.coordinator.asked.iter_mut().for_each(|asked| asked.kernel = None);
    fixture.coordinator.asked.back_mut().unwrap().scale = 1;
    assert_eq!(fixture.verdict(3, 4), Verdict::Late, "another scale");
    // A method whose uploads are no models.
    let rules = Rules { quorum: Quorum::Count(1), late: Late::Merge { rounds: 2 }, ..RULES };
    let mut pof = coordinator_of(learning("pof"), rules, Limits::default());
    pof.join(0..2);
    let len = pof.coordinator.plan.setup().model_len();
    let model = |round| Upload { round, vote: Some(0), numbers: vec![0.5; len] };
    pof.send(0, model(1)).unwrap();
    pof.step();
    assert_eq!(pof.send(1, model(1)).unwrap().0, Verdict::Late);
}

#[test]
fn a_late_model_that_comes_during_the_work_of_a_round_counts_after_it() {
    let rules = Rules { quorum: Quorum::Count(1), late: Late::Merge { rounds: 2 }, ..RULES };
    let [mut during, mut after] = [(); 2].map(|()| {
        let mut fixture = fixture(rules);
        fixture.join(0..3);
        for round in 1..=3 {
            fixture.verdict(0, round);
            fixture.step();
        }
        fixture.verdict(0, 4);
        fixture
    });
    let closing = during.coordinator.close(4, WireBytes::default()).unwrap();
    // The latest of a node counts, once, without being acknowledged.
    assert_eq!((during.verdict(1, 3), during.verdict(1, 4)), (Verdict::Late, Verdict::Late));
    assert!(during.send(1, upload(4, 1.0)).is_err());
    // What only the server can tell is refused when it is back.
    assert_eq!(during.send(2, upload(4, f32::NAN)).unwrap().0, Verdict::Late);
    assert_eq!(during.coordinator.waiting_uploads.len(), 2);
    during.coordinator.closed(closing.work());
    assert!(during.coordinator.waiting_uploads.is_empty());
    assert_eq!(during.coordinator.totals.refused, 2);
    assert!(!during.coordinator.acknowledged.contains(1));
    assert_eq!((during.coordinator.uploads(), during.coordinator.answered), (1, 1));
    // The same as if it had come right after.
    after.close().unwrap();
    assert_eq!(after.verdict(1, 4), Verdict::Merged);
    assert_eq!(during.saved(), after.saved());
    // Nothing waits where late uploads are dropped.
    let mut drops = fixture(Rules { late: Late::Drop, ..rules });
    drops.join(0..2);
    drops.verdict(0, 1);
    let closing = drops.coordinator.close(4, WireBytes::default()).unwrap();
    assert_eq!(drops.verdict(1, 1), Verdict::Late);
    assert!(drops.coordinator.waiting_uploads.is_empty());
    drops.coordinator.closed(closing.work());
    assert_eq!(drops.coordinator.uploads(), 0);
}

#[test]
fn bad_uploads_are_refused_with_a_reason_and_change_nothing() {
    let limits = Limits { norm: 10.0, bad_messages: 100, ..Limits::default() };
    let mut fixture = coordinator_of(learning("mk"), RULES, limits);
    fixture.join(0..2);
    let before = fixture.saved();
    let bad = [
        (upload(2, 1.0), "round 1 is open"),
        (Upload { numbers: vec![1.0; LEN + 1], ..upload(1, 1.0) }, "5 came"),
        (upload(1, f32::NAN), "NaN"),
        (upload(1, f32::INFINITY), "norm"),
        (upload(1, 6.0), "at most 1e1, but is 1.2e1"),
        (Upload { vote: Some(3), ..upload(1, 1.0) }, "kernels 0 to 2"),
        (Upload { vote: None, ..upload(1, 1.0) }, "kernel"),
    ];
    let count = bad.len() as u64;
    for (upload, part) in bad {
        let message = fixture.refusal(0, upload);
        assert!(message.contains(part), "{message}");
    }
    for squared_error in [-1.0, f32::NAN, f32::INFINITY] {
        let (sender, upload) = (fixture.sender(0), upload(1, 1.0));
        let errors = Errors { samples: 1, squared_error };
        let refused = fixture.hear(sender, Said::Upload(&mut [upload], errors, &[]));
        assert!(refused.unwrap_err().reason.to_string().contains("squared errors"));
    }
    let report = Report { numbers: vec![1.0; 15] };
    let refused = fixture.hear(fixture.sender(0), Said::Report(report));
    assert_eq!(refused.unwrap_err().reason, Refused::Rejected(Rejected::NotExpected));
    assert_eq!(fixture.saved(), before);
    assert_eq!(
        (fixture.coordinator.totals.refused, fixture.coordinator.members[0].record.refused),
        (count + 4, count + 4)
    );
    assert_eq!((fixture.coordinator.totals.samples, fixture.coordinator.answered), (0, 0));
    assert_eq!(fixture.verdict(0, 1), Verdict::Taken);
}

#[test]
fn models_are_bounded_one_by_one() {
    let limits = Limits { norm: 10.0, ..Limits::default() };
    let refusal = |method, numbers: Vec<f32>, vote| {
        let mut fixture = coordinator_of(learning(method), RULES, limits);
        fixture.join([0]);
        fixture
            .send(0, Upload { round: 1, vote, numbers })
            .map(|_| ())
            .map_err(|refusal| refusal.reason.to_string())
    };
    // Three models of length 9 and three losses: none is too long, however long they are together.
    let models = |number| [vec![number; 3 * LEN], vec![100.0; 3]].concat();
    assert_eq!(refusal("naive", models(4.5), None), Ok(()));
    assert!(refusal("naive", models(5.5), None).unwrap_err().contains("norm"));
    // What follows the model is no model.
    assert_eq!(refusal("emk", [vec![1.0; LEN], vec![100.0; 3]].concat(), None), Ok(()));
    assert!(refusal("linear", vec![0.0, 0.0, 11.0], None).unwrap_err().contains("norm"));
    assert_eq!(refusal("linear", vec![0.0, 0.0, 9.0], None), Ok(()));
}

#[test]
fn nobody_speaks_twice_or_too_often() {
    let limits = Limits { messages_per_second: 2, bad_messages: 3, ..Limits::default() };
    let mut fixture = coordinator_of(learning("mk"), RULES, limits);
    fixture.join(0..2);
    fixture.verdict(0, 1);
    let again = fixture.send(0, upload(1, 5.0)).unwrap_err();
    assert_eq!(
        (again.reason, again.is_last),
        (Refused::Rejected(Rejected::Duplicate { node: 0, round: 1 }), false)
    );
    // On another stream it may be the same again: the first one stands.
    fixture.join_on(0, 77);
    assert_eq!(fixture.verdict(0, 1), Verdict::Repeated);
    assert_eq!((fixture.coordinator.uploads(), fixture.coordinator.tally.samples), (1, 2));
    // Two seconds' worth may come at once.
    fixture.send(0, upload(1, 1.0)).unwrap_err();
    let refusals: Vec<_> = (0..3).map(|_| fixture.send(0, upload(1, 1.0)).unwrap_err()).collect();
    assert!(refusals.iter().all(|refusal| refusal.reason == Refused::Rate { bound: 2 }));
    assert_eq!(
        refusals.iter().map(|refusal| refusal.is_last).collect::<Vec<_>>(),
        [false, true, true]
    );
    fixture.pass(500);
    assert!(fixture.refusal(0, upload(1, 1.0)).contains("already"));
}

#[test]
fn a_second_stream_replaces_the_first() {
    let mut fixture = fixture(RULES);
    assert_eq!(fixture.join_on(0, 5).1, None);
    let old = fixture.sender(0);
    assert_eq!(fixture.join_on(0, 6).1, Some(5));
    assert_eq!(fixture.coordinator.connected(), 1);
    let refused = fixture.hear(old, Said::Upload(&mut [upload(1, 1.0)], ERRORS, &[]));
    let refusal = refused.unwrap_err();
    assert_eq!((refusal.reason, refusal.is_last), (Refused::Replaced, true));
    fixture.coordinator.leave(old, Sent::default(), 0);
    assert_eq!(fixture.coordinator.connected(), 1, "the old stream's end is not the node's");
    fixture.leave(0);
    assert_eq!(fixture.coordinator.connected(), 0);
}

#[test]
fn only_bad_messages_in_a_row_end_a_stream() {
    let limits = Limits { bad_messages: 2, ..Limits::default() };
    let online = Scaling::Online { kind: ScaleKind::Range };
    let rules = Rules { quorum: Quorum::Count(1), ..RULES };
    let mut fixture = coordinator_of(learning("mk").scaling(online).scale_nodes(1), rules, limits);
    fixture.join([0]);
    let report = Report { numbers: [[20.0, 0.5, 0.25, 0.0, 1.0]; 3].concat() };
    for _ in 0..3 {
        assert!(!fixture.send(0, upload(99, 1.0)).unwrap_err().is_last);
        fixture.hear(fixture.sender(0), Said::Report(report.clone())).unwrap();
    }
    fixture.step();
    for round in 1..=3 {
        assert!(!fixture.send(0, upload(99, 1.0)).unwrap_err().is_last);
        assert_eq!(fixture.verdict(0, round), Verdict::Taken);
        assert_eq!(fixture.step(), round + 1);
    }
    assert!(!fixture.send(0, upload(99, 1.0)).unwrap_err().is_last);
    assert!(fixture.send(0, upload(99, 1.0)).unwrap_err().is_last);
}

/// Reports of labels with these means and deviations.
fn report_labels(fixture: &mut TestCoordinator, node: NodeId, labels: &[[f32; 2]]) {
    let column = |[mean, deviation]: [f32; 2]| [20.0, mean, deviation, mean - 9.0, mean + 9.0];
    let inputs = [column([0.0, 1.0]); 2].concat();
    let numbers = [inputs, labels.iter().copied().flat_map(column).collect()].concat();
    fixture.hear(fixture.sender(node), Said::Report(Report { numbers })).unwrap();
}

#[test]
fn the_error_of_the_mean_is_that_of_each_node_s_own_labels() {
    let online = Scaling::Online { kind: ScaleKind::Spread };
    let mut fixture = coordinator_of(learning("mk").scaling(online), RULES, Limits::default());
    fixture.join(0..3);
    assert_eq!(fixture.coordinator.mean_forecast_error(), None);
    report_labels(&mut fixture, 0, &[[0.0, 2.0]]);
    report_labels(&mut fixture, 1, &[[100.0, 4.0]]);
    report_labels(&mut fixture, 2, &[[7.0, 1.0]]);
    fixture.step();
    // Nodes count by their samples, wherever their labels lie.
    assert_eq!(fixture.coordinator.mean_forecast_error(), None, "no samples");
    for (node, samples) in [(0, 3), (1, 1)] {
        let errors = Errors { samples, squared_error: 0.5 };
        let said = Said::Upload(&mut [upload(1, 0.1)], errors, &[]);
        fixture.hear(fixture.sender(node), said).unwrap();
    }
    assert_eq!(fixture.coordinator.mean_forecast_error(), Some((3.0 * 4.0 + 16.0) / 4.0));
    let at = |node: usize| fixture.coordinator.members[node].last_sample_ms;
    assert_eq!([at(0), at(1), at(2)], [Some(0), Some(0), None]);
    // It is known again after a restart.
    let commit = fixture.coordinator.close(4, WireBytes::default()).map(Closing::work).unwrap();
    let commit = Commit::clone(fixture.coordinator.closed(commit));
    let saved = Saved {
        round: commit.round,
        server: commit.server,
        scaling: Some(fixture.coordinator.server.as_ref().unwrap().save_scaling().unwrap()),
        totals: commit.totals,
    };
    let nodes = fixture.coordinator.changed_nodes(9);
    let (plan, limits) = (fixture.coordinator.plan.clone(), Limits::default());
    let again = Coordinator::new(plan, RULES, limits, Some(&saved), nodes, fixture.now).unwrap();
    assert_eq!(again.mean_forecast_error(), Some(7.0));
}

#[test]
fn of_classes_it_is_the_share_of_all_but_the_most_frequent() {
    let error = |classes: &[&str], labels: &[[f32; 2]]| {
        let online = Scaling::Online { kind: ScaleKind::Spread };
        let classes = classes.iter().map(|class| (*class).to_owned()).collect();
        let config = learning("mk").loss(Loss::Logistic).scaling(online).classes(classes);
        let mut fixture = coordinator_of(config, RULES, Limits::default());
        fixture.join([0]);
        report_labels(&mut fixture, 0, labels);
        let error = fixture.coordinator.members[0].mean_forecast_error.unwrap();
        (error * 1e6).round() / 1e6
    };
    assert_eq!(error(&["no", "yes"], &[[0.5, 0.9]]), 0.25);
    assert_eq!(error(&["no", "yes"], &[[-0.5, 0.9]]), 0.25);
    assert_eq!(error(&["a", "b", "c"], &[[-0.2, 1.0], [-0.4, 1.0], [-0.4, 1.0]]), 0.6);
}

#[test]
fn a_node_reports_its_columns_now_and_then_only() {
    let online = Scaling::Online { kind: ScaleKind::Spread };
    let mut fixture = coordinator_of(learning("mk").scaling(online), RULES, Limits::default());
    fixture.join(0..2);
    for mean in 0..64_u8 {
        report_labels(&mut fixture, 0, &[[mean.into(), 1.0]]);
    }
    let numbers = [[20.0, 0.0, 1.0, -9.0, 9.0]; 3].concat();
    let said = || Said::Report(Report { numbers: numbers.clone() });
    let refused = fixture.hear(fixture.sender(0), said()).unwrap_err();
    assert!(refused.reason.to_string().contains("may report its columns 64 times"));
    // The same as before says nothing new, and others may report.
    report_labels(&mut fixture, 0, &[[63.0, 1.0]]);
    fixture.hear(fixture.sender(1), said()).unwrap();
    fixture.pass(10_000);
    fixture.hear(fixture.sender(0), said()).unwrap();
}
