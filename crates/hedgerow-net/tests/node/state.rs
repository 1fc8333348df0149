//! State files: restarts, other runs and plans that a node refuses.

use hedgerow_net::agent::state::StateFile;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_node_that_was_ended_goes_on_where_it_was() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let mut server = plan.server();
    let path = test_server.path("log.csv");
    let row = |time| {
        let (x, y) = sample(0, time);
        format!("{y},{},{},{}\n", x[2], x[1], x[0])
    };
    append(&path, "y,c,b,a\n");
    let changes =
        ["samples.source=follow", &format!("samples.path={path:?}"), "samples.pace=round"];
    let mut predictions = Vec::new();
    let mut run = String::new();
    let mut time = 0;
    for life in 0..4 {
        let node = test_server.follower(test_server.settings(&changes));
        let mut session = test_server.next().await;
        assert_eq!(session.welcome("r1", &json).await.run, run);
        run = "r1".into();
        session.broadcast(server.broadcast(), time).await;
        // A line that is whole, one that is cut in two, and rows that wait when the node ends.
        let (first, second) = (row(time), row(time + 1));
        let (begun, rest) = second.split_at(second.len() / 2);
        append(&path, &format!("{first}{begun}"));
        assert_eq!(serve(&mut session, server.as_mut(), 1).await, 1);
        append(&path, &format!("{rest}{}", row(time + 2)));
        assert_eq!(serve(&mut session, server.as_mut(), 1).await, 1);
        time += 2;
        if life % 2 == 0 {
            // The third is answered too, but the node ends before the round closes.
            session.hear_upload().await;
            let (output, outcome) = node.stopped().await;
            outcome.unwrap();
            predictions.extend(output);
            let mut session = None;
            let node = test_server.follower(test_server.settings(&changes));
            let session = session.get_or_insert(test_server.next().await);
            session.welcome("r1", &json).await;
            session.broadcast(server.broadcast(), time).await;
            // Not read again, but said again.
            assert_eq!(serve(session, server.as_mut(), 1).await, 1);
            let (output, outcome) = node.stopped().await;
            outcome.unwrap();
            assert_eq!(output, Vec::<serde_json::Value>::new());
        } else {
            assert_eq!(serve(&mut session, server.as_mut(), 1).await, 1);
            let (output, outcome) = node.stopped().await;
            outcome.unwrap();
            predictions.extend(output);
        }
        time += 1;
    }
    // As if the node had never stopped.
    let mut twin = Engine::new(plan.clone(), "r1", 0);
    let mut server = plan.server();
    twin.connected();
    let mut expected = Vec::new();
    for time in 0..12 {
        let message = crate::common::broadcast_to_wire(server.broadcast());
        twin.hear(&wire::from_server::Message::Broadcast(message).into()).unwrap();
        let (x, y) = sample(0, time);
        expected.push(twin.learn(&x, y).unwrap().value);
        let mut said = Vec::new();
        twin.speak(false, &mut said);
        let Some(wire::from_node::Message::Upload(upload)) = &said[0].message else { panic!() };
        accept(server.as_mut(), upload);
        server.close_round();
    }
    let found: Vec<f32> =
        predictions.iter().map(|line| line["prediction"].as_f64().unwrap() as f32).collect();
    assert_eq!(found, expected);
}

#[tokio::test(start_paused = true)]
async fn a_state_of_another_run_is_set_aside_and_a_damaged_one_is_refused() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    for (run, known) in [("r1", ""), ("r2", "r1"), ("r2", "r2")] {
        let node = test_server.node(test_server.settings(&[]), cursor(lines(0..2)), None);
        let mut session = test_server.next().await;
        assert_eq!(session.welcome(run, &json).await.run, known);
        session.broadcast(plan.server().broadcast(), 0).await;
        session.hear_upload().await;
        node.stopped().await.1.unwrap();
    }
    let (state, aside) = (test_server.path("state"), test_server.path("state.old-1"));
    assert!(aside.exists() && !test_server.path("state.old-2").exists());
    let whole = std::fs::read(&state).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&state, &damaged).unwrap();
    let error = test_server
        .node(test_server.settings(&[]), cursor(lines(0..2)), None)
        .ended()
        .await
        .1
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("state") && message.contains("damaged") && message.contains("--state"),
        "{message}"
    );
    assert_eq!(std::fs::read(&state).unwrap(), damaged);
    // Another node's file.
    std::fs::write(&state, &whole).unwrap();
    let node = test_server.node(test_server.settings(&["server.node=n2"]), cursor(""), None);
    let message = node.ended().await.1.unwrap_err().to_string();
    assert!(message.contains("\"n1\"") && message.contains("\"n2\""), "{message}");
    // In use.
    let first = test_server.node(test_server.settings(&[]), cursor(lines(0..2)), None);
    let session = test_server.next().await;
    let second = test_server.node(test_server.settings(&[]), cursor(lines(0..2)), None);
    let message = second.ended().await.1.unwrap_err().to_string();
    assert!(message.contains("in use") && !message.contains("move"), "{message}");
    drop(session);
    first.stopped().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_won_t_do_is_a_lasting_trouble_and_the_old_run_goes_on() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let settings = test_server.settings(&["http.address=127.0.0.1:0"]);
    let (ask, asked) = tokio::sync::mpsc::channel(1);
    let node = test_server.node(settings, cursor(lines(0..1)), Some(asked));
    let answer = async |question| {
        let (reply, answer) = tokio::sync::oneshot::channel();
        ask.send(Asked { question, reply }).await.unwrap();
        answer.await.unwrap()
    };
    let mut server = plan.server();
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(server.broadcast(), 0).await;
    assert_eq!(serve(&mut session, server.as_mut(), 1).await, 1);
    let question = || Question::Predict(r#"{"x": [0.1, 0.2, 0.3]}"#.into());
    let before = loop {
        // The round has been heard when it is answered from.
        let before = answer(question()).await;
        if before.body["round"] == 2 {
            break before;
        }
    };
    drop(session);
    for spoilt in ["{}", "no plan"] {
        let mut session = test_server.next().await;
        session.welcome("r2", spoilt).await;
        let refused = tokio::time::Instant::now();
        // What would be a round, were it a plan.
        let news = hedgerow::message::Broadcast { round: 9, ..server.broadcast().clone() };
        session.broadcast(&news, 0).await;
        assert_eq!(session.hear().await, None);
        let health = answer(Question::Health).await;
        let trouble = health.body["trouble"].as_str().unwrap();
        assert!(trouble.contains("learning configuration won't do"), "{trouble}");
        assert_eq!((health.status.as_u16(), &health.body["needs_help"]), (200, &true.into()));
        assert_eq!(answer(question()).await, before, "the old run answers");
        let again = test_server.next().await;
        let wait = refused.elapsed().as_secs_f64();
        assert!((29.0..=61.0).contains(&wait), "{wait} s");
        again.end(Status::unavailable("soon")).await;
    }
    assert!(!test_server.path("state.old-1").exists(), "nothing was set aside");
    let mut session = test_server.next().await;
    assert_eq!(session.welcome("r1", &json).await.run, "r1");
    session.broadcast(server.broadcast(), 1).await;
    while answer(Question::Health).await.body.get("trouble").is_some() {}
    node.stopped().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_run_reads_on_where_the_one_before_stopped() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let path = test_server.path("log.csv");
    let changes =
        ["samples.source=follow", &format!("samples.path={path:?}"), "samples.pace=round"];
    append(&path, "y,c,b,a\n");
    let mut line = 1;
    // The run changes while the node is away, and while it is there.
    for runs in [&["r1"][..], &["r2", "r3"]] {
        let node = test_server.follower(test_server.settings(&changes));
        for run in runs {
            let mut server = plan.server();
            let mut session = test_server.next().await;
            session.welcome(run, &json).await;
            session.broadcast(server.broadcast(), 0).await;
            append(&path, "0.5,0.1,0.2,0.3\n0.5,0.3,0.2,0.1\n");
            assert_eq!(serve(&mut session, server.as_mut(), 2).await, 2);
        }
        let (output, outcome) = node.stopped().await;
        outcome.unwrap();
        let lines: Vec<u64> = output.iter().map(|line| line["line"].as_u64().unwrap()).collect();
        let expected: Vec<u64> = (line + 1..=line + 2 * runs.len() as u64).collect();
        assert_eq!(lines, expected);
        assert!(output.iter().all(|line| line["prediction"].is_number()), "{output:?}");
        line = lines[lines.len() - 1];
    }
    assert!(test_server.path("state.old-2").exists());
}

#[test]
fn samples_are_wiped_from_a_state_and_the_rest_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("n.state");
    let forget = || StateFile::forget_samples(&path).map_err(|error| error.to_string());
    assert!(forget().unwrap_err().contains("can't read"));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "no lock is left behind");
    let plan = hedgerow::Plan::new(learning("tr", 1).budget(40)).unwrap();
    let mut node = plan.node(0);
    for time in 0..40 {
        let (x, y) = sample(0, time);
        node.learn(&x, &[y]).unwrap();
    }
    node.predict_later("a", &[0.1, 0.2, 0.3]).unwrap();
    let (file, _) = StateFile::open(&path, "n", &[]).unwrap();
    file.save(&node, None, None)().unwrap();
    assert!(forget().unwrap_err().contains("running already"), "its node has it");
    drop(file);
    let size = || std::fs::metadata(&path).unwrap().len();
    let before = size();
    let forgotten = forget().unwrap();
    assert_eq!((forgotten.remembered, forgotten.unlabelled, forgotten.held), (40, 1, 0));
    assert!(size() < before - 40 * 16, "{before} {}", size());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let (_file, kept) = StateFile::open(&path, "n", &[]).unwrap();
    let mut kept = kept.unwrap().node;
    let x = sample(0, 99).0;
    assert_eq!(kept.predict(&x).unwrap(), node.predict(&x).unwrap());
    assert_eq!((kept.tally(), kept.waiting()), (node.tally(), (0, 0)));
}
