//! Integration tests of the core. `cargo test -p hedgerow --test all laws::` runs one file.

mod common;
mod comparator;
mod compression;
mod compression_costs;
mod endurance;
mod features;
mod golden;
mod gr;
mod gr_halves;
mod lanes;
mod laws;
mod leak;
mod losses;
mod modules;
mod node_server;
mod old_nodes;
mod old_states;
mod participation;
mod peers;
mod peers_scaled;
mod refusals;
mod relays;
mod rescaling;
mod robust;
mod scaling;
mod tr;
