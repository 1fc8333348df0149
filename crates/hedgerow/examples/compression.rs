//! The cost of compression: the same federation with compressed and plain messages.
//!
//! Twenty devices learn a smooth function of five inputs with some noise. Each row is one format,
//! with its error as a multiple of the plain federation's, and the bytes that a device sends and
//! receives per sample.
//!
//! Run it with `cargo run --release -p hedgerow --example compression`.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::num::NonZeroU16;

use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::features::Draw;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::metrics::ErrorMeter;
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::{Federation, Plan, PlanConfig};

const NODES: usize = 20;
const ROUNDS: u64 = 1000;
const SEEDS: u64 = 5;
const INPUTS: usize = 5;

/// The smooth part of Friedman's first function, between 0 and 1, and noise.
fn label(x: &[f32], noise: f32) -> f32 {
    let wave = (std::f32::consts::PI * x[0] * x[1]).sin();
    (10.0 * wave + 20.0 * (x[2] - 0.5).powi(2) + 10.0 * x[3] + 5.0 * x[4]) / 30.0
        + 0.05 * (noise - 0.5)
}

/// Mean square error, and bytes up and down per sample.
fn play(method: &str, compression: Compression, seed: u64) -> Result<[f64; 3], Box<dyn Error>> {
    let config =
        PlanConfig::default().personal(false).method(method.parse()?).draw(Draw::Independent);
    let config = config.inputs(INPUTS).nodes(NODES).seed(seed).compression(compression);
    let plan = Plan::new(config)?;
    let (mut federation, map) = (Federation::new(&plan), plan.map());
    let chance = CounterRng::from_seed(seed).derive(Purpose::Data, 0);
    let mut meter = ErrorMeter::new(1);
    let mut buffer = vec![0.0; NODES * map.width()];
    for round in 0..ROUNDS {
        let draw = |i: usize| chance.uniform_at(round * 1000 + i as u64) as f32;
        let x: Vec<f32> = (0..NODES * INPUTS).map(draw).collect();
        let labels =
            x.chunks(INPUTS).enumerate().map(|(node, x)| label(x, draw(NODES * INPUTS + node)));
        let y: Vec<f32> = labels.collect();
        let devices = map.map_batch(&x, &mut buffer).samples(map.width()).zip(y.chunks(1)).zip(0..);
        let visit = |((z, y), node)| NodeRound { node, z, y, contact: Contact::Full };
        let visits: Vec<_> = devices.map(visit).collect();
        federation.round(&visits, |prediction| meter.record(prediction.value, prediction.label))?;
        meter.close_round();
    }
    let per_sample = |bytes: u64| bytes as f64 / (ROUNDS * NODES as u64) as f64;
    let traffic = federation.traffic();
    Ok([meter.mse(), per_sample(traffic.bytes_up), per_sample(traffic.bytes_down)])
}

fn main() -> Result<(), Box<dyn Error>> {
    let plain = Coding::default();
    let coded = |numbers| Coding { numbers, ..plain };
    let part = |numbers, part| Some(Coding { numbers, part: NonZeroU16::new(part)? });
    let mut ways = vec![("plain".to_string(), Compression::default())];
    for (name, numbers) in [
        ("16 bits", NumberFormat::F16),
        ("8 bits", NumberFormat::Bits8),
        ("4 bits", NumberFormat::Bits4),
    ] {
        let up = coded(numbers);
        ways.push((format!("{name} up"), Compression { up, ..Compression::default() }));
        ways.push((format!("{name} both"), Compression { up, down: up, ..Compression::default() }));
    }
    for every in [2, 4].into_iter().filter_map(NonZeroU16::new) {
        ways.push((format!("every {every}"), Compression { every, ..Compression::default() }));
    }
    for (name, numbers) in [("", NumberFormat::F32), ("8 bits, ", NumberFormat::Bits8)] {
        for parts in [2, 4] {
            let Some(up) = part(numbers, parts) else { continue };
            ways.push((
                format!("{name}1/{parts} up"),
                Compression { up, ..Compression::default() },
            ));
            ways.push((
                format!("{name}1/{parts} both"),
                Compression { up, down: up, ..Compression::default() },
            ));
        }
    }

    let methods = ["sk:6", "mk", "naive"];
    print!("{:>16}", "");
    methods.iter().for_each(|method| print!("  {:>6} {:>7} {:>7}", method, "up", "down"));
    println!();
    let mut first = [1.0; 3];
    for (name, compression) in ways {
        print!("{name:>16}");
        for (method, first) in methods.into_iter().zip(&mut first) {
            let mut mean = [0.0; 3];
            for seed in 1..=SEEDS {
                let found = play(method, compression, seed)?;
                mean.iter_mut().zip(found).for_each(|(mean, found)| *mean += found / SEEDS as f64);
            }
            if name == "plain" {
                *first = mean[0];
            }
            print!("  {:>6.4} {:>7.1} {:>7.1}", mean[0] / *first, mean[1], mean[2]);
        }
        println!();
    }
    println!(
        "An error of 1 is {:.5} for sk, {:.5} for mk and {:.5} for naive.",
        first[0], first[1], first[2]
    );
    Ok(())
}
