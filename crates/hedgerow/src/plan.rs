//! [`Plan`]: everything that a federation agrees on, checked once.

mod checks;
mod config;
mod importance;
mod masking;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use once_cell::race::OnceBox;

use crate::aggregation::Aggregation;
use crate::codec::Coding;
use crate::features::{FeatureError, SampleMap};
use crate::learning::{Classes, Objective};
use crate::limits::MAX_WIDTH;
use crate::message::NodeId;
use crate::method::{
    self, BadSample, BudgetTooSmall, FeatureKind, Halves, Layout, MethodInfo, NodeMethod,
    ServerMethod, Setup,
};
use crate::own_layer::{MAX_OWN_FEATURES, OwnLayer};
use crate::scaling::{NodeScaling, Rescaling, Scale, ServerScaling};

use checks::{at_least, at_most, check_classes, check_counts, check_features, check_rates};
pub use config::{DEFAULT_SCALE_NODES, PlanConfig, Scaling, SeriesRule};

/// Everything that a federation agrees on. Clones share it.
///
/// Whatever can be wrong is refused here: nodes, servers and federations of a plan can always be
/// made.
///
/// ```
/// use hedgerow::plan::{Plan, PlanConfig};
///
/// let plan = Plan::new(PlanConfig::default().inputs(3).nodes(2))?;
/// assert_eq!(plan.config().frequencies, Some(49)); // what a budget of 100 numbers allows
/// assert!(Plan::new(PlanConfig::default().nodes(0)).is_err());
/// # Ok::<(), hedgerow::plan::PlanError>(())
/// ```
#[derive(Clone)]
pub struct Plan {
    shared: Arc<Shared>,
}

struct Shared {
    config: PlanConfig,
    info: &'static MethodInfo,
    halves: Halves,
    setup: Setup,
    /// Made when it is first needed: simulations share one between several plans.
    map: OnceBox<Arc<SampleMap>>,
}

/// Why a configuration makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A number outside its bounds.
    #[error("{key} must be {bound}, but is {value}")]
    OutOfBounds {
        /// The key of the configuration.
        key: &'static str,
        /// Its bounds, in words or figures.
        bound: String,
        /// Its value.
        value: f64,
    },
    /// The dictionary makes no sense.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// The budget leaves no room for a model.
    #[error(transparent)]
    Budget(#[from] BudgetTooSmall),
    /// No method has this name.
    #[error("there is no method {name:?}")]
    UnknownMethod {
        /// The name that came.
        name: String,
    },
    /// What methods are compared with has neither nodes nor a server.
    #[error("{method} is a reference, which no federation can run")]
    Reference {
        /// Short name of the reference.
        method: &'static str,
    },
    /// A kernel where none is used, or none where one is.
    #[error("{method} {}", if *.takes_kernel { "needs a kernel" } else { "takes no kernel" })]
    Kernel {
        /// Short name of the method.
        method: &'static str,
        /// Whether it uses a single kernel.
        takes_kernel: bool,
    },
    /// The method can't minimise this loss.
    #[error("{method} has no {loss} loss")]
    Loss {
        /// Short name of the method.
        method: &'static str,
        /// Name of the loss.
        loss: &'static str,
    },
    /// A name of a class that is empty or comes twice.
    #[error("names of classes must differ and not be empty, but {name:?} doesn't")]
    ClassName {
        /// The name.
        name: String,
    },
    /// The method's server can't combine uploads like this.
    #[error("{method} can't have the aggregation {aggregation}, only the mean")]
    Aggregation {
        /// Short name of the method.
        method: &'static str,
        /// What was asked for.
        aggregation: Aggregation,
    },
    /// Masked sums don't say what else the plan needs.
    #[error("uploads can't be masked {what}")]
    Masked {
        /// What needs more.
        what: String,
    },
}

impl Plan {
    /// Checks a configuration: what comes from a wire, a file or a user is not trusted before.
    pub fn new(config: PlanConfig) -> Result<Self, PlanError> {
        Self::with_methods(config, &[])
    }

    /// The same, with methods beside those of this crate.
    pub fn with_methods(
        mut config: PlanConfig,
        others: &[&'static MethodInfo],
    ) -> Result<Self, PlanError> {
        let name = config.method.name();
        let other = others.iter().copied().find(|info| info.has_name(name));
        let unknown = || PlanError::UnknownMethod { name: name.to_owned() };
        let info = other.or_else(|| method::find(name)).ok_or_else(unknown)?;
        let method = info.name;
        let halves = info.halves.ok_or(PlanError::Reference { method })?;
        let classes = check_classes(&config)?;
        config.outputs = classes.map_or(config.outputs, Classes::outputs);
        check_counts(&config)?;
        if config.has_raw_labels()
            && let Scaling::Fixed(scale) = &mut config.scaling
        {
            scale.set_raw(config.outputs);
        }
        let allowed = info.frequencies(config.budget, &config.pof);
        let frequencies = match (info.features, config.frequencies) {
            // The budget alone decides on a dictionary.
            (FeatureKind::Dictionary(_), Some(frequencies)) => allowed.map(|_| frequencies)?,
            (_, Some(frequencies)) => frequencies,
            (_, None) => allowed?,
        };
        config.frequencies = Some(frequencies);
        let width = config.kernels.len().saturating_mul(frequencies).saturating_mul(2);
        at_least("budget", 1, config.budget)?;
        at_least("frequencies", 1, frequencies)?;
        at_most("kernels · frequencies · 2", MAX_WIDTH, width)?;
        let products = width.saturating_mul(config.inputs);
        at_most("kernels · frequencies · 2 · inputs", MAX_WIDTH * 64, products)?;
        let takes_kernel = info.takes_kernel;
        if takes_kernel != config.method.kernel().is_some() {
            return Err(PlanError::Kernel { method, takes_kernel });
        }
        let kernel = config.method.kernel().unwrap_or(0);
        at_most("the kernel of the method", config.kernels.len() - 1, kernel)?;
        if !(info.supports_loss)(&config.loss) {
            return Err(PlanError::Loss { method, loss: config.loss.name() });
        }
        let prefers = info.has_own_layer(&config.loss);
        config.personal = Some(config.personal.unwrap_or(prefers));
        check_rates(&config)?;
        let aggregation = config.aggregation;
        if !info.supports(aggregation) {
            return Err(PlanError::Aggregation { method, aggregation });
        }
        let mut setup = Setup::new(config.numbers(), kernel);
        if config.limits_labels || matches!(config.scaling, Scaling::Online { .. }) {
            setup = setup.with_label_limit(Scale::LIMIT);
        }
        let least = (info.least_memory)(&setup);
        if config.memory < least && config.memory != 0 {
            let bound = format!("0, for none, or at least {least} bytes");
            let value = config.memory as f64;
            return Err(PlanError::OutOfBounds { key: "memory", bound, value });
        }
        check_features(info, &setup, config.feature_spec())?;
        masking::check(info, &setup, &mut config)?;
        let map = OnceBox::new();
        Ok(Self { shared: Arc::new(Shared { config, info, halves, setup, map }) })
    }

    /// What was checked.
    pub fn config(&self) -> &PlanConfig {
        &self.shared.config
    }

    /// The description of its method.
    pub fn method(&self) -> &'static MethodInfo {
        self.shared.info
    }

    /// The numbers that the two halves of its method need.
    pub fn setup(&self) -> &Setup {
        &self.shared.setup
    }

    /// What turns scaled samples into features.
    pub fn map(&self) -> &SampleMap {
        self.shared_map()
    }

    #[expect(clippy::expect_used, reason = "all that can be wrong was refused by Plan::new")]
    fn shared_map(&self) -> &Arc<SampleMap> {
        let Shared { config, info, setup, map, .. } = &*self.shared;
        let make = || info.map(setup, &config.feature_spec()).expect("was checked");
        map.get_or_init(|| Box::new(Arc::new(make())))
    }

    /// Length of the features of a sample.
    pub fn width(&self) -> usize {
        self.shared.info.width(self.setup())
    }

    /// Whether each node has a layer of its own over the federation's predictions.
    pub fn has_own_layers(&self) -> bool {
        self.shared.config.personal == Some(true)
    }

    /// A new layer of a node's own over the predictions of one output.
    pub fn own_layer(&self) -> OwnLayer {
        OwnLayer::new(self.own_features())
    }

    /// Features that a node's own layer reads. Those of kernels are too many, and no few of them
    /// say enough.
    pub fn own_features(&self) -> usize {
        match self.shared.info.features {
            FeatureKind::Dictionary(_) | FeatureKind::Inputs => self.width().min(MAX_OWN_FEATURES),
            FeatureKind::Kernels | FeatureKind::Nothing => 0,
        }
    }

    /// Numbers in a sample, d.
    pub fn inputs(&self) -> usize {
        self.config().inputs
    }

    /// Labels of a sample, q.
    pub fn outputs(&self) -> usize {
        self.config().outputs
    }

    /// What its labels are, if they are classes.
    pub fn classes(&self) -> Option<Classes> {
        Classes::new(self.config().classes.len())
    }

    /// Numbers that a node keeps of a prediction: of classes, those of the shared model too.
    pub(crate) fn values(&self) -> usize {
        self.outputs() * if self.classes().is_some() { 2 } else { 1 }
    }

    /// Kernels in the dictionary, P.
    pub fn kernels(&self) -> usize {
        self.config().kernels.len()
    }

    /// The objective that models descend on.
    pub fn objective(&self) -> Objective {
        self.setup().objective()
    }

    /// Refuses a label that can't be learned from.
    pub fn check_label(&self, y: f32) -> Result<(), BadSample> {
        if self.classes().is_some() && y.abs() != 1.0 {
            return Err(BadSample::NotASign { label: y });
        }
        self.setup().check_label(y)
    }

    /// A new node half of its method.
    pub fn node_method(&self, id: NodeId) -> Box<dyn NodeMethod> {
        (self.shared.halves.node)(self.setup(), id, &|| Arc::clone(self.shared_map()))
    }

    /// A new server half of its method.
    pub fn server_method(&self) -> Box<dyn ServerMethod> {
        (self.shared.halves.server)(self.setup(), &|| Arc::clone(self.shared_map()))
    }

    /// A node's part of the scaling.
    pub fn node_scaling(&self) -> NodeScaling {
        let scaling = match &self.config().scaling {
            Scaling::None => NodeScaling::fixed(Scale::identity(self.inputs() + self.outputs())),
            Scaling::Fixed(scale) => NodeScaling::fixed(scale.clone()),
            Scaling::Online { kind } => NodeScaling::new(*kind, self.inputs()),
        };
        scaling.with_labels(self.outputs())
    }

    /// The server's part of the scaling; none if there is nothing to agree on.
    pub fn server_scaling(&self) -> Option<ServerScaling> {
        let Scaling::Online { kind } = self.config().scaling else { return None };
        let scaling = ServerScaling::new(kind, self.inputs()).with_labels(self.outputs());
        let scaling = scaling.with_first_nodes(self.config().first_scale_nodes());
        let raw_labels = self.config().has_raw_labels();
        Some(if raw_labels { scaling.with_raw_labels() } else { scaling })
    }

    /// Whether nodes and server agree on a scale as they learn.
    pub fn is_scaled_online(&self) -> bool {
        matches!(self.config().scaling, Scaling::Online { .. })
    }

    /// What takes the models of each output from one scale to another; none for an output whose
    /// models stay as they are because only other outputs changed.
    pub fn rescalings(&self, from: &Scale, to: &Scale) -> Vec<Option<Rescaling>> {
        let of_output = |output: usize| {
            let [from, to] = [from, to].map(|scale| scale.for_output(self.inputs(), output));
            (self.outputs() == 1 || from != to).then(|| self.map().rescaling(&from, &to))
        };
        (0..self.outputs()).map(of_output).collect()
    }

    /// What its messages consist of.
    pub fn layout(&self) -> Layout {
        (self.shared.info.layout)(self.setup())
    }

    /// A bound on the numbers of one output in any message.
    pub fn most_numbers(&self) -> usize {
        let frequencies = self.config().frequencies.unwrap_or(0);
        let models = self.kernels() * (2 * frequencies + 2);
        let report = 5 * (self.inputs() + self.outputs());
        let catch_up = (self.shared.info.catch_up_len)(self.setup());
        let budget = 4 * self.config().budget;
        models.max(budget).max(report).max(self.width()).max(catch_up) + 64
    }

    /// Whether uploads travel as they are.
    pub fn is_plain_up(&self) -> bool {
        self.config().compression.up == Coding::default()
    }

    /// Whether all messages travel as they are.
    pub fn is_plain(&self) -> bool {
        self.is_plain_up() && self.config().compression.down == Coding::default()
    }

    /// Numbers that a node of the naive extension would send, and hear, in a round.
    pub fn naive_numbers(&self) -> u64 {
        let models = self.kernels() * 2 * self.config().frequencies.unwrap_or(0);
        (models + self.kernels()) as u64
    }
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        self.config() == other.config()
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plan").field(self.config()).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::features::{Draw, Family, Kernel};
    use crate::learning::{Loss, Schedule};

    fn config(method: &str) -> PlanConfig {
        PlanConfig::default().method(method.parse().unwrap()).inputs(3)
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let laplacian = vec![Kernel { family: Family::Laplacian, variance: 1.0 }];
        let scale = Scale::from_ranges(&[(0.0, 1.0); 3]).unwrap();
        for (bad, parts) in [
            (config("nobody"), ["no method", "nobody"]),
            (config("central"), ["central", "reference"]),
            (config("sk"), ["sk", "needs a kernel"]),
            (config("mk:2"), ["mk", "takes no kernel"]),
            (config("sk:12"), ["at most 10", "is 11"]),
            (config("gr").aggregation(Aggregation::Median), ["gr", "median"]),
            (config("gr").budget(15), ["at least 16", "has 15"]),
            (config("gr").budget(15).frequencies(Some(4)), ["at least 16", "has 15"]),
            (config("mk").budget(3), ["at least 4", "has 3"]),
            (config("mk").budget(200_000), ["at most 100000", "is 200000"]),
            (config("mk").inputs(0), ["inputs", "is 0"]),
            (config("mk").inputs(20_000), ["at most 10000", "is 20000"]),
            (config("mk").outputs(0), ["outputs", "is 0"]),
            (config("mk").outputs(2_000), ["at most 1000", "is 2000"]),
            (config("mk").nodes(0), ["nodes", "is 0"]),
            (config("mk").nodes(1 << 32), ["nodes", "is 4294967296"]),
            (config("mk").kernels(vec![]), ["kernel", "0"]),
            (config("mk").kernels(laplacian).draw(Draw::Structured), ["structured", "laplacian"]),
            (config("mk").frequencies(Some(1 << 20)), ["frequencies", "at most"]),
            (config("mk").columns(vec!["a".into()]), ["columns", "must be 3, but is 1"]),
            (
                config("mk").scaling(Scaling::Fixed(scale)),
                ["scaling.columns", "must be 4, but is 3"],
            ),
            (config("mk").step_size(Schedule::Constant { scale: -1.0 }), ["step_size", "-1"]),
            (config("mk").ridge(f64::NAN), ["ridge", "NaN"]),
        ] {
            let refused = Plan::new(bad).unwrap_err().to_string();
            assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
        }
    }

    #[test]
    fn classes_are_not_scaled_whatever_their_number() {
        let scale = Scale::from_ranges(&[(-4.0, 4.0); 5]).unwrap();
        let plan = config("mk").outputs(2).loss(Loss::Logistic).scaling(Scaling::Fixed(scale));
        let plan = Plan::new(plan).unwrap();
        let Scaling::Fixed(scale) = &plan.config().scaling else { panic!("it was fixed") };
        let raw = Scale::identity(1).axis(0);
        let is_raw = [0, 1, 2, 3, 4].map(|column| scale.axis(column) == raw);
        assert_eq!(is_raw, [false, false, false, true, true]);
    }

    #[test]
    fn every_method_has_a_plan_with_both_halves() {
        let federated = method::METHODS.iter().filter(|info| info.halves.is_some());
        for info in federated {
            let spec = method::MethodSpec::from(*info);
            let spec = if info.takes_kernel { spec.with_kernel(2) } else { spec };
            let plan = Plan::new(PlanConfig::default().method(spec)).unwrap();
            assert_eq!(plan.method().name, info.name);
            assert_eq!(plan.map().width(), plan.width());
            assert_eq!(plan.node(0).round(), plan.server().round());
        }
    }

    #[test]
    fn plans_survive_as_json_and_numbers_must_agree() {
        let layers = [config("mk").personal(true), config("tr").personal(false)];
        for config in [config("sk:3"), config("gr").outputs(2)].into_iter().chain(layers) {
            let plan = Plan::new(config).unwrap();
            let json = serde_json::to_string(plan.config()).unwrap();
            let read: PlanConfig = serde_json::from_str(&json).unwrap();
            assert_eq!(Plan::new(read).unwrap(), plan);
            for (from, to) in [
                (r#""inputs":3,"budget""#, r#""inputs":4,"budget""#),
                (r#""seed":1,"aggregation""#, r#""seed":2,"aggregation""#),
                (r#""kernels":11"#, r#""kernels":10"#),
                (r#""personal""#, r#""personnel""#),
            ] {
                let bad = json.replace(from, to);
                assert_ne!(bad, json);
                assert!(serde_json::from_str::<PlanConfig>(&bad).is_err(), "{bad}");
            }
        }
    }

    #[test]
    fn a_method_prefers_own_layers_or_not_and_a_plan_may_say_otherwise() {
        let layers = |config: PlanConfig| {
            let written = serde_json::to_string(&config).unwrap();
            let plan = Plan::new(config).unwrap();
            // A plan says which, also to nodes of versions without a preference.
            assert_eq!(written, serde_json::to_string(plan.config()).unwrap());
            assert_eq!(plan.config().personal, Some(plan.has_own_layers()));
            plan.has_own_layers()
        };
        for (method, prefers) in [("gr", true), ("tr", true), ("mk", false), ("linear", false)] {
            assert_eq!(layers(config(method)), prefers, "{method}");
            assert!(
                layers(config(method).personal(true)) && !layers(config(method).personal(false))
            );
        }
        assert!(!layers(config("mk").loss(Loss::Logistic)));
    }
}
