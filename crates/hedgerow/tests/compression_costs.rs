//! The cost of compression: mean squared errors of every method on a smooth stream, compared with
//! those of plain messages.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroU16;

use crate::common::{INPUTS, numbers};
use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::features::Draw;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::learning::Schedule;
use hedgerow::metrics::ErrorMeter;
use hedgerow::{Federation, Plan, PlanConfig};

fn count(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

fn both(numbers: NumberFormat, part: u16) -> Compression {
    let coding = Coding { numbers, part: count(part) };
    Compression { up: coding, down: coding, ..Compression::default() }
}

/// The inputs that nodes see.
#[derive(Clone, Copy, PartialEq)]
enum Sights {
    /// All of them.
    Same,
    /// A part of the first one's range each.
    Parted,
}

/// Mean square error on a smooth function, from the best kernel's point of view for SK-OFL.
fn error(method: &'static str, compression: Compression, seed: u64, sights: Sights) -> f64 {
    const K: usize = 10;
    let rounds = 500;
    let step_size = match method {
        "pof" => Schedule::Horizon { scale: 1.0, rounds },
        _ => Schedule::Anytime { scale: 1.0 },
    };
    let config = PlanConfig::default()
        .personal(false)
        .method(method.parse().unwrap())
        .nodes(K)
        .inputs(INPUTS);
    let config = config.draw(Draw::Independent);
    let config = config.budget(60).seed(seed).step_size(step_size).compression(compression);
    let plan = Plan::new(config).unwrap();
    let (map, mut federation) = (plan.map(), Federation::new(&plan));
    let mut meter = ErrorMeter::new(1);
    let mut buffer = vec![0.0; K * map.width()];
    for t in 0..rounds {
        let mut x = numbers(1_000 * seed + t, K * INPUTS);
        if sights == Sights::Parted {
            for (node, x) in x.chunks_mut(INPUTS).enumerate() {
                x[0] = -1.0 + (2 * node + 1) as f32 / K as f32 + x[0] / K as f32;
            }
        }
        let y: Vec<f32> =
            x.chunks(INPUTS).map(|x| 0.5 * (2.0 * x[0]).sin() + 0.3 * x[1] * x[0]).collect();
        let samples = map.map_batch(&x, &mut buffer).samples(map.width()).zip(y.chunks(1)).zip(0..);
        let visits: Vec<_> = samples
            .map(|((z, y), node)| NodeRound { node, z, y, contact: Contact::Full })
            .collect();
        federation
            .round(&visits, |prediction| meter.record(prediction.value, prediction.label))
            .unwrap();
        meter.close_round();
    }
    meter.mse()
}

#[test]
fn compression_costs_little() {
    let methods = ["gr", "sk:6", "mk", "naive", "emk", "pof", "fedpoe", "linear", "linear-newton"];
    for method in methods {
        let mean = |compression| {
            (1..=3).map(|seed| error(method, compression, seed, Sights::Same)).sum::<f64>() / 3.0
        };
        let plain = mean(Compression::default());
        assert!(plain > 1e-4 && plain < 0.1, "{method:?}: {plain}");
        println!("{:>13} {:>18} {plain:.3e}", method, "plain");
        let up = |numbers| Compression {
            up: Coding { numbers, ..Coding::default() },
            ..Compression::default()
        };
        // A round is one Newton step of GR-OFL, and a missing step can't be made up for.
        let rarely = if method == "gr" { 2.0 } else { 1.15 };
        for (name, compression, most) in [
            ("16 bits up", up(NumberFormat::F16), 1.005),
            ("16 bits", both(NumberFormat::F16, 1), 1.005),
            ("8 bits up", up(NumberFormat::Bits8), 1.02),
            ("8 bits", both(NumberFormat::Bits8, 1), 1.02),
            ("4 bits up", up(NumberFormat::Bits4), 1.05),
            ("4 bits", both(NumberFormat::Bits4, 1), 1.05),
            ("every 4", Compression { every: count(4), ..Compression::default() }, rarely),
            ("a quarter", both(NumberFormat::F32, 4), 1.1),
            ("a quarter, 8 bits", both(NumberFormat::Bits8, 4), 1.1),
        ] {
            let ratio = mean(compression) / plain;
            println!("{:>13} {name:>18} {ratio:.4}", method);
            assert!(ratio <= most, "{method:?}, {name}: {ratio}");
        }
    }
}

#[test]
fn compression_costs_little_where_everyone_sees_something_else() {
    // Gradients of very different nodes nearly cancel in their sum, but their rounding errors
    // don't.
    for method in ["gr", "sk:6", "mk", "pof"] {
        let mean = |compression| {
            (1..=3).map(|seed| error(method, compression, seed, Sights::Parted)).sum::<f64>() / 3.0
        };
        let plain = mean(Compression::default());
        for (format, most) in
            [(NumberFormat::F16, 1.01), (NumberFormat::Bits8, 1.05), (NumberFormat::Bits4, 1.05)]
        {
            let ratio = mean(both(format, 1)) / plain;
            println!("{:>13} {format:?} {ratio:.4}", method);
            assert!(ratio <= most, "{method:?}, {format:?}: {ratio}");
        }
    }
}
