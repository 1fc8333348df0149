//! `hedgerow predict`: predictions from a model in a file, without a server.

use std::io::{BufWriter, ErrorKind, Stdout, Write};
use std::path::{Path, PathBuf};

use hedgerow::limits::MAX_LABEL;
use hedgerow_config::flags::{Flag, FlagSet, SettingFlags};
use hedgerow_data::rows::{self, Cell, CellPosition, Row};
use hedgerow_data::text::excerpt;
use hedgerow_lab::output::OutputError;
use hedgerow_lab::settings::Settings;
use hedgerow_net::export::{Model, Predictor};
use hedgerow_net::file::{Access, NewFile};
use hedgerow_report::terminal::significant;
use serde_json::json;

use crate::flags;

/// Predict with a model that `hedgerow export` wrote.
///
/// Rows come from CSV with any usual separator or JSON Lines, gzipped, zstandard or plain. Columns
/// are found by the names that the model was learned with; a model without names takes all columns
/// but the label's, in order. Missing values are filled in with the middle of their scale. The
/// prediction is that of the shared model, without what a node has learned for itself: that of a
/// node that has just joined.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// The model
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// What to predict from; - is standard input, answered row by row
    #[arg(long, value_name = "FILE", default_value = "-")]
    data: PathBuf,
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
  hedgerow predict --model model.safetensors --data new.csv
  hedgerow predict --model model.safetensors --data old.csv --target load --out predictions.csv
  tail -f log.csv | hedgerow predict --model model.safetensors --json

Each row has the number of its line in the input, the prediction and, where there is a label, the label and the squared error.
The mean squared error is told at the end, on standard error.";

/// Why there are no predictions.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PredictError {
    /// A column that isn't there.
    #[error("{place}: no column {name:?}; there are {there}")]
    NoColumn { place: CellPosition, name: String, there: String },
    /// Columns that can't be told apart.
    #[error(
        "{place}: {found} columns besides the label's, and the model takes {expected} inputs, which have no names (--target names the label)"
    )]
    WrongCount { place: CellPosition, expected: usize, found: usize },
    /// Text where a number should be.
    #[error("{place}: {text:?} is not a number (--missing names what stands for a missing value)")]
    Text { place: CellPosition, text: String },
    /// A number too large to compute with.
    #[error("{place}: {value:e} is beyond the bound of ±{bound:e}")]
    TooLarge { place: CellPosition, value: f64, bound: f32 },
    /// The output would swallow an input.
    #[error("--out {}: that is what --{what} reads", .path.display())]
    SameFile { path: PathBuf, what: &'static str },
}

pub(crate) fn predict(arguments: &Arguments) -> anyhow::Result<()> {
    let format = Settings::load(&arguments.flags.layers(None)?)?.data.columns.format;
    let model = Model::read(&arguments.model)?;
    let mut predictor = Predictor::new(&model)?;
    let mut output = Output::open(arguments)?;
    let mut table = rows::open(&arguments.data, &format)?;
    let (file, names) = (&arguments.data, table.columns().to_vec());
    let columns = Columns::find(file, &names, &model, arguments.target.as_deref())?;
    let mut goes_on = arguments.json || output.line(columns.heading())?;
    let (mut summary, mut row, mut x) = (Summary::default(), Row::default(), Vec::new());
    while goes_on && table.next(&mut row)? {
        let number = |column: usize, bound: f32| match row.cell(column) {
            Cell::Missing => Ok(f32::NAN),
            Cell::Number(value) if value.abs() <= f64::from(bound) => Ok(value as f32),
            cell => {
                let (row, column) = (Some(row.line()), Some(names[column].clone()));
                Err(PredictError::of(cell, CellPosition { file: file.clone(), row, column }, bound))
            }
        };
        x.clear();
        for column in &columns.inputs {
            x.push(number(*column, f32::MAX)?);
        }
        let label = columns.target.map(|column| number(column, MAX_LABEL)).transpose()?;
        let label = label.filter(|label| !label.is_nan());
        let answer = Answer { row: row.line(), prediction: predictor.predict(&x), label };
        summary.add(&x, &answer);
        goes_on =
            output.line(&if arguments.json { answer.json() } else { answer.csv(&columns) })?;
    }
    output.finish()?;
    // A closed standard error is no reason to fail.
    _ = writeln!(
        std::io::stderr(),
        "{}",
        if arguments.json { summary.json() } else { summary.words() }
    );
    Ok(())
}

impl PredictError {
    /// What is wrong with a cell that is no number within its bound.
    fn of(cell: Cell<'_>, place: CellPosition, bound: f32) -> Self {
        match cell {
            Cell::Number(value) => Self::TooLarge { place, value, bound },
            Cell::Text(text) => Self::Text { place, text: excerpt(text) },
            Cell::Missing => Self::Text { place, text: String::new() },
        }
    }
}

/// Number of columns that a message lists at most.
const LISTED_COLUMNS: usize = 10;

/// Which columns mean what.
struct Columns {
    inputs: Vec<usize>,
    target: Option<usize>,
}

impl Columns {
    fn find(
        file: &Path,
        names: &[String],
        model: &Model,
        target: Option<&str>,
    ) -> Result<Self, PredictError> {
        let place = || CellPosition { file: file.to_owned(), row: None, column: None };
        let position = |wanted: &str| names.iter().position(|name| name == wanted);
        let find = |wanted: &str| {
            position(wanted).ok_or_else(|| {
                let mut there: Vec<String> =
                    names.iter().take(LISTED_COLUMNS).map(|name| excerpt(name)).collect();
                if names.len() > LISTED_COLUMNS {
                    there.push(format!("{} more", names.len() - LISTED_COLUMNS));
                }
                let (name, there) = (excerpt(wanted), there.join(", "));
                PredictError::NoColumn { place: place(), name, there }
            })
        };
        let learning = model.plan().config();
        let target = match target {
            Some(target) => Some(find(target)?),
            None => position(&learning.target),
        };
        if !learning.columns.is_empty() {
            let inputs =
                learning.columns.iter().map(|name| find(name)).collect::<Result<_, _>>()?;
            return Ok(Self { inputs, target });
        }
        let inputs: Vec<usize> =
            (0..names.len()).filter(|column| Some(*column) != target).collect();
        let (expected, found) = (model.plan().inputs(), inputs.len());
        if found != expected {
            return Err(PredictError::WrongCount { place: place(), expected, found });
        }
        Ok(Self { inputs, target })
    }

    fn heading(&self) -> &'static str {
        if self.target.is_some() { "row,prediction,label,squared_error" } else { "row,prediction" }
    }
}

/// One prediction.
struct Answer {
    row: u64,
    prediction: f32,
    label: Option<f32>,
}

impl Answer {
    fn squared_error(&self) -> Option<f64> {
        self.label.map(|label| (f64::from(self.prediction) - f64::from(label)).powi(2))
    }

    fn csv(&self, columns: &Columns) -> String {
        let Self { row, prediction, label } = self;
        match (columns.target, label, self.squared_error()) {
            (None, ..) => format!("{row},{prediction}"),
            (_, Some(label), Some(error)) => format!("{row},{prediction},{label},{error}"),
            _ => format!("{row},{prediction},,"),
        }
    }

    fn json(&self) -> String {
        let Self { row, prediction, label } = self;
        // Written as they are in CSV; as a number of twice the size they would have digits that
        // mean nothing.
        let mut text = format!("{{\"row\":{row},\"prediction\":{prediction:?}");
        if let (Some(label), Some(error)) = (label, self.squared_error()) {
            text += &format!(",\"label\":{label:?},\"squared_error\":{error:?}");
        }
        text + "}"
    }
}

/// What came of all rows.
#[derive(Default)]
struct Summary {
    rows: u64,
    labels: u64,
    missing: u64,
    squared_error: f64,
}

impl Summary {
    fn add(&mut self, x: &[f32], answer: &Answer) {
        self.rows += 1;
        self.missing += x.iter().filter(|value| value.is_nan()).count() as u64;
        if let Some(error) = answer.squared_error() {
            self.labels += 1;
            self.squared_error += error;
        }
    }

    fn mse(&self) -> Option<f64> {
        (self.labels > 0).then(|| self.squared_error / self.labels as f64)
    }

    fn words(&self) -> String {
        let Self { rows, labels, missing, .. } = self;
        let mut words = format!("{rows} rows");
        if *missing > 0 {
            words += &format!(", {missing} missing values filled in");
        }
        if let Some(mse) = self.mse() {
            words += &format!(", MSE {} over {labels} labels", significant(mse));
        }
        words
    }

    fn json(&self) -> String {
        let Self { rows, labels, missing, .. } = self;
        json!({ "rows": rows, "missing": missing, "labels": labels, "mse": self.mse() }).to_string()
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
        for (what, other) in [("data", &arguments.data), ("model", &arguments.model)] {
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
