//! Data for Hedgerow: bytes become samples, and samples are dealt to nodes.
//!
//! | task | module |
//! |---|---|
//! | generate a stream from a seed | [`streams`] |
//! | open a data set by name, or fetch it | [`catalog`], [`folders`], [`fetch`] |
//! | read a table row by row | [`rows`], [`csv`] |
//! | choose columns, lags and horizons | [`columns`], [`samples`] |
//! | make inputs of the time | [`calendar`] |
//! | turn other tables into the same inputs | [`schema`] |
//! | describe an unknown file | [`info`] |
//! | deal samples to nodes | [`partition`] |
//!
//! ```
//! use hedgerow_data::streams;
//!
//! let nodes = 20;
//! let data = streams::find("friedman").unwrap().generate(1_000, nodes, 1);
//! assert_eq!((data.y.len(), data.features), (1_000, 10));
//! ```
//!
//! Data flows in one direction, in bounded memory:
//!
//! ```text
//! bytes ─▶ Rows ─▶ numbers of the chosen columns ─▶ SampleStream ─▶ Dataset
//! ```
//!
//! A [`samples::SampleStream`] has the past of each series. A [`Dataset`] can be read several
//! times; a live run reads the stream directly. Wrong data is a [`DataError`] with file, row and
//! column.

pub mod calendar;
pub mod catalog;
mod cell;
pub mod columns;
pub mod csv;
mod dataset;
mod encoder;
mod error;
pub mod fetch;
pub mod file;
pub mod folders;
pub mod info;
mod jsonl;
pub mod live;
mod packing;
mod parquet;
pub mod partition;
pub mod ranges;
pub mod rows;
pub mod samples;
pub mod schema;
mod series;
mod source;
pub mod stdin;
mod store;
pub mod streams;
mod tables;
pub mod text;
pub mod timestamp;

pub use dataset::{Dataset, FIRST_LOOK, Owners, is_of_order_one, spreads};
pub use error::DataError;
