//! [`Refit`]: takes sums of products and models over a dictionary's features from one scale to
//! another.
//!
//! After a change of scale z'(x) is another function of the raw sample than z(x). Over inputs that
//! are spread around the centre of the new scale like a normal law, all mean products of features
//! are known: G = E[z zᵀ], G' = E[z' z'ᵀ] and C = E[z' zᵀ]. The best guess of z' from z is B z with
//! B = I + (C − G)(G + εI)⁻¹, and what it misses has the mean products R = E[(z' − Bz)(z' − Bz)ᵀ] =
//! G' − B Cᵀ + ε(I − B)Bᵀ. So sums over c samples become A' = B A Bᵀ + c·R and b' = B b. A model
//! becomes that of the nearest function: w' = w + (G' + εI)⁻¹(C − G')w. Where nothing changes all
//! of it stays as it is, to the bit.

use alloc::vec::Vec;

use crate::features::dictionary::Feature;
use crate::linear_algebra::{Cholesky, dot};

/// The penalty on a number's change, relative to the mean square of a feature.
const REFIT_RIDGE: f64 = 1e-6;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refit {
    width: usize,
    /// G and G', lower triangles row by row.
    old: Vec<f64>,
    new: Vec<f64>,
    /// C, row by row: new features with old ones.
    across: Vec<f64>,
}

/// What happens to sums over the first few features.
pub(crate) struct SumsRefit {
    len: usize,
    /// B, row by row.
    guess: Vec<f64>,
    /// R, lower triangle row by row.
    missed: Vec<f64>,
}

impl Refit {
    pub(crate) fn new(old: &[Feature], new: &[Feature]) -> Self {
        let among = |features: &[Feature]| {
            let triangle = (0..features.len()).flat_map(|i| (0..=i).map(move |j| (i, j)));
            triangle.map(|(i, j)| features[i].mean_product(&features[j])).collect()
        };
        let across =
            new.iter().flat_map(|new| old.iter().map(|old| new.mean_product(old))).collect();
        Self { width: new.len(), old: among(old), new: among(new), across }
    }

    /// For sums over the first `len` features.
    pub(crate) fn sums(&self, len: usize) -> SumsRefit {
        let gram = Cholesky::new(self.old[..len * (len + 1) / 2].to_vec(), len, REFIT_RIDGE, 0.0);
        let mut guess = Vec::with_capacity(len * len);
        for (i, row) in self.across.chunks_exact(self.width).take(len).enumerate() {
            // G is symmetric, so a row of (C − G)(G + εI)⁻¹ is a solution too.
            guess.extend((0..len).map(|j| row[j] - entry(&self.old, i, j)));
            let start = guess.len() - len;
            gram.solve(&mut guess[start..]);
            guess[start + i] += 1.0;
        }
        let mut missed = self.new[..len * (len + 1) / 2].to_vec();
        for i in 0..len {
            for j in 0..=i {
                let (one, other) = (&guess[i * len..(i + 1) * len], &guess[j * len..(j + 1) * len]);
                let explained = dot(one, &self.across[j * self.width..j * self.width + len]);
                let reluctant = REFIT_RIDGE * (other[i] - dot(one, other));
                let missed = &mut missed[i * (i + 1) / 2 + j];
                *missed += reluctant - explained;
                if i == j {
                    *missed = missed.max(0.0);
                }
            }
        }
        SumsRefit { len, guess, missed }
    }

    /// Takes a model of the first `w.len()` features over, but for the label's unit.
    pub(crate) fn model(&self, w: &mut [f64]) {
        let len = w.len();
        let apart = |i: usize, j: usize| self.across[i * self.width + j] - entry(&self.new, i, j);
        let mut change: Vec<f64> =
            (0..len).map(|i| (0..len).map(|j| apart(i, j) * w[j]).sum()).collect();
        let triangle = self.new[..len * (len + 1) / 2].to_vec();
        Cholesky::new(triangle, len, REFIT_RIDGE, 0.0).solve(&mut change);
        w.iter_mut().zip(&change).for_each(|(w, change)| *w += change);
    }
}

impl SumsRefit {
    /// Takes Σ z zᵀ (lower triangle row by row) of `count` samples over.
    pub(crate) fn gram(&self, gram: &mut [f64], count: f64) {
        let len = self.len;
        // B A, then (B A) Bᵀ.
        let mut half = vec![0.0; len * len];
        for (row, half) in self.guess.chunks_exact(len).zip(half.chunks_exact_mut(len)) {
            for (k, b) in row.iter().enumerate() {
                half.iter_mut().enumerate().for_each(|(j, half)| *half += b * entry(gram, k, j));
            }
        }
        for i in 0..len {
            for j in 0..=i {
                let row = &self.guess[j * len..(j + 1) * len];
                let sum = dot(&half[i * len..(i + 1) * len], row);
                gram[i * (i + 1) / 2 + j] = sum + count * self.missed[i * (i + 1) / 2 + j];
            }
        }
    }

    /// Takes Σ z y over, but for the label's unit.
    pub(crate) fn moment(&self, moment: &mut [f64]) {
        let rows = self.guess.chunks_exact(self.len);
        let product: Vec<f64> = rows.map(|row| dot(row, moment)).collect();
        moment.copy_from_slice(&product);
    }
}

/// An entry of a symmetric matrix, of which the lower triangle is there row by row.
fn entry(triangle: &[f64], i: usize, j: usize) -> f64 {
    let (row, column) = (i.max(j), i.min(j));
    triangle[row * (row + 1) / 2 + column]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Kernel;
    use crate::features::dictionary::Dictionary;
    use crate::features::{Amplitude, Draw, FeatureSpec};
    use crate::random::CounterRng;

    const INPUTS: usize = 3;
    const WIDTH: usize = 20;
    /// The constant and the inputs.
    const AFFINE: usize = INPUTS + 1;

    fn dictionary() -> Dictionary {
        let spec = FeatureSpec {
            kernels: Kernel::paper_dictionary(),
            draw: Draw::Independent,
            inputs: INPUTS,
            frequencies: 1,
            seed: 3,
            amplitude: Amplitude::Normalised,
        };
        Dictionary::new(&spec, WIDTH, INPUTS).unwrap()
    }

    /// What a change from x to x' = (x − c)/a does, for samples around the centre of the new scale.
    fn refit(map: &Dictionary, change: &[(f64, f64); INPUTS]) -> Refit {
        let features = |centre: [f64; INPUTS], spread: [f64; INPUTS]| -> Vec<Feature> {
            map.around(&centre, &spread).collect()
        };
        let spread = 0.5;
        let old = features(change.map(|(_, c)| c), change.map(|(a, _)| spread * a));
        Refit::new(&old, &features([0.0; INPUTS], [spread; INPUTS]))
    }

    /// Features of many samples, before and after.
    fn samples(map: &Dictionary, change: &[(f64, f64); INPUTS]) -> [Vec<f32>; 2] {
        let stream = CounterRng::from_seed(8);
        let after: Vec<f32> =
            (0..200 * INPUTS as u64).map(|at| stream.uniform_at(at) as f32 - 0.5).collect();
        let inputs = change.iter().cycle();
        let before: Vec<f32> =
            after.iter().zip(inputs).map(|(x, (a, c))| (a * f64::from(*x) + c) as f32).collect();
        [before, after].map(|x| {
            let mut z = vec![0.0; 200 * WIDTH];
            map.map_batch(&x, &mut z);
            z
        })
    }

    fn gram(z: &[f32]) -> Vec<f64> {
        let pairs = (0..WIDTH).flat_map(|i| (0..=i).map(move |j| (i, j)));
        let sum = |(i, j): (usize, usize)| -> f64 {
            z.chunks_exact(WIDTH).map(|z| f64::from(z[i]) * f64::from(z[j])).sum()
        };
        pairs.map(sum).collect()
    }

    const CHANGES: [[(f64, f64); INPUTS]; 4] = [
        [(1.0, 0.4), (1.0, -0.2), (1.0, 0.0)],
        [(1.5, 0.0), (0.7, 0.3), (1.0, -0.6)],
        [(8.0, 2.0), (0.1, 0.0), (3.0, 1.0)],
        [(1e-4, 0.0), (1e3, 5.0), (0.0, 0.5)],
    ];

    #[test]
    fn where_nothing_changes_nothing_does() {
        let map = dictionary();
        let same = [(1.0, 0.0); INPUTS];
        let (refit, z) = (refit(&map, &same), &samples(&map, &same)[0]);
        for len in [5, WIDTH] {
            let before = gram(z)[..len * (len + 1) / 2].to_vec();
            let mut after = before.clone();
            refit.sums(len).gram(&mut after, 200.0);
            assert_eq!(after, before);
            let before: Vec<f64> = (0..len).map(|i| (i as f64).sin()).collect();
            let (mut moment, mut model) = (before.clone(), before.clone());
            refit.sums(len).moment(&mut moment);
            refit.model(&mut model);
            assert_eq!((moment, model), (before.clone(), before));
        }
    }

    #[test]
    fn affine_functions_stay_what_they_are() {
        let map = dictionary();
        for change in &CHANGES[..3] {
            let (refit, [before, after]) = (refit(&map, change), samples(&map, change));
            let mut model = vec![0.0; WIDTH];
            model[..AFFINE].copy_from_slice(&[0.7, -1.0, 2.0, 0.3]);
            let said = |w: &[f64], z: &[f32]| -> Vec<f64> {
                let dot = |z: &[f32]| w.iter().zip(z).map(|(w, z)| w * f64::from(*z)).sum();
                z.chunks_exact(WIDTH).map(dot).collect()
            };
            let expected = said(&model, &before);
            let size = expected.iter().fold(0f64, |size, value| size.max(value.abs()));
            refit.model(&mut model);
            for (found, expected) in said(&model, &after).iter().zip(&expected) {
                assert!(
                    (found - expected).abs() < 1e-4 * size,
                    "{change:?}: {found}, expected {expected}"
                );
            }
            // And so do the sums of their products, and those with a label.
            let (mut sums, exact) = (gram(&before), gram(&after));
            let refit = refit.sums(WIDTH);
            refit.gram(&mut sums, 200.0);
            let mut moment: Vec<f64> = (0..WIDTH).map(|i| entry(&gram(&before), i, 0)).collect();
            refit.moment(&mut moment);
            for i in 0..AFFINE {
                for j in 0..=i {
                    let (found, exact) = (entry(&sums, i, j), entry(&exact, i, j));
                    assert!((found - exact).abs() < 0.02, "{change:?}: {found}, expected {exact}");
                }
                assert!((moment[i] - entry(&exact, i, 0)).abs() < 0.02, "{change:?}: {moment:?}");
            }
        }
    }

    #[test]
    fn sums_stay_positive_whatever_the_change() {
        let map = dictionary();
        for change in &CHANGES {
            let mut sums = gram(&samples(&map, change)[0]);
            refit(&map, change).sums(WIDTH).gram(&mut sums, 200.0);
            let largest = (0..WIDTH).map(|i| entry(&sums, i, i)).fold(0.0, f64::max);
            assert!(Cholesky::new(sums, WIDTH, 1e-9 * largest, 0.0).is_complete(), "{change:?}");
        }
    }

    #[test]
    fn sums_know_what_the_samples_would_have_told() {
        // Two hundred samples, sent to another scale and back: most of each feature's square is
        // still there.
        let map = dictionary();
        let change = &CHANGES[1];
        let back = change.map(|(a, c)| (1.0 / a, -c / a));
        let [before, after] = samples(&map, change);
        let (mut sums, there, here) = (gram(&before), gram(&after), gram(&before));
        let worst = |found: &[f64], exact: &[f64]| {
            let apart = (0..WIDTH).map(|i| (entry(found, i, i) / entry(exact, i, i) - 1.0).abs());
            apart.fold(0.0, f64::max)
        };
        refit(&map, change).sums(WIDTH).gram(&mut sums, 200.0);
        assert!(worst(&sums, &there) < 0.1, "{}", worst(&sums, &there));
        refit(&map, &back).sums(WIDTH).gram(&mut sums, 200.0);
        assert!(worst(&sums, &here) < 0.1, "{}", worst(&sums, &here));
    }
}
