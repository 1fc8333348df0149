//! [`Equality`]: predictions over the network beside those of a simulation.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use hedgerow::learning::Interval;
use hedgerow_lab::predictions::MethodPredictions;
use hedgerow_lab::results::Results;
use serde::Deserialize;

use super::folder::{DemoFolder, node_name};

/// How long nodes may take to write the predictions of samples that they have learned.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// How many predictions of a simulation were made over the network as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Equality {
    /// Samples that the simulation predicted.
    pub(super) predictions: usize,
    /// Those with the same values, class, probabilities and interval, to the bit.
    pub(super) equal: usize,
}

/// A line that a node writes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Line {
    line: usize,
    prediction: Option<Shown>,
    #[serde(default)]
    probabilities: Option<BTreeMap<String, f32>>,
    #[serde(default)]
    known: bool,
    #[serde(default)]
    lower: Option<f32>,
    #[serde(default)]
    upper: Option<f32>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Shown {
    Number(f32),
    Numbers(Vec<f32>),
    Class(String),
}

/// What was predicted from a sample. Numbers are bits.
#[derive(Debug, PartialEq, Eq)]
struct Predicted {
    values: Vec<u32>,
    class: Option<String>,
    probabilities: BTreeMap<String, u32>,
    interval: Option<(u32, u32)>,
}

impl Equality {
    /// Compares what nodes have written with a simulation that kept its predictions. `kernel` is
    /// the number of the method's kernel, if it has one.
    pub(super) fn check(
        folder: &DemoFolder,
        results: &Results,
        kernel: Option<usize>,
    ) -> anyhow::Result<Self> {
        let written = written(folder)?;
        let ending = kernel.map(|kernel| format!(" {kernel}")).unwrap_or_default();
        let method = results.predictions.iter().find(|all| all.method.ends_with(&ending));
        let simulated = method.map_or_else(Vec::new, |method| simulated(results, method));
        let is_equal = |(sample, predicted): &&(Key, Predicted)| {
            written.get(sample).is_some_and(|written| written == predicted)
        };
        Ok(Self { predictions: simulated.len(), equal: simulated.iter().filter(is_equal).count() })
    }
}

/// A node and the number of a sample in the data.
type Key = (usize, u64);

/// The predictions that nodes have written.
fn written(folder: &DemoFolder) -> anyhow::Result<HashMap<Key, Predicted>> {
    let begun = Instant::now();
    let mut all = HashMap::new();
    for node in 0..folder.nodes() {
        let (samples, path) = (folder.samples(node), folder.predictions(&node_name(node)));
        let lines = loop {
            let content = fs::read_to_string(&path)
                .with_context(|| format!("can't read {}", path.display()))?;
            // The last line may be there in part.
            let lines: Vec<Line> =
                content.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            if lines.len() >= samples.len() || begun.elapsed() >= WRITE_LIMIT {
                break lines;
            }
            std::thread::sleep(super::POLL_INTERVAL);
        };
        for line in lines.into_iter().filter(|line| line.known) {
            // Lines count from 1.
            if let Some(sample) = line.line.checked_sub(1).and_then(|line| samples.get(line))
                && let Some(predicted) = Predicted::of(line)
            {
                all.insert((node, sample.index), predicted);
            }
        }
    }
    Ok(all)
}

impl Predicted {
    fn of(line: Line) -> Option<Self> {
        let (values, class) = match line.prediction? {
            Shown::Number(value) => (vec![value.to_bits()], None),
            Shown::Numbers(values) => (values.into_iter().map(f32::to_bits).collect(), None),
            Shown::Class(class) => (Vec::new(), Some(class)),
        };
        let probabilities = line.probabilities.into_iter().flatten();
        let probabilities = probabilities.map(|(class, share)| (class, share.to_bits())).collect();
        let ends = line.lower.zip(line.upper);
        let interval = ends.map(|(lower, upper)| bits(Interval { lower, upper }));
        Some(Self { values, class, probabilities, interval })
    }
}

fn bits(interval: Interval) -> (u32, u32) {
    (interval.lower.to_bits(), interval.upper.to_bits())
}

/// The predictions of a simulation, sample by sample.
fn simulated(results: &Results, method: &MethodPredictions) -> Vec<(Key, Predicted)> {
    let (targets, classes) = (results.targets.len().max(1), &results.classes);
    let samples = method.predictions.chunks_exact(targets).enumerate();
    let predicted = samples.map(|(at, scored)| {
        let first = scored[0];
        let shares = method.probabilities.chunks_exact(classes.len().max(1)).nth(at);
        let shares = shares.unwrap_or_default().iter().map(|share| share.to_bits());
        let class = classes.get(first.value as usize).cloned();
        let values = match class {
            Some(_) => Vec::new(),
            None => scored.iter().map(|scored| scored.value.to_bits()).collect(),
        };
        let predicted = Predicted {
            values,
            class,
            probabilities: classes.iter().cloned().zip(shares).collect(),
            // Nodes write no intervals of several targets.
            interval: first.interval.filter(|_| targets == 1).map(bits),
        };
        ((first.node as usize, first.index), predicted)
    });
    predicted.collect()
}
