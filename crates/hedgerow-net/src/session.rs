//! The protocol of one stream, without sockets and without a clock.
//!
//! A node says [`Hello`], the server answers with [`Welcome`]; then the server sends scales and
//! broadcasts, and the node answers each round once. A driver passes in what was received and what
//! time it is, and sends what comes out: [`ServerSession`] and [`NodeSession`].

mod close_reason;
mod connect_error;
mod message;
mod node;
#[cfg(feature = "server")]
mod server;
#[cfg(all(test, feature = "server"))]
mod tests;

pub use close_reason::CloseReason;
pub use connect_error::ConnectError;
pub use message::{FromNode, FromServer, Hello, OLDEST, VERSION, Versions, Welcome};
pub use node::{Joined, NodeSession, ServerNews, hello};
#[cfg(feature = "server")]
pub use server::ServerSession;
