//! How messages travel between a node and a server: gRPC over HTTP/2 today. Another transport is
//! another file beside [`grpc`]. Requests for certificates ([`signing`]) need less.

use tokio::io::{AsyncRead, AsyncWrite};

pub mod convert;
pub mod counted;
pub mod grpc;
pub mod protocol;
pub mod signing;
pub(crate) mod watched;

/// A connection of any kind.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}
