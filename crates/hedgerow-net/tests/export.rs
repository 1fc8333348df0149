//! A model exported from a server's store predicts what the nodes of the run predict, bit for bit,
//! without a server.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

use std::borrow::Cow;

use crate::common::{INPUTS, learning, methods, plan, sample};
use crate::common::{Plan, Scaling};
use hedgerow::message::{Report, Upload};
use hedgerow::scaling::{NodeScaling, Scale, ScaleKind, ServerScaling};
use hedgerow::{NodeMethod, ServerMethod};
use hedgerow_model::Model;
use hedgerow_net::agent::state::StateFile;
use hedgerow_net::coordinator::records::{Commit, Run};
use hedgerow_net::export::{ExportError, model_of, model_of_store};
use hedgerow_net::storage::{Durability, Storage, Store};
use tempfile::TempDir;

const NODES: u32 = 4;

/// A federation in this process, as the simulator drives it.
struct Federation {
    plan: Plan,
    server: Box<dyn ServerMethod>,
    scaling: Option<ServerScaling>,
    nodes: Vec<(Box<dyn NodeMethod>, NodeScaling)>,
    z: Vec<f32>,
}

impl Federation {
    fn new(plan: Plan) -> Self {
        let nodes = (0..NODES).map(|number| (plan.node(number), plan.node_scaling())).collect();
        let (server, scaling, z) =
            (plan.server(), plan.server_scaling(), vec![0.0; plan.map().width()]);
        Self { plan, server, scaling, nodes, z }
    }

    /// Raw numbers are not of the order of one.
    fn raw(node: u32, time: u64) -> ([f32; INPUTS], f32) {
        let ([a, b, c], y) = sample(node, time);
        ([10.0 * a - 3.0, 500.0 * b, c], 20.0 * y + 7.0)
    }

    fn round(&mut self, time: u64) {
        let (mut upload, mut report) = (Upload::default(), Report::default());
        for (number, (half, scaling)) in self.nodes.iter_mut().enumerate() {
            let (x, y) = Self::raw(number as u32, time);
            if let Some(scale) = scaling.scale().cloned() {
                let mut scaled = [0.0; INPUTS];
                scaling.prepare(&x, &mut scaled);
                let z = self.plan.map().map_batch(&scaled, &mut self.z);
                half.learn(z, scale.scale_label(y)).unwrap();
                if half.upload(&mut upload) {
                    self.server.accept(number as u32, &upload).unwrap();
                }
            }
            scaling.see(&x, Some(y));
            if scaling.report(&mut report)
                && let Some(server) = &mut self.scaling
            {
                server.accept(number as u32, &report).unwrap();
            }
        }
        self.server.close_round();
        if let Some(server) = &mut self.scaling {
            let before = server.scale().cloned();
            if let (Some(scale), Some(before)) = (server.close_round(), &before) {
                self.server.rescale(&self.plan.map().rescaling(before, scale));
            }
        }
        for (half, scaling) in &mut self.nodes {
            if let Some(server) = &self.scaling
                && let Some(scale) = server.scale()
            {
                let before = scaling.scale().cloned();
                if scaling.adopt(server.version(), scale).unwrap()
                    && let Some(before) = before
                {
                    half.rescale(&self.plan.map().rescaling(&before, scale));
                }
            }
            half.adopt(self.server.broadcast()).unwrap();
        }
    }

    /// What one of the nodes predicts.
    fn predict(&mut self, node: usize, x: &[f32]) -> f32 {
        let (half, scaling) = &self.nodes[node];
        let mut scaled = [0.0; INPUTS];
        scaling.prepare(x, &mut scaled);
        let prediction = half.predict(self.plan.map().map_batch(&scaled, &mut self.z));
        scaling.scale().unwrap().unscale_label(prediction)
    }

    fn store(&self, store: &mut Store) {
        let scaling = self.scaling.as_ref().map(ServerScaling::save);
        let round = self.server.broadcast().round;
        let commit = Commit { round, server: self.server.save(), scaling, ..Commit::default() };
        store.commit(&commit).unwrap();
    }
}

fn scalings() -> [Scaling; 3] {
    let ranges = [(-3.0, 7.0), (0.0, 500.0), (0.0, 1.0), (7.0, 27.0)];
    [
        Scaling::None,
        Scaling::Fixed(Scale::from_ranges(&ranges).unwrap()),
        Scaling::Online { kind: ScaleKind::Spread },
    ]
}

#[test]
fn exported_models_predict_like_nodes_bit_for_bit() {
    for method in methods() {
        for scaling in scalings() {
            let folder = TempDir::new().unwrap();
            let (path, out) =
                (folder.path().join("server.db"), folder.path().join("m.safetensors"));
            let plan = Plan::new(learning(method, NODES as usize).scaling(scaling)).unwrap();
            let mut federation = Federation::new(plan);
            let mut store = Store::open(&path, Durability::Kill).unwrap();
            let run = Run { id: "r".to_owned(), learning: federation.plan.to_json() };
            store.begin(&run).unwrap();
            (0..40).for_each(|time| federation.round(time));
            // Until TR-OFL has units, of which broadcasts tell only what changes.
            let mut later = (40..4000).filter(|_| method == "tr");
            while matches!(federation.server.catch_up(), Cow::Borrowed(_))
                && let Some(time) = later.next()
            {
                federation.round(time);
            }
            federation.store(&mut store);
            // While the server runs.
            let model = model_of(&path).unwrap();
            assert_eq!((model.run(), model.round()), ("r", federation.server.broadcast().round));
            model.write(&out).unwrap();
            let mut predictors =
                [&model, &Model::read(&out).unwrap()].map(|model| model.shared().unwrap());
            // Nodes with their own weights or samples are compared as new nodes.
            if matches!(method, "pof" | "fedpoe" | "tr") {
                federation.nodes[1].0 = federation.plan.node(9);
                federation.nodes[1].0.adopt(&federation.server.catch_up()).unwrap();
            }
            let is_whole = matches!(federation.server.catch_up(), Cow::Borrowed(_));
            assert_eq!(is_whole, method != "tr", "{method:?}");
            let mut sizes = 0.0;
            for time in 100..150 {
                let (x, _) = Federation::raw(2, time);
                let expected = federation.predict(1, &x);
                sizes += expected.abs();
                for predictor in &mut predictors {
                    let found = predictor.predict(&x).unwrap().value;
                    assert_eq!(found.to_bits(), expected.to_bits(), "{method:?}");
                }
            }
            assert!(sizes > 1.0, "{method:?} has learned something");
            let missing = predictors[0].predict(&[f32::NAN, 1.0, f32::INFINITY]).unwrap();
            assert!(missing.value.is_finite());
        }
    }
}

#[test]
fn where_there_is_nothing_to_export_it_is_said() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("server.db");
    let [none, _, online] = scalings();
    let ends = |expected: &str| {
        let error = model_of_store(&path).unwrap_err().to_string();
        let expected = format!("{}: {expected}", path.display());
        assert!(error.starts_with(&expected), "{error} is not {expected}");
    };
    ends("there is no such store");
    let mut store = Store::open(&path, Durability::Kill).unwrap();
    ends("nothing has been learned yet: no run has begun");
    let scaled = |method, scaling: &Scaling| {
        Plan::new(learning(method, 4).scaling(scaling.clone())).unwrap()
    };
    let online = scaled("mk", &online);
    store.begin(&Run { id: "r".to_owned(), learning: online.to_json() }).unwrap();
    ends("nothing has been learned yet: no round has closed");
    let mut federation = Federation::new(online);
    federation.store(&mut store);
    ends("nothing has been learned yet: no scale has been agreed on");
    (0..8).for_each(|time| federation.round(time));
    federation.store(&mut store);
    model_of_store(&path).unwrap();
    // A state of another method.
    let mut other = Federation::new(scaled("naive", &none));
    (0..20).for_each(|time| other.round(time));
    other.store(&mut store);
    assert!(matches!(model_of_store(&path), Err(ExportError::Invalid { .. })));
    drop(store);
    std::fs::remove_file(&path).unwrap();
    let local = Federation::new(scaled("local", &none));
    let mut store = Store::open(&path, Durability::Kill).unwrap();
    store.begin(&Run { id: "r".to_owned(), learning: local.plan.to_json() }).unwrap();
    local.store(&mut store);
    ends("with the method local every node has a model of its own, and the server has none");
}

#[test]
fn the_opening_predicts_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("server.db");
    let federation = Federation::new(plan("mk", 4));
    let mut store = Store::open(&path, Durability::Kill).unwrap();
    store.begin(&Run { id: "r".to_owned(), learning: federation.plan.to_json() }).unwrap();
    federation.store(&mut store);
    let model = model_of_store(&path).unwrap();
    let opening = model.shared().unwrap().predict(&[0.1, 0.2, 0.3]).unwrap().value;
    assert_eq!((model.round(), opening), (1, 0.0));
}

#[test]
fn models_of_classes_and_of_several_targets_are_exported() {
    let names = |count: usize| (0..count).map(|class| format!("class {class}")).collect();
    let mut tried = 0;
    for (method, personal) in
        ["gr", "tr", "mk"].into_iter().flat_map(|name| [(name, true), (name, false)])
    {
        let config = learning(method, 1).personal(personal).target("a,b".to_owned());
        let config = config.scaling(Scaling::Online { kind: ScaleKind::Spread });
        for config in [
            config.clone().outputs(2),
            config.clone().classes(names(2)),
            config.clone().classes(names(5)),
        ] {
            let plan = hedgerow::Plan::new(config).unwrap();
            let mut federation = hedgerow::Federation::new(&plan);
            federation.connect();
            for time in 0..60 {
                let (x, y) = Federation::raw(0, time);
                let labels: Vec<f32> = match plan.classes() {
                    Some(classes) => classes.labels(time as usize % classes.count()).collect(),
                    None => vec![y, -3.0 * y],
                };
                federation.nodes_mut()[0].learn(&x, &labels).unwrap();
                federation.exchange();
            }
            let folder = TempDir::new().unwrap();
            let (state, db) = (folder.path().join("a.state"), folder.path().join("server.db"));
            let (file, _) = StateFile::open(&state, "a", &[]).unwrap();
            file.save(&federation.nodes()[0], None, None)().unwrap();
            let server = federation.server();
            let mut store = Store::open(&db, Durability::Kill).unwrap();
            let learning = hedgerow_net::plan_json::plan_to_json(&plan);
            store.begin(&Run { id: "r".to_owned(), learning }).unwrap();
            let (round, scaling) = (server.round(), server.save_scaling());
            let commit = Commit { round, server: server.save(), scaling, ..Commit::default() };
            store.commit(&commit).unwrap();
            let mut joined = plan.node(7);
            joined.connected();
            server.opening(0, false).try_for_each(|message| joined.hear(&message)).unwrap();
            let mut stored = model_of(&state).unwrap().node("a").unwrap();
            let mut shared = model_of(&db).unwrap().shared().unwrap();
            let node = &mut federation.nodes_mut()[0];
            for time in 60..80 {
                let (x, _) = Federation::raw(0, time);
                for (found, expected) in [(&mut stored, &mut *node), (&mut shared, &mut joined)] {
                    assert_eq!(found.predict(&x), expected.predict(&x), "{method}");
                    assert_eq!(found.values(), expected.values(), "{method}");
                    assert_eq!(found.probabilities(), expected.probabilities(), "{method}");
                    let last = plan.outputs() - 1;
                    let level = hedgerow::learning::Level::default();
                    assert_eq!(found.interval(last, level), expected.interval(last, level));
                }
            }
            tried += 1;
        }
    }
    assert_eq!(tried, 18);
}

#[test]
fn the_state_file_of_a_node_has_its_own_model() {
    for method in ["tr", "gr", "pof", "local"] {
        let config = learning(method, 1).scaling(Scaling::Online { kind: ScaleKind::Spread });
        let plan = hedgerow::Plan::new(config).unwrap();
        let mut federation = hedgerow::Federation::new(&plan);
        federation.connect();
        for time in 0..60 {
            let (x, y) = Federation::raw(0, time);
            federation.nodes_mut()[0].learn(&x, &[y]).unwrap();
            federation.exchange();
        }
        let node = &mut federation.nodes_mut()[0];
        node.set_run("r");
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("meter-17.state");
        let (file, _) = StateFile::open(&path, "meter-17", &[]).unwrap();
        file.save(node, None, None)().unwrap();
        // While the node runs.
        let model = model_of(&path).unwrap();
        assert_eq!((model.run(), model.round(), model.is_shared()), ("r", node.round(), false));
        assert!(model.nodes().eq(["meter-17"]));
        let mut stored = model.node("meter-17").unwrap();
        for time in 60..80 {
            let (x, _) = Federation::raw(0, time);
            assert_eq!(stored.predict(&x), node.predict(&x), "{method}");
        }
        let kept = stored.forget_samples();
        assert_eq!((kept.remembered, kept.held, kept.unlabelled), (0, 0, 0), "{method}");
    }
    let missing = model_of(std::path::Path::new("nowhere.state")).unwrap_err().to_string();
    assert_eq!(missing, "nowhere.state: there is no such store");
}
