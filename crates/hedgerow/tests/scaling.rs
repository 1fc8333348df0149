//! Federations on raw samples with online scaling, on streams that shift or widen; states and
//! refusals of scaling. `rescaling.rs` tests the conversion of models.

#![allow(clippy::unwrap_used)]

use crate::common::INPUTS;
use hedgerow::features::{Draw, Features, Kernel, SampleMap};
use hedgerow::federation::{Contact, NodeRound, Prediction};
use hedgerow::learning::Schedule;
use hedgerow::message::Report;
use hedgerow::metrics::Tally;
use hedgerow::random::CounterRng;
use hedgerow::scaling::{NodeScaling, Scale, ScaleKind, ServerScaling};
use hedgerow::{Federation, Plan, PlanConfig};

const NODES: usize = 4;

/// A federation on raw samples with a scale that is agreed on as they come.
struct Fleet {
    map: SampleMap,
    federation: Federation,
    nodes: Vec<NodeScaling>,
    server: ServerScaling,
    /// Whether models are taken over to a new scale, or left as they are.
    rescales: bool,
    changes: u32,
}

/// Raw inputs and label of one node.
type Sample = (Vec<f32>, f32);

impl Fleet {
    fn new(method: &'static str, kind: ScaleKind) -> Self {
        let config = PlanConfig::default()
            .personal(false)
            .method(method.parse().unwrap())
            .kernels([0.01, 0.1, 1.0, 10.0].map(Kernel::gaussian).to_vec())
            .frequencies(Some(20))
            .draw(Draw::Independent)
            .inputs(INPUTS)
            .nodes(NODES)
            .step_size(Schedule::Constant { scale: 0.3 })
            .seed(5);
        let plan = Plan::new(config).unwrap();
        Self {
            map: plan.map().clone(),
            federation: Federation::new(&plan),
            nodes: vec![NodeScaling::new(kind, INPUTS); NODES],
            server: ServerScaling::new(kind, INPUTS),
            rescales: true,
            changes: 0,
        }
    }

    /// With a scale that is known beforehand.
    fn knowing(method: &'static str, scale: &Scale) -> Self {
        let nodes = vec![NodeScaling::fixed(scale.clone()); NODES];
        Self { nodes, ..Self::new(method, ScaleKind::Spread) }
    }

    /// Takes a node to the newest scale.
    fn follow(&mut self, node: usize) {
        let Some(newest) = self.server.scale() else { return };
        let before = self.nodes[node].scale().cloned();
        if self.nodes[node].adopt(self.server.version(), newest).unwrap()
            && let Some(before) = before
            && self.rescales
        {
            let rescaling = self.map.rescaling(&before, newest);
            self.federation.rescale_node(node as u32, &[Some(rescaling)]).unwrap();
        }
    }

    /// One round; returns the predictions in the label's own units. Node `lost` can't reach the
    /// server.
    fn round(&mut self, samples: &[Sample], lost: Option<usize>) -> Vec<f32> {
        (0..NODES).filter(|node| Some(*node) != lost).for_each(|node| self.follow(node));
        let mut said: Vec<f32> = self
            .nodes
            .iter()
            .map(|node| node.summary().mean(INPUTS).unwrap_or(0.0) as f32)
            .collect();
        let mut z = vec![0.0; NODES * self.map.width()];
        let mut labels = Vec::new();
        for ((node, (raw, label)), z) in
            self.nodes.iter().zip(samples).zip(z.chunks_exact_mut(self.map.width()))
        {
            let mut x = [0.0; INPUTS];
            node.prepare(raw, &mut x);
            self.map.map_batch(&x, z);
            labels.push(node.scale().map(|scale| scale.scale_label(*label)));
        }
        let z = Features::checked(&z).unwrap().samples(self.map.width());
        let visits: Vec<_> = z
            .zip(&labels)
            .enumerate()
            .map(|(node, (z, label))| NodeRound {
                node: node as u32,
                z: if label.is_some() { z } else { z.part(0..0) },
                y: label.as_slice(),
                contact: if Some(node) == lost { Contact::Lost } else { Contact::Full },
            })
            .collect();
        let nodes = &self.nodes;
        let seen = |p: Prediction<'_>| {
            said[p.node as usize] = nodes[p.node as usize].scale().unwrap().unscale_label(p.value);
        };
        self.federation.round(&visits, seen).unwrap();
        let mut report = Report::default();
        for (id, (node, (raw, label))) in self.nodes.iter_mut().zip(samples).enumerate() {
            node.see(raw, Some(*label));
            if Some(id) != lost && node.report(&mut report) {
                self.server.accept(id as u32, &report).unwrap();
            }
        }
        let before = self.server.scale().cloned();
        if let Some(newest) = self.server.close_round() {
            self.changes += 1;
            if let Some(before) = before
                && self.rescales
            {
                let rescaling = self.map.rescaling(&before, newest);
                self.federation.rescale_server(&[Some(rescaling)]);
            }
            (0..NODES).filter(|node| Some(*node) != lost).for_each(|node| self.follow(node));
        }
        said
    }
}

/// Samples of a round whose inputs come from [low, low + width], in strange units.
fn samples(t: u64, low: f32, width: f32) -> Vec<Sample> {
    let stream = CounterRng::from_seed(t);
    let sample = |node: u64| {
        let x = |input: u64| low + width * stream.uniform_at(INPUTS as u64 * node + input) as f32;
        let (a, b) = (x(0), x(1));
        (vec![500.0 + 100.0 * a, 0.01 * b], 3000.0 + 40.0 * ((3.0 * a).sin() + (2.0 * b).cos()))
    };
    (0..NODES as u64).map(sample).collect()
}

/// Mean square error of a round in raw units.
fn error(fleet: &mut Fleet, samples: &[Sample], lost: Option<usize>) -> Tally {
    let mut tally = Tally::default();
    let said = fleet.round(samples, lost);
    said.iter()
        .zip(samples)
        .for_each(|(said, (_, label))| tally.add(f64::from(said - label).powi(2)));
    tally
}

#[test]
fn inputs_that_wander_off_cost_little_more_than_with_a_scale_known_beforehand() {
    let rounds = 1200;
    let all = Scale::from_ranges(&[(500.0, 800.0), (0.0, 0.03), (2920.0, 3080.0)]).unwrap();
    for method in ["gr", "sk:2", "mk", "naive"] {
        let mut fleets = [
            Fleet::new(method, ScaleKind::Spread),
            Fleet::new(method, ScaleKind::Range),
            Fleet::knowing(method, &all),
        ];
        let mut tallies = [Tally::default(); 3];
        for t in 0..rounds {
            let low = 2.0 * (t as f32 / rounds as f32);
            for (fleet, tally) in fleets.iter_mut().zip(&mut tallies) {
                // One node after the other has no contact and catches up later.
                let lost = (t % 50 > 30).then_some((t / 50) as usize % NODES);
                let error = error(fleet, &samples(t, low, 1.0), lost);
                if t > 100 {
                    *tally += error;
                }
            }
        }
        let [spread, range, known] = tallies.map(Tally::mean);
        println!(
            "{method:?}: {spread} {range} {known}; changes {} {}",
            fleets[0].changes, fleets[1].changes
        );
        assert!(fleets[0].changes > 1 && fleets[1].changes > 1);
        assert!(
            spread < 1.3 * known && range < 1.3 * known,
            "{method:?}: {spread} {range} {known}"
        );
    }
}

#[test]
fn a_column_that_opens_late_costs_linear_models_little() {
    let all = Scale::from_ranges(&[(0.0, 1.0), (0.0, 1e6), (2960.0, 3080.0)]).unwrap();
    // In the first 200 rounds the second input is constant, or a millionth as wide.
    let samples = |t: u64, before: f32| -> Vec<Sample> {
        let stream = CounterRng::from_seed(t);
        let sample = |node: u64| {
            let [a, b] = [0, 1].map(|input| stream.uniform_at(2 * node + input) as f32);
            let b = b * if t < 200 { before } else { 1e6 };
            (vec![a, b], 3000.0 + 40.0 * (a + 1e-6 * b))
        };
        (0..NODES as u64).map(sample).collect()
    };
    let error_of = |mut fleet: Fleet, before: f32| {
        let mut tally = Tally::default();
        for t in 0..800 {
            let error = error(&mut fleet, &samples(t, before), None);
            if t > 20 {
                tally += error;
            }
        }
        tally.mean()
    };
    for method in ["linear", "linear-newton"] {
        for before in [0.0, 1.0] {
            let known = error_of(Fleet::knowing(method, &all), before);
            for kind in [ScaleKind::Spread, ScaleKind::Range] {
                // Most of it is made while the column has opened and has no new scale yet.
                let online = error_of(Fleet::new(method, kind), before);
                assert!(online < 12.0 * known, "{method} {kind:?} {before}: {online} {known}");
            }
        }
    }
}

#[test]
fn a_range_that_doubles_is_learned_faster_than_from_nothing() {
    for kind in [ScaleKind::Spread, ScaleKind::Range] {
        for method in ["gr", "sk:2", "mk", "naive"] {
            let mut old = Fleet::new(method, kind);
            (0..200).for_each(|t| drop(old.round(&samples(t, 0.0, 1.0), None)));
            let changes = old.changes;
            let mut t = 200;
            while old.changes == changes {
                old.round(&samples(t, 0.0, 2.0), None);
                t += 1;
                assert!(t < 600, "{kind:?}: the scale never changed");
            }
            // A node that starts now, with the current scale.
            let mut fresh = Fleet::knowing(method, old.server.scale().unwrap());
            let (mut recovering, mut beginning) = (Tally::default(), Tally::default());
            for t in t..t + 60 {
                recovering += error(&mut old, &samples(t, 0.0, 2.0), None);
                beginning += error(&mut fresh, &samples(t, 0.0, 2.0), None);
            }
            assert!(recovering.mean() < beginning.mean(), "{kind:?} {method:?}");
        }
    }
}

#[test]
fn a_change_of_scale_is_better_survived_than_ignored() {
    let mut errors = [0.0; 2];
    for (error_of, rescales) in errors.iter_mut().zip([true, false]) {
        let mut fleet = Fleet::new("sk:2", ScaleKind::Range);
        fleet.rescales = rescales;
        let mut tally = Tally::default();
        for t in 0..700 {
            let low = if t < 250 { 0.0 } else { -0.6 };
            let error = error(&mut fleet, &samples(t, low, 1.2), None);
            if t > 250 {
                tally += error;
            }
        }
        *error_of = tally.mean();
    }
    assert!(errors[0] < 0.95 * errors[1], "{errors:?}");
}

fn bits(states: [Vec<u8>; 2]) -> Vec<u8> {
    states.concat()
}

/// A node and a server in the middle of their work.
fn halves() -> (NodeScaling, ServerScaling) {
    let mut fleet = Fleet::new("mk", ScaleKind::Spread);
    (0..40).for_each(|t| drop(fleet.round(&samples(t, t as f32 / 9.0, 1.0), None)));
    assert!(fleet.server.version() > 1);
    (fleet.nodes.swap_remove(1), fleet.server)
}

#[test]
fn saved_scalings_go_on_where_they_were() {
    let (mut node, mut server) = halves();
    let mut other = NodeScaling::new(ScaleKind::Spread, INPUTS);
    let mut copy = ServerScaling::new(ScaleKind::Spread, INPUTS);
    other.restore(&node.save()).unwrap();
    copy.restore(&server.save()).unwrap();
    assert_eq!((&node, &server), (&other, &copy));
    for t in 40..200 {
        for (node, server) in [(&mut node, &mut server), (&mut other, &mut copy)] {
            let (raw, label) = samples(t, t as f32, 3.0).swap_remove(0);
            node.see(&raw, Some(label));
            let mut report = Report::default();
            if node.report(&mut report) {
                server.accept(1, &report).unwrap();
            }
            server.close_round();
            node.adopt(server.version(), server.scale().unwrap()).unwrap();
        }
        assert_eq!(bits([node.save(), server.save()]), bits([other.save(), copy.save()]));
    }
}

#[test]
fn foreign_and_damaged_scalings_are_refused_or_harmless() {
    let (mut node, mut server) = halves();
    let (saved_node, saved_server) = (node.save(), server.save());
    assert!(node.restore(&saved_server).is_err() && server.restore(&saved_node).is_err());
    for mut other in [
        NodeScaling::new(ScaleKind::Range, INPUTS),
        NodeScaling::new(ScaleKind::Spread, INPUTS + 1),
        NodeScaling::fixed(Scale::identity(INPUTS + 1)),
    ] {
        assert!(other.restore(&saved_node).is_err());
    }
    assert!(ServerScaling::new(ScaleKind::Range, INPUTS).restore(&saved_server).is_err());
    assert!(ServerScaling::new(ScaleKind::Spread, INPUTS + 1).restore(&saved_server).is_err());
    for len in 0..saved_node.len() {
        assert!(node.restore(&saved_node[..len]).is_err());
    }
    for len in 0..saved_server.len() {
        assert!(server.restore(&saved_server[..len]).is_err());
    }
    assert_eq!(
        bits([node.save(), server.save()]),
        bits([saved_node.clone(), saved_server.clone()])
    );
    let raw = [f32::NAN, 0.5];
    for bit in 0..8 * saved_node.len() {
        let mut damaged = saved_node.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if node.restore(&damaged).is_ok() {
            let mut x = [f32::NAN; 2];
            node.see(&raw, Some(1.0));
            node.prepare(&raw, &mut x);
            let mut report = Report::default();
            assert!(x.iter().all(|x| x.is_finite()));
            if node.report(&mut report) {
                assert!(report.numbers.iter().all(|number| number.is_finite()), "{report:?}");
            }
        }
        node.restore(&saved_node).unwrap();
    }
    let mut report = Report::default();
    node.summary().write(&mut report);
    for bit in 0..8 * saved_server.len() {
        let mut damaged = saved_server.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if server.restore(&damaged).is_ok() {
            server.accept(9, &report).unwrap();
            server.close_round();
            let scale = server.scale().unwrap();
            assert!(scale.scale_input(0, 5.0).is_finite() && scale.unscale_label(0.5).is_finite());
        }
        server.restore(&saved_server).unwrap();
    }
}

#[test]
fn messages_have_as_many_numbers_as_they_say() {
    let (node, server) = halves();
    let mut report = Report::default();
    node.summary().write(&mut report);
    assert_eq!((report.count(), report.bytes()), (5 * 3, 4 * 5 * 3));
    let scale = server.scale().unwrap();
    assert_eq!((scale.count(), scale.bytes()), (2 * 3, 4 * 2 * 3));
}
