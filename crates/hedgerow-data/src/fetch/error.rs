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
    /// There is no folder to put it in.
    #[error("there is no home folder to fetch to; name a folder with --data-dir")]
    NoFolder,
    /// The server can't be reached or trusted, and why.
    #[error("can't reach {url}: {why}; is there a network? A mirror can be given with --mirror")]
    Unreachable {
        /// The requested address.
        url: String,
        /// The cause.
        why: String,
    },
    /// Silence.
    #[error("{url}: no answer in time ({what})")]
    Timeout {
        /// The requested address.
        url: String,
        /// What took too long.
        what: String,
    },
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
    /// The server refused.
    #[error("{url}: {}", status_in_words(*.status))]
    Status {
        /// The requested address.
        url: String,
        /// Its answer.
        status: u16,
    },
    /// Nothing helped, and the last thing that went wrong.
    #[error("gave up after {attempts} attempts that got no further: {last}")]
    GaveUp {
        /// How many.
        attempts: u32,
        /// The last one.
        last: Box<FetchError>,
    },
    /// More than any archive of the catalogue has.
    #[error("{url}: more than the {most} bytes that an archive may have")]
    ArchiveTooLarge {
        /// The requested address.
        url: String,
        /// The bound.
        most: u64,
    },
    /// Something else, such as a page that asks for a password; and how it begins.
    #[error("{url}: not a zip archive; it begins with {begins:?}")]
    NotAZip {
        /// The requested address.
        url: String,
        /// Its beginning.
        begins: String,
    },
    /// The archive, or an archive or file in it, can't be unpacked.
    #[error("{url}: {member:?} can't be unpacked: {why}")]
    Damaged {
        /// The archive.
        url: String,
        /// What is damaged.
        member: String,
        /// The cause.
        why: String,
    },
    /// The archive lacks a file of the catalogue.
    #[error("{url}: no {name:?} in the archive; UCI may have changed it")]
    NotInArchive {
        /// The archive.
        url: String,
        /// The file.
        name: String,
    },
    /// A file, or archives in the archive, are larger than they may be.
    #[error("{url}: {member:?} unpacks to more than {most} bytes")]
    TooLarge {
        /// The archive.
        url: String,
        /// What is too large.
        member: String,
        /// The bound.
        most: u64,
    },
    /// Not what the catalogue promises.
    #[error(
        "{name} from {url} has the wrong checksum and was thrown away: sha256 {expected} expected, {found} found"
    )]
    WrongChecksum {
        /// The archive.
        url: String,
        /// The file.
        name: String,
        /// By the catalogue.
        expected: String,
        /// By the file.
        found: String,
    },
    /// Not what was downloaded at first.
    #[error("{name} from {url} is not what it was at the first download, and was thrown away: sha256 {expected} expected, {found} found; to take it all the same, remove its line from {}", sums.display())]
    Changed {
        /// The archive.
        url: String,
        /// The file.
        name: String,
        /// By the first download.
        expected: String,
        /// By the file.
        found: String,
        /// Where the first download is on record.
        sums: PathBuf,
    },
    /// A file of that name is here and is something else.
    #[error("{} is not the file that it should be: sha256 {expected} expected, {found} found; remove it first", path.display())]
    InTheWay {
        /// The file.
        path: PathBuf,
        /// By the catalogue or the first download.
        expected: String,
        /// By the file.
        found: String,
    },
    /// Another process is fetching it.
    #[error("{} is being downloaded by another process", .0.display())]
    Busy(PathBuf),
    /// A file or folder here, and what the system said.
    #[error("can't write to {}: {source}", path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file here, and what the system said.
    #[error("can't read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

fn of_bytes(total: Option<u64>) -> String {
    total.map_or("bytes".to_owned(), |total| format!("of {total} bytes"))
}

fn status_in_words(status: u16) -> String {
    match status {
        404 | 410 => format!("there is no such archive (status {status}); it may have moved"),
        401 | 403 => format!("the server doesn't allow it (status {status})"),
        429 => format!("the server wants fewer calls (status {status}); try later"),
        500.. => format!("the server failed (status {status}); try later"),
        _ => format!("the server answered with status {status}"),
    }
}
