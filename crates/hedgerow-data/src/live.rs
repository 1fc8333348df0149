//! [`LiveSeries`]: the rows of one device as they come. They become the inputs that a
//! [`SampleStream`](super::samples::SampleStream) makes of the same rows.

use std::collections::{BTreeMap, VecDeque};

use hedgerow::plan::SeriesRule;
use hedgerow::{Plan, PlanConfig};
use serde::{Deserialize, Serialize};

use super::calendar::Cycle;
use super::columns::{Disorder, Duplicates, Exogenous};
use super::samples::Sample;
use super::schema::TableSchema;
use super::series::Series;
use super::text::counted;

/// One row; NaN is missing.
#[derive(Debug, Clone, Copy)]
pub struct LiveRow<'a> {
    /// Its inputs.
    pub inputs: &'a [f32],
    /// The columns whose past counts, besides the labels.
    pub lagged: &'a [f32],
    /// Its labels, if they are known.
    pub labels: Option<&'a [f32]>,
    /// Its time in seconds; none without a column of the time.
    pub time: Option<f64>,
}

/// Why a row makes no sample.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoSample {
    /// There is too little past.
    #[error("waits for {}", counted(*.rows, "earlier row"))]
    Waits {
        /// Rows that must come before it.
        rows: usize,
    },
    /// It is older than the row before.
    #[error("its time is {seconds} s before that of the row before: rows must come in order")]
    GoesBack {
        /// By how much.
        seconds: f64,
    },
    /// It has the time of the row before.
    #[error("its time is that of the row before")]
    Repeats,
}

/// The last rows of a device, as far as later samples need them.
#[derive(Debug)]
pub struct LiveSeries {
    schema: TableSchema,
    past: Past,
    sample: Sample,
    /// In the place of labels that aren't known.
    unknown: Vec<f32>,
}

/// What must be stored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Past {
    series: Series,
    /// The id of each row of the past, the latest first.
    ids: VecDeque<Option<String>>,
    /// Time of the last row.
    clock: Option<f64>,
}

impl LiveSeries {
    /// Rows of this schema, without a past.
    pub fn new(schema: TableSchema) -> Self {
        let unknown = vec![f32::NAN; schema.shape().labels];
        Self { schema, past: Past::default(), sample: Sample::default(), unknown }
    }

    /// What the columns of its rows mean.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// The inputs of a row's sample. The row doesn't become part of the past.
    pub fn inputs(&mut self, row: &LiveRow<'_>) -> Result<&[f32], NoSample> {
        let shape = self.schema.shape();
        let time = row.time.unwrap_or(0.0);
        // Without a past each row is predicted by itself.
        if shape.looks_back()
            && row.time.is_some()
            && let Some(before) = self.past.clock.filter(|before| time <= *before)
        {
            let seconds = before - time;
            let repeats = seconds == 0.0;
            return Err(if repeats { NoSample::Repeats } else { NoSample::GoesBack { seconds } });
        }
        let labels = row.labels.unwrap_or(&self.unknown);
        if !self.past.series.peek(&shape, row.inputs, labels, &mut self.sample) {
            return Err(NoSample::Waits { rows: shape.history() - self.past.series.len() });
        }
        self.schema.add_calendar(time, &mut self.sample.x);
        Ok(&self.sample.x)
    }

    /// Makes a row part of the past. Labels that come later have its id.
    pub fn push(&mut self, row: &LiveRow<'_>, id: Option<&str>) {
        let shape = self.schema.shape();
        if !shape.looks_back() {
            return;
        }
        let Past { series, ids, clock } = &mut self.past;
        let labels = row.labels.unwrap_or(&self.unknown);
        series.next(&shape, row.inputs, row.lagged, labels, &mut self.sample);
        ids.push_front(id.map(str::to_owned));
        ids.truncate(shape.history());
        *clock = row.time.or(*clock);
    }

    /// The labels of an earlier row have come.
    pub fn set_labels(&mut self, id: &str, labels: &[f32]) {
        let place = self.past.ids.iter().position(|known| known.as_deref() == Some(id));
        if let Some(place) = place.filter(|_| labels.len() == self.unknown.len()) {
            self.past.series.set_labels(place, labels);
        }
    }

    /// Its past, to be stored; none if samples need no past.
    pub fn save(&self) -> Option<Vec<u8>> {
        // Writing to memory can't fail.
        self.schema.looks_back().then(|| postcard::to_allocvec(&self.past).unwrap_or_default())
    }

    /// Continues with a stored past, or says what is wrong with it.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        let past: Past = postcard::from_bytes(saved)
            .map_err(|error| format!("the earlier rows can't be read: {error}"))?;
        let fits = past.series.fits(&self.schema.shape())
            && past.ids.len() == past.series.len()
            && past.clock.is_none_or(f64::is_finite);
        if !fits {
            return Err("the earlier rows are not of the columns that are learned from".to_owned());
        }
        self.past = past;
        Ok(())
    }
}

impl TableSchema {
    /// What the columns of the rows of a plan's nodes mean, or what is wrong with them. Inputs
    /// without names are called `x[0]`, `x[1]`, ….
    pub fn of_plan(config: &PlanConfig) -> Result<Self, String> {
        let plain = || SeriesRule { inputs: config.inputs, ..SeriesRule::default() };
        let rule = config.series.clone().unwrap_or_else(plain);
        let own = match &config.columns[..] {
            [] if rule.inputs <= config.inputs => {
                Some((0..rule.inputs).map(|place| format!("x[{place}]")).collect())
            }
            columns => columns.get(..rule.inputs).map(<[String]>::to_vec),
        };
        let own = own.ok_or_else(|| {
            let row = counted(rule.inputs, "input");
            format!("a row has {row}, but a sample only {}", config.inputs)
        })?;
        let mut calendar = Vec::new();
        for name in &rule.calendar {
            let cycle = Cycle::ALL.into_iter().find(|cycle| cycle.name() == name);
            calendar.push(cycle.ok_or_else(|| {
                let known = Cycle::ALL.map(Cycle::name).join(", ");
                format!("there is no cycle {name:?} of the calendar, only {known}")
            })?);
        }
        if rule.lags > 0 && !config.classes.is_empty() {
            return Err("past classes can't be inputs".to_owned());
        }
        let several = config.classes.is_empty() && config.outputs > 1;
        let mut targets = vec![config.target.clone()];
        if several {
            targets = config.target.split(',').map(str::to_owned).collect();
            // Without names, labels come in lists.
            targets.resize(config.outputs, String::new());
        }
        // Nodes refuse rows that are out of order.
        let (disorder, duplicates) = match config.series {
            Some(_) => (Disorder::Refuse, Duplicates::Refuse),
            None => (Disorder::Keep, Duplicates::Keep),
        };
        let schema = Self {
            disorder,
            duplicates,
            targets,
            classes: config.classes.clone(),
            time: rule.time,
            calendar,
            lags: rule.lags,
            lagged: rule.lagged,
            exogenous: if rule.origin { Exogenous::Origin } else { Exogenous::SameRow },
            ..Self::plain(&own, "")
        };
        schema.check(config.inputs)?;
        Ok(schema)
    }

    /// Names of the groups of inputs whose importance a plan's nodes measure: that of the input, or
    /// of the source if there are several.
    pub fn group_names(plan: &Plan) -> Vec<String> {
        let config = plan.config();
        let sources = Self::of_plan(config).map(|table| table.sources()).unwrap_or_default();
        let groups = plan.column_groups();
        let mut names: BTreeMap<usize, &str> = BTreeMap::new();
        for (input, group) in groups.into_iter().enumerate() {
            let source = sources.get(input).map_or("", String::as_str);
            let alone = config.columns.get(input).map_or(source, String::as_str);
            names.entry(group).and_modify(|name| *name = source).or_insert(alone);
        }
        names.into_values().map(str::to_owned).collect()
    }

    /// Names of the inputs, one by one: columns (`sky=rain` for a text of one), the past of some
    /// (`load -1`) and cycles of the time (`hour sine`).
    pub fn input_names(own: &[String], rule: &SeriesRule, targets: &[String]) -> Vec<String> {
        let past = targets.iter().chain(&rule.lagged);
        let past = past.flat_map(|name| (1..=rule.lags).map(move |back| format!("{name} -{back}")));
        let calendar = rule
            .calendar
            .iter()
            .flat_map(|name| ["sine", "cosine"].map(|part| format!("{name} {part}")));
        own.iter().cloned().chain(past).chain(calendar).collect()
    }
}
