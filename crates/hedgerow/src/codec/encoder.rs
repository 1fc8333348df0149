//! [`Encoder`]: the numbers of a message become bytes; what rounding or waiting left out is kept
//! for the next one.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::blocks::{Chance, pack, pack_exactly};
use super::{Coding, Cost, Head, Kind, NumberFormat, Reader, Reference, Section, SectionHead};
use crate::limits::MAX_NUMBER;
use crate::message::NodeId;
use crate::message::check_numbers;
use crate::random::{CounterRng, Purpose};
use crate::state::{BadState, StateKind, is_count};

const KIND: StateKind = StateKind::new("encoder");

/// Turns the messages of one sender into bytes.
///
/// ```
/// use hedgerow::codec::{Coding, Encoder, Kind, NumberFormat, Reference, Section, decode};
///
/// let coding = Coding { numbers: NumberFormat::Bits8, ..Coding::default() };
/// let mut encoder = Encoder::for_node(coding, 1, 0); // seed 1, node 0
/// // 99 numbers of a model; the number after them is exact.
/// let sections = [Section { len: 99, kind: Kind::Model { slot: 0 } }];
/// let numbers: Vec<f32> = (0..100).map(|i| (i as f32).sin()).collect();
///
/// let (mut bytes, known) = (Vec::new(), Reference::default());
/// let cost = encoder.encode(1, &sections, &numbers, &known, &mut bytes);
/// // Bytes of the numbers, of the scales of two blocks, and of the exact number.
/// assert_eq!((cost.numbers, cost.bytes), (100, 99 + 2 * 2 + 4));
///
/// let mut decoded = Vec::new();
/// decode(&bytes, &known, 100, &mut decoded)?;
/// encoder.acknowledge(); // errors are now those of this message
/// assert!(numbers.iter().zip(&decoded).all(|(sent, came)| (sent - came).abs() <= 0.008));
/// assert_eq!(numbers[99], decoded[99]);
/// # Ok::<(), hedgerow::message::Rejected>(())
/// ```
#[derive(Debug, Clone)]
pub struct Encoder {
    coding: Coding,
    chance: CounterRng,
    /// Where the turns start, so that nodes send different numbers.
    first_turn: u64,
    state: State,
    /// What travels of a section; scratch.
    values: Vec<f32>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct State {
    /// Messages that were taken.
    taken: u64,
    slots: Vec<Slot>,
}

/// What is still owed of one section.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Slot {
    owed: Vec<f32>,
    /// The same once the message under way is taken; empty if it has no such section.
    owed_next: Vec<f32>,
    /// What the other side made of the last message that was taken, and will make of the one under
    /// way, where that is tracked.
    told: Vec<f32>,
    told_next: Vec<f32>,
}

impl State {
    fn slot(&mut self, slot: usize) -> &mut Slot {
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, Slot::default);
        }
        &mut self.slots[slot]
    }
}

impl Encoder {
    /// For the uploads of a node.
    pub fn for_node(coding: Coding, seed: u64, node: NodeId) -> Self {
        Self::new(coding, seed, u64::from(node))
    }

    /// For the broadcasts of a server.
    pub fn for_server(coding: Coding, seed: u64) -> Self {
        Self::new(coding, seed, 1 << 32)
    }

    fn new(coding: Coding, seed: u64, owner: u64) -> Self {
        Self {
            coding,
            chance: CounterRng::from_seed(seed).derive(Purpose::Rounding, owner),
            first_turn: owner,
            state: State::default(),
            values: Vec::new(),
        }
    }

    /// Writes a message and says what it costs. Until [`Encoder::acknowledge`] is called nothing
    /// has happened: the same numbers give the same bytes, and other numbers take their place.
    ///
    /// # Panics
    /// If the sections are longer than the numbers.
    pub fn encode(
        &mut self,
        round: u64,
        sections: &[Section],
        numbers: &[f32],
        known: &Reference,
        out: &mut Vec<u8>,
    ) -> Cost {
        out.clear();
        for slot in &mut self.state.slots {
            slot.owed_next.clear();
            slot.told_next.clear();
        }
        let coding = self.coding.in_round(round);
        let turn = (self.first_turn + self.state.taken) % u64::from(coding.part.get());
        let head = Head { coding, turn: turn as u16 };
        write(&head, out);
        let mut message = Message {
            head,
            chance: Chance::new(self.chance.derive(Purpose::Rounding, round)),
            cost: Cost::default(),
            out,
        };
        let mut rest = numbers;
        for section in sections {
            let (own, after) = rest.split_at(section.len);
            rest = after;
            let kind = if self.coding.is_plain() { Kind::Exact } else { section.kind };
            match kind {
                Kind::Exact => message.exact(own),
                Kind::Fresh => {
                    self.values.clear();
                    self.values.extend_from_slice(own);
                    message.fine(&mut self.values);
                }
                Kind::Tracked { slot } => {
                    let known = self.state.slot(slot);
                    message.change(slot, own, known, &mut self.values);
                }
                Kind::Model { slot } | Kind::Steady { slot } => {
                    self.state.slot(slot);
                    let (section, base) = match (kind, known.model(slot)) {
                        (Kind::Model { .. }, Some(model)) => {
                            (SectionHead::Difference { len: own.len(), slot }, model)
                        }
                        (Kind::Model { .. }, None) => {
                            (SectionHead::Whole { len: own.len() }, &[][..])
                        }
                        _ => (SectionHead::Sparse { len: own.len() }, &[][..]),
                    };
                    message.owing(
                        section,
                        base,
                        own,
                        &mut self.state.slots[slot],
                        &mut self.values,
                    );
                }
            }
        }
        if !rest.is_empty() {
            message.exact(rest);
        }
        message.cost
    }

    /// The latest message arrived: from now on what it left out is owed.
    pub fn acknowledge(&mut self) {
        self.state.taken += 1;
        // Readers keep the tracked numbers of one message, the last that had any.
        let is_told = self.state.slots.iter().any(|slot| !slot.told_next.is_empty());
        for slot in &mut self.state.slots {
            let Slot { owed, owed_next, told, told_next } = slot;
            for (now, next, is_new) in [(owed, owed_next, false), (told, told_next, is_told)] {
                if is_new || !next.is_empty() {
                    core::mem::swap(now, next);
                    next.clear();
                }
            }
        }
    }

    /// Forgets what is owed and what was told: it was in another scale. The other side has to
    /// forget this sender's reference, too.
    pub fn forget(&mut self) {
        self.state.slots.iter_mut().for_each(|slot| *slot = Slot::default());
    }

    /// The other side's reader, as it is once it has read everything that was taken.
    pub fn reader(&self) -> Reader {
        let mut told = Reference::default();
        self.state.slots.iter().enumerate().for_each(|(at, slot)| told.push(at, &slot.told));
        Reader::knowing(told)
    }

    /// Everything that has to survive a restart.
    pub fn save(&self) -> Vec<u8> {
        KIND.save(&self.state)
    }

    /// Continues from a saved state. A refused state changes nothing.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        self.state = KIND.restore(saved, |state: &State| {
            let mut owed = state
                .slots
                .iter()
                .flat_map(|slot| [&slot.owed, &slot.owed_next, &slot.told, &slot.told_next]);
            is_count(state.taken) && owed.all(|numbers| check_numbers(numbers).is_ok())
        })?;
        Ok(())
    }
}

/// A message while it is written.
struct Message<'a> {
    head: Head,
    chance: Chance,
    cost: Cost,
    out: &'a mut Vec<u8>,
}

impl Message<'_> {
    fn exact(&mut self, numbers: &[f32]) {
        write(&SectionHead::Exact { len: numbers.len() }, self.out);
        let before = self.out.len();
        pack_exactly(numbers, self.out);
        self.count(numbers.len(), before);
    }

    /// Leaves in `values` what will be read.
    fn whole(&mut self, values: &mut [f32]) {
        write(&SectionHead::Whole { len: values.len() }, self.out);
        self.pack(self.head.coding.numbers, values);
    }

    fn fine(&mut self, values: &mut [f32]) {
        write(&SectionHead::Fine { len: values.len() }, self.out);
        self.pack(self.head.coding.numbers.fine(), values);
    }

    /// How numbers differ from what the other side was told.
    fn change(&mut self, slot: usize, numbers: &[f32], known: &mut Slot, values: &mut Vec<f32>) {
        write(&SectionHead::Change { len: numbers.len(), slot }, self.out);
        let format = self.head.coding.numbers.tracking();
        let Slot { told, told_next, .. } = known;
        let told = |at: usize| told.get(at).copied().unwrap_or(0.0);
        values.clear();
        values.extend(
            numbers.iter().enumerate().map(|(at, number)| format.difference(told(at), *number)),
        );
        self.pack(format, values);
        told_next.extend(values.iter().enumerate().map(|(at, read)| format.apply(told(at), *read)));
    }

    /// A section with what is owed from before; what this message leaves out is owed next.
    fn owing(
        &mut self,
        section: SectionHead,
        base: &[f32],
        numbers: &[f32],
        slot: &mut Slot,
        values: &mut Vec<f32>,
    ) {
        let Slot { owed, owed_next: due, .. } = slot;
        owed.resize(numbers.len(), 0.0);
        // What should be read: the number and what is owed of it. (Without the test -0 would become
        // 0.)
        due.extend(numbers.iter().zip(&*owed).map(|(number, owed)| {
            if *owed == 0.0 { *number } else { (number + owed).clamp(-MAX_NUMBER, MAX_NUMBER) }
        }));
        let (format, head) = (self.head.coding.numbers, self.head);
        let base = |position: usize| base.get(position).copied().unwrap_or(0.0);
        values.clear();
        if let SectionHead::Whole { .. } = section {
            values.extend_from_slice(due);
            self.whole(values);
            due.iter_mut().zip(values).for_each(|(due, read)| *due -= *read);
        } else {
            write(&section, self.out);
            let differences =
                head.positions(due.len()).map(|at| format.difference(base(at), due[at]));
            values.extend(differences);
            self.pack(format, values);
            let mut read = values.iter();
            let mut next = head.positions(due.len()).peekable();
            for (at, due) in due.iter_mut().enumerate() {
                let sent = if next.next_if_eq(&at).is_some() { read.next() } else { None };
                *due -= sent.map_or(base(at), |read| format.apply(base(at), *read));
            }
        }
        due.iter_mut().for_each(|due| *due = due.clamp(-MAX_NUMBER, MAX_NUMBER));
    }

    fn pack(&mut self, format: NumberFormat, values: &mut [f32]) {
        let before = self.out.len();
        pack(format, values, &mut self.chance, self.out);
        self.count(values.len(), before);
    }

    fn count(&mut self, numbers: usize, before: usize) {
        self.cost.numbers += numbers as u64;
        self.cost.bytes += (self.out.len() - before) as u64;
    }
}

/// Appends what stands in front of something.
#[expect(clippy::expect_used, reason = "a few whole numbers always fit")]
fn write(head: &impl Serialize, out: &mut Vec<u8>) {
    let mut buffer = [0; 32];
    out.extend_from_slice(postcard::to_slice(head, &mut buffer).expect("heads are short"));
}

#[cfg(test)]
mod tests;
