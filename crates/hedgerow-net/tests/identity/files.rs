//! Damaged, unusual and world-readable files, and that no secret of them is shown.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use hedgerow_net::pki::identity::{BadCertificate, NodeIdentity, Peer, Role, days_left};
use rcgen::{CertificateParams, DnType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::fixture::*;

#[test]
fn damaged_files_of_a_node_are_refused_by_name_and_never_quoted() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let b = read(&fixture.authority.issue("b", 730).unwrap());
    let whole = read(&fixture.a);
    let parts: Vec<&str> = whole.split_inclusive("-----\n").collect();
    // Begin, body with end: three times.
    let [key, certificate, authority] = [0, 2, 4].map(|part| parts[part..part + 2].concat());
    assert_eq!([&*key, &certificate, &authority].concat(), whole);
    let other_key = &b[..b.find("-----BEGIN CERT").unwrap()];
    let file = fixture.folder.path().join("x.pem");
    let refusal = |content: &str| {
        std::fs::write(&file, content).unwrap();
        let refusal = NodeIdentity::open(&file).unwrap_err();
        let shown = format!("{refusal} {refusal:?}");
        assert!(shown.contains("x.pem"), "{shown}");
        assert_nothing_secret(&shown, &fixture.a);
        refusal.to_string()
    };
    for (content, reason) in [
        (String::new(), "no private key"),
        ("hello".to_owned(), "no private key"),
        (format!("{certificate}{authority}"), "no private key"),
        (key.clone(), "two certificates"),
        (format!("{key}{certificate}"), "two certificates"),
        (format!("{whole}{authority}"), "two certificates"),
        (format!("{other_key}{whole}"), "more than one private key"),
        (format!("{other_key}{certificate}{authority}"), "not that of its certificate"),
        (format!("{key}{authority}{certificate}"), "no authority's"),
        (format!("{key}{certificate}{}", read(&other.file("ca.pem"))), "not issued by"),
        (whole.replacen("-----END", "-----EN", 1), "damaged"),
        (whole.replacen("PRIVATE KEY", "ENCRYPTED PRIVATE KEY", 2), "no private key"),
        (whole.replacen("-----\n", "-----\n?!*", 1), "damaged"),
        (
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_owned()
                + &certificate
                + &authority,
            "can't be used",
        ),
        (whole.clone() + &" ".repeat(1 << 20), "1048576 are the most"),
    ] {
        let refusal = refusal(&content);
        assert!(refusal.contains(reason), "{reason}: {refusal}");
    }
    for length in (0..whole.trim_end().len() - 1).step_by(7) {
        refusal(&whole[..length]);
    }
    // Changes by editors and mail programs are accepted.
    std::fs::write(&file, "# node a\r\n".to_owned() + &whole.replace('\n', "\r\n")).unwrap();
    assert_eq!(NodeIdentity::open(&file).unwrap().name(), "a");
    for missing in [fixture.folder.path().join("none.pem"), fixture.folder.path().to_owned()] {
        let refusal = NodeIdentity::open(&missing).unwrap_err();
        assert!(refusal.to_string().contains(&*missing.to_string_lossy()), "{refusal}");
    }
}

#[test]
fn no_flipped_bit_is_believed() {
    let fixture = Fixture::new();
    let server = fixture.server();
    let whole = std::fs::read(&fixture.a).unwrap();
    let file = fixture.folder.path().join("x.pem");
    let mut opened = 0;
    for place in (0..whole.len()).step_by(5) {
        let mut content = whole.clone();
        content[place] ^= 1 << (place % 7);
        std::fs::write(&file, content).unwrap();
        // A changed bit in a signature is found only in the handshake. With a changed authority,
        // the node trusts no server.
        let Ok(identity) = NodeIdentity::open(&file) else { continue };
        opened += 1;
        let meeting = meet(server.config(), identity.config(), "localhost");
        assert!(
            meeting.server.is_err() || identity.peer() == fixture.node().peer(),
            "byte {place}"
        );
    }
    assert!(opened > 0);
}

#[test]
fn names_in_certificates_must_be_plain() {
    let fixture = Fixture::new();
    let open = |params: &CertificateParams| {
        let file = forge(&fixture, "odd.pem", &fixture.issuer(), params);
        NodeIdentity::open(&file)
            .map(|identity| identity.name().to_owned())
            .map_err(|e| e.to_string())
    };
    assert_eq!(open(&node_params("a")), Ok("a".to_owned()));
    let mut two = node_params("a");
    two.subject_alt_names.push(rcgen::SanType::DnsName("b".try_into().unwrap()));
    let mut address = node_params("a");
    address.subject_alt_names = vec![rcgen::SanType::IpAddress([127, 0, 0, 1].into())];
    let mut none = node_params("a");
    none.subject_alt_names.clear();
    let mut differs = node_params("a");
    differs.distinguished_name.push(DnType::CommonName, "b");
    for (params, reason) in [
        (two, "but has 2"),
        (address, "but has 1"),
        (none, "but has 0"),
        (differs, "is not its DNS name \"a\""),
        (node_params("A"), "but is \"A\""),
        (node_params("../a"), "but is \"../a\""),
    ] {
        let refusal = open(&params).unwrap_err();
        assert!(refusal.contains("odd.pem") && refusal.contains(reason), "{refusal}");
    }
}

#[test]
fn roles_are_known_or_refused() {
    let fixture = Fixture::new();
    let role = |units: &[DnType], value: &str| {
        let mut params = node_params("a");
        for unit in units {
            params.distinguished_name.push(unit.clone(), value);
        }
        let file = forge(&fixture, "role.pem", &fixture.issuer(), &params);
        Peer::from_certificate(&certificates(&file)[0]).map(|peer| peer.role)
    };
    let unit = DnType::OrganizationalUnitName;
    // Certificates of 0.1.0 have none.
    assert_eq!(role(&[], ""), Ok(Role::Node));
    for known in [Role::Node, Role::Operator] {
        assert_eq!(role(std::slice::from_ref(&unit), known.name()), Ok(known));
    }
    for odd in ["", "Operator", "operator ", "operator\0", "admin", "server"] {
        assert_eq!(role(std::slice::from_ref(&unit), odd), Err(BadCertificate::Role), "{odd:?}");
    }
    let twice = [unit, DnType::CustomDnType(vec![2, 5, 4, 11])];
    for value in ["node", "operator"] {
        assert_eq!(role(&twice, value), Err(BadCertificate::Role));
    }
}

#[test]
fn damaged_certificates_are_read_without_harm() {
    let fixture = Fixture::new();
    let whole = certificates(&fixture.a)[0].to_vec();
    let mut readable = 0;
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << bit;
            let certificate = CertificateDer::from(bytes);
            readable += usize::from(Peer::from_certificate(&certificate).is_ok());
            let _ = days_left(&certificate);
        }
        assert!(Peer::from_certificate(&CertificateDer::from(&whole[..place])).is_err());
    }
    assert!(readable > 0);
}

/// Lines and bytes of a private key must not be in what is shown.
fn assert_nothing_secret(shown: &str, file: &Path) {
    let content = read(file);
    let end = content.find("-----END PRIVATE KEY").unwrap();
    let lines: Vec<&str> = content[..end].lines().skip(1).collect();
    assert!(lines.len() >= 2);
    for line in lines {
        assert!(!shown.contains(line) && !shown.contains(&line[..16.min(line.len())]), "{shown}");
    }
    let key = PrivateKeyDer::from_pem_file(file).unwrap();
    // The scalar itself begins at byte 36 of what is written here.
    let secret = &key.secret_der()[36..44];
    assert!(!shown.contains(format!("{secret:?}").trim_matches(['[', ']'])), "{shown}");
    assert!(!shown.contains("PRIVATE"), "{shown}");
}

#[test]
fn nothing_secret_is_shown() {
    let fixture = Fixture::new();
    let (server, node) = (fixture.server(), fixture.node());
    for (shown, file) in [
        (format!("{node:?} {node:#?} {:?}", node.config()), fixture.a.clone()),
        (format!("{server:?} {server:#?} {:?}", server.config()), fixture.file("server.pem")),
        (format!("{:?} {:#?}", fixture.authority, fixture.authority), fixture.file("ca.key")),
    ] {
        assert_nothing_secret(&shown, &file);
    }
    assert!(format!("{node:?}").contains("a.pem") && format!("{server:?}").contains("pki"));
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(unix)]
#[test]
fn keys_that_others_may_read_are_told() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    let logged = |file: &Path, mode: u32| {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || (fixture.node(), fixture.server()));
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    };
    for file in [fixture.a.clone(), fixture.file("server.pem")] {
        for mode in [0o600, 0o400] {
            assert_eq!(logged(&file, mode), "");
        }
        for mode in [0o640, 0o604, 0o620] {
            let log = logged(&file, mode);
            assert!(log.contains("WARN") && log.contains(&*file.to_string_lossy()), "{log}");
            assert!(log.contains(&format!("{mode:o}")), "{log}");
            assert_nothing_secret(&log.replace("this private key", ""), &file);
        }
    }
}
