//! [`Equality`]: predictions over the network beside those of a simulation.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::{Duration, Instant};

use hedgerow::learning::Interval;
use hedgerow_lab::predictions::MethodPredictions;
use hedgerow_lab::results::Results;
use hedgerow_net::agent::output::{Ends, Predicted, Shown};
use hedgerow_net::file::FileError;
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
#[derive(Debug, Deserialize)]
struct Line {
    line: usize,
    #[serde(flatten)]
    answer: Option<Predicted>,
}

/// What was predicted from a sample. Numbers are bits.
#[derive(Debug, PartialEq, Eq)]
struct Bits {
    values: Vec<u32>,
    class: Option<String>,
    probabilities: BTreeMap<String, u32>,
    /// The lower ends of the intervals, and the upper ones.
    ends: [Vec<u32>; 2],
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
        let is_equal = |(sample, predicted): &&(Key, Bits)| {
            written.get(sample).is_some_and(|written| written == predicted)
        };
        Ok(Self { predictions: simulated.len(), equal: simulated.iter().filter(is_equal).count() })
    }
}

/// A node and the number of a sample in the data.
type Key = (usize, u64);

/// The predictions that nodes have written.
fn written(folder: &DemoFolder) -> anyhow::Result<HashMap<Key, Bits>> {
    let begun = Instant::now();
    let mut all = HashMap::new();
    for node in 0..folder.nodes() {
        let (samples, path) = (folder.samples(node), folder.predictions(&node_name(node)));
        let lines = loop {
            let content = fs::read_to_string(&path)
                .map_err(|source| FileError::Unreadable { path: path.clone(), source })?;
            // The last line may be there in part.
            let lines: Vec<Line> =
                content.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            if lines.len() >= samples.len() || begun.elapsed() >= WRITE_LIMIT {
                break lines;
            }
            std::thread::sleep(super::POLL_INTERVAL);
        };
        for Line { line, answer } in lines {
            // Lines count from 1.
            if let Some(sample) = line.checked_sub(1).and_then(|line| samples.get(line))
                && let Some(answer) = answer.filter(|answer| answer.known)
            {
                all.insert((node, sample.index), Bits::of(answer));
            }
        }
    }
    Ok(all)
}

impl Bits {
    fn of(answer: Predicted) -> Self {
        let Predicted { prediction, probabilities, interval, .. } = answer;
        let (values, class) = match prediction {
            Shown::Class(class) => (Vec::new(), Some(class)),
            numbers => (bits(&numbers), None),
        };
        let probabilities = probabilities.into_iter().flatten();
        let probabilities = probabilities.map(|(class, share)| (class, share.to_bits())).collect();
        let ends = interval.map(|Ends { lower, upper }| [bits(&lower), bits(&upper)]);
        Self { values, class, probabilities, ends: ends.unwrap_or_default() }
    }
}

fn bits(shown: &Shown) -> Vec<u32> {
    match shown {
        Shown::Number(value) => vec![value.to_bits()],
        Shown::Numbers(values) => values.iter().map(|value| value.to_bits()).collect(),
        Shown::Class(_) => Vec::new(),
    }
}

/// The predictions of a simulation, sample by sample.
fn simulated(results: &Results, method: &MethodPredictions) -> Vec<(Key, Bits)> {
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
        let end = |of: fn(&Interval) -> f32| {
            let ends = scored.iter().filter_map(|scored| scored.interval.as_ref());
            ends.map(|interval| of(interval).to_bits()).collect()
        };
        let predicted = Bits {
            values,
            class,
            probabilities: classes.iter().cloned().zip(shares).collect(),
            ends: [end(|interval| interval.lower), end(|interval| interval.upper)],
        };
        ((first.node as usize, first.index), predicted)
    });
    predicted.collect()
}
