//! Streams generated from a seed, so that every run works without a file. Scales are fixed
//! constants. A longer stream starts with the shorter one, except for streams that drift: their
//! changes are at fixed shares of their length.

mod drift;

pub use drift::Change;

use std::f64::consts::{PI, TAU};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::{Dataset, Owners};
use drift::Course;

/// A stream that comes with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// Friedman's first regression problem.
    Friedman,
    /// A chaotic time series, as AR(5).
    MackeyGlass,
    /// A nonlinear moving average with a memory of ten steps.
    Narma,
    /// The best kernel changes midway.
    Drift,
    /// One function changes gradually into another over the middle third.
    DriftGradual,
    /// Two functions alternate.
    DriftRecurring,
    /// Labels change sign midway.
    DriftFlip,
    /// Every node sees its own slice of the inputs and labels.
    Slices,
    /// Two classes, labelled ±1.
    Rings,
}

impl Builtin {
    /// All streams, in the order of lists.
    pub const ALL: [Self; 9] = [
        Self::Friedman,
        Self::MackeyGlass,
        Self::Narma,
        Self::Drift,
        Self::DriftGradual,
        Self::DriftRecurring,
        Self::DriftFlip,
        Self::Slices,
        Self::Rings,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Friedman => "friedman",
            Self::MackeyGlass => "mackey-glass",
            Self::Narma => "narma",
            Self::Drift => "drift",
            Self::DriftGradual => "drift-gradual",
            Self::DriftRecurring => "drift-recurring",
            Self::DriftFlip => "drift-flip",
            Self::Slices => "slices",
            Self::Rings => "rings",
        }
    }

    /// One line for a list.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Friedman => "Friedman #1: five inputs that matter, five that don't, and noise",
            Self::MackeyGlass => {
                "Mackey-Glass chaotic time series, predicted from its last 5 values"
            }
            Self::Narma => "NARMA-10: a nonlinear recursion with a memory of 10 steps",
            Self::Drift => {
                "smooth in the first half, wiggly in the second: the best kernel changes midway"
            }
            Self::DriftGradual => {
                "Friedman #1 hands over from its first five inputs to the last five, slowly"
            }
            Self::DriftRecurring => {
                "the same back and forth: six parts, sudden changes between them"
            }
            Self::DriftFlip => "Friedman #1 about its mean: labels change sign midway",
            Self::Slices => "heterogeneous: every node sees its own slice of the inputs and labels",
            Self::Rings => {
                "classification: two noisy concentric rings, labels ±1, 5% of them wrong"
            }
        }
    }

    /// The stream of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stream| stream.name() == name)
    }

    /// The changes of a stream of this number of rounds, if samples are dealt in turn. Empty if it
    /// never changes.
    pub fn changes(self, rounds: usize) -> Vec<Change> {
        self.course().map_or(Vec::new(), |course| course.changes(rounds))
    }

    fn course(self) -> Option<Course> {
        match self {
            Self::Drift | Self::DriftFlip => Some(Course::Sudden),
            Self::DriftGradual => Some(Course::Gradual),
            Self::DriftRecurring => Some(Course::Recurring),
            Self::Friedman | Self::MackeyGlass | Self::Narma | Self::Slices | Self::Rings => None,
        }
    }

    /// The first `samples` samples from `seed`. `nodes` matters for `slices`, which assigns samples
    /// to nodes and is rounded down to whole rounds, and for streams that drift, which change
    /// between two rounds.
    pub fn generate(self, samples: usize, nodes: usize, seed: u64) -> Dataset {
        let nodes = nodes.max(1);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Of the second concept in a sample.
        let share = |index: usize| {
            self.course().map_or(0.0, |course| course.share(index / nodes, samples / nodes))
        };
        let (features, x, y) = match self {
            Self::Friedman => independent(samples, &mut rng, |_, rng| friedman_sample(rng)),
            Self::MackeyGlass => mackey_glass_samples(samples, &mut rng),
            Self::Narma => narma_samples(samples, &mut rng),
            Self::Drift => {
                independent(samples, &mut rng, |index, rng| drift::kernel_sample(share(index), rng))
            }
            Self::DriftGradual | Self::DriftRecurring => {
                independent(samples, &mut rng, |index, rng| {
                    drift::handover_sample(share(index), rng)
                })
            }
            Self::DriftFlip => {
                independent(samples, &mut rng, |index, rng| drift::flip_sample(share(index), rng))
            }
            Self::Slices => {
                let whole_rounds = samples / nodes * nodes;
                independent(whole_rounds, &mut rng, |index, rng| {
                    slices_sample(index % nodes, nodes, rng)
                })
            }
            Self::Rings => independent(samples, &mut rng, |_, rng| rings_sample(rng)),
        };
        let samples = y.len();
        let mut data = Dataset::in_memory(self.name(), features, x, y);
        if self == Self::Slices {
            let ids = (0..samples).map(|index| (index % nodes) as u32).collect();
            data.owners =
                Some(Owners { ids, names: (1..=nodes).map(|node| node.to_string()).collect() });
        }
        if matches!(self, Self::MackeyGlass | Self::Narma) {
            data.last = Some([f32::NAN].iter().chain(&data.y).take(samples).copied().collect());
            data.is_time_series = true;
        }
        data
    }
}

/// Number of features, inputs row by row, labels.
type Samples = (usize, Vec<f32>, Vec<f32>);

/// Independent samples, drawn in order.
fn independent<const D: usize>(
    samples: usize,
    rng: &mut ChaCha8Rng,
    mut draw: impl FnMut(usize, &mut ChaCha8Rng) -> ([f64; D], f64),
) -> Samples {
    let mut x = Vec::with_capacity(samples * D);
    let mut y = Vec::with_capacity(samples);
    for index in 0..samples {
        let (input, label) = draw(index, rng);
        x.extend(input.map(|value| value as f32));
        y.push(label as f32);
    }
    (D, x, y)
}

fn gaussian(rng: &mut ChaCha8Rng, deviation: f64) -> f64 {
    deviation * rng.sample::<f64, _>(StandardNormal)
}

/// Without noise the function lies in [0, 30]; divided by 30, and noise of deviation 1/30 on top.
fn friedman_sample(rng: &mut ChaCha8Rng) -> ([f64; 10], f64) {
    let x = rng.random::<[f64; 10]>();
    let y = friedman(&x) + gaussian(rng, 1.0);
    (x, y / 30.0)
}

fn friedman(x: &[f64; 10]) -> f64 {
    10.0 * (PI * x[0] * x[1]).sin() + 20.0 * (x[2] - 0.5).powi(2) + 10.0 * x[3] + 5.0 * x[4]
}

/// AR order of the paper's time series.
const MACKEY_GLASS_ORDER: usize = 5;
/// Seconds until the start is forgotten.
const MACKEY_GLASS_TRANSIENT: usize = 500;

/// One value a second, divided by 1.5 (the attractor lies within [0.4, 1.35]).
fn mackey_glass_samples(samples: usize, rng: &mut ChaCha8Rng) -> Samples {
    // Away from the unstable fixed point at 1, where a start would linger.
    let history = rng.random_range(1.1..1.3);
    let wanted = samples + MACKEY_GLASS_ORDER;
    let series: Vec<f32> = mackey_glass(history, MACKEY_GLASS_TRANSIENT + wanted, 10)
        .skip(MACKEY_GLASS_TRANSIENT)
        .map(|value| (value / 1.5) as f32)
        .collect();
    let past = series.windows(MACKEY_GLASS_ORDER).take(samples);
    let x = past.flat_map(|past| past.iter().rev().copied()).collect();
    (MACKEY_GLASS_ORDER, x, series[MACKEY_GLASS_ORDER..].to_vec())
}

/// x' = 0.2 x(t-17) / (1 + x(t-17)^10) - 0.1 x at t = 1, 2, …, `seconds`, from a constant past, by
/// the classical Runge-Kutta method. Its half steps need the past between grid points: there the
/// cubic through both ends' values and slopes stands in, which keeps the fourth order.
fn mackey_glass(
    history: f64,
    seconds: usize,
    steps_per_second: usize,
) -> impl Iterator<Item = f64> {
    let slope = |now: f64, delayed: f64| 0.2 * delayed / (1.0 + delayed.powi(10)) - 0.1 * now;
    let step = 1.0 / steps_per_second as f64;
    // The last 17 seconds as a ring: the values at the start and in the middle of every step.
    let mut past = vec![(history, history); 17 * steps_per_second];
    let mut oldest = 0;
    let mut now = history;
    (0..seconds).map(move |_| {
        for _ in 0..steps_per_second {
            let following = (oldest + 1) % past.len();
            let (at_start, at_middle) = past[oldest];
            let at_end = past[following].0;
            let k1 = slope(now, at_start);
            let k2 = slope(now + step / 2.0 * k1, at_middle);
            let k3 = slope(now + step / 2.0 * k2, at_middle);
            let k4 = slope(now + step * k3, at_end);
            let next = now + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4);
            let middle = (now + next) / 2.0 + step / 8.0 * (k1 - slope(next, at_end));
            past[oldest] = (now, middle);
            oldest = following;
            now = next;
        }
        now
    })
}

/// Memory of NARMA-10.
const NARMA_MEMORY: usize = 10;
/// The recursion's mean map has an unstable fixed point near 1.02 and diverges beyond it: held just
/// below, it returns.
const NARMA_CLIP: f64 = 1.0;
/// Steps until the start is forgotten.
const NARMA_TRANSIENT: usize = 200;

/// Features: the last ten inputs, doubled to fill [0, 1], then the last ten labels, both latest
/// first. Labels as they are.
fn narma_samples(samples: usize, rng: &mut ChaCha8Rng) -> Samples {
    // Latest first, as the features are.
    let mut inputs = [0.0; NARMA_MEMORY];
    let mut labels = [0.0; NARMA_MEMORY];
    let mut advance = |_: usize, rng: &mut ChaCha8Rng| {
        inputs.rotate_right(1);
        inputs[0] = rng.random_range(0.0..0.5);
        let features: [f64; 2 * NARMA_MEMORY] =
            std::array::from_fn(|feature| match feature.checked_sub(NARMA_MEMORY) {
                Some(lag) => labels[lag],
                None => 2.0 * inputs[feature],
            });
        let label = narma(&inputs, &labels).min(NARMA_CLIP);
        labels.rotate_right(1);
        labels[0] = label;
        (features, label)
    };
    for step in 0..NARMA_TRANSIENT {
        advance(step, rng);
    }
    independent(samples, rng, advance)
}

/// The next label before clipping, from the last ten inputs and labels, latest first.
fn narma(inputs: &[f64; NARMA_MEMORY], labels: &[f64; NARMA_MEMORY]) -> f64 {
    let sum: f64 = labels.iter().sum();
    0.3 * labels[0] + 0.05 * labels[0] * sum + 1.5 * inputs[NARMA_MEMORY - 1] * inputs[0] + 0.1
}

/// The first input comes from the node's slice of [0, 1] and carries most of the label; two more,
/// the same for all nodes, bend it.
fn slices_sample(node: usize, nodes: usize, rng: &mut ChaCha8Rng) -> ([f64; 3], f64) {
    let within = rng.random::<[f64; 3]>();
    let x = [(node as f64 + within[0]) / nodes as f64, within[1], within[2]];
    let y = 0.8 * x[0] + 0.1 * (1.0 + (TAU * x[1]).sin() * x[2]) + gaussian(rng, 0.01);
    (x, y)
}

/// Rings of radius 0.4 (label 1) and 0.8 (label -1), blurred by 0.07; one label in twenty is
/// turned.
fn rings_sample(rng: &mut ChaCha8Rng) -> ([f64; 2], f64) {
    let inner = rng.random_bool(0.5);
    let radius = if inner { 0.4 } else { 0.8 } + gaussian(rng, 0.07);
    let angle = rng.random_range(0.0..TAU);
    let turned = rng.random_bool(0.05);
    ([radius * angle.cos(), radius * angle.sin()], if inner != turned { 1.0 } else { -1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: usize = 20;

    fn assert_close(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found - expected).abs() <= tolerance,
            "{found} is not within {tolerance} of {expected}"
        );
    }

    fn inputs(data: &Dataset) -> Vec<f32> {
        let mut x = Vec::new();
        data.inputs(&(0..data.len() as u32).collect::<Vec<_>>(), &mut x).unwrap();
        x
    }

    #[test]
    fn names_are_found_again_and_nothing_else_is() {
        for stream in Builtin::ALL {
            assert_eq!(Builtin::parse(stream.name()), Some(stream));
            assert!(!stream.describe().contains('\n'));
        }
        assert_eq!(Builtin::parse("Friedman"), None);
    }

    #[test]
    fn the_seed_is_all_that_matters() {
        for stream in Builtin::ALL {
            let first = stream.generate(400, NODES, 7);
            let again = stream.generate(400, NODES, 7);
            assert_eq!((inputs(&first), &first.y), (inputs(&again), &again.y), "{}", stream.name());
            let other = stream.generate(400, NODES, 8);
            assert_ne!(inputs(&first), inputs(&other), "{}", stream.name());
            assert_ne!(first.y, other.y, "{}", stream.name());
        }
    }

    #[test]
    fn a_longer_stream_begins_with_the_shorter() {
        for stream in Builtin::ALL.into_iter().filter(|stream| stream.course().is_none()) {
            let (short, long) = (stream.generate(200, NODES, 3), stream.generate(360, NODES, 3));
            assert_eq!((short.len(), long.len()), (200, 360));
            assert_eq!(inputs(&short), inputs(&long)[..200 * short.features], "{}", stream.name());
            assert_eq!(short.y, long.y[..200], "{}", stream.name());
        }
    }

    #[test]
    fn values_are_finite_and_near_the_unit_scale() {
        for (stream, x_low, y_low, y_high) in [
            (Builtin::Friedman, 0.0, -0.15, 1.15),
            (Builtin::MackeyGlass, 0.1, 0.1, 0.95),
            (Builtin::Narma, 0.0, 0.1, 1.0),
            (Builtin::Drift, -1.0, -1.1, 1.1),
            (Builtin::DriftGradual, 0.0, -0.3, 1.3),
            (Builtin::DriftRecurring, 0.0, -0.15, 1.15),
            (Builtin::DriftFlip, 0.0, -1.35, 1.35),
            (Builtin::Slices, 0.0, -0.05, 1.05),
            (Builtin::Rings, -1.15, -1.0, 1.0),
        ] {
            // This seed drives NARMA into its clip.
            let data = stream.generate(20_000, NODES, 2);
            let inputs = inputs(&data);
            assert_eq!(inputs.len(), data.len() * data.features);
            assert!(inputs.iter().all(|x| (x_low..=1.15).contains(x)), "inputs of {}", data.name);
            assert!(data.y.iter().all(|y| (y_low..=y_high).contains(y)), "labels of {}", data.name);
        }
    }

    #[test]
    fn empty_streams_and_no_nodes_are_no_trouble() {
        for stream in Builtin::ALL {
            assert!(stream.generate(0, 0, 0).is_empty());
            assert_eq!(stream.generate(3, 0, 0).len(), 3);
        }
    }

    #[test]
    fn friedman_at_a_point_worked_out_by_hand() {
        let mut x = [0.9; 10];
        x[..5].copy_from_slice(&[0.5, 1.0, 0.0, 0.25, 0.4]);
        // 10 sin(π/2) + 20 · 0.25 + 2.5 + 2
        assert_close(friedman(&x), 19.5, 1e-12);
    }

    #[test]
    fn mackey_glass_agrees_with_a_finer_step() {
        let fine: Vec<f64> = mackey_glass(1.2, 300, 160).collect();
        let error = |steps| {
            let coarse = mackey_glass(1.2, 300, steps);
            coarse.zip(&fine).map(|(coarse, fine)| (coarse - fine).abs()).fold(0.0, f64::max)
        };
        assert_close(error(10), 0.0, 1e-6);
        // Fourth order: half the step, a sixteenth of the error.
        assert_close(error(5) / error(10), 16.0, 4.0);
    }

    #[test]
    fn mackey_glass_begins_as_the_exact_solution() {
        // While the delayed value is the constant past h, x' = a - x/10 has the solution 10a + (h -
        // 10a) exp(-t/10).
        let history = 1.2_f64;
        let limit = 2.0 * history / (1.0 + history.powi(10));
        for (second, value) in (1..=17).zip(mackey_glass(history, 17, 10)) {
            assert_close(
                value,
                limit + (history - limit) * (-f64::from(second) / 10.0).exp(),
                1e-9,
            );
        }
    }

    #[test]
    fn mackey_glass_inputs_are_the_labels_before() {
        let data = Builtin::MackeyGlass.generate(50, NODES, 2);
        for t in MACKEY_GLASS_ORDER..data.len() {
            let past: Vec<f32> = data.y[t - MACKEY_GLASS_ORDER..t].iter().rev().copied().collect();
            assert_eq!(data.sample(t).0, past);
        }
    }

    #[test]
    fn narma_follows_its_recursion() {
        // 0.3 · 0.4 + 0.05 · 0.4 · 2.2 + 1.5 · 0.5 · 0.2 + 0.1
        let (mut inputs, mut labels) = ([0.3; 10], [0.2; 10]);
        (inputs[0], inputs[9], labels[0]) = (0.2, 0.5, 0.4);
        assert_close(narma(&inputs, &labels), 0.414, 1e-12);

        let data = Builtin::Narma.generate(100, NODES, 5);
        for t in 1..data.len() {
            let (x, y) = data.sample(t);
            assert_eq!(x[10], data.y[t - 1]);
            assert_eq!(x[1], data.sample(t - 1).0[0]);
            let inputs = std::array::from_fn(|lag| f64::from(x[lag]) / 2.0);
            let labels = std::array::from_fn(|lag| f64::from(x[10 + lag]));
            assert_close(narma(&inputs, &labels), f64::from(y), 1e-6);
        }
    }

    #[test]
    fn slices_give_every_node_its_own_inputs_and_labels() {
        let data = Builtin::Slices.generate(2_019, NODES, 6);
        assert_eq!(data.len(), 2_000);
        let owner = data.owners.clone().unwrap().ids;
        let mut label_means = [0.0; NODES];
        for (t, owner) in owner.into_iter().enumerate() {
            let node = t % NODES;
            assert_eq!(owner as usize, node);
            let (x, y) = data.sample(t);
            assert_close(f64::from(x[0]) * NODES as f64, node as f64 + 0.5, 0.5001);
            label_means[node] += f64::from(y) / 100.0;
        }
        // 0.04 apart from node to node by design.
        assert!(label_means.windows(2).all(|pair| pair[1] > pair[0]), "{label_means:?}");
    }

    #[test]
    fn rings_have_two_classes_and_a_twentieth_of_them_wrong() {
        let data = Builtin::Rings.generate(20_000, NODES, 9);
        assert!(data.y.iter().all(|y| y.abs() == 1.0));
        let inner = data.y.iter().filter(|y| **y == 1.0).count();
        assert_close(inner as f64 / 20_000.0, 0.5, 0.02);
        let wrong = (0..data.len()).filter(|t| {
            let (x, y) = data.sample(*t);
            (x[0].hypot(x[1]) < 0.6) != (y == 1.0)
        });
        assert_close(wrong.count() as f64 / 20_000.0, 0.05, 0.01);
    }
}
