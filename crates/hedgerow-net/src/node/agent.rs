//! A running node: one task that hears the server, takes samples, answers questions, and saves itself now and then; none of
//! which waits for another.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tracing::{debug, error, info, warn};

use super::client::{Client, Dial, Event, Security, Trouble};
use super::config::{Pace, Settings};
use super::engine::{Answer, BadInput, Engine};
use super::http::Asked;
use super::input::Input;
use super::lines::Line;
use super::output::{Output, Written};
use super::rows::{Format, Rows};
use super::sample::{Sample, Schema};
use super::state::{Kept, Reading, StateError, StateFile};
use crate::counted::Traffic;
use crate::file::FileError;
use crate::learning::Plan;
use crate::protocol::wire;

/// How long a stream is waited for when the node ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// Bytes of gRPC before a message.
const FRAME: u64 = 5;

/// Why a node ended, if not because it was told to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its state.
    #[error(transparent)]
    State(#[from] StateError),
    /// Its last state could not be written.
    #[error("the node's state could not be saved: {0}")]
    Unsaved(FileError),
    /// The server, where only one try was wanted.
    #[error(transparent)]
    Trouble(Trouble),
}

/// Opens the input, from this place on if it has been read before.
pub type OpenInput = Box<dyn FnOnce(Option<&Reading>) -> Input + Send>;

/// What an agent is made of.
pub struct Parts {
    /// How the server is reached.
    pub dial: Dial,
    /// How the node proves who it is.
    pub security: Security,
    /// Where its samples come from.
    pub input: OpenInput,
    /// Where its predictions go.
    pub output: Output,
    /// Who asks it.
    pub asked: Option<mpsc::Receiver<Asked>>,
}

/// Runs a node until it is told to end, or its input has ended and nothing more is to be done.
pub async fn run(
    settings: Settings,
    parts: Parts,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let Parts { dial, security, input, output, asked } = parts;
    let (file, kept) = StateFile::open(&settings.state.path, security.name())?;
    let (engine, reading) = kept.map_or((None, None), |Kept { engine, reading }| (Some(engine), reading));
    let reading = reading.filter(|reading| reading.path == settings.samples.path);
    let (run, current) =
        watch::channel(engine.as_ref().map_or(String::new(), |engine| engine.run().to_owned()));
    let traffic = Arc::new(Traffic::default());
    let mut agent = Agent {
        name: security.name().to_owned(),
        node: None,
        link: Link::default(),
        counts: Counts::default(),
        traffic: Arc::clone(&traffic),
        began: Instant::now(),
        input: input(reading.as_ref()),
        has_input_ended: false,
        rows: Rows::new(settings.samples.format),
        header: reading.and_then(|reading| reading.header),
        output,
        run,
        file,
        saving: Saving::default(),
        outbox: Vec::new(),
        settings,
    };
    if let Some(engine) = engine {
        info!(
            run = engine.run(),
            round = engine.round(),
            samples = engine.tally().samples,
            "the node goes on"
        );
        agent.node = Some(agent.with_schema(engine));
    }
    let client = Client::new(dial, security, agent.settings.patience(), current, traffic);
    agent.drive(client, asked, shutdown).await
}

pub(super) struct Agent {
    pub(super) settings: Settings,
    pub(super) name: String,
    pub(super) node: Option<Node>,
    pub(super) link: Link,
    pub(super) counts: Counts,
    pub(super) traffic: Arc<Traffic>,
    pub(super) began: Instant,
    input: Input,
    has_input_ended: bool,
    rows: Rows,
    /// A header from before a restart, as long as it hasn't been looked at.
    header: Option<Vec<u8>>,
    output: Output,
    run: watch::Sender<String>,
    file: StateFile,
    pub(super) saving: Saving,
    outbox: Vec<wire::FromNode>,
}

/// What there is once the server, or an earlier life, has told what is learned.
pub(super) struct Node {
    pub(super) engine: Engine,
    pub(super) schema: Schema,
}

/// The stream to the server.
#[derive(Default)]
pub(super) struct Link {
    sender: Option<mpsc::Sender<wire::FromNode>>,
    /// Why there is none.
    pub(super) trouble: Option<Trouble>,
    /// When the node answers with what it has.
    answer_at: Option<Instant>,
    /// Until when a node without a scale waits for one before it takes another sample.
    wait_until: Option<Instant>,
    /// Whether this stream has told which round is open.
    has_heard: bool,
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        self.sender.is_some()
    }
}

/// What was counted since the agent began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) lines: u64,
    pub(super) bad_lines: u64,
    pub(super) requests: u64,
    pub(super) connections: u64,
    pub(super) message_bytes_up: u64,
    pub(super) message_bytes_down: u64,
}

/// Writing to disk.
#[derive(Default)]
pub(super) struct Saving {
    is_due: bool,
    task: Option<JoinHandle<Result<(), FileError>>>,
    pub(super) trouble: Option<String>,
}

enum Happening {
    Shutdown,
    Event(Option<Event>),
    Asked(Option<Asked>),
    Line(Option<Line>),
    Saved(Result<(), FileError>),
    SaveDue,
    AnswerDue,
    WaitOver,
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
            let (may_read, saving) = (self.may_read(), &mut self.saving.task);
            let (answer_at, wait_until) = (self.link.answer_at, self.link.wait_until);
            let happening = tokio::select! {
                () = &mut shutdown => Happening::Shutdown,
                event = events.recv() => Happening::Event(event),
                asked = next_of(&mut asked) => Happening::Asked(asked),
                line = next_line(&mut self.input, &self.output), if may_read => Happening::Line(line),
                saved = saved(saving) => Happening::Saved(saved),
                _ = save_due.tick() => Happening::SaveDue,
                () = at(answer_at) => Happening::AnswerDue,
                () = at(wait_until) => Happening::WaitOver,
            };
            match happening {
                Happening::Shutdown => break Ok(()),
                Happening::Event(None) => break Err(AgentError::Trouble(Trouble::Ended)),
                Happening::Event(Some(event)) => match self.take_event(event).await {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                Happening::Asked(Some(Asked { question, reply })) => {
                    let answer = self.answer(&question);
                    // Whoever asked may have gone.
                    _ = reply.send(answer);
                }
                Happening::Asked(None) => asked = None,
                Happening::Line(Some(line)) => self.take_line(&line),
                Happening::Line(None) => {
                    self.has_input_ended = true;
                    info!(lines = self.counts.lines, bad = self.counts.bad_lines, "the input has ended");
                }
                Happening::Saved(outcome) => self.saved(outcome),
                Happening::SaveDue => self.save(),
                Happening::AnswerDue => {
                    self.link.answer_at = None;
                    self.speak(true);
                }
                Happening::WaitOver => self.link.wait_until = None,
            }
            self.speak(self.is_leaving());
            if self.is_done() {
                info!("all samples are learned and answered for: the node leaves");
                break Ok(());
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
        self.link.sender = None;
        drop(events);
        if timeout(FAREWELL, &mut talking).await.is_err() {
            talking.abort();
        }
        if let Some(task) = self.saving.task.take() {
            let written = task.await;
            self.saved(written.unwrap_or(Ok(())));
        }
        let node = self.node.as_ref().filter(|_| self.saving.is_due);
        let saved = node.map_or(Ok(()), |node| self.file.snapshot(&node.engine, self.reading()).write());
        self.output.finish().await;
        outcome.and(saved.map_err(AgentError::Unsaved))
    }

    /// Whether another line may be read.
    fn may_read(&self) -> bool {
        let Some(Node { engine, .. }) = &self.node else { return false };
        if self.has_input_ended {
            return false;
        }
        match self.settings.samples.pace {
            Pace::Free => true,
            // In step with the others: a round has begun, and this node hasn't answered it.
            Pace::Round if !engine.is_scaled() => self.link.has_heard && self.link.wait_until.is_none(),
            Pace::Round => self.link.has_heard && !engine.has_learned_enough(),
        }
    }

    /// Whether nothing more comes, and the node leaves when all is said.
    fn is_leaving(&self) -> bool {
        let has_learned = self.node.as_ref().is_some_and(|node| node.engine.learned() > 0);
        self.has_input_ended && self.settings.leaves_at_end() && has_learned
    }

    fn is_done(&self) -> bool {
        let is_idle = |node: &Node| node.engine.waiting().1 == 0 && node.engine.learned() == 0;
        self.has_input_ended && self.settings.leaves_at_end() && self.node.as_ref().is_some_and(is_idle)
    }

    async fn take_event(&mut self, event: Event) -> Result<(), AgentError> {
        match event {
            Event::Up { welcome, sender } => self.welcomed(&welcome, sender).await?,
            Event::Heard(message) => self.hear(&message),
            Event::Down { trouble, again_in } => {
                self.link = Link { trouble: self.link.trouble.take(), ..Link::default() };
                if let Some(node) = &mut self.node {
                    node.engine.disconnected();
                }
                if self.settings.server.once {
                    return Err(AgentError::Trouble(trouble));
                }
                let ms = again_in.as_millis() as u64;
                if trouble.is_lasting() {
                    error!(again_in_ms = ms, "{trouble}");
                } else if self.link.trouble.as_ref() == Some(&trouble) {
                    debug!(again_in_ms = ms, "{trouble}");
                } else {
                    warn!(again_in_ms = ms, "{trouble}");
                }
                self.link.trouble = Some(trouble);
            }
        }
        Ok(())
    }

    async fn welcomed(
        &mut self,
        welcome: &wire::Welcome,
        sender: mpsc::Sender<wire::FromNode>,
    ) -> Result<(), AgentError> {
        let wire::Welcome { run, node: number, learning, .. } = welcome;
        let plan = match Plan::from_json(learning) {
            Ok(plan) => plan,
            Err(error) => {
                // The stream ends as the sender is dropped.
                error!("the server's learning configuration won't do: {error}");
                return Ok(());
            }
        };
        let fits = |node: &Node| {
            let engine = &node.engine;
            engine.run() == run && engine.number() == *number && engine.plan().learning() == plan.learning()
        };
        if !self.node.as_ref().is_some_and(fits) {
            self.begin(plan, run, *number).await?;
        }
        if let Some(node) = &mut self.node {
            node.engine.connected();
            info!(%run, number, round = node.engine.round(), "connected");
        }
        self.counts.connections += 1;
        self.link.sender = Some(sender);
        self.link.trouble = None;
        Ok(())
    }

    /// Begins a run; what belongs to another is set aside.
    async fn begin(&mut self, plan: Plan, run: &str, number: u32) -> Result<(), StateError> {
        if let Some(task) = self.saving.task.take() {
            let written = task.await;
            self.saved(written.unwrap_or(Ok(())));
        }
        if let Some(aside) = self.file.set_aside()? {
            warn!(file = %aside.display(), "the node's state belongs to another run: it is set aside");
        }
        info!(run, number, method = ?plan.learning().method, inputs = plan.inputs(), "a new node of the run");
        self.node = Some(self.with_schema(Engine::new(plan, run, number)));
        self.run.send_replace(run.to_owned());
        self.saving.is_due = true;
        self.save();
        Ok(())
    }

    fn with_schema(&mut self, engine: Engine) -> Node {
        let schema = Schema::new(engine.plan(), self.settings.samples.others);
        let format = self.settings.samples.format;
        let header = self.header.take().or_else(|| self.rows.header().map(<[u8]>::to_vec));
        if let Some(header) = header.filter(|_| format != Format::Json) {
            match Rows::under(&header, &schema) {
                Ok(rows) => self.rows = rows,
                Err(bad) => {
                    warn!("the header of the file that is read doesn't fit this run: {bad}");
                    self.rows = Rows::new(format);
                }
            }
        }
        Node { engine, schema }
    }

    fn hear(&mut self, message: &wire::FromServer) {
        self.counts.message_bytes_down += message.encoded_len() as u64 + FRAME;
        let Some(node) = &mut self.node else { return };
        let before = node.engine.round();
        if let Err(rejected) = node.engine.hear(message) {
            // Out of step: a new stream begins anew.
            warn!("a message of the server was not taken: {rejected}");
            self.link.sender = None;
            return;
        }
        self.saving.is_due = true;
        match &message.message {
            Some(wire::from_server::Message::Broadcast(broadcast)) => {
                if broadcast.round < before {
                    warn!(
                        known = before,
                        round = broadcast.round,
                        "the server has lost rounds: the node goes on from its"
                    );
                }
                self.link.has_heard = true;
                self.link.wait_until = None;
                self.link.answer_at = self.patience();
            }
            Some(wire::from_server::Message::Refusal(refusal)) => {
                warn!(round = refusal.round, "the server refused a message: {}", refusal.reason);
            }
            Some(wire::from_server::Message::Scale(_)) => self.link.wait_until = None,
            _ => {}
        }
    }

    /// When it answers with what it has. Who plays in step answers when it has learned enough.
    fn patience(&self) -> Option<Instant> {
        let is_patient = self.settings.samples.pace == Pace::Free || self.has_input_ended;
        is_patient.then(|| Instant::now() + self.settings.samples.patience.0)
    }

    /// Says what there is to say.
    fn speak(&mut self, even_so: bool) {
        let (Some(node), Some(sender)) = (&mut self.node, &self.link.sender) else { return };
        node.engine.speak(even_so, &mut self.outbox);
        let mut is_behind = false;
        for message in self.outbox.drain(..) {
            self.counts.message_bytes_up += message.encoded_len() as u64 + FRAME;
            if matches!(message.message, Some(wire::from_node::Message::Report(_)))
                && !node.engine.is_scaled()
            {
                self.link.wait_until = Some(Instant::now() + self.settings.samples.patience.0);
            }
            // The server has stopped reading.
            is_behind |= sender.try_send(message).is_err();
        }
        let (awaits, learned) = (node.engine.awaits_broadcast(), node.engine.learned());
        if awaits {
            self.link.answer_at = None;
        } else if learned > 0 && self.link.answer_at.is_none() {
            self.link.answer_at = self.patience();
        }
        if is_behind {
            self.link.sender = None;
        }
    }

    fn take_line(&mut self, line: &Line) {
        self.counts.lines += 1;
        self.saving.is_due = true;
        let Some(node) = &mut self.node else { return };
        let is_first = line.number == 1;
        let sample = match self.rows.read(&node.schema, line, is_first) {
            Ok(None) => return,
            Ok(Some(sample)) => sample,
            Err(bad) => return self.refuse_line(line, None, &bad),
        };
        match take(&mut node.engine, &sample) {
            Ok(answer) => {
                let (id, label) = (sample.id.as_deref(), sample.y);
                self.output.write(&Written {
                    line: line.number,
                    id,
                    answer: Some(answer.into()),
                    label,
                    error: None,
                });
            }
            Err(bad) => self.refuse_line(line, sample.id.as_deref(), &bad),
        }
    }

    fn refuse_line(&mut self, line: &Line, id: Option<&str>, bad: &dyn std::error::Error) {
        self.counts.bad_lines += 1;
        let (number, count) = (line.number, self.counts.bad_lines);
        // Ever more rarely, so that a broken sensor doesn't fill the log.
        if count <= 10 || count.is_power_of_two() {
            warn!(line = number, bad_lines = count, "a line was not taken: {bad}");
        }
        let error = Some(bad.to_string());
        self.output.write(&Written { line: number, id, answer: None, label: None, error });
    }

    fn reading(&self) -> Option<Reading> {
        let bookmark = self.input.bookmark()?;
        let header = self.rows.header().map(<[u8]>::to_vec).or_else(|| self.header.clone());
        Some(Reading { path: self.settings.samples.path.clone(), bookmark, header })
    }

    /// Begins to save, if there is something new and nothing is being saved.
    fn save(&mut self) {
        let Some(node) = self.node.as_ref().filter(|_| self.saving.is_due && self.saving.task.is_none())
        else {
            return;
        };
        let snapshot = self.file.snapshot(&node.engine, self.reading());
        self.saving.is_due = false;
        self.saving.task = Some(tokio::task::spawn_blocking(move || snapshot.write()));
    }

    fn saved(&mut self, outcome: Result<(), FileError>) {
        self.saving.task = None;
        let trouble = outcome.err().map(|error| error.to_string());
        if trouble.is_some() {
            self.saving.is_due = true;
        }
        if trouble != self.saving.trouble {
            match &trouble {
                Some(trouble) => error!("the node's state could not be saved: {trouble}"),
                None => info!("the node's state can be saved again"),
            }
        }
        self.saving.trouble = trouble;
    }

    /// Marks what is kept as changed.
    pub(super) fn changed(&mut self) {
        self.saving.is_due = true;
    }
}

/// What a sample asks for.
pub(super) fn take(engine: &mut Engine, sample: &Sample) -> Result<Answer, BadInput> {
    match (&sample.id, &sample.x, sample.y) {
        (_, Some(x), Some(y)) => engine.learn(x, y),
        (None, Some(x), None) => engine.predict(x),
        (Some(id), Some(x), None) => engine.predict_later(id, x),
        (Some(id), None, Some(y)) => engine.learn_by_id(id, y),
        // Samples have inputs, or an id and a label.
        (_, None, _) => Err(BadInput::WrongLength { expected: engine.plan().inputs(), found: 0 }),
    }
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

async fn saved(saving: &mut Option<JoinHandle<Result<(), FileError>>>) -> Result<(), FileError> {
    match saving {
        // A task that panicked or was ended has saved nothing; the next one will.
        Some(task) => task.await.unwrap_or(Ok(())),
        None => pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
