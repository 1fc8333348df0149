//! An authority with its nodes, and both ends of a handshake.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hedgerow_net::pki::Authority;
use hedgerow_net::pki::identity::{NodeIdentity, Peer, ServerIdentity};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig,
    SupportedProtocolVersion,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// An authority with a node `a`, in a temporary folder.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) authority: Authority,
    pub(crate) a: PathBuf,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::init(&folder.path().join("pki"), &[]).unwrap();
        let a = authority.issue("a", 730).unwrap();
        Self { folder, authority, a }
    }

    pub(crate) fn server(&self) -> ServerIdentity {
        ServerIdentity::open(self.authority.folder()).unwrap()
    }

    pub(crate) fn node(&self) -> NodeIdentity {
        NodeIdentity::open(&self.a).unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.authority.folder().join(name)
    }

    /// What the authority signs with.
    pub(crate) fn issuer(&self) -> Issuer<'static, KeyPair> {
        let key = KeyPair::from_pem(&read(&self.file("ca.key"))).unwrap();
        Issuer::from_ca_cert_pem(&read(&self.file("ca.pem")), key).unwrap()
    }
}

/// The result of a handshake at both ends. A node sees a refusal only when it reads.
pub(crate) struct Meeting {
    pub(crate) server: Result<Peer, String>,
    pub(crate) client: Result<Seen, String>,
}

/// What a node saw.
pub(crate) struct Seen {
    pub(crate) kind: HandshakeKind,
    pub(crate) protocol: Option<Vec<u8>>,
    pub(crate) version: ProtocolVersion,
    pub(crate) certificate: Vec<u8>,
}

pub(crate) fn meet(server: Arc<ServerConfig>, client: Arc<ClientConfig>, host: &str) -> Meeting {
    let host = ServerName::try_from(host.to_owned()).unwrap();
    let (near, far) = tokio::io::duplex(1 << 16);
    let serving = async move {
        let mut stream = TlsAcceptor::from(server).accept(near).await?;
        stream.write_all(b"!").await?;
        stream.flush().await?;
        let peer =
            Peer::from_certificate(&stream.get_ref().1.peer_certificates().unwrap()[0]).unwrap();
        // Until the node has closed, so that it receives everything.
        let _ = stream.read(&mut [0]).await;
        io::Result::Ok(peer)
    };
    let joining = async move {
        let mut stream = TlsConnector::from(client).connect(host, far).await?;
        let mut heard = [0];
        stream.read_exact(&mut heard).await?;
        let connection = stream.get_ref().1;
        io::Result::Ok(Seen {
            kind: connection.handshake_kind().unwrap(),
            protocol: connection.alpn_protocol().map(<[u8]>::to_vec),
            version: connection.protocol_version().unwrap(),
            certificate: connection.peer_certificates().unwrap()[0].to_vec(),
        })
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (server, client) = runtime.block_on(async { tokio::join!(serving, joining) });
    Meeting { server: server.map_err(|e| e.to_string()), client: client.map_err(|e| e.to_string()) }
}

/// The server must have refused, for this reason, and the node must know.
pub(crate) fn assert_turned_away(meeting: &Meeting, reason: &str) {
    let refusal = meeting.server.as_ref().unwrap_err();
    assert!(refusal.contains(reason), "{refusal}");
    assert!(meeting.client.is_err());
}

/// The node must have refused, for this reason.
pub(crate) fn assert_not_believed(meeting: &Meeting, reason: &str) {
    let Err(refusal) = &meeting.client else { panic!("the node believes it") };
    assert!(refusal.contains(reason), "{refusal}");
    assert!(meeting.server.is_err());
}

pub(crate) fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap()
}

pub(crate) fn certificates(file: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(file).unwrap().map(Result::unwrap).collect()
}

pub(crate) fn roots(authority: &CertificateDer<'static>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).unwrap();
    roots
}

/// TLS with a file's key and certificate, without our checks.
pub(crate) fn unchecked_client(
    file: Option<&Path>,
    authority: &CertificateDer<'static>,
    version: &'static SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots(authority));
    Arc::new(match file {
        Some(file) => {
            let key = PrivateKeyDer::from_pem_file(file).unwrap();
            builder.with_client_auth_cert(vec![certificates(file)[0].clone()], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    })
}

/// A server that asks for no certificate.
pub(crate) fn unchecked_server(
    file: &Path,
    version: &'static SupportedProtocolVersion,
) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificates(file)[0].clone()],
            PrivateKeyDer::from_pem_file(file).unwrap(),
        );
    Arc::new(config.unwrap())
}

/// A clock that is ahead by so many days.
#[derive(Debug)]
pub(crate) struct DaysAhead(pub(crate) u64);

impl TimeProvider for DaysAhead {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Some(UnixTime::since_unix_epoch(since + Duration::from_secs(86_400 * self.0)))
    }
}

/// Parameters of a good certificate of a node.
pub(crate) fn node_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let now = time::OffsetDateTime::now_utc();
    (params.not_before, params.not_after) =
        (now - time::Duration::days(9), now + time::Duration::days(9));
    params
}

/// Writes a node's file with the given certificate.
pub(crate) fn forge(
    fixture: &Fixture,
    name: &str,
    issuer: &Issuer<'_, KeyPair>,
    params: &CertificateParams,
) -> PathBuf {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let file = fixture.folder.path().join(name);
    std::fs::write(
        &file,
        key.serialize_pem() + &certificate.pem() + &read(&fixture.file("ca.pem")),
    )
    .unwrap();
    file
}
