//! [`Preprocessor`]: fills in missing values and scales numbers, before features are computed.
//! Nodes agree on the scale as in a live system.

use std::collections::HashMap;
use std::ops::Range;

use hedgerow::NodeId;
use hedgerow::federation::Contact;
use hedgerow::message::Report;
use hedgerow::plan::DEFAULT_SCALE_NODES;
use hedgerow::scaling::{Axis, NodeScaling, Scale, ScaleKind, ServerScaling};

use crate::round_generator::Turn;

/// A round as it is read: not scaled, with missing values.
#[derive(Debug, Clone, Default)]
pub(crate) struct RawRound {
    /// Inputs of all samples; NaN is missing.
    pub(crate) x: Vec<f32>,
    /// Labels of all outputs, sample by sample; NaN is missing.
    pub(crate) y: Vec<f32>,
    /// The latest labels before, if the data says which ones were known; NaN is unknown.
    pub(crate) previous: Vec<f32>,
    /// The number of each sample in the data, from 0.
    pub(crate) indices: Vec<u64>,
    /// When, in seconds since 1970; empty if the data has no dates.
    pub(crate) times: Vec<f64>,
}

impl RawRound {
    pub(crate) fn clear(&mut self) {
        self.x.clear();
        self.y.clear();
        self.previous.clear();
        self.indices.clear();
        self.times.clear();
    }
}

/// The samples of an earlier round for the nodes that have a turn now, in their order.
pub(crate) fn due(
    turns: &[Turn],
    earlier: &(Vec<Turn>, RawRound),
    features: usize,
    outputs: usize,
) -> (Vec<Turn>, RawRound) {
    let (earlier_turns, raw) = earlier;
    let mut starts = HashMap::new();
    let mut start = 0;
    for turn in earlier_turns {
        starts.insert(turn.node, (start, turn.samples));
        start += turn.samples;
    }
    let (mut due_turns, mut due) = (Vec::new(), RawRound::default());
    for turn in turns {
        let (start, samples) = starts.get(&turn.node).copied().unwrap_or((0, 0));
        let range = start..start + samples;
        due.x.extend_from_slice(&raw.x[range.start * features..range.end * features]);
        let labels = range.start * outputs..range.end * outputs;
        due.y.extend_from_slice(&raw.y[labels.clone()]);
        due.previous.extend_from_slice(&raw.previous[labels]);
        due.indices.extend_from_slice(&raw.indices[range.clone()]);
        due.times.extend_from_slice(raw.times.get(range).unwrap_or_default());
        due_turns.push(Turn { samples, ..*turn });
    }
    (due_turns, due)
}

/// A round as it is learned from: no value is missing, and all are scaled.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) turns: Vec<Turn>,
    /// The node of each sample.
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) x: Vec<f32>,
    /// Labels of all outputs, sample by sample.
    pub(crate) y: Vec<f32>,
    /// Labels as they came, not scaled, and the latest that were known before.
    pub(crate) raw: Vec<f32>,
    pub(crate) previous: Vec<f32>,
    pub(crate) indices: Vec<u64>,
    pub(crate) times: Vec<f64>,
    /// Samples of nodes that have no scale yet and can't learn.
    pub(crate) unscaled: Vec<Unscaled>,
    /// The unit of each label at each node; empty if all nodes use the units of the data.
    units: Vec<Axis>,
    outputs: usize,
}

/// A sample of a node that has no scale yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unscaled {
    pub(crate) node: NodeId,
    pub(crate) labels: Vec<f32>,
}

impl Round {
    /// Samples.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Where the labels of these samples are.
    pub(crate) fn labels(&self, samples: Range<usize>) -> Range<usize> {
        samples.start * self.outputs..samples.end * self.outputs
    }

    /// The unit that converts a node's predictions of an output to the label's own.
    pub(crate) fn unit_of(&self, node: NodeId, output: usize) -> Axis {
        let at = node as usize * self.outputs + output;
        self.units.get(at).copied().unwrap_or(Axis::IDENTITY)
    }

    fn clear(&mut self) {
        self.turns.clear();
        self.nodes.clear();
        self.x.clear();
        self.y.clear();
        self.raw.clear();
        self.previous.clear();
        self.indices.clear();
        self.times.clear();
        self.unscaled.clear();
    }
}

/// How the numbers of a run are scaled.
#[derive(Debug, Clone)]
pub(crate) enum Scaler {
    /// No scaling.
    None,
    /// By known ranges.
    Fixed(Scale),
    /// By a scale that nodes agree on; labels too, unless they are classes.
    Online { kind: ScaleKind, raw_labels: bool },
}

/// The scales of all nodes and of the server.
pub(crate) struct Preprocessor {
    features: usize,
    outputs: usize,
    /// Empty where there is nothing to scale and nothing to fill in.
    nodes: Vec<NodeScaling>,
    server: Option<ServerScaling>,
    report: Report,
    pub(crate) tally: PreprocessorTally,
}

/// What was missing and what was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PreprocessorTally {
    /// Inputs that were filled in.
    pub(crate) imputed: u64,
    /// Samples without a label.
    pub(crate) skipped: u64,
    /// Samples that came before the first scale.
    pub(crate) unscored: u64,
    /// Numbers in reports and scales.
    pub(crate) numbers_up: u64,
    pub(crate) numbers_down: u64,
    /// Scales that were agreed on.
    pub(crate) scales: u64,
}

impl Preprocessor {
    /// For samples of so many features and labels.
    pub(crate) fn new(
        scaler: &Scaler,
        (features, outputs): (usize, usize),
        nodes: usize,
        has_missing: bool,
    ) -> Self {
        let (each, server) = match scaler {
            Scaler::None if !has_missing => (None, None),
            Scaler::None => (Some(NodeScaling::fixed(Scale::identity(features + outputs))), None),
            Scaler::Fixed(scale) => (Some(NodeScaling::fixed(scale.clone())), None),
            Scaler::Online { kind, raw_labels } => {
                let server = ServerScaling::new(*kind, features).with_labels(outputs);
                let server = server.with_first_nodes(DEFAULT_SCALE_NODES.min(nodes));
                let server = if *raw_labels { server.with_raw_labels() } else { server };
                (Some(NodeScaling::new(*kind, features)), Some(server))
            }
        };
        let nodes = each.map_or(vec![], |each| vec![each.with_labels(outputs); nodes]);
        Self {
            features,
            outputs,
            nodes,
            server,
            report: Report::default(),
            tally: PreprocessorTally::default(),
        }
    }

    /// Nodes in contact receive the latest scale. `moved` gets each node's old scale and the new
    /// one.
    pub(crate) fn catch_up<E>(
        &mut self,
        turns: &[Turn],
        mut moved: impl FnMut(NodeId, &Scale, &Scale) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((version, scale)) = agreed(&self.server) else { return Ok(()) };
        for turn in turns.iter().filter(|turn| turn.contact != Contact::Lost) {
            let node = &mut self.nodes[turn.node as usize];
            let old = node.scale().filter(|_| node.version() < version).cloned();
            // Both were made here, from one kind.
            if node.adopt(version, scale).unwrap_or(false) {
                self.tally.numbers_down += scale.count() as u64;
                if let Some(old) = old {
                    moved(turn.node, &old, scale)?;
                }
            }
        }
        Ok(())
    }

    /// Samples that have been admitted before, in the present scale; nothing is counted again.
    pub(crate) fn admit_again(&mut self, turns: &[Turn], raw: &RawRound, round: &mut Round) {
        let tally = self.tally;
        self.admit(turns, raw, round);
        self.tally = tally;
    }

    /// The same samples in the server's scale, and true, if some node has another.
    pub(crate) fn admit_centrally(
        &mut self,
        turns: &[Turn],
        raw: &RawRound,
        round: &mut Round,
    ) -> bool {
        let Some((version, scale)) = agreed(&self.server) else { return false };
        let behind: Vec<usize> = turns
            .iter()
            .map(|turn| turn.node as usize)
            .filter(|node| self.nodes[*node].version() != version)
            .collect();
        if behind.is_empty() {
            return false;
        }
        let theirs: Vec<NodeScaling> =
            behind.iter().map(|node| self.nodes[*node].clone()).collect();
        for node in &behind {
            // Both were made here, from one kind.
            _ = self.nodes[*node].adopt(version, scale);
        }
        self.admit_again(turns, raw, round);
        behind.into_iter().zip(theirs).for_each(|(node, scaling)| self.nodes[node] = scaling);
        true
    }

    /// Fills in and scales; samples without a label, and those of nodes without a scale, can't be
    /// learned from.
    pub(crate) fn admit(&mut self, turns: &[Turn], raw: &RawRound, round: &mut Round) {
        round.clear();
        round.units.clear();
        round.outputs = self.outputs;
        for node in &self.nodes {
            let unit = |output| node.label(output).unwrap_or(Axis::IDENTITY);
            round.units.extend((0..self.outputs).map(unit));
        }
        let mut sample = 0;
        for turn in turns {
            let before = round.len();
            for sample in sample..sample + turn.samples {
                self.admit_sample(turn.node, raw, sample, round);
            }
            sample += turn.samples;
            round.turns.push(Turn { samples: round.len() - before, ..*turn });
        }
    }

    fn admit_sample(&mut self, node: NodeId, raw: &RawRound, sample: usize, round: &mut Round) {
        let x = &raw.x[sample * self.features..(sample + 1) * self.features];
        let labels = sample * self.outputs..(sample + 1) * self.outputs;
        let y = &raw.y[labels.clone()];
        if y.iter().any(|y| y.is_nan()) {
            self.tally.skipped += 1;
            return;
        }
        match self.nodes.get(node as usize) {
            None => {
                round.x.extend_from_slice(x);
                round.y.extend_from_slice(y);
            }
            Some(scaling) if scaling.scale().is_none() => {
                self.tally.unscored += 1;
                round.unscaled.push(Unscaled { node, labels: y.to_vec() });
                return;
            }
            Some(scaling) => {
                let start = round.x.len();
                round.x.resize(start + x.len(), 0.0);
                self.tally.imputed += scaling.prepare(x, &mut round.x[start..]) as u64;
                let scaled = |(output, y): (usize, &f32)| scaling.scale_label(output, *y);
                round.y.extend(y.iter().enumerate().map(scaled));
            }
        };
        round.nodes.push(node);
        round.raw.extend_from_slice(y);
        round.previous.extend_from_slice(&raw.previous[labels]);
        round.indices.push(raw.indices[sample]);
        round.times.extend(raw.times.get(sample));
    }

    /// Nodes add the round's samples to their summaries, and due reports go up. `moved` gets a new
    /// scale.
    pub(crate) fn close(
        &mut self,
        turns: &[Turn],
        raw: &RawRound,
        mut moved: impl FnMut(&Scale, &Scale),
    ) {
        if self.nodes.is_empty() {
            return;
        }
        let mut samples = raw.x.chunks_exact(self.features).zip(raw.y.chunks_exact(self.outputs));
        for turn in turns {
            let node = &mut self.nodes[turn.node as usize];
            for (x, y) in samples.by_ref().take(turn.samples) {
                node.see(x, y.iter().copied());
            }
            if let Some(server) = &mut self.server
                && turn.contact == Contact::Full
                && node.report(&mut self.report)
                && server.accept(turn.node, &self.report).is_ok()
            {
                self.tally.numbers_up += self.report.count() as u64;
            }
        }
        let Some(server) = &mut self.server else { return };
        let before = server.scale().cloned();
        if let Some(scale) = server.close_round() {
            self.tally.scales += 1;
            if let Some(before) = before {
                moved(&before, scale);
            }
        }
    }

    /// The scaling of a node. A run whose model is saved has one for each.
    ///
    /// # Panics
    /// If there is nothing to scale and nothing to fill in.
    pub(crate) fn scaling(&self, node: NodeId) -> &NodeScaling {
        &self.nodes[node as usize]
    }

    /// The scale that the server has made, and its version.
    pub(crate) fn agreed_scale(&self) -> Option<(u64, Scale)> {
        agreed(&self.server).map(|(version, scale)| (version, scale.clone()))
    }

    /// The first label's unit that the server would use.
    pub(crate) fn unit(&self) -> Axis {
        let server = self.server.as_ref().and_then(ServerScaling::scale);
        let fixed = self.nodes.first().and_then(NodeScaling::scale);
        server.or(fixed).map_or(Axis::IDENTITY, |scale| scale.axis(self.features))
    }
}

/// The scale that the server has made, and its version.
fn agreed(server: &Option<ServerScaling>) -> Option<(u64, &Scale)> {
    server.as_ref().and_then(|server| Some((server.version(), server.scale()?)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const NAN: f32 = f32::NAN;
    const ONLINE: Scaler = Scaler::Online { kind: ScaleKind::Range, raw_labels: false };

    /// A round in which these nodes have a sample (x, y) each.
    fn raw(samples: &[(NodeId, Contact, f32, f32)]) -> (Vec<Turn>, RawRound) {
        let turns = samples.iter().map(|(node, contact, ..)| Turn {
            node: *node,
            samples: 1,
            contact: *contact,
        });
        let (x, y) = samples.iter().map(|(.., x, y)| (*x, *y)).unzip();
        let (previous, indices) = (vec![NAN; samples.len()], (0..samples.len() as u64).collect());
        (turns.collect(), RawRound { x, y, previous, indices, times: vec![] })
    }

    /// Runs a round like `GroupRun`. Returns the nodes whose models were rescaled, and whether the
    /// server's were.
    fn play(
        preprocessor: &mut Preprocessor,
        samples: &[(NodeId, Contact, f32, f32)],
        round: &mut Round,
    ) -> (Vec<NodeId>, bool) {
        let (turns, raw) = raw(samples);
        let (mut moved, mut server) = (vec![], false);
        let caught_up = preprocessor.catch_up(&turns, |node, from, to| {
            assert_ne!(from, to);
            moved.push(node);
            Ok::<_, Infallible>(())
        });
        caught_up.unwrap();
        preprocessor.admit(&turns, &raw, round);
        preprocessor.close(&turns, &raw, |_, _| server = true);
        (moved, server)
    }

    #[test]
    fn where_nothing_is_to_be_done_nothing_is_done() {
        let (mut preprocessor, mut round) =
            (Preprocessor::new(&Scaler::None, (1, 1), 2, false), Round::default());
        play(
            &mut preprocessor,
            &[(1, Contact::Full, 3e7, -2e9), (0, Contact::Lost, 1.0, NAN)],
            &mut round,
        );
        assert_eq!(
            (&round.x[..], &round.y[..], &round.nodes[..]),
            (&[3e7][..], &[-2e9][..], &[1][..])
        );
        assert_eq!(round.turns.iter().map(|turn| turn.samples).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(
            preprocessor.tally,
            PreprocessorTally { skipped: 1, ..PreprocessorTally::default() }
        );
        assert_eq!(round.unit_of(1, 0), Axis::IDENTITY);
    }

    #[test]
    fn what_is_missing_becomes_the_node_s_own_mean() {
        let (mut preprocessor, mut round) =
            (Preprocessor::new(&Scaler::None, (1, 1), 2, true), Round::default());
        for x in [1.0, 3.0] {
            play(
                &mut preprocessor,
                &[(0, Contact::Full, x, 0.0), (1, Contact::Full, 10.0 * x, 0.0)],
                &mut round,
            );
        }
        play(
            &mut preprocessor,
            &[(0, Contact::Lost, NAN, 1.0), (1, Contact::Full, NAN, 1.0)],
            &mut round,
        );
        assert_eq!(round.x, [2.0, 20.0]);
        // Without a label nothing is filled in, but what is there is remembered.
        play(
            &mut preprocessor,
            &[(0, Contact::Full, NAN, NAN), (1, Contact::Full, 35.0, NAN)],
            &mut round,
        );
        assert!(round.x.is_empty());
        play(&mut preprocessor, &[(1, Contact::Full, NAN, 1.0)], &mut round);
        assert_eq!(round.x, [25.0]);
        assert_eq!((preprocessor.tally.imputed, preprocessor.tally.skipped), (3, 2));
    }

    #[test]
    fn a_node_waits_for_its_first_scale() {
        let (mut preprocessor, mut round) =
            (Preprocessor::new(&ONLINE, (1, 1), 2, true), Round::default());
        for at in 0..8 {
            let value = 100.0 * at as f32;
            let samples = [(0, Contact::Full, value, value), (1, Contact::Full, value, 10.0)];
            assert_eq!(play(&mut preprocessor, &samples, &mut round), (vec![], false));
            let Unscaled { node, labels } = &round.unscaled[0];
            assert_eq!((*node, &labels[..]), (0, &[value][..]));
            assert!(round.y.is_empty() && round.turns.iter().all(|turn| turn.samples == 0));
        }
        // Sixteen labels from 0 to 700 have been reported by now.
        let samples = [(0, Contact::Full, 350.0, 700.0), (1, Contact::Lost, 350.0, 700.0)];
        assert_eq!(play(&mut preprocessor, &samples, &mut round), (vec![], false));
        assert_eq!((&round.x[..], &round.y[..], round.unscaled.len()), (&[0.5][..], &[1.0][..], 1));
        assert_eq!(round.unit_of(0, 0).raw(0.5) as f32, 350.0);
        // An offset and a factor for an input and a label, to one node so far.
        assert_eq!((preprocessor.tally.numbers_down, preprocessor.tally.scales), (4, 1));
    }

    #[test]
    fn models_follow_the_scale_when_the_node_hears_of_it() {
        let (mut preprocessor, mut round) =
            (Preprocessor::new(&ONLINE, (1, 1), 2, true), Round::default());
        let both = |second, size: f32, at: usize| {
            let value = size * (at % 5) as f32;
            [(0, Contact::Full, value, value), (1, second, value, value)]
        };
        let mut moves = Vec::new();
        for at in 0..200 {
            // Everything grows, and the second node is away for a while.
            let (size, second) = if at < 40 { (1.0, Contact::Full) } else { (50.0, Contact::Lost) };
            let second = if at < 150 { second } else { Contact::Late };
            let (moved, server) = play(&mut preprocessor, &both(second, size, at), &mut round);
            assert!(round.x.iter().all(|x| x.abs() <= Scale::LIMIT));
            moves.push((moved, server));
        }
        let (first, last) =
            (|node| moves.iter().position(|(moved, _)| moved.contains(&node)), moves.last());
        let server = moves.iter().position(|(_, server)| *server).unwrap();
        assert_eq!((first(0), first(1)), (Some(server + 1), Some(150)));
        assert_eq!(last, Some(&(vec![], false)));
        assert_eq!(round.unit_of(0, 0), round.unit_of(1, 0));
        assert_eq!(round.unit_of(0, 0), preprocessor.unit());
    }
}
