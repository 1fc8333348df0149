//! Built-in streams: data generated from a seed, so that everything runs without a file.
//!
//! A new stream is one file in this folder, which describes it in a [`Stream`], and one line in
//! `streams!`. The parser, the help, the list of changes and the tests read the description.
//!
//! Values have fixed scales near one, so that no stream must be read whole to be scaled. A longer
//! stream starts with the shorter one, except for streams with a drift: their changes are at fixed
//! fractions of their length.

use hedgerow::random::normal;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{Dataset, Owners};
pub use drift_course::Change;
use drift_course::DriftCourse;

mod drift_course;

/// Declares the module of each file and lists its streams in [`STREAMS`].
macro_rules! streams {
    ($($file:ident: $($stream:ident),+;)*) => {
        $(mod $file;)*

        /// All built-in streams, in the order that lists show.
        pub static STREAMS: &[&Stream] = &[$($(&$file::$stream,)+)*];
    };
}

streams! {
    friedman: STREAM;
    mackey_glass: STREAM;
    narma: STREAM;
    drift: STREAM;
    friedman_drift: GRADUAL, RECURRING, FLIP;
    slices: STREAM;
    fleet: STREAM;
    unrelated: STREAM;
    walks: STREAM;
    rings: STREAM;
}

/// Description of a built-in stream. Fields that a stream doesn't mention have the values of
/// `PLAIN`.
#[derive(Debug)]
pub struct Stream {
    /// Name on the command line: lowercase words with hyphens.
    pub name: &'static str,
    /// One line for lists, without a full stop.
    pub summary: &'static str,
    /// Rounds of a run unless the user gives a number.
    pub default_rounds: usize,
    /// How the function changes over the stream; `None` if it stays.
    drift: Option<DriftCourse>,
    /// Whether labels form a series in time, which is then compared with the trivial forecasts.
    is_time_series: bool,
    /// Whether sample i belongs to node i modulo the number of nodes. Such a stream has only whole
    /// rounds.
    names_owners: bool,
    /// Draws the samples.
    generate: fn(&Request, &mut ChaCha8Rng) -> Samples,
}

/// A stream without any special property, for struct update: `Stream { name, summary, generate,
/// ..PLAIN }`.
const PLAIN: Stream = Stream {
    name: "",
    summary: "",
    default_rounds: 500,
    drift: None,
    is_time_series: false,
    names_owners: false,
    generate: |_, _| Samples::default(),
};

/// The stream with this name.
pub fn find(name: &str) -> Option<&'static Stream> {
    STREAMS.iter().copied().find(|stream| stream.name == name)
}

impl Stream {
    /// When the stream changes, if every node gets its samples in turn for this number of rounds;
    /// empty if it never does.
    pub fn changes(&self, rounds: usize) -> Vec<Change> {
        self.drift.map_or(Vec::new(), |course| course.changes(rounds))
    }

    /// The first `samples` samples from `seed`. `nodes` matters for streams that name the owners of
    /// samples, and for streams with a drift, which change between two rounds.
    pub fn generate(&self, samples: usize, nodes: usize, seed: u64) -> Dataset {
        let nodes = nodes.max(1);
        let samples = if self.names_owners { samples / nodes * nodes } else { samples };
        let request = Request { samples, nodes, drift: self.drift };
        let Samples { features, x, y } =
            (self.generate)(&request, &mut ChaCha8Rng::seed_from_u64(seed));
        let mut data = Dataset::in_memory(self.name, features, x, y);
        if self.names_owners {
            let ids = (0..samples).map(|index| (index % nodes) as u32).collect();
            let names = (1..=nodes).map(|node| node.to_string()).collect();
            data.owners = Some(Owners { ids, names });
        }
        if self.is_time_series {
            data.last = Some([f32::NAN].iter().chain(&data.y).take(samples).copied().collect());
            data.is_time_series = true;
        }
        data
    }
}

/// Two streams are the same if they have the same name.
impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The samples that a generator is asked for.
struct Request {
    samples: usize,
    /// At least 1.
    nodes: usize,
    drift: Option<DriftCourse>,
}

/// The samples of a generator.
#[derive(Default)]
struct Samples {
    /// Numbers in an input.
    features: usize,
    /// The inputs, one after the other.
    x: Vec<f32>,
    /// A label for each input.
    y: Vec<f32>,
}

impl Request {
    /// Share of the second function in a sample of a stream with a drift, from 0 to 1.
    fn drift_share(&self, index: usize) -> f64 {
        let (round, rounds) = (index / self.nodes, self.samples / self.nodes);
        self.drift.map_or(0.0, |course| course.share(round, rounds))
    }

    /// Something drawn for each node, before its samples.
    fn each_node<T>(
        &self,
        rng: &mut ChaCha8Rng,
        mut draw: impl FnMut(&mut ChaCha8Rng) -> T,
    ) -> Vec<T> {
        (0..self.nodes).map(|_| draw(rng)).collect()
    }

    /// Samples drawn one after the other; `draw` gets the index of the sample.
    fn draw_each<const D: usize>(
        &self,
        rng: &mut ChaCha8Rng,
        mut draw: impl FnMut(usize, &mut ChaCha8Rng) -> ([f64; D], f64),
    ) -> Samples {
        let mut x = Vec::with_capacity(self.samples * D);
        let mut y = Vec::with_capacity(self.samples);
        for index in 0..self.samples {
            let (input, label) = draw(index, rng);
            x.extend(input.map(|value| value as f32));
            y.push(label as f32);
        }
        Samples { features: D, x, y }
    }
}

fn gaussian(rng: &mut ChaCha8Rng, deviation: f64) -> f64 {
    deviation * normal(rng)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const NODES: usize = 20;

    pub(super) fn assert_close(found: f64, expected: f64, tolerance: f64) {
        let difference = (found - expected).abs();
        assert!(difference <= tolerance, "{found} is not within {tolerance} of {expected}");
    }

    fn inputs(data: &Dataset) -> Vec<f32> {
        let mut x = Vec::new();
        data.inputs(&(0..data.len() as u32).collect::<Vec<_>>(), &mut x).unwrap();
        x
    }

    #[test]
    fn names_and_summaries_are_usable_in_lists() {
        for stream in STREAMS {
            assert_eq!(find(stream.name), Some(*stream));
            assert!(stream.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
            assert!(!stream.summary.is_empty() && !stream.summary.contains('\n'));
            assert!(stream.default_rounds > 0);
        }
        assert_eq!(find("Friedman"), None);
    }

    #[test]
    fn only_the_seed_matters() {
        for stream in STREAMS {
            let first = stream.generate(400, NODES, 7);
            let again = stream.generate(400, NODES, 7);
            assert_eq!((inputs(&first), &first.y), (inputs(&again), &again.y), "{}", stream.name);
            let other = stream.generate(400, NODES, 8);
            assert_ne!(inputs(&first), inputs(&other), "{}", stream.name);
            assert_ne!(first.y, other.y, "{}", stream.name);
        }
    }

    #[test]
    fn a_longer_stream_starts_with_the_shorter() {
        for stream in STREAMS.iter().filter(|stream| stream.drift.is_none()) {
            let (short, long) = (stream.generate(200, NODES, 3), stream.generate(360, NODES, 3));
            assert_eq!((short.len(), long.len()), (200, 360));
            assert_eq!(inputs(&short), inputs(&long)[..200 * short.features], "{}", stream.name);
            assert_eq!(short.y, long.y[..200], "{}", stream.name);
        }
    }

    #[test]
    fn values_are_finite_and_near_the_unit_scale() {
        // Known bounds of inputs from below, and of labels; other streams must fit the widest.
        let known = [
            ("friedman", 0.0, -0.15, 1.15),
            ("mackey-glass", 0.1, 0.1, 0.95),
            ("narma", 0.0, 0.1, 1.0),
            ("drift", -1.0, -1.1, 1.1),
            ("drift-gradual", 0.0, -0.3, 1.3),
            ("drift-recurring", 0.0, -0.15, 1.15),
            ("slices", 0.0, -0.05, 1.05),
            ("rings", -1.15, -1.0, 1.0),
        ];
        for stream in STREAMS {
            let bounds = known.into_iter().find(|(name, ..)| *name == stream.name);
            let (_, x_low, y_low, y_high) = bounds.unwrap_or((stream.name, -1.15, -1.35, 1.35));
            // This seed drives NARMA into its clip.
            let data = stream.generate(20_000, NODES, 2);
            let inputs = inputs(&data);
            assert_eq!(inputs.len(), data.len() * data.features);
            assert!(inputs.iter().all(|x| (x_low..=1.15).contains(x)), "inputs of {}", data.name);
            assert!(data.y.iter().all(|y| (y_low..=y_high).contains(y)), "labels of {}", data.name);
        }
    }

    #[test]
    fn empty_streams_and_no_nodes_are_allowed() {
        for stream in STREAMS {
            assert!(stream.generate(0, 0, 0).is_empty());
            assert_eq!(stream.generate(3, 0, 0).len(), 3);
        }
    }
}
