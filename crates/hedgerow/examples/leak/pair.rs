//! Separates a sum of two uploads. The two inputs and the two errors are four numbers, and the sum
//! has a hundred. For samples of one input, a search over all pairs and a few steps of Newton's
//! method are enough.

use super::lattice::{dot, solve};

const GRID: usize = 200;
const STEPS: usize = 60;

/// The two points in [0, 1] whose features, each with its factor, add up to `step` most nearly:
/// points, then factors.
pub(crate) fn take_apart(frequencies: &[Vec<f64>], step: &[f64]) -> [[f64; 2]; 2] {
    let grid: Vec<f64> = (0..GRID).map(|i| (i as f64 + 0.5) / GRID as f64).collect();
    let features: Vec<Vec<f64>> = grid.iter().map(|x| self::features(frequencies, *x).0).collect();
    let along: Vec<f64> = features.iter().map(|z| dot(z, step)).collect();
    let mut best = (f64::NEG_INFINITY, [0, 0], [0.0; 2]);
    for first in 0..GRID {
        for second in 0..first {
            let (a, b) = (along[first], along[second]);
            // Features have length one, so this is all that the normal equations need.
            let overlap = dot(&features[first], &features[second]);
            let rest = 1.0 - overlap * overlap;
            let factors = [(a - overlap * b) / rest, (b - overlap * a) / rest];
            let explained = factors[0] * a + factors[1] * b;
            if explained > best.0 {
                best = (explained, [first, second], factors);
            }
        }
    }
    let (_, places, factors) = best;
    refine(frequencies, step, places.map(|place| grid[place]), factors)
}

/// The Gauss-Newton method with Levenberg's damping.
fn refine(
    frequencies: &[Vec<f64>],
    step: &[f64],
    mut x: [f64; 2],
    mut factors: [f64; 2],
) -> [[f64; 2]; 2] {
    let residual = |x: [f64; 2], factors: [f64; 2]| -> Vec<f64> {
        let [first, second] = x.map(|x| features(frequencies, x).0);
        let pairs = first.iter().zip(&second).zip(step);
        pairs
            .map(|((first, second), step)| step - factors[0] * first - factors[1] * second)
            .collect()
    };
    let mut caution = 1e-3;
    for _ in 0..STEPS {
        let left = residual(x, factors);
        let [(z0, slope0), (z1, slope1)] = x.map(|x| features(frequencies, x));
        let columns = [z0, z1, scaled(&slope0, factors[0]), scaled(&slope1, factors[1])];
        let right: Vec<f64> = columns.iter().map(|column| dot(column, &left)).collect();
        let entry = |i: usize, j: usize| {
            dot(&columns[i], &columns[j]) * if i == j { 1.0 + caution } else { 1.0 }
        };
        let matrix = (0..4).map(|i| (0..4).map(|j| entry(i, j)).collect()).collect();
        let change = solve(matrix, right);
        let tried = (
            [x[0] + change[2], x[1] + change[3]],
            [factors[0] + change[0], factors[1] + change[1]],
        );
        let now = residual(tried.0, tried.1);
        if dot(&now, &now) < dot(&left, &left) {
            (x, factors) = tried;
            caution /= 5.0;
        } else {
            caution *= 5.0;
        }
    }
    [x, factors]
}

/// z(x) and its derivative.
pub(crate) fn features(frequencies: &[Vec<f64>], x: f64) -> (Vec<f64>, Vec<f64>) {
    let amplitude = 1.0 / (frequencies.len() as f64).sqrt();
    let angles = || frequencies.iter().map(|row| (row[0], row[0] * x));
    let sines = angles().map(|(_, angle)| amplitude * angle.sin());
    let cosines = angles().map(|(_, angle)| amplitude * angle.cos());
    let rising = angles().map(|(v, angle)| amplitude * v * angle.cos());
    let falling = angles().map(|(v, angle)| -amplitude * v * angle.sin());
    (sines.chain(cosines).collect(), rising.chain(falling).collect())
}

fn scaled(vector: &[f64], factor: f64) -> Vec<f64> {
    vector.iter().map(|value| factor * value).collect()
}
