//! Twenty nodes and a server over loopback equal `hedgerow simulate` bit for bit: every prediction,
//! broadcast and recorded error.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::importance::ImportanceScope;
use hedgerow::message::{Broadcast, BroadcastHead, BroadcastMessage, Numbers, ToNode};
use hedgerow::metrics::ErrorMeter;
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::{Federation, Node, Plan};
use hedgerow_config::Layer;
use hedgerow_data::Dataset;
use hedgerow_lab::run::{self, Experiment};
use hedgerow_lab::settings::Settings;
use hedgerow_net::serve::config::ServeSettings;
use hedgerow_net::serve::server::Server;
use hedgerow_net::session::{FromServer, Joined, NodeSession, hello};
use hedgerow_net::storage::View;
use hedgerow_net::transport::grpc::{ClientSender, ClientStream, Opened};
use tokio::net::TcpStream;

const NODES: usize = 20;
const ROUNDS: usize = 80;

/// The predictions of one node and the broadcasts it received, round by round.
#[derive(Default)]
struct Heard {
    /// None where there was no scale yet.
    predictions: Vec<Option<f32>>,
    broadcasts: Vec<Broadcast>,
}

/// The same run twice: in one process, and over connections.
struct Run {
    settings: Settings,
    data: Dataset,
    deals: Vec<Vec<u32>>,
    heard: Vec<Heard>,
    plan: Plan,
    /// The server as it was stored in the end.
    stored: hedgerow::Server,
}

impl Run {
    /// `method` as the simulator and as the server call it.
    fn play(method: [&str; 2], scaling: &str, more: &[&str]) -> Self {
        let text =
            format!("data.name=friedman run.trials=1 run.rounds={ROUNDS} federation.nodes={NODES}");
        let mut changes: Vec<String> = text.split(' ').map(String::from).collect();
        changes.push(format!("federation.methods=[\"{}\"]", method[0]));
        changes.push(format!("data.scaling={scaling}"));
        let settings = Settings::load(&Layer::sets(changes).unwrap()).unwrap();
        let data = run::load_data(&settings, &|_| ()).unwrap();
        let seed = CounterRng::from_seed(settings.seed)
            .derive(Purpose::Trial, 0)
            .derive(Purpose::Partition, 0);
        let deals = settings.partition.deal(&data, NODES, seed.bits_at(0)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let serve = serve_settings(folder.path(), method[1], scaling, data.features, more);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let plan = serve.plan.clone();
        let heard = runtime.block_on(over_loopback(serve, &data, &deals));
        let saved = View::open(&folder.path().join("server.db")).unwrap().load().unwrap().unwrap();
        let stored = hedgerow::Server::restore(&plan, &saved.server, saved.scaling.as_deref());
        Self { settings, data, deals, heard, plan, stored: stored.unwrap() }
    }

    /// The simulator's error at every round that it records.
    fn compare_with_simulate(&self, name: &str, kernel: Option<usize>) {
        let results = Experiment::new(&self.settings, &self.data).unwrap().run(&|| ()).unwrap();
        let is_ours = |result: &&hedgerow_lab::results::MethodResult| {
            result.name == name && (kernel.is_none() || result.kernel == kernel)
        };
        let result = results.methods.iter().find(is_ours).unwrap();
        let (mut meter, mut scored) = (ErrorMeter::new(1), 0);
        let (mut recorded, mut checked) =
            (result.curve.rounds.iter().zip(&result.curve.mse).peekable(), 0);
        for round in 0..ROUNDS {
            for (deal, heard) in self.deals.iter().zip(&self.heard) {
                if let Some(prediction) = heard.predictions[round] {
                    meter.record(prediction, self.data.y[deal[round] as usize]);
                    scored += 1;
                }
            }
            meter.close_round();
            if let Some((at, mse)) = recorded.next_if(|(at, _)| **at == round as u64 + 1) {
                let expected = if scored > 0 { meter.mse() } else { f64::NAN };
                assert_eq!(expected.to_bits(), mse.mean.to_bits(), "{name}, round {at}");
                checked += 1;
            }
        }
        assert!(checked >= ROUNDS / 2, "{name}: {checked} points");
        assert_eq!(meter.mse(), result.mse_trials[0], "{name}");
        assert!(meter.mse() > 0.0);
    }

    /// The federation in one process: every prediction and every broadcast.
    fn compare_with_federation(&self, method: &str) -> Federation {
        let mut federation = Federation::new(&self.plan);
        let is_measured = self.plan.config().importance != ImportanceScope::None;
        let (mut x, mut z) = (Vec::new(), vec![vec![0.0; self.plan.map().width()]; NODES]);
        for round in 0..ROUNDS {
            let mut labels = Vec::new();
            for (node, (deal, z)) in (0..).zip(self.deals.iter().zip(&mut z)) {
                x.clear();
                self.data.inputs(&deal[round..=round], &mut x).unwrap();
                let z = self.plan.map().map_batch(&x, z);
                let label = self.data.y[deal[round] as usize];
                if is_measured {
                    federation.hear(node).unwrap();
                    federation.measure_importance(node, &x, z, &[label]).unwrap();
                }
                labels.push(label);
            }
            let visit = |node: usize| NodeRound {
                node: node as u32,
                z: Features::checked(&z[node]).unwrap(),
                y: std::slice::from_ref(&labels[node]),
                contact: Contact::Full,
            };
            let visits: Vec<NodeRound<'_>> = (0..NODES).map(visit).collect();
            let mut predictions = Vec::new();
            federation.round(&visits, |prediction| predictions.push(prediction.value)).unwrap();
            for (heard, prediction) in self.heard.iter().zip(predictions) {
                let found = heard.predictions[round].unwrap();
                assert_eq!(found.to_bits(), prediction.to_bits(), "{method:?}, round {round}");
                assert_eq!(
                    &heard.broadcasts[round],
                    federation.server().broadcast(0),
                    "{method:?}, round {round}"
                );
            }
        }
        federation
    }
}

fn serve_settings(
    folder: &Path,
    method: &str,
    scaling: &str,
    inputs: usize,
    more: &[&str],
) -> ServeSettings {
    let store = format!("store.path=\"{}\"", folder.join("server.db").display());
    let changes = [
        &format!("learning.method=\"{method}\""),
        &format!("learning.inputs={inputs}"),
        &format!("learning.scaling=\"{scaling}\""),
        &format!("rounds.quorum={NODES}"),
        "rounds.deadline=\"never\"",
        "listen.address=\"127.0.0.1:0\"",
        "listen.dashboard=\"never\"",
        "listen.tls=false",
        &store,
    ];
    let changes: Vec<String> =
        changes.iter().copied().chain(more.iter().copied()).map(String::from).collect();
    ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap()
}

async fn over_loopback(settings: ServeSettings, data: &Dataset, deals: &[Vec<u32>]) -> Vec<Heard> {
    let server = Server::start(settings).await.unwrap();
    let address = server.address();
    let mut streams = Vec::new();
    // Numbers are given in the order of joining.
    for node in 0..NODES {
        streams.push(Line::join(address, &format!("node-{node}")).await);
    }
    let tasks: Vec<_> = streams
        .into_iter()
        .zip(deals)
        .map(|(line, deal)| {
            let mut samples = Vec::new();
            for sample in &deal[..ROUNDS] {
                let mut x = Vec::new();
                data.inputs(&[*sample], &mut x).unwrap();
                samples.push((x, data.y[*sample as usize]));
            }
            tokio::spawn(line.play(samples))
        })
        .collect();
    let mut heard = Vec::new();
    for task in tasks {
        heard.push(task.await.unwrap());
    }
    server.stop().await.unwrap();
    heard
}

/// One node and its stream.
struct Line {
    node: Node,
    session: NodeSession,
    sender: ClientSender,
    incoming: ClientStream,
}

impl Line {
    async fn join(address: SocketAddr, name: &str) -> Self {
        let connection = Box::new(TcpStream::connect(address).await.unwrap());
        let keep_alive = Duration::from_secs(600);
        let opened = ClientStream::open(connection, keep_alive, hello(name, "")).await.unwrap();
        let Opened { stream: mut incoming, sender, .. } = opened;
        let Joined { number, plan, .. } =
            Joined::from_first(incoming.first().await.unwrap(), &[]).unwrap();
        let mut node = plan.node(number);
        let session = NodeSession::new(&mut node, None);
        let mut line = Self { node, session, sender, incoming };
        assert!(matches!(line.hear().await, ToNode::Broadcast(_)));
        line
    }

    async fn hear(&mut self) -> ToNode {
        let (message, _) = self.incoming.next().await.unwrap();
        let message = message.unwrap();
        self.session.receive(&mut self.node, &message, Instant::now()).unwrap();
        let FromServer::Message(message) = message else { panic!("{message:?}") };
        message
    }

    async fn play(mut self, samples: Vec<(Vec<f32>, f32)>) -> Heard {
        let mut heard = Heard::default();
        for (x, y) in samples {
            let answer = self.node.learn(&x, &[y]).unwrap();
            heard.predictions.push(answer.known.then_some(answer.value));
            let Self { node, session, sender, .. } = &mut self;
            session.speak(node, false, Instant::now(), |message| {
                assert!(sender.send(message.into()).1);
            });
            // Without a scale, the next thing to come is one.
            loop {
                match self.hear().await {
                    ToNode::Scale(_) if !answer.known => break,
                    ToNode::Scale(_) => {}
                    ToNode::Broadcast(BroadcastMessage { round, heads, .. }) => {
                        let [BroadcastHead { kernels, numbers: Numbers::Plain(numbers) }] =
                            &heads[..]
                        else {
                            panic!("one output, not compressed")
                        };
                        let (kernels, numbers) = (*kernels, numbers.clone());
                        heard.broadcasts.push(Broadcast { round, kernels, numbers });
                        break;
                    }
                }
            }
        }
        heard
    }
}

#[test]
fn every_method_over_loopback_is_the_simulator() {
    for name in ["gr", "tr", "mk", "naive", "emk", "pof", "fedpoe", "linear", "linear-newton"] {
        let run = Run::play([name, name], "none", &[]);
        _ = run.compare_with_federation(name);
        run.compare_with_simulate(name, None);
    }
    let run = Run::play(["sk", "sk:6"], "none", &[]);
    _ = run.compare_with_federation("sk:6");
    run.compare_with_simulate("sk", Some(6));
}

#[test]
fn the_server_of_both_knows_the_same_importance_of_columns() {
    let run = Run::play(["gr", "gr"], "none", &["learning.importance=\"shared\""]);
    let federation = run.compare_with_federation("gr");
    run.compare_with_simulate("gr", None);
    let state = |server: &hedgerow::Server| {
        let importance = server.importance().unwrap();
        (importance.groups().to_vec(), importance.windows().to_vec())
    };
    let (network, process) = (state(&run.stored), state(federation.server()));
    assert_eq!(network, process);
    // Nodes told of it in rounds 32 and 64.
    assert!(network.0.iter().all(|group| group.measured > 0), "{network:?}");
    assert_eq!(network.1.iter().map(|window| window.round).collect::<Vec<_>>(), [32, 64]);
}

#[test]
fn so_it_is_where_scales_are_agreed_on() {
    for name in ["gr", "tr", "mk", "naive"] {
        Run::play([name, name], "online", &[]).compare_with_simulate(name, None);
    }
}

#[test]
fn so_it_is_with_a_layer_of_the_nodes_own() {
    for (own, method, scaling, personal) in [
        ("mk+personal", "mk", "none", "true"),
        ("gr", "gr", "online", "\"auto\""),
        ("gr+shared", "gr", "none", "false"),
    ] {
        let run = Run::play([own, method], scaling, &[&format!("learning.personal={personal}")]);
        run.compare_with_simulate(own, None);
    }
}
