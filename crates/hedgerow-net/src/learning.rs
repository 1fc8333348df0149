//! What a server learns, as its settings say.

pub mod config;
