//! Nodes that say nothing: after some rounds that the deadline closed without them, rounds don't
//! wait for them.

use hedgerow::NodeId;

use super::Coordinator;
use super::events::Event;

impl Coordinator {
    /// The deadline closes a round: counts the nodes that were waited for in vain.
    pub(super) fn count_missing(&mut self) {
        let Some(most) = self.rules.silent_after else { return };
        for (number, member) in (0..).zip(&mut self.members) {
            if !member.is_connected() || member.is_idle || member.answered == self.turn {
                continue;
            }
            member.missed += 1;
            if member.missed < most {
                continue;
            }
            (member.is_idle, member.is_silent) = (true, true);
            self.idle += 1;
            let (node, missed) = (member.record.name.clone(), member.missed);
            self.events.note(Event::NodeSilent { node, number, missed });
        }
    }

    /// A node has said something: rounds wait for it again.
    pub(super) fn end_silence(&mut self, number: NodeId) {
        let member = &mut self.members[number as usize];
        if !std::mem::take(&mut member.is_silent) {
            return;
        }
        self.idle -= usize::from(std::mem::take(&mut member.is_idle));
        member.missed = 0;
        let node = member.record.name.clone();
        self.events.note(Event::NodeBack { node, number });
    }
}
