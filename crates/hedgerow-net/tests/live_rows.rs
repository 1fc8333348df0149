//! Rows of a node become the inputs that a simulation makes of the same table, bit for bit: random
//! tables and settings, as CSV and as JSON, also after a restart.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use hedgerow::Plan;
use hedgerow_config::Layer;
use hedgerow_data::calendar::{CalendarChoice, Cycle};
use hedgerow_data::columns::{Categories, ColumnChoice, Exogenous};
use hedgerow_data::live::{LiveRow, LiveSeries, NoSample};
use hedgerow_data::samples::{Sample, SampleStream};
use hedgerow_data::schema::{Encoding, TableSchema};
use hedgerow_net::agent::lines::Line;
use hedgerow_net::agent::rows::{Format, Rows};
use hedgerow_net::agent::sample::{Others, Schema};
use hedgerow_net::learning::config::read_plan;
#[cfg(feature = "server")]
use hedgerow_net::{agent::state::StateFile, export::model_of};
use proptest::prelude::*;

/// A row of a table: temperature, sky, wind and load. Some are missing.
type Cells = (Option<i16>, Option<u8>, Option<i16>, Option<i16>);

#[derive(Debug, Clone)]
struct Case {
    rows: Vec<Cells>,
    /// Minutes between two rows.
    step: u32,
    lags: usize,
    is_wind_lagged: bool,
    cycles: Vec<Cycle>,
    exogenous: Exogenous,
    has_columns: bool,
    /// Whether date and clock are columns of their own.
    is_time_split: bool,
    restart: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let number = || prop::option::weighted(0.9, -999_i16..999);
    let row = (number(), prop::option::weighted(0.9, 0_u8..3), number(), number());
    let cycles = prop::sample::subsequence(Cycle::ALL.to_vec(), 0..=3);
    let rows = prop::collection::vec(row, 2..25);
    (rows, 1_u32..3000, 0_usize..5, any::<[bool; 4]>(), cycles, 0_usize..25).prop_map(
        |(mut rows, step, lags, [lagged, origin, has_columns, split], cycles, restart)| {
            // So that the column holds text.
            rows[0].1 = Some(0);
            Case {
                rows,
                step,
                lags,
                is_wind_lagged: lagged && lags > 0,
                has_columns: has_columns || (lags == 0 && cycles.is_empty()),
                cycles,
                exogenous: if origin { Exogenous::Origin } else { Exogenous::SameRow },
                is_time_split: split,
                restart,
            }
        },
    )
}

const SKIES: [&str; 3] = ["clear", "light rain", "fog"];

impl Case {
    fn time_columns(&self) -> Vec<&'static str> {
        if self.is_time_split { vec!["day", "clock"] } else { vec!["when"] }
    }

    fn time(&self, row: usize) -> Vec<String> {
        let minutes = row as u32 * self.step;
        let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
        let day = format!("2026-{:02}-{:02}", 1 + days / 28, 1 + days % 28);
        let clock = format!("{hours:02}:{minutes:02}");
        if self.is_time_split { vec![day, clock] } else { vec![format!("{day} {clock}")] }
    }

    /// The cells of a row as texts; empty if missing.
    fn cells(&self, row: usize) -> Vec<String> {
        let (temp, sky, wind, load) = self.rows[row];
        let number = |value: Option<i16>| {
            value.map_or(String::new(), |value| (f32::from(value) / 7.0).to_string())
        };
        let sky = sky.map_or(String::new(), |sky| SKIES[usize::from(sky)].to_owned());
        let more = [number(temp), sky, number(wind), number(load)];
        self.time(row).into_iter().chain(more).collect()
    }

    fn names(&self) -> Vec<&'static str> {
        self.time_columns().into_iter().chain(["temp", "sky", "wind", "load"]).collect()
    }

    fn csv(&self) -> String {
        let mut text = self.names().join(",") + "\n";
        (0..self.rows.len())
            .for_each(|row| writeln!(text, "{}", self.cells(row).join(",")).unwrap());
        text
    }

    fn json(&self) -> String {
        let object = |row: usize| {
            let cells = self.names().into_iter().zip(self.cells(row));
            let cells = cells.map(|(name, cell)| match (cell.as_str(), cell.parse::<f32>()) {
                ("", _) => format!("{name:?}: null"),
                (_, Ok(_)) => format!("{name:?}: {cell}"),
                _ => format!("{name:?}: {cell:?}"),
            });
            format!("{{{}}}\n", cells.collect::<Vec<_>>().join(", "))
        };
        (0..self.rows.len()).map(object).collect()
    }

    fn choice(&self) -> ColumnChoice {
        let own = if self.has_columns { &["temp", "sky"][..] } else { &[] };
        let own: Vec<String> = own.iter().map(|name| (*name).to_owned()).collect();
        ColumnChoice {
            targets: vec!["load".to_owned()],
            features: Some(own),
            time: self.time_columns().into_iter().map(str::to_owned).collect(),
            calendar: CalendarChoice::Cycles(self.cycles.clone()),
            categories: Categories::OneHot,
            lags: self.lags,
            lagged: if self.is_wind_lagged { vec!["wind".to_owned()] } else { vec![] },
            exogenous: self.exogenous,
            ..ColumnChoice::default()
        }
    }

    /// The samples of a simulation, and what it calls its inputs.
    fn simulated(&self) -> (Vec<Vec<u32>>, TableSchema) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.csv");
        std::fs::write(&file, self.csv()).unwrap();
        let mut stream = SampleStream::open(&[file], &self.choice()).unwrap();
        let (mut samples, mut sample) = (Vec::new(), Sample::default());
        while stream.next(&mut sample).unwrap() {
            samples.push(bits(&sample.x, &sample.y));
        }
        (samples, stream.schema().clone())
    }

    /// What a server with the same settings agrees on with its nodes.
    fn plan(&self, schema: &TableSchema) -> Plan {
        let names: Vec<&String> = schema.inputs.iter().map(|input| &input.name).collect();
        let mut text = format!("[learning]\ncolumns = {names:?}\ntarget = \"load\"\n");
        let cycles: Vec<&str> = self.cycles.iter().map(|cycle| cycle.name()).collect();
        let calendar = if cycles.is_empty() { "none".to_owned() } else { cycles.join(",") };
        let origin = self.exogenous == Exogenous::Origin;
        let exogenous = if origin { "origin" } else { "same-row" };
        let time = self.time_columns().join("+");
        writeln!(text, "time = {time:?}\ncalendar = {calendar:?}\nlags = {}", self.lags).unwrap();
        writeln!(text, "lagged = {:?}\nexogenous = {exogenous:?}", schema.lagged).unwrap();
        for input in &schema.inputs {
            if let Encoding::OneHot(texts) = &input.encoding {
                writeln!(text, "[learning.categories]\n{} = {texts:?}", input.name).unwrap();
            }
        }
        read_plan(&[Layer::toml("", &text).unwrap()], None).unwrap()
    }

    /// What a node makes of the lines of a text.
    fn live(&self, plan: &Plan, format: Format, text: &str) -> Vec<Vec<u32>> {
        let table = TableSchema::of_plan(plan.config()).unwrap();
        let schema = Schema::new(plan, &table, Others::Ignore, &[]);
        let (mut rows, mut series) = (Rows::new(format), LiveSeries::new(table.clone()));
        let mut samples = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            if number == self.restart as u64 {
                let past = series.save();
                series = LiveSeries::new(table.clone());
                past.into_iter().for_each(|past| series.restore(&past).unwrap());
                if let Some(header) = rows.header() {
                    rows = Rows::under(header, &schema).unwrap();
                }
            }
            let line = Line { number, text: Some(line.as_bytes().to_vec()) };
            let Some(sample) = rows.read(&schema, &line, number == 1).unwrap() else { continue };
            let row = LiveRow {
                inputs: sample.x.as_deref().unwrap(),
                lagged: &sample.lagged,
                labels: sample.y.as_deref(),
                time: sample.time,
            };
            match series.inputs(&row) {
                Ok(x) => samples.push(bits(x, sample.y.as_deref().unwrap_or(&[f32::NAN]))),
                Err(refused) => assert!(matches!(refused, NoSample::Waits { .. }), "{refused}"),
            }
            series.push(&row, None);
        }
        samples
    }
}

fn bits(x: &[f32], y: &[f32]) -> Vec<u32> {
    x.iter().chain(y).map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rows_of_a_node_are_the_simulation_s_samples(case in cases()) {
        let (samples, schema) = case.simulated();
        let plan = case.plan(&schema);
        prop_assert_eq!(plan.inputs(), schema.width());
        prop_assert_eq!(&case.live(&plan, Format::Csv, &case.csv()), &samples);
        prop_assert_eq!(&case.live(&plan, Format::Json, &case.json()), &samples);
    }
}

#[test]
fn what_waits_and_what_is_out_of_order_is_told() {
    let text = "[learning]\ntarget = \"y\"\ntime = \"t\"\nlags = 2";
    let plan = read_plan(&[Layer::toml("", text).unwrap()], None).unwrap();
    assert_eq!(plan.config().columns, ["y -1", "y -2"]);
    let mut series = LiveSeries::new(TableSchema::of_plan(plan.config()).unwrap());
    let row = |time: f64, y: &'static [f32]| LiveRow {
        inputs: &[],
        lagged: &[],
        labels: (!y.is_empty()).then_some(y),
        time: Some(time),
    };
    for (time, y, id, told) in [
        (10.0, &[1.0][..], None, "waits for 2 earlier rows"),
        (20.0, &[], Some("late"), "waits for 1 earlier row"),
    ] {
        assert_eq!(series.inputs(&row(time, y)).unwrap_err().to_string(), told);
        series.push(&row(time, y), id);
    }
    // A label that comes later is part of the past as if it had come with its row.
    assert!(series.inputs(&row(30.0, &[])).unwrap()[0].is_nan());
    series.set_labels("nobody", &[9.0]);
    series.set_labels("late", &[5.0]);
    assert_eq!(series.inputs(&row(30.0, &[])).unwrap(), [5.0, 1.0]);
    let error = |series: &mut LiveSeries, time| series.inputs(&row(time, &[])).unwrap_err();
    assert_eq!(error(&mut series, 20.0), NoSample::Repeats);
    assert!(error(&mut series, 15.5).to_string().contains("4.5 s before"));
    // A past of other columns is refused.
    let saved = series.save().unwrap();
    let text = text.replace("lags = 2", "lags = 1");
    let other = read_plan(&[Layer::toml("", &text).unwrap()], None).unwrap();
    let mut other = LiveSeries::new(TableSchema::of_plan(other.config()).unwrap());
    assert!(other.restore(&saved).unwrap_err().contains("columns"));
    assert!(other.restore(&saved[..3]).unwrap_err().contains("can't be read"));
}

/// A model that is exported from a node's state file predicts a table as the node does.
#[cfg(feature = "server")]
#[test]
fn an_exported_node_makes_the_same_inputs_and_predictions() {
    let text = "[learning]\nmethod = \"mk\"\ncolumns = [\"a\"]\ntarget = \"y\"\ntime = \"when\"\n\
                calendar = \"hour\"\nlags = 2\nscaling = \"none\"";
    let plan = read_plan(&[Layer::toml("", text).unwrap()], None).unwrap();
    let mut series = LiveSeries::new(TableSchema::of_plan(plan.config()).unwrap());
    let (mut node, mut samples) = (plan.node(0), Vec::new());
    let mut table = "when,a,y\n".to_owned();
    for hour in 0_u16..40 {
        let (a, y) = (f32::from(hour % 7) / 7.0, f32::from(hour % 5) / 5.0);
        let time = 3600.0 * f64::from(hour);
        writeln!(table, "{time},{a},{y}").unwrap();
        let row = LiveRow { inputs: &[a], lagged: &[], labels: Some(&[y]), time: Some(time) };
        if let Ok(x) = series.inputs(&row) {
            node.learn(x, &[y]).unwrap();
            samples.push(x.to_vec());
        }
        series.push(&row, None);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("n.state");
    let (file, _) = StateFile::open(&path, "n", &[]).unwrap();
    file.save(&node, None, series.save())().unwrap();
    drop(file);
    let model = model_of(&path).unwrap();
    let schema = model.schema().unwrap();
    let name = std::path::Path::new("t.csv");
    let rows =
        hedgerow_data::rows::read(std::io::Cursor::new(table), name, &schema.format).unwrap();
    let mut stream = SampleStream::predicting(name, rows, schema).unwrap();
    let (mut exported, mut sample) = (model.node("n").unwrap(), Sample::default());
    for x in &samples {
        assert!(stream.next(&mut sample).unwrap());
        assert_eq!(bits(&sample.x, &[]), bits(x, &[]));
        let [found, expected] = [exported.predict(x), node.predict(x)].map(|it| it.unwrap().value);
        assert_eq!(found.to_bits(), expected.to_bits());
    }
    assert!(samples.len() == 38 && !stream.next(&mut sample).unwrap());
    // Rows of the past are samples: they are wiped with them.
    StateFile::forget_samples(&path).unwrap();
    let (_file, kept) = StateFile::open(&path, "n", &[]).unwrap();
    assert!(kept.unwrap().past.is_none());
}
