//! Nodes that have no scale yet.

use super::*;

#[tokio::test(start_paused = true)]
async fn without_a_scale_samples_are_taken_until_there_is_one() {
    let mut test_server = TestServer::new();
    let online = Scaling::Online { kind: ScaleKind::Range };
    let (json, plan) = checked(learning("mk", 1).scaling(online));
    let node = test_server.node(
        test_server.settings(&["samples.pace=round", "samples.patience=1h"]),
        cursor(lines(0..40)),
        None,
    );
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    let (mut server, mut scaling) = (plan.server(), plan.server_scaling().unwrap());
    session.broadcast(server.broadcast(), 0).await;
    let (reports, message) = agree(&mut session, &mut scaling).await;
    // After 1, 2, 4, 8 and 16 samples.
    assert_eq!(reports, 5);
    assert!(session.is_quiet().await);
    session.say(message).await;
    let mut rounds = 0;
    while let Some(message) = session.hear().await {
        let wire::from_node::Message::Upload(upload) = message else { continue };
        accept(server.as_mut(), &upload);
        let closed = server.close_round().clone();
        session.broadcast(&closed, upload.round).await;
        rounds += 1;
    }
    let (output, outcome) = node.ended().await;
    outcome.unwrap();
    assert_eq!((rounds, output.len()), (24, 40));
    assert!(output.iter().enumerate().all(|(at, line)| line["known"] == (at >= 16)), "{output:?}");
}

/// What a node reports, merged by a server until it has a scale. Returns the number of reports and
/// the message with the scale.
async fn agree(session: &mut Session, scaling: &mut ServerScaling) -> (usize, wire::FromServer) {
    for reports in 1.. {
        let Some(wire::from_node::Message::Report(report)) = session.hear().await else {
            panic!("no report")
        };
        let mut numbers = Vec::new();
        hedgerow_net::transport::protocol::numbers_from_bytes(&report.numbers, 1000, &mut numbers)
            .unwrap();
        scaling.accept(0, &hedgerow::message::Report { numbers }).unwrap();
        if let Some(scale) = scaling.close_round().cloned() {
            let message = crate::common::scale_to_wire(scaling.version(), &scale);
            return (reports, wire::from_server::Message::Scale(message).into());
        }
    }
    unreachable!()
}

/// The numbers that a node uploads which has this scale and round from the beginning, and learns
/// these.
fn upload_of(plan: &Plan, scale: &wire::FromServer, times: std::ops::Range<u64>) -> bytes::Bytes {
    let mut twin = Engine::new(plan.clone(), "r1", 0);
    twin.connected();
    twin.hear(scale).unwrap();
    let broadcast = crate::common::broadcast_to_wire(plan.server().broadcast());
    twin.hear(&wire::from_server::Message::Broadcast(broadcast).into()).unwrap();
    for time in times {
        let (x, y) = sample(0, time);
        twin.learn(&x, y).unwrap();
    }
    let mut said = Vec::new();
    twin.speak(true, &mut said);
    match said.pop().unwrap().message {
        Some(wire::from_node::Message::Upload(upload)) => upload.numbers,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_input_has_ended_waits_for_a_scale_and_learns_what_it_holds() {
    let mut test_server = TestServer::new();
    let online = Scaling::Online { kind: ScaleKind::Range };
    let (json, plan) = checked(learning("mk", 1).scaling(online));
    let node = test_server.node(test_server.settings(&[]), cursor(lines(0..40)), None);
    let (mut server, mut scaling) = (plan.server(), plan.server_scaling().unwrap());
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(server.broadcast(), 0).await;
    let (_, scale) = agree(&mut session, &mut scaling).await;
    assert_eq!(node.wrote(40).await.len(), 40);
    // For any time, and across a broken stream.
    pass(3600).await;
    assert!(node.is_running());
    drop(session);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    pass(3600).await;
    assert!(node.is_running());
    // Also across a restart of the node.
    node.stopped().await.1.unwrap();
    let node = test_server.node(test_server.settings(&[]), cursor(""), None);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    session.say(scale.clone()).await;
    session.broadcast(server.broadcast(), 0).await;
    let upload = loop {
        match session.hear().await.unwrap() {
            wire::from_node::Message::Upload(upload) => break upload,
            wire::from_node::Message::Report(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(upload.numbers, upload_of(&plan, &scale, 0..40));
    assert!(node.is_running());
    accept(server.as_mut(), &upload);
    let closed = server.close_round().clone();
    session.broadcast(&closed, 1).await;
    node.ended().await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_scale_reads_no_more_than_it_can_hold() {
    let mut test_server = TestServer::new();
    let online = Scaling::Online { kind: ScaleKind::Range };
    let (json, plan) = checked(learning("mk", 1).scaling(online));
    let (mut server, mut scaling) = (plan.server(), plan.server_scaling().unwrap());
    let node = test_server.node(test_server.settings(&[]), cursor(lines(0..600)), None);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(server.broadcast(), 0).await;
    let (_, scale) = agree(&mut session, &mut scaling).await;
    node.wrote(MAX_HELD).await;
    pass(60).await;
    assert_eq!(node.output().len(), MAX_HELD);
    // The round that is open is the one that they are learned in.
    session.say(scale.clone()).await;
    let mut answers = 0;
    while let Some(message) = session.hear().await {
        let wire::from_node::Message::Upload(upload) = message else { continue };
        if upload.round == 1 {
            assert_eq!(upload.numbers, upload_of(&plan, &scale, 0..MAX_HELD as u64));
        }
        accept(server.as_mut(), &upload);
        let closed = server.close_round().clone();
        session.broadcast(&closed, upload.round).await;
        answers += 1;
    }
    assert!(answers > 1);
    let (output, outcome) = node.ended().await;
    outcome.unwrap();
    assert_eq!(output.len(), 600);
    assert!(output.iter().enumerate().all(|(at, line)| line["known"] == (at >= MAX_HELD)));
}

#[tokio::test(start_paused = true)]
async fn once_without_a_scale_is_once() {
    let mut test_server = TestServer::new();
    let online = Scaling::Online { kind: ScaleKind::Range };
    let (json, plan) = checked(learning("mk", 1).scaling(online));
    let node =
        test_server.node(test_server.settings(&["server.once=true"]), cursor(lines(0..40)), None);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(plan.server().broadcast(), 0).await;
    node.wrote(40).await;
    session.end(Status::unavailable("going down")).await;
    let error = node.ended().await.1.unwrap_err().to_string();
    assert!(error.contains("going down"), "{error}");
}
