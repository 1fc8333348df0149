//! [`decode`]: bytes from a wire become numbers, or are refused.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use serde::de::DeserializeOwned;

use super::blocks::unpack;
use super::{Coding, Cost, Head, NumberFormat, Reference, SectionHead};
use crate::message::Rejected;
use crate::message::check_numbers;

/// Reads what [`super::Encoder::encode`] wrote. `known` must be what the sender knew: the broadcast
/// that opened the round of an upload, or the one before a broadcast; for [`super::Kind::Tracked`]
/// numbers what was last taken from this sender (a [`super::Reader`] knows both). Refuses whatever
/// no encoder writes, numbers beyond bounds, and messages of more than `most` numbers; then
/// `numbers` is empty.
pub fn decode(
    bytes: &[u8],
    known: &Reference,
    most: usize,
    numbers: &mut Vec<f32>,
) -> Result<Cost, Rejected> {
    decode_with(bytes, known, known, most, numbers, |_, _| ())
}

/// The same with a broadcast and with what was last taken from this sender. `tracked` is told the
/// slot and the numbers of each section that tells of changes, also of messages that turn out to be
/// garbled further on.
pub(super) fn decode_with(
    bytes: &[u8],
    broadcast: &Reference,
    taken: &Reference,
    most: usize,
    numbers: &mut Vec<f32>,
    tracked: impl FnMut(usize, &[f32]),
) -> Result<Cost, Rejected> {
    numbers.clear();
    let read = read(bytes, broadcast, taken, most, numbers, tracked);
    let read = read.and_then(|cost| check_numbers(numbers).map(|()| cost));
    if read.is_err() {
        numbers.clear();
    }
    read
}

fn read(
    bytes: &[u8],
    broadcast: &Reference,
    taken: &Reference,
    most: usize,
    numbers: &mut Vec<f32>,
    mut tracked: impl FnMut(usize, &[f32]),
) -> Result<Cost, Rejected> {
    let (head, mut rest): (Head, _) = take(bytes)?;
    if head.turn >= head.coding.part.get() {
        return Err(Rejected::Garbled { what: "it is nobody's turn" });
    }
    let mut cost = Cost::default();
    while !rest.is_empty() {
        let (section, body): (SectionHead, _) = take(rest)?;
        let (start, len) = (numbers.len(), section.len());
        if len > most - start {
            return Err(Rejected::WrongLength { expected: most, found: start.saturating_add(len) });
        }
        let format = head.coding.numbers;
        let (sent, after) = match section {
            SectionHead::Exact { .. } => (len, unpack(NumberFormat::F32, len, body, numbers)?),
            SectionHead::Whole { .. } => (len, unpack(format, len, body, numbers)?),
            SectionHead::Fine { .. } => (len, unpack(format.fine(), len, body, numbers)?),
            SectionHead::Change { slot, .. } => {
                let all = Head {
                    coding: Coding { numbers: format.tracking(), part: NonZeroU16::MIN },
                    turn: 0,
                };
                let read =
                    read_part(all, len, taken.model(slot).unwrap_or_default(), body, numbers)?;
                tracked(slot, &numbers[start..]);
                read
            }
            SectionHead::Sparse { .. } => read_part(head, len, &[], body, numbers)?,
            SectionHead::Difference { slot, .. } => {
                let model = broadcast
                    .model(slot)
                    .ok_or(Rejected::Garbled { what: "it differs from nothing" })?;
                read_part(head, len, model, body, numbers)?
            }
        };
        cost.numbers += sent as u64;
        cost.bytes += (body.len() - after.len()) as u64;
        rest = after;
    }
    Ok(cost)
}

/// Appends a section of which only some numbers came, as differences to `base` (zero beyond its
/// end), and says how many came.
fn read_part<'a>(
    head: Head,
    len: usize,
    base: &[f32],
    body: &'a [u8],
    numbers: &mut Vec<f32>,
) -> Result<(usize, &'a [u8]), Rejected> {
    let (start, sent) = (numbers.len(), head.positions(len).len());
    // What came goes behind the section, and from there to its places.
    numbers.extend_from_slice(&base[..len.min(base.len())]);
    numbers.resize(start + len, 0.0);
    let rest = unpack(head.coding.numbers, sent, body, numbers)?;
    let (section, came) = numbers[start..].split_at_mut(len);
    for (position, came) in head.positions(len).zip(came) {
        section[position] = head.coding.numbers.apply(section[position], *came);
    }
    numbers.truncate(start + len);
    Ok((sent, rest))
}

impl NumberFormat {
    /// What travels of a number that the other side believes to be `base`: itself if it can, or the
    /// difference.
    pub(super) fn difference(self, base: f32, number: f32) -> f32 {
        if self == Self::F32 { number } else { number - base }
    }

    /// The number that the other side makes of it.
    pub(super) fn apply(self, base: f32, came: f32) -> f32 {
        if self == Self::F32 { came } else { base + came }
    }
}

fn take<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), Rejected> {
    postcard::take_from_bytes(bytes)
        .map_err(|_| Rejected::Garbled { what: "a section has no beginning" })
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::super::{Encoder, Kind, Section};
    use super::*;

    fn known() -> Reference {
        let mut known = Reference::default();
        known.set(&[Section { len: 40, kind: Kind::Model { slot: 3 } }], &[0.5; 41]);
        known
    }

    /// A message with a section of each kind, 84 numbers in all.
    fn message(format: NumberFormat, part: u16) -> Vec<u8> {
        let kinds = [
            (1, Kind::Exact),
            (40, Kind::Model { slot: 3 }),
            (21, Kind::Model { slot: 0 }),
            (13, Kind::Steady { slot: 1 }),
            (7, Kind::Fresh),
        ];
        let sections = kinds.map(|(len, kind)| Section { len, kind });
        let numbers: Vec<f32> = (0..84).map(|i| (i as f32).cos()).collect();
        let coding = Coding { numbers: format, part: part.try_into().unwrap() };
        let mut bytes = vec![];
        Encoder::for_node(coding, 1, 0).encode(100, &sections, &numbers, &known(), &mut bytes);
        bytes
    }

    /// Any input is refused or gives at most this number of finite numbers.
    fn check(bytes: &[u8]) {
        let mut numbers = vec![f32::NAN; 3];
        match decode(bytes, &known(), 100, &mut numbers) {
            Ok(cost) => {
                assert!(numbers.len() <= 100 && check_numbers(&numbers).is_ok());
                assert!(cost.numbers <= 100 && cost.bytes as usize <= bytes.len());
            }
            Err(_) => assert!(numbers.is_empty()),
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            check(&bytes);
        }

        #[test]
        fn spoiled_messages_are_read_or_refused(
            format in 0usize..4,
            part in 1u16..5,
            spoils in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..6),
            len in any::<u16>(),
        ) {
            let mut bytes = message(NumberFormat::ALL[format], part);
            for (at, byte) in spoils {
                let at = usize::from(at) % bytes.len();
                bytes[at] = byte;
            }
            check(&bytes);
            bytes.truncate(usize::from(len) % bytes.len());
            check(&bytes);
        }
    }

    #[test]
    fn heads_that_nobody_writes_are_refused() {
        let sound = message(NumberFormat::Bits8, 2);
        let mut numbers = vec![];
        assert!(decode(&sound, &known(), 84, &mut numbers).is_ok() && numbers.len() == 84);
        let too_long = Err(Rejected::WrongLength { expected: 83, found: 84 });
        assert_eq!(decode(&sound, &known(), 83, &mut numbers), too_long);
        // The same without anything to differ from.
        let refused = decode(&sound, &Reference::default(), 84, &mut numbers).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the bytes of a message can't be read: it differs from nothing"
        );
        // Format, part and turn are the first three bytes.
        assert_eq!(sound[..3], [2, 2, 0]);
        for (at, byte) in [(0, 4), (1, 0), (2, 2)] {
            let mut spoiled = sound.clone();
            spoiled[at] = byte;
            assert!(decode(&spoiled, &known(), 84, &mut numbers).is_err(), "byte {at}");
        }
        // Nothing of a number would travel, but it isn't anybody's turn.
        let silent = postcard::to_allocvec(&SectionHead::Sparse { len: 1 }).unwrap();
        assert!(decode(&[&[2, 2, 1], &silent[..]].concat(), &known(), 84, &mut numbers).is_ok());
        assert!(decode(&[&[2, 2, 2], &silent[..]].concat(), &known(), 84, &mut numbers).is_err());
        let endless = postcard::to_allocvec(&SectionHead::Sparse { len: usize::MAX }).unwrap();
        assert!(
            decode(&[&[2, 200, 1, 0], &endless[..]].concat(), &known(), 84, &mut numbers).is_err()
        );
        assert!(decode(&[], &known(), 84, &mut numbers).is_err());
    }

    #[test]
    fn numbers_beyond_bounds_are_refused() {
        // A scale of 2¹²⁷ and a whole number of 127.
        let mut bytes = vec![2, 1, 0];
        bytes.extend(postcard::to_allocvec(&SectionHead::Whole { len: 1 }).unwrap());
        bytes.extend([0x00, 0x7f, 127]);
        let refused = decode(&bytes, &known(), 84, &mut vec![]).unwrap_err();
        assert!(matches!(refused, Rejected::OutOfBounds { position: 0, .. }), "{refused}");
    }
}
