//! [`PkiError`]: why an authority can't be made or used.

use std::path::PathBuf;
use std::time::Duration as Span;

use time::OffsetDateTime;

use super::MAX_DAYS;
use super::tokens::MAX_TOKENS;
use crate::file::FileError;
use crate::pki::identity::{BadName, IdentityError};

/// Why an authority can't be made or used.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// Not the name of a node.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A name that is given twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// Neither a DNS name nor an IP address.
    #[error("a server's name must be a DNS name or an IP address, without a port, but is {0:?}")]
    Host(String),
    /// A validity out of bounds.
    #[error("days must be between 1 and {MAX_DAYS}, but are {0}")]
    Days(u32),
    /// The folder has files of an authority, which are never overwritten.
    #[error("{} is there already, and an authority is never overwritten: choose another folder", file.display())]
    Exists {
        /// What is there.
        file: PathBuf,
    },
    /// The folder has no authority.
    #[error("{} holds no authority (hedgerow pki init makes one)", folder.display())]
    NoAuthority {
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The authority's certificate has ended, so it can't sign.
    #[error("the authority ended on {}: make a new one in another folder", end.date())]
    Ended {
        /// When.
        end: OffsetDateTime,
    },
    /// The node has a valid certificate.
    #[error(
        "{node} has a certificate until {}: renew it if the owner is the same (--renew), revoke it first if it was \
         lost, or choose another name", end.date()
    )]
    Enrolled {
        /// Name of the node.
        node: String,
        /// Until when.
        end: OffsetDateTime,
    },
    /// The node was revoked: a renewal does not let it in again.
    #[error("{node} was revoked on {}: issue a first certificate again, without --renew, to let it back in", at.date())]
    Revoked {
        /// The node.
        node: String,
        /// When.
        at: OffsetDateTime,
    },
    /// A file of that name has another content, which may be the only copy.
    #[error("{} is in the way: it has no certificate of that name from this authority; move it away", file.display())]
    InTheWay {
        /// The file.
        file: PathBuf,
    },
    /// No node has that name.
    #[error("{node} has no certificate in {} (hedgerow pki list shows those that have)", folder.display())]
    Unknown {
        /// The node.
        node: String,
        /// The folder.
        folder: PathBuf,
    },
    /// A file or a folder can't be written.
    #[error(transparent)]
    Output(#[from] FileError),
    /// A line of the index can't be read.
    #[error("{}, line {line}: {what}", file.display())]
    Index {
        /// The file.
        file: PathBuf,
        /// Counted from one.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A file can't be read or used.
    #[error(transparent)]
    File(#[from] IdentityError),
    /// The key and the certificate of the authority can't sign.
    #[error("can't sign: {0}")]
    Signing(#[from] rcgen::Error),
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// A life of a token out of bounds.
    #[error("a token must be good for more than 0 s and at most 30 d, but for {} s", .0.as_secs())]
    TokenLife(Span),
    /// There are too many tokens.
    #[error("there are {MAX_TOKENS} tokens: wait until some have ended for 30 days")]
    TooManyTokens,
    /// There is no key here.
    #[error("{} is not here: certificates are signed where it is", file.display())]
    NoKey {
        /// The file.
        file: PathBuf,
    },
    /// The authority's key is encrypted.
    #[error(
        "{} is encrypted: give its passphrase with --passphrase-file FILE, in \
         HEDGEROW_PKI_PASSPHRASE, or at a terminal", file.display()
    )]
    Sealed {
        /// The file.
        file: PathBuf,
    },
    /// The passphrase doesn't fit.
    #[error("{}: wrong passphrase, or damaged", file.display())]
    WrongPassphrase {
        /// The file.
        file: PathBuf,
    },
    /// There is no rotation to be finished.
    #[error("no rotation of the authority has begun (hedgerow pki rotate)")]
    NotRotating,
    /// Somebody would be locked out.
    #[error(
        "{count} owners of certificates know only the old authority, such as {names}: wait until \
         their nodes have renewed, or finish in spite of them (--even-so)"
    )]
    Waiting {
        /// How many.
        count: usize,
        /// Some of them.
        names: String,
    },
    /// The end of the audit log can't be read, so nothing can follow it.
    #[error("{}: the last line is no entry of an audit log: move the file away", file.display())]
    Audit {
        /// The file.
        file: PathBuf,
    },
}
