//! Angles that are known up to whole turns: which turns make them agree? That is the search for the
//! point of a lattice nearest to a target, done with the reduction of Lenstra, Lenstra and Lovász
//! and Babai's nearest planes.

use std::f64::consts::TAU;

/// What x can be at most, roughly: inputs are of the order of one.
const REACH: f64 = 1.0;
/// How exact angles are, roughly, in radians.
const NOISE: f64 = 1e-3;

/// Frequencies, d numbers each, and what least squares needs to know of them.
pub(crate) struct Frequencies {
    rows: Vec<Vec<f64>>,
    /// VᵀV.
    normal: Vec<Vec<f64>>,
}

impl Frequencies {
    pub(crate) fn new(rows: Vec<Vec<f64>>) -> Self {
        let inputs = rows.first().map_or(0, Vec::len);
        let entry = |i: usize, j: usize| rows.iter().map(|row| row[i] * row[j]).sum();
        let normal = (0..inputs).map(|i| (0..inputs).map(|j| entry(i, j)).collect()).collect();
        Self { rows, normal }
    }

    pub(crate) fn rows(&self) -> &[Vec<f64>] {
        &self.rows
    }

    /// The x whose angles are nearest to these, and what is left of them.
    pub(crate) fn fit(&self, angles: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let along =
            |i: usize| self.rows.iter().zip(angles).map(|(row, angle)| row[i] * angle).sum();
        let x = solve(self.normal.clone(), (0..self.normal.len()).map(along).collect());
        let left = self.rows.iter().zip(angles).map(|(row, angle)| angle - dot(row, &x)).collect();
        (x, left)
    }

    /// Angles as a point that is short if they belong to an x of moderate size: little is left of
    /// them, and x is small.
    fn point(&self, angles: &[f64]) -> Vec<f64> {
        let (x, left) = self.fit(angles);
        left.iter().map(|left| left / NOISE).chain(x.iter().map(|x| x / REACH)).collect()
    }
}

/// Finds the x that belongs to angles known up to whole turns. Made once for some frequencies.
pub(crate) struct Unwinder {
    frequencies: Frequencies,
    /// What whole turns of the angles can add to their point.
    turns: Vec<Vec<f64>>,
}

impl Unwinder {
    pub(crate) fn new(frequencies: Frequencies) -> Self {
        let count = frequencies.rows.len();
        let turn =
            |i: usize| (0..count).map(|j| if i == j { TAU } else { 0.0 }).collect::<Vec<f64>>();
        let mut turns: Vec<Vec<f64>> = (0..count).map(|i| frequencies.point(&turn(i))).collect();
        reduce(&mut turns);
        Self { frequencies, turns }
    }

    /// The x of moderate size whose angles are nearest to the first of these up to whole turns.
    pub(crate) fn unwind(&self, angles: &[f64]) -> Vec<f64> {
        let angles = &angles[..self.turns.len()];
        let nearest = remainder(&self.turns, self.frequencies.point(angles));
        nearest[angles.len()..].iter().map(|x| x * REACH).collect()
    }
}

/// Makes a basis of the same lattice from short, nearly orthogonal vectors.
fn reduce(basis: &mut [Vec<f64>]) {
    let mut straight = basis.to_vec();
    let mut at = 0;
    while at < basis.len() {
        // Coefficients may be too large to be rounded exactly at once.
        for _ in 0..2 {
            let (before, rest) = basis.split_at_mut(at);
            for (other, direction) in before.iter().zip(&straight).rev() {
                let times = share(&rest[0], direction).round();
                subtract(&mut rest[0], times, other);
            }
        }
        straight[at] = basis[at].clone();
        for before in 0..at {
            let (done, rest) = straight.split_at_mut(at);
            let along = share(&rest[0], &done[before]);
            subtract(&mut rest[0], along, &done[before]);
        }
        let Some(before) = at.checked_sub(1) else {
            at += 1;
            continue;
        };
        let along = share(&basis[at], &straight[before]);
        let shortest = (0.99 - along * along) * dot(&straight[before], &straight[before]);
        if dot(&straight[at], &straight[at]) >= shortest {
            at += 1;
        } else {
            basis.swap(before, at);
            at = before;
        }
    }
}

/// The target without a lattice point near it.
fn remainder(basis: &[Vec<f64>], mut target: Vec<f64>) -> Vec<f64> {
    let mut straight: Vec<Vec<f64>> = Vec::with_capacity(basis.len());
    for vector in basis {
        let mut vector = vector.clone();
        for direction in &straight {
            let along = share(&vector, direction);
            subtract(&mut vector, along, direction);
        }
        straight.push(vector);
    }
    for (vector, direction) in basis.iter().zip(&straight).rev() {
        let times = share(&target, direction).round();
        subtract(&mut target, times, vector);
    }
    target
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn share(vector: &[f64], direction: &[f64]) -> f64 {
    dot(vector, direction) / dot(direction, direction)
}

fn subtract(vector: &mut [f64], times: f64, other: &[f64]) {
    vector.iter_mut().zip(other).for_each(|(a, b)| *a -= times * b);
}

/// The solution of a symmetric positive definite system, by elimination.
pub(crate) fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let size = right.len();
    for pivot in 0..size {
        for row in pivot + 1..size {
            let (above, below) = matrix.split_at_mut(row);
            let times = below[0][pivot] / above[pivot][pivot];
            subtract(&mut below[0], times, &above[pivot]);
            right[row] -= times * right[pivot];
        }
    }
    for row in (0..size).rev() {
        let known = dot(&matrix[row][row + 1..], &right[row + 1..]);
        right[row] = (right[row] - known) / matrix[row][row];
    }
    right
}
