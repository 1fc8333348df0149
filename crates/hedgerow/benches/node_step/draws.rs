//! Structured and shared draws: time for the features of a sample, error of the kernel estimate,
//! and error of a learner.

use std::hint::black_box;

use hedgerow::features::{Amplitude, Draw, FeatureMap, FeatureSpec, Kernel};
use hedgerow::message::Upload;
use hedgerow::random::CounterRng;
use hedgerow::{Plan, PlanConfig, probe};

const DRAWS: [Draw; 2] = [Draw::Shared, Draw::Structured];

/// Prints one case.
pub(crate) fn compare(inputs: usize, frequencies: usize) {
    let [shared, structured] = DRAWS.map(|draw| time(draw, inputs, frequencies));
    let [shared_error, structured_error] =
        DRAWS.map(|draw| kernel_error(draw, inputs, frequencies));
    let [shared_mse, structured_mse] = DRAWS.map(|draw| stream_error(draw, inputs, frequencies));
    println!(
        "{}",
        serde_json::json!({
            "inputs": inputs, "frequencies": frequencies,
            "shared_ns": shared, "structured_ns": structured, "times_faster": shared / structured,
            "shared_kernel_error": shared_error, "structured_kernel_error": structured_error,
            "shared_mse": shared_mse, "structured_mse": structured_mse,
        })
    );
}

fn map(
    draw: Draw,
    kernels: Vec<Kernel>,
    inputs: usize,
    frequencies: usize,
    seed: u64,
) -> FeatureMap {
    let amplitude = Amplitude::Normalised;
    FeatureMap::new(&FeatureSpec { kernels, draw, inputs, frequencies, seed, amplitude }).unwrap()
}

/// Samples of the unit cube.
fn samples(seed: u64, inputs: usize, count: usize) -> Vec<f32> {
    let numbers = CounterRng::from_seed(seed);
    (0..(count * inputs) as u64).map(|at| numbers.uniform_at(at) as f32).collect()
}

/// Nanoseconds for the features of a sample in batches of eight, with the paper's dictionary.
fn time(draw: Draw, inputs: usize, frequencies: usize) -> f64 {
    let map = map(draw, Kernel::paper_dictionary(), inputs, frequencies, 1);
    let x = samples(2, inputs, 8);
    let mut z = vec![0.0; 8 * map.width()];
    let passes = 20_000_000 / (8 * frequencies * inputs) + 2;
    let ns = probe::nanoseconds(|| {
        for _ in 0..passes {
            black_box(map.map_batch(black_box(&x), &mut z));
        }
    });
    ns / (8 * passes) as f64
}

/// Root mean square of z(a)·z(b) − κ(a, b) over draws and pairs, for the kernel that is about a
/// half at their distance.
fn kernel_error(draw: Draw, inputs: usize, frequencies: usize) -> f64 {
    // The squared distance of two samples is d/6 on average.
    let kernel = Kernel::gaussian(inputs as f64 / 6.0);
    let x = samples(3, inputs, 20);
    let (mut sum, mut count) = (0.0, 0);
    for seed in 0..20 {
        let map = map(draw, vec![kernel], inputs, frequencies, seed);
        let mut z = vec![0.0; 20 * map.width()];
        map.map_batch(&x, &mut z);
        for pair in 0..10 {
            let of =
                |at: usize| (&x[at * inputs..][..inputs], &z[at * map.width()..][..map.width()]);
            let ((a, za), (b, zb)) = (of(2 * pair), of(2 * pair + 1));
            let product: f64 = za.iter().zip(zb).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            sum += (product - kernel.value(a, b)).powi(2);
            count += 1;
        }
    }
    (sum / f64::from(count)).sqrt()
}

/// Mean squared error of one node that learns 2000 samples by MK-OFL, each predicted first, as a
/// share of the labels' variance: its mean over draws, and the mean's standard error. Samples are
/// mixtures of three hidden numbers, as readings of many sensors are.
fn stream_error(draw: Draw, inputs: usize, frequencies: usize) -> [f64; 2] {
    const SAMPLES: usize = 2000;
    const SEEDS: u64 = 40;
    let mixing = samples(5, 3, inputs);
    let stream = (0..SAMPLES as u64).map(|at| {
        let hidden = samples(1000 + at, 3, 1);
        let mixed = mixing
            .chunks_exact(3)
            .map(|row| row.iter().zip(&hidden).map(|(w, h)| (w - 0.5) * h).sum());
        let [a, b, c] = [0, 1, 2].map(|at| f64::from(hidden[at]));
        (mixed.collect::<Vec<f32>>(), (6.0 * a).sin() * b + c * c)
    });
    let stream: Vec<_> = stream.collect();
    let mean =
        |numbers: &mut dyn Iterator<Item = f64>, count: usize| numbers.sum::<f64>() / count as f64;
    let label = mean(&mut stream.iter().map(|(_, y)| *y), SAMPLES);
    let variance = mean(&mut stream.iter().map(|(_, y)| (y - label).powi(2)), SAMPLES);

    let unit = inputs as f64 / 12.0;
    let kernels: Vec<Kernel> =
        (-3..=3).map(|power| Kernel::gaussian(unit * 4f64.powi(power))).collect();
    let config = PlanConfig::default().kernels(kernels.clone()).frequencies(Some(frequencies));
    let plan = Plan::new(config.inputs(inputs).nodes(1)).unwrap();
    let errors = (0..SEEDS).map(|seed| {
        let map = map(draw, kernels.clone(), inputs, frequencies, seed);
        let (mut node, mut server) = (plan.node_method(0), plan.server_method());
        let (mut z, mut upload) = (vec![0.0; map.width()], Upload::default());
        let mut squares = stream.iter().map(|(x, y)| {
            let z = map.map(x, &mut z);
            let error = f64::from(node.predict(z)) - y;
            node.learn(z, *y as f32).unwrap();
            node.upload(&mut upload);
            server.accept(0, &upload).unwrap();
            node.adopt(server.close_round()).unwrap();
            error * error
        });
        mean(&mut squares, SAMPLES) / variance
    });
    let errors: Vec<f64> = errors.collect();
    let centre = mean(&mut errors.iter().copied(), errors.len());
    let spread = mean(&mut errors.iter().map(|error| (error - centre).powi(2)), errors.len() - 1);
    [centre, (spread / errors.len() as f64).sqrt()]
}
