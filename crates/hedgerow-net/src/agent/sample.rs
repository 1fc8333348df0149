//! [`Sample`]: the content of a line, a row or a request. [`Schema`]: the federation's columns. All
//! input may be hostile.

use std::borrow::Cow;
use std::collections::HashMap;

use hedgerow::learning::Classes;
use hedgerow::node::Answer;
use hedgerow::{Node, Plan};
use hedgerow_data::csv::{BadQuotes, LineReader};
use hedgerow_data::rows::{BadNumber, Cell, usual_markers};
use hedgerow_data::schema::{TableSchema, split_category};
use hedgerow_data::text::{excerpt, shortened};
use hedgerow_data::timestamp;

use super::output::{Ends, Predicted, Shown};

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

/// Why a line or an object is no sample.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadRow {
    /// Not JSON, or not an object.
    #[error("it is no JSON object: {0}")]
    NotAnObject(String),
    /// A quoted cell without its end, or a quote inside a cell that isn't quoted.
    #[error(transparent)]
    BadQuotes(#[from] BadQuotes),
    /// The line is not UTF-8.
    #[error("column {column:?} is not UTF-8")]
    NotText {
        /// The column.
        column: String,
    },
    /// Text, a list, an object or a truth value where a number belongs.
    #[error("column {column:?}: {value} is not a number")]
    NotANumber {
        /// The column.
        column: String,
        /// What it is, shortened.
        value: String,
    },
    /// A number that no f32 can hold.
    #[error("column {column:?}: {value} is larger than {:e}", f32::MAX)]
    TooLarge {
        /// The column.
        column: String,
        /// What it is, shortened.
        value: String,
    },
    /// A text that is no time, or none where one is needed.
    #[error(
        "column {column:?}: {value} is no time; times are written as 2026-03-01 17:00:00, \
         2026-03-01T17:00:00Z, 01/03/2026 17:00 (day first) or seconds"
    )]
    NotATime {
        /// The first column of the time.
        column: String,
        /// What it is, shortened.
        value: String,
    },
    /// A label that is none of the federation's classes.
    #[error(
        "column {column:?}: {value} is none of the classes {known}; a server with another list (learning.classes) begins another run"
    )]
    UnknownClass {
        /// The column.
        column: String,
        /// What it is, shortened.
        value: String,
        /// The classes.
        known: String,
    },
    /// Some of several labels.
    #[error("there is a label for {found}, but this federation has {known}: all or none")]
    SomeLabels {
        /// The label that is there.
        found: String,
        /// Those that it has.
        known: String,
    },
    /// A column that the federation doesn't have.
    #[error(
        "there is no column {column:?} (there are {known}); set samples.others to \"ignore\" to pass over it"
    )]
    UnknownColumn {
        /// The column.
        column: String,
        /// Those that it has.
        known: String,
    },
    /// The same column again.
    #[error("column {column:?} comes twice")]
    Twice {
        /// The column.
        column: String,
    },
    /// Too many or too few inputs.
    #[error("x has {found} numbers, but a sample of this federation has {expected}")]
    WrongLength {
        /// What a sample has.
        expected: usize,
        /// Numbers in `x`.
        found: usize,
    },
    /// Too many or too few labels in a list.
    #[error("{column} has {found} labels, but a sample of this federation has {expected}")]
    WrongLabels {
        /// The list.
        column: String,
        /// What a sample has.
        expected: usize,
        /// Labels in the list.
        found: usize,
    },
    /// An id of another type, or too long.
    #[error("the id must be text or a whole number of at most {MAX_ID} bytes, but is {value}")]
    BadId {
        /// What it is, shortened.
        value: String,
    },
    /// Neither inputs nor a label.
    #[error("there are neither inputs nor a label")]
    Nothing,
    /// A label that belongs to no prediction.
    #[error("a label without inputs needs the id of its prediction")]
    LabelAlone,
    /// A row with another number of cells than its header.
    #[error("there are {found} cells, but the header has {expected}")]
    WrongCells {
        /// What the header has.
        expected: usize,
        /// Cells of the row.
        found: usize,
    },
    /// A header without a single input.
    #[error("the header {header} names no input (there are {known})")]
    NoInputs {
        /// What it is, shortened.
        header: String,
        /// The federation's columns.
        known: String,
    },
    /// A header without some of the inputs.
    #[error("no column {missing}; the header has {header}")]
    MissingColumns {
        /// Which, in quotes.
        missing: String,
        /// What it is, shortened.
        header: String,
    },
    /// A header with another number of inputs than the federation, whose inputs have no names.
    #[error("the header names {found} inputs, but a sample of this federation has {expected}")]
    WrongInputs {
        /// What a sample has.
        expected: usize,
        /// Inputs that the header names.
        found: usize,
    },
    /// No usable header came before it.
    #[error("no header has told what the cells are")]
    NoHeader,
    /// More bytes than a line may have.
    #[error("it has more than {} bytes", super::lines::MAX_LINE)]
    TooLong,
}

impl BadRow {
    /// The field that is wrong.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::NotText { column }
            | Self::NotANumber { column, .. }
            | Self::TooLarge { column, .. }
            | Self::NotATime { column, .. }
            | Self::UnknownColumn { column, .. }
            | Self::UnknownClass { column, .. }
            | Self::Twice { column } => Some(column),
            Self::WrongLength { .. } => Some("x"),
            Self::BadId { .. } => Some("id"),
            _ => None,
        }
    }
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

/// A sample that is being read.
pub(super) struct Builder<'s> {
    schema: &'s Schema,
    sample: Sample,
    /// The label of each target that has come; NaN if it is missing.
    labels: Vec<Option<f32>>,
    /// Whether all have come at once.
    has_labels: bool,
    /// Which inputs have been set; empty as long as none has.
    set: Vec<bool>,
    /// The parts of the time that have come; empty if they are missing.
    time: Vec<Option<String>>,
    lagged: Vec<Option<f32>>,
}

impl<'s> Builder<'s> {
    pub(super) fn new(schema: &'s Schema) -> Self {
        Self {
            schema,
            sample: Sample::default(),
            labels: vec![None; schema.targets.len()],
            has_labels: false,
            set: Vec::new(),
            time: vec![None; schema.time.len()],
            lagged: vec![None; schema.lagged.len()],
        }
    }

    pub(super) fn input(
        &mut self,
        position: usize,
        column: &str,
        value: f32,
    ) -> Result<(), BadRow> {
        let inputs = self.schema.inputs;
        let x = self.sample.x.get_or_insert_with(|| vec![f32::NAN; inputs]);
        self.set.resize(inputs, false);
        if std::mem::replace(&mut self.set[position], true) {
            return Err(BadRow::Twice { column: excerpt(column) });
        }
        x[position] = value;
        Ok(())
    }

    /// A column of text: the input of its text is one and the others are zero, as they all are if
    /// the text is missing or not known.
    pub(super) fn category(&mut self, column: &str, text: Option<String>) -> Result<(), BadRow> {
        let schema = self.schema;
        let Some(positions) = schema.category(column) else { return Ok(()) };
        for (known, position) in positions {
            let is_it = text.as_ref() == Some(known);
            self.input(*position, column, f32::from(u8::from(is_it)))?;
        }
        self.sample.unseen.extend(text.filter(|text| !positions.contains_key(text)));
        Ok(())
    }

    pub(super) fn inputs(&mut self, numbers: Vec<f32>) -> Result<(), BadRow> {
        if self.sample.x.is_some() {
            return Err(BadRow::Twice { column: "x".into() });
        }
        self.set = vec![true; numbers.len()];
        self.sample.x = Some(numbers);
        Ok(())
    }

    /// A part of the time.
    pub(super) fn time(&mut self, at: usize, column: &str, cell: Cell<'_>) -> Result<(), BadRow> {
        let part = timestamp::part(cell, self.time.len()).unwrap_or_default().into_owned();
        match self.time[at].replace(part) {
            None => Ok(()),
            Some(_) => Err(BadRow::Twice { column: excerpt(column) }),
        }
    }

    /// A column whose past counts.
    pub(super) fn lagged(&mut self, at: usize, column: &str, value: f32) -> Result<(), BadRow> {
        match self.lagged[at].replace(value) {
            None => Ok(()),
            Some(_) => Err(BadRow::Twice { column: excerpt(column) }),
        }
    }

    /// Reads the time, and what the past needs. What comes with an id and labels alone is no row.
    fn take_series(&mut self) -> Result<(), BadRow> {
        let Self { schema, sample, time, lagged, .. } = self;
        let has_more = time.iter().any(Option::is_some) || lagged.iter().any(Option::is_some);
        let has_label = self.has_labels || self.labels.iter().any(Option::is_some);
        let is_row = has_more || (schema.inputs == 0 && sample.id.is_none() && has_label);
        if is_row && sample.x.is_none() {
            self.set.resize(schema.inputs, false);
            sample.x = Some(vec![f32::NAN; schema.inputs]);
        }
        let Some(x) = &sample.x else { return Ok(()) };
        let value = |(name, value): (&String, &Option<f32>)| match schema.positions.get(name) {
            Some(position) => x[*position],
            None => value.unwrap_or(f32::NAN),
        };
        sample.lagged = schema.lagged.iter().zip(lagged.iter()).map(value).collect();
        let Some(first) = schema.time.first() else { return Ok(()) };
        let parts: Vec<&str> = time.iter().flatten().map(String::as_str).collect();
        let joined = parts.join(" ");
        // Without its time of day a row would be at midnight.
        let is_whole = parts.len() == time.len() && parts.iter().all(|part| !part.is_empty());
        sample.time = timestamp::parse(&joined).filter(|_| is_whole);
        match sample.time {
            Some(_) => Ok(()),
            None => {
                let value = format!("{:?}", excerpt(&joined));
                Err(BadRow::NotATime { column: excerpt(first), value })
            }
        }
    }

    pub(super) fn label(&mut self, at: usize, column: &str, value: f32) -> Result<(), BadRow> {
        if self.has_labels || self.labels[at].replace(value).is_some() {
            return Err(BadRow::Twice { column: excerpt(column) });
        }
        Ok(())
    }

    /// The labels of all outputs; none of them if they are missing.
    pub(super) fn all_labels(
        &mut self,
        column: &str,
        labels: Option<Vec<f32>>,
    ) -> Result<(), BadRow> {
        if self.has_labels || self.labels.iter().any(Option::is_some) {
            return Err(BadRow::Twice { column: excerpt(column) });
        }
        self.has_labels = true;
        self.sample.y = labels.filter(|labels| !labels.iter().any(|label| label.is_nan()));
        Ok(())
    }

    /// The labels of all targets that came one by one.
    fn take_labels(&mut self) -> Result<(), BadRow> {
        let known = |label: &Option<f32>| label.is_some_and(|label| !label.is_nan());
        let Some(found) = self.labels.iter().position(known) else { return Ok(()) };
        if !self.labels.iter().all(known) {
            let found = self.schema.targets[found].clone();
            return Err(BadRow::SomeLabels { found, known: self.schema.label() });
        }
        self.sample.y = self.labels.iter().copied().collect();
        Ok(())
    }

    pub(super) fn id(&mut self, id: Cow<'_, str>) -> Result<(), BadRow> {
        if self.sample.id.is_some() {
            return Err(BadRow::Twice { column: "id".into() });
        }
        if id.is_empty() || id.len() > MAX_ID {
            return Err(BadRow::BadId { value: format!("{:?}", excerpt(&id)) });
        }
        self.sample.id = Some(id.into_owned());
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Sample, BadRow> {
        self.take_labels()?;
        self.take_series()?;
        let Self { schema, mut sample, set, .. } = self;
        match (&sample.id, &sample.x, &sample.y) {
            (_, None, None) => Err(BadRow::Nothing),
            (None, None, Some(_)) => Err(BadRow::LabelAlone),
            _ => {
                sample.absent = (0..set.len()).filter(|position| !set[*position]).collect();
                // A text that isn't there is missing: all inputs of its column are zero.
                if let (Some(x), false) = (&mut sample.x, sample.absent.is_empty()) {
                    let inputs = schema.categories.values().flat_map(HashMap::values);
                    inputs.filter(|position| !set[**position]).for_each(|at| x[*at] = 0.0);
                }
                Ok(sample)
            }
        }
    }
}

/// The number that a text is, such as one of a JSON object.
pub(super) fn to_number(column: &str, text: &str) -> Result<f32, BadRow> {
    // Through f64, as everywhere else, so that the same text is always the same number.
    let number = text.parse().map_err(|_| not_a_number(column, &format!("{text:?}")))?;
    to_f32(column, text, number)
}

/// The nearest number of 32 bits.
pub(super) fn to_f32(column: &str, text: &str, number: f64) -> Result<f32, BadRow> {
    let number = number as f32;
    if number.is_finite() {
        return Ok(number);
    }
    Err(BadRow::TooLarge { column: excerpt(column), value: excerpt(text) })
}

pub(super) fn not_a_number(column: &str, value: &str) -> BadRow {
    BadRow::NotANumber { column: excerpt(column), value: excerpt(value) }
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
