//! `hedgerow model`: what is in a file of a model.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hedgerow_data::columns::Exogenous;
use hedgerow_data::schema::{Encoding, TableSchema};
use hedgerow_data::text::{counted, excerpt};
use hedgerow_data::timestamp;
use hedgerow_model::{Card, CardError, Model};
use hedgerow_report::table::Table;
use hedgerow_report::terminal::significant;
use serde_json::Value;

use crate::terminal::{print, print_json};

/// Show what is in a model: its card.
///
/// Data, inputs, nodes, and the errors that the run measured: each prediction was made before its
/// label was known.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Print all of it, with every setting of the run, as JSON
    #[arg(long)]
    json: bool,
}

/// Names that are listed at most.
const LISTED: usize = 12;

pub(crate) fn show(arguments: &Arguments) -> anyhow::Result<()> {
    let model = Model::read(&arguments.model)?;
    if arguments.json {
        return print_json(&as_json(&arguments.model, &model));
    }
    Ok(print(&words(&arguments.model, &model))?)
}

/// The model with the present date on its card.
pub(crate) fn dated(mut model: Model) -> Model {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let created = Some(timestamp::write(now as f64));
    model.set_card(Card { created, ..model.card().clone() });
    model
}

/// Everything but the numbers.
pub(crate) fn as_json(path: &Path, model: &Model) -> Value {
    let mut described = model.describe();
    described["file"] = path.display().to_string().into();
    described
}

fn words(path: &Path, model: &Model) -> String {
    let (plan, card) = (model.plan(), model.card());
    let method = if card.method.is_empty() { plan.method().name } else { &card.method };
    let when = card.created.as_ref().map_or(String::new(), |created| format!(", {created} UTC"));
    let mut text = format!(
        "{}: {method} ({}) before round {}, written by {}{when}\n",
        path.display(),
        plan.method().title,
        model.round(),
        model.software()
    );
    let mut line = |name: &str, value: String| text += &format!("{name:<10} {value}\n");
    if let Some(data) = &card.data {
        let from = if data.provenance.is_empty() {
            String::new()
        } else {
            format!(" ({})", data.provenance)
        };
        let (samples, nodes) = (counted(data.samples, "sample"), counted(data.nodes, "node"));
        line("data", format!("{}{from}: {samples}, {nodes}", data.name));
    }
    match model.schema() {
        Some(schema) => {
            line("predicts", target(schema));
            line("inputs", inputs(schema));
        }
        None => line("inputs", format!("{} numbers without names", plan.inputs())),
    }
    if !model.classes().is_empty() {
        line("classes", listed(model.classes().iter().map(String::as_str)));
    }
    line("shared", if model.is_shared() { "yes" } else { "no" }.to_owned());
    let layers = if plan.has_own_layers() { ", each with a layer of its own" } else { "" };
    match model.nodes().len() {
        0 if plan.has_own_layers() => line("nodes", "none: their own layers are not in it".into()),
        0 => line("nodes", "none".to_owned()),
        count => line("nodes", format!("{count}{layers}: {}", listed(model.nodes()))),
    }
    if !card.errors.is_empty() {
        let (targets, has_classes) = (model.targets(), !model.classes().is_empty());
        let number = |value: Option<f64>| value.map_or("–".to_owned(), significant);
        let row = |error: &CardError| {
            let CardError { method: name, mse, rmse, mae, r2, .. } = error;
            let share =
                |share: &Option<f64>| share.map_or("–".to_owned(), |one| format!("{one:.3}"));
            let name = if name == method { format!("{name} (this model)") } else { name.clone() };
            let mut cells = vec![name];
            if targets.is_empty() && !has_classes {
                cells.extend([number(*mse), number(*rmse), number(*mae), share(r2)]);
            }
            let each = (0..targets.len()).map(|at| number(error.target_rmse.get(at).copied()));
            cells.extend(each);
            if has_classes {
                cells.extend([share(&error.accuracy), number(error.log_loss)]);
            }
            cells
        };
        let mut headings = vec!["method".to_owned()];
        headings.extend(match (targets.is_empty(), has_classes) {
            (_, true) => vec!["accuracy".to_owned(), "log loss".to_owned()],
            (true, _) => ["MSE", "RMSE", "MAE", "R²"].map(str::to_owned).to_vec(),
            (false, _) => targets.iter().map(|name| format!("RMSE {}", excerpt(name))).collect(),
        });
        text += "\nErrors of the run, of predictions made before their labels were known:\n\n";
        text += &Table::of_numbers(headings, card.errors.iter().map(row)).text();
    }
    text
}

fn target(schema: &TableSchema) -> String {
    let names = listed(schema.targets.iter().map(String::as_str));
    match schema.horizon {
        1 => names,
        steps => format!("{names}, {steps} steps ahead"),
    }
}

fn inputs(schema: &TableSchema) -> String {
    let own = schema.inputs.iter().map(|input| match &input.encoding {
        Encoding::Number => excerpt(&input.name),
        Encoding::OneHot(texts) => {
            let texts = listed(texts.iter().map(String::as_str));
            format!("{} ({texts})", excerpt(&input.name))
        }
        Encoding::Hashed(count) => format!("{} (hashed to {count})", excerpt(&input.name)),
    });
    let past = schema.targets.iter().chain(&schema.lagged).filter(|_| schema.lags > 0);
    let past = past.map(|name| format!("{} past values of {}", schema.lags, excerpt(name)));
    let calendar = schema.calendar.iter().map(|cycle| format!("{} of its time", cycle.name()));
    let all: Vec<String> = own.chain(past).chain(calendar).collect();
    let of_origin = schema.exogenous == Exogenous::Origin && !schema.inputs.is_empty();
    let when = if of_origin { "; columns are of the row that the forecast is made in" } else { "" };
    all.join(", ") + when
}

fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let mut text = names.take(LISTED).map(excerpt).collect::<Vec<_>>().join(", ");
    if count > LISTED {
        text += &format!(" and {} more", count - LISTED);
    }
    text
}
