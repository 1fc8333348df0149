//! [`Counted`]: a connection whose bytes are counted. Below TLS these are the bytes on the wire.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes so far.
#[derive(Debug, Default)]
pub struct Traffic {
    read: AtomicU64,
    written: AtomicU64,
}

impl Traffic {
    /// Bytes received.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes sent.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

/// A connection, and a count of the bytes through it.
#[derive(Debug)]
pub struct Counted<T> {
    inner: T,
    traffic: Arc<Traffic>,
}

impl<T> Counted<T> {
    /// Counts into `traffic`, which other connections may share.
    pub fn new(inner: T, traffic: Arc<Traffic>) -> Self {
        Self { inner, traffic }
    }

    fn wrote(&self, count: usize) -> usize {
        self.traffic.written.fetch_add(count as u64, Ordering::Relaxed);
        count
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let count = buffer.filled().len() - before;
        self.traffic.read.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        Poll::Ready(Ok(self.wrote(count)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, pieces))?;
        Poll::Ready(Ok(self.wrote(count)))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn both_directions_are_counted() {
        let (one, mut other) = tokio::io::duplex(1000);
        let traffic = Arc::new(Traffic::default());
        let mut counted = Counted::new(one, Arc::clone(&traffic));
        counted.write_all(b"hello").await.unwrap();
        let pieces = [io::IoSlice::new(b"you"), io::IoSlice::new(b"there")];
        let written = counted.write_vectored(&pieces).await.unwrap();
        other.write_all(b"yes?").await.unwrap();
        let mut read = [0; 4];
        counted.read_exact(&mut read).await.unwrap();
        assert_eq!((traffic.written(), traffic.read()), (5 + written as u64, 4));
    }
}
