use super::*;
use proptest::prelude::*;

const KINDS: [ScaleKind; 2] = [ScaleKind::Spread, ScaleKind::Range];

/// Both columns alike, so that one is an input and the other a label.
fn summary(values: impl IntoIterator<Item = f64>) -> Summary {
    let mut summary = Summary::new(2);
    for value in values {
        (0..2).for_each(|column| summary.add(column, value));
    }
    summary
}

/// Ten values, evenly from `low` to `high`.
fn even(low: f64, high: f64) -> Summary {
    summary((0..10).map(|at| low + (high - low) * f64::from(at) / 9.0))
}

fn assert_close(found: f32, expected: f64) {
    let room = 1e-5 * (1.0 + expected.abs());
    assert!((f64::from(found) - expected).abs() < room, "{found}, expected {expected}");
}

#[test]
fn spread_takes_two_deviations_to_a_half() {
    let (mean, deviation) = (7.0, even(6.0, 8.0).deviation(0));
    let scale = Scale::from_summary(ScaleKind::Spread, &even(6.0, 8.0), None);
    for (raw, expected) in
        [(mean, 0.0), (mean + 2.0 * deviation, 0.5), (mean - 2.0 * deviation, -0.5)]
    {
        assert_close(scale.scale_input(0, raw), expected);
        assert_close(scale.scale_label(raw as f32), expected);
    }
    assert_close(scale.centre(0) as f32, mean);
}

#[test]
fn range_takes_the_ends_to_zero_and_one() {
    let made = Scale::from_summary(ScaleKind::Range, &even(-4.0, 16.0), None);
    let given = Scale::from_ranges(&[(-4.0, 16.0), (-4.0, 16.0)]).unwrap();
    for scale in [&made, &given] {
        for (raw, expected) in [(-4.0, 0.0), (16.0, 1.0), (6.0, 0.5)] {
            assert_close(scale.scale_input(0, raw), expected);
            assert_close(scale.scale_label(raw as f32), expected);
        }
        assert_close(scale.centre(0) as f32, 6.0);
    }
    assert_eq!(made, given);
}

#[test]
fn the_identity_changes_nothing() {
    let scale = Scale::identity(2);
    for raw in [-1e30f32, -9.0, 0.0, 0.3, 3.4e38] {
        assert_eq!(scale.scale_input(0, f64::from(raw)), raw);
        assert_eq!(scale.unscale_label(raw), raw);
    }
    assert_eq!((scale.scale_label(1e11), scale.centre(0)), (1e11, 0.0));
}

#[test]
fn inputs_stay_within_the_limit_and_everything_stays_finite() {
    for kind in KINDS {
        for values in [
            even(0.0, 1.0),
            even(1e30, -1e30),
            even(1e-30, 3e-30),
            summary([5.0; 9]),
            Summary::new(2),
        ] {
            let scale = Scale::from_summary(kind, &values, None);
            for raw in [f32::MAX, f32::MIN, 1e12, 0.0, 1e-38] {
                assert!(scale.scale_input(0, f64::from(raw)).abs() <= Scale::LIMIT);
                assert!(scale.scale_label(raw).abs() <= MAX_LABEL);
                assert!(scale.unscale_label(raw).is_finite());
            }
            assert!(scale.centre(0).is_finite());
        }
    }
}

#[test]
fn a_constant_column_is_zero_until_it_varies() {
    for kind in KINDS {
        let constant = Scale::from_summary(kind, &summary([5.0; 30]), None);
        assert_eq!((constant.scale_input(0, 5.0), constant.scale_input(0, 9.0)), (0.0, 0.0));
        assert_eq!((constant.scale_label(5.0), constant.unscale_label(3.0)), (0.0, 5.0));
        let later = summary([[5.0; 30], [7.0; 30]].concat());
        let opened = Scale::from_summary(kind, &later, Some(&constant));
        assert!(opened.scale_input(0, 7.0) > 0.2 && opened.scale_label(7.0) > 0.2, "{opened:?}");
    }
}

#[test]
fn what_still_fits_is_kept() {
    for kind in KINDS {
        let first = Scale::from_summary(kind, &even(0.0, 1.0), None);
        let next = |low: f64, high: f64| Scale::from_summary(kind, &even(low, high), Some(&first));
        let changes = |scale: &Scale| [0, 1].map(|column| scale.axes[column] != first.axes[column]);
        for (low, high) in [(0.0, 1.0), (0.05, 0.95), (-0.1, 1.1), (-0.15, 1.0)] {
            assert_eq!(next(low, high), first, "{low} to {high}");
        }
        // Farther out, nearer in, and elsewhere. The offset of a label follows only if the labels
        // are far from it.
        assert_eq!(changes(&next(-0.6, 1.6)), [true; 2], "{kind:?}");
        assert_eq!(changes(&next(0.25, 0.75)), [true, kind == ScaleKind::Spread], "{kind:?}");
        assert_eq!(changes(&next(4.0, 5.0)), [true; 2], "{kind:?}");
        let moves = |low, high| next(low, high).label().offset != first.label().offset;
        assert!(!moves(-0.6, 1.6) && !moves(-70.0, 3.0) && !moves(1.0, 2.0), "{kind:?}");
        assert!(moves(4.0, 5.0) && moves(1e11, 1.1e11), "{kind:?}");
        // One that varies no more is as it was.
        assert!(!changes(&Scale::from_summary(kind, &summary([0.5; 5]), Some(&first)))[0]);
    }
}

#[test]
fn labels_can_be_left_alone() {
    let scale = Scale::from_summary(ScaleKind::Spread, &even(3.0, 9.0), None).with_raw_labels(1);
    assert_eq!((scale.scale_label(-1.0), scale.unscale_label(0.25)), (-1.0, 0.25));
    assert!(scale.scale_input(0, 9.0) < 1.0);
}

#[test]
fn ranges_that_are_none_are_named() {
    assert_eq!(Scale::from_ranges(&[]), Err(BadScale::NoColumns));
    let nan = f64::NAN;
    for (min, max) in
        [(1.0, 1.0), (2.0, 1.0), (0.0, f64::INFINITY), (-1e31, 1.0), (1e9, 1e9 + 1e-3)]
    {
        let refused = Scale::from_ranges(&[(0.0, 1.0), (min, max)]);
        assert_eq!(refused, Err(BadScale::Range { column: 1, min, max }));
    }
    assert!(
        Scale::from_ranges(&[(nan, 1.0)]).is_err() && Scale::from_ranges(&[(0.0, nan)]).is_err()
    );
}

#[test]
fn hostile_scales_are_refused() {
    let read = |form: &str, axes: &[(f32, f32)]| {
        let axes: Vec<_> = axes
            .iter()
            .map(|(offset, factor)| serde_json::json!({"offset": offset, "factor": factor}))
            .collect();
        serde_json::from_value::<Scale>(serde_json::json!({"form": form, "axes": axes}))
    };
    assert!(read("Spread", &[(1.0, 0.0), (-1e30, 1e30)]).is_ok());
    assert!(read("Identity", &[(0.0, 1.0)]).is_ok());
    assert!(read("Spread", &[]).is_err() && read("Identity", &[(0.0, 2.0)]).is_err());
    for axis in [(0.0, -1.0), (2e30, 1.0), (0.0, 2e30), (f32::NAN, 1.0), (0.0, f32::INFINITY)] {
        assert!(read("Range", &[(0.0, 1.0), axis]).is_err(), "{axis:?}");
    }
}

proptest! {
    #[test]
    fn labels_come_back_as_they_went(
        low in -1e6f64..1e6, width in 1e-2f64..1e6, at in -2.0f64..3.0, spread in any::<bool>(),
    ) {
        let kind = KINDS[usize::from(spread)];
        let scale = Scale::from_summary(kind, &even(low, low + width), None);
        let raw = (low + at * width) as f32;
        let there = scale.scale_label(raw);
        prop_assert!(there.abs() < 4.0);
        let back = scale.unscale_label(there);
        let room = 1e-6 * (width + f64::from(raw).abs());
        prop_assert!((f64::from(back) - f64::from(raw)).abs() < room, "{} {}", raw, back);
    }
}
