//! Functions of real numbers that give the same bits on every platform. Those of the standard
//! library leave the last bit to the platform.

pub(crate) use libm::{atan2, cos, hypot, log as ln, log1p as ln_1p, sin};

/// ln 2 in two parts: the first has zeros at its end, so that its products with whole numbers are
/// exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// 1/n! for n from 0.
const INVERSE_FACTORIALS: [f64; 14] = {
    let (mut inverses, mut factorial, mut n) = ([1.0; 14], 1.0, 1);
    while n < 14 {
        factorial *= n as f64;
        inverses[n] = 1.0 / factorial;
        n += 1;
    }
    inverses
};

/// e^x, with an error below one unit in the last place.
#[inline]
pub(crate) fn exp(x: f64) -> f64 {
    if x.is_nan() || x > 709.782_712_893_384 {
        return if x.is_nan() { x } else { f64::INFINITY };
    }
    if x < -745.2 {
        return 0.0;
    }
    // e^x = 2^k·e^r with |r| ≤ ln 2 / 2.
    let k = (x * core::f64::consts::LOG2_E + if x < 0.0 { -0.5 } else { 0.5 }) as i32;
    let r = (x - f64::from(k) * LN_2_HIGH) - f64::from(k) * LN_2_LOW;
    // The series from r²/2! on, in pairs that don't wait for one another.
    let [_, _, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13] = INVERSE_FACTORIALS;
    let (r2, r4) = (r * r, r * r * (r * r));
    let low = (c2 + c3 * r) + (c4 + c5 * r) * r2;
    let middle = (c6 + c7 * r) + (c8 + c9 * r) * r2;
    let high = (c10 + c11 * r) + (c12 + c13 * r) * r2;
    let power = 1.0 + (r + r2 * (low + r4 * (middle + r4 * high)));
    // In two factors, so that neither is out of range where the product is not.
    let half = k / 2;
    power * power_of_two(half) * power_of_two(k - half)
}

/// 2^k for |k| ≤ 1022.
#[inline]
fn power_of_two(k: i32) -> f64 {
    f64::from_bits(((k + 1023) as u64) << 52)
}

/// x^n by repeated squaring.
pub(crate) fn powi(x: f64, n: i32) -> f64 {
    let (mut power, mut square, mut left) = (1.0, x, n.unsigned_abs());
    while left > 0 {
        if left % 2 == 1 {
            power *= square;
        }
        square *= square;
        left /= 2;
    }
    if n < 0 { 1.0 / power } else { power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_those_of_the_standard_library_up_to_the_last_bit() {
        let points = (0..300_000).map(|at| f64::from(at) * 0.004_87 - 745.0);
        for x in points.chain([0.0, -0.0, 1e-300, -1e-20, 0.5, -700.0, 709.7]) {
            let (found, expected) = (exp(x), x.exp());
            let apart = found.to_bits().abs_diff(expected.to_bits());
            assert!(apart <= 1, "{x}: {found:e} and {expected:e}");
        }
        assert_eq!((exp(-800.0), exp(f64::NEG_INFINITY)), (0.0, 0.0));
        assert_eq!((exp(710.0), exp(f64::INFINITY)), (f64::INFINITY, f64::INFINITY));
        assert!(exp(f64::NAN).is_nan());
        // The same bits on every platform.
        assert_eq!(exp(1.0).to_bits(), 0x4005_bf0a_8b14_576a);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn powers_are_products() {
        assert_eq!((powi(3.0, 4), powi(2.0, -3), powi(7.0, 0)), (81.0, 0.125, 1.0));
        for n in -5..=5 {
            assert_eq!(powi(10.0, n).to_bits(), 10f64.powi(n).to_bits(), "{n}");
        }
    }
}
