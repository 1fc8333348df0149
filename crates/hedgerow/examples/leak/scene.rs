//! Federations with a curious server: real nodes and servers run, and every message of interest is
//! attacked.

use std::error::Error;

use hedgerow::features::{Draw, FeatureMap};
use hedgerow::masking::{FixedPoint, LEAST, MaskedSums, NodeMasks, Privacy, RoundTag, SecretKey};
use hedgerow::message::{Broadcast, Errors, Upload};
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::{NodeMethod, Plan, PlanConfig};

use super::attack::{Knowledge, Reading, Spy, narrowed, uploaded};
use super::lattice::dot;
use super::pair;

/// A federation and what its server looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) method: &'static str,
    pub(crate) message: Message,
    /// Numbers per sample, d.
    pub(crate) inputs: usize,
    /// Samples that a node learns in a round.
    pub(crate) samples: usize,
    pub(crate) nodes: usize,
    pub(crate) rounds: u64,
    pub(crate) seed: u64,
}

/// What the server looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// The uploads of the first node.
    Single,
    /// The same in fixed point.
    FixedPoint,
    /// The same in fixed point and masked, as if the masks weren't there.
    Masked,
    /// Only the sum of all uploads, and reads it as if it were one.
    Sum,
    /// Only the sum of two uploads of one input each, and takes it apart.
    Pair,
}

/// The result of an attack, and a random guess.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) read: Miss,
    pub(crate) guessed: Miss,
    /// Difference to the label of the nearest sample.
    pub(crate) label: f64,
}

/// How far an x is from the nearest of the samples behind a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Miss {
    /// Largest difference of an input.
    pub(crate) largest: f64,
    /// Root mean square difference of the inputs, x being pulled into [0, 1] first, where everybody
    /// knows that samples lie.
    pub(crate) distance: f64,
}

/// Attempts in a few numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) attempts: usize,
    /// Those that have every input of a sample to within [`EXACT`], and guesses that have.
    pub(crate) hits: usize,
    pub(crate) lucky: usize,
    /// Medians.
    pub(crate) largest: f64,
    pub(crate) label: f64,
    pub(crate) distance: f64,
    pub(crate) guess: f64,
}

/// A sample counts as read if every input is known to within this.
const EXACT: f64 = 1e-3;

impl Summary {
    pub(crate) fn of(attempts: &[Attempt]) -> Self {
        let median = |of: fn(&Attempt) -> f64| {
            let mut values: Vec<f64> = attempts.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let exact = |of: fn(&Attempt) -> Miss| {
            attempts.iter().filter(|one| of(one).largest < EXACT).count()
        };
        Self {
            attempts: attempts.len(),
            hits: exact(|one| one.read),
            lucky: exact(|one| one.guessed),
            largest: median(|one| one.read.largest),
            label: median(|one| one.label),
            distance: median(|one| one.read.distance),
            guess: median(|one| one.guessed.distance),
        }
    }
}

/// The budget of the paper's experiments.
const BUDGET: usize = 100;

impl Scene {
    /// One sample a round, three nodes, thirty rounds.
    pub(crate) fn single(method: &'static str, inputs: usize, seed: u64) -> Self {
        Self { method, message: Message::Single, inputs, samples: 1, nodes: 3, rounds: 30, seed }
    }

    /// Runs all rounds. Returns an attempt for each message whose starting point the server knows.
    pub(crate) fn play(self) -> Result<Vec<Attempt>, Box<dyn Error>> {
        let Self { method, inputs, nodes, seed, .. } = self;
        let config = PlanConfig::default().method(method.parse()?).inputs(inputs).nodes(nodes);
        let plan = Plan::new(config.draw(Draw::Independent).budget(BUDGET).seed(seed))?;
        let map = FeatureMap::new(&plan.config().feature_spec())?;
        let mut halves: Vec<Box<dyn NodeMethod>> =
            (0..nodes as u32).map(|id| plan.node_method(id)).collect();
        let mut server = plan.server_method();
        let knowledge = Knowledge::new(&map, &plan);
        let mut spy = Spy::new(&knowledge, 0);
        let mut features = vec![0.0; map.width()];
        let mut attempts = Vec::new();
        for round in 1..=self.rounds {
            let broadcast = server.broadcast().clone();
            let mut samples = Vec::new();
            let mut uploads = Vec::new();
            for (node, half) in halves.iter_mut().enumerate() {
                half.adopt(&broadcast)?;
                for sample in 0..self.samples {
                    let (x, y) = self.sample(round, node * self.samples + sample);
                    half.learn(map.map(&x, &mut features), y)?;
                    samples.push((x, y));
                }
                let mut upload = Upload::default();
                half.upload(&mut upload);
                server.accept(node as u32, &upload)?;
                uploads.push(upload);
            }
            let readings = match self.message {
                Message::Single => {
                    samples.truncate(self.samples);
                    vec![spy.read(&broadcast, &uploads[0])?]
                }
                Message::FixedPoint | Message::Masked => {
                    samples.truncate(self.samples);
                    let upload = self.in_fixed_point(&plan, &broadcast, &uploads[0])?;
                    vec![spy.read(&broadcast, &upload)?]
                }
                Message::Sum | Message::Pair => self.read_sum(&knowledge, &broadcast, &uploads),
            };
            attempts.extend(readings.iter().map(|reading| self.judge(round, reading, &samples)));
            server.close_round();
        }
        Ok(attempts)
    }

    /// An upload of the first node as its masked words have it, masks included or left out.
    fn in_fixed_point(
        &self,
        plan: &Plan,
        broadcast: &Broadcast,
        upload: &Upload,
    ) -> Result<Upload, Box<dyn Error>> {
        let settings = MaskedSums { least: LEAST, ..MaskedSums::new(vec![secret(0).public()]) };
        let config = plan.config().clone().nodes(LEAST).privacy(Privacy::Masked(settings));
        let rules = Plan::new(config)?.mask_rules().ok_or("uploads aren't masked")?;
        let layout = rules.layout(&[upload.numbers.len()]).ok_or("an upload of the plan")?;
        // Samples and errors come before the numbers of the upload.
        let formats = layout.formats().skip(HEAD).take(upload.numbers.len());
        let numbers: Vec<f32> = if self.message == Message::FixedPoint {
            let both = formats.zip(&upload.numbers);
            both.map(|(format, number)| read(format.encode((*number).into()), format)).collect()
        } else {
            let mut masks = NodeMasks::new(rules, "run", 0, secret(self.seed as u8 + 1), [0; 16])?;
            let tag = RoundTag::new(&[broadcast]);
            let masked = masks.mask(tag, std::slice::from_ref(upload), Errors::default())?;
            let mut bytes = &masked.bytes[..];
            let words = layout.formats().map(|format| {
                let (word, rest) = bytes.split_at(format.bytes());
                bytes = rest;
                let mut all = [0; 8];
                all[8 - word.len()..].copy_from_slice(word);
                read(i64::from_le_bytes(all) >> (64 - 8 * word.len()), format)
            });
            words.skip(HEAD).take(upload.numbers.len()).collect()
        };
        Ok(Upload { numbers, ..upload.clone() })
    }

    /// What a server makes of the sum of all uploads, if it knows what the nodes started from: the
    /// model of the broadcast.
    fn read_sum(
        &self,
        knowledge: &Knowledge<'_>,
        broadcast: &Broadcast,
        uploads: &[Upload],
    ) -> Vec<Reading> {
        let round = broadcast.round;
        let is_known = broadcast.kernels.is_none_or(|kernels| kernels.current == kernels.next);
        let Some((kernel, place)) = uploaded(knowledge, broadcast).filter(|_| is_known) else {
            return Vec::new();
        };
        let before = |at: usize| uploads.len() as f64 * f64::from(broadcast.numbers[at]);
        let after =
            |at: usize| uploads.iter().map(|upload| f64::from(upload.numbers[at])).sum::<f64>();
        let model = place..place + knowledge.map().model_len();
        let (before, after): (Vec<f64>, Vec<f64>) = model.map(|at| (before(at), after(at))).unzip();
        if self.message == Message::Sum {
            return vec![knowledge.read(kernel, round, &before, &after)];
        }
        let step = knowledge.step(round, &before, &after);
        let frequencies = knowledge.frequencies(kernel);
        let [points, factors] = pair::take_apart(frequencies, &step);
        let found = points.into_iter().zip(factors).map(|(x, factor)| {
            let prediction = dot(&before, &pair::features(frequencies, x).0) / uploads.len() as f64;
            Reading {
                x: narrowed(&[x]),
                y: knowledge.label(round, prediction, factor),
                misfit: 0.0,
            }
        });
        found.collect()
    }

    /// Inputs between 0 and 1; a label that depends on them, and noise.
    fn sample(&self, round: u64, place: usize) -> (Vec<f32>, f32) {
        let chance = CounterRng::from_seed(self.seed).derive(Purpose::Data, round);
        let number =
            |input: usize| chance.uniform_at((place * (self.inputs + 1) + input) as u64) as f32;
        let x: Vec<f32> = (0..self.inputs).map(number).collect();
        let y = (4.0 * x[0]).sin()
            + x.iter().sum::<f32>() / self.inputs as f32
            + 0.2 * number(self.inputs);
        (x, y)
    }

    fn judge(&self, round: u64, reading: &Reading, samples: &[(Vec<f32>, f32)]) -> Attempt {
        let chance = CounterRng::from_seed(self.seed).derive(Purpose::Trial, round);
        let guess: Vec<f32> =
            (0..self.inputs).map(|input| chance.uniform_at(input as u64) as f32).collect();
        let (read, y) = miss(&reading.x, samples);
        let (guessed, _) = miss(&guess, samples);
        Attempt { read, guessed, label: f64::from((reading.y - y).abs()) }
    }
}

/// Words of a masked upload before its numbers.
const HEAD: usize = 3;

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes([byte; 32])
}

fn read(word: i64, format: FixedPoint) -> f32 {
    word as f32 / (1_u64 << format.fraction()) as f32
}

/// How far x is from the nearest sample, and the label of that one.
fn miss(x: &[f32], samples: &[(Vec<f32>, f32)]) -> (Miss, f32) {
    let mut nearest = (Miss { largest: f64::INFINITY, distance: f64::INFINITY }, f32::NAN);
    for (sample, label) in samples {
        let pairs = || x.iter().zip(sample);
        let squares = pairs().map(|(x, sample)| f64::from(x.clamp(0.0, 1.0) - sample).powi(2));
        let distance = (squares.sum::<f64>() / x.len() as f64).sqrt();
        if distance < nearest.0.distance {
            let largest =
                pairs().map(|(x, sample)| f64::from((x - sample).abs())).fold(0.0, f64::max);
            nearest = (Miss { largest, distance }, *label);
        }
    }
    nearest
}
