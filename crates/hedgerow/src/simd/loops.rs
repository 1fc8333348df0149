//! The loops that all time goes into, written once over [`Vector`] and called through `simd.rs`.

use alloc::vec::Vec;

use crate::learning::loss::Step;
use crate::limits::MAX_FEATURE;
use crate::simd::trig::{LARGEST_DIRECT, Waves, tame};
use crate::simd::vector::{LANES, Line, Vector};

mod blocks;
mod hadamard;
mod projection;
mod triangle;
mod units;

pub(crate) use blocks::*;
pub(crate) use hadamard::*;
pub(crate) use projection::*;
pub(crate) use triangle::*;
pub(crate) use units::*;

/// Size of a cosine of a dictionary.
pub(crate) const COSINE_SIZE: f32 = 0.2;

/// Features of one sample: a constant, `linear` projections, cosines; see
/// [`crate::features::dictionary::Dictionary`].
#[inline(always)]
pub(crate) fn map_dictionary<V: Vector>(
    panels: &[Line],
    phases: &[Line],
    linear: usize,
    x: &[f32],
    z: &mut [f32],
) {
    let waves = Waves::<V>::new(COSINE_SIZE);
    let blocks = panels.chunks_exact(x.len()).zip(phases).zip(z.chunks_mut(LANES));
    for (block, ((rows, phases), z)) in blocks.enumerate() {
        let mut sum = V::load(&phases.0);
        for (row, x) in rows.iter().zip(x) {
            sum = V::load(&row.0).mul_add(V::splat(*x), sum);
        }
        let (mut sums, mut cosines) = ([0.0; LANES], [0.0; LANES]);
        sum.store(&mut sums);
        let angles = if sum.any_beyond(LARGEST_DIRECT) { V::load(&sums.map(tame)) } else { sum };
        waves.of(angles).1.store(&mut cosines);
        let first = block * LANES;
        for (lane, z) in z.iter_mut().enumerate() {
            *z = match first + lane {
                0 => 1.0,
                // What overflowed has no size that could be told.
                row if row <= linear && sums[lane].is_nan() => 0.0,
                row if row <= linear => sums[lane].clamp(-MAX_FEATURE, MAX_FEATURE),
                _ => cosines[lane],
            };
        }
    }
}

#[inline(always)]
fn largest_lane<V: Vector>(values: V) -> f32 {
    let mut lanes = [0.0; LANES];
    values.larger_size(values).store(&mut lanes);
    f32::from_bits(lanes.iter().fold(0, |largest, lane| lane.to_bits().max(largest)))
}

/// Calls `each` with the vectors of a model and those of its features; the last may be filled up
/// with zeros. (The number of vectors comes from the model: where it is known beforehand, the loop
/// is unrolled.)
#[inline(always)]
fn for_each_vector<V: Vector>(model: &[Line], z: &[f32], mut each: impl FnMut(V, V)) {
    let count = model.len();
    let (blocks, rest) = z.split_at((count - 1) * LANES);
    for (weights, z) in model.iter().zip(blocks.as_chunks().0) {
        each(V::load(&weights.0), V::load(z));
    }
    each(V::load(&model[count - 1].0), V::load_part(rest));
}

#[inline(always)]
pub(crate) fn dot<V: Vector>(model: &[Line], z: &[f32]) -> f32 {
    let mut dot = V::splat(0.0);
    for_each_vector(model, z, |weights: V, z| dot = weights.mul_add(z, dot));
    dot.sum()
}

#[inline(always)]
pub(crate) fn norm2<V: Vector>(model: &[Line]) -> f32 {
    let mut norm2 = V::splat(0.0);
    for weights in model {
        let weights = V::load(&weights.0);
        norm2 = weights.mul_add(weights, norm2);
    }
    norm2.sum()
}

#[inline(always)]
pub(crate) fn descend_rows<V: Vector>(
    models: &mut [Line],
    z: &[f32],
    width: usize,
    step: &Step,
    losses: &mut [f64],
) {
    // With one kind of loss that calls no function, all that a row needs stays in registers.
    let Some(step) = &step.with_huber().filter(|_| V::REGISTERS >= 32) else {
        return descend_long_rows::<V>(models, z, width, step, losses);
    };
    match width.div_ceil(LANES) {
        1 => descend_short_rows::<V, 1>(models, z, width, step, losses),
        2 => descend_short_rows::<V, 2>(models, z, width, step, losses),
        3 => descend_short_rows::<V, 3>(models, z, width, step, losses),
        4 => descend_short_rows::<V, 4>(models, z, width, step, losses),
        5 => descend_short_rows::<V, 5>(models, z, width, step, losses),
        6 => descend_short_rows::<V, 6>(models, z, width, step, losses),
        7 => descend_short_rows::<V, 7>(models, z, width, step, losses),
        8 => descend_short_rows::<V, 8>(models, z, width, step, losses),
        _ => descend_long_rows::<V>(models, z, width, step, losses),
    }
}

/// Rows of `N` vectors. A prediction takes so long to become a step that the next row is predicted
/// meanwhile.
#[inline(always)]
fn descend_short_rows<V: Vector, const N: usize>(
    models: &mut [Line],
    z: &[f32],
    width: usize,
    step: &Step,
    losses: &mut [f64],
) {
    let models = &mut models.as_chunks_mut::<N>().0[..losses.len()];
    let features = |row: usize| &z[row * width..(row + 1) * width];
    let mut sums =
        models.first().map_or((0.0, 0.0), |model| dot_and_norm2::<V>(model, features(0)));
    for row in 0..models.len() {
        let (shrink, along);
        (losses[row], shrink, along) = step.of(sums.0, sums.1);
        if let Some(next) = models.get(row + 1) {
            sums = dot_and_norm2::<V>(next, features(row + 1));
        }
        update::<V>(&mut models[row], features(row), shrink, along);
    }
}

/// Rows of any length.
#[inline(always)]
fn descend_long_rows<V: Vector>(
    models: &mut [Line],
    z: &[f32],
    width: usize,
    step: &Step,
    losses: &mut [f64],
) {
    let rows = models.chunks_exact_mut(width.div_ceil(LANES)).zip(z.chunks_exact(width));
    for ((model, z), loss) in rows.zip(losses) {
        let (dot, norm2) = dot_and_norm2::<V>(model, z);
        let (shrink, along);
        (*loss, shrink, along) = step.of(dot, norm2);
        update::<V>(model, z, shrink, along);
    }
}

#[inline(always)]
fn dot_and_norm2<V: Vector>(model: &[Line], z: &[f32]) -> (f32, f32) {
    // Two sums each, in turns, so that one addition needn't wait for the last.
    let (mut dot, mut norm2) = ([V::splat(0.0); 2], [V::splat(0.0); 2]);
    for_each_vector(model, z, |weights: V, z| {
        dot = [dot[1], weights.mul_add(z, dot[0])];
        norm2 = [norm2[1], weights.mul_add(weights, norm2[0])];
    });
    dot[0].add(dot[1]).sums(norm2[0].add(norm2[1]))
}

#[inline(always)]
fn update<V: Vector>(model: &mut [Line], z: &[f32], shrink: f32, along: f32) {
    let (shrink, along) = (V::splat(shrink), V::splat(along));
    let count = model.len();
    let (blocks, rest) = z.split_at((count - 1) * LANES);
    let (whole, last) = model.split_at_mut(count - 1);
    for (weights, z) in whole.iter_mut().zip(blocks.as_chunks().0) {
        along.mul_add(V::load(z), V::load(&weights.0).mul(shrink)).store(&mut weights.0);
    }
    let weights = &mut last[0].0;
    along.mul_add(V::load_part(rest), V::load(weights).mul(shrink)).store(weights);
}

#[inline(always)]
pub(crate) fn largest_size<V: Vector>(values: &[f32]) -> f32 {
    let (blocks, rest) = values.as_chunks();
    // Four at a time, so that one maximum needn't wait for the last.
    let mut largest = [V::splat(0.0); 4];
    let (fours, few) = blocks.as_chunks::<4>();
    for four in fours {
        for (largest, block) in largest.iter_mut().zip(four) {
            *largest = largest.larger_size(V::load(block));
        }
    }
    for block in few {
        largest[0] = largest[0].larger_size(V::load(block));
    }
    let largest =
        largest[0].larger_size(largest[1]).larger_size(largest[2].larger_size(largest[3]));
    let sizes = rest.iter().map(|value| value.abs().to_bits());
    f32::from_bits(sizes.fold(largest_lane(largest).to_bits(), u32::max))
}

#[inline(always)]
pub(crate) fn add_exactly<V: Vector>(parts: &mut [Vec<f64>; 3], values: &[f32]) {
    // Adding and taking off 1.5·2^(52-b) rounds to a multiple of 2^-b; here b = 0, 35 and 70.
    const COARSE: f64 = 1.5 * (1u64 << 52) as f64;
    const MIDDLE: f64 = 1.5 * (1u64 << 17) as f64;
    const FINE: f64 = 1.5 / (1u64 << 18) as f64;
    let [coarse, middle, fine] = parts;
    let sums = coarse.iter_mut().zip(middle.iter_mut()).zip(fine.iter_mut());
    for (((coarse, middle), fine), &value) in sums.zip(values) {
        let value = f64::from(value);
        let head = (value + COARSE) - COARSE;
        let rest = value - head;
        let body = (rest + MIDDLE) - MIDDLE;
        let tail = rest - body;
        *coarse += head;
        *middle += body;
        *fine += (tail + FINE) - FINE;
    }
}

/// Fused multiply-adds in one round of [`spin`].
#[cfg(feature = "probe")]
pub(crate) const SPIN_WIDTH: usize = 8 * LANES;

#[cfg(feature = "probe")]
#[inline(always)]
pub(crate) fn spin<V: Vector>(rounds: u64) -> f32 {
    // Different starts, or the compiler would see that one sum is enough.
    let mut sums: [V; SPIN_WIDTH / LANES] = core::array::from_fn(|i| V::splat(i as f32));
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = sum.mul_add(V::splat(0.999), V::splat(0.001));
        }
    }
    sums.iter().map(|sum| sum.sum()).sum()
}

#[cfg(feature = "probe")]
#[inline(always)]
pub(crate) fn sin_cos_all<V: Vector>(angles: &[Line], sines: &mut [Line], cosines: &mut [Line]) {
    let waves = Waves::<V>::new(1.0);
    for (angles, (sines, cosines)) in angles.iter().zip(sines.iter_mut().zip(cosines)) {
        let (s, c) = waves.of(V::load(&angles.0));
        s.store(&mut sines.0);
        c.store(&mut cosines.0);
    }
}

#[cfg(feature = "probe")]
#[inline(always)]
pub(crate) fn load_all<V: Vector>(block: &[Line]) -> f32 {
    let mut sums = [V::splat(0.0); 8];
    for eight in block.as_chunks::<8>().0 {
        for (sum, line) in sums.iter_mut().zip(eight) {
            *sum = sum.add(V::load(&line.0));
        }
    }
    sums.iter().map(|sum| sum.sum()).sum()
}

#[cfg(feature = "probe")]
#[inline(always)]
pub(crate) fn store_all<V: Vector>(block: &mut [Line]) {
    let ones = V::splat(1.0);
    for eight in block.as_chunks_mut::<8>().0 {
        eight.iter_mut().for_each(|line| ones.store(&mut line.0));
    }
}
