//! Kernels and their spectral laws: what a random frequency must be drawn from so that features
//! reproduce the kernel.

use alloc::string::String;
use alloc::vec::Vec;

use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};

use crate::math;
use crate::random::{cauchy, chi_squared, exponential, normal};

/// The shape of a kernel, at bandwidth 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// exp(−‖x−x'‖²/2σ²); normal frequencies.
    Gaussian,
    /// exp(−‖x−x'‖₁/σ); Cauchy frequencies, coordinate by coordinate.
    Laplacian,
    /// Π 1/(1+(x_j−x'_j)²/σ²); Laplace frequencies, coordinate by coordinate.
    Cauchy,
    /// (1+√3ρ)·exp(−√3ρ) with ρ = ‖x−x'‖/σ; Student t frequencies with 3 degrees of freedom.
    Matern32,
    /// (1+√5ρ+5ρ²/3)·exp(−√5ρ); Student t frequencies with 5 degrees of freedom.
    Matern52,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Gaussian, Self::Laplacian, Self::Cauchy, Self::Matern32, Self::Matern52];

    /// Name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gaussian => "gaussian",
            Self::Laplacian => "laplacian",
            Self::Cauchy => "cauchy",
            Self::Matern32 => "matern32",
            Self::Matern52 => "matern52",
        }
    }

    /// Whether the spectral law looks the same in every direction, which orthogonal draws need.
    pub fn is_isotropic(self) -> bool {
        self.degrees_of_freedom().is_some() || self == Self::Gaussian
    }

    fn degrees_of_freedom(self) -> Option<f64> {
        match self {
            Self::Matern32 => Some(3.0),
            Self::Matern52 => Some(5.0),
            _ => None,
        }
    }

    /// One frequency vector at bandwidth 1.
    pub(crate) fn draw_frequency(self, rng: &mut impl Rng, frequency: &mut [f64]) {
        match self {
            Self::Gaussian | Self::Matern32 | Self::Matern52 => {
                frequency.iter_mut().for_each(|f| *f = normal(rng));
                let stretch = self.draw_stretch(rng);
                frequency.iter_mut().for_each(|f| *f *= stretch);
            }
            Self::Laplacian => frequency.iter_mut().for_each(|f| *f = cauchy(rng)),
            // A Laplace variable is the difference of two exponentials.
            Self::Cauchy => {
                frequency.iter_mut().for_each(|f| *f = exponential(rng) - exponential(rng));
            }
        }
    }

    /// What a normal vector must be multiplied by to follow the law of an isotropic family: 1, or
    /// √(ν/χ²_ν) for a Student t.
    pub(crate) fn draw_stretch(self, rng: &mut impl Rng) -> f64 {
        let student = |freedom| math::sqrt(freedom / chi_squared(rng, freedom));
        self.degrees_of_freedom().map_or(1.0, student)
    }
}

/// One kernel of the dictionary: a family and a bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Shape.
    pub family: Family,
    /// Squared bandwidth σ².
    pub variance: f64,
}

impl Kernel {
    /// A Gaussian kernel with squared bandwidth σ².
    pub fn gaussian(variance: f64) -> Self {
        Self { family: Family::Gaussian, variance }
    }

    /// The paper's dictionary: eleven Gaussians, σ_p² = 10^(p−6) for p = 1..11.
    pub fn paper_dictionary() -> Vec<Self> {
        (1..=11).map(|p| Self::gaussian(math::powi(10.0, p - 6))).collect()
    }

    /// κ(a, b).
    pub fn value(&self, a: &[f32], b: &[f32]) -> f64 {
        let sigma = math::sqrt(self.variance);
        let gaps = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)) / sigma);
        let distance = |gaps: &mut dyn Iterator<Item = f64>| math::sqrt(gaps.map(|g| g * g).sum());
        match self.family {
            Family::Gaussian => math::exp(-gaps.map(|g| g * g).sum::<f64>() / 2.0),
            Family::Laplacian => math::exp(-gaps.map(f64::abs).sum::<f64>()),
            Family::Cauchy => gaps.map(|g| 1.0 / (1.0 + g * g)).product(),
            Family::Matern32 => {
                let r = math::sqrt(3.0) * distance(&mut { gaps });
                (1.0 + r) * math::exp(-r)
            }
            Family::Matern52 => {
                let r = math::sqrt(5.0) * distance(&mut { gaps });
                (1.0 + r + r * r / 3.0) * math::exp(-r)
            }
        }
    }

    /// Name for tables, such as `gaussian σ²=0.1`.
    pub fn label(&self) -> String {
        let variance = self.variance;
        if (1e-3..1e4).contains(&variance) {
            format!("{} σ²={variance}", self.family.name())
        } else {
            format!("{} σ²={variance:e}", self.family.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_one_at_zero_distance_and_fall_with_it() {
        for family in Family::ALL {
            let kernel = Kernel { family, variance: 0.7 };
            let at = |gap: f32| kernel.value(&[0.2, 0.3], &[0.2 + gap, 0.3]);
            assert!((at(0.0) - 1.0).abs() < 1e-12, "{family:?}");
            assert!(at(0.1) > at(0.5) && at(0.5) > at(2.0) && at(2.0) > 0.0);
        }
    }

    #[test]
    fn gaussian_has_the_factor_two_of_the_paper() {
        let value = Kernel::gaussian(0.5).value(&[0.0], &[1.0]);
        assert!((value - (-1.0f64).exp()).abs() < 1e-12);
    }
}
