//! Protocol messages and the sessions' own types. What comes from the network is not trusted until
//! it has been converted here.

use hedgerow::message::{
    BroadcastHead, BroadcastMessage, Errors, Numbers, Rejected, Report, ScaleMessage, Selection,
    ToNode, ToServer, UploadHead, UploadMessage,
};

use super::protocol::wire::{self, from_node, from_server};
use super::protocol::{numbers_from_bytes, numbers_to_bytes};
use crate::session::{FromNode, FromServer, Hello, Welcome};

/// Bytes of gRPC before each message.
pub(crate) const FRAME_BYTES: usize = 5;

const EMPTY_MESSAGE: Rejected = Rejected::Garbled { what: "an empty message" };

/// What a node sends.
pub fn from_node_to_wire(message: FromNode) -> wire::FromNode {
    let message = match message {
        FromNode::Hello(Hello { protocol, newest, name, run, software }) => {
            from_node::Message::Hello(wire::Hello { protocol, newest, name, run, software })
        }
        FromNode::Message(ToServer::Upload(UploadMessage { round, heads, errors, importance })) => {
            let mut heads = heads.into_iter().map(|UploadHead { vote, numbers }| {
                wire::UploadHead { vote, numbers: numbers_to_wire(numbers) }
            });
            let wire::UploadHead { vote, numbers } = heads.next().unwrap_or_default();
            let Errors { samples, squared_error } = errors;
            from_node::Message::Upload(wire::Upload {
                round,
                vote,
                numbers,
                samples,
                squared_error,
                more: heads.collect(),
                importance: numbers_to_bytes(&importance),
            })
        }
        FromNode::Message(ToServer::Report(Report { numbers })) => {
            from_node::Message::Report(wire::Report { numbers: numbers_to_bytes(&numbers) })
        }
        FromNode::Message(ToServer::Idle) => from_node::Message::Idle(wire::Idle {}),
    };
    wire::FromNode { message: Some(message) }
}

/// What a server receives. Numbers of uploads are compressed unless `is_plain_up`; at most `most`
/// come in a message.
pub fn from_node_from_wire(
    message: wire::FromNode,
    is_plain_up: bool,
    most: usize,
) -> Result<FromNode, Rejected> {
    Ok(match message.message.ok_or(EMPTY_MESSAGE)? {
        from_node::Message::Hello(wire::Hello { protocol, newest, name, run, software }) => {
            FromNode::Hello(Hello { protocol, newest, name, run, software })
        }
        from_node::Message::Upload(upload) => {
            let wire::Upload { round, vote, numbers, samples, squared_error, more, importance } =
                upload;
            let head = |wire::UploadHead { vote, numbers }| {
                let numbers = numbers_from_wire(&numbers, !is_plain_up, most)?;
                Ok(UploadHead { vote, numbers })
            };
            let heads = [wire::UploadHead { vote, numbers }].into_iter().chain(more).map(head);
            let (heads, errors) =
                (heads.collect::<Result<_, _>>()?, Errors { samples, squared_error });
            let bytes = importance;
            let mut importance = Vec::new();
            numbers_from_bytes(&bytes, most, &mut importance)?;
            ToServer::Upload(UploadMessage { round, heads, errors, importance }).into()
        }
        from_node::Message::Report(wire::Report { numbers: bytes }) => {
            let mut numbers = Vec::new();
            numbers_from_bytes(&bytes, most, &mut numbers)?;
            ToServer::Report(Report { numbers }).into()
        }
        from_node::Message::Idle(wire::Idle {}) => ToServer::Idle.into(),
    })
}

/// What a server sends.
pub fn from_server_to_wire(message: FromServer) -> wire::FromServer {
    let message = match message {
        FromServer::Welcome(Welcome { protocol, newest, run, node, learning, epoch }) => {
            from_server::Message::Welcome(wire::Welcome {
                protocol,
                newest,
                run,
                node,
                learning,
                epoch,
            })
        }
        FromServer::Message(ToNode::Broadcast(BroadcastMessage { round, heads, taken })) => {
            let is_compressed =
                |head: &BroadcastHead| matches!(head.numbers, Numbers::Compressed(_));
            let compressed = heads.first().is_some_and(is_compressed);
            let mut heads = heads.into_iter().map(|BroadcastHead { kernels, numbers }| {
                let kernels =
                    kernels.map(|Selection { current, next }| wire::Selection { current, next });
                wire::BroadcastHead { kernels, numbers: numbers_to_wire(numbers) }
            });
            let wire::BroadcastHead { kernels, numbers } = heads.next().unwrap_or_default();
            from_server::Message::Broadcast(wire::Broadcast {
                round,
                kernels,
                numbers,
                compressed,
                taken,
                more: heads.collect(),
            })
        }
        FromServer::Message(ToNode::Scale(ScaleMessage { version, scale })) => {
            from_server::Message::Scale(wire::Scale { version, scale: scale.into() })
        }
        FromServer::Refusal { round, reason } => {
            from_server::Message::Refusal(wire::Refusal { round, reason })
        }
    };
    wire::FromServer { message: Some(message) }
}

/// What a node receives. The transport bounds the bytes of a message, the node its numbers.
pub fn from_server_from_wire(message: wire::FromServer) -> Result<FromServer, Rejected> {
    Ok(match message.message.ok_or(EMPTY_MESSAGE)? {
        from_server::Message::Welcome(wire::Welcome {
            protocol,
            newest,
            run,
            node,
            learning,
            epoch,
        }) => FromServer::Welcome(Welcome { protocol, newest, run, node, learning, epoch }),
        from_server::Message::Broadcast(broadcast) => {
            let wire::Broadcast { round, kernels, numbers, compressed, taken, more } = broadcast;
            let head = |wire::BroadcastHead { kernels, numbers }| {
                let kernels =
                    kernels.map(|wire::Selection { current, next }| Selection { current, next });
                let numbers = numbers_from_wire(&numbers, compressed, usize::MAX)?;
                Ok(BroadcastHead { kernels, numbers })
            };
            let heads =
                [wire::BroadcastHead { kernels, numbers }].into_iter().chain(more).map(head);
            let heads = heads.collect::<Result<_, _>>()?;
            ToNode::Broadcast(BroadcastMessage { round, heads, taken }).into()
        }
        from_server::Message::Scale(wire::Scale { version, scale }) => {
            ToNode::Scale(ScaleMessage { version, scale: scale.into() }).into()
        }
        from_server::Message::Refusal(wire::Refusal { round, reason }) => {
            FromServer::Refusal { round, reason }
        }
    })
}

fn numbers_to_wire(numbers: Numbers) -> bytes::Bytes {
    match numbers {
        Numbers::Plain(numbers) => numbers_to_bytes(&numbers),
        Numbers::Compressed(bytes) => bytes.into(),
    }
}

fn numbers_from_wire(bytes: &[u8], compressed: bool, most: usize) -> Result<Numbers, Rejected> {
    if compressed {
        return Ok(Numbers::Compressed(bytes.to_vec()));
    }
    let mut numbers = Vec::new();
    numbers_from_bytes(bytes, most, &mut numbers)?;
    Ok(Numbers::Plain(numbers))
}
