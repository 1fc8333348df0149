//! Lost uploads and broadcasts cost little, whatever state is saved and restored on the way.

#![allow(clippy::unwrap_used)]

use crate::common::{features, numbers};
use hedgerow::features::{Features, SampleMap};
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::metrics::Tally;
use hedgerow::random::CounterRng;
use hedgerow::{Federation, Plan, PlanConfig, Server};

const NODES: usize = 12;
const INPUTS: usize = 6;

fn plan(method: &str) -> Plan {
    let config = PlanConfig::default().method(method.parse().unwrap()).seed(5).personal(false);
    Plan::new(config.nodes(NODES).inputs(INPUTS).budget(60)).unwrap()
}

/// Inputs that nearly depend on each other, and a label without noise: small eigenvalues matter.
fn sample(seed: u64) -> (Vec<f32>, f32) {
    let mut x = numbers(seed, INPUTS);
    for at in 2..INPUTS {
        x[at] = 0.7 * x[at - 1] + 0.25 * x[at - 2] + 0.1 * x[at];
    }
    let y = x[0] + 2.0 * x[2] - 3.0 * x[4] + 4.0 * x[5] + (2.0 * x[1] + x[3]).sin();
    (x, y)
}

struct Fleet {
    map: SampleMap,
    federation: Federation,
    errors: Tally,
}

impl Fleet {
    fn new(plan: &Plan) -> Self {
        let federation = Federation::new(plan);
        Self { map: plan.map().clone(), federation, errors: Tally::default() }
    }

    /// A round in which each upload is late, or all contact lost, by chance.
    fn round(&mut self, t: u64, late: f64, lost: f64) {
        let samples: Vec<_> = (0..NODES as u64).map(|node| sample(1000 * t + node)).collect();
        let z: Vec<_> = samples.iter().map(|(x, _)| features(&self.map, x)).collect();
        let visits: Vec<_> = (0..NODES)
            .map(|node| NodeRound {
                node: node as u32,
                z: Features::checked(&z[node]).unwrap(),
                y: core::slice::from_ref(&samples[node].1),
                contact: match CounterRng::from_seed(77 * t).uniform_at(node as u64) {
                    chance if chance < lost => Contact::Lost,
                    chance if chance < lost + late => Contact::Late,
                    _ => Contact::Full,
                },
            })
            .collect();
        let errors = &mut self.errors;
        self.federation
            .round(&visits, |p| errors.add(f64::from(p.value - p.label).powi(2)))
            .unwrap();
    }

    fn error(method: &str, late: f64, lost: f64) -> f64 {
        let mut fleet = Self::new(&plan(method));
        (1..=250).for_each(|t| fleet.round(t, late, lost));
        fleet.errors.mean()
    }
}

#[test]
fn half_of_the_uploads_and_a_tenth_of_the_broadcasts_may_be_lost() {
    for method in ["gr", "tr"] {
        let without = Fleet::error(method, 0.0, 0.0);
        for (late, lost, most) in [(0.5, 0.0, 2.0), (0.0, 0.1, 1.3)] {
            let ratio = Fleet::error(method, late, lost) / without;
            eprintln!("{method} {late} {lost}: {ratio}");
            assert!(ratio < most, "{method}, {late} late, {lost} lost: {ratio} times the error");
        }
    }
}

#[test]
fn a_federation_that_is_restored_among_losses_goes_on_with_the_same_bits() {
    for method in ["gr", "tr"] {
        let (plan, mut fleet) = (plan(method), Fleet::new(&plan(method)));
        for t in 1..=120 {
            fleet.round(t, 0.5, 0.1);
            if t % 17 == 0 {
                let saved = fleet.federation.save();
                let mut again = Fleet::new(&plan);
                again.federation.restore(&saved).unwrap();
                for later in t + 1..t + 4 {
                    fleet.round(later, 0.5, 0.1);
                    again.round(later, 0.5, 0.1);
                }
                assert_eq!(fleet.federation.save(), again.federation.save(), "{method}, {t}");
                fleet.federation.restore(&saved).unwrap();
            }
        }
    }
}

/// A round of raw samples: some nodes don't learn, so they don't speak.
fn exchange(federation: &mut Federation, t: u64) -> f64 {
    let mut errors = Tally::default();
    for (node, one) in federation.nodes_mut().iter_mut().enumerate() {
        let (x, y) = sample(1000 * t + node as u64);
        let said = one.predict(&x).unwrap().value;
        errors.add(f64::from(said - y).powi(2));
        if CounterRng::from_seed(t).uniform_at(node as u64) < 0.7 {
            one.learn(&x, &[y]).unwrap();
        }
    }
    federation.exchange();
    errors.mean()
}

#[test]
fn a_server_that_goes_back_and_nodes_that_go_back_are_soon_in_step() {
    for method in ["gr", "tr"] {
        let plan = plan(method);
        let mut federation = Federation::new(&plan);
        federation.connect();
        (1..=60).for_each(|t| _ = exchange(&mut federation, t));
        let old = federation.server().save();
        let before: Vec<_> = federation.nodes().iter().map(|node| node.save()).collect();
        let usual = (61..=120).map(|t| exchange(&mut federation, t)).last().unwrap();
        // The server lost sixty rounds, and so did every third node.
        let server = Server::restore(&plan, &old, None).unwrap();
        let nodes = federation.nodes().iter().zip(&before).enumerate();
        let nodes = nodes.map(|(at, (node, before))| {
            let saved = if at % 3 == 0 { before.clone() } else { node.save() };
            hedgerow::Node::restore(&plan, &saved).unwrap()
        });
        let nodes = nodes.collect();
        let mut federation = Federation::from_parts(server, nodes);
        federation.connect();
        let last = (121..=200).map(|t| exchange(&mut federation, t)).last().unwrap();
        assert!(last < 2.0 * usual, "{method}: {last} after {usual}");
    }
}
