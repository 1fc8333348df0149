//! What came of an action, in words and tables.

use hedgerow_net::operations::{NodeSort, Outcome, Snapshot};
use hedgerow_net::serve::status::{NodeState, NodeStatus, SettingStatus, Status};
use hedgerow_report::table::aligned;
use serde::de::DeserializeOwned;
use serde_json::json;
use time::OffsetDateTime;

/// Most nodes and events that `status` names.
const FEW: usize = 5;

pub(super) fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Status(status) => of_status(status),
        Outcome::Nodes { nodes, left_out } => of_nodes(nodes, *left_out),
        Outcome::Snapshots { snapshots } => of_snapshots(snapshots),
        Outcome::RolledBack { from, to } => {
            format!("the run was set back from round {from} to round {to}\n")
        }
        Outcome::Set { key, before, now } => format!("{key} is {now} (it was {before})\n"),
        Outcome::BackedUp { path, round, bytes } => {
            format!("{}: round {round}, {bytes} bytes, checked\n", path.display())
        }
        Outcome::Done { message } => format!("{message}\n"),
        // What a newer library may add.
        other => json!(other).to_string() + "\n",
    }
}

fn of_status(status: &Status) -> String {
    let uploads = match status.needed {
        Some(needed) => format!("{} of {needed}", status.uploads),
        None => status.uploads.to_string(),
    };
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut add = |name: &str, value: String| rows.push([name.to_owned(), value]);
    add("run", status.run.clone());
    add("method", status.method.clone());
    add("running for", span(status.uptime_ms));
    add("round", format!("{}, open for {}", status.round, span(status.open_ms)));
    add("rounds close with", status.quorum.clone());
    add("uploads in it", uploads);
    add("rounds per second", format!("{:.2}", status.rounds_per_second));
    add("nodes", format!("{} connected, {} known", status.connected, status.nodes_known));
    add("samples", status.samples.to_string());
    add("error, whole run", number(status.mse));
    add("error, lately", number(status.window_mse));
    add("error of each node's mean", number(status.mean_forecast_mse));
    if status.paused {
        add("paused", "by an operator: the open round stays open".to_owned());
    }
    if let Some(shortage) = &status.shortage {
        add("shortage", shortage.clone());
    }
    if !status.store_ok {
        add("store", "the latest round could not be stored: see the log".to_owned());
    }
    for setting in &status.settings_changed {
        let SettingStatus { key, value, in_file } = setting;
        add("changed setting", format!("{key} is {value}, and {in_file} in the file"));
    }
    let is_usual =
        |node: &&NodeStatus| matches!(node.state, NodeState::Connected | NodeState::Away);
    for node in status.nodes.iter().filter(|node| !is_usual(node)).take(FEW) {
        add("node", format!("{}: {}", node.name, state_words(node)));
    }
    for event in status.events.iter().rev().take(FEW) {
        add("event", format!("{} {}", date(event.at_ms), event.text));
    }
    table(None, rows)
}

fn of_nodes(nodes: &[NodeStatus], left_out: u64) -> String {
    let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
    let ago = |at: Option<u64>| {
        let passed = at.map(|at| u64::try_from(now - i128::from(at)).unwrap_or(0));
        passed.map_or("-".to_owned(), |passed| format!("{} ago", span(passed)))
    };
    let row = |node: &NodeStatus| {
        [
            node.name.clone(),
            state_words(node),
            ago(Some(node.last_seen_ms)),
            ago(node.last_sample_ms),
            number(node.mse),
            number(node.window_mse),
            number(node.mean_forecast_mse),
            node.samples.to_string(),
            node.uploads.to_string(),
            node.refused.to_string(),
            node.address.clone(),
        ]
    };
    let heading = [
        "name",
        "state",
        "seen",
        "sample",
        "error",
        "lately",
        "of its mean",
        "samples",
        "uploads",
        "refused",
        "address",
    ];
    let mut text = table(Some(heading), nodes.iter().map(row));
    if left_out > 0 {
        text += &format!("{left_out} more are not listed (--most)\n");
    }
    text
}

fn of_snapshots(snapshots: &[Snapshot]) -> String {
    let row = |snapshot: &Snapshot| {
        let Snapshot { round, at_ms, bytes } = snapshot;
        let stored = if *at_ms == 0 { "-".to_owned() } else { date(*at_ms) };
        [round.to_string(), stored, bytes.to_string()]
    };
    table(Some(["round", "stored (UTC)", "bytes"]), snapshots.iter().map(row))
}

fn state_words(node: &NodeStatus) -> String {
    match node.reason.as_str() {
        "" => node.state.name().to_owned(),
        reason => format!("{}: {reason}", node.state.name()),
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.4e}"))
}

/// Columns side by side. Names come from the network: what a terminal would obey is left out.
pub(super) fn table<const N: usize>(
    heading: Option<[&str; N]>,
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let heading = heading.map(|heading| heading.map(str::to_owned));
    let rows: Vec<[String; N]> = heading.into_iter().chain(rows).collect();
    let plain = |cell: String| cell.chars().filter(|c| !c.is_control()).collect();
    let rows: Vec<[String; N]> = rows.into_iter().map(|row| row.map(plain)).collect();
    aligned(&rows, |_| true).iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A time in milliseconds since 1970, in UTC.
pub(super) fn date(at_ms: u64) -> String {
    let seconds = i64::try_from(at_ms / 1_000).unwrap_or(i64::MAX);
    let Ok(time) = OffsetDateTime::from_unix_timestamp(seconds) else { return at_ms.to_string() };
    let (hour, minute, second) = time.to_hms();
    format!("{} {hour:02}:{minute:02}:{second:02}", time.date())
}

fn span(milliseconds: u64) -> String {
    match milliseconds / 1_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

pub(super) fn state(text: &str) -> Result<NodeState, String> {
    known(text, "connected, silent, suspect, quarantined, banned, revoked, away")
}

pub(super) fn sort(text: &str) -> Result<NodeSort, String> {
    known(text, "number, name, error, seen, sample, samples, refused")
}

/// A value by the name that it has in JSON.
fn known<T: DeserializeOwned>(text: &str, all: &str) -> Result<T, String> {
    serde_json::from_value(json!(text)).map_err(|_| format!("one of {all}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_states_and_orders_are_those_of_the_protocol() {
        for name in ["connected", "silent", "suspect", "quarantined", "banned", "revoked", "away"] {
            assert_eq!(state(name).unwrap().name(), name);
        }
        for name in ["number", "name", "error", "seen", "sample", "samples", "refused"] {
            assert!(sort(name).is_ok(), "{name}");
        }
        assert!(state("lost").unwrap_err().contains("away") && sort("").is_err());
    }

    #[test]
    fn what_nodes_say_moves_no_cursor() {
        let text = table(Some(["a"]), [["\u{1b}[31mred\n".to_owned()]]);
        assert_eq!(text, "a\n[31mred\n");
        assert_eq!(date(1_795_327_205_000), "2026-11-22 06:00:05");
        assert_eq!([span(1_999), span(125_000), span(7_200_000)], ["1 s", "2 min", "2 h"]);
    }
}
