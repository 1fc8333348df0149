//! An invented run: an error that falls, rises when the data changes, and falls again; changing
//! kernels; nodes that join and leave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use hedgerow_net::admin::Operates;
use hedgerow_net::coordinator::events::Severity;
use hedgerow_net::coordinator::records::Snapshot;
use hedgerow_net::operations::{Action, ActionError, Actor, Outcome};
use hedgerow_net::serve::status::{
    ColumnStatus, EventStatus, ImportanceStatus, KernelStatus, MAX_NODES_SHOWN, NodeState,
    NodeStatus, Point, SCHEMA, Source, Status,
};

/// A round closes this often.
pub(crate) const ROUND: Duration = Duration::from_millis(50);
/// Bytes of an upload, and about those of a broadcast.
pub(crate) const UPLOAD: u64 = 430;

const WINDOW: usize = 200;
/// The error of the mean of all labels.
const MEAN_FORECAST: f64 = 0.9;
const KERNELS: u32 = 11;
/// Rounds after which the data changes.
const SEASON: u64 = 2_500;

/// Invents a status from the time that has passed since it was made.
pub(crate) struct Invented {
    run: String,
    method: String,
    nodes: u32,
    started: Instant,
    /// Rounds before that.
    head_start: u64,
    begun_ms: u64,
    past: Mutex<Past>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Past {
    sum: f64,
    /// Of all rounds, like the points.
    errors: Vec<f64>,
    points: Vec<Point>,
}

impl Invented {
    /// With so many rounds behind it already.
    pub(crate) fn new(run: &str, method: &str, nodes: u32, head_start: u64) -> Self {
        Self {
            run: run.into(),
            method: method.into(),
            nodes,
            started: Instant::now(),
            head_start,
            begun_ms: now_ms() - head_start * ROUND.as_millis() as u64,
            past: Mutex::default(),
            told: Mutex::default(),
        }
    }

    /// The past, with the rounds that should have closed by now.
    fn past(&self) -> MutexGuard<'_, Past> {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.head_start + (self.started.elapsed().as_millis() / ROUND.as_millis()) as u64;
        while (past.errors.len() as u64) < due {
            self.close_round(&mut past);
        }
        past
    }

    fn has_kernels(&self) -> bool {
        self.method != "linear"
    }

    fn close_round(&self, past: &mut Past) {
        let round = past.errors.len() as u64;
        let since_change = (round % SEASON) as f64;
        let error = (0.02 + 0.6 / (1.0 + since_change / 60.0)) * (0.6 + 0.8 * chance(round, 1));
        past.errors.push(error);
        past.sum += error;
        let window = &past.errors[past.errors.len().saturating_sub(WINDOW)..];
        let bytes = (round + 1) * u64::from(self.nodes) * UPLOAD;
        past.points.push(Point {
            round,
            at_ms: self.begun_ms + round * ROUND.as_millis() as u64,
            mse: Some(past.sum / past.errors.len() as f64),
            window_mse: Some(window.iter().sum::<f64>() / window.len() as f64),
            selected: self.has_kernels().then(|| selected(round)),
            uploads: self.nodes.into(),
            bytes_up: bytes,
            bytes_down: bytes + 20 * (round + 1),
        });
    }

    fn node(&self, number: u32, round: u64, at_ms: u64) -> NodeStatus {
        let luck = chance(number.into(), 7);
        let (state, reason) = state(number, round);
        let is_away = !matches!(
            state,
            NodeState::Connected | NodeState::Silent | NodeState::Suspect | NodeState::Quarantined
        );
        let uploads = (round as f64 * (0.7 + 0.3 * luck)) as u64;
        let level = 0.03 + 0.05 * luck;
        NodeStatus {
            number,
            name: format!("Sensor-{:03}", number + 1),
            state,
            connected: !is_away,
            reason: reason.into(),
            last_seen_ms: at_ms
                - if is_away { 1_000 + 90_000 * u64::from(number % 50) } else { 20 },
            last_sample_ms: (number % 40 != 39).then(|| {
                at_ms - if is_away { 1_000 + 90_000 * u64::from(number % 50) } else { 60 }
            }),
            round: round.saturating_sub(if is_away { 400 } else { 1 }),
            samples: uploads,
            mse: (number % 40 != 39).then_some(level),
            window_mse: (number % 40 != 39)
                .then(|| level * (0.7 + 0.6 * chance(round / 20, 100 + u64::from(number)))),
            mean_forecast_mse: (number % 40 != 39)
                .then(|| MEAN_FORECAST * (0.8 + 0.4 * chance(number.into(), 8))),
            bytes_up: uploads * UPLOAD,
            bytes_down: round * UPLOAD,
            uploads,
            refused: u64::from(number % 13 == 5) * 3,
            software: "hedgerow-node 0.1.0".into(),
            address: if is_away {
                String::new()
            } else {
                format!("192.0.2.{}:{}", number % 250, 40_000 + number)
            },
        }
    }
}

impl Source for Invented {
    fn status(&self) -> Status {
        let past = self.past();
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let at_ms = now_ms();
        let round = past.errors.len() as u64;
        let last = past.points.last();
        let mut nodes: Vec<_> =
            (0..self.nodes).map(|number| self.node(number, round, at_ms)).collect();
        for node in &mut nodes {
            if let Some(reason) = told.banned.get(&node.name) {
                (node.state, node.connected) = (NodeState::Banned, false);
                node.reason.clone_from(reason);
            }
        }
        let connected = nodes.iter().filter(|node| node.connected).count() as u64;
        nodes.sort_by_key(|node| !node.connected);
        nodes.truncate(MAX_NODES_SHOWN);
        let window = &past.points[past.points.len().saturating_sub(WINDOW)..];
        let share = |kernel| {
            window.iter().filter(|p| p.selected == Some(kernel)).count() as f64
                / window.len().max(1) as f64
        };
        let kernel = |kernel| KernelStatus {
            name: format!("gaussian {:.3}", 10f64.powf((f64::from(kernel) - 5.0) / 2.5)),
            selected_share: share(kernel),
            vote_share: 0.6 * share(kernel) + 0.4 / f64::from(KERNELS),
        };
        let (up, down) = last.map_or((0, 0), |point| (point.bytes_up, point.bytes_down));
        Status {
            schema: SCHEMA,
            run: self.run.clone(),
            method: self.method.clone(),
            budget: 100,
            at_ms,
            uptime_ms: self.started.elapsed().as_millis() as u64,
            round,
            open_ms: (self.started.elapsed().as_millis() % ROUND.as_millis()) as u64,
            uploads: (chance(at_ms, 3) * connected as f64) as u64,
            needed: Some(connected),
            shortage: None,
            quorum: "all connected nodes, or 10 s".into(),
            connected,
            nodes_known: self.nodes.into(),
            samples: round * u64::from(self.nodes),
            mse: last.and_then(|point| point.mse),
            window_mse: last.and_then(|point| point.window_mse),
            window_rounds: WINDOW as u64,
            mean_forecast_mse: Some(MEAN_FORECAST),
            scale_version: 3,
            selected: self.has_kernels().then(|| selected(round)),
            kernels: if self.has_kernels() {
                (0..KERNELS).map(kernel).collect()
            } else {
                Vec::new()
            },
            rounds_per_second: 1.0 / ROUND.as_secs_f64(),
            late: round / 70,
            refused: nodes.iter().map(|node| node.refused).sum(),
            messages_up: up,
            messages_down: down,
            wire_up: up + up / 7,
            wire_down: down + down / 8,
            naive_up: up * u64::from(KERNELS) * 19 / 20,
            naive_down: down * u64::from(KERNELS) * 19 / 20,
            store_ok: true,
            nodes_left_out: u64::from(self.nodes) - nodes.len() as u64,
            nodes,
            importance: self.has_kernels().then(|| importance(round)),
            paused: told.is_paused,
            events: events(at_ms, &told.log),
            ..Status::default()
        }
    }

    fn history(&self, most: usize) -> Vec<Point> {
        let past = self.past();
        let every = past.points.len().div_ceil(most.max(1)).max(1);
        let mut points: Vec<_> = past.points.iter().rev().step_by(every).cloned().collect();
        points.reverse();
        points
    }

    fn is_ready(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Operates for Invented {
    fn operate(
        self: Arc<Self>,
        actor: Actor,
        action: Action,
    ) -> BoxFuture<'static, Result<Outcome, ActionError>> {
        let outcome = self.do_as_told(&actor, action);
        Box::pin(std::future::ready(outcome))
    }
}

impl Invented {
    /// Invents that something was done.
    fn do_as_told(&self, actor: &Actor, action: Action) -> Result<Outcome, ActionError> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let message = match action {
            Action::Pause {} if told.is_paused => return Err(ActionError::Already("paused")),
            Action::Pause {} | Action::Resume {} => {
                told.is_paused = action == Action::Pause {};
                "invented".to_owned()
            }
            Action::Ban { node, reason } if node.starts_with("Sensor-") => {
                told.banned.insert(node.clone(), reason);
                format!("node {node:?} is banned")
            }
            Action::Unban { node } if told.banned.remove(&node).is_some() => {
                format!("node {node:?} is no longer banned")
            }
            Action::Ban { node, .. } | Action::Unban { node } => {
                return Err(ActionError::NoSuchNode { node });
            }
            Action::Rollback { to } => format!("invented: to {to:?}"),
            Action::Snapshots {} => {
                let snapshot = |round| Snapshot { round, at_ms: 1_000 * round, bytes: 1 << 14 };
                return Ok(Outcome::Snapshots { snapshots: (1..=20).map(snapshot).collect() });
            }
            _ => "invented".to_owned(),
        };
        told.log.push(format!("{actor}: {message}"));
        Ok(Outcome::Done { message })
    }
}

/// What operators have told it.
#[derive(Default)]
struct Told {
    is_paused: bool,
    banned: BTreeMap<String, String>,
    log: Vec<String>,
}

/// Columns of which the second has died in the middle of the run.
fn importance(round: u64) -> ImportanceStatus {
    const WINDOWS: u64 = 20;
    let rounds: Vec<u64> = (1..=WINDOWS).map(|window| round * window / WINDOWS).collect();
    let names = ["outside temperature", "wind", "hour", "sky", "humidity", "pressure", "noise"];
    let column = |(place, name): (usize, &&str)| {
        let level = 0.3 / (1 + place).pow(2) as f64;
        let window = |end: &u64| {
            let is_dead = name == &"wind" && 2 * end > round;
            let noise = 0.02 * (chance(*end, 50 + place as u64) - 0.5);
            Some(noise + if is_dead || name == &"noise" { 0.0 } else { level })
        };
        let windows: Vec<Option<f64>> = rounds.iter().map(window).collect();
        let increase = windows.iter().flatten().sum::<f64>() / WINDOWS as f64;
        let recent = windows.last().copied().flatten().unwrap_or(0.0);
        ColumnStatus { name: (*name).into(), increase, recent, measured: 9 * round, windows }
    };
    let mut columns: Vec<ColumnStatus> = names.iter().enumerate().map(column).collect();
    columns.sort_by(|one, other| other.increase.total_cmp(&one.increase));
    ImportanceStatus { columns, left_out: 0, rounds, has_label_unit: true }
}

/// Some that happened, and what operators did.
fn events(at_ms: u64, log: &[String]) -> Vec<EventStatus> {
    let event = |ago: u64, kind: &str, severity, text: &str| EventStatus {
        number: 0,
        at_ms: at_ms - 1_000 * ago,
        kind: kind.to_owned(),
        severity,
        text: text.to_owned(),
        details: serde_json::Value::Null,
    };
    let mut all = vec![
        event(900, "scale-changed", Severity::Info, "the nodes have agreed on scale 3"),
        event(300, "node-suspect", Severity::Warning, "uploads of node \"Sensor-004\" look wrong"),
        event(60, "store-failed", Severity::Error, "round 7 can't be stored: no room left"),
        event(58, "store-recovered", Severity::Info, "rounds can be stored again"),
    ];
    all.extend(log.iter().map(|text| event(0, "told", Severity::Warning, text)));
    (1..).zip(&mut all).for_each(|(number, event)| event.number = number);
    all
}

/// What a node does, and why.
fn state(number: u32, round: u64) -> (NodeState, &'static str) {
    match number {
        3 => (NodeState::Suspect, "uploads 41 times as far from the others as usual"),
        5 => (NodeState::Quarantined, "by the operator: new firmware"),
        6 => (NodeState::Silent, "no answer in the last 12 rounds"),
        10 => (NodeState::Banned, "by the operator: wrong unit"),
        11 => (NodeState::Revoked, "its certificate is on the list"),
        _ if (u64::from(number) + round / 400).is_multiple_of(9) => (NodeState::Away, ""),
        _ => (NodeState::Connected, ""),
    }
}

/// The kernel of a round: one is best for some time, its neighbours sometimes.
fn selected(round: u64) -> u32 {
    let best = 3 + 2 * (round / SEASON % 4) as u32;
    let spread = 3.0 / (1.0 + (round % SEASON) as f64 / 300.0);
    let away = (2.0 * chance(round, 2) - 1.0) * (0.6 + spread);
    (f64::from(best) + away).round().clamp(0.0, f64::from(KERNELS - 1)) as u32
}

/// A pseudo-random number between 0 and 1.
fn chance(of: u64, purpose: u64) -> f64 {
    let mut bits = of
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(purpose.wrapping_mul(0xd1b5_4a32_d192_ed03));
    bits = (bits ^ (bits >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 32)) >> 11) as f64 / (1u64 << 53) as f64
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
