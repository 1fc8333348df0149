//! Scaling that a live system can have: nobody has seen all the data, and yet kernels and rates
//! need numbers of the order of one.
//!
//! Every node keeps a running [`Summary`] of its raw samples and reports it rarely: after 1, 2, 4,
//! 8, … of them. The server merges the latest reports and broadcasts a [`Scale`] when the agreed
//! one no longer fits. Models survive a change of scale by a [`Rescaling`]. A round at a node is:
//! [`NodeScaling::prepare`] the inputs, predict, learn, [`NodeScaling::see`] the sample, and
//! [`NodeScaling::report`] where the server is in reach; at the server [`ServerScaling::accept`]
//! reports and, once the round of the models has closed, [`ServerScaling::close_round`].

mod change;
mod node;
mod refit;
mod rescaling;
mod scale;
mod server;
mod summary;

pub use change::ScaleChange;
pub use node::NodeScaling;
pub(crate) use refit::SumsRefit;
pub use rescaling::Rescaling;
pub use scale::{Axis, BadScale, Scale, ScaleKind};
pub use server::ServerScaling;
pub use summary::Summary;
