//! The same with a running server: what a node asks for, and what it gets.

use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration as Span;

use hedgerow_config::Layer;
use hedgerow_net::agent::client::{self, ConnectError, Dial};
use hedgerow_net::agent::config::Settings;
use hedgerow_net::agent::driver::{self, AgentError, Parts};
use hedgerow_net::agent::enrolment::{EnrolError, Renewed, accept, enroll, renew, write_request};
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use hedgerow_net::pki::identity::{NodeIdentity, ServerIdentity};
use hedgerow_net::pki::request::Requested;
use hedgerow_net::pki::token::{Fingerprint, Token};
use hedgerow_net::pki::{Authority, Issuing, TokenState};
use hedgerow_net::serve::config::ServeSettings;
use hedgerow_net::serve::server::Server;
use hedgerow_net::storage::View;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{DAY, authority_of};
use crate::common::until;

const SAMPLE: &str = "{\"x\": [0.1, 0.2], \"y\": 0.3}\n";

const LIFE: Span = Span::from_secs(3_600);

async fn server(folder: &Path, pki: &Path) -> Server {
    let changes = [
        "learning.inputs=2".to_owned(),
        "learning.method=mk".to_owned(),
        "learning.scaling=none".to_owned(),
        "listen.address=127.0.0.1:0".to_owned(),
        "listen.dashboard=127.0.0.1:0".to_owned(),
        format!("listen.identity={pki:?}"),
        format!("store.path={:?}", folder.join("server.db")),
    ];
    Server::start(ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap()).await.unwrap()
}

fn settings(folder: &Path, server: &Server, more: &[&str]) -> Settings {
    let mut changes = vec![
        format!("server.address=\"localhost:{}\"", server.address().port()),
        format!("server.identity={:?}", folder.join("node.pem")),
        format!("state.path={:?}", folder.join("node.state")),
        "server.connect_timeout=60s".to_owned(),
        "samples.pace=round".to_owned(),
    ];
    changes.extend(more.iter().map(|change| (*change).to_owned()));
    Settings::read(&Layer::sets(&changes).unwrap()).unwrap()
}

fn dial(settings: &Settings) -> Dial {
    client::tcp(&settings.server.address, false)
}

/// A node that learns three samples and leaves, or stays.
async fn node(settings: Settings, stays: bool) -> Result<(), AgentError> {
    let text = SAMPLE.repeat(3);
    let input = if stays { Input::None } else { Input::reading(Cursor::new(text)) };
    node_with(settings, input).await
}

async fn node_with(settings: Settings, input: Input) -> Result<(), AgentError> {
    let parts = Parts {
        dial: dial(&settings),
        security: settings.security().unwrap(),
        input: Box::new(move |_| input),
        output: Output::none(),
        asked: None,
        methods: &[],
    };
    driver::run(settings, parts, std::future::pending()).await
}

async fn metrics(server: &Server) -> String {
    let mut tcp = tokio::net::TcpStream::connect(server.dashboard().unwrap()).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    tcp.write_all(request).await.unwrap();
    let mut page = String::new();
    tcp.read_to_string(&mut page).await.unwrap();
    page
}

fn refused(outcome: Result<(), EnrolError>) -> String {
    match outcome {
        Err(EnrolError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_token_and_nothing_else_makes_a_node() {
    let folder = TempDir::new().unwrap();
    let authority = authority_of(&folder, OffsetDateTime::now_utc());
    let server = server(folder.path(), authority.folder()).await;
    let settings = settings(folder.path(), &server, &[]);
    let (token, _) = authority.token("n1", "", LIFE, 10).unwrap();
    enroll(&settings, &dial(&settings), &token).await.unwrap();
    let file = &settings.server.identity;
    let identity = NodeIdentity::open(file).unwrap();
    assert_eq!(identity.name(), "n1");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(!folder.path().join("node.pem.key").exists());
    let key = std::fs::read_to_string(file).unwrap();
    let (key, _) = key.split_at(key.find("-----BEGIN CERT").unwrap());
    // The authority has never seen the key.
    for part in ["pki/index.jsonl", "pki/tokens.jsonl", "pki/audit.jsonl"] {
        let text = std::fs::read_to_string(folder.path().join(part)).unwrap();
        assert!(!text.contains(&key[40..80]), "{part}");
    }
    assert!(matches!(
        authority.tokens().unwrap()[0].state(OffsetDateTime::now_utc()),
        TokenState::Used(_)
    ));
    // Its file is there: the token isn't needed, and changes nothing.
    let before = std::fs::read(file).unwrap();
    enroll(&settings, &dial(&settings), &token).await.unwrap();
    assert_eq!(std::fs::read(file).unwrap(), before);
    let other = Token { name: "n2".into(), ..token.clone() };
    let refusal = enroll(&settings, &dial(&settings), &other).await.unwrap_err();
    assert!(
        refusal.to_string().contains("is the file of n1, but the token is for n2"),
        "{refusal}"
    );
    // Somebody else with the same token.
    std::fs::remove_file(file).unwrap();
    let used = refused(enroll(&settings, &dial(&settings), &token).await);
    assert!(used.starts_with("the token was used on 20"), "{used}");
    std::fs::write(file, before).unwrap();
    node(settings, false).await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_answer_that_gets_lost_is_asked_for_again_with_the_same_key() {
    let folder = TempDir::new().unwrap();
    let authority = authority_of(&folder, OffsetDateTime::now_utc());
    let server = server(folder.path(), authority.folder()).await;
    let settings = settings(folder.path(), &server, &["server.connect_timeout=2s"]);
    let (token, _) = authority.token("n1", "", LIFE, 10).unwrap();
    // Everything arrives at the server, but after the handshake nothing comes back.
    let address = server.address();
    let deaf: Dial = Arc::new(move || {
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
                let (mut from_server, mut to_server) = tcp.into_split();
                let (mut from_node, mut to_node) = tokio::io::split(far);
                let up = tokio::io::copy(&mut from_node, &mut to_server);
                let down = async {
                    let mut bytes = [0; 1 << 16];
                    let read = from_server.read(&mut bytes).await.unwrap();
                    to_node.write_all(&bytes[..read]).await.unwrap();
                    std::future::pending::<()>().await;
                };
                tokio::select! { _ = up => {}, () = down => {} }
            });
            Ok(Box::new(near) as _)
        })
    });
    let lost = enroll(&settings, &deaf, &token).await.unwrap_err();
    assert!(matches!(lost, EnrolError::Connect(ConnectError::Silent(_))), "{lost}");
    let is_used = || authority.tokens().unwrap()[0].used_at.is_some();
    until("the server has signed", async || is_used()).await;
    assert!(folder.path().join("node.pem.key").exists() && !settings.server.identity.exists());
    enroll(&settings, &dial(&settings), &token).await.unwrap();
    assert_eq!(NodeIdentity::open(&settings.server.identity).unwrap().name(), "n1");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_shows_its_token_to_no_other_server() {
    let folder = TempDir::new().unwrap();
    let authority = authority_of(&folder, OffsetDateTime::now_utc());
    let server = server(folder.path(), authority.folder()).await;
    let settings = settings(folder.path(), &server, &[]);
    let (token, _) = authority.token("n1", "", LIFE, 10).unwrap();
    let pinned = Token { authority: Fingerprint::of(b"another"), ..token.clone() };
    let refusal = enroll(&settings, &dial(&settings), &pinned).await.unwrap_err();
    assert!(refusal.to_string().contains("it is of another authority"), "{refusal}");
    // Nor to one with another name.
    let mut elsewhere = settings.clone();
    elsewhere.server.name = "elsewhere.example".to_owned();
    let refusal = enroll(&elsewhere, &dial(&settings), &token).await.unwrap_err();
    assert!(refusal.to_string().contains("not valid for name"), "{refusal}");
    assert!(matches!(
        authority.tokens().unwrap()[0].state(OffsetDateTime::now_utc()),
        TokenState::Open
    ));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_without_the_key_says_so_and_a_file_helps() {
    let folder = TempDir::new().unwrap();
    let authority = authority_of(&folder, OffsetDateTime::now_utc());
    let copy = folder.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for name in ["server.pem", "crl.pem"] {
        std::fs::copy(authority.folder().join(name), copy.join(name)).unwrap();
    }
    let server = server(folder.path(), &copy).await;
    let settings = settings(folder.path(), &server, &[]);
    let (token, _) = authority.token("n1", "", LIFE, 10).unwrap();
    let reason = refused(enroll(&settings, &dial(&settings), &token).await);
    assert!(reason.contains("can't sign") && reason.contains("hedgerow pki sign"), "{reason}");
    assert!(!reason.contains("copy"), "{reason}");
    std::fs::remove_file(folder.path().join("node.pem.key")).unwrap();
    let (file, csr) = (&settings.server.identity, folder.path().join("n1.csr"));
    assert!(matches!(accept(file, &csr), Err(EnrolError::NoKey(_))));
    write_request(file, "n1", &csr).unwrap();
    let (signed, _) = authority.sign(&Requested::read(&csr).unwrap(), 10).unwrap();
    assert!(accept(file, &csr).is_err());
    assert_eq!(accept(file, &signed).unwrap(), "n1");
    assert!(matches!(write_request(file, "n1", &csr), Err(EnrolError::Enrolled(_))));
    node(settings, false).await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn guesses_are_refused_counted_and_soon_not_listened_to() {
    let folder = TempDir::new().unwrap();
    let authority = authority_of(&folder, OffsetDateTime::now_utc());
    let server = server(folder.path(), authority.folder()).await;
    let settings = settings(folder.path(), &server, &[]);
    let (token, _) = authority.token("n1", "", LIFE, 10).unwrap();
    let mut wrong = authority.token("n2", "", LIFE, 10).unwrap().0;
    authority.cancel_tokens("n2").unwrap();
    wrong.name = "n1".to_owned();
    for _ in 0..10 {
        let reason = refused(enroll(&settings, &dial(&settings), &wrong).await);
        assert!(reason.starts_with("the token was cancelled"), "{reason}");
    }
    // Now not even a good one is looked at.
    let reason = refused(enroll(&settings, &dial(&settings), &token).await);
    assert!(reason.starts_with("too many failed requests"), "{reason}");
    let page = metrics(&server).await;
    assert!(page.contains("hedgerow_signings_total{outcome=\"cancelled-token\"} 10"), "{page}");
    assert!(page.contains("hedgerow_signings_total{outcome=\"too-often\"} 1"), "{page}");
    // Without a certificate nothing else is possible on such a connection.
    let config = NodeIdentity::first_contact(token.authority).unwrap();
    let tcp = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(config);
    let mut tls = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
    tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    _ = tls.read_to_end(&mut heard).await;
    assert_eq!(heard, b"");
    assert_eq!(server.source().status().nodes_known, 0);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn certificates_of_nodes_and_server_are_renewed_before_they_end() {
    let folder = TempDir::new().unwrap();
    // Seven of nine days ago; the server's certificate, too.
    let now = OffsetDateTime::now_utc();
    let authority = Authority::at(&folder.path().join("pki")).at_time(now - DAY * 7);
    authority.make(&[], 9, 100).unwrap();
    let file = authority.issue("n1", 9).unwrap();
    let of_server = || ServerIdentity::open(authority.folder()).unwrap().days_left();
    let of_node = || NodeIdentity::open(&file).unwrap().days_left();
    assert!(of_server() < 3 && of_node() < 3);
    let server = server(folder.path(), authority.folder()).await;
    let more = format!("server.identity={file:?}");
    let mut settings = settings(folder.path(), &server, &[&more]);
    settings.samples.source = hedgerow_net::agent::config::Source::None;
    settings.samples.at_end = hedgerow_net::agent::config::AtEnd::Stay;
    let source = server.source();
    let renewed = async {
        until("a node", async || source.status().connected > 0).await;
        until("a renewed node", async || of_node() > 3).await;
        until("a renewed server", async || of_server() > 3).await;
        until("a node with its new certificate", async || source.status().connected > 0).await;
    };
    tokio::select! {
        ended = node(settings.clone(), true) => panic!("{ended:?}"),
        () = renewed => {}
    }
    // Who asks too early gets nothing.
    let identity = NodeIdentity::open(&file).unwrap();
    let outcome = renew(&dial(&settings), &identity, "localhost".try_into().unwrap()).await;
    assert_eq!(outcome.unwrap(), Renewed::TooEarly);
    assert_eq!(NodeIdentity::open(&file).unwrap().peer(), identity.peer());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_learns_a_new_authority_while_it_runs() {
    let folder = TempDir::new().unwrap();
    let authority = authority_of(&folder, OffsetDateTime::now_utc());
    let file = authority.issue("n1", 90).unwrap();
    let server = server(folder.path(), authority.folder()).await;
    let more = format!("server.identity={file:?}");
    let mut settings = settings(folder.path(), &server, &[&more, "server.renew_every=300ms"]);
    settings.samples.source = hedgerow_net::agent::config::Source::None;
    settings.samples.at_end = hedgerow_net::agent::config::AtEnd::Stay;
    let source = server.source();
    let rotated = async {
        until("a node", async || source.status().connected > 0).await;
        authority.rotate(3650).unwrap();
        let waits = async || authority.rotation().unwrap().unwrap().waiting.is_empty();
        until("the node knows the new authority", waits).await;
        authority.finish_rotation(false).unwrap();
        let both = || std::fs::read_to_string(&file).unwrap().matches("BEGIN CERTIFICATE").count();
        until("the node knows only the new authority", async || both() == 2).await;
    };
    tokio::select! {
        ended = node(settings.clone(), true) => panic!("{ended:?}"),
        () = rotated => {}
    }
    node(
        Settings { samples: self::settings(folder.path(), &server, &[]).samples, ..settings },
        false,
    )
    .await
    .unwrap();
    server.stop().await.unwrap();
}

/// Samples until they are stopped, and their count.
#[derive(Clone, Default)]
struct Endless {
    rest: Cursor<&'static str>,
    is_over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = Read::read(&mut self.rest, buffer)?;
        if read > 0 || self.is_over.load(Relaxed) {
            return Ok(read);
        }
        self.count.fetch_add(1, Relaxed);
        self.rest = Cursor::new(SAMPLE);
        Read::read(&mut self.rest, buffer)
    }
}

#[tokio::test]
async fn a_file_that_is_replaced_by_hand_is_used_at_once_and_no_sample_is_lost() {
    for renews in [true, false] {
        let folder = TempDir::new().unwrap();
        let authority = authority_of(&folder, OffsetDateTime::now_utc());
        let file = authority.issue("n1", 90).unwrap();
        let server = server(folder.path(), authority.folder()).await;
        let more = format!("server.identity={file:?}");
        let renew = format!("server.renew={renews}");
        let settings =
            settings(folder.path(), &server, &[&more, &renew, "server.renew_every=300ms"]);
        let samples = Endless::default();
        let Endless { is_over, count, .. } = samples.clone();
        let node = tokio::spawn(node_with(settings, Input::reading(samples)));
        let source = server.source();
        let store = View::open(&folder.path().join("server.db")).unwrap();
        for _ in 0..3 {
            let round = source.status().round;
            until("rounds go on", async || source.status().round > round + 5).await;
            authority.issue_all(&["n1"], 90, Issuing::Renewal).unwrap();
            let serial = NodeIdentity::open(&file).unwrap().peer().serial.clone();
            let is_used = async || store.nodes().unwrap()[0].certificate == serial;
            until("the new certificate is used", is_used).await;
        }
        is_over.store(true, Relaxed);
        node.await.unwrap().unwrap();
        let status = source.status();
        assert_eq!((status.samples, status.refused), (count.load(Relaxed), 0));
        server.stop().await.unwrap();
    }
}
