//! Data sets that are made of others: with a past, or without samples that lack a label.

use super::{Dataset, MOST_IN_MEMORY, Writer};
use crate::DataError;
use crate::columns::ColumnChoice;
use crate::samples::Sample;
use crate::series::{Series, Shape};

impl Dataset {
    /// The same samples with lags and horizon.
    pub fn with_past(self, choice: &ColumnChoice) -> Result<Self, DataError> {
        let shape = Shape {
            inputs: self.features,
            labels: self.outputs,
            lagged: 0,
            lags: choice.lags,
            horizon: choice.horizon,
            exogenous: choice.exogenous,
        };
        if !shape.looks_back() {
            return Ok(self);
        }
        let count = self.owners.as_ref().map_or(1, |owners| owners.names.len());
        let mut series: Vec<Series> = (0..count).map(|_| Series::default()).collect();
        let (mut sample, mut x) = (Sample::default(), Vec::new());
        let mut writer = Writer::new(&self.name, shape.width(), self.outputs, MOST_IN_MEMORY);
        for index in 0..self.len() {
            x.clear();
            self.inputs(&[index as u32], &mut x).map_err(DataError::Store)?;
            (sample.owner, sample.row) = (self.owner(index), self.row(index));
            let labels = self.labels(index);
            if series[sample.owner as usize].next(&shape, &x, &[], labels, &mut sample) {
                writer.push(&sample)?;
            }
        }
        let mut data = writer.finish(self.owners.map(|owners| owners.names), true)?;
        data.times = Vec::new();
        data.check_labels(shape.history())?;
        Ok(data)
    }

    /// The samples that have all of their labels.
    pub fn labelled(self) -> Result<Self, DataError> {
        if self.missing_labels() == 0 {
            return Ok(self);
        }
        let mut sample = Sample::default();
        let mut writer = Writer::new(&self.name, self.features, self.outputs, MOST_IN_MEMORY);
        for index in 0..self.len() {
            let labels = self.labels(index);
            if labels.iter().any(|label| label.is_nan()) {
                continue;
            }
            sample.x.clear();
            self.inputs(&[index as u32], &mut sample.x).map_err(DataError::Store)?;
            sample.y = labels.to_vec();
            sample.last = self.last_labels(index).to_vec();
            sample.owner = self.owner(index);
            sample.row = self.row(index);
            sample.time = self.times.get(index).copied().unwrap_or_default();
            writer.push(&sample)?;
        }
        let names = self.owners.map(|owners| owners.names);
        let mut data = writer.finish(names, self.is_time_series)?;
        data.too_short.extend(self.too_short);
        if self.times.is_empty() {
            data.times = Vec::new();
        }
        (data.classes, data.schema, data.has_dates) = (self.classes, self.schema, self.has_dates);
        data.repeated_rows = self.repeated_rows;
        data.check_labels(0)?;
        Ok(data)
    }

    /// The node of a sample; 0 if the data names none.
    fn owner(&self, index: usize) -> u32 {
        self.owners.as_ref().map_or(0, |owners| owners.ids[index])
    }
}
