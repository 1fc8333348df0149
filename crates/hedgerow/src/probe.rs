//! What this machine can do at best, for the benchmarks: the floor that node steps are compared with.

use std::hint::black_box;
use std::time::Instant;

use crate::loops::SPIN_WIDTH;
use crate::simd::{self, Cpu};

/// Rates of one core.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Fused multiply-adds count twice.
    pub flops_per_ns: f64,
    /// One sine and one cosine.
    pub ns_per_sin_cos: f64,
    /// Reading memory that fits the second cache.
    pub bytes_per_ns: f64,
}

/// Measures for about a tenth of a second.
pub fn machine() -> Machine {
    let cpu = Cpu::detect();
    let rounds = 200_000;
    let ns = nanoseconds(|| {
        black_box(simd::spin(cpu, black_box(rounds)));
    });
    let flops_per_ns = 2.0 * (SPIN_WIDTH as u64 * rounds) as f64 / ns;

    let angles: Vec<f32> = (0..1024).map(|i| i as f32 * 0.37 - 190.0).collect();
    let (mut sines, mut cosines) = (vec![0.0; angles.len()], vec![0.0; angles.len()]);
    let ns = nanoseconds(|| {
        for _ in 0..2000 {
            simd::sin_cos_all(cpu, black_box(&angles), &mut sines, &mut cosines);
        }
    });
    let ns_per_sin_cos = ns / (2000 * angles.len()) as f64;

    let block = vec![1.0f32; 64 * 1024];
    let ns = nanoseconds(|| {
        for _ in 0..200 {
            black_box(simd::largest_size(cpu, black_box(&block)));
        }
    });
    let bytes_per_ns = (200 * 4 * block.len()) as f64 / ns;
    Machine { flops_per_ns, ns_per_sin_cos, bytes_per_ns }
}

/// The fastest of a few runs: on a shared machine everything slower is someone else's doing.
pub fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let runs = (0..7).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64
    });
    runs.fold(f64::INFINITY, f64::min)
}
