//! Numbers for Prometheus, in its text format: counters and histograms that grow from zero with the
//! process, and gauges taken from a [`Status`].
//!
//! Counters are kept here rather than read from a `Status`, whose sums outlive the process: after a
//! crash those may go on from a little less, which a monitor would take for a second run of
//! everything.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::status::Status;

/// What became of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It counts in its round.
    Taken,
    /// Its round had closed: dropped.
    Late,
    /// Its round had closed: counts in the open one.
    Merged,
    /// Something was wrong with it.
    Refused,
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
    /// What goes through sockets.
    Wire,
}

/// The counters of one process. Cheap to clone; clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    rounds: Histogram,
    commits: Histogram,
    uploads: [AtomicU64; 4],
    turned_away: AtomicU64,
    bytes: [[AtomicU64; 2]; 2],
}

impl Metrics {
    /// All zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// A round closed that was open for so long.
    pub fn round_closed(&self, open: Duration) {
        self.0.rounds.observe(open);
    }

    /// Storing a round took so long.
    pub fn committed(&self, took: Duration) {
        self.0.commits.observe(took);
    }

    /// An upload came.
    pub fn upload(&self, outcome: Outcome) {
        self.0.uploads[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Somebody was not let in.
    pub fn turned_away(&self) {
        self.0.turned_away.fetch_add(1, Relaxed);
    }

    /// So many bytes went by.
    pub fn bytes(&self, direction: Direction, layer: Layer, count: u64) {
        self.0.bytes[direction as usize][layer as usize].fetch_add(count, Relaxed);
    }

    /// The page that Prometheus reads.
    pub fn render(&self, status: &Status) -> String {
        let mut page = Page::default();
        let counters = &*self.0;

        page.head("hedgerow_build_info", "gauge", "Always 1; which program this is.");
        let version = env!("CARGO_PKG_VERSION");
        let method = label(&status.method);
        page.line(
            "hedgerow_build_info",
            &format!("version=\"{version}\",method=\"{method}\""),
            1.0,
        );

        page.head("hedgerow_rounds_total", "counter", "Rounds closed by this process.");
        page.line("hedgerow_rounds_total", "", counters.rounds.count() as f64);

        page.head(
            "hedgerow_uploads_total",
            "counter",
            "Uploads that came, by what became of them.",
        );
        for (outcome, count) in ["taken", "late", "merged", "refused"].iter().zip(&counters.uploads)
        {
            page.line(
                "hedgerow_uploads_total",
                &format!("outcome=\"{outcome}\""),
                count.load(Relaxed) as f64,
            );
        }

        let help = "Connections and streams that were not let in.";
        page.head("hedgerow_turned_away_total", "counter", help);
        page.line("hedgerow_turned_away_total", "", counters.turned_away.load(Relaxed) as f64);

        page.head(
            "hedgerow_bytes_total",
            "counter",
            "Bytes from nodes (up) and to them (down): of messages, and through sockets.",
        );
        for (direction, layers) in ["up", "down"].iter().zip(&counters.bytes) {
            for (layer, count) in ["message", "wire"].iter().zip(layers) {
                let labels = format!("direction=\"{direction}\",layer=\"{layer}\"");
                page.line("hedgerow_bytes_total", &labels, count.load(Relaxed) as f64);
            }
        }

        page.gauge(
            "hedgerow_nodes_connected",
            "Nodes with an open stream.",
            Some(status.connected as f64),
        );
        page.gauge(
            "hedgerow_nodes_known",
            "Nodes that ever joined the run.",
            Some(status.nodes_known as f64),
        );
        page.gauge("hedgerow_round", "The open round of the run.", Some(status.round as f64));
        page.gauge("hedgerow_mse", "Mean squared error over the whole run.", status.mse);
        page.gauge(
            "hedgerow_window_mse",
            "Mean squared error over the latest rounds.",
            status.window_mse,
        );
        page.gauge(
            "hedgerow_store_ok",
            "Whether the latest round could be stored.",
            Some(f64::from(status.store_ok)),
        );
        page.gauge(
            "hedgerow_uptime_seconds",
            "How long this process has been running.",
            Some(status.uptime_ms as f64 / 1e3),
        );

        page.histogram("hedgerow_round_seconds", "How long rounds were open.", &counters.rounds);
        page.histogram(
            "hedgerow_commit_seconds",
            "How long it took to store a round.",
            &counters.commits,
        );
        page.0
    }
}

/// Upper ends of the buckets, in seconds: from a commit without a disk to a round that waits for
/// people.
const BUCKETS: [f64; 16] = [
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

#[derive(Debug, Default)]
struct Histogram {
    /// Each counts what is above the bucket before; the last has no end.
    buckets: [AtomicU64; BUCKETS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    fn observe(&self, value: Duration) {
        let seconds = value.as_secs_f64();
        let bucket = BUCKETS.partition_point(|end| *end < seconds);
        self.buckets[bucket].fetch_add(1, Relaxed);
        // Enough for five centuries of waiting.
        self.nanoseconds.fetch_add(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }
}

/// Text in the making.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string can't fail, here and below.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    /// What isn't known yet has no line.
    fn gauge(&mut self, name: &str, help: &str, value: Option<f64>) {
        self.head(name, "gauge", help);
        if let Some(value) = value {
            self.line(name, "", value);
        }
    }

    /// All from one look at the buckets, so that they agree with their count whoever is counting
    /// meanwhile.
    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        let ends = BUCKETS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let mut until = 0;
        for (end, count) in ends.zip(&histogram.buckets) {
            until += count.load(Relaxed);
            self.line(&bucket, &format!("le=\"{end}\""), until as f64);
        }
        self.line(&format!("{name}_sum"), "", histogram.nanoseconds.load(Relaxed) as f64 / 1e9);
        self.line(&format!("{name}_count"), "", until as f64);
    }
}

/// Text as the value of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status {
            schema: super::super::status::SCHEMA,
            run: "run".into(),
            method: "a \"b\" \\ c\nd".into(),
            budget: 100,
            at_ms: 0,
            uptime_ms: 2_500,
            round: 7,
            open_ms: 0,
            uploads: 0,
            needed: None,
            quorum: "all".into(),
            connected: 3,
            nodes_known: 4,
            samples: 0,
            mse: None,
            window_mse: Some(0.25),
            window_rounds: 100,
            selected: None,
            kernels: Vec::new(),
            rounds_per_second: 0.0,
            late: 0,
            refused: 0,
            messages_up: 0,
            messages_down: 0,
            wire_up: 0,
            wire_down: 0,
            naive_up: 0,
            naive_down: 0,
            store_ok: true,
            nodes: Vec::new(),
            nodes_left_out: 0,
        }
    }

    fn value(page: &str, series: &str) -> Option<f64> {
        let line = page
            .lines()
            .find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    #[test]
    fn everything_counted_is_told() {
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
            ("hedgerow_uptime_seconds", 2.5),
        ] {
            assert_eq!(value(&page, series), Some(expected), "{series}\n{page}");
        }
        assert_eq!(value(&page, "hedgerow_mse"), None, "no sample, no error");
    }

    #[test]
    fn buckets_add_up_to_their_count() {
        let metrics = Metrics::new();
        for milliseconds in [0, 1, 3, 3, 700_000] {
            metrics.round_closed(Duration::from_millis(milliseconds));
        }
        metrics.committed(Duration::from_micros(100));
        let page = metrics.render(&status());
        for (series, expected) in [
            ("hedgerow_rounds_total", 5.0),
            ("hedgerow_round_seconds_count", 5.0),
            ("hedgerow_round_seconds_sum", 700.007),
            ("hedgerow_round_seconds_bucket{le=\"0.0001\"}", 1.0),
            // A value on the end of a bucket is in it.
            ("hedgerow_round_seconds_bucket{le=\"0.001\"}", 2.0),
            ("hedgerow_round_seconds_bucket{le=\"0.005\"}", 4.0),
            ("hedgerow_round_seconds_bucket{le=\"60\"}", 4.0),
            ("hedgerow_round_seconds_bucket{le=\"+Inf\"}", 5.0),
            ("hedgerow_commit_seconds_bucket{le=\"0.0001\"}", 1.0),
            ("hedgerow_commit_seconds_count", 1.0),
        ] {
            assert_eq!(value(&page, series), Some(expected), "{series}\n{page}");
        }
    }

    #[test]
    fn every_series_has_its_help_and_its_type() {
        let page = Metrics::new().render(&status());
        assert!(page.ends_with('\n'));
        assert!(page.contains("method=\"a \\\"b\\\" \\\\ c\\nd\""), "{page}");
        let mut known = "";
        for line in page.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                known = help.split_once(' ').unwrap().0;
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                assert_eq!(kind.split_once(' ').unwrap().0, known);
            } else {
                assert!(line.starts_with(known), "{line}");
            }
        }
    }
}
