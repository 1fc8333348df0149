//! The dashboard over real HTTP with an invented run behind it, and its page in a real browser.

#![cfg(feature = "server")]
#![allow(clippy::expect_used, clippy::print_stderr, clippy::unwrap_used)]

mod browser;
#[path = "../../examples/dashboard/invented.rs"]
mod invented;
mod login;
mod operators;
mod page;
mod routes;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use futures_util::future::BoxFuture;
use hedgerow_net::admin::Operates;
use hedgerow_net::admin::token::Token;
use hedgerow_net::operations::{Action, ActionError, Actor, Outcome};
use hedgerow_net::serve::dashboard::{Hosts, Logins, router, serve};
use hedgerow_net::serve::metrics::Metrics;
use hedgerow_net::serve::status::{Point, Source, Status};
use invented::Invented;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Connections of a dashboard at once.
const CONNECTIONS: usize = 64;

/// An invented run that can fail on demand.
struct Fake {
    run: Arc<Invented>,
    asked: AtomicUsize,
    is_ready: AtomicBool,
    is_broken: AtomicBool,
}

impl Fake {
    fn new(run: Invented) -> Arc<Self> {
        let run = Arc::new(run);
        let (asked, is_ready, is_broken) =
            (AtomicUsize::new(0), AtomicBool::new(true), AtomicBool::new(false));
        Arc::new(Self { run, asked, is_ready, is_broken })
    }
}

impl Source for Fake {
    fn status(&self) -> Status {
        assert!(!self.is_broken.load(SeqCst), "broken, as told");
        self.asked.fetch_add(1, SeqCst);
        self.run.status()
    }

    fn history(&self, most: usize) -> Vec<Point> {
        assert!(!self.is_broken.load(SeqCst), "broken, as told");
        self.asked.fetch_add(1, SeqCst);
        self.run.history(most)
    }

    fn is_ready(&self) -> Result<(), String> {
        if self.is_ready.load(SeqCst) { Ok(()) } else { Err("the disk is full".into()) }
    }
}

impl Operates for Fake {
    fn operate(
        self: Arc<Self>,
        actor: Actor,
        action: Action,
    ) -> BoxFuture<'static, Result<Outcome, ActionError>> {
        Arc::clone(&self.run).operate(actor, action)
    }
}

/// A dashboard on its own port. Dropping it closes all its connections.
struct Served {
    _runtime: Runtime,
    address: SocketAddr,
    folder: TempDir,
}

impl Served {
    fn start(source: Arc<Fake>) -> Self {
        Self::start_at(0, source, Metrics::new())
    }

    fn start_at(port: u16, source: Arc<Fake>, metrics: Metrics) -> Self {
        Self::guarded(port, source, metrics, false)
    }

    fn guarded(port: u16, source: Arc<Fake>, metrics: Metrics, guards_reading: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::open(&folder.path().join("run.db"), guards_reading).unwrap();
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, port))).unwrap();
        let address = listener.local_addr().unwrap();
        let hosts = Hosts::new(["hedgerow.example".to_owned()]);
        let routes = router(source, metrics, hosts, Arc::new(logins), CONNECTIONS);
        runtime.spawn(serve(listener, routes, CONNECTIONS));
        Self { _runtime: runtime, address, folder }
    }

    fn token(&self) -> String {
        Token::read(&self.folder.path().join("run.db")).unwrap().reveal().to_owned()
    }

    fn connect(&self, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
        stream.write_all(request).unwrap();
        stream
    }

    /// The answer to these very bytes.
    fn ask_raw(&self, request: &[u8]) -> Answer {
        let mut bytes = Vec::new();
        // A server may disconnect before it has read everything.
        match self.connect(request).read_to_end(&mut bytes) {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
            _ => Answer::parse(&bytes),
        }
    }

    fn ask(&self, method: &str, path: &str, headers: &str) -> Answer {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        );
        self.ask_raw(request.as_bytes())
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }
}

#[derive(Debug)]
struct Answer {
    code: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let end =
            bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.lines();
        let code = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Self { code, headers, body: bytes[end + 4..].to_vec() }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}
