//! A running node: one task that handles the server's messages, samples, HTTP requests and saves.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use hedgerow_data::text::counted;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tracing::{info, warn};

use super::client::{Client, ConnectError, Dial, Event, Security};
use super::config::{Pace, Settings};
use super::dialogue::ServerLink;
use super::http::Asked;
use super::input::Input;
use super::lines::Line;
use super::local::{LocalNode, Taken};
use super::output::{Output, Written};
use super::rows::Rows;
use super::sample::BadRow;
use super::saving::Saving;
use super::state::{Reading, StateError, StateFile, StoredNode};
use crate::file::FileError;
use crate::plan_json::OtherMethods;
use crate::session::NodeSession;
use crate::transport::counted::Traffic;

/// How long the node waits for its stream to end.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(2);

/// With at least this many samples, and this many of them per acknowledged upload, a file was not
/// read in step with the rounds.
const FILE_SAMPLES: u64 = 100;
const FILE_SAMPLES_PER_UPLOAD: u64 = 10;

/// Why a node ended without a request to end.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The state file can't be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The last state could not be written.
    #[error("the node's state could not be saved: {0}")]
    Unsaved(FileError),
    /// The connection failed, and only one attempt was wanted.
    #[error(transparent)]
    ConnectError(ConnectError),
    /// No line of the input could be used.
    #[error(
        "nothing was learned or predicted: {bad} of {} {} bad, line {first} first: {reason}",
        counted(*.lines, "line"), if *.bad == 1 { "was" } else { "were" }
    )]
    NothingOfUse {
        /// Number of lines.
        lines: u64,
        /// Number of refused lines.
        bad: u64,
        /// The first refused line.
        first: u64,
        /// What was wrong with it.
        reason: String,
    },
}

/// Opens the input, from the given position if it has been read before.
pub type OpenInput = Box<dyn FnOnce(Option<&Reading>) -> Input + Send>;

/// The parts of an agent.
pub struct Parts {
    /// Connects to the server.
    pub dial: Dial,
    /// The node's identity.
    pub security: Security,
    /// Where its samples come from.
    pub input: OpenInput,
    /// Where its predictions go.
    pub output: Output,
    /// Questions from other programs.
    pub asked: Option<mpsc::Receiver<Asked>>,
    /// Methods beside the built-in ones.
    pub methods: OtherMethods<'static>,
}

/// Runs a node until it is asked to end, or its input has ended and all work is done.
pub async fn run(
    mut settings: Settings,
    parts: Parts,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let Parts { dial, security, input, output, asked, methods } = parts;
    settings.state.path = settings.state_path(security.name());
    let (file, kept) = StateFile::open(&settings.state.path, security.name(), methods)?;
    let run_of = |kept: &StoredNode| kept.node.run().to_owned();
    let (run, current) = watch::channel(kept.as_ref().map(run_of).unwrap_or_default());
    let reading = kept.as_ref().and_then(|kept| kept.reading.clone());
    let reading = reading.filter(|reading| reading.path == settings.samples.path);
    let traffic = Arc::new(Traffic::default());
    let input = input(reading.as_ref());
    settings.samples.pace = settle_pace(settings.samples.pace, &input);
    let mut agent = Agent {
        name: security.name().to_owned(),
        certificate_end: security.certificate_end(),
        node: None,
        link: ServerLink::default(),
        counts: Counts::default(),
        traffic: Arc::clone(&traffic),
        began: Instant::now(),
        is_restored: kept.is_some(),
        has_begun: false,
        has_input_ended: matches!(input, Input::None),
        input,
        first_bad: None,
        has_told_wait: false,
        rows: Rows::new(settings.samples.format),
        header: reading.and_then(|reading| reading.header),
        output,
        run,
        file,
        saving: Saving::default(),
        settings,
    };
    if let Some(StoredNode { node, past, .. }) = kept {
        info!(
            run = node.run(),
            round = node.round(),
            samples = node.tally().samples,
            "the node goes on"
        );
        let mut local = agent.with_schema(node)?;
        if let Some(past) = past {
            let unfit = |reason| agent.file.unfit(reason);
            local.series.restore(&past).map_err(unfit)?;
        }
        agent.node = Some(local);
    }
    let server = agent.settings.server.clone();
    let client = Client::new(dial, security, server, current, traffic, methods);
    agent.drive(client, asked, shutdown).await
}

pub(super) struct Agent {
    pub(super) settings: Settings,
    pub(super) name: String,
    /// When the certificate in use ends, in seconds of Unix time.
    pub(super) certificate_end: Option<i64>,
    pub(super) node: Option<LocalNode>,
    pub(super) link: ServerLink,
    pub(super) counts: Counts,
    pub(super) traffic: Arc<Traffic>,
    pub(super) began: Instant,
    /// Whether the node was restored from its state file.
    pub(super) is_restored: bool,
    /// Whether samples can be learned from: the open round has been heard, or the server can't be
    /// reached and the node was restored. What is learned before could belong to another run.
    pub(super) has_begun: bool,
    pub(super) input: Input,
    pub(super) has_input_ended: bool,
    /// The first line that was refused, and why.
    first_bad: Option<(u64, String)>,
    /// Whether it was logged that samples wait for a scale.
    has_told_wait: bool,
    pub(super) rows: Rows,
    /// A header from before a restart that has not been used yet.
    pub(super) header: Option<Vec<u8>>,
    output: Output,
    pub(super) run: watch::Sender<String>,
    pub(super) file: StateFile,
    pub(super) saving: Saving,
}

/// Counters since the agent began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) lines: u64,
    pub(super) bad_lines: u64,
    /// Lines whose label was learned, and those without one.
    pub(super) learned_lines: u64,
    pub(super) predicted_lines: u64,
    /// Lines that only became part of the past.
    pub(super) waiting_lines: u64,
    /// Lines whose time is missing or can't be read.
    pub(super) bad_times: u64,
    pub(super) requests: u64,
    pub(super) connections: u64,
    pub(super) message_bytes_up: u64,
    pub(super) message_bytes_down: u64,
}

impl Agent {
    async fn drive(
        mut self,
        client: Client,
        mut asked: Option<mpsc::Receiver<Asked>>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AgentError> {
        let (mut events, talking) = client.start();
        let mut shutdown = std::pin::pin!(shutdown);
        let every = self.settings.state.save_every.0;
        let mut save_due = interval_at(Instant::now() + every, every);
        save_due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let outcome = loop {
            let may_read = self.may_read();
            let session_due = self.link.session().and_then(NodeSession::wake_at);
            tokio::select! {
                () = &mut shutdown => break Ok(()),
                event = events.recv() => {
                    let Some(event) = event else {
                        break Err(AgentError::ConnectError(ConnectError::Ended));
                    };
                    if let Err(error) = self.take_event(event).await {
                        break Err(error);
                    }
                }
                next = next_of(&mut asked) => match next {
                    // The asker may have gone.
                    Some(Asked { question, reply }) => _ = reply.send(self.answer(&question)),
                    None => asked = None,
                },
                line = next_line(&mut self.input, &self.output), if may_read => match line {
                    Some(line) => self.take_line(&line),
                    None => self.end_input(),
                },
                saved = self.saving.finished() => self.saving.end(saved),
                _ = save_due.tick() => self.save(),
                () = at(session_due.map(Instant::from)) => {
                    let now = Instant::now().into_std();
                    if self.link.session_mut().is_some_and(|session| session.wake(now)) {
                        self.speak(true);
                    }
                }
            }
            self.speak(self.is_leaving());
            self.tell_wait();
            if self.is_done() {
                break self.leave();
            }
        };
        self.end(events, talking, outcome).await
    }

    async fn end(
        mut self,
        events: mpsc::Receiver<Event>,
        mut talking: JoinHandle<()>,
        outcome: Result<(), AgentError>,
    ) -> Result<(), AgentError> {
        // What waits to be sent is sent before the stream ends.
        self.link.stream = None;
        drop(events);
        if timeout(STREAM_END_TIMEOUT, &mut talking).await.is_err() {
            talking.abort();
        }
        let saved = self.save_at_last().await;
        self.output.finish().await;
        outcome.and(saved.map_err(AgentError::Unsaved))
    }

    /// Whether another line may be read.
    fn may_read(&self) -> bool {
        let Some(LocalNode { node, .. }) = &self.node else { return false };
        if self.has_input_ended {
            return false;
        }
        let session = self.link.session();
        let has_heard_round = session.is_some_and(NodeSession::has_heard_round);
        match self.settings.samples.pace {
            // On a new stream the round comes first: what is learned before it is no answer to it.
            Pace::Free | Pace::Auto => {
                self.has_begun && node.has_room() && (has_heard_round || session.is_none())
            }
            // In step with the others: a round has begun, and this node hasn't answered it.
            Pace::Round if !node.is_scaled() => {
                has_heard_round && !session.is_some_and(NodeSession::awaits_scale)
            }
            Pace::Round => has_heard_round && !node.has_learned_enough(),
        }
    }

    /// Whether the input has ended and the node leaves after its last answer.
    fn is_leaving(&self) -> bool {
        let has_learned = self.node.as_ref().is_some_and(|local| local.node.learned() > 0);
        self.has_input_ended && self.settings.leaves_at_end() && has_learned
    }

    fn is_done(&self) -> bool {
        let is_idle = |local: &LocalNode| local.node.waiting().1 == 0 && local.node.learned() == 0;
        self.has_input_ended
            && self.settings.leaves_at_end()
            && self.node.as_ref().is_some_and(is_idle)
    }

    /// Logs once that the node is stopped because there is no scale.
    fn tell_wait(&mut self) {
        let Some(LocalNode { node, .. }) = &self.node else { return };
        let held = node.waiting().1;
        let is_stopped =
            !node.is_scaled() && held > 0 && (self.has_input_ended || !node.has_room());
        if is_stopped && !self.has_told_wait {
            warn!(held, "samples wait for the federation to agree on a scale");
        }
        self.has_told_wait = is_stopped;
    }

    /// The input has ended.
    fn end_input(&mut self) {
        self.has_input_ended = true;
        // From here on, the node answers rounds with what it has.
        if let Some(session) = self.link.session_mut() {
            session.set_patience(self.settings.samples.patience.0);
        }
        let Counts { lines, bad_lines, .. } = self.counts;
        info!(lines, bad = bad_lines, "the input has ended");
    }

    /// The node has answered for all of its input.
    fn leave(&mut self) -> Result<(), AgentError> {
        let Counts {
            lines,
            bad_lines: bad,
            learned_lines: learned,
            predicted_lines: predicted,
            waiting_lines: waited,
            ..
        } = self.counts;
        if learned + predicted == 0
            && let Some((first, reason)) = self.first_bad.take()
        {
            return Err(AgentError::NothingOfUse { lines, bad, first, reason });
        }
        let taken =
            self.node.as_ref().map_or(0, |local| local.node.tally().taken - local.taken_before);
        if self.settings.samples.pace != Pace::Round
            && learned >= FILE_SAMPLES
            && learned / FILE_SAMPLES_PER_UPLOAD > taken
        {
            warn!(
                "few rounds have heard of many samples: where they needn't be taken as they come, --pace round learns more"
            );
        }
        match (&self.input, learned + predicted) {
            (Input::None, _) => info!("nothing is read: the node leaves"),
            (_, 0) if waited > 0 => {
                warn!(lines, waited, "all rows wait for earlier ones: the node leaves");
            }
            (_, 0) => warn!(lines, "the input had no samples: the node leaves"),
            _ => info!(
                learned,
                predicted,
                waited,
                refused = bad,
                answers_taken = taken,
                "all is done: the node leaves"
            ),
        }
        Ok(())
    }

    fn take_line(&mut self, line: &Line) {
        self.counts.lines += 1;
        self.saving.is_due = true;
        let Some(node) = &mut self.node else { return };
        let is_first = line.number == 1;
        let (had_no_labels, had_bad_header) =
            (self.rows.has_no_labels(), self.rows.has_bad_header());
        let sample = match self.rows.read(&node.schema, line, is_first) {
            Ok(None) => {
                if self.rows.has_no_labels() && !had_no_labels {
                    let label = node.schema.label();
                    warn!(
                        "the header has no {label:?}: its rows are predicted from, and none is learned"
                    );
                }
                return;
            }
            Ok(Some(sample)) => sample,
            // A bad header was told of once.
            Err(BadRow::NoHeader) if had_bad_header => {
                self.counts.bad_lines += 1;
                return;
            }
            Err(bad) => {
                self.counts.bad_times += u64::from(matches!(bad, BadRow::NotATime { .. }));
                self.refuse_line(line, None, &bad);
                // What has no header will never have one, but a file that is followed may be
                // replaced.
                if self.rows.has_bad_header() && matches!(self.input, Input::Stream(_)) {
                    self.end_input();
                }
                return;
            }
        };
        match node.take(&sample, false) {
            Ok(taken) => {
                let label = sample.y.as_ref().map(|labels| node.schema.shown(labels));
                let (answer, waits_for_rows) = match taken {
                    Taken::Predicted(answer) => (Some(answer), None),
                    Taken::Waits(rows) => (None, Some(rows)),
                };
                let count = match (&answer, &label) {
                    (None, _) => &mut self.counts.waiting_lines,
                    (_, Some(_)) => &mut self.counts.learned_lines,
                    (_, None) => &mut self.counts.predicted_lines,
                };
                *count += 1;
                self.output.write(&Written {
                    line: line.number,
                    id: sample.id.as_deref(),
                    answer,
                    label,
                    waits_for_rows,
                    error: None,
                });
            }
            Err(bad) => self.refuse_line(line, sample.id.as_deref(), &bad),
        }
    }

    fn refuse_line(&mut self, line: &Line, id: Option<&str>, bad: &dyn std::error::Error) {
        self.counts.bad_lines += 1;
        let (number, count) = (line.number, self.counts.bad_lines);
        // Increasingly rarely, so that a broken sensor doesn't fill the log.
        if count <= 10 || count.is_power_of_two() {
            warn!(line = number, bad_lines = count, "a line was not taken: {bad}");
        }
        let reason = bad.to_string();
        self.first_bad.get_or_insert_with(|| (number, reason.clone()));
        self.output.write(&Written {
            line: number,
            id,
            answer: None,
            label: None,
            waits_for_rows: None,
            error: Some(reason),
        });
    }
}

/// Chooses when samples are taken, and logs why.
fn settle_pace(wanted: Pace, input: &Input) -> Pace {
    let Some((natural, reason)) = input.natural_pace() else {
        return if wanted == Pace::Auto { Pace::Free } else { wanted };
    };
    let (pace, reason) =
        if wanted == Pace::Auto { (natural, reason) } else { (wanted, "so it is set") };
    match pace {
        Pace::Round => info!(pace = "round", reason, "samples are taken in step with the rounds"),
        _ => info!(pace = "free", reason, "samples are taken as they come, however many a round"),
    }
    pace
}

async fn next_line(input: &mut Input, output: &Output) -> Option<Line> {
    output.has_room().await;
    input.next().await
}

async fn next_of(asked: &mut Option<mpsc::Receiver<Asked>>) -> Option<Asked> {
    match asked {
        Some(asked) => asked.recv().await,
        None => pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
