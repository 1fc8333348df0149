//! Node steps per second on one core: features, prediction, learning and upload of MK-OFL, beside the machine's floor.
//!
//! Prints one JSON object per case; `cargo xtask bench` runs it alternately with numpy and makes the table. With the argument `methods` it compares
//! GR-OFL with MK-OFL instead: what a sample, a round and a saved node cost.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use hedgerow::probe::{self, Machine};
use hedgerow::{
    Amplitude, Cpu, Draw, FeatureMap, FeatureSpec, Features, Kernel, Method, Setup, SetupConfig, Stream,
    Upload,
};

const BATCH: usize = 8;

fn main() {
    if std::env::args().any(|argument| argument == "methods") {
        [5, 77].into_iter().for_each(compare);
        return;
    }
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

/// What the parts of a round take, in nanoseconds, and the bytes of a saved node.
struct Parts {
    map: f64,
    learn: f64,
    exchange: f64,
    close: f64,
    saved: usize,
}

fn compare(inputs: usize) {
    let (gr, mk) = (parts(Method::GrOfl, inputs), parts(Method::MkOfl, inputs));
    let row = |name: &str, gr: f64, mk: f64| {
        println!(
            "{}",
            serde_json::json!({ "inputs": inputs, "what": name, "gr": gr, "mk": mk, "ratio": gr / mk })
        );
    };
    row("map, ns a sample", gr.map, mk.map);
    row("predict and learn, ns a sample", gr.learn, mk.learn);
    row("upload and adopt, ns a round", gr.exchange, mk.exchange);
    row("close, ns a round of 20 nodes", gr.close, mk.close);
    row("bytes of a saved node", gr.saved as f64, mk.saved as f64);
}

/// Of a node and a server in a federation of twenty with r = 100, once GR-OFL's model has grown: medians over rounds.
fn parts(method: Method, inputs: usize) -> Parts {
    const NODES: usize = 20;
    const ROUNDS: usize = 600;
    let frequencies = method.frequencies(100).unwrap();
    let spec = FeatureSpec {
        kernels: Kernel::paper_dictionary(),
        draw: Draw::Independent,
        inputs,
        frequencies,
        seed: 1,
        amplitude: Amplitude::Normalised,
    };
    let config = SetupConfig { frequencies, inputs, nodes: NODES, ..SetupConfig::default() };
    let setup = Setup::try_from(config).unwrap();
    let map = method.map(&setup, &spec).unwrap();
    let mut nodes: Vec<_> = (0..NODES as u32).map(|id| method.node(&setup, id)).collect();
    let mut server = method.server(&setup);
    let mut z = vec![0.0; NODES * map.width()];
    let mut upload = Upload::default();
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..ROUNDS {
        let numbers = Stream::from_seed(round as u64);
        let x: Vec<f32> = (0..(NODES * inputs) as u64).map(|at| numbers.uniform_at(at) as f32).collect();
        let mut took = [0.0; 4];
        let mut time = |part: usize, share: f64, work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            took[part] += share * start.elapsed().as_nanos() as f64;
        };
        let share = 1.0 / NODES as f64;
        time(0, share, &mut || {
            map.map_batch(black_box(&x), &mut z);
        });
        let samples = Features::checked(&z).unwrap().samples(map.width());
        for ((id, node), (z, x)) in nodes.iter_mut().enumerate().zip(samples.zip(x.chunks_exact(inputs))) {
            time(1, share, &mut || {
                black_box(node.predict(z));
                node.learn(z, (3.0 * x[0]).sin()).unwrap();
            });
            time(2, share, &mut || {
                node.upload(&mut upload);
            });
            time(3, 1.0, &mut || server.accept(id as u32, &upload).unwrap());
        }
        time(3, 1.0, &mut || {
            server.close_round();
        });
        let broadcast = server.broadcast();
        for node in &mut nodes {
            time(2, share, &mut || node.adopt(broadcast).unwrap());
        }
        if round >= ROUNDS / 2 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    let [map, learn, exchange, close] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    Parts { map, learn, exchange, close, saved: nodes[0].save().len() }
}
