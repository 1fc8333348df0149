//! The messages between nodes and server as Python classes.

use hedgerow::message::{Errors, Numbers as Carried, Selection, UploadHead, UploadMessage};
use hedgerow_data::text::counted;
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::arrays::Numbers;
use crate::errors;

/// A node's message: its share of the sums that the server needs.
///
/// ``vote`` is the kernel it votes for, if the method has votes. ``samples`` and ``squared_error``
/// describe its predictions since its last accepted upload.
#[pyclass(frozen, get_all, module = "hedgerow")]
pub(crate) struct Upload {
    /// The round that it answers.
    round: u64,
    /// A kernel, or None.
    vote: Option<u32>,
    /// What the server adds up.
    numbers: Py<PyArray1<f32>>,
    /// Samples that it tells of.
    samples: u32,
    /// The sum of their squared errors.
    squared_error: f64,
}

impl Upload {
    /// The first output of a message; none if it is compressed.
    pub(crate) fn new(py: Python<'_>, message: UploadMessage) -> Option<Self> {
        let UploadMessage { round, heads, errors: Errors { samples, squared_error }, .. } = message;
        let UploadHead { vote, numbers: Carried::Plain(numbers) } = heads.into_iter().next()?
        else {
            return None;
        };
        let numbers = PyArray1::from_vec(py, numbers).unbind();
        Some(Self { round, vote, numbers, samples, squared_error: squared_error.into() })
    }

    pub(crate) fn read(&self, py: Python<'_>) -> PyResult<(hedgerow::message::Upload, u32, f64)> {
        let numbers = Numbers::vector(self.numbers.bind(py))?.as_slice().to_vec();
        Ok((
            hedgerow::message::Upload { round: self.round, vote: self.vote, numbers },
            self.samples,
            self.squared_error,
        ))
    }
}

#[pymethods]
impl Upload {
    #[new]
    #[pyo3(
        signature = (round, vote, numbers, samples=None, squared_error=0.0),
        text_signature = "(round, vote, numbers, samples=0, squared_error=0.0)"
    )]
    fn from_python(
        round: &Bound<'_, PyAny>,
        vote: Option<&Bound<'_, PyAny>>,
        numbers: &Bound<'_, PyAny>,
        samples: Option<&Bound<'_, PyAny>>,
        squared_error: f64,
    ) -> PyResult<Self> {
        let py = round.py();
        let samples = samples.map_or(Ok(0), |samples| count("samples", samples))?;
        Ok(Self {
            round: count("round", round)?,
            vote: vote.map(|vote| narrow("vote", count("vote", vote)?)).transpose()?,
            numbers: PyArray1::from_slice(py, Numbers::vector(numbers)?.as_slice()).unbind(),
            samples: narrow("samples", samples)?,
            squared_error,
        })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let Self { round, vote, samples, squared_error, .. } = self;
        let vote = or_none(*vote, |vote| vote.to_string());
        let numbers = counted(length(py, &self.numbers), "number");
        format!(
            "Upload(round={round}, vote={vote}, {numbers}, samples={samples}, squared_error={squared_error})"
        )
    }

    fn __getnewargs__(&self, py: Python<'_>) -> (u64, Option<u32>, Py<PyArray1<f32>>, u32, f64) {
        (self.round, self.vote, self.numbers.clone_ref(py), self.samples, self.squared_error)
    }
}

/// The server's message: the global model.
#[pyclass(frozen, get_all, module = "hedgerow")]
pub(crate) struct Broadcast {
    /// The round that it opens.
    round: u64,
    /// The kernel of the model and that of the next uploads, where a method selects kernels.
    kernels: Option<(u32, u32)>,
    /// The model.
    numbers: Py<PyArray1<f32>>,
}

impl Broadcast {
    pub(crate) fn new(py: Python<'_>, broadcast: &hedgerow::message::Broadcast) -> Self {
        let hedgerow::message::Broadcast { round, kernels, numbers } = broadcast;
        let kernels = kernels.map(|Selection { current, next }| (current, next));
        Self { round: *round, kernels, numbers: PyArray1::from_slice(py, numbers).unbind() }
    }
}

#[pymethods]
impl Broadcast {
    #[new]
    fn from_python(
        round: &Bound<'_, PyAny>,
        kernels: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        numbers: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let py = round.py();
        let numbers = PyArray1::from_slice(py, Numbers::vector(numbers)?.as_slice()).unbind();
        Ok(Self { round: count("round", round)?, kernels: self::kernels(kernels)?, numbers })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let kernels = or_none(self.kernels, |kernels| format!("{kernels:?}"));
        let (round, numbers) = (self.round, length(py, &self.numbers));
        format!("Broadcast(round={round}, kernels={kernels}, {})", counted(numbers, "number"))
    }

    fn __getnewargs__(&self, py: Python<'_>) -> (u64, Option<(u32, u32)>, Py<PyArray1<f32>>) {
        (self.round, self.kernels, self.numbers.clone_ref(py))
    }
}

/// A node's messages: a report for the scale, an upload, both or neither.
#[pyclass(frozen, get_all, module = "hedgerow")]
pub(crate) struct Speech {
    /// The summary of its columns, or None.
    pub(crate) report: Option<Py<PyArray1<f32>>>,
    /// The upload, or None.
    pub(crate) upload: Option<Py<Upload>>,
}

#[pymethods]
impl Speech {
    fn __repr__(&self, py: Python<'_>) -> String {
        let report = or_none(self.report.as_ref(), |it| format!("{} numbers", length(py, it)));
        let upload = or_none(self.upload.as_ref(), |upload| upload.get().__repr__(py));
        format!("Speech(report={report}, upload={upload})")
    }
}

/// A whole number from 0 on.
pub(crate) fn count(name: &str, number: &Bound<'_, PyAny>) -> PyResult<u64> {
    let outside = || {
        errors::value(format!("{name} must be a whole number from 0 to 2^64 - 1, but is {number}"))
    };
    number.extract::<u64>().map_err(|error| {
        let is_kind = error.is_instance_of::<pyo3::exceptions::PyTypeError>(number.py());
        if is_kind { error } else { outside() }
    })
}

/// The kernel of a model and that of the next uploads.
pub(crate) fn kernels(
    pair: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
) -> PyResult<Option<(u32, u32)>> {
    let kernel = |number: &Bound<'_, PyAny>| narrow("a kernel", count("a kernel", number)?);
    pair.map(|(current, next)| Ok((kernel(&current)?, kernel(&next)?))).transpose()
}

/// A number of a node, a kernel or the like.
pub(crate) fn narrow(name: &str, number: u64) -> PyResult<u32> {
    u32::try_from(number)
        .map_err(|_| errors::value(format!("{name} must be less than 2^32, but is {number}")))
}

fn or_none<T>(value: Option<T>, write: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "None".to_owned(), write)
}

fn length(py: Python<'_>, numbers: &Py<PyArray1<f32>>) -> usize {
    use numpy::PyUntypedArrayMethods;
    numbers.bind(py).len()
}
