//! The columns of a sample: inputs and targets, texts, time and past.

use std::collections::HashSet;

use hedgerow::PlanConfig;
use hedgerow::importance::ImportanceScope;
use hedgerow::limits::MAX_INPUTS;
use hedgerow::plan::SeriesRule;
use hedgerow_config::ConfigError;
use hedgerow_data::calendar::{CalendarChoice, Cycle};
use hedgerow_data::schema::{TableSchema, grouped};

use super::{ExogenousName, LearningConfig, outside};

/// Most texts of a column.
const MOST_TEXTS: usize = 1000;

/// The inputs that come from one source; empty if nothing is measured, or if each is alone.
pub(super) fn column_groups(config: &PlanConfig) -> Vec<usize> {
    let table = TableSchema::of_plan(config).ok();
    match table.filter(|_| config.importance != ImportanceScope::None) {
        Some(table) => {
            let (sources, group_of) = grouped(&table.sources());
            if sources.len() < group_of.len() { group_of } else { Vec::new() }
        }
        None => Vec::new(),
    }
}

/// The name of the input of a text in a column of text.
fn category_input(column: &str, text: &str) -> String {
    format!("{column}={text}")
}

impl LearningConfig {
    /// Puts an input for each text in the place of columns that hold text.
    pub(super) fn expand_categories(&mut self) -> Result<(), ConfigError> {
        const KEY: &str = "learning.categories";
        let known = self.columns.join(", ");
        if let Some(column) = self.columns.iter().find(|column| column.contains('=')) {
            let bound = "names without =, which names the inputs of columns of text";
            return Err(outside("learning.columns", bound, format!("{column:?}")));
        }
        for (column, texts) in &self.categories {
            let place = self.columns.iter().position(|name| name == column);
            let Some(place) = place else {
                let bound = format!("for columns of learning.columns ({known})");
                return Err(outside(KEY, bound, format!("{column:?}")));
            };
            let different: HashSet<&String> = texts.iter().collect();
            let is_empty = texts.iter().any(|text| text.trim().is_empty());
            if texts.is_empty()
                || texts.len() > MOST_TEXTS
                || different.len() < texts.len()
                || is_empty
            {
                let bound =
                    format!("1 to {MOST_TEXTS} different texts for each column, none empty");
                return Err(outside(KEY, bound, format!("{column} = {texts:?}")));
            }
            let inputs: Vec<String> =
                texts.iter().map(|text| category_input(column, text)).collect();
            // Such an input needs no range of its own.
            self.ranges.extend(inputs.iter().map(|input| (input.clone(), [0.0, 1.0])));
            self.columns.splice(place..=place, inputs);
        }
        Ok(())
    }

    /// How inputs follow from the time and from earlier rows, if they do; a row has `inputs` of its
    /// own.
    pub(super) fn series(&self, inputs: usize) -> Result<Option<SeriesRule>, ConfigError> {
        let time: Vec<String> =
            self.time.split('+').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let CalendarChoice::Cycles(cycles) = &self.calendar else {
            let names = Cycle::ALL.map(Cycle::name).join(", ");
            let bound = format!(
                "\"none\", or each once of {names}: a server has no data from which \"auto\" \
                 could follow"
            );
            return Err(outside("learning.calendar", bound, "\"auto\""));
        };
        let calendar: Vec<String> = cycles.iter().map(|cycle| cycle.name().to_owned()).collect();
        if !calendar.is_empty() && time.is_empty() {
            let bound = "none where learning.time names no column";
            return Err(outside("learning.calendar", bound, format!("{:?}", calendar.join(","))));
        }
        if self.horizon != 1 {
            let bound = "1: nodes predict the next row";
            return Err(outside("learning.horizon", bound, self.horizon));
        }
        if self.lags == 0 && !self.lagged.is_empty() {
            let bound = "at least 1 where learning.lagged names columns";
            return Err(outside("learning.lags", bound, self.lags));
        }
        if self.lags > 0 && !self.classes.is_empty() {
            let bound = "0 where the target is a class: past classes can't be inputs";
            return Err(outside("learning.lags", bound, self.lags));
        }
        let targets: Vec<&str> = self.targets().collect();
        let mut known: HashSet<&str> = targets.iter().copied().collect();
        known.extend(self.columns.iter().map(String::as_str));
        known.extend(self.categories.keys().map(String::as_str));
        if let Some(name) = time.iter().find(|name| !known.insert(name)) {
            let bound = "columns that are neither inputs nor the target, each once";
            return Err(outside("learning.time", bound, format!("{name:?}")));
        }
        let mut lagged = HashSet::new();
        let is_other = |name: &String| {
            targets.contains(&name.as_str())
                || time.contains(name)
                || self.categories.contains_key(name)
        };
        if let Some(name) = self.lagged.iter().find(|name| !lagged.insert(*name) || is_other(name))
        {
            let bound = "columns of numbers besides the target and the time, each once";
            return Err(outside("learning.lagged", bound, format!("{name:?}")));
        }
        let past = self.lags.saturating_mul(targets.len() + self.lagged.len());
        if inputs.saturating_add(past) > MAX_INPUTS {
            let bound = format!(
                "fewer: a sample has at most {MAX_INPUTS} inputs, and this many \
                                 past values beside {inputs} columns are more"
            );
            return Err(outside("learning.lags", bound, self.lags));
        }
        let origin = match self.exogenous {
            ExogenousName::Auto => self.lags > 0,
            named => named == ExogenousName::Origin,
        };
        let lagged = self.lagged.clone();
        let rule = SeriesRule { inputs, time, calendar, lags: self.lags, lagged, origin };
        let is_needed = rule.lags > 0 || rule.origin || !rule.calendar.is_empty();
        Ok(is_needed.then_some(rule))
    }

    /// The past of a column has its range, and a cycle that of a sine.
    pub(super) fn add_ranges(&mut self, rule: &SeriesRule, names: &[String]) {
        let split = names.len() - Cycle::WIDTH * rule.calendar.len();
        for name in &names[self.columns.len()..split] {
            let source = name.rsplit_once(" -").and_then(|(source, _)| self.ranges.get(source));
            if let Some(range) = source.copied() {
                self.ranges.insert(name.clone(), range);
            }
        }
        if !self.ranges.is_empty() {
            self.ranges.extend(names[split..].iter().map(|name| (name.clone(), [-1.0, 1.0])));
        }
        // What only has a past is no input itself.
        self.ranges.retain(|name, _| names.contains(name) || !rule.lagged.contains(name));
    }

    pub(super) fn inputs(&self) -> Result<usize, ConfigError> {
        let mut known = HashSet::new();
        if let Some(twice) = self.columns.iter().find(|column| !known.insert(*column)) {
            return Err(outside(
                "learning.columns",
                "names that are there once",
                format!("{twice:?}"),
            ));
        }
        if let Some(target) = self.targets().find(|target| known.contains(&(*target).to_owned())) {
            let bound = "other names than that of learning.target";
            return Err(outside("learning.columns", bound, format!("{target:?}")));
        }
        let mut targets = HashSet::new();
        if self.targets().any(|target| !targets.insert(target)) {
            let bound = "names that are there once";
            return Err(outside("learning.target", bound, format!("{:?}", self.target)));
        }
        match (self.columns.len(), self.inputs) {
            // The past or the calendar alone.
            (0, 0) if self.lags > 0 || self.calendar != CalendarChoice::Cycles(Vec::new()) => Ok(0),
            (0, 0) => {
                let bound = "the names of a sample's inputs, or learning.inputs their number";
                Err(outside("learning.columns", bound, "empty"))
            }
            (0, inputs) => Ok(inputs),
            (columns, 0) => Ok(columns),
            (columns, inputs) if columns == inputs => Ok(inputs),
            (columns, inputs) => Err(outside(
                "learning.inputs",
                format!("{columns}, as there are columns, or 0"),
                inputs,
            )),
        }
    }

    /// The targets; a class has one.
    pub(super) fn targets(&self) -> impl Iterator<Item = &str> {
        let several = self.classes.is_empty().then(|| self.target.split(','));
        let one = (!self.classes.is_empty()).then_some(self.target.as_str());
        several.into_iter().flatten().chain(one)
    }
}
