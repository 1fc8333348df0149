//! Draws from the laws that feature maps and generated streams need, the same bits on every
//! platform. Draws from libraries use the platform's exponentials and logarithms.

use alloc::boxed::Box;

use once_cell::race::OnceBox;
use rand_chacha::rand_core::Rng;

use super::unit_interval;
use crate::math;

/// A standard normal variable.
pub fn normal(rng: &mut impl Rng) -> f64 {
    static TABLES: OnceBox<Ziggurat> = OnceBox::new();
    const TAIL: f64 = 3.654_152_885_361_009;
    let density = |x: f64| math::exp(-x * x / 2.0);
    let tables = TABLES.get_or_init(|| {
        let inverse = |density: f64| math::sqrt(-2.0 * math::ln(density));
        Box::new(Ziggurat::new(TAIL, 0.004_928_673_233_99, density, inverse))
    });
    let tail = |rng: &mut _, u: f64| {
        loop {
            let beyond = math::ln(open(rng)) / TAIL;
            if -2.0 * math::ln(open(rng)) >= beyond * beyond {
                return if u < 0.0 { beyond - TAIL } else { TAIL - beyond };
            }
        }
    };
    tables.draw(rng, |bits| fraction(bits, 2.0) - 3.0, density, tail)
}

/// An exponential variable of mean one.
pub fn exponential(rng: &mut impl Rng) -> f64 {
    static TABLES: OnceBox<Ziggurat> = OnceBox::new();
    const TAIL: f64 = 7.697_117_470_131_05;
    let density = |x: f64| math::exp(-x);
    let tables = TABLES.get_or_init(|| {
        Box::new(Ziggurat::new(TAIL, 0.003_949_659_822_581_557, density, |y| -math::ln(y)))
    });
    let tail = |rng: &mut _, _| TAIL - math::ln(uniform(rng));
    tables.draw(rng, open_interval, density, tail)
}

/// A standard Cauchy variable.
pub fn cauchy(rng: &mut impl Rng) -> f64 {
    math::tan(core::f64::consts::PI * uniform(rng))
}

/// A gamma variable of scale one, for a shape above zero. The method is that of Marsaglia and
/// Tsang (2000).
pub fn gamma(rng: &mut impl Rng, shape: f64) -> f64 {
    if shape == 1.0 {
        return exponential(rng);
    }
    // A smaller shape is one larger by one, times a power of a uniform variable.
    let factor = if shape < 1.0 { Some(math::pow(open(rng), 1.0 / shape)) } else { None };
    let d = if shape < 1.0 { shape + 1.0 } else { shape } - 1.0 / 3.0;
    let c = 1.0 / math::sqrt(9.0 * d);
    loop {
        let x = normal(rng);
        let root = 1.0 + c * x;
        if root <= 0.0 {
            continue;
        }
        let (v, u, x2) = (root * root * root, open(rng), x * x);
        if u < 1.0 - 0.0331 * x2 * x2 || math::ln(u) < 0.5 * x2 + d * (1.0 - v + math::ln(v)) {
            return factor.map_or(v * d, |factor| v * factor * d);
        }
    }
}

/// The sum of squares of so many standard normal variables.
pub fn chi_squared(rng: &mut impl Rng, freedom: f64) -> f64 {
    if freedom == 1.0 {
        let x = normal(rng);
        return x * x;
    }
    2.0 * gamma(rng, freedom / 2.0)
}

/// A number in [0, 1).
fn uniform(rng: &mut impl Rng) -> f64 {
    unit_interval(rng.next_u64())
}

/// A number in (0, 1).
fn open(rng: &mut impl Rng) -> f64 {
    open_interval(rng.next_u64())
}

/// A number in (0, 1) of random bits.
fn open_interval(bits: u64) -> f64 {
    fraction(bits, 1.0) - (1.0 - f64::EPSILON / 2.0)
}

/// A number in [low, 2·low) of the upper bits, for a power of two.
fn fraction(bits: u64, low: f64) -> f64 {
    f64::from_bits(low.to_bits() | bits >> 12)
}

/// A density that falls from zero on, covered by 256 horizontal layers of the same area (Doornik
/// 2005).
struct Ziggurat {
    /// Where each layer ends; the lowest one includes the tail.
    ends: [f64; 257],
    /// The density there.
    heights: [f64; 257],
}

impl Ziggurat {
    fn new(
        tail: f64,
        area: f64,
        density: impl Fn(f64) -> f64,
        inverse: impl Fn(f64) -> f64,
    ) -> Self {
        let mut ends = [0.0; 257];
        (ends[0], ends[1]) = (area / density(tail), tail);
        for at in 2..256 {
            let before = ends[at - 1];
            ends[at] = inverse(area / before + density(before));
        }
        Self { ends, heights: ends.map(density) }
    }

    /// Draws once; `position` makes the place within a layer of random bits.
    #[inline]
    fn draw<R: Rng>(
        &self,
        rng: &mut R,
        position: impl Fn(u64) -> f64,
        density: impl Fn(f64) -> f64,
        tail: impl Fn(&mut R, f64) -> f64,
    ) -> f64 {
        loop {
            let bits = rng.next_u64();
            let (layer, u) = ((bits & 0xff) as usize, position(bits));
            let x = u * self.ends[layer];
            if x.abs() < self.ends[layer + 1] {
                return x;
            }
            if layer == 0 {
                return tail(rng, u);
            }
            let (low, high) = (self.heights[layer], self.heights[layer + 1]);
            if high + (low - high) * uniform(rng) < density(x) {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Cauchy, ChiSquared, Distribution, Exp1, Gamma, StandardNormal};

    use super::*;
    use crate::random::CounterRng;

    /// Compares many draws with those of a library, whose tables were made with other exponentials.
    fn compare(law: impl Distribution<f64>, draw: impl Fn(&mut ChaCha8Rng) -> f64) {
        let mut rng = CounterRng::from_seed(4).generator();
        let mut other = rng.clone();
        for at in 0..300_000 {
            let (found, expected) = (draw(&mut rng), law.sample(&mut other));
            assert!((found - expected).abs() <= 1e-13 * expected.abs(), "{at}: {found} {expected}");
        }
    }

    #[test]
    fn draws_are_those_of_rand_distr_up_to_rounding() {
        compare(StandardNormal, normal);
        compare(Exp1, exponential);
        compare(Cauchy::new(0.0, 1.0).unwrap(), cauchy);
        for shape in [0.1, 0.5, 1.0, 1.5, 40.0] {
            compare(Gamma::new(shape, 1.0).unwrap(), |rng| gamma(rng, shape));
        }
        for freedom in [1.0, 2.0, 3.0, 5.0, 64.0] {
            compare(ChiSquared::new(freedom).unwrap(), |rng| chi_squared(rng, freedom));
        }
    }

    #[test]
    fn draws_have_the_same_bits_on_every_platform() {
        let mut rng = CounterRng::from_seed(4).generator();
        let mut mixed = 0u64;
        for _ in 0..100_000 {
            for drawn in [normal(&mut rng), exponential(&mut rng), cauchy(&mut rng)] {
                mixed = mixed.rotate_left(5) ^ drawn.to_bits();
            }
            mixed = mixed.rotate_left(5) ^ gamma(&mut rng, 0.7).to_bits();
        }
        assert_eq!(mixed, 5_103_083_937_433_198_866);
    }
}
