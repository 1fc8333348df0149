//! What a running server does with its certificate and its list of revoked ones.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use hedgerow_config::Layer;
use hedgerow_net::operations::{Action, Actor, Outcome};
use hedgerow_net::pki::Authority;
use hedgerow_net::pki::identity::NodeIdentity;
use hedgerow_net::serve::status::{EventStatus, NodeState};
use hedgerow_net::serve::{ServeError, ServeSettings, Server};
use tempfile::TempDir;

use crate::common::until;
use crate::security::server::{ScriptedClient, hello};

struct Fixture {
    folder: TempDir,
    authority: Authority,
}

impl Fixture {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let pki = folder.path().join("pki");
        let authority = Authority::init(&pki, &["localhost".to_owned()]).unwrap();
        for name in ["a", "b"] {
            authority.issue(name, 9).unwrap();
        }
        Self { folder, authority }
    }

    fn list(&self) -> PathBuf {
        self.authority.folder().join("crl.pem")
    }

    async fn try_start(&self) -> Result<Server, ServeError> {
        let path = |name: &str| format!("{:?}", self.folder.path().join(name));
        let changes = [
            "learning.inputs=1".to_owned(),
            "listen.address=127.0.0.1:0".to_owned(),
            "listen.dashboard=127.0.0.1:0".to_owned(),
            format!("listen.identity={}", path("pki")),
            format!("store.path={}", path("run.db")),
        ];
        Server::start(ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap()).await
    }

    async fn start(&self) -> Server {
        self.try_start().await.unwrap()
    }
}

fn of_kind(server: &Server, kind: &str) -> Vec<EventStatus> {
    let events = server.source().status().events;
    events.into_iter().filter(|event| event.kind == kind).collect()
}

async fn happened(server: &Server, kind: &str, times: usize) -> String {
    until(kind, async || of_kind(server, kind).len() >= times).await;
    let all = of_kind(server, kind);
    assert_eq!(all.len(), times, "{all:?}");
    all.last().unwrap().text.clone()
}

/// What is stored of the lists: the details of the entries of the audit log.
async fn stored_lists(server: &Server) -> Vec<String> {
    let asked = Action::Audit { from: Some(1), most: None };
    let Ok(Outcome::Audit { entries, .. }) = server.operate(Actor::server(), asked).await else {
        panic!("no audit log");
    };
    let lists = entries.into_iter().filter(|entry| entry.action == "list");
    lists.map(|entry| entry.details).collect()
}

async fn lists_are_stored(server: &Server, count: usize) {
    until("a stored list", async || stored_lists(server).await.len() == count).await;
}

async fn metric(server: &Server, name: &str) -> String {
    let address = server.dashboard().unwrap();
    let page = tokio::task::spawn_blocking(move || {
        use std::io::{Read, Write};
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    });
    let page = page.await.unwrap();
    let value = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    value.unwrap_or_else(|| panic!("{name} is not in {page}")).to_owned()
}

/// What can't be read for a while must not be forgotten: a revoked node would stay.
#[tokio::test]
async fn a_list_that_can_not_be_read_is_tried_again_until_it_can() {
    let fixture = Fixture::new();
    let server = fixture.start().await;
    lists_are_stored(&server, 1).await;
    fixture.authority.revoke("a").unwrap();
    let second = std::fs::read(fixture.list()).unwrap();
    lists_are_stored(&server, 2).await;
    assert_eq!(metric(&server, "hedgerow_revocation_list_ok").await, "1");
    std::fs::remove_file(fixture.list()).unwrap();
    let told = happened(&server, "list-stale", 1).await;
    assert!(told.contains("crl.pem"), "{told}");
    until("a gauge", async || metric(&server, "hedgerow_revocation_list_ok").await == "0").await;
    // Another reason is another event, and the same one is not.
    std::fs::write(fixture.list(), "nonsense").unwrap();
    let told = happened(&server, "list-stale", 2).await;
    assert!(told.contains("holds no revocation list"), "{told}");
    std::fs::write(fixture.list(), second).unwrap();
    let told = happened(&server, "list-fresh", 1).await;
    assert!(told.contains(stored_lists(&server).await.last().unwrap()), "{told}");
    fixture.authority.revoke("b").unwrap();
    lists_are_stored(&server, 3).await;
    until("a gauge", async || metric(&server, "hedgerow_revocation_list_ok").await == "1").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_old_list_is_refused_also_after_a_restart() {
    let fixture = Fixture::new();
    let server = fixture.start().await;
    let first = std::fs::read(fixture.list()).unwrap();
    lists_are_stored(&server, 1).await;
    fixture.authority.revoke("a").unwrap();
    let second = std::fs::read(fixture.list()).unwrap();
    lists_are_stored(&server, 2).await;
    std::fs::write(fixture.list(), &first).unwrap();
    assert!(happened(&server, "list-stale", 1).await.contains("an old copy?"));
    server.stop().await.unwrap();
    let refused = fixture.try_start().await.err().unwrap().to_string();
    assert!(refused.contains("is in force: an old copy?"), "{refused}");
    std::fs::write(fixture.list(), &second).unwrap();
    fixture.start().await.stop().await.unwrap();
    // The numbers of another authority begin again.
    let pki = fixture.authority.folder();
    std::fs::remove_dir_all(pki).unwrap();
    Authority::init(pki, &["localhost".to_owned()]).unwrap();
    let server = fixture.start().await;
    lists_are_stored(&server, 3).await;
    server.stop().await.unwrap();
}

/// Nobody but the store knows which certificates the nodes had.
#[tokio::test]
async fn a_node_that_was_revoked_while_no_server_ran_is_shown_as_such() {
    let fixture = Fixture::new();
    let server = fixture.start().await;
    let mut streams = vec![];
    for name in ["a", "b"] {
        let file = fixture.authority.folder().join("nodes").join(format!("{name}.pem"));
        let tls = NodeIdentity::open(&file).unwrap().config();
        let client = ScriptedClient::open(server.address(), Some(tls)).await.unwrap();
        client.say(hello(name)).await;
        streams.push(client);
    }
    until("both are in", async || server.source().status().connected == 2).await;
    server.stop().await.unwrap();
    fixture.authority.revoke("a").unwrap();
    for _ in 0..2 {
        let server = fixture.start().await;
        let mut nodes = server.source().status().nodes;
        nodes.sort_by_key(|node| node.name.clone());
        let states: Vec<_> = nodes.iter().map(|node| node.state).collect();
        assert_eq!(states, [NodeState::Revoked, NodeState::Away]);
        assert_eq!(nodes[0].reason, "its certificate is revoked");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn the_end_of_a_certificate_is_told_in_time() {
    let fixture = Fixture::new();
    fixture.authority.renew_server(&[], 20).unwrap();
    // Without the authority's key the server can't renew it by itself.
    let key = fixture.authority.folder().join("ca.key");
    let aside = fixture.folder.path().join("key");
    std::fs::rename(&key, &aside).unwrap();
    let server = fixture.start().await;
    let told = happened(&server, "certificate-ends-soon", 1).await;
    assert!(told.contains("certificate of server ends in") && told.contains("days"), "{told}");
    let name = "hedgerow_certificate_end_seconds{subject=\"server\"}";
    let end: f64 = metric(&server, name).await.parse().unwrap();
    std::fs::rename(&aside, &key).unwrap();
    fixture.authority.renew_server(&[], 400).unwrap();
    assert!(happened(&server, "certificate-renewed", 1).await.contains("server"));
    assert!(metric(&server, name).await.parse::<f64>().unwrap() > end + 300.0 * 86_400.0);
    assert_eq!(of_kind(&server, "certificate-ends-soon").len(), 1);
    server.stop().await.unwrap();
}
