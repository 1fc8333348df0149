//! [`Proxy`]: a network between nodes and server that cuts, corrupts, repeats, drops and delays.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What happens to the bytes of a connection, in each direction.
#[derive(Clone, Copy)]
pub(crate) enum Mischief {
    /// The connection ends in the middle of a message.
    CutAfter(u64),
    /// A byte changes.
    SpoilAfter(u64),
    /// A piece comes twice.
    RepeatAfter(u64),
    /// A piece goes missing, and everything after it arrives.
    DropAfter(u64),
    /// Everything is late.
    Delay(Duration),
}

pub(crate) struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
}

impl Proxy {
    /// `mischief` chooses the fault of each connection, numbered from 0.
    pub(crate) fn start(to: SocketAddr, mischief: fn(u64) -> Mischief) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let counter = Arc::clone(&connections);
        std::thread::spawn(move || {
            for node in listener.incoming().flatten() {
                let mischief = mischief(counter.fetch_add(1, Ordering::Relaxed));
                let Ok(server) = TcpStream::connect(to) else { continue };
                for (from, to) in [(&node, &server), (&server, &node)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    _ = from.set_nodelay(true);
                    std::thread::spawn(move || pass(from, to, mischief));
                }
            }
        });
        Self { address, connections }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mischief: Mischief) {
    let (mut buffer, mut passed) = ([0; 1500], 0);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let is_due = |after: u64| passed <= after && after < passed + count as u64;
        let piece = &mut buffer[..count];
        let mut copies = 1;
        match mischief {
            Mischief::CutAfter(after) if is_due(after) => {
                _ = to.write_all(&piece[..(after - passed) as usize]);
                break;
            }
            Mischief::SpoilAfter(after) if is_due(after) => {
                piece[(after - passed) as usize] ^= 0x40
            }
            Mischief::RepeatAfter(after) if is_due(after) => copies = 2,
            Mischief::DropAfter(after) if is_due(after) => copies = 0,
            Mischief::Delay(time) => std::thread::sleep(time),
            _ => {}
        }
        if (0..copies).any(|_| to.write_all(piece).is_err()) {
            break;
        }
        passed += count as u64;
    }
    _ = from.shutdown(Shutdown::Both);
    _ = to.shutdown(Shutdown::Both);
}
