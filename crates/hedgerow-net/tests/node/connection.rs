//! Servers that are away, silent or wrong.

use super::*;

#[tokio::test(start_paused = true)]
async fn it_goes_on_without_the_server_and_catches_up() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("sk:4", 1));
    let (reader, mut writer) = std::io::pipe().unwrap();
    let node = test_server.node(test_server.settings(&[]), Input::reading(reader), None);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    writer.write_all(lines(0..1).as_bytes()).unwrap();
    assert_eq!(serve(&mut session, server.as_mut(), 1).await, 1);
    // The server is unreachable.
    test_server.is_down.store(true, Ordering::SeqCst);
    drop(session);
    let tries = test_server.tries.lock().unwrap().len();
    until("five tries", async || test_server.tries.lock().unwrap().len() >= tries + 5).await;
    writer.write_all(lines(1..11).as_bytes()).unwrap();
    let output = node.wrote(11).await;
    assert!(output.iter().all(|line| line["prediction"].is_number()), "{output:?}");
    // The server returns, three rounds later.
    test_server.is_down.store(false, Ordering::SeqCst);
    let mut session = test_server.next().await;
    let hello = session.welcome("r1", &json).await;
    assert_eq!(hello.run, "r1");
    for _ in 0..3 {
        let mut other = plan.node(1);
        other.adopt(server.broadcast()).unwrap();
        let mut upload = hedgerow::message::Upload::default();
        let mut z = vec![0.0; plan.map().width()];
        other.learn(plan.map().map_batch(&[0.5; INPUTS], &mut z), 0.5).unwrap();
        assert!(other.upload(&mut upload));
        server.accept(1, &upload).unwrap();
        server.close_round();
    }
    session.broadcast(server.broadcast(), 1).await;
    assert!(session.is_quiet().await, "what was learned in another round is no answer to this one");
    writer.write_all(lines(11..12).as_bytes()).unwrap();
    let upload = session.hear_upload().await;
    // The upload counts all labels that came meanwhile.
    assert_eq!((upload.round, upload.samples), (5, 11));
    let (output, outcome) = node.stopped().await;
    outcome.unwrap();
    assert_eq!(output.len(), 12);
    assert_eq!(output[11]["round"], 5);
}

#[tokio::test(start_paused = true)]
async fn tries_are_ever_rarer_and_a_refusal_is_tried_rarely() {
    let mut test_server = TestServer::new();
    test_server.is_down.store(true, Ordering::SeqCst);
    let node = test_server.node(
        test_server.settings(&["samples.source=none", "http.address=127.0.0.1:0"]),
        Input::None,
        None,
    );
    pass(600).await;
    let tries = test_server.tries.lock().unwrap().clone();
    let waits: Vec<f64> = tries.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    // Full jitter below 0.1 s, 0.2 s, 0.4 s, ... 30 s.
    for (at, wait) in waits.iter().enumerate() {
        assert!(*wait <= (0.1 * 2_f64.powi(at as i32)).min(30.0) + 0.01, "wait {at} is {wait} s");
    }
    assert!((20..200).contains(&waits.len()), "{} tries in ten minutes", waits.len());
    assert!(waits.iter().any(|wait| *wait > 5.0));
    // Refused.
    test_server.is_down.store(false, Ordering::SeqCst);
    let session = test_server.next().await;
    session.end(Status::permission_denied("you are not n1")).await;
    let refused = tokio::time::Instant::now();
    let session = test_server.next().await;
    let wait = refused.elapsed().as_secs_f64();
    assert!((29.0..=61.0).contains(&wait), "{wait} s");
    drop(session);
    node.stopped().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nonsense_from_a_server_is_survived() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let node =
        test_server.node(test_server.settings(&["samples.pace=round"]), cursor(lines(0..2)), None);
    // No plan.
    let spoilt = |key: &str, value: serde_json::Value| {
        let mut learning: serde_json::Value = serde_json::from_str(&json).unwrap();
        *learning.pointer_mut(key).unwrap() = value;
        learning.to_string()
    };
    for nonsense in [
        String::new(),
        "{}".to_owned(),
        spoilt("/method", "nothing".into()),
        spoilt("/setup/inputs", 4.into()),
        spoilt("/features/frequencies", u32::MAX.into()),
    ] {
        let mut session = test_server.next().await;
        session.welcome("r1", &nonsense).await;
        assert_eq!(session.hear().await, None, "{nonsense}");
    }
    // Another protocol, or none.
    for first in [
        wire::FromServer { message: None },
        wire::from_server::Message::Refusal(wire::Refusal { round: 0, reason: "no".into() }).into(),
        wire::from_server::Message::Welcome(wire::Welcome { protocol: 3, ..Default::default() })
            .into(),
    ] {
        let mut session = test_server.next().await;
        session.hear_hello().await;
        session.say(first).await;
        assert_eq!(session.hear().await, None);
    }
    // Invalid broadcasts.
    let good = crate::common::broadcast_to_wire(plan.server().broadcast());
    for bad in [
        wire::Broadcast { numbers: vec![1; 7].into(), ..good.clone() },
        wire::Broadcast { compressed: true, ..good.clone() },
        wire::Broadcast {
            numbers: vec![0xff; good.numbers.len()].into(),
            round: 2,
            ..good.clone()
        },
        wire::Broadcast {
            kernels: Some(wire::Selection { current: 999, next: 999 }),
            round: 2,
            ..good.clone()
        },
    ] {
        let mut session = test_server.next().await;
        session.welcome("r1", &json).await;
        session.say(wire::from_server::Message::Broadcast(bad)).await;
        assert_eq!(session.hear().await, None);
    }
    // Then a valid one.
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    assert_eq!(serve(&mut session, server.as_mut(), 5).await, 2);
    let (output, outcome) = node.ended().await;
    outcome.unwrap();
    assert_eq!(output.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_stream_took_with_it_is_said_again() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let node =
        test_server.node(test_server.settings(&["samples.pace=round"]), cursor(lines(0..2)), None);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    let lost = session.hear_upload().await;
    drop(session);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(server.broadcast(), 0).await;
    let again = session.hear_upload().await;
    assert_eq!(again, lost);
    accept(server.as_mut(), &again);
    let closed = server.close_round().clone();
    session.broadcast(&closed, 1).await;
    assert_eq!(serve(&mut session, server.as_mut(), 5).await, 1);
    node.ended().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_in_silence_is_noticed() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("mk", 1));
    let node =
        test_server.node(test_server.settings(&["samples.pace=round"]), cursor(lines(0..2)), None);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    session.hear_upload().await;
    test_server.freeze.notify_waiters();
    let frozen = tokio::time::Instant::now();
    let mut session = test_server.next().await;
    let silence = frozen.elapsed();
    // Twice the twenty seconds of the defaults, and a little for coming back.
    assert!((Duration::from_secs(15)..Duration::from_secs(42)).contains(&silence), "{silence:?}");
    session.welcome("r1", &json).await;
    session.broadcast(server.broadcast(), 0).await;
    assert_eq!(serve(&mut session, server.as_mut(), 5).await, 2);
    node.ended().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_is_waited_for_longer_than_he_may_take() {
    let mut test_server = TestServer::new();
    let node = test_server.node(test_server.settings(&[]), cursor(lines(0..2)), None);
    // Joined, and never welcomed.
    let session = test_server.next().await;
    let began = tokio::time::Instant::now();
    let second = test_server.next().await;
    let wait = began.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(11)).contains(&wait), "{wait:?}");
    drop((session, second));
    // Told to end while it waits for a welcome.
    let _third = test_server.next().await;
    let began = tokio::time::Instant::now();
    node.stopped().await.1.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn methods_that_remember_answer_without_a_sample_after_a_while() {
    let mut test_server = TestServer::new();
    let (json, plan) = checked(learning("gr", 1));
    let (reader, mut writer) = std::io::pipe().unwrap();
    let node = test_server.node(test_server.settings(&[]), Input::reading(reader), None);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    writer.write_all(lines(0..1).as_bytes()).unwrap();
    assert_eq!(serve(&mut session, server.as_mut(), 1).await, 1);
    // No sample, but a new upload.
    let began = tokio::time::Instant::now();
    assert!(session.is_quiet().await);
    let upload = session.hear_upload().await;
    assert_eq!((upload.round, upload.samples), (2, 0));
    let patience = began.elapsed();
    assert!(
        (Duration::from_millis(400)..Duration::from_millis(600)).contains(&patience),
        "{patience:?}"
    );
    node.stopped().await.1.unwrap();
}
