//! Downloads one archive over HTTP into a file that a later attempt can resume.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use super::{FetchError, Options, Patience, Progress};

/// Bytes that an archive may have. The largest of the catalogue has a tenth of it.
const MOST_ARCHIVE_BYTES: u64 = 1 << 30;
/// An attempt that brings at least this number of bytes doesn't count as a failure.
const WORTH_AN_ATTEMPT: u64 = 1 << 20;
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The downloaded part of an archive, with its address and the server's version tag.
pub(super) struct Partial {
    path: PathBuf,
    url: String,
    file: File,
    have: u64,
    version: Option<String>,
}

impl Partial {
    /// Resumes an earlier download if it has the same address and the server supports requests for
    /// the same version.
    pub(super) fn open(path: &Path, url: &str) -> Result<Self, FetchError> {
        let unwritable = |cause| FetchError::Unwritable(path.to_owned(), cause);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(unwritable)?;
        // Where files can't be locked, two processes at once are found out by the checksums.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(FetchError::Busy(path.to_owned()));
        }
        let have = file.metadata().map_err(unwritable)?.len();
        let note = std::fs::read_to_string(beside(path)).unwrap_or_default();
        let same = note.split_once('\n').filter(|(of, version)| *of == url && !version.is_empty());
        let version = same.map(|(_, version)| version.to_owned());
        let mut partial = Self { path: path.to_owned(), url: url.to_owned(), file, have, version };
        if partial.version.is_none() {
            partial.start_over(None)?;
        }
        Ok(partial)
    }

    /// Whether no byte has come.
    pub(super) fn is_empty(&self) -> bool {
        self.have == 0
    }

    /// Removes what was downloaded.
    pub(super) fn remove(&self) -> Result<(), FetchError> {
        remove(&self.path)?;
        remove(&beside(&self.path))
    }

    fn start_over(&mut self, version: Option<String>) -> Result<(), FetchError> {
        self.file.set_len(0).map_err(|cause| self.unwritable(cause))?;
        (self.have, self.version) = (0, version);
        let note = beside(&self.path);
        let Some(version) = &self.version else { return remove(&note) };
        std::fs::write(&note, format!("{}\n{version}", self.url))
            .map_err(|cause| FetchError::Unwritable(note, cause))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        let written =
            self.file.seek(SeekFrom::Start(self.have)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|cause| self.unwritable(cause))?;
        self.have += bytes.len() as u64;
        Ok(())
    }

    fn unwritable(&self, cause: std::io::Error) -> FetchError {
        FetchError::Unwritable(self.path.clone(), cause)
    }
}

/// Downloads the missing part, with several attempts. Returns the whole archive.
pub(super) fn download(
    partial: &mut Partial,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<File, FetchError> {
    // Without encryption only if the user named such a mirror: anybody on the way may change it.
    let only_https = options.mirror.0.starts_with("https://");
    let agent = agent(&options.patience, only_https);
    let (mut failures, mut furthest) = (0, partial.have);
    while let Err(error) = attempt(&agent, partial, progress) {
        if !may_pass(&error) {
            return Err(error);
        }
        if partial.have >= furthest + WORTH_AN_ATTEMPT {
            (failures, furthest) = (0, partial.have);
        }
        failures += 1;
        if failures >= options.patience.attempts {
            return Err(FetchError::GaveUp(failures, Box::new(error)));
        }
        progress(Progress::TryingAgain { because: error.to_string() });
        let pause = options.patience.pause.saturating_mul(1 << (failures - 1).min(16));
        std::thread::sleep(pause.min(LONGEST_PAUSE));
    }
    let whole = partial.file.try_clone().and_then(|mut file| file.rewind().map(|()| file));
    whole.map_err(|cause| FetchError::Unreadable(partial.path.clone(), cause))
}

fn agent(patience: &Patience, only_https: bool) -> Agent {
    let config = Agent::config_builder()
        .https_only(only_https)
        .max_redirects(5)
        .http_status_as_error(false)
        .user_agent(concat!("hedgerow/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(Some(patience.connect))
        .timeout_connect(Some(patience.connect))
        .timeout_recv_response(Some(patience.silence))
        .timeout_per_read(Some(patience.silence));
    config.build().into()
}

/// Whether another attempt may succeed.
fn may_pass(error: &FetchError) -> bool {
    match error {
        FetchError::Timeout(..) | FetchError::BrokeOff { .. } => true,
        FetchError::Status(_, status) => matches!(status, 408 | 429 | 500..),
        _ => false,
    }
}

/// Requests the missing part and appends it. Starts again if the server doesn't support ranges.
fn attempt(
    agent: &Agent,
    partial: &mut Partial,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), FetchError> {
    let url = partial.url.clone();
    let have = partial.have;
    progress(Progress::Asking { url: &url, have });
    let mut request = agent.get(&url).header("Accept-Encoding", "identity");
    if have > 0 {
        request = request.header("Range", format!("bytes={have}-"));
        if let Some(version) = partial.version.as_deref().filter(|version| !version.is_empty()) {
            request = request.header("If-Range", version);
        }
    }
    let response = request.call().map_err(|error| in_our_words(error, &url, have, None))?;
    let broke_off = |have, total| FetchError::BrokeOff { url: url.clone(), have, total };
    let total = match response.status().as_u16() {
        200 => {
            partial.start_over(Some(version(response.headers())))?;
            response.body().content_length()
        }
        206 if have > 0 => match content_range(response.headers()) {
            Some((Some(start), total)) if start == have => total
                .or_else(|| response.body().content_length().map(|rest| have.saturating_add(rest))),
            // Not the piece that was asked for.
            _ => {
                partial.start_over(None)?;
                return Err(broke_off(0, None));
            }
        },
        // Nothing is missing: this is the whole archive, or another version than the server's.
        416 if have > 0 => {
            let total = content_range(response.headers()).and_then(|(_, total)| total);
            if total == Some(have) {
                return Ok(());
            }
            partial.start_over(None)?;
            return Err(broke_off(0, total));
        }
        status => return Err(FetchError::Status(url, status)),
    };
    receive(response, partial, total, progress)
}

fn receive(
    response: Response<Body>,
    partial: &mut Partial,
    total: Option<u64>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), FetchError> {
    let url = partial.url.clone();
    let too_large = || {
        let problem = format!("more than the {MOST_ARCHIVE_BYTES} bytes that an archive may have");
        FetchError::BadArchive(url.clone(), problem)
    };
    if total.is_some_and(|total| total > MOST_ARCHIVE_BYTES) {
        return Err(too_large());
    }
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0; 1 << 16];
    loop {
        progress(Progress::Downloading { have: partial.have, total });
        let length = match body.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(in_our_words(error.into(), &url, partial.have, total)),
        };
        if length == 0 {
            break;
        }
        if partial.have + length as u64 > MOST_ARCHIVE_BYTES {
            return Err(too_large());
        }
        partial.append(&buffer[..length])?;
    }
    match total {
        Some(total) if partial.have != total => {
            Err(FetchError::BrokeOff { url, have: partial.have, total: Some(total) })
        }
        _ => Ok(()),
    }
}

/// The server's mark of this version that it compares with its own; empty if it has none.
fn version(headers: &HeaderMap) -> String {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // A weak tag promises the same meaning, not the same bytes.
    let tag = text("ETag").filter(|tag| !tag.starts_with("W/"));
    tag.or_else(|| text("Last-Modified")).unwrap_or_default().to_owned()
}

/// First byte and length of the whole in `bytes 5-9/10` or `bytes */10`.
fn content_range(headers: &HeaderMap) -> Option<(Option<u64>, Option<u64>)> {
    let range = headers.get("Content-Range")?.to_str().ok()?.strip_prefix("bytes ")?;
    let (piece, total) = range.split_once('/')?;
    let start = piece.split_once('-').and_then(|(start, _)| start.trim().parse().ok());
    Some((start, total.trim().parse().ok()))
}

fn in_our_words(error: ureq::Error, url: &str, have: u64, total: Option<u64>) -> FetchError {
    let url = url.to_owned();
    let unreachable = |why: String| FetchError::Unreachable(url.clone(), why);
    match error {
        ureq::Error::HostNotFound => unreachable("there is no server of this name".to_owned()),
        ureq::Error::Timeout(what) => FetchError::Timeout(url, what.to_string()),
        ureq::Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionRefused => unreachable("the connection was refused".to_owned()),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                FetchError::Timeout(url, error.to_string())
            }
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => FetchError::BrokeOff { url, have, total },
            _ => unreachable(error.to_string()),
        },
        ureq::Error::Protocol(_) => FetchError::BrokeOff { url, have, total },
        ureq::Error::RequireHttpsOnly(address) => {
            unreachable(format!("it leads to {address}, which is not https"))
        }
        other => unreachable(other.to_string()),
    }
}

/// Removes a file that may be missing.
fn remove(path: &Path) -> Result<(), FetchError> {
    match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => {
            Err(FetchError::Unwritable(path.to_owned(), cause))
        }
        _ => Ok(()),
    }
}

fn beside(partial: &Path) -> PathBuf {
    let mut name = partial.as_os_str().to_owned();
    name.push(".version");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_network_is_said_plainly_and_not_tried_again() {
        for (error, part) in [
            (ureq::Error::HostNotFound, "no server of this name"),
            (std::io::Error::from(ErrorKind::ConnectionRefused).into(), "refused"),
            (std::io::Error::from(ErrorKind::NetworkUnreachable).into(), "unreachable"),
            (ureq::Error::RequireHttpsOnly("http://b".into()), "http://b, which is not https"),
        ] {
            let error = in_our_words(error, "https://a/x.zip", 0, None);
            let message = error.to_string();
            assert!(
                message.contains("can't reach https://a/x.zip") && message.contains(part),
                "{message}"
            );
            assert!(!may_pass(&error));
        }
    }

    #[test]
    fn the_mark_of_a_version_is_one_that_promises_the_same_bytes() {
        let of = |headers: &[(&'static str, &'static str)]| {
            version(
                &headers
                    .iter()
                    .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                    .collect(),
            )
        };
        let date = "Mon, 01 Jan 2024 00:00:00 GMT";
        assert_eq!(of(&[("etag", "\"a\""), ("last-modified", date)]), "\"a\"");
        assert_eq!(of(&[("etag", "W/\"a\""), ("last-modified", date)]), date);
        assert_eq!(of(&[("etag", "W/\"a\"")]), "");
    }

    #[test]
    fn ranges_are_read_or_refused() {
        let of = |range: &str| {
            content_range(&HeaderMap::from_iter([(
                "content-range".parse().unwrap(),
                range.parse().unwrap(),
            )]))
        };
        assert_eq!(of("bytes 5-9/10"), Some((Some(5), Some(10))));
        assert_eq!(of("bytes 5-9/*"), Some((Some(5), None)));
        assert_eq!(of("bytes */10"), Some((None, Some(10))));
        for wrong in ["", "bytes", "lines 5-9/10", "bytes 5-9"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
