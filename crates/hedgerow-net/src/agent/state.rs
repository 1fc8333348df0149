//! [`StateFile`]: a node on disk. A file that can't be read is never overwritten; the file of
//! another run is renamed.

use std::path::{Path, PathBuf};

use hedgerow::Node;
use hedgerow::node::ForgottenSamples;
use serde::{Deserialize, Serialize};

use super::follow::Bookmark;
use crate::file::{FileError, Format, Lock};
use crate::plan_json::{OtherMethods, plan_from_json, plan_to_json};

/// Largest file. A hundred classes with the default settings take half of it.
const MAX_BYTES: usize = 256 << 20;

const FORMAT: Format = Format::new("node", 1, MAX_BYTES as u64);

/// Most bytes of a node, which leaves room for the past of its rows.
#[cfg(feature = "server")]
pub(crate) const MAX_NODE_BYTES: usize = MAX_BYTES - (16 << 20);

/// Number of names that are tried for a state of another run.
const MAX_OLD_NAMES: usize = 10_000;

/// Why a node's state can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The content of the file can't be used.
    #[error("{0} (to begin anew, move that file away, or name another with --state)")]
    File(FileError),
    /// The system can't read or write it.
    #[error("{0} (another file can be named with --state)")]
    System(FileError),
    /// Another process has locked it.
    #[error(
        "{0}: is this node running already? (a node with another name needs a file of its own: --state)"
    )]
    InUse(FileError),
    /// The checksum is right, but the content is no node of this version.
    #[error("{}: {reason} (to begin anew, move that file away, or name another with --state)", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The state of another node.
    #[error("{} belongs to the node {found:?}, and this is {expected:?}: name another file with --state", path.display())]
    OtherNode {
        /// The file.
        path: PathBuf,
        /// The name of this node.
        expected: String,
        /// The name in the file.
        found: String,
    },
    /// The file of another run can't be renamed.
    #[error("can't set {} aside: {source}", path.display())]
    InTheWay {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl From<FileError> for StateError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Busy { .. } => Self::InUse(error),
            FileError::Unreadable { .. } | FileError::Unwritable { .. } => Self::System(error),
            _ => Self::File(error),
        }
    }
}

/// The position in the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The file that was followed.
    pub path: PathBuf,
    /// The position in it.
    pub bookmark: Bookmark,
    /// The header of its rows.
    pub header: Option<Vec<u8>>,
}

/// The content of the file. Behind it is the past of the node's rows, if samples need it.
#[derive(Debug, Serialize, Deserialize)]
struct Body {
    name: String,
    learning: String,
    node: Vec<u8>,
    reading: Option<Reading>,
}

impl Body {
    /// The content of a file, and the past of the node's rows.
    fn read(bytes: &[u8]) -> Result<(Self, Option<Vec<u8>>), String> {
        let (body, past) = postcard::take_from_bytes(bytes).map_err(|error| error.to_string())?;
        Ok((body, Some(past.to_vec()).filter(|past| !past.is_empty())))
    }

    /// The node in it, or what is wrong with it.
    fn node(&self, others: OtherMethods<'_>) -> Result<Node, String> {
        let plan = plan_from_json(&self.learning, others).map_err(|error| error.to_string())?;
        Node::restore(&plan, &self.node).map_err(|error| error.to_string())
    }
}

/// What a file has.
pub struct StoredNode {
    /// The node.
    pub node: Node,
    /// Its position in the input, if that can be resumed.
    pub reading: Option<Reading>,
    /// The past of its rows, as [`LiveSeries`](hedgerow_data::live::LiveSeries) saves it.
    pub past: Option<Vec<u8>>,
}

/// A node's file, locked.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    name: String,
    _lock: Lock,
}

impl StateFile {
    /// Opens the file of the node with this name, and reads the node and its position in the input.
    /// `others` are methods beside the built-in ones.
    pub fn open(
        path: &Path,
        name: &str,
        others: OtherMethods<'_>,
    ) -> Result<(Self, Option<StoredNode>), StateError> {
        let file = Self { path: path.to_owned(), name: name.to_owned(), _lock: Lock::take(path)? };
        let kept = match FORMAT.read(path)? {
            Some(body) => Some(file.restore(&body, others)?),
            None => None,
        };
        Ok((file, kept))
    }

    fn restore(&self, body: &[u8], others: OtherMethods<'_>) -> Result<StoredNode, StateError> {
        let unfit = |reason: String| self.unfit(reason);
        let (body, past) = Body::read(body).map_err(unfit)?;
        if body.name != self.name {
            return Err(StateError::OtherNode {
                path: self.path.clone(),
                expected: self.name.clone(),
                found: body.name,
            });
        }
        let node = body.node(others).map_err(unfit)?;
        Ok(StoredNode { node, reading: body.reading, past })
    }

    /// The error that its content makes no sense.
    pub(super) fn unfit(&self, reason: String) -> StateError {
        StateError::Unfit { path: self.path.clone(), reason }
    }

    /// The node in a file and its name, without a lock: a running node replaces its file as a
    /// whole.
    pub fn peek(path: &Path) -> Result<(String, Node), StateError> {
        let unfit = |reason: String| StateError::Unfit { path: path.to_owned(), reason };
        let bytes = FORMAT.read(path)?.unwrap_or_default();
        let (body, _) = Body::read(&bytes).map_err(unfit)?;
        let node = body.node(&[]).map_err(unfit)?;
        Ok((body.name, node))
    }

    /// Takes a snapshot of the node. The returned function writes it, completely or not at all, so
    /// that the node needn't wait for the disk. `past` is that of its rows.
    pub fn save(
        &self,
        node: &Node,
        reading: Option<Reading>,
        past: Option<Vec<u8>>,
    ) -> impl FnOnce() -> Result<(), FileError> + Send + use<> {
        let body = Body {
            name: self.name.clone(),
            learning: plan_to_json(node.plan()),
            node: node.save(),
            reading,
        };
        // Writing to memory can't fail; an empty body would be refused when it is read.
        let mut body = postcard::to_allocvec(&body).unwrap_or_default();
        body.extend(past.into_iter().flatten());
        let path = self.path.clone();
        move || FORMAT.write(&path, &body)
    }

    /// Removes all samples from a node's file; what the node has learned stays. The file is
    /// replaced as a whole. Refused while a node uses it.
    pub fn forget_samples(path: &Path) -> Result<ForgottenSamples, StateError> {
        let missing = |source| FileError::Unreadable { path: path.to_owned(), source };
        // A lock would leave a file beside a name that is misspelt.
        std::fs::metadata(path).map_err(missing)?;
        let _lock = Lock::take(path)?;
        let unfit = |reason: String| StateError::Unfit { path: path.to_owned(), reason };
        let bytes = FORMAT.read(path)?.unwrap_or_default();
        // Earlier rows are samples, too.
        let (mut body, _) = Body::read(&bytes).map_err(&unfit)?;
        let mut node = body.node(&[]).map_err(&unfit)?;
        let forgotten = node.forget_samples();
        body.node = node.save();
        let body = postcard::to_allocvec(&body).map_err(|error| unfit(error.to_string()))?;
        FORMAT.write(path, &body)?;
        Ok(forgotten)
    }

    /// Renames the file of another run. Returns its new name.
    pub fn set_aside(&self) -> Result<Option<PathBuf>, StateError> {
        let in_the_way = |source| StateError::InTheWay { path: self.path.clone(), source };
        if !self.path.try_exists().map_err(in_the_way)? {
            return Ok(None);
        }
        for number in 1..=MAX_OLD_NAMES {
            let mut aside = self.path.clone().into_os_string();
            aside.push(format!(".old-{number}"));
            let aside = PathBuf::from(aside);
            if !aside.try_exists().map_err(in_the_way)? {
                std::fs::rename(&self.path, &aside).map_err(in_the_way)?;
                return Ok(Some(aside));
            }
        }
        Err(in_the_way(std::io::ErrorKind::AlreadyExists.into()))
    }
}
