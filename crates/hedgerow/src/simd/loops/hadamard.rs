//! Projections by fast Walsh-Hadamard transforms; see [`crate::features::structured`].

use alloc::vec::Vec;

use crate::simd::vector::{LANES, Line, Vector};

/// Some structured frequencies of one family, at most as many as the padded inputs; see
/// `features/structured.rs` for the products that they are.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// D₁ and D₂, as long as the padded inputs.
    pub(crate) first: Vec<Line>,
    pub(crate) second: Vec<Line>,
    /// D₃, as long as the small transform.
    pub(crate) third: Vec<Line>,
    /// S, with all that makes the transforms orthogonal and angles quarter turns; zero beyond the
    /// last frequency.
    pub(crate) lengths: Vec<Line>,
}

/// The angles of one sample on a block's frequencies. The buffer is as long as the block's
/// transform.
#[inline(always)]
pub(crate) fn project_structured<V: Vector>(
    block: &Block,
    x: &[f32],
    buffer: &mut [Line],
    angles: &mut [Line],
) {
    let (whole, rest) = x.as_chunks();
    let rest = Some(V::load_part(rest)).filter(|_| !rest.is_empty());
    let inputs = whole.iter().map(V::load).chain(rest).chain(core::iter::repeat(V::splat(0.0)));
    for ((line, signs), x) in buffer.iter_mut().zip(&block.first).zip(inputs) {
        x.mul(V::load(&signs.0)).store(&mut line.0);
    }
    transform::<V>(buffer);
    let (small, large) = buffer.split_at_mut(block.third.len());
    let (signs, more_signs) = block.second.split_at(small.len());
    for (line, signs) in small.iter_mut().zip(signs) {
        V::load(&line.0).mul(V::load(&signs.0)).store(&mut line.0);
    }
    for (large, signs) in large.chunks_exact(small.len()).zip(more_signs.chunks_exact(small.len()))
    {
        for ((line, other), signs) in small.iter_mut().zip(large).zip(signs) {
            V::load(&other.0).mul_add(V::load(&signs.0), V::load(&line.0)).store(&mut line.0);
        }
    }
    transform::<V>(small);
    for (line, signs) in small.iter_mut().zip(&block.third) {
        V::load(&line.0).mul(V::load(&signs.0)).store(&mut line.0);
    }
    transform::<V>(small);
    for ((angles, line), lengths) in angles.iter_mut().zip(small).zip(&block.lengths) {
        V::load(&line.0).mul(V::load(&lengths.0)).store(&mut angles.0);
    }
}

/// The transform, not normalised, of [`LANES`] times a power of two numbers in place.
#[inline(always)]
fn transform<V: Vector>(buffer: &mut [Line]) {
    for line in buffer.iter_mut() {
        within::<V>(V::load(&line.0)).store(&mut line.0);
    }
    let mut apart = 1;
    // Two steps at once, so that everything is loaded and stored half as often.
    while 4 * apart <= buffer.len() {
        for four in buffer.chunks_exact_mut(4 * apart) {
            let (a, rest) = four.split_at_mut(apart);
            let (b, rest) = rest.split_at_mut(apart);
            let (c, d) = rest.split_at_mut(apart);
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                let [w, x, y, z] = [&*a, b, c, d].map(|line| V::load(&line.0));
                let (p, q, r, s) = (w.add(x), w.sub(x), y.add(z), y.sub(z));
                p.add(r).store(&mut a.0);
                q.add(s).store(&mut b.0);
                p.sub(r).store(&mut c.0);
                q.sub(s).store(&mut d.0);
            }
        }
        apart *= 4;
    }
    if 2 * apart <= buffer.len() {
        let (a, b) = buffer.split_at_mut(apart);
        for (a, b) in a.iter_mut().zip(b) {
            let (x, y) = (V::load(&a.0), V::load(&b.0));
            x.add(y).store(&mut a.0);
            x.sub(y).store(&mut b.0);
        }
    }
}

/// The steps between the lanes of one vector.
#[inline(always)]
fn within<V: Vector>(lanes: V) -> V {
    let lanes = lanes.mul_add(V::load(&SIGNS[0].0), lanes.partners::<1>());
    let lanes = lanes.mul_add(V::load(&SIGNS[1].0), lanes.partners::<2>());
    let lanes = lanes.mul_add(V::load(&SIGNS[2].0), lanes.partners::<4>());
    lanes.mul_add(V::load(&SIGNS[3].0), lanes.partners::<8>())
}

/// Minus one in the lanes whose number has bit 0, 1, 2 or 3.
static SIGNS: [Line; 4] = {
    let mut signs = [Line([1.0; LANES]); 4];
    let mut at = 0;
    while at < 4 * LANES {
        let (bit, lane) = (at / LANES, at % LANES);
        if lane >> bit & 1 == 1 {
            signs[bit].0[lane] = -1.0;
        }
        at += 1;
    }
    signs
};
