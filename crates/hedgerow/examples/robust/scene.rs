//! Twenty devices that learn a smooth function together. Some of them are bad.

use std::error::Error;

use hedgerow::aggregation::Aggregation;
use hedgerow::features::Draw;
use hedgerow::message::{Numbers, ToServer, UploadHead, UploadMessage};
use hedgerow::metrics::ErrorMeter;
use hedgerow::plan::Scaling;
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::scaling::ScaleKind;
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

/// What bad nodes do. They all vote for the first kernel.
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
    /// They learn labels with the wrong sign.
    Flipped,
    /// A thousand times the numbers that aren't of a model, gradient or matrix: losses, errors and
    /// counts.
    Scalars,
    /// Models and sums are right, but what they report of their samples is a million times as
    /// large. Scales are agreed on.
    Reports,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) world: World,
    /// How many nodes are bad.
    pub(crate) bad: usize,
    pub(crate) poison: Poison,
    pub(crate) rounds: u64,
    /// From which round on the bad ones are banned.
    pub(crate) bans_at: Option<u64>,
}

/// Mean square errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Errors {
    /// Over all rounds.
    pub(crate) all: f64,
    /// Over the last quarter of them.
    pub(crate) late: f64,
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

    /// Changes a message.
    fn spoil(&self, message: &mut ToServer, first: usize, chance: CounterRng) {
        let upload = match message {
            ToServer::Report(report) if self.poison == Poison::Reports => {
                report.numbers.iter_mut().for_each(|number| *number *= 1e6);
                return;
            }
            ToServer::Upload(upload) => upload,
            _ => return,
        };
        for UploadHead { vote, numbers } in &mut upload.heads {
            let Numbers::Plain(numbers) = numbers else { continue };
            for (at, number) in numbers.iter_mut().enumerate() {
                let is_model = at < first;
                let poisoned = match self.poison {
                    Poison::Huge => 1e20,
                    Poison::Scattered => {
                        1e20 * if chance.uniform_at(at as u64) < 0.5 { 1.0 } else { -1.0 }
                    }
                    Poison::Opposite => -10.0 * *number,
                    Poison::Push => *number + 0.02,
                    Poison::Scalars if !is_model => 1e3 * *number,
                    Poison::Scalars | Poison::Flipped | Poison::Reports => *number,
                };
                *number = if is_model { poisoned } else { poisoned.abs() };
            }
            *vote = vote.map(|_| 0);
        }
    }

    /// Mean square errors of the good nodes.
    pub(crate) fn play(
        &self,
        method: &str,
        aggregation: Aggregation,
        seed: u64,
    ) -> Result<Errors, Box<dyn Error>> {
        let mut config = PlanConfig::default()
            .personal(false)
            .method(method.parse()?)
            .inputs(INPUTS)
            .nodes(NODES);
        if self.poison == Poison::Reports {
            config = config.scaling(Scaling::Online { kind: ScaleKind::Spread });
        }
        let plan = Plan::new(config.draw(Draw::Independent).seed(seed).aggregation(aggregation))?;
        let mut server = plan.server();
        let mut nodes: Vec<_> = (0..NODES as u32).map(|id| plan.node(id)).collect();
        for node in &mut nodes {
            server.connected(node.id());
            node.connected();
            server.opening(0, false).try_for_each(|message| node.hear(&message))?;
        }
        let chance = CounterRng::from_seed(seed).derive(Purpose::Data, 0);
        let (mut all, mut late) = (ErrorMeter::new(1), ErrorMeter::new(1));
        let mut taken = [0; NODES];
        for round in 0..self.rounds {
            let is_banned = |id| self.is_bad(id) && self.bans_at.is_some_and(|ban| round >= ban);
            for (id, node) in nodes.iter_mut().enumerate() {
                let own = chance.derive(Purpose::Data, round * NODES as u64 + id as u64);
                let (x, mut y) = self.sample(id, |at| own.uniform_at(at as u64) as f32);
                if self.is_bad(id) && self.poison == Poison::Flipped {
                    y = -y;
                }
                let prediction = node.learn(&x, &[y])?.value;
                if !self.is_bad(id) {
                    all.record(prediction, y);
                    if round >= self.rounds / 4 * 3 {
                        late.record(prediction, y);
                    }
                }
                let mut said = Vec::new();
                node.speak(false, |message| said.push(message));
                for mut message in said {
                    if is_banned(id) {
                        _ = server.forget_node(id as u32);
                        continue;
                    }
                    if self.is_bad(id) {
                        let first = first_scalar(method, &message, server.round(), &plan);
                        self.spoil(&mut message, first, own.derive(Purpose::Data, 1));
                        // What is refused changes nothing.
                        let is_taken = server.accept(id as u32, &message).is_ok();
                        taken[id] = if is_taken { server.round() } else { taken[id] };
                    } else {
                        server.accept(id as u32, &message)?;
                        taken[id] = server.round();
                    }
                }
            }
            all.close_round();
            late.close_round();
            if server.close_round().is_news() {
                for (node, taken) in nodes.iter_mut().zip(taken) {
                    server.opening(taken, true).try_for_each(|message| node.hear(&message))?;
                }
            }
        }
        Ok(Errors { all: all.mse(), late: late.mse() })
    }
}

/// Where the numbers of an upload begin that aren't of models, gradients and matrices.
fn first_scalar(method: &str, message: &ToServer, round: u64, plan: &Plan) -> usize {
    let ToServer::Upload(UploadMessage { heads, .. }) = message else { return 0 };
    let Numbers::Plain(numbers) = &heads[0].numbers else { return 0 };
    let scalars = match method {
        "gr" | "tr" if round == 1 => 2,
        "gr" => 5,
        "tr" => 6,
        "emk" | "naive" => plan.kernels(),
        _ => 0,
    };
    numbers.len().saturating_sub(scalars)
}

/// The smooth part of Friedman's first function, between 0 and 1.
fn label(x: &[f32; INPUTS]) -> f32 {
    let wave = (std::f32::consts::PI * x[0] * x[1]).sin();
    (10.0 * wave + 20.0 * (x[2] - 0.5).powi(2) + 10.0 * x[3] + 5.0 * x[4]) / 30.0
}
