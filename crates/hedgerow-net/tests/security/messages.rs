//! Nodes with valid certificates that send bad messages.

use std::time::Duration;

use hedgerow_net::transport::protocol::wire::{self, from_node, from_server};
use hedgerow_net::transport::protocol::{VERSION, numbers_to_bytes};
use tonic::Code;

use super::server::{
    AttackedServer, NUMBER, NUMBERS, ROUNDS, ScriptedClient, Style, hello, upload,
};

/// What bad uploads claim: it must not be counted.
const CLAIMED: u32 = 1_000_000_000;

fn bad(round: u64) -> wire::Upload {
    wire::Upload { samples: CLAIMED, ..upload(round) }
}

fn with_numbers(round: u64, numbers: &[f32]) -> from_node::Message {
    from_node::Message::Upload(wire::Upload { numbers: numbers_to_bytes(numbers), ..bad(round) })
}

/// The same numbers as honest nodes send, but for one.
fn with_number(round: u64, position: usize, number: f32) -> from_node::Message {
    let mut numbers = [NUMBER; NUMBERS];
    numbers[position] = number;
    with_numbers(round, &numbers)
}

/// Something wrong for a round, and words of the reason that it is refused for.
type Wrong = (fn(u64) -> from_node::Message, &'static str);

/// Sends it round after round until it arrives in time to be refused. Other nodes' rounds don't
/// wait for it.
async fn provoke(client: &mut ScriptedClient, message: fn(u64) -> from_node::Message) -> String {
    loop {
        let round = client.round().await;
        client.say(message(round)).await;
        for _ in 0..10 {
            match client.hear().await.unwrap() {
                from_server::Message::Refusal(refusal) => return refusal.reason,
                from_server::Message::Broadcast(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn bad_uploads_are_refused_with_a_reason_and_change_nothing() {
    const WRONGS: [Wrong; 19] = [
        (|round| with_numbers(round, &[NUMBER; NUMBERS - 1]), "97 came"),
        (|round| with_numbers(round, &[NUMBER; NUMBERS + 2]), "came"),
        (|round| with_numbers(round, &[]), "0 came"),
        (
            |round| {
                from_node::Message::Upload(wire::Upload {
                    numbers: vec![7; 13].into(),
                    ..bad(round)
                })
            },
            "four bytes",
        ),
        (|round| from_node::Message::Upload(bad(round + 1_000_000)), "is open"),
        (|_| from_node::Message::Upload(bad(u64::MAX)), "is open"),
        (|round| with_number(round, 5, f32::NAN), "number 5 is NaN"),
        (|round| with_number(round, 0, f32::INFINITY), "but is inf"),
        (|round| with_number(round, 97, f32::NEG_INFINITY), "but is inf"),
        (|round| with_number(round, 3, f32::MAX), "norm of a model must be at most 2e0"),
        (|round| with_numbers(round, &[0.21; NUMBERS]), "norm of a model must be at most 2e0"),
        (
            |round| from_node::Message::Upload(wire::Upload { vote: Some(11), ..bad(round) }),
            "Some(11)",
        ),
        (
            |round| from_node::Message::Upload(wire::Upload { vote: Some(u32::MAX), ..bad(round) }),
            "kernels 0 to 10",
        ),
        (
            |round| from_node::Message::Upload(wire::Upload { vote: None, ..bad(round) }),
            "kernel None",
        ),
        (
            |round| {
                from_node::Message::Upload(wire::Upload { squared_error: f32::NAN, ..bad(round) })
            },
            "squared errors",
        ),
        (
            |round| from_node::Message::Upload(wire::Upload { squared_error: -1.0, ..bad(round) }),
            "squared errors",
        ),
        (|_| from_node::Message::Report(wire::Report::default()), "no uploads"),
        (|_| hello("mallory"), "second Hello"),
        (|_| hello("honest-1"), "second Hello"),
    ];
    let changes = ["limits.norm=2", "limits.bad_messages=1000000"];
    let attacked = AttackedServer::new(&changes).await;
    let mut mallory = attacked.client("mallory").await;
    let node = format!("node={}", attacked.node("mallory").number);
    let times = attacked
        .besiege(async || {
            for (wrong, part) in WRONGS {
                let reason = provoke(&mut mallory, wrong).await;
                assert!(reason.contains(part), "{part}: {reason}");
                attacked.log.says(&["refused", &node, part]).await;
            }
        })
        .await;
    mallory.say(wire::FromNode { message: None }).await;
    attacked.log.says(&["refused", &node, "an empty message"]).await;
    let refused = times * WRONGS.len() as u64 + 1;
    let status = attacked.status();
    assert_eq!((status.refused, attacked.node("mallory").refused), (refused, refused));
    assert_eq!(attacked.refused().await, refused);
    assert_eq!((attacked.node("mallory").samples, attacked.node("mallory").uploads), (0, 0));
    assert!(status.samples < u64::from(CLAIMED), "{status:?}");
    // A good one after a bad one of the same round counts, and once.
    let twice = async {
        loop {
            let round = mallory.round().await;
            mallory.say(with_number(round, 5, f32::NAN)).await;
            mallory.say(from_node::Message::Upload(upload(round))).await;
            mallory.say(from_node::Message::Upload(upload(round))).await;
            attacked
                .log
                .says(&["refused", &node, &format!("already uploaded in round {round}")])
                .await;
            if attacked.node("mallory").samples > 0 {
                return;
            }
        }
    };
    tokio::time::timeout(crate::common::PATIENCE, twice).await.unwrap();
    assert_eq!((attacked.node("mallory").samples, attacked.node("mallory").uploads), (1, 1));
    attacked.rounds(ROUNDS).await;
}

#[tokio::test]
async fn who_goes_on_and_on_is_shown_out() {
    let attacked = AttackedServer::new(&[]).await;
    let times = attacked
        .besiege(async || {
            let mut mallory = attacked.client("mallory").await;
            for _ in 0..50 {
                mallory.say(from_node::Message::Upload(bad(u64::MAX))).await;
            }
            let end = mallory.end().await;
            assert!(
                end.code() == Code::ResourceExhausted && end.message().contains("is open"),
                "{end:?}"
            );
        })
        .await;
    let node = format!("node={}", attacked.node("mallory").number);
    attacked.log.says(&["WARN", "refused too often", &node, "is open"]).await;
    // Ten each time, and what comes after is not even read.
    assert_eq!(
        (attacked.status().refused, attacked.node("mallory").refused),
        (10 * times, 10 * times)
    );
    assert_eq!(attacked.refused().await, 10 * times);
    assert!(attacked.log.count(&["WARN", "refused", &node]) >= times as usize);
}

#[tokio::test]
async fn a_flood_of_messages_is_dammed() {
    const WAVE: u64 = 100;
    // Honest nodes need far less than that on any machine.
    let changes = ["limits.messages_per_second=100", "limits.bad_messages=1000000"];
    let nap = Duration::from_millis(25);
    let attacked = AttackedServer::with(Style { changes: &changes, nap, ..Style::default() }).await;
    let mut mallory = attacked.client("mallory").await;
    let mut too_many = 0;
    let waves = attacked
        .besiege(async || {
            for _ in 0..WAVE {
                mallory.say(from_node::Message::Upload(bad(u64::MAX))).await;
            }
            let mut heard = 0;
            while heard < WAVE {
                if let from_server::Message::Refusal(refusal) = mallory.hear().await.unwrap() {
                    heard += 1;
                    too_many += u64::from(refusal.reason.contains("100 messages a second"));
                }
            }
        })
        .await;
    let flood = waves * WAVE;
    // Two seconds' worth at once, and whatever the time since has given.
    assert!((1..=flood - 200).contains(&too_many), "{too_many} of {flood}");
    assert_eq!((attacked.status().refused, attacked.node("mallory").refused), (flood, flood));
    assert_eq!(attacked.refused().await, flood);
    let node = format!("node={}", attacked.node("mallory").number);
    attacked.log.says(&["refused", &node, "100 messages a second"]).await;
    assert_eq!(attacked.log.count(&["refused", &node]) as u64, flood, "each is logged,");
    // Only a few of them are logged as warnings.
    let warnings = attacked.log.count(&["WARN", "refused", &node]) as u64;
    assert!((1..flood / 4).contains(&warnings), "{warnings} of {flood}");
    // Another stream brings no new allowance.
    mallory = attacked.client("mallory").await;
    for _ in 0..5 {
        mallory.say(from_node::Message::Upload(bad(u64::MAX))).await;
    }
    attacked.until("refused", |status| status.refused == flood + 5).await;
}

#[tokio::test]
async fn who_says_hello_wrongly_is_turned_away() {
    let attacked = AttackedServer::new(&[]).await;
    let a = attacked.tls("a");
    let named = |software: String, protocol| {
        from_node::Message::Hello(wire::Hello {
            protocol,
            name: "a".into(),
            run: "x".repeat(300),
            software,
            newest: 0,
        })
    };
    let wrongs: [(wire::FromNode, Code, &str); 6] = [
        (from_node::Message::Upload(upload(1)).into(), Code::InvalidArgument, "must be a Hello"),
        (
            from_node::Message::Report(wire::Report::default()).into(),
            Code::InvalidArgument,
            "must be a Hello",
        ),
        (wire::FromNode { message: None }, Code::InvalidArgument, "must be a Hello"),
        (named(String::new(), VERSION + 1).into(), Code::FailedPrecondition, "version 1"),
        (named(String::new(), u32::MAX).into(), Code::FailedPrecondition, "version 1"),
        (named("x".repeat(1 << 20), VERSION).into(), Code::OutOfRange, "too large"),
    ];
    let times = attacked
        .besiege(async || {
            for (first, code, part) in &wrongs {
                let mut client =
                    ScriptedClient::open(attacked.address(), Some(a.clone())).await.unwrap();
                client.say(first.clone()).await;
                let end = client.end().await;
                assert!(end.code() == *code && end.message().contains(part), "{end:?}");
                attacked
                    .log
                    .says(&["turned away", "name=\"a\"", &client.address.to_string(), part])
                    .await;
            }
        })
        .await;
    assert_eq!(attacked.turned_away().await, times * wrongs.len() as u64);
    assert_eq!(attacked.status().nodes_known, 2);
    // What people see is short and printable for any input.
    let mut odd = ScriptedClient::open(attacked.address(), Some(a)).await.unwrap();
    odd.say(named("\u{1b}[2J\n<b>".to_owned() + &"y".repeat(500), VERSION)).await;
    odd.welcome().await;
    let software = attacked.node("a").software;
    assert!(software.len() <= 64 && !software.contains(char::is_control), "{software:?}");
    assert!(!attacked.log.text().contains('\u{1b}'));
}
