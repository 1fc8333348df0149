//! [`Input`]: bytes that are decompressed if their first bytes show a compressed format. Reading
//! doesn't wait for a full block: everything that the compressor flushed can be read.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use memchr::memchr2;

/// Bytes asked for at once.
pub(crate) const READ_BLOCK_BYTES: usize = 64 << 10;
/// Bytes that tell how a file is packed.
const MAGIC_LENGTH: usize = 4;

/// How a file is packed, known by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// One or several members.
    Gzip,
    /// One or several frames.
    Zstandard,
}

impl Packing {
    /// The packing that these first bytes show.
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // A frame, or one to be skipped before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                Some(Self::Zstandard)
            }
            _ => None,
        }
    }

    /// In a message.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzipped",
            Self::Zstandard => "zstandard",
        }
    }
}

/// A file's bytes, unpacked.
pub(crate) struct Input {
    content: Box<dyn Read + Send>,
    packing: Option<Packing>,
    raw: Arc<RawState>,
}

/// The state of the file itself, below any decoder.
#[derive(Default)]
struct RawState {
    bytes: AtomicU64,
    failed: AtomicBool,
}

impl Input {
    /// Unpacks what the first bytes announce.
    pub(crate) fn recognised(input: Box<dyn Read + Send>) -> io::Result<Self> {
        let state = Arc::new(RawState::default());
        let mut raw = Raw { input, state: state.clone() };
        let mut block = [0; 512];
        let mut head = Vec::new();
        while !tells_what_it_is(&head) {
            match raw.read(&mut block)? {
                0 => break,
                length => head.extend_from_slice(&block[..length]),
            }
        }
        let packing = Packing::of(&head);
        let whole = io::Cursor::new(head).chain(raw);
        let buffered = |whole| BufReader::with_capacity(READ_BLOCK_BYTES, whole);
        let content: Box<dyn Read + Send> = match packing {
            None => Box::new(whole),
            Some(Packing::Gzip) => Box::new(MultiGzDecoder::new(buffered(whole))),
            #[cfg(feature = "zstandard")]
            Some(Packing::Zstandard) => Box::new(zstd::Decoder::with_buffer(buffered(whole))?),
            #[cfg(not(feature = "zstandard"))]
            Some(Packing::Zstandard) => {
                let why =
                    "zstandard data, and this build can't read it: build with --features zstandard";
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
        };
        Ok(Self { content, packing, raw: state })
    }

    /// Bytes of the file itself that were taken in.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.raw.bytes.load(Ordering::Relaxed)
    }

    /// Whether it was the file itself that couldn't be read.
    pub(crate) fn raw_failed(&self) -> bool {
        self.raw.failed.load(Ordering::Relaxed)
    }

    /// How the file is packed.
    pub(crate) fn packing(&self) -> Option<Packing> {
        self.packing
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.content.read(buffer)
    }
}

/// Whether these bytes show the kind of a file, or are all that can be waited for.
pub(crate) fn tells_what_it_is(head: &[u8]) -> bool {
    head.len() >= MAGIC_LENGTH || memchr2(b'\n', b'\r', head).is_some()
}

/// Reads once, also after interruptions by signals.
pub(crate) fn read_some(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The file's own bytes, counted.
struct Raw {
    input: Box<dyn Read + Send>,
    state: Arc<RawState>,
}

impl Read for Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = read_some(&mut self.input, buffer);
        match &read {
            Ok(length) => _ = self.state.bytes.fetch_add(*length as u64, Ordering::Relaxed),
            Err(_) => self.state.failed.store(true, Ordering::Relaxed),
        }
        read
    }
}
