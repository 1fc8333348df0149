//! The results of a run: filled by [`crate::run`], read by the summary, the curves, the figures and
//! the report.

mod sampled;
mod stored;

pub use sampled::{
    ColumnImportance, CoursePoint, DeviceCourse, ImportanceResult, SampledPredictions,
};
pub use stored::{StoredError, from_stored_json, to_stored_json};

use hedgerow::method::{MethodInfo, Reference, Role, find};
use hedgerow_data::text::counted;
use hedgerow_model::Model;
use serde::{Deserialize, Serialize};

use crate::measure::Measure;
use crate::predictions::MethodPredictions;
use crate::role::role_of;
use crate::settings::Scope;

/// The results of a finished run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Results {
    /// Version of this layout, as written to `summary.json`.
    pub schema: u32,
    /// Version of the program that made it.
    pub version: String,
    /// Every setting of the run, defaults included, section by section.
    pub settings: serde_json::Value,
    /// The data of the run.
    pub data: DataSummary,
    /// What was done to make numbers of the order of one, in words; empty if nothing was.
    #[serde(default)]
    pub scaling: String,
    /// Number of nodes, K.
    pub nodes: usize,
    /// Names of the nodes, if the data names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_names: Vec<String>,
    /// Number of rounds, T.
    pub rounds: usize,
    /// How many were asked for, if the data has fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_asked: Option<usize>,
    /// Numbers one message may carry, r.
    pub budget: usize,
    /// One label per kernel of the dictionary, such as `gaussian σ²=0.1`.
    pub kernels: Vec<String>,
    /// Independent repetitions with fresh random features.
    pub trials: usize,
    /// The seed that everything random came from.
    pub seed: u64,
    /// The partition of samples to nodes.
    pub partition: String,
    /// Name of the loss that was minimised.
    pub loss: String,
    /// Names of the targets, if there are several. Errors of a method are then means over targets,
    /// each in units of its own standard deviation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Names of the classes; empty if labels are numbers. The error of a class is 1 if it is wrong,
    /// else 0, so every squared error of a method is a share of wrong classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// The share of labels that intervals are to contain.
    pub interval: f64,
    /// Rounds in the sliding window of `mse_last_window` and of the windowed curves.
    pub window: usize,
    /// Share of node-rounds that lost contact, and the like, in words; empty when all nodes took
    /// part in all rounds.
    pub participation: String,
    /// Methods that were not asked for by name and not run, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The best kernel in hindsight, counted from 1: by `sk` if it ran, else by the best fixed
    /// function.
    pub best_kernel: Option<usize>,
    /// One entry per method; `sk` has one per kernel.
    pub methods: Vec<MethodResult>,
    /// The predictions of the first trial, if they were asked for; not written to the summary.
    #[serde(skip)]
    pub predictions: Vec<MethodPredictions>,
    /// What was learned in the first trial, if it was asked for; not written to the summary.
    #[serde(skip)]
    pub model: Option<Model>,
    /// Bytes of memory that the run was expected to take, where that was known beforehand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Wall time of the whole run in seconds.
    pub seconds: f64,
}

/// The data of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DataSummary {
    /// Name of the stream or path of the file.
    pub name: String,
    /// Samples dealt to the nodes, without those that have no label.
    pub samples: usize,
    /// Numbers per sample, d.
    pub features: usize,
    /// Name of the label; empty if it has none.
    #[serde(default)]
    pub target: String,
    /// Where it comes from, as far as is known; empty for a user's own file.
    #[serde(default)]
    pub provenance: String,
    /// What inputs are of when a prediction is made, in words; empty if samples have no order.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub inputs: String,
    /// Inputs that had no value and were imputed.
    #[serde(default)]
    pub missing_inputs: u64,
    /// Samples that had no label and were skipped.
    #[serde(default)]
    pub missing_labels: u64,
    /// Rows that were left out because the row before has their time.
    #[serde(default)]
    pub repeated_rows: u64,
}

/// The results of one method.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MethodResult {
    /// Name on the command line: `mk`, `sk`, `naive`, `central`, `central-batch`, `local`, `last`,
    /// `mean`, `hindsight`; a variant of a method has its own after a colon, as in `mk:voters`.
    pub name: String,
    /// The kernel of `sk`, or the best one of `hindsight`, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<usize>,
    /// The best `sk` in hindsight.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub best: bool,
    /// Mean squared error over every prediction of every node.
    pub mse: Moments,
    /// The same in each trial. Trials share their random features between methods, so differences
    /// are to be taken trial by trial.
    pub mse_trials: Vec<f64>,
    /// The same over the last window of rounds; not for `hindsight`, nor where a trial had no
    /// prediction in it.
    pub mse_last_window: Option<Moments>,
    /// Mean absolute error over every prediction of every node; not for `hindsight` and classes.
    pub mae: Option<Moments>,
    /// The share of the labels' variance that predictions explain, R², over trials; not for
    /// `hindsight` and classes.
    pub r2: Option<f64>,
    /// Intervals around predictions; not for `hindsight`, classes and many nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<IntervalResult>,
    /// Errors at each node, over trials; empty for `hindsight` and many nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<SubsetError>,
    /// Errors in each hour of the day, over trials; empty for `hindsight` and data without dates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hours: Vec<SubsetError>,
    /// The same on each day of the week, from Monday.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weekdays: Vec<SubsetError>,
    /// Importance of each column in the first trial, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importance: Option<ImportanceResult>,
    /// Mean loss per prediction, without the ridge term.
    pub mean_loss: Moments,
    /// Errors for each of several targets, in its own unit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetError>,
    /// Measures of classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassResult>,
    /// Numbers sent to the server, per node and round.
    pub numbers_up: f64,
    /// Numbers received from the server, per node and round.
    pub numbers_down: f64,
    /// Payload bytes sent to the server, per node and round.
    pub bytes_up: f64,
    /// Payload bytes received from the server, per node and round.
    pub bytes_down: f64,
    /// Share of rounds in which each kernel made the predictions (weights, where a method mixes
    /// kernels).
    pub selected: Vec<f64>,
    /// Share of votes for each kernel; empty if the method has no votes.
    pub votes: Vec<f64>,
    /// Uploads that the server took, per node and round.
    pub uploads_accepted: f64,
    /// Uploads that came after their round had closed, per node and round.
    pub uploads_late: f64,
    /// Regret against the best fixed function in hindsight, ridge terms included: of the method's
    /// own kernel for `sk`, of the best kernel for the others. Only for the squared loss.
    pub regret: Option<Regret>,
    /// Seconds spent in this method, summed over trials; features are shared evenly by those that
    /// use them.
    pub seconds: f64,
    /// Course over time; written to `curves.csv`, not to the summary.
    #[serde(skip)]
    pub curve: Curve,
    /// Some of the predictions of the method that a report is about, for its figures; not written
    /// to the summary.
    #[serde(skip)]
    pub sampled: Option<SampledPredictions>,
}

/// How intervals did, over trials.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct IntervalResult {
    /// The share of labels within their intervals.
    pub coverage: f64,
    /// Mean width of intervals, in the label's own unit.
    pub width: f64,
}

/// The error of one of several targets, in its own unit, over trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TargetError {
    /// Name of the target.
    pub target: String,
    /// Mean squared error.
    pub mse: f64,
    /// Mean absolute error.
    pub mae: f64,
    /// The share of the target's variance that predictions explain.
    pub r2: f64,
}

/// How good predictions of classes are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClassResult {
    /// Share of right classes.
    pub accuracy: Moments,
    /// Mean over classes of the share of their samples that are found.
    pub balanced_accuracy: Moments,
    /// Mean of −ln of the probability of the right class.
    pub log_loss: Moments,
    /// Area under the ROC curve: the chance that a sample of a class has a larger probability of it
    /// than another sample; of several classes, the mean over them.
    pub auc: Moments,
    /// Of each true class, how often each class was predicted, in all trials. Empty in runs that
    /// earlier versions stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confusion: Vec<Vec<u64>>,
}

/// The error of some of the predictions: those at a node, or in an hour of the day.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SubsetError {
    /// Predictions in all trials.
    pub predictions: u64,
    /// Mean squared error over them, or the share of wrong classes; 0 if there are none.
    pub mse: f64,
}

/// Mean and standard deviation over trials.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Moments {
    /// Mean over trials.
    pub mean: f64,
    /// Sample standard deviation over trials; 0 for a single one.
    pub sd: f64,
}

/// Regret R_T at the end, and how it grew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Regret {
    /// Mean of R_T over trials.
    pub mean: f64,
    /// Its standard deviation over trials.
    pub sd: f64,
    /// Exponent a of the fit R_t ~ t^a over the last two decades; absent if the regret is not
    /// positive there.
    pub exponent: Option<f64>,
}

/// The course of one method over time, averaged over trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Curve {
    /// Rounds at which the other columns were taken, ascending, from 1.
    pub rounds: Vec<u64>,
    /// MSE(t) over all predictions up to round t.
    pub mse: Vec<Moments>,
    /// Mean squared error over the sliding window that ends at t; empty for `hindsight`, NaN
    /// without predictions in the window.
    pub mse_window: Vec<Moments>,
    /// Mean loss over all predictions up to round t, without the ridge term; empty for `hindsight`.
    pub loss: Vec<Moments>,
    /// The share of labels within their intervals over the same window; empty without intervals,
    /// NaN without one in the window.
    pub coverage: Vec<Moments>,
    /// Per point, the share of each kernel in making the predictions of that round (over trials).
    /// For `mk` this is the fraction of trials in which the kernel was the selected one.
    pub shares: Vec<Vec<f64>>,
    /// Rounds at which the regret was taken (coarser than `rounds`); empty if it was not.
    pub regret_rounds: Vec<u64>,
    /// R_t at those rounds.
    pub regret: Vec<Moments>,
}

impl MethodResult {
    /// Name for tables and legends: `mk`, or `sk 6` where there is one entry per kernel.
    pub fn label(&self) -> String {
        label(&self.name, self.kernel)
    }

    /// The description of its method. That of a variant (`mk:voters`, `sk/q8`), and of a method
    /// that is not in this program, says nothing: it is [`MethodInfo::BASE`].
    pub fn info(&self) -> &'static MethodInfo {
        static UNKNOWN: MethodInfo = MethodInfo::BASE;
        find(&self.name).unwrap_or(&UNKNOWN)
    }

    /// What it is in a comparison; a variant is what its method is.
    pub fn role(&self) -> Role {
        role_of(&self.name)
    }

    /// Whether it is this reference.
    pub fn is(&self, reference: Reference) -> bool {
        self.info().reference == Some(reference)
    }

    /// Whether it is a trivial forecast: a node's last label or mean, or the previous label of all.
    pub fn is_trivial(&self) -> bool {
        self.role() == Role::Trivial
    }
}

impl Results {
    /// Notes about the data and the nodes, besides sizes: heading and text.
    pub fn circumstances(&self) -> Vec<(&'static str, String)> {
        let DataSummary {
            provenance, inputs, missing_inputs, missing_labels, repeated_rows, ..
        } = &self.data;
        let (inputs_missing, labels_missing) =
            (counted(*missing_inputs, "input"), counted(*missing_labels, "sample"));
        let missing = format!("{inputs_missing} imputed, {labels_missing} without a label skipped");
        let repeated = format!(
            "{} with the time of the row before (data.duplicates = \"first\")",
            counted(*repeated_rows, "row")
        );
        let fewer = self.rounds_asked.map(|asked| {
            format!("the data has {}, {asked} were asked for", counted(self.rounds, "round"))
        });
        let targets = (!self.targets.is_empty()).then(|| {
            let names = self.targets.join(", ");
            format!("{names}; errors of all together are in units of their standard deviations")
        });
        let all = [
            ("Data", Some(provenance.clone()).filter(|words| words != "generated")),
            ("Inputs", Some(inputs.clone())),
            ("Classes", Some(self.classes.join(", "))),
            ("Targets", targets),
            ("Scaling", Some(self.scaling.clone())),
            ("Missing", (missing_inputs + missing_labels > 0).then_some(missing)),
            ("Left out", (*repeated_rows > 0).then_some(repeated)),
            ("Rounds", fewer),
            ("Participation", Some(self.participation.clone())),
            ("Left out", Some(self.left_out.join("; "))),
        ];
        all.into_iter()
            .filter_map(|(name, words)| Some((name, words.filter(|words| !words.is_empty())?)))
            .collect()
    }

    /// The stream's name, or the file's name without its folders.
    pub fn data_name(&self) -> &str {
        let name = self.data.name.as_str();
        name.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or(name)
    }

    /// The sizes of the run in a line.
    pub fn sizes(&self) -> String {
        format!(
            "K = {}, r = {} per message, {}",
            counted(self.nodes, "node"),
            counted(self.budget, "number"),
            counted(self.trials, "trial")
        )
    }

    /// The method that a report is about: the one with the least error of those that one could
    /// choose for a federation and that send less than all models; else of all that learn.
    pub fn subject(&self) -> Option<&MethodResult> {
        self.subject_place().map(|place| &self.methods[place])
    }

    pub(crate) fn subject_place(&self) -> Option<usize> {
        let measure = Measure::of(self);
        let least = |wanted: &dyn Fn(&MethodResult) -> bool| {
            let error = |place: &usize| measure.moments(&self.methods[*place]).mean;
            let found = (0..self.methods.len()).filter(|place| wanted(&self.methods[*place]));
            found.min_by(|a, b| error(a).total_cmp(&error(b)))
        };
        let is_candidate = |method: &MethodResult| {
            let info = method.info();
            let is_alone = method.name.ends_with(Scope::Alone.suffix());
            method.role() == Role::Choice && !is_alone && !info.is_local && !info.uploads_all_models
        };
        let learns =
            |method: &MethodResult| !method.is(Reference::Hindsight) && !method.is_trivial();
        least(&is_candidate).or_else(|| least(&learns)).or(if self.methods.is_empty() {
            None
        } else {
            Some(0)
        })
    }

    /// The first method of this name.
    pub fn method(&self, name: &str) -> Option<&MethodResult> {
        self.methods.iter().find(|method| method.name == name)
    }
}

/// Name for tables of a method, and of its kernel if it has an entry for each.
pub(crate) fn label(name: &str, kernel: Option<usize>) -> String {
    kernel.map_or_else(|| name.to_owned(), |kernel| format!("{name} {kernel}"))
}

/// The sizes of several runs in a line; all of them where runs differ.
pub(crate) fn all_sizes<'r>(runs: impl Iterator<Item = &'r Results>) -> String {
    let all = each_once(runs.map(Results::sizes));
    if all.is_empty() { "No data set was available.".to_owned() } else { all.join("; ") }
}

/// Every value once, in the order of their first appearance.
pub(crate) fn each_once<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut each = Vec::new();
    for value in values {
        if !each.contains(&value) {
            each.push(value);
        }
    }
    each
}
