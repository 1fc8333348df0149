//! GR-OFL and MK-OFL: the cost of a sample, a round and a saved node.

use std::hint::black_box;
use std::time::Instant;

use hedgerow::features::{Draw, Features};
use hedgerow::message::Upload;
use hedgerow::random::CounterRng;
use hedgerow::{Plan, PlanConfig};

/// What the parts of a round take, in nanoseconds, and the bytes of a saved node.
struct Parts {
    map: f64,
    learn: f64,
    exchange: f64,
    close: f64,
    saved: usize,
}

impl Parts {
    fn at_best(self, other: Self) -> Self {
        Self {
            map: self.map.min(other.map),
            learn: self.learn.min(other.learn),
            exchange: self.exchange.min(other.exchange),
            close: self.close.min(other.close),
            saved: other.saved,
        }
    }
}

/// In turns: of each part the least time.
pub(crate) fn compare(inputs: usize) {
    let (mut gr, mut mk) = (parts("gr", inputs), parts("mk", inputs));
    for _ in 0..4 {
        (gr, mk) = (gr.at_best(parts("gr", inputs)), mk.at_best(parts("mk", inputs)));
    }
    let row = |name: &str, gr: f64, mk: f64| {
        println!(
            "{}",
            serde_json::json!({ "inputs": inputs, "what": name, "gr": gr, "mk": mk, "ratio": gr / mk })
        );
    };
    row("map, ns a sample", gr.map, mk.map);
    row("predict and learn, ns a sample", gr.learn, mk.learn);
    row("upload and adopt, ns a round", gr.exchange, mk.exchange);
    row("close, ns a round of 20 nodes", gr.close, mk.close);
    row("bytes of a saved node", gr.saved as f64, mk.saved as f64);
}

/// Of a node and a server in a federation of twenty with r = 100, once GR-OFL's model has grown:
/// medians over rounds.
fn parts(method: &str, inputs: usize) -> Parts {
    const NODES: usize = 20;
    const ROUNDS: usize = 600;
    let config =
        PlanConfig::default().personal(false).method(method.parse().unwrap()).inputs(inputs);
    let plan = Plan::new(config.draw(Draw::Independent).nodes(NODES)).unwrap();
    let map = plan.map();
    let mut nodes: Vec<_> = (0..NODES as u32).map(|id| plan.node_method(id)).collect();
    let mut server = plan.server_method();
    let mut z = vec![0.0; NODES * map.width()];
    let mut upload = Upload::default();
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..ROUNDS {
        let numbers = CounterRng::from_seed(round as u64);
        let x: Vec<f32> =
            (0..(NODES * inputs) as u64).map(|at| numbers.uniform_at(at) as f32).collect();
        let mut took = [0.0; 4];
        let mut time = |part: usize, share: f64, work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            took[part] += share * start.elapsed().as_nanos() as f64;
        };
        let share = 1.0 / NODES as f64;
        time(0, share, &mut || {
            map.map_batch(black_box(&x), &mut z);
        });
        let samples = Features::checked(&z).unwrap().samples(map.width());
        for ((id, node), (z, x)) in
            nodes.iter_mut().enumerate().zip(samples.zip(x.chunks_exact(inputs)))
        {
            time(1, share, &mut || {
                black_box(node.predict(z));
                node.learn(z, (3.0 * x[0]).sin()).unwrap();
            });
            time(2, share, &mut || {
                node.upload(&mut upload);
            });
            time(3, 1.0, &mut || server.accept(id as u32, &upload).unwrap());
        }
        time(3, 1.0, &mut || {
            server.close_round();
        });
        let broadcast = server.broadcast();
        for node in &mut nodes {
            time(2, share, &mut || node.adopt(broadcast).unwrap());
        }
        if round >= ROUNDS / 2 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    let [map, learn, exchange, close] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    Parts { map, learn, exchange, close, saved: nodes[0].save().len() }
}
