//! Results as figures, tables and pages.
//!
//! Every function is pure: it takes finished [`Results`](hedgerow_lab::results::Results) and
//! returns text or bytes. Nothing is run, read or written here.
//!
//! | output | module |
//! |---|---|
//! | all files of a run | [`run`] |
//! | the table of a run on a terminal | [`terminal`] |
//! | whether federating pays, in a sentence | [`worth`] |
//! | the self-contained page of a run | [`report`] |
//! | figures as SVG, and as PNG with the feature `png` | [`figures`] |
//! | tables, figures, page and advice of a comparison | [`compare`] |
//! | a table as terminal text, Markdown or HTML | [`table`] |
//! | the paper's figures, tables and claims | [`reproduction`] |
//!
//! A chart is described once and drawn twice: as a figure, and in a page that shows values at the
//! pointer.

pub mod compare;
mod drift;
pub mod figures;
mod page;
pub mod report;
pub mod reproduction;
pub mod run;
pub mod table;
pub mod terminal;
pub mod worth;
