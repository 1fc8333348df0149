//! How the coordinator handles messages: it counts, checks, accepts or refuses them.

use std::time::Instant;

use hedgerow::NodeId;
use hedgerow::message::{Errors, Rejected, Report, Upload};

use super::messages::{Envelope, HearingResult, Refusal, Said, Sender, Sent, Verdict};
use super::{Asked, Coordinator, Ledger, Refused, WaitingMessage};

/// A burst may have the messages of so many seconds.
const BURST_SECONDS: f64 = 2.0;

/// A node reports whenever its samples have doubled: fewer times than this in all.
const REPORTS_AT_ONCE: f64 = 64.0;
const REPORTS_PER_SECOND: f64 = 0.1;

impl Coordinator {
    /// Takes a message, or refuses it without a change.
    pub fn hear(
        &mut self,
        sender: Sender,
        said: Said<'_>,
        envelope: Envelope,
        (now, at_ms): (Instant, u64),
    ) -> HearingResult {
        self.receive(sender, envelope, now, at_ms)
            .and_then(|()| self.take(sender.node, said, (now, at_ms)))
            .map_err(|reason| self.refuse(sender.node, reason))
    }

    fn take(
        &mut self,
        node: NodeId,
        said: Said<'_>,
        (now, at_ms): (Instant, u64),
    ) -> Result<Option<(Verdict, Ledger)>, Refused> {
        let verdict = match said {
            Said::Upload(uploads, errors, importance) => {
                let samples = self.members[node as usize].record.samples;
                let verdict = self.judge(node, uploads, (errors, importance), now)?;
                if matches!(verdict, Verdict::Taken | Verdict::Merged) {
                    self.answer(node, now);
                }
                let member = &mut self.members[node as usize];
                if member.record.samples > samples {
                    member.last_sample_ms = Some(at_ms);
                }
                Some(verdict)
            }
            Said::Report(report) => {
                self.take_report(node, report, now)?;
                None
            }
            Said::Idle => {
                self.end_silence(node);
                let member = &mut self.members[node as usize];
                // A node that has answered this round is expected to answer the next one.
                if member.answered != self.turn {
                    self.idle += usize::from(!std::mem::replace(&mut member.is_idle, true));
                }
                member.missed = 0;
                return Ok(None);
            }
            Said::Garbled(reason) => return Err(reason.into()),
        };
        self.end_silence(node);
        let member = &mut self.members[node as usize];
        member.bad = 0;
        Ok(verdict.map(|verdict| (verdict, member.ledger)))
    }

    pub(super) fn take_report(
        &mut self,
        node: NodeId,
        report: Report,
        now: Instant,
    ) -> Result<(), Refused> {
        if self.members[node as usize].is_quarantined() {
            return Ok(());
        }
        let Some(server) = &mut self.server else {
            WaitingMessage::keep(&mut self.waiting_reports, node, report, now);
            return Ok(());
        };
        // Nodes repeat their report on every connection.
        if !server.has_report(node, &report) {
            let bucket = &mut self.members[node as usize].report_bucket;
            if !bucket.take(REPORTS_PER_SECOND, REPORTS_AT_ONCE, now) {
                return Err(Refused::Reports);
            }
        }
        server.accept_report(node, &report)?;
        self.members[node as usize].mean_forecast_error = server.mean_forecast_error(node);
        self.has_scaling_news = true;
        // Before the first scale, a report is the node's answer to the round.
        if self.is_unscaled {
            self.answer(node, now);
        }
        Ok(())
    }

    /// Counts a message and checks its stream and its rate.
    fn receive(
        &mut self,
        sender: Sender,
        envelope: Envelope,
        now: Instant,
        at_ms: u64,
    ) -> Result<(), Refused> {
        self.count_sent(sender.node, envelope.sent);
        self.totals.messages_up += envelope.bytes;
        self.tally.bytes_up += envelope.bytes;
        let rate = self.limits.messages_per_second;
        let member = self.members.get_mut(sender.node as usize).ok_or(Refused::Replaced)?;
        member.record.bytes_up += envelope.bytes;
        if member.stream != Some(sender.stream) {
            return Err(Refused::Replaced);
        }
        member.record.last_seen_ms = at_ms;
        member.is_changed = true;
        let most = (BURST_SECONDS * f64::from(rate)).max(1.0);
        if member.bucket.take(f64::from(rate), most, now) {
            Ok(())
        } else {
            Err(Refused::Rate { bound: rate })
        }
    }

    pub(super) fn count_sent(&mut self, node: NodeId, Sent { bytes, broadcasts }: Sent) {
        self.totals.messages_down += bytes;
        self.totals.broadcasts += broadcasts;
        self.tally.bytes_down += bytes;
        if let Some(member) = self.members.get_mut(node as usize) {
            member.record.bytes_down += bytes;
        }
    }

    fn judge(
        &mut self,
        node: NodeId,
        uploads: &mut [Upload],
        (errors, importance): (Errors, &[f32]),
        now: Instant,
    ) -> Result<Verdict, Refused> {
        let Some(of) = uploads.first().map(|upload| upload.round) else {
            return Err(Rejected::WrongLength { expected: self.plan.outputs(), found: 0 }.into());
        };
        let open = self.round;
        if of <= self.members[node as usize].heard {
            return Err(Rejected::Duplicate { node, round: of }.into());
        }
        if of > open {
            return Err(Rejected::WrongRound { open, found: of }.into());
        }
        if self.members[node as usize].is_quarantined() {
            self.members[node as usize].heard = of;
            return Ok(Verdict::Ignored);
        }
        if self.is_unscaled {
            return Err(Rejected::Unscaled.into());
        }
        let is_late = of < open;
        let is_away = self.server.is_none();
        if is_away && !is_late {
            // Nobody was told of the open round yet.
            return Err(Rejected::WrongRound { open: self.opening.round, found: of }.into());
        }
        let may_merge = if is_away { self.merges() } else { self.can_merge(of) };
        if is_late && !may_merge {
            self.note(node, of, is_late);
            return Ok(Verdict::Late);
        }
        self.checks.check(uploads, errors)?;
        if is_away {
            // What the next round asks for is not known yet.
            WaitingMessage::keep(&mut self.waiting_uploads, node, uploads.to_vec(), now);
            self.note(node, of, is_late);
            return Ok(Verdict::Late);
        }
        // What a merged upload tells of columns is not acknowledged, either.
        let importance = if is_late { &[] } else { importance };
        let is_repeated = !self.accept(node, uploads, importance)?;
        self.note(node, of, is_late);
        if is_repeated && is_late {
            return Ok(Verdict::Late);
        }
        if is_repeated {
            // The first upload counts, but errors since then do too: they won't be sent again.
            let told = self.members[node as usize].told;
            let samples = errors.samples.saturating_sub(told.samples);
            let squared_error = (errors.squared_error - told.squared_error).max(0.0);
            self.count_errors(node, Errors { samples, squared_error });
            return Ok(Verdict::Repeated);
        }
        // A merged upload is not acknowledged: its errors come again with the next upload.
        self.count_errors(node, if is_late { Errors::default() } else { errors });
        let member = &mut self.members[node as usize];
        member.round = of;
        if is_late {
            return Ok(Verdict::Merged);
        }
        member.ledger.count(open);
        member.told = errors;
        self.acknowledged.insert(node);
        Ok(Verdict::Taken)
    }

    /// Merges an upload that came while the server was away, if the open round asks for the same.
    pub(super) fn merge_waiting(
        &mut self,
        node: NodeId,
        uploads: &mut [Upload],
        came_at: Instant,
    ) -> Result<(), Refused> {
        let of = uploads[0].round;
        let may_count = !self.members[node as usize].is_quarantined();
        if may_count && self.can_merge(of) && self.accept(node, uploads, &[])? {
            self.members[node as usize].round = of;
            self.answer(node, came_at);
        }
        Ok(())
    }

    /// Passes uploads to the server for the open round and counts them; false if the node has one
    /// there already.
    fn accept(
        &mut self,
        node: NodeId,
        uploads: &mut [Upload],
        importance: &[f32],
    ) -> Result<bool, Refused> {
        let Some(server) = &mut self.server else { return Ok(false) };
        uploads.iter_mut().for_each(|upload| upload.round = self.round);
        match server.accept_with(node, uploads, importance) {
            Ok(()) => {}
            Err(Rejected::Duplicate { .. }) => return Ok(false),
            Err(rejected) => return Err(rejected.into()),
        }
        self.tally.uploads += 1;
        if let Some(vote) = uploads[0].vote {
            let votes = &mut self.tally.votes;
            // A vote beyond the dictionary is refused before.
            votes.resize(self.plan.kernels(), 0);
            votes.get_mut(vote as usize).into_iter().for_each(|votes| *votes += 1);
        }
        self.members[node as usize].record.uploads += 1;
        Ok(true)
    }

    fn count_errors(&mut self, node: NodeId, errors: Errors) {
        self.tally.samples += u64::from(errors.samples);
        self.tally.squared_error += f64::from(errors.squared_error);
        self.members[node as usize].count(errors);
    }

    /// Notes an upload that wasn't refused. A refused one may be corrected and sent again.
    fn note(&mut self, node: NodeId, of: u64, is_late: bool) {
        let member = &mut self.members[node as usize];
        member.heard = of;
        if is_late {
            self.totals.late += 1;
            self.tally.late += 1;
            member.record.late += 1;
        }
    }

    pub(super) fn refuse(&mut self, node: NodeId, reason: Refused) -> Refusal {
        self.totals.refused += 1;
        self.tally.refused += 1;
        let mut is_last = reason == Refused::Replaced;
        if let Some(member) = self.members.get_mut(node as usize).filter(|_| !is_last) {
            member.record.refused += 1;
            member.bad += 1;
            is_last = member.bad >= self.limits.bad_messages;
        }
        Refusal { round: self.round, reason, is_last }
    }

    /// Counts a node's answer, once per turn.
    fn answer(&mut self, node: NodeId, now: Instant) {
        self.end_silence(node);
        let member = &mut self.members[node as usize];
        self.idle -= usize::from(member.expect());
        if member.answered != self.turn {
            member.answered = self.turn;
            self.answered += 1;
            self.answered_connected += usize::from(member.is_connected());
            self.first_answer.get_or_insert(now);
        }
    }

    /// Whether there are late uploads that count at all.
    fn merges(&self) -> bool {
        !self.asked.is_empty() && self.checks.uploads_are_models() && self.plan.is_plain_up()
    }

    /// Whether an upload of a round that has closed may count in the open one.
    fn can_merge(&self, round: u64) -> bool {
        let Some(open) = self.asked.back() else { return false };
        let same = |asked: &Asked| (asked.kernel, asked.scale) == (open.kernel, open.scale);
        self.merges() && self.asked.iter().any(|asked| asked.round == round && same(asked))
    }
}
