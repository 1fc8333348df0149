//! Fetching the originals of a data set from UCI: the archive is downloaded and resumed
//! (`download`), the files that the catalogue names are taken out of it (`unpack`) and checked
//! against what is known of them (`checksums`).

mod checksums;
mod download;
mod unpack;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::catalog::{Entry, SourceFile, packed_or_not};
use checksums::{Checksums, SUMS};

/// Where UCI keeps its archives.
pub const UCI: &str = "https://archive.ics.uci.edu/static/public";
/// Names a mirror of UCI's archives.
pub const MIRROR_VARIABLE: &str = "HEDGEROW_MIRROR";
/// No archive in the catalogue is nearly as large.
const MOST_ARCHIVE_BYTES: u64 = 1 << 30;
/// What archives inside an archive may hold together.
const MOST_INNER_BYTES: u64 = 4 << 30;

/// What a download is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of data sets: files go to the folder of their source in it.
    pub folder: PathBuf,
    /// Where the archives are.
    pub mirror: Mirror,
    /// When to give up.
    pub patience: Patience,
}

/// Where archives are kept: a web address that begins with `https://` or `http://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror(String);

/// When to give up.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a server to take the call.
    pub connect: Duration,
    /// For it to answer, and then for each next piece.
    pub silence: Duration,
    /// Attempts in a row that get nowhere.
    pub attempts: u32,
    /// Before the second attempt; doubled for each one after it.
    pub pause: Duration,
}

/// What goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<'a> {
    /// The archive is asked for.
    Asking {
        /// Its address.
        url: &'a str,
        /// Bytes that are here from before.
        have: u64,
    },
    /// Bytes come in.
    Downloading {
        /// Bytes that are here.
        have: u64,
        /// Bytes of the archive, if the server says so.
        total: Option<u64>,
    },
    /// An attempt failed, and there will be another.
    TryingAgain {
        /// Why.
        because: String,
    },
    /// A file is taken out of the archive.
    Unpacking {
        /// Its name.
        file: &'a str,
    },
}

/// A file that is here now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Where.
    pub path: PathBuf,
    /// Whether it was downloaded, rather than here before.
    pub downloaded: bool,
    /// What it was compared with.
    pub checked: Checked,
}

/// What a file was compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// It has the checksum of the catalogue.
    Catalogue,
    /// The catalogue has no checksum, and it is what was downloaded at first.
    FirstDownload,
    /// Nothing: the catalogue has no checksum, and this is the first download. From now on it is
    /// compared with this.
    RecordedNow,
    /// Nothing: the catalogue has no checksum, and it was not downloaded by us; or it is packed in
    /// a way that is not read here.
    Nothing,
}

/// Why a data set could not be fetched. Pieces of what a server sent are shortened.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Not a web address.
    #[error("the mirror must be an address that begins with https:// or http://, but is {0:?}")]
    BadMirror(String),
    /// Nowhere to put it.
    #[error("there is no home folder to fetch to; name a folder with --data-dir")]
    NoFolder,
    /// No name for the server, nobody there, or no trust, and why.
    #[error("can't reach {url}: {why}; is there a network? A mirror can be given with --mirror")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// Why.
        why: String,
    },
    /// Silence.
    #[error("{url}: no answer in time ({what})")]
    Timeout {
        /// What was asked for.
        url: String,
        /// What took too long.
        what: String,
    },
    /// Fewer bytes than there should be.
    #[error("{url}: the connection broke off after {have} {}", of_bytes(*.total))]
    BrokeOff {
        /// What was asked for.
        url: String,
        /// Bytes that came.
        have: u64,
        /// Bytes that should have.
        total: Option<u64>,
    },
    /// The server refused.
    #[error("{url}: {}", status_in_words(*.status))]
    Status {
        /// What was asked for.
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
        /// What was asked for.
        url: String,
        /// The bound.
        most: u64,
    },
    /// Something else, such as a page that asks for a password; and how it begins.
    #[error("{url}: not a zip archive; it begins with {begins:?}")]
    NotAZip {
        /// What was asked for.
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
        /// Why.
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
    /// Somebody else is at it.
    #[error("{} is being downloaded by another process", .0.display())]
    Busy(PathBuf),
    /// A file or folder here, and what the system said.
    #[error("can't write to {}: {source}", path.display())]
    Unwritable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file here, and what the system said.
    #[error("can't read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Puts the files of a data set's source into their folder, downloading only what is not there.
pub fn fetch(
    entry: &Entry,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Fetched>, FetchError> {
    let source = &entry.source;
    let folder = options.folder.join(&source.folder);
    let here = Checksums::read(&folder)?;
    let there = source.files.iter().map(|file| already_there(&folder, file, &here));
    let mut there: Vec<Option<Fetched>> = there.collect::<Result<_, _>>()?;
    let missing = source.files.iter().zip(&there).filter(|(_, there)| there.is_none());
    let missing: Vec<&SourceFile> = missing.map(|(file, _)| file).collect();
    if !missing.is_empty() {
        let mut downloaded = from_archive(entry, &missing, &folder, options, progress)?.into_iter();
        there
            .iter_mut()
            .filter(|there| there.is_none())
            .for_each(|place| *place = downloaded.next());
    }
    Ok(there.into_iter().flatten().collect())
}

/// Downloads the archive and takes these files out of it, in their order. Nothing appears before
/// everything is checked.
fn from_archive(
    entry: &Entry,
    files: &[&SourceFile],
    folder: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Fetched>, FetchError> {
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        |source| FetchError::Unwritable { path, source }
    };
    std::fs::create_dir_all(folder).map_err(unwritable(folder))?;
    let url = format!("{}/{}", options.mirror.0, entry.source.archive);
    let mut partial = download::Partial::open(
        &folder.join(format!("{}.zip.partial", entry.source.folder)),
        &url,
    )?;
    let archive = match download::download(&mut partial, options, progress) {
        Err(error) if partial.is_empty() => {
            partial.remove()?;
            return Err(error);
        }
        downloaded => downloaded?,
    };
    let unpacked = match unpack::unpack(archive, &url, files, folder, progress) {
        // There is nothing wrong with the archive if it is the disk that is full.
        Err(error @ FetchError::Unwritable { .. }) => return Err(error),
        Err(error) => {
            partial.remove()?;
            return Err(error);
        }
        Ok(unpacked) => unpacked,
    };
    let mut sums = Checksums::read(folder)?;
    let mut fetched = Vec::new();
    for (file, unpacked) in files.iter().zip(&unpacked) {
        let checked = match compare(file, &unpacked.sha256, &sums) {
            Ok(checked) => checked.unwrap_or(Checked::RecordedNow),
            Err((known, expected)) => {
                partial.remove()?;
                let (name, found) = (file.name.clone(), unpacked.sha256.clone());
                return Err(match known {
                    Checked::Catalogue => FetchError::WrongChecksum { url, name, expected, found },
                    _ => {
                        FetchError::Changed { url, name, expected, found, sums: folder.join(SUMS) }
                    }
                });
            }
        };
        fetched.push(Fetched { path: folder.join(&file.name), downloaded: true, checked });
    }
    for (file, unpacked) in files.iter().zip(&unpacked) {
        sums.record(&file.name, &unpacked.sha256);
    }
    // First, so that a file that we put there is never without its line.
    sums.write(folder)?;
    for (unpacked, fetched) in unpacked.into_iter().zip(&fetched) {
        let persisted = unpacked.file.persist(&fetched.path);
        persisted.map_err(|error| unwritable(&fetched.path)(error.error))?;
    }
    partial.remove()?;
    Ok(fetched)
}

/// The file, if it is in the folder and is what it should be.
fn already_there(
    folder: &Path,
    file: &SourceFile,
    sums: &Checksums,
) -> Result<Option<Fetched>, FetchError> {
    let Some(path) = packed_or_not(folder, &file.name) else { return Ok(None) };
    let sum = checksums::sha256_of_file(&path)
        .map_err(|source| FetchError::Unreadable { path: path.clone(), source })?;
    let Some(found) = sum else {
        return Ok(Some(Fetched { path, downloaded: false, checked: Checked::Nothing }));
    };
    match compare(file, &found, sums) {
        Ok(checked) => {
            let checked = checked.unwrap_or(Checked::Nothing);
            Ok(Some(Fetched { path, downloaded: false, checked }))
        }
        Err((_, expected)) => Err(FetchError::InTheWay { path, expected, found }),
    }
}

/// What a checksum was compared with, if with anything; or what it should be, and by whom.
fn compare(
    file: &SourceFile,
    found: &str,
    sums: &Checksums,
) -> Result<Option<Checked>, (Checked, String)> {
    let by_catalogue = file.sha256.as_deref().map(|sum| (Checked::Catalogue, sum));
    let known =
        by_catalogue.or_else(|| sums.find(&file.name).map(|sum| (Checked::FirstDownload, sum)));
    match known {
        None => Ok(None),
        Some((by, expected)) if expected == found => Ok(Some(by)),
        Some((by, expected)) => Err((by, expected.to_owned())),
    }
}

impl Mirror {
    /// The one that the user names, the one of the environment, or UCI itself.
    pub fn choose(named: Option<&str>) -> Result<Self, FetchError> {
        let of_environment =
            std::env::var(MIRROR_VARIABLE).ok().filter(|mirror| !mirror.is_empty());
        Self::parse(named.or(of_environment.as_deref()).unwrap_or(UCI))
    }

    /// Any web address.
    pub fn parse(address: &str) -> Result<Self, FetchError> {
        let bare = address.trim().trim_end_matches('/');
        let host = bare.strip_prefix("https://").or_else(|| bare.strip_prefix("http://"));
        match host {
            Some(host)
                if !host.is_empty()
                    && !host.contains(|c: char| c.is_whitespace() || c.is_control()) =>
            {
                Ok(Self(bare.to_owned()))
            }
            _ => Err(FetchError::BadMirror(address.to_owned())),
        }
    }

    /// Whether anyone on the way may read along and change what comes, because the user said so.
    fn is_open(&self) -> bool {
        self.0.starts_with("http://")
    }
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(20), silence: seconds(60), attempts: 4, pause: seconds(1) }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_is_a_web_address() {
        assert_eq!(Mirror::parse("https://a.example/x//").unwrap().0, "https://a.example/x");
        assert!(Mirror::parse("http://localhost:1").unwrap().is_open());
        assert!(!Mirror::parse(UCI).unwrap().is_open());
        for wrong in ["", "a.example", "ftp://a.example", "https://", "https://a b", "file:///etc"]
        {
            let message = Mirror::parse(wrong).unwrap_err().to_string();
            assert!(
                message.contains("https://") && message.contains(&format!("{wrong:?}")),
                "{message}"
            );
        }
    }
}
