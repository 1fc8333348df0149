//! What nodes that lie do to the error of the others: a table of kinds of lies, methods and
//! aggregations. Errors are multiples of the mean's without liars: over all rounds, over the last
//! quarter of them, and over that quarter if the liars are banned half-way.
//!
//! Run it with `cargo run --release -p hedgerow --example robust`, or with names of methods for
//! only those.

#![allow(clippy::print_stdout)]

mod scene;

use std::error::Error;

use hedgerow::aggregation::Aggregation;
use hedgerow::method::find;
use scene::{Errors, NODES, Poison, Scene, World};

const ROUNDS: u64 = 1000;
const SEEDS: u64 = 5;

const POISONS: [(Poison, &str); 7] = [
    (Poison::Scattered, "random numbers, 1e20"),
    (Poison::Huge, "the same, all alike"),
    (Poison::Opposite, "-10 times the upload"),
    (Poison::Push, "0.02 more"),
    (Poison::Flipped, "labels flipped"),
    (Poison::Scalars, "1000 times the scalars"),
    (Poison::Reports, "1e6 times the reports"),
];

const METHODS: [&str; 10] =
    ["gr", "tr", "sk:6", "mk", "naive", "emk", "fedpoe", "pof", "linear", "linear-newton"];

const AGGREGATIONS: [Aggregation; 4] = [
    Aggregation::Mean,
    Aggregation::Screened,
    Aggregation::TrimmedMean { share: 0.2 },
    Aggregation::Median,
];

/// Mean errors over seeds.
fn errors(method: &str, aggregation: Aggregation, scene: Scene) -> Result<Errors, Box<dyn Error>> {
    let mut mean = Errors { all: 0.0, late: 0.0 };
    for seed in 1..=SEEDS {
        let Errors { all, late } = scene.play(method, aggregation, seed)?;
        mean.all += all / SEEDS as f64;
        mean.late += late / SEEDS as f64;
    }
    Ok(mean)
}

fn show(factor: f64) -> String {
    match factor {
        factor if factor < 10.0 => format!("{factor:.2}"),
        factor if factor < 1e4 => format!("{factor:.0}"),
        _ => "ruined".to_owned(),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let clean =
        Scene { world: World::Alike, bad: 0, poison: Poison::Huge, rounds: ROUNDS, bans_at: None };
    for method in METHODS {
        let short = method.split(':').next().unwrap_or(method);
        if !only.is_empty() && !only.iter().any(|name| name == short) {
            continue;
        }
        let info = find(short).ok_or("no such method")?;
        let supported = AGGREGATIONS.into_iter().filter(|aggregation| info.supports(*aggregation));
        let supported: Vec<_> = supported.collect();
        print!("\n| `{short}` |");
        supported.iter().for_each(|aggregation| print!(" {aggregation} |"));
        println!("\n|---|{}", "---:|".repeat(supported.len()));
        for world in [World::Alike, World::Apart, World::Differing] {
            let clean = Scene { world, ..clean };
            print!("| no liar, {world:?} |");
            let plain = errors(method, Aggregation::Mean, clean)?;
            for aggregation in &supported {
                print!(" {} |", show(errors(method, *aggregation, clean)?.all / plain.all));
            }
            println!();
        }
        for (poison, name) in POISONS {
            let plain = errors(method, Aggregation::Mean, Scene { poison, ..clean })?;
            for bad in [1, 3, 9] {
                print!("| {bad} of {NODES}: {name} |");
                for aggregation in &supported {
                    let scene = Scene { poison, bad, ..clean };
                    let with = errors(method, *aggregation, scene)?;
                    let (all, late) = (with.all / plain.all, with.late / plain.late);
                    let scene = Scene { bans_at: Some(ROUNDS / 2), ..scene };
                    let after = errors(method, *aggregation, scene)?.late / plain.late;
                    print!(" {} / {} / {} |", show(all), show(late), show(after));
                }
                println!();
            }
        }
    }
    Ok(())
}
