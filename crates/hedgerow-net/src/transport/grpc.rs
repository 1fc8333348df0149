//! gRPC over HTTP/2: moves messages between a stream and a session, on both sides.

use std::error::Error;
use std::io;
use std::task::{Poll, ready};
use std::time::Duration;

use futures_util::stream;
use hedgerow::message::Rejected;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};

use super::Connection;
use super::convert::{FRAME_BYTES, from_node_to_wire, from_server_from_wire};
use super::protocol::wire;
use crate::session::{ConnectError, FromNode, FromServer, Hello};

#[cfg(feature = "server")]
pub use server::{PATH, Service, service};

/// Most bytes of a message that a node sends or receives.
pub(crate) const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// Messages that may wait to be sent: a node says little, and waits for answers.
const MAX_UNSENT: usize = 64;

/// The messages of a server on a stream.
pub struct ClientStream {
    stream: Streaming<wire::FromServer>,
}

/// A stream that was opened.
pub struct Opened {
    /// Receives the server's messages.
    pub stream: ClientStream,
    /// Sends the node's messages.
    pub sender: ClientSender,
    /// Ends when the sender has been dropped and everything is sent. Nothing is ever received.
    pub silent: oneshot::Receiver<()>,
}

/// Sends a node's messages. The stream ends when it is dropped.
#[derive(Debug, Clone)]
pub struct ClientSender(mpsc::Sender<wire::FromNode>);

impl ClientSender {
    /// Sends a message: its bytes, and whether there was room. There is none if the server has
    /// stopped reading.
    pub fn send(&self, message: FromNode) -> (u64, bool) {
        let message = from_node_to_wire(message);
        let bytes = (message.encoded_len() + FRAME_BYTES) as u64;
        (bytes, self.0.try_send(message).is_ok())
    }
}

/// A message of the server, or why it can't be read, and its bytes.
pub type Received = (Result<FromServer, Rejected>, u64);

impl ClientStream {
    /// Opens a stream on a connection and says hello.
    pub async fn open(
        connection: Box<dyn Connection>,
        keep_alive: Duration,
        hello: Hello,
    ) -> Result<Opened, ConnectError> {
        // The name in the address is not used: the connection exists already.
        let endpoint = Endpoint::from_static("http://hedgerow")
            .http2_keep_alive_interval(keep_alive)
            .keep_alive_timeout(keep_alive)
            .keep_alive_while_idle(true);
        let mut connection = Some(connection);
        let once = tower::service_fn(move |_| {
            let connection =
                connection.take().ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted));
            std::future::ready(connection.map(TokioIo::new))
        });
        let broken = |error: tonic::transport::Error| ConnectError::broken(&error);
        let channel = endpoint.connect_with_connector(once).await.map_err(broken)?;
        let mut client = wire::federation_client::FederationClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let (sender, mut unsent) = mpsc::channel(MAX_UNSENT);
        let sender = ClientSender(sender);
        // The channel is empty: there is room.
        _ = sender.send(FromNode::Hello(hello));
        let (speaking, silent) = oneshot::channel();
        let mut speaking = Some(speaking);
        let outgoing = stream::poll_fn(move |context| {
            let message = ready!(unsent.poll_recv(context));
            if message.is_none() {
                drop(speaking.take());
            }
            Poll::Ready(message)
        });
        let answer = client.join(outgoing).await.map_err(|status| from_status(&status, true))?;
        Ok(Opened { stream: Self { stream: answer.into_inner() }, sender, silent })
    }

    /// The server's first message.
    pub async fn first(&mut self) -> Result<FromServer, ConnectError> {
        let message = self.stream.message().await.map_err(|status| from_status(&status, true))?;
        from_server_from_wire(message.ok_or(ConnectError::Ended)?)
            .map_err(|error| ConnectError::Foreign(error.to_string()))
    }

    /// The next message of the server.
    pub async fn next(&mut self) -> Result<Received, ConnectError> {
        match self.stream.message().await {
            Ok(Some(message)) => {
                let bytes = (message.encoded_len() + FRAME_BYTES) as u64;
                Ok((from_server_from_wire(message), bytes))
            }
            Ok(None) => Err(ConnectError::Ended),
            Err(status) => Err(from_status(&status, false)),
        }
    }
}

/// Why a stream ended, or was never begun.
fn from_status(status: &Status, is_joining: bool) -> ConnectError {
    let words = || status.message().to_owned();
    // What the server says has no cause on this side.
    let is_said = status.source().is_none() && !status.message().is_empty();
    match status.code() {
        Code::FailedPrecondition | Code::PermissionDenied | Code::Unauthenticated => {
            ConnectError::Refused(words())
        }
        Code::InvalidArgument if is_joining => ConnectError::Refused(words()),
        Code::Unimplemented => ConnectError::Foreign(words()),
        Code::Aborted if is_said => ConnectError::Replaced,
        Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded if is_said => {
            ConnectError::Dismissed(words())
        }
        code => {
            ConnectError::Broken { detail: format!("{code}: {}", ConnectError::causes(status)) }
        }
    }
}

#[cfg(feature = "server")]
mod server {
    use std::sync::Arc;

    use futures_util::StreamExt;
    use futures_util::stream::{BoxStream, unfold};
    use hedgerow::importance::ImportanceScope;
    use prost::Message;
    use tonic::{Code, Request, Response, Status, Streaming};

    use crate::serve::conversation::{Conversation, Ending, Failure};
    use crate::serve::hub::Hub;
    use crate::serve::listener::PeerConnection;
    use crate::session::CloseReason;
    use crate::transport::convert::{FRAME_BYTES, from_node_from_wire, from_server_to_wire};
    use crate::transport::protocol::wire;

    /// A message without numbers is never longer.
    const HEAD_BYTES: usize = 1024;

    /// The path of the service's methods, as routers write it.
    pub const PATH: &str = "/hedgerow.v1.Federation/{*method}";

    /// Serves the streams of nodes.
    pub type Service = wire::federation_server::FederationServer<Join>;

    /// The service of a hub, with its limits.
    pub fn service(hub: Arc<Hub>) -> Service {
        let is_shared = hub.plan().config().importance == ImportanceScope::Shared;
        let parts = hub.plan().outputs() + usize::from(is_shared);
        let most = match hub.limits().message_bytes {
            // Of the importance of columns there are fewer numbers than of a report.
            0 => parts * (4 * hub.plan().most_numbers() + HEAD_BYTES),
            most => most,
        };
        wire::federation_server::FederationServer::new(Join { hub }).max_decoding_message_size(most)
    }

    /// Lets nodes join.
    #[derive(Clone)]
    pub struct Join {
        hub: Arc<Hub>,
    }

    #[tonic::async_trait]
    impl wire::federation_server::Federation for Join {
        type JoinStream = BoxStream<'static, Result<wire::FromServer, Status>>;

        async fn join(
            &self,
            request: Request<Streaming<wire::FromNode>>,
        ) -> Result<Response<Self::JoinStream>, Status> {
            let peer = request.extensions().get::<Arc<PeerConnection>>().cloned();
            let peer = peer.ok_or_else(|| Status::internal("a connection without an address"))?;
            let plan = self.hub.plan();
            let (is_plain_up, most) = (plan.is_plain_up(), plan.most_numbers());
            let inbound = request.into_inner().map(move |message| {
                let message = message?;
                let bytes = (message.encoded_len() + FRAME_BYTES) as u64;
                Ok((from_node_from_wire(message, is_plain_up, most), bytes))
            });
            let conversation = Conversation::new(Arc::clone(&self.hub), peer, inbound.boxed());
            let next = async |mut conversation: Conversation<Status>| {
                let said = conversation.next().await?;
                let said = match said {
                    Ok(message) => {
                        let message = from_server_to_wire(message);
                        conversation.sent((message.encoded_len() + FRAME_BYTES) as u64);
                        Ok(message)
                    }
                    Err(Ending::Closed(reason)) => Err(reason.into()),
                    Err(Ending::Broken(status)) => Err(status),
                };
                Some((said, conversation))
            };
            Ok(Response::new(unfold(conversation, next).boxed()))
        }
    }

    impl Failure for Status {
        fn is_bad_message(&self) -> bool {
            matches!(self.code(), Code::OutOfRange | Code::Internal | Code::InvalidArgument)
        }

        fn reason(&self) -> String {
            self.message().to_owned()
        }
    }

    impl From<CloseReason> for Status {
        fn from(reason: CloseReason) -> Self {
            let code = match reason {
                CloseReason::GoingDown
                | CloseReason::NotStored
                | CloseReason::Kicked
                | CloseReason::SetBack => Code::Unavailable,
                CloseReason::TooManyNodes { .. } | CloseReason::BadMessages(_) => {
                    Code::ResourceExhausted
                }
                CloseReason::Replaced => Code::Aborted,
                CloseReason::Revoked
                | CloseReason::Expired
                | CloseReason::NotANode
                | CloseReason::Banned(_)
                | CloseReason::OtherName => Code::PermissionDenied,
                CloseReason::NoHello => Code::DeadlineExceeded,
                CloseReason::NotHello | CloseReason::BadName(_) => Code::InvalidArgument,
                CloseReason::Version { .. } | CloseReason::Revision { .. } => {
                    Code::FailedPrecondition
                }
            };
            Self::new(code, reason.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_words_are_told_and_those_of_libraries_kept_for_the_log() {
        let said = from_status(&Status::unavailable("the server is going down"), false);
        assert_eq!(said.to_string(), "the server ended the stream: the server is going down");
        let broken = Status::from_error(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)));
        let trouble = from_status(&broken, false);
        assert_eq!(trouble.to_string(), "the server is gone: the stream broke off");
        assert!(trouble.detail().unwrap().contains("connection reset"), "{trouble:?}");
        let early = trouble.before_welcome(false);
        assert!(early.to_string().contains("may be revoked") && !early.is_lasting(), "{early}");
        assert!(early.detail().unwrap().contains("connection reset"), "{early:?}");
        assert!(ConnectError::Ended.before_welcome(true).to_string().contains("plain text"));
        let refused = from_status(&Status::permission_denied("revoked"), true);
        assert_eq!(refused.clone().before_welcome(false), refused);
    }
}
