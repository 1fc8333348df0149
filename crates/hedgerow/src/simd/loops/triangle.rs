//! Symmetric matrices in f64, of which the lower triangle is there row by row.

use crate::math;
use crate::simd::vector::Vector;
use crate::simd::wide::{WIDE, Wide};

/// Rows on either side of a tile whose sums stay in registers; also the columns that are worked
/// into the others at once.
const SIDE: usize = 4;

/// Where a row begins.
#[inline(always)]
fn start(row: usize) -> usize {
    row * (row + 1) / 2
}

/// The first numbers of a vector, `len` of them, which is a multiple of eight.
#[inline(always)]
fn chunks(v: &[f64], len: usize) -> &[[f64; WIDE]] {
    &v[..len].as_chunks().0[..len / WIDE]
}

#[inline(always)]
fn chunks_mut(v: &mut [f64], len: usize) -> &mut [[f64; WIDE]] {
    &mut v[..len].as_chunks_mut().0[..len / WIDE]
}

/// Lanes of `v` from `at` on, zeros beyond its end.
#[inline(always)]
fn load_from<W: Wide>(v: &[f64], at: usize) -> W {
    match v[at..].first_chunk() {
        Some(eight) => W::load(eight),
        None => W::load_part(&v[at..]),
    }
}

/// Stores lanes to `v` from `at` on, none beyond its end.
#[inline(always)]
fn store_to<W: Wide>(lanes: W, v: &mut [f64], at: usize) {
    match v[at..].first_chunk_mut() {
        Some(eight) => lanes.store(eight),
        None => {
            let mut all = [0.0; WIDE];
            lanes.store(&mut all);
            v[at..].iter_mut().zip(all).for_each(|(number, lane)| *number = lane);
        }
    }
}

/// Writes A v, and of each other vector u the sums (Lᵀ + ½D)u, where L is what is below the
/// diagonal D. (With p and q of two vectors, uᵀAv is p·v + q·u.)
#[inline(always)]
pub(crate) fn multiply_with_halves<V: Vector>(
    matrix: &[f64],
    v: &[f64],
    product: &mut [f64],
    others: [&[f64]; 2],
    halves: [&mut [f64]; 2],
) {
    multiply::<V::Wide, 2>(matrix, v, product, others, halves);
}

/// Writes A v.
#[inline(always)]
pub(crate) fn multiply_symmetric<V: Vector>(matrix: &[f64], v: &[f64], product: &mut [f64]) {
    multiply::<V::Wide, 0>(matrix, v, product, [], []);
}

#[inline(always)]
fn multiply<W: Wide, const N: usize>(
    matrix: &[f64],
    v: &[f64],
    product: &mut [f64],
    others: [&[f64]; N],
    mut halves: [&mut [f64]; N],
) {
    let (len, mut i) = (v.len(), 0);
    while i + SIDE <= len {
        multiply_rows::<W, N, SIDE>(matrix, i, v, product, others, &mut halves);
        i += SIDE;
    }
    while i < len {
        multiply_rows::<W, N, 1>(matrix, i, v, product, others, &mut halves);
        i += 1;
    }
}

/// The part of `R` rows from `first` on, a multiple of `R`, that are columns too.
#[inline(always)]
fn multiply_rows<W: Wide, const N: usize, const R: usize>(
    matrix: &[f64],
    first: usize,
    v: &[f64],
    product: &mut [f64],
    others: [&[f64]; N],
    halves: &mut [&mut [f64]; N],
) {
    let rows: [&[f64]; R] = core::array::from_fn(|r| {
        let row = first + r;
        &matrix[start(row)..=start(row) + row]
    });
    let zero = W::splat(0.0);
    let (mut factors, mut other_factors) = ([zero; R], [[zero; R]; N]);
    for r in 0..R {
        factors[r] = W::splat(v[first + r]);
        for n in 0..N {
            other_factors[n][r] = W::splat(others[n][first + r]);
        }
    }
    let mut sums = [zero; SIDE];
    let last = first / WIDE * WIDE;
    let rows_before = rows.map(|row| chunks(row, last));
    let (v_before, out_before) = (chunks(v, last), chunks_mut(product, last));
    for at in 0..last / WIDE {
        let (of_v, mut out) = (W::load(&v_before[at]), W::load(&out_before[at]));
        let mut entries = [zero; R];
        for r in 0..R {
            entries[r] = W::load(&rows_before[r][at]);
            sums[r] = entries[r].mul_add(of_v, sums[r]);
            out = entries[r].mul_add(factors[r], out);
        }
        out.store(&mut out_before[at]);
        for n in 0..N {
            let half_before = chunks_mut(halves[n], last);
            let mut out = W::load(&half_before[at]);
            for r in 0..R {
                out = entries[r].mul_add(other_factors[n][r], out);
            }
            out.store(&mut half_before[at]);
        }
    }
    // The rows of one block end in the same lanes, where the first of them is the first to add.
    let (of_v, mut out, mut outs) = (load_from::<W>(v, last), zero, [zero; N]);
    if first > last {
        out = load_from(product, last);
        for n in 0..N {
            outs[n] = load_from(halves[n], last);
        }
    }
    let half = W::splat(0.5);
    for r in 0..R {
        let whole = W::load_part(&rows[r][last..]);
        let below = W::load_part(&rows[r][last..first + r]);
        sums[r] = whole.mul_add(of_v, sums[r]);
        out = below.mul_add(factors[r], out);
        let both = half.mul_add(whole, half.mul_add(below, zero));
        for n in 0..N {
            outs[n] = both.mul_add(other_factors[n][r], outs[n]);
        }
    }
    for n in 0..N {
        store_to(outs[n], halves[n], last);
    }
    let mut lanes = [0.0; WIDE];
    lanes[first - last..first - last + R].copy_from_slice(&W::sums(sums)[..R]);
    store_to(out.add(W::load(&lanes)), product, last);
}

/// Adds z zᵀ of each of some rows of numbers to a triangle, and z y to `moment`.
#[inline(always)]
pub(crate) fn add_gram<V: Vector>(gram: &mut [f64], moment: &mut [f64], z: &[f64], y: &[f64]) {
    let width = moment.len();
    let (mut z, mut y) = (z, y);
    while let (Some((rows, below)), Some((labels, more))) =
        (z.split_at_checked(SIDE * width), y.split_first_chunk::<SIDE>())
    {
        let rows: [&[f64]; SIDE] = core::array::from_fn(|s| &rows[s * width..][..width]);
        add_products::<V::Wide, SIDE>(gram, 1.0, rows);
        rows.iter().zip(labels).for_each(|(row, label)| add_scaled(moment, row, *label));
        (z, y) = (below, more);
    }
    for (row, label) in z.chunks_exact(width).zip(y) {
        add_products::<V::Wide, 1>(gram, 1.0, [row]);
        add_scaled(moment, row, *label);
    }
}

/// Adds factor·v vᵀ.
#[inline(always)]
pub(crate) fn add_square<V: Vector>(matrix: &mut [f64], v: &[f64], factor: f64) {
    add_products::<V::Wide, 1>(matrix, factor, [v]);
}

/// Adds factor·Σ v vᵀ.
#[inline(always)]
fn add_products<W: Wide, const S: usize>(matrix: &mut [f64], factor: f64, columns: [&[f64]; S]) {
    let (mut rest, mut i) = (matrix, 0);
    while i < columns[0].len() {
        let is_group = i >= WIDE && i + SIDE <= columns[0].len();
        let count = if is_group { SIDE } else { 1 };
        let (rows, below) = core::mem::take(&mut rest).split_at_mut(start(i + count) - start(i));
        rest = below;
        if is_group {
            add_to_rows::<W, S>(rows, i, factor, columns);
        } else {
            add_to_row::<W, S>(rows, columns.map(|column| factor * column[i]), columns);
        }
        i += count;
    }
}

/// Four rows from `first` on, a multiple of four, so that the vectors are loaded once for all.
#[inline(always)]
fn add_to_rows<W: Wide, const S: usize>(
    mut rows: &mut [f64],
    first: usize,
    factor: f64,
    columns: [&[f64]; S],
) {
    let rows: [&mut [f64]; SIDE] = core::array::from_fn(|r| {
        let (row, below) = core::mem::take(&mut rows).split_at_mut(first + r + 1);
        rows = below;
        row
    });
    let zero = W::splat(0.0);
    let (mut factors, mut tails) = ([[zero; S]; SIDE], [zero; SIDE]);
    let whole = first / WIDE * WIDE;
    for r in 0..SIDE {
        // The last eight are loaded before some of them change, and stored in the end.
        let last = first + r + 1 - WIDE;
        tails[r] = load_from(rows[r], last);
        for s in 0..S {
            factors[r][s] = W::splat(factor * columns[s][first + r]);
            tails[r] = factors[r][s].mul_add(load_from(&columns[s][..=first + r], last), tails[r]);
        }
    }
    let chunks_of = columns.map(|column| chunks(column, whole));
    let [a, b, c, d] = rows;
    {
        let entries = [&mut *a, &mut *b, &mut *c, &mut *d].map(|row| chunks_mut(row, whole));
        for at in 0..whole / WIDE {
            let mut of_columns = [zero; S];
            for s in 0..S {
                of_columns[s] = W::load(&chunks_of[s][at]);
            }
            for r in 0..SIDE {
                let mut sum = W::load(&entries[r][at]);
                for s in 0..S {
                    sum = factors[r][s].mul_add(of_columns[s], sum);
                }
                sum.store(&mut entries[r][at]);
            }
        }
    }
    for (r, row) in [a, b, c, d].into_iter().enumerate() {
        store_to(tails[r], row, first + r + 1 - WIDE);
    }
}

/// Adds multiples of vectors, which may be longer than the row.
#[inline(always)]
fn add_to_row<W: Wide, const S: usize>(row: &mut [f64], factors: [f64; S], columns: [&[f64]; S]) {
    let len = row.len();
    let Some(last) = len.checked_sub(WIDE) else {
        for (j, entry) in row.iter_mut().enumerate() {
            for s in 0..S {
                *entry = math::mul_add(factors[s], columns[s][j], *entry);
            }
        }
        return;
    };
    let columns = columns.map(|column| &column[..len]);
    let mut splats = [W::splat(0.0); S];
    for s in 0..S {
        splats[s] = W::splat(factors[s]);
    }
    // The last eight are loaded before some of them change, and stored in the end.
    let mut tail = load_from::<W>(row, last);
    for s in 0..S {
        tail = splats[s].mul_add(load_from(columns[s], last), tail);
    }
    let chunks = columns.map(|column| column.as_chunks::<WIDE>().0);
    let entries = row.as_chunks_mut::<WIDE>().0;
    for at in 0..(len - 1) / WIDE {
        let mut sum = W::load(&entries[at]);
        for s in 0..S {
            sum = splats[s].mul_add(W::load(&chunks[s][at]), sum);
        }
        sum.store(&mut entries[at]);
    }
    store_to(tail, row, last);
}

#[inline(always)]
pub(crate) fn dot_wide<V: Vector>(a: &[f64], b: &[f64]) -> f64 {
    let len = a.len().min(b.len());
    let whole = len / WIDE * WIDE;
    let part = V::Wide::load_part(&a[whole..len]);
    let part = part.mul_add(V::Wide::load_part(&b[whole..len]), V::Wide::splat(0.0));
    // Two sums in turns, so that one addition needn't wait for the last.
    let mut sums = [part, V::Wide::splat(0.0)];
    for (a, b) in chunks(a, whole).iter().zip(chunks(b, whole)) {
        sums = [sums[1], V::Wide::load(a).mul_add(V::Wide::load(b), sums[0])];
    }
    sums[0].add(sums[1]).sum()
}

#[inline(always)]
pub(crate) fn widen<V: Vector>(z: &[f32], factor: f64, out: &mut [f64]) {
    for (out, z) in out.iter_mut().zip(z) {
        *out = factor * f64::from(*z);
    }
}

/// Adds a multiple of a vector.
#[inline(always)]
pub(crate) fn add_multiple<V: Vector>(out: &mut [f64], v: &[f64], factor: f64) {
    add_scaled(out, v, factor);
}

#[inline(always)]
fn add_scaled(out: &mut [f64], v: &[f64], factor: f64) {
    for (out, v) in out.iter_mut().zip(v) {
        *out = math::mul_add(factor, *v, *out);
    }
}

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

/// Turns a positive matrix into its inverse, and says whether it was one. Otherwise nothing useful
/// is left of it. `columns` is four times as long as the matrix is wide.
///
/// Four columns K at a time: with A_KK = L Lᵀ and U = A_·K L⁻ᵀ, the rest becomes A − U Uᵀ, the
/// columns become U L⁻¹ and A_KK becomes −(L Lᵀ)⁻¹. After all columns the matrix is −A⁻¹.
#[inline(always)]
pub(crate) fn invert<V: Vector>(matrix: &mut [f64], columns: &mut [f64]) -> bool {
    let len = columns.len() / SIDE;
    let mut k = 0;
    while k + SIDE <= len {
        if !sweep::<V::Wide, SIDE>(matrix, len, k, columns) {
            return false;
        }
        k += SIDE;
    }
    while k < len {
        if !sweep::<V::Wide, 1>(matrix, len, k, columns) {
            return false;
        }
        k += 1;
    }
    matrix[..start(len)].iter_mut().for_each(|entry| *entry = -*entry);
    true
}

/// Works `S` columns from `k` on into the others.
#[inline(always)]
fn sweep<W: Wide, const S: usize>(
    matrix: &mut [f64],
    len: usize,
    k: usize,
    mut columns: &mut [f64],
) -> bool {
    let mut u: [&mut [f64]; S] = core::array::from_fn(|_| {
        let (column, rest) = core::mem::take(&mut columns).split_at_mut(len);
        columns = rest;
        column
    });
    let Some((l, inverse)) = factor_small::<S>(matrix, k) else { return false };
    for (s, column) in u.iter_mut().enumerate() {
        column[..k].copy_from_slice(&matrix[start(k + s)..][..k]);
        column[k..k + S].fill(0.0);
    }
    let mut at = start(k + S) + k;
    for i in k + S..len {
        let few = &matrix[at..at + S];
        u.iter_mut().zip(few).for_each(|(column, few)| column[i] = *few);
        at += i + 1;
    }
    for s in 0..S {
        let (before, rest) = u.split_at_mut(s);
        for (t, other) in before.iter().enumerate() {
            add_scaled(rest[0], other, -l[s][t]);
        }
        rest[0].iter_mut().for_each(|entry| *entry *= inverse[s][s]);
    }
    add_products::<W, S>(matrix, -1.0, core::array::from_fn(|s| &*u[s]));
    for s in 0..S {
        let (before, rest) = u.split_at_mut(s + 1);
        before[s].iter_mut().for_each(|entry| *entry *= inverse[s][s]);
        for (t, other) in rest.iter().enumerate() {
            add_scaled(before[s], other, inverse[s + 1 + t][s]);
        }
    }
    for (s, column) in u.iter().enumerate() {
        matrix[start(k + s)..][..k].copy_from_slice(&column[..k]);
        for t in 0..=s {
            let product = (s..S).map(|c| inverse[c][s] * inverse[c][t]).sum::<f64>();
            matrix[start(k + s) + k + t] = -product;
        }
    }
    let mut at = start(k + S) + k;
    for i in k + S..len {
        let few = &mut matrix[at..at + S];
        u.iter().zip(few).for_each(|(column, few)| *few = column[i]);
        at += i + 1;
    }
    true
}

/// A few rows and columns.
type Small<const S: usize> = [[f64; S]; S];

/// L and L⁻¹ of `S` rows and columns from `k` on, if these are positive.
#[inline(always)]
fn factor_small<const S: usize>(matrix: &[f64], k: usize) -> Option<(Small<S>, Small<S>)> {
    let (mut l, mut inverse) = ([[0.0; S]; S], [[0.0; S]; S]);
    for a in 0..S {
        for b in 0..a {
            let before = (0..b).map(|c| l[a][c] * l[b][c]).sum::<f64>();
            l[a][b] = (matrix[start(k + a) + k + b] - before) * inverse[b][b];
        }
        let pivot = matrix[start(k + a) + k + a] - l[a].iter().map(|l| l * l).sum::<f64>();
        // Not positive, or not a number.
        if !(pivot > 0.0 && pivot < f64::INFINITY) {
            return None;
        }
        l[a][a] = math::sqrt(pivot);
        inverse[a][a] = 1.0 / l[a][a];
        for b in 0..a {
            let before = (b..a).map(|c| l[a][c] * inverse[c][b]).sum::<f64>();
            inverse[a][b] = -before * inverse[a][a];
        }
    }
    Some((l, inverse))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::random::CounterRng;
    use crate::simd::{self, Cpu};

    /// Whole blocks, parts of them, and less than one.
    const SIZES: [usize; 9] = [1, 3, 4, 7, 8, 13, 24, 31, 84];

    struct Case {
        matrix: Vec<f64>,
        vectors: [Vec<f64>; 3],
    }

    impl Case {
        /// A positive matrix and some vectors.
        fn new(len: usize) -> Self {
            let stream = CounterRng::from_seed(len as u64);
            let number = |at: usize| 2.0 * stream.uniform_at(at as u64) - 1.0;
            let vector = |at: usize| (0..len).map(|i| number(at * len + i)).collect::<Vec<_>>();
            let mut matrix = vec![0.0; start(len)];
            (0..len).for_each(|i| matrix[start(i) + i] = 1.0);
            for at in 3..3 + 2 * len {
                let row = vector(at);
                for i in 0..len {
                    (0..=i).for_each(|j| matrix[start(i) + j] += row[i] * row[j]);
                }
            }
            Self { matrix, vectors: [0, 1, 2].map(vector) }
        }

        fn len(&self) -> usize {
            self.vectors[0].len()
        }

        /// A v from the definition.
        fn times(&self, v: &[f64]) -> Vec<f64> {
            let entry = |i: usize, j: usize| self.matrix[start(i.max(j)) + i.min(j)];
            let len = self.len();
            (0..len).map(|i| (0..len).map(|j| entry(i, j) * v[j]).sum()).collect()
        }

        /// All that the loops find.
        fn found(&self, cpu: Cpu) -> Vec<Vec<f64>> {
            let (len, [u, v, w]) = (self.len(), &self.vectors);
            let [mut product, mut once, mut of_v, mut of_w] = [0; 4].map(|_| vec![f64::NAN; len]);
            simd::multiply_symmetric(cpu, &self.matrix, u, &mut once);
            let halves = [&mut of_v[..], &mut of_w];
            simd::multiply_with_halves(cpu, &self.matrix, u, &mut product, [v, w], halves);
            let (mut inverse, mut factor) = (self.matrix.clone(), self.matrix.clone());
            assert!(simd::invert(cpu, &mut inverse, &mut vec![0.0; 4 * len]));
            simd::factor(cpu, &mut factor, len, 0.5, 0.0);
            let mut solved = u.clone();
            simd::solve(cpu, &factor, &mut solved);
            let (mut gram, mut moment) = (self.matrix.clone(), w.clone());
            let rows = [u, v, w, u, v].map(|row| &row[..]).concat();
            simd::add_gram(cpu, &mut gram, &mut moment, &rows, &[1.0, 2.0, 3.0, 4.0, 5.0]);
            let mut square = self.matrix.clone();
            simd::add_square(cpu, &mut square, v, -0.25);
            let dots = vec![simd::dot_wide(cpu, u, v), simd::dot_wide(cpu, &u[..len / 2], v)];
            vec![once, product, of_v, of_w, inverse, factor, solved, gram, moment, square, dots]
        }
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let near = 1e-9 * (1.0 + expected.abs());
            assert!((found - expected).abs() < near, "{found} instead of {expected}");
        }
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        for len in SIZES {
            let case = Case::new(len);
            let bits = |cpu| {
                let found = case.found(cpu).concat();
                found.iter().map(|number| number.to_bits()).collect::<Vec<_>>()
            };
            for cpu in [Cpu::Avx2, Cpu::Avx512] {
                assert_eq!(bits(Cpu::Plain), bits(cpu), "{} {len}", cpu.name());
            }
        }
    }

    #[test]
    fn products_factors_and_inverses_are_right() {
        for len in SIZES {
            let case = Case::new(len);
            let [u, v, w] = &case.vectors;
            let found = case.found(Cpu::detect());
            let [once, product, of_v, of_w, inverse, factor, solved, gram, moment, square, dots] =
                &found[..]
            else {
                unreachable!("so many results")
            };
            assert_near(once, &case.times(u));
            assert_near(product, &case.times(u));
            let forms = [dot(of_v, w) + dot(of_w, v), 2.0 * dot(of_v, v)];
            assert_near(&forms, &[dot(v, &case.times(w)), dot(v, &case.times(v))]);
            let inverse = Case { matrix: inverse.clone(), vectors: case.vectors.clone() };
            assert_near(&case.times(&inverse.times(u)), u);
            let mut products = vec![];
            for i in 0..len {
                let row = |i: usize| &factor[start(i)..];
                products.extend((0..=i).map(|j| dot(&row(i)[..=j], &row(j)[..=j])));
            }
            let mut raised = case.matrix.clone();
            (0..len).for_each(|i| raised[start(i) + i] += 0.5);
            assert_near(&products, &raised);
            let raised = Case { matrix: raised, vectors: case.vectors.clone() };
            assert_near(&raised.times(solved), u);
            let mut more = (case.matrix.clone(), w.clone(), case.matrix.clone());
            for i in 0..len {
                for (row, y) in [u, v, w, u, v].into_iter().zip(1..) {
                    (0..=i).for_each(|j| more.0[start(i) + j] += row[i] * row[j]);
                    more.1[i] += row[i] * f64::from(y);
                }
                (0..=i).for_each(|j| more.2[start(i) + j] -= 0.25 * v[i] * v[j]);
            }
            assert_near(gram, &more.0);
            assert_near(moment, &more.1);
            assert_near(square, &more.2);
            assert_near(dots, &[dot(u, v), dot(&u[..len / 2], v)]);
        }
    }

    #[test]
    fn what_is_not_positive_has_no_inverse() {
        let small =
            [[1.0, 2.0, 1.0], [0.0, 0.0, 1.0], [f64::NAN, 0.0, 1.0], [f64::INFINITY, 0.0, 1.0]];
        for mut bad in small {
            assert!(!simd::invert(Cpu::detect(), &mut bad, &mut [0.0; 8]), "{bad:?}");
        }
        assert!(!simd::invert(Cpu::detect(), &mut [0.0; 21], &mut [0.0; 24]));
    }
}
