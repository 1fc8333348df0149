//! [`Cholesky`]: systems of linear equations with a symmetric positive matrix.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_NORM;
use crate::math;
use crate::simd::{self, Cpu};

/// A = L·Lᵀ, ready to solve with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cholesky<S = Vec<f64>> {
    /// L, lower triangle row by row.
    factor: S,
    len: usize,
}

/// Where a row of a lower triangle begins.
fn triangle_row(row: usize) -> usize {
    row * (row + 1) / 2
}

impl<S: AsRef<[f64]> + AsMut<[f64]>> Cholesky<S> {
    /// Of a matrix (lower triangle row by row) plus `penalty` on its diagonal. A direction in which
    /// no more than `tiny` is left gets no weight.
    pub(crate) fn new(mut entries: S, len: usize, penalty: f64, tiny: f64) -> Self {
        simd::factor(Cpu::detect(), entries.as_mut(), len, penalty, tiny);
        Self { factor: entries, len }
    }

    /// Whether every direction got a weight: the matrix is positive.
    pub(crate) fn is_complete(&self) -> bool {
        (0..self.len).all(|i| self.factor.as_ref()[triangle_row(i) + i].is_finite())
    }

    /// Turns b into A⁻¹b.
    pub(crate) fn solve(&self, w: &mut [f64]) {
        simd::solve(Cpu::detect(), self.factor.as_ref(), &mut w[..self.len]);
    }
}

impl Cholesky {
    /// Of the identity.
    pub(crate) fn identity(len: usize) -> Self {
        let mut factor = vec![0.0; triangle_row(len)];
        (0..len).for_each(|i| factor[triangle_row(i) + i] = 1.0);
        Self { factor, len }
    }

    /// Adds g·gᵀ to A with one rotation per direction, so that L stays a factor for all sizes.
    /// Overwrites `g`.
    pub(crate) fn add_square(&mut self, g: &mut [f64]) {
        let row = triangle_row;
        for j in 0..self.len {
            let pivot = math::hypot(self.factor[row(j) + j], g[j]);
            let (cos, sin) = (self.factor[row(j) + j] / pivot, g[j] / pivot);
            self.factor[row(j) + j] = pivot;
            for (i, g) in g.iter_mut().enumerate().skip(j + 1) {
                let entry = &mut self.factor[row(i) + j];
                (*entry, *g) = (cos * *entry + sin * *g, cos * *g - sin * *entry);
            }
        }
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The rows of L, each as long as its triangle is wide there.
    pub(crate) fn rows_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        let mut rest = self.factor.as_mut_slice();
        (0..self.len).map_while(move |i| {
            let (row, after) = core::mem::take(&mut rest).split_at_mut_checked(i + 1)?;
            rest = after;
            Some(row)
        })
    }

    /// Whether L belongs to a matrix of this size, and to one that can be solved with: no pivot
    /// below `least`, no entry beyond `most`.
    pub(crate) fn is_sound(&self, len: usize, least: f64, most: f64) -> bool {
        let bounds = -most..=most;
        self.len == len
            && self.factor.len() == triangle_row(len)
            && (0..len).all(|i| self.factor[triangle_row(i) + i] >= least)
            && self.factor.iter().all(|entry| bounds.contains(entry))
    }
}

/// aᵀb, as far as both reach.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    simd::dot_wide(Cpu::detect(), a, b)
}

/// Writes a vector, shortened to [`MAX_NORM`] if it is longer.
pub(crate) fn write_bounded(wide: &[f64], out: &mut [f32]) {
    let norm = math::sqrt(wide.iter().map(|number| number * number).sum());
    let factor = if norm > f64::from(MAX_NORM) { f64::from(MAX_NORM) / norm } else { 1.0 };
    out.iter_mut().zip(wide).for_each(|(number, wide)| *number = (wide * factor) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solutions_solve() {
        // [4 1 0; 1 3 1; 0 1 2] plus a half on the diagonal.
        let cholesky = Cholesky::new(vec![4.0, 1.0, 3.0, 0.0, 1.0, 2.0], 3, 0.5, 0.0);
        let mut w = [6.5, 11.0, 9.5];
        cholesky.solve(&mut w);
        for (found, expected) in w.iter().zip([1.0, 2.0, 3.0]) {
            assert!((found - expected).abs() < 1e-12, "{w:?}");
        }
    }

    #[test]
    fn products_are_products() {
        // [2 1 0; 1 3 -1; 0 -1 4].
        let mut product = [f64::NAN; 3];
        simd::multiply_symmetric(
            Cpu::detect(),
            &[2.0, 1.0, 3.0, 0.0, -1.0, 4.0],
            &[1.0, 2.0, 3.0],
            &mut product,
        );
        assert_eq!(product, [4.0, 4.0, 10.0]);
        let numbers: Vec<f64> = (0..29).map(f64::from).collect();
        assert_eq!(dot(&numbers, &numbers), 28.0 * 29.0 * 57.0 / 6.0);
    }

    #[test]
    fn adding_squares_is_factoring_anew() {
        let mut grown = Cholesky::identity(3);
        let mut triangle = vec![1.0, 0.0, 1.0, 0.0, 0.0, 1.0];
        for g in [[0.5, -2.0, 1.0], [30.0, 0.0, -7.0], [0.0, 1e-3, 4.0]] {
            for (i, j, at) in [(0, 0, 0), (1, 0, 1), (1, 1, 2), (2, 0, 3), (2, 1, 4), (2, 2, 5)] {
                triangle[at] += g[i] * g[j];
            }
            grown.add_square(&mut g.clone());
            let anew = Cholesky::new(triangle.clone(), 3, 0.0, 0.0);
            for (found, expected) in grown.factor.iter().zip(&anew.factor) {
                assert!(
                    (found - expected).abs() < 1e-9 * (1.0 + expected.abs()),
                    "{grown:?}, {anew:?}"
                );
            }
        }
        assert!(
            grown.is_sound(3, 1.0, 100.0)
                && !grown.is_sound(3, 1e3, 1e9)
                && !grown.is_sound(2, 0.0, 1e9)
        );
        let lengths: Vec<usize> = grown.rows_mut().map(|row| row.len()).collect();
        assert_eq!(lengths, [1, 2, 3]);
    }

    #[test]
    fn directions_without_weight_stay_zero() {
        let mut w = [2.0, 0.0];
        Cholesky::new(vec![1.0, 1.0, 1.0], 2, 0.0, 1e-9).solve(&mut w);
        assert_eq!(w, [2.0, 0.0]);
    }
}
