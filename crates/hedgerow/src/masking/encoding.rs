//! Numbers as whole numbers of fixed point: what masks are added to.

use alloc::vec::Vec;

use crate::math;

/// How numbers become words: multiples of 2^-fraction, modulo 2 to the bits of a word.
///
/// Terms are bounded so that their sum takes at most half of the range of a word. A sum with masks
/// that don't fit lies outside of it as often as not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedPoint {
    /// Bytes of a word: 4, 6 or 8.
    bytes: usize,
    fraction: u32,
    /// Largest size of a term, in multiples.
    bound: i64,
    terms: u64,
}

impl FixedPoint {
    /// The smallest words in which sums of so many numbers up to 2^magnitude have at least the
    /// first of these fractions, or else the largest words. Room that is left goes to the fraction,
    /// up to the second of them, and then to the magnitude.
    pub fn new(terms: usize, magnitude: u32, (least, most): (u32, u32)) -> Self {
        let terms = terms.max(1) as u64;
        // A sign, and the half that sums don't take.
        let taken = 2 + terms.next_power_of_two().trailing_zeros();
        let fits = |bytes: &usize| 8 * *bytes as u32 >= taken + magnitude + least;
        let bytes = [4, 6, 8].into_iter().find(fits).unwrap_or(8);
        let bits = 8 * bytes as u32;
        let fraction = bits.saturating_sub(taken + magnitude).clamp(least, most);
        Self { bytes, fraction, bound: 1 << (bits - taken), terms }
    }

    /// Bytes of a word.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// The power of two that words are to be divided by.
    pub fn fraction(self) -> u32 {
        self.fraction
    }

    /// Largest size of a term; larger ones are sent as this.
    pub fn bound(self) -> f64 {
        self.bound as f64 / self.unit()
    }

    /// Multiples in one.
    fn unit(self) -> f64 {
        (1_u64 << self.fraction) as f64
    }

    /// The nearest multiple of a term within the bound.
    pub fn encode(self, term: f64) -> i64 {
        let bound = self.bound as f64;
        math::floor((term * self.unit()).clamp(-bound, bound) + 0.5) as i64
    }

    /// The sum that a word stands for, in multiples, if it can be one.
    fn read_sum(self, word: u64) -> Option<i64> {
        let unused = 64 - 8 * self.bytes as u32;
        let sum = (word << unused) as i64 >> unused;
        (sum.unsigned_abs() <= self.bound as u64 * self.terms).then_some(sum)
    }
}

/// The words of a masked upload, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedLayout {
    /// How many words in a row have the same format.
    fields: Vec<(usize, FixedPoint)>,
}

impl MaskedLayout {
    pub(super) fn new(fields: Vec<(usize, FixedPoint)>) -> Self {
        Self { fields }
    }

    /// Words of an upload.
    pub fn words(&self) -> usize {
        self.fields.iter().map(|(count, _)| count).sum()
    }

    /// Bytes of an upload.
    pub fn bytes(&self) -> usize {
        self.fields.iter().map(|(count, format)| count * format.bytes).sum()
    }

    /// The format of each word.
    pub fn formats(&self) -> impl Iterator<Item = FixedPoint> {
        self.fields.iter().flat_map(|(count, format)| core::iter::repeat_n(*format, *count))
    }

    /// Terms as words, which are modulo 2 to the bits of their format.
    pub(super) fn encode(&self, terms: impl Iterator<Item = f64>) -> Vec<u64> {
        self.formats().zip(terms).map(|(format, term)| format.encode(term) as u64).collect()
    }

    /// Words as bytes.
    pub(super) fn pack(&self, words: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes());
        for (format, word) in self.formats().zip(words) {
            bytes.extend_from_slice(&word.to_le_bytes()[..format.bytes]);
        }
        bytes
    }

    /// Adds packed words.
    pub(super) fn add(&self, words: &mut [u64], bytes: &[u8]) {
        self.combine(words, bytes, u64::wrapping_add);
    }

    /// Subtracts packed words.
    pub(super) fn subtract(&self, words: &mut [u64], bytes: &[u8]) {
        self.combine(words, bytes, u64::wrapping_sub);
    }

    fn combine(&self, mut words: &mut [u64], mut bytes: &[u8], with: fn(u64, u64) -> u64) {
        for (count, format) in &self.fields {
            let (own, words_left) = words.split_at_mut(*count);
            let (packed, bytes_left) = bytes.split_at(count * format.bytes);
            for (own, word) in own.iter_mut().zip(packed.chunks_exact(format.bytes)) {
                let mut all = [0; 8];
                all[..format.bytes].copy_from_slice(word);
                *own = with(*own, u64::from_le_bytes(all));
            }
            (words, bytes) = (words_left, bytes_left);
        }
    }

    /// The sums that words stand for, in multiples with their fractions, if all can be one.
    pub(super) fn read_sums(&self, words: &[u64]) -> Option<Vec<(i64, u32)>> {
        let sums = self.formats().zip(words);
        sums.map(|(format, word)| Some((format.read_sum(*word)?, format.fraction))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_grow_with_the_terms() {
        let sizes = |terms: usize| {
            let format = FixedPoint::new(terms, 8, (16, 30));
            (format.bytes(), format.fraction(), format.bound())
        };
        assert_eq!(sizes(1), (4, 22, 256.0));
        assert_eq!(sizes(20), (4, 17, 256.0));
        assert_eq!(sizes(64), (4, 16, 256.0));
        assert_eq!(sizes(65), (6, 30, 512.0));
        assert_eq!(sizes(1 << 20), (6, 18, 256.0));
        assert_eq!(sizes(u32::MAX as usize), (8, 22, 256.0));
        // The largest words have the least fraction at the expense of the magnitude.
        let format = FixedPoint::new(1 << 20, 34, (24, 24));
        assert_eq!((format.bytes(), format.bound()), (8, 2f64.powi(18)));
    }

    proptest! {
        #[test]
        fn sums_come_back_whatever_wraps_on_the_way(
            terms in proptest::collection::vec(-400.0f32..400.0, 1..100),
            masks in any::<u64>(),
        ) {
            for (magnitude, fractions) in [(8, (16, 30)), (0, (0, 0)), (32, (0, 0)), (34, (24, 24))]
            {
                let format = FixedPoint::new(terms.len(), magnitude, fractions);
                let layout = MaskedLayout::new(vec![(1, format)]);
                let (mut words, mut expected, mut mask) = ([0], 0, masks);
                let mut sum_of_masks = [0];
                for term in &terms {
                    let own = format.encode(f64::from(*term));
                    let exact = f64::from(*term).clamp(-format.bound(), format.bound());
                    prop_assert!((own as f64 / format.unit() - exact).abs() <= 0.5 / format.unit());
                    expected += own;
                    mask = mask.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
                    layout.add(&mut words, &layout.pack(&[(own as u64).wrapping_add(mask)]));
                    layout.add(&mut sum_of_masks, &layout.pack(&[mask]));
                }
                layout.subtract(&mut words, &layout.pack(&sum_of_masks));
                prop_assert_eq!(layout.read_sums(&words).unwrap(), [(expected, format.fraction)]);
            }
        }
    }

    #[test]
    fn sums_beyond_their_bound_are_refused() {
        let format = FixedPoint::new(3, 8, (16, 30));
        let most = format.bound as u64 * 3;
        assert_eq!(format.read_sum(most), Some(most as i64));
        assert_eq!(format.read_sum(most.wrapping_neg()), Some(-(most as i64)));
        assert_eq!(format.read_sum(most + 1), None);
        assert_eq!(format.read_sum((most + 1).wrapping_neg()), None);
        assert_eq!(format.encode(f64::INFINITY), format.bound);
        assert_eq!(format.encode(-1e30), -format.bound);
    }
}
