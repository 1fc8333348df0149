//! [`PinnedAuthority`]: how a node that has nothing but a token knows the server. The server shows
//! its authority's certificate, the node compares it with the fingerprint in the token, and then
//! checks the server's own certificate and name with it, as in every later connection.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, PeerIncompatible, RootCertStore,
    SignatureScheme,
};

use super::provider;
use crate::pki::token::Fingerprint;

/// Believes servers of one authority.
#[derive(Debug)]
pub(super) struct PinnedAuthority {
    authority: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl PinnedAuthority {
    pub(super) fn new(authority: Fingerprint) -> Self {
        Self { authority, provider: provider() }
    }
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let pinned = intermediates.iter().find(|shown| self.authority.is_of(shown));
        let pinned = pinned.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(pinned.clone().into_owned())?;
        let provider = Arc::clone(&self.provider);
        WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .map_err(|_| Error::InvalidCertificate(CertificateError::UnknownIssuer))?
            .verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
