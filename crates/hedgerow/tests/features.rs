//! Feature maps: the same bits for every batch size, features of length one, and products that
//! estimate the kernel. The first numbers of every draw are fixed, because nodes of different
//! releases must derive the same map from the same seed.

#![allow(clippy::unwrap_used)]

use crate::common::numbers;
use hedgerow::PlanConfig;
use hedgerow::features::{Amplitude, Draw, Family, FeatureError, FeatureMap, FeatureSpec, Kernel};
use hedgerow::method::{Average, MkOptions};
use hedgerow::simd::Cpu;

const DRAWS: [Draw; 4] = Draw::ALL;

/// Families that a draw can have.
fn families(draw: Draw) -> impl Iterator<Item = Family> + Clone {
    Family::ALL.into_iter().filter(move |family| !draw.is_for_isotropic() || family.is_isotropic())
}

/// A dictionary that goes through all families, with growing bandwidth.
fn dictionary(draw: Draw, kernels: usize) -> Vec<Kernel> {
    let families = families(draw).cycle().zip(0..kernels);
    families.map(|(family, at)| Kernel { family, variance: 0.3 * 1.2f64.powi(at as i32) }).collect()
}

fn spec(draw: Draw, kernels: usize, frequencies: usize, inputs: usize, seed: u64) -> FeatureSpec {
    FeatureSpec {
        kernels: dictionary(draw, kernels),
        draw,
        inputs,
        frequencies,
        seed,
        amplitude: Amplitude::Normalised,
    }
}

/// Features in a buffer that shows unwritten numbers.
fn features(map: &FeatureMap, x: &[f32]) -> Vec<f32> {
    let mut z = vec![f32::NAN; x.len() / map.inputs() * map.width()];
    map.map_batch(x, &mut z);
    z
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn assert_on_the_sphere(map: &FeatureMap, z: &[f32], what: &FeatureSpec) {
    for part in z.chunks_exact(map.model_len()) {
        let length2 = dot(part, part);
        assert!((length2 - 1.0).abs() < 1e-5, "‖z‖² = {length2}: {what:?}");
    }
}

#[test]
fn batches_have_the_bits_of_single_samples_and_length_one() {
    for draw in DRAWS {
        for inputs in [1, 2, 3, 4, 5, 6, 7, 8, 9, 77, 130] {
            for frequencies in [1, 5, 16, 17, 49, 150] {
                for kernels in [1, 2, 11] {
                    let spec = spec(draw, kernels, frequencies, inputs, 3);
                    let map = FeatureMap::new(&spec).unwrap();
                    // Eleven samples fill groups of two and four and leave a rest; one of them is
                    // huge.
                    let mut x = numbers(inputs as u64, 11 * inputs);
                    x[4 * inputs] = 3e9;
                    let batch = features(&map, &x);
                    let singles: Vec<f32> =
                        x.chunks_exact(inputs).flat_map(|x| features(&map, x)).collect();
                    let bits = |z: &[f32]| z.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    assert!(bits(&batch) == bits(&singles), "{spec:?}");
                    for cpu in [Cpu::Plain, Cpu::Avx2] {
                        let other = features(&map.clone().on(cpu), &x);
                        assert!(bits(&batch) == bits(&other), "{} {spec:?}", cpu.name());
                    }
                    assert_on_the_sphere(&map, &batch, &spec);
                }
            }
        }
    }
}

#[test]
fn products_of_features_converge_to_the_kernel_and_to_no_other() {
    let (inputs, frequencies, seeds) = (3, 33, 800);
    // An average over D·seeds cosines of variance at most one: four standard deviations.
    let bound = 4.0 / ((frequencies * seeds) as f64).sqrt();
    let x = [0.2, -0.4, 0.7];
    let others = [[0.5, -0.1, 0.6], [0.2, 0.5, 0.1], [1.4, -1.2, 1.5]];
    for draw in DRAWS {
        // Two bandwidths of every family, so that shared draws are really shared.
        let kernels = dictionary(draw, 2 * families(draw).count());
        let mut means = vec![[0.0; 3]; kernels.len()];
        for seed in 0..seeds as u64 {
            let spec = FeatureSpec {
                kernels: kernels.clone(),
                draw,
                inputs,
                frequencies,
                seed,
                amplitude: Amplitude::Normalised,
            };
            let map = FeatureMap::new(&spec).unwrap();
            let here = features(&map, &x);
            for (at, other) in others.iter().enumerate() {
                let there = features(&map, other);
                let parts =
                    here.chunks_exact(map.model_len()).zip(there.chunks_exact(map.model_len()));
                for (mean, (a, b)) in means.iter_mut().zip(parts) {
                    mean[at] += dot(a, b) / seeds as f64;
                }
            }
        }
        for (kernel, means) in kernels.iter().zip(&means) {
            let farthest = |kernel: &Kernel| {
                let errors =
                    others.iter().zip(means).map(|(other, mean)| mean - kernel.value(&x, other));
                errors.fold(0.0, |farthest: f64, error| farthest.max(error.abs()))
            };
            assert!(farthest(kernel) < bound, "{draw:?} {}: {}", kernel.label(), farthest(kernel));
            for factor in [0.6, 1.0 / 0.6] {
                let wrong = Kernel { variance: factor * kernel.variance, ..*kernel };
                assert!(
                    farthest(&wrong) > bound,
                    "{draw:?} {} passes as {}",
                    kernel.label(),
                    wrong.label()
                );
            }
        }
    }
}

#[test]
fn orthogonal_draws_vary_less_than_independent_ones() {
    let (a, b) = ([0.0; 8], [0.35; 8]);
    let exact = Kernel::gaussian(1.0).value(&a, &b);
    let variance = |draw| {
        let seeds = 4000;
        let errors = (0..seeds).map(|seed| {
            let kernels = vec![Kernel::gaussian(1.0)];
            let map = FeatureMap::new(&FeatureSpec {
                kernels,
                draw,
                inputs: 8,
                frequencies: 16,
                seed,
                amplitude: Amplitude::Normalised,
            })
            .unwrap();
            (dot(&features(&map, &a), &features(&map, &b)) - exact).powi(2)
        });
        errors.sum::<f64>() / seeds as f64
    };
    let (independent, orthogonal) = (variance(Draw::Independent), variance(Draw::Orthogonal));
    // A variance from 4000 draws is good to a few percent.
    assert!(orthogonal < 0.8 * independent, "{orthogonal} against {independent}");
}

#[test]
fn maps_differ_by_seed_and_kernels_by_their_own_draw() {
    for draw in DRAWS {
        let of =
            |seed| features(&FeatureMap::new(&spec(draw, 1, 4, 2, seed)).unwrap(), &[0.3, 0.8]);
        assert_ne!(of(1), of(2), "{draw:?}");
    }
    let twice = |draw| {
        let kernels = vec![Kernel::gaussian(1.0); 2];
        let map = FeatureMap::new(&FeatureSpec {
            kernels,
            draw,
            inputs: 2,
            frequencies: 4,
            seed: 1,
            amplitude: Amplitude::Normalised,
        })
        .unwrap();
        features(&map, &[0.3, 0.8])
    };
    let (independent, shared) = (twice(Draw::Independent), twice(Draw::Shared));
    assert_ne!(independent[..8], independent[8..]);
    assert_eq!(shared[..8], shared[8..]);
}

#[test]
fn first_features_of_seed_one_are_frozen() {
    for (draw, frozen) in DRAWS.into_iter().zip(FROZEN) {
        let map = FeatureMap::new(&spec(draw, 6, 6, 3, 1)).unwrap();
        let z = features(&map, &[0.1, 0.5, 0.9]);
        // The first two sines of every kernel.
        let found = z.chunks_exact(map.model_len()).map(|part| [part[0], part[1]]);
        for (kernel, (found, frozen)) in found.zip(frozen).enumerate() {
            // Logarithms behind the draws may differ in their last bit between systems.
            let same = found.iter().zip(frozen).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(same, "{draw:?}, kernel {kernel}: {found:?}, frozen {frozen:?}");
        }
    }
}

const FROZEN: [[[f32; 2]; 6]; 4] = [
    [
        [0.40812528, 0.37710118],
        [-0.39672354, -0.08687823],
        [0.117747344, 0.40790078],
        [0.39932814, -0.25653857],
        [0.35061917, -0.35951275],
        [-0.13448648, -0.17082863],
    ],
    [
        [0.40812528, 0.37710118],
        [-0.39672357, -0.08687823],
        [0.117747344, 0.40790078],
        [0.39932814, -0.25653854],
        [0.35061917, -0.35951275],
        [0.3460106, 0.38677585],
    ],
    [
        [0.40822944, -0.32575566],
        [0.3958541, -0.23963708],
        [-0.3859235, -0.09027699],
        [0.38720313, -0.3240788],
        [0.3750783, 0.14340736],
        [-0.119586, -0.4082054],
    ],
    [
        [-0.19149587, 0.08512015],
        [0.04962777, -0.40612346],
        [-0.317085, -0.3970936],
        [-0.14816631, 0.06495446],
        [0.037792545, -0.3902307],
        [-0.2556205, -0.3471659],
    ],
];

#[test]
fn huge_inputs_stay_on_the_sphere() {
    for draw in DRAWS {
        // The last two bandwidths have no finite inverse in f32, and none above zero.
        for variance in [1e-5, 1.0, 1e5, 1e-80, 1e95] {
            let kernels: Vec<_> =
                families(draw).map(|family| Kernel { family, variance }).collect();
            let spec = FeatureSpec {
                kernels,
                draw,
                inputs: 3,
                frequencies: 17,
                seed: 4,
                amplitude: Amplitude::Normalised,
            };
            let map = FeatureMap::new(&spec).unwrap();
            for x in [
                [1e30, -1e30, 1e30],
                [1e38, 1e38, -1e38],
                [f32::MAX; 3],
                [1e38, 0.5, 0.0],
                [0.0; 3],
            ] {
                assert_on_the_sphere(&map, &features(&map, &x), &spec);
            }
            let broken = [f32::NAN, f32::INFINITY, 1.0];
            assert_on_the_sphere(&map, &features(&map, &broken), &spec);
        }
    }
}

#[test]
fn maps_that_make_no_sense_are_refused() {
    let sound = spec(Draw::Independent, 3, 4, 2, 1);
    let error = |spec: FeatureSpec| FeatureMap::new(&spec).unwrap_err();
    assert_eq!(
        error(FeatureSpec { kernels: Vec::new(), ..sound.clone() }),
        FeatureError::NoKernels
    );
    assert_eq!(error(FeatureSpec { inputs: 0, ..sound.clone() }), FeatureError::NoInputs);
    assert_eq!(error(FeatureSpec { frequencies: 0, ..sound.clone() }), FeatureError::NoFrequencies);
    for variance in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let kernels = vec![Kernel::gaussian(1.0), Kernel::gaussian(variance)];
        let refused = error(FeatureSpec { kernels, ..sound.clone() });
        assert!(matches!(refused, FeatureError::BadVariance { kernel: 2, .. }), "{refused:?}");
    }
    for family in [Family::Laplacian, Family::Cauchy] {
        let kernels = vec![Kernel { family, variance: 1.0 }];
        for draw in [Draw::Orthogonal, Draw::Structured] {
            let refused = error(FeatureSpec { kernels: kernels.clone(), draw, ..sound.clone() });
            let (draw, family) = (draw.name(), family.name());
            assert_eq!(refused, FeatureError::NotIsotropic { draw, kernel: 1, family });
        }
    }
    for (numbers, kernels, frequencies, inputs) in
        [(5, 1, 2, 3), (0, 0, 2, 3), (0, 1, 0, 3), (0, 1, 1, 0)]
    {
        let refused =
            FeatureMap::from_frequencies(&vec![0.5; numbers], kernels, frequencies, inputs);
        assert!(refused.is_err(), "{numbers} numbers for {kernels}·{frequencies}·{inputs}");
    }
}

#[test]
fn unnormalised_features_are_the_same_times_the_root_of_their_number() {
    for draw in DRAWS {
        let normalised = spec(draw, 5, 17, 3, 6);
        let unnormalised = FeatureSpec { amplitude: Amplitude::Unnormalised, ..normalised.clone() };
        let x = numbers(2, 7 * 3);
        let [small, large] =
            [&normalised, &unnormalised].map(|spec| features(&FeatureMap::new(spec).unwrap(), &x));
        for (small, large) in small.iter().zip(&large) {
            assert!((small * 17f32.sqrt() - large).abs() < 1e-6, "{draw:?}: {small} {large}");
        }
        for z in large.chunks_exact(2 * 17) {
            assert!((dot(z, z) - 17.0).abs() < 1e-4, "{draw:?}");
        }
        assert!(hedgerow::features::Features::checked(&large).is_ok());
    }
}

#[test]
fn what_is_written_down_without_its_variants_is_the_paper_s() {
    let sound = spec(Draw::Shared, 2, 4, 2, 1);
    let mut written = serde_json::to_value(&sound).unwrap();
    assert_eq!(written.as_object_mut().unwrap().remove("amplitude").unwrap(), "normalised");
    assert_eq!(serde_json::from_value::<FeatureSpec>(written).unwrap(), sound);
    let config = PlanConfig::default().personal(false).frequencies(Some(49));
    let mut written = serde_json::to_value(&config).unwrap();
    let mk = written["setup"].as_object_mut().unwrap().remove("mk").unwrap();
    assert_eq!(mk, serde_json::json!({"count_nodes": true, "average": "all"}));
    assert_eq!(serde_json::from_value::<PlanConfig>(written.clone()).unwrap(), config);
    written["setup"]["mk"] = serde_json::json!({"average": "voters"});
    let voters = serde_json::from_value::<PlanConfig>(written).unwrap();
    assert_eq!(voters.mk, MkOptions { count_nodes: true, average: Average::Voters });
}

#[test]
fn a_map_of_one_kernel_has_its_features_and_no_others() {
    let (kernels, samples) = (6, 9);
    let mut specs = Vec::new();
    for draw in DRAWS {
        for (inputs, frequencies) in [(3, 5), (4, 49), (20, 64), (20, 146)] {
            let spec = spec(draw, kernels, frequencies, inputs, 5);
            // One family alone, too: then the last few frequencies are projected in a way of their
            // own.
            let gaussians =
                spec.kernels.iter().map(|kernel| Kernel::gaussian(kernel.variance)).collect();
            specs.extend([FeatureSpec { kernels: gaussians, ..spec.clone() }, spec]);
        }
    }
    for spec in specs {
        let (draw, inputs) = (spec.draw, spec.inputs);
        // Normal inputs, and inputs so large that angles make many turns.
        for size in [1.0, 1e9] {
            let all = FeatureMap::new(&spec).unwrap();
            let x: Vec<f32> = numbers(6, inputs * samples).iter().map(|x| x * size).collect();
            let mut expected = vec![0.0; samples * all.width()];
            let mut found = vec![7.0; samples * all.width()];
            all.map_batch(&x, &mut expected);
            for kernel in 0..kernels {
                all.clone().only(kernel).map_batch(&x, &mut found);
                let rows =
                    expected.chunks_exact(all.model_len()).zip(found.chunks_exact(all.model_len()));
                for (at, (expected, found)) in rows.enumerate() {
                    let nothing = vec![0.0; all.model_len()];
                    let expected = if at % kernels == kernel { expected } else { &nothing };
                    assert_eq!(expected, found, "{draw:?}, {inputs} inputs, kernel {kernel}");
                }
            }
        }
    }
}
