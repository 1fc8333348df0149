//! [`ConnectError`]: why there is no stream to the server, in words for the operator of the node.
//! Messages of libraries go to the debug log.

use std::error::Error;
use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};

use crate::pki::identity::PlainTextRefused;

/// Why there is no stream, or no longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The host is unknown or unreachable.
    #[error("can't reach {address}: {reason}")]
    Unreachable {
        /// Where the server should be.
        address: String,
        /// The cause.
        reason: String,
    },
    /// Plain text would be readable on the way.
    #[error(transparent)]
    PlainText(#[from] PlainTextRefused),
    /// No answer arrived in time.
    #[error("the server did not answer within {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// A certificate was rejected, or one side doesn't use TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// The server closed the connection before its welcome and gave no reason. A server that
    /// rejects a certificate reports it only after the node has sent data, and the report may be
    /// lost.
    #[error("the server ended the connection before welcoming this node: {}", likely_cause(*is_plain))]
    Unwelcome {
        /// Whether the connection was plain text.
        is_plain: bool,
        /// The error of the transport.
        detail: String,
    },
    /// The server doesn't want this node, at the join or later (revoked, expired), and says why. A
    /// person must act.
    #[error("the server refuses this node: {0}")]
    Refused(String),
    /// What should be learned can't be.
    #[error("the server's learning configuration won't do: {0}")]
    Plan(String),
    /// What the server says makes no sense.
    #[error("the server doesn't speak this protocol: {0}")]
    Foreign(String),
    /// Another stream has come in this node's name.
    #[error(
        "another node has joined with this node's name and taken its place: is one identity on two devices?"
    )]
    Replaced,
    /// The server ended the stream, and says why.
    #[error("the server ended the stream: {0}")]
    Dismissed(String),
    /// It broke off.
    #[error("the server is gone: the stream broke off")]
    Broken {
        /// The error of the transport.
        detail: String,
    },
    /// The node ended it, because its certificate was replaced.
    #[error("the node's certificate was replaced: it connects again with the new one")]
    NewCertificate,
    /// It was ended.
    #[error("the server ended the stream")]
    Ended,
}

fn likely_cause(is_plain: bool) -> &'static str {
    if is_plain {
        "it may speak TLS, and this node was told to speak plain text"
    } else {
        "its certificate may be revoked or unknown to the server"
    }
}

impl ConnectError {
    /// Whether a person must act.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::PlainText(_) | Self::Tls(_) | Self::Refused(_) | Self::Plan(_) | Self::Foreign(_)
        )
    }

    /// What libraries say about it, if there is more to say.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Unwelcome { detail, .. } | Self::Broken { detail } => Some(detail),
            _ => None,
        }
    }

    pub(crate) fn unreachable(address: &str, reason: impl ToString) -> Self {
        Self::Unreachable { address: address.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn broken(error: &dyn Error) -> Self {
        Self::Broken { detail: Self::causes(error) }
    }

    /// An error with what caused it.
    pub(crate) fn causes(error: &dyn Error) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = error.source();
        }
        text
    }

    /// The same, if it came before the server's welcome.
    pub(crate) fn before_welcome(self, is_plain: bool) -> Self {
        match self {
            Self::Broken { detail } => Self::Unwelcome { is_plain, detail },
            Self::Ended => Self::Unwelcome { is_plain, detail: Self::Ended.to_string() },
            other => other,
        }
    }

    /// What TLS says about an error, if one of the two sides doesn't want the other. (Whatever else
    /// goes wrong may go well the next time.)
    pub(crate) fn from_tls(error: &io::Error) -> Option<Self> {
        let meaning = match error.get_ref()?.downcast_ref::<rustls::Error>()? {
            rustls::Error::AlertReceived(alert) => {
                format!("the server refuses this node's certificate: {}", refusal(*alert)?)
            }
            rustls::Error::InvalidCertificate(reason) => {
                format!("the server's certificate won't do: {}", unfitness(reason))
            }
            rustls::Error::InvalidMessage(_) => {
                "what answers there doesn't speak TLS: is it the right port, and was the server started without --plain-text?"
                    .to_owned()
            }
            other @ rustls::Error::PeerIncompatible(_) => other.to_string(),
            _ => return None,
        };
        Some(Self::Tls(meaning))
    }

    /// What the first bytes of a server say that was spoken to in plain text, if they are of TLS:
    /// an alert, or a handshake.
    pub(crate) fn from_first_bytes(bytes: &[u8]) -> Option<Self> {
        let is_tls = matches!(bytes, [0x15 | 0x16, 0x03, ..]);
        is_tls.then(|| {
            Self::Tls(
                "the server speaks TLS: leave --plain-text away, and name the node's file with --identity"
                    .to_owned(),
            )
        })
    }
}

/// What an alert says about this node's certificate, if it is about that.
fn refusal(alert: AlertDescription) -> Option<String> {
    let words = match alert {
        AlertDescription::CertificateRevoked => "it has been revoked",
        AlertDescription::CertificateExpired => "it has ended",
        AlertDescription::UnknownCA => "it is of another authority than the server's",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRequired
        | AlertDescription::DecryptError
        | AlertDescription::AccessDenied => return Some(format!("{alert:?}")),
        _ => return None,
    };
    Some(words.to_owned())
}

fn unfitness(reason: &CertificateError) -> String {
    match reason {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it is of another authority than this node's".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("{reason}: renew it on the server's side, or set this machine's clock right")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(error: rustls::Error) -> Option<String> {
        ConnectError::from_tls(&io::Error::new(io::ErrorKind::InvalidData, error))
            .map(|trouble| trouble.to_string())
    }

    #[test]
    fn what_tls_says_is_put_into_words() {
        for (error, part) in [
            (
                rustls::Error::AlertReceived(AlertDescription::CertificateRevoked),
                "certificate: it has been revoked",
            ),
            (
                rustls::Error::AlertReceived(AlertDescription::UnknownCA),
                "another authority than the server's",
            ),
            (rustls::Error::AlertReceived(AlertDescription::BadCertificate), "BadCertificate"),
            (
                rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "another authority than this node's",
            ),
            (rustls::InvalidMessage::InvalidContentType.into(), "doesn't speak TLS"),
        ] {
            let words = tls(error).unwrap();
            assert!(words.contains(part), "{words}");
        }
        // A refusal by an overloaded server is temporary.
        assert_eq!(tls(rustls::Error::AlertReceived(AlertDescription::InternalError)), None);
        assert_eq!(ConnectError::from_tls(&io::ErrorKind::ConnectionReset.into()), None);
    }

    #[test]
    fn bytes_of_tls_are_known_from_those_of_http() {
        assert!(ConnectError::from_first_bytes(&[0x15, 3, 3, 0, 2, 2, 10]).unwrap().is_lasting());
        for bytes in [&[][..], &[0x15], &[0, 0, 24, 4, 0, 0, 0, 0, 0], b"HTTP/1.1 400"] {
            assert_eq!(ConnectError::from_first_bytes(bytes), None, "{bytes:?}");
        }
    }
}
