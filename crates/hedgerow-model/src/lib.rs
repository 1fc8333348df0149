//! [`Model`]: what a federation has learned, as a file, for predictions without a server.
//!
//! A model has what a prediction needs: the plan, the shared model, the scale of its numbers, the
//! nodes with what they learned for themselves, and how the rows of a table become inputs. A
//! [`Card`] says where it comes from and how good it was.
//!
//! A prediction is made by a [`Node`] of the core, so it has the bits of the live node's:
//! [`Model::node`] is a node as it was when the model was made, [`Model::shared`] one that has just
//! joined the federation.
//!
//! ```
//! use hedgerow::{Plan, PlanConfig};
//! use hedgerow_model::Model;
//!
//! let plan = Plan::new(PlanConfig::default().inputs(1).nodes(1))?;
//! let (mut node, mut server) = (plan.node(0), plan.server());
//! node.connected();
//! for t in 0..50 {
//!     server.opening(0, false).try_for_each(|message| node.hear(&message))?;
//!     let x = (t % 10) as f32 / 10.0;
//!     node.learn(&[x], &[x * x])?;
//!     let mut said = Vec::new();
//!     node.speak(false, |message| said.push(message));
//!     said.iter().try_for_each(|message| server.accept(0, message))?;
//!     server.close_round();
//! }
//! let live = node.predict(&[0.5])?;
//! let mut model = Model::of_server(&server)?;
//! model.add_node("meter-17", &node)?;
//! let read = Model::from_bytes("model.safetensors".as_ref(), &model.to_bytes())?;
//! assert_eq!(read.node("meter-17")?.predict(&[0.5])?, live);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a file tells about data
//!
//! Samples that a node keeps (TR-OFL's memory, labels that are awaited) are never part of a model.
//! The sums that a node has learned from are: its means, its own layer, and the sums of the method.
//! Whoever has the file of a node with few samples can learn something about them.

mod card;
mod error;
mod layout;

use std::path::Path;

use hedgerow::message::{Broadcast, BroadcastHead, BroadcastMessage, Numbers, Rejected};
use hedgerow::message::{ScaleMessage, ToNode};
use hedgerow::scaling::Scale;
use hedgerow::state::BadState;
use hedgerow::{Node, Plan, Server};
use hedgerow_data::file::{read_whole, write_whole};
use hedgerow_data::schema::TableSchema;
use hedgerow_data::text::{counted, excerpt, listing};
use serde_json::json;

pub use card::{Card, CardData, CardError};
pub use error::{ModelError, NoModel};

/// Most bytes of a file.
pub const MAX_FILE: u64 = 1 << 30;

/// What a federation has learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    plan: Plan,
    run: String,
    round: u64,
    /// One for each output; empty if there is no shared model.
    broadcasts: Vec<Broadcast>,
    /// The latest scale and its version, if nodes agree on scales.
    scale: Option<(u64, Scale)>,
    schema: Option<TableSchema>,
    nodes: Vec<SavedNode>,
    card: Card,
    software: String,
}

/// A node as it was when the model was made, without samples.
#[derive(Debug, Clone, PartialEq)]
struct SavedNode {
    name: String,
    state: Vec<u8>,
}

impl Model {
    /// The shared model of a server. If the method has none, the model is empty.
    pub fn of_server(server: &Server) -> Result<Self, Rejected> {
        let scale = server.scale().cloned().map(|scale| (server.scale_version(), scale));
        Self::new(server.plan(), server, scale)
    }

    /// The shared model of a server whose driver scales samples by itself: `plan` is that of the
    /// server, with the scaling.
    pub fn new(
        plan: &Plan,
        server: &Server,
        scale: Option<(u64, Scale)>,
    ) -> Result<Self, Rejected> {
        // A broadcast may only say what has changed.
        let whole = |output| server.method(output).catch_up().into_owned();
        let outputs = if plan.method().travels() { plan.outputs() } else { 0 };
        let model = Self {
            round: server.round(),
            broadcasts: (0..outputs).map(whole).collect(),
            scale: scale.filter(|_| outputs > 0),
            ..Self::empty(plan)
        };
        model.check()?;
        Ok(model)
    }

    /// The model of one node alone.
    pub fn of_node(name: &str, node: &Node) -> Result<Self, BadState> {
        let mut model = Self { round: node.round(), ..Self::empty(node.plan()) };
        model.run = node.run().to_owned();
        model.add_node(name, node)?;
        Ok(model)
    }

    fn empty(plan: &Plan) -> Self {
        let config = plan.config();
        let has_names = !config.columns.is_empty() && target_names(plan).is_some();
        Self {
            run: String::new(),
            round: 1,
            broadcasts: Vec::new(),
            scale: None,
            // A plan whose columns make no sense has no nodes.
            schema: has_names.then(|| TableSchema::of_plan(config).ok()).flatten(),
            nodes: Vec::new(),
            card: Card::default(),
            software: format!("hedgerow {}", env!("CARGO_PKG_VERSION")),
            plan: plan.clone(),
        }
    }

    /// Adds a node as it is now, or replaces the one of that name. Samples that the node keeps
    /// don't become part of the model.
    pub fn add_node(&mut self, name: &str, node: &Node) -> Result<(), BadState> {
        self.add_saved_node(name, &node.save())
    }

    /// The same for what [`Node::save`] wrote.
    pub fn add_saved_node(&mut self, name: &str, saved: &[u8]) -> Result<(), BadState> {
        let mut node = Node::restore(&self.plan, saved)?;
        node.forget_samples();
        let (name, state) = (name.to_owned(), node.save());
        self.nodes.retain(|known| known.name != name);
        self.nodes.push(SavedNode { name, state });
        Ok(())
    }

    /// Names the run that it comes from.
    #[must_use]
    pub fn with_run(mut self, run: &str) -> Self {
        self.run = run.to_owned();
        self
    }

    /// Says how rows of a table become inputs.
    #[must_use]
    pub fn with_schema(mut self, schema: Option<TableSchema>) -> Self {
        self.schema = schema.or(self.schema);
        self
    }

    /// Says where it comes from and how good it was.
    pub fn set_card(&mut self, card: Card) {
        self.card = card;
    }

    /// Reads a file and checks it.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
        Self::from_bytes(path, &read_whole(path, MAX_FILE).map_err(unreadable)?)
    }

    /// Writes it to a file, completely or not at all. An older model is replaced; any other file is
    /// refused.
    pub fn write(&self, path: &Path) -> Result<(), ModelError> {
        Self::check_replaceable(path)?;
        let bytes = self.to_bytes();
        let unwritable = |source| ModelError::Unwritable { path: path.to_owned(), source };
        if bytes.len() as u64 > MAX_FILE {
            let (path, found) = (path.to_owned(), bytes.len() as u64);
            return Err(ModelError::TooLarge { path, bound: MAX_FILE, found });
        }
        write_whole(path, &bytes).map_err(unwritable)
    }

    /// An error if there is something at this path that a model must not replace, or no folder for
    /// it.
    pub fn check_replaceable(path: &Path) -> Result<(), ModelError> {
        if path.try_exists().unwrap_or(true) {
            Self::read(path).map_err(|error| ModelError::Kept(Box::new(error)))?;
        } else if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
            && !folder.is_dir()
        {
            let source = std::io::Error::other("there is no such folder");
            return Err(ModelError::Unwritable { path: path.to_owned(), source });
        }
        Ok(())
    }

    /// The plan of the run.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Names of the classes; empty if labels are numbers.
    pub fn classes(&self) -> &[String] {
        &self.plan.config().classes
    }

    /// Names of the targets, if there are several: numbers from 1 where they have none.
    pub fn targets(&self) -> Vec<String> {
        let outputs = self.plan.outputs();
        if outputs == 1 || self.plan.classes().is_some() {
            return Vec::new();
        }
        let named = self.schema.as_ref().map(|schema| schema.targets.clone());
        let named = named.or_else(|| target_names(&self.plan));
        named.unwrap_or_else(|| (1..=outputs).map(|output| output.to_string()).collect())
    }

    /// Identity of the run; empty if it has none.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The round that it opens.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The shared model as nodes receive it, for each output; empty if there is none.
    pub fn broadcasts(&self) -> &[Broadcast] {
        &self.broadcasts
    }

    /// The scale that nodes agreed on, if they do.
    pub fn scale(&self) -> Option<&Scale> {
        self.scale.as_ref().map(|(_, scale)| scale)
    }

    /// How rows of a table become inputs, if that is known.
    pub fn schema(&self) -> Option<&TableSchema> {
        self.schema.as_ref()
    }

    /// Where it comes from and how good it was.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// The program and version that wrote it.
    pub fn software(&self) -> &str {
        &self.software
    }

    /// Names of its nodes.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Whether there is a shared model.
    pub fn is_shared(&self) -> bool {
        !self.broadcasts.is_empty()
    }

    /// Everything but the numbers.
    pub fn describe(&self) -> serde_json::Value {
        let plan = &self.plan;
        json!({
            "software": self.software,
            "run": self.run,
            "round": self.round,
            "method": plan.method().name,
            "inputs": plan.inputs(),
            "outputs": plan.outputs(),
            "numbers": self.broadcasts.iter().map(|one| one.numbers.len()).sum::<usize>(),
            "columns": plan.config().columns,
            "target": plan.config().target,
            "targets": self.targets(),
            "classes": self.classes(),
            "own_layers": plan.has_own_layers(),
            "shared": self.is_shared(),
            "nodes": self.nodes().collect::<Vec<_>>(),
            "schema": self.schema,
            "card": self.card,
        })
    }

    /// A node as it was when the model was made.
    pub fn node(&self, name: &str) -> Result<Node, NoModel> {
        let known = self.nodes.iter().find(|node| node.name == name);
        let Some(SavedNode { state, .. }) = known else {
            let name = excerpt(name);
            if self.nodes.is_empty() {
                return Err(NoModel::NoNodes { name });
            }
            let names: Vec<String> = self.nodes().map(str::to_owned).collect();
            return Err(NoModel::UnknownNode { there: listing(&name, &names), name });
        };
        let unfit = |source| NoModel::Node { name: excerpt(name), source };
        Node::restore(&self.plan, state).map_err(unfit)
    }

    /// A node that has just joined the federation: it knows the shared model and nothing else.
    /// Missing inputs are replaced by the middle of the scale, and probabilities of classes are
    /// calibrated as before the first label.
    pub fn shared(&self) -> Result<Node, NoModel> {
        if !self.is_shared() {
            let names: Vec<&str> = self.nodes().collect();
            return Err(NoModel::NotShared { names: names.join(", ") });
        }
        self.new_node().map_err(NoModel::Shared)
    }

    fn new_node(&self) -> Result<Node, Rejected> {
        let mut node = self.plan.node(0);
        if let Some((version, scale)) = &self.scale {
            let (version, scale) = (*version, scale.to_bytes());
            node.hear(&ToNode::Scale(ScaleMessage { version, scale }))?;
        }
        let heads = self.broadcasts.iter().map(|Broadcast { kernels, numbers, .. }| {
            BroadcastHead { kernels: *kernels, numbers: Numbers::Plain(numbers.clone()) }
        });
        let (round, heads) = (self.round, heads.collect());
        node.hear(&ToNode::Broadcast(BroadcastMessage { round, heads, taken: 0 }))?;
        Ok(node)
    }

    /// Refuses a shared model that a node can't predict with.
    fn check(&self) -> Result<(), Rejected> {
        if self.is_shared() { self.new_node().map(drop) } else { Ok(()) }
    }
}

/// Names of the targets in a plan; none if there are several without names.
fn target_names(plan: &Plan) -> Option<Vec<String>> {
    let target = &plan.config().target;
    if plan.outputs() == 1 || plan.classes().is_some() {
        return Some(vec![target.clone()]);
    }
    let names: Vec<String> = target.split(',').map(str::to_owned).collect();
    (names.len() == plan.outputs()).then_some(names)
}

/// A table whose rows are samples of a plan, with inputs and targets of these names.
pub fn plain_schema(plan: &Plan, inputs: &[String], targets: Vec<String>) -> TableSchema {
    let classes = plan.config().classes.clone();
    TableSchema { targets, classes, ..TableSchema::plain(inputs, "") }
}

/// What is wrong with a schema for samples of a plan.
fn check_schema(schema: &TableSchema, plan: &Plan) -> Result<(), String> {
    schema.check(plan.inputs())?;
    let (expected, found) = (&plan.config().classes, &schema.classes);
    if found != expected {
        let (found, expected) = (found.len(), expected.len());
        return Err(format!(
            "its {found} classes are not the {expected} classes of the model, in this order"
        ));
    }
    let expected = if plan.classes().is_some() { 1 } else { plan.outputs() };
    let found = if schema.each_a_node { 1 } else { schema.targets.len() };
    if found != expected {
        let found = counted(found, "target");
        return Err(format!("it has {found}, but the model predicts {expected}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
