//! Pages of a comparison: tables, figures, advice, a document and a page.

mod advice;
mod document;
mod output;
mod pictures;
mod tables;

pub use advice::advice;
pub use document::{document, page};
pub use output::{csv, json, texts};
pub use pictures::figures;
pub use tables::text;
