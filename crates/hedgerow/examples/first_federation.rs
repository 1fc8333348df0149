//! A first federation: two dozen devices learn one function together, and none of them shows its
//! data to anyone.
//!
//! Each device sees only its own slice of y = sin(2πx), but is asked about the whole range.
//! Alone it can't know what it has never seen; through the federation it learns from all others, at
//! the cost of one small vector per round.
//!
//! Run it with `cargo run --release -p hedgerow --example first_federation`.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::f32::consts::TAU;

use hedgerow::features::Draw;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::metrics::Tally;
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::{Federation, Plan, PlanConfig};

const NODES: usize = 24;
const ROUNDS: u64 = 3000;

fn main() -> Result<(), Box<dyn Error>> {
    // A budget of 42 numbers per message is enough for 20 random frequencies per kernel. Nobody
    // knows which bandwidth suits the data, so there is a whole dictionary of kernels. Everyone
    // derives the same features from the same seed: frequencies never travel.
    let config = PlanConfig::default().budget(42).nodes(NODES).seed(7).draw(Draw::Independent);
    let plan = Plan::new(config.clone())?;
    let map = plan.map();

    // The same nodes twice: together, and each for itself.
    let mut together = Federation::new(&plan);
    let mut alone = Federation::new(&Plan::new(config.method("local".parse()?))?);

    // Error is measured everywhere, on points that most devices never see.
    let grid: Vec<f32> = (0..20).map(|i| i as f32 / 20.0).collect();
    let mut grid_features = vec![0.0; grid.len() * map.width()];
    let grid_features = map.map_batch(&grid, &mut grid_features);
    let mean_square_error = |federation: &Federation| {
        let errors = federation.nodes().iter().flat_map(|node| {
            let points = grid_features.samples(map.width()).zip(&grid);
            points.map(move |(z, x)| f64::from(node.method(0).predict(z) - (TAU * x).sin()).powi(2))
        });
        errors.sum::<f64>() / (NODES * grid.len()) as f64
    };

    println!("{:>6}  {:>9}  {:>9}", "round", "together", "alone");
    let chance = CounterRng::from_seed(1).derive(Purpose::Data, 0);
    let mut errors = [Tally::default(); 2];
    let mut buffer = vec![0.0; NODES * map.width()];
    for round in 1..=ROUNDS {
        // A sample for each device, from its own slice: device k sees x in [k/24, (k+1)/24).
        let place = |node: usize| chance.uniform_at(round * NODES as u64 + node as u64) as f32;
        let x: [f32; NODES] =
            std::array::from_fn(|node| (node as f32 + place(node)) / NODES as f32);
        let y = x.map(|x| (TAU * x).sin());
        // Samples become features; each device gets its own.
        let features = map.map_batch(&x, &mut buffer).samples(map.width());
        let devices = features.zip(y.chunks(1)).zip(0..);
        let visit = |((z, y), node)| NodeRound { node, z, y, contact: Contact::Full };
        let visits: Vec<_> = devices.map(visit).collect();

        // In a round every device predicts, sees the true answer and learns; what it learned goes
        // up, the mean comes down.
        together.round(&visits, |_| {})?;
        alone.round(&visits, |_| {})?;
        errors[0].add(mean_square_error(&together));
        errors[1].add(mean_square_error(&alone));
        if [1, 10, 30, 100, 300, 1000, ROUNDS].contains(&round) {
            // Means over the rounds since the last line.
            println!("{round:>6}  {:>9.4}  {:>9.4}", errors[0].mean(), errors[1].mean());
            errors = [Tally::default(); 2];
        }
    }
    println!("41 numbers per upload; no sample ever left its device.");
    Ok(())
}
