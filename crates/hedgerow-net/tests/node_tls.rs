//! Nodes and a real server over loopback: trust, and a node's messages when it is refused.

#![allow(clippy::unwrap_used)]

use std::io::Cursor;
use std::path::Path;

use crate::common::until;
use hedgerow_config::Layer;
use hedgerow_net::agent::client::{self, ConnectError, Security};
use hedgerow_net::agent::config::Settings;
use hedgerow_net::agent::driver::{self, AgentError, Parts};
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use hedgerow_net::pki::identity::{NodeIdentity, Role};
use hedgerow_net::pki::{Authority, Issuing};
use hedgerow_net::serve::config::ServeSettings;
use hedgerow_net::serve::server::Server;
use tempfile::TempDir;

async fn server(folder: &Path, more: &[&str]) -> Server {
    let mut changes: Vec<String> = [
        "learning.inputs=2",
        "learning.method=mk",
        "learning.scaling=none",
        "listen.address=127.0.0.1:0",
        "listen.dashboard=never",
    ]
    .iter()
    .chain(more)
    .map(|change| (*change).to_owned())
    .collect();
    changes.push(format!("listen.identity={:?}", folder.join("pki")));
    changes.push(format!("store.path={:?}", folder.join("server.db")));
    Server::start(ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap()).await.unwrap()
}

/// A node with these settings. It connects once and learns three samples.
async fn node(folder: &Path, name: &str, changes: &[String]) -> Result<(), AgentError> {
    node_as(folder, name, changes, None).await
}

/// The same with another identity than that of the settings.
async fn node_as(
    folder: &Path,
    name: &str,
    changes: &[String],
    security: Option<Security>,
) -> Result<(), AgentError> {
    let mut all = vec![
        "server.once=true".to_owned(),
        "samples.pace=round".to_owned(),
        "server.connect_timeout=60s".to_owned(),
        format!("state.path={:?}", folder.join(format!("{name}.state"))),
    ];
    all.extend_from_slice(changes);
    let settings = Settings::read(&Layer::sets(&all).unwrap()).unwrap();
    let text = "{\"x\": [0.1, 0.2], \"y\": 0.3}\n".repeat(3);
    let parts = Parts {
        dial: client::tcp(&settings.server.address, settings.server.plain_text),
        security: security.unwrap_or_else(|| settings.security().unwrap()),
        input: Box::new(move |_| Input::reading(Cursor::new(text))),
        output: Output::none(),
        asked: None,
        methods: &[],
    };
    driver::run(settings, parts, std::future::pending()).await
}

fn with_certificate(address: &str, file: &Path) -> Vec<String> {
    vec![format!("server.address={address:?}"), format!("server.identity={file:?}")]
}

fn trouble(outcome: Result<(), AgentError>) -> ConnectError {
    match outcome {
        Err(AgentError::ConnectError(trouble)) => trouble,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn those_with_a_good_certificate_learn_and_others_are_told_why_not() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let authority =
        Authority::init(&folder.join("pki"), &["localhost".to_owned(), "127.0.0.1".to_owned()])
            .unwrap();
    let (good, bad) = (authority.issue("good", 10).unwrap(), authority.issue("bad", 10).unwrap());
    authority.revoke("bad").unwrap();
    let stranger = Authority::init(&folder.join("other"), &[]).unwrap().issue("good", 10).unwrap();
    let server = server(folder, &[]).await;
    let port = server.address().port();
    // By name and by address.
    for (host, name) in [("localhost", "a"), ("127.0.0.1", "b")] {
        node(folder, name, &with_certificate(&format!("{host}:{port}"), &good)).await.unwrap();
    }
    let address = format!("localhost:{port}");
    // The server's message may be lost with the connection, but the node always knows that the
    // server ended it.
    for _ in 0..20 {
        let revoked = trouble(node(folder, "c", &with_certificate(&address, &bad)).await);
        let is_told = revoked.is_lasting() && revoked.to_string().contains("it has been revoked");
        assert!(
            is_told || matches!(revoked, ConnectError::Unwelcome { is_plain: false, .. }),
            "{revoked:?}"
        );
        assert!(revoked.to_string().contains("revoked"), "{revoked}");
    }
    let unknown = trouble(node(folder, "d", &with_certificate(&address, &stranger)).await);
    assert!(
        unknown.is_lasting()
            && unknown.to_string().contains("certificate won't do: it is of another authority"),
        "{unknown}"
    );
    let mut misnamed = with_certificate(&address, &good);
    misnamed.push("server.name=elsewhere.example".to_owned());
    let misnamed = trouble(node(folder, "e", &misnamed).await);
    assert!(
        misnamed.is_lasting() && misnamed.to_string().contains("not valid for name"),
        "{misnamed}"
    );
    // Plain text to a server that speaks TLS.
    let plain = [
        format!("server.address={address:?}"),
        "server.plain_text=true".to_owned(),
        "server.node=good".to_owned(),
    ];
    let plain = trouble(node(folder, "f", &plain).await);
    assert!(plain.is_lasting() && plain.to_string().contains("the server speaks TLS"), "{plain:?}");
    server.stop().await.unwrap();
    let gone = trouble(node(folder, "g", &with_certificate(&address, &good)).await);
    assert!(
        matches!(&gone, ConnectError::Unreachable { .. }) && gone.to_string().contains(&address),
        "{gone}"
    );
}

#[tokio::test]
async fn a_certificate_that_is_revoked_ends_the_stream_with_a_reason() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let authority = Authority::init(&folder.join("pki"), &[]).unwrap();
    let file = authority.issue("n1", 10).unwrap();
    // Another node is needed, so that the round stays open.
    let server = server(folder, &["rounds.quorum=2", "rounds.deadline=never"]).await;
    let changes = with_certificate(&format!("localhost:{}", server.address().port()), &file);
    let source = server.source();
    let revoke = async {
        until("a node", async || source.status().connected > 0).await;
        authority.revoke("n1").unwrap();
    };
    let (ended, ()) = tokio::join!(node(folder, "n1", &changes), revoke);
    let trouble = trouble(ended);
    assert!(trouble.is_lasting() && trouble.to_string().contains("revoked"), "{trouble}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_operator_opens_no_stream_of_a_node() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let authority = Authority::init(&folder.join("pki"), &[]).unwrap();
    let issued = authority.issue_all(&["alice"], 10, Issuing::First(Role::Operator)).unwrap();
    let server = server(folder, &[]).await;
    let changes = with_certificate(&format!("localhost:{}", server.address().port()), &issued[0].0);
    let identity = Box::new(NodeIdentity::open_as(&issued[0].0, Role::Operator).unwrap());
    let security = Security::Tls { identity, server: "localhost".try_into().unwrap() };
    let refused = trouble(node_as(folder, "alice", &changes, Some(security)).await);
    assert!(
        refused.is_lasting() && refused.to_string().contains("this certificate is an operator's"),
        "{refused}"
    );
    assert_eq!(server.source().status().nodes_known, 0);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn plain_text_goes_nowhere_but_to_loopback() {
    let folder = TempDir::new().unwrap();
    let changes = |address: &str| {
        [
            format!("server.address={address:?}"),
            "server.plain_text=true".to_owned(),
            "server.node=n1".to_owned(),
        ]
    };
    // A documentation address, which is unreachable.
    let refused = trouble(node(folder.path(), "n1", &changes("192.0.2.1:7443")).await);
    assert!(refused.is_lasting() && matches!(refused, ConnectError::PlainText(_)), "{refused}");
    let server = server(folder.path(), &["listen.tls=false"]).await;
    let address = format!("127.0.0.1:{}", server.address().port());
    node(folder.path(), "n1", &changes(&address)).await.unwrap();
    // TLS to a server that speaks plain text.
    let file = Authority::init(&folder.path().join("pki"), &[]).unwrap().issue("n1", 10).unwrap();
    let tls = trouble(node(folder.path(), "n1", &with_certificate(&address, &file)).await);
    assert!(tls.is_lasting() && tls.to_string().contains("doesn't speak TLS"), "{tls}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_dies_is_gone_and_no_library_says_so() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let authority = Authority::init(&folder.join("pki"), &[]).unwrap();
    let file = authority.issue("n1", 10).unwrap();
    let server = server(folder, &["rounds.quorum=2", "rounds.deadline=never"]).await;
    let changes = with_certificate(&format!("localhost:{}", server.address().port()), &file);
    let source = server.source();
    let kill = async {
        until("a node", async || source.status().connected > 0).await;
        drop(server);
    };
    let (ended, ()) = tokio::join!(node(folder, "n1", &changes), kill);
    let trouble = trouble(ended).to_string();
    // Which one depends on how far the server comes.
    let known = [
        "the server is gone: the stream broke off",
        "the server ended the stream",
        "the server ended the stream: the server is going down",
    ];
    assert!(known.contains(&trouble.as_str()), "{trouble}");
}
