//! Cost and benefit of robust aggregation: the error of the good nodes for each aggregation, as a
//! multiple of the mean's error without bad nodes.
//!
//! Run it with `cargo run --release -p hedgerow --example robust`, or with names of methods for
//! only those.

#![allow(clippy::print_stdout)]

mod scene;

use std::error::Error;

use hedgerow::aggregation::Aggregation;
use scene::{NODES, Poison, Scene, World};

const ROUNDS: u64 = 1000;
const SEEDS: u64 = 5;

fn mean_error(method: &str, aggregation: Aggregation, scene: Scene) -> Result<f64, Box<dyn Error>> {
    let errors = (1..=SEEDS).map(|seed| scene.play(method, aggregation, seed));
    Ok(errors.sum::<Result<f64, _>>()? / SEEDS as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let clean = |world| Scene { world, bad: 0, poison: Poison::Huge, rounds: ROUNDS };
    let mut scenes: Vec<Scene> = [World::Alike, World::Apart, World::Differing].map(clean).to_vec();
    for poison in [Poison::Huge, Poison::Scattered, Poison::Opposite, Poison::Push] {
        scenes.extend([1, 3, 5, 9].map(|bad| Scene { bad, poison, ..clean(World::Alike) }));
    }
    let aggregations = [
        ("mean", Aggregation::Mean),
        ("trimmed 0.2", Aggregation::TrimmedMean { share: 0.2 }),
        ("median", Aggregation::Median),
    ];
    let only: Vec<String> = std::env::args().skip(1).collect();
    for method in ["sk:6", "mk", "naive", "emk", "fedpoe", "linear"] {
        let short = method.split(':').next().unwrap_or(method);
        if !only.is_empty() && !only.iter().any(|name| name == short) {
            continue;
        }
        print!("\n{short:>22}");
        aggregations.iter().for_each(|(name, _)| print!(" {name:>12}"));
        println!();
        for scene in &scenes {
            let Scene { world, bad, poison, .. } = *scene;
            let name = if bad == 0 {
                format!("{world:?}")
            } else {
                format!("{bad} of {NODES} {poison:?}")
            };
            let plain = mean_error(method, Aggregation::Mean, clean(world))?;
            print!("{name:>22}");
            for (_, aggregation) in aggregations {
                match mean_error(method, aggregation, *scene)? / plain {
                    factor if factor < 1e6 => print!(" {factor:>12.2}"),
                    _ => print!(" {:>12}", "ruined"),
                }
            }
            println!(" of {plain:.5}");
        }
    }
    Ok(())
}
