//! Data for Hedgerow: bytes become samples, and samples are dealt to nodes.
//!
//! | task | module |
//! |---|---|
//! | generate a stream from a seed | [`streams`] |
//! | open a data set by name, or fetch it | [`catalog`], [`folders`], [`fetch`] |
//! | read a table row by row | [`rows`], [`csv`] |
//! | choose columns, lags and horizons | [`columns`], [`samples`] |
//! | describe an unknown file | [`info`] |
//! | deal samples to nodes | [`partition`] |
//!
//! ```
//! use hedgerow_data::streams;
//!
//! let nodes = 20;
//! let data = streams::find("friedman").unwrap().generate(1_000, nodes, 1);
//! assert_eq!((data.y.len(), data.features), (1_000, 10));
//! ```
//!
//! Data flows in one direction, in bounded memory:
//!
//! ```text
//! bytes ─▶ Rows ─▶ numbers of the chosen columns ─▶ SampleStream ─▶ Dataset
//! ```
//!
//! A [`samples::SampleStream`] has the past of each series. A [`Dataset`] can be read several times; a
//! live run reads the stream directly. Wrong data is a [`DataError`] with file, row and column.

pub mod catalog;
mod cell;
pub mod columns;
pub mod csv;
mod encoder;
mod error;
pub mod fetch;
pub mod file;
pub mod folders;
pub mod info;
mod jsonl;
mod packing;
mod parquet;
pub mod partition;
pub mod ranges;
pub mod rows;
pub mod samples;
mod series;
mod source;
pub mod stdin;
mod store;
pub mod streams;
pub mod text;
mod timestamp;

use std::io;

use columns::ColumnChoice;
pub use error::DataError;
use samples::{InputColumns, Sample, SampleStream};
use series::{Series, Shape};
use store::{MOST_IN_MEMORY, Store, StoreWriter};

/// Samples in order of time, which can be read several times.
#[derive(Debug)]
pub struct Dataset {
    /// Name of the stream, or the path of the file.
    pub name: String,
    /// Numbers per sample, d.
    pub features: usize,
    /// The labels, one per sample; NaN is missing.
    pub y: Vec<f32>,
    /// The node of each sample, if the data names nodes.
    pub owners: Option<Owners>,
    /// Nodes that the data names and that have too few rows for a single sample: they don't take
    /// part.
    pub too_short: Vec<String>,
    /// In a time series, the latest label that was known when each forecast was made; NaN if none
    /// was.
    pub last: Option<Vec<f32>>,
    /// Whether it is a time series, to be compared with the trivial forecasts.
    pub is_time_series: bool,
    /// Cells of the inputs without a value.
    pub missing: u64,
    /// Whether the first samples are of the order of one.
    pub is_of_order_one: bool,
    /// The columns of each input; empty if columns have no names.
    pub input_columns: InputColumns,
    x: Store,
    /// Of each input, then of the label.
    ranges: Vec<Range>,
    /// Applied to inputs as they are read: offset and factor.
    affine: Option<Vec<(f64, f64)>>,
}

/// The nodes of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owners {
    /// The node of each sample.
    pub ids: Vec<u32>,
    /// The nodes' names.
    pub names: Vec<String>,
}

impl Owners {
    /// The nodes with samples, renumbered, and the names of those without.
    fn with_samples(mut self) -> (Self, Vec<String>) {
        let mut has_sample = vec![false; self.names.len()];
        self.ids.iter().for_each(|id| has_sample[*id as usize] = true);
        let (mut number, mut next) = (Vec::new(), 0);
        for has_sample in &has_sample {
            number.push(next);
            next += u32::from(*has_sample);
        }
        self.ids.iter_mut().for_each(|id| *id = number[*id as usize]);
        let (kept, rest): (Vec<_>, Vec<_>) =
            self.names.into_iter().zip(has_sample).partition(|(_, has)| *has);
        let names = |named: Vec<(String, bool)>| named.into_iter().map(|(name, _)| name).collect();
        (Self { ids: self.ids, names: names(kept) }, names(rest))
    }
}

/// Least and greatest value.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    least: f32,
    greatest: f32,
}

impl Range {
    const EMPTY: Self = Self { least: f32::INFINITY, greatest: f32::NEG_INFINITY };

    fn see(&mut self, value: f32) {
        // Comparisons with NaN are false.
        if value < self.least {
            self.least = value;
        }
        if value > self.greatest {
            self.greatest = value;
        }
    }

    /// Offset and factor that map the range to the unit interval. A constant becomes zero. In f64
    /// no difference overflows.
    fn to_unit(self) -> (f64, f64) {
        let (least, greatest) = (f64::from(self.least), f64::from(self.greatest));
        if least < greatest {
            (least, 1.0 / (greatest - least))
        } else {
            (least.min(f64::MAX), 0.0)
        }
    }

    fn union(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), greatest: self.greatest.max(other.greatest) }
    }
}

impl Dataset {
    /// Samples that are in memory already.
    pub fn in_memory(name: &str, features: usize, x: Vec<f32>, y: Vec<f32>) -> Self {
        let mut ranges = vec![Range::EMPTY; features + 1];
        for (row, y) in x.chunks_exact(features.max(1)).zip(&y) {
            see(&mut ranges, row, *y);
        }
        Self {
            name: name.to_owned(),
            features,
            owners: None,
            too_short: Vec::new(),
            last: None,
            is_time_series: false,
            missing: x.iter().filter(|value| value.is_nan()).count() as u64,
            is_of_order_one: true,
            input_columns: InputColumns::default(),
            x: Store::in_memory(features, x),
            y,
            ranges,
            affine: None,
        }
    }

    /// Samples from arrays of another program, with their nodes if known. Unusable samples are
    /// refused.
    pub fn from_arrays(
        name: &str,
        features: usize,
        x: Vec<f32>,
        y: Vec<f32>,
        owners: Option<Owners>,
    ) -> Result<Self, DataError> {
        let rows = y.len();
        let is_owned = |owners: &Owners| {
            let has_name = |id: &u32| (*id as usize) < owners.names.len();
            owners.ids.len() == rows && owners.ids.iter().all(has_name)
        };
        let has_rows = features > 0 && rows.checked_mul(features) == Some(x.len());
        if !has_rows || !owners.as_ref().is_none_or(is_owned) {
            return Err(DataError::OtherLengths(name.to_owned(), rows));
        }
        if rows >= u32::MAX as usize {
            return Err(DataError::TooManyRows(rows));
        }
        let is_small = |value: &f32| value.is_nan() || value.abs() <= ORDER_ONE;
        let first = FIRST_LOOK.min(rows);
        let is_of_order_one = x[..first * features].iter().chain(&y[..first]).all(is_small);
        let mut data = Self { is_of_order_one, ..Self::in_memory(name, features, x, y) };
        if let Some(owners) = owners {
            let (owners, too_short) = owners.with_samples();
            (data.owners, data.too_short) = (Some(owners), too_short);
        }
        data.check_labels(0)?;
        Ok(data)
    }

    /// Reads a whole stream, which must not be live. `progress` gets the number of bytes read.
    pub fn read(
        name: &str,
        stream: &mut SampleStream,
        progress: &dyn Fn(u64),
    ) -> Result<Self, DataError> {
        Self::read_within(MOST_IN_MEMORY, name, stream, progress)
    }

    /// The same with a bound on the bytes in memory; the rest goes to a file.
    fn read_within(
        most_in_memory: usize,
        name: &str,
        stream: &mut SampleStream,
        progress: &dyn Fn(u64),
    ) -> Result<Self, DataError> {
        if stream.is_live() {
            return Err(DataError::NeedsWholeFile("a run with known data"));
        }
        let features = stream.features();
        let mut sample = Sample::default();
        let mut writer = Writer::new(features, most_in_memory);
        while stream.next(&mut sample)? {
            writer.push(&sample)?;
            if writer.y.len().is_multiple_of(1 << 12) {
                progress(stream.bytes_read());
            }
        }
        let (has_owners, names) = (stream.has_owners(), stream.owners().to_vec());
        let mut data = writer.finish(name, has_owners.then_some(names), stream.is_time_series())?;
        data.input_columns = stream.input_columns().clone();
        data.check_labels(stream.history())?;
        Ok(data)
    }

    /// The same samples with lags and horizon.
    pub fn with_past(self, choice: &ColumnChoice) -> Result<Self, DataError> {
        let shape = Shape {
            inputs: self.features,
            lagged: 0,
            lags: choice.lags,
            horizon: choice.horizon,
            exogenous: choice.exogenous,
        };
        if !shape.looks_back() {
            return Ok(self);
        }
        let owner_of = |index: usize| self.owners.as_ref().map_or(0, |owners| owners.ids[index]);
        let count = self.owners.as_ref().map_or(1, |owners| owners.names.len());
        let mut series: Vec<Series> = (0..count).map(|_| Series::default()).collect();
        let (mut sample, mut x) = (Sample::default(), Vec::new());
        let mut writer = Writer::new(shape.width(), MOST_IN_MEMORY);
        for (index, &label) in self.y.iter().enumerate() {
            x.clear();
            self.inputs(&[index as u32], &mut x).map_err(DataError::Store)?;
            sample.owner = owner_of(index);
            if series[sample.owner as usize].next(&shape, &x, &[], label, &mut sample) {
                writer.push(&sample)?;
            }
        }
        let data = writer.finish(&self.name, self.owners.map(|owners| owners.names), true)?;
        data.check_labels(shape.history())?;
        Ok(data)
    }

    /// Number of samples, n.
    pub fn len(&self) -> usize {
        self.y.len()
    }

    /// Whether there is no sample at all.
    pub fn is_empty(&self) -> bool {
        self.y.is_empty()
    }

    /// Labels that are missing.
    pub fn missing_labels(&self) -> usize {
        self.y.iter().filter(|label| label.is_nan()).count()
    }

    /// Appends the inputs of these samples to `out`.
    ///
    /// # Panics
    /// If an index is not below [`len`](Self::len).
    pub fn inputs(&self, indices: &[u32], out: &mut Vec<f32>) -> io::Result<()> {
        let start = out.len();
        self.x.read(indices, out)?;
        if let Some(affine) = &self.affine {
            for row in out[start..].chunks_exact_mut(self.features.max(1)) {
                row.iter_mut().zip(affine).for_each(|(x, axis)| *x = scaled(*x, *axis));
            }
        }
        Ok(())
    }

    /// Takes every input, and the label unless it is a class, to the unit interval by the least and
    /// greatest value of the whole data: something that only hindsight knows. Inputs each by their
    /// own, or `jointly` all by the same.
    pub fn scale_with_hindsight(&mut self, jointly: bool, raw_labels: bool) {
        let (label, inputs) = match self.ranges.split_last() {
            Some((label, inputs)) => (*label, inputs),
            None => return,
        };
        let together = inputs.iter().copied().fold(Range::EMPTY, Range::union);
        let affine =
            inputs.iter().map(|range| if jointly { together } else { *range }.to_unit()).collect();
        self.affine = Some(affine);
        if !raw_labels {
            let axis = label.to_unit();
            let change = |label: &mut f32| *label = scaled(*label, axis);
            self.y.iter_mut().for_each(change);
            self.last.iter_mut().flatten().for_each(change);
        }
    }

    fn check_labels(&self, history: usize) -> Result<(), DataError> {
        if self.y.is_empty() {
            return Err(DataError::TooShort(self.name.clone(), history));
        }
        let range = self.ranges.last().copied().unwrap_or(Range::EMPTY);
        let (name, target) = (self.name.clone(), self.input_columns.targets.join(", "));
        let labels = self.len() - self.missing_labels();
        if labels == 0 {
            return Err(DataError::NoLabels(name, target, self.len()));
        }
        if range.least == range.greatest && labels > 1 {
            return Err(DataError::ConstantTarget(name, target, range.least, labels));
        }
        Ok(())
    }

    /// Input and label of one sample.
    #[cfg(test)]
    pub(crate) fn sample(&self, index: usize) -> (Vec<f32>, f32) {
        let mut x = Vec::new();
        self.inputs(&[index as u32], &mut x).unwrap();
        (x, self.y[index])
    }
}

fn scaled(value: f32, (offset, factor): (f64, f64)) -> f32 {
    ((f64::from(value) - offset) * factor) as f32
}

fn see(ranges: &mut [Range], x: &[f32], y: f32) {
    ranges.iter_mut().zip(x.iter().chain([&y])).for_each(|(range, value)| range.see(*value));
}

/// Samples that are looked at to see whether numbers are of the order of one.
pub const FIRST_LOOK: usize = 100;
/// Largest size of such a number.
const ORDER_ONE: f32 = 3.0;

/// Whether the numbers of a sample are as kernels and rates need them.
pub fn is_of_order_one(sample: &Sample) -> bool {
    sample.x.iter().chain([&sample.y]).all(|value| value.is_nan() || value.abs() <= ORDER_ONE)
}

/// Collects samples.
struct Writer {
    x: StoreWriter,
    y: Vec<f32>,
    owners: Vec<u32>,
    last: Vec<f32>,
    ranges: Vec<Range>,
    missing: u64,
    is_of_order_one: bool,
}

impl Writer {
    fn new(features: usize, most_in_memory: usize) -> Self {
        Self {
            x: StoreWriter::within(most_in_memory, features),
            y: Vec::new(),
            owners: Vec::new(),
            last: Vec::new(),
            ranges: vec![Range::EMPTY; features + 1],
            missing: 0,
            is_of_order_one: true,
        }
    }

    fn push(&mut self, sample: &Sample) -> Result<(), DataError> {
        if self.y.len() == u32::MAX as usize {
            return Err(DataError::TooManyRows(self.y.len()));
        }
        self.x.push(&sample.x).map_err(DataError::Store)?;
        self.missing += sample.x.iter().filter(|value| value.is_nan()).count() as u64;
        see(&mut self.ranges, &sample.x, sample.y);
        if self.y.len() < FIRST_LOOK {
            self.is_of_order_one &= is_of_order_one(sample);
        }
        self.y.push(sample.y);
        self.owners.push(sample.owner);
        self.last.push(sample.last.unwrap_or(f32::NAN));
        Ok(())
    }

    fn finish(
        self,
        name: &str,
        owner_names: Option<Vec<String>>,
        is_time_series: bool,
    ) -> Result<Dataset, DataError> {
        let (name, features) = (name.to_owned(), self.ranges.len() - 1);
        let owners = owner_names.map(|names| Owners { ids: self.owners, names }.with_samples());
        let (owners, too_short) = owners.unzip();
        Ok(Dataset {
            name,
            features,
            owners,
            too_short: too_short.unwrap_or_default(),
            last: self.last.iter().any(|last| !last.is_nan()).then_some(self.last),
            is_time_series,
            missing: self.missing,
            is_of_order_one: self.is_of_order_one,
            input_columns: InputColumns::default(),
            x: self.x.finish().map_err(DataError::Store)?,
            y: self.y,
            ranges: self.ranges,
            affine: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_data_if_they_belong_together() {
        let owners = |ids: &[u32]| {
            Some(Owners { ids: ids.to_vec(), names: ["a", "b", "c"].map(str::to_owned).to_vec() })
        };
        let made = |x: &[f32], y: &[f32], owners| {
            Dataset::from_arrays("t", 2, x.to_vec(), y.to_vec(), owners)
                .map_err(|error| error.to_string())
        };
        let data = made(&[1.0, f32::NAN, 3.0, 2.0], &[0.0, 1.0], owners(&[2, 0])).unwrap();
        assert_eq!((data.len(), data.missing, data.is_of_order_one), (2, 1, true));
        assert_eq!((data.owners.unwrap().ids, data.too_short), (vec![1, 0], vec!["b".to_owned()]));
        assert!(!made(&[1.0, 4.0, 3.0, 2.0], &[0.0, 1.0], None).unwrap().is_of_order_one);
        for (x, y, owners) in [
            (&[1.0, 2.0, 3.0][..], &[0.0, 1.0][..], None),
            (&[1.0, 2.0, 3.0, 4.0], &[0.0, 1.0], owners(&[0])),
            (&[1.0, 2.0, 3.0, 4.0], &[0.0, 1.0], owners(&[0, 3])),
            (&[1.0, 2.0, 3.0, 4.0], &[1.0, 1.0], None),
            (&[1.0, 2.0, 3.0, 4.0], &[f32::NAN, f32::NAN], None),
            (&[], &[], None),
        ] {
            assert!(made(x, y, owners).is_err_and(|error| error.contains('t')));
        }
    }

    #[test]
    fn what_is_spilled_to_a_file_gives_the_same_samples() {
        let mut text = String::from("a,b,y\n");
        for at in 0..400 {
            let (a, b) = (f64::from(at).sin(), f64::from(at * 7).cos());
            let b = if at % 9 == 0 { String::new() } else { (80.0 * b).to_string() };
            text += &format!("{},{b},{}\n", 90.0 * a, 5.0 * a * a);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let files = [file.path().to_owned()];
        let choice = ColumnChoice { lags: 2, ..ColumnChoice::default() };
        for jointly in [None, Some(false), Some(true)] {
            let [memory, file] = [usize::MAX, 1000].map(|most_in_memory| {
                let mut stream = SampleStream::open(&files, &choice).unwrap();
                let mut data =
                    Dataset::read_within(most_in_memory, "t", &mut stream, &|_| {}).unwrap();
                assert_eq!(data.x.is_in_file(), most_in_memory == 1000);
                if let Some(jointly) = jointly {
                    data.scale_with_hindsight(jointly, false);
                }
                data
            });
            assert!(memory.missing > 0 && memory.missing == file.missing);
            // As bits: a missing value is not equal to itself.
            let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&memory.y), bits(&file.y));
            assert_eq!(memory.last.as_deref().map(bits), file.last.as_deref().map(bits));
            for index in 0..memory.len() {
                assert_eq!(bits(&memory.sample(index).0), bits(&file.sample(index).0));
            }
            let deal =
                |data: &Dataset| partition::Partition::SortedDirection.deal(data, 7, 1).unwrap();
            assert_eq!(deal(&memory), deal(&file));
        }
    }

    #[test]
    fn nodes_without_samples_are_not_counted() {
        let names = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let (owners, without) = Owners { ids: vec![3, 1, 1, 3], names }.with_samples();
        assert_eq!(owners, Owners { ids: vec![1, 0, 0, 1], names: vec!["b".into(), "d".into()] });
        assert_eq!(without, ["a", "c"]);
    }

    #[test]
    fn numbers_of_the_order_of_one_are_small_or_missing() {
        let sample = |x: &[f32], y| Sample { x: x.to_vec(), y, ..Sample::default() };
        assert!(is_of_order_one(&sample(&[-3.0, f32::NAN, 0.0], 3.0)));
        assert!(!is_of_order_one(&sample(&[0.0], -3.1)) && !is_of_order_one(&sample(&[3.1], 0.0)));
    }
}
