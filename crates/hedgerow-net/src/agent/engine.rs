//! [`Engine`]: all that a node is, but for sockets, files and clocks. It predicts, learns, hears
//! the server and says what there is to say; whoever drives it decides when.

mod dialogue;

use hedgerow::codec::Section;
use hedgerow::learning::Personal;
use hedgerow::message::{Broadcast, Report, Upload};
use hedgerow::method::BadSample;
use hedgerow::scaling::{NodeScaling, Scale};
use hedgerow::state::BadState;
use hedgerow::{NodeId, NodeMethod};
use serde::{Deserialize, Serialize};

use super::pending::Pending;
use crate::learning::Plan;
use dialogue::Link;
pub use dialogue::LinkSnapshot;

/// Samples that may wait for the next round; older ones are then learned in the round at hand. Of
/// those that wait for the first scale, the oldest are then forgotten.
pub const MAX_HELD: usize = 256;

/// A prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// ŷ, in the label's own unit.
    pub value: f32,
    /// The round whose model it is of.
    pub round: u64,
    /// Whether there is a model at all: before the first scale is agreed on, it is only the mean
    /// label so far.
    pub known: bool,
}

/// Why a sample or a label was not taken; nothing changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadInput {
    /// Too many or too few numbers.
    #[error("a sample has {expected} numbers, but {found} came")]
    WrongLength {
        /// What the federation's samples have.
        expected: usize,
        /// What came.
        found: usize,
    },
    /// A label that can't be learned from.
    #[error(transparent)]
    Sample(#[from] BadSample),
    /// A label for a prediction that nobody asked for, or whose label came already, or that was
    /// forgotten.
    #[error("no prediction with id {id:?} waits for its label")]
    UnknownId {
        /// Which.
        id: String,
    },
    /// An id that is in use.
    #[error("a prediction with id {id:?} already waits for its label")]
    RepeatedId {
        /// Which.
        id: String,
    },
    /// An id that no id should be.
    #[error("an id has at most {bound} bytes, but this one has {found}")]
    LongId {
        /// Most.
        bound: usize,
        /// What came.
        found: usize,
    },
}

/// What a node has seen and done.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineTally {
    /// Labels that were learned from.
    pub samples: u64,
    /// Sum of the squared errors of their predictions, in the label's own unit; those before the
    /// first scale don't count.
    pub squared_error: f64,
    /// How many those are.
    pub scored: u64,
    /// Values that were missing and were filled in.
    pub imputed: u64,
    /// Uploads that were sent, and those that were taken.
    pub uploads: u64,
    /// Taken ones.
    pub taken: u64,
    /// Messages that the server refused.
    pub refused: u64,
    /// Predictions that were forgotten because too many others waited for their labels.
    pub forgotten: u64,
}

impl EngineTally {
    /// Mean squared error so far.
    pub fn mse(&self) -> f64 {
        if self.scored == 0 { 0.0 } else { self.squared_error / self.scored as f64 }
    }
}

/// What the next upload tells about errors.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct UnackedErrors {
    samples: u32,
    squared_error: f64,
}

/// A node.
pub struct Engine {
    plan: Plan,
    half: Box<dyn NodeMethod>,
    scaling: NodeScaling,
    /// Whether samples that come before the first scale wait for it.
    holds_unscaled: bool,
    state: State,
    link: Link,
    room: Scratch,
}

/// What has to survive a restart, beside the half and the scaling.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    run: String,
    number: NodeId,
    personal: Option<Personal>,
    pending: Pending,
    /// Samples that came after the round's upload had left, or before the first scale.
    held: Vec<(Vec<f32>, f32)>,
    /// Samples learned in the round at hand.
    learned: u64,
    news: UnackedErrors,
    /// What the latest upload told, and in which round, until it is known to be taken.
    told: Option<(u64, UnackedErrors)>,
    tally: EngineTally,
    /// The latest report: whether it arrived is never known, so it is said again on the next
    /// stream.
    report: Option<Report>,
}

#[derive(Deserialize)]
struct Saved {
    half: Vec<u8>,
    scaling: Vec<u8>,
    state: State,
}

/// The same, to be written without a copy.
#[derive(Serialize)]
struct ToSave<'a> {
    half: Vec<u8>,
    scaling: Vec<u8>,
    state: &'a State,
}

/// Buffers.
#[derive(Default)]
struct Scratch {
    x: Vec<f32>,
    z: Vec<f32>,
    upload: Upload,
    broadcast: Broadcast,
    sections: Vec<Section>,
    bytes: Vec<u8>,
}

impl Engine {
    /// A new node of a run.
    pub fn new(plan: Plan, run: &str, number: NodeId) -> Self {
        let state = State {
            run: run.to_owned(),
            number,
            personal: plan.learning().personal.then(Personal::default),
            pending: Pending::default(),
            held: Vec::new(),
            learned: 0,
            news: UnackedErrors::default(),
            told: None,
            tally: EngineTally::default(),
            report: None,
        };
        let (half, scaling, link) =
            (plan.node(number), plan.node_scaling(), Link::new(&plan, number));
        let mut engine = Self {
            plan,
            half,
            scaling,
            holds_unscaled: false,
            state,
            link,
            room: Scratch::default(),
        };
        engine.make_room();
        engine
    }

    fn make_room(&mut self) {
        self.room.x = vec![0.0; self.plan.inputs()];
        self.room.z = vec![0.0; self.plan.map().width()];
    }

    /// Everything that has to survive a restart.
    pub fn save(&self) -> Vec<u8> {
        let (half, scaling, state) = (self.half.save(), self.scaling.save(), &self.state);
        // Writing to memory can't fail; were it to, an empty state would be refused, not taken for
        // a node.
        postcard::to_stdvec(&ToSave { half, scaling, state }).unwrap_or_default()
    }

    /// Goes on from a saved state of the same plan.
    pub fn restore(plan: Plan, saved: &[u8]) -> Result<Self, RestoreError> {
        let (saved, rest): (Saved, _) = postcard::take_from_bytes(saved)
            .map_err(|error| RestoreError::Unreadable(error.to_string()))?;
        let inputs = plan.inputs();
        let Saved { half, scaling, state } = saved;
        let is_sound = rest.is_empty()
            && state.held.len() <= MAX_HELD
            && state.held.iter().all(|(x, _)| x.len() == inputs)
            && state.pending.is_sound(inputs)
            && state.personal.is_some() == plan.learning().personal
            && state.news.squared_error.is_finite()
            && state.told.is_none_or(|(_, told)| told.squared_error.is_finite())
            && state.tally.squared_error.is_finite();
        if !is_sound {
            return Err(RestoreError::Unreadable("sizes or values are out of bounds".into()));
        }
        let mut engine = Self::new(plan, &state.run, state.number);
        engine.half.restore(&half)?;
        engine.scaling.restore(&scaling)?;
        if let (Some(personal), Some(saved)) = (&mut engine.state.personal, &state.personal) {
            // Its own check of what can't be.
            personal.restore(&saved.save())?;
        }
        engine.state = state;
        Ok(engine)
    }

    /// The run that it belongs to.
    pub fn run(&self) -> &str {
        &self.state.run
    }

    /// Its number in the run.
    pub fn number(&self) -> NodeId {
        self.state.number
    }

    /// What the federation agreed on.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The round that it is in.
    pub fn round(&self) -> u64 {
        self.half.round()
    }

    /// What it has seen and done.
    pub fn tally(&self) -> &EngineTally {
        &self.state.tally
    }

    /// Whether samples that come before the first scale are kept and learned once there is one.
    /// Otherwise they only help to make it.
    pub fn hold_unscaled(&mut self, holds: bool) {
        self.holds_unscaled = holds;
    }

    /// Whether another sample can be taken without one that waits for the first scale being
    /// forgotten.
    pub fn has_room(&self) -> bool {
        self.is_scaled() || !self.holds_unscaled || self.state.held.len() < MAX_HELD
    }

    /// Predictions that wait for their labels, and samples that wait for the next round or for the
    /// first scale.
    pub fn waiting(&self) -> (usize, usize) {
        (self.state.pending.len(), self.state.held.len())
    }

    /// Its half, for those who look closer.
    pub fn half(&self) -> &dyn NodeMethod {
        self.half.as_ref()
    }

    /// Whether it has answered the open round and waits for the next one. Without a scale, whether
    /// it has reported and waits for one.
    pub fn awaits_broadcast(&self) -> bool {
        let is_unscaled = self.scaling.scale().is_none();
        self.link.answered == Some(self.round()) || (is_unscaled && self.state.report.is_some())
    }

    /// Samples that it has learned in the round at hand and not yet seen the round close.
    pub fn learned(&self) -> u64 {
        self.state.learned
    }

    /// Whether those are as many as an answer to the round takes.
    pub fn has_learned_enough(&self) -> bool {
        self.state.learned >= u64::from(self.plan.learning().compression.visits(self.half.round()))
    }

    /// Whether it has a scale: without one nothing can be learned yet.
    pub fn is_scaled(&self) -> bool {
        self.scaling.scale().is_some()
    }

    /// Predicts from raw inputs; what isn't a finite number is missing and is filled in.
    pub fn predict(&mut self, x: &[f32]) -> Result<Answer, BadInput> {
        self.check_inputs(x)?;
        let global = self.predict_globally(x);
        Ok(self.personal(global))
    }

    /// The same, and remembers the sample until its label comes. If too many wait, the oldest is
    /// forgotten.
    pub fn predict_later(&mut self, id: &str, x: &[f32]) -> Result<Answer, BadInput> {
        self.check_inputs(x)?;
        let global = self.predict_globally(x);
        let answer = self.personal(global);
        self.state.tally.forgotten += self.state.pending.insert(id, x, answer)?;
        Ok(answer)
    }

    /// Learns from a sample; the answer is what it would have predicted. While the round's upload
    /// is on its way, the sample waits for the next round, so that nothing of it is lost.
    pub fn learn(&mut self, x: &[f32], y: f32) -> Result<Answer, BadInput> {
        self.check_inputs(x)?;
        self.check_label(y)?;
        let global = self.predict_globally(x);
        let answer = self.personal(global);
        self.see(x, y, answer, global);
        Ok(answer)
    }

    /// Learns the label of an earlier prediction, which is the answer.
    pub fn learn_by_id(&mut self, id: &str, y: f32) -> Result<Answer, BadInput> {
        self.check_label(y)?;
        let (x, answer) =
            self.state.pending.take(id).ok_or_else(|| BadInput::UnknownId { id: id.to_owned() })?;
        // What the model says today is what the node's own layer learns from.
        let global = self.predict_globally(&x);
        self.see(&x, y, answer, global);
        Ok(answer)
    }

    fn check_inputs(&self, x: &[f32]) -> Result<(), BadInput> {
        let (expected, found) = (self.plan.inputs(), x.len());
        if found == expected { Ok(()) } else { Err(BadInput::WrongLength { expected, found }) }
    }

    fn check_label(&self, y: f32) -> Result<(), BadInput> {
        Ok(self.plan.setup().check_label(y)?)
    }

    /// The federation's prediction, in the label's own unit.
    fn predict_globally(&mut self, x: &[f32]) -> Answer {
        let round = self.half.round();
        let Some(label) = self.scaling.scale().map(Scale::label) else {
            let mean = self.scaling.summary().mean(self.plan.inputs()).unwrap_or(0.0);
            return Answer { value: mean as f32, round, known: false };
        };
        self.scaling.prepare(x, &mut self.room.x);
        let z = self.plan.map().map_batch(&self.room.x, &mut self.room.z);
        let value = label.raw(f64::from(self.half.predict(z))) as f32;
        Answer { value, round, known: true }
    }

    fn personal(&self, global: Answer) -> Answer {
        let value = match &self.state.personal {
            Some(personal) if global.known => personal.predict(global.value),
            _ => global.value,
        };
        Answer { value, ..global }
    }

    /// A label has come: it counts, and is learned now or in the next round.
    fn see(&mut self, x: &[f32], y: f32, answer: Answer, global: Answer) {
        let State { tally, news, personal, .. } = &mut self.state;
        tally.samples = tally.samples.saturating_add(1);
        if answer.known {
            let error = f64::from(answer.value) - f64::from(y);
            tally.scored = tally.scored.saturating_add(1);
            tally.squared_error += error * error;
            news.samples = news.samples.saturating_add(1);
            news.squared_error += error * error;
        }
        if let Some(personal) = personal
            && global.known
        {
            personal.learn(global.value, y);
        }
        let waits = if self.is_scaled() {
            self.link.answered == Some(self.half.round())
        } else {
            self.holds_unscaled
        };
        if !waits {
            self.learn_now(x, y);
        } else if self.state.held.len() < MAX_HELD {
            self.state.held.push((x.to_vec(), y));
        } else {
            let (oldest, label) = self.state.held.remove(0);
            self.learn_now(&oldest, label);
            self.state.held.push((x.to_vec(), y));
        }
        self.scaling.see(x, Some(y));
    }

    fn learn_held(&mut self) {
        if !self.is_scaled() {
            return;
        }
        for (x, y) in std::mem::take(&mut self.state.held) {
            self.learn_now(&x, y);
        }
    }

    fn learn_now(&mut self, x: &[f32], y: f32) {
        let Some(scaled) = self.scaling.scale().map(|scale| scale.scale_label(y)) else { return };
        self.state.tally.imputed += self.scaling.prepare(x, &mut self.room.x) as u64;
        let z = self.plan.map().map_batch(&self.room.x, &mut self.room.z);
        // The label was checked when it came, and the map is the half's own.
        if self.half.learn(z, scaled).is_ok() {
            self.state.learned = self.state.learned.saturating_add(1);
        }
    }
}

/// Why a saved node can't go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// It is no node, or one of another kind.
    #[error("the saved node can't be read: {0}")]
    Unreadable(String),
    /// Its half or its scaling doesn't fit the federation.
    #[error(transparent)]
    State(#[from] BadState),
}
