//! [`FeatureMap`]: random features of samples.

use hedgerow::features::{Draw, Kernel};
use hedgerow::{Plan, PlanConfig};
use hedgerow_net::learning::config::first_seed;
use numpy::{PyArray1, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrays::{self, Table};
use crate::{errors, plan};

/// Samples between two checks for Ctrl-C.
const PIECE: usize = 1024;

/// Random Fourier features of a dictionary of kernels: a sine and a cosine for each random
/// frequency, kernel by kernel.
///
/// The product of two samples' features estimates the kernel's value. ``kernels`` is as in
/// :class:`Plan`; without it, it is eleven Gaussians from 1e-5 to 1e5.
///
/// >>> import numpy as np
/// >>> from hedgerow import FeatureMap
/// >>> features = FeatureMap([1.0], inputs=2, frequencies=2000)
/// >>> a, b = features.transform([[0.0, 0.5], [0.3, 0.1]])
/// >>> bool(abs(a @ b - np.exp(-(0.3**2 + 0.4**2) / 2)) < 0.05)
/// True
#[pyclass(frozen, module = "hedgerow")]
pub(crate) struct FeatureMap {
    plan: Plan,
    seed: u64,
}

#[pymethods]
impl FeatureMap {
    #[new]
    #[pyo3(signature = (kernels=None, *, inputs, frequencies=50, draw="shared", seed=1))]
    fn new(
        kernels: Option<&Bound<'_, PyAny>>,
        inputs: i64,
        frequencies: i64,
        draw: &str,
        seed: i64,
    ) -> PyResult<Self> {
        let kernels = kernels.map_or_else(|| Ok(Kernel::paper_dictionary()), plan::kernels)?;
        let draw = Draw::ALL.into_iter().find(|known| known.name() == draw).ok_or_else(|| {
            let known = Draw::ALL.map(Draw::name).join(", ");
            errors::value(format!("draw must be one of {known}, but is {draw:?}"))
        })?;
        let at_least = |name: &str, least: i64, value: i64| {
            if value >= least {
                Ok(value as u64)
            } else {
                Err(errors::value(format!("{name} must be at least {least}, but is {value}")))
            }
        };
        let inputs = at_least("inputs", 1, inputs)? as usize;
        let frequencies = at_least("frequencies", 1, frequencies)? as usize;
        let seed = at_least("seed", 0, seed)?;
        // The naive extension has the features of all kernels, and a plan has bounds that nothing
        // outgrows.
        let method = "naive".parse().map_err(errors::value)?;
        let config = PlanConfig::default().method(method).kernels(kernels).draw(draw);
        let config = config.inputs(inputs).frequencies(Some(frequencies)).seed(first_seed(seed));
        let plan = Plan::new(config);
        Ok(Self { plan: plan.map_err(errors::value)?, seed })
    }

    /// Features of samples, one per row: ``(n, inputs)`` gives ``(n, width)``.
    fn transform<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let (inputs, width) = (self.inputs(), self.width());
        let table = Table::samples(x, inputs, &[])?;
        let out = arrays::empty(py, &[table.rows(), width])?;
        {
            let mut out = out.try_readwrite().map_err(errors::value)?;
            let room = out.as_slice_mut().map_err(errors::value)?;
            table.each_part(|first, numbers| {
                let numbers = numbers.as_slice();
                if let Some(at) = numbers.iter().position(|number| !number.is_finite()) {
                    let (row, column, value) = (first + at / inputs, at % inputs, numbers[at]);
                    return Err(errors::value(format!(
                        "X must have finite numbers, but row {row}, column {column} is {value}"
                    )));
                }
                let room = room[first * width..].chunks_mut(PIECE * width);
                for (x, z) in numbers.chunks(PIECE * inputs).zip(room) {
                    let z = &mut z[..x.len() / inputs * width];
                    py.detach(|| _ = self.plan.map().map_batch(x, z));
                    py.check_signals()?;
                }
                Ok(())
            })?;
        }
        Ok(out)
    }

    /// Features of one sample.
    fn transform_one<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let x = arrays::sample(x, self.inputs(), &[])?;
        if let Some(at) = x.iter().position(|number| !number.is_finite()) {
            let value = x[at];
            return Err(errors::value(format!(
                "x must have finite numbers, but number {at} is {value}"
            )));
        }
        let mut z = vec![0.0; self.width()];
        self.plan.map().map_batch(&x, &mut z);
        Ok(PyArray1::from_vec(py, z))
    }

    /// Features of a sample, of all kernels together.
    #[getter]
    fn width(&self) -> usize {
        self.plan.map().width()
    }

    /// Numbers in a sample.
    #[getter]
    fn inputs(&self) -> usize {
        self.plan.inputs()
    }

    /// Frequencies of each kernel.
    #[getter]
    fn frequencies(&self) -> usize {
        self.plan.config().frequencies.unwrap_or(0)
    }

    /// How they were drawn.
    #[getter]
    fn draw(&self) -> &'static str {
        self.plan.config().draw.name()
    }

    /// The seed.
    #[getter]
    fn seed(&self) -> u64 {
        self.seed
    }

    /// The dictionary, as pairs of a family and a squared bandwidth.
    #[getter]
    fn kernels(&self) -> Vec<(&'static str, f64)> {
        plan::pairs(&self.plan.config().kernels)
    }

    fn __repr__(&self) -> String {
        let (inputs, frequencies, kernels) =
            (self.inputs(), self.frequencies(), self.kernels().len());
        format!(
            "FeatureMap({kernels} kernels, inputs={inputs}, frequencies={frequencies}, draw='{}', seed={})",
            self.draw(),
            self.seed
        )
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("inputs", self.inputs())?;
        named.set_item("frequencies", self.frequencies())?;
        named.set_item("draw", self.draw())?;
        named.set_item("seed", self.seed)?;
        Ok((PyTuple::new(py, [self.kernels()])?, named))
    }
}
