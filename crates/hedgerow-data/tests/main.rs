//! Integration tests of the data crate. `cargo test -p hedgerow-data --test all fetch::` runs one
//! file.

mod catalog;
mod fetch;
mod hostile_tables;
mod real_tables;
