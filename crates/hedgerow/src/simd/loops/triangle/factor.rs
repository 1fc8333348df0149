//! Triangular factors of positive matrices, and systems solved with them.

use super::{SIDE, add_to_row, chunks, start};
use crate::math;
use crate::simd::vector::Vector;
use crate::simd::wide::{WIDE, Wide};

/// Turns a matrix plus `penalty` on its diagonal into L, with A = L Lᵀ. A direction in which no
/// more than `tiny` is left has an infinite pivot.
#[inline(always)]
pub(crate) fn factor<V: Vector>(matrix: &mut [f64], len: usize, penalty: f64, tiny: f64) {
    for i in (0..len).step_by(SIDE) {
        for j in (0..=i).step_by(SIDE) {
            let products = tile_products::<V::Wide>(matrix, len, i, j);
            let columns = SIDE.min(len - j);
            if i == j {
                for (a, products) in products.iter().enumerate().take(columns) {
                    factor_row(matrix, i, a, products, penalty, tiny);
                }
                continue;
            }
            let inverse: [f64; SIDE] = core::array::from_fn(|b| 1.0 / matrix[start(j + b) + j + b]);
            let other = |b: usize, c: usize| matrix[start(j + b) + j + c];
            let below: [[f64; SIDE]; SIDE] = core::array::from_fn(|b| {
                core::array::from_fn(|c| if c < b { other(b, c) } else { 0.0 })
            });
            for (a, products) in products.iter().enumerate().take(len - i) {
                let at = start(i + a) + j;
                for b in 0..SIDE {
                    let mut entry = matrix[at + b] - products[b];
                    for c in 0..b {
                        entry = math::mul_add(-matrix[at + c], below[b][c], entry);
                    }
                    matrix[at + b] = entry * inverse[b];
                }
            }
        }
    }
}

/// One row of a tile on the diagonal.
#[inline(always)]
fn factor_row(
    matrix: &mut [f64],
    first: usize,
    a: usize,
    products: &[f64; SIDE],
    penalty: f64,
    tiny: f64,
) {
    let at = start(first + a) + first;
    for b in 0..=a {
        let mut entry = matrix[at + b] - products[b];
        for c in 0..b {
            entry = math::mul_add(-matrix[at + c], matrix[start(first + b) + first + c], entry);
        }
        matrix[at + b] = if a == b {
            let pivot = entry + penalty;
            if pivot > tiny { math::sqrt(pivot) } else { f64::INFINITY }
        } else {
            entry / matrix[start(first + b) + first + b]
        };
    }
}

/// Products of rows from `i` on with rows from `j` on, over the columns before `j`. The last row
/// stands in for rows that aren't there.
#[inline(always)]
fn tile_products<W: Wide>(matrix: &[f64], len: usize, i: usize, j: usize) -> [[f64; SIDE]; SIDE] {
    let row = |at: usize| &matrix[start(at.min(len - 1))..][..j];
    let rows: [&[f64]; SIDE] = core::array::from_fn(|a| row(i + a));
    let others: [&[f64]; SIDE] = core::array::from_fn(|b| row(j + b));
    let mut sums = [[W::splat(0.0); SIDE]; SIDE];
    let whole = j / WIDE * WIDE;
    let (row_chunks, other_chunks) =
        (rows.map(|row| chunks(row, whole)), others.map(|row| chunks(row, whole)));
    let mut entries = [W::splat(0.0); SIDE];
    for at in 0..whole / WIDE {
        for a in 0..SIDE {
            entries[a] = W::load(&row_chunks[a][at]);
        }
        for b in 0..SIDE {
            let other = W::load(&other_chunks[b][at]);
            for a in 0..SIDE {
                sums[a][b] = entries[a].mul_add(other, sums[a][b]);
            }
        }
    }
    if whole < j {
        for a in 0..SIDE {
            entries[a] = W::load_part(&rows[a][whole..]);
        }
        for b in 0..SIDE {
            let other = W::load_part(&others[b][whole..]);
            for a in 0..SIDE {
                sums[a][b] = entries[a].mul_add(other, sums[a][b]);
            }
        }
    }
    let mut products = [[0.0; SIDE]; SIDE];
    for a in 0..SIDE {
        products[a] = W::sums(sums[a]);
    }
    products
}

/// Turns b into A⁻¹b, where A = L Lᵀ.
#[inline(always)]
pub(crate) fn solve<V: Vector>(factor: &[f64], w: &mut [f64]) {
    let whole = w.len() / WIDE * WIDE;
    for first in (0..whole).step_by(WIDE) {
        solve_forward::<V::Wide, WIDE>(factor, w, first);
    }
    (whole..w.len()).for_each(|i| solve_forward::<V::Wide, 1>(factor, w, i));
    (whole..w.len()).rev().for_each(|i| solve_backward::<V::Wide, 1>(factor, w, i));
    for first in (0..whole).step_by(WIDE).rev() {
        solve_backward::<V::Wide, WIDE>(factor, w, first);
    }
}

/// `R` rows of L, where those before are solved.
#[inline(always)]
fn solve_forward<W: Wide, const R: usize>(factor: &[f64], w: &mut [f64], first: usize) {
    let (known, w) = w.split_at_mut(first);
    let mut solved = [0.0; R];
    for r in 0..R {
        let row = &factor[start(first + r)..][..=first + r];
        let (before, own) = row.split_at(first);
        let whole = first / WIDE * WIDE;
        let part = W::load_part(&before[whole..]);
        let mut sum = part.mul_add(W::load_part(&known[whole..]), W::splat(0.0));
        for (row, w) in chunks(before, whole).iter().zip(chunks(known, whole)) {
            sum = W::load(row).mul_add(W::load(w), sum);
        }
        let (mut left, inverse) = (w[r] - sum.sum(), 1.0 / own[r]);
        for c in 0..r {
            left = math::mul_add(-own[c], solved[c], left);
        }
        solved[r] = left * inverse;
    }
    w[..R].copy_from_slice(&solved);
}

/// `R` columns of Lᵀ, where those after are solved.
#[inline(always)]
fn solve_backward<W: Wide, const R: usize>(factor: &[f64], w: &mut [f64], first: usize) {
    let rows: [&[f64]; R] = core::array::from_fn(|r| &factor[start(first + r)..][..=first + r]);
    let (before, w) = w.split_at_mut(first);
    let mut solved = [0.0; R];
    for r in (0..R).rev() {
        let (mut left, inverse) = (w[r], 1.0 / rows[r][first + r]);
        for c in r + 1..R {
            left = math::mul_add(-rows[c][first + r], solved[c], left);
        }
        solved[r] = left * inverse;
    }
    w[..R].copy_from_slice(&solved);
    add_to_row::<W, R>(before, solved.map(|w| -w), rows);
}
