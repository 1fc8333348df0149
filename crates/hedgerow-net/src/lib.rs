//! Hedgerow over a network: the node and the server of the core, driven by sockets.
//!
//! A server and each of its nodes exchange messages over one long-lived stream. The server sends
//! the plan of the federation to every node that joins, so nodes need no configuration of their
//! own.
//!
//! | module | contents |
//! |---|---|
//! | [`session`] | the protocol of a stream, both sides, without sockets and clocks |
//! | `admin` | how operators reach a running server: socket, certificate, token |
//! | `audit` | who did what, as a chain of entries |
//! | `coordinator` | rounds, members, quorum and deadlines, without sockets and clocks |
//! | `storage` | where a server keeps its run |
//! | [`transport`] | how messages travel: gRPC |
//! | [`agent`] | the node process: samples, predictions, local HTTP, state file |
//! | `serve` | the server process: connections, limits, metrics, dashboard |
//! | [`pki`] | certificates |
//! | `operations` | what an operator may ask of a running server |
//! | `export` | models as files, for predictions without a server |
//!
//! Modules without a link need the feature `server` (on by default). Without it, the crate contains
//! only what a device needs. A run over a network equals a simulation bit for bit, and a test
//! checks that.

#[cfg(feature = "server")]
pub mod admin;
pub mod agent;
#[cfg(feature = "server")]
pub mod audit;
#[cfg(feature = "server")]
pub mod coordinator;
pub mod duration;
#[cfg(feature = "server")]
pub mod export;
pub mod file;
pub mod http;
pub mod learning;
pub mod log;
#[cfg(feature = "server")]
pub mod operations;
pub mod pki;
pub mod plan_json;
#[cfg(feature = "server")]
pub mod serve;
pub mod session;
#[cfg(feature = "server")]
pub mod storage;
pub mod transport;
