//! [`Watched`]: a connection that remembers why it failed. Users of the connection only see that it
//! failed.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::session::ConnectError;

/// When nothing can be written any more, the other side's reason is read: bytes at a time, and in
/// all.
const REASON_CHUNK_BYTES: usize = 1 << 10;
const MAX_REASON_BYTES: usize = 1 << 14;

/// Why a connection failed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Note(Arc<Mutex<Option<ConnectError>>>);

impl Note {
    pub(crate) fn read(&self) -> Option<ConnectError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, trouble: Option<ConnectError>) {
        if trouble.is_some() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        }
    }
}

/// Notes why the connection fails.
pub(crate) struct Watched<T> {
    inner: T,
    note: Note,
    is_plain: bool,
    has_read: bool,
    /// Why nothing can be written any more, while the other side's reason is read.
    failed: Option<io::Error>,
}

impl<T> Watched<T> {
    /// A connection within TLS, or one in plain text.
    pub(crate) fn new(inner: T, is_plain: bool) -> (Note, Self) {
        let note = Note::default();
        (note.clone(), Self { inner, note, is_plain, has_read: false, failed: None })
    }
}

impl<T: AsyncRead + Unpin> Watched<T> {
    /// Returns a failure to write after everything that has arrived is read: nobody else would read
    /// it, and it may contain the reason.
    fn watch<R>(
        &mut self,
        context: &mut Context<'_>,
        outcome: io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let failure = match outcome {
            Ok(written) => return Poll::Ready(Ok(written)),
            Err(failure) => failure,
        };
        self.note.write(ConnectError::from_tls(&failure));
        let mut read = 0;
        while self.note.read().is_none() && read < MAX_REASON_BYTES {
            let mut bytes = [0; REASON_CHUNK_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *self).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => read += buffer.filled().len(),
                Poll::Ready(_) => break,
                Poll::Pending => {
                    self.failed = Some(failure);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Err(failure))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        if self.is_plain && !self.has_read {
            self.note.write(ConnectError::from_first_bytes(&buffer.filled()[before..]));
            self.has_read = true;
        }
        Poll::Ready(outcome.inspect_err(|error| self.note.write(ConnectError::from_tls(error))))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = match self.failed.take() {
            Some(failure) => Err(failure),
            None => ready!(Pin::new(&mut self.inner).poll_write(context, bytes)),
        };
        self.watch(context, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = match self.failed.take() {
            Some(failure) => Err(failure),
            None => ready!(Pin::new(&mut self.inner).poll_flush(context)),
        };
        self.watch(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::{Duration, sleep};

    use super::*;

    /// What nothing can be written to, and what comes from it a little later.
    struct Closed(DuplexStream);

    impl AsyncRead for Closed {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(context, buffer)
        }
    }

    impl AsyncWrite for Closed {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn last_words_are_read_before_a_failure_is_told() {
        for (words, is_noted) in
            [(&[0x15, 3, 3, 0, 2, 2, 50][..], true), (b"HTTP/1.1 400", false), (b"", false)]
        {
            let (near, mut far) = duplex(100);
            let (note, mut watched) = Watched::new(Closed(near), true);
            let speak = async move {
                sleep(Duration::from_secs(1)).await;
                far.write_all(words).await.unwrap();
                drop(far);
            };
            let (written, ()) = tokio::join!(watched.write(b"hello"), speak);
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            assert_eq!(note.read().is_some(), is_noted, "{words:?}");
        }
        // What can't be told from what is read later.
        let (near, mut far) = duplex(100);
        let (note, mut watched) = Watched::new(near, true);
        far.write_all(&[0, 0, 0x15, 3]).await.unwrap();
        let mut bytes = [0; 2];
        watched.read_exact(&mut bytes).await.unwrap();
        watched.read_exact(&mut bytes).await.unwrap();
        assert_eq!((note.read(), bytes), (None, [0x15, 3]));
    }
}
