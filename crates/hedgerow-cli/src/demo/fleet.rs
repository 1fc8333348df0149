//! [`Fleet`]: the processes of a demonstration. It can kill and restart them.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hedgerow::random::{CounterRng, Purpose};

use super::folder::{DemoFolder, node_name, unwritable};
use super::watch::Watch;

/// How long a killed process waits for its restart.
const RESTART_DELAY: Duration = Duration::from_millis(700);

/// The time between two kills.
const KILL_INTERVAL: Duration = Duration::from_secs(4);

/// The limit until all nodes are connected.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// The limit for a process that was asked to end.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Nodes killed at a time.
const KILLED_NODES: u64 = 2;

pub(super) struct Fleet<'a> {
    folder: &'a DemoFolder,
    program: PathBuf,
    /// The server, and then the nodes.
    members: Vec<Member>,
    chance: CounterRng,
    killings: u64,
    pub(super) servers_killed: u64,
    pub(super) nodes_killed: u64,
}

struct Member {
    name: String,
    command: &'static str,
    child: Option<Child>,
    /// When it comes back.
    due: Option<Instant>,
}

impl<'a> Fleet<'a> {
    pub(super) fn start(folder: &'a DemoFolder, seed: u64) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("can't tell where this program is")?;
        let member = |name: String, command| Member { name, command, child: None, due: None };
        let mut members = vec![member("serve".to_owned(), "serve")];
        members.extend((0..folder.nodes()).map(|node| member(node_name(node), "join")));
        let chance = CounterRng::from_seed(seed).derive(Purpose::Data, u64::MAX);
        let mut fleet = Self {
            folder,
            program,
            members,
            chance,
            killings: 0,
            servers_killed: 0,
            nodes_killed: 0,
        };
        for member in 0..fleet.members.len() {
            fleet.spawn(member)?;
        }
        Ok(fleet)
    }

    pub(super) fn nodes(&self) -> usize {
        self.folder.nodes()
    }

    /// Waits for all nodes; when that was.
    pub(super) fn wait_until_connected(&mut self, watch: &mut Watch) -> anyhow::Result<Instant> {
        let nodes = self.nodes() as u64;
        let since = Instant::now();
        loop {
            if watch.look().is_some_and(|seen| seen.connected >= nodes) {
                return Ok(Instant::now());
            }
            self.check()?;
            if since.elapsed() >= CONNECT_LIMIT {
                let logs = self.folder.keep();
                bail!(
                    "not all nodes have connected within {} s; the logs are in {}",
                    CONNECT_LIMIT.as_secs(),
                    logs.display()
                );
            }
            std::thread::sleep(super::POLL_INTERVAL);
        }
    }

    /// Kills a process if it is time. Returns a description.
    pub(super) fn kill_some(&mut self, elapsed: Duration) -> Vec<String> {
        if elapsed < KILL_INTERVAL * (self.killings as u32 + 1) {
            return vec![];
        }
        self.killings += 1;
        if self.killings % 2 == 1 {
            self.kill(0);
            self.servers_killed += 1;
            return vec!["the server is killed".to_owned()];
        }
        let nodes = self.folder.nodes() as u64;
        let mut events = Vec::new();
        for victim in 0..KILLED_NODES.min(nodes) {
            let node = self.chance.bits_at(KILLED_NODES * self.killings + victim) % nodes;
            let member = 1 + node as usize;
            if self.members[member].child.is_some() {
                self.kill(member);
                self.nodes_killed += 1;
                events.push(format!("{} is killed", self.members[member].name));
            }
        }
        events
    }

    /// Restarts killed processes when it is time. No other process may have ended.
    pub(super) fn revive(&mut self) -> anyhow::Result<()> {
        for member in 0..self.members.len() {
            if self.members[member].due.is_some_and(|due| Instant::now() >= due) {
                self.spawn(member)?;
            }
        }
        self.check()
    }

    /// Asks all processes to end, nodes first, and waits for them.
    pub(super) fn stop(mut self) {
        for member in self.members.iter_mut().rev() {
            if let Some(child) = &mut member.child {
                ask_to_end(child);
            }
        }
        let since = Instant::now();
        while since.elapsed() < STOP_LIMIT && self.members.iter_mut().any(Member::is_alive) {
            std::thread::sleep(super::POLL_INTERVAL);
        }
    }

    fn spawn(&mut self, member: usize) -> anyhow::Result<()> {
        let Member { name, command, .. } = &self.members[member];
        let appended = |path: PathBuf| {
            let opened = File::options().create(true).append(true).open(&path);
            opened.map_err(unwritable(&path))
        };
        let log = appended(self.folder.file(&format!("{name}.log")))?;
        let output = match *command {
            "join" => appended(self.folder.predictions(name))?.into(),
            _ => Stdio::null(),
        };
        let child = Command::new(&self.program)
            .args([command, self.folder.file(&format!("{name}.toml")).to_string_lossy().as_ref()])
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log)
            .spawn()
            .with_context(|| format!("can't start {name}"))?;
        let member = &mut self.members[member];
        member.child = Some(child);
        member.due = None;
        Ok(())
    }

    fn kill(&mut self, member: usize) {
        let member = &mut self.members[member];
        member.kill();
        member.due = Some(Instant::now() + RESTART_DELAY);
    }

    fn check(&mut self) -> anyhow::Result<()> {
        for member in &mut self.members {
            if let Some(child) = &mut member.child
                && let Some(status) = child.try_wait().context("can't ask after a process")?
            {
                let log = self.folder.keep().join(format!("{}.log", member.name));
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                let last = text.lines().next_back().unwrap_or_default();
                bail!(
                    "{} has ended ({status}); its log, {}, ends with: {last}",
                    member.name,
                    log.display()
                );
            }
        }
        Ok(())
    }
}

impl Member {
    fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(Member::kill);
    }
}

#[cfg(unix)]
fn ask_to_end(child: &mut Child) {
    if let Ok(id) = i32::try_from(child.id())
        && let Some(process) = rustix::process::Pid::from_raw(id)
    {
        _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
    }
}

/// Without signals a process can only be killed. Its state survives that.
#[cfg(not(unix))]
fn ask_to_end(child: &mut Child) {
    _ = child.kill();
}
