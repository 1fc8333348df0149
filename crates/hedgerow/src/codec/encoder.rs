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
/// let sections = [Section { len: 99, kind: Kind::Model { slot: 0 } }]; // and one exact number after them
/// let numbers: Vec<f32> = (0..100).map(|i| (i as f32).sin()).collect();
///
/// let (mut bytes, known) = (Vec::new(), Reference::default());
/// let cost = encoder.encode(1, &sections, &numbers, &known, &mut bytes);
/// assert_eq!((cost.numbers, cost.bytes), (100, 99 + 2 * 2 + 4)); // numbers, scales of two blocks, one exact number
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
mod tests {
    use core::num::NonZeroU16;

    use super::super::decode;
    use super::*;

    fn coding(numbers: NumberFormat, part: u16) -> Coding {
        Coding { numbers, part: NonZeroU16::new(part).unwrap() }
    }

    fn numbers(seed: u64, count: usize) -> Vec<f32> {
        let stream = CounterRng::from_seed(seed);
        (0..count as u64).map(|at| stream.uniform_at(at) as f32 - 0.5).collect()
    }

    /// Sends a message of one section and takes it.
    fn send(
        encoder: &mut Encoder,
        round: u64,
        kind: Kind,
        numbers: &[f32],
        known: &Reference,
    ) -> Vec<f32> {
        let (mut bytes, mut read) = (vec![], vec![]);
        let sections = [Section { len: numbers.len(), kind }];
        let cost = encoder.encode(round, &sections, numbers, known, &mut bytes);
        assert_eq!(decode(&bytes, known, numbers.len(), &mut read), Ok(cost));
        encoder.acknowledge();
        read
    }

    #[test]
    fn what_is_owed_keeps_the_mean_over_time() {
        const ROUNDS: u64 = 200;
        let (numbers, known) = (numbers(1, 100), Reference::default());
        for coding in
            NumberFormat::ALL.into_iter().flat_map(|format| [1, 3].map(|part| coding(format, part)))
        {
            let mut encoder = Encoder::for_node(coding, 1, 2);
            let mut sums = vec![0.0; 100];
            for round in 100..100 + ROUNDS {
                let read = send(&mut encoder, round, Kind::Steady { slot: 0 }, &numbers, &known);
                sums.iter_mut().zip(read).for_each(|(sum, read)| *sum += f64::from(read));
            }
            // At most a few units and turns are missing, however many rounds there were.
            let unit = if coding.numbers == NumberFormat::Bits4 { 0.25 } else { 0.02 };
            for (sum, number) in sums.iter().zip(&numbers) {
                let missing = (sum - ROUNDS as f64 * f64::from(*number)).abs();
                let waits = f64::from(coding.part.get() - 1) * f64::from(number.abs());
                assert!(missing <= unit + waits, "{coding:?}: {missing} of {number}");
            }
        }
    }

    #[test]
    fn fresh_numbers_owe_nothing_and_have_half_precision() {
        let (numbers, known) = (numbers(1, 100), Reference::default());
        for format in NumberFormat::ALL {
            let mut encoder = Encoder::for_node(coding(format, 3), 1, 0);
            let mut sums = vec![0.0; 100];
            for round in 0..200 {
                let read = send(&mut encoder, round, Kind::Fresh, &numbers, &known);
                // Eleven binary digits of a half.
                assert!(
                    read.iter()
                        .zip(&numbers)
                        .all(|(read, number)| (read - number).abs() <= 0.5 / 2048.0)
                );
                assert_eq!(
                    read == numbers,
                    matches!(format, NumberFormat::F32 | NumberFormat::F16)
                );
                sums.iter_mut().zip(read).for_each(|(sum, read)| *sum += f64::from(read) / 200.0);
            }
            assert!(encoder.state.slots.is_empty());
            // Five standard deviations of a mean of 200.
            let near = sums
                .iter()
                .zip(&numbers)
                .all(|(mean, number)| (mean - f64::from(*number)).abs() < 1e-4);
            assert!(near, "{sums:?}");
        }
    }

    #[test]
    fn numbers_rounds_and_senders_have_chances_of_their_own() {
        // Each number but the first is a third of a unit above zero.
        let mut numbers = [1.0 / 21.0; 64];
        numbers[0] = 1.0;
        let (coding, known) = (coding(NumberFormat::Bits4, 1), Reference::default());
        let ups = |encoder: &mut Encoder, round| -> Vec<usize> {
            // A slot of its own, so that nothing is owed.
            let read = send(encoder, round, Kind::Model { slot: round as usize }, &numbers, &known);
            (1..64).filter(|at| read[*at] > 0.0).collect()
        };
        let mut node = Encoder::for_node(coding, 1, 0);
        let first = ups(&mut node, 1);
        assert!((8..35).contains(&first.len()), "{first:?}");
        let others = [
            ups(&mut node, 2),
            ups(&mut Encoder::for_node(coding, 1, 1), 1),
            ups(&mut Encoder::for_node(coding, 2, 0), 1),
            ups(&mut Encoder::for_server(coding, 1), 1),
        ];
        assert!(others.iter().all(|other| *other != first));
        assert_eq!(ups(&mut Encoder::for_node(coding, 1, 0), 1), first);
    }

    #[test]
    fn a_model_that_waits_stays_as_broadcast() {
        let (base, model) = (numbers(1, 10), numbers(2, 10));
        let mut known = Reference::default();
        known.set(&[Section { len: 10, kind: Kind::Model { slot: 4 } }], &base);
        let mut encoder = Encoder::for_node(coding(NumberFormat::F32, 2), 1, 1);
        // Node 1 starts with the odd numbers; the others come with the next message, without new
        // samples.
        let first = send(&mut encoder, 9, Kind::Model { slot: 4 }, &model, &known);
        for at in 0..10 {
            assert_eq!(first[at], if at % 2 == 1 { model[at] } else { base[at] });
        }
        known.set(&[Section { len: 10, kind: Kind::Model { slot: 4 } }], &first);
        let second = send(&mut encoder, 10, Kind::Model { slot: 4 }, &first, &known);
        let near = second.iter().zip(&model).all(|(read, model)| (read - model).abs() < 1e-6);
        assert!(near, "{second:?} is not {model:?}");
        // Where both sides know the model of another slot only, all of it travels.
        let third = send(&mut encoder, 11, Kind::Model { slot: 5 }, &base, &known);
        assert_eq!(third, base);
    }

    #[test]
    fn differences_are_rounded_by_their_own_size() {
        let base = numbers(1, 98);
        let model: Vec<f32> =
            base.iter().zip(numbers(2, 98)).map(|(base, step)| base + 1e-3 * step).collect();
        let mut known = Reference::default();
        known.set(&[Section { len: 98, kind: Kind::Model { slot: 0 } }], &base);
        let mut encoder = Encoder::for_server(coding(NumberFormat::Bits4, 1), 1);
        let read = send(&mut encoder, 9, Kind::Model { slot: 0 }, &model, &known);
        assert!(read.iter().zip(&model).all(|(read, model)| (read - model).abs() < 1e-3 / 7.0));
        assert!(read != model);
    }

    #[test]
    fn what_is_owed_belongs_to_its_slot() {
        let known = Reference::default();
        let [one, two] = [1, 2].map(|seed| numbers(seed, 20));
        let coding = coding(NumberFormat::Bits4, 1);
        let mut both = Encoder::for_node(coding, 1, 0);
        let mut alone = both.clone();
        for round in 1..6 {
            send(&mut both, 2 * round, Kind::Model { slot: 0 }, &one, &known);
            let read = send(&mut both, 2 * round + 1, Kind::Model { slot: 7 }, &two, &known);
            assert_eq!(
                read,
                send(&mut alone, 2 * round + 1, Kind::Model { slot: 7 }, &two, &known)
            );
        }
    }

    #[test]
    fn nothing_happens_until_a_message_is_taken() {
        let known = Reference::default();
        let sections = [Section { len: 20, kind: Kind::Steady { slot: 1 } }];
        let mut encoder = Encoder::for_node(coding(NumberFormat::Bits4, 2), 1, 0);
        send(&mut encoder, 8, Kind::Steady { slot: 1 }, &numbers(1, 20), &known);
        let mut bytes = [vec![], vec![], vec![]];
        for (bytes, seed) in bytes.iter_mut().zip([2, 3, 2]) {
            encoder.encode(9, &sections, &numbers(seed, 20), &known, bytes);
        }
        assert_eq!(bytes[0], bytes[2]);
        assert_ne!(bytes[0], bytes[1]);
        // After a save and restore it continues in the same way.
        let mut copy = Encoder::for_node(coding(NumberFormat::Bits4, 2), 1, 0);
        copy.restore(&encoder.save()).unwrap();
        for encoder in [&mut encoder, &mut copy] {
            encoder.acknowledge();
        }
        let next = send(&mut encoder, 10, Kind::Steady { slot: 1 }, &numbers(4, 20), &known);
        assert_eq!(next, send(&mut copy, 10, Kind::Steady { slot: 1 }, &numbers(4, 20), &known));
        assert_ne!(
            encoder.encode(10, &sections, &numbers(4, 20), &known, &mut bytes[0]),
            Cost::default()
        );
        encoder.forget();
        assert!(
            encoder
                .state
                .slots
                .iter()
                .all(|slot| slot.owed.is_empty() && slot.owed_next.is_empty())
        );
    }

    #[test]
    fn sections_may_grow() {
        let mut known = Reference::default();
        let mut encoder = Encoder::for_node(coding(NumberFormat::Bits8, 2), 1, 0);
        for (round, len) in [(9, 5), (10, 5), (11, 90), (12, 200)] {
            let sections =
                [(3, Kind::Exact), (len, Kind::Steady { slot: 0 }), (len, Kind::Model { slot: 1 })];
            let sections = sections.map(|(len, kind)| Section { len, kind });
            // One number more than the sections have.
            let numbers = numbers(round, 2 * len + 4);
            let (mut bytes, mut read) = (vec![], vec![]);
            let cost = encoder.encode(round, &sections, &numbers, &known, &mut bytes);
            assert_eq!(decode(&bytes, &known, numbers.len(), &mut read), Ok(cost));
            encoder.acknowledge();
            assert_eq!(read.len(), numbers.len());
            assert_eq!((&read[..3], read.last()), (&numbers[..3], numbers.last()));
            known.set(&sections, &read);
        }
    }

    #[test]
    fn states_that_cannot_be_are_refused() {
        let mut encoder = Encoder::for_node(coding(NumberFormat::Bits4, 1), 1, 0);
        send(&mut encoder, 9, Kind::Steady { slot: 0 }, &numbers(1, 9), &Reference::default());
        let saved = encoder.save();
        encoder.state.slots[0].owed[3] = f32::NAN;
        let mut other = Encoder::for_node(coding(NumberFormat::Bits4, 1), 1, 0);
        assert!(other.restore(&encoder.save()).is_err());
        encoder.state.slots[0].owed[3] = 0.0;
        encoder.state.taken = u64::MAX;
        assert!(other.restore(&encoder.save()).is_err());
        (0..saved.len()).for_each(|len| assert!(other.restore(&saved[..len]).is_err()));
        other.restore(&saved).unwrap();
        assert_eq!(other.save(), saved);
    }
}
