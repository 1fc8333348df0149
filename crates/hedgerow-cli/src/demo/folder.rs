//! [`DemoFolder`]: certificates, settings and samples of a demonstration, in a folder.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::scaling::ScaleKind;
use hedgerow_config::ConfigError;
use hedgerow_data::Dataset;
use hedgerow_data::text::counted;
use hedgerow_lab::run::Experiment;
use hedgerow_lab::settings::{Scaling, Settings};
use hedgerow_net::file::FileError;
use hedgerow_net::pki::identity::Role;
use hedgerow_net::pki::{Authority, Issuing};
use hedgerow_net::storage::{Durability, Storage, Store};

use super::{Arguments, MOST_NODES};

/// The dashboard's usual port.
const DASHBOARD: u16 = 7480;

/// Days that the certificates are good for.
const DAYS: u32 = 60;

const STORE: &str = "server.db";

pub(super) struct DemoFolder {
    pub(super) path: PathBuf,
    /// Removes the folder in the end, unless it is to be kept.
    temporary: Option<tempfile::TempDir>,
    pub(super) dashboard: SocketAddr,
    /// Each node's samples in the order of rounds.
    samples: Vec<Vec<Sample>>,
    pub(super) rounds: usize,
}

/// A sample that a node learns.
pub(super) struct Sample {
    /// Its number in the data.
    pub(super) index: u64,
    /// What the node reads.
    line: String,
}

impl DemoFolder {
    pub(super) fn prepare(
        arguments: &Arguments,
        settings: &Settings,
        data: &Dataset,
    ) -> anyhow::Result<Self> {
        let experiment = Experiment::new(settings, data)?;
        let nodes = experiment.nodes();
        if nodes > MOST_NODES {
            let bound = format!("at most {MOST_NODES} in a demonstration, each a process");
            return Err(ConfigError::out_of_bounds("federation.nodes", bound, nodes).into());
        }
        let samples = samples(settings, data, nodes)?;
        let rounds = samples.iter().map(Vec::len).min().unwrap_or(0).min(experiment.rounds());
        let (folder, temporary) = match &arguments.folder {
            Some(folder) => (folder.clone(), None),
            None => {
                let folder = tempfile::tempdir().context("can't make a temporary folder")?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        fs::create_dir_all(&folder).map_err(unwritable(&folder))?;
        let dashboard =
            free_address(DASHBOARD).or_else(|_| free_address(0)).context("no port is free")?;
        let listen = free_address(0).context("no port is free")?;
        let folder = Self { path: folder, temporary, dashboard, samples, rounds };
        folder.write_certificates()?;
        folder.write_settings(arguments, settings, &experiment, data.outputs, listen)?;
        folder.number_nodes()?;
        Ok(folder)
    }

    pub(super) fn nodes(&self) -> usize {
        self.samples.len()
    }

    /// What a node learns, in this order.
    pub(super) fn samples(&self, node: usize) -> &[Sample] {
        &self.samples[node][..self.rounds]
    }

    /// The file of what a node predicts.
    pub(super) fn predictions(&self, name: &str) -> PathBuf {
        self.file(&format!("{name}.predictions"))
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder, which is kept from now on.
    pub(super) fn keep(&self) -> PathBuf {
        // What a temporary folder's own `keep` does needs the value; a copy of the logs serves as
        // well.
        let kept = std::env::temp_dir().join(format!("hedgerow-demo-{}", std::process::id()));
        if self.temporary.is_none() || fs::create_dir_all(&kept).is_err() {
            return self.path.clone();
        }
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                _ = fs::copy(entry.path(), kept.join(entry.file_name()));
            }
        }
        kept
    }

    /// The writer of the nodes' samples.
    pub(super) fn writer(&self) -> anyhow::Result<SampleWriter<'_>> {
        let open = |node: usize| {
            let path = self.file(&samples_name(node));
            File::create(&path).map(BufWriter::new).map_err(unwritable(&path))
        };
        let files: Result<Vec<_>, _> = (0..self.nodes()).map(open).collect();
        Ok(SampleWriter { folder: self, files: files?, written: 0 })
    }

    fn write_certificates(&self) -> anyhow::Result<()> {
        let authority = Authority::init(&self.file("pki"), &[])?;
        let names: Vec<String> = (0..self.nodes()).map(node_name).collect();
        authority.issue_all(&names, DAYS, Issuing::First(Role::Node))?;
        Ok(())
    }

    /// Numbers are given in the order of joining, and what is random at a node depends on its
    /// number: here they are those of a simulation.
    fn number_nodes(&self) -> anyhow::Result<()> {
        let mut store = Store::open(&self.file(STORE), Durability::Kill)?;
        for node in 0..self.nodes() {
            store.node_number(&node_name(node), u32::MAX)?;
        }
        Ok(store.close()?)
    }

    fn write_settings(
        &self,
        arguments: &Arguments,
        settings: &Settings,
        experiment: &Experiment<'_>,
        outputs: usize,
        listen: SocketAddr,
    ) -> anyhow::Result<()> {
        if let Scaling::Ranges(file) = &settings.scaling {
            bail!("{} can't be used by a demonstration", file.display());
        }
        let scaling = match experiment.online_scale() {
            // Data scaled with hindsight is already scaled.
            None => "none",
            Some(ScaleKind::Range) => "online-range",
            Some(ScaleKind::Spread) => "online",
        };
        // Labels come in a list, so the names don't matter.
        let targets: Vec<String> = match outputs {
            1 => vec!["y".to_owned()],
            _ => (1..=outputs).map(|output| format!("y{output}")).collect(),
        };
        // A simulation waits for all nodes; with kills, a round can't.
        let rounds = match arguments.kill {
            true => "quorum = \"all\"\ndeadline = \"1s\"".to_owned(),
            false => format!("quorum = {}\ndeadline = \"never\"", self.nodes()),
        };
        let text = format!(
            "[learning]\nmethod = {:?}\ninputs = {}\nnodes = {}\nbudget = {}\nscaling = {scaling:?}\nseed = {}\nclasses = {:?}\ntarget = {:?}\n\n\
             [rounds]\n{rounds}\n\n[listen]\naddress = \"{listen}\"\ndashboard = \"{}\"\nidentity = {:?}\n\n\
             [store]\npath = {:?}\n",
            arguments.method,
            experiment.features(),
            self.nodes(),
            settings.budget,
            settings.seed,
            experiment.classes(),
            targets.join(","),
            self.dashboard,
            self.file("pki"),
            self.file(STORE),
        );
        write(&self.file("serve.toml"), &text)?;
        for node in 0..self.nodes() {
            let name = node_name(node);
            // Nodes without a sample don't upload, as in a simulation.
            let text = format!(
                "[server]\naddress = \"localhost:{}\"\nidentity = {:?}\nretry_most = \"1s\"\n\n\
                 [samples]\nsource = \"follow\"\npath = {:?}\nformat = \"json\"\npace = \"round\"\npatience = \"1h\"\n\n\
                 [state]\npath = {:?}\nsave_every = \"500ms\"\n",
                listen.port(),
                self.file("pki").join("nodes").join(format!("{name}.pem")),
                self.file(&samples_name(node)),
                self.file(&format!("{name}.state")),
            );
            write(&self.file(&format!("{name}.toml")), &text)?;
        }
        Ok(())
    }
}

pub(super) fn node_name(node: usize) -> String {
    format!("node-{node:02}")
}

fn samples_name(node: usize) -> String {
    format!("{}.jsonl", node_name(node))
}

fn write(path: &Path, text: &str) -> Result<(), FileError> {
    fs::write(path, text).map_err(unwritable(path))
}

/// The error for a file or folder that can't be written.
pub(super) fn unwritable(path: &Path) -> impl Fn(io::Error) -> FileError {
    move |source| FileError::Unwritable { path: path.to_owned(), source }
}

fn free_address(port: u16) -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.local_addr()
}

/// The samples of each node.
fn samples(settings: &Settings, data: &Dataset, nodes: usize) -> anyhow::Result<Vec<Vec<Sample>>> {
    let chance = CounterRng::from_seed(settings.seed)
        .derive(Purpose::Trial, 0)
        .derive(Purpose::Partition, 0);
    let deals = settings.partition.deal(data, nodes, chance.bits_at(0))?;
    let mut x = Vec::new();
    let mut all = Vec::new();
    for deal in deals {
        let mut own = Vec::new();
        for sample in deal {
            let labels = data.labels(sample as usize);
            if labels.iter().any(|label| label.is_nan()) {
                continue;
            }
            x.clear();
            data.inputs(&[sample], &mut x)?;
            // What is missing is null in JSON.
            let x: Vec<Option<f32>> =
                x.iter().map(|value| Some(*value).filter(|value| value.is_finite())).collect();
            let y = match (labels, data.classes.as_slice()) {
                ([label], []) => serde_json::json!(label),
                (labels, []) => serde_json::json!(labels),
                (labels, classes) => serde_json::json!(classes[labels[0] as usize]),
            };
            let line = serde_json::json!({ "x": x, "y": y }).to_string();
            own.push(Sample { index: sample.into(), line });
        }
        all.push(own);
    }
    if all.iter().any(Vec::is_empty) {
        bail!("{} has too few samples for {}", data.name, counted(nodes, "node"));
    }
    Ok(all)
}

/// Writes samples to the nodes' files, round by round.
pub(super) struct SampleWriter<'a> {
    folder: &'a DemoFolder,
    files: Vec<BufWriter<File>>,
    /// Samples that each node has got so far.
    pub(super) written: usize,
}

impl SampleWriter<'_> {
    pub(super) fn write_until(&mut self, round: usize) -> anyhow::Result<()> {
        if round <= self.written {
            return Ok(());
        }
        for (node, file) in self.files.iter_mut().enumerate() {
            let path = self.folder.file(&samples_name(node));
            for sample in &self.folder.samples[node][self.written..round] {
                writeln!(file, "{}", sample.line).map_err(unwritable(&path))?;
            }
            file.flush().map_err(unwritable(&path))?;
        }
        self.written = round;
        Ok(())
    }
}
