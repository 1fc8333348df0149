//! How the frequencies of a map are drawn, and which kernel uses which of them.

use alloc::vec::Vec;

use rand_chacha::rand_core::Rng;

use super::{Draw, FeatureSpec};
use crate::features::kernel::{Family, Kernel};
use crate::features::structured::Structured;
use crate::math;
use crate::random::{CounterRng, Purpose, normal};
use crate::simd::loops::Use;
use crate::simd::vector::LANES;

/// Kernel `kernel` has frequencies of its own.
pub(super) fn own(kernel: usize, frequencies: usize) -> Use {
    Use { start: kernel * frequencies, scale: 1.0 }
}

/// The distinct frequency vectors, and the kernels that use them.
pub(super) fn draw(spec: &FeatureSpec) -> (Vec<f64>, Vec<Use>) {
    let root = CounterRng::from_seed(spec.seed);
    let rows_for = |owner: usize, family: Family, sigma: f64| {
        let mut rng = root.derive(Purpose::Features, owner as u64).generator();
        let mut rows = vec![0.0; spec.frequencies * spec.inputs];
        if spec.draw == Draw::Orthogonal {
            for block in rows.chunks_mut(spec.inputs * spec.inputs) {
                orthogonal_block(family, spec.inputs, block, &mut rng);
            }
        } else {
            for row in rows.chunks_exact_mut(spec.inputs) {
                family.draw_frequency(&mut rng, row);
            }
        }
        rows.iter_mut().for_each(|value| *value /= sigma);
        rows
    };
    if spec.draw != Draw::Shared {
        let rows = spec.kernels.iter().enumerate();
        let rows = rows.flat_map(|(p, k)| rows_for(p, k.family, math::sqrt(k.variance)));
        let uses = (0..spec.kernels.len()).map(|p| own(p, spec.frequencies));
        return (rows.collect(), uses.collect());
    }
    let mut rows = Vec::new();
    // A base draw begins on a whole vector.
    let per_family = spec.frequencies.next_multiple_of(LANES);
    let uses = share(spec, |at, family| {
        rows.extend(rows_for(at, family, 1.0));
        rows.resize((at + 1) * per_family * spec.inputs, 0.0);
    });
    (rows, uses)
}

pub(super) fn draw_structured(spec: &FeatureSpec) -> (Structured, Vec<Use>) {
    let root = CounterRng::from_seed(spec.seed);
    let mut structured = Structured::new(spec.inputs, spec.frequencies);
    let uses = share(spec, |at, family| {
        let mut rng = root.derive(Purpose::Features, at as u64).generator();
        structured.add(family, spec.frequencies, &mut rng);
    });
    (structured, uses)
}

/// The base draw of each kernel, one per family, each a whole number of vectors. `base` makes one
/// when it is first needed.
fn share(spec: &FeatureSpec, mut base: impl FnMut(usize, Family)) -> Vec<Use> {
    let per_family = spec.frequencies.next_multiple_of(LANES);
    let mut families: Vec<Family> = Vec::new();
    let uses = spec.kernels.iter().map(|Kernel { family, variance }| {
        let at = families.iter().position(|known| known == family).unwrap_or_else(|| {
            base(families.len(), *family);
            families.push(*family);
            families.len() - 1
        });
        // Finite, or the angle zero would have no sine.
        let scale = (1.0 / math::sqrt(*variance)).min(f64::from(f32::MAX)) as f32;
        Use { start: at * per_family, scale }
    });
    uses.collect()
}

/// Up to d rows of length one in random directions, each orthogonal to all before.
pub(crate) fn orthonormal_rows(inputs: usize, block: &mut [f64], rng: &mut impl Rng) {
    let count = block.len() / inputs;
    for done in 0..count {
        let (before, rest) = block.split_at_mut(done * inputs);
        let row = &mut rest[..inputs];
        loop {
            row.iter_mut().for_each(|value| *value = normal(rng));
            let length = norm(row);
            // Twice is enough: the second pass removes what rounding left of the first.
            for _ in 0..2 {
                for other in before.chunks_exact(inputs) {
                    let along: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
                    row.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
                }
            }
            let left = norm(row);
            if left > 1e-8 * length {
                row.iter_mut().for_each(|value| *value /= left);
                break;
            }
        }
    }
}

/// Up to d orthogonal rows in random directions, each as long as an independent draw would be.
fn orthogonal_block(family: Family, inputs: usize, block: &mut [f64], rng: &mut impl Rng) {
    orthonormal_rows(inputs, block, rng);
    for row in block.chunks_exact_mut(inputs) {
        let chi2: f64 = (0..inputs)
            .map(|_| {
                let value = normal(rng);
                value * value
            })
            .sum();
        let length = math::sqrt(chi2) * family.draw_stretch(rng);
        row.iter_mut().for_each(|value| *value *= length);
    }
}

fn norm(row: &[f64]) -> f64 {
    math::sqrt(row.iter().map(|value| value * value).sum())
}
