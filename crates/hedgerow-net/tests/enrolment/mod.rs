//! Certificates that nodes ask for: with a token, before the end, while the authority changes.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod authority;
mod network;

use std::path::Path;

use hedgerow_net::pki::Authority;
use hedgerow_net::pki::identity::{NodeIdentity, Peer, ServerIdentity};
use hedgerow_net::pki::request::{NewKey, Requested};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

use crate::identity::fixture::meet;

const DAY: Duration = Duration::days(1);

/// An authority that was made at this time and looks at it as the present.
fn authority_of(folder: &TempDir, now: OffsetDateTime) -> Authority {
    let authority = Authority::at(&folder.path().join("pki")).at_time(now);
    authority.make(&[], 730, 3650).unwrap();
    authority
}

fn request(key: &NewKey, name: &str) -> Requested {
    Requested::from_der(&key.request(name).unwrap().0).unwrap()
}

fn certificate(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap()
}

/// The identity of a key with its certificates.
fn identity(key: &NewKey, certificates: &str) -> NodeIdentity {
    NodeIdentity::parse(Path::new("made.pem"), &(key.pem() + certificates)).unwrap()
}

fn peer_of(file: &Path) -> Peer {
    NodeIdentity::open(file).unwrap().peer().clone()
}

/// Whether both sides accept each other.
fn meets(server: &ServerIdentity, node: &NodeIdentity) -> Result<(), String> {
    let meeting = meet(server.config(), node.config(), "localhost");
    meeting.client.map(drop).and(meeting.server.map(drop))
}

fn assert_meets(server: &ServerIdentity, node: &NodeIdentity) {
    meets(server, node).unwrap();
}
