//! Units that might be added, and the choice among them.

use alloc::vec::Vec;

use super::super::gr_ofl::triangle;
use super::Sizes;
use crate::math;
use crate::random::{CounterRng, Purpose, normal};

/// Size of the frequencies, times the root of the number of inputs, and the logarithms between
/// which a unit's factor lies.
const FREQUENCY_SIZE: f64 = 2.0;
const FREQUENCY_SPREAD: (f64, f64) = (-1.0, 0.7);

/// Every second candidate sees at most so many inputs.
const FEW_INPUTS: usize = 3;

/// What is added to the variances of candidates.
const RIDGE: f64 = 0.01;

/// Columns with less than this left of them follow from others.
const NOTHING_LEFT: f64 = 1e-9;

/// Writes the rows of candidates, all weights zero: each twice, with the phases 0 and −π/2. They
/// follow from the seed and a number, so that they needn't be sent.
pub(super) fn draw(sizes: &Sizes, seed: u64, number: u32, rows: &mut Vec<f32>) {
    rows.clear();
    let stream = CounterRng::from_seed(seed).derive(Purpose::Units, u64::from(number));
    let (low, high) = FREQUENCY_SPREAD;
    for candidate in 0..sizes.candidates() {
        let stream = stream.derive(Purpose::Units, candidate as u64);
        let few = 1 + (stream.uniform_at(1) * FEW_INPUTS as f64) as usize;
        let sees_few = candidate % 2 == 1 && few < sizes.inputs;
        let seen = if sees_few { few } else { sizes.inputs };
        let size = FREQUENCY_SIZE / math::sqrt(seen as f64);
        let factor = size * math::exp(low + (high - low) * stream.uniform_at(0));
        let at = rows.len();
        rows.extend([0.0, 0.0]);
        let mut rng = stream.generator();
        if sees_few {
            rows.resize(at + sizes.row(), 0.0);
            for input in 0..few {
                let place = stream.uniform_at(2 + input as u64) * sizes.inputs as f64;
                rows[at + 2 + place as usize] = (normal(&mut rng) * factor) as f32;
            }
        } else {
            rows.extend((0..sizes.inputs).map(|_| (normal(&mut rng) * factor) as f32));
        }
        rows.extend_from_within(at..);
        rows[at + sizes.row() + 1] = -core::f32::consts::FRAC_PI_2;
    }
}

/// Writes the rows of a group, one after the other those that lower the errors most beside a₀, a
/// and the ones before. `rows` are those of all candidates, `slopes` half the mean gradient for a₀,
/// a and their weights, and `products` JᵀJ over the number of inputs, a lower triangle row by row.
/// The last two are used up.
pub(super) fn choose(
    sizes: &Sizes,
    rows: &[f32],
    slopes: &mut [f64],
    products: &mut [f64],
    column: &mut Vec<f64>,
    group: &mut Vec<f32>,
) {
    let first = 1 + sizes.inputs;
    let mut remove = |parts: &[(usize, f64)], slopes: &mut [f64], products: &mut [f64]| {
        column.clear();
        column.extend((0..slopes.len()).map(|i| {
            let part =
                |(j, share): &(usize, f64)| share * products[triangle(i.max(*j)) + i.min(*j)];
            parts.iter().map(part).sum::<f64>()
        }));
        let left: f64 = parts.iter().map(|(j, share)| share * column[*j]).sum();
        if left.is_nan() || left < NOTHING_LEFT {
            return;
        }
        let slope = parts.iter().map(|(j, share)| share * slopes[*j]).sum::<f64>() / left;
        for (i, of_row) in column.iter().enumerate() {
            slopes[i] -= slope * of_row;
            let row = &mut products[triangle(i)..=triangle(i) + i];
            row.iter_mut().zip(&*column).for_each(|(entry, other)| *entry -= of_row * other / left);
        }
    };
    (0..first).for_each(|at| remove(&[(at, 1.0)], slopes, products));
    let (row, mut chosen) = (sizes.row(), [false; super::MOST_CANDIDATES]);
    group.clear();
    for _ in 0..sizes.group {
        let mut best = None;
        for candidate in (0..sizes.candidates()).filter(|candidate| !chosen[*candidate]) {
            let at = first + 2 * candidate;
            let [a, b] = [slopes[at], slopes[at + 1]];
            let between = products[triangle(at + 1) + at];
            let [p, q] = [at, at + 1].map(|at| products[triangle(at) + at].max(0.0) + RIDGE);
            let area = p * q - between * between;
            let weights = [(q * a - between * b) / area, (p * b - between * a) / area];
            let gain = weights[0] * a + weights[1] * b;
            if best.is_none_or(|(_, most, _): (_, f64, _)| gain > most || most.is_nan()) {
                best = Some((candidate, gain, weights));
            }
        }
        // There are more candidates than units in a group.
        let Some((candidate, _, [cosine, sine])) = best else { break };
        chosen[candidate] = true;
        let at = first + 2 * candidate;
        // Without the label's unit. What has no size leaves nothing to remove.
        let size = math::hypot(cosine, sine);
        remove(&[(at, cosine / size), (at + 1, sine / size)], slopes, products);
        // The wave against the gradient: −cosine·cos(u) − sine·cos(u − π/2).
        let phase = math::atan2(sine, -cosine) as f32;
        group.extend([0.0, if phase.is_nan() { 0.0 } else { phase }]);
        group.extend_from_slice(&rows[2 * candidate * row + 2..(2 * candidate + 1) * row]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, PlanConfig};

    #[test]
    fn the_wave_that_is_left_is_chosen_with_its_phase() {
        let config = PlanConfig::default().method("tr".parse().unwrap()).inputs(2).budget(24);
        let sizes = Sizes::new(Plan::new(config).unwrap().setup());
        let mut rows = Vec::new();
        draw(&sizes, 1, 0, &mut rows);
        let columns = 3 + 2 * sizes.candidates();
        let (row, points) = (sizes.row(), 4000);
        let mut rng = CounterRng::from_seed(2).generator();
        let (mut slopes, mut products) = (vec![0.0; columns], vec![0.0; triangle(columns)]);
        for _ in 0..points {
            let x = [normal(&mut rng), normal(&mut rng)];
            let angle = |at: usize| {
                let row = &rows[at * row..];
                x[0] * f64::from(row[2]) + x[1] * f64::from(row[3]) + f64::from(row[1])
            };
            let mut jacobian = vec![1.0, x[0], x[1]];
            jacobian.extend((0..2 * sizes.candidates()).map(|at| math::cos(angle(at))));
            // The model says nothing, labels are 1 + x + the fourth candidate with the phase 1.
            let residual = -(1.0 + x[0] + math::cos(angle(6) + 1.0));
            for i in 0..columns {
                slopes[i] += residual * jacobian[i] / f64::from(points);
                for j in 0..=i {
                    products[triangle(i) + j] += jacobian[i] * jacobian[j] / f64::from(points);
                }
            }
        }
        let mut group = Vec::new();
        choose(&sizes, &rows, &mut slopes, &mut products, &mut Vec::new(), &mut group);
        assert_eq!(group.len(), sizes.group * row);
        assert_eq!(group[2..row], rows[6 * row + 2..7 * row]);
        assert!((group[1] - 1.0).abs() < 0.1, "{}", group[1]);
    }
}
