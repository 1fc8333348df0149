//! HTTP/2 written by hand, so that it can be wrong.

use std::net::SocketAddr;
use std::sync::Arc;

use hedgerow_net::transport::Connection;
use hedgerow_net::transport::protocol::wire;
use prost::Message;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::server::{hello, reach};
use crate::common::PATIENCE;

/// Types of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
const GO_AWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Flags of frames.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection with at most one stream, number 1.
pub(crate) struct Raw {
    pub(crate) io: Box<dyn Connection>,
    pub(crate) address: SocketAddr,
}

impl Raw {
    /// Begins HTTP/2; the server may send so many bytes of messages.
    pub(crate) async fn open(
        server: SocketAddr,
        tls: Option<Arc<ClientConfig>>,
        window: u32,
    ) -> Self {
        let (io, address) = reach(server, tls).await.unwrap();
        let mut raw = Self { io, address };
        // SETTINGS_INITIAL_WINDOW_SIZE; that of the connection is as large as it can be.
        let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
        let all = (0x7fff_ffff_u32 - 0xffff).to_be_bytes();
        let first = [PREFACE, &frame(SETTINGS, 0, 0, &settings), &frame(WINDOW_UPDATE, 0, 0, &all)]
            .concat();
        raw.write(&first).await;
        raw
    }

    /// Ignores errors, because the server may have ended the connection.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        _ = self.io.write_all(bytes).await;
        _ = self.io.flush().await;
    }

    /// Opens the stream.
    pub(crate) async fn request(&mut self) {
        self.write(&frame(HEADERS, END_HEADERS, 1, &request_headers())).await;
    }

    /// Opens it and says Hello.
    pub(crate) async fn join(&mut self, name: &str) {
        self.request().await;
        let hello = wire::FromNode::from(hello(name)).encode_to_vec();
        self.write(&frame(DATA, 0, 1, &grpc(&hello))).await;
    }

    /// Reads until the server ends the stream or the connection.
    pub(crate) async fn ended(&mut self) {
        let ending = async {
            loop {
                let mut head = [0; 9];
                if self.io.read_exact(&mut head).await.is_err() {
                    return;
                }
                let len =
                    usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
                let mut body = vec![0; len];
                if self.io.read_exact(&mut body).await.is_err() {
                    return;
                }
                match (head[3], head[4]) {
                    (RESET | GO_AWAY, _) => return,
                    (HEADERS | DATA, flags) if flags & END_STREAM != 0 => return,
                    _ => {}
                }
            }
        };
        timeout(PATIENCE, ending).await.expect("the server ends it");
    }
}

/// Any frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// A message as gRPC frames it.
pub(crate) fn grpc(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &len[..], message].concat()
}

/// A header as HPACK has it when nothing is compressed.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        assert!(text.len() < 127);
        [&[text.len() as u8], text.as_bytes()].concat()
    };
    [vec![0], text(name), text(value)].concat()
}

/// Those of a node that joins.
pub(crate) fn request_headers() -> Vec<u8> {
    [
        header(":method", "POST"),
        header(":scheme", "http"),
        header(":path", "/hedgerow.v1.Federation/Join"),
        header(":authority", "localhost"),
        header("content-type", "application/grpc"),
        header("te", "trailers"),
    ]
    .concat()
}
