//! A running node with a scripted server: in step, disconnected, refused, restarted, with wrong
//! messages.

#![allow(clippy::unwrap_used)]

use std::io::{Cursor, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::Engine;
use crate::common::{INPUTS, learning, sample, until};
use crate::common::{Plan, Scaling};
use crate::stage::{Session, Stage, accept, append, checked, pass};
use hedgerow::ServerMethod;
use hedgerow::limits::MAX_HELD;
use hedgerow::scaling::{ScaleKind, ServerScaling};
use hedgerow_net::agent::driver::OpenInput;
use hedgerow_net::agent::http::{Asked, Question};
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use hedgerow_net::transport::protocol::wire;
use tonic::Status;

/// Samples of the first node as JSON Lines.
fn lines(times: std::ops::Range<u64>) -> String {
    let line = |time| {
        let (x, y) = sample(0, time);
        format!("{{\"x\": {x:?}, \"y\": {y}}}\n")
    };
    times.map(line).collect()
}

fn cursor(text: impl Into<String>) -> Input {
    Input::reading(Cursor::new(text.into()))
}

/// Closes rounds as long as the node answers. Returns their number.
async fn serve(session: &mut Session, server: &mut dyn ServerMethod, rounds: usize) -> usize {
    for round in 0..rounds {
        let Some(message) = session.hear().await else { return round };
        let wire::from_node::Message::Upload(upload) = message else { panic!("{message:?}") };
        accept(server, &upload);
        let closed = server.close_round().clone();
        session.broadcast(&closed, upload.round).await;
    }
    rounds
}

#[tokio::test(start_paused = true)]
async fn a_file_is_played_in_step_and_the_node_leaves_when_all_is_answered() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("mk", 1));
    let node = stage.node(stage.settings(&["samples.pace=round"]), cursor(lines(0..30)), None);
    let mut session = stage.next().await;
    let hello = session.welcome("r1", &json).await;
    assert_eq!((hello.protocol, hello.name.as_str(), hello.run.as_str()), (1, "n1", ""));
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    // The same by hand.
    let mut twin = Engine::new(plan.clone(), "r1", 0);
    twin.connected();
    let mut expected = Vec::new();
    let hear = |twin: &mut Engine, broadcast: &hedgerow::message::Broadcast, taken| {
        let message = wire::Broadcast { taken, ..crate::common::broadcast_to_wire(broadcast) };
        twin.hear(&wire::from_server::Message::Broadcast(message).into()).unwrap();
    };
    hear(&mut twin, server.broadcast(), 0);
    for time in 0..30 {
        let upload = session.hear_upload().await;
        assert_eq!((upload.round, upload.samples), (time + 1, 1));
        assert!(session.is_quiet().await, "one answer a round");
        let (x, y) = sample(0, time);
        expected.push(twin.learn(&x, y).unwrap());
        let mut said = Vec::new();
        twin.speak(false, &mut said);
        assert_eq!(said, [wire::from_node::Message::Upload(upload.clone()).into()]);
        accept(server.as_mut(), &upload);
        let closed = server.close_round().clone();
        hear(&mut twin, &closed, upload.round);
        session.broadcast(&closed, upload.round).await;
    }
    let (output, outcome) = node.ended().await;
    outcome.unwrap();
    assert_eq!(session.hear().await, None);
    assert_eq!(output.len(), 30);
    for (at, (line, answer)) in output.iter().zip(&expected).enumerate() {
        assert_eq!(line["line"], at as u64 + 1);
        assert_eq!(line["prediction"].as_f64().unwrap() as f32, answer.value);
        assert_eq!(
            (line["round"].as_u64(), line["known"].as_bool()),
            (Some(answer.round), Some(true))
        );
        assert_eq!(line["label"].as_f64().unwrap() as f32, sample(0, at as u64).1);
    }
}

#[tokio::test(start_paused = true)]
async fn it_goes_on_without_the_server_and_catches_up() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("sk:4", 1));
    let (reader, mut writer) = std::io::pipe().unwrap();
    let node = stage.node(stage.settings(&[]), Input::reading(reader), None);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    writer.write_all(lines(0..1).as_bytes()).unwrap();
    assert_eq!(serve(&mut session, server.as_mut(), 1).await, 1);
    // The server is unreachable.
    stage.is_down.store(true, Ordering::SeqCst);
    drop(session);
    let tries = stage.tries.lock().unwrap().len();
    until("five tries", async || stage.tries.lock().unwrap().len() >= tries + 5).await;
    writer.write_all(lines(1..11).as_bytes()).unwrap();
    let output = node.wrote(11).await;
    assert!(output.iter().all(|line| line["prediction"].is_number()), "{output:?}");
    // The server returns, three rounds later.
    stage.is_down.store(false, Ordering::SeqCst);
    let mut session = stage.next().await;
    let hello = session.welcome("r1", &json).await;
    assert_eq!(hello.run, "r1");
    for _ in 0..3 {
        let mut other = plan.node(1);
        other.adopt(server.broadcast()).unwrap();
        let mut upload = hedgerow::message::Upload::default();
        let mut z = vec![0.0; plan.map().width()];
        other.learn(plan.map().map_batch(&[0.5; INPUTS], &mut z), 0.5).unwrap();
        assert!(other.upload(&mut upload));
        server.accept(1, &upload).unwrap();
        server.close_round();
    }
    session.broadcast(server.broadcast(), 1).await;
    assert!(session.is_quiet().await, "what was learned in another round is no answer to this one");
    writer.write_all(lines(11..12).as_bytes()).unwrap();
    let upload = session.hear_upload().await;
    // The upload counts all labels that came meanwhile.
    assert_eq!((upload.round, upload.samples), (5, 11));
    let (output, outcome) = node.stopped().await;
    outcome.unwrap();
    assert_eq!(output.len(), 12);
    assert_eq!(output[11]["round"], 5);
}

#[tokio::test(start_paused = true)]
async fn tries_are_ever_rarer_and_a_refusal_is_tried_rarely() {
    let mut stage = Stage::new();
    stage.is_down.store(true, Ordering::SeqCst);
    let node = stage.node(
        stage.settings(&["samples.source=none", "http.address=127.0.0.1:0"]),
        Input::None,
        None,
    );
    pass(600).await;
    let tries = stage.tries.lock().unwrap().clone();
    let waits: Vec<f64> = tries.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    // Full jitter below 0.1 s, 0.2 s, 0.4 s, ... 30 s.
    for (at, wait) in waits.iter().enumerate() {
        assert!(*wait <= (0.1 * 2_f64.powi(at as i32)).min(30.0) + 0.01, "wait {at} is {wait} s");
    }
    assert!((20..200).contains(&waits.len()), "{} tries in ten minutes", waits.len());
    assert!(waits.iter().any(|wait| *wait > 5.0));
    // Refused.
    stage.is_down.store(false, Ordering::SeqCst);
    let session = stage.next().await;
    session.end(Status::permission_denied("you are not n1")).await;
    let refused = tokio::time::Instant::now();
    let session = stage.next().await;
    let wait = refused.elapsed().as_secs_f64();
    assert!((29.0..=61.0).contains(&wait), "{wait} s");
    drop(session);
    node.stopped().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn once_is_once() {
    let mut stage = Stage::new();
    let node = stage.node(stage.settings(&["server.once=true"]), cursor(lines(0..3)), None);
    stage.next().await.end(Status::failed_precondition("version 2 is spoken here")).await;
    let error = node.ended().await.1.unwrap_err().to_string();
    assert_eq!(error, "the server refuses this node: version 2 is spoken here");
    stage.is_down.store(true, Ordering::SeqCst);
    let node = stage.node(stage.settings(&["server.once=true"]), cursor(lines(0..3)), None);
    assert_eq!(node.ended().await.1.unwrap_err().to_string(), "can't reach stage: down");
    assert_eq!(stage.tries.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn labels_come_later_and_bad_lines_are_passed_over() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("mk", 1));
    let text = concat!(
        "{\"id\": \"m\", \"a\": 0.1, \"b\": 0.2, \"c\": 0.3}\n",
        "this is no JSON\n",
        "{\"id\": \"m\", \"x\": [1, 2, 3]}\n",
        "{\"a\": \"warm\", \"y\": 1}\n",
        "\n",
        "{\"id\": \"nobody\", \"y\": 1}\n",
        "{\"id\": \"m\", \"y\": 0.5}\n",
        "{\"a\": 0.1, \"y\": 1e30}\n",
        "{\"a\": 0.1, \"y\": 0.25}",
    );
    let node = stage.node(stage.settings(&["samples.pace=round"]), cursor(text), None);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    let upload = session.hear_upload().await;
    assert_eq!((upload.round, upload.samples), (1, 1));
    // The label of the sample that was asked about.
    let by_hand = {
        let mut engine = Engine::new(plan.clone(), "r1", 0);
        engine.connected();
        let message = crate::common::broadcast_to_wire(server.broadcast());
        engine.hear(&wire::from_server::Message::Broadcast(message).into()).unwrap();
        engine.learn(&[0.1, 0.2, 0.3], 0.5).unwrap();
        let mut said = Vec::new();
        engine.speak(false, &mut said);
        said
    };
    assert_eq!(by_hand, [wire::from_node::Message::Upload(upload.clone()).into()]);
    accept(server.as_mut(), &upload);
    let closed = server.close_round().clone();
    session.broadcast(&closed, 1).await;
    assert_eq!(serve(&mut session, server.as_mut(), 5).await, 1);
    let (output, outcome) = node.ended().await;
    outcome.unwrap();
    let of = |at: usize| {
        (output[at]["line"].as_u64().unwrap(), output[at]["error"].as_str().unwrap_or("ok"))
    };
    assert_eq!(output.len(), 8);
    assert_eq!((of(0), of(5), of(7)), ((1, "ok"), (7, "ok"), (9, "ok")));
    assert_eq!((output[0]["id"].as_str(), output[5]["id"].as_str()), (Some("m"), Some("m")));
    assert_eq!(output[5]["prediction"], output[0]["prediction"]);
    for (at, line, part) in [
        (1, 2, "no JSON object"),
        (2, 3, "id \"m\" already waits"),
        (3, 4, "column \"a\": \"warm\" is not a number"),
        (4, 6, "no prediction with id \"nobody\""),
        (6, 8, "label"),
    ] {
        let (found, error) = of(at);
        assert!(found == line && error.contains(part), "{found}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_ended_goes_on_where_it_was() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("mk", 1));
    let mut server = plan.server();
    let path = stage.path("log.csv");
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
        let node = stage.follower(stage.settings(&changes));
        let mut session = stage.next().await;
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
            let node = stage.follower(stage.settings(&changes));
            let session = session.get_or_insert(stage.next().await);
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
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("mk", 1));
    for (run, known) in [("r1", ""), ("r2", "r1"), ("r2", "r2")] {
        let node = stage.node(stage.settings(&[]), cursor(lines(0..2)), None);
        let mut session = stage.next().await;
        assert_eq!(session.welcome(run, &json).await.run, known);
        session.broadcast(plan.server().broadcast(), 0).await;
        session.hear_upload().await;
        node.stopped().await.1.unwrap();
    }
    let (state, aside) = (stage.path("state"), stage.path("state.old-1"));
    assert!(aside.exists() && !stage.path("state.old-2").exists());
    let whole = std::fs::read(&state).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&state, &damaged).unwrap();
    let error =
        stage.node(stage.settings(&[]), cursor(lines(0..2)), None).ended().await.1.unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("state") && message.contains("damaged") && message.contains("--state"),
        "{message}"
    );
    assert_eq!(std::fs::read(&state).unwrap(), damaged);
    // Another node's file.
    std::fs::write(&state, &whole).unwrap();
    let node = stage.node(stage.settings(&["server.node=n2"]), cursor(""), None);
    let message = node.ended().await.1.unwrap_err().to_string();
    assert!(message.contains("\"n1\"") && message.contains("\"n2\""), "{message}");
    // In use.
    let first = stage.node(stage.settings(&[]), cursor(lines(0..2)), None);
    let session = stage.next().await;
    let second = stage.node(stage.settings(&[]), cursor(lines(0..2)), None);
    let message = second.ended().await.1.unwrap_err().to_string();
    assert!(message.contains("in use") && !message.contains("move"), "{message}");
    drop(session);
    first.stopped().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nonsense_from_a_server_is_survived() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("mk", 1));
    let node = stage.node(stage.settings(&["samples.pace=round"]), cursor(lines(0..2)), None);
    // No plan.
    let spoilt = |key: &str, value: serde_json::Value| {
        let mut learning: serde_json::Value = serde_json::from_str(&json).unwrap();
        *learning.pointer_mut(key).unwrap() = value;
        learning.to_string()
    };
    for nonsense in [
        String::new(),
        "{}".to_owned(),
        spoilt("/method", "nothing".into()),
        spoilt("/setup/inputs", 4.into()),
        spoilt("/features/frequencies", u32::MAX.into()),
    ] {
        let mut session = stage.next().await;
        session.welcome("r1", &nonsense).await;
        assert_eq!(session.hear().await, None, "{nonsense}");
    }
    // Another protocol, or none.
    for first in [
        wire::FromServer { message: None },
        wire::from_server::Message::Refusal(wire::Refusal { round: 0, reason: "no".into() }).into(),
        wire::from_server::Message::Welcome(wire::Welcome { protocol: 2, ..Default::default() })
            .into(),
    ] {
        let mut session = stage.next().await;
        session.hear_hello().await;
        session.say(first).await;
        assert_eq!(session.hear().await, None);
    }
    // Invalid broadcasts.
    let good = crate::common::broadcast_to_wire(plan.server().broadcast());
    for bad in [
        wire::Broadcast { numbers: vec![1; 7].into(), ..good.clone() },
        wire::Broadcast { compressed: true, ..good.clone() },
        wire::Broadcast {
            numbers: vec![0xff; good.numbers.len()].into(),
            round: 2,
            ..good.clone()
        },
        wire::Broadcast {
            kernels: Some(wire::Selection { current: 999, next: 999 }),
            round: 2,
            ..good.clone()
        },
    ] {
        let mut session = stage.next().await;
        session.welcome("r1", &json).await;
        session.say(wire::from_server::Message::Broadcast(bad)).await;
        assert_eq!(session.hear().await, None);
    }
    // Then a valid one.
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    assert_eq!(serve(&mut session, server.as_mut(), 5).await, 2);
    let (output, outcome) = node.ended().await;
    outcome.unwrap();
    assert_eq!(output.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_stream_took_with_it_is_said_again() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("mk", 1));
    let node = stage.node(stage.settings(&["samples.pace=round"]), cursor(lines(0..2)), None);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    let lost = session.hear_upload().await;
    drop(session);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(server.broadcast(), 0).await;
    let again = session.hear_upload().await;
    assert_eq!(again, lost);
    accept(server.as_mut(), &again);
    let closed = server.close_round().clone();
    session.broadcast(&closed, 1).await;
    assert_eq!(serve(&mut session, server.as_mut(), 5).await, 1);
    node.ended().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_in_silence_is_noticed() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("mk", 1));
    let node = stage.node(stage.settings(&["samples.pace=round"]), cursor(lines(0..2)), None);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    session.hear_upload().await;
    stage.freeze.notify_waiters();
    let frozen = tokio::time::Instant::now();
    let mut session = stage.next().await;
    let silence = frozen.elapsed();
    // Twice the twenty seconds of the defaults, and a little for coming back.
    assert!((Duration::from_secs(15)..Duration::from_secs(42)).contains(&silence), "{silence:?}");
    session.welcome("r1", &json).await;
    session.broadcast(server.broadcast(), 0).await;
    assert_eq!(serve(&mut session, server.as_mut(), 5).await, 2);
    node.ended().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_is_waited_for_longer_than_he_may_take() {
    let mut stage = Stage::new();
    let node = stage.node(stage.settings(&[]), cursor(lines(0..2)), None);
    // Joined, and never welcomed.
    let session = stage.next().await;
    let began = tokio::time::Instant::now();
    let second = stage.next().await;
    let wait = began.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(11)).contains(&wait), "{wait:?}");
    drop((session, second));
    // Told to end while it waits for a welcome.
    let _third = stage.next().await;
    let began = tokio::time::Instant::now();
    node.stopped().await.1.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn methods_that_remember_answer_without_a_sample_after_a_while() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("gr", 1));
    let (reader, mut writer) = std::io::pipe().unwrap();
    let node = stage.node(stage.settings(&[]), Input::reading(reader), None);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    writer.write_all(lines(0..1).as_bytes()).unwrap();
    assert_eq!(serve(&mut session, server.as_mut(), 1).await, 1);
    // No sample, but a new upload.
    let began = tokio::time::Instant::now();
    assert!(session.is_quiet().await);
    let upload = session.hear_upload().await;
    assert_eq!((upload.round, upload.samples), (2, 0));
    let patience = began.elapsed();
    assert!(
        (Duration::from_millis(400)..Duration::from_millis(600)).contains(&patience),
        "{patience:?}"
    );
    node.stopped().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_scale_samples_are_taken_until_there_is_one() {
    let mut stage = Stage::new();
    let online = Scaling::Online { kind: ScaleKind::Range };
    let (json, plan) = checked(learning("mk", 1).scaling(online));
    let node = stage.node(
        stage.settings(&["samples.pace=round", "samples.patience=1h"]),
        cursor(lines(0..40)),
        None,
    );
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    let (mut server, mut scaling) = (plan.server(), plan.server_scaling().unwrap());
    session.broadcast(server.broadcast(), 0).await;
    let mut reports = 0;
    let scale = loop {
        let Some(wire::from_node::Message::Report(report)) = session.hear().await else {
            panic!("no report")
        };
        let mut numbers = Vec::new();
        hedgerow_net::transport::protocol::numbers_from_bytes(&report.numbers, 1000, &mut numbers)
            .unwrap();
        scaling.accept(0, &hedgerow::message::Report { numbers }).unwrap();
        reports += 1;
        if let Some(scale) = scaling.close_round() {
            break scale.clone();
        }
    };
    // After 1, 2, 4, 8 and 16 samples.
    assert_eq!(reports, 5);
    assert!(session.is_quiet().await);
    let message = crate::common::scale_to_wire(scaling.version(), &scale);
    session.say(wire::from_server::Message::Scale(message)).await;
    let mut rounds = 0;
    while let Some(message) = session.hear().await {
        let wire::from_node::Message::Upload(upload) = message else { continue };
        accept(server.as_mut(), &upload);
        let closed = server.close_round().clone();
        session.broadcast(&closed, upload.round).await;
        rounds += 1;
    }
    let (output, outcome) = node.ended().await;
    outcome.unwrap();
    assert_eq!((rounds, output.len()), (24, 40));
    assert!(output.iter().enumerate().all(|(at, line)| line["known"] == (at >= 16)), "{output:?}");
}

/// What a node reports, merged by a server until it has a scale.
async fn agree(session: &mut Session, scaling: &mut ServerScaling) -> wire::FromServer {
    loop {
        let Some(wire::from_node::Message::Report(report)) = session.hear().await else {
            panic!("no report")
        };
        let mut numbers = Vec::new();
        hedgerow_net::transport::protocol::numbers_from_bytes(&report.numbers, 1000, &mut numbers)
            .unwrap();
        scaling.accept(0, &hedgerow::message::Report { numbers }).unwrap();
        if let Some(scale) = scaling.close_round().cloned() {
            let message = crate::common::scale_to_wire(scaling.version(), &scale);
            return wire::from_server::Message::Scale(message).into();
        }
    }
}

/// The numbers that a node uploads which has this scale and round from the beginning, and learns
/// these.
fn upload_of(plan: &Plan, scale: &wire::FromServer, times: std::ops::Range<u64>) -> bytes::Bytes {
    let mut twin = Engine::new(plan.clone(), "r1", 0);
    twin.connected();
    twin.hear(scale).unwrap();
    let broadcast = crate::common::broadcast_to_wire(plan.server().broadcast());
    twin.hear(&wire::from_server::Message::Broadcast(broadcast).into()).unwrap();
    for time in times {
        let (x, y) = sample(0, time);
        twin.learn(&x, y).unwrap();
    }
    let mut said = Vec::new();
    twin.speak(true, &mut said);
    match said.pop().unwrap().message {
        Some(wire::from_node::Message::Upload(upload)) => upload.numbers,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_input_has_ended_waits_for_a_scale_and_learns_what_it_holds() {
    let mut stage = Stage::new();
    let online = Scaling::Online { kind: ScaleKind::Range };
    let (json, plan) = checked(learning("mk", 1).scaling(online));
    let node = stage.node(stage.settings(&[]), cursor(lines(0..40)), None);
    let (mut server, mut scaling) = (plan.server(), plan.server_scaling().unwrap());
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(server.broadcast(), 0).await;
    let scale = agree(&mut session, &mut scaling).await;
    assert_eq!(node.wrote(40).await.len(), 40);
    // For any time, and across a broken stream.
    pass(3600).await;
    assert!(node.is_running());
    drop(session);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    pass(3600).await;
    assert!(node.is_running());
    // Also across a restart of the node.
    node.stopped().await.1.unwrap();
    let node = stage.node(stage.settings(&[]), cursor(""), None);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    session.say(scale.clone()).await;
    session.broadcast(server.broadcast(), 0).await;
    let upload = loop {
        match session.hear().await.unwrap() {
            wire::from_node::Message::Upload(upload) => break upload,
            wire::from_node::Message::Report(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(upload.numbers, upload_of(&plan, &scale, 0..40));
    assert!(node.is_running());
    accept(server.as_mut(), &upload);
    let closed = server.close_round().clone();
    session.broadcast(&closed, 1).await;
    node.ended().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_scale_reads_no_more_than_it_can_hold() {
    let mut stage = Stage::new();
    let online = Scaling::Online { kind: ScaleKind::Range };
    let (json, plan) = checked(learning("mk", 1).scaling(online));
    let (mut server, mut scaling) = (plan.server(), plan.server_scaling().unwrap());
    let node = stage.node(stage.settings(&[]), cursor(lines(0..600)), None);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(server.broadcast(), 0).await;
    let scale = agree(&mut session, &mut scaling).await;
    node.wrote(MAX_HELD).await;
    pass(60).await;
    assert_eq!(node.output().len(), MAX_HELD);
    // The round that is open is the one that they are learned in.
    session.say(scale.clone()).await;
    let mut answers = 0;
    while let Some(message) = session.hear().await {
        let wire::from_node::Message::Upload(upload) = message else { continue };
        if upload.round == 1 {
            assert_eq!(upload.numbers, upload_of(&plan, &scale, 0..MAX_HELD as u64));
        }
        accept(server.as_mut(), &upload);
        let closed = server.close_round().clone();
        session.broadcast(&closed, upload.round).await;
        answers += 1;
    }
    assert!(answers > 1);
    let (output, outcome) = node.ended().await;
    outcome.unwrap();
    assert_eq!(output.len(), 600);
    assert!(output.iter().enumerate().all(|(at, line)| line["known"] == (at >= MAX_HELD)));
}

#[tokio::test(start_paused = true)]
async fn once_without_a_scale_is_once() {
    let mut stage = Stage::new();
    let online = Scaling::Online { kind: ScaleKind::Range };
    let (json, plan) = checked(learning("mk", 1).scaling(online));
    let node = stage.node(stage.settings(&["server.once=true"]), cursor(lines(0..40)), None);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(plan.server().broadcast(), 0).await;
    node.wrote(40).await;
    session.end(Status::unavailable("going down")).await;
    let error = node.ended().await.1.unwrap_err().to_string();
    assert!(error.contains("going down"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_won_t_do_is_a_lasting_trouble_and_the_old_run_goes_on() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("mk", 1));
    let settings = stage.settings(&["http.address=127.0.0.1:0"]);
    let (ask, asked) = tokio::sync::mpsc::channel(1);
    let node = stage.node(settings, cursor(lines(0..1)), Some(asked));
    let answer = async |question| {
        let (reply, answer) = tokio::sync::oneshot::channel();
        ask.send(Asked { question, reply }).await.unwrap();
        answer.await.unwrap()
    };
    let mut server = plan.server();
    let mut session = stage.next().await;
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
        let mut session = stage.next().await;
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
        let again = stage.next().await;
        let wait = refused.elapsed().as_secs_f64();
        assert!((29.0..=61.0).contains(&wait), "{wait} s");
        again.end(Status::unavailable("soon")).await;
    }
    assert!(!stage.path("state.old-1").exists(), "nothing was set aside");
    let mut session = stage.next().await;
    assert_eq!(session.welcome("r1", &json).await.run, "r1");
    session.broadcast(server.broadcast(), 1).await;
    while answer(Question::Health).await.body.get("trouble").is_some() {}
    node.stopped().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_run_reads_on_where_the_one_before_stopped() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("mk", 1));
    let path = stage.path("log.csv");
    let changes =
        ["samples.source=follow", &format!("samples.path={path:?}"), "samples.pace=round"];
    append(&path, "y,c,b,a\n");
    let mut line = 1;
    // The run changes while the node is away, and while it is there.
    for runs in [&["r1"][..], &["r2", "r3"]] {
        let node = stage.follower(stage.settings(&changes));
        for run in runs {
            let mut server = plan.server();
            let mut session = stage.next().await;
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
    assert!(stage.path("state.old-2").exists());
}

/// Accepts a few bytes, then blocks.
struct Stuck(Arc<Mutex<Vec<u8>>>, std::sync::mpsc::Receiver<()>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.lock().unwrap().len() > 200 {
            // Until the other side is dropped.
            _ = self.1.recv();
        }
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_reader_who_does_not_read_stops_the_input_but_not_the_node() {
    let mut stage = Stage::new();
    let (json, plan) = checked(learning("mk", 1));
    let written = Arc::<Mutex<Vec<u8>>>::default();
    let (release, stuck) = std::sync::mpsc::channel();
    let output = Output::to(Stuck(Arc::clone(&written), stuck));
    let text = lines(0..5000);
    let (settings, asked) = (stage.settings(&["samples.at_end=stay"]), None);
    let input: OpenInput = Box::new(|_| cursor(text));
    let node = stage.node_to(settings, input, asked, Arc::clone(&written), output);
    let mut session = stage.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    // It answers until it has no more samples, which is long before the input's end.
    let mut learned = 0;
    while let Ok(Some(message)) = tokio::time::timeout(Duration::from_secs(1), session.hear()).await
    {
        let wire::from_node::Message::Upload(upload) = message else { panic!("{message:?}") };
        learned += upload.samples;
        accept(server.as_mut(), &upload);
        let closed = server.close_round().clone();
        session.broadcast(&closed, upload.round).await;
    }
    assert!((1..400).contains(&learned), "{learned} samples");
    // The reader continues.
    drop(release);
    while learned < 5000 {
        let upload = session.hear_upload().await;
        learned += upload.samples;
        accept(server.as_mut(), &upload);
        let closed = server.close_round().clone();
        session.broadcast(&closed, upload.round).await;
    }
    let (output, outcome) = node.stopped().await;
    outcome.unwrap();
    assert_eq!((learned, output.len()), (5000, 5000));
}
