//! [`Connection`]: the bytes of one connection, counted. It ends by itself if no node joins on it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::{PeerConnection, Slot};
use crate::transport;

/// How long a joined node may read nothing of what was sent to it.
const TAKING_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that are read at a time; then other tasks run. Some frames of HTTP/2, such as pings, are
/// not limited by its flow control.
const TURN_BYTES: usize = 1 << 12;

/// Bytes that may arrive before a node joins: one window and some more.
const BYTES_BEFORE_JOINING: usize = 1 << 17;

/// A connection that was admitted.
pub(super) struct Connection {
    bytes: Box<dyn transport::Connection>,
    link: Arc<PeerConnection>,
    _slot: Slot,
    /// How long it may be without a stream.
    patience: Duration,
    alarm: Option<Pin<Box<Sleep>>>,
    /// Ends when the other side has read nothing for too long.
    untaken: Option<Pin<Box<Sleep>>>,
    /// Bytes read at this turn.
    turn: usize,
    /// Bytes read before a node joined.
    early: usize,
}

impl Connection {
    pub(super) fn new(
        bytes: Box<dyn transport::Connection>,
        link: Arc<PeerConnection>,
        slot: Slot,
        patience: Duration,
    ) -> Self {
        Self { bytes, link, _slot: slot, patience, alarm: None, untaken: None, turn: 0, early: 0 }
    }

    /// Whether it has been without a stream for too long.
    fn is_idle(&mut self, context: &mut Context<'_>) -> bool {
        if self.link.has_joined.load(Relaxed) {
            self.alarm = None;
            return false;
        }
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        alarm.as_mut().poll(context).is_ready()
    }

    /// An attempt to write, or an error if the other side has read nothing for too long. Keep-alive
    /// ends a stream whose node is silent, but not a connection whose last bytes nobody reads.
    fn unless_untaken<T>(
        &mut self,
        context: &mut Context<'_>,
        attempt: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if attempt.is_ready() {
            return attempt;
        }
        let patience =
            if self.link.has_joined.load(Relaxed) { TAKING_PATIENCE } else { self.patience };
        let untaken = self.untaken.get_or_insert_with(|| Box::pin(sleep(patience)));
        if untaken.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads")))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_idle(context) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nobody joined")));
        }
        if self.early > BYTES_BEFORE_JOINING {
            return Poll::Ready(Err(io::Error::other("much was said, but nobody joined")));
        }
        if self.turn >= TURN_BYTES {
            self.turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let attempt = Pin::new(&mut self.bytes).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        self.turn = if attempt.is_ready() { self.turn + read } else { 0 };
        self.early = if self.link.has_joined.load(Relaxed) { 0 } else { self.early + read };
        attempt
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.bytes).poll_write(context, bytes);
        self.unless_untaken(context, attempt)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.bytes).poll_write_vectored(context, parts);
        self.unless_untaken(context, attempt)
    }

    fn is_write_vectored(&self) -> bool {
        self.bytes.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let attempt = Pin::new(&mut self.bytes).poll_flush(context);
        if attempt.is_ready() {
            self.untaken = None;
        }
        self.unless_untaken(context, attempt)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let attempt = Pin::new(&mut self.bytes).poll_shutdown(context);
        self.unless_untaken(context, attempt)
    }
}
