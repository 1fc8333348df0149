//! An authority's folder: files, overwriting, and listings.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use hedgerow_net::pki::identity::{NodeIdentity, Peer, Role, ServerIdentity};
use hedgerow_net::pki::{Authority, Issued, Issuing, Kind, PkiError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::{CertificateRevocationList, FromDer, GeneralName};

fn authority() -> (TempDir, Authority) {
    let folder = TempDir::new().unwrap();
    let authority = Authority::init(&folder.path().join("pki"), &[]).unwrap();
    (folder, authority)
}

fn der(file: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file).unwrap()
}

/// Number of the list of revoked certificates, and how many there are.
fn list(authority: &Authority) -> (u64, usize) {
    let der =
        CertificateRevocationListDer::from_pem_file(authority.folder().join("crl.pem")).unwrap();
    let (_, list) = CertificateRevocationList::from_der(&der).unwrap();
    let (_, ca) =
        x509_parser::parse_x509_certificate(&self::der(&authority.folder().join("ca.pem")))
            .map(|(rest, ca)| (rest.len(), ca.public_key().raw.to_vec()))
            .unwrap();
    let (_, key) = x509_parser::x509::SubjectPublicKeyInfo::from_der(&ca).unwrap();
    list.verify_signature(&key).unwrap();
    (list.crl_number().unwrap().try_into().unwrap(), list.iter_revoked_certificates().count())
}

fn good(authority: &Authority, node: &str) -> usize {
    let now = OffsetDateTime::now_utc();
    let of_node = |issued: &&Issued| issued.kind == Kind::Node && issued.name == node;
    authority.list().unwrap().iter().filter(of_node).filter(|issued| issued.is_good(now)).count()
}

/// Everything in a folder, to see that nothing has changed.
fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(content(&path));
        } else {
            all.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn certificates_say_what_they_are_for_and_no_more() {
    let (_folder, authority) = authority();
    let node = der(&authority.issue("a", 10).unwrap());
    let (ca, server) =
        (der(&authority.folder().join("ca.pem")), der(&authority.folder().join("server.pem")));
    let [ca, server, node] =
        [&ca, &server, &node].map(|der| X509Certificate::from_der(der).unwrap().1);
    assert!(ca.is_ca() && !server.is_ca() && !node.is_ca());
    let constraints = ca.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.path_len_constraint == Some(0));
    let usage = ca.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.key_cert_sign() && usage.value.crl_sign());
    assert!(!usage.value.digital_signature());
    for (certificate, for_server) in [(&server, true), (&node, false)] {
        certificate.verify_signature(Some(ca.public_key())).unwrap();
        assert_eq!(certificate.issuer().as_raw(), ca.subject().as_raw());
        let usage = certificate.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && !usage.key_cert_sign() && !usage.crl_sign());
        let purposes = certificate.extended_key_usage().unwrap().unwrap().value;
        assert_eq!((purposes.server_auth, purposes.client_auth), (for_server, !for_server));
        assert!(!purposes.any && purposes.other.is_empty());
    }
    let names = &server.subject_alternative_name().unwrap().unwrap().value.general_names;
    let v6: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(
        names[..],
        [
            GeneralName::DNSName("localhost"),
            GeneralName::IPAddress(&[127, 0, 0, 1]),
            GeneralName::IPAddress(v6)
        ]
    );
    let now = OffsetDateTime::now_utc().unix_timestamp();
    for (certificate, days) in [(&ca, 3650), (&server, 730), (&node, 10)] {
        let (begin, end) = (certificate.validity().not_before, certificate.validity().not_after);
        assert!((now - 3600 - begin.timestamp()).abs() < 60);
        assert!((now + 86_400 * days - end.timestamp()).abs() < 60);
    }
    let serials: HashSet<&[u8]> =
        [&ca, &server, &node].map(|certificate| certificate.raw_serial()).into();
    assert_eq!(serials.len(), 3);
    assert!(serials.iter().all(|serial| serial.len() == 16 && serial[0] & 0xc0 == 0x40));
}

#[cfg(unix)]
#[test]
fn private_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, authority) = authority();
    authority.issue("a", 10).unwrap();
    let mode = |name: &str| {
        let path = authority.folder().join(name);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    for _ in 0..2 {
        for name in ["ca.key", "server.pem", "nodes/a.pem", "index.jsonl"] {
            assert_eq!(mode(name), 0o600, "{name}");
        }
        // And still are when they were written again.
        authority.issue_all(&["a"], 10, Issuing::Renewal).unwrap();
        authority.renew_server(&[], 10).unwrap();
    }
    authority.issue_all(&["b"], 10, Issuing::First(Role::Operator)).unwrap();
    assert_eq!(mode("operators/b.pem"), 0o600);
    assert_eq!((mode(""), mode("nodes"), mode("operators")), (0o700, 0o700, 0o700));
}

#[test]
fn an_authority_is_never_overwritten() {
    let (_folder, authority) = authority();
    let before = content(authority.folder());
    let refusal = Authority::init(authority.folder(), &[]).unwrap_err();
    assert!(refusal.to_string().contains("ca.key is there already"), "{refusal}");
    assert_eq!(content(authority.folder()), before);
    for name in ["ca.pem", "server.pem", "crl.pem", "nodes", "index.jsonl"] {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join(name), "precious").unwrap();
        let refusal = Authority::init(folder.path(), &[]).unwrap_err();
        assert!(matches!(&refusal, PkiError::Exists { file } if file.ends_with(name)), "{refusal}");
        assert_eq!(std::fs::read(folder.path().join(name)).unwrap(), b"precious");
        assert!(!folder.path().join("ca.key").exists());
    }
    // What else is in a folder is no hindrance.
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    Authority::init(folder.path(), &[]).unwrap();
    ServerIdentity::open(folder.path()).unwrap();
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_written() {
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("pki");
    for host in [
        "",
        "a b",
        "host:7443",
        "https://host",
        "*.example",
        "host.",
        "[::1]",
        "10.0.0.300",
        "-a",
        "ä",
    ] {
        let refusal = Authority::init(&folder, &["fine".to_owned(), host.to_owned()]).unwrap_err();
        assert!(matches!(&refusal, PkiError::Host(found) if found == host), "{host}: {refusal}");
    }
    for days in [0, 36_501, u32::MAX] {
        assert!(
            matches!(Authority::at(&folder).make(&[], days, 10), Err(PkiError::Days(found)) if found == days)
        );
        assert!(matches!(Authority::at(&folder).make(&[], 10, days), Err(PkiError::Days(_))));
    }
    assert!(!folder.exists());
    assert!(matches!(Authority::open(&folder), Err(PkiError::NoAuthority { .. })));
    let authority = Authority::init(&folder, &[]).unwrap();
    let before = content(&folder);
    for node in ["", "A", "../a", "a/b", "a..b", &"a".repeat(65)] {
        assert!(matches!(authority.issue(node, 10), Err(PkiError::Name(_))), "{node}");
    }
    assert!(matches!(authority.issue("a", 0), Err(PkiError::Days(0))));
    assert!(matches!(authority.revoke("a"), Err(PkiError::Unknown { .. })));
    // The server is no node.
    assert!(matches!(authority.revoke("server"), Err(PkiError::Unknown { .. })));
    let twice = authority.issue_all(&["a", "b", "a"], 10, Issuing::First(Role::Node));
    assert!(matches!(twice, Err(PkiError::Twice(node)) if node == "a"));
    let unknown = authority.issue_all(&["a"], 10, Issuing::Renewal);
    assert!(matches!(unknown, Err(PkiError::Unknown { .. })));
    assert_eq!(content(&folder), before);
}

#[test]
fn hosts_are_written_plainly_and_once() {
    let folder = TempDir::new().unwrap();
    let hosts = ["Host.Example", "10.0.0.5", "0:0::1", "host.example", "::1"].map(str::to_owned);
    let authority = Authority::init(folder.path(), &hosts).unwrap();
    assert_eq!(authority.list().unwrap()[0].hosts, ["host.example", "10.0.0.5", "::1"]);
}

#[test]
fn a_name_is_one_nodes_until_it_is_revoked() {
    let (_folder, authority) = authority();
    let file = authority.issue("a", 10).unwrap();
    assert_eq!(file, authority.folder().join("nodes/a.pem"));
    let first = NodeIdentity::open(&file).unwrap();
    let before = content(authority.folder());
    let refusal = authority.issue("a", 10).unwrap_err();
    assert!(matches!(&refusal, PkiError::Enrolled { node, .. } if node == "a"), "{refusal}");
    // No other node gets one.
    assert!(authority.issue_all(&["b", "a"], 10, Issuing::First(Role::Node)).is_err());
    assert_eq!(content(authority.folder()), before);
    // The file was moved to the device, but the name stays taken.
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(authority.issue("a", 10), Err(PkiError::Enrolled { .. })));
    let renewed = authority.issue_all(&["a"], 20, Issuing::Renewal).unwrap();
    assert_eq!(renewed.len(), 1);
    assert_eq!(good(&authority, "a"), 2);
    authority.issue_all(&["a"], 20, Issuing::Renewal).unwrap();
    assert_eq!((good(&authority, "a"), authority.revoke("a").unwrap()), (3, 3));
    assert_eq!((good(&authority, "a"), authority.revoke("a").unwrap()), (0, 0));
    let server = ServerIdentity::open(authority.folder()).unwrap();
    assert!(
        server.is_revoked(&first.peer().serial)
            && server.is_revoked(&NodeIdentity::open(&file).unwrap().peer().serial)
    );
    // Revoked nodes can't be renewed but can be enrolled again.
    let refusal = authority.issue_all(&["a"], 10, Issuing::Renewal).unwrap_err();
    assert!(matches!(&refusal, PkiError::Revoked { node, .. } if node == "a"), "{refusal}");
    authority.issue("a", 10).unwrap();
    assert!(!server.is_revoked(&NodeIdentity::open(&file).unwrap().peer().serial));
    assert_eq!(good(&authority, "a"), 1);
}

#[test]
fn operators_have_a_role_of_their_own() {
    let (_folder, authority) = authority();
    authority.issue("node", 10).unwrap();
    let issued = authority.issue_all(&["alice"], 10, Issuing::First(Role::Operator)).unwrap();
    let (file, issued) = &issued[0];
    assert_eq!(
        (file.clone(), issued.kind),
        (authority.folder().join("operators/alice.pem"), Kind::Operator)
    );
    let alice = NodeIdentity::open_as(file, Role::Operator).unwrap();
    assert_eq!((alice.name(), alice.peer().role), ("alice", Role::Operator));
    assert_eq!(alice.peer().end, issued.not_after.unix_timestamp());
    let refusal = NodeIdentity::open(file).unwrap_err().to_string();
    assert!(
        refusal.ends_with("alice.pem: its certificate is an operator's, and not for a node"),
        "{refusal}"
    );
    let node = authority.file_of(Role::Node, "node");
    let refusal = NodeIdentity::open_as(&node, Role::Operator).unwrap_err().to_string();
    assert!(refusal.ends_with("its certificate is a node's, and not for an operator"), "{refusal}");
    // A name has one role, which a renewal keeps.
    let taken = authority.issue_all(&["node"], 10, Issuing::First(Role::Operator));
    assert!(matches!(taken, Err(PkiError::Enrolled { node, .. }) if node == "node"));
    assert!(matches!(authority.issue("alice", 10), Err(PkiError::Enrolled { .. })));
    authority.issue_all(&["alice", "node"], 20, Issuing::Renewal).unwrap();
    let renewed = NodeIdentity::open_as(file, Role::Operator).unwrap();
    assert_ne!(renewed.peer().serial, alice.peer().serial);
    assert_eq!(NodeIdentity::open(&node).unwrap().peer().role, Role::Node);
    assert_eq!(authority.revoke("alice").unwrap(), 2);
    let server = ServerIdentity::open(authority.folder()).unwrap();
    assert!(server.is_revoked(&renewed.peer().serial) && server.is_revoked(&alice.peer().serial));
}

#[test]
fn files_of_others_are_left_alone() {
    let (_folder, authority) = authority();
    let (_other_folder, other) = self::authority();
    let foreign = std::fs::read_to_string(other.issue("a", 10).unwrap()).unwrap();
    let file = authority.file_of(Role::Node, "a");
    for content in ["", "precious", &foreign] {
        std::fs::write(&file, content).unwrap();
        let refusal = authority.issue("a", 10).unwrap_err();
        assert!(
            matches!(&refusal, PkiError::InTheWay { file: found } if *found == file),
            "{refusal}"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
    }
    std::fs::remove_file(&file).unwrap();
    authority.issue("a", 10).unwrap();
    // Nor is b's certificate taken for a's.
    std::fs::rename(authority.issue("b", 10).unwrap(), &file).unwrap();
    assert!(matches!(
        authority.issue_all(&["a"], 10, Issuing::Renewal),
        Err(PkiError::InTheWay { .. })
    ));
}

#[test]
fn lists_have_rising_numbers_whatever_happens() {
    let (_folder, authority) = authority();
    let mut last = list(&authority);
    assert_eq!(last.1, 0);
    authority.issue_all(&["a", "b", "c"], 10, Issuing::First(Role::Node)).unwrap();
    for (node, count) in [("a", 1), ("b", 2), ("a", 2), ("c", 3)] {
        authority.revoke(node).unwrap();
        let now = list(&authority);
        assert!(now.0 > last.0 && now.1 == count, "{last:?} {now:?}");
        last = now;
    }
    // A lost or damaged list is rebuilt from the index.
    let file = authority.folder().join("crl.pem");
    for spoil in [None, Some("spoilt")] {
        match spoil {
            Some(content) => std::fs::write(&file, content).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        assert_eq!(authority.revoke("a").unwrap(), 0);
        assert_eq!(list(&authority).1, 3);
    }
    let all = authority.revoke_all(&["a", "nobody"]);
    assert!(matches!(all, Err(PkiError::Unknown { node, .. }) if node == "nobody"));
}

#[test]
fn nothing_outlives_its_authority() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::at(folder.path());
    authority.make(&[], 700, 5).unwrap();
    authority.issue("a", 730).unwrap();
    let now = OffsetDateTime::now_utc();
    for issued in authority.list().unwrap() {
        assert!(issued.not_after <= now + Duration::days(5), "{issued:?}");
    }
    let days = NodeIdentity::open(&authority.file_of(Role::Node, "a")).unwrap().days_left();
    assert!(matches!(days, 4 | 5), "{days}");
}

#[test]
fn without_its_key_an_authority_lists_but_changes_nothing() {
    let (_folder, authority) = authority();
    let (_other_folder, other) = self::authority();
    authority.issue("a", 10).unwrap();
    let key = authority.folder().join("ca.key");
    let others = std::fs::read_to_string(other.folder().join("ca.key")).unwrap();
    for content in [
        None,
        Some(""),
        Some("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        Some(&others),
    ] {
        match content {
            Some(content) => std::fs::write(&key, content).unwrap(),
            None => std::fs::remove_file(&key).unwrap(),
        }
        let before = self::content(authority.folder());
        for refusal in [
            authority.issue("b", 10).unwrap_err(),
            authority.revoke("a").unwrap_err(),
            authority.renew_server(&[], 10).unwrap_err(),
        ] {
            assert!(
                matches!(refusal, PkiError::File(_)) && refusal.to_string().contains("ca."),
                "{refusal}"
            );
            assert!(!refusal.to_string().contains("AAAA"));
        }
        assert_eq!(self::content(authority.folder()), before);
        assert_eq!(authority.list().unwrap().len(), 2);
    }
}

#[test]
fn many_may_work_in_one_folder() {
    let (_folder, authority) = authority();
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let authority = authority.clone();
            std::thread::spawn(move || {
                for node in 0..5 {
                    authority.issue(&format!("n{thread}.{node}"), 10).unwrap();
                }
                authority.revoke(&format!("n{thread}.0")).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let all = authority.list().unwrap();
    assert_eq!(all.len(), 41);
    assert_eq!(all.iter().map(|issued| &issued.serial).collect::<HashSet<_>>().len(), 41);
    assert_eq!(list(&authority).1, 8);
    for issued in all.iter().filter(|issued| issued.kind == Kind::Node) {
        let file = authority.file_of(Role::Node, &issued.name);
        let peer = Peer::from_certificate(&der(&file)).unwrap();
        let serial: String = peer.serial.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((&peer.name, serial), (&issued.name, issued.serial.clone()));
    }
    // Nothing half-written is left.
    assert_eq!(std::fs::read_dir(authority.folder().join("nodes")).unwrap().count(), 40);
    assert_eq!(std::fs::read_dir(authority.folder()).unwrap().count(), 8);
}
