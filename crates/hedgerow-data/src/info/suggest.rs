//! What a table suggests: the columns of time and node, flags for a first run, and notes.

use std::collections::BTreeSet;

use super::clock::Clock;
use super::{Column, ColumnKind, quoted};
use crate::calendar::CalendarChoice;
use crate::columns::{BY_FILE, Categories, ColumnChoice, Task};
use crate::rows::usual_markers;
use crate::tables::LOOKED_AT;
use crate::text::{counted, excerpt};

/// Rows from which on a scale is suggested that has to be agreed on.
const ROWS_FOR_A_SCALE: u64 = 100;
/// Of a column with more texts than this, no inputs are made by suggestion.
const FEW_TEXTS: usize = 50;
/// Whole numbers, each of them in many rows, are classes if there are at most this many.
const FEW_NUMBERS: usize = 10;
/// Rows for each of them.
const ROWS_FOR_A_CLASS: usize = 10;
/// Past labels that a series without other inputs is learned from: the paper's s.
const SUGGESTED_LAGS: u64 = 5;

/// Words that name a column of nodes, alone or at its end.
const NODE_WORDS: [&str; 10] =
    ["node", "station", "device", "sensor", "meter", "site", "client", "machine", "vehicle", "id"];

/// Columns that are tried as names of nodes, each by reading all times once more.
const NODES_TRIED: usize = 3;

fn names_a_node(name: &str) -> bool {
    let name = name.to_lowercase();
    NODE_WORDS.iter().any(|word| name == *word || name.ends_with(&format!("_{word}")))
}

impl Column {
    /// Whether it has a few whole numbers, each of them in many rows, so that they may be classes.
    fn has_few_numbers(&self) -> bool {
        let count = self.whole.len();
        matches!(self.kind(), ColumnKind::Number | ColumnKind::Flag)
            && (2..=FEW_NUMBERS).contains(&count)
            && self.is_whole
            && (count * ROWS_FOR_A_CLASS) as u64 <= self.numbers
    }
}

/// Columns of the time and of the node: as chosen, or as it seems.
#[derive(Clone)]
pub(super) struct Roles {
    /// A date, or a date and a time of day; empty if there is none.
    pub(super) time: Vec<String>,
    pub(super) node: Option<String>,
}

impl Roles {
    pub(super) fn guess(
        columns: &[Column],
        choice: &ColumnChoice,
        files: usize,
        rows: u64,
    ) -> Self {
        let is_time = |column: &&Column| column.kind() == ColumnKind::Time && column.missing == 0;
        let mut time = choice.time.clone();
        if time.is_empty()
            && let Some(date) = columns.iter().find(is_time)
        {
            time.push(date.name.clone());
            // A date that repeats, and beside it the time of day.
            let repeats = date.times > date.different.len() as u64;
            let is_clock = |column: &&Column| column.is_clock() && column.missing == 0;
            let clock = columns.iter().find(is_clock).filter(|_| repeats);
            time.extend(clock.map(|clock| clock.name.clone()));
        }
        let by_file = || (files > 1).then(|| BY_FILE.to_owned());
        let mut roles = Self { time, node: choice.node.clone() };
        if roles.node.is_none() {
            let named = |column: &&Column| {
                roles.may_name_nodes(column, choice, rows) && names_a_node(&column.name)
            };
            roles.node = columns.iter().find(named).map(|node| node.name.clone()).or_else(by_file);
        }
        roles
    }

    /// Whether the texts of a column can be the names of nodes.
    fn may_name_nodes(&self, column: &Column, choice: &ColumnChoice, rows: u64) -> bool {
        // A name that is never seen again is no node that learns.
        let returns = 2 * column.different.len() as u64 <= rows;
        let is_text = column.kind() == ColumnKind::Text && !self.time.contains(&column.name);
        let is_free = !choice.targets.contains(&column.name) && !choice.drop.contains(&column.name);
        is_text && is_free && column.missing == 0 && returns
    }

    /// The first few columns that may name the nodes although their own names don't say so.
    pub(super) fn possible_nodes(
        &self,
        columns: &[Column],
        choice: &ColumnChoice,
        rows: u64,
    ) -> Vec<String> {
        let is_it = |column: &&Column| {
            let is_input = choice.features.as_ref().is_some_and(|all| all.contains(&column.name));
            column.different.len() > 1 && !is_input && self.may_name_nodes(column, choice, rows)
        };
        columns.iter().filter(is_it).map(|column| column.name.clone()).take(NODES_TRIED).collect()
    }

    /// What counts of rows are about.
    fn of_device(&self) -> &'static str {
        if self.node.is_some() { " within a device" } else { "" }
    }
}

pub(super) fn notes_on(columns: &[Column], roles: &Roles, clock: &Clock, rows: u64) -> Vec<String> {
    let mut notes = Vec::new();
    for column in columns {
        let Column { name, texts, .. } = column;
        match column.kind() {
            ColumnKind::Constant => {
                notes.push(format!("{name:?} is the same in all rows: nothing is learned from it"))
            }
            ColumnKind::Empty => notes.push(format!("{name:?} has no value at all")),
            ColumnKind::Mixed => {
                let row = column.first_text.unwrap_or_default();
                let text = column.different.first().map(|text| excerpt(text)).unwrap_or_default();
                notes.push(format!("{name:?} has numbers, but also {} ({text:?} in row {row} or later): a marker for missing values?", counted(*texts, "text")));
            }
            _ => {}
        }
        if let Some((row, text)) = column.bad_time() {
            notes.push(format!("{name:?} has times, but row {row} has {text:?}, which is none"));
        }
    }
    let (time, of_device) = (roles.time.join("+"), roles.of_device());
    let Clock { back, repeated, .. } = clock;
    if *back > 0 {
        notes.push(format!("{time:?} goes back in time {}{of_device}", counted(*back, "time")));
    }
    if *repeated > 0 {
        let advice = match roles.node {
            None if !clock.repeats_rarely(rows) => {
                ": if a column names the devices, say which (--node COLUMN)"
            }
            _ => "",
        };
        notes.push(format!(
            "{time:?} repeats the time of the row before {}{of_device}{advice}",
            counted(*repeated, "time")
        ));
    }
    if clock.cycles.len() > 1 {
        let names: Vec<&str> = clock.cycles.iter().map(|cycle| cycle.name()).collect();
        notes.push(format!("{time:?} covers longer cycles too: --calendar {}", names.join(",")));
    }
    if let Some(node) = roles.node.as_ref().filter(|node| *node != BY_FILE) {
        notes.push(format!(
            "{node:?} names the devices and is no input; name it in --features as well, with \
             --categories one-hot, if one model of all devices has to tell them apart"
        ));
    }
    let is_number = |column: &&Column| {
        matches!(column.kind(), ColumnKind::Number | ColumnKind::Flag) && names_a_node(&column.name)
    };
    if roles.node.is_none()
        && let Some(column) = columns.iter().find(is_number)
    {
        notes.push(format!(
            "{:?} may name the devices: --node {}",
            column.name,
            quoted(&column.name)
        ));
    }
    for (marker, names) in markers(columns) {
        let names = names.join(", ");
        notes.push(format!("{marker} is the least value in {names}: a marker for missing values?"));
    }
    notes
}

/// -200, -999 and their like, where they are the least value, usually mean that nothing was
/// measured.
fn markers(columns: &[Column]) -> Vec<(f64, Vec<String>)> {
    let of = |marker: f64| -> Vec<String> {
        let is_marked = |column: &&Column| column.range.is_some_and(|(least, _)| least == marker);
        columns.iter().filter(is_marked).map(|column| format!("{:?}", column.name)).collect()
    };
    let known = [-200.0, -999.0, -9999.0, -99999.0].map(|marker| (marker, of(marker)));
    known.into_iter().filter(|(_, names)| !names.is_empty()).collect()
}

/// Flags for a first run.
pub(super) fn suggest(
    columns: &[Column],
    choice: &ColumnChoice,
    roles: &Roles,
    clock: &Clock,
    rows: u64,
    default_nodes: usize,
) -> Vec<String> {
    let mut flags = Vec::new();
    // Targets, times, nodes and dropped columns are no inputs.
    let chosen = [&choice.targets, &choice.series, &choice.time, &choice.drop];
    let chosen = chosen.into_iter().flatten();
    let mut taken: BTreeSet<&str> = chosen.chain(&choice.node).map(String::as_str).collect();
    let is_number =
        |column: &&Column| column.kind() == ColumnKind::Number || column.markers().is_some();
    let is_flag = |column: &&Column| column.kind() == ColumnKind::Flag;
    let is_input =
        |name: &String| choice.features.as_ref().is_some_and(|named| named.contains(name));
    let is_left =
        |column: &&Column| !taken.contains(column.name.as_str()) && !is_input(&column.name);
    let left = || columns.iter().filter(is_left);
    // A last column of a few texts, or of a few whole numbers, is a class.
    let is_role = |column: &&Column| {
        roles.time.contains(&column.name) || roles.node.as_ref() == Some(&column.name)
    };
    let is_class = |column: &&Column| {
        let different = column.different.len();
        let has_few_texts = column.kind() == ColumnKind::Text
            && (2..=FEW_TEXTS).contains(&different)
            && (different * ROWS_FOR_A_CLASS) as u64 <= column.texts;
        (has_few_texts || column.has_few_numbers()) && !is_role(column)
    };
    let class = left().next_back().filter(is_class);
    let target = class.or_else(|| left().rfind(is_number)).or_else(|| left().rfind(is_flag));
    let named = columns.iter().find(|column| choice.targets == [column.name.as_str()]);
    let is_free = choice.targets.is_empty() && choice.series.is_empty();
    if let Some(target) = target.filter(|_| is_free) {
        taken.insert(&target.name);
        flags.push(format!("--target {}", quoted(&target.name)));
    }
    // Texts are classes without being asked for.
    let has_few = target.filter(|_| is_free).or(named).is_some_and(Column::has_few_numbers);
    if has_few && choice.task == Task::Auto {
        flags.push("--task classes".to_owned());
    }
    taken.extend(roles.time.iter().chain(&roles.node).map(String::as_str));
    if !roles.time.is_empty() {
        if choice.time.is_empty() {
            flags.push(format!("--time {}", quoted(&roles.time.join("+"))));
        }
        if choice.calendar == CalendarChoice::Auto {
            let shortest = clock.cycles.first();
            flags.extend(shortest.map(|cycle| format!("--calendar {}", cycle.name())));
        }
        if clock.back > 0 {
            flags.push("--set data.disorder=sort".to_owned());
        }
        // Sorting may bring together many times that were apart: none of their rows is lost.
        let is_rare = clock.back == 0 && clock.repeats_rarely(rows);
        if clock.back > 0 || clock.repeated > 0 {
            let what = if is_rare { "first" } else { "keep" };
            flags.push(format!("--set data.duplicates={what}"));
        }
    }
    if choice.node.is_none() && choice.series.is_empty() {
        flags.extend(roles.node.iter().map(|node| format!("--node {}", quoted(node))));
    }
    let is_useless = |column: &&Column| match column.kind() {
        ColumnKind::Empty | ColumnKind::Time => true,
        ColumnKind::Mixed => column.markers().is_none(),
        ColumnKind::Text => {
            let is_late = column.first_text.is_some_and(|line| line > LOOKED_AT as u64);
            column.different.len() > FEW_TEXTS || is_late
        }
        ColumnKind::Number | ColumnKind::Flag | ColumnKind::Constant => false,
    };
    let free = |column: &&Column| match &choice.features {
        Some(named) => named.contains(&column.name),
        None => !taken.contains(column.name.as_str()),
    };
    let (useless, inputs): (Vec<&Column>, Vec<&Column>) =
        columns.iter().filter(free).partition(is_useless);
    if !useless.is_empty() && choice.features.is_none() {
        let useless = useless.iter().map(|column| &column.name);
        let names: Vec<&str> = choice.drop.iter().chain(useless).map(String::as_str).collect();
        flags.push(format!("--drop {}", quoted(&names.join(","))));
    }
    let has_text = inputs.iter().any(|column| column.kind() == ColumnKind::Text);
    if has_text && choice.categories == Categories::Refuse {
        flags.push("--categories one-hot".to_owned());
    }
    let numbers = markers(columns).into_iter().map(|(marker, _)| marker.to_string());
    let texts = columns.iter().filter_map(Column::markers).flatten().cloned();
    let found: BTreeSet<String> = numbers.chain(texts).collect();
    if !found.is_empty() {
        let usual = usual_markers([]);
        let chosen = choice.format.missing.iter().filter(|marker| !usual.contains(marker));
        let found: Vec<&str> = chosen.chain(&found).map(String::as_str).collect();
        flags.push(format!("--missing {}", quoted(&found.join(","))));
    }
    if inputs.is_empty() && choice.lags == 0 {
        flags.push(format!("--lags {SUGGESTED_LAGS}"));
    }
    let samples = rows.saturating_sub(if inputs.is_empty() { SUGGESTED_LAGS } else { 0 });
    if roles.node.is_none() && samples < default_nodes as u64 {
        flags.push("--nodes 1".to_owned());
    }
    let is_large = |column: &Column| {
        column.range.is_some_and(|(least, greatest)| least.abs().max(greatest.abs()) > 3.0)
    };
    // A scale takes some samples to agree on.
    if columns.iter().any(is_large) && rows >= ROWS_FOR_A_SCALE {
        flags.push("--scaling online".to_owned());
    }
    flags
}

/// Flags with which the past is learned from besides the suggested ones.
pub(super) fn forecast(
    columns: &[Column],
    choice: &ColumnChoice,
    roles: &Roles,
    suggested: &[String],
) -> Vec<String> {
    let has_lags = choice.lags > 0 || suggested.iter().any(|flag| flag.starts_with("--lags"));
    // Past classes can't be inputs.
    let is_target = |column: &&Column| {
        let flag = format!("--target {}", quoted(&column.name));
        choice.targets.contains(&column.name) || suggested.contains(&flag)
    };
    let has_classes = choice.task == Task::Classes
        || suggested.iter().any(|flag| flag == "--task classes")
        || columns.iter().filter(is_target).any(|column| column.kind() == ColumnKind::Text);
    if roles.time.is_empty() || has_lags || has_classes {
        return Vec::new();
    }
    vec![format!("--lags {SUGGESTED_LAGS}")]
}

#[cfg(test)]
mod tests {
    use super::super::look_at;
    use super::*;
    use crate::rows::Format;

    fn suggestion_with(content: &str, choice: ColumnChoice) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.csv");
        std::fs::write(&file, content).unwrap();
        let format = Format { missing: usual_markers([]), ..Format::default() };
        let choice = ColumnChoice { format, ..choice };
        look_at(&[file], &choice, 20, &|_| {}).unwrap().suggestion.join(" ")
    }

    fn suggestion(content: &str) -> String {
        suggestion_with(content, ColumnChoice::default())
    }

    #[test]
    fn what_is_chosen_is_not_suggested_again() {
        let rows: String = (0..30)
            .map(|i| format!("2020-01-{:02},s{},{},0.{}\n", i + 1, i % 2, i, i % 7))
            .collect();
        let content = format!("t,site,a,y\n{rows}");
        assert_eq!(suggestion(&content), "--target y --time t --node site");
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let choice = ColumnChoice {
            targets: named(&["a"]),
            time: named(&["t"]),
            drop: named(&["y"]),
            node: Some("site".to_owned()),
            ..ColumnChoice::default()
        };
        assert_eq!(suggestion_with(&content, choice.clone()), "--lags 5");
        let with_feature = ColumnChoice { features: Some(named(&["y"])), drop: vec![], ..choice };
        assert_eq!(suggestion_with(&content, with_feature), "");
    }

    #[test]
    fn markers_are_suggested_as_missing() {
        let rows: String =
            (0..30).map(|i| format!("{},{}\n", if i == 7 { -999 } else { i % 3 }, i % 2)).collect();
        assert_eq!(suggestion(&format!("a,y\n{rows}2,bad\n")), "--target y --missing -999,bad");
    }

    #[test]
    fn a_class_is_suggested_as_one() {
        let rows = |label: fn(usize) -> String| {
            (0..60).map(|i| format!("0.{},{}\n", i % 7, label(i))).collect::<String>()
        };
        let of = |label| suggestion(&format!("a,y\n{}", rows(label)));
        assert_eq!(of(|i| ["fine", "hot"][i % 2].to_owned()), "--target y");
        assert_eq!(of(|i| (i % 2).to_string()), "--target y --task classes");
        assert_eq!(of(|i| (i % 3).to_string()), "--target y --task classes");
        // Too many, fractions, and too few rows of each.
        assert_eq!(of(|i| (i % 11).to_string()), "--target y");
        assert_eq!(of(|i| format!("{}.5", i % 3)), "--target y");
        // The names are left out, and what remains is a series alone.
        assert_eq!(of(|i| format!("name{i}")), "--target a --drop y --lags 5");
    }

    #[test]
    fn a_series_alone_is_learned_from_its_past() {
        let rows = |count: usize| (0..count).map(|i| format!("0.{}\n", i % 7)).collect::<String>();
        assert_eq!(suggestion(&format!("y\n{}", rows(30))), "--target y --lags 5");
        assert_eq!(suggestion(&format!("y\n{}", rows(24))), "--target y --lags 5 --nodes 1");
    }

    #[test]
    fn a_time_repeated_at_another_device_is_no_duplicate() {
        let row = |at: usize| format!("2020-01-{:02},s{},0.{}\n", 1 + at / 2, at % 2, at % 7);
        let rows: String = (0..60).map(row).collect();
        let plain = "--target y --time t --calendar weekday --node site --lags 5";
        assert_eq!(suggestion(&format!("t,site,y\n{rows}")), plain);
        // The same device twice on a day.
        let twice = suggestion(&format!("t,site,y\n{rows}2020-01-30,s1,0.5\n"));
        assert!(twice.contains("--set data.duplicates=first"), "{twice}");
        assert!(!twice.contains("disorder"), "{twice}");
    }

    #[test]
    fn a_column_whose_rows_are_in_order_names_the_devices() {
        let row = |at: usize| {
            let (day, pump, sky) = (1 + at / 3, ["p1", "p2", "p3"][at % 3], ["fog", "sun"][at % 2]);
            format!("2020-01-{day:02},{sky},{pump},0.{},0.{}\n", at % 11, at % 7)
        };
        let rows: String = (0..60).map(row).collect();
        let found = suggestion(&format!("t,sky,pump,a,y\n{rows}"));
        assert!(found.contains("--node pump") && !found.contains("duplicates"), "{found}");
        // A few rows that repeat all the same.
        let found = suggestion(&format!("t,sky,pump,a,y\n{rows}2020-01-20,sun,p3,0.4,0.2\n"));
        assert!(found.contains("--node pump") && found.contains("duplicates=first"), "{found}");
        // One device after the other.
        let row = |at: usize| format!("2020-01-{:02},p{},0.{}\n", 1 + at % 20, at / 20, at % 7);
        let found = suggestion(&format!("t,pump,y\n{}", (0..60).map(row).collect::<String>()));
        assert!(found.contains("--node pump") && !found.contains("disorder"), "{found}");
        // One that is an input by choice is none.
        let features = Some(vec!["pump".to_owned()]);
        let choice = ColumnChoice { features, ..ColumnChoice::default() };
        let found = suggestion_with(&format!("t,sky,pump,a,y\n{rows}"), choice);
        assert!(!found.contains("--node"), "{found}");
    }

    #[test]
    fn no_suggestion_loses_many_rows() {
        let row = |at: usize| format!("2020-01-{:02},0.{},0.{}\n", 1 + at / 3, at % 11, at % 7);
        let rows: String = (0..60).map(row).collect();
        let found = suggestion(&format!("t,a,y\n{rows}"));
        assert!(found.contains("--set data.duplicates=keep"), "{found}");
    }

    #[test]
    fn a_bad_time_is_named() {
        let row = |at: usize| format!("2020-{:02}-01,0.{}\n", 1 + at, at % 7);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.csv");
        std::fs::write(&file, format!("t,y\n{}", (0..13).map(row).collect::<String>())).unwrap();
        let found = look_at(&[file], &ColumnChoice::default(), 20, &|_| {}).unwrap();
        let note = &found.notes[0];
        assert!(note.contains("row 14") && note.contains("2020-13-01"), "{note}");
    }

    #[test]
    fn the_past_of_classes_is_not_suggested() {
        let of = |label: fn(usize) -> &'static str| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("t.csv");
            let row = |at: usize| format!("2020-01-{:02},0.{},{}\n", 1 + at, at % 7, label(at % 2));
            std::fs::write(&file, format!("t,a,y\n{}", (0..30).map(row).collect::<String>()))
                .unwrap();
            look_at(&[file], &ColumnChoice::default(), 20, &|_| {}).unwrap().forecast
        };
        assert_eq!(of(|at| ["0.25", "0.5"][at]), ["--lags 5"]);
        assert!(of(|at| ["0", "1"][at]).is_empty());
        assert!(of(|at| ["fine", "hot"][at]).is_empty());
    }

    #[test]
    fn times_and_nodes_with_gaps_are_neither() {
        let rows: String =
            (0..30).map(|i| format!("2020-01-{:02},{},0.{}\n", i + 1, i % 2, i % 7)).collect();
        assert_eq!(
            suggestion(&format!("t,site,y\n{rows}")),
            "--target y --time t --calendar weekday"
        );
        let texts = rows.replace(",0,", ",north,").replace(",1,", ",south,");
        assert_eq!(
            suggestion(&format!("t,site,y\n{texts}")),
            "--target y --time t --node site --lags 5"
        );
        let gaps = suggestion(&format!("t,site,y\n{texts},,0.5\n"));
        assert_eq!(gaps, "--target y --drop t --categories one-hot");
    }
}
