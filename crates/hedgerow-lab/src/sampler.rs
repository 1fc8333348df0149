//! [`PredictionSampler`]: a bounded part of a method's predictions, for figures of streams of any
//! length.

use std::collections::VecDeque;

use hedgerow::NodeId;
use hedgerow::learning::Interval;
use hedgerow::metrics::Tally;
use hedgerow::random::CounterRng;

use crate::results::{CoursePoint, DeviceCourse, SampledPredictions};

/// Pairs of label and prediction that are kept, of all devices together.
const SCATTER_PAIRS: usize = 1000;
/// Devices with a course of their own; of more, every second, third, and so on.
const MOST_COURSES: usize = 1000;
/// Points of a course over the whole run; half of them are dropped whenever there are so many.
const COURSE_POINTS: usize = 256;
/// Latest predictions of a device: a week of hours.
const RECENT_POINTS: usize = 168;
/// Courses in the results, from the device with the largest error to the one with the least.
const COURSES_SHOWN: usize = 5;

/// Most bytes that it takes.
pub(crate) fn memory(nodes: usize) -> f64 {
    let points = (COURSE_POINTS + RECENT_POINTS) * size_of::<CoursePoint>();
    let each = points + size_of::<DeviceSampler>();
    (nodes.min(MOST_COURSES) * each + SCATTER_PAIRS * size_of::<[f32; 2]>()) as f64
}

pub(crate) struct PredictionSampler {
    /// Decides which pairs stay.
    random: CounterRng,
    round: u64,
    seen: u64,
    scatter: Vec<[f32; 2]>,
    /// The first device and every so many after it have a course.
    every: usize,
    devices: Vec<DeviceSampler>,
}

#[derive(Clone)]
struct DeviceSampler {
    squared: Tally,
    /// Each prediction whose number is a multiple of this is in the course.
    stride: u64,
    whole: Vec<CoursePoint>,
    recent: VecDeque<CoursePoint>,
}

impl PredictionSampler {
    pub(crate) fn new(nodes: usize, random: CounterRng) -> Self {
        let every = nodes.div_ceil(MOST_COURSES).max(1);
        let device = DeviceSampler {
            squared: Tally::default(),
            stride: 1,
            whole: Vec::new(),
            recent: VecDeque::new(),
        };
        let devices = vec![device; nodes.div_ceil(every)];
        Self { random, round: 1, seen: 0, scatter: Vec::new(), every, devices }
    }

    pub(crate) fn close_round(&mut self) {
        self.round += 1;
    }

    /// `time` is NaN without a date.
    pub(crate) fn see(
        &mut self,
        node: NodeId,
        [truth, value]: [f32; 2],
        interval: Option<Interval>,
        time: f64,
    ) {
        if !truth.is_finite() || !value.is_finite() {
            return;
        }
        // Each pair stays with the same probability.
        if self.scatter.len() < SCATTER_PAIRS {
            self.scatter.push([truth, value]);
        } else {
            let place = self.random.bits_at(self.seen) % (self.seen + 1);
            self.scatter
                .get_mut(place as usize)
                .into_iter()
                .for_each(|pair| *pair = [truth, value]);
        }
        self.seen += 1;
        let node = node as usize;
        if !node.is_multiple_of(self.every) {
            return;
        }
        if let Some(device) = self.devices.get_mut(node / self.every) {
            let margin = interval.map(|Interval { lower, upper }| (upper - lower) / 2.0);
            let margin = margin.filter(|margin| margin.is_finite());
            let time = Some(time).filter(|time| time.is_finite());
            device.see(CoursePoint { round: self.round, truth, value, margin, time });
        }
    }

    pub(crate) fn finish(self) -> SampledPredictions {
        let mut devices: Vec<(usize, DeviceSampler)> =
            self.devices.into_iter().enumerate().filter(|(_, one)| one.squared.count > 0).collect();
        devices.sort_by(|(_, a), (_, b)| b.squared.mean().total_cmp(&a.squared.mean()));
        let (count, shown) = (devices.len(), devices.len().min(COURSES_SHOWN));
        let steps = shown.saturating_sub(1).max(1);
        let course = |step: usize| {
            let (place, device) = &devices[(step * (count - 1) + steps / 2) / steps];
            DeviceCourse {
                node: (place * self.every) as u32,
                whole: device.whole.clone(),
                recent: device.recent.iter().copied().collect(),
            }
        };
        SampledPredictions { scatter: self.scatter, devices: (0..shown).map(course).collect() }
    }
}

impl DeviceSampler {
    fn see(&mut self, point: CoursePoint) {
        if self.squared.count.is_multiple_of(self.stride) {
            if self.whole.len() == COURSE_POINTS {
                let mut place = 0;
                self.whole.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.stride *= 2;
            }
            if self.squared.count.is_multiple_of(self.stride) {
                self.whole.push(point);
            }
        }
        if self.recent.len() == RECENT_POINTS {
            self.recent.pop_front();
        }
        self.recent.push_back(point);
        let error = f64::from(point.value) - f64::from(point.truth);
        self.squared.add(error * error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices whose error grows with their number, each predicted once in a round.
    fn sampled(nodes: u32, rounds: u64) -> SampledPredictions {
        let mut sampler = PredictionSampler::new(nodes as usize, CounterRng::from_seed(1));
        for round in 0..rounds {
            for node in 0..nodes {
                let interval = Some(Interval { lower: -1.0, upper: 3.0 });
                let pair = [round as f32, round as f32 + node as f32];
                let time = if node == 0 { 60.0 * round as f64 } else { f64::NAN };
                sampler.see(node, pair, interval, time);
            }
            sampler.see(0, [f32::NAN, 1.0], None, 0.0);
            sampler.close_round();
        }
        sampler.finish()
    }

    #[test]
    fn a_short_run_is_kept_whole() {
        let SampledPredictions { scatter, devices } = sampled(1, 3);
        assert_eq!(scatter, [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]);
        let point = |round: u64| CoursePoint {
            round,
            truth: round as f32 - 1.0,
            value: round as f32 - 1.0,
            margin: Some(2.0),
            time: Some(60.0 * (round as f64 - 1.0)),
        };
        let all = vec![point(1), point(2), point(3)];
        assert_eq!(devices, [DeviceCourse { node: 0, whole: all.clone(), recent: all }]);
    }

    #[test]
    fn a_long_run_takes_bounded_memory_and_is_shown_to_its_end() {
        for rounds in [255, 256, 257, 1000, 12_345] {
            let SampledPredictions { scatter, devices } = sampled(1, rounds);
            assert_eq!(scatter.len(), SCATTER_PAIRS.min(rounds as usize));
            let DeviceCourse { whole, recent, .. } = &devices[0];
            assert!((128..=COURSE_POINTS).contains(&whole.len()), "{rounds}: {}", whole.len());
            let gaps: Vec<u64> =
                whole.windows(2).map(|pair| pair[1].round - pair[0].round).collect();
            assert!(gaps.iter().all(|gap| *gap == gaps[0]), "{rounds}");
            assert!(whole[0].round == 1 && whole[whole.len() - 1].round + gaps[0] > rounds);
            assert!(recent.len() == RECENT_POINTS && recent[RECENT_POINTS - 1].round == rounds);
        }
    }

    #[test]
    fn pairs_come_from_all_of_the_run() {
        let scatter = sampled(1, 20_000).scatter;
        let mean = scatter.iter().map(|pair| f64::from(pair[0])).sum::<f64>() / 1000.0;
        // Five standard deviations of the mean of 1000 uniform numbers.
        assert!((mean - 10_000.0).abs() < 5.0 * 20_000.0 / 12f64.sqrt() / 1000f64.sqrt(), "{mean}");
    }

    #[test]
    fn devices_are_the_worst_the_best_and_some_between() {
        let nodes = |count, rounds| -> Vec<u32> {
            sampled(count, rounds).devices.iter().map(|device| device.node).collect()
        };
        assert_eq!(nodes(9, 2), [8, 6, 4, 2, 0]);
        assert_eq!(nodes(3, 2), [2, 1, 0]);
        assert_eq!(nodes(2500, 1), [2499, 1875, 1248, 624, 0]);
        assert!(nodes(3, 0).is_empty());
    }
}
