//! The flags that change settings of a run, described once for all commands that have them.

use hedgerow_config::flags::{Flag, Takes};

pub(crate) const DATA: Flag = Flag::new(
    "data",
    "data.name",
    Takes::Text("NAME|FILE|-"),
    "Built-in stream, data set by name (see `hedgerow data list`), file, folder, or - for standard \
     input, read live",
);
pub(crate) const DATA_DIR: Flag = Flag::new(
    "data-dir",
    "data.dir",
    Takes::Text("DIR"),
    "Folder with data sets, searched before all others",
);
pub(crate) const TARGET: Flag = Flag::new(
    "target",
    "data.target",
    Takes::Text("COLUMN"),
    "Column to predict; the last one by default. Several (a,b) are all predicted at every node",
);
pub(crate) const SERIES: Flag = Flag::new(
    "series",
    "data.series",
    Takes::Text("COLUMNS"),
    "Columns that are series of a node each (a,b), instead of --target",
);
pub(crate) const TASK: Flag = Flag::new(
    "task",
    "data.task",
    Takes::Text("KIND"),
    "What the target is: numbers, classes, or auto (classes if it is text); labels 0 and 1 need \
     classes",
);
pub(crate) const FEATURES: Flag = Flag::new(
    "features",
    "data.features",
    Takes::List("LIST"),
    "Columns to predict from; all others by default, - for none",
);
pub(crate) const DROP: Flag =
    Flag::new("drop", "data.drop", Takes::List("LIST"), "Columns to leave out");
pub(crate) const TIME: Flag = Flag::new(
    "time",
    "data.time",
    Takes::Text("COLUMN"),
    "Column of the time; several are joined (Date+Time)",
);
pub(crate) const CALENDAR: Flag = Flag::new(
    "calendar",
    "data.calendar",
    Takes::Text("auto|none|LIST"),
    "Cycles of the time that are inputs: hour, weekday, yearday; auto by default: the shortest \
     that the times cover twice and resolve",
);
pub(crate) const NODE: Flag = Flag::new(
    "node",
    "data.node",
    Takes::Text("COLUMN"),
    "Column that names the node of a sample; @file makes every file a node",
);
pub(crate) const MISSING: Flag = Flag {
    allows_hyphens: true,
    ..Flag::new(
        "missing",
        "data.missing",
        Takes::List("LIST"),
        "Texts that stand for a missing value, besides an empty cell, NA, N/A, NaN, null and ?",
    )
};
pub(crate) const CATEGORIES: Flag = Flag::new(
    "categories",
    "data.categories",
    Takes::Text("KIND"),
    "Columns with text: refuse, one-hot, hashed:N",
);
pub(crate) const LAGS: Flag = Flag::new(
    "lags",
    "data.lags",
    Takes::Whole("S"),
    "Number of past labels among the features: AR(s)",
);
pub(crate) const HORIZON: Flag =
    Flag::new("horizon", "data.horizon", Takes::Whole("H"), "Steps ahead to predict");
pub(crate) const SCALING: Flag = Flag::new(
    "scaling",
    "data.scaling",
    Takes::Text("KIND|FILE.toml"),
    "How numbers are scaled to the order of one: none, online, online-range, whole-file, \
     whole-file-joint, auto, or a file with known ranges",
);
/// How data is read and what its columns mean: the same for every command that reads data.
pub(crate) const DATA_OPTIONS: &[Flag] = &[
    DATA_DIR, TARGET, SERIES, TASK, FEATURES, DROP, TIME, CALENDAR, NODE, MISSING, CATEGORIES,
    LAGS, HORIZON, SCALING,
];
pub(crate) const METHOD: Flag = Flag::new(
    "method",
    "federation.methods",
    Takes::List("LIST"),
    "Methods to run: {methods}, mk:OPTION; with /q8 and the like for fewer bytes, +alone for each \
     device alone, +pooled for all samples in one place, +personal for a layer that each node keeps \
     for itself, +shared for gr and tr without it (see `hedgerow config`)",
);
pub(crate) const NODES: Flag = Flag::new(
    "nodes",
    "federation.nodes",
    Takes::Whole("K"),
    "Number of nodes, K; 20, or as many as the data names",
);
pub(crate) const BUDGET: Flag =
    Flag::new("budget", "federation.budget", Takes::Whole("R"), "Numbers per message, r");
pub(crate) const PARTITION: Flag = Flag::new(
    "partition",
    "federation.partition",
    Takes::Text("KIND"),
    "How samples are dealt to nodes: round-robin, shuffled, blocks, sorted-label, \
     sorted-direction, dirichlet:ALPHA, unequal:ALPHA, column:NAME",
);
pub(crate) const TRIALS: Flag = Flag::new(
    "trials",
    "run.trials",
    Takes::Whole("N"),
    "Repetitions with fresh random features; results are means over them",
);
pub(crate) const ROUNDS: Flag = Flag::new(
    "rounds",
    "run.rounds",
    Takes::Whole("T"),
    "Rounds, T; 0 is 500 for a built-in stream and all of a file",
);
pub(crate) const INTERVAL: Flag = Flag::new(
    "interval",
    "run.interval",
    Takes::Number("LEVEL"),
    "Share of labels that the interval around each prediction contains, from 0.5 to 0.99; 0.9 by \
     default",
);
pub(crate) const SEED: Flag =
    Flag::new("seed", "run.seed", Takes::Whole("S"), "Seed of everything random");
pub(crate) const THREADS: Flag = Flag::new(
    "threads",
    "run.threads",
    Takes::Whole("N"),
    "Threads; 0 is one per core. Results don't depend on it",
);
pub(crate) const MEMORY_LIMIT: Flag = Flag::new(
    "memory-limit",
    "run.memory_limit",
    Takes::Number("GB"),
    "Gigabytes of memory that the run may take; what the machine has left by default. A run that \
     needs more is refused",
);
pub(crate) const OUT: Flag =
    Flag::new("out", "run.out", Takes::Text("DIR"), "Folder for the results");
pub(crate) const PREDICTIONS: Flag = Flag::new(
    "predictions",
    "run.predictions",
    Takes::Text("FILE"),
    "File for every prediction of the first trial (.csv, .jsonl, .parquet): row, time, node, \
     method, truth, prediction, interval",
);
pub(crate) const SAVE_MODEL: Flag = Flag::new(
    "save-model",
    "run.save_model",
    Takes::Text("FILE"),
    "File for what the first federated method has learned, with each node's own layer, for \
     `hedgerow predict`",
);
pub(crate) const DROPOUT: Flag = Flag::new(
    "dropout",
    "participation.dropout",
    Takes::Number("SHARE"),
    "Share of node-rounds without contact to the server",
);

/// Help of `--set` for commands that read a file.
pub(crate) const SET_READING: &str =
    "How to read the file, such as data.separator=tab or data.header=no; may be repeated";
