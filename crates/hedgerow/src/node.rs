//! [`Node`]: everything a device does, without sockets, files and clocks. It predicts, learns,
//! hears the server and says what there is to say; the driver decides when.

mod learning;
mod link;
mod masked;
mod outcome;
mod pending;
mod saved;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::codec::{Compression, Encoder, Reference};
use crate::features::Features;
use crate::importance::{GroupImportance, ImportanceMeter};
use crate::learning::{Calibration, ErrorQuantiles, Interval, Level, Loss};
use crate::limits::MAX_HELD;
use crate::masking::{NodeMasks, RoundTag};
use crate::message::{NodeId, Report};
use crate::method::NodeMethod;
use crate::own_layer::OwnLayer;
use crate::plan::{Plan, PlanConfig};
use crate::scaling::{NodeScaling, Rescaling};

use learning::{measure_importance, predict_mapped};
use link::Buffers;
pub use link::LinkSnapshot;
pub use masked::BadStream;
pub use outcome::{Answer, BadInput, ForgottenSamples, NodeTally};
use pending::{Pending, Prediction};

/// A node of a federation. [`Plan::node`] makes one.
///
/// ```
/// use hedgerow::{Plan, PlanConfig};
///
/// let plan = Plan::new(PlanConfig::default().inputs(1).nodes(1))?;
/// let (mut node, mut server) = (plan.node(0), plan.server());
/// node.connected();
/// for t in 0..200 {
///     server.opening(0, false).try_for_each(|message| node.hear(&message))?;
///     let x = (t % 10) as f32 / 10.0;
///     node.learn(&[x], &[x * x])?;
///     let mut said = Vec::new();
///     node.speak(false, |message| said.push(message));
///     said.iter().try_for_each(|message| server.accept(0, message))?;
///     server.close_round();
/// }
/// assert!((node.predict(&[0.5])?.value - 0.25).abs() < 0.05);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Node {
    plan: Plan,
    id: NodeId,
    /// One for each output.
    pub(crate) heads: Vec<Box<dyn NodeMethod>>,
    /// One for each output, if the plan has them.
    pub(crate) own: Vec<OwnLayer>,
    /// One for each output; empty if nothing is compressed.
    pub(crate) encoders: Vec<Encoder>,
    /// If the plan asks for it.
    importance: Option<Box<ImportanceMeter>>,
    /// If uploads are masked and a stream of masks is open.
    masks: Option<Box<NodeMasks>>,
    /// What raw samples and messages need; nodes that are only given features do without.
    raw: Option<Box<Raw>>,
}

struct Raw {
    scaling: NodeScaling,
    /// Whether samples that come before the first scale wait for it.
    holds_unscaled: bool,
    state: State,
    /// The errors of each output's predictions, and the level of the intervals of answers.
    errors: Vec<ErrorQuantiles>,
    level: Level,
    /// What makes probabilities of predictions, where labels are classes.
    calibration: Calibration,
    /// Whether the buffers have a prediction of a model.
    has_answered: bool,
    link: LinkSnapshot,
    /// The latest broadcast of each output; empty if nothing is compressed.
    known: Vec<Reference>,
    /// What the round's masks belong to, if uploads are masked and a broadcast came.
    tag: Option<RoundTag>,
    scratch: Scratch,
}

/// What has to survive a restart, beside the heads and the scaling.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct State {
    run: String,
    pending: Pending,
    /// Samples that came after the round's upload had left, or before the first scale.
    held: Vec<Held>,
    /// Samples learned in the current round.
    learned: u64,
    unacked: UnackedErrors,
    /// What the latest upload told, and in which round, until it is known to be taken.
    told: Option<(u64, UnackedErrors)>,
    tally: NodeTally,
    /// The latest report. Whether it arrived is not known, so it is sent again on the next
    /// connection.
    report: Option<Report>,
}

/// Errors that the server doesn't know of yet.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct UnackedErrors {
    samples: u32,
    squared_error: f64,
}

/// A sample that waits to be learned from.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Held {
    x: Vec<f32>,
    y: Vec<f32>,
}

/// Buffers.
#[derive(Default)]
struct Scratch {
    x: Vec<f32>,
    z: Vec<f32>,
    /// The node's predictions, in the label's own unit; of classes, then those of the shared model.
    values: Vec<f32>,
    /// The probability of each class; empty if labels are numbers.
    probabilities: Vec<f32>,
    /// The ranges in which the labels of the predictions are expected.
    intervals: Vec<Option<Interval>>,
    buffers: Buffers,
}

impl Plan {
    /// A new node.
    pub fn node(&self, id: NodeId) -> Node {
        Node {
            plan: self.clone(),
            id,
            heads: (0..self.outputs()).map(|_| self.node_method(id)).collect(),
            own: self.own_layers(),
            encoders: self.encoders(id),
            importance: self.importance_meter(id).map(Box::new),
            masks: None,
            raw: None,
        }
    }

    /// The layers of a node's own, one for each output, if it has any.
    fn own_layers(&self) -> Vec<OwnLayer> {
        let outputs = if self.has_own_layers() { self.outputs() } else { 0 };
        (0..outputs).map(|_| self.own_layer()).collect()
    }

    /// What makes a node's uploads smaller, for each output; nothing if all is plain.
    fn encoders(&self, id: NodeId) -> Vec<Encoder> {
        let PlanConfig { compression, seed, .. } = *self.config();
        let outputs = if compression == Compression::default() { 0 } else { self.outputs() };
        (0..outputs).map(|_| Encoder::for_node(compression.up, seed, id)).collect()
    }
}

impl Raw {
    fn new(plan: &Plan) -> Self {
        Self {
            scaling: plan.node_scaling(),
            holds_unscaled: false,
            state: State::default(),
            errors: vec![ErrorQuantiles::default(); plan.outputs()],
            level: Level::default(),
            calibration: Calibration::default(),
            has_answered: false,
            link: LinkSnapshot::new(plan),
            known: Vec::new(),
            tag: None,
            scratch: Scratch {
                x: vec![0.0; plan.inputs()],
                z: vec![0.0; plan.width()],
                values: vec![0.0; plan.values()],
                intervals: vec![None; plan.outputs()],
                ..Scratch::default()
            },
        }
    }

    fn is_scaled(&self) -> bool {
        self.scaling.scale().is_some()
    }

    /// Errors of predictions in a scale that was worth nothing say nothing of those to come.
    fn restart(&mut self, output: usize) {
        self.errors[output] = ErrorQuantiles::default();
        let State { tally, unacked, told, .. } = &mut self.state;
        (tally.scored, tally.squared_error) = (0, 0.0);
        *unacked = UnackedErrors::default();
        told.iter_mut().for_each(|(_, told)| *told = UnackedErrors::default());
    }

    /// Writes the probabilities of the classes that the values in the buffers stand for. Returns
    /// the likeliest class.
    fn classify(&mut self, plan: &Plan) -> Option<usize> {
        let (classes, loss) = (plan.classes()?, plan.objective().loss);
        let Scratch { values, probabilities, .. } = &mut self.scratch;
        self.calibration.probabilities(values, loss, probabilities);
        Some(classes.likeliest(probabilities))
    }

    /// The range in which the label of the latest prediction of an output is expected.
    fn interval(&self, plan: &Plan, output: usize, level: Level) -> Option<Interval> {
        let errors = &self.errors[output];
        let has_numbers = plan.objective().loss != Loss::Logistic && plan.classes().is_none();
        has_numbers.then(|| errors.interval(self.scratch.values[output], level)).flatten()
    }
}

impl Node {
    /// Its number in the federation.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// What the federation agreed on.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The run that it belongs to, where a driver has told it.
    pub fn run(&self) -> &str {
        self.raw.as_ref().map_or("", |raw| &raw.state.run)
    }

    /// Remembers the run that it belongs to.
    pub fn set_run(&mut self, run: &str) {
        self.raw().state.run = run.to_owned();
    }

    /// The round that it is in.
    pub fn round(&self) -> u64 {
        self.heads[0].round()
    }

    /// The method's node half of an output.
    ///
    /// # Panics
    /// If the plan has no such output.
    pub fn method(&self, output: usize) -> &dyn NodeMethod {
        self.heads[output].as_ref()
    }

    /// What it has seen and done with raw samples.
    pub fn tally(&self) -> NodeTally {
        self.raw.as_ref().map_or_else(NodeTally::default, |raw| raw.state.tally)
    }

    /// Whether samples that come before the first scale are kept and learned once there is one.
    /// Otherwise they only help to make it.
    pub fn hold_unscaled(&mut self, holds: bool) {
        self.raw().holds_unscaled = holds;
    }

    /// Whether another sample can be taken without forgetting one that waits for the first scale.
    pub fn has_room(&self) -> bool {
        self.raw.as_ref().is_none_or(|raw| {
            raw.is_scaled() || !raw.holds_unscaled || raw.state.held.len() < MAX_HELD
        })
    }

    /// Predictions that wait for their labels, and samples that wait for the next round or for the
    /// first scale.
    pub fn waiting(&self) -> (usize, usize) {
        let state = self.raw.as_ref().map(|raw| &raw.state);
        state.map_or((0, 0), |state| (state.pending.len(), state.held.len()))
    }

    /// Forgets every sample that it keeps: those that its method remembers, and those that wait for
    /// a label, for the next round or for the first scale. What it has learned stays.
    pub fn forget_samples(&mut self) -> ForgottenSamples {
        let remembered = self.heads.iter_mut().map(|head| head.forget_samples()).max();
        let (unlabelled, held) = self.waiting();
        let compared = self.importance.as_mut().map_or(0, |meter| meter.forget_samples());
        if let Some(raw) = &mut self.raw {
            raw.state.pending = Pending::default();
            raw.state.held.clear();
        }
        ForgottenSamples { remembered: remembered.unwrap_or(0), unlabelled, held, compared }
    }

    /// How important each group of columns is to its predictions, in the scaled unit; empty unless
    /// the plan asks for it. [`Node::importance_unit`] converts it.
    pub fn importance(&self) -> &[GroupImportance] {
        self.importance.as_ref().map_or(&[], |meter| meter.groups())
    }

    /// See [`Plan::importance_unit`].
    pub fn importance_unit(&self) -> f64 {
        self.plan.importance_unit(self.raw.as_ref().and_then(|raw| raw.scaling.label(0)))
    }

    /// What an upload of its round tells of the importance of columns; empty if nothing is due.
    pub(crate) fn tell_importance(&mut self) -> &[f32] {
        let round = self.round();
        self.importance.as_mut().map_or(&[], |meter| meter.tell(round))
    }

    /// What the upload of this round told was taken.
    pub(crate) fn acknowledge_importance(&mut self, taken: u64) {
        self.importance.iter_mut().for_each(|meter| meter.acknowledge(taken));
    }

    /// Measures the importance of a column, if one is due, for drivers that map samples themselves:
    /// with the scaled inputs of a sample, its features and its labels, before it is learned.
    pub(crate) fn measure_importance(&mut self, x: &[f32], z: Features<'_>, y: &[f32]) {
        let Self { plan, heads, own, importance, .. } = self;
        measure_importance(plan, heads, own, importance, x, z, |output| y[output]);
    }

    /// Samples that it has learned in the current round.
    pub fn learned(&self) -> u64 {
        self.raw.as_ref().map_or(0, |raw| raw.state.learned)
    }

    /// Whether those are as many as an answer to the round takes.
    pub fn has_learned_enough(&self) -> bool {
        self.learned() >= u64::from(self.plan.config().compression.passes(self.round()))
    }

    /// Whether it has a scale: without one nothing can be learned yet.
    pub fn is_scaled(&self) -> bool {
        self.raw.as_ref().map_or(!self.plan.is_scaled_online(), |raw| raw.is_scaled())
    }

    /// Predicts from raw inputs. A value that isn't a finite number is missing and is filled in.
    pub fn predict(&mut self, x: &[f32]) -> Result<Answer, BadInput> {
        self.check_inputs(x)?;
        Ok(self.answer(x).0)
    }

    /// All outputs of the latest answer, in the labels' own units.
    pub fn values(&self) -> &[f32] {
        self.raw.as_ref().map_or(&[], |raw| &raw.scratch.values[..self.plan.outputs()])
    }

    /// The probability of each class for the latest prediction; empty if labels are numbers.
    pub fn probabilities(&self) -> &[f32] {
        self.raw.as_ref().map_or(&[], |raw| &raw.scratch.probabilities)
    }

    /// The range in which the label of each output of the latest answer was expected when it was
    /// predicted, at the node's level. None where [`Self::interval`] is.
    pub fn intervals(&self) -> &[Option<Interval>] {
        self.raw.as_ref().map_or(&[], |raw| &raw.scratch.intervals)
    }

    /// The range in which the label of the latest prediction is expected, with this probability.
    /// None before the first label that was predicted by a model, and for classes.
    ///
    /// # Panics
    /// If the plan has no such output.
    pub fn interval(&self, output: usize, level: Level) -> Option<Interval> {
        let raw = self.raw.as_ref().filter(|raw| raw.has_answered)?;
        raw.interval(&self.plan, output, level)
    }

    /// The level of the intervals in answers.
    pub fn level(&self) -> Level {
        self.raw.as_ref().map_or_else(Level::default, |raw| raw.level)
    }

    /// Sets the level of the intervals in answers, which isn't saved.
    pub fn set_level(&mut self, level: Level) {
        self.raw().level = level;
    }

    /// Predicts, and remembers the sample until its label comes. If too many wait, the oldest is
    /// forgotten.
    pub fn predict_later(&mut self, id: &str, x: &[f32]) -> Result<Answer, BadInput> {
        self.check_inputs(x)?;
        let (answer, _) = self.answer(x);
        let Raw { state, scratch, .. } = self.raw();
        let Answer { round, known, .. } = answer;
        let prediction = Prediction { x: x.to_vec(), values: scratch.values.clone(), round, known };
        state.tally.forgotten += state.pending.insert(id, prediction)?;
        Ok(answer)
    }

    /// Learns from a sample and its labels; the answer is what it would have predicted. While the
    /// round's upload is on its way, the sample waits for the next round, so that nothing of it is
    /// lost.
    pub fn learn(&mut self, x: &[f32], y: &[f32]) -> Result<Answer, BadInput> {
        self.check_inputs(x)?;
        self.check_labels(y)?;
        let (answer, missing) = self.answer(x);
        self.see(x, y, answer.known, missing);
        Ok(answer)
    }

    /// Learns the labels of an earlier prediction, which is the answer, without its interval.
    pub fn learn_by_id(&mut self, id: &str, y: &[f32]) -> Result<Answer, BadInput> {
        self.check_labels(y)?;
        let taken = self.raw().state.pending.take(id);
        let prediction = taken.ok_or_else(|| BadInput::UnknownId { id: id.to_owned() })?;
        // What the model says today is what the node's own layer learns from.
        let (_, missing) = self.answer(&prediction.x);
        let Prediction { x, values, round, known } = prediction;
        let plan = self.plan.clone();
        let raw = self.raw();
        raw.scratch.values.copy_from_slice(&values);
        let class = raw.classify(&plan);
        self.see(&x, y, known, missing);
        Ok(Answer { value: values[0], round, known, interval: None, class })
    }

    /// Takes the models of all outputs to another scale, for drivers that scale samples themselves;
    /// see [`Plan::rescalings`].
    ///
    /// # Panics
    /// If a rescaling was made for another dictionary.
    pub fn rescale(&mut self, rescalings: &[Option<Rescaling>]) {
        for (output, rescaling) in rescalings.iter().enumerate() {
            let Some(rescaling) = rescaling else { continue };
            self.heads[output].rescale(rescaling);
            if output == 0 {
                self.importance.iter_mut().for_each(|meter| meter.rescale(rescaling));
            }
            self.own.get_mut(output).into_iter().for_each(|own| own.rescale(rescaling));
            if rescaling.restarts() {
                self.raw.iter_mut().for_each(|raw| raw.restart(output));
            }
            // What was owed was in another scale.
            self.encoders.get_mut(output).into_iter().for_each(Encoder::forget);
        }
    }

    /// Predicts an output of a sample from its features, in the scaled unit: what the method says,
    /// and what the node says, which is the same without a layer of its own. The latter means the
    /// sample that [`Node::learn_own`] learns.
    pub(crate) fn predict_mapped(&mut self, output: usize, z: Features<'_>) -> (f32, f32) {
        predict_mapped(self.heads[output].as_ref(), self.own.get_mut(output), z)
    }

    /// The node's own layer learns the scaled label of the sample that was predicted last.
    pub(crate) fn learn_own(&mut self, output: usize, label: f32) {
        self.own.get_mut(output).into_iter().for_each(|own| own.learn(label));
    }

    fn raw(&mut self) -> &mut Raw {
        self.raw.get_or_insert_with(|| Box::new(Raw::new(&self.plan)))
    }

    fn check_inputs(&self, x: &[f32]) -> Result<(), BadInput> {
        let (expected, found) = (self.plan.inputs(), x.len());
        if found == expected { Ok(()) } else { Err(BadInput::WrongLength { expected, found }) }
    }

    fn check_labels(&self, y: &[f32]) -> Result<(), BadInput> {
        let (expected, found) = (self.plan.outputs(), y.len());
        if found != expected {
            return Err(BadInput::WrongLabels { expected, found });
        }
        Ok(y.iter().try_for_each(|y| self.plan.check_label(*y))?)
    }
}
