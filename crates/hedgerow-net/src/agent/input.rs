//! [`Input`]: the source of a node's lines. It is read only as fast as lines are taken.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::warn;

use super::config::Pace;
use super::follow::{Bookmark, Follow};
use super::lines::{Line, Lines};

/// How often a followed file is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A source of lines.
#[derive(Debug)]
pub enum Input {
    /// No source.
    None,
    /// Something that is read once, such as standard input.
    Stream(Stream),
    /// A file that is followed.
    Follow(Follow),
}

/// Bytes read on a separate thread, because reading may block.
#[derive(Debug)]
pub struct Stream {
    blocks: mpsc::Receiver<Vec<u8>>,
    lines: Lines,
    has_ended: bool,
    /// Whether all of it was there before it was read.
    is_file: bool,
}

impl Input {
    /// Standard input.
    pub fn standard() -> Self {
        Self::from_source(std::io::stdin(), is_standard_a_file())
    }

    /// Anything that can be read, as it comes.
    pub fn reading(source: impl Read + Send + 'static) -> Self {
        Self::from_source(source, false)
    }

    /// A file, from its first line to its end.
    pub fn file(file: std::fs::File) -> Self {
        Self::from_source(file, true)
    }

    fn from_source(mut source: impl Read + Send + 'static, is_file: bool) -> Self {
        let (sender, blocks) = mpsc::channel(2);
        std::thread::spawn(move || {
            let mut block = vec![0; 1 << 14];
            loop {
                match source.read(&mut block) {
                    Ok(0) => return,
                    Ok(count) => {
                        if sender.blocking_send(block[..count].to_vec()).is_err() {
                            return;
                        }
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        warn!("the input can't be read any further: {error}");
                        return;
                    }
                }
            }
        });
        Self::Stream(Stream { blocks, lines: Lines::default(), has_ended: false, is_file })
    }

    /// A file that grows.
    pub fn following(path: &Path, bookmark: Option<&Bookmark>) -> Self {
        Self::Follow(Follow::new(path, bookmark, LOOK_EVERY))
    }

    /// Waits for the next line; none if the input has ended. It may be cancelled at any time.
    pub async fn next(&mut self) -> Option<Line> {
        match self {
            Self::None => None,
            Self::Stream(stream) => stream.next().await,
            Self::Follow(follow) => Some(follow.next().await),
        }
    }

    /// The default pace and its reason; none without an input.
    pub fn natural_pace(&self) -> Option<(Pace, &'static str)> {
        match self {
            Self::None => None,
            Self::Stream(stream) if stream.is_file => {
                Some((Pace::Round, "standard input is a file"))
            }
            Self::Stream(_) => Some((Pace::Free, "standard input is no file")),
            Self::Follow(_) => Some((Pace::Free, "a file is followed")),
        }
    }

    /// Its position, if it can be resumed.
    pub fn bookmark(&self) -> Option<Bookmark> {
        match self {
            Self::Follow(follow) => follow.bookmark(),
            _ => None,
        }
    }
}

impl Stream {
    async fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = self.lines.pull() {
                return Some(line);
            }
            if self.has_ended {
                return self.lines.finish();
            }
            match self.blocks.recv().await {
                Some(block) => self.lines.push(&block),
                None => self.has_ended = true,
            }
        }
    }
}

#[cfg(unix)]
fn is_standard_a_file() -> bool {
    use std::os::fd::AsFd;
    let file = std::io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.is_file())
}

#[cfg(not(unix))]
fn is_standard_a_file() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_stream_is_read_line_by_line_to_its_end() {
        let text: String = (0..10_000).map(|at| format!("{at}\n")).collect();
        let mut input = Input::reading(std::io::Cursor::new(text + "the last"));
        for at in 0..10_000 {
            let line = input.next().await.unwrap();
            assert_eq!((line.number, line.text.unwrap()), (at + 1, at.to_string().into_bytes()));
        }
        assert_eq!(input.next().await.unwrap().text.unwrap(), b"the last");
        assert_eq!((input.next().await, input.next().await), (None, None));
        assert_eq!((Input::None.next().await, input.bookmark()), (None, None));
    }

    /// Gives lines without end, and counts its bytes.
    struct Endless(Arc<AtomicUsize>);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            buffer.fill(b'\n');
            self.0.fetch_add(buffer.len(), Ordering::SeqCst);
            Ok(buffer.len())
        }
    }

    #[tokio::test]
    async fn a_stream_is_not_read_ahead_of_who_takes_its_lines() {
        let read = Arc::new(AtomicUsize::new(0));
        let mut input = Input::reading(Endless(Arc::clone(&read)));
        // Each line is one byte.
        for taken in 1..=500_000 {
            input.next().await.unwrap();
            assert!(read.load(Ordering::SeqCst) <= taken + (5 << 14));
        }
    }
}
