//! [`Builder`]: a sample that is being read, column by column.

use std::borrow::Cow;
use std::collections::HashMap;

use hedgerow_data::rows::Cell;
use hedgerow_data::text::excerpt;
use hedgerow_data::timestamp;

use super::{BadRow, MAX_ID, Sample, Schema};

/// A sample that is being read.
pub(in crate::agent) struct Builder<'s> {
    schema: &'s Schema,
    sample: Sample,
    /// The label of each target that has come; NaN if it is missing.
    labels: Vec<Option<f32>>,
    /// Whether all have come at once.
    has_labels: bool,
    /// Which inputs have been set; empty as long as none has.
    set: Vec<bool>,
    /// The parts of the time that have come; empty if they are missing.
    time: Vec<Option<String>>,
    lagged: Vec<Option<f32>>,
}

impl<'s> Builder<'s> {
    pub(in crate::agent) fn new(schema: &'s Schema) -> Self {
        Self {
            schema,
            sample: Sample::default(),
            labels: vec![None; schema.targets.len()],
            has_labels: false,
            set: Vec::new(),
            time: vec![None; schema.time.len()],
            lagged: vec![None; schema.lagged.len()],
        }
    }

    pub(in crate::agent) fn input(
        &mut self,
        position: usize,
        column: &str,
        value: f32,
    ) -> Result<(), BadRow> {
        let inputs = self.schema.inputs;
        let x = self.sample.x.get_or_insert_with(|| vec![f32::NAN; inputs]);
        self.set.resize(inputs, false);
        if std::mem::replace(&mut self.set[position], true) {
            return Err(BadRow::Twice { column: excerpt(column) });
        }
        x[position] = value;
        Ok(())
    }

    /// A column of text: the input of its text is one and the others are zero, as they all are if
    /// the text is missing or not known.
    pub(in crate::agent) fn category(
        &mut self,
        column: &str,
        text: Option<String>,
    ) -> Result<(), BadRow> {
        let schema = self.schema;
        let Some(positions) = schema.category(column) else { return Ok(()) };
        for (known, position) in positions {
            let is_it = text.as_ref() == Some(known);
            self.input(*position, column, f32::from(u8::from(is_it)))?;
        }
        self.sample.unseen.extend(text.filter(|text| !positions.contains_key(text)));
        Ok(())
    }

    pub(in crate::agent) fn inputs(&mut self, numbers: Vec<f32>) -> Result<(), BadRow> {
        if self.sample.x.is_some() {
            return Err(BadRow::Twice { column: "x".into() });
        }
        self.set = vec![true; numbers.len()];
        self.sample.x = Some(numbers);
        Ok(())
    }

    /// A part of the time.
    pub(in crate::agent) fn time(
        &mut self,
        at: usize,
        column: &str,
        cell: Cell<'_>,
    ) -> Result<(), BadRow> {
        let part = timestamp::part(cell, self.time.len()).unwrap_or_default().into_owned();
        match self.time[at].replace(part) {
            None => Ok(()),
            Some(_) => Err(BadRow::Twice { column: excerpt(column) }),
        }
    }

    /// A column whose past counts.
    pub(in crate::agent) fn lagged(
        &mut self,
        at: usize,
        column: &str,
        value: f32,
    ) -> Result<(), BadRow> {
        match self.lagged[at].replace(value) {
            None => Ok(()),
            Some(_) => Err(BadRow::Twice { column: excerpt(column) }),
        }
    }

    /// Reads the time, and what the past needs. What comes with an id and labels alone is no row.
    fn take_series(&mut self) -> Result<(), BadRow> {
        let Self { schema, sample, time, lagged, .. } = self;
        let has_more = time.iter().any(Option::is_some) || lagged.iter().any(Option::is_some);
        let has_label = self.has_labels || self.labels.iter().any(Option::is_some);
        let is_row = has_more || (schema.inputs == 0 && sample.id.is_none() && has_label);
        if is_row && sample.x.is_none() {
            self.set.resize(schema.inputs, false);
            sample.x = Some(vec![f32::NAN; schema.inputs]);
        }
        let Some(x) = &sample.x else { return Ok(()) };
        let value = |(name, value): (&String, &Option<f32>)| match schema.positions.get(name) {
            Some(position) => x[*position],
            None => value.unwrap_or(f32::NAN),
        };
        sample.lagged = schema.lagged.iter().zip(lagged.iter()).map(value).collect();
        let Some(first) = schema.time.first() else { return Ok(()) };
        let parts: Vec<&str> = time.iter().flatten().map(String::as_str).collect();
        let joined = parts.join(" ");
        // Without its time of day a row would be at midnight.
        let is_whole = parts.len() == time.len() && parts.iter().all(|part| !part.is_empty());
        sample.time = timestamp::parse(&joined).filter(|_| is_whole);
        match sample.time {
            Some(_) => Ok(()),
            None => {
                let value = format!("{:?}", excerpt(&joined));
                Err(BadRow::NotATime { column: excerpt(first), value })
            }
        }
    }

    pub(in crate::agent) fn label(
        &mut self,
        at: usize,
        column: &str,
        value: f32,
    ) -> Result<(), BadRow> {
        if self.has_labels || self.labels[at].replace(value).is_some() {
            return Err(BadRow::Twice { column: excerpt(column) });
        }
        Ok(())
    }

    /// The labels of all outputs; none of them if they are missing.
    pub(in crate::agent) fn all_labels(
        &mut self,
        column: &str,
        labels: Option<Vec<f32>>,
    ) -> Result<(), BadRow> {
        if self.has_labels || self.labels.iter().any(Option::is_some) {
            return Err(BadRow::Twice { column: excerpt(column) });
        }
        self.has_labels = true;
        self.sample.y = labels.filter(|labels| !labels.iter().any(|label| label.is_nan()));
        Ok(())
    }

    /// The labels of all targets that came one by one.
    fn take_labels(&mut self) -> Result<(), BadRow> {
        let known = |label: &Option<f32>| label.is_some_and(|label| !label.is_nan());
        let Some(found) = self.labels.iter().position(known) else { return Ok(()) };
        if !self.labels.iter().all(known) {
            let found = self.schema.targets[found].clone();
            return Err(BadRow::SomeLabels { found, known: self.schema.label() });
        }
        self.sample.y = self.labels.iter().copied().collect();
        Ok(())
    }

    pub(in crate::agent) fn id(&mut self, id: Cow<'_, str>) -> Result<(), BadRow> {
        if self.sample.id.is_some() {
            return Err(BadRow::Twice { column: "id".into() });
        }
        if id.is_empty() || id.len() > MAX_ID {
            return Err(BadRow::BadId { value: format!("{:?}", excerpt(&id)) });
        }
        self.sample.id = Some(id.into_owned());
        Ok(())
    }

    pub(in crate::agent) fn finish(mut self) -> Result<Sample, BadRow> {
        self.take_labels()?;
        self.take_series()?;
        let Self { schema, mut sample, set, .. } = self;
        match (&sample.id, &sample.x, &sample.y) {
            (_, None, None) => Err(BadRow::Nothing),
            (None, None, Some(_)) => Err(BadRow::LabelAlone),
            _ => {
                sample.absent = (0..set.len()).filter(|position| !set[*position]).collect();
                // A text that isn't there is missing: all inputs of its column are zero.
                if let (Some(x), false) = (&mut sample.x, sample.absent.is_empty()) {
                    let inputs = schema.categories.values().flat_map(HashMap::values);
                    inputs.filter(|position| !set[**position]).for_each(|at| x[*at] = 0.0);
                }
                Ok(sample)
            }
        }
    }
}

/// The number that a text is, such as one of a JSON object.
pub(in crate::agent) fn to_number(column: &str, text: &str) -> Result<f32, BadRow> {
    // Through f64, as everywhere else, so that the same text is always the same number.
    let number = text.parse().map_err(|_| not_a_number(column, &format!("{text:?}")))?;
    to_f32(column, text, number)
}

/// The nearest number of 32 bits.
pub(in crate::agent) fn to_f32(column: &str, text: &str, number: f64) -> Result<f32, BadRow> {
    let number = number as f32;
    if number.is_finite() {
        return Ok(number);
    }
    Err(BadRow::TooLarge { column: excerpt(column), value: excerpt(text) })
}

pub(in crate::agent) fn not_a_number(column: &str, value: &str) -> BadRow {
    BadRow::NotANumber { column: excerpt(column), value: excerpt(value) }
}
