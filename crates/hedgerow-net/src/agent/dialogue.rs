//! How an agent and its server speak with each other: what a stream brings, and what is said on it.

use std::time::Duration;

use hedgerow::NodeId;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::config::Pace;
use super::driver::{Agent, AgentError, Node};
use super::engine::Engine;
use super::rows::{Format, Rows};
use super::sample::Schema;
use super::state::StateError;
use crate::learning::Plan;
use crate::transport::client::{ConnectError, Event};
use crate::transport::protocol::{FRAME, wire};

/// How long a node that plays in step waits for the first scale before it takes another sample:
/// perhaps too few have been seen.
const SCALE_WAIT: Duration = Duration::from_secs(2);

/// The stream to the server.
#[derive(Default)]
pub(super) struct ServerLink {
    pub(super) sender: Option<mpsc::Sender<wire::FromNode>>,
    /// Why there is none.
    pub(super) trouble: Option<ConnectError>,
    /// When the node answers with what it has.
    pub(super) answer_at: Option<Instant>,
    /// Until when a node without a scale waits for one before it takes another sample.
    pub(super) wait_until: Option<Instant>,
    /// Whether this stream has told which round is open.
    pub(super) has_heard: bool,
}

impl ServerLink {
    pub(super) fn is_up(&self) -> bool {
        self.sender.is_some()
    }
}

impl Agent {
    pub(super) async fn take_event(&mut self, event: Event) -> Result<(), AgentError> {
        match event {
            Event::Up { run, number, plan, sender } => {
                self.welcomed(&run, number, *plan, sender).await?
            }
            Event::Heard(message) => self.hear(&message),
            Event::Down { trouble, again_in } => {
                self.has_begun |= self.is_restored;
                self.link =
                    ServerLink { trouble: self.link.trouble.take(), ..ServerLink::default() };
                if let Some(node) = &mut self.node {
                    node.engine.disconnected();
                }
                if self.settings.server.once {
                    return Err(AgentError::ConnectError(trouble));
                }
                let ms = again_in.as_millis() as u64;
                if let Some(detail) = trouble.detail() {
                    debug!("in detail: {detail}");
                }
                if trouble.is_lasting() {
                    error!(again_in_ms = ms, "{trouble}");
                } else if self
                    .link
                    .trouble
                    .as_ref()
                    .is_some_and(|known| known.to_string() == trouble.to_string())
                {
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
        run: &str,
        number: NodeId,
        plan: Plan,
        sender: mpsc::Sender<wire::FromNode>,
    ) -> Result<(), AgentError> {
        let fits = |node: &Node| {
            let engine = &node.engine;
            engine.run() == run
                && engine.number() == number
                && engine.plan().learning() == plan.learning()
        };
        if !self.node.as_ref().is_some_and(fits) {
            self.begin(plan, run, number).await?;
        }
        if let Some(node) = &mut self.node {
            node.engine.connected();
            info!(run, number, round = node.engine.round(), "connected");
        }
        self.counts.connections += 1;
        self.link.sender = Some(sender);
        self.link.trouble = None;
        Ok(())
    }

    /// Begins a run; what belongs to another is set aside.
    async fn begin(&mut self, plan: Plan, run: &str, number: NodeId) -> Result<(), StateError> {
        self.finish_saving().await;
        if let Some(aside) = self.file.set_aside()? {
            warn!(file = %aside.display(), "the node's state belongs to another run: it is set aside");
            if let Some(bookmark) = self.input.bookmark() {
                // Its lines are no news to whoever writes them.
                info!(
                    line = bookmark.lines() + 1,
                    "the file is followed from where the other run stopped"
                );
            }
        }
        info!(run, number, method = ?plan.learning().method, inputs = plan.inputs(), "a new node of the run");
        self.node = Some(self.with_schema(Engine::new(plan, run, number)));
        self.run.send_replace(run.to_owned());
        (self.is_restored, self.has_begun) = (false, false);
        self.saving.is_due = true;
        self.save();
        Ok(())
    }

    pub(super) fn with_schema(&mut self, mut engine: Engine) -> Node {
        // In step, what comes before the first scale only makes it, as in a simulation.
        engine.hold_unscaled(self.settings.samples.pace != Pace::Round);
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
        Node::new(engine, schema)
    }

    fn hear(&mut self, message: &wire::FromServer) {
        self.counts.message_bytes_down += (message.encoded_len() + FRAME) as u64;
        // A stream that was given up has nothing more to say.
        let Some(node) = self.node.as_mut().filter(|_| self.link.sender.is_some()) else { return };
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
                (self.link.has_heard, self.has_begun) = (true, true);
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
        let is_patient = self.settings.samples.pace != Pace::Round || self.has_input_ended;
        is_patient.then(|| Instant::now() + self.settings.samples.patience.0)
    }

    /// Says what there is to say.
    pub(super) fn speak(&mut self, even_so: bool) {
        let (Some(node), Some(sender)) = (&mut self.node, &self.link.sender) else { return };
        node.engine.speak(even_so, &mut self.outbox);
        let mut is_behind = false;
        for message in self.outbox.drain(..) {
            self.counts.message_bytes_up += (message.encoded_len() + FRAME) as u64;
            if matches!(message.message, Some(wire::from_node::Message::Report(_)))
                && !node.engine.is_scaled()
            {
                self.link.wait_until = Some(Instant::now() + SCALE_WAIT);
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
}
