//! The method, served over loopback, learns what a federation in one process learns.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use hedgerow::federation::{Contact, NodeRound};
use hedgerow::method::MethodInfo;
use hedgerow::{Federation, NodeId, Plan};
use hedgerow_config::Layer;
use hedgerow_net::agent;
use hedgerow_net::serve::{ServeSettings, Server};
use hedgerow_net::storage::View;
use own_method::ADAGRAD;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// What a server and a node know beside the built-in methods.
static OWN: [&MethodInfo; 1] = [&ADAGRAD];

const NODES: u32 = 2;
const ROUNDS: u64 = 50;

/// Longer than anything takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

fn sample(node: u32, round: u64) -> ([f32; 3], f32) {
    let angle = (round * u64::from(3 + node)) as f32;
    let x = [angle.sin(), (1.7 * angle).cos(), if round.is_multiple_of(10) { 1.0 } else { 0.0 }];
    (x, 0.5 * x[0] - 0.3 * x[1] + 2.0 * x[2] + 0.2)
}

fn layers(changes: &[String]) -> Vec<Layer> {
    Layer::sets(changes).unwrap()
}

fn serve_settings(store: &Path) -> ServeSettings {
    let changes = [
        "learning.method=adagrad".to_owned(),
        "learning.columns=[\"a\", \"b\", \"rare\"]".to_owned(),
        "learning.target=y".to_owned(),
        "learning.scaling=none".to_owned(),
        format!("learning.nodes={NODES}"),
        format!("rounds.quorum={NODES}"),
        "rounds.deadline=never".to_owned(),
        "listen.address=127.0.0.1:0".to_owned(),
        "listen.dashboard=never".to_owned(),
        "listen.tls=false".to_owned(),
        format!("store.path={store:?}"),
    ];
    ServeSettings::with_methods(&layers(&changes), &OWN).unwrap()
}

/// A node that follows a file of samples, one for each round.
fn node_settings(node: u32, folder: &Path, server: &Server) -> agent::config::Settings {
    let mut samples = "a,b,rare,y\n".to_owned();
    for round in 1..=ROUNDS {
        let ([a, b, rare], y) = sample(node, round);
        writeln!(samples, "{a},{b},{rare},{y}").unwrap();
    }
    let path = folder.join(format!("samples-{node}.csv"));
    std::fs::write(&path, samples).unwrap();
    let changes = [
        format!("server.address={:?}", server.address().to_string()),
        "server.plain_text=true".to_owned(),
        format!("server.node=n{node}"),
        "samples.source=follow".to_owned(),
        format!("samples.path={path:?}"),
        "samples.pace=round".to_owned(),
        "samples.quiet=true".to_owned(),
        format!("state.path={:?}", folder.join(format!("state-{node}"))),
    ];
    agent::config::Settings::read(&layers(&changes)).unwrap()
}

/// The state of a server in one process that has closed the same rounds. `names` are the nodes'
/// own numbers, in the order in which they joined.
fn in_one_process(plan: &Plan, names: &[u32]) -> Vec<u8> {
    let mut federation = Federation::new(plan);
    for round in 1..=ROUNDS {
        let (mut x, mut y) = (vec![], vec![]);
        for name in names {
            let (inputs, label) = sample(*name, round);
            x.extend(inputs);
            y.push(label);
        }
        let mut z = vec![0.0; names.len() * plan.width()];
        let z = plan.map().map_batch(&x, &mut z);
        let rounds: Vec<NodeRound<'_>> = (0..)
            .zip(z.samples(plan.width()).zip(y.chunks(1)))
            .map(|(node, (z, y))| NodeRound { node, z, y, contact: Contact::Full })
            .collect();
        federation.round(&rounds, |_| ()).unwrap();
    }
    federation.server().save()
}

#[tokio::test]
async fn it_learns_over_loopback_what_it_learns_in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("run.db");
    let settings = serve_settings(&store);
    let plan = settings.plan.clone();
    let server = Server::start(settings).await.unwrap();
    let nodes: Vec<_> = (0..NODES)
        .map(|node| {
            let settings = node_settings(node, folder.path(), &server);
            let (stop, stopped) = oneshot::channel::<()>();
            let run = agent::run_with_methods(settings, &OWN, async { _ = stopped.await });
            (stop, tokio::spawn(run))
        })
        .collect();
    let learned = async {
        while server.source().status().round <= ROUNDS {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, learned).await.unwrap();
    for (stop, node) in nodes {
        stop.send(()).unwrap();
        node.await.unwrap().unwrap();
    }
    assert_eq!(server.stop().await.unwrap().round, ROUNDS + 1);
    let view = View::open(&store).unwrap();
    let names: Vec<u32> =
        view.nodes().unwrap().iter().map(|node| node.name[1..].parse().unwrap()).collect();
    assert_eq!(names.len(), NODES as usize);
    assert_eq!(view.load().unwrap().unwrap().server, in_one_process(&plan, &names));
}

#[test]
fn who_was_not_given_the_method_does_not_know_it() {
    let changes = ["learning.method=adagrad".to_owned(), "learning.inputs=3".to_owned()];
    let error = ServeSettings::read(&layers(&changes)).unwrap_err().to_string();
    assert!(error.contains("learning.method") && error.contains("adagrad"), "{error}");
    let settings = ServeSettings::with_methods(&layers(&changes), &OWN).unwrap();
    let first: NodeId = 0;
    assert_eq!(settings.plan.node(first).plan().method().title, ADAGRAD.title);
}
