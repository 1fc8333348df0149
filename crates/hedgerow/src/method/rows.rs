//! What the methods share: models of one or more kernels, and a gradient step on all of them at
//! once.

use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Setup;
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::learning::loss::{Objective, Step};
use crate::limits::{MAX_NORM, MAX_NUMBER, MAX_SUM};
use crate::message::check_numbers;
use crate::scaling::Rescaling;
use crate::simd::vector::{LANES, Line};
use crate::simd::{self, Cpu};

/// One or more models of 2D numbers each. In memory every row begins on a cache line and is padded
/// with zeros; everywhere else (messages, saved states) rows are packed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Models {
    lines: Vec<Line>,
    width: usize,
}

impl Models {
    /// `rows` zero models of `width` numbers.
    pub(crate) fn zero(rows: usize, width: usize) -> Self {
        Self { lines: vec![Line([0.0; LANES]); rows * width.div_ceil(LANES)], width }
    }

    fn lines_per_row(&self) -> usize {
        self.width.div_ceil(LANES)
    }

    pub(crate) fn rows(&self) -> usize {
        self.lines.len() / self.lines_per_row()
    }

    fn row(&self, row: usize) -> &[Line] {
        let per_row = self.lines_per_row();
        &self.lines[row * per_row..(row + 1) * per_row]
    }

    /// Overwrites rows from `first` on with packed numbers.
    pub(crate) fn set(&mut self, first: usize, packed: &[f32]) {
        let per_row = self.lines_per_row();
        let rows = self.lines[first * per_row..].chunks_exact_mut(per_row);
        for (row, packed) in rows.zip(packed.chunks_exact(self.width)) {
            let (whole, part) = packed.as_chunks();
            row.iter_mut().zip(whole).for_each(|(line, numbers)| line.0 = *numbers);
            if let Some(line) = row.get_mut(whole.len()) {
                line.0[..part.len()].copy_from_slice(part);
            }
        }
    }

    /// Overwrites the first numbers of the first row; the others become zero.
    pub(crate) fn set_first(&mut self, numbers: &[f32]) {
        let (whole, part) = numbers.as_chunks();
        let (lines, rest) = self.lines.split_at_mut(whole.len());
        lines.iter_mut().zip(whole).for_each(|(line, numbers)| line.0 = *numbers);
        rest.fill(Line([0.0; LANES]));
        if let Some(line) = rest.first_mut() {
            line.0[..part.len()].copy_from_slice(part);
        }
    }

    /// Appends one row, packed.
    pub(crate) fn pack_row(&self, row: usize, out: &mut Vec<f32>) {
        out.reserve(self.width);
        let (whole, last) = self.row(row).split_at(self.width / LANES);
        whole.iter().for_each(|line| out.extend_from_slice(&line.0));
        if let Some(line) = last.first() {
            out.extend_from_slice(&line.0[..self.width % LANES]);
        }
    }

    /// The numbers of one row.
    pub(crate) fn numbers(&self, row: usize) -> impl Iterator<Item = f32> + Clone {
        self.row(row).iter().flat_map(|line| line.0).take(self.width)
    }

    /// Adds one row to a sum.
    pub(crate) fn add_row_to(&self, row: usize, sum: &mut [f64]) {
        for (sums, line) in sum.chunks_mut(LANES).zip(self.row(row)) {
            sums.iter_mut().zip(line.0).for_each(|(sum, weight)| *sum += f64::from(weight));
        }
    }

    /// Appends all rows, packed.
    pub(crate) fn pack(&self, out: &mut Vec<f32>) {
        (0..self.rows()).for_each(|row| self.pack_row(row, out));
    }

    /// wᵀz for one row.
    pub(crate) fn predict(&self, row: usize, z: Features<'_>) -> f32 {
        assert_eq!(z.numbers().len(), self.width, "features of a model");
        simd::dot(Cpu::detect(), self.row(row), z.numbers())
    }

    /// Σ_p q_p·w_pᵀz_p over all rows.
    pub(crate) fn predict_mixture(&self, weights: &[f64], z: Features<'_>) -> f32 {
        let rows = weights.iter().zip(z.samples(self.width)).enumerate();
        rows.map(|(row, (weight, z))| weight * f64::from(self.predict(row, z))).sum::<f64>() as f32
    }

    /// Writes each row's objective on a sample, whose z_p stand one after the other.
    pub(crate) fn objectives(
        &self,
        objective: Objective,
        z: Features<'_>,
        y: f32,
        out: &mut [f64],
    ) {
        for (row, (out, z)) in out.iter_mut().zip(z.samples(self.width)).enumerate() {
            let prediction = f64::from(self.predict(row, z));
            *out = objective.value(prediction, f64::from(y), self.norm2(row)).min(MAX_SUM);
        }
    }

    /// ‖w‖² of one row.
    pub(crate) fn norm2(&self, row: usize) -> f64 {
        // A hostile model may be too long for f32; what is measured of it stays finite.
        f64::from(simd::norm2(Cpu::detect(), self.row(row))).min(MAX_SUM)
    }

    /// Σ_p q_p·‖w_p‖².
    pub(crate) fn norm2_mixture(&self, weights: &[f64]) -> f64 {
        weights.iter().enumerate().map(|(row, weight)| weight * self.norm2(row)).sum()
    }

    /// Moves one row, the model of a kernel, to another scale.
    pub(crate) fn rescale(&mut self, row: usize, kernel: usize, rescaling: &Rescaling) {
        let mut packed = Vec::with_capacity(self.width);
        self.pack_row(row, &mut packed);
        rescaling.apply(kernel, &mut packed);
        self.set(row, &packed);
    }

    /// The same for rows that are the models of all kernels.
    pub(crate) fn rescale_all(&mut self, rescaling: &Rescaling) {
        (0..self.rows()).for_each(|row| self.rescale(row, row, rescaling));
    }

    /// The same for one row that is a linear model.
    pub(crate) fn rescale_linear(&mut self, row: usize, rescaling: &Rescaling) {
        let mut packed = Vec::with_capacity(self.width);
        self.pack_row(row, &mut packed);
        rescaling.apply_linear(&mut packed);
        self.set(row, &packed);
    }

    /// Whether a saved state has this shape and no number that can't be.
    pub(crate) fn is_sound(&self, rows: usize, width: usize) -> bool {
        let lines = rows * width.div_ceil(LANES);
        self.width == width
            && self.lines.len() == lines
            && self.lines.iter().all(|line| check_numbers(&line.0).is_ok())
    }
}

/// The models of the last broadcast, and the same after the gradient steps since.
#[derive(Serialize, Deserialize)]
pub(crate) struct Copies {
    pub(crate) global: Models,
    pub(crate) local: Models,
}

impl Copies {
    pub(crate) fn zero(rows: usize, width: usize) -> Self {
        let global = Models::zero(rows, width);
        Self { local: global.clone(), global }
    }

    /// Takes over the models of a broadcast.
    pub(crate) fn adopt(&mut self, packed: &[f32]) {
        self.global.set(0, packed);
        self.local.set(0, packed);
    }

    /// Changes both in the same way.
    pub(crate) fn each(&mut self, change: impl Fn(&mut Models)) {
        change(&mut self.global);
        change(&mut self.local);
    }

    pub(crate) fn is_sound(&self, rows: usize, width: usize) -> bool {
        self.global.is_sound(rows, width) && self.local.is_sound(rows, width)
    }
}

impl Serialize for Models {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut packed = Vec::with_capacity(self.rows() * self.width);
        self.pack(&mut packed);
        (self.width, packed).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Models {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (width, packed) = <(usize, Vec<f32>)>::deserialize(deserializer)?;
        if width == 0 || packed.len() % width != 0 {
            return Err(serde::de::Error::custom("rows of a model have no common length"));
        }
        let mut models = Self::zero(packed.len() / width, width);
        models.set(0, &packed);
        Ok(models)
    }
}

/// One step of online gradient descent on each row of `models`. Writes each row's objective before
/// it to `losses`. Label and features have been checked.
pub(crate) fn descend(
    setup: &Setup,
    rate: f64,
    models: &mut Models,
    z: Features<'_>,
    y: f32,
    losses: &mut [f64],
) {
    let step = Step {
        objective: setup.objective(),
        label: f64::from(y),
        rate,
        longest: f64::from(MAX_NORM),
    };
    simd::descend_rows(Cpu::detect(), &mut models.lines, z.numbers(), models.width, &step, losses);
}

/// Weight one for a single kernel.
pub(crate) fn one_hot(kernel: usize, out: &mut [f64]) {
    out.fill(0.0);
    out[kernel] = 1.0;
}

/// The sections of a message with the models of all kernels.
pub(crate) fn every_model(setup: &Setup) -> impl Iterator<Item = Section> + use<> {
    let len = setup.model_len();
    (0..setup.kernels()).map(move |slot| Section { len, kind: Kind::Model { slot } })
}

/// Adds the losses of a sample to those since the last broadcast.
pub(crate) fn add_losses(totals: &mut [f64], losses: &[f64]) {
    totals.iter_mut().zip(losses).for_each(|(total, loss)| *total += loss);
}

/// Appends losses as they travel.
pub(crate) fn pack_losses(losses: &[f64], out: &mut Vec<f32>) {
    out.extend(losses.iter().map(|loss| loss.min(f64::from(MAX_NUMBER)) as f32));
}

/// Whether losses from a saved state could be sums of losses.
pub(crate) fn are_losses(losses: &[f64], kernels: usize) -> bool {
    losses.len() == kernels && losses.iter().all(|loss| loss.is_finite() && *loss >= 0.0)
}
