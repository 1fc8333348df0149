//! Rounds over connections equal those of one process, to the bit, also with online scaling and
//! compressed messages.

// What fails here fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use crate::common::Engine;
use crate::common::broadcast_to_wire;
use crate::common::{Plan, Scaling};
use futures_util::stream::poll_fn;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::message::{Broadcast, Report};
use hedgerow::{Federation, NodeId};
use hedgerow_config::Layer;
use hedgerow_net::serve::{ServeSettings, Server};
use hedgerow_net::storage::View;
use hedgerow_net::transport::protocol::VERSION;
use hedgerow_net::transport::protocol::wire::federation_client::FederationClient;
use hedgerow_net::transport::protocol::wire::{self, from_node, from_server};
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::transport::Endpoint;

const NODES: usize = 3;
const TIMES: u64 = 40;

/// A sample in units of its own, and ever larger.
fn sample(node: NodeId, time: u64) -> ([f32; 2], f32) {
    let phase = (u64::from(node) * 31 + time * 17) as f32;
    let (a, b) = (phase.sin(), 0.5 + 0.5 * (1.7 * phase).cos());
    ([300.0 + 10.0 * a * time as f32, b - 9.0], 1000.0 * (0.5 + (3.0 * a).sin() * b))
}

fn settings(store: &Path, changes: &[&str]) -> ServeSettings {
    let base = [
        "learning.inputs=2",
        "learning.nodes=3",
        "rounds.quorum=3",
        "rounds.deadline=never",
        "listen.address=127.0.0.1:0",
        "listen.dashboard=never",
        "listen.tls=false",
    ];
    let mut changes: Vec<String> =
        base.iter().chain(changes).map(|change| (*change).to_owned()).collect();
    changes.push(format!("store.path={store:?}"));
    ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap()
}

/// The broadcasts of a federation in one process: nodes receive a scale, then a broadcast; they
/// learn; the round closes; reports go up.
fn in_one_process(plan: &Plan) -> Vec<Broadcast> {
    // Samples are scaled here, outside of the federation.
    let unscaled = hedgerow::Plan::new(plan.config().clone().scaling(Scaling::None)).unwrap();
    let mut federation = Federation::new(&unscaled);
    let mut nodes: Vec<_> = (0..NODES).map(|_| plan.node_scaling()).collect();
    let mut server = plan.server_scaling();
    let mut told = vec![];
    for time in 1..=TIMES {
        let (mut x, mut y) = (vec![], vec![]);
        for (node, scaling) in nodes.iter_mut().enumerate() {
            if let Some((server, scale)) =
                server.as_ref().and_then(|server| Some((server, server.scale()?)))
            {
                let old = scaling.scale().cloned();
                if scaling.adopt(server.version(), scale).unwrap()
                    && let Some(old) = old
                {
                    federation.rescale_node(node as NodeId, &plan.rescalings(&old, scale)).unwrap();
                }
            }
            let Some(scale) = scaling.scale() else { continue };
            let (raw, label) = sample(node as NodeId, time);
            let mut scaled = [0.0; 2];
            scaling.prepare(&raw, &mut scaled);
            x.extend(scaled);
            y.push(scale.scale_label(label));
        }
        let width = plan.map().width();
        let mut z = vec![0.0; y.len() * width];
        let z = plan.map().map_batch(&x, &mut z);
        let visits: Vec<NodeRound<'_>> = z
            .samples(width)
            .zip(&y)
            .enumerate()
            .map(|(node, (z, y))| {
                let (node, y) = (node as NodeId, std::slice::from_ref(y));
                NodeRound { node, z, y, contact: Contact::Full }
            })
            .collect();
        federation.round(&visits, |_| ()).unwrap();
        let mut report = Report::default();
        for (node, scaling) in nodes.iter_mut().enumerate() {
            let (raw, label) = sample(node as NodeId, time);
            scaling.see(&raw, Some(label));
            if let Some(server) = &mut server
                && scaling.report(&mut report)
            {
                server.accept(node as NodeId, &report).unwrap();
            }
        }
        if let Some(server) = &mut server {
            let before = server.scale().cloned();
            if let (Some(before), Some(scale)) = (before, server.close_round()) {
                federation.rescale_server(&plan.rescalings(&before, scale));
            }
        }
        told.push(federation.server().broadcast(0).clone());
    }
    told
}

/// What a node says last.
enum Said {
    Nothing,
    Report,
    Upload,
}

/// A node over a connection, driven in step.
struct Node {
    engine: Engine,
    to: mpsc::Sender<wire::FromNode>,
    from: Streaming<wire::FromServer>,
    /// The latest broadcast.
    broadcast: wire::Broadcast,
    scales: u32,
}

impl Node {
    async fn join(server: &Server, node: usize) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
        let (to, mut said) = mpsc::channel(4);
        let name = format!("n{node}");
        let hello = wire::Hello { protocol: VERSION, name, ..Default::default() };
        to.send(from_node::Message::Hello(hello).into()).await.unwrap();
        let said = poll_fn(move |context| said.poll_recv(context));
        let mut client = FederationClient::new(endpoint.connect().await.unwrap());
        let mut from = client.join(said).await.unwrap().into_inner();
        let Some(from_server::Message::Welcome(welcome)) =
            from.message().await.unwrap().unwrap().message
        else {
            panic!("no welcome")
        };
        let plan = Plan::from_json(&welcome.learning);
        let mut engine = Engine::new(plan, &welcome.run, welcome.node);
        engine.connected();
        let mut node = Self { engine, to, from, broadcast: wire::Broadcast::default(), scales: 0 };
        node.hear_broadcast().await;
        node
    }

    /// Hears all until a broadcast.
    async fn hear_broadcast(&mut self) {
        loop {
            let message = self.hear().await;
            if let Some(from_server::Message::Broadcast(broadcast)) = message.message {
                self.broadcast = broadcast;
                return;
            }
        }
    }

    async fn hear(&mut self) -> wire::FromServer {
        let message = self.from.message().await.unwrap().unwrap();
        assert!(!matches!(message.message, Some(from_server::Message::Refusal(_))), "{message:?}");
        self.scales += u32::from(matches!(message.message, Some(from_server::Message::Scale(_))));
        self.engine.hear(&message).unwrap();
        message
    }

    /// Learns a sample and answers.
    async fn learn(&mut self, time: u64) -> Said {
        let (x, y) = sample(self.engine.number(), time);
        self.engine.learn(&x, y).unwrap();
        let mut said = vec![];
        self.engine.speak(false, &mut said);
        let mut last = Said::Nothing;
        for message in said {
            let is_upload = matches!(message.message, Some(from_node::Message::Upload(_)));
            last = if is_upload { Said::Upload } else { Said::Report };
            self.to.send(message).await.unwrap();
        }
        last
    }
}

async fn compare(changes: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("run.db");
    let settings = settings(&store, changes);
    let plan = Plan(settings.plan.clone());
    let server = Server::start(settings).await.unwrap();
    let mut nodes = vec![];
    for node in 0..NODES {
        nodes.push(Node::join(&server, node).await);
    }
    let (mut compressed, mut stored) = (0, None);
    for (time, expected) in (1..=TIMES).zip(in_one_process(&plan)) {
        let (mut has_uploads, mut reports) = (false, 0);
        for node in &mut nodes {
            let before = server.source().status().messages_up;
            match node.learn(time).await {
                Said::Nothing => {}
                Said::Upload => has_uploads = true,
                // Of reports alone nothing is heard, so whether one has arrived is looked at: those
                // of one time belong together.
                Said::Report => {
                    reports += 1;
                    while server.source().status().messages_up == before {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        // A round of reports is closed and stored before the next one begins.
        if !has_uploads && reports == NODES {
            stored = loop {
                let saved = View::open(&store).unwrap().load().unwrap().and_then(|run| run.scaling);
                if saved != stored {
                    break saved;
                }
                tokio::task::yield_now().await;
            };
        }
        for node in &mut nodes {
            if has_uploads {
                node.hear_broadcast().await;
                compressed += u32::from(node.broadcast.compressed);
            } else if expected.round == 1 && in_one_process_scales_at(&plan) == time {
                // The first scale comes alone.
                node.hear().await;
            }
            assert_eq!(node.broadcast.round, expected.round, "{changes:?}, time {time}");
            if !node.broadcast.compressed {
                let exact = broadcast_to_wire(&expected);
                assert_eq!(node.broadcast.numbers, exact.numbers, "{changes:?}, time {time}");
            }
        }
    }
    let is_compressed = plan.config().compression.down != hedgerow::codec::Coding::default();
    // gr's broadcasts are exact whatever is asked for, but travel in the same way.
    assert_eq!(compressed > 0, is_compressed, "{changes:?}");
    if plan.server_scaling().is_some() {
        assert!(nodes.iter().all(|node| node.scales > 1), "{changes:?}: no scale changed");
    }
}

/// The time after which the first scale is there.
fn in_one_process_scales_at(plan: &Plan) -> u64 {
    let mut server = plan.server_scaling().unwrap();
    let mut nodes: Vec<_> = (0..NODES).map(|_| plan.node_scaling()).collect();
    let mut report = Report::default();
    (1..)
        .find(|time| {
            for (node, scaling) in nodes.iter_mut().enumerate() {
                let (x, y) = sample(node as NodeId, *time);
                scaling.see(&x, Some(y));
                if scaling.report(&mut report) {
                    server.accept(node as NodeId, &report).unwrap();
                }
            }
            server.close_round().is_some()
        })
        .unwrap()
}

#[tokio::test]
async fn scaled_and_compressed_rounds_have_the_same_bits() {
    for method in ["mk", "gr", "naive"] {
        for compression in ["none", "q8", "f16-up"] {
            for scaling in ["online-range", "online"] {
                let [method, compression, scaling] = [
                    format!("learning.method={method}"),
                    format!("learning.compression={compression}"),
                    format!("learning.scaling={scaling}"),
                ];
                compare(&[&method, &compression, &scaling]).await;
            }
        }
    }
}
