//! Nodes whose uploads look wrong, where the aggregation compares them.

use std::collections::BTreeMap;
use std::mem;

use hedgerow::server::Suspect;
use hedgerow::{NodeId, Server};

use super::Coordinator;
use super::events::Event;

/// Nodes whose uploads look wrong.
pub(super) type Suspects = BTreeMap<NodeId, Suspect>;

/// The nodes that a server suspects by more than chance.
pub(super) fn suspects(server: &Server) -> Suspects {
    let suspicious = server.suspects().filter(|(_, suspect)| suspect.is_suspicious());
    suspicious.map(|(node, suspect)| (node, *suspect)).collect()
}

impl Coordinator {
    /// What looks wrong in the uploads of a node; none if nothing does.
    pub fn suspect(&self, number: NodeId) -> Option<&Suspect> {
        self.suspects.get(&number)
    }

    /// Notes whose uploads look wrong after a round, and whose don't any more.
    pub(super) fn note_suspects(&mut self, server: &Server) {
        let before = mem::replace(&mut self.suspects, suspects(server));
        let Self { suspects, members, events, .. } = self;
        let name = |number: NodeId| {
            members.get(number as usize).map_or_else(String::new, |node| node.record.name.clone())
        };
        for (&number, suspect) in &*suspects {
            let (node, reason) = (name(number), suspect.difference.to_string());
            match before.get(&number) {
                Some(known) if known.is_excluded || !suspect.is_excluded => {}
                _ if suspect.is_excluded => {
                    events.note(Event::NodeExcluded { node, number, reason });
                }
                _ => events.note(Event::NodeSuspect { node, number, reason }),
            }
        }
        for number in before.into_keys().filter(|number| !suspects.contains_key(number)) {
            events.note(Event::NodeCleared { node: name(number), number });
        }
    }
}
