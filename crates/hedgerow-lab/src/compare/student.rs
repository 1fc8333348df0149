//! Student's t distribution: what intervals and paired tests need.

use statrs::function::beta::checked_beta_reg;

/// The two-sided p-value of `t` with these degrees of freedom.
pub(super) fn two_sided(t: f64, freedom: f64) -> f64 {
    let square = t * t;
    let probability = if square < 1.0 {
        // 1 minus this share would lose the digits of a small t.
        checked_beta_reg(0.5, freedom / 2.0, square / (freedom + square)).map(|within| 1.0 - within)
    } else {
        checked_beta_reg(freedom / 2.0, 0.5, freedom / (freedom + square))
    };
    probability.unwrap_or(f64::NAN)
}

/// How far from zero a t variable goes with no more than this probability.
pub(crate) fn critical(probability: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, freedom) > probability && high < 1e300 {
        (low, high) = (high, high * 2.0);
    }
    // Halving an interval of doubles ends after some sixty steps.
    for _ in 0..80 {
        let middle = low + (high - low) / 2.0;
        if two_sided(middle, freedom) > probability { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, known: f64, tolerance: f64) {
        assert!((found - known).abs() <= tolerance * known.abs(), "{found} is not {known}");
    }

    #[test]
    fn critical_values_are_those_of_the_tables() {
        for (freedom, known) in [
            (1.0, 12.706_204_736_174_7),
            (2.0, 4.302_652_729_749_46),
            (4.0, 2.776_445_105_197_79),
            (9.0, 2.262_157_162_798_2),
            (19.0, 2.093_024_054_408_26),
            (49.0, 2.009_575_237_129_24),
            (1e6, 1.959_966),
        ] {
            close(critical(0.05, freedom), known, 1e-6);
        }
        close(critical(0.01, 9.0), 3.249_835_541_592_1, 1e-9);
        close(critical(0.001, 1.0), 636.619_248_768_7, 1e-9);
    }

    #[test]
    fn tails_have_closed_forms_for_few_degrees_of_freedom() {
        for t in [1e-8f64, 0.1, 0.5, 1.0, 2.0, 7.5, 40.0, 1e5] {
            close(two_sided(t, 1.0), std::f64::consts::FRAC_2_PI * (1.0 / t).atan(), 1e-9);
            let root = (2.0 + t * t).sqrt();
            // 1 − t/√(2 + t²) without its cancellation.
            close(two_sided(t, 2.0), 2.0 / (root * (root + t)), 1e-9);
        }
        for t in [0.1f64, 0.5, 1.0, 2.0, 7.5] {
            let angle = (t / 3f64.sqrt()).atan();
            let within = std::f64::consts::FRAC_2_PI * (angle + angle.sin() * angle.cos());
            close(two_sided(t, 3.0), 1.0 - within, 1e-9);
            let sine = t / (4.0 + t * t).sqrt();
            close(two_sided(t, 4.0), 1.0 - sine * (1.5 - 0.5 * sine * sine), 1e-9);
        }
    }

    #[test]
    fn the_ends_are_exact_and_signs_do_not_matter() {
        assert_eq!(
            (two_sided(0.0, 5.0), two_sided(f64::INFINITY, 5.0), two_sided(1e200, 5.0)),
            (1.0, 0.0, 0.0)
        );
        assert_eq!(two_sided(-1.7, 5.0), two_sided(1.7, 5.0));
    }
}
