//! A million rounds of every method with labels that change sign and vary over eighteen orders of
//! magnitude, and a vote of ten thousand nodes: nothing overflows or becomes NaN.

#![allow(clippy::unwrap_used)]

use crate::common::{
    FREQUENCIES, INPUTS, config, features, has_kernels, has_loss, is_linear, methods, numbers,
};
use hedgerow::features::{Amplitude, Features};
use hedgerow::learning::{ExponentialWeights, Loss, Schedule, WeightRule};
use hedgerow::limits::{MAX_LABEL, MAX_NORM};
use hedgerow::message::{Broadcast, Selection, Upload};
use hedgerow::method::{Average, MkOptions};
use hedgerow::{Plan, PlanConfig};

const KERNELS: usize = 11;

/// Signs change at another rate than sizes, so that every size occurs with both signs.
fn harsh_label(t: u64) -> f32 {
    let size = [1e-6, 1.0, MAX_LABEL, 0.3, 1e-6, 1e5, 1e-20][(t % 7) as usize];
    if t.is_multiple_of(3) { -size } else { size }
}

/// Two nodes, one of them present only every second round.
fn endure(config: PlanConfig, rounds: u64) {
    let plan = Plan::new(config).unwrap();
    let (method, amplitude) = (plan.method().name, plan.config().amplitude);
    let length = match amplitude {
        _ if is_linear(method) => (1.0 + INPUTS as f64).sqrt(),
        Amplitude::Normalised => 1.0,
        Amplitude::Unnormalised => (FREQUENCIES as f64).sqrt(),
    };
    let points = 64;
    let z = features(plan.map(), &numbers(3, points * INPUTS));
    let z: Vec<Features<'_>> = Features::checked(&z).unwrap().samples(plan.width()).collect();
    let mut nodes = [plan.node_method(0), plan.node_method(1)];
    let mut server = plan.server_method();
    let mut upload = Upload::default();
    let mut shares = [0.0; KERNELS];
    for t in 0..rounds {
        for (id, node) in nodes.iter_mut().enumerate().take(1 + (t % 2) as usize) {
            let z = z[(t as usize * 5 + id) % points];
            assert!(node.predict(z).is_finite(), "{method:?}, round {t}");
            let label = harsh_label(t + 2 * id as u64);
            node.learn(
                z,
                if plan.config().loss == Loss::Logistic { label.signum() } else { label },
            )
            .unwrap();
            node.shares(&mut shares);
            let total: f64 = shares.iter().sum();
            let expected = if has_kernels(method) { 1.0 } else { 0.0 };
            assert!((total - expected).abs() < 1e-9, "{method:?}, round {t}: {shares:?}");
            // A model of maximal length may take a step of maximal length.
            let longest = (1.0 + length) * f64::from(MAX_NORM);
            assert!(
                node.norm2() <= 1.001 * longest * longest,
                "{method:?}, round {t}: {}",
                node.norm2()
            );
            if node.upload(&mut upload) {
                // The server refuses what isn't finite.
                server.accept(id as u32, &upload).unwrap();
            }
        }
        // And so do the nodes.
        let broadcast = server.close_round();
        nodes.iter_mut().for_each(|node| node.adopt(broadcast).unwrap());
    }
    assert!(method == "local" || server.broadcast().round == rounds + 1);
}

/// Bytes of a node's memory of samples: full after a hundred rounds.
const LITTLE_MEMORY: usize = 4000;

/// A million rounds of the paper's protocol.
fn a_million(method: &'static str) {
    endure(config(method, KERNELS).nodes(2), 1_000_000);
}

#[test]
fn a_million_rounds_of_gr_ofl() {
    a_million("gr");
}

#[test]
fn a_hundred_thousand_rounds_of_tr_ofl() {
    endure(config("tr", KERNELS).nodes(2).memory(LITTLE_MEMORY), 100_000);
}

#[test]
fn a_million_rounds_of_sk_ofl() {
    a_million("sk:2");
}

#[test]
fn a_million_rounds_of_mk_ofl() {
    a_million("mk");
}

#[test]
fn a_million_rounds_of_the_naive_extension() {
    a_million("naive");
}

#[test]
fn a_million_rounds_alone() {
    a_million("local");
}

#[test]
fn a_million_rounds_of_em_kofl() {
    a_million("emk");
}

#[test]
fn a_million_rounds_of_pof_mkl() {
    a_million("pof");
}

#[test]
fn a_million_rounds_of_fed_poe() {
    a_million("fedpoe");
}

#[test]
fn a_million_rounds_of_linear_models() {
    a_million("linear");
    a_million("linear-newton");
}

#[test]
fn steps_far_too_long_stay_finite() {
    // Every step is a thousand times too long, each in its own direction.
    let schedule = Schedule::Constant { scale: 1000.0 };
    for loss in [Loss::Squared, Loss::Logistic, Loss::Huber { delta: 1e9 }] {
        for (ridge, weight_rule) in
            [(0.0, WeightRule::Cumulative), (0.001, WeightRule::Incremental)]
        {
            for method in methods(KERNELS).into_iter().filter(|method| has_loss(method, loss)) {
                let config = config(method, KERNELS)
                    .nodes(2)
                    .memory(LITTLE_MEMORY)
                    .loss(loss)
                    .ridge(ridge)
                    .weight_rule(weight_rule)
                    .step_size(schedule)
                    .weight_rate(schedule);
                endure(config.clone(), 20_000);
                endure(config.amplitude(Amplitude::Unnormalised), 20_000);
            }
        }
    }
}

#[test]
fn features_of_size_one_diverge_and_stay_finite() {
    // Steps of 2ηD times the error: every one overshoots, for good where the rate stays what it is.
    for average in [Average::All, Average::Voters] {
        for step_size in [Schedule::Constant { scale: 1.0 }, Schedule::Anytime { scale: 1.0 }] {
            let mk = MkOptions { count_nodes: false, average };
            for method in methods(KERNELS) {
                let config = config(method, KERNELS).nodes(2).memory(LITTLE_MEMORY);
                let config = config.step_size(step_size).mk(mk);
                endure(config.amplitude(Amplitude::Unnormalised), 50_000);
            }
        }
    }
}

#[test]
fn losses_that_all_kernels_share_leave_no_trace() {
    for rule in [WeightRule::Incremental, WeightRule::Cumulative] {
        let mut weights = ExponentialWeights::new(rule, 2);
        for _ in 0..1_000_000 {
            weights.charge(1.0, [1e30, 1e30]);
        }
        weights.charge(1.0, [1.0, 0.0]);
        let mut parts = [0.0; 2];
        weights.probabilities(&mut parts);
        assert!((parts[0] / parts[1] - (-1f64).exp()).abs() < 1e-12, "{rule:?}: {parts:?}");
    }
}

/// The broadcast after one round in which node i votes for `vote(i)` and uploads i everywhere.
fn after_votes(nodes: u32, seed: u64, vote: impl Fn(u32) -> u32) -> Broadcast {
    let config = config("mk", 11).nodes(nodes as usize).seed(seed);
    let mut server = Plan::new(config).unwrap().server_method();
    let len = server.broadcast().numbers.len();
    for node in 0..nodes {
        let upload = Upload { round: 1, vote: Some(vote(node)), numbers: vec![node as f32; len] };
        server.accept(node, &upload).unwrap();
    }
    server.close_round().clone()
}

#[test]
fn ten_thousand_votes_select_as_one() {
    let nodes = 10_000;
    for seed in 0..20 {
        // 5,100 against 4,900 votes: odds of e^400 to one, and both powers are far beyond f64.
        let broadcast = after_votes(nodes, seed, |node| if node < 5_100 { 7 } else { 2 });
        assert_eq!(broadcast.kernels, Some(Selection { current: 0, next: 7 }));
        let mean = (nodes - 1) as f32 / 2.0;
        assert!(broadcast.numbers.iter().all(|number| *number == mean), "{:?}", broadcast.numbers);
    }
    // The draw breaks a tie, and only among the tied kernels.
    let mut wins = [0; 11];
    for seed in 0..60 {
        let next = after_votes(nodes, seed, |node| [3, 9][node as usize % 2]).kernels.unwrap().next;
        wins[next as usize] += 1;
    }
    assert_eq!(wins[3] + wins[9], 60, "{wins:?}");
    assert!(wins[3].min(wins[9]) > 12, "{wins:?}");
}
