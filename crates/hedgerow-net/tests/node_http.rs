//! A node's HTTP endpoint over loopback: answers and refusals.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use crate::common::Plan;
use crate::common::{learning, until};
use crate::test_server::{Node, Session, TestServer, checked};
use hedgerow::importance::ImportanceScope;
use hedgerow_net::agent::http;
use hedgerow_net::agent::input::Input;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LOOPBACK: &str = "127.0.0.1:0";

struct Endpoint {
    address: SocketAddr,
    node: Node,
}

impl Endpoint {
    async fn new(test_server: &TestServer, changes: &[&str]) -> Self {
        let all = [&["samples.source=none", "http.address=127.0.0.1:0"][..], changes].concat();
        let settings = test_server.settings(&all);
        let listener = TcpListener::bind(LOOPBACK).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (router, asked) = http::router(&settings.http);
        tokio::spawn(http::serve(listener, router, settings.http.connections));
        Self { address, node: test_server.node(settings, Input::None, Some(asked)) }
    }

    /// Sends this and reads to the end. Returns status, headers and body.
    async fn raw(&self, request: &str) -> (u16, String, Value) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    async fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        let (status, _, body) = self.raw(&request).await;
        (status, body)
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let (status, _, body) = self.raw(&request).await;
        (status, body)
    }
}

/// A node that has joined and received the first round.
async fn joined(test_server: &mut TestServer, changes: &[&str]) -> (Endpoint, Session) {
    let (json, plan) = checked(learning("mk", 1));
    joined_to(test_server, &json, &plan, changes).await
}

async fn joined_to(
    test_server: &mut TestServer,
    json: &str,
    plan: &Plan,
    changes: &[&str],
) -> (Endpoint, Session) {
    let endpoint = Endpoint::new(test_server, changes).await;
    let mut session = test_server.next().await;
    session.welcome("r1", json).await;
    session.broadcast(plan.server().broadcast(), 0).await;
    until("readiness", async || endpoint.get("/readyz").await.0 == 200).await;
    (endpoint, session)
}

#[tokio::test]
async fn status_has_the_importance_of_columns_if_the_plan_asks_for_it() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("gr", 1).importance(ImportanceScope::Local));
    let (endpoint, _session) = joined_to(&mut test_server, &json, &plan, &[]).await;
    let sample =
        |i: u32| json!({ "x": [f64::from(i) / 100.0, 0.5, 0.5], "y": f64::from(i) / 100.0 });
    let samples: Vec<Value> = (0..100).map(sample).collect();
    let (status, body) = endpoint.post("/learn", &json!(samples).to_string()).await;
    assert_eq!(status, 200, "{body}");
    let (_, body) = endpoint.get("/status").await;
    let importance = body["node"]["importance"].as_array().unwrap();
    let columns: Vec<&Value> = importance.iter().map(|one| &one["column"]).collect();
    assert_eq!(columns, ["a", "b", "c"]);
    let measured = importance.iter().map(|one| one["measured"].as_u64().unwrap());
    assert!(measured.sum::<u64>() > 3, "{body}");
    // Columns that never change say nothing.
    for (place, is_zero) in [(0, false), (1, true), (2, true)] {
        assert_eq!(importance[place]["increase"] == 0.0, is_zero, "{body}");
    }
}

#[tokio::test]
async fn it_predicts_and_learns_one_by_one_and_in_lists() {
    let mut test_server = TestServer::new();
    let (endpoint, mut session) = joined(&mut test_server, &[]).await;
    let (status, body) = endpoint.post("/predict", r#"{"x": [0.1, 0.2, 0.3]}"#).await;
    assert_eq!(status, 200, "{body}");
    assert!(
        body["prediction"].is_number() && body["known"] == true && body["round"] == 1,
        "{body}"
    );
    let (status, body) = endpoint.post("/predict", r#"{"id": "k", "a": 0.1, "b": null}"#).await;
    assert_eq!((status, &body["id"]), (200, &json!("k")));
    let (status, body) = endpoint.post("/learn", r#"{"id": "k", "y": 0.5}"#).await;
    assert_eq!((status, &body["id"]), (200, &json!("k")));
    let upload = session.hear_upload().await;
    assert_eq!((upload.round, upload.samples), (1, 1));
    let (status, body) =
        endpoint.post("/learn", r#"{"a": 0.1, "b": 0.2, "c": 0.3, "y": 0.5}"#).await;
    assert_eq!(status, 200, "{body}");
    let list = r#"[{"id": "p", "x": [0.1, 0.2, 0.3]}, {"id": "p", "x": [0.1, 0.2, 0.3]}, {"x": [1, 2, 3]}]"#;
    let (status, body) = endpoint.post("/predict", list).await;
    assert_eq!(status, 200, "{body}");
    assert!(body[0]["prediction"].is_number() && body[2]["prediction"].is_number(), "{body}");
    assert!(
        body[1]["error"].as_str().unwrap().contains("already waits") && body[1]["field"] == "id",
        "{body}"
    );
    assert_eq!(endpoint.post("/predict", "[]").await, (200, json!([])));
    let (status, body) = endpoint.get("/status").await;
    assert_eq!(status, 200);
    for (key, value) in [
        ("/connected", json!(true)),
        ("/name", json!("n1")),
        ("/node/run", json!("r1")),
        ("/node/samples", json!(2)),
        ("/node/pending", json!(1)),
        ("/node/held", json!(1)),
        ("/node/imputed", json!(2)),
        ("/node/columns", json!(["a", "b", "c"])),
    ] {
        assert_eq!(body.pointer(key), Some(&value), "{key} in {body}");
    }
    for key in ["message_bytes_up", "message_bytes_down", "wire_bytes_up", "wire_bytes_down"] {
        assert!(body[key].as_u64().unwrap() > 100, "{key} in {body}");
    }
    assert_eq!(endpoint.get("/healthz").await, (200, json!({ "alive": true })));
    endpoint.node.stopped().await.1.unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_said_with_its_field_and_changes_nothing() {
    let mut test_server = TestServer::new();
    let (endpoint, mut session) = joined(&mut test_server, &["http.most_samples=3"]).await;
    for (path, body, status, field, part) in [
        ("/predict", r#"{"x": [1, 2]}"#, 400, json!("x"), "x has 2 numbers"),
        ("/predict", r#"{"x": [1, 2, "3"]}"#, 400, json!("x[2]"), "is not a number"),
        ("/predict", r#"{"a": 1, "d": 2}"#, 400, json!("d"), "no column \"d\""),
        ("/predict", r#"{"a": 1, "y": 2}"#, 400, json!("y"), "POST /learn"),
        ("/predict", r#"{"id": "k", "y": 2}"#, 400, json!("y"), "POST /learn"),
        ("/predict", "{", 400, Value::Null, "no JSON object"),
        ("/predict", "[{]", 400, Value::Null, "no JSON list"),
        ("/predict", "7", 400, Value::Null, "no JSON object"),
        ("/learn", r#"{"x": [1, 2, 3]}"#, 400, json!("y"), "needs the label"),
        ("/learn", r#"{"x": [1, 2, 3], "y": null}"#, 400, json!("y"), "needs the label"),
        ("/learn", r#"{"y": 3}"#, 400, Value::Null, "needs the id"),
        ("/learn", r#"{"x": [1, 2, 3], "y": 1e13}"#, 422, json!("y"), "label"),
        ("/learn", r#"{"id": "nobody", "y": 1}"#, 404, json!("id"), "nobody"),
    ] {
        let (found, answer) = endpoint.post(path, body).await;
        assert_eq!((found, &answer["field"]), (status, &field), "{body}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(part), "{body}: {answer}");
    }
    // A list is accepted as a whole or not at all.
    let (status, answer) = endpoint.post("/learn", r#"[{"a": 1, "y": 2}, {"a": 1}]"#).await;
    assert_eq!(
        (status, &answer["index"], &answer["field"]),
        (400, &json!(1), &json!("y")),
        "{answer}"
    );
    let (status, answer) =
        endpoint.post("/predict", r#"[{"a": 1}, {"a": 1}, {"a": 1}, {"a": 1}]"#).await;
    assert!(status == 413 && answer["error"].as_str().unwrap().contains("at most 3"), "{answer}");
    let (status, answer) = endpoint.post("/predict", r#"{"id": "k", "a": 1}"#).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(endpoint.post("/predict", r#"{"id": "k", "a": 1}"#).await.0, 409);
    assert_eq!(endpoint.get("/status").await.1["node"]["samples"], 0);
    // The first upload is of the first sample that was learned.
    let (status, answer) = endpoint.post("/learn", r#"{"x": [1, 2, 3], "y": 2}"#).await;
    assert_eq!(status, 200, "{answer}");
    let upload = session.hear_upload().await;
    assert_eq!((upload.round, upload.samples), (1, 1));
    endpoint.node.stopped().await.1.unwrap();
}

#[tokio::test]
async fn the_label_is_called_as_the_federation_calls_it() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1).target("load".into()));
    let (endpoint, _session) = joined_to(&mut test_server, &json, &plan, &[]).await;
    for (path, body, status) in [
        ("/learn", r#"{"x": [1, 2, 3]}"#, 400),
        ("/learn", r#"[{"x": [1, 2, 3]}]"#, 400),
        ("/predict", r#"{"x": [1, 2, 3], "load": 2}"#, 400),
        ("/learn", r#"{"x": [1, 2, 3], "load": 1e13}"#, 422),
    ] {
        let (found, answer) = endpoint.post(path, body).await;
        assert_eq!((found, &answer["field"]), (status, &json!("load")), "{body}: {answer}");
    }
    endpoint.node.stopped().await.1.unwrap();
}

#[tokio::test]
async fn strangers_and_giants_are_refused() {
    let mut test_server = TestServer::new();
    let (endpoint, _session) =
        joined(&mut test_server, &["http.most_bytes=1000", "http.names=[\"pi.local\"]"]).await;
    let get = |host: &str| format!("GET /status HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
    for (host, status) in [
        ("Host: localhost\r\n", 200),
        ("Host: 127.0.0.1:7411\r\n", 200),
        ("Host: pi.local\r\n", 200),
        ("Host: evil.example\r\n", 421),
        ("Host: localhost.evil.example\r\n", 421),
        ("Host: localhost\r\nHost: evil.example\r\n", 421),
        ("", 421),
    ] {
        assert_eq!(endpoint.raw(&get(host)).await.0, status, "{host:?}");
    }
    assert_eq!(endpoint.get("/nothing").await.0, 404);
    assert_eq!(endpoint.get("/predict").await.0, 405);
    // A request that a web page can send without a preflight.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let request = format!(
            "POST /learn HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nConnection: close\r\n\
             Content-Length: 16\r\n\r\n{{\"a\": 1, \"y\": 2}}"
        );
        assert_eq!(endpoint.raw(&request).await.0, 415, "{kind}");
    }
    let large = format!("{{\"a\": {}1}}", " ".repeat(1000));
    assert_eq!(endpoint.post("/predict", &large).await.0, 413);
    let lying = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
                 Transfer-Encoding: chunked\r\n\r\n";
    let chunks = format!("{lying}{}0\r\n\r\n", format!("10\r\n{}\r\n", " ".repeat(16)).repeat(100));
    assert_eq!(endpoint.raw(&chunks).await.0, 413);
    assert_eq!(endpoint.get("/status").await.1["node"]["samples"], 0);
    endpoint.node.stopped().await.1.unwrap();
}

#[tokio::test]
async fn before_anything_is_known_it_is_alive_and_not_ready() {
    let test_server = TestServer::new();
    test_server.is_down.store(true, std::sync::atomic::Ordering::SeqCst);
    let endpoint = Endpoint::new(&test_server, &[]).await;
    assert_eq!(endpoint.get("/healthz").await.0, 200);
    for (status, body) in [
        endpoint.get("/readyz").await,
        endpoint.post("/predict", r#"{"a": 1}"#).await,
        endpoint.post("/learn", r#"{"a": 1, "y": 1}"#).await,
    ] {
        assert_eq!(status, 503);
        assert!(body["error"].as_str().unwrap().contains("never heard"), "{body}");
    }
    let (_, status) = endpoint.get("/status").await;
    assert_eq!((&status["node"], &status["connected"]), (&Value::Null, &json!(false)));
    assert!(status["trouble"].as_str().unwrap().contains("can't reach"), "{status}");
    endpoint.node.stopped().await.1.unwrap();
}

#[tokio::test]
async fn questions_wait_in_a_short_line_and_connections_have_a_bound() {
    let test_server = TestServer::new();
    let settings = test_server.settings(&["http.queue=2", "http.connections=3"]);
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (router, mut asked) = http::router(&settings.http);
    tokio::spawn(http::serve(listener, router, settings.http.connections));
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let ask = async || {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    };
    // Nobody answers: two wait, the third is told to come back.
    let (mut first, mut second) = (ask().await, ask().await);
    until("two questions", async || asked.len() == 2).await;
    let mut answer = String::new();
    ask().await.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after: 1"), "{answer}");
    // Three at once, and a fourth that is let in when one of them has gone. Until then the server
    // answers the third as often as it asks, and never the fourth.
    let mut third = TcpStream::connect(address).await.unwrap();
    let mut fourth = ask().await;
    for _ in 0..100 {
        third.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        while !answer.ends_with('}') {
            let mut bytes = [0; 1024];
            let len = third.read(&mut bytes).await.unwrap();
            assert_ne!(len, 0, "{answer}");
            answer.push_str(std::str::from_utf8(&bytes[..len]).unwrap());
        }
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        let early = fourth.try_read(&mut [0; 1]).unwrap_err();
        assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    }
    drop(third);
    let mut answer = String::new();
    fourth.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    for stream in [&mut first, &mut second] {
        let question = asked.recv().await.unwrap();
        question.reply.send(http::Reply::ok(json!("here"))).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("\"here\""), "{answer}");
    }
    // The node has ended.
    drop(asked);
    let mut answer = String::new();
    ask().await.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}
