//! The server over loopback with a minimal client of the protocol.

// What fails here fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::path::Path;

use crate::common::{Plan, Scaling};
use futures_util::stream::poll_fn;
use hedgerow::codec::{Coding, Encoder, Kind, NumberFormat, Reference, Section};
use hedgerow_config::Layer;
use hedgerow_net::pki::Authority;
use hedgerow_net::pki::identity::NodeIdentity;
use hedgerow_net::serve::{ServeSettings, Server};
use hedgerow_net::transport::protocol::wire::federation_client::FederationClient;
use hedgerow_net::transport::protocol::wire::{self, from_node, from_server};
use hedgerow_net::transport::protocol::{VERSION, numbers_from_bytes, numbers_to_bytes};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};

use crate::common::{PATIENCE, until};

fn settings(store: &Path, changes: &[&str]) -> ServeSettings {
    let base = [
        "learning.method=mk",
        "learning.inputs=1",
        "learning.scaling=none",
        "rounds.deadline=never",
        "listen.address=127.0.0.1:0",
        "listen.dashboard=never",
        "listen.tls=false",
    ];
    let mut changes: Vec<String> =
        base.iter().chain(changes).map(|change| (*change).to_owned()).collect();
    changes.push(format!("store.path={store:?}"));
    ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap()
}

/// A server in a folder of its own.
async fn server(changes: &[&str]) -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(settings(&folder.path().join("run.db"), changes)).await.unwrap();
    (server, folder)
}

/// One stream.
struct Node {
    to: mpsc::Sender<wire::FromNode>,
    from: Streaming<wire::FromServer>,
}

impl Node {
    /// Opens a stream on a connection of its own, without a word.
    async fn open(address: SocketAddr) -> Self {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel =
            channel.initial_stream_window_size(1 << 16).initial_connection_window_size(1 << 16);
        Self::on(channel.connect().await.unwrap()).await.unwrap()
    }

    /// The same with a certificate.
    async fn open_tls(address: SocketAddr, identity: &NodeIdentity) -> Result<Self, String> {
        let connector = TlsConnector::from(identity.config());
        let mut tls = Some({
            let tcp = TcpStream::connect(address).await.unwrap();
            let name = "127.0.0.1".try_into().unwrap();
            connector.connect(name, tcp).await.map_err(|error| error.to_string())?
        });
        let once = tower::service_fn(move |_| {
            std::future::ready(tls.take().ok_or("once").map(TokioIo::new))
        });
        let channel = Endpoint::from_static("http://server").connect_with_connector(once).await;
        Self::on(channel.map_err(|error| error.to_string())?)
            .await
            .map_err(|status| status.to_string())
    }

    async fn on(channel: tonic::transport::Channel) -> Result<Self, Status> {
        let (to, mut said) = mpsc::channel(16);
        let said = poll_fn(move |context| said.poll_recv(context));
        let from = FederationClient::new(channel).join(said).await?.into_inner();
        Ok(Self { to, from })
    }

    /// The same with a Hello; and what it was welcomed with.
    async fn join(address: SocketAddr, name: &str) -> (Self, wire::Welcome) {
        let mut node = Self::open(address).await;
        node.say(hello(name)).await;
        match node.hear().await.unwrap() {
            from_server::Message::Welcome(welcome) => (node, welcome),
            other => panic!("{other:?}"),
        }
    }

    async fn say(&mut self, message: from_node::Message) {
        self.to.send(message.into()).await.unwrap();
    }

    async fn hear(&mut self) -> Result<from_server::Message, Status> {
        let heard = timeout(PATIENCE, self.from.message()).await.expect("silence")?;
        Ok(heard.expect("the end").message.unwrap())
    }

    async fn broadcast(&mut self) -> wire::Broadcast {
        match self.hear().await.unwrap() {
            from_server::Message::Broadcast(broadcast) => broadcast,
            other => panic!("{other:?}"),
        }
    }

    async fn refusal(&mut self) -> String {
        match self.hear().await.unwrap() {
            from_server::Message::Refusal(refusal) => refusal.reason,
            other => panic!("{other:?}"),
        }
    }

    async fn upload(&mut self, round: u64) {
        self.say(upload(round, 98)).await;
    }
}

fn hello(name: &str) -> from_node::Message {
    let (run, software) = (String::new(), "test 1".into());
    from_node::Message::Hello(wire::Hello {
        protocol: VERSION,
        name: name.into(),
        run,
        software,
        newest: 0,
    })
}

fn upload(round: u64, numbers: usize) -> from_node::Message {
    let numbers = numbers_to_bytes(&vec![round as f32; numbers]);
    from_node::Message::Upload(wire::Upload {
        round,
        vote: Some(3),
        numbers,
        samples: 2,
        squared_error: 1.0,
        ..Default::default()
    })
}

fn encoder() -> Encoder {
    Encoder::for_node(Coding { numbers: NumberFormat::F16, ..Coding::default() }, 1, 0)
}

/// The same where messages are compressed; numbers that are of no section are exact.
fn compressed_upload(round: u64) -> from_node::Message {
    encoded_upload(round, &mut encoder(), &[], round as f32)
}

fn encoded_upload(
    round: u64,
    encoder: &mut Encoder,
    sections: &[Section],
    number: f32,
) -> from_node::Message {
    let mut bytes = vec![];
    encoder.encode(round, sections, &[number; 98], &Reference::default(), &mut bytes);
    let numbers = bytes.into();
    from_node::Message::Upload(wire::Upload {
        round,
        vote: Some(3),
        numbers,
        samples: 2,
        squared_error: 1.0,
        ..Default::default()
    })
}

#[tokio::test]
async fn a_node_is_told_everything_and_rounds_go_on() {
    let (server, _folder) = server(&["rounds.quorum=2"]).await;
    let (mut a, welcome) = Node::join(server.address(), "a").await;
    assert_eq!((welcome.protocol, welcome.node), (VERSION, 0));
    let plan = Plan::from_json(&welcome.learning);
    assert_eq!((plan.method().name, &plan.config().scaling), ("mk", &Scaling::None));
    let (mut b, other) = Node::join(server.address(), "b").await;
    assert_eq!((other.node, &other.run), (1, &welcome.run));
    for round in 1..=20 {
        for node in [&mut a, &mut b] {
            let broadcast = node.broadcast().await;
            assert_eq!((broadcast.round, broadcast.taken), (round, round - 1));
            assert_eq!((broadcast.numbers.len(), broadcast.compressed), (4 * 98, false));
            node.upload(round).await;
        }
    }
    assert_eq!(a.broadcast().await.round, 21);
    let status = server.source().status();
    assert_eq!(
        (status.round, status.connected, status.samples, status.mse),
        (21, 2, 80, Some(0.5))
    );
    assert_eq!((status.nodes[0].name.as_str(), status.nodes[0].software.as_str()), ("a", "test 1"));
    assert_eq!((status.nodes[1].uploads, status.refused, status.late), (20, 0, 0));
    assert!(
        status.kernels[3].vote_share == 1.0 && status.nodes[0].address.starts_with("127.0.0.1:")
    );
    // Messages, and what sockets add to them.
    assert!(status.messages_up > 40 * 400 && status.wire_up > status.messages_up, "{status:?}");
    assert!(status.messages_down > 40 * 400 && status.wire_down > status.messages_down);
    assert_eq!(server.source().history(100).len(), 20);
    // A node that goes is seen to go.
    drop(a);
    until("one node", async || server.source().status().connected == 1).await;
}

#[tokio::test]
async fn who_begins_wrongly_is_turned_away() {
    let (patient, _folder) = server(&[]).await;
    let wrong_version = wire::Hello { protocol: 9, name: "a".into(), ..Default::default() };
    for (first, code, part) in [
        (from_node::Message::Hello(wrong_version), Code::FailedPrecondition, "version 1"),
        (upload(1, 98), Code::InvalidArgument, "Hello"),
        (hello("Not A Name"), Code::InvalidArgument, "name"),
        (hello(""), Code::InvalidArgument, "name"),
    ] {
        let mut node = Node::open(patient.address()).await;
        node.say(first).await;
        let status = node.hear().await.unwrap_err();
        assert!(status.code() == code && status.message().contains(part), "{status:?}");
    }
    // Silence is no beginning either, on a stream or without one.
    let (server, _folder) = server(&["limits.handshake=1s"]).await;
    let cut_off = async |said: &[u8]| {
        let mut socket = TcpStream::connect(server.address()).await.unwrap();
        socket.write_all(said).await.unwrap();
        _ = timeout(PATIENCE, socket.read_to_end(&mut vec![])).await.expect("it is cut off");
    };
    let mut silent = Node::open(server.address()).await;
    cut_off(b"").await;
    cut_off(b"PRI * HTTP/2.0\r\n").await;
    silent.hear().await.unwrap_err();
    assert_eq!(server.source().status().nodes_known, 0);
    // Whoever has joined may be silent for as long as he likes, and longer than it takes to be cut
    // off.
    let (mut a, _) = Node::join(server.address(), "a").await;
    a.broadcast().await;
    cut_off(b"").await;
    a.upload(1).await;
    assert_eq!(a.broadcast().await.round, 2);
}

#[tokio::test]
async fn bad_messages_are_refused_with_a_reason_and_harm_nobody() {
    let (server, _folder) = server(&["rounds.quorum=1", "limits.bad_messages=6"]).await;
    let (mut bad, _) = Node::join(server.address(), "bad").await;
    bad.broadcast().await;
    let odd = wire::Upload { round: 1, numbers: vec![1, 2, 3].into(), ..Default::default() };
    for (message, part) in [
        (hello("bad"), "second Hello"),
        (upload(1, 97), "97 came"),
        (from_node::Message::Upload(odd), "four bytes"),
        (upload(7, 98), "round 1 is open"),
        (from_node::Message::Report(wire::Report::default()), "no uploads"),
    ] {
        bad.say(message).await;
        let reason = bad.refusal().await;
        assert!(reason.contains(part), "{reason}");
    }
    bad.to.send(wire::FromNode { message: None }).await.unwrap();
    let end = bad.hear().await.unwrap_err();
    assert!(
        end.code() == Code::ResourceExhausted && end.message().contains("empty message"),
        "{end:?}"
    );
    // Other nodes, and the same node on another stream, are not affected.
    let (mut good, _) = Node::join(server.address(), "bad").await;
    good.broadcast().await;
    good.upload(1).await;
    assert_eq!(good.broadcast().await.taken, 1);
    good.upload(1).await;
    assert!(good.refusal().await.contains("already"));
    // Too long to be read at all.
    let (mut long, _) = Node::join(server.address(), "long").await;
    long.broadcast().await;
    long.say(upload(2, 100_000)).await;
    assert_eq!(long.hear().await.unwrap_err().code(), Code::OutOfRange);
    good.upload(2).await;
    assert_eq!(good.broadcast().await.round, 3);
    let status = server.source().status();
    assert_eq!((status.refused, status.nodes[0].refused), (8, 7));
    assert_eq!(status.nodes.iter().find(|node| node.name == "long").unwrap().refused, 1);
}

#[tokio::test]
async fn the_second_stream_of_a_node_replaces_the_first() {
    let (server, _folder) = server(&["rounds.quorum=all"]).await;
    let (mut first, welcome) = Node::join(server.address(), "a").await;
    first.broadcast().await;
    let (mut second, again) = Node::join(server.address(), "a").await;
    assert_eq!(again.node, welcome.node);
    assert_eq!(first.hear().await.unwrap_err().code(), Code::Aborted);
    second.broadcast().await;
    second.upload(1).await;
    assert_eq!(second.broadcast().await.round, 2);
    assert_eq!(server.source().status().connected, 1);
}

#[tokio::test]
async fn an_upload_that_is_said_again_on_another_stream_counts_once() {
    let (server, _folder) = server(&["rounds.quorum=2"]).await;
    let (mut first, _) = Node::join(server.address(), "a").await;
    first.broadcast().await;
    first.upload(1).await;
    let (mut second, _) = Node::join(server.address(), "a").await;
    // Its round is open: whether it counts is not known yet.
    assert_eq!(second.broadcast().await.taken, 0);
    second.upload(1).await;
    let (mut b, _) = Node::join(server.address(), "b").await;
    b.broadcast().await;
    b.upload(1).await;
    let broadcast = second.broadcast().await;
    assert_eq!((broadcast.round, broadcast.taken), (2, 1));
    let status = server.source().status();
    assert_eq!((status.samples, status.refused), (4, 0));
}

#[tokio::test]
async fn what_was_said_again_is_what_the_next_upload_differs_from() {
    let tracked = [Section { len: 98, kind: Kind::Tracked { slot: 0 } }];
    let (server, _folder) = server(&["rounds.quorum=2", "learning.compression=f16"]).await;
    let (mut a, _) = Node::join(server.address(), "a").await;
    let (mut b, _) = Node::join(server.address(), "b").await;
    a.broadcast().await;
    b.broadcast().await;
    a.say(encoded_upload(1, &mut encoder(), &tracked, 5.0)).await;
    until("an upload", async || server.source().status().uploads > 0).await;
    // On another stream both sides begin afresh.
    let (mut a, _) = Node::join(server.address(), "a").await;
    a.broadcast().await;
    let mut encoder = encoder();
    a.say(encoded_upload(1, &mut encoder, &tracked, 5.0)).await;
    until("another", async || {
        server.source().status().nodes.iter().any(|node| node.bytes_up >= 300)
    })
    .await;
    b.say(compressed_upload(1)).await;
    assert_eq!(a.broadcast().await.taken, 1);
    encoder.acknowledge();
    a.say(encoded_upload(2, &mut encoder, &tracked, 5.0)).await;
    b.broadcast().await;
    b.say(encoded_upload(2, &mut encoder.clone(), &[], 5.0)).await;
    a.broadcast().await;
    // A new node receives the uncompressed mean of both.
    let (mut c, _) = Node::join(server.address(), "c").await;
    let mut numbers = vec![];
    numbers_from_bytes(&c.broadcast().await.numbers, 98, &mut numbers).unwrap();
    assert!(numbers.iter().all(|number| (number - 5.0).abs() < 0.1), "{numbers:?}");
}

#[tokio::test]
async fn who_reads_slowly_hears_the_latest_and_not_everything() {
    const ROUNDS: u64 = 3_000;
    let (server, _folder) = server(&["rounds.quorum=1", "learning.compression=f16"]).await;
    let (mut slow, _) = Node::join(server.address(), "slow").await;
    let (mut quick, _) = Node::join(server.address(), "quick").await;
    for round in 1..=ROUNDS {
        assert_eq!(quick.broadcast().await.round, round);
        quick.say(compressed_upload(round)).await;
    }
    let mut heard = vec![0];
    while heard.last() != Some(&(ROUNDS + 1)) {
        let broadcast = slow.broadcast().await;
        // A difference is for those who have heard the one before.
        let has_one_before =
            heard.last() != Some(&0) && heard.last() == Some(&(broadcast.round - 1));
        assert_eq!(broadcast.compressed, has_one_before);
        heard.push(broadcast.round);
    }
    assert!(heard.is_sorted() && heard.len() < ROUNDS as usize / 2, "{} of {ROUNDS}", heard.len());
    // It can go on from there.
    slow.say(compressed_upload(ROUNDS + 1)).await;
    assert_eq!(slow.broadcast().await.taken, ROUNDS + 1);
}

#[tokio::test]
async fn a_run_goes_on_after_its_server_was_stopped_or_killed() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |changes: &[&str]| settings(&folder.path().join("run.db"), changes);
    let server = Server::start(settings(&["rounds.quorum=2"])).await.unwrap();
    let (mut a, first) = Node::join(server.address(), "a").await;
    let (mut b, _) = Node::join(server.address(), "b").await;
    for node in [&mut b, &mut a] {
        node.broadcast().await;
        node.upload(1).await;
    }
    let opened = a.broadcast().await;
    // Stopped: the round closes with its only upload, and all nodes receive the result.
    a.upload(2).await;
    until("an upload", async || server.source().status().uploads > 0).await;
    let served = server.stop().await.unwrap();
    assert_eq!((served.round, &served.run), (3, &first.run));
    let last = a.broadcast().await;
    assert_eq!((last.round, last.taken), (3, 2));
    assert_eq!(a.hear().await.unwrap_err().code(), Code::Unavailable);

    let server = Server::start(settings(&["rounds.quorum=2"])).await.unwrap();
    let (mut b, again) = Node::join(server.address(), "b").await;
    assert_eq!((again.node, &again.run), (1, &first.run));
    let reopened = b.broadcast().await;
    assert_eq!(
        (reopened.round, reopened.taken),
        (3, 0),
        "its second was not taken; the first is long known"
    );
    assert_ne!(reopened.numbers, opened.numbers);
    let (mut a, again) = Node::join(server.address(), "a").await;
    assert_eq!(again.node, 0);
    let heard = a.broadcast().await;
    assert_eq!((heard.taken, &heard.numbers), (2, &last.numbers));
    let status = server.source().status();
    assert_eq!((status.samples, status.nodes_known, status.window_rounds), (6, 2, 2));
    assert_eq!(server.source().history(9).len(), 2);
    // Killed: the uploads of the open round are lost and can be sent again.
    a.upload(3).await;
    until("an upload", async || server.source().status().uploads > 0).await;
    drop(server);
    assert!(a.hear().await.is_err());
    let server = Server::start(settings(&["rounds.quorum=2"])).await.unwrap();
    assert_eq!(server.source().status().uploads, 0);
    let (mut a, _) = Node::join(server.address(), "a").await;
    let (mut b, _) = Node::join(server.address(), "b").await;
    for node in [&mut a, &mut b] {
        assert_eq!(node.broadcast().await.round, 3);
        node.upload(3).await;
    }
    assert_eq!(a.broadcast().await.taken, 3);
    drop(server);
    // Another configuration is another run.
    let error = Server::start(settings(&["learning.ridge=0.5"])).await.err().unwrap().to_string();
    assert!(error.contains("learning.setup.ridge is 0.01 there and 0.5 here"), "{error}");
}

#[tokio::test]
async fn connections_are_limited() {
    let changes =
        ["limits.connections=4", "limits.connections_per_address=3", "limits.handshake=60s"];
    let (server, _folder) = server(&changes).await;
    let (mut a, _) = Node::join(server.address(), "a").await;
    a.broadcast().await;
    let idle = [
        TcpStream::connect(server.address()).await.unwrap(),
        TcpStream::connect(server.address()).await.unwrap(),
    ];
    // One more than is allowed: it is closed at once.
    for _ in 0..5 {
        let mut refused = TcpStream::connect(server.address()).await.unwrap();
        let read = timeout(PATIENCE, refused.read(&mut [0])).await.expect("it is cut off");
        assert!(matches!(read, Ok(0) | Err(_)));
    }
    a.upload(1).await;
    assert_eq!(a.broadcast().await.round, 2);
    drop(idle);
    // A slot is free again.
    until("room", async || {
        let channel = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
        let Ok(channel) = channel.connect().await else { return false };
        let (_to, mut said) = mpsc::channel(1);
        let stream = poll_fn(move |context| said.poll_recv(context));
        FederationClient::new(channel).join(stream).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_node_is_who_its_certificate_says_until_it_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let pki = folder.path().join("pki");
    let authority = Authority::init(&pki, &["127.0.0.1".to_owned()]).unwrap();
    let [a, b] =
        ["a", "b"].map(|name| NodeIdentity::open(&authority.issue(name, 9).unwrap()).unwrap());
    let identity = format!("listen.identity={pki:?}");
    let changes = ["listen.tls=true", &identity, "rounds.quorum=1"];
    let server = Server::start(settings(&folder.path().join("run.db"), &changes)).await.unwrap();
    let mut liar = Node::open_tls(server.address(), &a).await.unwrap();
    liar.say(hello("b")).await;
    assert_eq!(liar.hear().await.unwrap_err().code(), Code::PermissionDenied);
    let mut nodes = vec![];
    for (identity, name) in [(&a, "a"), (&b, "b")] {
        let mut node = Node::open_tls(server.address(), identity).await.unwrap();
        node.say(hello(name)).await;
        assert!(matches!(node.hear().await.unwrap(), from_server::Message::Welcome(_)));
        node.broadcast().await;
        nodes.push(node);
    }
    nodes[0].upload(1).await;
    assert_eq!((nodes[0].broadcast().await.round, nodes[1].broadcast().await.round), (2, 2));
    let status = server.source().status();
    assert!(status.wire_up > status.messages_up + 2_000, "handshakes are counted: {status:?}");
    // Its stream ends, and it gets no other. Other nodes are not affected.
    authority.revoke("a").unwrap();
    assert_eq!(nodes[0].hear().await.unwrap_err().code(), Code::PermissionDenied);
    assert!(Node::open_tls(server.address(), &a).await.is_err());
    nodes[1].upload(2).await;
    assert_eq!(nodes[1].broadcast().await.round, 3);
    assert_eq!(server.source().status().connected, 1);
    // Plain text is not spoken here.
    let mut plain = TcpStream::connect(server.address()).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut answer = vec![];
    _ = timeout(PATIENCE, plain.read_to_end(&mut answer)).await.expect("it is cut off");
    assert!(answer.len() < 10, "{answer:?}");
}

#[tokio::test]
async fn the_dashboard_is_there() {
    let (server, _folder) = server(&["listen.dashboard=127.0.0.1:0"]).await;
    let mut socket = TcpStream::connect(server.dashboard().unwrap()).await.unwrap();
    socket
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, socket.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.stop().await.unwrap();
}
