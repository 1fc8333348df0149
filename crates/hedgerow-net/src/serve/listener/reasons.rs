//! Why a connection was not admitted, in words for the log, with hints where libraries have none.

use std::error::Error;
use std::io;
use std::time::Duration;

use rustls::InvalidMessage;

use crate::pki::identity::BadCertificate;

/// Why a connection was not admitted.
#[derive(Debug, thiserror::Error)]
pub(super) enum TurnedAway {
    #[error("too many connections")]
    TooMany,
    #[error("newer connections took its place before it said who it is")]
    Displaced,
    #[error("TLS: {}{}", .0, hint(.0))]
    Tls(#[from] io::Error),
    #[error("no TLS within {0:?}")]
    Timeout(Duration),
    #[error("no certificate")]
    NoCertificate,
    #[error("the server is going down")]
    Stopped,
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
}

fn hint(error: &io::Error) -> &'static str {
    let found = error.get_ref().and_then(|error| error.downcast_ref());
    match found {
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            " (a node that speaks plain text, or no node?)"
        }
        _ => "",
    }
}

/// The innermost cause of an error. The outer errors say only that there was one.
pub(super) fn reason_of(error: &hyper::Error, is_plain: bool) -> String {
    let mut cause: &(dyn Error + 'static) = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    // Something that isn't HTTP/2 is most often TLS.
    let is_foreign = is_plain && !cause.is::<io::Error>();
    let hint = if is_foreign {
        " (a node that speaks TLS, or no node? this server speaks plain text)"
    } else {
        ""
    };
    format!("{cause}{hint}")
}
