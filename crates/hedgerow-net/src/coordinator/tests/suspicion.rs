//! Nodes whose uploads look wrong.

use hedgerow::Node;
use hedgerow::aggregation::Aggregation;
use hedgerow::message::ToServer;

use super::*;

/// All nodes answer a round, one of them with an absurd gradient if it lies.
fn round(fixture: &mut TestCoordinator, nodes: &mut [Node], at: usize, lies: bool) {
    let round = fixture.coordinator.opening.round;
    for node in &mut *nodes {
        let x = [(at * 7 % 11) as f32 / 11.0, (at * 5 % 13 + node.id() as usize) as f32 / 20.0];
        node.learn(&x, &[x[0] * x[1] + 0.1]).unwrap();
        let mut said = None;
        node.speak(false, |message| said = Some(message));
        let Some(ToServer::Upload(said)) = said else { panic!("no upload") };
        let Numbers::Plain(mut numbers) = said.heads[0].numbers.clone() else { panic!() };
        if lies && node.id() == 2 {
            numbers[0] = 1e10;
        }
        let upload = Upload { round, vote: None, numbers };
        fixture.send(node.id(), upload).unwrap();
    }
    assert_eq!(fixture.step(), round + 1);
    let opening = Arc::clone(&fixture.coordinator.opening);
    nodes.iter_mut().for_each(|node| node.hear(&opening.broadcast(round, true)).unwrap());
}

#[test]
fn they_are_told_with_the_evidence_until_they_look_right() {
    let learning = learning("gr").personal(false).aggregation(Aggregation::Screened);
    let mut fixture = coordinator_of(learning, RULES, Limits::default());
    let plan = fixture.coordinator.plan().clone();
    let mut nodes: Vec<Node> = (0..6).map(|id| plan.node(id)).collect();
    for node in &mut nodes {
        fixture.join([node.id()]);
        node.connected();
        let opening = Arc::clone(&fixture.coordinator.opening);
        node.hear(&opening.broadcast(0, false)).unwrap();
    }
    fixture.coordinator.events.take();
    let told = |fixture: &mut TestCoordinator| -> Vec<String> {
        fixture.coordinator.events.take().iter().map(Event::to_string).collect()
    };
    (0..10).for_each(|at| round(&mut fixture, &mut nodes, at, false));
    assert_eq!(told(&mut fixture), Vec::<String>::new());
    (10..13).for_each(|at| round(&mut fixture, &mut nodes, at, true));
    let [suspect, excluded] = &told(&mut fixture)[..] else { panic!("two events") };
    assert!(suspect.starts_with("uploads of node \"n2\" look wrong: gradient "), "{suspect}");
    assert!(excluded.starts_with("uploads of node \"n2\" are left out: gradient "), "{excluded}");
    assert!(fixture.coordinator.suspect(2).unwrap().is_excluded);
    // A restart knows it, and doesn't tell it again.
    let saved = fixture.saved();
    let server = hedgerow::Server::restore(&plan, &saved, None).unwrap();
    assert_eq!(crate::coordinator::suspicion::suspects(&server), fixture.coordinator.suspects);
    (13..40).for_each(|at| round(&mut fixture, &mut nodes, at, false));
    assert_eq!(told(&mut fixture), ["uploads of node \"n2\" look right again"]);
    assert_eq!(fixture.coordinator.suspect(2), None);
}
