//! The server of this release, without the command line around it: `previous_server [CONFIG.toml]
//! [KEY=VALUE]...`. Prints its address as JSON, and ends on SIGTERM.
#![allow(clippy::print_stdout)]

use hedgerow_net::serve::{ServeSettings, Server};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let changes: Vec<String> = std::env::args().skip(1).collect();
    let mut terminate = signal(SignalKind::terminate())?;
    let server = Server::start(ServeSettings::read(None, &changes)?).await?;
    println!("{{\"address\":\"{}\"}}", server.address());
    terminate.recv().await;
    server.stop().await?;
    Ok(())
}
