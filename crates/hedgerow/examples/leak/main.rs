//! What a curious server reads from the messages of a federation: single uploads of SK-OFL, MK-OFL
//! and the naive extension reveal their sample; sums of many mostly don't. `docs/privacy.md`
//! describes the consequences.
//!
//! Run it with `cargo run --release -p hedgerow --example leak`.

#![allow(clippy::print_stdout)]

mod attack;
mod lattice;
mod pair;
mod scene;

use std::error::Error;

use scene::{Message, Scene, Summary};

const SEEDS: u64 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "Samples are read if every input is known to within 0.001; inputs lie between 0 and 1."
    );
    println!(
        "Distances: root mean square over the inputs to the nearest sample behind the message, and of a random guess.\n"
    );
    println!(
        "{:<16} {:>2}  {:<22} {:>11} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "method", "d", "message", "read", "by luck", "error", "of label", "distance", "of guess"
    );
    for (name, method) in [
        ("sk, σ² = 1e-5", "sk:1"),
        ("sk, σ² = 1", "sk:6"),
        ("sk, σ² = 1e5", "sk:11"),
        ("mk", "mk"),
        ("naive", "naive"),
    ] {
        for inputs in [1, 2, 5, 10] {
            // Only pairs of samples of one input are taken apart.
            let messages = MESSAGES.iter().take(if inputs == 1 { 9 } else { 8 });
            for (message, change) in messages {
                let mut attempts = Vec::new();
                for seed in 0..SEEDS {
                    attempts.extend(change(Scene::single(method, inputs, seed)).play()?);
                }
                show(name, inputs, message, Summary::of(&attempts));
            }
        }
    }
    Ok(())
}

type Change = fn(Scene) -> Scene;

const MESSAGES: [(&str, Change); 9] = [
    ("one upload", |scene| scene),
    ("in fixed point", |scene| Scene { message: Message::FixedPoint, ..scene }),
    ("masked upload", |scene| Scene { message: Message::Masked, ..scene }),
    ("upload of 2 samples", |scene| Scene { samples: 2, ..scene }),
    ("upload of 5 samples", |scene| Scene { samples: 5, ..scene }),
    ("sum over 2 nodes", |scene| Scene { nodes: 2, message: Message::Sum, ..scene }),
    ("sum over 5 nodes", |scene| Scene { nodes: 5, message: Message::Sum, ..scene }),
    ("sum over 20 nodes", |scene| Scene { nodes: 20, message: Message::Sum, ..scene }),
    ("2 nodes, taken apart", |scene| Scene { nodes: 2, message: Message::Pair, ..scene }),
];

fn show(name: &str, inputs: usize, message: &str, found: Summary) {
    let Summary { attempts, hits, lucky, largest, label, distance, guess } = found;
    println!(
        "{name:<16} {inputs:>2}  {message:<22} {:>11} {lucky:>8} {largest:>9.1e} {label:>9.1e} {distance:>9.3} {guess:>9.3}",
        format!("{hits} of {attempts}")
    );
}
