//! [`FetchError`]: why a data set could not be fetched.

use std::path::PathBuf;

/// Why a data set could not be fetched. Pieces of what a server sent are shortened.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Not a web address.
    #[error("the mirror must be an address that begins with https:// or http://, but is {0:?}")]
    BadMirror(String),
    /// The feature `fetch` is off.
    #[error("this build can't download: build with --features fetch")]
    NotBuilt,
    /// It is not at UCI, and where it is.
    #[error("{0} is not at UCI: {1}")]
    Elsewhere(String, String),
    /// There is no folder to put it in.
    #[error("there is no home folder to fetch to; name a folder with --data-dir")]
    NoFolder,
    /// The server at this address can't be reached or trusted, and why.
    #[error("can't reach {0}: {1}; is there a network? A mirror can be given with --mirror")]
    Unreachable(String, String),
    /// The server at this address was silent, and what took too long.
    #[error("{0}: no answer in time ({1})")]
    Timeout(String, String),
    /// Fewer bytes than there should be.
    #[error("{url}: the connection broke off after {have} {}", of_bytes(*.total))]
    BrokeOff {
        /// The requested address.
        url: String,
        /// Bytes that came.
        have: u64,
        /// Bytes that should have.
        total: Option<u64>,
    },
    /// The server at this address refused, with this status.
    #[error("{0}: {words}", words = status_in_words(*.1))]
    Status(String, u16),
    /// This number of attempts failed, and the error of the last one.
    #[error("gave up after {0} attempts that got no further: {1}")]
    GaveUp(u32, Box<Self>),
    /// What came from this address is too large, damaged, or not the archive of the catalogue; and
    /// what is wrong with it.
    #[error("{0}: {1}")]
    BadArchive(String, String),
    /// A file that differs from the catalogue or from the first download.
    #[error("{file}: sha256 {expected} expected, {found} found{advice}")]
    WrongChecksum {
        /// The file, where it is from, and what became of it.
        file: String,
        /// By the catalogue or the first download.
        expected: String,
        /// By the file.
        found: String,
        /// What the user can do; empty if nothing.
        advice: String,
    },
    /// Another process is fetching it.
    #[error("{} is being downloaded by another process", .0.display())]
    Busy(PathBuf),
    /// This file or folder here can't be written, and what the system said.
    #[error("can't write {path}: {1}", path = .0.display())]
    Unwritable(PathBuf, #[source] std::io::Error),
    /// This file here can't be read, and what the system said.
    #[error("can't read {path}: {1}", path = .0.display())]
    Unreadable(PathBuf, #[source] std::io::Error),
}

fn of_bytes(total: Option<u64>) -> String {
    total.map_or("bytes".to_owned(), |total| format!("of {total} bytes"))
}

fn status_in_words(status: u16) -> String {
    let words = match status {
        404 | 410 => "there is no such archive (status {}); it may have moved",
        401 | 403 => "the server doesn't allow it (status {})",
        429 => "the server wants fewer calls (status {}); try later",
        500.. => "the server failed (status {}); try later",
        _ => "the server answered with status {}",
    };
    words.replace("{}", &status.to_string())
}
