//! Fetching the original files of a data set from UCI: `download` gets the archive and resumes a
//! download that broke off, `unpack` takes the files of the catalogue out of it, `checksums`
//! compares them with what is known, `files` does these steps in order.
//!
//! Without the feature `fetch` everything here compiles, and [`fetch`] says how to get it.

#[cfg(feature = "fetch")]
mod checksums;
#[cfg(feature = "fetch")]
mod download;
mod error;
#[cfg(feature = "fetch")]
mod files;
#[cfg(feature = "fetch")]
mod unpack;

use std::path::PathBuf;
use std::time::Duration;

use super::catalog::Entry;
pub use error::FetchError;

/// Where UCI keeps its archives.
pub const UCI: &str = "https://archive.ics.uci.edu/static/public";
/// Names a mirror of UCI's archives.
pub const MIRROR_VARIABLE: &str = "HEDGEROW_MIRROR";

/// Options of a download.
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

/// What a download is doing.
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
        /// The error of the last attempt.
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
    /// Its path on this machine.
    pub path: PathBuf,
    /// Whether it was downloaded now.
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

/// Puts the files of a data set's source into their folder. Only files that are not there are
/// downloaded.
pub fn fetch(
    entry: &Entry,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Fetched>, FetchError> {
    #[cfg(feature = "fetch")]
    return files::fetch(entry, options, progress);
    #[cfg(not(feature = "fetch"))]
    {
        _ = (entry, options, progress);
        Err(FetchError::NotBuilt)
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
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(20), silence: seconds(60), attempts: 4, pause: seconds(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_is_a_web_address() {
        assert_eq!(Mirror::parse("https://a.example/x//").unwrap().0, "https://a.example/x");
        assert_eq!(Mirror::parse(UCI).unwrap().0, UCI);
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
