//! [`Settings`] of a run: checked once, before any data is read. `defaults.toml` has every key with
//! its default.

use std::path::{Path, PathBuf};

use hedgerow::Plan;
use hedgerow::aggregation::Aggregation;
use hedgerow::features::{Amplitude, Draw, FeatureMap, FeatureSpec, Kernel};
use hedgerow::importance::ImportanceScope;
use hedgerow::learning::{Level, Loss};
use hedgerow::method::{Average, MkOptions};
use hedgerow::method::{FeatureKind, PofOptions, Reference};
use hedgerow_config::{ConfigError, Layer, LearningSection, Merged};
use toml::Table;

use crate::predictions;
pub use choices::{Arrivals, MethodChoice, MkVariant, Participation, Scope, Wire};
use config::Config;
pub use data::{DataChoice, Scaling, Source};
pub use error::SettingsError;
use hedgerow_data::partition::Partition;
pub use methods::LeftOut;
use methods::{PAPER, parse_methods};

mod choices;
mod config;
mod data;
mod error;
mod methods;

/// The commented defaults.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// A checked description of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What is learned from.
    pub data: DataChoice,
    /// What makes its numbers of the order of one.
    pub scaling: Scaling,
    /// K. `None` means as many as the data names, or else the default.
    pub nodes: Option<usize>,
    /// K if neither the user nor the data gives a number.
    pub default_nodes: usize,
    /// r.
    pub budget: usize,
    /// What to run, in this order, without repetition.
    pub methods: Vec<MethodChoice>,
    /// How samples are dealt to nodes.
    pub partition: Partition,
    /// Repetitions.
    pub trials: usize,
    /// T; `None` is as long as a file lasts, or a built-in stream's default.
    pub rounds: Option<usize>,
    /// Where everything random begins.
    pub seed: u64,
    /// Threads; 0 is one per core.
    pub threads: usize,
    /// Bytes that a run may take; none is what there is.
    pub memory_limit: Option<f64>,
    /// Rounds in the sliding window.
    pub window: usize,
    /// Where results go.
    pub out: PathBuf,
    /// The share of labels that intervals contain.
    pub interval: Level,
    /// Whether the importance of columns is measured, and whether nodes send it.
    pub importance: ImportanceScope,
    /// Where predictions go, if they are asked for.
    pub predictions: Option<PathBuf>,
    /// Where the model of the first federated method goes, if it is asked for.
    pub save_model: Option<PathBuf>,
    /// Whether results have the predictions of the first trial, as they do if they go to a file.
    pub keeps_predictions: bool,
    /// The dictionary.
    pub kernels: Vec<Kernel>,
    /// How frequencies are drawn.
    pub draw: Draw,
    /// Arrivals, dropout and late uploads.
    pub participation: Participation,
    /// All of it as it was written: defaults, file and flags together.
    pub effective: Table,
    /// Methods that were not asked for by name and are not possible with these settings.
    pub left_out: Vec<LeftOut>,
    /// The default methods. Some may be left out if they are not possible.
    is_default_choice: bool,
    learning: LearningSection,
}

/// What a run's data decides about its methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes<'a> {
    /// K.
    pub nodes: usize,
    /// d.
    pub inputs: usize,
    /// Targets, unless there are classes.
    pub outputs: usize,
    /// Names of the classes; empty if labels are numbers.
    pub classes: &'a [String],
    /// T; `None` if it is unknown.
    pub rounds: Option<usize>,
}

/// The defaults without their comments.
pub fn defaults_as_json() -> serde_json::Value {
    let table = DEFAULTS.parse::<Table>().ok();
    table.and_then(|table| serde_json::to_value(table).ok()).unwrap_or_default()
}

impl Settings {
    /// The defaults with layers over them: a later one wins. What the catalogue says of a named
    /// data set stands between the defaults and the layers.
    pub fn load(layers: &[Layer]) -> Result<Self, SettingsError> {
        let named = Merged::new(DEFAULTS, layers)?;
        let located = data::locate(&named.read::<Config>()?.data);
        let located = located.map_err(|error| at(&named, error))?;
        let known = located.settings.map(|settings| Layer::table("the catalogue", settings));
        let layers: Vec<Layer> = known.into_iter().chain(layers.iter().cloned()).collect();
        let merged = Merged::new(DEFAULTS, &layers)?;
        check(&merged, located.source).map_err(|error| at(&merged, error))
    }

    /// Frequencies per kernel, D, that the budget gives a choice.
    pub fn frequencies(&self, choice: MethodChoice) -> Result<usize, SettingsError> {
        Ok(choice.info.frequencies(self.budget, &PofOptions::default())?)
    }

    /// What the federation of a choice agrees on, for a run of some size and a seed. A choice that
    /// runs with every kernel in turn begins with the first; a reference has the plan of MK-OFL.
    pub fn plan(
        &self,
        choice: MethodChoice,
        Sizes { nodes, inputs, outputs, classes, rounds }: Sizes<'_>,
        seed: u64,
    ) -> Result<Plan, SettingsError> {
        let learning = &self.learning;
        let variant = choice.variant;
        let mk = MkOptions {
            count_nodes: !variant.no_k,
            average: if variant.voters { Average::Voters } else { Average::All },
        };
        let FeatureSpec { kernels, draw, amplitude, frequencies, .. } =
            self.feature_spec(choice, inputs, seed)?;
        let rounds = rounds.map(|rounds| rounds as u64);
        let mut config = learning
            .config(rounds)?
            .method(choice.spec())
            .inputs(inputs)
            .outputs(outputs.max(1))
            .classes(classes.to_vec())
            .nodes(nodes)
            .budget(self.budget)
            .frequencies(Some(frequencies))
            .kernels(kernels)
            .draw(draw)
            .amplitude(amplitude)
            .seed(seed)
            .mk(mk)
            .compression(choice.wire.compression())
            .personal(choice.layers());
        if choice.info.reference.is_some() {
            config.aggregation = Aggregation::Mean;
        }
        if variant.fixed_step {
            config.step_size = learning.fixed_step_size(rounds)?;
        }
        Ok(Plan::new(config)?)
    }

    /// An error for a method that isn't possible with these settings. Budgets are checked by
    /// [`plan`](Self::plan), except those of methods with features of their own.
    pub(crate) fn check_method(&self, choice: MethodChoice) -> Result<(), SettingsError> {
        let (loss, aggregation) = (self.loss(), self.aggregation());
        if matches!(choice.info.features, FeatureKind::Dictionary(_)) {
            self.frequencies(choice)?;
        }
        if !choice.info.supports(aggregation) {
            let bound = format!("mean for {}", choice.name());
            return Err(out_of_bounds("learning.aggregation", bound, aggregation));
        }
        let obstacle = if !(choice.info.supports_loss)(&loss) {
            let (name, loss) = (choice.info.name, loss.name());
            format!("without {name} (it can't learn with the {loss} loss)")
        } else if choice.personal == Some(true) && loss == Loss::Logistic {
            "without +personal (a node's own layer needs labels that are numbers)".to_owned()
        } else if choice.is(Reference::Hindsight) && loss != Loss::Squared {
            "without hindsight (its closed form needs the squared loss)".to_owned()
        } else {
            return Ok(());
        };
        let named = self.effective.get("federation").and_then(|section| section.get("methods"));
        let named = named.map(ToString::to_string).unwrap_or_default();
        Err(out_of_bounds("federation.methods", obstacle, named))
    }

    /// The method whose model is saved, if that is asked for: the first that is federated.
    pub fn model_choice(&self) -> Option<MethodChoice> {
        let is_federated = |choice: &&MethodChoice| {
            choice.scope == Scope::Federated && choice.info.halves.is_some()
        };
        self.save_model.as_ref()?;
        self.methods.iter().find(is_federated).copied()
    }

    /// Whether the methods are the default ones.
    pub fn has_default_methods(&self) -> bool {
        self.is_default_choice
    }

    /// The loss that is minimised.
    pub fn loss(&self) -> Loss {
        self.learning.loss()
    }

    /// How servers combine uploads.
    pub fn aggregation(&self) -> Aggregation {
        self.learning.aggregation
    }

    /// The map of a choice in a trial, for samples of `inputs` numbers.
    pub fn feature_spec(
        &self,
        choice: MethodChoice,
        inputs: usize,
        seed: u64,
    ) -> Result<FeatureSpec, SettingsError> {
        let variant = choice.variant;
        let kernels = self.kernels.iter().map(|kernel| match variant.frequencies {
            // σ^-2 = (10^(p-6))²: what multiplying by 10^(p-6) amounts to.
            true => Kernel { variance: (kernel.variance * kernel.variance).recip(), ..*kernel },
            false => *kernel,
        });
        let amplitude =
            if variant.unnormalised { Amplitude::Unnormalised } else { Amplitude::Normalised };
        let frequencies = self.frequencies(choice)?;
        Ok(FeatureSpec {
            kernels: kernels.collect(),
            draw: self.draw,
            amplitude,
            inputs,
            frequencies,
            seed,
        })
    }
}

/// Adds to an error where its key was set.
fn at(merged: &Merged, error: SettingsError) -> SettingsError {
    match error {
        SettingsError::Config(error) => merged.locate(error).into(),
        other => other,
    }
}

fn out_of_bounds(key: &str, bound: impl ToString, value: impl ToString) -> SettingsError {
    SettingsError::out_of_bounds(key, bound, value)
}

fn unknown_name(key: &str, name: &str, known: &[impl AsRef<str>]) -> SettingsError {
    ConfigError::unknown_name(key, name, known).into()
}

/// Bytes that a run may take; none is what the machine has left.
fn memory_limit(gigabytes: f64) -> Result<Option<f64>, SettingsError> {
    match gigabytes {
        gigabytes if gigabytes >= 0.0 => Ok(Some(1e9 * gigabytes).filter(|bytes| *bytes > 0.0)),
        other => Err(out_of_bounds(
            "run.memory_limit",
            "a number of gigabytes, or 0 for what the machine has left",
            other,
        )),
    }
}

fn check(merged: &Merged, source: Source) -> Result<Settings, SettingsError> {
    let Config { data, federation, run, learning, kernels, participation } = merged.read()?;
    let by_column = federation.partition.strip_prefix("column:").map(str::to_owned);
    let mut settings = Settings {
        scaling: data.scaling.clone(),
        data: data::choice(data, source, by_column.clone(), learning.loss())?,
        nodes: Some(federation.nodes).filter(|_| merged.is_given("federation.nodes")),
        default_nodes: federation.nodes,
        budget: federation.budget,
        methods: parse_methods(&federation.methods, federation.personal)?,
        partition: match by_column {
            Some(_) => Partition::Auto,
            None => Partition::parse(&federation.partition).ok_or_else(|| {
                unknown_name("federation.partition", &federation.partition, &Partition::names())
            })?,
        },
        trials: run.trials,
        rounds: Some(run.rounds).filter(|rounds| *rounds > 0),
        seed: run.seed,
        threads: run.threads,
        window: run.window,
        memory_limit: memory_limit(run.memory_limit)?,
        out: match run.out.as_str() {
            "" => return Err(out_of_bounds("run.out", "the name of a folder", "empty")),
            out => PathBuf::from(out),
        },
        interval: run.interval,
        importance: run.importance,
        keeps_predictions: !run.predictions.is_empty(),
        predictions: Some(run.predictions).filter(|file| !file.is_empty()).map(PathBuf::from),
        save_model: Some(run.save_model).filter(|file| !file.is_empty()).map(PathBuf::from),
        kernels: kernels.dictionary(),
        draw: kernels.draw,
        participation,
        effective: merged.table().clone(),
        left_out: Vec::new(),
        is_default_choice: false,
        learning,
    };
    settings
        .predictions
        .iter()
        .try_for_each(|file| predictions::check(file, Path::new(&settings.data.name)))?;
    let plain =
        |choice: &MethodChoice| MethodChoice { personal: None, reports_shared: false, ..*choice };
    let defaults: Config = Merged::new(DEFAULTS, &[])?.read()?;
    let defaults = parse_methods(&defaults.federation.methods, false)?;
    settings.is_default_choice =
        settings.methods.iter().map(plain).eq(defaults) || federation.methods == [PAPER];
    if settings.is_default_choice {
        let chosen = std::mem::take(&mut settings.methods);
        settings.methods = settings.keep_possible(chosen);
    }
    // All other errors are found here, before any data is read.
    for &choice in &settings.methods {
        settings.check_method(choice)?;
        let rounds = Some(settings.rounds.unwrap_or(1));
        let nodes = settings.default_nodes;
        let sizes = Sizes { nodes, inputs: 1, outputs: 1, classes: &[], rounds };
        settings.plan(choice, sizes, settings.seed)?;
        let spec = settings.feature_spec(choice, 1, settings.seed)?;
        FeatureMap::new(&FeatureSpec { frequencies: 1, ..spec })?;
    }
    check_model(&settings)?;
    Ok(settings)
}

/// An error if the run would have no model to save.
fn check_model(settings: &Settings) -> Result<(), SettingsError> {
    let Some(file) = &settings.save_model else { return Ok(()) };
    let refused = |bound: &str| Err(out_of_bounds("run.save_model", bound, file.display()));
    if settings.model_choice().is_none() {
        return refused("empty without a federated method, such as tr, among federation.methods");
    }
    if matches!(settings.scaling, Scaling::WholeFile { .. }) {
        return refused(
            "empty where data.scaling is whole-file: new rows have no such scale (try online)",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use toml::Value;

    use super::*;

    fn with(key: &str, value: impl Into<Value>) -> Result<Settings, SettingsError> {
        Settings::load(&[Layer::value("--set", key, value)])
    }

    #[test]
    fn defaults_are_the_paper_s_experiment() {
        let settings = Settings::load(&[]).unwrap();
        assert_eq!((settings.nodes, settings.budget, settings.kernels.len()), (None, 100, 11));
        assert_eq!(settings.kernels, Kernel::paper_dictionary());
        let mk = MethodChoice::parse("mk").unwrap();
        let (nodes, rounds) = (settings.default_nodes, Some(500));
        let sizes = Sizes { nodes, inputs: 1, outputs: 1, classes: &[], rounds };
        let plan = settings.plan(mk, sizes, 1).unwrap();
        assert_eq!(plan, Plan::new(hedgerow::PlanConfig::default()).unwrap());
        assert_eq!(settings.participation.describe(), "");
    }

    #[test]
    fn nonsense_is_refused_with_key_bound_and_value() {
        for (key, value, parts) in [
            ("federation.nodes", Value::from(0), ["federation.nodes", "at least 1", "0"]),
            ("federation.budget", Value::from(3), ["federation.budget", "at least 4", "3"]),
            ("federation.methods", Value::from(vec!["mc"]), ["federation.methods", "mk", "mc"]),
            ("kernels.variances", Value::from(vec![1.0, 0.0]), ["kernel 2", "positive", "0"]),
            ("kernels.variances", Value::from(Vec::<f64>::new()), ["kernels", "at least 1", "0"]),
            ("learning.ridge", Value::from(-0.5), ["ridge", "between 0 and", "-0.5"]),
            ("learning.loss", Value::from("huberr"), ["learning.loss", "huber", "huberr"]),
            (
                "participation.dropout",
                Value::from(1.5),
                ["participation.dropout", "between 0 and 1", "1.5"],
            ),
            (
                "participation.arrivals",
                Value::from("fixed:0"),
                ["participation.arrivals", "fixed:N", "fixed:0"],
            ),
            ("run.trials", Value::from(-1), ["run.trials", "at least 1", "-1"]),
            (
                "federation.nodes",
                Value::from(4_000_000_000i64),
                ["federation.nodes", "at most", "4000000000"],
            ),
            ("run.rounds", Value::from(i64::MAX), ["run.rounds", "at most", "9223372036854775807"]),
        ] {
            let message = with(key, value).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }

    #[test]
    fn the_least_budget_depends_on_the_method() {
        let load = |budget: i64, methods: Vec<&str>| {
            Settings::load(&[
                Layer::value("", "federation.budget", budget),
                Layer::value("", "federation.methods", methods),
            ])
        };
        assert!(load(2, vec!["sk"]).is_ok());
        assert!(load(1, vec!["sk"]).is_err());
        assert!(load(4, vec!["mk"]).is_ok());
        assert!(load(3, vec!["sk", "mk"]).is_err());
        assert!(load(16, vec!["gr"]).is_ok() && load(15, vec!["gr/q8"]).is_err());
        // Among the defaults it is left out where it can't be had.
        let has_tr = |key: &str, value: Value| {
            with(key, value).unwrap().methods.contains(&MethodChoice::parse("tr").unwrap())
        };
        assert!(has_tr("federation.budget", 16.into()) && !has_tr("federation.budget", 15.into()));
        assert!(has_tr("learning.loss", "logistic".into()));
    }

    #[test]
    fn aggregations_are_for_methods_that_can_do_with_them() {
        let load = |flags: &[&str]| Settings::load(&Layer::sets(flags).unwrap());
        let aggregation =
            |text| load(&[&format!("learning.aggregation={text}")]).unwrap().aggregation();
        assert_eq!(aggregation("median"), Aggregation::Median);
        assert_eq!(aggregation("trimmed-mean:0.2"), Aggregation::TrimmedMean { share: 0.2 });
        // Among the defaults tr is left out.
        let robust = with("learning.aggregation", "median").unwrap();
        let tr = MethodChoice::parse("tr").unwrap();
        assert!(robust.has_default_methods() && !robust.methods.contains(&tr));
        for (flags, parts) in [
            (&["learning.aggregation=average"][..], ["learning.aggregation", "median", "average"]),
            (&["learning.aggregation=trimmed-mean:0.5"], ["aggregation.share", "below 0.5", "0.5"]),
            (
                &["learning.aggregation=median", "federation.methods=[\"mk\", \"pof/q8\"]"],
                ["learning.aggregation", "mean for pof/q8", "median"],
            ),
        ] {
            let message = load(flags).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }

    #[test]
    fn hindsight_has_a_closed_form_for_the_squared_loss_only() {
        let settings = with("learning.loss", "huber").unwrap();
        assert!(!settings.methods.iter().any(|choice| choice.is(Reference::Hindsight)));
        assert!(Settings::load(&[]).unwrap().has_default_methods());
        let flags = ["learning.loss=huber", "federation.methods=[\"mk\", \"hindsight\"]"];
        let message = Settings::load(&Layer::sets(flags).unwrap()).unwrap_err().to_string();
        assert!(message.contains("hindsight") && message.contains("squared"), "{message}");
    }
}
