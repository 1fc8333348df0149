//! Certificates and TLS for both sides. Nodes and server accept only certificates of the
//! federation's authority. No part of a private key is ever shown, neither by `Debug` nor in an
//! error.

mod bundle;
mod first_contact;
#[cfg(feature = "server")]
mod list_numbers;
mod node;
#[cfg(feature = "server")]
mod server;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hedgerow_data::text::counted;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

pub(crate) use bundle::MAX_PEM_BYTES;
#[cfg(feature = "server")]
pub(crate) use bundle::{MAX_LIST_BYTES, certificate_in};
#[cfg(feature = "server")]
pub use list_numbers::ListNumbers;
pub use node::NodeIdentity;
#[cfg(feature = "server")]
pub use server::{CRL_FILE, SERVER_FILE, ServerIdentity};

use crate::file::FileError;

/// A certificate that ends within so many days causes a warning.
pub const WARNING_DAYS: i64 = 30;

/// The protocol within TLS on a connection that asks for a certificate.
pub const SIGNING_PROTOCOL: &[u8] = b"hedgerow-signing/1";

/// Longest name of a node.
pub const MAX_NAME: usize = 64;

/// What the owner of a certificate may do. It is the organizational unit (OU) of the certificate's
/// subject. Certificates without one are of nodes: version 0.1.0 wrote none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Joins and learns.
    Node,
    /// Gives commands to the server, and can't join.
    Operator,
}

impl Role {
    /// As certificates and listings have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Operator => "operator",
        }
    }

    fn of(certificate: &X509Certificate<'_>) -> Result<Self, BadCertificate> {
        let mut units = certificate.subject().iter_organizational_unit();
        let Some(unit) = units.next() else { return Ok(Self::Node) };
        [Self::Node, Self::Operator]
            .into_iter()
            .find(|role| unit.as_str() == Ok(role.name()) && units.next().is_none())
            .ok_or(BadCertificate::Role)
    }
}

/// The owner of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The owner's name: the one DNS name of the certificate.
    pub name: String,
    /// What the owner may do.
    pub role: Role,
    /// Serial number of the certificate, without leading zeros.
    pub serial: Vec<u8>,
    /// When the certificate ends, in seconds of Unix time.
    pub end: i64,
}

/// Why a file can't be used as an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It has another content than expected.
    #[error("{}: {what}", file.display())]
    Unfit {
        /// The file.
        file: PathBuf,
        /// What is wrong, without any of the content.
        what: &'static str,
    },
    /// Its certificate is invalid.
    #[error("{}: {source}", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: BadCertificate,
    },
    /// The library of TLS refuses its own algorithms.
    #[error("TLS 1.3 can't be used")]
    NoTls,
    /// The list of revoked certificates is older than the one in force.
    #[error("{} has number {number}, but number {known} is in force: an old copy?", file.display())]
    OldList {
        /// The file.
        file: PathBuf,
        /// Its number.
        number: String,
        /// That of the list that stays in force.
        known: String,
    },
}

/// Why a certificate has no valid owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    /// It can't be read.
    #[error("a certificate can't be read")]
    Unreadable,
    /// It has not exactly one DNS name.
    #[error(
        "a node's certificate must have exactly one name and that must be a DNS name, but has {0}"
    )]
    Names(usize),
    /// Its common name differs from its DNS name.
    #[error("the certificate's common name is not its DNS name {dns:?}")]
    TwoNames {
        /// The DNS name.
        dns: String,
    },
    /// Its name is not that of a node.
    #[error(transparent)]
    Name(#[from] BadName),
    /// It has a role that this version doesn't know, or several.
    #[error("the certificate's organizational unit must be node or operator, or be left out")]
    Role,
}

/// Not the name of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a node's name must be 1 to {MAX_NAME} of a-z, 0-9, '.', '_' and '-', begin with a letter or digit, and have parts between dots of \
     1 to 63 that neither begin nor end with '-', but is {0:?}"
)]
pub struct BadName(String);

/// Plain text is allowed on loopback only, because others could read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "plain text must stay on a loopback address such as 127.0.0.1 or ::1, but the address is {0}"
)]
pub struct PlainTextRefused(IpAddr);

impl Peer {
    /// Reads name, role and serial number. TLS has checked before that the authority signed it.
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Result<Self, BadCertificate> {
        let certificate = parse(certificate)?;
        let alternatives =
            certificate.subject_alternative_name().map_err(|_| BadCertificate::Unreadable)?;
        let names = alternatives.map_or(&[][..], |names| &names.value.general_names);
        let [GeneralName::DNSName(name)] = names else {
            return Err(BadCertificate::Names(names.len()));
        };
        check_node_name(name)?;
        let mut common = certificate.subject().iter_common_name();
        if common.any(|common| common.as_str() != Ok(name)) {
            return Err(BadCertificate::TwoNames { dns: (*name).to_owned() });
        }
        Ok(Self {
            name: (*name).to_owned(),
            role: Role::of(&certificate)?,
            serial: plain_serial(certificate.raw_serial()),
            end: certificate.validity().not_after.timestamp(),
        })
    }
}

/// Whether a node can have this name. Names that come over plain text must be checked too.
pub fn check_node_name(name: &str) -> Result<(), BadName> {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    let is_part =
        |part: &str| matches!(part.len(), 1..=63) && !part.starts_with('-') && !part.ends_with('-');
    let sound = matches!(name.len(), 1..=MAX_NAME)
        && name.bytes().all(allowed)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.split('.').all(is_part);
    // Refused nodes must not fill a log.
    if sound { Ok(()) } else { Err(BadName(name.chars().take(2 * MAX_NAME).collect())) }
}

/// Whether plain text is allowed with this address. Resolve a host's name first, check the address,
/// and connect to that address.
pub fn check_plain_text(address: SocketAddr) -> Result<(), PlainTextRefused> {
    // ::ffff:127.0.0.1 is loopback as well.
    let ip = address.ip().to_canonical();
    if ip.is_loopback() { Ok(()) } else { Err(PlainTextRefused(ip)) }
}

/// Whole days until a certificate ends; negative once it has.
pub fn days_left(certificate: &CertificateDer<'_>) -> Result<i64, BadCertificate> {
    Ok(days_until(ending(certificate)?))
}

/// When a certificate ends, in seconds of Unix time.
pub(crate) fn ending(certificate: &CertificateDer<'_>) -> Result<i64, BadCertificate> {
    Ok(parse(certificate)?.validity().not_after.timestamp())
}

/// How long a certificate is still valid, including its last second.
#[cfg(feature = "server")]
pub(crate) fn time_left(certificate: &CertificateDer<'_>) -> Result<Duration, BadCertificate> {
    Ok(time_until(ending(certificate)?, unix_time()))
}

/// The time of the system's clock.
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Whether less than a third of a certificate's life is left.
fn is_due(begin: i64, end: i64, now: Duration) -> bool {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    end.saturating_sub(now) < end.saturating_sub(begin) / 3
}

fn time_until(end: i64, now: Duration) -> Duration {
    let first_bad = u64::try_from(end.saturating_add(1)).unwrap_or(0);
    Duration::from_secs(first_bad).saturating_sub(now)
}

pub(crate) fn days_until(end: i64) -> i64 {
    let now = i64::try_from(unix_time().as_secs()).unwrap_or(i64::MAX);
    end.saturating_sub(now).div_euclid(86_400)
}

/// A warning about a certificate that ends soon or has ended.
fn warning(whose: &str, end: i64, remedy: &str) -> Option<String> {
    match days_until(end) {
        days if days < 0 => Some(format!("{whose} has ended and will be refused; {remedy}")),
        days if days < WARNING_DAYS => {
            Some(format!("{whose} ends in {}; {remedy}", counted(days, "day")))
        }
        _ => None,
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, BadCertificate> {
    match X509Certificate::from_der(certificate) {
        Ok(([], parsed)) => Ok(parsed),
        _ => Err(BadCertificate::Unreadable),
    }
}

/// Leading zeros of serial numbers don't matter.
fn plain_serial(serial: &[u8]) -> Vec<u8> {
    serial.iter().copied().skip_while(|byte| *byte == 0).collect()
}

/// Not the default of the process, which other code may set.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The protocols within TLS.
fn protocols() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes() {
        let long = "a".repeat(63);
        let longest = format!("{}.{}", "a".repeat(32), "b".repeat(31));
        for name in ["a", "7", "boiler-3.hall_b", "x--y", "10.0.0.5", &long, &longest] {
            assert_eq!(check_node_name(name), Ok(()), "{name}");
        }
        let too_long = "a".repeat(64);
        let far_too_long = "a".repeat(100_000);
        for name in [
            "",
            "A",
            "-a",
            ".a",
            "_a",
            "a.",
            "a..b",
            "a-",
            "a-.b",
            "a.-b",
            "a b",
            "a/b",
            "../a",
            "ä",
            "a\n",
            "a\0",
            "*",
            &too_long,
            &far_too_long,
            &format!("{longest}c"),
        ] {
            let error = check_node_name(name).unwrap_err();
            assert!(error.to_string().len() < 400, "{name}");
        }
        assert!(check_node_name("a\nb").unwrap_err().to_string().contains(r#""a\nb""#));
    }

    #[test]
    fn plain_text_stays_at_home() {
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(check_plain_text(address.parse().unwrap()), Ok(()), "{address}");
        }
        for address in [
            "0.0.0.0:1",
            "[::]:1",
            "10.0.0.5:1",
            "192.168.0.1:1",
            "169.254.0.1:1",
            "[fe80::1]:1",
            "[::ffff:10.0.0.5]:1",
            "128.0.0.1:1",
        ] {
            let error = check_plain_text(address.parse().unwrap()).unwrap_err();
            assert!(error.to_string().contains("loopback"), "{error}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_nobody() {
        for bytes in [&b""[..], b"hello", &[0x30, 0x82, 0xff, 0xff], &[0x30; 4096]] {
            let certificate = CertificateDer::from(bytes);
            assert_eq!(Peer::from_certificate(&certificate), Err(BadCertificate::Unreadable));
            assert_eq!(days_left(&certificate), Err(BadCertificate::Unreadable));
        }
    }

    #[test]
    fn the_last_third_is_the_time_to_renew() {
        let due = |begin, end, seconds| is_due(begin, end, Duration::from_secs(seconds));
        assert_eq!([due(0, 90, 59), due(0, 90, 60), due(0, 90, 61)], [false, false, true]);
        assert!(due(0, 90, 90) && due(0, 90, 1_000));
        assert!(!due(i64::MIN, i64::MAX, 1) && !due(0, i64::MAX, 1 << 40));
    }

    #[test]
    fn the_last_second_is_a_whole_one() {
        let left = |end, ms| time_until(end, Duration::from_millis(ms)).as_millis();
        assert_eq!(
            [left(7, 6_500), left(7, 7_999), left(7, 8_000), left(7, 9_000)],
            [1_500, 1, 0, 0]
        );
        assert_eq!((left(-1, 1), left(i64::MIN, 1)), (0, 0));
        assert_eq!(time_until(i64::MAX, Duration::ZERO).as_secs(), i64::MAX as u64);
    }

    #[test]
    fn endings_are_announced() {
        let in_days = |days: i64| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            warning("it", now as i64 + 86_400 * days + 60, "renew it")
        };
        assert_eq!(in_days(WARNING_DAYS), None);
        assert_eq!(in_days(WARNING_DAYS - 1).unwrap(), "it ends in 29 days; renew it");
        assert_eq!(in_days(0).unwrap(), "it ends in 0 days; renew it");
        assert_eq!(in_days(-1).unwrap(), "it has ended and will be refused; renew it");
        assert_eq!(days_until(i64::MIN), i64::MIN.div_euclid(86_400));
        assert!(days_until(i64::MAX) > 1 << 40);
    }
}
