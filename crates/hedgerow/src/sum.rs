//! [`ExactSum`]: a vector sum that comes out the same in whatever order its terms arrive.
//!
//! Each number is split into a whole number, a multiple of 2⁻³⁵ and a multiple of 2⁻⁷⁰, and the three are added as f64. As long as the
//! numbers stay below 2⁵³ in total and there are at most 2¹⁹ of them, no addition rounds: the sum is exact to 2⁻⁷⁰ per
//! term, so servers may take uploads in any order and relays may add on the way.

use serde::{Deserialize, Serialize};

use crate::simd::{self, Cpu};

/// A sum of vectors of f32.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ExactSum {
    /// From the coarsest to the finest.
    parts: [Vec<f64>; 3],
}

impl ExactSum {
    /// The sum of no vectors of this length.
    pub fn new(len: usize) -> Self {
        Self { parts: std::array::from_fn(|_| vec![0.0; len]) }
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
        simd::add_exactly(Cpu::detect(), &mut self.parts, values);
    }

    /// The sum so far, number by number.
    pub fn totals(&self) -> impl Iterator<Item = f64> {
        let [coarse, middle, fine] = &self.parts;
        coarse.iter().zip(middle).zip(fine).map(|((coarse, middle), fine)| coarse + (middle + fine))
    }

    /// Takes these totals for its own.
    pub(crate) fn set(&mut self, totals: impl Iterator<Item = f64>) {
        self.clear();
        self.parts[0].iter_mut().zip(totals).for_each(|(part, total)| *part = total);
    }

    /// Back to zero.
    pub fn clear(&mut self) {
        self.parts.iter_mut().for_each(|part| part.fill(0.0));
    }

    /// The sum of no vectors of another length.
    pub(crate) fn reset(&mut self, len: usize) {
        for part in &mut self.parts {
            part.clear();
            part.resize(len, 0.0);
        }
    }

    pub(crate) fn is_sound(&self, len: usize, farthest: f64) -> bool {
        self.parts.iter().all(|part| part.len() == len) && self.totals().all(|total| total.abs() <= farthest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
