//! Symmetric matrices in f64, of which the lower triangle is there row by row.

use crate::math;
use crate::simd::vector::Vector;

/// Sums that run side by side, so that one addition needn't wait for the last.
const SUMS: usize = 8;

/// Writes A v.
#[inline(always)]
pub(crate) fn multiply_symmetric<V: Vector>(matrix: &[f64], v: &[f64], product: &mut [f64]) {
    let mut rest = matrix;
    for i in 0..v.len() {
        let (row, below) = rest.split_at(i + 1);
        rest = below;
        let (factor, mut sums, mut last) = (v[i], [0.0; SUMS], 0.0);
        // Row i is column i too.
        let (rows, row_tail) = row[..i].as_chunks::<SUMS>();
        let (vs, v_tail) = v[..i].as_chunks::<SUMS>();
        let (outs, out_tail) = product[..i].as_chunks_mut::<SUMS>();
        for ((row, v), out) in rows.iter().zip(vs).zip(outs) {
            for lane in 0..SUMS {
                sums[lane] = math::mul_add(row[lane], v[lane], sums[lane]);
                out[lane] = math::mul_add(row[lane], factor, out[lane]);
            }
        }
        for ((row, v), out) in row_tail.iter().zip(v_tail).zip(out_tail) {
            last = math::mul_add(*row, *v, last);
            *out = math::mul_add(*row, factor, *out);
        }
        product[i] = math::mul_add(row[i], factor, total(sums) + last);
    }
}

/// Adds factor·v vᵀ.
#[inline(always)]
pub(crate) fn add_square<V: Vector>(matrix: &mut [f64], v: &[f64], factor: f64) {
    let mut rest = matrix;
    for (i, of_row) in v.iter().enumerate() {
        let (row, below) = core::mem::take(&mut rest).split_at_mut(i + 1);
        rest = below;
        add_multiple(row, &v[..=i], factor * of_row);
    }
}

/// Turns a positive matrix into its inverse, and says whether it was one. Otherwise nothing useful
/// is left of it. `row` is as long as a row of the whole matrix.
#[inline(always)]
pub(crate) fn invert<V: Vector>(matrix: &mut [f64], row: &mut [f64]) -> bool {
    let len = row.len();
    let start = |i: usize| i * (i + 1) / 2;
    // A = L Lᵀ. The diagonal of L is replaced by its inverse.
    for i in 0..len {
        let (above, this) = matrix.split_at_mut(start(i));
        for j in 0..i {
            let other = &above[start(j)..=start(j) + j];
            this[j] = (this[j] - dot(&this[..j], &other[..j])) * other[j];
        }
        let pivot = this[i] - dot(&this[..i], &this[..i]);
        // Not positive, or not a number.
        if pivot.partial_cmp(&0.0) != Some(core::cmp::Ordering::Greater) || pivot.is_infinite() {
            return false;
        }
        this[i] = 1.0 / math::sqrt(pivot);
    }
    // M = L⁻¹, row by row from the rows above.
    for i in 0..len {
        let (above, this) = matrix.split_at_mut(start(i));
        row[..=i].copy_from_slice(&this[..=i]);
        this[..i].fill(0.0);
        for k in 0..i {
            add_multiple(&mut this[..=k], &above[start(k)..=start(k) + k], -row[k] * row[i]);
        }
    }
    // A⁻¹ = Mᵀ M. Rows above the current one are sums already.
    for k in 0..len {
        row[..=k].copy_from_slice(&matrix[start(k)..=start(k) + k]);
        matrix[start(k)..=start(k) + k].fill(0.0);
        for i in 0..=k {
            add_multiple(&mut matrix[start(i)..=start(i) + i], &row[..=i], row[i]);
        }
    }
    true
}

#[inline(always)]
fn add_multiple(out: &mut [f64], v: &[f64], factor: f64) {
    for (out, v) in out.iter_mut().zip(v) {
        *out = math::mul_add(factor, *v, *out);
    }
}

#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<SUMS>(), b.as_chunks::<SUMS>());
    let mut sums = [0.0; SUMS];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..SUMS {
            sums[lane] = math::mul_add(a[lane], b[lane], sums[lane]);
        }
    }
    let mut rest = 0.0;
    for (a, b) in a_rest.iter().zip(b_rest) {
        rest = math::mul_add(*a, *b, rest);
    }
    total(sums) + rest
}

#[inline(always)]
fn total([a, b, c, d, e, f, g, h]: [f64; SUMS]) -> f64 {
    ((a + e) + (b + f)) + ((c + g) + (d + h))
}
