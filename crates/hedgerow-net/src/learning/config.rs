//! `[learning]` and `[kernels]` of a server's settings: what is learned, and how.

mod columns;

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::features::Kernel;
use hedgerow::importance::ImportanceScope;
use hedgerow::learning::{Classes, Loss};
use hedgerow::method::{METHODS, MethodInfo, MethodSpec};
use hedgerow::plan::Scaling;
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::scaling::{Scale, ScaleKind};
use hedgerow::{Plan, PlanConfig};
use hedgerow_config::{ConfigError, KernelSection, Layer, LearningSection, Merged, within};
use hedgerow_data::calendar::{CalendarChoice, Cycle};
use hedgerow_data::schema::TableSchema;
use serde::Deserialize;

use crate::plan_json::OtherMethods;
use columns::column_groups;

/// The commented defaults of a server.
pub const DEFAULTS: &str = include_str!("../serve-defaults.toml");

/// Reads `[learning]` and `[kernels]` of a server's defaults with layers over them. A dictionary,
/// if there is one, takes the place of families and variances.
pub fn read_plan(layers: &[Layer], dictionary: Option<Vec<Kernel>>) -> Result<Plan, ConfigError> {
    plan(&Merged::new(DEFAULTS, layers)?, dictionary, &[])
}

/// The plan that settings describe. `others` are methods beside the built-in ones.
pub(crate) fn plan(
    merged: &Merged,
    dictionary: Option<Vec<Kernel>>,
    others: OtherMethods<'_>,
) -> Result<Plan, ConfigError> {
    #[derive(Deserialize)]
    struct Common {
        learning: LearningSection,
        kernels: KernelSection,
    }
    #[derive(Deserialize)]
    struct Own {
        learning: LearningConfig,
    }
    let (Common { learning, kernels }, own) = (merged.read()?, merged.read::<Own>()?.learning);
    let dictionary = dictionary.unwrap_or_else(|| kernels.dictionary());
    let config = learning
        .config(None)
        .and_then(|config| own.over(config.kernels(dictionary).draw(kernels.draw), others));
    let plan = config.and_then(|config| {
        let refused = |error| ConfigError::from_plan(error, "learning.budget", "learning.method");
        Plan::with_methods(config, others).map_err(refused)
    });
    plan.map_err(|error| merged.locate(error))
}

/// What only a server's `[learning]` has.
#[derive(Debug, Deserialize)]
struct LearningConfig {
    method: String,
    columns: Vec<String>,
    inputs: usize,
    target: String,
    classes: Vec<String>,
    time: String,
    calendar: CalendarChoice,
    #[serde(deserialize_with = "within::<0, 10_000, _, _>")]
    lags: usize,
    lagged: Vec<String>,
    horizon: usize,
    exogenous: ExogenousName,
    nodes: usize,
    budget: usize,
    scaling: ScalingName,
    scale_nodes: ScaleNodes,
    compression: CompressionName,
    #[serde(deserialize_with = "within::<1, 65_535, _, _>")]
    every: u16,
    #[serde(deserialize_with = "within::<1, 65_535, _, _>")]
    part: u16,
    personal: Personal,
    importance: ImportanceScope,
    seed: u64,
    ranges: BTreeMap<String, [f64; 2]>,
    categories: BTreeMap<String, Vec<String>>,
}

/// Whether nodes have layers of their own.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "\"auto\", true or false")]
enum Personal {
    Said(bool),
    Auto(Auto),
}

/// Nodes that must have seen a label before there is a scale.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "\"auto\" or a number of nodes")]
enum ScaleNodes {
    Said(usize),
    Auto(Auto),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Auto {
    Auto,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ScalingName {
    None,
    Online,
    OnlineRange,
    Ranges,
}

/// Which row the inputs of a row's own columns come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ExogenousName {
    Auto,
    SameRow,
    Origin,
}

/// How many bits a number has, up and down or only up.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CompressionName {
    None,
    F16,
    Q8,
    Q4,
    F16Up,
    Q8Up,
    Q4Up,
}

impl LearningConfig {
    /// Puts what it says over a configuration.
    fn over(
        mut self,
        config: PlanConfig,
        others: OtherMethods<'_>,
    ) -> Result<PlanConfig, ConfigError> {
        self.expand_categories()?;
        let personal = match self.personal {
            Personal::Said(is_so) => Some(is_so),
            Personal::Auto(Auto::Auto) => None,
        };
        if personal == Some(true) && config.loss == Loss::Logistic {
            let bound = "\"auto\" or false with the logistic loss: a node's own layer needs labels \
                         that are numbers";
            return Err(outside("learning.personal", bound, true));
        }
        let mut inputs = self.inputs()?;
        let series = self.series(inputs)?;
        if let Some(rule) = &series {
            let targets: Vec<String> = self.targets().map(str::to_owned).collect();
            inputs += rule.lags * (targets.len() + rule.lagged.len())
                + Cycle::WIDTH * rule.calendar.len();
            let names = TableSchema::input_names(&self.columns, rule, &targets);
            self.add_ranges(rule, &names);
            if rule.inputs == 0 || !self.columns.is_empty() {
                self.columns = names;
            }
        }
        let method = self.method(config.kernels.len(), others)?;
        let scaling = self.scaling()?;
        let scale_nodes = match self.scale_nodes {
            ScaleNodes::Said(nodes) => Some(nodes),
            ScaleNodes::Auto(Auto::Auto) => None,
        };
        let config = config.method(method).inputs(inputs).nodes(self.nodes).budget(self.budget);
        let outputs = if self.classes.is_empty() { self.targets().count() } else { 1 };
        let config = config
            .seed(first_seed(self.seed))
            .scaling(scaling)
            .scale_nodes(scale_nodes)
            .compression(self.compression())
            .personal(personal)
            .importance(self.importance)
            .outputs(outputs)
            .series(series)
            .columns(self.columns)
            .target(self.target)
            .classes(self.classes);
        let groups = column_groups(&config);
        Ok(config.column_groups(groups))
    }

    fn method(&self, kernels: usize, others: OtherMethods<'_>) -> Result<MethodSpec, ConfigError> {
        let text = self.method.as_str();
        let served =
            || METHODS.iter().chain(others).copied().filter(|info: &&MethodInfo| info.travels());
        let name = text.split(':').next().unwrap_or_default();
        let known = served().find(|info| info.has_name(name));
        let Some(info) = known.filter(|info| info.takes_kernel || name == text) else {
            let names: Vec<String> = served()
                .map(|info| format!("{}{}", info.name, if info.takes_kernel { ":N" } else { "" }))
                .collect();
            return Err(ConfigError::unknown_name("learning.method", text, &names));
        };
        match text.parse::<MethodSpec>() {
            Ok(spec) if !info.takes_kernel => Ok(spec),
            Ok(spec) if spec.kernel().is_some_and(|kernel| kernel < kernels) => Ok(spec),
            _ => {
                let bound = format!("{name}:N with N from 1 to {kernels}, as there are kernels");
                Err(outside("learning.method", bound, format!("{text:?}")))
            }
        }
    }

    fn scaling(&self) -> Result<Scaling, ConfigError> {
        match self.scaling {
            ScalingName::None => Ok(Scaling::None),
            ScalingName::Online => Ok(Scaling::Online { kind: ScaleKind::Spread }),
            ScalingName::OnlineRange => Ok(Scaling::Online { kind: ScaleKind::Range }),
            ScalingName::Ranges => self.ranges().map(Scaling::Fixed),
        }
    }

    fn ranges(&self) -> Result<Scale, ConfigError> {
        let (columns, known) =
            (&self.columns, self.ranges.keys().cloned().collect::<Vec<_>>().join(", "));
        // Classes need no range.
        let targets: Vec<String> = match self.classes.is_empty() {
            true => self.targets().map(str::to_owned).collect(),
            false => Vec::new(),
        };
        let is_named = |name: &String| columns.contains(name) || targets.contains(name);
        if columns.is_empty()
            || !self.ranges.keys().all(is_named)
            || self.ranges.len() != columns.len() + targets.len()
        {
            let bound = format!(
                "one range for each column, which learning.columns must name, and for the label {:?}",
                self.target
            );
            return Err(outside("learning.ranges", bound, format!("of [{known}]")));
        }
        let named = columns.iter().chain(&targets).map(|name| self.ranges[name].into());
        let outputs = Classes::new(self.classes.len()).map_or(0, Classes::outputs);
        let ranges: Vec<(f64, f64)> =
            named.chain(std::iter::repeat_n((-1.0, 1.0), outputs)).collect();
        Scale::from_ranges(&ranges).map_err(|error| ConfigError::rejected("learning.ranges", error))
    }

    fn compression(&self) -> Compression {
        let (numbers, is_up_only) = match self.compression {
            CompressionName::None => (NumberFormat::F32, false),
            CompressionName::F16 => (NumberFormat::F16, false),
            CompressionName::Q8 => (NumberFormat::Bits8, false),
            CompressionName::Q4 => (NumberFormat::Bits4, false),
            CompressionName::F16Up => (NumberFormat::F16, true),
            CompressionName::Q8Up => (NumberFormat::Bits8, true),
            CompressionName::Q4Up => (NumberFormat::Bits4, true),
        };
        let [every, part] =
            [self.every, self.part].map(|count| NonZeroU16::new(count).unwrap_or(NonZeroU16::MIN));
        let up = Coding { numbers, part };
        let down = if is_up_only { Coding { numbers: NumberFormat::F32, part } } else { up };
        Compression { every, up, down }
    }
}

/// What a user's seed becomes, as in the first trial of a simulation.
pub fn first_seed(seed: u64) -> u64 {
    CounterRng::from_seed(seed).derive(Purpose::Trial, 0).bits_at(0)
}

pub(crate) fn outside(key: &str, bound: impl ToString, value: impl ToString) -> ConfigError {
    ConfigError::out_of_bounds(key, bound, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(changes: &str, dictionary: Option<Vec<Kernel>>) -> Result<Plan, ConfigError> {
        read_plan(&[Layer::toml("", changes)?], dictionary)
    }

    #[test]
    fn changes_go_over_the_defaults_and_a_dictionary_over_both() {
        let known =
            plan("[learning]\ninputs = 2\nridge = 1\n[kernels]\nvariances = [0.5, 2.0]", None)
                .unwrap();
        let kernels = vec![Kernel::gaussian(0.5), Kernel::gaussian(2.0)];
        assert_eq!(known.config().kernels, kernels);
        assert_eq!((known.inputs(), known.config().ridge), (2, 1.0));
        let given = plan("[learning]\ninputs = 2\nridge = 1.0", Some(kernels)).unwrap();
        assert_eq!(given, known);
    }

    #[test]
    fn each_text_of_a_column_is_an_input() {
        let known = plan(
            "[learning]\ncolumns = [\"a\", \"sky\", \"b\"]\nscaling = \"ranges\"\n\
             [learning.ranges]\na = [0, 9]\nb = [0, 9]\ny = [0, 1]\n\
             [learning.categories]\nsky = [\"clear\", \"light rain\"]",
            None,
        );
        let known = known.unwrap();
        assert_eq!(known.config().columns, ["a", "sky=clear", "sky=light rain", "b"]);
        assert_eq!(known.inputs(), 4);
        for (texts, part) in [
            ("sky = []", "1 to 1000 different texts"),
            ("sky = [\"rain\", \"rain\"]", "1 to 1000 different texts"),
            ("sky = [\" \"]", "none empty"),
            ("sly = [\"rain\"]", "columns of learning.columns (a, sky)"),
        ] {
            let changes =
                format!("[learning]\ncolumns = [\"a\", \"sky\"]\n[learning.categories]\n{texts}");
            let message = plan(&changes, None).unwrap_err().to_string();
            assert!(message.contains("learning.categories") && message.contains(part), "{message}");
        }
    }

    #[test]
    fn inputs_of_one_source_are_one_group_of_importance() {
        let of = |importance: &str| {
            let changes = format!(
                "[learning]\ncolumns = [\"a\", \"sky\", \"kind\", \"b\"]\n\
                 importance = \"{importance}\"\ntime = \"when\"\ncalendar = \"hour\"\nlags = 2\n\
                 [learning.categories]\n\
                 sky = [\"clear\", \"light rain\"]\nkind = [\"one\", \"two\", \"three\"]"
            );
            plan(&changes, None).unwrap()
        };
        for importance in ["local", "shared"] {
            let plan = of(importance);
            assert_eq!(plan.config().column_groups, [0, 1, 1, 2, 2, 2, 3, 4, 4, 5, 5]);
            let names = TableSchema::group_names(&plan);
            assert_eq!(names, ["a", "sky", "kind", "b", "past of y", "hour of when"]);
        }
        assert!(of("none").config().column_groups.is_empty());
        let none = plan("[learning]\ncolumns = [\"a\"]\nimportance = \"shared\"", None).unwrap();
        assert!(none.config().column_groups.is_empty());
        let message = plan("[learning]\ninputs = 2\nimportance = \"all\"", None).unwrap_err();
        let message = message.to_string();
        assert!(message.contains("learning.importance") && message.contains("shared"), "{message}");
    }

    #[test]
    fn a_plan_says_how_inputs_follow_from_time_and_past() {
        let known = plan(
            "[learning]\ncolumns = [\"a\"]\ntarget = \"load\"\ntime = \"day+clock\"\nlags = 2\n\
             lagged = [\"wind\"]\ncalendar = \"hour\"\nscaling = \"ranges\"\n\
             [learning.ranges]\na = [0, 9]\nload = [0, 1]\nwind = [0, 5]",
            None,
        );
        let known = known.unwrap();
        let names = ["a", "load -1", "load -2", "wind -1", "wind -2", "hour sine", "hour cosine"];
        assert_eq!(
            (&known.config().columns[..], known.inputs()),
            (&names.map(str::to_owned)[..], 7)
        );
        let rule = known.config().series.clone().unwrap();
        assert_eq!(
            (rule.inputs, rule.time, rule.origin),
            (1, vec!["day".into(), "clock".into()], true)
        );
        for (text, parts) in [
            ("calendar = \"auto\"", ["learning.calendar", "hour, weekday, yearday"]),
            ("calendar = \"hours\"", ["learning.calendar", "hour, weekday, yearday"]),
            ("calendar = \"hour\"", ["learning.calendar", "learning.time"]),
            ("lags = 10001", ["learning.lags", "10000"]),
            ("lags = 10000", ["learning.lags", "at most 10000 inputs"]),
            ("lags = 1\nhorizon = 2", ["learning.horizon", "1"]),
            ("lagged = [\"b\"]", ["learning.lags", "at least 1"]),
            ("lags = 1\nlagged = [\"y\"]", ["learning.lagged", "\"y\""]),
            ("lags = 1\nclasses = [\"no\", \"yes\"]", ["learning.lags", "class"]),
            ("time = \"a\"\ncalendar = \"hour\"", ["learning.time", "\"a\""]),
            ("exogenous = \"later\"", ["learning.exogenous", "origin"]),
        ] {
            let message = plan(&format!("[learning]\ncolumns = [\"a\"]\n{text}"), None);
            let message = message.unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
        }
    }

    #[test]
    fn own_layers_follow_the_method_unless_something_is_said() {
        let layers = |more: &str| {
            plan(&format!("[learning]\ninputs = 2\n{more}"), None).map(|plan| plan.has_own_layers())
        };
        for (said, has_layers) in [
            ("method = \"gr\"", true),
            ("method = \"gr\"\npersonal = \"auto\"", true),
            ("method = \"gr\"\npersonal = false", false),
            ("method = \"mk\"", false),
            ("method = \"mk\"\npersonal = true", true),
            ("method = \"mk\"\nloss = \"logistic\"", false),
        ] {
            assert_eq!(layers(said).unwrap(), has_layers, "{said}");
        }
        for said in ["personal = 1", "personal = \"yes\""] {
            let message = layers(said).unwrap_err().to_string();
            assert!(message.contains("learning.personal") && message.contains("auto"), "{message}");
        }
        let message = layers("method = \"mk\"\nloss = \"logistic\"\npersonal = true");
        let message = message.unwrap_err().to_string();
        assert!(message.contains("learning.personal") && message.contains("logistic"), "{message}");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (changes, parts) in [
            ("", ["learning.columns", "learning.inputs"]),
            ("[learning]\ninputs = 2\nrigde = 1", ["learning.rigde", "ridge"]),
            ("[learning]\ninputs = \"2\"", ["learning.inputs", "a whole number"]),
            ("[learning]\ninputs = 2\nbudget = 3", ["learning.budget", "at least 16"]),
            ("[learning]\ninputs = 20000", ["inputs", "at most 10000"]),
        ] {
            let message = plan(changes, None).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{changes}: {message}");
        }
        assert!(plan("[learning]\ninputs = 2", Some(Vec::new())).is_err());
    }
}
