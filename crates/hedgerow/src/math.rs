//! Functions of real numbers that give the same bits on every platform. Those of the standard
//! library leave the last bit to the platform.

pub(crate) use libm::{atan2, cos, hypot, log as ln, log1p as ln_1p, pow, sin, tan};

/// Functions whose results are exact or correctly rounded, so that the standard library's have the
/// same bits. They need it, or else `libm`.
macro_rules! exact {
    ($($name:ident, $method:ident, $libm:ident, $type:ty, ($($more:ident),*);)*) => {$(
        #[inline(always)]
        pub(crate) fn $name(x: $type, $($more: $type),*) -> $type {
            #[cfg(feature = "std")]
            return x.$method($($more),*);
            #[cfg(not(feature = "std"))]
            libm::$libm(x, $($more),*)
        }
    )*};
}

exact! {
    sqrt, sqrt, sqrt, f64, ();
    floor, floor, floor, f64, ();
    ceil, ceil, ceil, f64, ();
    mul_add, mul_add, fma, f64, (factor, term);
    mul_add_f32, mul_add, fmaf, f32, (factor, term);
}

/// ln 2 / 64 in two parts: the first has zeros at its end, so that its products with whole numbers
/// are exact.
const STEP_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000) / 64.0;
const STEP_LOW: f64 = 1.908_214_929_270_587_7e-10 / 64.0;

/// Added to a small number it leaves the nearest whole number in the lowest bits.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

/// Bits of 2^(i/64) for i from 0.
#[rustfmt::skip]
const POWERS: [u64; 64] = [
    0x3ff0_0000_0000_0000, 0x3ff0_2c9a_3e77_8061, 0x3ff0_59b0_d315_8574, 0x3ff0_8745_1875_9bc8,
    0x3ff0_b558_6cf9_890f, 0x3ff0_e3ec_32d3_d1a2, 0x3ff1_1301_d012_5b51, 0x3ff1_429a_aea9_2de0,
    0x3ff1_72b8_3c7d_517b, 0x3ff1_a35b_eb6f_cb75, 0x3ff1_d487_3168_b9aa, 0x3ff2_063b_8862_8cd6,
    0x3ff2_387a_6e75_6238, 0x3ff2_6b45_65e2_7cdd, 0x3ff2_9e9d_f51f_dee1, 0x3ff2_d285_a6e4_030b,
    0x3ff3_06fe_0a31_b715, 0x3ff3_3c08_b264_16ff, 0x3ff3_71a7_373a_a9cb, 0x3ff3_a7db_34e5_9ff7,
    0x3ff3_dea6_4c12_3422, 0x3ff4_160a_21f7_2e2a, 0x3ff4_4e08_6061_892d, 0x3ff4_86a2_b5c1_3cd0,
    0x3ff4_bfda_d536_2a27, 0x3ff4_f9b2_769d_2ca7, 0x3ff5_342b_569d_4f82, 0x3ff5_6f47_36b5_27da,
    0x3ff5_ab07_dd48_5429, 0x3ff5_e76f_15ad_2148, 0x3ff6_247e_b03a_5585, 0x3ff6_6238_8255_2225,
    0x3ff6_a09e_667f_3bcd, 0x3ff6_dfb2_3c65_1a2f, 0x3ff7_1f75_e8ec_5f74, 0x3ff7_5feb_5642_67c9,
    0x3ff7_a114_73eb_0187, 0x3ff7_e2f3_36cf_4e62, 0x3ff8_2589_994c_ce13, 0x3ff8_68d9_9b44_92ed,
    0x3ff8_ace5_422a_a0db, 0x3ff8_f1ae_9915_7736, 0x3ff9_3737_b0cd_c5e5, 0x3ff9_7d82_9fde_4e50,
    0x3ff9_c491_82a3_f090, 0x3ffa_0c66_7b5d_e565, 0x3ffa_5503_b23e_255d, 0x3ffa_9e6b_5579_fdbf,
    0x3ffa_e89f_995a_d3ad, 0x3ffb_33a2_b84f_15fb, 0x3ffb_7f76_f2fb_5e47, 0x3ffb_cc1e_904b_c1d2,
    0x3ffc_199b_dd85_529c, 0x3ffc_67f1_2e57_d14b, 0x3ffc_b720_dcef_9069, 0x3ffd_072d_4a07_897c,
    0x3ffd_5818_dcfb_a487, 0x3ffd_a9e6_03db_3285, 0x3ffd_fc97_337b_9b5f, 0x3ffe_502e_e78b_3ff6,
    0x3ffe_a4af_a2a4_90da, 0x3ffe_fa1b_ee61_5a27, 0x3fff_5076_5b6e_4540, 0x3fff_a7c1_819e_90d8,
];

/// e^x, with an error below one unit in the last place. Never inlined: callers with an exponential
/// in one rare branch stay small enough to be inlined themselves.
#[inline(never)]
pub(crate) fn exp(x: f64) -> f64 {
    let (k, power, rest) = exp_parts(x);
    if x.abs() < 700.0 {
        let power = f64::from_bits(power.wrapping_add(((k >> 6) as u64) << 52));
        return power + power * rest;
    }
    if x.is_nan() || x > 709.782_712_893_384 {
        return if x.is_nan() { x } else { f64::INFINITY };
    }
    if x < -745.2 {
        return 0.0;
    }
    // In two factors, so that neither is out of range where the product is not.
    let (power, half) = (f64::from_bits(power), k >> 7);
    (power + power * rest) * power_of_two(half) * power_of_two((k >> 6) - half)
}

/// k, the bits of 2^(i/64) and e^r − 1, where e^x = 2^(k/64)·e^r, i = k mod 64 and |r| ≤ ln 2 /
/// 128.
#[inline(always)]
fn exp_parts(x: f64) -> (i64, u64, f64) {
    let shifted = x * (64.0 * core::f64::consts::LOG2_E) + ROUNDING;
    let (k, whole) = (i64::from(shifted.to_bits() as i32), shifted - ROUNDING);
    let r = (x - whole * STEP_HIGH) - whole * STEP_LOW;
    let r2 = r * r;
    let rest = r + r2 * ((0.5 + r * (1.0 / 6.0)) + r2 * (1.0 / 24.0 + r * (1.0 / 120.0)));
    (k, POWERS[(k & 63) as usize], rest)
}

/// 2^k for |k| ≤ 1022.
fn power_of_two(k: i64) -> f64 {
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
        assert_eq!(exp(1.0).to_bits(), 0x4005_bf0a_8b14_5769);
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
