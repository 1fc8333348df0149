//! [`Wide`]: eight f64 at a time, as [`super::vector::Vector`] is sixteen f32. Every implementation
//! gives the same bits.

use serde::{Deserialize, Serialize};

use crate::math;

/// Numbers in a vector, on every processor.
pub(crate) const WIDE: usize = 8;

/// Eight f64 in memory, on a cache line of their own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[repr(align(64))]
pub(crate) struct WideLine(pub(crate) [f64; WIDE]);

/// Eight f64.
pub(crate) trait Wide: Copy {
    fn splat(value: f64) -> Self;
    fn load(from: &[f64; WIDE]) -> Self;
    fn store(self, into: &mut [f64; WIDE]);
    /// The first few lanes from a slice of at most eight, zeros in the others.
    fn load_part(from: &[f64]) -> Self;
    /// self · factor + term, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    fn add(self, other: Self) -> Self;
    /// The sum of the lanes of each vector: neighbours are added until one is left.
    fn sums(four: [Self; 4]) -> [f64; 4];
    /// The sum of the lanes, as [`Wide::sums`] has it.
    #[inline(always)]
    fn sum(self) -> f64 {
        Self::sums([self; 4])[0]
    }
}

impl Wide for [f64; WIDE] {
    #[inline(always)]
    fn splat(value: f64) -> Self {
        [value; WIDE]
    }

    #[inline(always)]
    fn load(from: &[f64; WIDE]) -> Self {
        *from
    }

    #[inline(always)]
    fn store(self, into: &mut [f64; WIDE]) {
        *into = self;
    }

    #[inline(always)]
    fn load_part(from: &[f64]) -> Self {
        let mut lanes = [0.0; WIDE];
        lanes.iter_mut().zip(from).for_each(|(lane, value)| *lane = *value);
        lanes
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        core::array::from_fn(|lane| math::mul_add(self[lane], factor[lane], term[lane]))
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        core::array::from_fn(|lane| self[lane] + other[lane])
    }

    #[inline(always)]
    fn sums(four: [Self; 4]) -> [f64; 4] {
        four.map(Self::sum)
    }

    #[inline(always)]
    fn sum(self) -> f64 {
        let [a, b, c, d, e, f, g, h] = self;
        ((a + b) + (c + d)) + ((e + f) + (g + h))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    #![allow(unsafe_code)]
    // SAFETY of every block below: as in `vector.rs`.

    use super::{WIDE, Wide};
    use core::arch::x86_64::*;

    /// A 512-bit register.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512d);

    impl Wide for Avx512 {
        #[inline(always)]
        fn splat(value: f64) -> Self {
            Self(unsafe { _mm512_set1_pd(value) })
        }

        #[inline(always)]
        fn load(from: &[f64; WIDE]) -> Self {
            Self(unsafe { _mm512_loadu_pd(from.as_ptr()) })
        }

        #[inline(always)]
        fn store(self, into: &mut [f64; WIDE]) {
            unsafe { _mm512_storeu_pd(into.as_mut_ptr(), self.0) }
        }

        #[inline(always)]
        fn load_part(from: &[f64]) -> Self {
            let mask = (1u32 << from.len().min(WIDE)) - 1;
            // Lanes without a one are not read.
            Self(unsafe { _mm512_maskz_loadu_pd(mask as u8, from.as_ptr()) })
        }

        #[inline(always)]
        fn mul_add(self, factor: Self, term: Self) -> Self {
            Self(unsafe { _mm512_fmadd_pd(self.0, factor.0, term.0) })
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Self(unsafe { _mm512_add_pd(self.0, other.0) })
        }

        #[inline(always)]
        fn sums([a, b, c, d]: [Self; 4]) -> [f64; 4] {
            // Pairs of a and b in turns, and those of c and d.
            let pairs = |a: __m512d, b: __m512d| unsafe {
                _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b))
            };
            let (ab, cd) = (pairs(a.0, b.0), pairs(c.0, d.0));
            unsafe {
                let fours = _mm512_add_pd(
                    _mm512_shuffle_f64x2(ab, cd, 0b10_00_10_00),
                    _mm512_shuffle_f64x2(ab, cd, 0b11_01_11_01),
                );
                let all = _mm512_add_pd(fours, _mm512_shuffle_f64x2(fours, fours, 0b10_11_00_01));
                let mut sums = [0.0; 4];
                let low = _mm512_castpd512_pd256(all);
                let high = _mm512_extractf64x4_pd(all, 1);
                _mm256_storeu_pd(sums.as_mut_ptr(), _mm256_permute2f128_pd(low, high, 0x20));
                sums
            }
        }
    }

    /// Two 256-bit registers.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2([__m256d; 2]);

    impl Wide for Avx2 {
        #[inline(always)]
        fn splat(value: f64) -> Self {
            Self([unsafe { _mm256_set1_pd(value) }; 2])
        }

        #[inline(always)]
        fn load(from: &[f64; WIDE]) -> Self {
            unsafe { Self([_mm256_loadu_pd(from.as_ptr()), _mm256_loadu_pd(from[4..].as_ptr())]) }
        }

        #[inline(always)]
        fn store(self, into: &mut [f64; WIDE]) {
            unsafe {
                _mm256_storeu_pd(into.as_mut_ptr(), self.0[0]);
                _mm256_storeu_pd(into[4..].as_mut_ptr(), self.0[1]);
            }
        }

        #[inline(always)]
        fn load_part(from: &[f64]) -> Self {
            // A window on this has as many ones as there are lanes to load.
            const ONES_AND_ZEROS: [i64; 2 * WIDE] =
                [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
            let mask = &ONES_AND_ZEROS[WIDE - from.len().min(WIDE)..][..WIDE];
            // Lanes without a one are not read; their address is, but never used.
            let half = |at: usize| unsafe {
                let ones = _mm256_loadu_si256(mask[at..].as_ptr().cast());
                _mm256_maskload_pd(from.as_ptr().wrapping_add(at), ones)
            };
            Self([half(0), half(4)])
        }

        #[inline(always)]
        fn mul_add(self, factor: Self, term: Self) -> Self {
            let fused = |half: usize| unsafe {
                _mm256_fmadd_pd(self.0[half], factor.0[half], term.0[half])
            };
            Self([fused(0), fused(1)])
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            let both = |half: usize| unsafe { _mm256_add_pd(self.0[half], other.0[half]) };
            Self([both(0), both(1)])
        }

        #[inline(always)]
        fn sums([a, b, c, d]: [Self; 4]) -> [f64; 4] {
            let half = |half: usize| unsafe {
                let ab = _mm256_hadd_pd(a.0[half], b.0[half]);
                let cd = _mm256_hadd_pd(c.0[half], d.0[half]);
                _mm256_add_pd(
                    _mm256_permute2f128_pd(ab, cd, 0x20),
                    _mm256_permute2f128_pd(ab, cd, 0x31),
                )
            };
            let mut sums = [0.0; 4];
            unsafe { _mm256_storeu_pd(sums.as_mut_ptr(), _mm256_add_pd(half(0), half(1))) };
            sums
        }
    }
}
