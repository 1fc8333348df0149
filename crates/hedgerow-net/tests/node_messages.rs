//! A node's messages for its operator: how it reads, what is missing, how it ended, and why it has
//! no server.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Cursor;
use std::time::Duration;

use crate::common::{learning, sample};
use crate::test_server::{Log, Session, TestServer, accept, checked, pass};
use hedgerow::ServerMethod;
use hedgerow_net::agent::client::ConnectError;
use hedgerow_net::agent::driver::AgentError;
use hedgerow_net::agent::http::{Asked, Question};
use hedgerow_net::agent::input::Input;
use hedgerow_net::transport::protocol::wire;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

fn objects(count: u64) -> String {
    (0..count)
        .map(|time| format!("{{\"x\": {:?}, \"y\": {}}}\n", sample(0, time).0, sample(0, time).1))
        .collect()
}

fn text(text: &str) -> Input {
    Input::reading(Cursor::new(text.to_owned()))
}

/// Closes rounds until the node disconnects. Returns the samples of each upload.
async fn play(session: &mut Session, server: &mut dyn ServerMethod) -> Vec<u32> {
    let mut samples = Vec::new();
    while let Some(message) = session.hear().await {
        let wire::from_node::Message::Upload(upload) = message else { panic!("{message:?}") };
        samples.push(upload.samples);
        accept(server, &upload);
        let closed = server.close_round().clone();
        session.broadcast(&closed, upload.round).await;
    }
    samples
}

/// A node that reads this to its end. Returns its output, its end and the samples of its uploads.
async fn read(changes: &[&str], input: Input) -> (Vec<Value>, Result<(), AgentError>, Vec<u32>) {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let node = test_server.node(test_server.settings(changes), input, None);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    let samples = play(&mut session, server.as_mut()).await;
    let (output, outcome) = node.ended().await;
    (output, outcome, samples)
}

fn file(content: &str) -> Input {
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), content).unwrap();
    Input::file(File::open(path.path()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_file_is_learned_in_step_and_a_pipe_as_it_comes_unless_told_otherwise() {
    let all = objects(40);
    for (changes, input, is_in_step, said) in [
        (&[][..], file(&all), true, "pace=\"round\" reason=\"standard input is a file\""),
        (&[], text(&all), false, "pace=\"free\" reason=\"standard input is no file\""),
        (&["samples.pace=free"], file(&all), false, "pace=\"free\" reason=\"so it is set\""),
        (&["samples.pace=round"], text(&all), true, "pace=\"round\" reason=\"so it is set\""),
    ] {
        let (log, _guard) = Log::begin();
        let (output, outcome, samples) = read(changes, input).await;
        outcome.unwrap();
        assert_eq!((output.len(), samples.iter().sum::<u32>()), (40, 40));
        assert_eq!(samples == [1; 40], is_in_step, "{changes:?}: {samples:?}");
        assert_eq!(log.count(said), 1, "{}", log.text());
    }
    // A node that should use another pace says so.
    for (changes, is_told) in [(&[][..], 1), (&["samples.pace=round"], 0)] {
        let (log, _guard) = Log::begin();
        read(changes, text(&objects(2000))).await.1.unwrap();
        assert_eq!(log.count("--pace round learns more"), is_told, "{}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_of_which_nothing_was_of_use_is_a_failure() {
    for (input, lines, bad, first, part) in [
        ("no\n\nneither\n{\"x\": [1]}\n", 1, 1, 1, "no column \"no\""),
        ("{\"x\": [1]}\n{\"a\": \"warm\", \"y\": 1}\n", 2, 2, 1, "x has 1 number,"),
        ("{\"id\": \"nobody\", \"y\": 1}\n", 1, 1, 1, "no prediction with id"),
        // Rows whose header is of no use are not read to their end.
        ("a,c,y\n1,2,3\n1,2,3\n1,2,3\n", 1, 1, 1, "no column \"b\"; the header has \"a,c,y\""),
        ("y\n1\n2\n", 1, 1, 1, "names no input"),
    ] {
        let (_, outcome, samples) = read(&[], text(input)).await;
        let error = outcome.unwrap_err();
        let AgentError::NothingOfUse { lines: of, bad: found, first: at, reason } = &error else {
            panic!("{error}")
        };
        assert_eq!((*of, *found, *at, samples.len()), (lines, bad, first, 0), "{input:?}: {error}");
        assert!(reason.contains(part), "{input:?}: {error}");
        let words = match bad {
            1 => "1 of 1 line was bad, line 1 first".to_owned(),
            _ => format!("{bad} of {lines} lines were bad, line 1 first"),
        };
        assert!(error.to_string().contains(&words), "{error}");
    }
    // One good line is enough, and an empty input is no error.
    for input in ["{no JSON\n{\"x\": [1, 2, 3]}\n", "", "\n\n", "a,b,c,y\n"] {
        let input = Input::reading(Cursor::new(input));
        read(&[], input).await.1.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_end_it_is_told_what_became_of_the_lines() {
    let (log, _guard) = Log::begin();
    let rows = "at,a,b,c\nnoon,1,2,3\nnight,1,2,3\nmorning,1,2\n";
    let (output, outcome, samples) = read(&["samples.others=ignore"], text(rows)).await;
    outcome.unwrap();
    assert_eq!((output.len(), samples.len()), (3, 0));
    assert_eq!(log.count("the header has no \"y\""), 1, "{}", log.text());
    assert_eq!(
        log.count("leaves learned=0 predicted=2 waited=0 refused=1 answers_taken=0"),
        1,
        "{}",
        log.text()
    );
    let (log, _guard) = Log::begin();
    let (_, outcome, _) = read(&[], file(&objects(7))).await;
    outcome.unwrap();
    assert_eq!(
        log.count("leaves learned=7 predicted=0 waited=0 refused=0 answers_taken=7"),
        1,
        "{}",
        log.text()
    );
    assert_eq!(log.count("the header"), 0, "{}", log.text());
    let (log, _guard) = Log::begin();
    read(&[], text("")).await.1.unwrap();
    assert_eq!(
        (log.count("had no samples"), log.count("leaves learned")),
        (1, 0),
        "{}",
        log.text()
    );
}

#[tokio::test(start_paused = true)]
async fn inputs_that_nobody_names_are_told_of_once_each() {
    let (log, _guard) = Log::begin();
    let lines = "{\"a\": 1, \"y\": 2}\n{\"a\": 1, \"b\": null, \"y\": 2}\n{\"b\": 1, \"y\": 2}\n{\"c\": 1, \"y\": 2}\n";
    let (output, outcome, _) = read(&[], text(lines)).await;
    outcome.unwrap();
    assert!(
        output.len() == 4 && output.iter().all(|line| line["prediction"].is_number()),
        "{output:?}"
    );
    for column in ["a", "b", "c"] {
        let said = format!("WARN hedgerow_net::agent::local: a sample has no \"{column}\"");
        assert_eq!(log.count(&said), 1, "{}", log.text());
    }
    // Over HTTP as well; nor is there an input that ends.
    let (log, _guard) = Log::begin();
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let settings = test_server.settings(&["samples.source=none", "http.address=127.0.0.1:0"]);
    let (ask, asked) = mpsc::channel(1);
    let node = test_server.node(settings, Input::None, Some(asked));
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(plan.server().broadcast(), 0).await;
    for body in [r#"{"a": 1}"#, r#"[{"a": 1, "b": 2}, {"a": 1, "c": null}]"#] {
        let answer = loop {
            let (reply, answer) = oneshot::channel();
            ask.send(Asked { question: Question::Predict(body.into()), reply }).await.unwrap();
            let answer = answer.await.unwrap();
            if answer.status == 200 {
                break answer.body;
            }
        };
        assert!(
            answer["prediction"].is_number() || answer[1]["prediction"].is_number(),
            "{answer}"
        );
    }
    assert_eq!(
        [log.count("has no \"a\""), log.count("has no \"b\""), log.count("has no \"c\"")],
        [0, 1, 1]
    );
    assert_eq!((log.count("the input has ended"), log.count("pace=")), (0, 0), "{}", log.text());
    node.stopped().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_before_its_welcome_is_tried_ever_more_rarely() {
    let (log, _guard) = Log::begin();
    let mut test_server = TestServer::new();
    let node = test_server.node(test_server.settings(&[]), text(&objects(1)), None);
    for _ in 0..12 {
        drop(test_server.next().await);
    }
    let tries = test_server.tries.lock().unwrap().clone();
    let waits: Vec<f64> = tries.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    assert!(waits.iter().sum::<f64>() > 5.0 && waits[0] < 0.2, "{waits:?}");
    node.stopped().await.1.unwrap();
    let said = "the server ended the connection before welcoming this node";
    assert_eq!((log.count(said), log.count("stream broke off")), (1, 0), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn two_that_take_each_other_s_place_do_so_ever_more_rarely() {
    let (log, _guard) = Log::begin();
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let node = test_server.node(test_server.settings(&[]), text(&objects(1)), None);
    let began = tokio::time::Instant::now();
    for _ in 0..12 {
        let mut session = test_server.next().await;
        session.welcome("r1", &json).await;
        session.broadcast(plan.server().broadcast(), 0).await;
        // Longer than the first waits.
        pass(1).await;
        session
            .end(Status::aborted("another stream of this node has taken the place of this one"))
            .await;
    }
    assert!(began.elapsed() > Duration::from_secs(20), "{:?}", began.elapsed());
    node.stopped().await.1.unwrap();
    assert!(log.count("is one identity on two devices?") > 0, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn what_the_server_says_is_passed_on_and_what_libraries_say_is_not() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    for (end, expected) in [
        (
            Some(Status::unavailable("the server is going down")),
            "the server ended the stream: the server is going down",
        ),
        (
            Some(Status::resource_exhausted("refused: too loud")),
            "the server ended the stream: refused: too loud",
        ),
        (Some(Status::unknown("h2 protocol error")), "the server is gone: the stream broke off"),
        (None, "the server ended the stream"),
    ] {
        let settings = test_server.settings(&["server.once=true", "samples.at_end=stay"]);
        let node = test_server.node(settings, text(""), None);
        let mut session = test_server.next().await;
        session.welcome("r1", &json).await;
        session.broadcast(plan.server().broadcast(), 0).await;
        match end {
            Some(status) => session.end(status).await,
            None => drop(session),
        }
        let Err(AgentError::ConnectError(trouble)) = node.ended().await.1 else {
            panic!("{expected}")
        };
        assert_eq!(trouble.to_string(), expected);
        assert_eq!(trouble.detail().is_some(), matches!(trouble, ConnectError::Broken { .. }));
    }
}
