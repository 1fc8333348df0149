//! The native module of the Python package `hedgerow`: the core and the network client with numpy
//! arrays. Long calls release the interpreter. Every user mistake is a Python exception.

mod arrays;
mod batch;
mod compare;
mod engine;
mod errors;
mod features;
mod federation;
mod labels;
mod learner;
mod messages;
mod model;
mod node;
mod plan;
mod server;
mod simulate;
mod work;

use pyo3::prelude::*;

/// The result of `__reduce__`: a function that makes the object again, and its arguments.
type Pickled<'py, T> = PyResult<(Bound<'py, PyAny>, T)>;

/// What is compiled of the package.
#[pymodule]
mod _hedgerow {
    #[pymodule_export]
    use super::compare::compare;
    #[pymodule_export]
    use super::engine::Engine;
    #[pymodule_export]
    use super::features::FeatureMap;
    #[pymodule_export]
    use super::federation::Federation;
    #[pymodule_export]
    use super::learner::Learner;
    #[pymodule_export]
    use super::messages::{Broadcast, Speech, Upload};
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::node::Node;
    #[pymodule_export]
    use super::plan::Plan;
    #[pymodule_export]
    use super::server::Server;
    #[pymodule_export]
    use super::simulate::{Run, simulate};

    /// Version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
