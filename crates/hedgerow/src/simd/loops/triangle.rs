//! Symmetric matrices in f64, of which the lower triangle is there row by row.

mod factor;
#[cfg(test)]
mod tests;

pub(crate) use factor::*;

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

/// Takes Σ c cᵀv off `product`, where the vectors c stand one after the other.
#[inline(always)]
pub(crate) fn subtract_squares<V: Vector>(vectors: &[f64], v: &[f64], product: &mut [f64]) {
    let fours = vectors.chunks_exact(SIDE * v.len());
    for vector in fours.remainder().chunks_exact(v.len()) {
        add_to_row::<V::Wide, 1>(product, [-dot_wide::<V>(vector, v)], [vector]);
    }
    for four in fours {
        let four: [&[f64]; SIDE] = core::array::from_fn(|s| &four[s * v.len()..][..v.len()]);
        let whole = v.len() / WIDE * WIDE;
        let part = V::Wide::load_part(&v[whole..]);
        let mut sums = [V::Wide::splat(0.0); SIDE];
        for s in 0..SIDE {
            sums[s] = V::Wide::load_part(&four[s][whole..]).mul_add(part, sums[s]);
        }
        let (of_four, of_v) = (four.map(|vector| chunks(vector, whole)), chunks(v, whole));
        for at in 0..whole / WIDE {
            let v = V::Wide::load(&of_v[at]);
            for s in 0..SIDE {
                sums[s] = V::Wide::load(&of_four[s][at]).mul_add(v, sums[s]);
            }
        }
        add_to_row::<V::Wide, SIDE>(product, V::Wide::sums(sums).map(|dot| -dot), four);
    }
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
