//! What a federation is measured against: the best fixed function in hindsight. (Centralised
//! learning is [`crate::baseline::Omkl`]; the best kernel in hindsight is the best of SK-OFL.)

use alloc::vec::Vec;

use crate::features::Features;
use crate::linear_algebra::Cholesky;
use crate::simd::{self, Cpu};

/// Sums over all samples so far from which the best fixed function of one kernel follows in closed
/// form: ridge regression with the total penalty nλ. Samples themselves are not kept.
#[derive(Debug, Clone)]
pub struct Hindsight {
    /// Σ z zᵀ, lower triangle row by row.
    gram: Vec<f64>,
    /// Σ z y.
    moment: Vec<f64>,
    /// Σ y².
    energy: f64,
    samples: u64,
    /// Features and labels as f64; scratch.
    wide: Vec<f64>,
    labels: Vec<f64>,
}

/// The best fixed function of one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct BestFunction {
    /// w*.
    pub model: Vec<f64>,
    /// Σ L(w*; x, y), ridge term included.
    pub total_loss: f64,
    /// Σ (w*ᵀz − y)².
    pub squared_error: f64,
}

impl Hindsight {
    /// For models of this length.
    pub fn new(model_len: usize) -> Self {
        Self {
            gram: vec![0.0; model_len * (model_len + 1) / 2],
            moment: vec![0.0; model_len],
            energy: 0.0,
            samples: 0,
            wide: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Adds samples: of each row of `z` (`stride` long) the part that begins at `offset`.
    pub fn add(&mut self, z: Features<'_>, stride: usize, offset: usize, y: &[f32]) {
        let len = self.moment.len();
        self.wide.clear();
        self.labels.clear();
        for (row, &label) in z.numbers().chunks_exact(stride).zip(y) {
            self.wide.extend(row[offset..offset + len].iter().map(|v| f64::from(*v)));
            self.labels.push(f64::from(label));
        }
        simd::add_gram(Cpu::detect(), &mut self.gram, &mut self.moment, &self.wide, &self.labels);
        self.energy += self.labels.iter().map(|y| y * y).sum::<f64>();
        self.samples += self.labels.len() as u64;
    }

    /// Samples so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The best function for the samples so far, with the squared loss and ridge λ per sample.
    pub fn best(&self, ridge: f64) -> BestFunction {
        let penalty = ridge * self.samples as f64;
        let model = self.solve(penalty);
        let norm2: f64 = model.iter().map(|w| w * w).sum();
        let explained: f64 = model.iter().zip(&self.moment).map(|(w, b)| w * b).sum();
        let squared_error = (self.energy - 2.0 * explained + self.quadratic(&model)).max(0.0);
        BestFunction { total_loss: squared_error + penalty * norm2, squared_error, model }
    }

    /// wᵀ(Σ z zᵀ)w.
    fn quadratic(&self, w: &[f64]) -> f64 {
        let mut sum = 0.0;
        for i in 0..w.len() {
            let row = &self.gram[i * (i + 1) / 2..][..=i];
            let cross: f64 = row[..i].iter().zip(w).map(|(a, w)| a * w).sum();
            sum += w[i] * (2.0 * cross + row[i] * w[i]);
        }
        sum
    }

    /// (Σ z zᵀ + penalty·I)⁻¹ Σ z y by Cholesky; a direction in which nothing was seen gets no
    /// weight.
    fn solve(&self, penalty: f64) -> Vec<f64> {
        let tiny = 1e-12 * (1.0 + self.samples as f64);
        let mut w = self.moment.clone();
        Cholesky::new(self.gram.clone(), w.len(), penalty, tiny).solve(&mut w);
        w
    }
}
