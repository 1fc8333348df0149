//! Pages of a comparison: tables, figures, advice, a document and a page.

mod advice;
mod output;
mod pictures;
mod sections;
mod tables;

pub use crate::table::Table;
pub use advice::advice;
pub use output::{csv, document, json, page};
pub use pictures::figures;
pub use tables::tables;
