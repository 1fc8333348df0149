//! What an authority grants and refuses, at times that the tests choose.

use std::sync::LazyLock;
use std::time::Duration as Span;

use hedgerow_net::audit::{Broken, verify};
use hedgerow_net::pki::identity::{NodeIdentity, Peer, Role, ServerIdentity};
use hedgerow_net::pki::request::{BadRequest, NewKey, Requested};
use hedgerow_net::pki::token::{Secret, Token};
use hedgerow_net::pki::{
    Authority, EnrolmentError, Granted, Issuing, Passphrase, PkiError, TokenState,
};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

use super::{DAY, authority_of, certificate, identity, peer_of, request};

const LIFE: Span = Span::from_secs(3_600);

/// The time at which all tests begin: today, because TLS looks at the system's clock.
fn start() -> OffsetDateTime {
    static START: LazyLock<OffsetDateTime> =
        LazyLock::new(|| OffsetDateTime::now_utc().replace_nanosecond(0).unwrap());
    *START
}

fn unix(at: OffsetDateTime) -> i64 {
    at.unix_timestamp()
}

fn fixture() -> (TempDir, Authority) {
    let folder = TempDir::new().unwrap();
    let authority = authority_of(&folder, start());
    (folder, authority)
}

fn after(authority: &Authority, time: Duration) -> Authority {
    authority.clone().at_time(start() + time)
}

fn kind(outcome: Result<Granted, EnrolmentError>) -> &'static str {
    outcome.map_or_else(|error| error.kind(), |_| "granted")
}

#[test]
fn a_token_gives_one_certificate_to_one_key_of_one_name() {
    let (folder, authority) = fixture();
    let (token, record) = authority.token("boiler-3", "host:7443", LIFE, 10).unwrap();
    assert_eq!(record.state(start()), TokenState::Open);
    let token: Token = token.encode().parse().unwrap();
    assert_eq!((&*token.name, &*token.server), ("boiler-3", "host:7443"));
    // Only a hash of the secret is stored.
    let stored = std::fs::read(folder.path().join("pki/tokens.jsonl")).unwrap();
    let secret = token.secret.as_bytes();
    assert!(!stored.windows(secret.len()).any(|part| part == secret));
    let text = String::from_utf8(stored).unwrap();
    assert!(!text.contains(&token.encode()[40..60]) && text.contains(&record.hash));
    let (first, second) = (NewKey::generate().unwrap(), NewKey::generate().unwrap());
    let unknown = Secret::from_bytes(&[1; 20]).unwrap();
    assert_eq!(kind(authority.enroll(&unknown, &request(&first, "boiler-3"))), "unknown-token");
    assert_eq!(kind(authority.enroll(&token.secret, &request(&first, "other"))), "other-name");
    // What was refused has not used it up.
    let later = after(&authority, Duration::minutes(59));
    let granted = later.enroll(&token.secret, &request(&first, "boiler-3")).unwrap();
    let made = identity(&first, &granted.certificates);
    assert_eq!((made.name(), made.peer().role), ("boiler-3", Role::Node));
    assert_eq!(made.peer().end, unix(start() + Duration::minutes(59) + DAY * 10));
    assert_eq!(later.list().unwrap().last().unwrap(), &granted.issued);
    // Another key is refused. The same key may have lost the answer.
    assert_eq!(kind(later.enroll(&token.secret, &request(&second, "boiler-3"))), "used-token");
    let again = later.enroll(&token.secret, &request(&first, "boiler-3")).unwrap();
    assert_ne!(again.issued.serial, granted.issued.serial);
    let ended = after(&authority, Duration::minutes(60));
    assert_eq!(kind(ended.enroll(&token.secret, &request(&first, "boiler-3"))), "expired-token");
    // A revoked node can't come back with its old token.
    later.revoke("boiler-3").unwrap();
    assert_eq!(kind(later.enroll(&token.secret, &request(&first, "boiler-3"))), "cancelled-token");
    assert!(ServerIdentity::open(authority.folder()).unwrap().is_revoked(&made.peer().serial));
}

#[test]
fn tokens_end_are_cancelled_and_are_bounded() {
    let (_folder, authority) = fixture();
    let key = NewKey::generate().unwrap();
    let (ended, _) = authority.token("a", "", LIFE, 10).unwrap();
    let (cancelled, _) = authority.token("b", "", LIFE, 10).unwrap();
    assert_eq!(authority.cancel_tokens("b").unwrap(), 1);
    assert_eq!(authority.cancel_tokens("b").unwrap(), 0);
    assert_eq!(kind(authority.enroll(&cancelled.secret, &request(&key, "b"))), "cancelled-token");
    let late = after(&authority, Duration::hours(1));
    assert_eq!(kind(late.enroll(&ended.secret, &request(&key, "a"))), "expired-token");
    let states =
        late.tokens().unwrap().into_iter().map(|token| token.state(start() + Duration::hours(1)));
    assert_eq!(
        states.collect::<Vec<_>>(),
        [TokenState::Ended(start() + Duration::hours(1)), TokenState::Cancelled(start())]
    );
    // They are forgotten after 30 days.
    after(&authority, DAY * 40).token("c", "", LIFE, 10).unwrap();
    assert_eq!(authority.tokens().unwrap().len(), 1);
    for life in [Span::ZERO, Span::from_secs(30 * 86_400 + 1)] {
        assert!(matches!(authority.token("d", "", life, 10), Err(PkiError::TokenLife(_))));
    }
    assert!(matches!(authority.token("../d", "", LIFE, 10), Err(PkiError::Name(_))));
    assert!(matches!(authority.token("d", "", LIFE, 0), Err(PkiError::Days(0))));
    authority.issue("taken", 10).unwrap();
    assert!(matches!(authority.token("taken", "", LIFE, 10), Err(PkiError::Enrolled { .. })));
}

#[test]
fn a_certificate_is_renewed_in_its_last_third_by_its_owner() {
    let (_folder, authority) = fixture();
    let file = authority.issue("a", 9).unwrap();
    let peer = peer_of(&file);
    let (key, other) = (NewKey::generate().unwrap(), NewKey::generate().unwrap());
    let early = after(&authority, DAY * 6 - Duration::seconds(1));
    assert_eq!(kind(early.renew(&peer, &request(&key, "a"))), "too-early");
    let due = after(&authority, DAY * 6);
    assert_eq!(kind(due.renew(&peer, &request(&key, "b"))), "other-name");
    let stranger = Peer { serial: vec![0x40; 16], ..peer.clone() };
    assert_eq!(kind(due.renew(&stranger, &request(&key, "a"))), "unknown-certificate");
    let granted = due.renew(&peer, &request(&key, "a")).unwrap();
    let renewed = identity(&key, &granted.certificates);
    // As long as before.
    assert_eq!(renewed.peer().end, unix(start() + DAY * 15));
    assert_eq!(kind(due.renew(renewed.peer(), &request(&other, "a"))), "too-early");
    // Somebody who asks again and again gets no more than a few.
    let outcomes: Vec<_> = (0..8).map(|_| kind(due.renew(&peer, &request(&key, "a")))).collect();
    assert_eq!(outcomes[5..], ["granted", "too-many", "too-many"]);
    due.revoke("a").unwrap();
    assert_eq!(kind(due.renew(&peer, &request(&key, "a"))), "unknown-certificate");
    assert_eq!(kind(due.renew(renewed.peer(), &request(&key, "a"))), "unknown-certificate");
    let alice = authority.issue_all(&["alice"], 9, Issuing::First(Role::Operator)).unwrap();
    let alice = NodeIdentity::open_as(&alice[0].0, Role::Operator).unwrap();
    assert_eq!(kind(due.renew(alice.peer(), &request(&key, "alice"))), "operator");
}

#[test]
fn an_authority_that_ends_is_named_and_not_asked_for_ever() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::at(&folder.path().join("pki")).at_time(start());
    authority.make(&[], 9, 10).unwrap();
    let peer = peer_of(&authority.issue("a", 10).unwrap());
    let key = NewKey::generate().unwrap();
    let late = after(&authority, DAY * 9);
    let refused = late.renew(&peer, &request(&key, "a")).unwrap_err();
    assert!(matches!(refused, EnrolmentError::AuthorityEnds(_)), "{refused}");
    assert!(refused.to_string().contains("hedgerow pki rotate"), "{refused}");
    // The server gains a day once, and then nothing.
    late.prolong_server().unwrap();
    assert!(matches!(late.prolong_server(), Err(EnrolmentError::AuthorityEnds(_))));
    let ended = after(&authority, DAY * 10);
    assert!(matches!(ended.prolong_server(), Err(EnrolmentError::Pki(PkiError::Ended { .. }))));
}

#[test]
fn of_a_request_only_name_and_key_count() {
    let der = |change: fn(&mut CertificateParams), key: &KeyPair| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "a");
        change(&mut params);
        params.serialize_request(key).unwrap().der().to_vec()
    };
    let key = KeyPair::generate().unwrap();
    let good = der(|_| {}, &key);
    assert_eq!(Requested::from_der(&good).unwrap().name, "a");
    let refusal = |der: &[u8]| Requested::from_der(der).unwrap_err();
    for change in [
        (|params| params.distinguished_name = DistinguishedName::new())
            as fn(&mut CertificateParams),
        |params| params.distinguished_name.push(DnType::OrganizationalUnitName, "operator"),
        |params| params.subject_alt_names = vec![rcgen::SanType::DnsName("b".try_into().unwrap())],
        |params| params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained),
        |params| params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth],
    ] {
        assert_eq!(refusal(&der(change, &key)), BadRequest::Subject);
    }
    let odd = der(|params| params.distinguished_name.push(DnType::CommonName, "../a"), &key);
    assert!(matches!(refusal(&odd), BadRequest::Name(_)));
    let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    assert_eq!(refusal(&der(|_| {}, &other)), BadRequest::Key);
    let mut forged = good.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(refusal(&forged), BadRequest::Signature);
    assert_eq!(refusal(&[good.clone(), vec![0]].concat()), BadRequest::Unreadable);
    assert_eq!(refusal(&vec![0x30; 100_000]), BadRequest::Unreadable);
    for length in 0..good.len() {
        assert!(Requested::from_der(&good[..length]).is_err());
    }
}

#[test]
fn during_a_rotation_both_authorities_are_trusted_and_then_one() {
    let (folder, authority) = fixture();
    let a = authority.issue("a", 90).unwrap();
    let old = NodeIdentity::open(&a).unwrap();
    assert_eq!(authority.rotation().unwrap(), None);
    assert!(matches!(authority.finish_rotation(false), Err(PkiError::NotRotating)));
    let (early, _) = authority.token("early", "", LIFE, 10).unwrap();
    assert_eq!(authority.rotate(3650).unwrap().waiting, ["a"]);
    // Twice is once.
    let next = std::fs::read(folder.path().join("pki/ca.next.pem")).unwrap();
    assert_eq!(authority.rotate(3650).unwrap(), authority.rotation().unwrap().unwrap());
    assert_eq!(std::fs::read(folder.path().join("pki/ca.next.pem")).unwrap(), next);
    let server = ServerIdentity::open(authority.folder()).unwrap();
    // Certificates are of the new one, and their owners know both.
    let key = NewKey::generate().unwrap();
    let granted = authority.enroll(&early.secret, &request(&key, "early")).unwrap();
    assert_eq!(granted.certificates.matches("BEGIN CERTIFICATE").count(), 3);
    let early = identity(&key, &granted.certificates);
    // Those of the old one are renewed at once.
    let granted = authority.renew(old.peer(), &request(&key, "a")).unwrap();
    let new = identity(&key, &granted.certificates);
    assert_eq!(authority.rotation().unwrap().unwrap().waiting, Vec::<String>::new());
    for node in [&old, &new, &early] {
        super::assert_meets(&server, node);
    }
    authority.issue("b", 90).unwrap();
    authority.revoke("b").unwrap();
    assert!(server.reload_if_changed().unwrap());
    for node in [&old, &new, &early] {
        super::assert_meets(&server, node);
    }
    authority.finish_rotation(false).unwrap();
    assert!(server.reload_if_changed().unwrap());
    super::assert_meets(&server, &new);
    let refused = super::meets(&server, &old);
    assert!(refused.is_err(), "a node of the old authority is let in");
    assert!(!folder.path().join("pki/ca.next.pem").exists());
    // A file that names the old one, too, is renewed at once; then no more.
    let granted = authority.renew(new.peer(), &request(&key, "a")).unwrap();
    assert_eq!(granted.certificates.matches("BEGIN CERTIFICATE").count(), 2);
    let newest = identity(&key, &granted.certificates);
    assert_eq!(kind(authority.renew(newest.peer(), &request(&key, "a"))), "too-early");
    super::assert_meets(&server, &newest);
}

#[test]
fn a_rotation_ends_without_its_stragglers_only_if_told_so() {
    let (_folder, authority) = fixture();
    authority.issue("a", 90).unwrap();
    authority.rotate(3650).unwrap();
    let refused = authority.finish_rotation(false).unwrap_err().to_string();
    assert!(refused.starts_with("1 owners of certificates know only the old authority, such as a"));
    authority.finish_rotation(true).unwrap();
    // The certificates of the server and of the lists fit together.
    let server = ServerIdentity::open(authority.folder()).unwrap();
    let b = NodeIdentity::open(&authority.issue("b", 90).unwrap()).unwrap();
    super::assert_meets(&server, &b);
}

#[test]
fn an_encrypted_key_signs_with_its_passphrase_only() {
    let folder = TempDir::new().unwrap();
    let [one, two] = ["one", "two"].map(|text| Passphrase::new(text).unwrap());
    let sealed = Authority::at(&folder.path().join("pki")).at_time(start());
    let authority = sealed.clone().with_passphrase(Some(one));
    authority.make(&[], 10, 20).unwrap();
    let key = || std::fs::read_to_string(folder.path().join("pki/ca.key")).unwrap();
    assert!(key().starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"));
    authority.issue("a", 5).unwrap();
    assert_eq!(sealed.is_sealed().unwrap(), Some(true));
    assert!(matches!(sealed.issue("b", 5), Err(PkiError::Sealed { .. })));
    let other = sealed.clone().with_passphrase(Some(two.clone()));
    assert!(matches!(other.issue("b", 5), Err(PkiError::WrongPassphrase { .. })));
    // The next authority has the same passphrase, and both change it.
    authority.rotate(20).unwrap();
    authority.change_passphrase(Some(&two)).unwrap();
    assert!(matches!(authority.issue("b", 5), Err(PkiError::WrongPassphrase { .. })));
    other.issue("b", 5).unwrap();
    other.finish_rotation(true).unwrap();
    other.change_passphrase(None).unwrap();
    assert!(key().starts_with("-----BEGIN PRIVATE KEY-----"));
    sealed.issue("c", 5).unwrap();
}

#[test]
fn what_was_done_is_a_chain_of_entries() {
    let (folder, authority) = fixture();
    let authority = authority.acting_for("alice");
    authority.issue("a", 90).unwrap();
    let (token, _) = authority.token("b", "", LIFE, 10).unwrap();
    let key = NewKey::generate().unwrap();
    authority.enroll(&token.secret, &request(&key, "b")).unwrap();
    authority.revoke("a").unwrap();
    authority.rotate(3650).unwrap();
    let entries = authority.audit().unwrap();
    let end = verify(&entries).unwrap();
    let actions: Vec<&str> = entries.iter().map(|entry| &*entry.action).collect();
    assert_eq!(actions, ["init", "issue", "issue", "token", "enrol", "revoke", "rotate"]);
    assert_eq!((&*entries[3].actor, &*entries[3].subject), ("alice", "b"));
    let file = folder.path().join("pki/audit.jsonl");
    let whole = std::fs::read_to_string(&file).unwrap();
    assert!(!whole.contains(&token.encode()[20..60]));
    // A line that a crash has cut off was never acknowledged.
    std::fs::write(&file, whole.clone() + "{\"number\":8,\"at_ms\"").unwrap();
    authority.issue("c", 90).unwrap();
    let continued = authority.audit().unwrap();
    assert_eq!(continued.len(), entries.len() + 1);
    assert_eq!(continued[7].before, end.hash);
    verify(&continued).unwrap();
    let forged = whole.replacen("\"subject\":\"b\"", "\"subject\":\"c\"", 1);
    std::fs::write(&file, forged).unwrap();
    let broken = verify(&authority.audit().unwrap()).unwrap_err();
    assert!(matches!(broken, Broken::Hash { number: 4, .. }), "{broken}");
    // Nothing follows what is no entry.
    std::fs::write(&file, "nonsense\n").unwrap();
    assert!(matches!(authority.issue("d", 90), Err(PkiError::Audit { .. })));
}

#[test]
fn certificates_for_requests_in_files_have_no_key() {
    let (folder, authority) = fixture();
    let (key, file) = (NewKey::generate().unwrap(), folder.path().join("a.csr"));
    std::fs::write(&file, key.request("a").unwrap().1).unwrap();
    let (made, issued) = authority.sign(&Requested::read(&file).unwrap(), 10).unwrap();
    assert_eq!((made.clone(), &*issued.name), (folder.path().join("pki/nodes/a.pem"), "a"));
    let text = certificate(&made);
    assert!(!text.contains("PRIVATE"));
    assert_eq!(identity(&key, &text).name(), "a");
    let again = authority.sign(&Requested::read(&file).unwrap(), 10).unwrap_err();
    assert!(matches!(again, EnrolmentError::Pki(PkiError::Enrolled { .. })), "{again}");
    std::fs::write(&file, "nonsense").unwrap();
    let refused = Requested::read(&file).unwrap_err().to_string();
    assert!(refused.contains("a.csr: the request can't be read as PKCS #10"), "{refused}");
}
