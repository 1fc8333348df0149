//! [`Vector`]: sixteen f32 at a time, on whatever the processor has for it. Safe code above,
//! instructions below.
//!
//! All operations are exactly rounded and sums have one order, so **every implementation gives the
//! same bits**. A processor without fused multiply-add (x86-64 before 2013) computes it in
//! software, slowly.
//!
//! This file, `wide.rs` and `simd.rs` are the only ones with unsafe code, for one reason: an
//! instruction set may be used once the processor is known to have it. `simd.rs` makes sure of that
//! before it calls a loop with one of the types below.

use crate::math;
use crate::simd::wide::{self, WIDE, Wide};

/// Numbers in a vector, on every processor.
pub(crate) const LANES: usize = 16;

/// Sixteen f32 in memory, on a cache line of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(align(64))]
pub(crate) struct Line(pub(crate) [f32; LANES]);

/// Sixteen f32.
pub(crate) trait Vector: Copy {
    /// How many vectors the processor's registers hold.
    const REGISTERS: usize;
    /// Eight f64 on the same processor.
    type Wide: Wide;

    fn splat(value: f32) -> Self;
    fn load(from: &[f32; LANES]) -> Self;
    fn store(self, into: &mut [f32; LANES]);
    /// Stores lanes `low` to `high`, leaving the others.
    fn store_part(self, into: &mut [f32; LANES], low: usize, high: usize);
    /// self · factor + term, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    /// Where the lowest bit of `choice` is set `other`, else self.
    fn or_if_odd(self, choice: Self, other: Self) -> Self;
    /// Changes the sign where the second lowest bit of `choice`, taken as an integer plus `add`, is
    /// set.
    fn negate_by(self, choice: Self, add: u32) -> Self;
    /// The larger of the sizes |a|, |b| by their bits; NaN is larger than anything.
    fn larger_size(self, other: Self) -> Self;
    /// Whether some lane is larger than `bound` in size, or NaN.
    fn any_beyond(self, bound: f32) -> bool;
    /// The first few lanes from a slice, zeros in the others.
    fn load_part(from: &[f32]) -> Self;
    /// In each lane the one of self that `lanes` names, from 0 to 15.
    fn pick(self, lanes: &[u32; LANES]) -> Self;
    /// The same with another number in one lane.
    fn with_lane(self, lane: usize, value: f32) -> Self;
    /// In each lane the one whose number differs by the bit `APART`: 1, 2, 4 or 8.
    fn partners<const APART: usize>(self) -> Self;
    /// Sum of the lanes: halves are added until one is left.
    fn sum(self) -> f32;
    /// The sums of two vectors, each as [`Vector::sum`] has it.
    fn sums(self, other: Self) -> (f32, f32) {
        (self.sum(), other.sum())
    }
}

const SIZE_BITS: u32 = 0x7FFF_FFFF;

impl Vector for [f32; LANES] {
    const REGISTERS: usize = 4;
    type Wide = [f64; WIDE];

    #[inline(always)]
    fn splat(value: f32) -> Self {
        [value; LANES]
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        *from
    }

    #[inline(always)]
    fn store(self, into: &mut [f32; LANES]) {
        *into = self;
    }

    #[inline(always)]
    fn store_part(self, into: &mut [f32; LANES], low: usize, high: usize) {
        into[low..high].copy_from_slice(&self[low..high]);
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        core::array::from_fn(|lane| math::mul_add_f32(self[lane], factor[lane], term[lane]))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        core::array::from_fn(|lane| self[lane] * other[lane])
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        core::array::from_fn(|lane| self[lane] + other[lane])
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        core::array::from_fn(|lane| self[lane] - other[lane])
    }

    #[inline(always)]
    fn or_if_odd(self, choice: Self, other: Self) -> Self {
        core::array::from_fn(
            |lane| if choice[lane].to_bits() & 1 == 1 { other[lane] } else { self[lane] },
        )
    }

    #[inline(always)]
    fn negate_by(self, choice: Self, add: u32) -> Self {
        core::array::from_fn(|lane| {
            let sign = (choice[lane].to_bits().wrapping_add(add) & 2) << 30;
            f32::from_bits(self[lane].to_bits() ^ sign)
        })
    }

    #[inline(always)]
    fn larger_size(self, other: Self) -> Self {
        let size = |value: f32| value.to_bits() & SIZE_BITS;
        core::array::from_fn(|lane| f32::from_bits(size(self[lane]).max(size(other[lane]))))
    }

    #[inline(always)]
    fn any_beyond(self, bound: f32) -> bool {
        self.iter().fold(false, |any, value| any | (value.to_bits() & SIZE_BITS > bound.to_bits()))
    }

    #[inline(always)]
    fn load_part(from: &[f32]) -> Self {
        let mut lanes = [0.0; LANES];
        for (lane, value) in lanes.iter_mut().zip(from) {
            *lane = *value;
        }
        lanes
    }

    #[inline(always)]
    fn pick(self, lanes: &[u32; LANES]) -> Self {
        lanes.map(|lane| self[lane as usize % LANES])
    }

    #[inline(always)]
    fn with_lane(mut self, lane: usize, value: f32) -> Self {
        self[lane] = value;
        self
    }

    #[inline(always)]
    fn partners<const APART: usize>(self) -> Self {
        core::array::from_fn(|lane| self[lane ^ APART])
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        let mut lanes = self;
        let mut half = LANES / 2;
        while half > 0 {
            for lane in 0..half {
                lanes[lane] += lanes[lane + half];
            }
            half /= 2;
        }
        lanes[0]
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    #![allow(unsafe_code)]
    // SAFETY of every block below: `simd.rs` calls loops over these types only where the processor
    // has the instructions, and loads and stores stay within the arrays they are given.

    use super::{LANES, SIZE_BITS, Vector, wide};
    use core::arch::x86_64::*;

    /// 512-bit registers.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    impl Avx512 {
        #[inline(always)]
        fn halves_added(self) -> __m256 {
            unsafe {
                _mm256_add_ps(_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps(self.0, 1))
            }
        }
    }

    impl Vector for Avx512 {
        const REGISTERS: usize = 32;
        type Wide = wide::x86::Avx512;

        #[inline(always)]
        fn splat(value: f32) -> Self {
            Self(unsafe { _mm512_set1_ps(value) })
        }

        #[inline(always)]
        fn load(from: &[f32; LANES]) -> Self {
            Self(unsafe { _mm512_loadu_ps(from.as_ptr()) })
        }

        #[inline(always)]
        fn store(self, into: &mut [f32; LANES]) {
            unsafe { _mm512_storeu_ps(into.as_mut_ptr(), self.0) }
        }

        #[inline(always)]
        fn store_part(self, into: &mut [f32; LANES], low: usize, high: usize) {
            let mask = ((1u32 << high) - (1u32 << low)) as u16;
            unsafe { _mm512_mask_storeu_ps(into.as_mut_ptr(), mask, self.0) }
        }

        #[inline(always)]
        fn mul_add(self, factor: Self, term: Self) -> Self {
            Self(unsafe { _mm512_fmadd_ps(self.0, factor.0, term.0) })
        }

        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            Self(unsafe { _mm512_mul_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Self(unsafe { _mm512_add_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            Self(unsafe { _mm512_sub_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn or_if_odd(self, choice: Self, other: Self) -> Self {
            Self(unsafe {
                let odd =
                    _mm512_test_epi32_mask(_mm512_castps_si512(choice.0), _mm512_set1_epi32(1));
                _mm512_mask_blend_ps(odd, self.0, other.0)
            })
        }

        #[inline(always)]
        fn negate_by(self, choice: Self, add: u32) -> Self {
            Self(unsafe {
                let moved =
                    _mm512_add_epi32(_mm512_castps_si512(choice.0), _mm512_set1_epi32(add as i32));
                let sign =
                    _mm512_and_si512(_mm512_slli_epi32(moved, 30), _mm512_set1_epi32(i32::MIN));
                _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(self.0), sign))
            })
        }

        #[inline(always)]
        fn larger_size(self, other: Self) -> Self {
            Self(unsafe {
                let bits = _mm512_set1_epi32(SIZE_BITS as i32);
                let a = _mm512_and_si512(_mm512_castps_si512(self.0), bits);
                let b = _mm512_and_si512(_mm512_castps_si512(other.0), bits);
                _mm512_castsi512_ps(_mm512_max_epi32(a, b))
            })
        }

        #[inline(always)]
        fn any_beyond(self, bound: f32) -> bool {
            unsafe {
                let size = _mm512_and_si512(
                    _mm512_castps_si512(self.0),
                    _mm512_set1_epi32(SIZE_BITS as i32),
                );
                _mm512_cmpgt_epi32_mask(size, _mm512_set1_epi32(bound.to_bits() as i32)) != 0
            }
        }

        #[inline(always)]
        fn load_part(from: &[f32]) -> Self {
            let mask = ((1u32 << from.len().min(LANES)) - 1) as u16;
            Self(unsafe { _mm512_maskz_loadu_ps(mask, from.as_ptr()) })
        }

        #[inline(always)]
        fn pick(self, lanes: &[u32; LANES]) -> Self {
            Self(unsafe {
                _mm512_permutexvar_ps(_mm512_loadu_si512(lanes.as_ptr().cast()), self.0)
            })
        }

        #[inline(always)]
        fn with_lane(self, lane: usize, value: f32) -> Self {
            let mask = (1u32 << (lane % LANES)) as u16;
            Self(unsafe { _mm512_mask_broadcastss_ps(self.0, mask, _mm_set_ss(value)) })
        }

        #[inline(always)]
        fn partners<const APART: usize>(self) -> Self {
            Self(unsafe {
                match APART {
                    1 => _mm512_permute_ps(self.0, 0b10_11_00_01),
                    2 => _mm512_permute_ps(self.0, 0b01_00_11_10),
                    4 => _mm512_shuffle_f32x4(self.0, self.0, 0b10_11_00_01),
                    _ => _mm512_shuffle_f32x4(self.0, self.0, 0b01_00_11_10),
                }
            })
        }

        #[inline(always)]
        fn sum(self) -> f32 {
            unsafe { sum256(self.halves_added()) }
        }

        #[inline(always)]
        fn sums(self, other: Self) -> (f32, f32) {
            unsafe { sums256(self.halves_added(), other.halves_added()) }
        }
    }

    /// Two 256-bit registers.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2([__m256; 2]);

    impl Avx2 {
        #[inline(always)]
        fn each(self, other: Self, both: impl Fn(__m256, __m256) -> __m256) -> Self {
            Self([both(self.0[0], other.0[0]), both(self.0[1], other.0[1])])
        }
    }

    impl Vector for Avx2 {
        const REGISTERS: usize = 8;
        type Wide = wide::x86::Avx2;

        #[inline(always)]
        fn splat(value: f32) -> Self {
            Self([unsafe { _mm256_set1_ps(value) }; 2])
        }

        #[inline(always)]
        fn load(from: &[f32; LANES]) -> Self {
            unsafe { Self([_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from[8..].as_ptr())]) }
        }

        #[inline(always)]
        fn store(self, into: &mut [f32; LANES]) {
            unsafe {
                _mm256_storeu_ps(into.as_mut_ptr(), self.0[0]);
                _mm256_storeu_ps(into[8..].as_mut_ptr(), self.0[1]);
            }
        }

        #[inline(always)]
        fn store_part(self, into: &mut [f32; LANES], low: usize, high: usize) {
            let mut lanes = [0.0; LANES];
            self.store(&mut lanes);
            lanes.store_part(into, low, high);
        }

        #[inline(always)]
        fn mul_add(self, factor: Self, term: Self) -> Self {
            let fused = |half: usize| unsafe {
                _mm256_fmadd_ps(self.0[half], factor.0[half], term.0[half])
            };
            Self([fused(0), fused(1)])
        }

        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            self.each(other, |a, b| unsafe { _mm256_mul_ps(a, b) })
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            self.each(other, |a, b| unsafe { _mm256_add_ps(a, b) })
        }

        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            self.each(other, |a, b| unsafe { _mm256_sub_ps(a, b) })
        }

        #[inline(always)]
        fn or_if_odd(self, choice: Self, other: Self) -> Self {
            let picked = |half: usize| unsafe {
                // The blend looks at the highest bit.
                let odd = _mm256_slli_epi32(_mm256_castps_si256(choice.0[half]), 31);
                _mm256_blendv_ps(self.0[half], other.0[half], _mm256_castsi256_ps(odd))
            };
            Self([picked(0), picked(1)])
        }

        #[inline(always)]
        fn negate_by(self, choice: Self, add: u32) -> Self {
            self.each(choice, |value, choice| unsafe {
                let moved =
                    _mm256_add_epi32(_mm256_castps_si256(choice), _mm256_set1_epi32(add as i32));
                let sign =
                    _mm256_and_si256(_mm256_slli_epi32(moved, 30), _mm256_set1_epi32(i32::MIN));
                _mm256_castsi256_ps(_mm256_xor_si256(_mm256_castps_si256(value), sign))
            })
        }

        #[inline(always)]
        fn larger_size(self, other: Self) -> Self {
            self.each(other, |a, b| unsafe {
                let bits = _mm256_set1_epi32(SIZE_BITS as i32);
                let a = _mm256_and_si256(_mm256_castps_si256(a), bits);
                let b = _mm256_and_si256(_mm256_castps_si256(b), bits);
                _mm256_castsi256_ps(_mm256_max_epi32(a, b))
            })
        }

        #[inline(always)]
        fn any_beyond(self, bound: f32) -> bool {
            let beyond = |half: usize| unsafe {
                let size = _mm256_and_si256(
                    _mm256_castps_si256(self.0[half]),
                    _mm256_set1_epi32(SIZE_BITS as i32),
                );
                _mm256_cmpgt_epi32(size, _mm256_set1_epi32(bound.to_bits() as i32))
            };
            unsafe { _mm256_movemask_epi8(_mm256_or_si256(beyond(0), beyond(1))) != 0 }
        }

        #[inline(always)]
        fn load_part(from: &[f32]) -> Self {
            // A window on this has as many ones as there are lanes to load.
            const ONES_AND_ZEROS: [i32; 2 * LANES] = {
                let mut mask = [0; 2 * LANES];
                let mut at = 0;
                while at < LANES {
                    mask[at] = -1;
                    at += 1;
                }
                mask
            };
            let mask = &ONES_AND_ZEROS[LANES - from.len().min(LANES)..][..LANES];
            // Lanes without a one are not read; their address is, but never used.
            let half = |at: usize| unsafe {
                let ones = _mm256_loadu_si256(mask[at..].as_ptr().cast());
                _mm256_maskload_ps(from.as_ptr().wrapping_add(at), ones)
            };
            Self([half(0), half(8)])
        }

        #[inline(always)]
        fn pick(self, lanes: &[u32; LANES]) -> Self {
            let mut all = [0.0; LANES];
            self.store(&mut all);
            Self::load(&all.pick(lanes))
        }

        #[inline(always)]
        fn with_lane(self, lane: usize, value: f32) -> Self {
            let mut lanes = [0.0; LANES];
            self.store(&mut lanes);
            Self::load(&lanes.with_lane(lane, value))
        }

        #[inline(always)]
        fn partners<const APART: usize>(self) -> Self {
            let swapped = |half: usize| unsafe {
                match APART {
                    1 => _mm256_permute_ps(self.0[half], 0b10_11_00_01),
                    2 => _mm256_permute_ps(self.0[half], 0b01_00_11_10),
                    _ => _mm256_permute2f128_ps(self.0[half], self.0[half], 1),
                }
            };
            Self(if APART == 8 { [self.0[1], self.0[0]] } else { [swapped(0), swapped(1)] })
        }

        #[inline(always)]
        fn sum(self) -> f32 {
            unsafe { sum256(_mm256_add_ps(self.0[0], self.0[1])) }
        }

        #[inline(always)]
        fn sums(self, other: Self) -> (f32, f32) {
            unsafe {
                sums256(_mm256_add_ps(self.0[0], self.0[1]), _mm256_add_ps(other.0[0], other.0[1]))
            }
        }
    }

    #[inline(always)]
    unsafe fn four(lanes: __m256) -> __m128 {
        unsafe { _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1)) }
    }

    /// Two sums side by side, each in the order of [`sum256`].
    #[inline(always)]
    unsafe fn sums256(a: __m256, b: __m256) -> (f32, f32) {
        unsafe {
            let (a, b) = (four(a), four(b));
            let two = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
            let one = _mm_add_ps(two, _mm_movehdup_ps(two));
            (_mm_cvtss_f32(one), _mm_cvtss_f32(_mm_movehl_ps(one, one)))
        }
    }

    #[inline(always)]
    unsafe fn sum256(lanes: __m256) -> f32 {
        unsafe {
            let four = four(lanes);
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
}
