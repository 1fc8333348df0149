//! [`TableSchema`]: what the columns of a table mean, and how each row becomes the inputs of a
//! sample. A [`ColumnChoice`] says it in general; a schema also has what a first look at the table
//! found. It can be stored with a model, so that other tables become the same inputs.

use std::collections::HashSet;
use std::path::Path;

use hedgerow::learning::Classes;
use hedgerow::limits::MAX_CLASSES;
use serde::{Deserialize, Serialize};

use super::DataError;
use super::calendar::{CalendarChoice, Cycle};
use super::columns::{Categories, ColumnChoice, Disorder, Duplicates, Exogenous, Roles, Task};
use super::encoder::{Levels, MOST_LEVELS};
use super::rows::{CellPosition, Format};
use super::samples::InputColumns;
use super::series::Shape;
use super::text::counted;

/// The columns of a table that count, and how its rows become samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSchema {
    /// Columns that are inputs, in order.
    pub inputs: Vec<InputColumn>,
    /// Columns whose past values are inputs, like those of the label.
    pub lagged: Vec<String>,
    /// The targets.
    pub targets: Vec<String>,
    /// Whether each target is a series of a node of its own; else every sample has all of them.
    #[serde(default)]
    pub each_a_node: bool,
    /// Names of the classes, if the target is one: a label is the number of its class, from 0.
    #[serde(default)]
    pub classes: Vec<String>,
    /// Columns that make up the time, joined by blanks; empty if there is none.
    pub time: Vec<String>,
    /// Cycles of the time of the label that are inputs.
    pub calendar: Vec<Cycle>,
    /// The column with the node of a sample, or [`BY_FILE`](super::columns::BY_FILE).
    pub node: Option<String>,
    /// Past labels among the inputs, s.
    pub lags: usize,
    /// Steps ahead that are predicted, from 1.
    pub horizon: usize,
    /// Which row the inputs are of.
    pub exogenous: Exogenous,
    /// How to handle rows that go back in time.
    pub disorder: Disorder,
    /// How to handle rows with the same time as the row before.
    pub duplicates: Duplicates,
    /// How text is read.
    pub format: Format,
}

/// The different names among the sources of inputs, and for each input the place of its source.
pub fn grouped(sources: &[String]) -> (Vec<String>, Vec<usize>) {
    let mut names: Vec<String> = Vec::new();
    let group = |source: &String| {
        let known = names.iter().position(|name| name == source);
        known.unwrap_or_else(|| {
            names.push(source.clone());
            names.len() - 1
        })
    };
    let group_of = sources.iter().map(group).collect();
    (names, group_of)
}

/// A column that is an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputColumn {
    /// Its name.
    pub name: String,
    /// The numbers that it becomes.
    pub encoding: Encoding,
}

/// How a column becomes numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// Its number.
    Number,
    /// A number for each of these texts: one where the text stands, else zero.
    OneHot(Vec<String>),
    /// As many numbers, of which the hash of a text sets one to one.
    Hashed(usize),
}

impl Encoding {
    /// How many numbers it makes.
    pub fn width(&self) -> usize {
        match self {
            Self::Number => 1,
            Self::OneHot(texts) => texts.len(),
            Self::Hashed(count) => *count,
        }
    }
}

impl TableSchema {
    /// What a choice means in a table with these columns, of which a first reading found texts.
    pub(super) fn new(
        file: &Path,
        names: &[String],
        choice: &ColumnChoice,
        levels: &Levels,
    ) -> Result<Self, DataError> {
        let Roles { features, lagged, targets, time, node } = Roles::find(file, names, choice)?;
        let encoding = |column: usize| match (levels.texts(column), choice.categories) {
            (None, _) | (Some(_), Categories::Refuse) => Ok(Encoding::Number),
            (Some(_), Categories::Hashed(count)) => Ok(Encoding::Hashed(count)),
            (Some(texts), Categories::OneHot) if texts.len() > MOST_LEVELS => {
                let (file, column) = (file.to_owned(), Some(names[column].clone()));
                let place = CellPosition { file, row: None, column };
                Err(DataError::TooManyLevels(place, MOST_LEVELS))
            }
            (Some(texts), Categories::OneHot) => {
                Ok(Encoding::OneHot(texts.iter().cloned().collect()))
            }
        };
        let input = |column: usize| {
            Ok(InputColumn { name: names[column].clone(), encoding: encoding(column)? })
        };
        let named = |columns: Vec<usize>| -> Vec<String> {
            columns.into_iter().map(|column| names[column].clone()).collect()
        };
        Ok(Self {
            inputs: features.into_iter().map(input).collect::<Result<_, DataError>>()?,
            lagged: named(lagged),
            classes: classes(file, &names[targets[0]], choice, levels)?,
            targets: named(targets),
            each_a_node: !choice.series.is_empty(),
            time: named(time),
            calendar: match &choice.calendar {
                CalendarChoice::Cycles(cycles) => cycles.clone(),
                CalendarChoice::Auto => Vec::new(),
            },
            node: node.map(|column| names[column].clone()).or_else(|| choice.node.clone()),
            lags: choice.lags,
            horizon: choice.horizon,
            exogenous: choice.exogenous,
            disorder: choice.disorder,
            duplicates: choice.duplicates,
            format: choice.format.clone(),
        })
    }

    /// A table whose rows are samples, with inputs of these names. An input `column=text` is one
    /// where that text stands in the column.
    pub fn plain(inputs: &[String], target: &str) -> Self {
        let mut columns: Vec<InputColumn> = Vec::new();
        for input in inputs {
            match (split_category(input), columns.last_mut()) {
                (
                    Some((column, text)),
                    Some(InputColumn { name, encoding: Encoding::OneHot(texts) }),
                ) if name == column => texts.push(text.to_owned()),
                (Some((column, text)), _) => columns.push(InputColumn {
                    name: column.to_owned(),
                    encoding: Encoding::OneHot(vec![text.to_owned()]),
                }),
                (None, _) => {
                    columns.push(InputColumn { name: input.clone(), encoding: Encoding::Number })
                }
            }
        }
        Self {
            inputs: columns,
            lagged: Vec::new(),
            targets: vec![target.to_owned()],
            each_a_node: false,
            classes: Vec::new(),
            time: Vec::new(),
            calendar: Vec::new(),
            node: None,
            lags: 0,
            horizon: 1,
            exogenous: Exogenous::SameRow,
            disorder: Disorder::Keep,
            duplicates: Duplicates::Keep,
            format: Format::default(),
        }
    }

    /// Numbers in a sample, d.
    pub fn width(&self) -> usize {
        self.shape().width() + Cycle::WIDTH * self.calendar.len()
    }

    /// Adds the inputs that the calendar has at a time.
    pub(super) fn add_calendar(&self, time: f64, x: &mut Vec<f32>) {
        x.extend(self.calendar.iter().flat_map(|cycle| cycle.inputs(time)));
    }

    /// Whether samples depend on earlier rows.
    pub fn looks_back(&self) -> bool {
        self.shape().looks_back()
    }

    /// Rows of the past that the first sample of a series needs.
    pub fn history(&self) -> usize {
        self.shape().history()
    }

    pub(super) fn shape(&self) -> Shape {
        Shape {
            inputs: self.inputs.iter().map(|input| input.encoding.width()).sum(),
            labels: if self.each_a_node { 1 } else { self.targets.len() },
            lagged: self.lagged.len(),
            lags: self.lags,
            horizon: self.horizon,
            exogenous: self.exogenous,
        }
    }

    /// What each input comes from: a column, the past of one, or a cycle of the time. Inputs of one
    /// source have the same name.
    pub fn sources(&self) -> Vec<String> {
        let own = self.inputs.iter().flat_map(|InputColumn { name, encoding }| {
            std::iter::repeat_n(name.clone(), encoding.width())
        });
        let labels = match self.each_a_node {
            true => vec![self.targets.join(", ")],
            false => self.targets.clone(),
        };
        let past = labels.iter().chain(&self.lagged).map(|name| format!("past of {name}"));
        let past = past.flat_map(|name| std::iter::repeat_n(name, self.lags));
        let time = self.time.join(" ");
        let calendar = self.calendar.iter().map(|cycle| format!("{} of {time}", cycle.name()));
        let calendar = calendar.flat_map(|name| std::iter::repeat_n(name, Cycle::WIDTH));
        own.chain(past).chain(calendar).collect()
    }

    /// Which columns each input may come from.
    pub fn input_columns(&self) -> InputColumns {
        let own = self.inputs.iter().flat_map(|InputColumn { name, encoding }| match encoding {
            Encoding::Number => vec![vec![name.clone()]],
            texts => vec![vec![]; texts.width()],
        });
        let alone = |name: &String| vec![name.clone()];
        let labels = match (Classes::new(self.classes.len()), self.each_a_node) {
            (Some(classes), _) => vec![vec![]; classes.outputs()],
            (None, false) => self.targets.iter().map(alone).collect(),
            (None, true) => vec![self.targets.clone()],
        };
        let past = labels.iter().cloned().chain(self.lagged.iter().map(alone));
        let past = past.flat_map(|names| std::iter::repeat_n(names, self.lags));
        let calendar = std::iter::repeat_n(vec![], Cycle::WIDTH * self.calendar.len());
        let inputs = own.chain(past).chain(calendar).collect();
        InputColumns {
            inputs,
            labels,
            targets: self.targets.clone(),
            classes: self.classes.clone(),
        }
    }

    /// What inputs are of when a prediction is made, in words; empty if rows have no order.
    pub fn describe(&self) -> String {
        if self.time.is_empty() && !self.looks_back() {
            return String::new();
        }
        let before = match self.horizon {
            1 => "the row before the label's".to_owned(),
            horizon => format!("the row {horizon} before the label's"),
        };
        let mut parts = Vec::new();
        let columns = self.inputs.len();
        if columns > 0 {
            let row = match self.exogenous {
                Exogenous::SameRow => "the label's own row".to_owned(),
                Exogenous::Origin => format!("{before}, when the forecast is made"),
            };
            parts.push(format!("{} of {row}", counted(columns, "column")));
        }
        if self.lags > 0 {
            let others = self.lagged.iter().map(|name| format!(" and values of {name}"));
            let others = others.collect::<String>();
            let labels = counted(self.lags, "past label");
            parts.push(format!("{labels}{others}, from {before} back"));
        }
        if !self.calendar.is_empty() {
            let names: Vec<&str> = self.calendar.iter().map(|cycle| cycle.name()).collect();
            parts.push(format!("{} of the label's time", names.join(", ")));
        }
        parts.join("; ")
    }

    /// What is wrong with a schema of samples of `inputs` numbers that another program may have
    /// written.
    pub fn check(&self, inputs: usize) -> Result<(), String> {
        let too_many = || "more inputs than can be counted".to_owned();
        let labels = if self.each_a_node { 1 } else { self.targets.len() };
        let past = self.lags.checked_mul(labels + self.lagged.len()).ok_or_else(too_many)?;
        let own = self.inputs.iter().try_fold(0_usize, |sum, input| {
            sum.checked_add(input.encoding.width()).filter(|_| is_encoding(&input.encoding))
        });
        let own = own.ok_or("a column of text has no texts, or one of them twice")?;
        let calendar = Cycle::WIDTH * self.calendar.len();
        let found = own.checked_add(past).and_then(|sum| sum.checked_add(calendar));
        let found = found.ok_or_else(too_many)?;
        if found != inputs {
            let found = counted(found, "input");
            return Err(format!("its columns make {found}, but the model takes {inputs}"));
        }
        if !self.calendar.is_empty() && self.time.is_empty() {
            return Err("it has inputs of the time, but no column of the time".to_owned());
        }
        if self.targets.is_empty() {
            return Err("it has no target".to_owned());
        }
        let most = 1 << 20;
        if !(1..=most).contains(&self.horizon) {
            return Err(format!("its horizon is {}, not between 1 and {most}", self.horizon));
        }
        Ok(())
    }
}

/// Column and text of an input that a text has; none for an input that is a column itself.
pub fn split_category(input: &str) -> Option<(&str, &str)> {
    input.split_once('=')
}

/// Names of the classes, as the user or the files say.
fn classes(
    file: &Path,
    target: &str,
    choice: &ColumnChoice,
    levels: &Levels,
) -> Result<Vec<String>, DataError> {
    let place =
        || CellPosition { file: file.to_owned(), row: None, column: Some(target.to_owned()) };
    let classes = match choice.task {
        Task::Numbers => Vec::new(),
        _ if !choice.classes.is_empty() => choice.classes.clone(),
        _ => levels.class_names(),
    };
    match &classes[..] {
        many if many.len() > MAX_CLASSES => Err(DataError::TooManyClasses(place(), MAX_CLASSES)),
        [one] => Err(DataError::OneClass(place(), one.clone())),
        [_, ..] if choice.lags > 0 => Err(DataError::LaggedClass(place())),
        _ => Ok(classes),
    }
}

fn is_encoding(encoding: &Encoding) -> bool {
    match encoding {
        Encoding::Number => true,
        Encoding::Hashed(count) => (1..=MOST_LEVELS).contains(count),
        Encoding::OneHot(texts) => {
            let different: HashSet<&String> = texts.iter().collect();
            (1..=MOST_LEVELS).contains(&texts.len()) && different.len() == texts.len()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::rows;
    use super::super::samples::{Sample, SampleStream};
    use super::*;

    fn weather() -> TableSchema {
        let mut schema = TableSchema::plain(&["temp".to_owned(), "sky".to_owned()], "load");
        schema.inputs[1].encoding = Encoding::OneHot(vec!["clear".into(), "rain".into()]);
        TableSchema { lags: 2, lagged: vec!["wind".to_owned()], ..schema }
    }

    #[test]
    fn inputs_are_counted_and_named() {
        let schema = weather();
        assert_eq!(schema.width(), 1 + 2 + 2 * 2);
        let InputColumns { inputs, targets, .. } = schema.input_columns();
        let names: Vec<String> = inputs.iter().map(|names| names.join("+")).collect();
        assert_eq!(names, ["temp", "", "", "load", "load", "wind", "wind"]);
        assert_eq!(targets, ["load"]);
        let text = serde_json::to_string(&schema).unwrap();
        assert_eq!(serde_json::from_str::<TableSchema>(&text).unwrap(), schema);
    }

    #[test]
    fn names_of_inputs_may_be_texts_of_a_column() {
        let names = ["temp", "sky=clear", "sky=rain", "wind=", "wind"].map(str::to_owned);
        let schema = TableSchema::plain(&names, "load");
        let columns: Vec<(&str, usize)> =
            schema.inputs.iter().map(|one| (one.name.as_str(), one.encoding.width())).collect();
        assert_eq!(columns, [("temp", 1), ("sky", 2), ("wind", 1), ("wind", 1)]);
        assert_eq!(schema.inputs[1].encoding, weather().inputs[1].encoding);
        assert_eq!(schema.check(5), Ok(()));
    }

    #[test]
    fn it_says_what_inputs_are_of() {
        assert_eq!(
            weather().describe(),
            "2 columns of the label's own row; 2 past labels and values of wind, from the row \
             before the label's back"
        );
        let plain = TableSchema { lags: 0, lagged: vec![], ..weather() };
        assert_eq!(plain.describe(), "");
        let timed = TableSchema {
            time: vec!["when".to_owned()],
            calendar: vec![Cycle::Hour, Cycle::Yearday],
            exogenous: Exogenous::Origin,
            horizon: 3,
            ..plain
        };
        assert_eq!(
            timed.describe(),
            "2 columns of the row 3 before the label's, when the forecast is made; \
             hour, yearday of the label's time"
        );
        assert_eq!((timed.width(), timed.check(7)), (7, Ok(())));
        let names = timed.input_columns().inputs;
        assert_eq!(names.len(), 7);
        let timeless = TableSchema { time: vec![], ..timed };
        assert!(timeless.check(7).unwrap_err().contains("no column of the time"));
    }

    #[test]
    fn what_another_program_may_have_written_is_checked() {
        assert_eq!(weather().check(7), Ok(()));
        let refused = |change: &dyn Fn(&mut TableSchema)| {
            let mut schema = weather();
            change(&mut schema);
            schema.check(7).unwrap_err()
        };
        assert!(
            refused(&|schema| schema.lags = 3).contains("make 9 inputs, but the model takes 7")
        );
        assert!(refused(&|schema| schema.lags = usize::MAX).contains("more inputs"));
        assert!(refused(&|schema| schema.targets.clear()).contains("inputs"));
        assert!(refused(&|schema| schema.horizon = 0).contains("horizon is 0"));
        let twice = Encoding::OneHot(vec!["rain".into(), "rain".into()]);
        assert!(refused(&|schema| schema.inputs[1].encoding = twice.clone()).contains("twice"));
        let many = Encoding::Hashed(usize::MAX);
        assert!(refused(&|schema| schema.inputs[1].encoding = many.clone()).contains("text"));
    }

    /// Inputs and label of every sample of a table to predict from.
    fn predicted(schema: &TableSchema, text: &str) -> Result<Vec<(Vec<f32>, f32)>, DataError> {
        let file = Path::new("new.csv");
        let rows = rows::read(Cursor::new(text.to_owned()), file, &schema.format)?;
        let mut stream = SampleStream::predicting(file, rows, schema)?;
        let (mut sample, mut samples) = (Sample::default(), Vec::new());
        while stream.next(&mut sample)? {
            samples.push((sample.x.clone(), sample.y[0]));
        }
        Ok(samples)
    }

    #[test]
    fn another_table_becomes_the_same_inputs() {
        let time = vec!["when".to_owned()];
        let (disorder, duplicates) = (Disorder::Refuse, Duplicates::Refuse);
        let past = TableSchema { lags: 0, lagged: vec![], time, ..weather() };
        let schema = TableSchema { disorder, duplicates, ..past };
        // Other columns, another order, no label, the same time twice, a text that was never seen.
        let found = predicted(&schema, "when,sky,temp\n1,rain,7\n1,fog,8\n").unwrap();
        let expected = [[7.0, 0.0, 1.0], [8.0, 0.0, 0.0]];
        assert!(found.iter().map(|(x, _)| &x[..]).eq(expected.iter().map(|x| &x[..])));
        assert!(found.iter().all(|(_, y)| y.is_nan()));
        let error = predicted(&schema, "sky,tmp\nrain,7\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "new.csv: no column \"temp\" (did you mean \"tmp\"?); there are sky, tmp"
        );
    }

    #[test]
    fn the_past_comes_from_the_table_itself() {
        let schema = TableSchema { exogenous: Exogenous::Origin, ..weather() };
        let table = "load,temp,sky,wind\n1,10,rain,5\n2,20,clear,6\n,30,,\n";
        let [(x, y)] = &predicted(&schema, table).unwrap()[..] else { panic!("one sample") };
        assert_eq!(x[..], [20.0, 1.0, 0.0, 2.0, 1.0, 6.0, 5.0]);
        assert!(y.is_nan());
        let error = predicted(&schema, "temp,sky,wind\n1,rain,2\n").unwrap_err().to_string();
        assert!(error.starts_with("new.csv: no column \"load\""), "{error}");
    }
}
