//! A node's step for several shapes, one at a time and in batches, on one thread and on two.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hedgerow::features::{Amplitude, Draw, FeatureMap, FeatureSpec, Kernel};
use hedgerow::learning::ExponentialWeights;
use hedgerow::message::{Selection, Upload};
use hedgerow::probe;
use hedgerow::random::CounterRng;
use hedgerow::simd::Cpu;
use hedgerow::state::StateKind;
use hedgerow::{NodeMethod, Plan, PlanConfig};

const BATCH: usize = 8;

/// (P, D, d).
const SHAPES: [(usize, usize, usize); 4] =
    [(11, 49, 5), (11, 49, 77), (100, 49, 77), (11, 512, 1000)];

/// The shape of the paper's largest data set: the one that numpy computes too.
const MAIN: usize = 1;

pub(crate) struct Case {
    kernels: usize,
    frequencies: usize,
    inputs: usize,
    draw: Draw,
    batch: usize,
}

impl Case {
    pub(crate) fn is_default(&self) -> bool {
        self.draw == Draw::Shared
    }

    pub(crate) fn is_main(&self) -> bool {
        self.is_default() && (self.kernels, self.frequencies, self.inputs) == SHAPES[MAIN]
    }

    /// Steps in one run, about a millisecond of them.
    fn steps(&self) -> usize {
        let numbers = self.projected() * self.inputs + 20 * self.model();
        (40_000_000 / numbers).next_multiple_of(BATCH).min(2560)
    }

    /// Frequencies that a sample is projected on.
    fn projected(&self) -> usize {
        if self.draw == Draw::Shared { self.frequencies } else { self.kernels * self.frequencies }
    }

    /// Numbers in the models of all kernels, and in z.
    fn model(&self) -> usize {
        self.kernels * 2 * self.frequencies
    }

    /// Bytes that a step goes through again and again: frequencies, features of a batch, models.
    fn working_set(&self) -> usize {
        4 * (self.projected() * self.inputs + self.model() * (self.batch + 1))
    }
}

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    SHAPES.into_iter().enumerate().flat_map(|(at, (kernels, frequencies, inputs))| {
        let draws: &[Draw] =
            if at == MAIN { &[Draw::Independent, Draw::Shared] } else { &[Draw::Shared] };
        draws.iter().flat_map(move |&draw| {
            [1, BATCH].map(|batch| Case { kernels, frequencies, inputs, draw, batch })
        })
    })
}

/// A node with its samples, and room for their features.
struct Work {
    batch: usize,
    inputs: usize,
    steps: usize,
    map: FeatureMap,
    node: Box<dyn NodeMethod>,
    x: Vec<f32>,
    z: Vec<f32>,
    upload: Upload,
}

impl Work {
    fn new(case: &Case, id: u32) -> Self {
        let &Case { kernels, frequencies, inputs, draw, batch } = case;
        // From 1e-5 to 1e5; with eleven of them the paper's dictionary.
        let variance = |p: usize| 10f64.powf(10.0 * p as f64 / (kernels - 1) as f64 - 5.0);
        let spec = FeatureSpec {
            kernels: (0..kernels).map(|p| Kernel::gaussian(variance(p))).collect(),
            draw,
            inputs,
            frequencies,
            seed: 1,
            amplitude: Amplitude::Normalised,
        };
        let map = FeatureMap::new(&spec).unwrap();
        let config = PlanConfig::default().kernels(spec.kernels).inputs(inputs);
        let plan = Plan::new(config.frequencies(Some(frequencies))).unwrap();
        let numbers = CounterRng::from_seed(2 + u64::from(id));
        Self {
            batch,
            inputs,
            steps: case.steps(),
            z: vec![0.0; batch * map.width()],
            node: plan.node_method(id),
            x: (0..(BATCH * inputs) as u64).map(|i| numbers.uniform_at(i) as f32).collect(),
            upload: Upload::default(),
            map,
        }
    }

    fn whole(&mut self) {
        self.first_phases::<4>();
    }

    /// The first so many of features, prediction, learning and upload.
    fn first_phases<const PHASES: usize>(&mut self) {
        for _ in 0..self.steps / BATCH {
            for block in self.x.chunks_exact(self.batch * self.inputs) {
                let features = black_box(self.map.map_batch(black_box(block), &mut self.z));
                for (z, x) in
                    features.samples(self.map.width()).zip(block.chunks_exact(self.inputs))
                {
                    if PHASES > 1 {
                        black_box(self.node.predict(z));
                    }
                    if PHASES > 2 {
                        self.node.learn(z, x[0]).unwrap();
                    }
                    if PHASES > 3 {
                        black_box(self.node.upload(&mut self.upload));
                    }
                }
            }
        }
    }
}

pub(crate) fn report(case: &Case) {
    let mut work = Work::new(case, 0);
    let steps = work.steps as f64;
    // In turns, so that other load on the machine affects all of them.
    let mut phases = [f64::INFINITY; 4];
    let (mut machine, mut memory) = (probe::machine(), probe::memory(case.working_set()));
    for _ in 0..5 {
        let took = [
            probe::nanoseconds(|| work.first_phases::<1>()),
            probe::nanoseconds(|| work.first_phases::<2>()),
            probe::nanoseconds(|| work.first_phases::<3>()),
            probe::nanoseconds(|| work.first_phases::<4>()),
        ];
        phases = std::array::from_fn(|at| phases[at].min(took[at] / steps));
        machine = machine.at_best(probe::machine());
        memory = memory.at_best(probe::memory(case.working_set()));
    }
    let [mapping, predicted, learned, whole] = phases;

    // Each phase needs the one before, so that their floors add up; within a phase the slowest of
    // its parts decides.
    let (model, projected) = (case.model() as f64, (case.projected() * case.inputs) as f64);
    // Frequencies are read once per batch.
    let project = (projected / machine.mul_adds_per_ns)
        .max(4.0 * projected / case.batch as f64 / memory.loaded_per_ns);
    let waves = model / 2.0 * machine.ns_per_sin_cos;
    // Prediction, norm and two products of the step; z and models are loaded, models are stored.
    let learn = (4.0 * model / machine.mul_adds_per_ns)
        .max(4.0 * 2.0 * model / memory.loaded_per_ns)
        .max(4.0 * model / memory.stored_per_ns);
    let predict = 2.0 * case.frequencies as f64 / machine.mul_adds_per_ns;
    // A vote takes the exponential of each log-weight that can make a difference.
    let mattering = log_weights(work.node.as_ref()).iter().filter(|log| **log > -60.0).count();
    let vote = mattering as f64 * machine.ns_per_exp;
    let floor = project + waves + learn + predict + vote;
    println!(
        "{}",
        serde_json::json!({
            "cpu": Cpu::detect().name(),
            "kernels": case.kernels, "frequencies": case.frequencies, "inputs": case.inputs,
            "draw": case.draw, "batch": case.batch,
            "ns": whole, "features_ns": mapping, "predict_ns": predicted - mapping, "learning_ns": learned - predicted,
            "upload_ns": whole - learned, "floor_ns": floor,
            "project_ns": project, "sin_cos_ns": waves, "learn_ns": learn, "vote_ns": vote,
            "working_set": case.working_set(), "loaded_per_ns": memory.loaded_per_ns, "stored_per_ns": memory.stored_per_ns,
            "mul_adds_per_ns": machine.mul_adds_per_ns, "ns_per_sin_cos": machine.ns_per_sin_cos,
            "ns_per_exp": machine.ns_per_exp,
        })
    );
}

/// Steps per second of two nodes on two threads, as a multiple of one node's on one, in turns;
/// beside it the same for multiplications that touch no memory, which is what the two cores can
/// give.
pub(crate) fn compare_threads(case: &Case) {
    let mut works = [Lines(Work::new(case, 0)), Lines(Work::new(case, 1))];
    let mut spins = [(), ()];
    // The fastest of many, because other load on a shared machine only slows down.
    let mut best = [f64::INFINITY; 4];
    for _ in 0..300 {
        let took = [
            time_together(&mut works[..1], |work| work.0.whole()),
            time_together(&mut works, |work| work.0.whole()),
            time_together(&mut spins[..1], |()| probe::spin(case.steps() as u64 * 30)),
            time_together(&mut spins, |()| probe::spin(case.steps() as u64 * 30)),
        ];
        best = std::array::from_fn(|at| best[at].min(took[at]));
    }
    let [alone, together, spin_alone, spin_together] = best;
    println!(
        "{}",
        serde_json::json!({
            "kernels": case.kernels, "frequencies": case.frequencies, "inputs": case.inputs,
            "draw": case.draw, "batch": case.batch, "speedup": 2.0 * alone / together,
            "speedup_of_spinning": 2.0 * spin_alone / spin_together,
        })
    );
}

/// On cache lines that no other thread writes to; processors fetch them in pairs.
#[repr(align(128))]
struct Lines<T>(T);

/// Nanoseconds from the first to begin to the last to finish, each on a thread of its own.
fn time_together<T: Send>(items: &mut [T], work: impl Fn(&mut T) + Sync) -> f64 {
    let waiting = AtomicUsize::new(items.len());
    let times: Vec<_> = std::thread::scope(|scope| {
        let threads = items.iter_mut().map(|item| {
            scope.spawn(|| {
                waiting.fetch_sub(1, Ordering::AcqRel);
                while waiting.load(Ordering::Acquire) > 0 {
                    std::hint::spin_loop();
                }
                let start = Instant::now();
                work(item);
                (start, Instant::now())
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (first, last) =
        (times.iter().map(|time| time.0).min(), times.iter().map(|time| time.1).max());
    (last.unwrap() - first.unwrap()).as_nanos() as f64
}

/// The log-weights of a node of MK-OFL, the largest of them zero, from its saved state.
fn log_weights(node: &dyn NodeMethod) -> Vec<f64> {
    type Models = (usize, Vec<f32>);
    type State = (u64, u64, (Selection, Models, Models, ExponentialWeights));
    let kind = StateKind::new("mk-node");
    let (_, _, (.., weights)) = kind.restore::<State>(&node.save(), |_| true).unwrap();
    weights.log().to_vec()
}
