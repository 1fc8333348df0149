//! Online federated learning with many kernels: the mathematics, and nothing else.
//!
//! Devices that can't share their data learn one nonlinear predictor together, sample by sample, at the wire cost of a single small
//! model. This crate has no I/O, clock, threads or global randomness: a [`FeatureMap`] turns samples into features, a
//! [`NodeHalf`] predicts and learns from them, a [`ServerHalf`] combines what nodes upload, and a [`Federation`] drives both
//! in one process.
//!
//! ```
//! use hedgerow::{
//!     Amplitude, Contact, Draw, FeatureMap, FeatureSpec, Federation, Kernel, Method, Setup, SetupConfig, Visit,
//! };
//!
//! let frequencies = Method::MkOfl.frequencies(100)?; // what a budget of 100 numbers per message allows
//! let map = FeatureMap::new(&FeatureSpec {
//!     kernels: Kernel::paper_dictionary(),
//!     draw: Draw::Independent,
//!     inputs: 1,
//!     frequencies,
//!     seed: 7,
//!     amplitude: Amplitude::Normalised,
//! })?;
//! let setup = Setup::try_from(SetupConfig { nodes: 2, frequencies, ..SetupConfig::default() })?;
//! let mut federation = Federation::new(Method::MkOfl, &setup);
//!
//! let mut buffer = vec![0.0; map.width()];
//! let mut last_error = 0.0;
//! for t in 0..600 {
//!     let x = (t % 20) as f32 / 20.0;
//!     let z = map.map(&[x], &mut buffer);
//!     let y = [(6.0 * x).sin()];
//!     let visits = [0, 1].map(|node| Visit { node, z, y: &y, contact: Contact::Full });
//!     federation.round(&visits, |prediction| last_error = prediction.value - prediction.label)?;
//! }
//! assert!(last_error.abs() < 0.3);
//! assert_eq!(federation.traffic().numbers_up, 2 * 600 * 99); // a model of 98 numbers and a vote
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aggregation;
mod comparator;
mod compression;
mod dictionary;
mod features;
mod federation;
mod gathering;
mod kernel;
mod linear;
mod loops;
mod loss;
mod map;
mod message;
pub mod method;
mod metrics;
mod omkl;
mod personal;
#[cfg(feature = "probe")]
pub mod probe;
mod random;
mod relay;
mod scaling;
mod schedule;
mod simd;
mod structured;
mod sum;
mod trig;
mod vector;
pub mod weights;

pub use aggregation::{Aggregation, NotAnAggregation};
pub use comparator::{BestFunction, Hindsight};
pub use compression::{
    Coding, Compression, Cost, Encoder, Kind, NumberFormat, Reader, Reference, Section, decode,
};
pub use dictionary::Dictionary;
pub use features::{Amplitude, Draw, FeatureError, FeatureMap, FeatureSpec, Features, NotAFeature};
pub use federation::{Alone, Contact, Federation, Notes, Prediction, RoundError, Visit, Workers};
pub use kernel::{Family, Kernel};
pub use loss::{Loss, Objective};
pub use map::SampleMap;
pub use message::{Broadcast, NodeId, Rejected, Report, Selection, Upload};
pub use method::{
    Average, BadSample, BadState, BudgetTooSmall, Method, MkOptions, NodeHalf, PofOptions, ServerHalf, Setup,
    SetupConfig, SetupError,
};
pub use metrics::{ErrorMeter, Tally, Traffic};
pub use omkl::Omkl;
pub use personal::Personal;
pub use random::{Purpose, Stream};
pub use relay::{NotAdditive, PartialSum, Relay};
pub use scaling::{Axis, BadScale, NodeScaling, Scale, ScaleKind, ServerScaling, Summary, Transport};
pub use schedule::Schedule;
pub use simd::Cpu;
pub use sum::ExactSum;
pub use weights::{ExponentialWeights, WeightRule};
