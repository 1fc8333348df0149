//! Wrong identities.

use hedgerow_net::pki::identity::NodeIdentity;
use rustls::version::{TLS12, TLS13};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tonic::Code;

use super::raw::Raw;
use super::server::{AttackedServer, ROUNDS, ScriptedClient, hello, reach};
use crate::common::PATIENCE;
use crate::identity::fixture::{Fixture, certificates, forge, node_params, unchecked_client};

#[tokio::test]
async fn who_proves_nothing_stays_outside() {
    let attacked = AttackedServer::new(&[]).await;
    let (fixture, theirs) = (&attacked.fixture, Fixture::new());
    let ours = certificates(&fixture.file("ca.pem"))[0].clone();
    let mut params = node_params("late");
    params.not_after = time::OffsetDateTime::now_utc() - time::Duration::minutes(1);
    let late = forge(fixture, "late.pem", &fixture.issuer(), &params);
    let gone = attacked.tls("gone");
    fixture.authority.revoke("gone").unwrap();
    attacked.log.says(&["read again"]).await;
    let strangers = [
        (unchecked_client(None, &ours, &TLS13), "no certificates"),
        (unchecked_client(Some(&theirs.a), &ours, &TLS13), "UnknownIssuer"),
        (NodeIdentity::open(&late).unwrap().config(), "expired"),
        (gone, "Revoked"),
        // A good certificate, but not a node's; and a good one with the older TLS.
        (
            unchecked_client(Some(&fixture.file("server.pem")), &ours, &TLS13),
            "client authentication",
        ),
        (unchecked_client(Some(&fixture.a), &ours, &TLS12), "Tls12NotOffered"),
    ];
    let times = attacked
        .besiege(async || {
            for (tls, reason) in &strangers {
                let from = attacked.knock(tls.clone()).await.to_string();
                attacked.log.says(&["turned away", &from, reason]).await;
            }
        })
        .await;
    assert_eq!(attacked.turned_away().await, times * strangers.len() as u64);
    // An operator who reads warnings only sees some of it.
    assert!(attacked.log.count(&["WARN", "turned away"]) > 0);
    let status = attacked.status();
    assert_eq!((status.nodes_known, status.connected, status.refused), (2, 2, 0));
}

#[tokio::test]
async fn the_revoked_are_shown_out_and_stay_out() {
    let attacked = AttackedServer::new(&[]).await;
    let mut loud = attacked.client("loud").await;
    loud.round().await;
    // One that has shown its certificate, but has not said Hello yet.
    let mut early =
        ScriptedClient::open(attacked.address(), Some(attacked.tls("early"))).await.unwrap();
    // One that has joined, and then takes nothing more: it won't hear that it should go.
    let mut deaf = Raw::open(attacked.address(), Some(attacked.tls("deaf")), 4 << 10).await;
    deaf.join("deaf").await;
    attacked.until("joined", |status| status.connected == 4).await;
    attacked.rounds(ROUNDS).await;
    let names = ["loud", "early", "deaf"];
    attacked.fixture.authority.revoke_all(&names).unwrap();
    let end = loud.end().await;
    assert!(end.code() == Code::PermissionDenied && end.message().contains("revoked"), "{end:?}");
    early.say(hello("early")).await;
    let end = early.end().await;
    assert!(end.code() == Code::PermissionDenied && end.message().contains("revoked"), "{end:?}");
    let mut rest = vec![];
    _ = timeout(PATIENCE, deaf.io.read_to_end(&mut rest)).await.expect("it is cut off");
    attacked.until("alone", |status| status.connected == 2).await;
    for name in ["loud", "deaf"] {
        attacked.log.says(&["WARN", "node-revoked", name, "revoked"]).await;
    }
    attacked.log.says(&["turned away", "early", "revoked", &early.address.to_string()]).await;
    // None of them comes back.
    attacked
        .besiege(async || {
            for name in names {
                let from = attacked.knock(attacked.tls(name)).await.to_string();
                attacked.log.says(&["turned away", &from, "Revoked"]).await;
            }
        })
        .await;
    assert_eq!(attacked.status().connected, 2);
}

#[tokio::test]
async fn whose_certificate_ends_has_to_go() {
    let attacked = AttackedServer::new(&[]).await;
    let mut params = node_params("brief");
    // Long enough to join with, also on a machine that has other things to do.
    let mut seconds = 2;
    let (mut brief, mut deaf, tls) = loop {
        params.not_after = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
        let file = forge(&attacked.fixture, "brief.pem", &attacked.fixture.issuer(), &params);
        let tls = NodeIdentity::open(&file).unwrap().config();
        // One that listens, and one that has shown its certificate and takes nothing.
        let deaf = reach(attacked.address(), Some(tls.clone())).await;
        if let (Ok((deaf, _)), Ok(brief)) =
            (deaf, ScriptedClient::open(attacked.address(), Some(tls.clone())).await)
        {
            brief.say(hello("brief")).await;
            break (brief, deaf, tls);
        }
        seconds *= 2;
    };
    let end = brief.end().await;
    assert!(end.code() == Code::PermissionDenied && end.message().contains("has ended"), "{end:?}");
    _ = timeout(PATIENCE, deaf.read_to_end(&mut vec![])).await.expect("it is cut off");
    attacked.rounds(ROUNDS).await;
    attacked
        .log
        .says(&["WARN", "its certificate has ended", "brief", &brief.address.to_string()])
        .await;
    attacked.until("alone", |status| status.connected == 2).await;
    // It doesn't come back.
    attacked
        .besiege(async || {
            let from = attacked.knock(tls.clone()).await.to_string();
            attacked.log.says(&["turned away", &from, "expired"]).await;
        })
        .await;
}

#[tokio::test]
async fn nobody_speaks_as_another() {
    let attacked = AttackedServer::new(&[]).await;
    let a = attacked.tls("a");
    let long = "b".repeat(900);
    let names = ["honest-1", "b", "", "A", "a ", "a\u{1b}[2J\nfaked line", &long];
    let times = attacked
        .besiege(async || {
            for name in names {
                let mut client =
                    ScriptedClient::open(attacked.address(), Some(a.clone())).await.unwrap();
                client.say(hello(name)).await;
                let end = client.end().await;
                assert_eq!(end.code(), Code::PermissionDenied, "{name}: {end:?}");
                let from = client.address.to_string();
                attacked
                    .log
                    .says(&["turned away", "name=\"a\"", &from, "not that of the certificate"])
                    .await;
            }
        })
        .await;
    assert_eq!(attacked.turned_away().await, times * names.len() as u64);
    let log = attacked.log.text();
    assert!(!log.contains('\u{1b}') && !log.contains("faked line"));
    assert_eq!((attacked.status().nodes_known, attacked.status().connected), (2, 2));
    // As itself it is welcome.
    attacked.client("a").await.round().await;
}

#[tokio::test]
async fn two_with_one_name_are_told_of() {
    let attacked = AttackedServer::new(&[]).await;
    let mut client = attacked.client("a").await;
    for times in 0..8 {
        let said =
            attacked.log.count(&["WARN", "name=\"a\"", "push each other out", "two devices"]);
        // The first few may be a node that comes back before it is known to have gone, and one word
        // is enough.
        assert!(if times < 3 { said == 0 } else { said == 1 }, "{said} after {times}");
        let rival = attacked.client("a").await;
        assert_eq!(client.end().await.code(), Code::Aborted);
        drop(std::mem::replace(&mut client, rival));
        if times == 2 {
            attacked.log.says(&["push each other out"]).await;
        }
    }
    assert_eq!(attacked.turned_away().await, 0);
}

#[tokio::test]
async fn who_leaves_has_done_nothing_wrong() {
    let attacked = AttackedServer::new(&[]).await;
    let times = attacked.besiege(async || drop(attacked.client("a").await)).await;
    attacked.until("alone", |status| status.connected == 2).await;
    assert!(times > 0 && attacked.log.count(&["left"]) as u64 == times);
    // Nor has who breaks off in the middle.
    for _ in 0..3 {
        let mut raw = Raw::open(attacked.address(), Some(attacked.tls("a")), 1 << 20).await;
        raw.join("a").await;
        attacked.until("joined", |status| status.connected == 3).await;
        drop(raw);
        attacked.until("alone", |status| status.connected == 2).await;
    }
    attacked.rounds(ROUNDS).await;
    assert_eq!(
        (attacked.status().refused, attacked.node("a").refused, attacked.turned_away().await),
        (0, 0, 0)
    );
}
