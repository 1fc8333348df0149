//! [`Sample`]: the content of a line, a row or a request. [`Schema`]: the federation's columns. All
//! input may be hostile.

mod bad_row;
mod builder;

use std::collections::HashMap;

use hedgerow::learning::Classes;
use hedgerow::node::Answer;
use hedgerow::{Node, Plan};
use hedgerow_data::csv::LineReader;
use hedgerow_data::rows::{BadNumber, Cell, usual_markers};
use hedgerow_data::schema::{TableSchema, split_category};
use hedgerow_data::text::{excerpt, shortened};

use super::output::{Ends, Predicted, Shown};
pub use bad_row::BadRow;
pub(super) use builder::{Builder, not_a_number, to_f32, to_number};

/// Most bytes of an id.
pub const MAX_ID: usize = 256;

/// A sample, a question, or a label that comes later.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// Which prediction it belongs to.
    pub id: Option<String>,
    /// Inputs of its row in the federation's order; NaN is missing. Those of the past and of the
    /// calendar are not among them.
    pub x: Option<Vec<f32>>,
    /// Columns whose past counts, besides the labels.
    pub lagged: Vec<f32>,
    /// The time in seconds, if the federation has one.
    pub time: Option<f64>,
    /// The labels of all outputs: of several targets, or of a class.
    pub y: Option<Vec<f32>>,
    /// Inputs that were not named although others were. They are missing, or misspelt.
    pub absent: Vec<usize>,
    /// Texts that the federation doesn't know: all inputs of their columns are zero.
    pub unseen: Vec<String>,
}

/// What to do with columns that the federation doesn't have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Others {
    /// They are refused: they may be misspelt.
    Refuse,
    /// They are ignored.
    Ignore,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Input(usize),
    /// A column of text, which is several inputs.
    Category,
    /// That of a target, by its position.
    Label(usize),
    /// All labels in a list.
    Labels,
    /// A column whose past counts, by its position.
    Lagged(usize),
    /// A column of the time, by its position.
    Time(usize),
    Id,
    /// All inputs in a list.
    Inputs,
    Other,
}

/// The federation's columns.
#[derive(Debug, Clone)]
pub struct Schema {
    inputs: usize,
    columns: Vec<String>,
    positions: HashMap<String, usize>,
    /// Of each column of text, the input of each text.
    categories: HashMap<String, HashMap<String, usize>>,
    missing: Vec<String>,
    /// Reads values of JSON as cells of a table are read.
    cells: LineReader,
    /// Names of the targets; one, if labels are classes.
    targets: Vec<String>,
    classes: Vec<String>,
    /// Columns whose past counts, besides the targets.
    lagged: Vec<String>,
    /// Columns that make up the time.
    time: Vec<String>,
    others: Others,
    /// For messages.
    known: String,
}

impl Schema {
    /// The columns of the rows of a plan, which mean what `table` says.
    /// `missing` are further texts that stand for missing values.
    pub fn new(plan: &Plan, table: &TableSchema, others: Others, missing: &[String]) -> Self {
        let config = plan.config();
        let targets: Vec<&str> = table.targets.iter().map(String::as_str).collect();
        let inputs = config.series.as_ref().map_or(config.inputs, |rule| rule.inputs);
        let columns = config.columns.get(..inputs).unwrap_or_default();
        let mut schema = Self::named(inputs, columns, &targets, others);
        let more = table.time.iter().chain(&table.lagged);
        let more: Vec<&String> = more.filter(|name| !columns.contains(name)).collect();
        if !more.is_empty() {
            let more = more.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            schema.known = shortened(&format!("{more}, {}", schema.known), 200);
        }
        Self {
            classes: config.classes.clone(),
            lagged: table.lagged.clone(),
            time: table.time.clone(),
            ..schema
        }
        .with_missing(missing)
    }

    /// Columns with these names, or so many without.
    pub(super) fn named(
        inputs: usize,
        columns: &[String],
        targets: &[&str],
        others: Others,
    ) -> Self {
        let positions =
            columns.iter().enumerate().map(|(position, name)| (name.clone(), position)).collect();
        let mut categories: HashMap<String, HashMap<String, usize>> = HashMap::new();
        let mut raw: Vec<&str> = Vec::new();
        for (position, name) in columns.iter().enumerate() {
            let column = match split_category(name) {
                Some((column, text)) => {
                    let texts = categories.entry(column.to_owned()).or_default();
                    texts.insert(text.to_owned(), position);
                    column
                }
                None => name,
            };
            if raw.last() != Some(&column) {
                raw.push(column);
            }
        }
        let targets: Vec<String> = targets.iter().map(|target| (*target).to_owned()).collect();
        let label = label_of(&targets);
        let known = if columns.is_empty() {
            format!("x, a list of {inputs} numbers, and the label {label}")
        } else {
            shortened(&format!("{}, and the label {label}", raw.join(", ")), 200)
        };
        Self {
            inputs,
            columns: columns.to_vec(),
            positions,
            categories,
            missing: Vec::new(),
            cells: LineReader::under_header("", &[]),
            targets,
            classes: Vec::new(),
            lagged: Vec::new(),
            time: Vec::new(),
            others,
            known,
        }
        .with_missing(&[])
    }

    /// The same with further texts that stand for missing values.
    fn with_missing(self, more: &[String]) -> Self {
        let missing = usual_markers(more.iter().cloned());
        Self { cells: LineReader::under_header("", &missing), missing, ..self }
    }

    /// Everything that stands for a missing value, besides an empty cell.
    pub(super) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// What a text of JSON, or a number of it, contains.
    pub(super) fn cell<'t>(&self, text: &'t str) -> Result<Cell<'t>, BadNumber> {
        self.cells.cell(text)
    }

    /// Inputs of a column of text, by text.
    pub(super) fn category(&self, column: &str) -> Option<&HashMap<String, usize>> {
        self.categories.get(column)
    }

    /// Columns that a row must have besides its inputs, with their roles.
    pub(super) fn more_columns(&self) -> impl Iterator<Item = (&String, Role)> {
        let time = self.time.iter().enumerate().map(|(place, name)| (name, Role::Time(place)));
        let lagged = self.lagged.iter().map(|name| (name, self.role(name)));
        time.chain(lagged)
    }

    /// How many columns make up the time.
    pub(super) fn times(&self) -> usize {
        self.time.len()
    }

    /// Numbers in a row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// How many targets there are.
    pub(super) fn targets(&self) -> usize {
        self.targets.len()
    }

    /// The name of an input.
    pub(super) fn column(&self, position: usize) -> Option<&str> {
        self.columns.get(position).map(String::as_str)
    }

    /// The label's name, or those of several.
    pub(super) fn label(&self) -> String {
        label_of(&self.targets)
    }

    /// The labels as they are shown.
    pub(super) fn shown(&self, labels: &[f32]) -> Shown {
        match (Classes::new(self.classes.len()), labels) {
            (Some(classes), _) => Shown::Class(self.classes[classes.likeliest(labels)].clone()),
            (None, [label]) => Shown::Number(*label),
            (None, labels) => Shown::Numbers(labels.to_vec()),
        }
    }

    /// What a prediction of a node is, as it is shown.
    pub(super) fn predicted(&self, node: &Node, answer: &Answer) -> Predicted {
        let Answer { round, known, interval, class, .. } = *answer;
        let prediction = match class {
            Some(class) => Shown::Class(self.classes[class].clone()),
            None => self.shown(node.values()),
        };
        let pairs = self.classes.iter().cloned().zip(node.probabilities().iter().copied());
        let probabilities = class.map(|_| pairs.collect());
        let interval = interval.map(|_| self.ends(node));
        Predicted { prediction, probabilities, round, known, interval }
    }

    /// The ends of the intervals around the latest prediction of a node; missing ones are NaN.
    fn ends(&self, node: &Node) -> Ends {
        let all =
            node.intervals().iter().map(|it| it.map_or([f32::NAN; 2], |it| [it.lower, it.upper]));
        let (lower, upper): (Vec<f32>, Vec<f32>) = all.map(|[lower, upper]| (lower, upper)).unzip();
        Ends { lower: self.shown(&lower), upper: self.shown(&upper) }
    }

    /// Whether labels are classes, which may be texts.
    pub(super) fn has_classes(&self) -> bool {
        !self.classes.is_empty()
    }

    /// The labels of a class by its name.
    pub(super) fn class(&self, column: &str, text: &str) -> Result<Vec<f32>, BadRow> {
        let class = self.classes.iter().position(|name| name == text);
        match Classes::new(self.classes.len()).zip(class) {
            Some((classes, class)) => Ok(classes.labels(class).collect()),
            None => Err(BadRow::UnknownClass {
                column: excerpt(column),
                value: format!("{:?}", excerpt(text)),
                known: shortened(&self.classes.join(", "), 200),
            }),
        }
    }

    /// What may be there, for messages.
    pub(super) fn known(&self) -> &str {
        &self.known
    }

    /// Whether inputs have names.
    pub(super) fn has_names(&self) -> bool {
        !self.positions.is_empty() || self.inputs == 0
    }

    /// What a name means. The federation's own names come before `x`, `y` and `id`.
    pub(super) fn role(&self, name: &str) -> Role {
        if let Some(position) = self.positions.get(name) {
            return Role::Input(*position);
        }
        if self.categories.contains_key(name) {
            return Role::Category;
        }
        if let Some(target) = self.targets.iter().position(|target| name == target) {
            return Role::Label(target);
        }
        if let Some(place) = self.time.iter().position(|time| name == time) {
            return Role::Time(place);
        }
        if let Some(place) = self.lagged.iter().position(|lagged| name == lagged) {
            return Role::Lagged(place);
        }
        match name {
            "x" => Role::Inputs,
            "y" if self.targets.len() > 1 => Role::Labels,
            "y" => Role::Label(0),
            "id" => Role::Id,
            _ => Role::Other,
        }
    }

    /// Whether a column that the federation doesn't have may be there.
    pub(super) fn check_other(&self, column: &str) -> Result<(), BadRow> {
        match self.others {
            Others::Ignore => Ok(()),
            Others::Refuse => {
                Err(BadRow::UnknownColumn { column: excerpt(column), known: self.known.clone() })
            }
        }
    }
}

fn label_of(targets: &[String]) -> String {
    match targets {
        [one] if !one.is_empty() => one.clone(),
        [first, ..] if !first.is_empty() => targets.join(", "),
        _ => "y".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use hedgerow::plan::Scaling;
    use hedgerow::{Federation, PlanConfig};
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_have_an_interval_for_each_target() {
        let config = PlanConfig::default().inputs(1).nodes(1).scaling(Scaling::None);
        for outputs in [1, 2] {
            let plan = Plan::new(config.clone().outputs(outputs)).unwrap();
            let table = TableSchema::of_plan(plan.config()).unwrap();
            let schema = Schema::new(&plan, &table, Others::Refuse, &[]);
            let mut federation = Federation::new(&plan);
            federation.connect();
            let node = &mut federation.nodes_mut()[0];
            let answer = node.predict(&[0.5]).unwrap();
            assert_eq!(schema.predicted(node, &answer).interval, None);
            for labels in [[1.0, 2.0], [1.5, 2.5], [0.5, 0.0]] {
                node.learn(&[0.5], &labels[..outputs]).unwrap();
            }
            let answer = node.predict(&[0.5]).unwrap();
            let shown = json!(schema.predicted(node, &answer));
            for target in 0..outputs {
                let interval = node.interval(target, node.level()).unwrap();
                let end = |name: &str| match outputs {
                    1 => shown[name].clone(),
                    _ => shown[name][target].clone(),
                };
                assert_eq!(end("lower"), json!(interval.lower), "{shown}");
                assert_eq!(end("upper"), json!(interval.upper), "{shown}");
            }
        }
    }
}
