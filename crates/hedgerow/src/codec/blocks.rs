//! Runs of numbers as bytes: blocks with a scale each, and numbers in units of it, rounded at
//! random.
//!
//! A scale is the upper half of an f32, rounded up: it need not be precise, only large enough for
//! its block.

use alloc::vec::Vec;

use super::{NumberFormat, f16};
use crate::math;
use crate::message::{BYTES_PER_NUMBER, Rejected};
use crate::random::CounterRng;

/// Most numbers that share a scale.
const BLOCK: usize = 64;

const BYTES_PER_SCALE: usize = 2;

/// Random numbers for one message, one after the other.
pub(super) struct Chance {
    stream: CounterRng,
    position: u64,
}

impl Chance {
    pub(super) fn new(stream: CounterRng) -> Self {
        Self { stream, position: 0 }
    }

    /// From 0 to below 1.
    fn next(&mut self) -> f64 {
        self.position += 1;
        self.stream.uniform_at(self.position)
    }
}

/// Appends the bytes of some numbers, and leaves in `values` what the other side will read.
pub(super) fn pack(
    format: NumberFormat,
    values: &mut [f32],
    chance: &mut Chance,
    out: &mut Vec<u8>,
) {
    if format == NumberFormat::F32 {
        return pack_exactly(values, out);
    }
    for block in values.chunks_mut(block_len(values.len())) {
        let largest = block.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
        let scale = scale_of(format, largest);
        out.extend(((scale.to_bits() >> 16) as u16).to_le_bytes());
        // A block of zeros has no unit to count in.
        let units = if scale > 0.0 { 1.0 / f64::from(scale) } else { 0.0 };
        match format {
            NumberFormat::F32 => {}
            NumberFormat::F16 => {
                for value in block {
                    let bits = f16::round(f64::from(*value) * units, chance.next());
                    *value = f16::value(bits).unwrap_or(0.0) * scale;
                    out.extend(bits.to_le_bytes());
                }
            }
            NumberFormat::Bits8 => {
                for value in block {
                    let whole = round(*value, units, 127.0, chance);
                    *value = whole * scale;
                    out.push(whole as i8 as u8);
                }
            }
            NumberFormat::Bits4 => {
                for pair in block.chunks_mut(2) {
                    let mut byte = 0;
                    for (value, shift) in pair.iter_mut().zip([0, 4]) {
                        let whole = round(*value, units, 7.0, chance);
                        *value = whole * scale;
                        byte |= ((whole + 8.0) as u8) << shift;
                    }
                    out.push(byte);
                }
            }
        }
    }
}

/// Appends numbers as they are.
pub(super) fn pack_exactly(values: &[f32], out: &mut Vec<u8>) {
    values.iter().for_each(|value| out.extend(value.to_le_bytes()));
}

/// Appends `count` numbers from the front of some bytes and returns the rest of them.
pub(super) fn unpack<'a>(
    format: NumberFormat,
    count: usize,
    bytes: &'a [u8],
    out: &mut Vec<f32>,
) -> Result<&'a [u8], Rejected> {
    let garbled = |what| Err(Rejected::Garbled { what });
    // Before anything is allocated.
    let Some((bytes, rest)) = packed_len(format, count).and_then(|len| bytes.split_at_checked(len))
    else {
        return garbled("it ends within its numbers");
    };
    out.reserve(count);
    if format == NumberFormat::F32 {
        out.extend(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        return Ok(rest);
    }
    let block = block_len(count);
    let bytes_per_block = BYTES_PER_SCALE + codes_len(format, block);
    for (bytes, at) in bytes.chunks(bytes_per_block).zip((0..count).step_by(block)) {
        let [low, high, codes @ ..] = bytes else {
            return garbled("a block has no scale");
        };
        let scale = f32::from_bits(u32::from(u16::from_le_bytes([*low, *high])) << 16);
        if !scale.is_finite() || scale.is_sign_negative() {
            return garbled("a scale is no positive number");
        }
        let len = block.min(count - at);
        match format {
            NumberFormat::F32 => {}
            NumberFormat::F16 => {
                for bits in codes.as_chunks().0 {
                    match f16::value(u16::from_le_bytes(*bits)) {
                        Some(value) => out.push(value * scale),
                        None => return garbled("a half is no number"),
                    }
                }
            }
            NumberFormat::Bits8 => {
                for &code in codes {
                    if code as i8 == i8::MIN {
                        return garbled("a number of 8 bits is below -127");
                    }
                    out.push(f32::from(code as i8) * scale);
                }
            }
            NumberFormat::Bits4 => {
                for index in 0..2 * codes.len() {
                    let code = codes[index / 2] >> (4 * (index % 2)) & 15;
                    match (index < len, code) {
                        (true, 1..) => out.push((f32::from(code) - 8.0) * scale),
                        (true, 0) => return garbled("a number of 4 bits is below -7"),
                        (false, 0) => {}
                        (false, 1..) => return garbled("the last 4 bits should be empty"),
                    }
                }
            }
        }
    }
    Ok(rest)
}

/// Bytes of so many numbers; none if that is more than there can be.
fn packed_len(format: NumberFormat, count: usize) -> Option<usize> {
    if format == NumberFormat::F32 {
        return count.checked_mul(BYTES_PER_NUMBER);
    }
    let block = block_len(count);
    let (whole, last) = (count / block, count % block);
    let rest = if last == 0 { 0 } else { BYTES_PER_SCALE + codes_len(format, last) };
    whole.checked_mul(BYTES_PER_SCALE + codes_len(format, block))?.checked_add(rest)
}

/// Bytes of the numbers of one block, without its scale.
fn codes_len(format: NumberFormat, count: usize) -> usize {
    match format {
        NumberFormat::F32 => 4 * count,
        NumberFormat::F16 => 2 * count,
        NumberFormat::Bits8 => count,
        NumberFormat::Bits4 => count.div_ceil(2),
    }
}

/// Numbers in a block: as few blocks as can be, about equally long, and even but for the last, so
/// that two fit in a byte.
fn block_len(count: usize) -> usize {
    let blocks = count.div_ceil(BLOCK).max(1);
    count.div_ceil(blocks).next_multiple_of(2).max(2)
}

/// The unit of a block whose largest number has this size.
fn scale_of(format: NumberFormat, largest: f32) -> f32 {
    let (units, precision) = match format {
        // A power of two, which loses nothing.
        NumberFormat::F32 | NumberFormat::F16 => (1.0, 23),
        NumberFormat::Bits8 => (127.0, 16),
        NumberFormat::Bits4 => (7.0, 16),
    };
    let bits = (largest / units).to_bits();
    f32::from_bits(bits.div_ceil(1 << precision) << precision)
}

/// A whole number of units, at random one of the two nearest.
fn round(value: f32, units: f64, most: f64, chance: &mut Chance) -> f32 {
    math::floor(f64::from(value) * units + chance.next()).clamp(-most, most) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    fn chance(seed: u64) -> Chance {
        Chance::new(CounterRng::from_seed(seed).derive(Purpose::Rounding, 0))
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.7).sin() * 10f32.powi(i as i32 % 5 - 3)).collect()
    }

    fn packed(format: NumberFormat, numbers: &[f32], seed: u64) -> (Vec<u8>, Vec<f32>) {
        let (mut bytes, mut values) = (vec![], numbers.to_vec());
        pack(format, &mut values, &mut chance(seed), &mut bytes);
        (bytes, values)
    }

    #[test]
    fn what_is_read_is_what_the_writer_believes() {
        for format in NumberFormat::ALL {
            for count in [0, 1, 2, 3, 63, 64, 65, 98, 128, 129, 1000] {
                for size in [0.0, 1e-44, 1e-20, 1.0, 1e30] {
                    let numbers: Vec<f32> =
                        numbers(count).iter().map(|number| number * size / 10.0).collect();
                    let (mut bytes, values) = packed(format, &numbers, 1);
                    assert_eq!(bytes.len(), packed_len(format, count).unwrap());
                    bytes.extend([1, 2, 3]);
                    let mut read = vec![7.0];
                    assert_eq!(unpack(format, count, &bytes, &mut read).unwrap(), [1, 2, 3]);
                    let same =
                        read[1..].iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(
                        read.len() == 1 + count && same,
                        "{format:?}, {count} numbers of size {size}"
                    );
                    // Never farther off than one unit of the scale.
                    let unit = match format {
                        NumberFormat::F32 => 0.0,
                        NumberFormat::F16 => 1.0 / 1024.0,
                        NumberFormat::Bits8 => 1.01 / 127.0,
                        NumberFormat::Bits4 => 1.01 / 7.0,
                    };
                    let largest =
                        numbers.iter().fold(1e-38f32, |largest, number| largest.max(number.abs()));
                    let near =
                        numbers.iter().zip(&values).all(|(a, b)| (a - b).abs() <= unit * largest);
                    assert!(near, "{format:?}, {count} numbers of size {size}");
                }
            }
        }
    }

    #[test]
    fn rounding_keeps_the_mean() {
        const TIMES: u64 = 20_000;
        let numbers: Vec<f32> = (1..51).map(|i| (i as f32 * 0.7).sin()).collect();
        for format in [NumberFormat::F16, NumberFormat::Bits8, NumberFormat::Bits4] {
            let (mut sums, mut squares) = (vec![0.0; 50], vec![0.0; 50]);
            for seed in 0..TIMES {
                let (_, values) = packed(format, &numbers, seed);
                for (at, (value, number)) in values.iter().zip(&numbers).enumerate() {
                    let error = f64::from(value - number);
                    sums[at] += error;
                    squares[at] += error * error;
                }
            }
            for (at, (sum, square)) in sums.iter().zip(&squares).enumerate() {
                // Five standard deviations of a sum, and what f32 can't tell apart.
                let spread =
                    5.0 * square.sqrt() + TIMES as f64 * 1e-7 * f64::from(numbers[at].abs());
                assert!(sum.abs() <= spread, "{format:?}, number {at}: {sum} > {spread}");
            }
            assert!(squares.iter().sum::<f64>() > 0.0, "{format:?} never rounds");
        }
    }

    #[test]
    fn bytes_that_nobody_writes_are_refused() {
        let refused = |format, count, bytes: &[u8]| {
            let mut out = vec![];
            assert!(unpack(format, count, bytes, &mut out).is_err(), "{format:?}: {bytes:?}");
        };
        let one = 0x3f80u16.to_le_bytes();
        for scale in [0xbf80u16, 0x8000, 0x7f80, 0x7fc0, 0xff80] {
            let [low, high] = scale.to_le_bytes();
            refused(NumberFormat::Bits8, 1, &[low, high, 1]);
            refused(NumberFormat::Bits4, 1, &[low, high, 1]);
            refused(NumberFormat::F16, 1, &[low, high, 0, 0x3c]);
        }
        refused(NumberFormat::Bits8, 1, &[one[0], one[1], 0x80]);
        refused(NumberFormat::Bits4, 2, &[one[0], one[1], 0x90]);
        refused(NumberFormat::Bits4, 2, &[one[0], one[1], 0x09]);
        refused(NumberFormat::Bits4, 1, &[one[0], one[1], 0x19]);
        refused(NumberFormat::F16, 1, &[one[0], one[1], 0, 0x7c]);
        for format in NumberFormat::ALL {
            let (bytes, _) = packed(format, &numbers(70), 1);
            (0..bytes.len()).for_each(|len| refused(format, 70, &bytes[..len]));
            refused(format, usize::MAX, &bytes);
        }
    }
}
