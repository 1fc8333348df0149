//! Symmetric matrices in f64 by blocks of eight rows and columns, each row of a block on a cache
//! line. Row i has its blocks up to the one on the diagonal, which is there as a whole. Rows and
//! columns that fill up the last block are zero beside a diagonal of ones.

use crate::math;
use crate::simd::vector::Vector;
use crate::simd::wide::{WIDE, Wide, WideLine};

/// Rows whose numbers are updated together.
const ROWS: usize = 2;

/// Eight rows and columns.
type EightByEight = [[f64; WIDE]; WIDE];

/// Where the lines of a row begin.
#[inline(always)]
pub(crate) fn first_line(row: usize) -> usize {
    let block = row / WIDE;
    WIDE * block * (block + 1) / 2 + row % WIDE * (block + 1)
}

/// Writes a matrix of `len` rows by blocks, given its lower triangle row by row.
pub(crate) fn write_blocks(triangle: &[f64], len: usize, matrix: &mut [WideLine]) {
    for i in 0..len.next_multiple_of(WIDE) {
        let (block, lane) = (i / WIDE, i % WIDE);
        let lines = &mut matrix[first_line(i)..][..=block];
        if i < len {
            let row = &triangle[i * (i + 1) / 2..][..=i];
            for (line, entries) in lines.iter_mut().zip(row.chunks(WIDE)) {
                line.0[..entries.len()].copy_from_slice(entries);
            }
        } else {
            lines.fill(WideLine([0.0; WIDE]));
            lines[block].0[lane] = 1.0;
        }
        let own = lines[block].0;
        for (other, entry) in own[..lane].iter().enumerate() {
            matrix[first_line(i - lane + other) + block].0[lane] = *entry;
        }
    }
}

/// Writes A v. Vectors have whole blocks, filled up with zeros.
#[inline(always)]
pub(crate) fn multiply_blocks<V: Vector>(matrix: &[WideLine], v: &[f64], product: &mut [f64]) {
    let (v, product) = (v.as_chunks::<WIDE>().0, product.as_chunks_mut::<WIDE>().0);
    for block in 0..v.len() {
        multiply_rows::<V::Wide>(matrix, block, 0, v, product);
        multiply_rows::<V::Wide>(matrix, block, WIDE / 2, v, product);
    }
}

/// The part of four rows that are columns too.
#[inline(always)]
fn multiply_rows<W: Wide>(
    matrix: &[WideLine],
    block: usize,
    first: usize,
    v: &[[f64; WIDE]],
    product: &mut [[f64; WIDE]],
) {
    let rows: [&[WideLine]; 4] =
        core::array::from_fn(|r| &matrix[first_line(WIDE * block + first + r)..][..=block]);
    let (mut sums, mut factors) = ([W::splat(0.0); 4], [W::splat(0.0); 4]);
    for r in 0..4 {
        factors[r] = W::splat(v[block][first + r]);
    }
    for at in 0..block {
        let (of_v, mut out) = (W::load(&v[at]), W::load(&product[at]));
        for r in 0..4 {
            let entries = W::load(&rows[r][at].0);
            sums[r] = entries.mul_add(of_v, sums[r]);
            out = entries.mul_add(factors[r], out);
        }
        out.store(&mut product[at]);
    }
    let of_v = W::load(&v[block]);
    for r in 0..4 {
        sums[r] = W::load(&rows[r][block].0).mul_add(of_v, sums[r]);
    }
    product[block][first..first + 4].copy_from_slice(&W::sums(sums));
}

/// Turns a positive matrix into its inverse, and says whether it was one. Otherwise nothing useful
/// is left of it. `columns` has eight lines for each block of rows.
///
/// Eight columns K at a time: with A_KK = L Lᵀ and U = A_·K L⁻ᵀ, the rest becomes A − U Uᵀ, the
/// columns become U L⁻¹ and A_KK becomes −(L Lᵀ)⁻¹. After all columns the matrix is −A⁻¹.
#[inline(always)]
pub(crate) fn invert<V: Vector>(matrix: &mut [WideLine], columns: &mut [WideLine]) -> bool {
    let columns = columns.as_chunks_mut::<WIDE>().0;
    for k in 0..columns.len() {
        if !sweep::<V::Wide>(matrix, k, columns) {
            return false;
        }
    }
    let (minus, zero) = (V::Wide::splat(-1.0), V::Wide::splat(0.0));
    for line in matrix {
        minus.mul_add(V::Wide::load(&line.0), zero).store(&mut line.0);
    }
    true
}

/// Works the columns of block `k` into the others. `u` has Uᵀ by blocks of columns.
#[inline(always)]
fn sweep<W: Wide>(matrix: &mut [WideLine], k: usize, u: &mut [[WideLine; WIDE]]) -> bool {
    let Some(inverse) = invert_factor(matrix, k) else { return false };
    let mut splats = [[W::splat(0.0); WIDE]; WIDE];
    for s in 0..WIDE {
        for t in 0..=s {
            splats[s][t] = W::splat(inverse[s][t]);
        }
    }
    for (c, u) in u.iter_mut().enumerate() {
        *u = [WideLine([0.0; WIDE]); WIDE];
        if c == k {
            continue;
        }
        let read = read_columns(matrix, k, c);
        let mut columns = [W::splat(0.0); WIDE];
        for s in 0..WIDE {
            columns[s] = W::load(&read[s]);
        }
        for s in 0..WIDE {
            let mut sum = W::splat(0.0);
            for t in 0..=s {
                sum = splats[s][t].mul_add(columns[t], sum);
            }
            sum.store(&mut u[s].0);
        }
    }
    let mut lines = &mut matrix[..];
    for (block, of_rows) in u.iter().enumerate() {
        for first in (0..WIDE).step_by(ROWS) {
            let (rows, rest) = core::mem::take(&mut lines).split_at_mut(ROWS * (block + 1));
            lines = rest;
            if block != k {
                subtract_products::<W>(rows, of_rows, first, u, k);
            }
        }
    }
    for (c, u) in u.iter().enumerate() {
        if c == k {
            continue;
        }
        let mut written = [[0.0; WIDE]; WIDE];
        for t in 0..WIDE {
            let mut sum = W::splat(0.0);
            for s in t..WIDE {
                sum = splats[s][t].mul_add(W::load(&u[s].0), sum);
            }
            sum.store(&mut written[t]);
        }
        write_columns(matrix, k, c, &written);
    }
    for t in 0..WIDE {
        for s in 0..=t {
            let product = (t..WIDE).map(|c| inverse[c][s] * inverse[c][t]).sum::<f64>();
            matrix[first_line(WIDE * k + s) + k].0[t] = -product;
            matrix[first_line(WIDE * k + t) + k].0[s] = -product;
        }
    }
    true
}

/// Takes U Uᵀ off some rows of a block, from `first` of its rows on, except in columns `k`.
#[inline(always)]
fn subtract_products<W: Wide>(
    rows: &mut [WideLine],
    of_rows: &[WideLine; WIDE],
    first: usize,
    u: &[[WideLine; WIDE]],
    k: usize,
) {
    let mut factors = [[W::splat(0.0); WIDE]; ROWS];
    for (factors, row) in factors.iter_mut().zip(first..) {
        for (factor, column) in factors.iter_mut().zip(of_rows) {
            *factor = W::splat(-column.0[row]);
        }
    }
    let (row, other) = rows.split_at_mut(rows.len() / ROWS);
    let (u, len) = (&u[..row.len()], row.len());
    for columns in [0..k.min(len), (k + 1).min(len)..len] {
        let rows = row[columns.clone()].iter_mut().zip(&mut other[columns.clone()]);
        for ((row, other), u) in rows.zip(&u[columns]) {
            let (mut sum, mut other_sum) = (W::load(&row.0), W::load(&other.0));
            for s in 0..WIDE {
                let column = W::load(&u[s].0);
                sum = factors[0][s].mul_add(column, sum);
                other_sum = factors[1][s].mul_add(column, other_sum);
            }
            sum.store(&mut row.0);
            other_sum.store(&mut other.0);
        }
    }
}

/// Columns `k` of the rows of block `c`, each as a row.
#[inline(always)]
fn read_columns(matrix: &[WideLine], k: usize, c: usize) -> EightByEight {
    let mut block = [[0.0; WIDE]; WIDE];
    let (row, column) = (k.max(c), k.min(c));
    for (r, line) in block.iter_mut().enumerate() {
        *line = matrix[first_line(WIDE * row + r) + column].0;
    }
    if c < k { block } else { transposed(&block) }
}

#[inline(always)]
fn write_columns(matrix: &mut [WideLine], k: usize, c: usize, columns: &EightByEight) {
    let block = if c < k { *columns } else { transposed(columns) };
    let (row, column) = (k.max(c), k.min(c));
    for (r, line) in block.into_iter().enumerate() {
        matrix[first_line(WIDE * row + r) + column].0 = line;
    }
}

#[inline(always)]
fn transposed(block: &EightByEight) -> EightByEight {
    let mut transposed = [[0.0; WIDE]; WIDE];
    for i in 0..WIDE {
        for j in 0..WIDE {
            transposed[j][i] = block[i][j];
        }
    }
    transposed
}

/// L⁻¹ of block `k` of the diagonal, if that is positive.
#[inline(always)]
fn invert_factor(matrix: &[WideLine], k: usize) -> Option<EightByEight> {
    let (mut l, mut inverse) = ([[0.0; WIDE]; WIDE], [[0.0; WIDE]; WIDE]);
    for a in 0..WIDE {
        let row = &matrix[first_line(WIDE * k + a) + k].0;
        for b in 0..a {
            let mut left = row[b];
            for (entry, other) in l[a][..b].iter().zip(&l[b]) {
                left = math::mul_add(-entry, *other, left);
            }
            l[a][b] = left * inverse[b][b];
        }
        let mut pivot = row[a];
        for entry in &l[a][..a] {
            pivot = math::mul_add(-entry, *entry, pivot);
        }
        // Not positive, or not a number.
        if !(pivot > 0.0 && pivot < f64::INFINITY) {
            return None;
        }
        inverse[a][a] = 1.0 / math::sqrt(pivot);
        for b in 0..a {
            let mut before = 0.0;
            for c in b..a {
                before = math::mul_add(l[a][c], inverse[c][b], before);
            }
            inverse[a][b] = -before * inverse[a][a];
        }
    }
    Some(inverse)
}
