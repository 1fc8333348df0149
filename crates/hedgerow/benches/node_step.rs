//! Node steps per second on one core: features, prediction, learning and upload of MK-OFL, beside the machine's floor.
//!
//! Prints one JSON object per case; `cargo xtask bench` runs it alternately with numpy and makes the table.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;

use hedgerow::probe::{self, Machine};
use hedgerow::{
    Amplitude, Cpu, Draw, FeatureMap, FeatureSpec, Kernel, Method, Setup, SetupConfig, Stream, Upload,
};

const BATCH: usize = 8;

fn main() {
    let machine = probe::machine();
    for draw in [Draw::Independent, Draw::Shared] {
        for batch in [1, BATCH] {
            report(&machine, draw, batch);
        }
    }
}

fn report(machine: &Machine, draw: Draw, batch: usize) {
    let (inputs, kernels, frequencies) = (77, 11, 49);
    let spec = FeatureSpec {
        kernels: Kernel::paper_dictionary(),
        draw,
        inputs,
        frequencies,
        seed: 1,
        amplitude: Amplitude::Normalised,
    };
    let map = FeatureMap::new(&spec).unwrap();
    let setup = Setup::try_from(SetupConfig { kernels, frequencies, ..SetupConfig::default() }).unwrap();
    let mut node = Method::MkOfl.node(&setup, 0);
    let numbers = Stream::from_seed(2);
    let x: Vec<f32> = (0..(BATCH * inputs) as u64).map(|i| numbers.uniform_at(i) as f32).collect();
    let mut z = vec![0.0; batch * map.width()];
    let mut upload = Upload::default();
    let mut features = 0.0;
    let repeats = 2560 / BATCH;
    let whole = probe::nanoseconds(|| {
        for _ in 0..repeats {
            for block in x.chunks_exact(batch * inputs) {
                let features = map.map_batch(black_box(block), &mut z);
                for (z, x) in features.samples(map.width()).zip(block.chunks_exact(inputs)) {
                    black_box(node.predict(z));
                    node.learn(z, x[0]).unwrap();
                    black_box(node.upload(&mut upload));
                }
            }
        }
    });
    let mapping = probe::nanoseconds(|| {
        for _ in 0..repeats {
            for block in x.chunks_exact(batch * inputs) {
                map.map_batch(black_box(block), &mut z);
                features += z[0];
            }
        }
    });
    black_box(features);
    let steps = (repeats * BATCH) as f64;

    let projected = if draw == Draw::Shared { frequencies } else { kernels * frequencies };
    let model = kernels * 2 * frequencies;
    // Projection; prediction and norm of every model; update (two products); the global model's prediction.
    let flops = 2 * projected * inputs + 4 * model + 3 * model + 4 * frequencies;
    let arithmetic = flops as f64 / machine.flops_per_ns;
    let waves = (kernels * frequencies) as f64 * machine.ns_per_sin_cos;
    // Frequencies are read once per four samples of a batch; features are written and read; models read and written.
    let reuse = if batch == 1 { 1 } else { 4 };
    let bytes =
        (4 * projected * inputs / reuse + 4 * 2 * model + 4 * 2 * model) as f64 / machine.bytes_per_ns;
    let floor = (arithmetic + waves).max(bytes);
    println!(
        "{}",
        serde_json::json!({
            "cpu": Cpu::detect().name(), "draw": draw, "batch": batch,
            "ns": whole / steps, "features_ns": mapping / steps,
            "floor_ns": floor, "arithmetic_ns": arithmetic, "sin_cos_ns": waves, "bytes_ns": bytes,
            "gflops": machine.flops_per_ns, "ns_per_sin_cos": machine.ns_per_sin_cos, "gbytes": machine.bytes_per_ns,
        })
    );
}
