//! Settings of Hedgerow's programs.
//!
//! Settings are read in layers: the program's commented defaults, then a file, then `--set
//! key=value`, then flags. A later layer wins. The defaults name every key: a key that they don't
//! have is refused, with the nearest known key as a suggestion. [`Layer`] is one source of
//! settings, [`Merged`] is the result of all, and [`ConfigError`] is what can be wrong.
//!
//! ```
//! use hedgerow_config::{Layer, Merged};
//! use serde::Deserialize;
//!
//! const DEFAULTS: &str = "[run]\n# Repetitions.\ntrials = 10";
//!
//! #[derive(Deserialize)]
//! struct Settings {
//!     run: Run,
//! }
//!
//! #[derive(Deserialize)]
//! struct Run {
//!     #[serde(deserialize_with = "hedgerow_config::within::<1, 1000, _, _>")]
//!     trials: usize,
//! }
//!
//! let read = |text| Merged::new(DEFAULTS, &[Layer::set(text)?])?.read::<Settings>();
//! assert_eq!(read("run.trials=3")?.run.trials, 3);
//! let refusal = |text| read(text).map(|_| ()).unwrap_err().to_string();
//! assert_eq!(
//!     refusal("run.trails=3"),
//!     "--set run.trails=3: unknown key \"run.trails\" (did you mean \"run.trials\"?)"
//! );
//! assert_eq!(
//!     refusal("run.trials=0"),
//!     "--set run.trials=0: run.trials must be at least 1, but is 0"
//! );
//! # Ok::<(), hedgerow_config::ConfigError>(())
//! ```

mod error;
#[cfg(feature = "flags")]
pub mod flags;
mod layer;
mod merge;
mod read;
mod sections;

pub use error::{ConfigError, one_of};
pub use layer::Layer;
pub use merge::Merged;
pub use read::{share, within};
pub use sections::{KernelSection, LearningSection};
