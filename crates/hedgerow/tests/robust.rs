//! Robust aggregation: a few bad nodes can't decide the result. Uses the federation of
//! `examples/robust`; errors are multiples of the mean's error without bad nodes.

#![allow(clippy::unwrap_used)]

#[path = "../examples/robust/scene.rs"]
mod scene;

use hedgerow::aggregation::Aggregation;
use hedgerow::method::find;
use hedgerow::{Plan, PlanConfig, PlanError};

use crate::common::methods;

use scene::{Poison, Scene, World};

const POISONS: [Poison; 4] = [Poison::Huge, Poison::Scattered, Poison::Opposite, Poison::Push];
const CLEAN: Scene =
    Scene { world: World::Alike, bad: 0, poison: Poison::Huge, rounds: 300, bans_at: None };
const TRIMMED: Aggregation = Aggregation::TrimmedMean { share: 0.2 };

/// The methods with messages that support other aggregations than the mean.
fn robust() -> Vec<&'static str> {
    let is_robust = |method: &&str| {
        let info = find(method.split(':').next().unwrap()).unwrap();
        info.travels() && info.is_robust
    };
    methods(6).into_iter().filter(is_robust).collect()
}

/// Checks what becomes of the error of each method.
fn check(aggregation: Aggregation, scene: Scene, mut is_fine: impl FnMut(&str, f64) -> bool) {
    for method in robust() {
        let plain = CLEAN.play(method, Aggregation::Mean, 1).unwrap().all;
        let factor = scene.play(method, aggregation, 1).unwrap().all / plain;
        assert!(is_fine(method, factor), "{method:?}, {aggregation:?}, {scene:?}: {factor}");
    }
}

#[test]
fn nobody_bad_costs_little() {
    for world in [World::Alike, World::Apart, World::Differing] {
        let clean = Scene { world, ..CLEAN };
        for method in robust() {
            let plain = clean.play(method, Aggregation::Mean, 1).unwrap().all;
            for (aggregation, most) in [(TRIMMED, 1.35), (Aggregation::Median, 1.6)] {
                let factor = clean.play(method, aggregation, 1).unwrap().all / plain;
                assert!(factor < most, "{method:?}, {aggregation:?}, {world:?}: {factor}");
            }
        }
    }
}

#[test]
fn three_bad_of_twenty_decide_over_a_mean() {
    for poison in POISONS {
        let is_blatant = matches!(poison, Poison::Huge | Poison::Scattered);
        check(Aggregation::Mean, Scene { bad: 3, poison, ..CLEAN }, |method, factor| {
            // Nodes of Fed-POE turn to their own models, as long as the others' are finite.
            factor
                > if is_blatant {
                    1e6
                } else if method == "fedpoe" {
                    1.2
                } else {
                    2.5
                }
        });
    }
}

#[test]
fn a_trimmed_mean_stands_fewer_than_it_leaves_out() {
    for poison in POISONS {
        check(TRIMMED, Scene { bad: 3, poison, ..CLEAN }, |_, factor| factor < 2.5);
        // As many as are left out.
        check(TRIMMED, Scene { bad: 4, poison, ..CLEAN }, |_, factor| factor < 4.0);
    }
    // And not one more.
    check(TRIMMED, Scene { bad: 5, poison: Poison::Huge, ..CLEAN }, |_, factor| factor > 1e6);
}

#[test]
fn a_median_stands_a_quarter_and_nearly_half_where_they_don_t_agree() {
    for poison in POISONS {
        check(Aggregation::Median, Scene { bad: 5, poison, ..CLEAN }, |_, factor| factor < 6.0);
    }
    for (poison, most) in [(Poison::Scattered, 3.0), (Poison::Opposite, 25.0)] {
        check(Aggregation::Median, Scene { bad: 9, poison, ..CLEAN }, |_, factor| factor < most);
    }
    // Nearly half of the nodes, if they agree, move it in each round by the spread of the good
    // nodes, which grows with the error.
    let agreed = Scene { bad: 9, poison: Poison::Huge, ..CLEAN };
    let (mut mean, mut worst) = (vec![], 0.0);
    check(Aggregation::Mean, agreed, |_, factor| {
        mean.push(factor);
        true
    });
    let mut mean = mean.into_iter();
    check(Aggregation::Median, agreed, |_, factor| {
        worst = factor.max(worst);
        factor < 1e-20 * mean.next().unwrap()
    });
    assert!(worst > 100.0, "better than is said: {worst}");
}

#[test]
fn screening_costs_nothing_without_liars() {
    for world in [World::Alike, World::Apart, World::Differing] {
        for method in ["gr", "tr"] {
            let clean = Scene { world, rounds: 600, ..CLEAN };
            let plain = clean.play(method, Aggregation::Mean, 1).unwrap().all;
            let factor = clean.play(method, Aggregation::Screened, 1).unwrap().all / plain;
            assert!(factor < 1.03, "{method:?}, {world:?}: {factor}");
        }
    }
}

#[test]
fn screening_leaves_out_nodes_that_lie() {
    let lies = [Poison::Flipped, Poison::Scalars, Poison::Reports];
    for poison in POISONS.into_iter().chain(lies) {
        for method in ["gr", "tr"] {
            let scene = Scene { poison, rounds: 600, ..CLEAN };
            let plain = scene.play(method, Aggregation::Mean, 1).unwrap();
            for bad in [1, 3] {
                let scene = Scene { bad, ..scene };
                let play = |scene: Scene| scene.play(method, Aggregation::Screened, 1).unwrap();
                let (with, banned) = (play(scene), play(Scene { bans_at: Some(300), ..scene }));
                let factors =
                    [with.all / plain.all, with.late / plain.late, banned.late / plain.late];
                let most = match (method, poison) {
                    // Units begin later where errors of liars were among those that tell when.
                    ("tr", _) => 2.0,
                    // Scales become up to three times as wide.
                    (_, Poison::Reports) => 1.6,
                    _ => 1.5,
                };
                let is_fine = factors.into_iter().all(|factor| factor < most);
                assert!(is_fine, "{bad} {poison:?}, {method:?}: {factors:?}");
            }
        }
    }
    // It takes screening.
    for poison in [Poison::Scattered, Poison::Flipped, Poison::Scalars] {
        for method in ["gr", "tr"] {
            let scene = Scene { poison, ..CLEAN };
            let plain = scene.play(method, Aggregation::Mean, 1).unwrap().all;
            let bad = Scene { bad: 3, ..scene };
            let factor = bad.play(method, Aggregation::Mean, 1).unwrap().all / plain;
            assert!(factor > 2.0, "{poison:?}, {method:?}: {factor}");
        }
    }
}

#[test]
fn who_can_t_says_so_beforehand() {
    for method in methods(6) {
        for aggregation in [Aggregation::Mean, Aggregation::Screened, TRIMMED, Aggregation::Median]
        {
            let is_supported = match method {
                "gr" | "tr" => matches!(aggregation, Aggregation::Mean | Aggregation::Screened),
                "local" => true,
                "pof" | "linear-newton" => aggregation == Aggregation::Mean,
                _ => aggregation != Aggregation::Screened,
            };
            let config = PlanConfig::default().method(method.parse().unwrap());
            let made = Plan::new(config.aggregation(aggregation));
            assert_eq!(made.is_ok(), is_supported, "{method:?}, {aggregation:?}");
        }
    }
}

#[test]
fn shares_of_nothing_and_of_everything_are_refused() {
    let checked = |share: f64| {
        let aggregation = Aggregation::TrimmedMean { share };
        Plan::new(PlanConfig::default().aggregation(aggregation))
    };
    for share in [0.0, -0.1, 0.5, 1.0, f64::NAN, f64::INFINITY] {
        let error = checked(share).unwrap_err();
        assert!(matches!(error, PlanError::OutOfBounds { .. }), "{error}");
        let said = "aggregation.share must be above 0 and below 0.5, but is";
        assert!(error.to_string().starts_with(said), "{error}");
    }
    assert!(checked(1e-9).is_ok() && checked(0.499_999).is_ok());
    // Configurations of before read as they were meant.
    let config = PlanConfig::default().personal(false).frequencies(Some(49));
    let mut written = serde_json::to_value(&config).unwrap();
    assert_eq!(
        written["setup"].as_object_mut().unwrap().remove("aggregation"),
        Some("mean".into())
    );
    assert_eq!(serde_json::from_value::<PlanConfig>(written).unwrap(), config);
}
