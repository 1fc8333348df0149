//! A server that is killed, nodes that are killed, a network that cuts, delays and spoils, a full
//! disk, a clock that jumps: what was committed stays, and what is learned is what an undisturbed
//! run learns.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod fleet;
mod proxy;

use std::time::Duration;

use fleet::{Closing, Fleet, Kind, NODES, ROUNDS};
use proxy::{Mischief, Proxy};

/// So that a run lasts as long as what happens to it.
const SLOWLY: Mischief = Mischief::Delay(Duration::from_millis(3));

/// Numbers that look random and are the same every time.
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
    let mut fleet = Fleet::new(Kind::plain("mk"), Closing::Everybody);
    fleet.start_server();
    let proxy = Proxy::start(fleet.address(), |_| SLOWLY);
    fleet.start_nodes(proxy.address());
    let mut dice = Dice(7);
    let mut committed = 1;
    for kill in 0..20 {
        // Every other one hits a server at work, the rest whatever it is about to do.
        if kill % 2 == 0 {
            fleet.wait_for_round(committed + 1);
        }
        std::thread::sleep(Duration::from_millis(dice.below(80)));
        fleet.kill_server();
        let round = fleet.committed_round();
        assert!(round >= committed, "round {round} after round {committed}");
        committed = round;
        fleet.start_server();
    }
    assert!(committed < ROUNDS as u64, "the last ones were too late: round {committed}");
    fleet.wait_for_the_end();
    assert_eq!(fleet.model(), fleet.undisturbed());
    fleet.assert_calm_logs();
}

#[test]
fn a_killed_server_goes_on_with_scales_and_compressed_messages() {
    // What compressors still owe is lost with a connection, so the bits differ; the error doesn't.
    let kind = Kind { method: "gr", scaling: "online", compression: "q8" };
    let mse = |kills: usize| {
        let mut fleet = Fleet::new(kind, Closing::Everybody);
        fleet.start_server();
        fleet.start_nodes(fleet.address());
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(150));
            fleet.kill_server();
            fleet.start_server();
        }
        fleet.wait_for_the_end();
        fleet.assert_calm_logs();
        fleet.mse()
    };
    let (found, expected) = (mse(5), mse(0));
    assert!((found / expected - 1.0).abs() < 0.02, "MSE {found}, undisturbed {expected}");
}

#[test]
fn a_full_disk_stops_rounds_until_there_is_room_again() {
    let mut fleet = Fleet::new(Kind::plain("mk"), Closing::Everybody);
    fleet.start_server_on_small_disk();
    let proxy = Proxy::start(fleet.address(), |_| SLOWLY);
    fleet.start_nodes(proxy.address());
    for _ in 0..3 {
        fleet.wait_for_round(fleet.committed_round() + 5);
        fleet.set_disk("4096");
        std::thread::sleep(Duration::from_millis(400));
        let full = fleet.committed_round();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(fleet.committed_round(), full, "nothing is committed on a full disk");
        fleet.set_disk("unlimited");
    }
    fleet.wait_for_the_end();
    assert_eq!(fleet.model(), fleet.undisturbed());
    let log = fleet.server_log();
    assert!(log.contains("can't be stored") && log.contains("can be stored again"), "{log}");
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
    fleet.wait_for_the_end();
    assert!(proxy.connections() > 2 * NODES as u64, "{} connections", proxy.connections());
    assert_eq!(fleet.model(), fleet.undisturbed());
    fleet.assert_calm_logs();
}

#[test]
fn nodes_that_are_killed_come_back_and_learn_on() {
    // A method without luck: the votes of mk alone move its error by some percent.
    let mut fleet = Fleet::new(Kind::plain("sk:6"), Closing::WhoeverIsThere);
    fleet.start_server();
    let proxy = Proxy::start(fleet.address(), |_| SLOWLY);
    fleet.start_nodes(proxy.address());
    let mut dice = Dice(11);
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(100 + dice.below(200)));
        let node = dice.below(NODES as u64) as usize;
        fleet.kill_node(node);
        std::thread::sleep(Duration::from_millis(dice.below(100)));
        fleet.start_node(node, proxy.address());
    }
    fleet.wait_for_the_end();
    let (found, expected) = (fleet.mse(), fleet.undisturbed_mse());
    // It may be less: what was learned after the last save is predicted again, by a model that
    // knows more.
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
    let proxy = Proxy::start(fleet.address(), |_| SLOWLY);
    fleet.start_nodes(proxy.address());
    for jump in ["+90d", "-400d", "+0", "-3h"] {
        std::thread::sleep(Duration::from_millis(300));
        fleet.set_clock(jump);
    }
    fleet.wait_for_the_end();
    assert!(fleet.has_gone_back_in_time(), "the clock has not jumped");
    assert_eq!(fleet.model(), fleet.undisturbed());
    fleet.assert_calm_logs();
}
