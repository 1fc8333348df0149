//! Symmetric matrices, of which the lower triangle is there row by row.

use alloc::vec::Vec;

use super::triangle;
use crate::linear_algebra::Cholesky;
use crate::simd::{self, Cpu};

/// Buffers for what is worked out of a matrix.
#[derive(Default)]
pub(in crate::method) struct Work {
    factor: Vec<f64>,
}

impl Work {
    /// Turns v into (A + penalty·I)⁻¹v.
    pub(in crate::method) fn solve(&mut self, matrix: &[f64], penalty: f64, v: &mut [f64]) {
        self.factored(matrix, v.len(), penalty).solve(v);
    }

    /// Makes a matrix positive that isn't: its diagonal is raised by what is lacking.
    pub(super) fn repair(&mut self, matrix: &mut [f64], len: usize) {
        let lacking = self.lacking(matrix, len);
        if lacking > 0.0 {
            (0..len).for_each(|i| matrix[triangle(i) + i] += lacking);
        }
    }

    /// What has to be added to the diagonal, as the least of powers of two times a tiny part of the
    /// trace; 0 if nothing has to, but for rounding.
    fn lacking(&mut self, matrix: &[f64], len: usize) -> f64 {
        let trace = (0..len).map(|i| matrix[triangle(i) + i].abs()).sum::<f64>();
        let mut lacking = 1e-12 * trace;
        if trace == 0.0 || self.is_positive(matrix, len, lacking) {
            return 0.0;
        }
        // A few dozen doublings are enough, unless entries beside the diagonal are beyond reason.
        for _ in 0..200 {
            lacking *= 2.0;
            if self.is_positive(matrix, len, lacking) {
                break;
            }
        }
        lacking
    }

    /// Whether a matrix plus `penalty` on its diagonal is positive.
    fn is_positive(&mut self, matrix: &[f64], len: usize, penalty: f64) -> bool {
        self.factored(matrix, len, penalty).is_complete()
    }

    fn factored(&mut self, matrix: &[f64], len: usize, penalty: f64) -> Cholesky<&mut [f64]> {
        self.factor.clear();
        self.factor.extend_from_slice(&matrix[..triangle(len)]);
        Cholesky::new(&mut self.factor[..], len, penalty, 0.0)
    }
}

/// Adds v vᵀ.
pub(super) fn add_outer(matrix: &mut [f64], v: &[f64]) {
    simd::add_square(Cpu::detect(), matrix, v, 1.0);
}

/// Writes A v.
pub(super) fn multiply(matrix: &[f64], v: &[f64], product: &mut Vec<f64>) {
    product.clear();
    product.resize(v.len(), 0.0);
    simd::multiply_symmetric(Cpu::detect(), matrix, v, product);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_found_and_repaired() {
        let mut work = Work::default();
        // [1 2; 2 1] has the eigenvalues -1 and 3.
        let mut matrix = [1.0, 2.0, 1.0];
        let found = work.lacking(&matrix, 2);
        assert!((1.0..2.0).contains(&found), "{found}");
        work.repair(&mut matrix, 2);
        assert_eq!(matrix, [1.0 + found, 2.0, 1.0 + found]);
        assert!(work.is_positive(&matrix, 2, 0.0));
        assert_eq!(work.lacking(&[2.0, 1.0, 2.0], 2), 0.0);
        assert_eq!(work.lacking(&[0.0; 3], 2), 0.0);
        for sound in [[2.0, 1.0, 2.0], [0.0; 3], [5.0, 0.0, 0.0]] {
            let mut matrix = sound;
            work.repair(&mut matrix, 2);
            assert_eq!(matrix, sound);
        }
        let mut nothing_of_one = [1.0, 0.5, 0.0];
        work.repair(&mut nothing_of_one, 2);
        assert!(work.is_positive(&nothing_of_one, 2, 0.0), "{nothing_of_one:?}");
    }

    #[test]
    fn squares_are_added() {
        let mut matrix = [1.0, 2.0, 3.0];
        add_outer(&mut matrix, &[2.0, -1.0]);
        assert_eq!(matrix, [5.0, 0.0, 4.0]);
        let mut product = vec![];
        multiply(&matrix, &[1.0, 10.0], &mut product);
        assert_eq!(product, [5.0, 40.0]);
        let mut v = [6.0, 10.0];
        Work::default().solve(&matrix, 1.0, &mut v);
        assert!((v[0] - 1.0).abs() < 1e-12 && (v[1] - 2.0).abs() < 1e-12);
    }
}
