//! [`Dataset`]: samples that can be read several times, with what is known of all of them.

use std::io;
use std::path::PathBuf;

use hedgerow::limits::{MAX_CLASSES, MAX_OUTPUTS};

use super::DataError;
use super::rows::CellPosition;
use super::samples::{InputColumns, Sample, SampleStream};
use super::schema::TableSchema;
use super::store::{MOST_IN_MEMORY, Store, StoreWriter};

mod derived;

/// Samples in order of time, which can be read several times.
#[derive(Debug)]
pub struct Dataset {
    /// Name of the stream, or the path of the file.
    pub name: String,
    /// Numbers per sample, d.
    pub features: usize,
    /// The labels of all samples, [`Dataset::labels`] of each; NaN is missing. A class is its
    /// number from 0.
    pub y: Vec<f32>,
    /// Labels per sample.
    pub outputs: usize,
    /// Names of the classes, if labels are classes.
    pub classes: Vec<String>,
    /// The node of each sample, if the data names nodes.
    pub owners: Option<Owners>,
    /// Nodes that the data names and that have too few rows for a single sample: they don't take
    /// part.
    pub too_short: Vec<String>,
    /// In a time series, the latest labels that were known when each forecast was made; NaN if none
    /// was.
    pub last: Option<Vec<f32>>,
    /// Whether it is a time series, to be compared with the trivial forecasts.
    pub is_time_series: bool,
    /// The time of each label in seconds since 1970; empty if the data has no time.
    pub times: Vec<f64>,
    /// Whether times are dates, not plain numbers.
    pub has_dates: bool,
    /// Cells of the inputs without a value.
    pub missing: u64,
    /// Rows that were left out because the row before has their time.
    pub repeated_rows: u64,
    /// Whether the first samples are of the order of one.
    pub is_of_order_one: bool,
    /// What the columns of its tables mean; none if it is not from tables.
    pub schema: Option<TableSchema>,
    x: Store,
    /// Of each input, then of each label.
    ranges: Vec<Range>,
    /// The row of each label in its file, from 1; empty if samples are not from a file.
    rows: Vec<u64>,
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
        let mut data = Self::empty(name, features, 1);
        for (row, y) in x.chunks_exact(features.max(1)).zip(y) {
            data.see(row, &[y]);
        }
        Self { x: Store::in_memory(features, x), ..data }
    }

    fn empty(name: &str, features: usize, outputs: usize) -> Self {
        Self {
            name: name.to_owned(),
            features,
            y: Vec::new(),
            outputs,
            classes: Vec::new(),
            owners: None,
            too_short: Vec::new(),
            last: None,
            is_time_series: false,
            times: Vec::new(),
            has_dates: false,
            missing: 0,
            repeated_rows: 0,
            is_of_order_one: true,
            schema: None,
            x: Store::in_memory(features, Vec::new()),
            ranges: vec![Range::EMPTY; features + outputs],
            rows: Vec::new(),
            affine: None,
        }
    }

    /// Takes the labels of the next sample, and what its inputs tell.
    fn see(&mut self, x: &[f32], y: &[f32]) {
        let values = x.iter().chain(y);
        self.ranges.iter_mut().zip(values).for_each(|(range, value)| range.see(*value));
        self.missing += x.iter().filter(|value| value.is_nan()).count() as u64;
        if self.len() < FIRST_LOOK {
            let numbers = if self.classes.is_empty() { y } else { &[] };
            self.is_of_order_one &= is_of_order_one(x, numbers);
        }
        self.y.extend_from_slice(y);
    }

    /// Names the nodes of the samples.
    fn set_owners(&mut self, owners: Owners) {
        let (owners, too_short) = owners.with_samples();
        (self.owners, self.too_short) = (Some(owners), too_short);
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
        let mut data = Self::in_memory(name, features, x, y);
        if let Some(owners) = owners {
            data.set_owners(owners);
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
        let mut sample = Sample::default();
        let mut writer = Writer::new(name, stream.features(), stream.labels(), most_in_memory);
        writer.data.classes.clone_from(&stream.schema().classes);
        while stream.next(&mut sample)? {
            writer.push(&sample)?;
            if writer.data.len().is_multiple_of(1 << 12) {
                progress(stream.bytes_read());
            }
        }
        let (has_owners, names) = (stream.has_owners(), stream.owners().to_vec());
        let mut data = writer.finish(has_owners.then_some(names), stream.is_time_series())?;
        data.schema = Some(stream.schema().clone());
        if !stream.has_time() {
            data.times = Vec::new();
        }
        data.has_dates = stream.has_dates();
        data.repeated_rows = stream.repeated_rows();
        data.check_labels(stream.history())?;
        Ok(data)
    }

    /// Number of samples, n.
    pub fn len(&self) -> usize {
        self.y.len() / self.outputs
    }

    /// The labels of a sample.
    ///
    /// # Panics
    /// If an index is not below [`len`](Self::len).
    pub fn labels(&self, index: usize) -> &[f32] {
        &self.y[index * self.outputs..(index + 1) * self.outputs]
    }

    /// The latest labels that were known when a sample's were predicted; NaN if none was.
    ///
    /// # Panics
    /// If an index is not below [`len`](Self::len).
    pub fn last_labels(&self, index: usize) -> &[f32] {
        const UNKNOWN: [f32; MAX_OUTPUTS] = [f32::NAN; MAX_OUTPUTS];
        match &self.last {
            Some(last) => &last[index * self.outputs..(index + 1) * self.outputs],
            None => &UNKNOWN[..self.outputs],
        }
    }

    /// The unit of each target in which errors of several can be compared: its standard deviation;
    /// of a single one, its own unit. None of classes.
    pub fn units(&self) -> Vec<f64> {
        match (self.classes.is_empty(), self.outputs) {
            (false, _) => Vec::new(),
            (true, 1) => vec![1.0],
            (true, _) => spreads(self.y.chunks_exact(self.outputs), self.outputs),
        }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.y.is_empty()
    }

    /// The row of a sample's label in its file, from 1; of samples that are not from a file, their
    /// number.
    pub fn row(&self, index: usize) -> u64 {
        self.rows.get(index).copied().unwrap_or(index as u64 + 1)
    }

    /// The columns of each input; empty if it is not from tables.
    pub fn input_columns(&self) -> InputColumns {
        self.schema.as_ref().map(TableSchema::input_columns).unwrap_or_default()
    }

    /// Samples of which a label is missing.
    pub fn missing_labels(&self) -> usize {
        let samples = self.y.chunks_exact(self.outputs);
        samples.filter(|labels| labels.iter().any(|label| label.is_nan())).count()
    }

    /// The same samples with labels that are classes: each value is one.
    pub fn with_classes(mut self) -> Result<Self, DataError> {
        let mut values: Vec<f32> = self.y.iter().copied().filter(|y| !y.is_nan()).collect();
        values.sort_by(f32::total_cmp);
        values.dedup();
        let place = CellPosition { file: PathBuf::from(&self.name), row: None, column: None };
        if values.len() > MAX_CLASSES {
            return Err(DataError::TooManyClasses(place, MAX_CLASSES));
        }
        for y in &mut self.y {
            let at = values.iter().position(|value| value == y);
            *y = at.map_or(f32::NAN, |at| at as f32);
        }
        self.classes = values.iter().map(f32::to_string).collect();
        Ok(self)
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

    /// Maps every input, and every label unless it is a class, to the unit interval by the least
    /// and greatest value of the whole data, which only hindsight knows. Each input has its own
    /// range, or all have the same if `jointly`.
    pub fn scale_with_hindsight(&mut self, jointly: bool) {
        let (inputs, labels) = self.ranges.split_at(self.features);
        let together = inputs.iter().copied().fold(Range::EMPTY, Range::union);
        let affine =
            inputs.iter().map(|range| if jointly { together } else { *range }.to_unit()).collect();
        self.affine = Some(affine);
        if self.classes.is_empty() {
            let axes: Vec<(f64, f64)> = labels.iter().map(|range| range.to_unit()).collect();
            for labels in [&mut self.y].into_iter().chain(&mut self.last) {
                let all = labels.iter_mut().zip(axes.iter().cycle());
                all.for_each(|(label, axis)| *label = scaled(*label, *axis));
            }
        }
    }

    fn check_labels(&self, history: usize) -> Result<(), DataError> {
        if self.y.is_empty() {
            return Err(DataError::TooShort(self.name.clone(), history));
        }
        let (name, mut targets) = (self.name.clone(), self.input_columns().targets);
        if targets.iter().all(String::is_empty) {
            targets = (0..self.outputs).map(|at| format!("y[{at}]")).collect();
        }
        let labels = self.len() - self.missing_labels();
        if labels == 0 {
            return Err(DataError::NoLabels(name, targets.join(", "), self.len()));
        }
        let is_constant = |range: &&Range| range.least == range.greatest && labels > 1;
        let ranges = &self.ranges[self.features..];
        if let Some(at) = ranges.iter().position(|range| is_constant(&range)) {
            let target = if self.outputs == 1 { targets.join(", ") } else { targets[at].clone() };
            return Err(DataError::ConstantTarget(name, target, ranges[at].least, labels));
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

/// The standard deviation of each of several labels; 1 of one that doesn't change.
pub fn spreads<'a>(samples: impl Iterator<Item = &'a [f32]>, outputs: usize) -> Vec<f64> {
    // Count, mean and sum of squared distances from it.
    let mut moments = vec![(0.0, 0.0, 0.0); outputs];
    for labels in samples {
        let known = moments.iter_mut().zip(labels).filter(|(_, label)| !label.is_nan());
        for ((count, mean, squares), label) in known {
            *count += 1.0;
            let before = f64::from(*label) - *mean;
            *mean += before / *count;
            *squares += before * (f64::from(*label) - *mean);
        }
    }
    let spread = |(count, _, squares): (f64, f64, f64)| (squares / count).sqrt();
    let spreads = moments.into_iter().map(spread);
    spreads.map(|spread| if spread > 0.0 { spread } else { 1.0 }).collect()
}

fn scaled(value: f32, (offset, factor): (f64, f64)) -> f32 {
    ((f64::from(value) - offset) * factor) as f32
}

/// Samples that are looked at to see whether numbers are of the order of one.
pub const FIRST_LOOK: usize = 100;
/// Largest size of such a number.
const ORDER_ONE: f32 = 3.0;

/// Whether the numbers of a sample are as kernels and rates need them.
pub fn is_of_order_one(x: &[f32], y: &[f32]) -> bool {
    x.iter().chain(y).all(|value| value.is_nan() || value.abs() <= ORDER_ONE)
}

/// Collects samples.
struct Writer {
    data: Dataset,
    x: StoreWriter,
    owners: Vec<u32>,
    last: Vec<f32>,
}

impl Writer {
    fn new(name: &str, features: usize, outputs: usize, most_in_memory: usize) -> Self {
        Self {
            data: Dataset::empty(name, features, outputs),
            x: StoreWriter::within(most_in_memory, features),
            owners: Vec::new(),
            last: Vec::new(),
        }
    }

    fn push(&mut self, sample: &Sample) -> Result<(), DataError> {
        if self.data.len() == u32::MAX as usize {
            return Err(DataError::TooManyRows(self.data.len()));
        }
        self.x.push(&sample.x).map_err(DataError::Store)?;
        self.data.see(&sample.x, &sample.y);
        self.data.rows.push(sample.row);
        self.data.times.push(sample.time);
        self.owners.push(sample.owner);
        self.last.extend_from_slice(&sample.last);
        Ok(())
    }

    fn finish(
        self,
        owner_names: Option<Vec<String>>,
        is_time_series: bool,
    ) -> Result<Dataset, DataError> {
        let Self { mut data, x, owners: ids, last } = self;
        data.x = x.finish().map_err(DataError::Store)?;
        data.last = last.iter().any(|last| !last.is_nan()).then_some(last);
        data.is_time_series = is_time_series;
        if let Some(names) = owner_names {
            data.set_owners(Owners { ids, names });
        }
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::ColumnChoice;

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
                    data.scale_with_hindsight(jointly);
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
            let deal = |data: &Dataset| {
                crate::partition::Partition::SortedDirection.deal(data, 7, 1).unwrap()
            };
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
        assert!(is_of_order_one(&[-3.0, f32::NAN, 0.0], &[3.0]));
        assert!(!is_of_order_one(&[0.0], &[-3.1]) && !is_of_order_one(&[3.1], &[0.0]));
    }
}
