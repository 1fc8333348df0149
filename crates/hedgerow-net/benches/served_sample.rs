//! The time that a node needs for a labelled sample of a served plan with online scaling: it scales
//! and maps the sample, predicts, and learns. Without a network.
//!
//!     cargo bench -p hedgerow-net --bench served_sample

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::{Duration, Instant};

use hedgerow::features::Draw;
use hedgerow::message::Report;
use hedgerow::plan::{PlanConfig, Scaling};
use hedgerow::scaling::ScaleKind;
use hedgerow::{Node, Plan};

const SAMPLES: usize = 20_000;

fn main() {
    for method in ["mk", "gr"] {
        for inputs in [5, 77] {
            let mut node = node(method, inputs);
            let mut x = vec![0.0; inputs];
            let (mut sum, mut spent) = (0.0, Duration::ZERO);
            for time in 0..SAMPLES {
                let y = sample(time, &mut x);
                let begun = Instant::now();
                sum += node.learn(&x, &[y]).unwrap().value;
                spent += begun.elapsed();
            }
            let nanoseconds = spent.as_nanos() as f64 / SAMPLES as f64;
            // The sum keeps predictions from being optimised away.
            println!("{method} d={inputs}: {nanoseconds:.0} ns per sample ({sum})");
        }
    }
}

/// A node that has heard the first scale and the open round.
fn node(method: &str, inputs: usize) -> Node {
    let scaling = Scaling::Online { kind: ScaleKind::Spread };
    let config =
        PlanConfig::default().personal(false).method(method.parse().unwrap()).scaling(scaling);
    let config = config.draw(Draw::Independent).inputs(inputs).nodes(1).seed(5);
    let plan = Plan::new(config).unwrap();
    let (mut node, mut server) = (plan.node(0), plan.server());
    node.connected();
    server.connected(0);
    let (mut scaling, mut x) = (plan.node_scaling(), vec![0.0; inputs]);
    let mut report = Report::default();
    for time in 0..64 {
        let y = sample(time, &mut x);
        scaling.see(&x, Some(y));
        if scaling.report(&mut report) {
            server.accept_report(0, &report).unwrap();
        }
    }
    assert!(server.close_round().is_news());
    server.opening(0, false).for_each(|message| node.hear(&message).unwrap());
    assert!(node.is_scaled());
    node
}

/// Fills in the inputs of a sample, and returns its label.
fn sample(time: usize, x: &mut [f32]) -> f32 {
    let phase = time as f32;
    for (column, x) in (1..).zip(&mut *x) {
        *x = 20.0 + 3.0 * (phase * 0.37 * column as f32).sin();
    }
    5.0 + (x[0] - 20.0) * (0.3 * phase).cos()
}
