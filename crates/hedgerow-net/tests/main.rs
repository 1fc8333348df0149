//! Integration tests of the network. `cargo test -p hedgerow-net --test all server::` runs one
//! file.

mod certificates;
mod common;
mod dashboard;
mod earlier;
mod engine;
mod enrolment;
mod export;
mod fuzz;
mod generated;
mod identity;
mod live_rows;
mod node;
mod node_http;
mod node_messages;
mod node_tls;
mod operations;
mod pki;
mod previous;
mod rounds;
mod security;
mod server;
mod test_server;
mod watching;
