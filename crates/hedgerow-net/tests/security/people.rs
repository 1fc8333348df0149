//! Wrong identities.

use hedgerow_net::pki::identity::NodeIdentity;
use rustls::version::{TLS12, TLS13};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tonic::Code;

use super::house::{Guest, House, ROUNDS, hello, reach};
use super::raw::Raw;
use crate::common::PATIENCE;
use crate::identity::hall::{Hall, certificates, forge, node_params, unchecked_client};

#[tokio::test]
async fn who_proves_nothing_stays_outside() {
    let house = House::new(&[]).await;
    let (hall, theirs) = (&house.hall, Hall::new());
    let ours = certificates(&hall.file("ca.pem"))[0].clone();
    let mut params = node_params("late");
    params.not_after = time::OffsetDateTime::now_utc() - time::Duration::minutes(1);
    let late = forge(hall, "late.pem", &hall.issuer(), &params);
    let gone = house.tls("gone");
    hall.authority.revoke("gone").unwrap();
    house.log.says(&["read again"]).await;
    let strangers = [
        (unchecked_client(None, &ours, &TLS13), "no certificates"),
        (unchecked_client(Some(&theirs.a), &ours, &TLS13), "UnknownIssuer"),
        (NodeIdentity::open(&late).unwrap().config(), "expired"),
        (gone, "Revoked"),
        // A good certificate, but not a node's; and a good one with the older TLS.
        (unchecked_client(Some(&hall.file("server.pem")), &ours, &TLS13), "client authentication"),
        (unchecked_client(Some(&hall.a), &ours, &TLS12), "Tls12NotOffered"),
    ];
    let times = house
        .besiege(async || {
            for (tls, reason) in &strangers {
                let from = house.knock(tls.clone()).await.to_string();
                house.log.says(&["turned away", &from, reason]).await;
            }
        })
        .await;
    assert_eq!(house.turned_away().await, times * strangers.len() as u64);
    // An operator who reads warnings only sees some of it.
    assert!(house.log.count(&["WARN", "turned away"]) > 0);
    let status = house.status();
    assert_eq!((status.nodes_known, status.connected, status.refused), (2, 2, 0));
}

#[tokio::test]
async fn the_revoked_are_shown_out_and_stay_out() {
    let house = House::new(&[]).await;
    let mut loud = house.guest("loud").await;
    loud.round().await;
    // One that has shown its certificate, but has not said Hello yet.
    let mut early = Guest::open(house.address(), Some(house.tls("early"))).await.unwrap();
    // One that has joined, and then takes nothing more: it won't hear that it should go.
    let mut deaf = Raw::open(house.address(), Some(house.tls("deaf")), 4 << 10).await;
    deaf.join("deaf").await;
    house.until("joined", |status| status.connected == 4).await;
    house.rounds(ROUNDS).await;
    let names = ["loud", "early", "deaf"];
    house.hall.authority.revoke_all(&names).unwrap();
    let end = loud.end().await;
    assert!(end.code() == Code::PermissionDenied && end.message().contains("revoked"), "{end:?}");
    early.say(hello("early")).await;
    let end = early.end().await;
    assert!(end.code() == Code::PermissionDenied && end.message().contains("revoked"), "{end:?}");
    let mut rest = vec![];
    _ = timeout(PATIENCE, deaf.io.read_to_end(&mut rest)).await.expect("it is cut off");
    house.until("alone", |status| status.connected == 2).await;
    let (loud_number, deaf_number) = (house.node("loud").number, house.node("deaf").number);
    for number in [loud_number, deaf_number] {
        house.log.says(&["WARN", "revoked", &format!("node={number}")]).await;
    }
    house.log.says(&["turned away", "early", "revoked", &early.address.to_string()]).await;
    // None of them comes back.
    house
        .besiege(async || {
            for name in names {
                let from = house.knock(house.tls(name)).await.to_string();
                house.log.says(&["turned away", &from, "Revoked"]).await;
            }
        })
        .await;
    assert_eq!(house.status().connected, 2);
}

#[tokio::test]
async fn whose_certificate_ends_has_to_go() {
    let house = House::new(&[]).await;
    let mut params = node_params("brief");
    // Long enough to join with, also on a machine that has other things to do.
    let mut seconds = 2;
    let (mut brief, mut deaf, tls) = loop {
        params.not_after = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
        let file = forge(&house.hall, "brief.pem", &house.hall.issuer(), &params);
        let tls = NodeIdentity::open(&file).unwrap().config();
        // One that listens, and one that has shown its certificate and takes nothing.
        let deaf = reach(house.address(), Some(tls.clone())).await;
        if let (Ok((deaf, _)), Ok(brief)) =
            (deaf, Guest::open(house.address(), Some(tls.clone())).await)
        {
            brief.say(hello("brief")).await;
            break (brief, deaf, tls);
        }
        seconds *= 2;
    };
    let end = brief.end().await;
    assert!(end.code() == Code::PermissionDenied && end.message().contains("has ended"), "{end:?}");
    _ = timeout(PATIENCE, deaf.read_to_end(&mut vec![])).await.expect("it is cut off");
    house.rounds(ROUNDS).await;
    house
        .log
        .says(&["WARN", "its certificate has ended", "brief", &brief.address.to_string()])
        .await;
    house.until("alone", |status| status.connected == 2).await;
    // It doesn't come back.
    house
        .besiege(async || {
            let from = house.knock(tls.clone()).await.to_string();
            house.log.says(&["turned away", &from, "expired"]).await;
        })
        .await;
}

#[tokio::test]
async fn nobody_speaks_as_another() {
    let house = House::new(&[]).await;
    let a = house.tls("a");
    let long = "b".repeat(900);
    let names = ["honest-1", "b", "", "A", "a ", "a\u{1b}[2J\nfaked line", &long];
    let times = house
        .besiege(async || {
            for name in names {
                let mut guest = Guest::open(house.address(), Some(a.clone())).await.unwrap();
                guest.say(hello(name)).await;
                let end = guest.end().await;
                assert_eq!(end.code(), Code::PermissionDenied, "{name}: {end:?}");
                let from = guest.address.to_string();
                house
                    .log
                    .says(&["turned away", "name=\"a\"", &from, "not that of the certificate"])
                    .await;
            }
        })
        .await;
    assert_eq!(house.turned_away().await, times * names.len() as u64);
    let log = house.log.text();
    assert!(!log.contains('\u{1b}') && !log.contains("faked line"));
    assert_eq!((house.status().nodes_known, house.status().connected), (2, 2));
    // As itself it is welcome.
    house.guest("a").await.round().await;
}

#[tokio::test]
async fn two_with_one_name_are_told_of() {
    let house = House::new(&[]).await;
    let mut guest = house.guest("a").await;
    for times in 0..8 {
        let said = house.log.count(&["WARN", "name=\"a\"", "push each other out", "two devices"]);
        // The first few may be a node that comes back before it is known to have gone, and one word
        // is enough.
        assert!(if times < 3 { said == 0 } else { said == 1 }, "{said} after {times}");
        let rival = house.guest("a").await;
        assert_eq!(guest.end().await.code(), Code::Aborted);
        drop(std::mem::replace(&mut guest, rival));
        if times == 2 {
            house.log.says(&["push each other out"]).await;
        }
    }
    assert_eq!(house.turned_away().await, 0);
}

#[tokio::test]
async fn who_leaves_has_done_nothing_wrong() {
    let house = House::new(&[]).await;
    let times = house.besiege(async || drop(house.guest("a").await)).await;
    house.until("alone", |status| status.connected == 2).await;
    assert!(times > 0 && house.log.count(&["left"]) as u64 == times);
    // Nor has who breaks off in the middle.
    for _ in 0..3 {
        let mut raw = Raw::open(house.address(), Some(house.tls("a")), 1 << 20).await;
        raw.join("a").await;
        house.until("joined", |status| status.connected == 3).await;
        drop(raw);
        house.until("alone", |status| status.connected == 2).await;
    }
    house.rounds(ROUNDS).await;
    assert_eq!(
        (house.status().refused, house.node("a").refused, house.turned_away().await),
        (0, 0, 0)
    );
}
