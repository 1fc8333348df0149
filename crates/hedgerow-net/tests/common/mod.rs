//! Helpers for tests of the network: plans, streams and the methods with messages.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use hedgerow::PlanConfig;
use hedgerow::features::Draw;
use hedgerow::method::METHODS;

mod wired;

pub(crate) use wired::{Engine, Plan, Scaling, broadcast_to_wire, scale_to_wire};

/// Longer than anything takes, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until something is so. Whether it came to that.
pub(crate) async fn comes_true(mut is_so: impl AsyncFnMut() -> bool) -> bool {
    let began = std::time::Instant::now();
    while !is_so().await {
        if began.elapsed() > PATIENCE {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

/// The same, or the test fails.
pub(crate) async fn until(what: &str, is_so: impl AsyncFnMut() -> bool) {
    assert!(comes_true(is_so).await, "never: {what}");
}

/// Numbers in a sample.
pub(crate) const INPUTS: usize = 3;

/// Every method with messages; one with a single kernel has the seventh.
pub(crate) fn methods() -> impl Iterator<Item = &'static str> {
    METHODS
        .iter()
        .filter(|info| info.travels())
        .map(|info| if info.takes_kernel { &*format!("{}:7", info.name).leak() } else { info.name })
}

/// A configuration of the paper's size.
pub(crate) fn learning(method: &str, nodes: usize) -> PlanConfig {
    PlanConfig::default()
        .method(method.parse().unwrap())
        .nodes(nodes)
        .inputs(INPUTS)
        .seed(5)
        .draw(Draw::Independent)
        .columns(["a", "b", "c"].map(String::from).to_vec())
        .target("y".into())
}

/// The same, checked.
pub(crate) fn plan(method: &str, nodes: usize) -> Plan {
    Plan::new(learning(method, nodes)).unwrap()
}

/// The sample of a node at a time: smooth, different at each node, a little noisy.
pub(crate) fn sample(node: u32, time: u64) -> ([f32; INPUTS], f32) {
    let mix = (u64::from(node) << 32 | time).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let unit = |shift: u32| {
        ((mix.rotate_left(shift).wrapping_mul(0xD134_2543_DE82_EF95) >> 40) as f32)
            / (1 << 24) as f32
    };
    let x = [unit(7), unit(23), 0.5 * unit(41) + 0.02 * node as f32];
    let y = 0.5 + 0.3 * (5.0 * x[0]).sin() * x[1] - 0.2 * x[2] * x[2] + 0.02 * (unit(55) - 0.5);
    (x, y)
}
