//! A scripted server and a node, both in memory.

#![allow(unreachable_pub, clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::Plan;
use futures_util::{Stream, stream};
use hedgerow::message::{Broadcast, Upload};
use hedgerow::{PlanConfig, ServerMethod};
use hedgerow_config::Layer;
use hedgerow_net::agent::client::{ConnectError, Dial, Security};
use hedgerow_net::agent::config::Settings;
use hedgerow_net::agent::driver::{self, AgentError, Parts};
use hedgerow_net::agent::http::Asked;
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use hedgerow_net::transport::Connection;
use hedgerow_net::transport::protocol::wire::federation_server::{Federation, FederationServer};
use hedgerow_net::transport::protocol::{self, wire};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// One stream of a node, as the server has it.
pub struct Session {
    heard: Streaming<wire::FromNode>,
    say: mpsc::Sender<Result<wire::FromServer, Status>>,
}

impl Session {
    /// The node's next message, or `None` after the end of the stream. Idle messages depend on
    /// timing and are skipped.
    pub async fn hear(&mut self) -> Option<wire::from_node::Message> {
        loop {
            let message = self.heard.message().await.ok().flatten()?.message.unwrap();
            if !matches!(message, wire::from_node::Message::Idle(_)) {
                return Some(message);
            }
        }
    }

    pub async fn hear_hello(&mut self) -> wire::Hello {
        match self.hear().await {
            Some(wire::from_node::Message::Hello(hello)) => hello,
            other => panic!("{other:?} instead of a hello"),
        }
    }

    pub async fn hear_upload(&mut self) -> wire::Upload {
        match self.hear().await {
            Some(wire::from_node::Message::Upload(upload)) => upload,
            other => panic!("{other:?} instead of an upload"),
        }
    }

    /// Whether the node says nothing for a while. Only for tests with a paused clock: it moves when
    /// the node has nothing to do.
    pub async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(200), self.hear()).await.is_err()
    }

    pub async fn say(&self, message: impl Into<wire::FromServer>) {
        self.say.send(Ok(message.into())).await.unwrap();
    }

    pub async fn welcome(&mut self, run: &str, learning: &str) -> wire::Hello {
        let hello = self.hear_hello().await;
        let (run, learning) = (run.to_owned(), learning.to_owned());
        let welcome = wire::Welcome {
            protocol: protocol::VERSION,
            run,
            node: 0,
            learning,
            newest: 0,
            epoch: 0,
        };
        self.say(wire::from_server::Message::Welcome(welcome)).await;
        hello
    }

    pub async fn broadcast(&self, broadcast: &Broadcast, taken: u64) {
        let message = wire::Broadcast { taken, ..crate::common::broadcast_to_wire(broadcast) };
        self.say(wire::from_server::Message::Broadcast(message)).await;
    }

    pub async fn end(self, status: Status) {
        self.say.send(Err(status)).await.unwrap();
    }
}

/// Takes an upload as a server does.
pub fn accept(server: &mut dyn ServerMethod, upload: &wire::Upload) {
    let mut numbers = Vec::new();
    protocol::numbers_from_bytes(&upload.numbers, 1 << 20, &mut numbers).unwrap();
    server.accept(0, &Upload { round: upload.round, vote: upload.vote, numbers }).unwrap();
}

struct Script(mpsc::Sender<Session>);

#[tonic::async_trait]
impl Federation for Script {
    type JoinStream = Pin<Box<dyn Stream<Item = Result<wire::FromServer, Status>> + Send>>;

    async fn join(
        &self,
        request: Request<Streaming<wire::FromNode>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let (say, mut said) = mpsc::channel(16);
        self.0.send(Session { heard: request.into_inner(), say }).await.unwrap();
        Ok(Response::new(Box::pin(stream::poll_fn(move |context| said.poll_recv(context)))))
    }
}

/// A place for a server and a node.
pub struct TestServer {
    pub folder: TempDir,
    pub sessions: mpsc::Receiver<Session>,
    /// Whether nobody can be reached.
    pub is_down: Arc<AtomicBool>,
    /// Drops all bytes in both directions from now on, without closing.
    pub freeze: Arc<Notify>,
    /// When it was tried.
    pub tries: Arc<Mutex<Vec<Instant>>>,
    dial: Dial,
}

impl TestServer {
    pub fn new() -> Self {
        let (joined, sessions) = mpsc::channel(16);
        let service = FederationServer::new(Script(joined));
        let (is_down, tries) =
            (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<Instant>>>::default());
        let freeze = Arc::new(Notify::new());
        let (down, tried, freezing) =
            (Arc::clone(&is_down), Arc::clone(&tries), Arc::clone(&freeze));
        let dial: Dial = Arc::new(move || {
            tried.lock().unwrap().push(Instant::now());
            let outcome = if down.load(Ordering::SeqCst) {
                Err(ConnectError::Unreachable {
                    address: "test_server".into(),
                    reason: "down".into(),
                })
            } else {
                let (near, mut near_end) = tokio::io::duplex(1 << 16);
                let (far, mut far_end) = tokio::io::duplex(1 << 16);
                let frozen = Arc::clone(&freezing);
                tokio::spawn(async move {
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near_end, &mut far_end) => {}
                        () = frozen.notified() => std::future::pending().await,
                    }
                });
                let service = TowerToHyperService::new(service.clone());
                tokio::spawn(async move {
                    _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(far), service)
                        .await;
                });
                Ok(Box::new(near) as Box<dyn Connection>)
            };
            Box::pin(async { outcome })
        });
        Self { folder: TempDir::new().unwrap(), sessions, is_down, freeze, tries, dial }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn settings(&self, changes: &[&str]) -> Settings {
        let state = format!("state.path={:?}", self.path("state"));
        let mut all = vec!["server.plain_text=true".to_owned(), "server.node=n1".to_owned(), state];
        all.extend(changes.iter().map(|change| (*change).to_owned()));
        Settings::read(&Layer::sets(&all).unwrap()).unwrap()
    }

    /// A node with this input and these requests.
    pub fn node(
        &self,
        settings: Settings,
        input: Input,
        asked: Option<mpsc::Receiver<Asked>>,
    ) -> Node {
        self.node_from(settings, Box::new(|_| input), asked)
    }

    /// One that follows the file of its settings.
    pub fn follower(&self, settings: Settings) -> Node {
        let path = settings.samples.path.clone();
        let input: driver::OpenInput = Box::new(move |reading| {
            Input::following(&path, reading.map(|reading| &reading.bookmark))
        });
        self.node_from(settings, input, None)
    }

    fn node_from(
        &self,
        settings: Settings,
        input: driver::OpenInput,
        asked: Option<mpsc::Receiver<Asked>>,
    ) -> Node {
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let output = Output::to(Shared(Arc::clone(&written)));
        self.node_to(settings, input, asked, written, output)
    }

    /// A node with this output.
    pub fn node_to(
        &self,
        settings: Settings,
        input: driver::OpenInput,
        asked: Option<mpsc::Receiver<Asked>>,
        written: Arc<Mutex<Vec<u8>>>,
        output: Output,
    ) -> Node {
        let parts = Parts {
            dial: Arc::clone(&self.dial),
            security: Security::PlainText { name: settings.server.node.clone() },
            input,
            output,
            asked,
            methods: &[],
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(driver::run(settings, parts, async { drop(stopped.await) }));
        Node { written, stop: Some(stop), running }
    }

    pub async fn next(&mut self) -> Session {
        self.sessions.recv().await.unwrap()
    }
}

struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A node that runs.
pub struct Node {
    written: Arc<Mutex<Vec<u8>>>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), AgentError>>,
}

impl Node {
    /// What it has written so far.
    pub fn output(&self) -> Vec<Value> {
        let text = String::from_utf8(self.written.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until it has written this number of lines. (Not by time, which may be paused.)
    pub async fn wrote(&self, lines: usize) -> Vec<Value> {
        loop {
            let output = self.output();
            if output.len() >= lines {
                return output;
            }
            tokio::task::yield_now().await;
            std::thread::yield_now();
        }
    }

    /// Waits for its own end.
    pub async fn ended(self) -> (Vec<Value>, Result<(), AgentError>) {
        let Self { written, running, stop } = self;
        let outcome = running.await.unwrap();
        drop(stop);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), outcome)
    }

    /// Tells it to end, and waits for it.
    pub async fn stopped(mut self) -> (Vec<Value>, Result<(), AgentError>) {
        drop(self.stop.take());
        self.ended().await
    }

    pub fn is_running(&self) -> bool {
        !self.running.is_finished()
    }
}

/// Lets seconds pass on a paused clock.
pub async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Plans, as JSON and as they are.
pub fn checked(learning: PlanConfig) -> (String, Plan) {
    let plan = Plan::new(learning).unwrap();
    (plan.to_json(), plan)
}

pub fn append(path: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Everything that is logged on this thread at level INFO and above.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn begin() -> (Self, DefaultGuard) {
        let log = Self::default();
        let shared = Arc::clone(&log.0);
        let lines = fmt::layer().with_ansi(false).with_writer(move || Shared(Arc::clone(&shared)));
        let guard =
            tracing_subscriber::registry().with(lines.with_filter(LevelFilter::INFO)).set_default();
        (log, guard)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// How many lines have this.
    pub fn count(&self, part: &str) -> usize {
        self.text().lines().filter(|line| line.contains(part)).count()
    }
}
