//! [`Watch`]: what the dashboard says, asked for now and then.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Least time between two requests.
const STATUS_INTERVAL: Duration = Duration::from_millis(300);

/// How long an answer may take, and how large it may be.
const TIMEOUT: Duration = Duration::from_secs(2);
const MOST_BYTES: u64 = 4 << 20;

/// What is of interest here. `wire_up` and `wire_down` are bytes, TLS included.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Status {
    pub(super) round: u64,
    pub(super) connected: u64,
    pub(super) samples: u64,
    pub(super) mse: Option<f64>,
    pub(super) window_mse: Option<f64>,
    pub(super) wire_up: u64,
    pub(super) wire_down: u64,
}

pub(super) struct Watch {
    address: SocketAddr,
    asked: Option<Instant>,
}

impl Watch {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, asked: None }
    }

    /// The latest, if it is time to ask and the server is there.
    pub(super) fn look(&mut self) -> Option<Status> {
        if self.asked.is_some_and(|asked| asked.elapsed() < STATUS_INTERVAL) {
            return None;
        }
        self.asked = Some(Instant::now());
        let answer = self.ask().ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    fn ask(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        write!(stream, "GET /api/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(MOST_BYTES).read_to_string(&mut answer)?;
        Ok(answer)
    }
}
