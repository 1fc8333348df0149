//! [`Signer`]: signs the authority's own certificate, those of servers and nodes, and the list of
//! revoked ones.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PublicKeyData, RevokedCertParams, SanType, SerialNumber,
};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::index::{from_hexadecimal, to_hexadecimal};
use super::key::{self, Passphrase};
use super::{Issued, Kind, PkiError};
use crate::pki::identity::{IdentityError, Role};
use crate::pki::token::Fingerprint;

/// Certificates are valid this long before they are issued, for clocks that are late.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// The key and the certificate of an authority.
pub(super) struct Signer {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate, which is at the end of every file.
    pub(super) pem: String,
    /// Those of other authorities that are trusted, too.
    others: String,
    pub(super) fingerprint: Fingerprint,
    /// Whether its key is encrypted.
    pub(super) is_sealed: bool,
    pub(super) end: OffsetDateTime,
}

/// A certificate and its line of the index.
pub(super) struct Signed {
    pub(super) pem: String,
    pub(super) issued: Issued,
}

impl Signer {
    /// A new authority until `end`, and its private key.
    pub(super) fn generate(
        now: OffsetDateTime,
        end: OffsetDateTime,
    ) -> Result<(Self, KeyPair), PkiError> {
        let (serial, key) = (new_serial()?, KeyPair::generate()?);
        let mut params = validity(now, end);
        // People can distinguish authorities by it.
        let name = format!("Hedgerow authority {}", to_hexadecimal(&serial[..4]));
        params.distinguished_name = named(&name);
        params.serial_number = Some(SerialNumber::from(serial));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        let signer = Self {
            issuer: Issuer::new(params, KeyPair::try_from(key.serialized_der())?),
            pem: certificate.pem(),
            others: String::new(),
            fingerprint: Fingerprint::of(certificate.der()),
            is_sealed: false,
            end,
        };
        Ok((signer, key))
    }

    /// The same, beside another authority that is trusted, too.
    pub(super) fn beside(self, other: String) -> Self {
        Self { others: other, ..self }
    }

    /// The same, and no other is trusted.
    pub(super) fn alone(self) -> Self {
        self.beside(String::new())
    }

    /// From the content of the files of the authority's key and certificate, if they belong
    /// together.
    pub(super) fn read(
        (key_file, key): (&Path, &str),
        (file, pem): (&Path, String),
        passphrase: Option<&Passphrase>,
    ) -> Result<Self, PkiError> {
        let is_sealed = key::is_sealed(key);
        let key = key::open(key_file, key, passphrase)?;
        let mut certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
        let (Some(Ok(der)), None) = (certificates.next(), certificates.next()) else {
            return Err(unfit(file, "must hold one certificate in PEM"));
        };
        let Ok((_, certificate)) = X509Certificate::from_der(&der) else {
            return Err(unfit(file, "its certificate can't be read"));
        };
        if certificate.public_key().raw != key.subject_public_key_info() {
            return Err(unfit(file, "its certificate is not that of the private key in ca.key"));
        }
        let end = OffsetDateTime::from_unix_timestamp(certificate.validity().not_after.timestamp())
            .map_err(|_| unfit(file, "its certificate ends beyond all time"))?;
        let (fingerprint, others) = (Fingerprint::of(&der), String::new());
        let issuer = Issuer::from_ca_cert_der(&der, key)?;
        Ok(Self { issuer, pem, others, fingerprint, is_sealed, end })
    }

    pub(super) fn sign_peer(
        &self,
        role: Role,
        name: &str,
        now: OffsetDateTime,
        end: OffsetDateTime,
    ) -> Result<Signed, PkiError> {
        let key = KeyPair::generate()?;
        let (certificates, issued) = self.certify_peer(role, name, &key, now, end)?;
        Ok(Signed { pem: key.serialize_pem() + &certificates, issued })
    }

    /// A certificate for somebody else's key, and the authorities' own.
    pub(super) fn certify_peer(
        &self,
        role: Role,
        name: &str,
        key: &impl PublicKeyData,
        now: OffsetDateTime,
        end: OffsetDateTime,
    ) -> Result<(String, Issued), PkiError> {
        let names = vec![SanType::DnsName(name.try_into()?)];
        self.certify((role.into(), name, names), key, now, end)
    }

    pub(super) fn sign_server(
        &self,
        hosts: &[String],
        now: OffsetDateTime,
        end: OffsetDateTime,
    ) -> Result<Signed, PkiError> {
        let mut names = Vec::with_capacity(hosts.len());
        for host in hosts {
            names.push(match host.parse() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(host.as_str().try_into()?),
            });
        }
        let key = KeyPair::generate()?;
        let (certificates, mut issued) =
            self.certify((Kind::Server, "server", names), &key, now, end)?;
        issued.hosts = hosts.to_vec();
        Ok(Signed { pem: key.serialize_pem() + &certificates, issued })
    }

    /// A certificate for a key, which ends with the authority at the latest.
    fn certify(
        &self,
        (kind, name, names): (Kind, &str, Vec<SanType>),
        key: &impl PublicKeyData,
        now: OffsetDateTime,
        end: OffsetDateTime,
    ) -> Result<(String, Issued), PkiError> {
        if self.end <= now {
            return Err(PkiError::Ended { end: self.end });
        }
        let (serial, end) = (new_serial()?, end.min(self.end));
        let issued = Issued {
            kind,
            name: name.to_owned(),
            hosts: Vec::new(),
            serial: to_hexadecimal(&serial),
            issued_at: now,
            not_after: end,
            revoked_at: None,
            authority: Some(self.fingerprint.to_string()),
            trusts_two: !self.others.is_empty(),
        };
        let mut params = validity(now, end);
        params.distinguished_name = named(name);
        if let Some(role) = issued.role() {
            params.distinguished_name.push(DnType::OrganizationalUnitName, role.name());
        }
        params.subject_alt_names = names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match kind {
            Kind::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Kind::Node | Kind::Operator => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from(serial));
        let certificate = params.signed_by(key, &self.issuer)?;
        Ok((certificate.pem() + &self.pem + &self.others, issued))
    }

    /// The list of all that are revoked, in PEM.
    pub(super) fn sign_list(
        &self,
        number: u64,
        all: &[Issued],
        now: OffsetDateTime,
    ) -> Result<String, PkiError> {
        let revoked = |issued: &Issued| {
            Some(RevokedCertParams {
                revocation_time: issued.revoked_at?,
                serial_number: SerialNumber::from(from_hexadecimal(&issued.serial)?),
                reason_code: None,
                invalidity_date: None,
            })
        };
        let params = CertificateRevocationListParams {
            this_update: now - CLOCK_SKEW,
            // Servers ignore it: see `ServerIdentity`.
            next_update: self.end.max(now + CLOCK_SKEW),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: all.iter().filter_map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(params.signed_by(&self.issuer)?.pem()?)
    }
}

fn validity(now: OffsetDateTime, end: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = now - CLOCK_SKEW;
    params.not_after = end;
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// 128 bits. The first two are fixed, so that the number is positive and always has the same
/// length.
fn new_serial() -> Result<Vec<u8>, PkiError> {
    let mut serial = [0; 16];
    ring::default_provider().secure_random.fill(&mut serial).map_err(|_| PkiError::Random)?;
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(serial.to_vec())
}

fn unfit(file: &Path, what: &'static str) -> PkiError {
    IdentityError::Unfit { file: file.to_owned(), what }.into()
}
