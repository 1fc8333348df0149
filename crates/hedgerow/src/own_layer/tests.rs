use super::*;
use crate::random::CounterRng;

const NOTHING: Features<'static> = Features::made(&[]);

fn uniform(at: u64) -> f64 {
    ((at * 2_654_435_761 % (1 << 32)) >> 8) as f64 / f64::from(1 << 24)
}

/// Predictions of a stream by a layer of seven features, with the federation's weights or without.
fn golden_run(has_model: bool) -> (Vec<f64>, OwnLayer) {
    let mut own = OwnLayer::new(7);
    let predictions = (0..200).map(|t: u64| {
        let number = |j: u64| if j == 0 { 1.0 } else { 2.0 * uniform(16 * t + j) - 1.0 };
        let z: [f64; 7] = core::array::from_fn(|j| number(j as u64));
        let w =
            [0.5, 1.0, -0.75, 0.25, 0.5, -0.25, 0.125].map(|w| w * (1.0 - 1.0 / (t + 1) as f64));
        let global: f64 = w.iter().zip(z).map(|(w, z)| w * z).sum();
        let noise = 0.2 * (uniform(16 * t + 9) - 0.5);
        let change = if t > 120 { 0.5 } else { 0.0 };
        let y = 2.0 + 0.8 * z[1] - 0.5 * z[2] * z[3] + 0.3 * z[6] + noise + change;
        own.predict(Features::made(&z.map(|z| z as f32)), t + 1, global as f32, |out| {
            out.copy_from_slice(&w);
            has_model
        });
        own.learn(y as f32);
        own.scratch.mixed
    });
    (predictions.collect(), own)
}

/// Values of the numpy prototype on the same stream.
#[test]
fn predictions_are_those_of_the_prototype() {
    let times = [0, 1, 2, 5, 9, 17, 18, 40, 80, 122, 140, 199];
    for (has_model, expected, weight) in [
        (
            true,
            [
                0.0,
                1.8986780015625104,
                2.1922960164240646,
                1.3266797135842807,
                2.4279574351721154,
                2.700520986261145,
                2.560160443742632,
                1.2329456507257868,
                2.7087572076679147,
                1.0578735740148795,
                1.5667273840794609,
                2.608089488596358,
            ],
            3.9876106299624033e-20,
        ),
        (
            false,
            [
                0.0,
                1.8929248334509445,
                2.19855625841123,
                1.3301477251723772,
                2.4291706946845655,
                2.699245588922021,
                2.5580671029321307,
                1.2315389699185446,
                2.655363405765561,
                1.0241623173775525,
                1.5191776433355704,
                2.626456894080601,
            ],
            4.790000935580873e-21,
        ),
    ] {
        let (predictions, own) = golden_run(has_model);
        for (time, expected) in times.into_iter().zip(expected) {
            let found = predictions[time];
            assert!((found - expected).abs() < 1e-8, "{has_model} {time}: {found}, {expected}");
        }
        assert!((own.weights()[0] - weight).abs() < 1e-8, "{:?}", own.weights());
    }
}

/// Mean squared errors of the federation and of the node, when a node's labels are made from
/// the global prediction.
fn errors(label: impl Fn(f32, u64) -> f32) -> (f64, f64) {
    let (stream, mut own) = (CounterRng::from_seed(3), OwnLayer::new(0));
    let (mut global_error, mut own_error) = (0.0, 0.0);
    for t in 0..300 {
        let global = stream.uniform_at(t) as f32;
        let y = label(global, t);
        global_error += f64::from(global - y).powi(2);
        own_error += f64::from(own.predict(NOTHING, t + 1, global, |_| false) - y).powi(2);
        own.learn(y);
    }
    (global_error / 300.0, own_error / 300.0)
}

#[test]
fn an_offset_of_the_node_s_own_is_learned() {
    let (global, own) = errors(|global, _| 0.3 * global + 5.0);
    assert!(own < 0.1 * global, "{own} against {global}");
}

#[test]
fn a_label_that_is_always_the_same_is_learned_at_once() {
    let mut own = OwnLayer::new(0);
    for _ in 0..10 {
        own.predict(NOTHING, 9, 0.8, |_| false);
        own.learn(0.2);
    }
    let found = own.predict(NOTHING, 9, 0.9, |_| false);
    assert!((found - 0.2).abs() < 0.02, "{found}");
}

#[test]
fn where_nothing_can_be_improved_little_is_lost() {
    let noise = CounterRng::from_seed(9);
    let (global, own) = errors(|global, t| global + 0.2 * (noise.uniform_at(t) as f32 - 0.5));
    assert!(own < 1.05 * global, "{own} against {global}");
}

/// A layer of four features that has learned some samples, all labels times `size`.
fn learned(size: f64, samples: u64) -> OwnLayer {
    let (mut own, stream) = (OwnLayer::new(4), CounterRng::from_seed(1));
    for t in 0..samples {
        let (z, w) = sample(&stream, t, size);
        let y = size * (stream.uniform_at(t + 9000) + 2.0 * f64::from(z[1]));
        predict(&mut own, &z, &w);
        own.learn(y as f32);
    }
    own
}

fn sample(stream: &CounterRng, t: u64, size: f64) -> ([f32; 4], [f64; 4]) {
    let z =
        core::array::from_fn(
            |j| if j == 0 { 1.0 } else { stream.uniform_at(4 * t + j as u64) as f32 },
        );
    (z, [0.3, 1.0, -0.4, 0.1].map(|w| size * w))
}

fn predict(own: &mut OwnLayer, z: &[f32; 4], w: &[f64; 4]) -> f64 {
    let global: f64 = w.iter().zip(z).map(|(w, z)| w * f64::from(*z)).sum();
    f64::from(own.predict(Features::made(z), 700, global as f32, |out| {
        out.copy_from_slice(w);
        true
    }))
}

#[test]
fn predictions_scale_with_the_labels() {
    let stream = CounterRng::from_seed(1);
    let last = |size: f64| {
        let (z, w) = sample(&stream, 777, size);
        predict(&mut learned(size, 60), &z, &w) / size
    };
    for size in [1e-9, 1e-6, 1e6, 1e9] {
        assert!((last(size) - last(1.0)).abs() < 1e-4, "{size}: {} {}", last(size), last(1.0));
    }
}

#[test]
fn a_change_of_the_label_s_unit_changes_nothing_else() {
    let stream = CounterRng::from_seed(1);
    let from = crate::scaling::Scale::identity(3);
    let to = crate::scaling::Scale::from_ranges(&[(0.0, 1.0), (0.0, 1.0), (0.0, 8.0)]).unwrap();
    let rescaling = Rescaling::linear(&from, &to);
    let gain = rescaling.gain();
    assert!(gain > 0.0 && gain != 1.0 && !rescaling.changes_inputs(), "{gain}");
    let (mut own, mut rescaled) = (learned(1.0, 40), learned(1.0, 40));
    rescaled.rescale(&rescaling);
    for t in 40..80 {
        let (z, w) = sample(&stream, t, 1.0);
        let (expected, found) =
            (predict(&mut own, &z, &w), predict(&mut rescaled, &z, &w.map(|w| gain * w)));
        assert!((found - gain * expected).abs() < 1e-5 * gain, "{found} {expected}");
        own.learn(0.5);
        rescaled.learn(0.5 * gain as f32);
    }
}

#[test]
fn whatever_comes_it_stays_finite_and_can_be_restored() {
    let wild = [0.0, 1e12, -1e12, f32::NAN, f32::INFINITY, 1e-30, 3e38];
    for features in [0, 4] {
        let (mut own, mut copy) = (OwnLayer::new(features), OwnLayer::new(features));
        for t in 0..3000_usize {
            let (global, label) = (wild[t % 7], wild[t * 3 % 5]);
            let z = [1.0, 32.0 - (t % 3) as f32, if t % 500 < 250 { 0.0 } else { -32.0 }, 1e-30];
            let found = own.predict(Features::made(&z), t as u64, global, |out| {
                out.fill(1e30);
                t % 2 == 0
            });
            assert!(found.is_finite(), "{t}");
            own.learn(label);
            if t % 100 == 0 {
                copy.restore(&own.save()).unwrap();
                assert_eq!(copy.state, own.state);
            }
            let sum: f64 = own.state.mixture.weights().iter().sum();
            assert!((sum - 1.0).abs() < 1e-9);
        }
    }
}

#[test]
fn save_and_restore_changes_nothing_and_nonsense_is_refused() {
    let mut own = learned(1.0, 30);
    let mut copy = OwnLayer::new(4);
    copy.restore(&own.save()).unwrap();
    let (z, w) = sample(&CounterRng::from_seed(1), 30, 1.0);
    assert_eq!(predict(&mut copy, &z, &w).to_bits(), predict(&mut own, &z, &w).to_bits());
    own.learn(1.5);
    copy.learn(1.5);
    assert_eq!(copy.save(), own.save());
    let damages: [fn(&mut State); 9] = [
        |state| state.last = f64::NAN,
        |state| state.smallest = 99.0,
        |state| state.scatter = -1.0,
        |state| state.samples = u64::MAX,
        |state| state.ridges = None,
        |state| state.ridges = Some(Ridges::new(5)),
        |state| state.small[0] = SmallRidge::new(0.5),
        |state| state.clips = SoftClips::new(3),
        |state| state.mixture = ExpertMixture::new(&[0.5, 0.5]),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let mut bad = own.clone();
        damage(&mut bad.state);
        assert!(copy.restore(&bad.save()).is_err(), "{number}");
    }
    assert!(copy.restore(&[]).is_err() && OwnLayer::new(0).restore(&own.save()).is_err());
    assert_eq!(copy.state, own.state);
}

#[test]
fn priors_sum_to_one_and_follow_the_federation_s_age() {
    for has_ridges in [false, true] {
        let (from_global, from_own) = experts(has_ridges);
        let all = 2 * from_global + from_own + 2;
        for (age, samples) in [0, 1, 2, 10, 1000, u64::MAX].into_iter().zip([0, 1, 1, 2, 1, 1]) {
            let prior = Prior::new(age, samples, has_ridges);
            let sum: f64 = (0..all).map(|expert| prior.of(expert)).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{age}: {sum}");
            assert!((0..all).all(|expert| prior.of(expert) > 0.0), "{age}");
        }
        let of_global = [1, 2, 10, 1000].map(|age| Prior::new(age, 9, has_ridges).of(0));
        assert!(of_global.is_sorted(), "{of_global:?}");
    }
}

/// Where the federation is nearly exact, a node that joins doesn't spoil its predictions.
#[test]
fn a_late_joiner_trusts_a_federation_that_is_nearly_exact() {
    let (mut own, stream) = (OwnLayer::new(4), CounterRng::from_seed(5));
    let (mut global_error, mut own_error) = (0.0, 0.0);
    for t in 0..20 {
        let (z, w) = sample(&stream, t, 1.0);
        let exact: f64 = w.iter().zip(z).map(|(w, z)| w * f64::from(z)).sum();
        let y = exact + 1e-4 * (stream.uniform_at(t + 5000) - 0.5);
        own_error += (predict(&mut own, &z, &w) - y).powi(2);
        global_error += (exact - y).powi(2);
        own.learn(y as f32);
    }
    // The node's own mean would have some million times the error.
    assert!(own_error < 2.0 * global_error, "{own_error} against {global_error}");
}

/// A node joins an old federation; its second prediction, where the federation says the same as
/// before.
fn second_prediction(global: f32, first_label: f32) -> f32 {
    let mut own = OwnLayer::new(0);
    own.predict(NOTHING, 700, global, |_| false);
    own.learn(first_label);
    own.predict(NOTHING, 701, global, |_| false)
}

#[test]
fn a_late_joiner_follows_its_first_label() {
    let found = second_prediction(1.0, 5.0);
    assert!(found > 3.5, "{found}");
}

/// However far the node's labels are from each other.
#[test]
fn with_one_label_nothing_is_further_from_the_federation_than_its_error() {
    let mut own = OwnLayer::new(0);
    own.predict(NOTHING, 700, 1.0, |_| false);
    own.learn(1.01);
    let found = own.predict(NOTHING, 701, 9.0, |_| false);
    assert!((found - 9.0).abs() < 0.011, "{found}");
}

/// The last label is exact for long, and far off when labels jump.
#[test]
fn a_label_that_stays_the_same_and_then_jumps_costs_little() {
    let (stream, mut own) = (CounterRng::from_seed(3), OwnLayer::new(0));
    for t in 0..300 {
        let label = (t / 30 % 2) as f32 * 10.0;
        let global = label + 0.2 * (stream.uniform_at(t) as f32 - 0.5);
        let found = own.predict(NOTHING, 700 + t, global, |_| false);
        assert!(t < 2 || (found - label).abs() < 1.5, "{t}: {found} for {label}");
        own.learn(label);
    }
}

/// The first sample says nothing about the experts: all of them said the same.
#[test]
fn the_first_error_doesn_t_hide_which_expert_is_better() {
    let (mut mixture, mut bounded) = (ExpertMixture::new(&[0.7, 0.3]), [0.0; 2]);
    for t in 0..4 {
        let (experts, label) = if t == 0 { ([0.0; 2], 1e3) } else { ([1.0, 0.01], 0.0) };
        let mixed = mixture.predict(&experts, t, &mut bounded);
        mixture.learn(&experts, (&bounded, mixed), label, |expert| [0.7, 0.3][expert]);
    }
    assert!(mixture.weights()[0] < 0.01, "{:?}", mixture.weights());
}

#[test]
fn a_label_without_a_sample_is_left_out() {
    let mut own = OwnLayer::new(0);
    own.learn(1.0);
    assert_eq!(own.state.samples, 0);
    own.predict(NOTHING, 1, 0.5, |_| false);
    own.learn(1.0);
    own.learn(1.0);
    assert_eq!(own.state.samples, 1);
}

#[test]
fn memory_is_what_the_state_takes() {
    for features in [0, 1, 80] {
        let (bound, saved) = (OwnLayer::memory(features), OwnLayer::new(features).save().len());
        assert!(saved < bound && bound < saved + 20_000, "{features}: {saved} of {bound}");
    }
    assert!(OwnLayer::memory(80) < 230_000);
}
