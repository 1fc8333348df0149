//! A running node with a scripted server: samples, answers and output. The other files are about
//! connections, scales and state files.

#![allow(clippy::unwrap_used)]

mod connection;
mod scale;
mod series;
mod state;

use std::io::{Cursor, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::Engine;
use crate::common::{INPUTS, learning, sample, until};
use crate::common::{Plan, Scaling};
use crate::test_server::{Session, TestServer, accept, append, checked, pass};
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
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let node =
        test_server.node(test_server.settings(&["samples.pace=round"]), cursor(lines(0..30)), None);
    let mut session = test_server.next().await;
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
async fn once_is_once() {
    let mut test_server = TestServer::new();
    let node =
        test_server.node(test_server.settings(&["server.once=true"]), cursor(lines(0..3)), None);
    test_server.next().await.end(Status::failed_precondition("version 2 is spoken here")).await;
    let error = node.ended().await.1.unwrap_err().to_string();
    assert_eq!(error, "the server refuses this node: version 2 is spoken here");
    test_server.is_down.store(true, Ordering::SeqCst);
    let node =
        test_server.node(test_server.settings(&["server.once=true"]), cursor(lines(0..3)), None);
    assert_eq!(node.ended().await.1.unwrap_err().to_string(), "can't reach test_server: down");
    assert_eq!(test_server.tries.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn labels_come_later_and_bad_lines_are_passed_over() {
    let mut test_server = TestServer::new();
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
    let node = test_server.node(test_server.settings(&["samples.pace=round"]), cursor(text), None);
    let mut session = test_server.next().await;
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

/// Accepts a few bytes, then says so and blocks until `release` is dropped.
struct Stuck {
    written: Arc<Mutex<Vec<u8>>>,
    blocked: tokio::sync::mpsc::UnboundedSender<()>,
    release: std::sync::mpsc::Receiver<()>,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.written.lock().unwrap().len() > 200 {
            _ = self.blocked.send(());
            _ = self.release.recv();
        }
        self.written.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_who_does_not_read_stops_the_input_but_not_the_node() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let written = Arc::<Mutex<Vec<u8>>>::default();
    let (released, release) = std::sync::mpsc::channel();
    let (blocked, mut is_blocked) = tokio::sync::mpsc::unbounded_channel();
    let output = Output::to(Stuck { written: Arc::clone(&written), blocked, release });
    let text = lines(0..5000);
    let (settings, asked) = (test_server.settings(&["samples.at_end=stay"]), None);
    let input: OpenInput = Box::new(|_| cursor(text));
    let node = test_server.node_to(settings, input, asked, Arc::clone(&written), output);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    let mut answer = async |session: &Session, upload: wire::Upload| {
        accept(server.as_mut(), &upload);
        let closed = server.close_round().clone();
        session.broadcast(&closed, upload.round).await;
        upload.samples
    };
    let mut learned = 0;
    loop {
        let upload = tokio::select! {
            _ = is_blocked.recv() => break,
            upload = session.hear_upload() => upload,
        };
        learned += answer(&session, upload).await;
    }
    // The node uses the samples that it has, which end long before the input does. The clock is
    // paused: it moves when neither node nor server has anything to do.
    let second = Duration::from_secs(1);
    while let Ok(upload) = tokio::time::timeout(second, session.hear_upload()).await {
        learned += answer(&session, upload).await;
    }
    assert!(learned < 400, "{learned} samples");
    // The reader continues.
    drop(released);
    while learned < 5000 {
        let upload = session.hear_upload().await;
        learned += answer(&session, upload).await;
    }
    let (output, outcome) = node.stopped().await;
    outcome.unwrap();
    assert_eq!((learned, output.len()), (5000, 5000));
}
