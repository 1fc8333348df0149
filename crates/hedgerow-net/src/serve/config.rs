//! [`ServeSettings`]: the settings of a server, checked. `serve-defaults.toml` has every key with
//! its default.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hedgerow::limits::MAX_NORM;
use hedgerow_config::{ConfigError, Layer, Merged, within};
use hedgerow_data::text::counted;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::agent::state::MAX_NODE_BYTES;
use crate::coordinator::rules::{Late, Limits, Quorum, Rules};
use crate::duration::Span;
use crate::learning::config::{self, DEFAULTS, outside};
use crate::log::Log;
use crate::pki::identity::check_plain_text;
use crate::plan_json::{OtherMethods, plan_to_json};
use crate::storage::{Durability, SnapshotLimits};
use crate::transport::grpc::MAX_MESSAGE_BYTES;
use hedgerow::method::MethodInfo;
use hedgerow::plan::Scaling;
use hedgerow::{Node, Plan};

/// What a server is to do, checked.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// What is learned, and how.
    pub plan: Plan,
    /// When rounds close.
    pub rules: Rules,
    /// What nodes may do.
    pub limits: Limits,
    /// Where nodes connect to; port 0 is any.
    pub address: SocketAddr,
    /// Where the dashboard is, if anywhere.
    pub dashboard: Option<SocketAddr>,
    /// Names that the dashboard answers to.
    pub names: Vec<String>,
    /// Whether reading the dashboard needs a login.
    pub guards_reading: bool,
    /// Folder of the server's certificate; none is plain text.
    pub identity: Option<PathBuf>,
    /// File with the passphrase of the authority's key, if that is there and encrypted.
    pub passphrase_file: Option<PathBuf>,
    /// The file that the run is kept in.
    pub store: PathBuf,
    /// What a round survives.
    pub durability: Durability,
    /// Logging.
    pub log: Log,
    /// How many earlier states are kept.
    pub snapshots: SnapshotLimits,
    /// What the settings were read from, so that one can be changed.
    pub(super) layers: Vec<Layer>,
    pub(super) others: Vec<&'static MethodInfo>,
}

#[derive(Debug, Deserialize)]
struct Config {
    rounds: RoundsConfig,
    listen: ListenConfig,
    store: StoreConfig,
    limits: Limits,
    log: Log,
}

#[derive(Debug, Deserialize)]
struct RoundsConfig {
    quorum: Quorum,
    #[serde(deserialize_with = "within::<1, 1_048_576, _, _>")]
    least: usize,
    #[serde(deserialize_with = "span")]
    deadline: Option<Duration>,
    #[serde(deserialize_with = "span")]
    cadence: Option<Duration>,
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    silent_after: u32,
    late: LateConfig,
    #[serde(deserialize_with = "within::<1, 1_000, _, _>")]
    late_rounds: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LateConfig {
    Drop,
    Merge,
}

#[derive(Debug, Deserialize)]
struct ListenConfig {
    address: String,
    dashboard: String,
    names: Vec<String>,
    login: LoginConfig,
    tls: bool,
    identity: PathBuf,
    passphrase_file: PathBuf,
}

/// When reading the dashboard needs a login.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LoginConfig {
    /// Where others than this machine's programs reach it.
    Auto,
    Always,
    Never,
}

#[derive(Debug, Deserialize)]
struct StoreConfig {
    path: PathBuf,
    durability: Durability,
    #[serde(deserialize_with = "within::<1, 10_000, _, _>")]
    snapshots: u64,
    #[serde(deserialize_with = "within::<0, { i64::MAX }, _, _>")]
    snapshot_bytes: u64,
}

/// The part of `[limits]` that depends on the plan.
#[derive(Debug, Deserialize)]
struct Own {
    limits: OwnLimits,
}

#[derive(Debug, Deserialize)]
struct OwnLimits {
    norm: NormConfig,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum NormConfig {
    Bound(f64),
    Word(String),
}

/// C where labels are scaled to about 1: far beyond what is learned, and far below what ruins a
/// mean for long.
const SCALED_NORM: f32 = 1e3;

/// Numbers of a message that are not models, for each output, and what its encoding adds.
const NUMBERS_BESIDE_MODELS: usize = 64;

/// What a node is told besides the plan when it joins.
const BYTES_BESIDE_PLAN: usize = 1024;

/// The value that switches a setting off.
const NEVER: &str = "never";

impl ServeSettings {
    /// The defaults with layers over them.
    pub fn read(layers: &[Layer]) -> Result<Self, ConfigError> {
        Self::with_methods(layers, &[])
    }

    /// The same, where `learning.method` may also name one of `others`.
    pub fn with_methods(layers: &[Layer], others: OtherMethods<'_>) -> Result<Self, ConfigError> {
        let merged = Merged::new(DEFAULTS, layers)?;
        let plan = config::plan(&merged, None, others)?;
        let mut config: Config = merged.read()?;
        let norm = merged.read::<Own>()?.limits.norm.checked(&plan);
        let checked = norm.and_then(|norm| {
            config.limits.norm = norm;
            Self::checked(config, plan)
        });
        let mut settings = checked.map_err(|error| merged.locate(error))?;
        (settings.layers, settings.others) = (layers.to_vec(), others.to_vec());
        Ok(settings)
    }

    fn checked(config: Config, plan: Plan) -> Result<Self, ConfigError> {
        let Config { rounds, listen, store, limits, log } = config;
        let address = socket("listen.address", &listen.address)?;
        if !listen.tls {
            check_plain_text(address)
                .map_err(|error| ConfigError::rejected("listen.tls", format!("{error}")))?;
        }
        let dashboard = Some(&listen.dashboard).filter(|address| *address != NEVER);
        let dashboard = dashboard.map(|address| socket("listen.dashboard", address)).transpose()?;
        let is_open = dashboard.is_some_and(|address| !address.ip().to_canonical().is_loopback());
        if store.path.file_name().is_none() {
            return Err(outside("store.path", "the name of a file", format!("{:?}", store.path)));
        }
        if (1..1024).contains(&limits.message_bytes) {
            let bytes = limits.message_bytes;
            return Err(outside("limits.message_bytes", "0, or at least 1024", bytes));
        }
        check_messages(&plan)?;
        check_states(&plan)?;
        if limits.handshake.0 < Duration::from_millis(10) {
            return Err(outside("limits.handshake", "at least 10ms", limits.handshake));
        }
        Ok(Self {
            rules: rounds.checked(&plan)?,
            limits,
            plan,
            address,
            dashboard,
            names: listen.names,
            guards_reading: match listen.login {
                LoginConfig::Auto => is_open,
                LoginConfig::Always => true,
                LoginConfig::Never => false,
            },
            identity: listen.tls.then_some(listen.identity),
            passphrase_file: Some(listen.passphrase_file)
                .filter(|file| !file.as_os_str().is_empty()),
            store: store.path,
            durability: store.durability,
            log,
            snapshots: SnapshotLimits { recent: store.snapshots, most_bytes: store.snapshot_bytes },
            layers: Vec::new(),
            others: Vec::new(),
        })
    }
}

/// Refuses a plan with messages that its nodes would refuse.
fn check_messages(plan: &Plan) -> Result<(), ConfigError> {
    let (method, config) = (plan.method(), plan.config());
    let catch_up = (method.catch_up_len)(plan.setup());
    let numbers = plan.layout().max_len().max(config.budget).max(catch_up) + NUMBERS_BESIDE_MODELS;
    let (outputs, bytes) = (plan.outputs(), 4 * plan.outputs() * numbers);
    if bytes > MAX_MESSAGE_BYTES {
        let bound = format!(
            "small enough that a message for {} has at most {MAX_MESSAGE_BYTES} bytes, which is \
             all that nodes accept; it may have {bytes} (fewer classes or targets help, too)",
            counted(outputs, "output")
        );
        return Err(outside("learning.budget", bound, config.budget));
    }
    let bytes = plan_to_json(plan).len();
    if bytes > MAX_MESSAGE_BYTES - BYTES_BESIDE_PLAN {
        let bound = format!(
            "of names and texts short enough for a message of {MAX_MESSAGE_BYTES} bytes, which is \
             all that nodes accept"
        );
        return Err(outside("learning", bound, format!("{bytes} bytes")));
    }
    Ok(())
}

/// Refuses a plan with nodes that could not save what they learn.
fn check_states(plan: &Plan) -> Result<(), ConfigError> {
    let bytes = Node::most_saved(plan);
    if bytes <= MAX_NODE_BYTES {
        return Ok(());
    }
    let bound = format!(
        "small enough that a node with {} saves at most {MAX_NODE_BYTES} bytes; it may have \
         {bytes} (fewer classes or targets and a smaller learning.memory help, too)",
        counted(plan.outputs(), "output")
    );
    Err(outside("learning.budget", bound, plan.config().budget))
}

impl RoundsConfig {
    fn checked(&self, plan: &Plan) -> Result<Rules, ConfigError> {
        let late = match self.late {
            LateConfig::Drop => Late::Drop,
            LateConfig::Merge if !plan.is_plain_up() => {
                let bound = "\"drop\" if uploads are compressed: the model that a late upload \
                             differs from is gone";
                return Err(outside("rounds.late", bound, "\"merge\""));
            }
            LateConfig::Merge => Late::Merge { rounds: self.late_rounds },
        };
        let Self { quorum, least, deadline, cadence, .. } = *self;
        let silent_after = Some(self.silent_after).filter(|count| *count > 0);
        Ok(Rules { quorum, least, deadline, cadence, silent_after, late })
    }
}

impl NormConfig {
    fn checked(&self, plan: &Plan) -> Result<f32, ConfigError> {
        let refused = |value| {
            let bound = format!("\"auto\", or more than 0 and at most {MAX_NORM:e}");
            Err(outside("limits.norm", bound, value))
        };
        match self {
            // Labels of any size make models of any size, and gr sends sums over histories of any
            // length.
            Self::Word(word) if word == "auto" => {
                let is_unbounded = (plan.method().layout)(plan.setup()).upload.is_unbounded();
                let is_bounded = plan.config().scaling != Scaling::None && !is_unbounded;
                Ok(if is_bounded { SCALED_NORM } else { MAX_NORM })
            }
            Self::Word(word) => refused(word.clone()),
            Self::Bound(bound) if *bound > 0.0 && *bound as f32 <= MAX_NORM => Ok(*bound as f32),
            Self::Bound(bound) => refused(bound.to_string()),
        }
    }
}

/// Reads a length of time, or none if it is `"never"`.
fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == NEVER {
        return Ok(None);
    }
    let Span(span) = text.parse().map_err(D::Error::custom)?;
    let is_some_time = !span.is_zero();
    is_some_time.then_some(Some(span)).ok_or(D::Error::custom("longer than 0s, or \"never\""))
}

fn socket(key: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    let bound = "an address in digits and a port, such as 127.0.0.1:7443 or [::]:7443";
    text.parse().map_err(|_| outside(key, bound, format!("{text:?}")))
}

#[cfg(test)]
mod tests {
    use hedgerow::aggregation::Aggregation;
    use hedgerow::codec::{Compression, NumberFormat};
    use hedgerow::{Plan, PlanConfig};

    use super::*;

    fn read(changes: &[&str]) -> Result<ServeSettings, ConfigError> {
        ServeSettings::read(&Layer::sets(changes)?)
    }

    #[test]
    fn the_defaults_lack_nothing_but_what_a_sample_is() {
        let message = read(&[]).unwrap_err().to_string();
        assert!(
            message.contains("learning.columns") && message.contains("learning.inputs"),
            "{message}"
        );
        let settings = read(&["learning.columns=[\"a\", \"b\"]"]).unwrap();
        let learning = settings.plan.config();
        assert_eq!(
            (learning.method.clone(), learning.inputs, learning.target.as_str()),
            ("tr".parse().unwrap(), 2, "y")
        );
        assert_eq!(settings.rules.describe(), "all connected nodes, or 5s after the first");
        assert_eq!(settings.limits, Limits::default());
        assert_eq!(settings.identity.as_deref(), Some(std::path::Path::new("pki")));
        assert!(
            settings.address.ip().is_loopback() && settings.dashboard.unwrap().ip().is_loopback()
        );
        // Everything else is as in a simulation.
        let mk = read(&["learning.inputs=1", "learning.method=mk"]).unwrap();
        let PlanConfig { seed, scaling, .. } = mk.plan.config().clone();
        let simulated = Plan::new(PlanConfig::default().seed(seed).scaling(scaling)).unwrap();
        assert_eq!(mk.plan.setup(), simulated.setup());
    }

    #[test]
    fn choices_arrive() {
        let settings = read(&[
            "learning.columns=[\"a\"]",
            "learning.method=sk:7",
            "learning.scaling=ranges",
            "learning.ranges.a=[0, 10]",
            "learning.ranges.y=[-1.5, 1]",
            "learning.compression=q8-up",
            "learning.every=3",
            "learning.aggregation=trimmed-mean:0.2",
            "rounds.quorum=80%",
            "rounds.deadline=never",
            "rounds.least=2",
            "listen.dashboard=never",
            "listen.tls=false",
            "store.durability=power-loss",
            "limits.norm=100",
        ])
        .unwrap();
        let learning = settings.plan.config();
        assert_eq!(learning.method, "sk:7".parse().unwrap());
        assert!(
            matches!(&learning.scaling, Scaling::Fixed(scale) if scale.scale_label(-1.5) == 0.0)
        );
        let Compression { every, up, down } = learning.compression;
        assert_eq!(
            (every.get(), up.numbers, down.numbers),
            (3, NumberFormat::Bits8, NumberFormat::F32)
        );
        assert_eq!(learning.aggregation, Aggregation::TrimmedMean { share: 0.2 });
        assert_eq!((settings.rules.quorum, settings.rules.least), (Quorum::Share(0.8), 2));
        assert_eq!(
            (settings.rules.deadline, settings.dashboard, settings.identity),
            (None, None, None)
        );
        assert_eq!((settings.durability, settings.limits.norm), (Durability::PowerLoss, 100.0));
        let guards = |changes: &[&str]| {
            read(&[&["learning.inputs=1"], changes].concat()).unwrap().guards_reading
        };
        assert!(!guards(&[]) && !guards(&["listen.dashboard=[::ffff:127.0.0.1]:7480"]));
        assert!(guards(&["listen.dashboard=0.0.0.0:7480"]) && guards(&["listen.login=always"]));
        assert!(!guards(&["listen.dashboard=0.0.0.0:7480", "listen.login=never"]));
        let norm = |changes: &[&str]| read(changes).unwrap().limits.norm;
        assert_eq!(norm(&["learning.inputs=1", "learning.method=mk"]), SCALED_NORM);
        assert_eq!(norm(&["learning.inputs=1", "learning.method=gr"]), MAX_NORM);
        assert_eq!(
            norm(&["learning.inputs=1", "learning.method=mk", "learning.scaling=none"]),
            MAX_NORM
        );
        let merging =
            read(&["learning.inputs=1", "rounds.late=merge", "rounds.late_rounds=4"]).unwrap();
        assert_eq!(merging.rules.late, Late::Merge { rounds: 4 });
    }

    #[test]
    fn nonsense_is_refused_with_key_bound_and_value() {
        for (change, parts) in [
            ("learning.method=mc", ["learning.method", "sk:N", "mc"]),
            ("learning.method=sk:0", ["learning.method", "from 1 to 11", "sk:0"]),
            ("learning.method=sk:12", ["learning.method", "from 1 to 11", "sk:12"]),
            ("learning.method=local", ["learning.method", "gr", "local"]),
            ("learning.columns=[\"a\", \"a\"]", ["learning.columns", "once", "a"]),
            ("learning.columns=[\"y\"]", ["learning.columns", "target", "y"]),
            ("learning.columns=[\"a\", \"b\"]", ["learning.inputs", "2", "1"]),
            ("learning.nodes=0", ["nodes", "at least 1", "0"]),
            ("learning.budget=3", ["learning.budget", "at least 16", "3"]),
            ("learning.loss=cubic", ["learning.loss", "squared, logistic, huber", "cubic"]),
            ("learning.ridge=-1", ["ridge", "between 0 and 1000", "-1"]),
            (
                "learning.step_schedule=horizon",
                ["learning.step_schedule", "anytime or constant", "horizon"],
            ),
            ("learning.scaling=auto", ["learning.scaling", "online", "auto"]),
            ("learning.scaling=ranges", ["learning.ranges", "for each column", "of []"]),
            ("learning.compression=q9", ["learning.compression", "q8", "q9"]),
            ("learning.every=0", ["learning.every", "at least 1", "0"]),
            ("learning.aggregation=trimmed-mean:0.5", ["aggregation.share", "below 0.5", "is 0.5"]),
            ("learning.aggregation=median", ["aggregation", "tr", "mean"]),
            ("learning.seed=-1", ["learning.seed", "at least 0", "-1"]),
            ("kernels.families=[\"gauss\"]", ["kernels.families", "gaussian", "gauss"]),
            ("kernels.variances=[]", ["kernels", "at least 1", "0"]),
            ("rounds.quorum=none", ["quorum", "80%", "none"]),
            ("rounds.least=0", ["rounds.least", "at least 1", "0"]),
            ("rounds.deadline=5x", ["rounds.deadline", "10s", "5x"]),
            ("rounds.cadence=0s", ["rounds.cadence", "never", "0s"]),
            ("rounds.late=keep", ["late", "drop", "keep"]),
            ("listen.address=localhost:1", ["listen.address", "digits", "localhost:1"]),
            ("listen.login=maybe", ["login", "never", "maybe"]),
            ("listen.dashboard=here", ["listen.dashboard", "digits", "here"]),
            ("store.path=\"\"", ["store.path", "a file", ""]),
            ("store.durability=none", ["durability", "power-loss", "none"]),
            ("limits.norm=0", ["limits.norm", "more than 0", "0"]),
            ("limits.norm=short", ["limits.norm", "auto", "short"]),
            ("limits.norm=1e16", ["limits.norm", "at most 1e15", "10000000000000000"]),
            ("limits.handshake=1ms", ["limits.handshake", "10ms", "1ms"]),
            ("limits.message_bytes=10", ["limits.message_bytes", "at least 1024", "10"]),
            ("log.level=loud", ["level", "debug", "loud"]),
            ("rounds.qorum=3", ["rounds.qorum", "did you mean \"rounds.quorum\"?", "--set"]),
        ] {
            let message = read(&["learning.inputs=1", change]).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{change}: {message}");
        }
        let message = read(&["learning.inputs=1", "learning.compression=q8", "rounds.late=merge"])
            .unwrap_err();
        assert!(message.to_string().contains("rounds.late"), "{message}");
        // What one output may have, a hundred of them may not.
        let classes: Vec<String> = (0..100).map(|class| format!("\"c{class}\"")).collect();
        let classes = format!("learning.classes=[{}]", classes.join(", "));
        let large = ["learning.inputs=1", "learning.method=gr", "learning.budget=30000"];
        read(&large).unwrap();
        let message = read(&[&large[..], &[&classes]].concat()).unwrap_err().to_string();
        let told = ["learning.budget", "8388608", "for 100 outputs", "12025600", "30000", "--set"];
        assert!(told.iter().all(|part| message.contains(part)), "{message}");
        // Their messages are small enough, but not the files of their nodes.
        let large = ["learning.inputs=1", "learning.method=gr", "learning.budget=20000", &classes];
        let message = read(&large).unwrap_err().to_string();
        let told =
            ["learning.budget", "251658240 bytes", "100 outputs", "learning.memory", "20000"];
        assert!(told.iter().all(|part| message.contains(part)), "{message}");
        // With the default budget a hundred classes fit.
        for method in ["learning.method=gr", "learning.method=tr", "learning.method=naive"] {
            read(&["learning.inputs=1000", method, &classes]).unwrap();
        }
        let message = read(&["learning.inputs=1", "listen.tls=false", "listen.address=0.0.0.0:1"])
            .unwrap_err();
        assert!(message.to_string().contains("loopback"), "{message}");
    }
}
