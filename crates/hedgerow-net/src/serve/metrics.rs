//! Metrics for Prometheus, in the OpenMetrics text format: counters and histograms that start at
//! zero with the process, and gauges taken from a [`Status`].
//!
//! The counters are kept here and not read from a `Status`, whose sums outlive the process: after
//! a crash those may continue from a smaller value, which a monitor would take for a restart.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::certificates::SUBJECTS;
use super::status::Status;
use crate::coordinator::events::Event;

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What happened to an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It counts in its round.
    Taken,
    /// Its round had closed, and it was dropped.
    Late,
    /// Its round had closed, and it counts in the open one.
    Merged,
    /// It was invalid.
    Refused,
    /// Its node is in quarantine.
    Ignored,
}

/// As seen from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a node to the server.
    Up,
    /// From the server to a node.
    Down,
}

/// Where bytes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Messages and their frames.
    Message,
    /// Bytes through sockets.
    Wire,
}

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The counters of one process. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    rounds: Counter,
    samples: Counter,
    round_seconds: Histogram,
    commit_seconds: Histogram,
    uploads: Family<Labels<1>, Counter>,
    turned_away: Counter,
    signings: Family<Labels<1>, Counter>,
    bytes: Family<Labels<2>, Counter>,
    events: Family<Labels<1>, Counter>,
    /// None without TLS.
    identity: Arc<OnceLock<IdentityGauges>>,
}

#[derive(Debug, Clone)]
struct IdentityGauges {
    ends: Family<Labels<1>, Gauge>,
    list_ok: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Every series exists and is zero.
    pub fn new() -> Self {
        let metrics = Self {
            rounds: Counter::default(),
            samples: Counter::default(),
            round_seconds: Histogram::new(BUCKETS),
            commit_seconds: Histogram::new(BUCKETS),
            uploads: Family::default(),
            turned_away: Counter::default(),
            signings: Family::default(),
            bytes: Family::default(),
            events: Family::default(),
            identity: Arc::default(),
        };
        for kind in Event::KINDS {
            _ = metrics.events.get_or_create(&[("kind", kind)]);
        }
        for outcome in ["enrolled", "renewed"] {
            _ = metrics.signings.get_or_create(&[("outcome", outcome)]);
        }
        for outcome in
            [Outcome::Taken, Outcome::Late, Outcome::Merged, Outcome::Refused, Outcome::Ignored]
        {
            _ = metrics.uploads.get_or_create(&upload_labels(outcome));
        }
        for direction in [Direction::Up, Direction::Down] {
            for layer in [Layer::Message, Layer::Wire] {
                metrics.bytes(direction, layer, 0);
            }
        }
        metrics
    }

    /// Counts a closed round, the time that it was open, and its samples.
    pub fn round_closed(&self, open: Duration, samples: u64) {
        self.rounds.inc();
        self.samples.inc_by(samples);
        self.round_seconds.observe(open.as_secs_f64());
    }

    /// Counts a stored round and the time that storing it took.
    pub fn committed(&self, took: Duration) {
        self.commit_seconds.observe(took.as_secs_f64());
    }

    /// Counts an upload.
    pub fn upload(&self, outcome: Outcome) {
        self.uploads.get_or_create(&upload_labels(outcome)).inc();
    }

    /// Counts a connection or a stream that was refused.
    pub fn turned_away(&self) {
        self.turned_away.inc();
    }

    /// Counts an event.
    pub fn event(&self, event: &Event) {
        self.events.get_or_create(&[("kind", event.kind())]).inc();
    }

    /// Counts a request for a certificate: `enrolled`, `renewed`, or why it was refused.
    pub fn signing(&self, outcome: &'static str) {
        self.signings.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// When the certificates of server and authority end, in seconds of Unix time, and whether the
    /// list of revoked ones is up to date.
    pub(super) fn identity(&self, ends: [i64; 2], list_ok: bool) {
        let gauges = self
            .identity
            .get_or_init(|| IdentityGauges { ends: Family::default(), list_ok: Gauge::default() });
        for (subject, end) in SUBJECTS.into_iter().zip(ends) {
            gauges.ends.get_or_create(&[("subject", subject)]).set(end);
        }
        gauges.list_ok.set(i64::from(list_ok));
    }

    /// Counts transferred bytes.
    pub fn bytes(&self, direction: Direction, layer: Layer, count: u64) {
        let direction = match direction {
            Direction::Up => "up",
            Direction::Down => "down",
        };
        let layer = match layer {
            Layer::Message => "message",
            Layer::Wire => "wire",
        };
        self.bytes.get_or_create(&[("direction", direction), ("layer", layer)]).inc_by(count);
    }

    /// The page that Prometheus reads. Gauges without a value are left out.
    pub fn render(&self, status: &Status) -> String {
        let mut registry = Registry::with_prefix("hedgerow");
        let build = Family::<Vec<(&str, String)>, Gauge>::default();
        let labels = vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("method", status.method.clone()),
        ];
        build.get_or_create(&labels).set(1);
        registry.register("build_info", "Always 1, with the program's version", build);

        registry.register("rounds", "Rounds closed by this process", self.rounds.clone());
        let help = "Labelled samples that nodes reported in these rounds";
        registry.register("samples", help, self.samples.clone());
        registry.register("uploads", "Uploads, by outcome", self.uploads.clone());
        let help = "Connections and streams that were refused";
        registry.register("turned_away", help, self.turned_away.clone());
        let help = "Requests for certificates: enrolled, renewed, or why they were refused";
        registry.register("signings", help, self.signings.clone());
        let help = "Bytes from nodes (up) and to nodes (down): in messages, and through sockets";
        registry.register("bytes", help, self.bytes.clone());

        let help = "Events that an operator should know, by kind";
        registry.register("events", help, self.events.clone());

        let dropped = ConstCounter::new(crate::log::dropped());
        let help = "Lines of the log that were dropped because nobody read it";
        registry.register("log_lines_dropped", help, dropped);

        let uptime = ConstGauge::new(status.uptime_ms as f64 / 1e3);
        let help = "Age of this process";
        registry.register_with_unit("uptime", help, Unit::Seconds, uptime);
        for (name, help, value) in [
            ("nodes_connected", "Nodes with an open stream", Some(status.connected as f64)),
            ("nodes_known", "Nodes that ever joined the run", Some(status.nodes_known as f64)),
            ("round", "The open round of the run", Some(status.round as f64)),
            ("mse", "Mean squared error over the whole run", status.mse),
            ("window_mse", "Mean squared error over the latest rounds", status.window_mse),
            ("store_ok", "1 if the latest round was stored", Some(f64::from(status.store_ok))),
            (
                "shortage",
                "1 if the open round needs more nodes, or the first scale more with labels",
                Some(f64::from(status.shortage.is_some())),
            ),
        ] {
            if let Some(value) = value {
                registry.register(name, help, ConstGauge::new(value));
            }
        }

        if let Some(IdentityGauges { ends, list_ok }) = self.identity.get() {
            let help = "When certificates end, in seconds of Unix time";
            registry.register_with_unit("certificate_end", help, Unit::Seconds, ends.clone());
            let help = "1 if the list of revoked certificates is up to date";
            registry.register("revocation_list_ok", help, list_ok.clone());
        }

        // With more columns than are shown, those that are would change.
        if let Some(importance) = status.importance.as_ref().filter(|all| all.left_out == 0) {
            let gauges = Family::<Vec<(&str, String)>, Gauge<f64, AtomicU64>>::default();
            for column in importance.columns.iter().filter(|column| column.measured > 0) {
                gauges.get_or_create(&vec![("column", column.name.clone())]).set(column.recent);
            }
            let help = "Growth of the loss without a column, lately";
            registry.register("column_importance", help, gauges);
        }

        let help = "How long rounds were open";
        registry.register_with_unit("round", help, Unit::Seconds, self.round_seconds.clone());
        let help = "How long storing a round took";
        registry.register_with_unit("commit", help, Unit::Seconds, self.commit_seconds.clone());

        let mut page = String::new();
        // Writing to a string can't fail.
        _ = text::encode(&mut page, &registry);
        page
    }
}

fn upload_labels(outcome: Outcome) -> Labels<1> {
    let outcome = match outcome {
        Outcome::Taken => "taken",
        Outcome::Late => "late",
        Outcome::Merged => "merged",
        Outcome::Refused => "refused",
        Outcome::Ignored => "ignored",
    };
    [("outcome", outcome)]
}

/// Upper bounds of the histograms' buckets, in seconds: from a commit to memory to a round that
/// waits for a slow node.
const BUCKETS: [f64; 16] = [
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::status::{ColumnStatus, ImportanceStatus};

    fn status() -> Status {
        Status {
            schema: super::super::status::SCHEMA,
            run: "run".into(),
            method: "a \"b\" \\ c\nd".into(),
            uptime_ms: 2_500,
            round: 7,
            connected: 3,
            nodes_known: 4,
            window_mse: Some(0.25),
            window_rounds: 100,
            store_ok: true,
            ..Status::default()
        }
    }

    fn value(page: &str, series: &str) -> Option<f64> {
        let line = page
            .lines()
            .find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    #[test]
    fn everything_counted_is_shown() {
        let metrics = Metrics::new();
        metrics.clone().upload(Outcome::Taken);
        metrics.upload(Outcome::Taken);
        metrics.upload(Outcome::Merged);
        metrics.turned_away();
        metrics.bytes(Direction::Up, Layer::Message, 440);
        metrics.bytes(Direction::Down, Layer::Wire, 1_000);
        metrics.bytes(Direction::Down, Layer::Wire, 24);
        let page = metrics.render(&status());
        for (series, expected) in [
            ("hedgerow_uploads_total{outcome=\"taken\"}", 2.0),
            ("hedgerow_uploads_total{outcome=\"late\"}", 0.0),
            ("hedgerow_uploads_total{outcome=\"merged\"}", 1.0),
            ("hedgerow_uploads_total{outcome=\"refused\"}", 0.0),
            ("hedgerow_turned_away_total", 1.0),
            ("hedgerow_bytes_total{direction=\"up\",layer=\"message\"}", 440.0),
            ("hedgerow_bytes_total{direction=\"up\",layer=\"wire\"}", 0.0),
            ("hedgerow_bytes_total{direction=\"down\",layer=\"message\"}", 0.0),
            ("hedgerow_bytes_total{direction=\"down\",layer=\"wire\"}", 1_024.0),
            ("hedgerow_nodes_connected", 3.0),
            ("hedgerow_nodes_known", 4.0),
            ("hedgerow_round", 7.0),
            ("hedgerow_window_mse", 0.25),
            ("hedgerow_store_ok", 1.0),
            ("hedgerow_shortage", 0.0),
            ("hedgerow_uptime_seconds", 2.5),
        ] {
            assert_eq!(value(&page, series), Some(expected), "{series}\n{page}");
        }
        assert_eq!(value(&page, "hedgerow_mse"), None, "no samples, no error");
        let waiting = Status { shortage: Some("waits for 12, 11 connected".into()), ..status() };
        assert_eq!(value(&metrics.render(&waiting), "hedgerow_shortage"), Some(1.0));
    }

    #[test]
    fn columns_have_a_gauge_each_if_there_are_few() {
        let column = |name: &str, measured| ColumnStatus {
            name: name.into(),
            increase: 1.0,
            recent: 0.5,
            measured,
            windows: vec![Some(0.5)],
        };
        let columns = vec![column("outside \"t\"", 3), column("unknown", 0)];
        let importance = ImportanceStatus { columns, ..ImportanceStatus::default() };
        let with = |importance| Status { importance: Some(importance), ..status() };
        let page = Metrics::new().render(&with(importance.clone()));
        let series = "hedgerow_column_importance{column=\"outside \\\"t\\\"\"}";
        assert_eq!(value(&page, series), Some(0.5), "{page}");
        assert!(!page.contains("unknown"), "nothing was measured: {page}");
        let many = with(ImportanceStatus { left_out: 1, ..importance });
        assert!(!Metrics::new().render(&many).contains("column_importance"));
    }

    #[test]
    fn buckets_add_up_to_their_count() {
        let metrics = Metrics::new();
        for milliseconds in [0, 1, 3, 3, 700_000] {
            metrics.round_closed(Duration::from_millis(milliseconds), 4);
        }
        metrics.committed(Duration::from_micros(100));
        let page = metrics.render(&status());
        for (series, expected) in [
            ("hedgerow_rounds_total", 5.0),
            ("hedgerow_samples_total", 20.0),
            ("hedgerow_round_seconds_count", 5.0),
            ("hedgerow_round_seconds_sum", 0.001 + 0.003 + 0.003 + 700.0),
            ("hedgerow_round_seconds_bucket{le=\"0.0001\"}", 1.0),
            // A value at the bound of a bucket is in it.
            ("hedgerow_round_seconds_bucket{le=\"0.001\"}", 2.0),
            ("hedgerow_round_seconds_bucket{le=\"0.005\"}", 4.0),
            ("hedgerow_round_seconds_bucket{le=\"60.0\"}", 4.0),
            ("hedgerow_round_seconds_bucket{le=\"+Inf\"}", 5.0),
            ("hedgerow_commit_seconds_bucket{le=\"0.0001\"}", 1.0),
            ("hedgerow_commit_seconds_count", 1.0),
        ] {
            assert_eq!(value(&page, series), Some(expected), "{series}\n{page}");
        }
    }

    #[test]
    fn names_types_and_escapes_stay_the_same() {
        let page = Metrics::new().render(&status());
        assert!(page.ends_with("# EOF\n"));
        assert!(page.contains("method=\"a \\\"b\\\" \\\\ c\\nd\""), "{page}");
        for (name, kind) in [
            ("build_info", "gauge"),
            ("rounds", "counter"),
            ("samples", "counter"),
            ("uploads", "counter"),
            ("turned_away", "counter"),
            ("signings", "counter"),
            ("bytes", "counter"),
            ("events", "counter"),
            ("log_lines_dropped", "counter"),
            ("nodes_connected", "gauge"),
            ("nodes_known", "gauge"),
            ("round", "gauge"),
            ("window_mse", "gauge"),
            ("store_ok", "gauge"),
            ("shortage", "gauge"),
            ("uptime_seconds", "gauge"),
            ("round_seconds", "histogram"),
            ("commit_seconds", "histogram"),
        ] {
            assert!(page.contains(&format!("# TYPE hedgerow_{name} {kind}\n")), "{name}\n{page}");
            assert!(page.contains(&format!("# HELP hedgerow_{name} ")), "{name}\n{page}");
        }
        assert_eq!(page.matches("# TYPE").count(), 18, "{page}");
    }
}
