//! What this machine can do at best, for the benchmarks: the floor that node steps are compared
//! with.

use alloc::vec::Vec;
use std::hint::black_box;
use std::time::Instant;

use crate::simd::loops::SPIN_WIDTH;
use crate::simd::vector::{LANES, Line};
use crate::simd::{self, Cpu};

/// Rates of one core.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Fused multiply-adds of two numbers and a third. (A product alone takes as long.)
    pub mul_adds_per_ns: f64,
    /// One sine and one cosine, stored in the nearest cache.
    pub ns_per_sin_cos: f64,
    /// One exponential in double precision.
    pub ns_per_exp: f64,
}

/// What loops that only load, or only store, reach in a block of memory that is used again and
/// again.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Bytes.
    pub loaded_per_ns: f64,
    /// Bytes.
    pub stored_per_ns: f64,
}

impl Machine {
    /// The better of two measurements, number by number.
    pub fn at_best(self, other: Self) -> Self {
        Self {
            mul_adds_per_ns: self.mul_adds_per_ns.max(other.mul_adds_per_ns),
            ns_per_sin_cos: self.ns_per_sin_cos.min(other.ns_per_sin_cos),
            ns_per_exp: self.ns_per_exp.min(other.ns_per_exp),
        }
    }
}

impl Memory {
    /// The better of two measurements, number by number.
    pub fn at_best(self, other: Self) -> Self {
        Self {
            loaded_per_ns: self.loaded_per_ns.max(other.loaded_per_ns),
            stored_per_ns: self.stored_per_ns.max(other.stored_per_ns),
        }
    }
}

/// Measures for about a tenth of a second.
pub fn machine() -> Machine {
    let cpu = Cpu::detect();
    let rounds = 200_000;
    let ns = nanoseconds(|| spin(rounds));
    let mul_adds_per_ns = (SPIN_WIDTH as u64 * rounds) as f64 / ns;

    // Not a whole page, or the three would get into each other's way.
    let angles: Vec<Line> = (0..60).map(|i| Line([i as f32 * 3.7 - 190.0; LANES])).collect();
    let (mut sines, mut cosines) = (angles.clone(), angles.clone());
    let ns = nanoseconds(|| {
        for _ in 0..2000 {
            simd::sin_cos_all(cpu, black_box(&angles), &mut sines, &mut cosines);
        }
    });
    let ns_per_sin_cos = ns / (2000 * LANES * angles.len()) as f64;

    let gaps: Vec<f64> = (0..64).map(|i| f64::from(i) * -0.3).collect();
    let ns = nanoseconds(|| {
        for _ in 0..1000 {
            black_box(black_box(&gaps).iter().map(|gap| crate::math::exp(*gap)).sum::<f64>());
        }
    });
    Machine { mul_adds_per_ns, ns_per_sin_cos, ns_per_exp: ns / (1000 * gaps.len()) as f64 }
}

/// Multiplies and adds in registers for so many rounds.
pub fn spin(rounds: u64) {
    black_box(simd::spin(Cpu::detect(), black_box(rounds)));
}

/// Measures in a block of so many bytes, so that the caches it fits decide.
pub fn memory(bytes: usize) -> Memory {
    let cpu = Cpu::detect();
    let mut block = vec![Line([1.0; LANES]); bytes.div_ceil(size_of::<Line>()).max(8)];
    let passes = (1 << 16_u32) / block.len() + 4;
    let touched = (passes * size_of_val(&block[..])) as f64;
    let loading = nanoseconds(|| {
        for _ in 0..passes {
            black_box(simd::load_all(cpu, black_box(&block)));
        }
    });
    let storing = nanoseconds(|| {
        for _ in 0..passes {
            simd::store_all(cpu, black_box(&mut block));
        }
    });
    Memory { loaded_per_ns: touched / loading, stored_per_ns: touched / storing }
}

/// The fastest of a few runs: on a shared machine everything slower is someone else's doing.
pub fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let runs = (0..15).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64
    });
    runs.fold(f64::INFINITY, f64::min)
}
