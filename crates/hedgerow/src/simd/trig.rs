//! Sine and cosine of a vector of angles, in **quarter turns**.
//!
//! Frequencies are stored per quarter turn, so the whole turns come off an angle by an exact
//! subtraction and two short polynomials do the rest: the error stays below 1e-7 of the amplitude.
//! There is no branch and no table.

use crate::simd::vector::Vector;

/// Angles beyond this are brought back by an exact remainder first: past it the trick with
/// [`ROUNDER`] no longer works.
pub(crate) const LARGEST_DIRECT: f32 = 1.0e6;

// Adding this to a small number leaves the nearest integer in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// Sines and cosines of a given amplitude: the coefficients are multiplied by it once, and then it
/// costs nothing.
pub(crate) struct Waves<V> {
    /// Of r, r³, r⁵, r⁷.
    sine: [V; 4],
    /// Of 1, r², r⁴, r⁶, r⁸.
    cosine: [V; 5],
}

impl<V: Vector> Waves<V> {
    #[inline(always)]
    pub(crate) fn new(amplitude: f32) -> Self {
        let sine = [1.570_796_4, -0.645_963_43, 0.079_680_01, -0.004_601_578_7_f32];
        let cosine = [1.0, -1.233_700_5, 0.253_669_23, -0.020_860_283, 0.000_904_006_53_f32];
        Self {
            sine: sine.map(|c| V::splat(c * amplitude)),
            cosine: cosine.map(|c| V::splat(c * amplitude)),
        }
    }

    /// (sine, cosine) of each angle; they must be finite and at most [`LARGEST_DIRECT`] in size.
    #[inline(always)]
    pub(crate) fn of(&self, angle: V) -> (V, V) {
        let rounded = angle.add(V::splat(ROUNDER));
        let rest = angle.sub(rounded.sub(V::splat(ROUNDER)));
        let square = rest.mul(rest);
        let (sine, cosine) = (&self.sine, &self.cosine);
        let odd = sine[3]
            .mul_add(square, sine[2])
            .mul_add(square, sine[1])
            .mul_add(square, sine[0])
            .mul(rest);
        let even = cosine[4].mul_add(square, cosine[3]).mul_add(square, cosine[2]);
        let even = even.mul_add(square, cosine[1]).mul_add(square, cosine[0]);
        // The low bits of `rounded` count quarter turns: an odd one swaps the two, and the next bit
        // gives the signs.
        let sines = odd.or_if_odd(rounded, even).negate_by(rounded, 0);
        let cosines = even.or_if_odd(rounded, odd).negate_by(rounded, 1);
        (sines, cosines)
    }
}

/// Brings any angle into the range of [`Waves::of`]: a huge one by its remainder, an overflowed one
/// as zero.
pub(crate) fn tame(angle: f32) -> f32 {
    // Four quarter turns are a whole one. (A remainder is exact.)
    if angle.is_finite() { angle % 4.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::vector::LANES;

    fn worst_error(quarter_turns: impl Iterator<Item = f32>) -> f64 {
        let waves = Waves::new(1.0);
        let mut worst = 0.0f64;
        for angle in quarter_turns {
            let direct = if angle.abs() <= LARGEST_DIRECT { angle } else { tame(angle) };
            let (s, c) = waves.of([direct; LANES]);
            let exact = f64::from(angle) % 4.0 * core::f64::consts::FRAC_PI_2;
            worst = worst.max((f64::from(s[0]) - exact.sin()).abs());
            worst = worst.max((f64::from(c[0]) - exact.cos()).abs());
        }
        worst
    }

    #[test]
    fn error_is_below_1e_7_everywhere() {
        let grid = (0..400_000).map(|i| (i as f32 - 200_000.0) * 3.1e-4);
        assert!(worst_error(grid) < 1e-7);
        let growing =
            (0..400_000).map(|i| 1e-6 * 1.000_2f32.powi(i)).take_while(|angle| *angle < 1e30);
        assert!(worst_error(growing) < 1e-7);
    }

    #[test]
    fn whole_quarters_are_exact() {
        for quarter in -9i16..9 {
            let (s, c) = Waves::new(1.0).of([f32::from(quarter); LANES]);
            let expected =
                [(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)][quarter.rem_euclid(4) as usize];
            assert_eq!((s[0], c[0]), expected, "{quarter}");
        }
    }

    #[test]
    fn overflowed_angles_stay_on_the_circle() {
        for angle in [f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let (s, c) = Waves::new(1.0).of([tame(angle); LANES]);
            assert!((s[0] * s[0] + c[0] * c[0] - 1.0).abs() < 1e-6, "{angle}");
        }
    }
}
