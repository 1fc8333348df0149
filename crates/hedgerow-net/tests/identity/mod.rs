//! Admission: real TLS handshakes in memory, with the files of an authority.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod files;
pub(crate) mod fixture;

use std::sync::Arc;

use hedgerow_net::file::FileError;
use hedgerow_net::pki::Issuing;
use hedgerow_net::pki::identity::{IdentityError, NodeIdentity, ServerIdentity, days_left};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams,
};
use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ProtocolVersion};

use fixture::*;

#[test]
fn a_node_of_the_authority_is_let_in() {
    let fixture = Fixture::new();
    let (server, node) = (fixture.server(), fixture.node());
    for host in ["localhost", "127.0.0.1", "::1"] {
        let Meeting { server, client } = meet(server.config(), node.config(), host);
        let (peer, seen) =
            (server.unwrap(), client.unwrap_or_else(|refusal| panic!("{host}: {refusal}")));
        assert_eq!((peer.name.as_str(), &peer), ("a", node.peer()));
        assert_eq!(seen.protocol.unwrap(), b"h2");
        assert_eq!(seen.version, ProtocolVersion::TLSv1_3);
        assert!(matches!(days_left(&seen.certificate.into()), Ok(729 | 730)));
    }
    assert_eq!(node.name(), "a");
    assert!(matches!((node.days_left(), server.days_left()), (729 | 730, 729 | 730)));
    assert_eq!((node.warning(), server.warning()), (None, None));
    assert!(!server.is_revoked(&node.peer().serial));
}

#[test]
fn without_a_certificate_nobody_is_let_in() {
    let fixture = Fixture::new();
    let client = unchecked_client(None, &certificates(&fixture.file("ca.pem"))[0], &TLS13);
    assert_turned_away(
        &meet(fixture.server().config(), client, "localhost"),
        "sent no certificates",
    );
}

#[test]
fn certificates_of_another_authority_are_worth_nothing() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let (ours, theirs) =
        (certificates(&fixture.file("ca.pem")), certificates(&other.file("ca.pem")));
    let intruder = unchecked_client(Some(&other.a), &ours[0], &TLS13);
    assert_turned_away(&meet(fixture.server().config(), intruder, "localhost"), "UnknownIssuer");
    assert_not_believed(
        &meet(fixture.server().config(), other.node().config(), "localhost"),
        "UnknownIssuer",
    );
    assert_not_believed(
        &meet(other.server().config(), fixture.node().config(), "localhost"),
        "UnknownIssuer",
    );
    // An authority with the same name and key identifiers.
    let mut params = CertificateParams::new([]).unwrap();
    let (_, real) = x509_parser::parse_x509_certificate(&ours[0]).unwrap();
    let name = real.subject().iter_common_name().next().unwrap().as_str().unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let impostor = Issuer::new(params, KeyPair::generate().unwrap());
    let forged = forge(&fixture, "forged.pem", &impostor, &node_params("a"));
    let forged = NodeIdentity::open(&forged).unwrap();
    assert_turned_away(
        &meet(fixture.server().config(), forged.config(), "localhost"),
        "BadSignature",
    );
    assert_ne!(ours, theirs);
}

#[test]
fn a_certificate_that_has_ended_is_refused() {
    let fixture = Fixture::new();
    let mut params = node_params("late");
    assert!(
        meet(
            fixture.server().config(),
            NodeIdentity::open(&forge(&fixture, "good.pem", &fixture.issuer(), &params))
                .unwrap()
                .config(),
            "localhost"
        )
        .server
        .is_ok()
    );
    params.not_after = time::OffsetDateTime::now_utc() - time::Duration::minutes(1);
    let late =
        NodeIdentity::open(&forge(&fixture, "late.pem", &fixture.issuer(), &params)).unwrap();
    assert_turned_away(&meet(fixture.server().config(), late.config(), "localhost"), "expired");
    assert_eq!(late.days_left(), -1);
    assert!(late.warning().unwrap().contains("late.pem has ended"), "{:?}", late.warning());
    params.not_before = time::OffsetDateTime::now_utc() + time::Duration::hours(1);
    params.not_after = params.not_before + time::Duration::days(1);
    let early =
        NodeIdentity::open(&forge(&fixture, "early.pem", &fixture.issuer(), &params)).unwrap();
    assert_turned_away(
        &meet(fixture.server().config(), early.config(), "localhost"),
        "not valid yet",
    );
}

#[test]
fn certificates_last_as_long_as_they_say() {
    let fixture = Fixture::new();
    let ahead = |days| {
        let mut config = (*fixture.server().config()).clone();
        config.time_provider = Arc::new(DaysAhead(days));
        Arc::new(config)
    };
    assert!(meet(ahead(729), fixture.node().config(), "localhost").server.is_ok());
    assert_turned_away(&meet(ahead(731), fixture.node().config(), "localhost"), "expired");
    let mut client = (*fixture.node().config()).clone();
    client.time_provider = Arc::new(DaysAhead(731));
    assert_not_believed(&meet(fixture.server().config(), client.into(), "localhost"), "expired");
}

#[test]
fn a_list_of_revoked_certificates_stays_in_force_after_its_time() {
    let fixture = Fixture::new();
    let b = NodeIdentity::open(&fixture.authority.issue("b", 730).unwrap()).unwrap();
    let now = time::OffsetDateTime::now_utc();
    let list = CertificateRevocationListParams {
        this_update: now - time::Duration::days(2),
        next_update: now - time::Duration::days(1),
        crl_number: 7.into(),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: b.peer().serial.clone().into(),
            revocation_time: now - time::Duration::days(2),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&fixture.issuer()).unwrap();
    std::fs::write(fixture.file("crl.pem"), list.pem().unwrap()).unwrap();
    assert!(meet(fixture.server().config(), fixture.node().config(), "localhost").server.is_ok());
    assert_turned_away(&meet(fixture.server().config(), b.config(), "localhost"), "Revoked");
}

#[test]
fn the_revoked_are_refused_at_once_and_after_a_restart() {
    let fixture = Fixture::new();
    let b = NodeIdentity::open(&fixture.authority.issue("b", 730).unwrap()).unwrap();
    let (server, a) = (fixture.server(), fixture.node());
    assert!(meet(server.config(), a.config(), "localhost").server.is_ok());
    assert!(!server.reload_if_changed().unwrap());
    assert_eq!(fixture.authority.revoke("a").unwrap(), 1);
    assert!(server.reload_if_changed().unwrap());
    assert!(!server.reload_if_changed().unwrap());
    for server in [server, fixture.server()] {
        assert!(server.is_revoked(&a.peer().serial) && !server.is_revoked(&b.peer().serial));
        assert_turned_away(&meet(server.config(), a.config(), "localhost"), "Revoked");
        assert_eq!(meet(server.config(), b.config(), "localhost").server.unwrap(), *b.peer());
    }
}

#[test]
fn no_session_is_resumed_so_the_revoked_have_no_back_door() {
    let fixture = Fixture::new();
    let server = fixture.server();
    let mut client = (*fixture.node().config()).clone();
    client.resumption = Resumption::in_memory_sessions(8);
    let client = Arc::new(client);
    for _ in 0..3 {
        let seen = meet(server.config(), Arc::clone(&client), "localhost").client;
        assert_eq!(seen.map(|seen| seen.kind), Ok(HandshakeKind::Full));
    }
    fixture.authority.revoke("a").unwrap();
    assert!(server.reload_if_changed().unwrap());
    assert_turned_away(&meet(server.config(), client, "localhost"), "Revoked");
}

#[test]
fn a_node_that_is_enrolled_again_comes_in_by_its_new_certificate_only() {
    let fixture = Fixture::new();
    let old = fixture.node();
    fixture.authority.revoke("a").unwrap();
    fixture.authority.issue("a", 730).unwrap();
    let mut new = old.clone();
    assert!(new.reopen_if_changed().unwrap());
    assert!(!new.reopen_if_changed().unwrap());
    // An unusable file is logged once, and the current identity stays.
    let content = read(&fixture.a);
    std::fs::write(&fixture.a, "spoilt").unwrap();
    assert!(new.reopen_if_changed().is_err());
    assert!(!new.reopen_if_changed().unwrap());
    std::fs::write(&fixture.a, content).unwrap();
    assert!(new.reopen_if_changed().unwrap());
    assert_turned_away(&meet(fixture.server().config(), old.config(), "localhost"), "Revoked");
    let peer = meet(fixture.server().config(), new.config(), "localhost").server.unwrap();
    assert_eq!(peer.name, "a");
    assert_ne!(peer.serial, old.peer().serial);
    // A renewal leaves both good.
    fixture.authority.issue_all(&["a"], 730, Issuing::Renewal).unwrap();
    for identity in [new, fixture.node()] {
        assert!(meet(fixture.server().config(), identity.config(), "localhost").server.is_ok());
    }
}

#[test]
fn a_node_can_not_pose_as_the_server() {
    let fixture = Fixture::new();
    let localhost = fixture.authority.issue("localhost", 730).unwrap();
    let impostor = unchecked_server(&localhost, &TLS13);
    assert_not_believed(
        &meet(impostor, fixture.node().config(), "localhost"),
        "does not allow extended key usage for server",
    );
    std::fs::copy(&localhost, fixture.file("server.pem")).unwrap();
    let refusal = ServerIdentity::open(fixture.authority.folder()).unwrap_err();
    assert!(
        refusal.to_string().ends_with("server.pem: its certificate is not for a server"),
        "{refusal}"
    );
}

#[test]
fn nor_the_server_as_a_node() {
    let fixture = Fixture::new();
    let client = unchecked_client(
        Some(&fixture.file("server.pem")),
        &certificates(&fixture.file("ca.pem"))[0],
        &TLS13,
    );
    let refused = meet(fixture.server().config(), client, "localhost");
    assert_turned_away(&refused, "does not allow extended key usage for client");
    let refusal = NodeIdentity::open(&fixture.file("server.pem")).unwrap_err();
    assert!(
        refusal.to_string().ends_with("server.pem: its certificate is not for a node"),
        "{refusal}"
    );
}

#[test]
fn a_node_believes_the_server_only_by_the_name_it_asked_for() {
    let fixture = Fixture::new();
    for host in ["elsewhere.example", "127.0.0.2", "::2", "a"] {
        let refused = meet(fixture.server().config(), fixture.node().config(), host);
        assert_not_believed(&refused, "not valid for name");
    }
}

#[test]
fn older_tls_is_not_spoken() {
    let fixture = Fixture::new();
    let client =
        unchecked_client(Some(&fixture.a), &certificates(&fixture.file("ca.pem"))[0], &TLS12);
    assert_turned_away(
        &meet(fixture.server().config(), client, "localhost"),
        "Tls12NotOfferedOrEnabled",
    );
    let server = unchecked_server(&fixture.file("server.pem"), &TLS12);
    assert_not_believed(&meet(server, fixture.node().config(), "localhost"), "ProtocolVersion");
}

#[test]
fn nothing_but_http_2_is_spoken() {
    let fixture = Fixture::new();
    let mut client = (*fixture.node().config()).clone();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    assert_turned_away(&meet(fixture.server().config(), client.into(), "localhost"), "protocol");
}

#[test]
fn a_renewed_server_certificate_is_taken_into_use_while_it_runs() {
    let fixture = Fixture::new();
    let (server, node) = (fixture.server(), fixture.node());
    let before =
        meet(server.config(), node.config(), "localhost").client.map(|seen| seen.certificate);
    let (_, issued) = fixture.authority.renew_server(&["moved.example".to_owned()], 20).unwrap();
    assert_eq!(issued.hosts, ["moved.example"]);
    assert!(server.reload_if_changed().unwrap());
    let after =
        meet(server.config(), node.config(), "moved.example").client.map(|seen| seen.certificate);
    assert_ne!(before.unwrap(), after.unwrap());
    assert_not_believed(&meet(server.config(), node.config(), "localhost"), "not valid for name");
    assert!(matches!(server.days_left(), 19 | 20));
    let warning = server.warning().unwrap();
    let ends = format!("server.pem ends in {} days", server.days_left());
    assert!(warning.contains(&ends) && warning.contains("renew-server"), "{warning}");
    // By default for the same hosts as the last one.
    let (_, issued) = fixture.authority.renew_server(&[], 730).unwrap();
    assert_eq!(issued.hosts, ["moved.example"]);
}

#[test]
fn what_can_not_be_used_leaves_the_server_as_it_was() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let server = fixture.server();
    let first = read(&fixture.file("crl.pem"));
    fixture.authority.revoke("a").unwrap();
    assert!(server.reload_if_changed().unwrap());
    let second = read(&fixture.file("crl.pem"));
    let list = fixture.file("crl.pem");
    let not_signed = "is not signed by the authority";
    for (content, reason) in [
        (first.as_str(), "an old copy"),
        ("", "holds no revocation list"),
        (&second[..second.len() / 2], "holds no revocation list"),
        (&read(&other.file("crl.pem")), not_signed),
        (&read(&fixture.file("ca.pem")), "holds no revocation list"),
        ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "can't be read"),
    ] {
        std::fs::write(&list, content).unwrap();
        let refusal = server.reload_if_changed().unwrap_err().to_string();
        assert!(refusal.contains("crl.pem") && refusal.contains(reason), "{refusal}");
        // It is tried again and again.
        assert_eq!(server.reload_if_changed().unwrap_err().to_string(), refusal);
        assert!(server.is_revoked(&fixture.node().peer().serial));
        assert_turned_away(&meet(server.config(), fixture.node().config(), "localhost"), "Revoked");
        if reason != "an old copy" {
            assert!(ServerIdentity::open(fixture.authority.folder()).is_err(), "{reason}");
        }
    }
    let is_missing = |refusal: &IdentityError| matches!(refusal, IdentityError::File(FileError::Unreadable { path, .. }) if *path == list);
    std::fs::remove_file(&list).unwrap();
    let refusal = server.reload_if_changed().unwrap_err();
    assert!(is_missing(&refusal), "{refusal}");
    // Without the list, no node is admitted: a starting server must not forget revocations.
    let refusal = ServerIdentity::open(fixture.authority.folder()).unwrap_err();
    assert!(is_missing(&refusal));
    std::fs::write(&list, second).unwrap();
    assert!(server.reload_if_changed().unwrap());
}
