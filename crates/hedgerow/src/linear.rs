//! [`Cholesky`]: systems of linear equations with a symmetric positive matrix.

/// A = L·Lᵀ, ready to solve with.
pub(crate) struct Cholesky {
    /// L, lower triangle row by row.
    factor: Vec<f64>,
    len: usize,
}

/// Where a row of a lower triangle begins.
fn triangle_row(row: usize) -> usize {
    row * (row + 1) / 2
}

impl Cholesky {
    /// Of a matrix (lower triangle row by row) plus `penalty` on its diagonal. A direction in which no more than `tiny` is left gets no
    /// weight.
    pub(crate) fn new(mut factor: Vec<f64>, len: usize, penalty: f64, tiny: f64) -> Self {
        let row = triangle_row;
        for i in 0..len {
            for j in 0..=i {
                let (a, b) = (&factor[row(i)..row(i) + j], &factor[row(j)..row(j) + j]);
                let dot: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                let entry = factor[row(i) + j] - dot;
                factor[row(i) + j] = if i == j {
                    let pivot = entry + penalty;
                    if pivot > tiny { pivot.sqrt() } else { f64::INFINITY }
                } else {
                    entry / factor[row(j) + j]
                };
            }
        }
        Self { factor, len }
    }

    /// Turns b into A⁻¹b.
    pub(crate) fn solve(&self, w: &mut [f64]) {
        let (row, factor, len) = (triangle_row, &self.factor, self.len);
        for i in 0..len {
            let known: f64 = factor[row(i)..row(i) + i].iter().zip(w.iter()).map(|(a, w)| a * w).sum();
            w[i] = (w[i] - known) / factor[row(i) + i];
        }
        for i in (0..len).rev() {
            let known: f64 = (i + 1..len).map(|j| factor[row(j) + i] * w[j]).sum();
            w[i] = (w[i] - known) / factor[row(i) + i];
        }
    }
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
    fn directions_without_weight_stay_zero() {
        let mut w = [2.0, 0.0];
        Cholesky::new(vec![1.0, 1.0, 1.0], 2, 0.0, 1e-9).solve(&mut w);
        assert_eq!(w, [2.0, 0.0]);
    }
}
