//! How the cost of a round grows: time and bytes against the numbers of nodes, kernels, features
//! and inputs. All sizes take turns, several times over, so that a busy machine is busy for all of
//! them. `-- --write DIR` leaves the numbers and charts there; `--most-nodes K` ends the first
//! sweep elsewhere. `-- --server FILE.csv` draws instead what the benchmark of the network has
//! written, beside that file.

// Results go to the terminal.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fmt::Write;
use std::path::Path;

use hedgerow_config::Layer;
use hedgerow_data::Dataset;
use hedgerow_lab::run::{Experiment, load_data};
use hedgerow_lab::settings::Settings;
use hedgerow_report::figures::growth::{Growth, growth};
use hedgerow_report::figures::png::to_png;

const TURNS: usize = 5;

/// One size after the other, all else being equal.
struct Sweep {
    name: &'static str,
    /// In words: what grows, and what stays.
    size: &'static str,
    fixed: &'static str,
    methods: &'static [&'static str],
    sizes: Vec<usize>,
}

fn sweeps(most_nodes: usize) -> [Sweep; 4] {
    let nodes = [20, 100, 500, 2_000, 10_000, 50_000, 200_000, 1_000_000];
    [
        Sweep {
            name: "nodes",
            size: "nodes, K",
            fixed: "P = 11 kernels, r = 100 (D = 49), d = 5 inputs, both cores",
            methods: &["mk", "naive", "linear"],
            sizes: nodes.into_iter().filter(|nodes| *nodes <= most_nodes).collect(),
        },
        Sweep {
            name: "kernels",
            size: "kernels, P",
            fixed: "K = 200 nodes, r = 100 (D = 49), d = 5 inputs, both cores",
            methods: &["mk", "pof", "naive"],
            sizes: vec![1, 3, 10, 30, 100, 300, 1000],
        },
        Sweep {
            name: "budget",
            size: "numbers per message, r = 2D + 2",
            fixed: "K = 200 nodes, P = 11 kernels, d = 5 inputs, both cores",
            methods: &["mk", "emk", "gr"],
            sizes: vec![26, 50, 100, 200, 400, 800, 1600],
        },
        Sweep {
            name: "inputs",
            size: "inputs, d",
            fixed: "K = 200 nodes, P = 11 kernels, r = 100 (D = 49), both cores",
            methods: &["mk", "linear"],
            sizes: vec![5, 20, 80, 300, 1000, 3000, 10_000],
        },
    ]
}

/// Seconds of a round, and bytes of all nodes in it, up and down.
fn cost(sweep: &Sweep, size: usize, method: &str) -> Option<[f64; 2]> {
    let of = |name: &str, usual: usize| if sweep.name == name { size } else { usual };
    // GR-OFL's sums grow with the square of r, and its steps with the third power.
    if (method == "gr" && of("budget", 100) > 400)
        || (method == "naive" && of("nodes", 20) > 100_000)
    {
        return None;
    }
    let (nodes, inputs) = (of("nodes", 200), of("inputs", 5));
    let kernels = of("kernels", 11);
    let variances: Vec<String> = (0..kernels)
        .map(|at| format!("{:e}", 10f64.powf(10.0 * (at as f64 + 0.5) / kernels as f64 - 5.0)))
        .collect();
    let work = nodes as f64 * kernels as f64 * of("budget", 100) as f64 * (20.0 + inputs as f64);
    let rounds = (2e9 / work).clamp(3.0, 300.0) as usize;
    let flags = [
        format!("federation.nodes={nodes}"),
        format!("federation.budget={}", of("budget", 100)),
        format!("federation.methods=[\"{method}\"]"),
        format!("kernels.variances=[{}]", variances.join(", ")),
        format!("run.rounds={rounds}"),
        "run.trials=1".to_owned(),
        "data.scaling=none".to_owned(),
    ];
    let settings = Settings::load(&Layer::sets(flags).unwrap()).unwrap();
    let data = match sweep.name {
        "inputs" => wide(nodes * rounds, inputs),
        _ => load_data(&settings, &|_| {}).unwrap(),
    };
    let results = Experiment::new(&settings, &data).unwrap().run(&|| {}).unwrap();
    let played = &results.methods[0];
    let bytes = (played.bytes_up + played.bytes_down) * nodes as f64;
    Some([played.seconds / results.rounds as f64, bytes])
}

/// Samples of many inputs.
fn wide(samples: usize, inputs: usize) -> Dataset {
    let number = |at: usize| (at.wrapping_mul(2_654_435_761) >> 7 & 0xffff) as f32 / 65_536.0;
    let x: Vec<f32> = (0..samples * inputs).map(number).collect();
    let y = x.chunks_exact(inputs).map(|x| x.iter().take(5).sum::<f32>() / 5.0).collect();
    Dataset::from_arrays("wide", inputs, x, y, None).unwrap()
}

/// A server's CPU against the number of nodes, beside a server that only sends messages back.
fn draw_server(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let rows: Vec<Vec<f64>> = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').map(|number| number.parse().unwrap()).collect())
        .collect();
    let line = |label: &str, cpu: usize| Growth {
        label: label.to_owned(),
        points: rows.iter().map(|row| (row[0], [row[0] * row[cpu] / 1e6; 3])).collect(),
    };
    let words = [
        "CPU of a server for a round",
        "MK-OFL, r = 100, mutual TLS, SQLite",
        "nodes, K",
        "seconds of CPU",
    ];
    let svg = growth(words, &[line("server", 2), line("bare echo", 4)]);
    std::fs::write(file.with_extension("svg"), &svg).unwrap();
    std::fs::write(file.with_extension("png"), to_png(&svg).unwrap()).unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1);
    if let Some(file) = after("--server") {
        return draw_server(Path::new(file));
    }
    let most_nodes = after("--most-nodes").map_or(200_000, |nodes| nodes.parse().unwrap());
    let sweeps = sweeps(most_nodes);
    let mut measured: Vec<(usize, usize, &str, Vec<[f64; 2]>)> = Vec::new();
    for (at, sweep) in sweeps.iter().enumerate() {
        for &size in &sweep.sizes {
            measured.extend(sweep.methods.iter().map(|method| (at, size, *method, Vec::new())));
        }
    }
    for turn in 1..=TURNS {
        println!("turn {turn} of {TURNS}");
        for (at, size, method, costs) in &mut measured {
            costs.extend(cost(&sweeps[*at], *size, method));
        }
    }
    let mut csv = String::from("size,value,method,seconds_least,seconds,seconds_most,bytes\n");
    let mut charts = Vec::new();
    for (at, sweep) in sweeps.iter().enumerate() {
        let mut kinds: [Vec<Growth>; 2] = [Vec::new(), Vec::new()];
        for method in sweep.methods {
            let mut points: [Vec<(f64, [f64; 3])>; 2] = [Vec::new(), Vec::new()];
            for (_, size, _, costs) in measured.iter().filter(|one| (one.0, one.2) == (at, method))
            {
                if costs.is_empty() {
                    continue;
                }
                for (kind, points) in points.iter_mut().enumerate() {
                    let mut costs: Vec<f64> = costs.iter().map(|cost| cost[kind]).collect();
                    costs.sort_by(f64::total_cmp);
                    points.push((
                        *size as f64,
                        [costs[0], costs[costs.len() / 2], costs[costs.len() - 1]],
                    ));
                }
                let ([least, middle, most], bytes) =
                    (points[0].last().unwrap().1, points[1].last().unwrap().1[1]);
                writeln!(
                    csv,
                    "{},{size},{method},{least:e},{middle:e},{most:e},{bytes}",
                    sweep.name
                )
                .unwrap();
            }
            for (kind, points) in kinds.iter_mut().zip(points) {
                kind.push(Growth { label: (*method).to_owned(), points });
            }
        }
        for (kind, title, unit) in [
            (0, "Time of a round", "seconds per round"),
            (1, "Bytes of a round, up and down, of all nodes", "bytes per round"),
        ] {
            let exponents = kinds[kind]
                .iter()
                .map(|one| format!("{} {:.2}", one.label, one.exponent().unwrap_or(f64::NAN)));
            println!("{title}, by {}: {}", sweep.size, exponents.collect::<Vec<_>>().join(", "));
            let name = format!("{}-{}.svg", ["time", "bytes"][kind], sweep.name);
            charts.push((name, growth([title, sweep.fixed, sweep.size, unit], &kinds[kind])));
        }
    }
    println!("{csv}");
    if let Some(folder) = after("--write") {
        let folder = Path::new(folder);
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("growth.csv"), csv).unwrap();
        for (name, svg) in charts {
            std::fs::write(folder.join(&name), &svg).unwrap();
            if arguments.iter().any(|argument| argument == "--png") {
                std::fs::write(folder.join(name.replace("svg", "png")), to_png(&svg).unwrap())
                    .unwrap();
            }
        }
    }
}
