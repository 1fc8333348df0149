//! Helpers for tests: every method in many setups, and a driver that runs rounds step by step.

#![allow(clippy::unwrap_used)]

use hedgerow::aggregation::Aggregation;
use hedgerow::codec::Compression;
use hedgerow::features::{Amplitude, Draw, FeatureMap, FeatureSpec, Features, Kernel, SampleMap};
use hedgerow::learning::{Loss, Schedule, WeightRule};
use hedgerow::message::Upload;
use hedgerow::method::{Average, MkOptions, PofOptions};
use hedgerow::random::CounterRng;
use hedgerow::{
    Federation, Method, NodeMethod, Plan, PlanConfig, ServerMethod, Setup, SetupConfig,
};

pub(crate) const FREQUENCIES: usize = 5;
pub(crate) const INPUTS: usize = 2;

/// Numbers in an upload of GR-OFL, at most.
pub(crate) const BUDGET: usize = 24;

/// Numbers of GR-OFL's broadcasts after the model.
pub(crate) const TAIL: usize = 9;

/// A method in a setup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) method: Method,
    pub(crate) setup: Setup,
    pub(crate) amplitude: Amplitude,
}

impl Case {
    pub(crate) fn new(method: Method, setup: Setup) -> Self {
        Self { method, setup, amplitude: Amplitude::Normalised }
    }

    /// MK-OFL as its authors' code has it.
    fn published(setup: Setup) -> Self {
        let mk = MkOptions { count_nodes: false, average: Average::Voters };
        let setup = SetupConfig { mk, ..*setup.config() }.try_into().unwrap();
        Self { method: Method::MkOfl, setup, amplitude: Amplitude::Unnormalised }
    }

    /// POF-MKL with two kernels in an upload, where there are two.
    fn in_pairs(setup: Setup) -> Self {
        let pof =
            PofOptions { kernels_per_upload: setup.config().kernels.min(2), exploration: 0.5 };
        Self::new(Method::PofMkl, SetupConfig { pof, ..*setup.config() }.try_into().unwrap())
    }

    /// The same with each aggregation that the method supports.
    fn with_each_aggregation(self) -> impl Iterator<Item = Self> {
        let able =
            AGGREGATIONS.into_iter().filter(move |aggregation| self.method.supports(*aggregation));
        able.map(move |aggregation| {
            let setup = SetupConfig { aggregation, ..*self.setup.config() }.try_into().unwrap();
            Self { setup, ..self }
        })
    }

    /// Whether nodes with the same broadcast may predict differently, because they keep their own
    /// weights or models.
    pub(crate) fn is_personal(&self) -> bool {
        is_personal(self.method, self.setup.config().kernels)
    }

    /// A map for it.
    pub(crate) fn map(&self) -> SampleMap {
        self.method.map(&self.setup, &spec(self.setup.config().kernels, self.amplitude)).unwrap()
    }
}

/// Every aggregation; of three nodes, and of twenty, some are left out.
pub(crate) const AGGREGATIONS: [Aggregation; 3] =
    [Aggregation::Mean, Aggregation::TrimmedMean { share: 0.4 }, Aggregation::Median];

/// Every method of a dictionary; SK-OFL with its last kernel.
pub(crate) fn methods(kernels: usize) -> [Method; 10] {
    [
        Method::GrOfl,
        Method::SkOfl { kernel: kernels - 1 },
        Method::MkOfl,
        Method::Naive,
        Method::Local,
        Method::EmKofl,
        Method::PofMkl,
        Method::FedPoe,
        Method::LinearSgd,
        Method::LinearNewton,
    ]
}

/// Whether nodes with the same broadcast may predict differently. Weights of a single kernel don't
/// differ.
pub(crate) fn is_personal(method: Method, kernels: usize) -> bool {
    method == Method::FedPoe || (method == Method::PofMkl && kernels > 1)
}

/// Whether it uses kernels with weights.
pub(crate) fn has_kernels(method: Method) -> bool {
    !is_linear(method) && method != Method::GrOfl
}

/// Whether it learns from the inputs themselves.
pub(crate) fn is_linear(method: Method) -> bool {
    matches!(method, Method::LinearSgd | Method::LinearNewton)
}

/// Whether a node uploads in a round without samples, because the gradient of its history at a new
/// model is new.
pub(crate) fn speaks_of_its_past(method: Method) -> bool {
    method == Method::GrOfl
}

/// Whether a method supports this loss. The logistic loss would need to reweight sums afterwards.
pub(crate) fn has_loss(method: Method, loss: Loss) -> bool {
    method != Method::GrOfl || loss != Loss::Logistic
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
                        let setup = setup(SetupConfig {
                            kernels,
                            nodes,
                            loss,
                            step_size: schedule,
                            weight_rate: schedule,
                            weight_rule,
                            ..SetupConfig::default()
                        });
                        let able =
                            methods(kernels).into_iter().filter(|method| has_loss(*method, loss));
                        cases.extend(able.map(|method| Case::new(method, setup)));
                        cases.extend([Case::published(setup), Case::in_pairs(setup)]);
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
    let setup = setup(SetupConfig { kernels, nodes: 3, ..SetupConfig::default() });
    let plain = methods(kernels).map(|method| Case::new(method, setup));
    let cases = [&plain[..], &[Case::published(setup), Case::in_pairs(setup)]].concat();
    let others = cases.clone().into_iter().flat_map(Case::with_each_aggregation);
    let others: Vec<Case> =
        others.filter(|case| case.setup.config().aggregation != Aggregation::Mean).collect();
    [cases, others].concat()
}

/// A setup with few frequencies.
pub(crate) fn setup(config: SetupConfig) -> Setup {
    SetupConfig { frequencies: FREQUENCIES, inputs: INPUTS, budget: BUDGET, ..config }
        .try_into()
        .unwrap()
}

/// The plan of a method in a setup.
pub(crate) fn plan_of(method: Method, setup: &Setup) -> Plan {
    Plan::new(config_of(method, setup)).unwrap()
}

pub(crate) fn config_of(method: Method, setup: &Setup) -> PlanConfig {
    let config = setup.config();
    PlanConfig::default()
        .method(method.into())
        .kernels(Kernel::paper_dictionary().into_iter().cycle().take(config.kernels).collect())
        .frequencies(Some(config.frequencies))
        .inputs(config.inputs)
        .budget(config.budget)
        .nodes(config.nodes)
        .seed(config.seed)
        .loss(config.loss)
        .ridge(config.ridge)
        .step_size(config.step_size)
        .weight_rate(config.weight_rate)
        .weight_rule(config.weight_rule)
        .aggregation(config.aggregation)
        .mk(config.mk)
        .pof(config.pof)
}

/// A federation of a method in a setup.
pub(crate) fn federation(method: Method, setup: &Setup) -> Federation {
    Federation::new(&plan_of(method, setup))
}

/// The same with compressed messages.
pub(crate) fn compressed(method: Method, setup: &Setup, compression: Compression) -> Federation {
    Federation::new(&Plan::new(config_of(method, setup).compression(compression)).unwrap())
}

/// A map for such a setup.
pub(crate) fn map(kernels: usize) -> FeatureMap {
    FeatureMap::new(&spec(kernels, Amplitude::Normalised)).unwrap()
}

/// The map of a method in such a setup.
pub(crate) fn map_for(method: Method, kernels: usize) -> SampleMap {
    let setup = setup(SetupConfig { kernels, ..SetupConfig::default() });
    Case::new(method, setup).map()
}

pub(crate) fn spec(kernels: usize, amplitude: Amplitude) -> FeatureSpec {
    let mut dictionary = Kernel::paper_dictionary();
    dictionary.rotate_left(4);
    dictionary.truncate(kernels);
    FeatureSpec {
        kernels: dictionary,
        draw: Draw::Independent,
        inputs: INPUTS,
        frequencies: FREQUENCIES,
        seed: 5,
        amplitude,
    }
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
    map: SampleMap,
}

impl World {
    pub(crate) fn new(case: Case) -> Self {
        let config = case.setup.config();
        Self {
            case,
            nodes: (0..config.nodes as u32).map(|id| case.method.node(&case.setup, id)).collect(),
            server: case.method.server(&case.setup),
            map: case.map(),
        }
    }

    /// A world after some rounds.
    pub(crate) fn after(case: Case, rounds: u64) -> Self {
        let mut world = Self::new(case);
        (0..rounds).for_each(|t| world.round(t));
        world
    }

    /// Features and label of a node's sample at a time.
    pub(crate) fn sample(&self, node: usize, t: u64) -> (Vec<f32>, f32) {
        let x = numbers(1_000 * t + node as u64, INPUTS);
        let z = features(&self.map, &x);
        let y = (4.0 * x[0]).sin() + 0.3 * x[1];
        (z, if self.case.setup.config().loss == Loss::Logistic { y.signum() } else { y })
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
        let mut copy = Self::new(self.case);
        for (copy, node) in copy.nodes.iter_mut().zip(&self.nodes) {
            copy.restore(&node.save()).unwrap();
        }
        copy.server.restore(&self.server.save()).unwrap();
        copy
    }
}
