//! [`ExactSum`]: a vector sum that comes out the same in whatever order its terms arrive, and
//! however they are grouped.
//!
//! Each number is split into a whole number, a multiple of 2⁻³⁵ and a multiple of 2⁻⁷⁰, and the
//! three are added as f64. As long as the numbers stay below 2⁵³ in total, no addition rounds,
//! because what has piled up in the finer parts is carried over to the coarser ones in time: the
//! sum is exact to 2⁻⁷⁰ per term, so servers may take uploads in any order and relays and threads
//! may add on the way.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::math;
use crate::simd::{self, Cpu};

/// Terms that can be added before the finer parts have to be carried over: each is at most half a
/// unit of the part above, whose units are 2³⁵ of its own, so 2¹⁹ would still fit.
const MOST_FRESH: u32 = 1 << 18;

/// 2³⁵: units of a part in a unit of the one above.
const UNITS: f64 = (1u64 << 35) as f64;

/// A sum of vectors of f32.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ExactSum {
    /// From the coarsest to the finest.
    parts: [Vec<f64>; 3],
    /// Terms since the finer parts were last carried over, as if what was left of them were terms
    /// too.
    fresh: u32,
    /// Whether that ever happened: if and only if there are more than [`MOST_FRESH`] terms, however
    /// they came.
    is_carried: bool,
}

impl ExactSum {
    /// The sum of no vectors of this length.
    pub fn new(len: usize) -> Self {
        Self { parts: core::array::from_fn(|_| vec![0.0; len]), fresh: 0, is_carried: false }
    }

    /// Length of the vectors.
    pub fn len(&self) -> usize {
        self.parts[0].len()
    }

    /// Whether vectors have no numbers.
    pub fn is_empty(&self) -> bool {
        self.parts[0].is_empty()
    }

    /// Adds a vector.
    ///
    /// # Panics
    /// If it has another length.
    pub fn add(&mut self, values: &[f32]) {
        assert_eq!(values.len(), self.len());
        self.make_room(1);
        simd::add_exactly(Cpu::detect(), &mut self.parts, values);
    }

    /// Adds all that another sum has.
    ///
    /// # Panics
    /// If its vectors have another length.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(other.len(), self.len());
        self.make_room(other.fresh);
        self.is_carried |= other.is_carried;
        for (part, other) in self.parts.iter_mut().zip(&other.parts) {
            part.iter_mut().zip(other).for_each(|(sum, number)| *sum += number);
        }
    }

    /// Counts terms that are about to come, and carries over before they could be too many.
    fn make_room(&mut self, terms: u32) {
        if self.fresh + terms > MOST_FRESH {
            let [coarse, middle, fine] = &mut self.parts;
            for ((coarse, middle), fine) in coarse.iter_mut().zip(middle).zip(fine) {
                [*coarse, *middle, *fine] = carried([*coarse, *middle, *fine]);
            }
            self.is_carried = true;
            // What is left is less than a unit: two halves.
            self.fresh = 2;
        }
        self.fresh += terms;
    }

    /// The sum so far, number by number.
    pub fn totals(&self) -> impl Iterator<Item = f64> {
        let [coarse, middle, fine] = &self.parts;
        coarse.iter().zip(middle).zip(fine).map(|((coarse, middle), fine)| {
            let parts = [*coarse, *middle, *fine];
            // When it was carried over depends on the order of the terms; what is left after doing
            // it once more doesn't.
            let [coarse, middle, fine] = if self.is_carried { carried(parts) } else { parts };
            coarse + (middle + fine)
        })
    }

    /// Takes these totals for its own.
    pub(crate) fn set(&mut self, totals: impl Iterator<Item = f64>) {
        self.clear();
        self.parts[0].iter_mut().zip(totals).for_each(|(part, total)| *part = total);
    }

    /// Takes these totals for its own: whole numbers, each to be divided by 2 to the power beside
    /// it, which is at most 35. What is left of a division has at most 53 bits.
    pub(crate) fn set_multiples(&mut self, totals: impl Iterator<Item = (i64, u32)>) {
        self.clear();
        // As if they were one term.
        self.fresh = 1;
        let [coarse, middle, _] = &mut self.parts;
        for ((coarse, middle), (total, power)) in coarse.iter_mut().zip(middle).zip(totals) {
            let half = (1 << power) >> 1;
            let whole = (total + half) >> power;
            *coarse = whole as f64;
            *middle = (total - (whole << power)) as f64 / (1_u64 << power) as f64;
        }
    }

    /// Back to zero.
    pub fn clear(&mut self) {
        self.parts.iter_mut().for_each(|part| part.fill(0.0));
        (self.fresh, self.is_carried) = (0, false);
    }

    /// The sum of no vectors of another length.
    pub(crate) fn reset(&mut self, len: usize) {
        for part in &mut self.parts {
            part.clear();
            part.resize(len, 0.0);
        }
        (self.fresh, self.is_carried) = (0, false);
    }

    /// Bytes of the numbers that it takes to hand it on.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.len() * self.len() * size_of::<f64>()
    }

    pub(crate) fn is_sound(&self, len: usize, farthest: f64) -> bool {
        // The finer parts are at most what their terms can make of them, with a little room for
        // what was left before.
        let finest = f64::from(MOST_FRESH);
        let most = [f64::INFINITY, finest, finest / UNITS];
        self.fresh <= MOST_FRESH
            && self.parts.iter().zip(most).all(|(part, most)| {
                part.len() == len && part.iter().all(|number| number.abs() <= most)
            })
            && self.totals().all(|total| total.abs() <= farthest)
    }
}

/// The same number with the middle part in [0, 1) and the fine one in [0, 2⁻³⁵): there is one such
/// way to write it.
fn carried([coarse, middle, fine]: [f64; 3]) -> [f64; 3] {
    let units = math::floor(fine * UNITS) / UNITS;
    let (middle, fine) = (middle + units, fine - units);
    let whole = math::floor(middle);
    [coarse + whole, middle - whole, fine]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Terms of all sizes, positive more often than not, so that they pile up.
    fn terms(count: u32) -> impl Iterator<Item = f32> {
        let stream = crate::random::CounterRng::from_seed(4);
        (0..u64::from(count)).map(move |at| {
            let size = 2f32.powi((stream.bits_at(3 * at) % 60) as i32 - 50);
            size * (stream.uniform_at(3 * at + 1) - 0.2) as f32
        })
    }

    #[test]
    fn a_million_terms_are_still_exact_however_they_are_grouped() {
        // As whole multiples of 2⁻⁷⁰, of which none is lost.
        const COUNT: u32 = 1_100_000;
        let whole = |term: f32| (f64::from(term) * 2f64.powi(70)) as i128;
        let exact: i128 = terms(COUNT).map(whole).sum();
        let sum = |terms: &mut dyn Iterator<Item = f32>| {
            let mut sum = ExactSum::new(1);
            terms.for_each(|term| sum.add(&[term]));
            sum
        };
        let flat = sum(&mut terms(COUNT));
        let total = flat.totals().next().unwrap();
        assert!(
            flat.is_carried && (total * 2f64.powi(70) - exact as f64).abs() <= 1e-15 * exact as f64
        );
        for size in [7, 99_991, 300_000, 600_000, COUNT] {
            let mut tree = ExactSum::new(1);
            let mut rest = terms(COUNT);
            for _ in 0..COUNT.div_ceil(size) {
                tree.merge(&sum(&mut rest.by_ref().take(size as usize)));
            }
            assert_eq!(tree.totals().next().map(f64::to_bits), Some(total.to_bits()), "{size}");
            assert!(tree.is_sound(1, 1e30));
        }
        // Few terms are added up as they always were.
        let few = sum(&mut terms(MOST_FRESH));
        assert!(!few.is_carried && few.fresh == MOST_FRESH);
    }

    #[test]
    fn saved_sums_that_can_t_be_are_refused() {
        let mut sound = ExactSum::new(2);
        sound.add(&[1.5, 2e-9]);
        assert!(sound.is_sound(2, 2.0) && !sound.is_sound(1, 2.0) && !sound.is_sound(2, 1.0));
        let spoils: [fn(&mut ExactSum); 4] = [
            |sum| sum.fresh = MOST_FRESH + 1,
            |sum| sum.parts[1][0] = 1e9,
            |sum| (sum.parts[1][0], sum.parts[0][0]) = (f64::NAN, 0.0),
            |sum| sum.parts[2][1] = 1.0,
        ];
        for (which, spoil) in spoils.iter().enumerate() {
            let mut sum = sound.clone();
            spoil(&mut sum);
            assert!(!sum.is_sound(2, 1e12), "{which}");
        }
    }

    proptest! {
        #[test]
        fn order_does_not_matter(
            values in proptest::collection::vec((-60i32..44, -1.0f32..1.0), 2..200),
            rotate in 0usize..200,
        ) {
            let values: Vec<f32> = values.iter().map(|(e, m)| m * 2f32.powi(*e)).collect();
            let sum = |values: &[f32]| {
                let mut sum = ExactSum::new(1);
                values.iter().for_each(|v| sum.add(&[*v]));
                sum.totals().next().unwrap()
            };
            let mut other = values.clone();
            other.rotate_left(rotate % values.len());
            prop_assert_eq!(sum(&values).to_bits(), sum(&other).to_bits());
            other.sort_by(f32::total_cmp);
            prop_assert_eq!(sum(&values).to_bits(), sum(&other).to_bits());
            let plain: f64 = values.iter().map(|v| f64::from(*v)).sum();
            prop_assert!((sum(&values) - plain).abs() <= 1e-9 * (1.0 + plain.abs()));
        }
    }
}
