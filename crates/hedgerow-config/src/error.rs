//! [`ConfigError`], and suggestions for misspelt names.

use std::path::PathBuf;

/// Settings that can't be used.
///
/// `origin` is the file or flag that the setting comes from; it is empty where there is none, as
/// for settings from Python.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A settings file can't be read.
    #[error("can't read the settings in {}: {source}", file.display())]
    Unreadable {
        /// The settings file.
        file: PathBuf,
        /// The reason that the system gives.
        source: std::io::Error,
    },
    /// Text that isn't TOML.
    #[error("{origin} is not valid TOML: {message}")]
    NotToml {
        /// The file or flag.
        origin: String,
        /// What the parser says, with line and column.
        message: String,
    },
    /// A key that the defaults don't have.
    #[error("{}unknown key {key:?}{hint}", prefix(origin))]
    UnknownKey {
        /// The file or flag.
        origin: String,
        /// The whole key, such as `rounds.quorum`.
        key: String,
        /// The nearest known key in parentheses, or the known keys of the section.
        hint: String,
    },
    /// A value of the wrong type.
    #[error("{}{key} must be {expected}, but is {found}", prefix(origin))]
    WrongType {
        /// The file or flag.
        origin: String,
        /// The whole key.
        key: String,
        /// The type in words, such as "a whole number".
        expected: String,
        /// The value as TOML.
        found: String,
    },
    /// A value of the right type that can't be used.
    #[error("{}{key} must be {bound}, but is {value}", prefix(origin))]
    OutOfBounds {
        /// The file or flag.
        origin: String,
        /// The whole key.
        key: String,
        /// What values can be used, in words.
        bound: String,
        /// The value as TOML.
        value: String,
    },
    /// A value, or a section, that the library refuses.
    #[error("{}{key}: {reason}", prefix(origin))]
    Rejected {
        /// The file or flag.
        origin: String,
        /// The whole key, or the section.
        key: String,
        /// What the library says, with bound and value.
        reason: String,
    },
}

impl ConfigError {
    /// A value that can't be used. [`Merged::locate`](crate::Merged::locate) adds where it comes
    /// from.
    pub fn out_of_bounds(key: &str, bound: impl ToString, value: impl ToString) -> Self {
        let (bound, value) = (bound.to_string(), value.to_string());
        Self::OutOfBounds { origin: String::new(), key: key.to_owned(), bound, value }
    }

    /// A value that the library refuses, with what it says.
    pub fn rejected(key: &str, reason: impl ToString) -> Self {
        let (key, reason) = (key.to_owned(), reason.to_string());
        Self::Rejected { origin: String::new(), key, reason }
    }

    /// A name that is none of the known ones; the bound lists them and suggests the nearest.
    pub fn unknown_name(key: &str, name: &str, known: &[impl AsRef<str>]) -> Self {
        Self::out_of_bounds(key, one_of(name, known), format!("{name:?}"))
    }
}

/// The bound for a name that is none of the known ones: lists them and suggests the nearest.
pub fn one_of(name: &str, known: &[impl AsRef<str>]) -> String {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let nearest = nearest(known.iter().copied(), |candidate| strsim::jaro_winkler(candidate, name));
    format!("one of {}{}", known.join(", "), nearest.map(did_you_mean).unwrap_or_default())
}

pub(crate) fn did_you_mean(suggestion: &str) -> String {
    format!(" (did you mean {suggestion:?}?)")
}

/// The most similar candidate, if it is similar enough for a typo.
pub(crate) fn nearest<T: Copy>(
    candidates: impl Iterator<Item = T>,
    similarity: impl Fn(T) -> f64,
) -> Option<T> {
    let scored = candidates.map(|candidate| (candidate, similarity(candidate)));
    let best = scored.max_by(|a, b| a.1.total_cmp(&b.1));
    best.filter(|(_, similarity)| *similarity > 0.7).map(|(candidate, _)| candidate)
}

fn prefix(origin: &str) -> String {
    if origin.is_empty() { String::new() } else { format!("{origin}: ") }
}
