//! The inner loops, each compiled several times and chosen at run time for the processor.
//!
//! The loops themselves are in `loops.rs`, written once over `Vector`; the macro below wraps each
//! for every instruction set.

pub(crate) mod loops;
pub(crate) mod trig;
pub(crate) mod vector;
pub(crate) mod wide;

use alloc::vec::Vec;

use self::loops::{Angles, Block, GROUP, NO_ANGLES, Projection, Samples, TILE};
use crate::learning::loss::Step;
use crate::simd::vector::{LANES, Line};
use crate::simd::wide::WideLine;

/// Instruction sets that the inner loops are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cpu {
    /// What the build targets anyway; on 64-bit ARM that already means NEON.
    Plain,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// 512-bit vectors.
    Avx512,
}

impl Cpu {
    /// The best that this processor has. Without the feature `std` it is what the build targets.
    #[inline]
    pub fn detect() -> Self {
        #[cfg(feature = "std")]
        {
            static BEST: std::sync::LazyLock<Cpu> = std::sync::LazyLock::new(Cpu::look);
            *BEST
        }
        #[cfg(not(feature = "std"))]
        Self::look()
    }

    fn look() -> Self {
        /// Whether the processor has all of these instruction sets.
        #[cfg(target_arch = "x86_64")]
        macro_rules! has {
            ($($set:tt),*) => {{
                #[cfg(feature = "std")]
                let has = $(std::is_x86_feature_detected!($set))&&*;
                #[cfg(not(feature = "std"))]
                let has = $(cfg!(target_feature = $set))&&*;
                has
            }};
        }
        #[cfg(target_arch = "x86_64")]
        if has!("avx2", "fma") {
            let is_wide = has!("avx512f", "avx512dq", "avx512vl");
            return if is_wide { Self::Avx512 } else { Self::Avx2 };
        }
        Self::Plain
    }

    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "AVX-512",
            Self::Avx2 => "AVX2",
            Self::Plain if cfg!(target_arch = "aarch64") => "NEON",
            Self::Plain => "plain",
        }
    }
}

/// `fn name(args);` makes a function that takes a [`Cpu`] first and runs `loops::name` compiled for
/// it.
macro_rules! dispatched {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)?;)*) => {$(
        $(#[$meta])*
        #[inline]
        pub(crate) fn $name(cpu: Cpu, $($arg: $type),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                use crate::simd::vector::x86;
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
                fn avx512($($arg: $type),*) $(-> $ret)? { loops::$name::<x86::Avx512>($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) $(-> $ret)? { loops::$name::<x86::Avx2>($($arg),*) }
                // `min` keeps this sound for any `Cpu` a caller makes up.
                match cpu.min(Cpu::detect()) {
                    // SAFETY: `detect` saw these instruction sets on this processor.
                    #[allow(unsafe_code)]
                    Cpu::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    #[allow(unsafe_code)]
                    Cpu::Avx2 => return unsafe { avx2($($arg),*) },
                    Cpu::Plain => {}
                }
            }
            let _ = cpu;
            loops::$name::<[f32; LANES]>($($arg),*)
        }
    )*};
}

dispatched! {
    /// Angles of a group of samples.
    fn project_together(panels: &[Line], x: &[f32], angles: &mut [Angles; GROUP]);
    /// Angles of one sample.
    fn project_alone(panels: &[Line], x: &[f32], angles: &mut Angles);
    /// Angles of one or more samples on the few frequencies that have no panel, as line `line` of
    /// their tile.
    fn project_few(few: &[Line], x: &[f32], line: usize, angles: &mut [Angles]);
    /// Features of one or more samples from their angles on `count` panels, whose frequencies begin
    /// at `first`.
    fn write_features(projection: &Projection<'_>, first: usize, count: usize, angles: &[Angles], z: &mut [f32]);
    /// Angles of one sample on structured frequencies.
    fn project_structured(block: &Block, x: &[f32], buffer: &mut [Line], angles: &mut [Line]);
    /// Features of one sample from a dictionary.
    fn map_dictionary(panels: &[Line], phases: &[Line], linear: usize, x: &[f32], z: &mut [f32]);
    /// wᵀz.
    fn dot(model: &[Line], z: &[f32]) -> f32;
    /// ‖w‖².
    fn norm2(model: &[Line]) -> f32;
    /// One gradient step on each row of `models` for the same row of `z` (`width` long), and its
    /// objective before that.
    fn descend_rows(models: &mut [Line], z: &[f32], width: usize, step: &Step, losses: &mut [f64]);
    /// The largest size of a number; NaN is larger than any.
    fn largest_size(values: &[f32]) -> f32;
    /// Adds `values` to a sum in exact parts; see [`crate::aggregation::ExactSum`].
    fn add_exactly(parts: &mut [Vec<f64>; 3], values: &[f32]);
    /// Adds z zᵀ of some rows, each as long as `moment`, to a lower triangle, and z y to `moment`.
    fn add_gram(gram: &mut [f64], moment: &mut [f64], z: &[f64], y: &[f64]);
    /// Adds Σⱼ wⱼ·cos(vⱼ·x + bⱼ) of some units to the outputs of blocks of samples.
    fn add_units(samples: &Samples<'_>, units: &[f32], outputs: &mut [Line]);
    /// Adds a₀ + a·x to the outputs of blocks of samples.
    fn add_linear(samples: &Samples<'_>, coefficients: &[f32], outputs: &mut [Line]);
    /// Adds Σ slope·(1, x, cos(vⱼ·x + bⱼ)) over blocks of samples.
    fn add_output_gradient(samples: &Samples<'_>, units: &[f32], slopes: &[Line], gradient: &mut [f64]);
    /// Adds Σ slope·(cos, −w·sin, −w·sin·x) of each unit over blocks of samples.
    fn add_unit_gradient(samples: &Samples<'_>, units: &[f32], slopes: &[Line], gradient: &mut [f64]);
    /// Writes the columns (1, x, cos(vⱼ·x + bⱼ)) of blocks of samples.
    fn output_columns(samples: &Samples<'_>, units: &[f32], columns: &mut [Line]);
    /// Writes the columns (cos, −w·sin, −w·sin·x) of each unit on blocks of samples.
    fn unit_columns(samples: &Samples<'_>, units: &[f32], columns: &mut [Line]);
    /// Writes the sums of products of columns of `len` lines each: a lower triangle.
    fn column_products(columns: &[Line], len: usize, products: &mut [f64]);
    /// Writes A v, where the lower triangle of A is given row by row.
    fn multiply_symmetric(matrix: &[f64], v: &[f64], product: &mut [f64]);
    /// Takes Σ c cᵀv off `product`, where the vectors c stand one after the other.
    fn subtract_squares(vectors: &[f64], v: &[f64], product: &mut [f64]);
    /// Adds factor·v vᵀ to a lower triangle.
    fn add_square(matrix: &mut [f64], v: &[f64], factor: f64);
    /// Writes A v, where A is given by blocks; see [`WideLine`].
    fn multiply_blocks(matrix: &[WideLine], v: &[f64], product: &mut [f64]);
    /// Turns a positive matrix by blocks into its inverse, and says whether it could. `columns` has
    /// eight lines for each block of rows.
    fn invert(matrix: &mut [WideLine], columns: &mut [WideLine]) -> bool;
    /// Writes A v, and (Lᵀ + ½D)u of two other vectors, where L is what is below the diagonal D.
    fn multiply_with_halves(matrix: &[f64], v: &[f64], product: &mut [f64], others: [&[f64]; 2], halves: [&mut [f64]; 2]);
    /// Turns a lower triangle of A less `penalty` on the diagonal into that of L, with A = L Lᵀ. A
    /// direction in which no more than `tiny` is left has an infinite pivot.
    fn factor(matrix: &mut [f64], len: usize, penalty: f64, tiny: f64);
    /// aᵀb.
    fn dot_wide(a: &[f64], b: &[f64]) -> f64;
    /// Writes multiples of the first numbers of `z`.
    fn widen(z: &[f32], factor: f64, out: &mut [f64]);
    /// Adds a multiple of a vector.
    fn add_multiple(out: &mut [f64], v: &[f64], factor: f64);
    /// Turns b into A⁻¹b, given L.
    fn solve(factor: &[f64], w: &mut [f64]);
    #[cfg(feature = "probe")]
    /// Multiplies and adds without touching memory; returns what keeps the compiler from leaving it
    /// out.
    fn spin(rounds: u64) -> f32;
    #[cfg(feature = "probe")]
    /// Sines and cosines of angles that stay in the nearest cache.
    fn sin_cos_all(angles: &[Line], sines: &mut [Line], cosines: &mut [Line]);
    #[cfg(feature = "probe")]
    /// Loads everything once; returns what keeps the compiler from leaving it out.
    fn load_all(block: &[Line]) -> f32;
    #[cfg(feature = "probe")]
    /// Stores something everywhere.
    fn store_all(block: &mut [Line]);
}

/// Features of a batch of samples, the same as of each alone.
pub(crate) fn map_features(cpu: Cpu, projection: &Projection<'_>, x: &[f32], z: &mut [f32]) {
    let (d, width) = (projection.inputs, projection.width);
    let tiles = || projection.panels.chunks(TILE * d).zip((0..).step_by(TILE * LANES));
    // Lines of a tile, once those that have no panel are there too.
    let finish = |panels: &[Line], x: &[f32], angles: &mut [Angles]| {
        let lines = panels.len() / d;
        if projection.few.is_empty() || lines == TILE {
            return lines;
        }
        project_few(cpu, projection.few, x, lines, angles);
        lines + 1
    };
    let (mut x, mut z) = (x, z);
    if x.len() >= GROUP * d {
        let mut angles = [NO_ANGLES; GROUP];
        while let (Some((group, rest)), true) = (x.split_at_checked(GROUP * d), !x.is_empty()) {
            let (features, more) = z.split_at_mut(GROUP * width);
            for (panels, first) in tiles() {
                project_together(cpu, panels, group, &mut angles);
                let lines = finish(panels, group, &mut angles);
                write_features(cpu, projection, first, lines, &angles, features);
            }
            (x, z) = (rest, more);
        }
    }
    let mut angles = [NO_ANGLES];
    for (x, z) in x.chunks_exact(d).zip(z.chunks_exact_mut(width)) {
        for (panels, first) in tiles() {
            project_alone(cpu, panels, x, &mut angles[0]);
            let lines = finish(panels, x, &mut angles);
            write_features(cpu, projection, first, lines, &angles, z);
        }
    }
}

/// The dot product of two lines, in an order that doesn't depend on the processor.
pub(crate) fn dot_line(a: &[f32; LANES], b: &[f32; LANES]) -> f32 {
    let mut products: [f32; LANES] = core::array::from_fn(|lane| a[lane] * b[lane]);
    let mut half = LANES / 2;
    while half > 0 {
        (0..half).for_each(|lane| products[lane] += products[lane + half]);
        half /= 2;
    }
    products[0]
}

/// Position and value of the first number that is not at most `bound` in size.
pub(crate) fn first_beyond(values: &[f32], bound: f32) -> Option<(usize, f32)> {
    if is_within(largest_size(Cpu::detect(), values), bound) {
        return None;
    }
    let position = values.iter().position(|value| !is_within(*value, bound))?;
    Some((position, values[position]))
}

/// Whether a number is at most `bound` in size; NaN is not.
pub(crate) fn is_within(value: f32, bound: f32) -> bool {
    value.abs() <= bound
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Kernel;
    use crate::features::{Amplitude, Draw, FeatureMap, FeatureSpec};
    use crate::learning::loss::{Loss, Objective};
    use crate::random::CounterRng;
    use crate::simd::loops::{PADDING, Use};

    fn numbers(seed: u64, count: usize) -> Vec<f32> {
        let stream = CounterRng::from_seed(seed);
        (0..count as u64).map(|i| stream.uniform_at(i) as f32 * 2.0 - 1.0).collect()
    }

    /// Every loop that returns f32, run for one instruction set.
    fn everything(cpu: Cpu, inputs: usize, per_kernel: usize, samples: usize) -> Vec<u32> {
        let kernels = 3;
        let frequencies = kernels * per_kernel;
        let padded = frequencies.next_multiple_of(PADDING);
        let rows = numbers(1, padded * inputs);
        let panels: Vec<Line> = rows
            .as_chunks()
            .0
            .iter()
            .map(|row: &[f32; LANES]| Line(row.map(|value| value * 40.0)))
            .collect();
        let uses: Vec<Use> = (0..kernels)
            .map(|kernel| Use { start: kernel * per_kernel, scale: 1.0 + kernel as f32 })
            .collect();
        let width = kernels * 2 * per_kernel;
        let projection = Projection {
            panels: &panels,
            few: &[],
            inputs,
            uses: &uses,
            tails: &[],
            shared: samples.is_multiple_of(2),
            largest_angle: 1e5,
            per_kernel,
            width,
            amplitude: 1.0 / (per_kernel as f32).sqrt(),
        };
        let mut z = vec![0.0; samples * width];
        map_features(cpu, &projection, &numbers(2, samples * inputs), &mut z);
        let lines = kernels * (2 * per_kernel).div_ceil(LANES);
        let mut models = vec![Line([0.0; LANES]); lines];
        let objective = Objective { loss: Loss::Squared, ridge: 0.05 };
        let step = Step { objective, label: 0.7, rate: 0.3, longest: 1e15 };
        let mut losses = [0.0; 3];
        for features in z.chunks_exact(width) {
            descend_rows(cpu, &mut models, features, 2 * per_kernel, &step, &mut losses);
        }
        let mut parts = core::array::from_fn(|_| vec![0.0; width]);
        add_exactly(cpu, &mut parts, &z[..width]);
        let mut all = z;
        all.push(dot(cpu, &models[..lines / kernels], &all[..2 * per_kernel]));
        all.push(norm2(cpu, &models));
        all.push(largest_size(cpu, &all));
        all.extend(losses.map(|loss| loss as f32));
        all.extend(models.iter().flat_map(|line| line.0));
        all.extend(parts.iter().flatten().map(|part| *part as f32));
        all.iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        for (inputs, per_kernel, samples) in [(1, 1, 1), (5, 49, 9), (77, 50, 4), (3, 64, 7)] {
            let plain = everything(Cpu::Plain, inputs, per_kernel, samples);
            for cpu in [Cpu::Avx2, Cpu::Avx512] {
                if cpu > Cpu::detect() {
                    std::println!("{} skipped: this processor does not have it", cpu.name());
                    continue;
                }
                assert_eq!(plain, everything(cpu, inputs, per_kernel, samples), "{}", cpu.name());
            }
        }
    }

    #[test]
    fn few_frequencies_have_the_same_bits_everywhere_and_are_right() {
        // Three panels and one frequency without; nine of them, more than a tile, and two without.
        [49, 146].into_iter().for_each(few_frequencies_are_right);
    }

    fn few_frequencies_are_right(frequencies: usize) {
        let (inputs, samples) = (77, 9);
        let spec = FeatureSpec {
            kernels: vec![Kernel::gaussian(1.0), Kernel::gaussian(30.0)],
            draw: Draw::Shared,
            inputs,
            frequencies,
            seed: 3,
            amplitude: Amplitude::Unnormalised,
        };
        let map = FeatureMap::new(&spec).unwrap();
        let x = numbers(6, samples * inputs);
        let mut together = vec![0.0; samples * map.width()];
        map.map_batch(&x, &mut together);
        for cpu in [Cpu::Plain, Cpu::Avx2, Cpu::Avx512] {
            let map = map.clone().on(cpu);
            let mut alone = vec![0.0; map.width()];
            for (x, expected) in x.chunks_exact(inputs).zip(together.chunks_exact(map.width())) {
                assert_eq!(map.map(x, &mut alone).numbers(), expected, "{}", cpu.name());
            }
        }
        for (x, z) in x.chunks_exact(inputs).zip(together.chunks_exact(map.width())) {
            for (kernel, z) in z.chunks_exact(2 * frequencies).enumerate() {
                let rows = map.frequencies(kernel);
                for (at, row) in rows.chunks_exact(inputs).enumerate() {
                    let turns: f64 = row.iter().zip(x).map(|(v, x)| v * f64::from(*x)).sum();
                    let (sine, cosine) = (turns * core::f64::consts::FRAC_PI_2).sin_cos();
                    assert!((f64::from(z[at]) - sine).abs() < 1e-4, "{kernel} {at}");
                    assert!(
                        (f64::from(z[frequencies + at]) - cosine).abs() < 1e-4,
                        "{kernel} {at}"
                    );
                }
            }
        }
    }
}
