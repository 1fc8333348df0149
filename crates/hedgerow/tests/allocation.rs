//! No method allocates after its first rounds, because a device may run for years. A counting
//! allocator checks every call.

// An allocator needs unsafe code. This one only counts and forwards.
#![allow(unsafe_code, clippy::unwrap_used)]

#[allow(dead_code, reason = "the other tests need more of it")]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{Case, INPUTS, features, few_cases, map_for, methods, numbers};
use hedgerow::Federation;
use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::importance::ImportanceScope;
use hedgerow::message::{Report, Upload};
use hedgerow::scaling::{NodeScaling, Scale, ScaleKind};

thread_local! {
    /// Allocations of this thread, because tests run in parallel.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

impl Counting {
    fn count(&self) {
        // An ending thread has no counter.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    }
}

// SAFETY: every call goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count();
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.count();
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KERNELS: usize = 11;
const ROUNDS: usize = 1000;
const NODES: usize = 3;

/// Warm-up rounds, after which growing models have their final size.
const WARM: usize = 200;

/// Allocations in a thousand rounds after the warm-up.
fn allocations(mut round: impl FnMut(usize)) -> u64 {
    (0..WARM).for_each(&mut round);
    let before = COUNT.get();
    (WARM..WARM + ROUNDS).for_each(&mut round);
    COUNT.get() - before
}

/// Samples of all nodes for a few rounds.
fn samples(case: &Case) -> Vec<f32> {
    features(case.map(), &numbers(1, 8 * NODES * INPUTS))
}

#[test]
fn the_counter_counts() {
    let mut kept = Vec::new();
    assert!(allocations(|round| kept.push(vec![round])) >= ROUNDS as u64);
}

#[test]
fn feature_maps_never_allocate() {
    let x = numbers(1, 8 * INPUTS);
    for method in methods(KERNELS) {
        let map = map_for(method, KERNELS);
        let mut z = vec![0.0; 8 * map.width()];
        let count = allocations(|_| {
            map.map_batch(&x, &mut z);
            map.map_batch(&x[..INPUTS], &mut z[..map.width()]);
        });
        assert_eq!(count, 0, "{method:?}");
    }
}

#[test]
fn scaling_never_allocates() {
    let mut agreed = NodeScaling::new(ScaleKind::Range, INPUTS);
    agreed.adopt(1, &Scale::from_ranges(&[(-1.0, 1.0); INPUTS + 1]).unwrap()).unwrap();
    for mut node in [agreed, NodeScaling::fixed(Scale::identity(INPUTS + 1))] {
        let raw = numbers(1, 8 * INPUTS);
        let (mut x, mut report) = ([0.0; INPUTS], Report::default());
        let count = allocations(|round| {
            let mut sample = [0.0; INPUTS];
            sample.copy_from_slice(&raw[round % 8 * INPUTS..][..INPUTS]);
            sample[round % INPUTS] = if round % 3 == 0 { f32::NAN } else { 1e9 };
            node.prepare(&sample, &mut x);
            node.see(&sample, Some(x[0]));
            node.report(&mut report);
        });
        assert_eq!(count, 0);
    }
}

/// A memory of samples that is full after the warm-up.
fn with_little_memory(case: Case) -> Case {
    case.with(|config| config.memory(4000))
}

#[test]
fn halves_never_allocate_once_warm() {
    for case in few_cases(KERNELS).into_iter().map(with_little_memory) {
        let z = samples(&case);
        let width = case.plan.width();
        let z: Vec<Features<'_>> = Features::checked(&z).unwrap().samples(width).collect();
        let mut nodes: Vec<_> = (0..NODES as u32).map(|id| case.node(id)).collect();
        let mut server = case.server();
        let mut upload = Upload::default();
        let mut shares = [0.0; KERNELS];
        let count = allocations(|round| {
            for (id, node) in nodes.iter_mut().enumerate() {
                let z = z[(round * NODES + id) % z.len()];
                let prediction = node.predict(z);
                node.learn(z, 0.5 - prediction).unwrap();
                node.shares(&mut shares);
                if node.upload(&mut upload) {
                    server.accept(id as u32, &upload).unwrap();
                }
            }
            let broadcast = server.close_round();
            nodes.iter_mut().for_each(|node| node.adopt(broadcast).unwrap());
        });
        // Units that begin, grow or are abandoned take memory, and give it back.
        let most = if case.name() == "tr" { ROUNDS as u64 / 10 } else { 0 };
        assert!(count <= most, "{:?}: {count} > {most}", case.name());
    }
}

#[test]
fn federations_never_allocate_once_warm() {
    let contacts = [Contact::Full, Contact::Full, Contact::Late, Contact::Lost];
    let coding = Coding { numbers: NumberFormat::Bits4, part: 2.try_into().unwrap() };
    let compression = Compression { up: coding, down: coding, ..Compression::default() };
    let cases = few_cases(KERNELS).into_iter().map(with_little_memory);
    let federations = cases.flat_map(|case| {
        let plain = Federation::new(
            &case.with(|config| config.personal(true).importance(ImportanceScope::Local)).plan,
        );
        let compressed = case.with(|config| config.compression(compression));
        // An encoder keeps the rounding errors of each requested kernel.
        let kept = 2 * (NODES as u64 + 1) * KERNELS as u64;
        [(0, case.clone(), plain), (kept, case, Federation::new(&compressed.plan))]
    });
    for (most, case, mut federation) in federations {
        let z = samples(&case);
        let width = case.plan.width();
        let z: Vec<Features<'_>> = Features::checked(&z).unwrap().samples(width).collect();
        let mut sum = 0.0;
        let x = numbers(1, 8 * INPUTS);
        let count = allocations(|round| {
            for node in 0..NODES {
                let (x, z) =
                    (&x[round % 8 * INPUTS..][..INPUTS], z[(round * NODES + node) % z.len()]);
                federation.measure_importance(node as u32, x, z, &[0.7]).unwrap();
            }
            let visits = [0, 1, 2].map(|node| NodeRound {
                node: node as u32,
                z: z[(round * NODES + node) % z.len()],
                y: &[0.7],
                contact: contacts[(round + node) % contacts.len()],
            });
            federation.round(&visits, |prediction| sum += prediction.value).unwrap();
        });
        assert!(count <= most, "{:?}: {count} > {most}", case.name());
    }
}
