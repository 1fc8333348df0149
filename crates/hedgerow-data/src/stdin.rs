//! Standard input that can be ended from within: a reader that waits for a slow pipe can't hear
//! anything else.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// There is one standard input, and one end of it.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Ends standard input, as if it had been closed at its other side.
pub fn end_standard_input() {
    HAS_ENDED.store(true, Ordering::Relaxed);
}

/// How long an end may go unnoticed.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Reads on a separate thread, and stops waiting when the input is closed.
pub(super) struct StandardInput {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
}

impl StandardInput {
    pub(super) fn new() -> Self {
        Self::over(io::stdin())
    }

    fn over(mut input: impl Read + Send + 'static) -> Self {
        let (sender, pieces) = sync_channel(1);
        // It waits in the system for as long as nothing comes; the process doesn't wait for it.
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                let piece = input.read(&mut buffer).map(|count| buffer[..count].to_vec());
                let is_last = piece.as_ref().is_ok_and(Vec::is_empty) || piece.is_err();
                if sender.send(piece).is_err() || is_last {
                    return;
                }
            }
        });
        Self { pieces, piece: io::Cursor::default() }
    }
}

impl Read for StandardInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.piece.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            match self.pieces.recv_timeout(END_CHECK_INTERVAL) {
                Ok(piece) => {
                    self.piece = io::Cursor::new(piece?);
                    if self.piece.get_ref().is_empty() {
                        return Ok(0);
                    }
                }
                Err(RecvTimeoutError::Timeout) if !HAS_ENDED.load(Ordering::Relaxed) => {}
                Err(_) => return Ok(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_in_order_to_the_end() {
        let text: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        let mut read = Vec::new();
        StandardInput::over(io::Cursor::new(text.clone())).read_to_end(&mut read).unwrap();
        assert_eq!(read, text);
    }
}
