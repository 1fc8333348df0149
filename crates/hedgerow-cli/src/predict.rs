//! `hedgerow predict`: predictions from a model in a file, without a server.

mod answer;

use std::collections::HashMap;
use std::io::{BufWriter, ErrorKind, Stdout, Write};
use std::path::{Path, PathBuf};

use hedgerow::Node;
use hedgerow::learning::{Level, Loss};
use hedgerow::node::BadInput;
use hedgerow_config::flags::{Flag, FlagSet, SettingFlags};
use hedgerow_data::DataError;
use hedgerow_data::columns::BY_FILE;
use hedgerow_data::rows::{self, CellPosition, Format};
use hedgerow_data::samples::{Sample, SampleStream};
use hedgerow_data::schema::TableSchema;
use hedgerow_data::text::{counted, excerpt, listing};
use hedgerow_lab::output::OutputError;
use hedgerow_lab::settings::Settings;
use hedgerow_model::{Model, NoModel, plain_schema};
use hedgerow_net::file::{Access, NewFile};

use crate::flags;
use answer::{Answer, Layout, Predicted, Summary};

/// Predict with a model that `hedgerow simulate --save-model` or `hedgerow export` wrote.
///
/// Rows come from CSV with any usual separator, JSON Lines or Parquet, gzipped, zstandard or plain:
/// the same tables that `simulate` takes. Columns are found by their names, in any order; texts,
/// lags and missing values become inputs as in the run. A model without names takes all columns but
/// the label's, in order.
///
/// A node of the model predicts what the live node would have said, to the bit. If a column names
/// the node of each row, each row is predicted by its own. The shared model predicts like a node
/// that has just joined: missing values are filled in with the middle of their scale, and there are
/// no intervals.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// The model
    #[arg(value_name = "MODEL", required_unless_present = "named_model")]
    model: Option<PathBuf>,
    /// The same, as earlier versions had it
    #[arg(long = "model", value_name = "FILE", hide = true, conflicts_with = "model")]
    named_model: Option<PathBuf>,
    /// What to predict from; - is standard input, answered row by row
    #[arg(long, value_name = "FILE", default_value = "-")]
    data: PathBuf,
    /// Predict as this node, and if a column names nodes, its rows only
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Predict with the shared model, without what nodes have learned for themselves
    #[arg(long, conflicts_with = "node")]
    shared: bool,
    /// Share of labels that intervals contain, from 0.5 to 0.99 [default: that of the run, or 0.9]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    interval: Option<String>,
    /// Column of the label, to see how good predictions are [default: that of the model, if it is
    /// there]
    #[arg(long, value_name = "COLUMN")]
    target: Option<String>,
    /// File to write instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    flags: SettingFlags<PredictFlags>,
    /// Write JSON Lines instead of CSV, and the summary as JSON too
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone)]
struct PredictFlags;

impl FlagSet for PredictFlags {
    const GROUPS: &'static [&'static [Flag]] = &[&[flags::MISSING]];
    const SET: &'static str = flags::SET_READING;
}

const HELP: &str = "\
Examples:
  hedgerow predict model.safetensors --data new.csv
  hedgerow predict model.safetensors --data new.csv --node meter-17
  hedgerow predict model.safetensors --data old.csv --target load --out predictions.csv
  tail -f log.csv | hedgerow predict model.safetensors --node meter-17 --json

Each row has the number of its line in the input, the node if rows have one, the prediction, the ends of its interval where there is one, and the label and the squared error where there is a label. Of several targets each has a row, with its name. Of classes there are the class, a column probability_NAME for each, and whether the class is wrong where there is a label.
To forecast a row that is not there yet, append a row with an empty label. A model with lags needs that many earlier rows of a node, with their labels, before the first that it predicts.
The mean squared error, or the share of right classes, is told at the end, on standard error. `hedgerow model FILE` says what is in a model.";

/// Why there are no predictions.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PredictError {
    /// A column that isn't there.
    #[error("{place}: no column {name:?}{there}")]
    NoColumn { place: CellPosition, name: String, there: String },
    /// Columns that can't be told apart.
    #[error(
        "{place}: {} besides the label's, and the model takes {} without names (--target names the label)",
        counted(*.found, "column"), counted(*.expected, "input")
    )]
    WrongCount { place: CellPosition, expected: usize, found: usize },
    /// Text where a number should be.
    #[error("{0}: {1:?} is not a number (--missing names what stands for a missing value)")]
    Text(CellPosition, String),
    /// A node that the model doesn't have.
    #[error("{place}: {source} (--shared predicts with the shared model, --node NAME as one node)")]
    UnknownNode { place: CellPosition, source: NoModel },
    /// The model can't predict as it was asked to.
    #[error("{}: {source}", .path.display())]
    NoModel { path: PathBuf, source: NoModel },
    /// Other targets than the model has.
    #[error("--target {found:?}: the model has {expected} targets, so name {expected}: A,B")]
    WrongTargets { expected: usize, found: String },
    /// A level that intervals can't have.
    #[error("--interval must be between {} and {}, but is {found:?}", Level::LEAST, Level::MOST)]
    Level { found: String },
    /// A level where there are no intervals.
    #[error(
        "--interval: this model predicts without intervals: there are none for classes and none from the shared model (--node NAME predicts as a node)"
    )]
    NoIntervals,
    /// The output would overwrite an input.
    #[error("--out {}: that is {what}", .path.display())]
    SameFile { path: PathBuf, what: &'static str },
    /// Inputs that the model doesn't take.
    #[error(transparent)]
    Inputs(#[from] BadInput),
}

pub(crate) fn predict(arguments: &Arguments) -> anyhow::Result<()> {
    let format = Settings::load(&arguments.flags.layers(None)?)?.data.columns.format;
    let path = arguments.model();
    let model = Model::read(path)?;
    let level = arguments.level(&model)?;
    let mut output = Output::open(arguments)?;
    let file = &arguments.data;
    let format = joined_format(model.schema().map(|schema| &schema.format), format);
    let table = rows::open(file, &format)?;
    let mut schema = schema_of(&model, file, table.columns(), arguments.target.as_deref())?;
    schema.format = format;
    if arguments.node.is_some() || arguments.shared {
        schema.node = schema.node.filter(|node| node != BY_FILE);
    }
    let mut stream = SampleStream::predicting(file, table, &schema)?;
    let no_model = |source| PredictError::NoModel { path: path.to_owned(), source };
    let mut predictor = Predictor::new(&model, arguments, &stream).map_err(no_model)?;
    if arguments.interval.is_some() && !predictor.has_intervals(&model) {
        return Err(PredictError::NoIntervals.into());
    }
    let layout = Layout {
        has_nodes: stream.has_owners(),
        has_intervals: predictor.has_intervals(&model),
        has_labels: stream.has_labels(),
        targets: model.targets(),
        classes: model.classes().to_vec(),
    };
    let mut goes_on = arguments.json || output.line(&layout.heading())?;
    let (mut summary, mut sample) = (Summary::new(&layout), Sample::default());
    while goes_on && stream.next(&mut sample).map_err(explained)? {
        let owner = stream.owners().get(sample.owner as usize).map(String::as_str);
        if arguments.node.as_deref().is_some_and(|node| owner.is_some_and(|owner| owner != node)) {
            continue;
        }
        let unknown = |source| {
            let (row, column) = (Some(sample.row), schema.node.clone());
            PredictError::UnknownNode {
                place: CellPosition { file: file.clone(), row, column },
                source,
            }
        };
        let node = predictor.of(&model, owner).map_err(unknown)?;
        let class = node.predict(&sample.x).map_err(PredictError::Inputs)?.class;
        summary.add_row(&sample.x);
        for at in 0..layout.targets.len().max(1) {
            let predicted = match class {
                Some(class) => Predicted::Class(class, node.probabilities()),
                None => Predicted::Number(node.values()[at], node.interval(at, level)),
            };
            let label = sample.y.get(at).copied().filter(|label| !label.is_nan());
            let answer = Answer { row: sample.row, owner, output: at, predicted, label };
            summary.add(&answer);
            let line = if arguments.json { answer.json(&layout) } else { answer.csv(&layout) };
            goes_on = goes_on && output.line(&line)?;
        }
    }
    output.finish()?;
    let unknown = stream.unknown_texts();
    let node = arguments.node.as_deref();
    summary.add_without_past(stream.rows_without_past(node), stream.history());
    // A closed standard error is no reason to fail.
    _ = writeln!(
        std::io::stderr(),
        "{}",
        if arguments.json {
            summary.json(&predictor, &layout, &unknown)
        } else {
            summary.words(&predictor, &layout, &unknown)
        }
    );
    Ok(())
}

impl Arguments {
    fn model(&self) -> &Path {
        self.model.as_ref().or(self.named_model.as_ref()).map_or(Path::new(""), PathBuf::as_path)
    }

    /// What share of labels intervals contain.
    fn level(&self, model: &Model) -> Result<Level, PredictError> {
        let of_run = || model.card().interval.map(|share| share.to_string());
        let Some(text) = self.interval.clone().or_else(of_run) else {
            return Ok(Level::default());
        };
        let level = text.parse().ok().and_then(|share| Level::new(share).ok());
        level.ok_or(PredictError::Level { found: text })
    }
}

/// What to do about a text differs from what `simulate` says.
fn explained(error: DataError) -> anyhow::Error {
    match error {
        DataError::Text(place, text) => PredictError::Text(place, text).into(),
        other => other.into(),
    }
}

/// How to read a table: as the run did, where the user says nothing else.
fn joined_format(of_run: Option<&Format>, mut given: Format) -> Format {
    if let Some(of_run) = of_run {
        given.separator = given.separator.or(of_run.separator);
        given.decimal = given.decimal.or(of_run.decimal);
        given.header = given.header.or(of_run.header);
        let more = of_run.missing.iter().filter(|marker| !given.missing.contains(marker));
        let more: Vec<String> = more.cloned().collect();
        given.missing.extend(more);
    }
    given
}

/// What the columns of a table mean. Without names they are inputs in order, but for the label.
fn schema_of(
    model: &Model,
    file: &Path,
    names: &[String],
    target: Option<&str>,
) -> Result<TableSchema, PredictError> {
    let place = || CellPosition { file: file.to_owned(), row: None, column: None };
    let several = model.targets();
    let given: Option<Vec<String>> = target.map(|target| match several.is_empty() {
        true => vec![target.to_owned()],
        false => target.split(',').map(str::to_owned).collect(),
    });
    if let Some(name) = given.iter().flatten().find(|target| !names.contains(target)) {
        let (name, there) = (excerpt(name), listing(name, names));
        return Err(PredictError::NoColumn { place: place(), name, there });
    }
    if given.as_ref().is_some_and(|given| given.len() != several.len().max(1)) {
        let found = excerpt(target.unwrap_or_default());
        return Err(PredictError::WrongTargets { expected: several.len(), found });
    }
    if let Some(schema) = model.schema() {
        let targets = given.unwrap_or_else(|| schema.targets.clone());
        return Ok(TableSchema { targets, ..schema.clone() });
    }
    let known = || match several.is_empty() {
        true => vec![model.plan().config().target.clone()],
        false => several,
    };
    let targets = given.unwrap_or_else(known);
    let inputs = names.iter().filter(|name| !targets.contains(name));
    let inputs: Vec<String> = inputs.cloned().collect();
    let (expected, found) = (model.plan().inputs(), inputs.len());
    if found != expected {
        return Err(PredictError::WrongCount { place: place(), expected, found });
    }
    Ok(plain_schema(model.plan(), &inputs, targets))
}

/// Who predicts.
enum Predictor {
    /// The shared model; whether nodes have layers over it that are left out.
    Shared(Box<Node>, String),
    /// One node.
    One(Box<Node>, String),
    /// The node of each row.
    EachItsOwn(HashMap<String, Node>),
}

impl Predictor {
    fn new(model: &Model, arguments: &Arguments, stream: &SampleStream) -> Result<Self, NoModel> {
        let names: Vec<&str> = model.nodes().collect();
        let name = match (&arguments.node, &names[..]) {
            (Some(name), _) => Some(name.as_str()),
            (None, [only]) if !model.is_shared() && !arguments.shared => Some(*only),
            _ => None,
        };
        if let Some(name) = name {
            return Ok(Self::One(Box::new(model.node(name)?), name.to_owned()));
        }
        if stream.has_owners() && !names.is_empty() && !arguments.shared {
            return Ok(Self::EachItsOwn(HashMap::new()));
        }
        let mut words = String::new();
        if model.plan().has_own_layers() {
            words += " by the shared model, without what nodes have learned for themselves";
            let column = model.schema().and_then(|schema| schema.node.as_ref());
            if let Some(column) = column.filter(|column| *column != BY_FILE && !arguments.shared) {
                words += &format!(
                    ": no column {:?} names the node of a row (--node NAME predicts as one)",
                    excerpt(column)
                );
            }
        }
        Ok(Self::Shared(Box::new(model.shared()?), words))
    }

    /// The node that predicts a row of this owner.
    fn of(&mut self, model: &Model, owner: Option<&str>) -> Result<&mut Node, NoModel> {
        match self {
            Self::Shared(node, _) | Self::One(node, _) => Ok(node),
            Self::EachItsOwn(nodes) => {
                let owner = owner.unwrap_or_default();
                if !nodes.contains_key(owner) {
                    nodes.insert(owner.to_owned(), model.node(owner)?);
                }
                // It was put there if it wasn't.
                nodes.get_mut(owner).ok_or_else(|| NoModel::NoNodes { name: owner.to_owned() })
            }
        }
    }

    fn has_intervals(&self, model: &Model) -> bool {
        let plan = model.plan();
        let has_numbers = plan.objective().loss != Loss::Logistic && plan.classes().is_none();
        has_numbers && !matches!(self, Self::Shared(..))
    }

    /// Who predicted, in words.
    fn words(&self) -> String {
        match self {
            Self::Shared(_, words) => words.clone(),
            Self::One(_, name) => format!(" by node {name}"),
            Self::EachItsOwn(nodes) => {
                format!(" by {}, each its own", counted(nodes.len(), "node"))
            }
        }
    }
}

/// Where predictions go.
enum Output {
    /// To standard output, which may be closed at any time. Each row is flushed.
    Standard { to: BufWriter<Stdout>, is_live: bool },
    /// To a file that appears once it is whole.
    File { to: BufWriter<NewFile>, path: PathBuf },
}

impl Output {
    fn open(arguments: &Arguments) -> anyhow::Result<Self> {
        let Some(path) = &arguments.out else {
            let is_live = arguments.data.as_os_str() == "-";
            return Ok(Self::Standard { to: BufWriter::new(std::io::stdout()), is_live });
        };
        let inputs =
            [("what --data reads", arguments.data.as_path()), ("the model", arguments.model())];
        for (what, other) in inputs {
            if path
                .canonicalize()
                .is_ok_and(|path| other.canonicalize().is_ok_and(|other| path == other))
            {
                return Err(PredictError::SameFile { path: path.clone(), what }.into());
            }
        }
        Ok(Self::File {
            to: BufWriter::new(NewFile::create(path, Access::Shared)?),
            path: path.clone(),
        })
    }

    /// Writes a line and says whether more are wanted.
    fn line(&mut self, text: &str) -> Result<bool, OutputError> {
        let (written, path) = match self {
            Self::Standard { to, is_live: true } => {
                (writeln!(to, "{text}").and_then(|()| to.flush()), None)
            }
            Self::Standard { to, is_live: false } => (writeln!(to, "{text}"), None),
            Self::File { to, path } => (writeln!(to, "{text}"), Some(&*path)),
        };
        goes_on(written, path)
    }

    fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Standard { mut to, .. } => {
                goes_on(to.flush(), None)?;
            }
            Self::File { to, path } => {
                let unwritable = |source| OutputError::Unwritable { path, source };
                to.into_inner().map_err(|error| unwritable(error.into_error()))?.finish()?;
            }
        }
        Ok(())
    }
}

/// A closed standard output is no error.
fn goes_on(written: std::io::Result<()>, path: Option<&PathBuf>) -> Result<bool, OutputError> {
    match (written, path) {
        (Ok(()), _) => Ok(true),
        (Err(error), None) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        (Err(source), path) => {
            let path = path.cloned().unwrap_or_else(|| "standard output".into());
            Err(OutputError::Unwritable { path, source })
        }
    }
}
