//! Numbers from Python: numpy arrays of any layout, and everything that numpy can convert to one.
//! Contiguous arrays of f32 are not copied.

use hedgerow_data::schema::split_category;
use hedgerow_data::text::shortened;
use numpy::{
    Element, PyArray1, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn,
    PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyMapping, PySlice, PyString, PyTuple};

use crate::errors;

/// An array of f32, borrowed or copied.
pub(crate) struct Numbers<'py> {
    shape: Vec<usize>,
    held: Held<'py>,
}

enum Held<'py> {
    Borrowed(PyReadonlyArrayDyn<'py, f32>),
    Copied(Vec<f32>),
}

impl<'py> Numbers<'py> {
    /// Converts an object with numpy. Text, dates and complex numbers are refused, and so is a
    /// shape that does not fit; `wanted` says which one does. An array of objects may have numbers
    /// and marks of missing values.
    fn read(
        object: &Bound<'py, PyAny>,
        fits: impl FnOnce(&[usize]) -> bool,
        wanted: impl FnOnce(&str) -> String,
    ) -> PyResult<Self> {
        let py = object.py();
        let numpy = || py.import(intern!(py, "numpy"));
        let plain;
        let array = match object.cast_exact::<PyUntypedArray>() {
            Ok(array) => array,
            Err(_) => {
                let converted =
                    numpy()?.call_method1(intern!(py, "asarray"), (unmasked(object)?,))?;
                plain = converted.cast_into()?;
                &plain
            }
        };
        let is_mixed = array.dtype().kind() == b'O' && array.ndim() > 0;
        if !is_mixed && !matches!(array.dtype().kind(), b'b' | b'i' | b'u' | b'f') {
            return Err(errors::kind(format!(
                "an array of numbers was expected, but its dtype is {}",
                array.dtype()
            )));
        }
        let shape = array.shape().to_vec();
        if !fits(&shape) {
            return Err(errors::value(wanted(&tuple(&shape))));
        }
        if is_mixed {
            let items = array.call_method0(intern!(py, "ravel"))?;
            let numbers = items.try_iter()?.map(|item| number(&item?)).collect::<PyResult<_>>()?;
            return Ok(Self { shape, held: Held::Copied(numbers) });
        }
        if let Some(borrowed) = in_order::<f32>(array)? {
            return Ok(Self { shape, held: Held::Borrowed(borrowed) });
        }
        let wide = match in_order::<f64>(array)? {
            Some(wide) => wide,
            // Other number types, other byte orders, and arrays that are not contiguous or not
            // aligned.
            None => {
                let arranged = (array, intern!(py, "float64"), intern!(py, "CA"));
                let arranged = numpy()?.call_method1(intern!(py, "require"), arranged)?;
                in_order::<f64>(&arranged.cast_into()?)?.ok_or_else(|| {
                    errors::kind("an array of numbers was expected, but numpy can't arrange it")
                })?
            }
        };
        Ok(Self { shape, held: Held::Copied(narrowed(wide.as_slice().map_err(errors::value)?)?) })
    }

    /// Samples: a row for each, `inputs` numbers in it. Where inputs have names, a frame's columns
    /// are taken by them.
    pub(crate) fn samples(
        object: &Bound<'py, PyAny>,
        inputs: usize,
        columns: &[String],
    ) -> PyResult<Self> {
        if !columns.is_empty() && is_frame(object)? {
            return Self::by_name(object, columns);
        }
        let fits = |shape: &[usize]| matches!(shape, [_, found] if *found == inputs);
        Self::read(object, fits, |found| {
            let hint = if found.ends_with(",)") {
                "; a single sample is for the methods whose names end in _one"
            } else {
                ""
            };
            format!("X must have the shape (n, {inputs}), but has {found}{hint}")
        })
    }

    fn by_name(frame: &Bound<'py, PyAny>, columns: &[String]) -> PyResult<Self> {
        let py = frame.py();
        let names = frame.getattr(intern!(py, "columns"))?;
        let mut numbers = Vec::new();
        let mut rows = 0;
        for (at, column) in columns.iter().enumerate() {
            if !names.contains(column)? {
                return Err(errors::value(format!("X has no column {column:?}")));
            }
            let read = Self::vector(&frame.get_item(column)?)
                .map_err(|error| about(py, column, &error))?;
            if at == 0 {
                rows = read.rows();
                numbers = reserved(rows.saturating_mul(columns.len()))?;
                numbers.resize(rows * columns.len(), 0.0);
            }
            for (row, value) in numbers.chunks_exact_mut(columns.len()).zip(read.as_slice()) {
                row[at] = *value;
            }
        }
        Ok(Self { shape: vec![rows, columns.len()], held: Held::Copied(numbers) })
    }

    /// Rows of any length except zero.
    pub(crate) fn table(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let fits = |shape: &[usize]| shape.len() == 2 && !shape.contains(&0);
        Self::read(object, fits, |found| {
            format!(
                "X must have the shape (n, d) with at least 1 row and 1 column, but has {found}"
            )
        })
    }

    /// A number for each of `rows` samples, or a row of several.
    pub(crate) fn labels(
        object: &Bound<'py, PyAny>,
        rows: usize,
        outputs: usize,
    ) -> PyResult<Self> {
        let wanted = if outputs == 1 { vec![rows] } else { vec![rows, outputs] };
        Self::read(
            object,
            |shape| shape == wanted,
            |found| {
                let wanted = tuple(&wanted);
                format!("y must have the shape {wanted}, as X has rows, but has {found}")
            },
        )
    }

    /// A vector of any length.
    pub(crate) fn vector(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::read(
            object,
            |shape| shape.len() == 1,
            |found| format!("a vector was expected, but the shape is {found}"),
        )
    }

    /// Rows, where it has any.
    pub(crate) fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Numbers in a row.
    pub(crate) fn columns(&self) -> usize {
        self.shape.get(1).copied().unwrap_or(1)
    }

    /// All numbers, row by row, as a vector.
    fn into_vec(self) -> Vec<f32> {
        match self.held {
            Held::Borrowed(_) => self.as_slice().to_vec(),
            Held::Copied(numbers) => numbers,
        }
    }

    /// All numbers, row by row.
    pub(crate) fn as_slice(&self) -> &[f32] {
        match &self.held {
            // Checked when the array was read.
            Held::Borrowed(array) => array.as_slice().unwrap_or_default(),
            Held::Copied(numbers) => numbers,
        }
    }
}

/// Samples of a call, a row for each: dense, or sparse (of scipy) and made dense in parts.
pub(crate) enum Table<'py> {
    Dense(Numbers<'py>),
    Sparse { matrix: Bound<'py, PyAny>, rows: usize, inputs: usize },
}

/// Bytes of a part of a sparse table, at most, unless a row is longer.
const PART_BYTES: usize = 1 << 22;

impl<'py> Table<'py> {
    /// The same as [`Numbers::samples`], or a sparse matrix.
    pub(crate) fn samples(
        object: &Bound<'py, PyAny>,
        inputs: usize,
        columns: &[String],
    ) -> PyResult<Self> {
        let py = object.py();
        let is_sparse = !object.is_instance_of::<PyUntypedArray>()
            && object.hasattr(intern!(py, "tocsr"))?
            && object.hasattr(intern!(py, "toarray"))?;
        if !is_sparse {
            return Numbers::samples(object, inputs, columns).map(Self::Dense);
        }
        let shape: Vec<usize> = object.getattr(intern!(py, "shape"))?.extract()?;
        let [rows, found] = shape[..] else { return Err(wrong_shape(inputs, &tuple(&shape))) };
        if found != inputs {
            return Err(wrong_shape(inputs, &tuple(&shape)));
        }
        let kind: char = object.getattr("dtype")?.getattr("kind")?.extract()?;
        if !"biuf".contains(kind) {
            return Err(errors::kind(format!(
                "a matrix of numbers was expected, but its dtype is {}",
                object.getattr("dtype")?
            )));
        }
        let matrix = object.call_method0(intern!(py, "tocsr"))?;
        Ok(Self::Sparse { matrix, rows, inputs })
    }

    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Dense(numbers) => numbers.rows(),
            Self::Sparse { rows, .. } => *rows,
        }
    }

    /// With its rows in another order, if they can be had so without making them dense.
    pub(crate) fn in_order(self, order: &[usize]) -> PyResult<Self> {
        let Self::Sparse { matrix, rows, inputs } = self else { return Ok(self) };
        let order = PyArray1::from_iter(matrix.py(), order.iter().map(|row| *row as i64));
        Ok(Self::Sparse { matrix: matrix.get_item(order)?, rows, inputs })
    }

    /// Works on the numbers of the first row of each part and those after it; a dense table is one
    /// part.
    pub(crate) fn each_part(
        &self,
        mut work: impl FnMut(usize, &Numbers<'py>) -> PyResult<()>,
    ) -> PyResult<()> {
        let (matrix, rows, inputs) = match self {
            Self::Dense(numbers) => return work(0, numbers),
            Self::Sparse { matrix, rows, inputs } => (matrix, *rows, *inputs),
        };
        let step = (PART_BYTES / (8 * inputs.max(1))).max(1);
        for first in (0..rows).step_by(step) {
            let last = rows.min(first + step) as isize;
            let part = matrix.get_item(PySlice::new(matrix.py(), first as isize, last, 1))?;
            let dense = part.call_method0(intern!(matrix.py(), "toarray"))?;
            work(first, &Numbers::samples(&dense, inputs, &[])?)?;
        }
        Ok(())
    }
}

fn wrong_shape(inputs: usize, found: &str) -> PyErr {
    errors::value(format!("X must have the shape (n, {inputs}), but has {found}"))
}

/// A contiguous, aligned array of this type.
fn in_order<'py, T: Element>(
    array: &Bound<'py, PyUntypedArray>,
) -> PyResult<Option<PyReadonlyArrayDyn<'py, T>>> {
    let Ok(array) = array.cast::<PyArrayDyn<T>>() else { return Ok(None) };
    if !array.is_c_contiguous() || !array.data().is_aligned() {
        return Ok(None);
    }
    array.try_readonly().map(Some).map_err(errors::value)
}

/// Masked numbers are missing.
fn unmasked<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let masked = py.import(intern!(py, "numpy"))?.getattr(intern!(py, "ma"))?;
    if !object.is_instance(&masked.getattr(intern!(py, "MaskedArray"))?)? {
        return Ok(object.clone());
    }
    let wide = object.call_method1(intern!(py, "astype"), (intern!(py, "float64"),))?;
    wide.call_method1(intern!(py, "filled"), (f64::NAN,))
}

/// Whether it has named columns, like frames of pandas and polars.
fn is_frame(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    Ok(!object.is_instance_of::<PyUntypedArray>() && object.hasattr(intern!(py, "columns"))?)
}

/// An error with the column that it is about.
fn about(py: Python<'_>, column: &str, error: &PyErr) -> PyErr {
    PyErr::from_type(error.get_type(py), format!("column {column:?}: {}", error.value(py)))
}

/// Room for `count` numbers, or MemoryError.
fn reserved(count: usize) -> PyResult<Vec<f32>> {
    let mut numbers = Vec::new();
    numbers
        .try_reserve_exact(count)
        .map_err(|_| PyMemoryError::new_err(format!("there is no memory for {count} numbers")))?;
    Ok(numbers)
}

fn narrowed(wide: &[f64]) -> PyResult<Vec<f32>> {
    let mut numbers = reserved(wide.len())?;
    numbers.extend(wide.iter().copied().map(narrow));
    Ok(numbers)
}

/// The numbers of one sample: a vector, a list or tuple (None is missing), or a mapping from the
/// names of columns, such as a dictionary or a row of a frame. A mapping may have a column of text
/// in place of the inputs that its texts have.
pub(crate) fn sample(
    x: &Bound<'_, PyAny>,
    inputs: usize,
    columns: &[String],
) -> PyResult<Vec<f32>> {
    row(x, inputs, columns, true)
}

/// The labels of several targets of one sample, in the same forms.
pub(crate) fn targets(
    y: &Bound<'_, PyAny>,
    outputs: usize,
    names: &[String],
) -> PyResult<Vec<f32>> {
    row(y, outputs, names, false)
}

fn row(
    x: &Bound<'_, PyAny>,
    inputs: usize,
    columns: &[String],
    has_texts: bool,
) -> PyResult<Vec<f32>> {
    let row = if let Ok(list) = x.cast::<PyList>() {
        list.iter().map(|item| number(&item)).collect::<PyResult<_>>()?
    } else if let Ok(tuple) = x.cast::<PyTuple>() {
        tuple.iter().map(|item| number(&item)).collect::<PyResult<_>>()?
    } else if x.is_instance_of::<PyUntypedArray>() {
        Numbers::vector(x)?.into_vec()
    } else if let Ok(named) = x.cast::<PyDict>() {
        by_name(columns, named.is_empty(), has_texts, |column| named.get_item(column))?
    } else if x.hasattr(intern!(x.py(), "keys"))?
        && (!columns.is_empty() || x.cast::<PyMapping>().is_ok())
    {
        let found = |column: &str| {
            let item = x.call_method1(intern!(x.py(), "get"), (column,))?;
            Ok(Some(item).filter(|item| !item.is_none()))
        };
        by_name(columns, x.len()? == 0, has_texts, found)?
    } else {
        Numbers::vector(x)?.into_vec()
    };
    if row.len() == inputs {
        Ok(row)
    } else {
        Err(errors::value(format!("a sample has {inputs} numbers, but {} came", row.len())))
    }
}

/// A sample with named numbers. Absent ones are missing; without its text, all inputs of a column
/// of text are zero, as in `hedgerow join`.
fn by_name<'py>(
    columns: &[String],
    is_empty: bool,
    has_texts: bool,
    find: impl Fn(&str) -> PyResult<Option<Bound<'py, PyAny>>>,
) -> PyResult<Vec<f32>> {
    if columns.is_empty() {
        return Err(errors::value(
            "a sample has names, but the plan has none: make it with columns=[...]",
        ));
    }
    let mut found = 0;
    let mut row = Vec::with_capacity(columns.len());
    for column in columns {
        row.push(match (find(column)?, split_category(column).filter(|_| has_texts)) {
            (Some(item), _) => {
                found += 1;
                number(&item).map_err(|error| about(item.py(), column, &error))?
            }
            (None, Some((column, known))) => match find(column)? {
                Some(item) => {
                    found += 1;
                    let text = text(&item).map_err(|error| about(item.py(), column, &error))?;
                    f32::from(u8::from(text.as_deref() == Some(known)))
                }
                None => 0.0,
            },
            (None, None) => f32::NAN,
        });
    }
    if found == 0 && !is_empty {
        return Err(errors::value(format!(
            "a sample has none of the plan's columns: {}",
            columns.join(", ")
        )));
    }
    Ok(row)
}

/// Texts of a dictionary that are none of those that the columns have.
pub(crate) fn unseen_texts(x: &Bound<'_, PyAny>, columns: &[String]) -> PyResult<Vec<String>> {
    let Ok(named) = x.cast::<PyDict>() else { return Ok(Vec::new()) };
    let mut raw: Vec<&str> = columns
        .iter()
        .filter_map(|input| split_category(input))
        .map(|(column, _)| column)
        .collect();
    raw.dedup();
    let mut unseen = Vec::new();
    for column in raw {
        let text = named.get_item(column)?.map(|item| text(&item)).transpose()?.flatten();
        let is_known = |text: &String| {
            columns.iter().any(|input| split_category(input) == Some((column, text)))
        };
        unseen.extend(text.filter(|text| !is_known(text)));
    }
    Ok(unseen)
}

/// The text that an item of a column of text is, where a number or a truth value stands for its
/// text; none if it is missing.
fn text(item: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if item.is_none() {
        return Ok(None);
    }
    if let Ok(text) = item.cast::<PyString>() {
        let text = text.to_cow()?;
        return Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()));
    }
    if let Ok(truth) = item.cast::<PyBool>() {
        return Ok(Some(truth.is_true().to_string()));
    }
    if is_missing(item) {
        return Ok(None);
    }
    item.extract::<f64>().map(|number| Some(number.to_string()))
}

/// A number of a sample.
fn number(item: &Bound<'_, PyAny>) -> PyResult<f32> {
    if item.is_none() {
        return Ok(f32::NAN);
    }
    float(item, "an input")
}

/// A Python number. An int may be too large for a float.
fn float(item: &Bound<'_, PyAny>, what: &str) -> PyResult<f32> {
    item.extract().map(narrow).or_else(|error| {
        if error.is_instance_of::<PyOverflowError>(item.py()) {
            return Err(errors::value(format!("{what} is too large")));
        }
        if !error.is_instance_of::<PyTypeError>(item.py()) {
            return Err(error);
        }
        if is_missing(item) {
            return Ok(f32::NAN);
        }
        let shown = item.repr()?.to_string();
        let shown = shortened(&shown, 50);
        Err(errors::kind(format!("{what} must be a number, but is {shown}")))
    })
}

/// Whether it marks a missing value, such as NaN, NaT and NA of pandas: it isn't equal to itself,
/// or can't be compared.
pub(crate) fn is_missing(item: &Bound<'_, PyAny>) -> bool {
    match item.ne(item) {
        Ok(differs) => differs,
        Err(error) => error.is_instance_of::<PyTypeError>(item.py()),
    }
}

/// As f32; what is finite stays so.
pub(crate) fn narrow(value: f64) -> f32 {
    if value.is_finite() {
        value.clamp(-f64::from(f32::MAX), f64::from(f32::MAX)) as f32
    } else {
        value as f32
    }
}

/// A label; what is too large for a number is too large for a label. None and NaN are missing.
pub(crate) fn label(y: &Bound<'_, PyAny>) -> PyResult<Option<f32>> {
    if y.is_none() {
        return Ok(None);
    }
    let label = float(y, "a label")?;
    Ok(Some(label).filter(|label| !label.is_nan()))
}

/// A new array with room for these, not yet filled.
pub(crate) fn empty<'py>(
    py: Python<'py>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    let shape = PyTuple::new(py, shape)?;
    let numpy = py.import(intern!(py, "numpy"))?;
    Ok(numpy.call_method1(intern!(py, "empty"), (shape, intern!(py, "float32")))?.cast_into()?)
}

/// A shape as Python writes it.
pub(crate) fn tuple(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => format!("({})", shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}
