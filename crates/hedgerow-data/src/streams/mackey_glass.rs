//! `mackey-glass`: a chaotic time series, as AR(5).

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{PLAIN, Request, Samples, Stream};

pub(super) static STREAM: Stream = Stream {
    name: "mackey-glass",
    summary: "Mackey-Glass chaotic time series, predicted from its last 5 values",
    is_time_series: true,
    generate: samples,
    ..PLAIN
};

/// AR order of the paper's time series.
const ORDER: usize = 5;
/// Seconds after which the start no longer matters.
const TRANSIENT: usize = 500;

/// One value per second, divided by 1.5 (the attractor is within [0.4, 1.35]).
fn samples(request: &Request, rng: &mut ChaCha8Rng) -> Samples {
    // Away from the unstable fixed point at 1, which a start near it leaves slowly.
    let history = rng.random_range(1.1..1.3);
    let wanted = request.samples + ORDER;
    let series: Vec<f32> = mackey_glass(history, TRANSIENT + wanted, 10)
        .skip(TRANSIENT)
        .map(|value| (value / 1.5) as f32)
        .collect();
    let past = series.windows(ORDER).take(request.samples);
    let x = past.flat_map(|past| past.iter().rev().copied()).collect();
    Samples { features: ORDER, x, y: series[ORDER..].to_vec() }
}

/// x' = 0.2 x(t-17) / (1 + x(t-17)^10) - 0.1 x at t = 1, 2, …, `seconds`, from a constant past, by
/// the classical Runge-Kutta method. Its half steps need the past between grid points: there the
/// cubic through both ends' values and slopes stands in, which keeps the fourth order.
fn mackey_glass(
    history: f64,
    seconds: usize,
    steps_per_second: usize,
) -> impl Iterator<Item = f64> {
    let slope = |now: f64, delayed: f64| 0.2 * delayed / (1.0 + delayed.powi(10)) - 0.1 * now;
    let step = 1.0 / steps_per_second as f64;
    // The last 17 seconds as a ring: the values at the start and in the middle of every step.
    let mut past = vec![(history, history); 17 * steps_per_second];
    let mut oldest = 0;
    let mut now = history;
    (0..seconds).map(move |_| {
        for _ in 0..steps_per_second {
            let following = (oldest + 1) % past.len();
            let (at_start, at_middle) = past[oldest];
            let at_end = past[following].0;
            let k1 = slope(now, at_start);
            let k2 = slope(now + step / 2.0 * k1, at_middle);
            let k3 = slope(now + step / 2.0 * k2, at_middle);
            let k4 = slope(now + step * k3, at_end);
            let next = now + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4);
            let middle = (now + next) / 2.0 + step / 8.0 * (k1 - slope(next, at_end));
            past[oldest] = (now, middle);
            oldest = following;
            now = next;
        }
        now
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NODES, assert_close};
    use super::*;

    #[test]
    fn mackey_glass_agrees_with_a_finer_step() {
        let fine: Vec<f64> = mackey_glass(1.2, 300, 160).collect();
        let error = |steps| {
            let coarse = mackey_glass(1.2, 300, steps);
            coarse.zip(&fine).map(|(coarse, fine)| (coarse - fine).abs()).fold(0.0, f64::max)
        };
        assert_close(error(10), 0.0, 1e-6);
        // Fourth order: half the step, a sixteenth of the error.
        assert_close(error(5) / error(10), 16.0, 4.0);
    }

    #[test]
    fn mackey_glass_begins_as_the_exact_solution() {
        // While the delayed value is the constant past h, x' = a - x/10 has the solution 10a + (h -
        // 10a) exp(-t/10).
        let history = 1.2_f64;
        let limit = 2.0 * history / (1.0 + history.powi(10));
        for (second, value) in (1..=17).zip(mackey_glass(history, 17, 10)) {
            assert_close(
                value,
                limit + (history - limit) * (-f64::from(second) / 10.0).exp(),
                1e-9,
            );
        }
    }

    #[test]
    fn mackey_glass_inputs_are_the_labels_before() {
        let data = STREAM.generate(50, NODES, 2);
        for t in ORDER..data.len() {
            let past: Vec<f32> = data.y[t - ORDER..t].iter().rev().copied().collect();
            assert_eq!(data.sample(t).0, past);
        }
    }
}
