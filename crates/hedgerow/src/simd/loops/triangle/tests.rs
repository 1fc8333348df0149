use alloc::vec::Vec;

use super::*;
use crate::random::CounterRng;
use crate::simd::loops::{first_line, write_blocks};
use crate::simd::wide::WideLine;
use crate::simd::{self, Cpu};

/// Whole blocks, parts of them, and less than one.
const SIZES: [usize; 9] = [1, 3, 4, 7, 8, 13, 24, 31, 84];

struct Case {
    matrix: Vec<f64>,
    vectors: [Vec<f64>; 3],
}

impl Case {
    /// A positive matrix and some vectors.
    fn new(len: usize) -> Self {
        let stream = CounterRng::from_seed(len as u64);
        let number = |at: usize| 2.0 * stream.uniform_at(at as u64) - 1.0;
        let vector = |at: usize| (0..len).map(|i| number(at * len + i)).collect::<Vec<_>>();
        let mut matrix = vec![0.0; start(len)];
        (0..len).for_each(|i| matrix[start(i) + i] = 1.0);
        for at in 3..3 + 2 * len {
            let row = vector(at);
            for i in 0..len {
                (0..=i).for_each(|j| matrix[start(i) + j] += row[i] * row[j]);
            }
        }
        Self { matrix, vectors: [0, 1, 2].map(vector) }
    }

    fn len(&self) -> usize {
        self.vectors[0].len()
    }

    /// A v from the definition.
    fn times(&self, v: &[f64]) -> Vec<f64> {
        let entry = |i: usize, j: usize| self.matrix[start(i.max(j)) + i.min(j)];
        let len = self.len();
        (0..len).map(|i| (0..len).map(|j| entry(i, j) * v[j]).sum()).collect()
    }

    /// A u and A⁻¹u of a matrix by blocks.
    fn by_blocks(&self, cpu: Cpu) -> [Vec<f64>; 2] {
        let (len, whole) = (self.len(), self.len().next_multiple_of(WIDE));
        let lines = |count: usize| vec![WideLine([f64::NAN; WIDE]); count];
        let (mut matrix, mut columns) = (lines(first_line(whole)), lines(whole));
        write_blocks(&self.matrix, len, &mut matrix);
        let mut u = self.vectors[0].clone();
        u.resize(whole, 0.0);
        let [mut product, mut solved] = [0; 2].map(|_| vec![f64::NAN; whole]);
        simd::multiply_blocks(cpu, &matrix, &u, &mut product);
        assert!(simd::invert(cpu, &mut matrix, &mut columns));
        simd::multiply_blocks(cpu, &matrix, &u, &mut solved);
        product.truncate(len);
        solved.truncate(len);
        [product, solved]
    }

    /// All that the loops find.
    fn found(&self, cpu: Cpu) -> Vec<Vec<f64>> {
        let (len, [u, v, w]) = (self.len(), &self.vectors);
        let [mut product, mut once, mut of_v, mut of_w] = [0; 4].map(|_| vec![f64::NAN; len]);
        simd::multiply_symmetric(cpu, &self.matrix, u, &mut once);
        let halves = [&mut of_v[..], &mut of_w];
        simd::multiply_with_halves(cpu, &self.matrix, u, &mut product, [v, w], halves);
        let [by_blocks, of_inverse] = self.by_blocks(cpu);
        let mut factor = self.matrix.clone();
        simd::factor(cpu, &mut factor, len, 0.5, 0.0);
        let mut solved = u.clone();
        simd::solve(cpu, &factor, &mut solved);
        let (mut gram, mut moment) = (self.matrix.clone(), w.clone());
        let rows = [u, v, w, u, v].map(|row| &row[..]).concat();
        simd::add_gram(cpu, &mut gram, &mut moment, &rows, &[1.0, 2.0, 3.0, 4.0, 5.0]);
        let mut square = self.matrix.clone();
        simd::add_square(cpu, &mut square, v, -0.25);
        let mut less = w.clone();
        simd::subtract_squares(cpu, &rows, u, &mut less);
        let dots = vec![simd::dot_wide(cpu, u, v), simd::dot_wide(cpu, &u[..len / 2], v)];
        vec![
            once, product, of_v, of_w, factor, solved, gram, moment, square, less, dots, by_blocks,
            of_inverse,
        ]
    }
}

fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let near = 1e-9 * (1.0 + expected.abs());
        assert!((found - expected).abs() < near, "{found} instead of {expected}");
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    for len in SIZES {
        let case = Case::new(len);
        let bits = |cpu| {
            let found = case.found(cpu).concat();
            found.iter().map(|number| number.to_bits()).collect::<Vec<_>>()
        };
        for cpu in [Cpu::Avx2, Cpu::Avx512] {
            assert_eq!(bits(Cpu::Plain), bits(cpu), "{} {len}", cpu.name());
        }
    }
}

#[test]
fn products_factors_and_inverses_are_right() {
    for len in SIZES {
        let case = Case::new(len);
        let [u, v, w] = &case.vectors;
        let found = case.found(Cpu::detect());
        let [once, product, of_v, of_w, factor, solved, rest @ ..] = &found[..] else {
            unreachable!("so many results")
        };
        let [gram, moment, square, less, dots, by_blocks, of_inverse] = rest else {
            unreachable!("so many results")
        };
        assert_near(once, &case.times(u));
        assert_near(product, &case.times(u));
        let forms = [dot(of_v, w) + dot(of_w, v), 2.0 * dot(of_v, v)];
        assert_near(&forms, &[dot(v, &case.times(w)), dot(v, &case.times(v))]);
        assert_near(by_blocks, &case.times(u));
        assert_near(&case.times(of_inverse), u);
        let mut products = vec![];
        for i in 0..len {
            let row = |i: usize| &factor[start(i)..];
            products.extend((0..=i).map(|j| dot(&row(i)[..=j], &row(j)[..=j])));
        }
        let mut raised = case.matrix.clone();
        (0..len).for_each(|i| raised[start(i) + i] += 0.5);
        assert_near(&products, &raised);
        let raised = Case { matrix: raised, vectors: case.vectors.clone() };
        assert_near(&raised.times(solved), u);
        let mut more = (case.matrix.clone(), w.clone(), case.matrix.clone());
        for i in 0..len {
            for (row, y) in [u, v, w, u, v].into_iter().zip(1..) {
                (0..=i).for_each(|j| more.0[start(i) + j] += row[i] * row[j]);
                more.1[i] += row[i] * f64::from(y);
            }
            (0..=i).for_each(|j| more.2[start(i) + j] -= 0.25 * v[i] * v[j]);
        }
        assert_near(gram, &more.0);
        assert_near(moment, &more.1);
        assert_near(square, &more.2);
        let squares = |row: &Vec<f64>, i: usize| row[i] * dot(row, u);
        let expected =
            (0..len).map(|i| w[i] - [u, v, w, u, v].map(|row| squares(row, i)).iter().sum::<f64>());
        assert_near(less, &expected.collect::<Vec<_>>());
        assert_near(dots, &[dot(u, v), dot(&u[..len / 2], v)]);
    }
}

#[test]
fn what_is_not_positive_has_no_inverse() {
    let bad = [[1.0, 2.0, 1.0], [0.0, 0.0, 1.0], [f64::NAN, 0.0, 1.0], [f64::INFINITY, 0.0, 1.0]];
    for triangle in bad {
        let [mut matrix, mut columns] = [[WideLine([0.0; WIDE]); WIDE]; 2];
        write_blocks(&triangle, 2, &mut matrix);
        assert!(!simd::invert(Cpu::detect(), &mut matrix, &mut columns), "{triangle:?}");
    }
}
