//! `hedgerow demo`: a server, nodes and the dashboard on this machine, each a process of its own,
//! over real connections with TLS.

mod equality;
mod fleet;
mod folder;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hedgerow::method::find;
use hedgerow_config::flags::{Flag, FlagSet, SettingFlags};
use hedgerow_config::{ConfigError, Layer};
use hedgerow_data::text::counted;
use hedgerow_lab::results::{MethodResult, Results};
use hedgerow_lab::run::{self, Experiment};
use hedgerow_lab::settings::Settings;
use hedgerow_net::serve::ServeSettings;
use hedgerow_report::terminal::significant;
use serde_json::json;

use crate::flags;
use crate::terminal::{bar, print};
use equality::Equality;
use fleet::Fleet;
use folder::DemoFolder;
use watch::{Status, Watch};

/// A server, nodes and the dashboard on this machine, over real connections.
///
/// Makes certificates, starts a server and one process for each node, deals them a stream sample by
/// sample, and shows what they learn: on the dashboard whose address it prints, and here. At the
/// end it tells the error beside that of `hedgerow simulate` on the same samples, and how many
/// predictions are the same to the bit: all of them, if nothing is killed.
#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  hedgerow demo                        one minute, 20 nodes, TR-OFL; open the dashboard meanwhile
  hedgerow demo --kill                 the server and some nodes are killed again and again, and come back
  hedgerow demo --data drift --method mk --rounds 3000 --rate 50
  hedgerow demo --data meters.csv --target load --node meter --time when --rounds 500
  hedgerow demo --data meters.csv --target load,voltage --rounds 500"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    flags: SettingFlags<DemoFlags>,
    /// What they run: a federated method of `hedgerow simulate --help`
    #[arg(long, value_name = "METHOD", default_value = "tr")]
    method: String,
    /// Samples a second at each node
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = rate)]
    rate: f64,
    /// Kill the server and some nodes from time to time, with SIGKILL
    #[arg(long)]
    kill: bool,
    /// Folder for certificates, states and logs, to be kept; a temporary one otherwise
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Leave the dashboard up when the stream has ended, until Ctrl-C
    #[arg(long)]
    stay: bool,
    /// Print what came out as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone)]
struct DemoFlags;

impl FlagSet for DemoFlags {
    const GROUPS: &'static [&'static [Flag]] = &[
        &[Flag { help: "Built-in stream, data set by name, file or folder", ..flags::DATA }],
        flags::DATA_OPTIONS,
        &[
            flags::NODES,
            flags::BUDGET,
            flags::PARTITION,
            Flag { help: "Rounds; 1200 by default, 0 is all of a file", ..flags::ROUNDS },
            flags::SEED,
        ],
    ];
    const SET: &'static str = flags::SET_READING;
}

fn rate(text: &str) -> Result<f64, String> {
    let bound = || "more than 0 and at most 10000".to_owned();
    text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 10_000.0).ok_or_else(bound)
}

/// Time between two checks of the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The run has ended if no round has closed for this long after the last sample, once a round has.
/// Before that, nodes may wait for each other to agree on a scale.
const QUIET_AFTER_END: Duration = Duration::from_secs(2);

/// The run has failed if no round has closed for this long before that.
const QUIET_BEFORE_FAILURE: Duration = Duration::from_secs(60);

/// Most nodes, each a process.
const MOST_NODES: usize = 500;

/// Rounds unless the user says how many.
const DEFAULT_ROUNDS: i64 = 1200;

pub(crate) fn demo(arguments: &Arguments) -> anyhow::Result<()> {
    let mut settings = simulation(arguments)?;
    let data = run::load_data(&settings, &|_| ())?;
    // A node that has no label has nothing to say in a round, and the others would wait for it.
    let unlabelled = data.missing_labels();
    let data = data.labelled()?;
    let talks = !arguments.quiet && !arguments.json;
    let folder = DemoFolder::prepare(arguments, &settings, &data)?;
    // The same samples: nodes with more than the others have some left.
    settings.rounds = Some(folder.rounds);
    settings.keeps_predictions = true;
    if talks {
        eprintln!("Dashboard: http://{}", folder.dashboard);
        eprintln!("Folder:    {}", folder.path.display());
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = is_over.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("can't listen for Ctrl-C")?;
    let mut fleet = Fleet::start(&folder, settings.seed)?;
    let ended = run_until_learned(arguments, &folder, &mut fleet, &is_over, talks)?;
    let simulated = Experiment::new(&settings, &data)?.run(&|| ())?;
    let (_, kernel) = method_and_kernel(&arguments.method);
    let outcome = Outcome {
        error: simulated_error(&simulated, kernel),
        equality: Equality::check(&folder, &simulated, kernel)?,
        before_scale: match arguments.kill || is_over.load(Ordering::Relaxed) {
            true => 0,
            false => (folder.rounds as u64).saturating_sub(ended.round),
        },
        measure: match (data.classes.as_slice(), data.outputs) {
            ([], 1) => "MSE",
            ([], _) => "MSE, mean over targets in their own units,",
            _ => "Share of wrong classes",
        },
    };
    if arguments.json {
        let told = json!({
            "schema": 1, "data": data.name, "method": arguments.method, "nodes": folder.nodes(),
            "rounds": ended.round, "samples": ended.samples, "mse": ended.mse.unwrap_or(0.0),
            "simulated_mse": outcome.error, "predictions": outcome.equality.predictions,
            "equal_predictions": outcome.equality.equal, "servers_killed": fleet.servers_killed,
            "nodes_killed": fleet.nodes_killed, "bytes_up": ended.wire_up,
            "bytes_down": ended.wire_down, "was_interrupted": is_over.load(Ordering::Relaxed),
        });
        print(&format!("{told}\n"))?;
    } else if talks {
        print(&summary(arguments, &fleet, &ended, &outcome))?;
        if unlabelled > 0 {
            eprintln!(
                "note: left out of the data: {} without a label",
                counted(unlabelled, "sample")
            );
        }
    }
    if arguments.stay && !is_over.load(Ordering::Relaxed) {
        if talks {
            eprintln!("The dashboard stays up until Ctrl-C.");
        }
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    fleet.stop();
    Ok(())
}

/// The simulation that does the same.
fn simulation(arguments: &Arguments) -> anyhow::Result<Settings> {
    let (method, _) = method_and_kernel(&arguments.method);
    let other = arguments.flags.sets().iter().find(|set| !set.trim().starts_with("data."));
    if let Some(other) = other {
        let key = other.split('=').next().unwrap_or_default();
        let bound = "a setting of [data]: a server of one's own takes all (hedgerow config serve)";
        return Err(ConfigError::out_of_bounds(key, bound, format!("--set {other}")).into());
    }
    let layer = |key, value: toml::Value| Layer::value("", key, value);
    let mut layers = vec![layer("run.rounds", DEFAULT_ROUNDS.into())];
    layers.extend(arguments.flags.layers(None)?);
    layers
        .extend([layer("federation.methods", vec![method].into()), layer("run.trials", 1.into())]);
    let settings = Settings::load(&layers)?;
    let served = Layer::value("--method", "learning.method", arguments.method.as_str());
    ServeSettings::read(&[served, Layer::value("", "learning.inputs", 1)])?;
    settings.data.check_rereadable()?;
    if settings.data.columns.horizon > 1 {
        let bound = "1 in a demonstration, where labels come with their inputs";
        let horizon = settings.data.columns.horizon;
        return Err(ConfigError::out_of_bounds("data.horizon", bound, horizon).into());
    }
    Ok(settings)
}

/// The method of a simulation, which runs all kernels of a method with a single one, and the
/// kernel.
fn method_and_kernel(method: &str) -> (&str, Option<usize>) {
    match method.split_once(':') {
        Some((name, kernel)) if find(name).is_some_and(|info| info.takes_kernel) => {
            (name, kernel.parse().ok())
        }
        _ => (method, None),
    }
}

/// Writes samples, restarts what was killed, and watches until all is learned. Returns the last
/// status, with the number of closed rounds.
fn run_until_learned(
    arguments: &Arguments,
    folder: &DemoFolder,
    fleet: &mut Fleet<'_>,
    is_over: &AtomicBool,
    talks: bool,
) -> anyhow::Result<Status> {
    let template = "{elapsed} {wide_bar} round {pos} of {len}  {msg}";
    let bar = bar(template, Some(folder.rounds as u64), talks);
    let (mut writer, mut watch) = (folder.writer()?, Watch::new(folder.dashboard));
    let begun = fleet.wait_until_connected(&mut watch)?;
    let (mut ended, mut moved) = (Status::default(), Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        let due = (begun.elapsed().as_secs_f64() * arguments.rate) as usize;
        writer.write_until(due.min(folder.rounds))?;
        if arguments.kill && writer.written < folder.rounds {
            for event in fleet.kill_some(begun.elapsed()) {
                bar.suspend(|| {
                    if talks {
                        eprintln!("{:6.1} s  {event}", begun.elapsed().as_secs_f64())
                    }
                });
            }
        }
        fleet.revive()?;
        if let Some(status) = watch.look() {
            if status.round > ended.round {
                moved = Instant::now();
            }
            bar.set_position(status.round.saturating_sub(1));
            if let (Some(mse), Some(window)) = (status.mse, status.window_mse) {
                let (mse, window) = (significant(mse), significant(window));
                bar.set_message(format!("MSE {mse}, last rounds {window}"));
            }
            ended = Status { round: status.round.max(ended.round), ..status };
        }
        let has_written_all = writer.written >= folder.rounds;
        let quiet = moved.elapsed();
        let has_begun = ended.round > 1;
        if has_written_all && has_begun && quiet >= QUIET_AFTER_END {
            break;
        }
        if quiet >= QUIET_BEFORE_FAILURE {
            bail!(
                "no round has closed for {} s; the logs are in {}",
                QUIET_BEFORE_FAILURE.as_secs(),
                folder.keep().display()
            );
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    bar.finish_and_clear();
    ended.round = ended.round.saturating_sub(1);
    Ok(ended)
}

/// A run over the network beside its simulation.
struct Outcome {
    /// The error of the simulation.
    error: Option<f64>,
    equality: Equality,
    /// What errors are.
    measure: &'static str,
    /// Samples of each node from which the first scale was made before the first round.
    before_scale: u64,
}

/// The error of a simulation as nodes report theirs: of several targets, the mean over targets in
/// their own units.
fn simulated_error(results: &Results, kernel: Option<usize>) -> Option<f64> {
    let is_ours = |method: &&MethodResult| kernel.is_none() || method.kernel == kernel;
    let method = results.methods.iter().find(is_ours)?;
    let targets = &method.targets;
    Some(match targets.len() {
        0 => method.mse.mean,
        count => targets.iter().map(|target| target.mse).sum::<f64>() / count as f64,
    })
}

fn summary(arguments: &Arguments, fleet: &Fleet<'_>, ended: &Status, outcome: &Outcome) -> String {
    let Status { round: rounds, samples, wire_up, wire_down, .. } = ended;
    let nodes = fleet.nodes();
    let per_node = |bytes: u64| bytes as f64 / nodes as f64 / (*rounds).max(1) as f64;
    let mut text = format!(
        "{}, {} at {}",
        counted(*rounds, "round"),
        counted(*samples, "sample"),
        counted(nodes, "node")
    );
    if arguments.kill {
        let Fleet { servers_killed, nodes_killed, .. } = fleet;
        let (servers, nodes) = (counted(*servers_killed, "time"), counted(*nodes_killed, "time"));
        text += &format!("; killed: the server {servers}, nodes {nodes}");
    }
    let Outcome { error, equality: Equality { predictions, equal }, measure, before_scale } =
        outcome;
    if *before_scale > 0 {
        let before = counted(*before_scale, "more sample");
        text += &format!("; the first scale took {before} of each node");
    }
    text += &format!("\n{measure} over the network: {}", significant(ended.mse.unwrap_or(0.0)));
    if let Some(error) = error {
        text += &format!("; in one process (hedgerow simulate): {}", significant(*error));
    }
    text += &format!("\n{equal} of {predictions} predictions are the same to the bit");
    text += &format!(
        "\nBytes a node and round on the wire, TLS and all: {:.0} up, {:.0} down\n",
        per_node(*wire_up),
        per_node(*wire_down)
    );
    text
}
