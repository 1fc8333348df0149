//! What a curious server can read from messages: the claims of `docs/privacy.md`, with the attack
//! of `examples/leak`.

#![allow(clippy::unwrap_used)]

#[path = "../examples/leak/attack.rs"]
mod attack;
#[path = "../examples/leak/lattice.rs"]
mod lattice;
#[path = "../examples/leak/pair.rs"]
mod pair;
#[path = "../examples/leak/scene.rs"]
mod scene;

use hedgerow::features::{Draw, SampleMap};
use hedgerow::message::{Report, Upload};
use hedgerow::random::CounterRng;
use hedgerow::scaling::{NodeScaling, ScaleKind};
use hedgerow::{Plan, PlanConfig};

use scene::{Message, Scene, Summary};

const NARROW: &str = "sk:1";
const MIDDLE: &str = "sk:6";
const WIDE: &str = "sk:11";

/// All attempts in these federations, over two seeds.
fn found(scenes: impl IntoIterator<Item = Scene>) -> Summary {
    let seeds = |scene: Scene| (0..2).map(move |seed| Scene { seed, ..scene });
    let attempts: Vec<_> =
        scenes.into_iter().flat_map(seeds).flat_map(|scene| scene.play().unwrap()).collect();
    Summary::of(&attempts)
}

fn share(found: &Summary) -> f64 {
    assert!(found.attempts > 50, "{found:?}");
    found.hits as f64 / found.attempts as f64
}

#[test]
fn a_single_upload_of_one_kernel_gives_the_sample_away() {
    for method in [NARROW, MIDDLE, WIDE, "naive"] {
        let found = found((1..=10).map(|inputs| Scene::single(method, inputs, 0)));
        assert!(share(&found) > 0.99, "{method:?}: {found:?}");
        assert!(found.largest < 1e-5 && found.label < 1e-5, "{method:?}: {found:?}");
    }
}

#[test]
fn masks_hide_what_fixed_point_does_not() {
    for method in [MIDDLE, WIDE, "mk", "naive"] {
        for inputs in [2, 5, 10] {
            let scene = Scene::single(method, inputs, 0);
            let open = found([Scene { message: Message::FixedPoint, ..scene }]);
            assert!(open.distance < 0.1 * open.guess, "{scene:?}: {open:?}");
            let masked = found([Scene { message: Message::Masked, ..scene }]);
            assert!(masked.hits <= masked.lucky, "{scene:?}: {masked:?}");
            assert!(masked.distance > 0.8 * masked.guess, "{scene:?}: {masked:?}");
        }
    }
}

#[test]
fn so_do_the_uploads_of_mk_one_after_the_other() {
    let found = found((1..=10).map(|inputs| Scene::single("mk", inputs, 0)));
    assert!(share(&found) > 0.85, "{found:?}");
    assert!(found.largest < 1e-5 && found.label < 1e-5, "{found:?}");
}

#[test]
fn the_first_upload_of_mk_needs_no_history() {
    let scenes =
        (1..=10).flat_map(|inputs| (0..3).map(move |seed| Scene::single("mk", inputs, seed)));
    for scene in scenes {
        let attempts = Scene { rounds: 1, ..scene }.play().unwrap();
        assert!(attempts[0].read.largest < 1e-5, "{scene:?}: {attempts:?}");
    }
}

#[test]
fn a_sum_over_twenty_nodes_reads_no_better_than_a_guess() {
    for method in [NARROW, MIDDLE, WIDE, "mk", "naive"] {
        for inputs in [2, 5, 10] {
            let scene = Scene::single(method, inputs, 0);
            let found = found([Scene { nodes: 20, message: Message::Sum, ..scene }]);
            assert!(found.hits <= found.lucky, "{scene:?}: {found:?}");
            // For wide kernels, a sum gives the mean of the inputs, which is nearer to each node
            // than most guesses.
            assert!(found.distance > 0.8 * found.guess, "{scene:?}: {found:?}");
        }
    }
}

#[test]
fn several_samples_in_a_round_hide_as_much_as_several_nodes() {
    for method in [MIDDLE, WIDE, "mk"] {
        let of = |scenes: [Scene; 3]| {
            let found = found(scenes);
            assert!(
                share(&found) < 0.05 && found.distance > 0.2 * found.guess,
                "{method:?}: {found:?}"
            );
        };
        let scenes = [2, 5, 10].map(|inputs| Scene::single(method, inputs, 0));
        for count in [2, 5] {
            of(scenes.map(|scene| Scene { samples: count, ..scene }));
            of(scenes.map(|scene| Scene { nodes: count, message: Message::Sum, ..scene }));
        }
    }
}

#[test]
fn a_sum_of_two_is_no_protection() {
    let one_input = Scene { nodes: 2, ..Scene::single(NARROW, 1, 0) };
    // Narrow kernels keep samples apart, so the larger of two remains visible.
    assert!(share(&found([Scene { message: Message::Sum, ..one_input }])) > 0.4);
    // A server that searches for two samples finds both.
    let apart = Scene { message: Message::Pair, method: MIDDLE, ..one_input };
    let found = found([apart]);
    assert!(share(&found) > 0.8 && found.label < 1e-2, "{found:?}");
}

#[test]
fn the_first_report_about_scale_is_the_first_sample() {
    let mut node = NodeScaling::new(ScaleKind::Spread, 2);
    node.see(&[12.5, -3.0], Some(0.75));
    let mut report = Report::default();
    assert!(node.report(&mut report));
    for value in [12.5, -3.0, 0.75] {
        // Its mean, its smallest and its largest.
        assert_eq!(
            report.numbers.iter().filter(|number| **number == value).count(),
            3,
            "{report:?}"
        );
    }
}

/// Sums of the nodes' first uploads of GR-OFL, one sample each, and the samples.
fn first_uploads(nodes: u32, inputs: usize, seed: u64) -> (SampleMap, Vec<f64>, Vec<Vec<f32>>) {
    let config = PlanConfig::default().method("gr".parse().unwrap()).inputs(inputs).seed(seed);
    let config = config.draw(Draw::Independent);
    let plan = Plan::new(config.nodes(nodes as usize)).unwrap();
    let map = plan.map().clone();
    let stream = CounterRng::from_seed(seed);
    let (mut sums, mut samples) = (Vec::new(), Vec::new());
    for id in 0..nodes {
        let number = |at: usize| stream.uniform_at(u64::from(id) * 100 + at as u64) as f32;
        let x: Vec<f32> = (0..inputs).map(number).collect();
        let mut z = vec![0.0; map.width()];
        let mut node = plan.node_method(id);
        node.learn(map.map_batch(&x, &mut z), 0.5 + number(99)).unwrap();
        let mut upload = Upload::default();
        assert!(node.upload(&mut upload));
        sums.resize(upload.numbers.len(), 0.0);
        sums.iter_mut().zip(&upload.numbers).for_each(|(sum, number)| *sum += f64::from(*number));
        samples.push(x);
    }
    (map, sums, samples)
}

/// The mean of the inputs, from the first column of a Gram matrix, which has the mean of the linear
/// features.
fn read_inputs(map: &SampleMap, sums: &[f64], inputs: usize, nodes: u32) -> Vec<f64> {
    let mut z = vec![0.0; map.width()];
    // Column by column of the linear features' map; its rows are orthogonal and of one length.
    let columns: Vec<Vec<f64>> = (0..inputs)
        .map(|input| {
            let unit: Vec<f32> = (0..inputs).map(|at| f32::from(u8::from(at == input))).collect();
            let z = map.map_batch(&unit, &mut z).numbers();
            z[1..=inputs].iter().map(|number| f64::from(*number)).collect()
        })
        .collect();
    let mean: Vec<f64> =
        (1..=inputs).map(|row| sums[row * (row + 1) / 2] / f64::from(nodes)).collect();
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    columns.iter().map(|column| dot(column, &mean) / dot(column, column)).collect()
}

#[test]
fn a_first_upload_of_gr_ofl_is_the_sample_and_a_sum_of_twenty_is_their_mean() {
    for (inputs, seed) in [(1, 1), (5, 2), (10, 3)] {
        let distance = |read: &[f64], x: &[f32]| -> f64 {
            read.iter().zip(x).map(|(read, x)| (read - f64::from(*x)).abs()).fold(0.0, f64::max)
        };
        let (map, sums, samples) = first_uploads(1, inputs, seed);
        assert!(distance(&read_inputs(&map, &sums, inputs, 1), &samples[0]) < 1e-5);
        let (map, sums, samples) = first_uploads(20, inputs, seed);
        let read = read_inputs(&map, &sums, inputs, 20);
        let mean: Vec<f32> =
            (0..inputs).map(|input| samples.iter().map(|x| x[input]).sum::<f32>() / 20.0).collect();
        assert!(distance(&read, &mean) < 1e-5, "of a sum, only the mean is read off like this");
        if inputs > 1 {
            assert!(samples.iter().all(|x| distance(&read, x) > 0.05));
        }
    }
}
