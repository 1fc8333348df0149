//! Tests of the program as a process. `cargo test -p hedgerow-cli --test all compare::` runs one
//! file.

mod admin;
mod bad_files;
mod classes;
mod compare;
mod data;
mod demo;
mod docs;
mod flags;
mod info;
mod loopback;
mod memory;
mod models;
mod named_data;
mod network;
mod offline;
mod pki;
mod process;
mod reproduce;
mod rows;
mod scenarios;
mod serve;
mod shell;
mod simulate;
mod streams;
