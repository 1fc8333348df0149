//! Protocol messages: generated from `proto/hedgerow.proto`, and their conversion to and from the
//! core's types. Bytes from the network are untrusted until they have been converted here.

use bytes::{BufMut, Bytes, BytesMut};
use hedgerow::message::{Broadcast, Rejected, Selection};
use hedgerow::scaling::Scale;

/// Messages and services, generated from `proto/hedgerow.proto`; the test `generated` keeps the file
/// up to date.
#[expect(missing_docs, reason = "generated; the protocol file has the comments")]
pub mod wire {
    include!("generated/hedgerow.v1.rs");
}

pub use crate::session::VERSION;

/// Largest number of columns that a scale may come for.
const MAX_SCALE_BYTES: usize = 1 << 20;

/// Numbers as they travel when nothing is compressed: little-endian f32, one after the other.
pub fn numbers_to_bytes(numbers: &[f32]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(4 * numbers.len());
    numbers.iter().for_each(|number| bytes.put_f32_le(*number));
    bytes.freeze()
}

/// The reverse: at most `most` numbers. Whether they are sound is for the half to say that takes
/// them.
pub fn numbers_from_bytes(
    bytes: &[u8],
    most: usize,
    numbers: &mut Vec<f32>,
) -> Result<(), Rejected> {
    numbers.clear();
    let (whole, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(Rejected::Garbled { what: "numbers have four bytes each" });
    }
    if whole.len() > most {
        return Err(Rejected::WrongLength { expected: most, found: whole.len() });
    }
    numbers.extend(whole.iter().map(|bytes| f32::from_le_bytes(*bytes)));
    Ok(())
}

/// A broadcast that isn't compressed.
pub fn broadcast_to_wire(broadcast: &Broadcast) -> wire::Broadcast {
    wire::Broadcast { numbers: numbers_to_bytes(&broadcast.numbers), ..head_to_wire(broadcast) }
}

/// The same without its numbers.
pub fn head_to_wire(broadcast: &Broadcast) -> wire::Broadcast {
    let kernels =
        broadcast.kernels.map(|Selection { current, next }| wire::Selection { current, next });
    wire::Broadcast { round: broadcast.round, kernels, ..wire::Broadcast::default() }
}

/// The kernels that a broadcast names.
pub fn kernels_from_wire(broadcast: &wire::Broadcast) -> Option<Selection> {
    broadcast.kernels.map(|wire::Selection { current, next }| Selection { current, next })
}

/// A scale and its version.
pub fn scale_to_wire(version: u64, scale: &Scale) -> wire::Scale {
    // Writing to memory can't fail; were it to, nobody would take an empty scale.
    let bytes = postcard::to_stdvec(scale).unwrap_or_default();
    wire::Scale { version, scale: bytes.into() }
}

/// The reverse. Scales check themselves as they are read.
pub fn scale_from_wire(message: &wire::Scale) -> Result<(u64, Scale), Rejected> {
    if message.scale.len() > MAX_SCALE_BYTES {
        return Err(Rejected::Garbled { what: "the scale is too large" });
    }
    match postcard::take_from_bytes(&message.scale) {
        Ok((scale, [])) => Ok((message.version, scale)),
        _ => Err(Rejected::Garbled { what: "that is no scale" }),
    }
}

impl From<wire::from_node::Message> for wire::FromNode {
    fn from(message: wire::from_node::Message) -> Self {
        Self { message: Some(message) }
    }
}

impl From<wire::from_server::Message> for wire::FromServer {
    fn from(message: wire::from_server::Message) -> Self {
        Self { message: Some(message) }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn numbers_survive_and_odd_bytes_do_not() {
        let numbers = [0.0, -1.5, f32::MIN_POSITIVE, 1e30];
        let bytes = numbers_to_bytes(&numbers);
        let mut read = vec![9.0];
        numbers_from_bytes(&bytes, 4, &mut read).unwrap();
        assert_eq!(read, numbers);
        assert_eq!(
            numbers_from_bytes(&bytes, 3, &mut read),
            Err(Rejected::WrongLength { expected: 3, found: 4 })
        );
        assert!(read.is_empty());
        assert!(numbers_from_bytes(&bytes[1..], 4, &mut read).is_err());
    }

    #[test]
    fn scales_survive_and_others_are_refused() {
        let scale = Scale::from_ranges(&[(0.0, 10.0), (-1.0, 1.0)]).unwrap();
        let message = scale_to_wire(3, &scale);
        assert_eq!(scale_from_wire(&message), Ok((3, scale)));
        let mut longer = message.scale.to_vec();
        longer.push(0);
        for bytes in [vec![], message.scale[1..].to_vec(), longer, vec![255; MAX_SCALE_BYTES + 1]] {
            assert!(scale_from_wire(&wire::Scale { version: 3, scale: bytes.into() }).is_err());
        }
    }

    #[test]
    fn an_upload_of_a_hundred_numbers_fits_its_budget() {
        let upload = wire::Upload {
            round: 1 << 27,
            vote: Some(10),
            numbers: numbers_to_bytes(&[1.0; 100]),
            samples: 1,
            squared_error: 0.5,
        };
        let message = wire::FromNode::from(wire::from_node::Message::Upload(upload));
        // Five bytes of gRPC before a message, nine of HTTP/2 before those.
        let framed = message.encoded_len() + 5 + 9;
        assert!(framed <= 440, "{framed} bytes");
    }
}
