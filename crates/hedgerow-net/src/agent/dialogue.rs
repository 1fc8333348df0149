//! How an agent drives the session with its server.

use hedgerow::Node;
use hedgerow_data::schema::TableSchema;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::client::{ConnectError, Event};
use super::config::Pace;
use super::driver::{Agent, AgentError};
use super::local::LocalNode;
use super::rows::{Format, Rows};
use super::sample::Schema;
use super::state::StateError;
use crate::session::{FromNode, Joined, NodeSession, ServerNews};
use crate::transport::grpc::{ClientSender, Received};

/// The stream to the server, if there is one.
#[derive(Default)]
pub(super) struct ServerLink {
    pub(super) stream: Option<(NodeSession, ClientSender)>,
    /// What the node remembers of its run once it has heard a round.
    mark: Option<String>,
    /// Why there is none.
    pub(super) trouble: Option<ConnectError>,
}

impl ServerLink {
    pub(super) fn session(&self) -> Option<&NodeSession> {
        self.stream.as_ref().map(|(session, _)| session)
    }

    pub(super) fn session_mut(&mut self) -> Option<&mut NodeSession> {
        self.stream.as_mut().map(|(session, _)| session)
    }
}

impl Agent {
    pub(super) async fn take_event(&mut self, event: Event) -> Result<(), AgentError> {
        match event {
            Event::Up { joined, sender, certificate_end } => {
                self.certificate_end = certificate_end;
                self.welcomed(*joined, sender).await?;
            }
            Event::Heard(received) => self.hear(received),
            Event::Down { trouble, again_in } => {
                self.has_begun |= self.is_restored;
                self.link.stream = None;
                if let Some(local) = &mut self.node {
                    local.node.disconnected();
                }
                if self.settings.server.once {
                    return Err(AgentError::ConnectError(trouble));
                }
                let ms = again_in.as_millis() as u64;
                if let Some(detail) = trouble.detail() {
                    debug!("in detail: {detail}");
                }
                let is_known = |known: &ConnectError| known.to_string() == trouble.to_string();
                if trouble.is_lasting() {
                    error!(again_in_ms = ms, "{trouble}");
                } else if self.link.trouble.as_ref().is_some_and(is_known) {
                    debug!(again_in_ms = ms, "{trouble}");
                } else {
                    warn!(again_in_ms = ms, "{trouble}");
                }
                self.link.trouble = Some(trouble);
            }
        }
        Ok(())
    }

    async fn welcomed(&mut self, joined: Joined, sender: ClientSender) -> Result<(), AgentError> {
        let Joined { run, number, plan, .. } = &joined;
        let fits = |LocalNode { node, .. }: &LocalNode| {
            joined.is_of(node.run()) && node.id() == *number && node.plan() == plan
        };
        if !self.node.as_ref().is_some_and(fits) {
            self.begin(&joined).await?;
        }
        let Some(LocalNode { node, .. }) = &mut self.node else { return Ok(()) };
        // A node in step answers when it has learned enough.
        let is_patient = self.settings.samples.pace != Pace::Round || self.has_input_ended;
        let patience = is_patient.then_some(self.settings.samples.patience.0);
        let session = NodeSession::new(node, patience);
        let mark = joined.mark();
        let mark = (node.run() != mark).then_some(mark);
        if mark.is_some() {
            warn!("the run was set back: the node goes on from the server's round");
            node.set_back();
        }
        info!(run, number, round = node.round(), "connected");
        self.counts.connections += 1;
        self.link = ServerLink { stream: Some((session, sender)), mark, trouble: None };
        Ok(())
    }

    /// Begins a run; the state of another run is set aside.
    async fn begin(&mut self, joined: &Joined) -> Result<(), StateError> {
        let Joined { run, number, plan, .. } = joined;
        self.finish_saving().await;
        if let Some(aside) = self.file.set_aside()? {
            warn!(file = %aside.display(), "the node's state belongs to another run: it is set aside");
            if let Some(bookmark) = self.input.bookmark() {
                // The writer of the lines knows them already.
                info!(
                    line = bookmark.lines() + 1,
                    "the file is followed from where the other run stopped"
                );
            }
        }
        info!(run, number, method = %plan.config().method, inputs = plan.inputs(), "a new node of the run");
        let mut node = plan.node(*number);
        node.set_run(&joined.mark());
        self.node = Some(self.with_schema(node)?);
        self.run.send_replace(run.clone());
        (self.is_restored, self.has_begun) = (false, false);
        self.saving.is_due = true;
        self.save();
        Ok(())
    }

    pub(super) fn with_schema(&mut self, mut node: Node) -> Result<LocalNode, StateError> {
        // In step, samples before the first scale only make the scale, as in a simulation.
        node.hold_unscaled(self.settings.samples.pace != Pace::Round);
        node.set_level(self.settings.samples.interval);
        // Plans were checked when they came; a file may say anything.
        let table = TableSchema::of_plan(node.plan().config());
        let table = table.map_err(|reason| self.file.unfit(reason))?;
        let samples = &self.settings.samples;
        let schema = Schema::new(node.plan(), &table, samples.others, &samples.missing);
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
        let local = LocalNode::new(node, schema, table);
        local.tell_inputs();
        Ok(local)
    }

    fn hear(&mut self, (message, bytes): Received) {
        self.counts.message_bytes_down += bytes;
        // Messages of a stream that was given up are dropped.
        let (Some(local), Some((session, _))) = (&mut self.node, &mut self.link.stream) else {
            return;
        };
        let now = Instant::now().into_std();
        let heard = message.and_then(|message| session.receive(&mut local.node, &message, now));
        match heard {
            Ok(ServerNews::Round { lost_from }) => {
                if let Some(mark) = self.link.mark.take() {
                    local.node.set_run(&mark);
                }
                if let Some(known) = lost_from {
                    warn!(
                        known,
                        round = local.node.round(),
                        "the server has lost rounds: the node goes on from its"
                    );
                }
                self.has_begun = true;
            }
            Ok(ServerNews::Scale) => {}
            Ok(ServerNews::Refused { round, reason }) => {
                warn!(round, "the server refused a message: {reason}");
            }
            Err(rejected) => {
                // Out of step: a new stream begins anew.
                warn!("a message of the server was not taken: {rejected}");
                self.link.stream = None;
                return;
            }
        }
        self.saving.is_due = true;
    }

    /// Says what there is to say.
    pub(super) fn speak(&mut self, even_so: bool) {
        let (Some(local), Some((session, sender))) = (&mut self.node, &mut self.link.stream) else {
            return;
        };
        let (bytes_up, mut has_room) = (&mut self.counts.message_bytes_up, true);
        session.speak(&mut local.node, even_so, Instant::now().into_std(), |message| {
            let (bytes, is_sent) = sender.send(FromNode::Message(message));
            *bytes_up += bytes;
            has_room &= is_sent;
        });
        if !has_room {
            // The server has stopped reading.
            self.link.stream = None;
        }
    }
}
