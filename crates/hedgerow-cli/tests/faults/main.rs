//! A server that is killed, nodes that are killed, a network that cuts, delays and corrupts, a full
//! disk, a clock that jumps: committed rounds stay, and the run learns what an undisturbed run
//! learns.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod day;
mod fleet;
mod proxy;

use std::time::Duration;

use fleet::{Closing, Fleet, Kind, NODES, ROUNDS};
use proxy::{Mischief, Proxy};

/// Deterministic pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn a_server_killed_twenty_times_loses_no_bit() {
    const STEP: usize = ROUNDS / 21;
    let mut fleet = Fleet::new(Kind::plain("mk"), Closing::Everybody);
    fleet.start_server();
    fleet.start_nodes(fleet.address());
    let mut dice = Dice(7);
    let mut committed = 1;
    for kill in 1..=20 {
        fleet.feed(kill * STEP);
        // Some round that the nodes have samples for, or none: then the server is just starting.
        fleet.wait_for_round(committed + dice.below(STEP as u64));
        fleet.kill_server();
        let round = fleet.committed_round();
        assert!(round >= committed, "round {round} after round {committed}");
        committed = round;
        fleet.start_server();
    }
    fleet.finish();
    assert_eq!(fleet.model(), fleet.undisturbed());
    fleet.assert_calm_logs();
}

#[test]
fn a_killed_server_goes_on_with_scales_and_compressed_messages() {
    // A connection's end loses what compressors still owe, so the bits differ; the error doesn't.
    let kind = Kind { method: "gr", scaling: "online", compression: "q8" };
    let mse = |kills: usize| {
        let mut fleet = Fleet::new(kind, Closing::Everybody);
        fleet.start_server();
        fleet.start_nodes(fleet.address());
        for kill in 1..=kills {
            let fed = kill * ROUNDS / (kills + 1);
            fleet.feed(fed);
            // The first samples make a scale and no round.
            fleet.wait_for_round(fed as u64 - 20);
            fleet.kill_server();
            fleet.start_server();
        }
        fleet.finish();
        fleet.assert_calm_logs();
        fleet.mse()
    };
    let (found, expected) = (mse(5), mse(0));
    assert!((found / expected - 1.0).abs() < 0.02, "MSE {found}, undisturbed {expected}");
}

#[test]
fn a_full_disk_stops_rounds_until_there_is_room_again() {
    let mut fleet = Fleet::new(Kind::plain("mk"), Closing::Everybody);
    fleet.start_server();
    fleet.start_nodes(fleet.address());
    for outage in 1..=3 {
        let fed = outage * ROUNDS / 4;
        fleet.feed(fed - ROUNDS / 8);
        fleet.wait_for_round((fed - ROUNDS / 8) as u64);
        fleet.set_disk("4096");
        fleet.feed(fed);
        fleet.wait_for_log("can't be stored, and is tried again", outage);
        let full = fleet.committed_round();
        for _ in 0..50 {
            assert_eq!(fleet.committed_round(), full, "nothing is committed on a full disk");
        }
        fleet.set_disk("unlimited");
        fleet.wait_for_log("can be stored again", outage);
    }
    fleet.finish();
    assert_eq!(fleet.model(), fleet.undisturbed());
    fleet.assert_calm_logs();
}

#[test]
fn a_network_that_cuts_delays_and_spoils_changes_no_bit() {
    let mut fleet = Fleet::new(Kind::plain("gr"), Closing::Everybody);
    fleet.start_server();
    let proxy = Proxy::start(fleet.address(), |connection| match connection % 5 {
        0 => Mischief::CutAfter(2_000 + 700 * connection),
        1 => Mischief::SpoilAfter(5_000 + 300 * connection),
        2 => Mischief::RepeatAfter(4_000 + 500 * connection),
        3 => Mischief::DropAfter(6_000 + 900 * connection),
        _ => Mischief::Delay(Duration::from_millis(3)),
    });
    fleet.start_nodes(proxy.address());
    fleet.finish();
    assert!(proxy.connections() > 2 * NODES as u64, "{} connections", proxy.connections());
    assert_eq!(fleet.model(), fleet.undisturbed());
    fleet.assert_calm_logs();
}

#[test]
fn nodes_that_are_killed_come_back_and_learn_on() {
    // A method without chance: the votes of mk alone move its error by some percent.
    let mut fleet = Fleet::new(Kind::plain("sk:6"), Closing::WhoeverIsThere);
    fleet.start_server();
    fleet.start_nodes(fleet.address());
    let mut dice = Dice(11);
    for kill in 1..=12 {
        let (before, fed) = ((kill - 1) * ROUNDS / 13, kill * ROUNDS / 13);
        fleet.feed(fed);
        fleet.wait_for_round(before as u64 + 1 + dice.below(10));
        let node = dice.below(NODES as u64) as usize;
        fleet.kill_node(node);
        if dice.below(2) == 0 {
            // The others go on without it until they have no samples left.
            fleet.wait_for_round(fed as u64);
        }
        fleet.start_node(node, fleet.address());
    }
    fleet.finish();
    let (found, expected) = (fleet.mse(), fleet.undisturbed_mse());
    // It may be less: samples after the last save are predicted again, by a later model.
    assert!(found <= 1.02 * expected, "MSE {found}, undisturbed {expected}");
    assert!(fleet.committed_round() >= ROUNDS as u64);
    fleet.assert_calm_logs();
}

#[test]
fn a_clock_that_jumps_changes_nothing() {
    let Some(library) = fleet::faketime() else {
        eprintln!("skipped: there is no libfaketime (apt-get install faketime)");
        return;
    };
    let mut fleet = Fleet::new(Kind::plain("mk"), Closing::Everybody);
    fleet.start_server_with_clock(&library, "+0");
    fleet.start_nodes(fleet.address());
    for (jump, clock) in ["+90d", "-400d", "+0", "-3h"].into_iter().enumerate() {
        // Rounds close by the clock as it is before the next jump.
        fleet.feed((jump + 1) * ROUNDS / 5);
        fleet.wait_for_round(((jump + 1) * ROUNDS / 5) as u64);
        fleet.set_clock(clock);
    }
    fleet.finish();
    assert!(fleet.has_gone_back_in_time(), "the clock has not jumped");
    assert_eq!(fleet.model(), fleet.undisturbed());
    fleet.assert_calm_logs();
}
