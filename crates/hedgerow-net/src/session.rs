//! The protocol of one connection, without sockets and without a clock.
//!
//! A node says [`Hello`], the server answers with [`Welcome`]; then the server sends scales and
//! broadcasts, and the node answers each round once. A driver passes in what was received and what
//! time it is, and sends what comes out.

mod close_reason;
mod message;

pub use close_reason::CloseReason;
pub use message::{FromNode, FromServer, Hello, VERSION, Welcome};
