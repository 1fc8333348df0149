//! Student's t distribution: what is needed for intervals and for paired tests. The tail is an
//! incomplete beta function, taken by its continued fraction.

/// Probability that a t variable with so many degrees of freedom is at least as far from zero as
/// `t`.
pub(super) fn two_sided(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    let square = t * t;
    if square.is_infinite() {
        return 0.0;
    }
    incomplete_beta(freedom / (freedom + square), square / (freedom + square), freedom / 2.0, 0.5)
}

/// How far from zero a t variable goes with no more than this probability.
pub(super) fn critical(probability: f64, freedom: f64) -> f64 {
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

/// I_x(a, b); `rest` is 1 − x, which may be too small to be found by subtraction.
fn incomplete_beta(x: f64, rest: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if rest <= 0.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * rest.ln()).exp();
    // The fraction converges fast on this side of the mean, and the function is symmetric.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(rest, b, a) / b
    }
}

/// The continued fraction of the incomplete beta function, from its head on (Lentz's way).
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut numerators = 1.0;
    let mut denominators = away_from_zero(1.0 - (a + b) * x / (a + 1.0)).recip();
    let mut value = denominators;
    for step in 1..1000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut last = 1.0;
        for term in [even, odd] {
            denominators = away_from_zero(1.0 + term * denominators).recip();
            numerators = away_from_zero(1.0 + term / numerators);
            last = denominators * numerators;
            value *= last;
        }
        if (last - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// ln Γ(x) of a positive number: Stirling's series, far enough out to be exact to the last digits.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 12.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let inverse = x.recip();
    let square = inverse * inverse;
    let series = inverse
        * (1.0 / 12.0
            - square
                * (1.0 / 360.0
                    - square * (1.0 / 1260.0 - square * (1.0 / 1680.0 - square / 1188.0))));
    shift + (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series
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

    #[test]
    fn the_logarithm_of_the_gamma_function() {
        close(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln(), 1e-13);
        close(ln_gamma(5.0), 24f64.ln(), 1e-13);
        close(ln_gamma(100.0), 359.134_205_369_575_4, 1e-13);
        assert!(ln_gamma(1.0).abs() < 1e-13 && ln_gamma(2.0).abs() < 1e-13);
    }
}
