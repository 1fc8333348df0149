//! [`Clock`]: what the times of a table show, device by device.

use std::collections::HashMap;
use std::path::PathBuf;

use super::suggest::Roles;
use crate::DataError;
use crate::calendar::{Cycle, CycleFinder};
use crate::columns::{BY_FILE, ColumnChoice};
use crate::encoder::{Encoder, Numbers, Owners, Purpose};
use crate::rows::{self, Row};
use crate::schema::TableSchema;

/// One of this many rows is few.
const FEW_SHARE: u64 = 20;

/// What the times of a table show. A time that another device has as well is no repetition.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Rows before the last one of their device.
    pub(super) back: u64,
    /// Rows at the time of the last one of their device.
    pub(super) repeated: u64,
    /// Rows of another device than the row before.
    pub(super) turns: u64,
    /// Devices.
    pub(super) devices: u64,
    /// Cycles that dates cover and resolve.
    pub(super) cycles: Vec<Cycle>,
}

impl Clock {
    /// Reads the times; nothing is known of them if one can't be read.
    pub(super) fn read(
        files: &[PathBuf],
        choice: &ColumnChoice,
        roles: &Roles,
    ) -> Result<Self, DataError> {
        if roles.time.is_empty() {
            return Ok(Self::default());
        }
        let schema = TableSchema {
            time: roles.time.clone(),
            node: roles.node.clone(),
            targets: Vec::new(),
            ..TableSchema::plain(&[], "")
        };
        let is_by_file = schema.node.as_deref() == Some(BY_FILE);
        let mut clock = Self::default();
        let (mut owners, mut numbers, mut row) =
            (Owners::default(), Numbers::default(), Row::default());
        let (mut finder, mut last) = (CycleFinder::default(), HashMap::new());
        let (mut has_dates, mut previous) = (true, None);
        for (at, file) in files.iter().enumerate() {
            let mut table = rows::open(file, &choice.format)?;
            let encoder = Encoder::new(file.clone(), table.columns(), &schema, Purpose::Learning);
            // A file with other columns is left out.
            let Ok(mut encoder) = encoder else { continue };
            while table.next(&mut row)? {
                if encoder.encode(&row, &mut owners, &mut numbers).is_err() {
                    return Ok(Self::default());
                }
                let device = if is_by_file { at as u32 } else { numbers.owner };
                let time = numbers.time;
                let before = last.insert(device, time);
                clock.back += u64::from(before.is_some_and(|before| time < before));
                clock.repeated += u64::from(before == Some(time));
                let previous = previous.replace(device);
                clock.turns += u64::from(previous.is_some_and(|previous| previous != device));
                finder.see(device, time);
            }
            has_dates &= encoder.has_dates();
        }
        clock.devices = last.len() as u64;
        clock.cycles = if has_dates { finder.cycles() } else { Vec::new() };
        Ok(clock)
    }

    /// Whether the rows of each device stand together, in order, and each next device begins at an
    /// earlier time again.
    pub(super) fn is_device_by_device(&self, all: &Self) -> bool {
        self.devices > 1
            && self.turns == self.devices - 1
            && self.back == 0
            && all.back == self.turns
    }

    /// Whether devices explain nearly all repetitions of times, and nearly all ways back.
    pub(super) fn explains(&self, all: &Self) -> bool {
        self.devices > 1 && FEW_SHARE * (self.repeated + self.back) <= all.repeated + all.back
    }

    /// Whether few rows repeat the time of the row before.
    pub(super) fn repeats_rarely(&self, rows: u64) -> bool {
        FEW_SHARE * self.repeated <= rows
    }
}
