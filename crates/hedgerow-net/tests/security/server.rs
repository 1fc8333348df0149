//! A server with two honest nodes, its log, and scripted attackers.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::poll_fn;
use hedgerow_net::pki::identity::{NodeIdentity, Role};
use hedgerow_net::serve::status::{NodeStatus, Status as Standing};
use hedgerow_net::serve::{ServeSettings, Server};
use hedgerow_net::transport::Connection;
use hedgerow_net::transport::protocol::wire::federation_client::FederationClient;
use hedgerow_net::transport::protocol::wire::{self, from_node, from_server};
use hedgerow_net::transport::protocol::{VERSION, numbers_from_bytes, numbers_to_bytes};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tonic::{Status, Streaming};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::common::{PATIENCE, comes_true};
use crate::identity::fixture::Fixture;

/// So many honest rounds are to close while something goes on. A server that is made to wait closes
/// next to none.
pub(crate) const ROUNDS: u64 = 20;

/// What honest nodes upload, again and again: so many numbers, all the same. Their mean is the same
/// again.
pub(crate) const NUMBERS: usize = 98;
pub(crate) const NUMBER: f32 = 0.01;

/// Their names.
const HONEST: [&str; 2] = ["honest-1", "honest-2"];

/// The server, its nodes and its log.
pub(crate) struct AttackedServer {
    pub(crate) server: Server,
    pub(crate) fixture: Fixture,
    pub(crate) log: Log,
    /// Errors that honest nodes observed.
    complaints: Arc<Mutex<Vec<String>>>,
    _honest: JoinSet<()>,
    _capture: DefaultGuard,
}

/// How a attacked differs from others.
pub(crate) struct Style<'a> {
    pub(crate) changes: &'a [&'a str],
    /// How long honest nodes think before they answer.
    pub(crate) nap: Duration,
    pub(crate) is_plain: bool,
    /// Whether the log has everything that libraries say, too.
    pub(crate) is_chatty: bool,
    /// Whether others may have a part in what is learned.
    pub(crate) is_tolerant: bool,
}

impl Default for Style<'_> {
    fn default() -> Self {
        // Honest nodes pause before they answer. Otherwise rounds would use all CPU time, and every
        // attack would take a share of it.
        let nap = Duration::from_millis(5);
        Self { changes: &[], nap, is_plain: false, is_chatty: false, is_tolerant: false }
    }
}

impl AttackedServer {
    pub(crate) async fn new(changes: &[&str]) -> Self {
        Self::with(Style { changes, ..Style::default() }).await
    }

    pub(crate) async fn with(style: Style<'_>) -> Self {
        let log = Log::default();
        let capture = log.begin(style.is_chatty);
        let fixture = Fixture::new();
        let settings = settings(&fixture, &style);
        let server = Server::start(settings).await.unwrap();
        let mut attacked = Self {
            server,
            fixture,
            log,
            complaints: Arc::default(),
            _honest: JoinSet::new(),
            _capture: capture,
        };
        for name in HONEST {
            let client = if style.is_plain {
                let mut client =
                    ScriptedClient::open(attacked.server.address(), None).await.unwrap();
                client.say(hello(name)).await;
                client.welcome().await;
                client
            } else {
                attacked.client(name).await
            };
            let complaints = Arc::clone(&attacked.complaints);
            let (nap, is_tolerant) = (style.nap, style.is_tolerant);
            attacked._honest.spawn(async move {
                let complaint = client.be_honest(nap, is_tolerant).await;
                complaints.lock().unwrap().push(format!("{name}: {complaint}"));
            });
        }
        attacked.rounds(ROUNDS).await;
        attacked
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// TLS of an enrolled node; a new one is enrolled.
    pub(crate) fn tls(&self, name: &str) -> Arc<ClientConfig> {
        let file = self.fixture.authority.file_of(Role::Node, name);
        if !file.exists() {
            self.fixture.authority.issue(name, 10).unwrap();
        }
        NodeIdentity::open(&file).unwrap().config()
    }

    /// A node that has joined.
    pub(crate) async fn client(&self, name: &str) -> ScriptedClient {
        let mut client = ScriptedClient::open(self.address(), Some(self.tls(name))).await.unwrap();
        client.say(hello(name)).await;
        client.welcome().await;
        client
    }

    pub(crate) fn status(&self) -> Standing {
        self.server.source().status()
    }

    pub(crate) fn node(&self, name: &str) -> NodeStatus {
        self.status().nodes.into_iter().find(|node| node.name == name).unwrap()
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Standing) -> bool) {
        let came = comes_true(async || is_so(&self.status())).await;
        assert!(came, "not {what}: {:?}\n{}", self.status(), self.log.tail());
    }

    /// Waits for this number of honest rounds. Honest nodes must not see errors.
    pub(crate) async fn rounds(&self, more: u64) {
        let end = self.status().round + more;
        self.until("so many rounds", |status| status.round >= end).await;
        self.is_well();
    }

    pub(crate) fn is_well(&self) {
        let complaints = self.complaints.lock().unwrap();
        assert!(complaints.is_empty(), "{complaints:?}\n{}", self.log.tail());
    }

    /// Attacks without a pause until enough honest rounds have closed. Returns the number of
    /// attacks.
    pub(crate) async fn besiege(&self, mut attack: impl AsyncFnMut()) -> u64 {
        let (begin, mut times) = (self.status().round, 0);
        let siege = async {
            while times < 3 || self.status().round < begin + ROUNDS {
                attack().await;
                times += 1;
            }
        };
        let siege = timeout(PATIENCE, siege).await;
        let rounds = self.status().round - begin;
        assert!(siege.is_ok(), "{rounds} rounds during {times} attacks\n{}", self.log.tail());
        self.is_well();
        times
    }

    /// Connects with or without a certificate. The server must refuse silently. Returns the
    /// address.
    pub(crate) async fn knock(&self, tls: Arc<ClientConfig>) -> SocketAddr {
        let tcp = TcpStream::connect(self.address()).await.unwrap();
        let from = tcp.local_addr().unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        // Whoever is refused hears of it when he listens, or before.
        if let Ok(mut tls) = TlsConnector::from(tls).connect(name, tcp).await {
            let mut heard = vec![];
            _ = timeout(PATIENCE, tls.read_to_end(&mut heard)).await.expect("it is cut off");
            assert_eq!(heard, b"", "nobody is spoken to who was not let in");
        }
        from
    }

    /// How many were turned away, as the metrics have it.
    pub(crate) async fn turned_away(&self) -> u64 {
        self.metric("hedgerow_turned_away_total").await
    }

    /// How many messages were refused, likewise.
    pub(crate) async fn refused(&self) -> u64 {
        self.metric("hedgerow_uploads_total{outcome=\"refused\"}").await
    }

    async fn metric(&self, name: &str) -> u64 {
        let mut socket = TcpStream::connect(self.server.dashboard().unwrap()).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        socket.write_all(request).await.unwrap();
        let mut page = String::new();
        timeout(PATIENCE, socket.read_to_string(&mut page)).await.unwrap().unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in:\n{page}")).trim().parse().unwrap()
    }
}

fn settings(fixture: &Fixture, style: &Style<'_>) -> ServeSettings {
    let base = [
        "learning.method=mk",
        "learning.columns=[\"a\"]",
        "learning.scaling=none",
        "rounds.quorum=2",
        "rounds.deadline=never",
        "listen.address=127.0.0.1:0",
        "listen.dashboard=127.0.0.1:0",
    ];
    let path = |key: &str, path: &Path| format!("{key}={path:?}");
    let mut changes: Vec<String> =
        base.iter().chain(style.changes).map(|change| (*change).to_owned()).collect();
    changes.push(format!("listen.tls={}", !style.is_plain));
    changes.push(path("listen.identity", fixture.authority.folder()));
    changes.push(path("store.path", &fixture.folder.path().join("run.db")));
    ServeSettings::read(&hedgerow_config::Layer::sets(&changes).unwrap()).unwrap()
}

/// A connection, with TLS or without, and where it comes from.
pub(crate) async fn reach(
    server: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
) -> io::Result<(Box<dyn Connection>, SocketAddr)> {
    let tcp = TcpStream::connect(server).await?;
    tcp.set_nodelay(true)?;
    let from = tcp.local_addr()?;
    let Some(tls) = tls else { return Ok((Box::new(tcp), from)) };
    let name = ServerName::try_from("localhost").unwrap();
    Ok((Box::new(TlsConnector::from(tls).connect(name, tcp).await?), from))
}

/// A stream of a client that knows the protocol.
pub(crate) struct ScriptedClient {
    to: mpsc::Sender<wire::FromNode>,
    from: Streaming<wire::FromServer>,
    pub(crate) address: SocketAddr,
}

impl ScriptedClient {
    /// Opens a stream without a message.
    pub(crate) async fn open(
        server: SocketAddr,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let (connection, address) = reach(server, tls).await?;
        let mut connection = Some(connection);
        let once = tower::service_fn(move |_| {
            let connection = connection.take().ok_or(io::ErrorKind::ConnectionAborted);
            std::future::ready(connection.map(TokioIo::new).map_err(io::Error::from))
        });
        let endpoint = tonic::transport::Endpoint::from_static("http://localhost");
        let mut client = FederationClient::new(endpoint.connect_with_connector(once).await?);
        let (to, mut said) = mpsc::channel(64);
        let from = client.join(poll_fn(move |context| said.poll_recv(context))).await?.into_inner();
        Ok(Self { to, from, address })
    }

    pub(crate) async fn say(&self, message: impl Into<wire::FromNode>) {
        // The server may have ended the stream already: that is found out by listening.
        _ = self.to.send(message.into()).await;
    }

    pub(crate) async fn hear(&mut self) -> Result<from_server::Message, Status> {
        let heard = timeout(PATIENCE, self.from.message()).await.expect("silence")?;
        Ok(heard.ok_or_else(|| Status::cancelled("the end"))?.message.unwrap())
    }

    pub(crate) async fn welcome(&mut self) -> wire::Welcome {
        match self.hear().await {
            Ok(from_server::Message::Welcome(welcome)) => welcome,
            other => panic!("{other:?}"),
        }
    }

    /// The next round that opens.
    pub(crate) async fn round(&mut self) -> u64 {
        loop {
            match self.hear().await.unwrap() {
                from_server::Message::Broadcast(broadcast) => return broadcast.round,
                from_server::Message::Refusal(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Why the server ended the stream.
    pub(crate) async fn end(&mut self) -> Status {
        let ending = async {
            loop {
                if let Err(status) = self.hear().await {
                    return status;
                }
            }
        };
        timeout(PATIENCE, ending).await.expect("the server ends it")
    }

    /// Answers every broadcast correctly. Returns only with an error.
    async fn be_honest(mut self, nap: Duration, is_tolerant: bool) -> String {
        let mut numbers = vec![];
        loop {
            let broadcast = match self.hear().await {
                Ok(from_server::Message::Broadcast(broadcast)) => broadcast,
                other => return format!("{other:?}"),
            };
            numbers_from_bytes(&broadcast.numbers, NUMBERS, &mut numbers).unwrap();
            let is_sound = |number: &f32| *number == 0.0 || (number - NUMBER).abs() < 1e-6;
            if !is_tolerant && !numbers.iter().all(is_sound) {
                return format!("spoilt in round {}: {numbers:?}", broadcast.round);
            }
            sleep(nap).await;
            self.say(from_node::Message::Upload(upload(broadcast.round))).await;
        }
    }
}

pub(crate) fn hello(name: &str) -> from_node::Message {
    let (run, software) = (String::new(), "test 1".into());
    from_node::Message::Hello(wire::Hello {
        protocol: VERSION,
        name: name.into(),
        run,
        software,
        newest: 0,
    })
}

/// A good one.
pub(crate) fn upload(round: u64) -> wire::Upload {
    let numbers = numbers_to_bytes(&[NUMBER; NUMBERS]);
    wire::Upload {
        round,
        vote: Some(3),
        numbers,
        samples: 1,
        squared_error: 0.25,
        ..Default::default()
    }
}

/// Everything that is logged on this thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn begin(&self, is_chatty: bool) -> DefaultGuard {
        let others = if is_chatty { LevelFilter::TRACE } else { LevelFilter::OFF };
        let ours = if is_chatty { LevelFilter::TRACE } else { LevelFilter::DEBUG };
        let filter = Targets::new().with_default(others).with_target("hedgerow", ours);
        let log = self.clone();
        let lines = fmt::layer().with_ansi(false).with_writer(move || log.clone());
        tracing_subscriber::registry().with(lines.with_filter(filter)).set_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// How many lines have all of these.
    pub(crate) fn count(&self, parts: &[&str]) -> usize {
        let bytes = self.0.lock().unwrap();
        let lines = str::from_utf8(&bytes).unwrap().lines();
        lines.filter(|line| parts.iter().all(|part| line.contains(part))).count()
    }

    /// Whether a line has all of these; the latest are looked at first.
    fn has(&self, parts: &[&str]) -> bool {
        let bytes = self.0.lock().unwrap();
        let mut lines = str::from_utf8(&bytes).unwrap().lines().rev();
        lines.any(|line| parts.iter().all(|part| line.contains(part)))
    }

    /// Waits for a line that has all of these.
    pub(crate) async fn says(&self, parts: &[&str]) {
        let came = comes_true(async || self.has(parts)).await;
        assert!(came, "nothing of {parts:?} in:\n{}", self.tail());
    }

    /// The latest, without what comes every round.
    pub(crate) fn tail(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.contains(" hedgerow_net::") && !line.contains("TRACE"))
            .collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
