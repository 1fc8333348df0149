//! [`Reader`]: what must be remembered of one sender to read its compressed messages.

use alloc::vec::Vec;

use super::decoder::decode_with;
use super::{Cost, Reference};
use crate::message::Rejected;

/// Reads the messages that one sender's [`super::Encoder`] wrote, without knowing their sections.
/// It keeps no more than a message's numbers, whatever the messages say.
///
/// ```
/// use hedgerow::codec::{Coding, Encoder, Kind, NumberFormat, Reader, Reference, Section};
///
/// let coding = Coding { numbers: NumberFormat::F16, ..Coding::default() };
/// let mut encoder = Encoder::for_node(coding, 1, 0);
/// let (mut reader, broadcast) = (Reader::default(), Reference::default());
/// let sections = [Section { len: 2, kind: Kind::Tracked { slot: 0 } }];
/// let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
/// for round in 1..5 {
///     encoder.encode(round, &sections, &[1.0, 1.0 / 3.0], &broadcast, &mut bytes);
///     reader.read(&bytes, &broadcast, 2, &mut numbers)?;
///     // The server accepted it, so the next message has only the difference to it.
///     encoder.acknowledge();
///     reader.acknowledge();
/// }
/// assert!((numbers[1] - 1.0 / 3.0).abs() < 1e-7); // half precision alone would have been 1e-4
/// # Ok::<(), hedgerow::message::Rejected>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Reader {
    /// What was last taken of the numbers that are tracked.
    known: Reference,
    /// The same once the latest message is taken; empty if it has none of them.
    next: Reference,
}

impl Reader {
    /// Of a sender from which this was taken last.
    pub(super) fn knowing(known: Reference) -> Self {
        Self { known, next: Reference::default() }
    }

    /// Reads a message. `broadcast` must be the one that its sender knew: that which opened the
    /// round of an upload. Refuses whatever no encoder writes, numbers beyond bounds, and messages
    /// of more than `most` numbers; then `numbers` is empty. Until [`Reader::acknowledge`] is
    /// called nothing has happened: messages may be read in vain.
    pub fn read(
        &mut self,
        bytes: &[u8],
        broadcast: &Reference,
        most: usize,
        numbers: &mut Vec<f32>,
    ) -> Result<Cost, Rejected> {
        let Self { known, next } = self;
        next.clear();
        let read = decode_with(bytes, broadcast, known, most, numbers, |slot, tracked| {
            next.push(slot, tracked)
        });
        match read {
            Ok(_) => next.sort(),
            Err(_) => next.clear(),
        }
        read
    }

    /// The message that was read last was taken: the next one may tell what has changed since.
    pub fn acknowledge(&mut self) {
        if !self.next.is_empty() {
            core::mem::swap(&mut self.known, &mut self.next);
            self.next.clear();
        }
    }

    /// Forgets what was taken: the sender is in another scale, or begins afresh.
    pub fn forget(&mut self) {
        self.known.clear();
        self.next.clear();
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU16;

    use proptest::prelude::*;

    use super::super::{Coding, Encoder, Kind, NumberFormat, Section, SectionHead};
    use super::*;

    fn encoder() -> Encoder {
        let coding = Coding { numbers: NumberFormat::F16, part: NonZeroU16::MIN };
        Encoder::for_node(coding, 1, 0)
    }

    fn broadcast() -> Reference {
        let mut broadcast = Reference::default();
        broadcast.set(&[Section { len: 3, kind: Kind::Model { slot: 0 } }], &[0.5; 3]);
        broadcast
    }

    /// A model that differs from the broadcast and two tracked sections, one with its slot; numbers
    /// beyond them are exact.
    const SECTIONS: [Section; 3] = [
        Section { len: 3, kind: Kind::Model { slot: 0 } },
        Section { len: 2, kind: Kind::Tracked { slot: 9 } },
        Section { len: 1, kind: Kind::Tracked { slot: 0 } },
    ];

    #[test]
    fn models_differ_from_the_broadcast_and_tracked_numbers_from_what_was_taken() {
        let (mut encoder, mut reader, broadcast) = (encoder(), Reader::default(), broadcast());
        let (mut bytes, mut numbers) = (vec![], vec![]);
        let sent = [0.7, 0.6, 0.5, 1.0 / 3.0, 3.3, 5.7, 0.1];
        let mut errors = vec![];
        for round in 1..6 {
            let cost = encoder.encode(round, &SECTIONS, &sent, &broadcast, &mut bytes);
            for _ in 0..2 {
                assert_eq!(reader.read(&bytes, &broadcast, 7, &mut numbers), Ok(cost));
            }
            assert_eq!(numbers[6], sent[6]);
            errors.push((3..6).map(|at| (numbers[at] - sent[at]).abs()).fold(0.0, f32::max));
            // A message that was lost is made up for by the next.
            if round != 2 {
                encoder.acknowledge();
                reader.acknowledge();
            }
        }
        assert!(errors[0] > 1e-4 && errors[1..].iter().all(|error| *error < 2e-6), "{errors:?}");
        // Both forget, and begin again.
        encoder.forget();
        reader.forget();
        encoder.encode(1, &SECTIONS, &sent, &broadcast, &mut bytes);
        reader.read(&bytes, &broadcast, 7, &mut numbers).unwrap();
        assert!((numbers[5] - sent[5]).abs() > 1e-4, "{numbers:?}");
    }

    #[test]
    fn an_encoder_makes_the_reader_that_read_it() {
        let (mut encoder, mut reader, broadcast) = (encoder(), Reader::default(), broadcast());
        let (mut bytes, mut numbers, mut again) = (vec![], vec![], vec![]);
        let sent = [0.7, 0.6, 0.5, 1.0 / 3.0, 3.3, 5.7];
        // Sections come and go: what the last message didn't track is forgotten on both sides.
        for (round, sections) in
            [&SECTIONS[..], &SECTIONS[..2], &SECTIONS[..1], &SECTIONS].iter().enumerate()
        {
            encoder.encode(round as u64 + 1, sections, &sent, &broadcast, &mut bytes);
            reader.read(&bytes, &broadcast, 6, &mut numbers).unwrap();
            encoder.reader().read(&bytes, &broadcast, 6, &mut again).unwrap();
            assert_eq!(numbers, again);
            encoder.acknowledge();
            reader.acknowledge();
        }
        assert!(
            (numbers[3] - sent[3]).abs() < 1e-6 && (numbers[5] - sent[5]).abs() > 1e-4,
            "{numbers:?}"
        );
    }

    #[test]
    fn what_was_refused_is_not_taken() {
        let (mut encoder, mut reader, broadcast) = (encoder(), Reader::default(), broadcast());
        let (mut bytes, mut numbers) = (vec![], vec![]);
        encoder.encode(1, &SECTIONS, &[0.1; 6], &broadcast, &mut bytes);
        reader.read(&bytes, &broadcast, 6, &mut numbers).unwrap();
        assert!(reader.read(&bytes, &broadcast, 5, &mut numbers).is_err() && numbers.is_empty());
        assert!(
            reader.read(&bytes, &Reference::default(), 6, &mut numbers).is_err()
                && numbers.is_empty()
        );
        reader.acknowledge();
        assert!(reader.known.is_empty() && reader.next.is_empty());
    }

    #[test]
    fn hostile_slots_cost_no_memory() {
        let mut bytes = vec![1, 1, 0];
        for at in 0..1000 {
            let slot = usize::MAX - at % 7;
            bytes
                .extend(postcard::to_allocvec(&SectionHead::Change { len: at % 2, slot }).unwrap());
            if at % 2 == 1 {
                // A scale of one and a half of one.
                bytes.extend([0, 0, 0, 0x3c]);
            }
        }
        let mut reader = Reader::default();
        let mut numbers = vec![];
        for _ in 0..3 {
            reader.read(&bytes, &Reference::default(), 500, &mut numbers).unwrap();
            reader.acknowledge();
        }
        assert_eq!(
            (numbers.len(), reader.known.numbers.len(), reader.known.ranges.len()),
            (500, 500, 500)
        );
        assert!(reader.read(&bytes, &Reference::default(), 499, &mut numbers).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(messages in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..60), 1..5,
        )) {
            let (mut reader, broadcast) = (Reader::default(), broadcast());
            let mut numbers = vec![];
            for mut bytes in messages {
                // A head that is one, and then anything.
                bytes.splice(..0, [1, 1, 0, 5]);
                let read = reader.read(&bytes, &broadcast, 30, &mut numbers);
                prop_assert!(numbers.len() <= 30 && (read.is_ok() || numbers.is_empty()));
                reader.acknowledge();
                prop_assert!(reader.known.numbers.len() <= 30);
            }
        }
    }
}
