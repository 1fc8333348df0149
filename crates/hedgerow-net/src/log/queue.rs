//! [`Queue`]: lines that a thread of its own writes. Who logs never waits: if nobody reads what is
//! written, lines are dropped and counted.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most lines that wait.
const MOST_LINES: usize = 4_096;

/// Longest line; the rest of a longer one is cut off.
const MOST_BYTES: usize = 16 << 10;

/// How often a full queue is tried again when it has to be emptied.
const FULL_INTERVAL: Duration = Duration::from_millis(1);

/// How many dropped lines are told, as a line.
pub(super) type Gap = fn(u64) -> String;

enum Item {
    Line(Vec<u8>),
    /// Tells when all lines before are written.
    Flush(SyncSender<()>),
}

/// Where lines go. Clones share it.
#[derive(Clone)]
pub(super) struct Queue {
    sender: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

impl Queue {
    /// Writes lines to `out`. Where some were dropped, the line `gap` tells how many.
    pub(super) fn start(out: impl Write + Send + 'static, gap: Gap) -> io::Result<Self> {
        let (sender, items) = sync_channel(MOST_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let lost = Arc::clone(&dropped);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write(out, &items, &lost, gap))?;
        Ok(Self { sender, dropped })
    }

    /// Lines that were dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Waits until all lines so far are written, but not for long.
    pub(super) fn flush(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let (done, is_done) = sync_channel(1);
        let mut item = Item::Flush(done);
        loop {
            match self.sender.try_send(item) {
                Ok(()) => break,
                Err(TrySendError::Full(returned)) if Instant::now() < end => {
                    item = returned;
                    thread::sleep(FULL_INTERVAL);
                }
                Err(_) => return,
            }
        }
        _ = is_done.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// A line comes as one piece.
impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut kept = line.get(..MOST_BYTES).unwrap_or(line).to_vec();
        if kept.len() < line.len() {
            kept.push(b'\n');
        }
        if let Err(TrySendError::Full(_)) = self.sender.try_send(Item::Line(kept)) {
            self.dropped.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What can't be written is lost: there is nowhere to say so.
fn write(mut out: impl Write, items: &Receiver<Item>, dropped: &AtomicU64, gap: Gap) {
    let mut told = 0;
    while let Ok(item) = items.recv() {
        match item {
            Item::Line(line) => _ = out.write_all(&line),
            Item::Flush(done) => _ = done.try_send(()),
        }
        let lost = dropped.load(Relaxed);
        if lost > told {
            _ = writeln!(out, "{}", gap(lost - told));
            told = lost;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Waits for a permit before each piece.
    struct Slow {
        permits: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // After the last permit everything passes.
            _ = self.permits.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Queue, Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (permit, permits) = channel();
        let written = Arc::default();
        let out = Slow { permits, written: Arc::clone(&written) };
        (Queue::start(out, |lost| format!("{lost} lost")).unwrap(), permit, written)
    }

    #[test]
    fn who_logs_never_waits_and_what_is_lost_is_told() {
        let (mut queue, permit, written) = slow();
        let lines = MOST_LINES + 1_000;
        for at in 0..lines {
            queue.write_all(format!("line {at}\n").as_bytes()).unwrap();
        }
        let dropped = queue.dropped();
        // One line may be with the writer.
        assert!((999..=1_000).contains(&dropped), "{dropped}");
        queue.flush(Duration::from_millis(1));
        drop(permit);
        // Until there is room again.
        while {
            let before = queue.dropped();
            queue.write_all(b"last\n").unwrap();
            queue.dropped() > before
        } {}
        queue.flush(Duration::from_secs(60));
        let told = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(told.starts_with("line 0\n") && told.contains("\nline 4000\n"), "{told}");
        let lost = told.lines().filter_map(|line| line.strip_suffix(" lost"));
        let lost: u64 = lost.map(|count| count.parse::<u64>().unwrap()).sum();
        assert_eq!(lost, queue.dropped());
    }

    #[test]
    fn a_long_line_is_cut() {
        let (mut queue, permit, written) = slow();
        drop(permit);
        queue.write_all(&vec![b'x'; 2 * MOST_BYTES]).unwrap();
        queue.write_all(b"next\n").unwrap();
        queue.flush(Duration::from_secs(60));
        let told = written.lock().unwrap().clone();
        assert_eq!(told.len(), MOST_BYTES + 1 + 5);
        assert!(told.ends_with(b"x\nnext\n"));
    }
}
