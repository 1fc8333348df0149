//! The dashboard without a server behind it, for working on the page: everything on it is invented,
//! and says so.
//!
//!     cargo run -p hedgerow-net --example dashboard -- [NODES] [PORT] [METHOD]
//!
//! NODES is 20 unless given, PORT 8080; with METHOD `linear` there are no kernels.

#![allow(clippy::print_stdout)]

mod invented;

use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use hedgerow_net::admin::token::Token;
use hedgerow_net::serve::dashboard::{Hosts, Logins, router, serve};
use hedgerow_net::serve::metrics::{Direction, Layer, Metrics, Outcome};
use invented::Invented;
use tokio::net::TcpListener;

/// Connections at once.
const CONNECTIONS: usize = 64;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let nodes = arguments.next().map_or(Ok(20), |nodes| nodes.parse())?;
    let port = arguments.next().map_or(Ok(8080), |port| port.parse())?;
    let method = arguments.next().unwrap_or_else(|| "mk".to_owned());

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("http://{}", listener.local_addr()?);
    let source = Arc::new(Invented::new("invented data", &method, nodes, 3_000));
    let metrics = Metrics::new();
    tokio::spawn(count(metrics.clone(), nodes));
    let folder = tempfile::tempdir()?;
    let store = folder.path().join("invented");
    let logins = Logins::open(&store, false)?;
    println!("token: {}", Token::read(&store)?.reveal());
    let routes = router(source, metrics, Hosts::default(), Arc::new(logins), CONNECTIONS);
    serve(listener, routes, CONNECTIONS).await;
    Ok(())
}

/// Content for `/metrics`.
async fn count(metrics: Metrics, nodes: u32) {
    let mut beat = tokio::time::interval(invented::ROUND);
    loop {
        beat.tick().await;
        metrics.round_closed(invented::ROUND, u64::from(nodes));
        metrics.committed(Duration::from_micros(180));
        for _ in 0..nodes {
            metrics.upload(Outcome::Taken);
            metrics.bytes(Direction::Up, Layer::Message, invented::UPLOAD);
            metrics.bytes(Direction::Up, Layer::Wire, invented::UPLOAD + 60);
        }
    }
}
