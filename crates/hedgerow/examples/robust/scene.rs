//! Twenty devices that learn a smooth function together. Some of them are bad.

use std::error::Error;

use hedgerow::aggregation::Aggregation;
use hedgerow::features::{Draw, Features};
use hedgerow::message::Upload;
use hedgerow::metrics::ErrorMeter;
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::{Plan, PlanConfig};

pub(crate) const NODES: usize = 20;
const INPUTS: usize = 5;

/// How nodes differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum World {
    /// They don't.
    Alike,
    /// Each has a narrow band of one input to itself.
    Apart,
    /// Labels of most are a little off, those of a few far.
    Differing,
}

/// How bad nodes change their uploads. They all vote for the first kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Poison {
    /// Numbers of an enormous size, all in one direction.
    Huge,
    /// The same, each in a direction of its own.
    Scattered,
    /// Ten times the opposite.
    Opposite,
    /// The same and a little more.
    Push,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) world: World,
    /// How many nodes are bad.
    pub(crate) bad: usize,
    pub(crate) poison: Poison,
    pub(crate) rounds: u64,
}

impl Scene {
    /// Bad nodes are spread evenly.
    fn is_bad(&self, node: usize) -> bool {
        (node + 1) * self.bad / NODES > node * self.bad / NODES
    }

    /// A node's sample.
    fn sample(&self, node: usize, draw: impl Fn(usize) -> f32) -> ([f32; INPUTS], f32) {
        let mut x: [f32; INPUTS] = std::array::from_fn(&draw);
        let place = node as f32 / (NODES - 1) as f32;
        if self.world == World::Apart {
            x[3] = 0.8 * place + 0.2 * x[3];
        }
        let offset = if self.world == World::Differing { 0.5 * place.powi(3) } else { 0.0 };
        (x, label(&x) + 0.05 * (draw(INPUTS) - 0.5) + offset)
    }

    /// Changes the numbers of models at the start of an upload. Losses, which follow them, can't be
    /// negative.
    fn spoil(&self, upload: &mut Upload, models: usize, chance: CounterRng) {
        for (at, number) in upload.numbers.iter_mut().enumerate() {
            let poisoned = match self.poison {
                Poison::Huge => 1e20,
                Poison::Scattered => {
                    1e20 * if chance.uniform_at(at as u64) < 0.5 { 1.0 } else { -1.0 }
                }
                Poison::Opposite => -10.0 * *number,
                Poison::Push => *number + 0.02,
            };
            *number = if at < models { poisoned } else { poisoned.abs() };
        }
        upload.vote = upload.vote.map(|_| 0);
    }

    /// Mean square error of the good nodes.
    pub(crate) fn play(
        &self,
        method: &str,
        aggregation: Aggregation,
        seed: u64,
    ) -> Result<f64, Box<dyn Error>> {
        let config = PlanConfig::default()
            .personal(false)
            .method(method.parse()?)
            .inputs(INPUTS)
            .nodes(NODES);
        let plan = Plan::new(config.draw(Draw::Independent).seed(seed).aggregation(aggregation))?;
        let (map, mut server) = (plan.map(), plan.server_method());
        let mut nodes: Vec<_> = (0..NODES as u32).map(|id| plan.node_method(id)).collect();
        let chance = CounterRng::from_seed(seed).derive(Purpose::Data, 0);
        let mut meter = ErrorMeter::new(1);
        let (mut buffer, mut upload) = (vec![0.0; map.width()], Upload::default());
        for round in 0..self.rounds {
            for (id, node) in nodes.iter_mut().enumerate() {
                let own = chance.derive(Purpose::Data, round * NODES as u64 + id as u64);
                let (x, y) = self.sample(id, |at| own.uniform_at(at as u64) as f32);
                map.map_batch(&x, &mut buffer);
                let z = Features::checked(&buffer)?;
                if !self.is_bad(id) {
                    meter.record(node.predict(z), y);
                }
                node.learn(z, y)?;
                node.upload(&mut upload);
                if self.is_bad(id) {
                    let losses = if matches!(method, "emk" | "naive") { plan.kernels() } else { 0 };
                    let models = upload.numbers.len() - losses;
                    self.spoil(&mut upload, models, own.derive(Purpose::Data, 1));
                    // What is refused changes nothing.
                    let _ = server.accept(id as u32, &upload);
                } else {
                    server.accept(id as u32, &upload)?;
                }
            }
            meter.close_round();
            let broadcast = server.close_round();
            for node in &mut nodes {
                node.adopt(broadcast)?;
            }
        }
        Ok(meter.mse())
    }
}

/// The smooth part of Friedman's first function, between 0 and 1.
fn label(x: &[f32; INPUTS]) -> f32 {
    let wave = (std::f32::consts::PI * x[0] * x[1]).sin();
    (10.0 * wave + 20.0 * (x[2] - 0.5).powi(2) + 10.0 * x[3] + 5.0 * x[4]) / 30.0
}
