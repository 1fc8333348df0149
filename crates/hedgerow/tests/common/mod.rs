//! Helpers for tests: every method in many setups, and a driver that runs rounds step by step.

#![allow(clippy::unwrap_used)]

use hedgerow::aggregation::Aggregation;
use hedgerow::features::{Amplitude, Draw, FeatureMap, Features, Kernel, SampleMap};
use hedgerow::learning::{ExponentialWeights, Loss, Schedule, WeightRule};
use hedgerow::message::{Selection, Upload};
use hedgerow::method::{self, Average, FeatureKind, METHODS, MethodInfo, MkOptions, PofOptions};
use hedgerow::random::CounterRng;
use hedgerow::scaling::{Scale, ScaleKind, Summary};
use hedgerow::state::StateKind;
use hedgerow::{Federation, NodeMethod, Plan, PlanConfig, ServerMethod};

pub(crate) const FREQUENCIES: usize = 5;
pub(crate) const INPUTS: usize = 2;

/// Numbers in an upload of GR-OFL, at most.
pub(crate) const BUDGET: usize = 24;

/// Numbers of GR-OFL's broadcasts after the model.
pub(crate) const TAIL: usize = 9;

/// Numbers after that in a broadcast of TR-OFL.
pub(crate) const TR_TAIL: usize = 10;

/// The plan of a test. Its name says which method and variant it has.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) plan: Plan,
}

impl Case {
    pub(crate) fn new(config: PlanConfig) -> Self {
        Self { plan: Plan::new(config).unwrap() }
    }

    /// Short name of the method.
    pub(crate) fn name(&self) -> &'static str {
        self.plan.method().name
    }

    pub(crate) fn config(&self) -> &PlanConfig {
        self.plan.config()
    }

    /// The same with a change.
    pub(crate) fn with(&self, change: impl FnOnce(PlanConfig) -> PlanConfig) -> Self {
        Self::new(change(self.config().clone()))
    }

    /// The same with each aggregation that the method supports.
    fn with_each_aggregation(self) -> impl Iterator<Item = Self> {
        let info = self.plan.method();
        let able = AGGREGATIONS.into_iter().filter(|aggregation| info.supports(*aggregation));
        able.map(move |aggregation| self.with(|config| config.aggregation(aggregation)))
    }

    /// Whether nodes with the same broadcast may predict differently, because they keep their own
    /// weights or models. Weights of a single kernel don't differ.
    pub(crate) fn is_personal(&self) -> bool {
        is_personal(self.name(), self.plan.kernels())
    }

    pub(crate) fn map(&self) -> &SampleMap {
        self.plan.map()
    }

    pub(crate) fn node(&self, id: u32) -> Box<dyn NodeMethod> {
        self.plan.node_method(id)
    }

    pub(crate) fn server(&self) -> Box<dyn ServerMethod> {
        self.plan.server_method()
    }
}

/// Every aggregation; of three nodes, and of twenty, some are left out.
pub(crate) const AGGREGATIONS: [Aggregation; 3] =
    [Aggregation::Mean, Aggregation::TrimmedMean { share: 0.4 }, Aggregation::Median];

/// Every federated method; one with a single kernel has the last.
pub(crate) fn methods(kernels: usize) -> Vec<&'static str> {
    let with_last = |info: &MethodInfo| -> &'static str {
        if info.takes_kernel { format!("{}:{kernels}", info.name).leak() } else { info.name }
    };
    METHODS.iter().filter(|info| info.halves.is_some()).map(|info| with_last(info)).collect()
}

fn info(method: &str) -> &'static MethodInfo {
    method::find(name(method)).unwrap()
}

/// The short name of a method, without its kernel.
pub(crate) fn name(method: &str) -> &str {
    method.split(':').next().unwrap()
}

/// Whether nodes with the same broadcast may predict differently.
pub(crate) fn is_personal(method: &str, kernels: usize) -> bool {
    method == "fedpoe" || (method == "pof" && kernels > 1)
}

/// Whether it uses kernels with weights.
pub(crate) fn has_kernels(method: &str) -> bool {
    info(method).uses_kernels()
}

/// Whether it learns from the inputs themselves.
pub(crate) fn is_linear(method: &str) -> bool {
    matches!(info(method).features, FeatureKind::Inputs)
}

/// Whether a node uploads in a round without samples, because the gradient of its history at a new
/// model is new.
pub(crate) fn speaks_of_its_past(method: &str) -> bool {
    matches!(method, "gr" | "tr")
}

/// Whether a method supports this loss.
pub(crate) fn has_loss(method: &str, loss: Loss) -> bool {
    (info(method).supports_loss)(&loss)
}

/// Scales of all columns, each of a smallest value and the power of ten that the largest adds.
pub(crate) fn scales_of_ranges(ranges: &[(f64, i32)]) -> Vec<Scale> {
    let scale = |ranges: &[(f64, i32)]| {
        let mut summary = Summary::new(INPUTS + 1);
        for (column, (low, power)) in ranges.iter().enumerate() {
            summary.add(column, *low);
            summary.add(column, low + 10f64.powi(*power));
        }
        Scale::from_summary(ScaleKind::Spread, &summary, None)
    };
    ranges.chunks(INPUTS + 1).map(scale).collect()
}

/// What a method learns from where samples are x.
pub(crate) fn features(map: &SampleMap, x: &[f32]) -> Vec<f32> {
    let mut z = vec![0.0; x.len() / map.inputs() * map.width()];
    map.map_batch(x, &mut z);
    z
}

/// Every method, and MK-OFL's and POF-MKL's variants, with P = 1 and 11, K = 1, 3 and 20, each
/// loss, each schedule, both weight rules and each aggregation.
pub(crate) fn cases() -> Vec<Case> {
    let schedules = [
        Schedule::Anytime { scale: 1.0 },
        Schedule::Horizon { scale: 1.0, rounds: 30 },
        Schedule::Constant { scale: 0.2 },
    ];
    let mut cases = Vec::new();
    for kernels in [1, 11] {
        for nodes in [1, 3, 20] {
            for loss in [Loss::Squared, Loss::Logistic, Loss::Huber { delta: 0.5 }] {
                for schedule in schedules {
                    for weight_rule in [WeightRule::Incremental, WeightRule::Cumulative] {
                        let change = |config: PlanConfig| {
                            config
                                .nodes(nodes)
                                .loss(loss)
                                .step_size(schedule)
                                .weight_rate(schedule)
                                .weight_rule(weight_rule)
                        };
                        let able =
                            methods(kernels).into_iter().filter(|method| has_loss(method, loss));
                        let plain = able.map(|method| config(method, kernels));
                        let all = plain.chain(variants(kernels));
                        cases.extend(all.map(|config| Case::new(change(config))));
                    }
                }
            }
        }
    }
    cases.into_iter().flat_map(Case::with_each_aggregation).collect()
}

/// Each method once, and MK-OFL's and POF-MKL's variants, with three nodes and this many kernels;
/// then again with other aggregations.
pub(crate) fn few_cases(kernels: usize) -> Vec<Case> {
    let plain = methods(kernels).into_iter().map(|method| config(method, kernels));
    let cases: Vec<Case> =
        plain.chain(variants(kernels)).map(|config| Case::new(config.nodes(3))).collect();
    let others = cases.clone().into_iter().flat_map(Case::with_each_aggregation);
    let others: Vec<Case> =
        others.filter(|case| case.config().aggregation != Aggregation::Mean).collect();
    [cases, others].concat()
}

/// MK-OFL as its authors' code has it, and POF-MKL with two kernels in an upload, where there are
/// two.
fn variants(kernels: usize) -> [PlanConfig; 2] {
    let mk = MkOptions { count_nodes: false, average: Average::Voters };
    let pof = PofOptions { kernels_per_upload: kernels.min(2), exploration: 0.5 };
    let published = config("mk", kernels).mk(mk).amplitude(Amplitude::Unnormalised);
    [published, config("pof", kernels).pof(pof)]
}

/// A small configuration of a method.
pub(crate) fn config(method: &str, kernels: usize) -> PlanConfig {
    PlanConfig::default()
        .personal(false)
        .method(method.parse().unwrap())
        .kernels(dictionary(kernels))
        .draw(Draw::Independent)
        .frequencies(Some(FREQUENCIES))
        .inputs(INPUTS)
        .budget(BUDGET)
        .seed(5)
}

/// Kernels of middle bandwidths.
pub(crate) fn dictionary(kernels: usize) -> Vec<Kernel> {
    let mut dictionary = Kernel::paper_dictionary();
    dictionary.rotate_left(4);
    dictionary.into_iter().cycle().take(kernels).collect()
}

/// A federation of a configuration.
pub(crate) fn federation(config: PlanConfig) -> Federation {
    Federation::new(&Plan::new(config).unwrap())
}

/// A map of the features of all kernels.
pub(crate) fn map(kernels: usize) -> FeatureMap {
    FeatureMap::new(&config("mk", kernels).feature_spec()).unwrap()
}

/// The map of a method with this many kernels.
pub(crate) fn map_for(method: &str, kernels: usize) -> SampleMap {
    Plan::new(config(method, kernels)).unwrap().map().clone()
}

/// The weights of a node of MK-OFL, which it keeps to itself, from its saved state.
pub(crate) fn mk_weights(node: &dyn NodeMethod) -> Vec<f64> {
    type Models = (usize, Vec<f32>);
    type State = (u64, u64, (Selection, Models, Models, ExponentialWeights));
    let kind = StateKind::new("mk-node");
    let (_, _, (.., weights)) = kind.restore::<State>(&node.save(), |_| true).unwrap();
    let mut shares = vec![0.0; weights.log().len()];
    weights.probabilities(&mut shares);
    shares
}

/// Numbers in [-1, 1).
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let stream = CounterRng::from_seed(seed);
    (0..count as u64).map(|i| stream.uniform_at(i) as f32 * 2.0 - 1.0).collect()
}

/// A server and its nodes, driven by hand.
pub(crate) struct World {
    pub(crate) case: Case,
    pub(crate) nodes: Vec<Box<dyn NodeMethod>>,
    pub(crate) server: Box<dyn ServerMethod>,
}

impl World {
    pub(crate) fn new(case: &Case) -> Self {
        Self {
            nodes: (0..case.config().nodes as u32).map(|id| case.node(id)).collect(),
            server: case.server(),
            case: case.clone(),
        }
    }

    /// A world after some rounds.
    pub(crate) fn after(case: &Case, rounds: u64) -> Self {
        let mut world = Self::new(case);
        (0..rounds).for_each(|t| world.round(t));
        world
    }

    /// Features and label of a node's sample at a time.
    pub(crate) fn sample(&self, node: usize, t: u64) -> (Vec<f32>, f32) {
        let x = numbers(1_000 * t + node as u64, INPUTS);
        let z = features(self.case.map(), &x);
        let y = (4.0 * x[0]).sin() + 0.3 * x[1];
        (z, if self.case.config().loss == Loss::Logistic { y.signum() } else { y })
    }

    /// A node's prediction for its sample.
    pub(crate) fn prediction(&self, node: usize, t: u64) -> f32 {
        self.nodes[node].predict(Features::checked(&self.sample(node, t).0).unwrap())
    }

    pub(crate) fn learn(&mut self, node: usize, t: u64) {
        let (z, y) = self.sample(node, t);
        self.nodes[node].learn(Features::checked(&z).unwrap(), y).unwrap();
    }

    /// A node's upload, if any.
    pub(crate) fn upload(&self, node: usize) -> Option<Upload> {
        let mut upload = Upload::default();
        self.nodes[node].upload(&mut upload).then_some(upload)
    }

    /// Hands a node's upload to the server.
    pub(crate) fn send(&mut self, node: usize) {
        if let Some(upload) = self.upload(node) {
            self.server.accept(node as u32, &upload).unwrap();
        }
    }

    /// Closes the round and sends the broadcast to all nodes.
    pub(crate) fn close(&mut self) {
        let broadcast = self.server.close_round();
        self.nodes.iter_mut().for_each(|node| node.adopt(broadcast).unwrap());
    }

    /// A whole round with all nodes.
    pub(crate) fn round(&mut self, t: u64) {
        for node in 0..self.nodes.len() {
            self.learn(node, t);
            self.send(node);
        }
        self.close();
    }

    /// The states of server and nodes, to the bit.
    pub(crate) fn state(&self) -> Vec<Vec<u8>> {
        self.nodes.iter().map(|node| node.save()).chain([self.server.save()]).collect()
    }

    /// The same world in new halves, made from saved states.
    pub(crate) fn restored(&self) -> Self {
        let mut copy = Self::new(&self.case);
        for (copy, node) in copy.nodes.iter_mut().zip(&self.nodes) {
            copy.restore(&node.save()).unwrap();
        }
        copy.server.restore(&self.server.save()).unwrap();
        copy
    }
}
