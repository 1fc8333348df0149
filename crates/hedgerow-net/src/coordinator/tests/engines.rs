//! Rounds with real nodes.

use hedgerow::Federation;
use hedgerow::codec::{Coding, NumberFormat};
use hedgerow::federation::{Contact, NodeRound};

use super::*;
use crate::agent::Engine;
use crate::transport::protocol::wire;

type Sample = ([f32; 2], f32);

/// A sample of a node.
fn sample(node: NodeId, time: u64) -> Sample {
    let phase = (u64::from(node) * 31 + time * 17) as f32;
    let x = [phase.sin(), 0.5 + 0.5 * (1.7 * phase).cos()];
    (x, 0.5 + (3.0 * x[0]).sin() * x[1])
}

/// The same in units of their own, and ever larger.
fn growing_sample(node: NodeId, time: u64) -> Sample {
    let ([a, b], y) = sample(node, time);
    ([300.0 + 10.0 * a * time as f32, b - 9.0], 1000.0 * y)
}

/// Plays rounds with engines; what was told in each.
fn play(
    learning: &Learning,
    rounds: u64,
    sample: fn(NodeId, u64) -> Sample,
) -> (Scene, Vec<Engine>, Vec<Arc<Opening>>) {
    let mut scene = scene_of(
        learning.clone(),
        Rules { quorum: Quorum::Count(NODES), ..RULES },
        Limits::default(),
    );
    let plan = scene.coordinator.plan.clone();
    let mut engines: Vec<Engine> =
        (0..NODES as NodeId).map(|node| Engine::new(plan.clone(), "run", node)).collect();
    let mut readers = vec![hedgerow::codec::Reader::default(); NODES];
    let mut ledgers = [Ledger::default(); NODES];
    let (mut told, mut version) = (vec![], 0);
    scene.join(0..NODES as NodeId);
    engines.iter_mut().for_each(Engine::connected);
    for time in 1..=rounds {
        let opening = Arc::clone(scene.coordinator.opening());
        for (node, engine) in engines.iter_mut().enumerate() {
            if opening.scale_version() > version {
                let scale = opening.scale.clone().unwrap();
                engine.hear(&wire::from_server::Message::Scale(scale).into()).unwrap();
                readers[node].forget();
            }
            let latest = opening.compressed.as_ref().filter(|_| time > 1).unwrap_or(&opening.exact);
            let broadcast =
                wire::Broadcast { taken: ledgers[node].taken(opening.round), ..latest.clone() };
            engine.hear(&wire::from_server::Message::Broadcast(broadcast).into()).unwrap();
            let (x, y) = sample(node as NodeId, time);
            engine.learn(&x, y).unwrap();
            let mut said = vec![];
            engine.speak(false, &mut said);
            for message in said {
                scene.hear(
                    node as NodeId,
                    message,
                    &opening,
                    &mut readers[node],
                    &mut ledgers[node],
                );
            }
        }
        version = opening.scale_version();
        scene.step();
        told.push(Arc::clone(scene.coordinator.opening()));
    }
    (scene, engines, told)
}

impl Scene {
    fn hear(
        &mut self,
        node: NodeId,
        message: wire::FromNode,
        opening: &Opening,
        reader: &mut hedgerow::codec::Reader,
        ledger: &mut Ledger,
    ) {
        let (sender, at, envelope) = (self.sender(node), (self.now, 0), Envelope::default());
        let mut numbers = vec![];
        match message.message.unwrap() {
            wire::from_node::Message::Report(report) => {
                numbers_from_bytes(&report.numbers, 100, &mut numbers).unwrap();
                self.coordinator.report(sender, &Report { numbers }, envelope, at).unwrap();
            }
            wire::from_node::Message::Upload(wire::Upload {
                round, vote, numbers: bytes, ..
            }) => {
                if self.coordinator.plan.is_plain_up() {
                    numbers_from_bytes(&bytes, 1000, &mut numbers).unwrap();
                } else {
                    reader.read(&bytes, &opening.reference, 1000, &mut numbers).unwrap();
                }
                let mut upload = Upload { round, vote, numbers };
                let taken =
                    self.coordinator.upload(sender, &mut upload, ERRORS, envelope, at).unwrap();
                assert_eq!(taken.0, Verdict::Taken);
                reader.acknowledge();
                *ledger = taken.1;
            }
            wire::from_node::Message::Idle(_) | wire::from_node::Message::Hello(_) => {
                unreachable!()
            }
        }
    }
}

#[test]
fn compressed_rounds_are_those_of_one_process_to_the_bit() {
    const ROUNDS: u64 = 40;
    for method in [Method::MkOfl, Method::Naive, Method::GrOfl, Method::LinearSgd] {
        for (up, down) in [
            (NumberFormat::Bits8, NumberFormat::Bits8),
            (NumberFormat::Bits4, NumberFormat::F32),
            (NumberFormat::F32, NumberFormat::F16),
        ] {
            let coding = |numbers| Coding { numbers, ..Coding::default() };
            let compression =
                Compression { up: coding(up), down: coding(down), ..Compression::default() };
            let learning = Learning { compression, ..learning(method) };
            let (scene, _, told) = play(&learning, ROUNDS, sample);
            let plan = scene.coordinator.plan();
            let mut federation = Federation::new(&plan.core().unwrap());
            for time in 1..=ROUNDS {
                let samples: Vec<_> = (0..NODES as NodeId).map(|node| sample(node, time)).collect();
                let mut z = vec![0.0; NODES * plan.map().width()];
                let x: Vec<f32> = samples.iter().flat_map(|(x, _)| *x).collect();
                let z = plan.map().map_batch(&x, &mut z);
                let visits: Vec<_> = z
                    .samples(plan.map().width())
                    .zip(&samples)
                    .enumerate()
                    .map(|(node, (z, (_, y)))| NodeRound {
                        node: node as NodeId,
                        z,
                        y: std::slice::from_ref(y),
                        contact: Contact::Full,
                    })
                    .collect();
                federation.round(&visits, |_| ()).unwrap();
                let exact =
                    crate::transport::protocol::broadcast_to_wire(federation.server().broadcast(0));
                assert_eq!(
                    told[time as usize - 1].exact,
                    exact,
                    "{method:?} {up:?} {down:?} round {time}"
                );
            }
            assert_eq!(
                told.iter().all(|opening| opening.compressed.is_some()),
                down != NumberFormat::F32
            );
        }
    }
}

#[test]
fn a_scale_is_agreed_on_before_anything_else() {
    let online = Scaling::Online { kind: ScaleKind::Range };
    let (mut scene, engines, told) =
        play(&Learning { scaling: online, ..learning(Method::MkOfl) }, 30, growing_sample);
    // Four nodes have seen sixteen samples after four rounds each.
    let versions: Vec<_> =
        told.iter().map(|opening| (opening.round, opening.scale_version())).collect();
    assert_eq!(versions[..5], [(1, 0), (1, 0), (1, 0), (1, 1), (2, 1)], "{versions:?}");
    assert!(versions.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0 || pair[1].0 == 1));
    assert!(told.last().unwrap().scale_version() > 1, "it grows with what is seen");
    assert!(engines.iter().all(Engine::is_scaled));
    assert_eq!(scene.coordinator.totals().rounds, 26);
    // Everything survives: scale, models, reports.
    scene.verdict(0, 27);
    let Commit { round, server, scaling, totals, .. } = Commit::clone(scene.close().unwrap());
    assert_eq!(scaling, None, "nobody has reported since");
    let scaling = scene.coordinator.scaling.as_ref().map(ServerScaling::save);
    let saved = Saved { round, server, scaling, totals };
    let plan = scene.coordinator.plan.clone();
    let again =
        Coordinator::new(plan, RULES, Limits::default(), Some(&saved), vec![], scene.now).unwrap();
    let (opening, _) = scene.coordinator.committed(scene.now).unwrap();
    assert_eq!((&again.opening().exact, &again.opening().scale), (&opening.exact, &opening.scale));
}

#[test]
fn without_a_scale_there_are_no_uploads_and_reports_are_answers() {
    let online = Scaling::Online { kind: ScaleKind::Range };
    let deadline = Some(Duration::from_millis(100));
    let mut scene = scene_of(
        Learning { scaling: online, ..learning(Method::MkOfl) },
        Rules { deadline, ..RULES },
        Limits::default(),
    );
    scene.join(0..2);
    assert_eq!(scene.send(0, upload(1, 1.0)).unwrap_err().reason, Refused::Unscaled);
    // Count, mean, deviation, least and greatest of each column.
    let column = |count: f32| [count, 0.5, 0.25, 0.0, 1.0];
    let report = |count| Report { numbers: [column(count); 3].concat() };
    let send = |scene: &mut Scene, node, report: &Report| {
        let sender = scene.sender(node);
        scene.coordinator.report(sender, report, Envelope::default(), (scene.now, 0))
    };
    send(&mut scene, 0, &report(10.0)).unwrap();
    send(&mut scene, 0, &report(11.0)).unwrap();
    assert_eq!((scene.coordinator.answered, scene.is_due()), (1, false));
    let lying = Report { numbers: vec![-1.0; 15] };
    assert!(send(&mut scene, 1, &lying).unwrap_err().reason.to_string().contains("column 0"));
    scene.pass(100);
    assert!(scene.is_due());
    // Too few labels: what was said is stored, and nothing is told.
    let before = Arc::clone(scene.coordinator.opening());
    let closing = scene.close().unwrap();
    assert_eq!((closing.round, closing.record.is_some()), (1, false));
    let (opening, _) = scene.coordinator.committed(scene.now).unwrap();
    assert!(Arc::ptr_eq(&opening, &before));
    send(&mut scene, 1, &report(20.0)).unwrap();
    send(&mut scene, 0, &report(22.0)).unwrap();
    assert_eq!(scene.step(), 1);
    assert_eq!(scene.coordinator.opening().scale_version(), 1);
    // From now on reports are no answers.
    send(&mut scene, 0, &report(44.0)).unwrap();
    assert_eq!(scene.coordinator.answered, 0);
    assert_eq!(scene.verdict(0, 1), Verdict::Taken);
}
