//! [`Rescaling`]: moves models from one scale to another.
//!
//! A change of offsets turns every angle θ = v·x' by a fixed φ, so each (sine, cosine) pair of a
//! model only has to be rotated by φ: w_s' = w_s·cos φ − w_c·sin φ and w_c' = w_s·sin φ + w_c·cos
//! φ. A change of the label's factor is a gain on all numbers. Both are exact: predictions stay
//! what they were.
//!
//! Weights of kernels follow: losses that were charged in the label's old unit count as they would
//! in its new one. Otherwise what happened in the first rounds, when the unit was a guess, could
//! outweigh everything after.
//!
//! A change of an input's factor stretches all functions, and no model of the new scale is quite
//! the old one. The nearest is taken: the one with the least mean square difference over inputs
//! that are spread around the centre of the new scale like a normal law, for which all means of
//! products of sines and cosines are known. What can't be expressed any more is forgotten.
//!
//! A linear model survives every change exactly: with x = a·x' + c for each input, w' = a·w and the
//! constant takes up w·c.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::f64::consts::FRAC_PI_2;

use super::refit::Refit;
use super::scale::Scale;
use crate::features::{Dictionary, FeatureMap, SampleMap};
use crate::limits::{MAX_NUMBER, MAX_SCALED};
use crate::linear_algebra::{self, Cholesky, write_bounded};
use crate::math;

/// What turns models of one scale into models of another.
#[derive(Debug, Clone, PartialEq)]
pub struct Rescaling {
    moves: Moves,
    /// An input of the old scale as (a, c) of the new one: x = a·x' + c.
    inputs: Vec<(f64, f64)>,
    label: LabelMove,
}

/// A label of the new scale as gain·y + shift of the old one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LabelMove {
    gain: f64,
    shift: f64,
    /// Then gain and shift are zero, as if all labels had been the new offset.
    restarts: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Moves {
    /// One for the models of each kernel.
    Kernels(Vec<Move>),
    /// Of sums and models over the features of a dictionary.
    Dictionary(Refit),
    /// There are linear models only.
    None,
}

/// What happens to the models of one kernel.
#[derive(Debug, Clone, PartialEq)]
struct Move {
    /// (cos φ, sin φ) of each frequency. In a stretch φ leads to where all angles at the centre are
    /// zero.
    turns: Vec<(f64, f64)>,
    stretch: Option<Stretch>,
}

/// What happens to a model whose angles are zero at the centre of the new scale, where sines and
/// cosines part.
#[derive(Debug, Clone, PartialEq)]
struct Stretch {
    /// Row by row.
    sines: Vec<f64>,
    cosines: Vec<f64>,
    /// Back to where the angles are.
    turns: Vec<(f64, f64)>,
}

/// What happens to the frequencies of a draw. Those of a kernel are a multiple of them.
struct DrawMove {
    /// Angles at the centre of the new scale, in the old one and in the new one.
    old: Vec<f64>,
    new: Vec<f64>,
    /// None if nothing is stretched.
    products: Option<Products>,
}

/// Inner products of angles as functions of normal inputs, all that mean products of their sines
/// and cosines depend on.
struct Products {
    /// ‖v'‖² of the new scale, and ‖v‖² of the old one.
    new: Vec<f64>,
    old: Vec<f64>,
    /// v'·v' and v'·v, row by row.
    among: Vec<f64>,
    across: Vec<f64>,
}

/// The penalty on a change of the model's numbers. The features' mean square is one half.
const STRETCH_RIDGE: f64 = 1e-3;

/// Labels whose offset moved by more new widths are useless: in the old scale they can't be told
/// apart.
const MAX_SHIFT: f64 = 1e3;

/// And those that were farther than this from the old offset, in old widths: they were limited, or
/// nearly so.
const MAX_OLD_DISTANCE: f64 = 0.5 * MAX_SCALED as f64;

/// A normal law that ends this many deviations from its centre is that of whatever comes.
const NORMAL_REACH: f64 = 8.0;

/// Models of more frequencies are only turned, not stretched: the nearest function takes time as
/// the cube of their number.
const MOST_STRETCHED: usize = 512;

impl SampleMap {
    /// What moves the models of these features from one scale to another, however many there were
    /// between.
    ///
    /// # Panics
    /// If either scale has another number of inputs than the map.
    pub fn rescaling(&self, from: &Scale, to: &Scale) -> Rescaling {
        match self {
            Self::Kernels(map) => map.rescaling(from, to),
            Self::Dictionary(map) => map.rescaling(from, to),
            Self::Inputs(_) => Rescaling::linear(from, to),
        }
    }
}

impl FeatureMap {
    /// What moves models of this map from one scale to another, however many there were between.
    ///
    /// # Panics
    /// If either scale has another number of inputs than the map.
    pub fn rescaling(&self, from: &Scale, to: &Scale) -> Rescaling {
        let inputs = self.inputs();
        assert_eq!((from.inputs(), to.inputs()), (inputs, inputs), "numbers per sample");
        let [(before, wide_before), (after, wide)] = [from, to].map(|scale| law(scale, to));
        let is_stretched = (0..inputs).any(|input| from.factor(input) != to.factor(input));
        let is_stretched = is_stretched && self.model_len() <= 2 * MOST_STRETCHED;
        let of_draw = |start| {
            let frequencies = self.base_frequencies(start);
            let rows = frequencies.chunks_exact(inputs);
            let angles =
                |point: &[f64]| -> Vec<f64> { rows.clone().map(|row| dot(row, point)).collect() };
            let reach = |wide: &[f64]| -> Vec<f64> {
                let scaled = |row: &[f64]| -> Vec<f64> {
                    row.iter().zip(wide).map(|(v, wide)| v * wide * FRAC_PI_2).collect()
                };
                rows.clone().flat_map(scaled).collect()
            };
            let products =
                is_stretched.then(|| Products::new(&reach(&wide_before), &reach(&wide), inputs));
            DrawMove { old: angles(&before), new: angles(&after), products }
        };
        let mut draws = BTreeMap::new();
        let moves = (0..self.kernels()).map(|kernel| {
            let (start, scale) = self.base(kernel);
            draws.entry(start).or_insert_with(|| of_draw(start)).of_kernel(scale)
        });
        Rescaling::new(Moves::Kernels(moves.collect()), from, to)
    }
}

impl Dictionary {
    /// What moves sums and models over these features from one scale to another.
    ///
    /// # Panics
    /// If either scale has another number of inputs than the dictionary.
    pub fn rescaling(&self, from: &Scale, to: &Scale) -> Rescaling {
        let inputs = self.inputs();
        assert_eq!((from.inputs(), to.inputs()), (inputs, inputs), "numbers per sample");
        let [(old_centre, old_spread), (new_centre, new_spread)] =
            [from, to].map(|scale| law(scale, to));
        let refit = Refit::new(
            &self.around(&old_centre, &old_spread).collect::<Vec<_>>(),
            &self.around(&new_centre, &new_spread).collect::<Vec<_>>(),
        );
        Rescaling::new(Moves::Dictionary(refit), from, to)
    }
}

impl DrawMove {
    /// For a kernel whose frequencies are so many times as large.
    fn of_kernel(&self, scale: f64) -> Move {
        let Self { old, new, products } = self;
        let Some(products) = products else {
            let apart = old.iter().zip(new).map(|(old, new)| turn(scale * old - scale * new));
            return Move { turns: apart.collect(), stretch: None };
        };
        let [sines, cosines] = products.nearest(scale * scale);
        let turns = |angles: &[f64], scale: f64| -> Vec<(f64, f64)> {
            angles.iter().map(|angle| turn(scale * angle)).collect()
        };
        let stretch = Some(Stretch { sines, cosines, turns: turns(new, -scale) });
        Move { turns: turns(old, scale), stretch }
    }
}

/// Centre and deviation of each input of the new scale, as this one has them.
fn law(scale: &Scale, to: &Scale) -> (Vec<f64>, Vec<f64>) {
    let input = |input: usize| {
        let centre = scale.place(input, to.centre(input));
        let deviation = match to.deviation(input) {
            wide if wide > 0.0 => wide * (scale.factor(input) / to.factor(input)),
            _ => 0.0,
        };
        match limited(scale.limit(), centre, deviation) {
            Some(Limited { mean, share }) => (mean, share * deviation),
            None => (centre, deviation),
        }
    };
    (0..scale.inputs()).map(input).unzip()
}

/// What a limit makes of inputs that are spread like a normal law.
struct Limited {
    mean: f64,
    /// How many of them are within. By that the slope of the nearest linear function is less.
    share: f64,
}

/// None where the law ends before the limit. The logistic law stands for the normal one: it has the
/// integrals that are needed.
fn limited(limit: f64, centre: f64, deviation: f64) -> Option<Limited> {
    if centre.abs() + NORMAL_REACH * deviation <= limit {
        return None;
    }
    if deviation <= 0.0 {
        return Some(Limited { mean: centre.clamp(-limit, limit), share: 0.0 });
    }
    let width = deviation / 1.702;
    let [low, high] = [-limit, limit].map(|end| (end - centre) / width);
    let below = |t: f64| 1.0 / (1.0 + math::exp(-t.clamp(-700.0, 700.0)));
    // The integral of `below`.
    let area = |t: f64| t.max(0.0) + math::ln_1p(math::exp(-t.abs().min(700.0)));
    let mean = limit - width * (area(high) - area(low));
    let share = (below(high) - below(low)).max(0.0);
    Some(Limited { mean: mean.clamp(-limit, limit), share })
}

impl LabelMove {
    fn new(from: &Scale, to: &Scale) -> Self {
        let [old, new] = [from.label(), to.label()];
        let factor = from.label_factor();
        // Without a factor predictions were the offset alone, and so they stay with models of zero.
        let gain = if factor > 0.0 { to.label_factor() / factor } else { 0.0 };
        let shift = (old.offset() - new.offset()) * to.label_factor();
        let is_far = shift.abs() > MAX_SHIFT
            || factor > 0.0 && shift.abs() > MAX_OLD_DISTANCE * gain && gain > 0.0;
        match is_far {
            true => Self { gain: 0.0, shift: 0.0, restarts: true },
            false => Self { gain, shift, restarts: false },
        }
    }
}

impl Rescaling {
    /// What losses of models without a constant, in the label's old unit squared, have to be
    /// multiplied by: zero if these models begin anew.
    pub fn loss_factor(&self) -> f64 {
        let gain = self.featured_gain();
        (gain * gain).min(f64::from(MAX_NUMBER))
    }

    /// The gain of models of random features, which have no constant.
    fn featured_gain(&self) -> f64 {
        if self.label.shift == 0.0 { self.label.gain } else { 0.0 }
    }

    /// Moves the model of one kernel. The result is no longer than
    /// [`crate::limits::MAX_NORM`].
    ///
    /// # Panics
    /// If the rescaling was made for another dictionary.
    pub fn apply(&self, kernel: usize, model: &mut [f32]) {
        let Moves::Kernels(moves) = &self.moves else { panic!("rescaling of another dictionary") };
        let Move { turns, stretch } = &moves[kernel];
        assert_eq!(model.len(), 2 * turns.len(), "rescaling of another dictionary");
        let gain = self.featured_gain();
        let mut wide: Vec<f64> = model.iter().map(|number| f64::from(*number) * gain).collect();
        let (sines, cosines) = wide.split_at_mut(turns.len());
        rotate(sines, cosines, turns);
        if let Some(stretch) = stretch {
            multiply(&stretch.sines, sines);
            multiply(&stretch.cosines, cosines);
            rotate(sines, cosines, &stretch.turns);
        }
        write_bounded(&wide, model);
    }

    /// Moves a linear model, its constant first. The result is no longer than
    /// [`crate::limits::MAX_NORM`].
    ///
    /// # Panics
    /// If the rescaling was made for another number of inputs.
    pub fn apply_linear(&self, model: &mut [f32]) {
        assert_eq!(model.len(), self.inputs.len() + 1, "rescaling of other inputs");
        let LabelMove { gain, shift, .. } = self.label;
        let mut wide: Vec<f64> = model.iter().map(|number| f64::from(*number) * gain).collect();
        let (constant, slopes) = wide.split_at_mut(1);
        constant[0] += shift;
        for (slope, (a, c)) in slopes.iter_mut().zip(&self.inputs) {
            constant[0] += *slope * c;
            *slope *= a;
        }
        write_bounded(&wide, model);
    }

    /// Moves L of A = Σ g·gᵀ, where g are slopes of a linear model's losses: g' = gain·B⁻¹g if
    /// z = B·z'. The constant comes first, so that B⁻¹ is a lower triangle too. No pivot is left
    /// below one: A is at least I in the new scale as it was in the old one.
    ///
    /// # Panics
    /// If the rescaling was made for another number of inputs.
    pub(crate) fn apply_to_squares(&self, squares: &mut Cholesky) {
        assert_eq!(squares.len(), self.inputs.len() + 1, "rescaling of other inputs");
        let mut constant = 0.0;
        let maps = [(1.0, 0.0)].iter().chain(&self.inputs);
        for (at, (row, (a, c))) in squares.rows_mut().zip(maps).enumerate() {
            if at == 0 {
                constant = row[0];
            }
            row[0] -= c * constant;
            row.iter_mut().for_each(|entry| *entry *= self.label.gain / a);
            if *a == 0.0 {
                // Nothing is known of an input that was or is zero everywhere.
                row.fill(0.0);
            }
            row[at] = row[at].max(1.0);
        }
    }

    /// The label's new factor over its old one; zero if everything begins anew.
    pub fn gain(&self) -> f64 {
        self.label.gain
    }

    /// What a label of the old scale gets added after the gain; zero if everything begins anew.
    pub fn shift(&self) -> f64 {
        self.label.shift
    }

    /// Whether what was learned from labels of the old scale is worth nothing: they were limited,
    /// or too far from the new offset to be told apart.
    pub fn restarts(&self) -> bool {
        self.label.restarts
    }

    /// An input of the old scale as (a, c) of the new one: x = a·x' + c.
    pub(crate) fn inputs(&self) -> &[(f64, f64)] {
        &self.inputs
    }

    /// What happens to sums and models over a dictionary.
    ///
    /// # Panics
    /// If the rescaling was made for another dictionary.
    #[expect(clippy::expect_used, reason = "what panics is documented")]
    pub(crate) fn refit(&self) -> &Refit {
        self.dictionary().expect("rescaling of another dictionary")
    }

    /// The same, if the features are those of a dictionary.
    pub(crate) fn dictionary(&self) -> Option<&Refit> {
        match &self.moves {
            Moves::Dictionary(refit) => Some(refit),
            _ => None,
        }
    }

    /// Whether the scale of an input changes.
    pub(crate) fn changes_inputs(&self) -> bool {
        self.inputs.iter().any(|input| *input != (1.0, 0.0))
    }

    /// What moves linear models from one scale to another.
    ///
    /// # Panics
    /// If the scales differ in their number of inputs.
    pub(crate) fn linear(from: &Scale, to: &Scale) -> Self {
        assert_eq!(from.inputs(), to.inputs(), "numbers per sample");
        Self::new(Moves::None, from, to)
    }

    fn new(moves: Moves, from: &Scale, to: &Scale) -> Self {
        let input = |input| {
            // An input that has become zero everywhere needs no factor.
            let a =
                if to.factor(input) > 0.0 { from.factor(input) / to.factor(input) } else { 0.0 };
            let c = from.place(input, to.zero(input));
            let middle = a * to.place(input, to.centre(input)) + c;
            match limited(from.limit(), middle, a * to.deviation(input)) {
                Some(Limited { mean, share }) => (share * a, mean - share * (middle - c)),
                None => (a, c),
            }
        };
        Self {
            moves,
            inputs: (0..from.inputs()).map(input).collect(),
            label: LabelMove::new(from, to),
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// (cosine, sine) of quarter turns.
fn turn(quarters: f64) -> (f64, f64) {
    // Four are a whole one; an overflowed angle counts as zero, as it does in the map.
    let angle = if quarters.is_finite() { quarters % 4.0 * FRAC_PI_2 } else { 0.0 };
    (math::cos(angle), math::sin(angle))
}

fn rotate(sines: &mut [f64], cosines: &mut [f64], turns: &[(f64, f64)]) {
    for ((sine, cosine), (cos, sin)) in sines.iter_mut().zip(cosines).zip(turns) {
        (*sine, *cosine) = (*sine * cos - *cosine * sin, *sine * sin + *cosine * cos);
    }
}

fn multiply(matrix: &[f64], vector: &mut [f64]) {
    let product: Vec<f64> = matrix.chunks_exact(vector.len()).map(|row| dot(row, vector)).collect();
    vector.copy_from_slice(&product);
}

impl Products {
    /// Of angles `old`·g and `new`·g for normal g.
    fn new(old: &[f64], new: &[f64], inputs: usize) -> Self {
        let products = |one: &[f64], other: &[f64]| -> Vec<f64> {
            let of_row = |row: &[f64]| -> Vec<f64> {
                other.chunks_exact(inputs).map(|other| linear_algebra::dot(row, other)).collect()
            };
            one.chunks_exact(inputs).flat_map(of_row).collect()
        };
        let squares = |rows: &[f64]| -> Vec<f64> {
            rows.chunks_exact(inputs).map(|row| linear_algebra::dot(row, row)).collect()
        };
        Self {
            new: squares(new),
            old: squares(old),
            among: products(new, new),
            across: products(new, old),
        }
    }

    /// The matrices that turn a model of the old angles into the nearest of the new ones, if all
    /// products are so many times as large: for its sines and its cosines. With G the mean products
    /// of new features and C those of new with old ones it is I + (G + εI)⁻¹(C − G): where nothing
    /// can be gained a model stays as it is.
    fn nearest(&self, factor: f64) -> [Vec<f64>; 2] {
        let count = self.new.len();
        let among = mean_products([&self.new, &self.new], &self.among, factor);
        let across = mean_products([&self.new, &self.old], &self.across, factor);
        [0, 1].map(|part| {
            let triangle = (0..count).flat_map(|i| (0..=i).map(move |j| (i, j)));
            let gram: Vec<_> = triangle.map(|(i, j)| among[i * count + j][part]).collect();
            let gram = Cholesky::new(gram, count, STRETCH_RIDGE, 0.0);
            let mut matrix = vec![0.0; count * count];
            let mut column = vec![0.0; count];
            for j in 0..count {
                for (i, entry) in column.iter_mut().enumerate() {
                    *entry = across[i * count + j][part] - among[i * count + j][part];
                }
                gram.solve(&mut column);
                column.iter().enumerate().for_each(|(i, entry)| matrix[i * count + j] = *entry);
                matrix[j * count + j] += 1.0;
            }
            matrix
        })
    }
}

/// E[sin(a·g)·sin(b·g)] and E[cos(a·g)·cos(b·g)] for every row a of one and b of the other, given
/// their squares and products, all of them times `factor`.
fn mean_products([one, other]: [&[f64]; 2], products: &[f64], factor: f64) -> Vec<[f64; 2]> {
    let squares = one.iter().flat_map(|a2| other.iter().map(move |b2| a2 + b2));
    let pairs = squares.zip(products).map(|(sum, product)| {
        let twice = 2.0 * product;
        let [minus, plus] = [sum - twice, sum + twice].map(|length2| mean_cosine(factor * length2));
        [0.5 * (minus - plus), 0.5 * (minus + plus)]
    });
    pairs.collect()
}

/// E[cos(a·g)] from ‖a‖²; what overflowed swings too fast to have a mean.
fn mean_cosine(length2: f64) -> f64 {
    // Rounding may take a square below zero.
    if length2 < 1400.0 { math::exp(-0.5 * length2.max(0.0)) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{CounterRng, normal};

    #[test]
    fn mean_products_are_the_means_of_products() {
        let (a, b) = ([0.4, -1.1], [0.7, 0.5]);
        let mut rng = CounterRng::from_seed(1).generator();
        let (count, mut sums) = (200_000, [0.0; 2]);
        for _ in 0..count {
            let g: [f64; 2] = core::array::from_fn(|_| normal(&mut rng));
            let (a, b) = (dot(&a, &g), dot(&b, &g));
            sums[0] += a.sin() * b.sin();
            sums[1] += a.cos() * b.cos();
        }
        let found = mean_products([&[dot(&a, &a)], &[dot(&b, &b)]], &[dot(&a, &b)], 1.0)[0];
        for (found, sum) in found.iter().zip(sums) {
            // Four standard deviations of a mean of products at most one.
            assert!(
                (found - sum / f64::from(count)).abs() < 4.0 / f64::from(count).sqrt(),
                "{found}"
            );
        }
        let endless = [f64::INFINITY];
        assert_eq!(mean_products([&endless, &endless], &endless, 1.0), [[0.0, 0.0]]);
    }

    #[test]
    fn what_isn_t_stretched_stays_as_it_is() {
        let angles: Vec<f64> = (0..12).map(|at| (f64::from(at) * 0.7).sin()).collect();
        for matrix in Products::new(&angles, &angles, 3).nearest(1.0) {
            let identity: Vec<f64> =
                (0..16).map(|at| if at % 5 == 0 { 1.0 } else { 0.0 }).collect();
            assert_eq!(matrix, identity);
        }
    }
}
