//! Half precision: sign, five bits of exponent, ten of fraction.

use crate::math;

/// Smallest exponent of a normal number; below it the grid is even.
const LEAST_EXPONENT: i32 = -14;

/// Rounds to one of the two halves around a number of size at most 1, to the larger one if
/// `uniform`, from 0 to below 1, says so: a uniform number keeps the mean.
pub(super) fn round(value: f64, uniform: f64) -> u16 {
    let size = value.abs();
    let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(LEAST_EXPONENT);
    // Steps of the grid at this size; a power of two, so nothing is rounded here.
    let steps = math::floor(size * power_of_two(10 - exponent) + uniform);
    // One step too many carries over into the exponent, as it should.
    let bits = (((exponent - LEAST_EXPONENT) as u16) << 10) + steps as u16;
    bits | if value < 0.0 { 1 << 15 } else { 0 }
}

/// The number that a half stands for; none if it is infinite or not a number.
pub(super) fn value(bits: u16) -> Option<f32> {
    let (exponent, fraction) = (u32::from(bits >> 10) & 31, f32::from(bits & 1023));
    let size = match exponent {
        0 => fraction * f32::from_bits((127 - 24) << 23),
        31 => return None,
        // 2^(exponent − 25) for steps of a fraction that begins at 1024.
        _ => (1024.0 + fraction) * f32::from_bits((exponent + 127 - 25) << 23),
    };
    Some(if bits >> 15 == 0 { size } else { -size })
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_halves_have_their_values() {
        let known = [
            (0x0000, 0.0),
            (0x0001, 5.960_464_5e-8),
            (0x03ff, 6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0x2e66, 0.099_975_586),
            (0x3555, 0.333_251_95),
            (0x3c00, 1.0),
            (0x3c01, 1.000_976_6),
            (0xc000, -2.0),
            (0x4248, 3.140_625),
            (0x7bff, 65504.0),
            (0xfbff, -65504.0),
        ];
        for (bits, expected) in known {
            assert_eq!(value(bits), Some(expected), "{bits:#x}");
        }
        assert_eq!(value(0x8000).map(f32::to_bits), Some((-0.0f32).to_bits()));
        for bits in [0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xffff] {
            assert_eq!(value(bits), None, "{bits:#x}");
        }
    }

    #[test]
    fn every_half_up_to_one_is_kept_whatever_the_chance() {
        for bits in 0..=0x3c00 {
            let size = f64::from(value(bits).unwrap());
            for uniform in [0.0, 0.5, 0.999_999] {
                assert_eq!(round(size, uniform), bits);
                if bits > 0 {
                    assert_eq!(round(-size, uniform), bits | 1 << 15);
                }
            }
        }
    }

    #[test]
    fn other_numbers_go_to_their_neighbours() {
        for (number, below, above) in [
            (1.0 / 3.0, 0x3555, 0x3556),
            (1e-7, 0x0001, 0x0002),
            (0.999_9, 0x3bff, 0x3c00),
            (1e-9, 0, 1),
        ] {
            assert_eq!((round(number, 0.0), round(number, 0.999_999)), (below, above), "{number}");
        }
    }
}
