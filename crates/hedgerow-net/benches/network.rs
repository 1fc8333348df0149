//! Rounds per second, CPU and memory of a server and of a bare tonic echo of the same messages,
//! over loopback with mutual TLS.
//!
//! `cargo bench -p hedgerow-net --bench network` compares at K = 2, 20, 200 and 1,000 (`-- --write
//! FILE.csv` stores the table); `-- --nodes 10000` connects that many. Each server is a separate
//! process, so that its CPU and memory can be measured, and the two take turns. Nodes are scripts:
//! they answer each broadcast at once with the same numbers, so that only the server differs.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::stream;
use hedgerow_config::Layer;
use hedgerow_net::pki::identity::{NodeIdentity, Role, ServerIdentity};
use hedgerow_net::pki::{Authority, Issuing};
use hedgerow_net::serve::config::ServeSettings;
use hedgerow_net::serve::server::Server as ServeServer;
use hedgerow_net::transport::protocol::{numbers_to_bytes, wire};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Request, Response, Status, Streaming};
use wire::federation_client::FederationClient;
use wire::federation_server::{Federation, FederationServer};

/// Numbers in a message: r = 100 leaves MK-OFL models of 98.
const NUMBERS: usize = 98;

/// How long each turn is measured, and how many turns each has.
const TURN: Duration = Duration::from_secs(3);
const TURNS: usize = 5;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["echo", folder] => runtime.block_on(echo(Path::new(folder))),
        ["hedgerow", folder, nodes] => {
            runtime.block_on(hedgerow(Path::new(folder), nodes.parse().unwrap()))
        }
        ["--nodes", nodes] => runtime.block_on(connect_many(nodes.parse().unwrap())),
        [] => _ = runtime.block_on(compare()),
        ["--write", file] => std::fs::write(file, runtime.block_on(compare())).unwrap(),
        _ => println!("usage: network [--nodes K | --write FILE.csv]"),
    }
}

/// The servers take turns at each K. Returns the medians as a table.
async fn compare() -> String {
    let mut csv =
        "nodes,rounds_per_second,cpu_us_per_upload,echo_rounds_per_second,echo_cpu_us_per_upload\n"
            .to_owned();
    println!(
        "{:>6} {:>14} {:>14} {:>7} {:>18} {:>18}",
        "nodes", "rounds/s", "echo rounds/s", "ratio", "CPU µs/upload", "echo CPU µs/upload"
    );
    for nodes in [2, 20, 200, 1000] {
        let stage = CertifiedNodes::new(nodes);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            ours.push(stage.turn("hedgerow").await);
            theirs.push(stage.turn("echo").await);
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        println!(
            "{nodes:>6} {:>14.0} {:>14.0} {:>7.2} {:>18.1} {:>18.1}",
            ours.rounds,
            theirs.rounds,
            ours.rounds / theirs.rounds,
            ours.cpu,
            theirs.cpu
        );
        csv += &format!(
            "{nodes},{:.1},{:.1},{:.1},{:.1}\n",
            ours.rounds, ours.cpu, theirs.rounds, theirs.cpu
        );
    }
    csv
}

/// Connects this number of nodes. Measures rounds and the cost per node.
async fn connect_many(nodes: usize) {
    let stage = CertifiedNodes::new(nodes);
    let mut server = stage.start("hedgerow");
    let before = server.resident();
    let since = Instant::now();
    let count = Arc::new(AtomicU64::new(0));
    let crowd = stage.crowd(server.address, &count).await;
    println!("{nodes} nodes connected within {:.0} s", since.elapsed().as_secs_f64());
    tokio::time::sleep(TURN).await;
    let (counted, cpu) = (count.load(Ordering::Relaxed), server.cpu());
    let since = Instant::now();
    tokio::time::sleep(5 * TURN).await;
    let uploads = (count.load(Ordering::Relaxed) - counted) as f64;
    println!(
        "{:.1} rounds/s, {:.1} µs of CPU per upload, {:.1} kB of memory per node",
        uploads / nodes as f64 / since.elapsed().as_secs_f64(),
        1e6 * (server.cpu() - cpu) / uploads,
        (server.resident() - before) / nodes as f64 / 1e3
    );
    drop(crowd);
    server.stop();
}

#[derive(Clone, Copy)]
struct Measured {
    rounds: f64,
    /// Microseconds per upload.
    cpu: f64,
}

fn median(turns: &mut [Measured]) -> Measured {
    let mut middle = |key: fn(&Measured) -> f64| {
        turns.sort_by(|a, b| key(a).total_cmp(&key(b)));
        key(&turns[turns.len() / 2])
    };
    Measured { rounds: middle(|turn| turn.rounds), cpu: middle(|turn| turn.cpu) }
}

/// A folder with certificates for all nodes.
struct CertifiedNodes {
    folder: tempfile::TempDir,
    nodes: Vec<NodeIdentity>,
}

impl CertifiedNodes {
    fn new(nodes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::init(&folder.path().join("pki"), &[]).unwrap();
        let names: Vec<String> = (0..nodes).map(|node| format!("node-{node}")).collect();
        authority.issue_all(&names, 30, Issuing::First(Role::Node)).unwrap();
        let open =
            |name: &String| NodeIdentity::open(&authority.file_of(Role::Node, name)).unwrap();
        Self { nodes: names.iter().map(open).collect(), folder }
    }

    fn start(&self, role: &str) -> Running {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([role, self.folder.path().to_str().unwrap()])
            .args((role == "hedgerow").then(|| self.nodes.len().to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Running { address: line.trim().parse().expect(&line), child }
    }

    async fn turn(&self, role: &str) -> Measured {
        let mut server = self.start(role);
        let count = Arc::new(AtomicU64::new(0));
        let crowd = self.crowd(server.address, &count).await;
        tokio::time::sleep(TURN / 3).await;
        let (counted, cpu, since) = (count.load(Ordering::Relaxed), server.cpu(), Instant::now());
        tokio::time::sleep(TURN).await;
        let uploads = (count.load(Ordering::Relaxed) - counted) as f64;
        let rounds = uploads / self.nodes.len() as f64 / since.elapsed().as_secs_f64();
        let cpu = 1e6 * (server.cpu() - cpu) / uploads;
        drop(crowd);
        server.stop();
        Measured { rounds, cpu }
    }

    /// Connects all nodes. They answer until the crowd is dropped.
    async fn crowd(&self, address: SocketAddr, count: &Arc<AtomicU64>) -> tokio::task::JoinSet<()> {
        let (mut crowd, (ready, mut arrived)) =
            (tokio::task::JoinSet::new(), mpsc::channel(self.nodes.len()));
        // A few at a time: a handshake costs both sides a millisecond.
        let door = Arc::new(tokio::sync::Semaphore::new(32));
        for identity in &self.nodes {
            let (name, tls) = (identity.name().to_owned(), TlsConnector::from(identity.config()));
            let (count, ready, door) = (count.clone(), ready.clone(), door.clone());
            crowd.spawn(async move {
                let permit = door.acquire_owned().await.unwrap();
                let channel = connect(address, tls).await;
                let (sender, outgoing) = mpsc::channel::<wire::FromNode>(4);
                let outgoing =
                    stream::unfold(outgoing, async |mut from| Some((from.recv().await?, from)));
                let hello = wire::Hello { protocol: 2, name, ..wire::Hello::default() };
                sender.send(wire::from_node::Message::Hello(hello).into()).await.unwrap();
                let mut incoming =
                    FederationClient::new(channel).join(outgoing).await.unwrap().into_inner();
                let _ = ready.send(()).await;
                drop(permit);
                let numbers = numbers_to_bytes(&[0.25; NUMBERS]);
                while let Ok(Some(message)) = incoming.message().await {
                    let Some(wire::from_server::Message::Broadcast(broadcast)) = message.message
                    else {
                        continue;
                    };
                    let upload = wire::Upload {
                        round: broadcast.round,
                        vote: Some(0),
                        numbers: numbers.clone(),
                        samples: 1,
                        squared_error: 0.5,
                        ..Default::default()
                    };
                    if sender.send(wire::from_node::Message::Upload(upload).into()).await.is_err() {
                        break;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in &self.nodes {
            arrived.recv().await.unwrap();
        }
        crowd
    }
}

/// A server in a process of its own.
struct Running {
    address: SocketAddr,
    child: Child,
}

impl Running {
    /// Seconds of CPU so far.
    fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) / 100.0
    }

    /// Bytes in memory.
    fn resident(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        1024.0 * line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap()
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

async fn connect(address: SocketAddr, tls: TlsConnector) -> Channel {
    let connector = tower::service_fn(move |_: Uri| {
        let tls = tls.clone();
        async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
            tls.connect(name, stream).await.map(TokioIo::new)
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap()
}

/// A minimal server: it returns every message of a stream.
struct Echo;

type Answers = stream::BoxStream<'static, Result<wire::FromServer, Status>>;

#[tonic::async_trait]
impl Federation for Echo {
    type JoinStream = Answers;

    async fn join(
        &self,
        request: Request<Streaming<wire::FromNode>>,
    ) -> Result<Response<Answers>, Status> {
        let answers = stream::unfold(request.into_inner(), async |mut incoming| {
            let message = incoming.message().await.ok()??.message?;
            let (round, numbers) = match message {
                wire::from_node::Message::Upload(upload) => (upload.round + 1, upload.numbers),
                _ => (1, numbers_to_bytes(&[0.25; NUMBERS])),
            };
            let kernels = Some(wire::Selection { current: 3, next: 4 });
            let broadcast = wire::Broadcast {
                round,
                kernels,
                numbers,
                compressed: false,
                taken: round - 1,
                more: Vec::new(),
            };
            Some((Ok(wire::from_server::Message::Broadcast(broadcast).into()), incoming))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

async fn echo(folder: &Path) {
    let identity = ServerIdentity::open(&folder.join("pki")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    announce(listener.local_addr().unwrap());
    let tls = TlsAcceptor::from(identity.config());
    let (sender, incoming) = mpsc::channel(64);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (tls, sender) = (tls.clone(), sender.clone());
            tokio::spawn(async move {
                stream.set_nodelay(true).unwrap();
                let _ = sender.send(tls.accept(stream).await.map(Secured)).await;
            });
        }
    });
    let incoming = stream::unfold(incoming, async |mut from| Some((from.recv().await?, from)));
    Server::builder()
        .add_service(FederationServer::new(Echo))
        .serve_with_incoming(incoming)
        .await
        .unwrap();
}

/// What tonic wants to know of a connection: nothing.
struct Secured(TlsStream<TcpStream>);

impl Connected for Secured {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, to)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Hedgerow's server with MK-OFL of the paper's size. It waits for all nodes.
async fn hedgerow(folder: &Path, nodes: usize) {
    let text = |key: &str, path: PathBuf| format!("{key}={:?}", path.to_str().unwrap());
    let changes = [
        "learning.method=\"mk\"".to_owned(),
        "learning.inputs=5".to_owned(),
        "learning.scaling=\"none\"".to_owned(),
        format!("learning.nodes={nodes}"),
        format!("rounds.quorum={nodes}"),
        "rounds.deadline=\"never\"".to_owned(),
        "listen.address=\"127.0.0.1:0\"".to_owned(),
        "listen.dashboard=\"127.0.0.1:0\"".to_owned(),
        "limits.connections_per_address=20000".to_owned(),
        "limits.messages_per_second=1000000".to_owned(),
        text("listen.identity", folder.join("pki")),
        text("store.path", folder.join(format!("{}.db", std::process::id()))),
    ];
    let server = ServeServer::start(ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap())
        .await
        .unwrap();
    announce(server.address());
    std::future::pending::<()>().await;
}

fn announce(address: SocketAddr) {
    println!("{address}");
    std::io::stdout().flush().unwrap();
}
