//! Protocol messages: generated from `proto/hedgerow.proto`, and their conversion to and from the
//! core's types. Bytes from the network are untrusted until they have been converted here.

use bytes::{BufMut, Bytes, BytesMut};
use hedgerow::message::Rejected;

/// Messages and services, generated from `proto/hedgerow.proto`; the test `generated` keeps the
/// file up to date.
#[expect(missing_docs, reason = "generated; the protocol file has the comments")]
pub mod wire {
    include!("generated/hedgerow.v1.rs");
}

pub use crate::session::{OLDEST, VERSION};

/// Numbers as they travel when nothing is compressed: little-endian f32, one after the other.
pub fn numbers_to_bytes(numbers: &[f32]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(4 * numbers.len());
    numbers.iter().for_each(|number| bytes.put_f32_le(*number));
    bytes.freeze()
}

/// The reverse: at most `most` numbers. The node or the server that takes them checks their values.
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
    fn an_upload_of_a_hundred_numbers_fits_its_budget() {
        let upload = wire::Upload {
            round: 1 << 27,
            vote: Some(10),
            numbers: numbers_to_bytes(&[1.0; 100]),
            samples: 1,
            squared_error: 0.5,
            more: Vec::new(),
            importance: Bytes::new(),
        };
        let message = wire::FromNode::from(wire::from_node::Message::Upload(upload));
        // Five bytes of gRPC before a message, nine of HTTP/2 before those.
        let framed = message.encoded_len() + 5 + 9;
        assert!(framed <= 440, "{framed} bytes");
    }
}
