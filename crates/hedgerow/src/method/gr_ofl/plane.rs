//! Small problems in the plane of the last moves: one or two dimensions, in closed form.

use super::SEARCHED_MOVES;
use crate::math;

/// A symmetric table; only the first rows and columns count where there are fewer moves.
pub(super) type Table = [[f64; SEARCHED_MOVES]; SEARCHED_MOVES];

/// Beyond this correlation two directions are one.
const ALIKE: f64 = 1.0 - 1e-6;

/// −K⁻¹s: from where the slopes are s to the minimum of a parabola of curvature K, whose first
/// entry is positive. Along the first direction only where the others say nothing new.
pub(super) fn minimum(curvature: &Table, slopes: &[f64]) -> [f64; SEARCHED_MOVES] {
    let [[a, b], [_, c]] = *curvature;
    if slopes.len() < 2 || !is_plane(curvature) {
        return [-slopes[0] / a, 0.0];
    }
    let determinant = a * c - b * b;
    [(b * slopes[1] - c * slopes[0]) / determinant, (b * slopes[0] - a * slopes[1]) / determinant]
}

/// The vectors x (in terms of the directions) for which the known curvature, raised by (Hx)(Hx)ᵀ
/// each, becomes no less than what was seen anywhere in the plane: of each generalised eigenvector
/// with seen = l·known and l > 1, the multiple √(l − 1) of length one in terms of the known.
pub(super) fn surplus(
    known: &Table,
    seen: &Table,
    dimensions: usize,
) -> [Option<[f64; SEARCHED_MOVES]>; SEARCHED_MOVES] {
    let line = |seen: f64| {
        (seen > known[0][0]).then(|| [math::sqrt((seen / known[0][0] - 1.0) / known[0][0]), 0.0])
    };
    if dimensions < 2 || !is_plane(known) {
        return [line(seen[0][0]), None];
    }
    // known = R·Rᵀ; D = R⁻¹·seen·R⁻ᵀ.
    let [[a, b], [_, c]] = *known;
    let (p, q) = (math::sqrt(a), b / math::sqrt(a));
    let r = math::sqrt(c - q * q);
    let [[u, v], [_, w]] = *seen;
    let d00 = u / (p * p);
    let d01 = (v / p - q * u / (p * p)) / r;
    let d11 = (w - 2.0 * q * v / p + q * q * u / (p * p)) / (r * r);
    // Its eigenvectors are a rotation.
    let angle = 0.5 * math::atan2(2.0 * d01, d00 - d11);
    let (cos, sin) = (math::cos(angle), math::sin(angle));
    let value = |x: f64, y: f64| x * x * d00 + 2.0 * x * y * d01 + y * y * d11;
    [(cos, sin), (-sin, cos)].map(|(x, y)| {
        let more = value(x, y) - 1.0;
        // R⁻ᵀ(x, y).
        let (size, second) = (math::sqrt(more), y / r);
        let raised = [size * (x - q * second) / p, size * second];
        (more > 0.0 && raised.iter().all(|x| x.is_finite())).then_some(raised)
    })
}

/// Whether a table has two directions.
fn is_plane(table: &Table) -> bool {
    let [[a, b], [_, c]] = *table;
    a > 0.0 && c > 0.0 && b.abs() < ALIKE * math::sqrt(a * c)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn minimum_has_no_slope() {
        let curvature = [[3.0, 1.0], [1.0, 2.0]];
        let [x, y] = minimum(&curvature, &[0.5, -4.0]);
        assert!((3.0 * x + y + 0.5).abs() < 1e-12 && (x + 2.0 * y - 4.0).abs() < 1e-12);
        assert_eq!(minimum(&curvature, &[6.0]), [-2.0, 0.0]);
        // Two directions that are one.
        assert_eq!(minimum(&[[1.0, 2.0], [2.0, 4.0]], &[1.0, 2.0]), [-1.0, 0.0]);
    }

    #[test]
    fn raised_curvature_is_at_least_what_was_seen() {
        let known = [[2.0, -0.3], [-0.3, 1.0]];
        for seen in
            [[[5.0, 1.0], [1.0, 0.4]], [[1.0, 0.2], [0.2, 3.0]], [[0.1, 0.0], [0.0, 0.1]], known]
        {
            let raises: Vec<_> = surplus(&known, &seen, 2).into_iter().flatten().collect();
            // In terms of the directions, (Hx)(Hx)ᵀ is (known·x)(known·x)ᵀ.
            let mut after = known;
            for x in &raises {
                let image: [f64; 2] =
                    core::array::from_fn(|a| known[a][0] * x[0] + known[a][1] * x[1]);
                (0..2).for_each(|a| (0..2).for_each(|b| after[a][b] += image[a] * image[b]));
            }
            for at in 0..360 {
                let (sin, cos) = f64::from(at).to_radians().sin_cos();
                let along = |t: &Table| {
                    t[0][0] * cos * cos + 2.0 * t[0][1] * sin * cos + t[1][1] * sin * sin
                };
                assert!(along(&after) > along(&seen) - 1e-9, "{seen:?} at {at}");
                assert!(along(&after) > along(&known) - 1e-9);
            }
            let is_more = seen[0][0] > known[0][0] || seen[1][1] > known[1][1];
            assert_eq!(!raises.is_empty(), is_more, "{seen:?}");
        }
        assert_eq!(
            surplus(&known, &[[8.0, 0.0], [0.0, 0.0]], 1),
            [Some([1.5f64.sqrt(), 0.0]), None]
        );
    }
}
