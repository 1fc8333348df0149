//! [`FeatureMap`]: a dictionary of kernels and a seed give z(x), for one sample or a batch, with
//! the same bits.
//!
//! z_p(x) = (1/√D)·[sin(V_p x) ; cos(V_p x)] for each kernel p, one after the other: P·2D numbers.
//! The rows of V_p are drawn from the kernel's spectral law, so z_p(x)·z_p(x') estimates κ_p(x,
//! x'), and ‖z_p(x)‖ = 1 (√D without the factor, see [`Amplitude`]). A map is a pure function of
//! its [`FeatureSpec`]: nodes and server derive the same one from the same seed, and frequencies
//! never travel.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::f64::consts::FRAC_2_PI;

use serde::{Deserialize, Serialize};

use crate::features::structured::Structured;
use crate::limits::MAX_FEATURE;
use crate::math;
use crate::simd::loops::{PADDING, Projection, Tail, Use, few_frequencies};
use crate::simd::trig::LARGEST_DIRECT;
use crate::simd::vector::{LANES, Line};
use crate::simd::{self, Cpu};

pub(crate) mod dictionary;
mod draws;
mod kernel;
mod map;
pub(crate) mod structured;

pub use dictionary::Dictionary;
pub use kernel::{Family, Kernel};
pub use map::SampleMap;

use draws::{draw, draw_structured, own};

pub(crate) use draws::orthonormal_rows;

/// How frequencies are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// Every kernel has frequencies of its own: the paper's choice.
    Independent,
    /// One base draw per family, divided by each σ_p: the same law for every single kernel, P times
    /// less projection work.
    #[default]
    Shared,
    /// Blocks of orthogonal rows with the right lengths: lower variance. Isotropic families only.
    Orthogonal,
    /// One base draw per family, as shared, of products of signs and Hadamard matrices: for many
    /// inputs much less work, and no frequencies in memory. Isotropic families only.
    Structured,
}

impl Draw {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Independent, Self::Shared, Self::Orthogonal, Self::Structured];

    /// Name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::Shared => "shared",
            Self::Orthogonal => "orthogonal",
            Self::Structured => "structured",
        }
    }

    /// Whether it needs a spectral law that looks the same in every direction.
    pub fn is_for_isotropic(self) -> bool {
        matches!(self, Self::Orthogonal | Self::Structured)
    }
}

/// How large features are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amplitude {
    /// 1/√D, so that z(x) has length one: the paper's.
    #[default]
    Normalised,
    /// 1, as in its authors' published code: z(x) has length √D, and a step is D times as long.
    Unnormalised,
}

/// All that a feature map is made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureSpec {
    /// The dictionary, P kernels.
    pub kernels: Vec<Kernel>,
    /// How frequencies are drawn.
    pub draw: Draw,
    /// Numbers per sample, d.
    pub inputs: usize,
    /// Frequencies per kernel, D.
    pub frequencies: usize,
    /// Seed of the draw.
    pub seed: u64,
    /// How large features are.
    #[serde(default)]
    pub amplitude: Amplitude,
}

/// Why a feature map can't be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FeatureError {
    /// The dictionary is empty.
    #[error("the dictionary needs at least 1 kernel, but has 0")]
    NoKernels,
    /// A kernel has no positive bandwidth.
    #[error("kernel {kernel}: σ² must be a positive finite number, but is {variance}")]
    BadVariance {
        /// Position in the dictionary, from 1.
        kernel: usize,
        /// What was asked for.
        variance: f64,
    },
    /// Samples without numbers.
    #[error("samples need at least 1 feature, but have 0")]
    NoInputs,
    /// A map without frequencies.
    #[error("a kernel needs at least 1 frequency, but has 0")]
    NoFrequencies,
    /// Orthogonal rows have no meaning for a law that depends on direction.
    #[error(
        "kernel {kernel}: {draw} draws need a kernel that looks the same in every direction (gaussian, matern32, matern52), but it is {family}"
    )]
    NotIsotropic {
        /// Name of the draw.
        draw: &'static str,
        /// Position in the dictionary, from 1.
        kernel: usize,
        /// Name of the family.
        family: &'static str,
    },
    /// Given frequencies of the wrong number.
    #[error(
        "{expected} frequencies were expected ({inputs} numbers each), but {found} numbers were given"
    )]
    WrongCount {
        /// How many vectors were expected.
        expected: usize,
        /// Numbers per vector.
        inputs: usize,
        /// Numbers given.
        found: usize,
    },
}

/// Features of one or more samples: numbers of size at most [`Features::LIMIT`], either made by a
/// map or checked. What takes them needn't look again.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Features<'a>(&'a [f32]);

/// A number that is no feature.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("feature {position} must lie between -{limit} and {limit}, but is {value}", limit = Features::LIMIT)]
pub struct NotAFeature {
    /// Where, from 0.
    pub position: usize,
    /// Its value.
    pub value: f32,
}

impl<'a> Features<'a> {
    /// Largest size of a feature. Sines and cosines are at most one; inputs that are features
    /// themselves end here.
    pub const LIMIT: f32 = MAX_FEATURE;

    /// Takes numbers that a map of this crate has made.
    pub(crate) const fn made(numbers: &'a [f32]) -> Self {
        Self(numbers)
    }

    /// Checks numbers that come from elsewhere.
    pub fn checked(numbers: &'a [f32]) -> Result<Self, NotAFeature> {
        match simd::first_beyond(numbers, Self::LIMIT) {
            None => Ok(Self(numbers)),
            Some((position, value)) => Err(NotAFeature { position, value }),
        }
    }

    /// The numbers.
    pub fn numbers(self) -> &'a [f32] {
        self.0
    }

    /// Those of one sample after the other, each `width` long.
    pub fn samples(self, width: usize) -> impl ExactSizeIterator<Item = Self> + use<'a> {
        self.0.chunks_exact(width).map(Self)
    }

    /// A part of them.
    ///
    /// # Panics
    /// If the range reaches beyond the end.
    pub fn part(self, range: core::ops::Range<usize>) -> Self {
        Self(&self.0[range])
    }
}

/// Turns samples into features; see the module's page.
///
/// ```
/// use hedgerow::features::{Amplitude, Draw, FeatureMap, FeatureSpec, Kernel};
///
/// let map = FeatureMap::new(&FeatureSpec {
///     kernels: Kernel::paper_dictionary(),
///     draw: Draw::Shared,
///     inputs: 3,
///     frequencies: 49,
///     seed: 1,
///     amplitude: Amplitude::Normalised,
/// })?;
/// let mut buffer = vec![0.0; map.width()];
/// let z = map.map(&[0.1, 0.5, 0.9], &mut buffer);
/// let length: f32 = z.numbers()[..map.model_len()].iter().map(|v| v * v).sum();
/// assert!((length - 1.0).abs() < 1e-5);
/// # Ok::<(), hedgerow::features::FeatureError>(())
/// ```
#[derive(Debug, Clone)]
pub struct FeatureMap {
    panels: Vec<Line>,
    /// The last few frequencies of a base draw, row by row, where they would leave most of a panel
    /// empty.
    few: Vec<Line>,
    /// Instead of panels.
    structured: Option<Structured>,
    uses: Vec<Use>,
    tails: Vec<Tail>,
    inputs: usize,
    /// Kernels scale common frequencies instead of having their own.
    shared: bool,
    per_kernel: usize,
    kernels: usize,
    amplitude: f32,
    /// The largest angle that no scale takes beyond [`LARGEST_DIRECT`].
    largest_angle: f32,
    cpu: Cpu,
    /// The only kernel whose features are wanted, and a map of it alone.
    alone: Option<(usize, Box<Self>)>,
}

impl FeatureMap {
    /// Draws the frequencies.
    pub fn new(spec: &FeatureSpec) -> Result<Self, FeatureError> {
        check(spec)?;
        let mut map = if spec.draw == Draw::Structured {
            let (structured, uses) = draw_structured(spec);
            let map = Self::assemble(Vec::new(), uses, true, spec.inputs, spec.frequencies);
            Self { structured: Some(structured), ..map }
        } else {
            let (rows, uses) = draw(spec);
            Self::assemble(rows, uses, spec.draw == Draw::Shared, spec.inputs, spec.frequencies)
        };
        if spec.amplitude == Amplitude::Unnormalised {
            map.amplitude = 1.0;
        }
        Ok(map)
    }

    /// A map with given frequencies: P·D vectors of d numbers, kernel after kernel.
    pub fn from_frequencies(
        rows: &[f64],
        kernels: usize,
        frequencies: usize,
        inputs: usize,
    ) -> Result<Self, FeatureError> {
        if inputs == 0 {
            return Err(FeatureError::NoInputs);
        }
        let expected = kernels * frequencies;
        if expected == 0 || rows.len() != expected * inputs {
            let found = rows.len();
            return Err(FeatureError::WrongCount { expected, inputs, found });
        }
        let uses = (0..kernels).map(|kernel| own(kernel, frequencies)).collect();
        Ok(Self::assemble(rows.to_vec(), uses, false, inputs, frequencies))
    }

    fn assemble(
        rows: Vec<f64>,
        uses: Vec<Use>,
        shared: bool,
        inputs: usize,
        per_kernel: usize,
    ) -> Self {
        let few = if shared && !rows.is_empty() { few_frequencies(&uses, per_kernel) } else { 0 };
        let (projected, lines) = (rows.len() / inputs, inputs.div_ceil(LANES));
        let in_panels =
            if few == 0 { projected.next_multiple_of(PADDING) } else { per_kernel - few };
        let mut few = vec![Line([0.0; LANES]); few * lines];
        let mut panels = vec![Line([0.0; LANES]); in_panels / LANES * inputs];
        for (frequency, row) in rows.chunks_exact(inputs).enumerate() {
            let (panel, lane) = (frequency / LANES, frequency % LANES);
            for (input, value) in row.iter().enumerate() {
                // Sines and cosines are taken in quarter turns.
                let value = (value * FRAC_2_PI) as f32;
                if frequency < in_panels {
                    panels[panel * inputs + input].0[lane] = value;
                } else if frequency < per_kernel {
                    few[(frequency - in_panels) * lines + input / LANES].0[input % LANES] = value;
                }
            }
        }
        let kernels = uses.len();
        let tails = if shared { Tail::pack(&uses, per_kernel) } else { Vec::new() };
        let amplitude = (1.0 / math::sqrt(per_kernel as f64)) as f32;
        // Finite, so that an overflowed angle lies beyond it for any scale.
        let largest_scale = uses.iter().fold(0.0, |largest, user| user.scale.max(largest));
        Self {
            panels,
            few,
            largest_angle: (LARGEST_DIRECT / largest_scale).min(f32::MAX),
            structured: None,
            uses,
            tails,
            inputs,
            shared,
            per_kernel,
            kernels,
            amplitude,
            cpu: Cpu::detect(),
            alone: None,
        }
    }

    /// The same map for who needs one kernel: that has the same features, and those of all others
    /// are zero. Without their sines and cosines (and without their projections, where kernels
    /// share none) it is that much faster.
    ///
    /// # Panics
    /// If there is no such kernel.
    pub fn only(self, kernel: usize) -> Self {
        let user = self.uses[kernel];
        let mut alone = Self { uses: vec![user], kernels: 1, alone: None, ..self.clone() };
        if self.shared {
            alone.tails = Tail::pack(&alone.uses, self.per_kernel);
        } else {
            alone.uses = vec![own(0, self.per_kernel)];
            let lines = self.per_kernel.next_multiple_of(PADDING) / LANES * self.inputs;
            alone.panels = vec![Line([0.0; LANES]); lines];
            for at in 0..self.per_kernel {
                for input in 0..self.inputs {
                    let line = &mut alone.panels[at / LANES * self.inputs + input];
                    line.0[at % LANES] = self.frequency(user.start + at, input);
                }
            }
        }
        Self { alone: Some((kernel, Box::new(alone))), ..self }
    }

    /// The same map, computed with another instruction set (at most what the processor has). The
    /// features are the same.
    pub fn on(mut self, cpu: Cpu) -> Self {
        self.cpu = cpu.min(Cpu::detect());
        self.alone = self.alone.map(|(kernel, alone)| (kernel, Box::new(alone.on(cpu))));
        self
    }

    /// Length of z: P·2D.
    pub fn width(&self) -> usize {
        self.kernels * self.model_len()
    }

    /// Length of one kernel's part of z, and of a model: 2D.
    pub fn model_len(&self) -> usize {
        2 * self.per_kernel
    }

    /// Number of kernels, P.
    pub fn kernels(&self) -> usize {
        self.kernels
    }

    /// Numbers per sample, d.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The frequencies of a kernel, d numbers each, in quarter turns.
    #[cfg(test)]
    pub(crate) fn frequencies(&self, kernel: usize) -> Vec<f64> {
        let (start, scale) = self.base(kernel);
        self.base_frequencies(start).into_iter().map(|value| value * scale).collect()
    }

    /// The draw that a kernel's frequencies are made from, and what they are multiplied by.
    pub(crate) fn base(&self, kernel: usize) -> (usize, f64) {
        let Use { start, scale, .. } = self.uses[kernel];
        (start, f64::from(scale))
    }

    /// The frequencies of a draw, d numbers each, in quarter turns.
    pub(crate) fn base_frequencies(&self, start: usize) -> Vec<f64> {
        let drawn = start..start + self.per_kernel;
        if let Some(structured) = &self.structured {
            return drawn.flat_map(|at| structured.frequency(at)).collect();
        }
        let row = |at| (0..self.inputs).map(move |input| f64::from(self.frequency(at, input)));
        drawn.flat_map(row).collect()
    }

    /// A number of a frequency that is in memory.
    fn frequency(&self, at: usize, input: usize) -> f32 {
        let in_panels = self.panels.len() / self.inputs * LANES;
        match at.checked_sub(in_panels) {
            None => self.panels[at / LANES * self.inputs + input].0[at % LANES],
            Some(few) => {
                self.few[few * self.inputs.div_ceil(LANES) + input / LANES].0[input % LANES]
            }
        }
    }

    /// Writes z(x). Never allocates. A number that isn't finite makes angles that count as zero:
    /// refuse such samples at the door.
    ///
    /// # Panics
    /// If `x` or `z` has the wrong length.
    pub fn map<'z>(&self, x: &[f32], z: &'z mut [f32]) -> Features<'z> {
        assert_eq!(x.len(), self.inputs, "numbers per sample");
        self.map_batch(x, z)
    }

    /// Writes z of several samples, one after the other, with the same bits as [`FeatureMap::map`].
    /// Never allocates.
    ///
    /// # Panics
    /// If `x` isn't whole samples or `z` doesn't have their length.
    pub fn map_batch<'z>(&self, x: &[f32], z: &'z mut [f32]) -> Features<'z> {
        assert_eq!(x.len() % self.inputs, 0, "whole samples");
        assert_eq!(z.len(), x.len() / self.inputs * self.width(), "length of z");
        if let Some((kernel, alone)) = &self.alone {
            let place = kernel * self.model_len()..(kernel + 1) * self.model_len();
            z.fill(0.0);
            for (x, z) in x.chunks_exact(self.inputs).zip(z.chunks_exact_mut(self.width())) {
                alone.map(x, &mut z[place.clone()]);
            }
            return Features(z);
        }
        let projection = Projection {
            panels: &self.panels,
            few: &self.few,
            inputs: self.inputs,
            uses: &self.uses,
            tails: &self.tails,
            shared: self.shared,
            largest_angle: self.largest_angle,
            per_kernel: self.per_kernel,
            width: self.width(),
            amplitude: self.amplitude,
        };
        match &self.structured {
            Some(structured) => structured.map(self.cpu, &projection, x, z),
            None => simd::map_features(self.cpu, &projection, x, z),
        }
        Features(z)
    }
}

pub(crate) fn check(spec: &FeatureSpec) -> Result<(), FeatureError> {
    if spec.kernels.is_empty() {
        return Err(FeatureError::NoKernels);
    }
    if spec.inputs == 0 {
        return Err(FeatureError::NoInputs);
    }
    if spec.frequencies == 0 {
        return Err(FeatureError::NoFrequencies);
    }
    for (index, Kernel { family, variance }) in spec.kernels.iter().enumerate() {
        let kernel = index + 1;
        if !(variance.is_finite() && *variance > 0.0) {
            let variance = *variance;
            return Err(FeatureError::BadVariance { kernel, variance });
        }
        if spec.draw.is_for_isotropic() && !family.is_isotropic() {
            let (draw, family) = (spec.draw.name(), family.name());
            return Err(FeatureError::NotIsotropic { draw, kernel, family });
        }
    }
    Ok(())
}
