//! [`Store`]: rows of numbers that can be read again and again. Small ones stay in memory; large
//! ones go to a temporary file that has no name and is gone with the process.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, PoisonError};

/// Bytes of numbers that are kept in memory; more go to a file.
pub(super) const MOST_IN_MEMORY: usize = 64 << 20;

/// Rows of `width` numbers each.
#[derive(Debug)]
pub(super) struct Store {
    width: usize,
    rows: usize,
    location: StoreLocation,
}

#[derive(Debug)]
enum StoreLocation {
    Memory(Vec<f32>),
    File(Mutex<File>),
}

impl Store {
    /// Numbers that are in memory already: whole rows, one after the other.
    pub(super) fn in_memory(width: usize, numbers: Vec<f32>) -> Self {
        let rows = numbers.len().checked_div(width).unwrap_or(0);
        Self { width, rows, location: StoreLocation::Memory(numbers) }
    }

    /// Appends the rows with these indices to `out`. Neighbours in the list that are neighbours in
    /// the store are read at once.
    ///
    /// # Panics
    /// If there is no such row.
    pub(super) fn read(&self, indices: &[u32], out: &mut Vec<f32>) -> io::Result<()> {
        let mut rest = indices;
        while let Some((&first, _)) = rest.split_first() {
            let run = rest
                .iter()
                .zip(first..)
                .take_while(|(index, expected)| **index == *expected)
                .count();
            self.read_run(first as usize, run, out)?;
            rest = &rest[run..];
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn is_in_file(&self) -> bool {
        matches!(self.location, StoreLocation::File(_))
    }

    fn read_run(&self, first: usize, count: usize, out: &mut Vec<f32>) -> io::Result<()> {
        assert!(first + count <= self.rows, "row {} of {}", first + count, self.rows);
        let (start, numbers) = (first * self.width, count * self.width);
        match &self.location {
            StoreLocation::Memory(all) => out.extend_from_slice(&all[start..start + numbers]),
            StoreLocation::File(file) => {
                let mut bytes = vec![0; numbers * size_of::<f32>()];
                {
                    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                    file.seek(SeekFrom::Start((start * size_of::<f32>()) as u64))?;
                    file.read_exact(&mut bytes)?;
                }
                let (numbers, _) = bytes.as_chunks();
                out.extend(numbers.iter().map(|number| f32::from_le_bytes(*number)));
            }
        }
        Ok(())
    }
}

/// Takes rows, one after the other.
#[derive(Debug)]
pub(super) struct StoreWriter {
    width: usize,
    rows: usize,
    most_in_memory: usize,
    numbers: Vec<f32>,
    file: Option<BufWriter<File>>,
}

impl StoreWriter {
    /// For rows of `width` numbers.
    pub(super) fn new(width: usize) -> Self {
        Self::within(MOST_IN_MEMORY, width)
    }

    /// The same with another bound on the bytes in memory.
    pub(super) fn within(most_in_memory: usize, width: usize) -> Self {
        Self { width, rows: 0, most_in_memory, numbers: Vec::new(), file: None }
    }

    /// Appends a row.
    ///
    /// # Panics
    /// If it has another length than the others.
    pub(super) fn push(&mut self, row: &[f32]) -> io::Result<()> {
        assert_eq!(row.len(), self.width, "numbers in a row");
        self.rows += 1;
        if self.file.is_none()
            && (self.numbers.len() + row.len()) * size_of::<f32>() > self.most_in_memory
        {
            let mut file = BufWriter::new(tempfile::tempfile()?);
            write(&mut file, &std::mem::take(&mut self.numbers))?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => write(file, row),
            None => {
                self.numbers.extend_from_slice(row);
                Ok(())
            }
        }
    }

    /// No more rows.
    pub(super) fn finish(self) -> io::Result<Store> {
        let location = match self.file {
            None => StoreLocation::Memory(self.numbers),
            Some(file) => StoreLocation::File(Mutex::new(
                file.into_inner().map_err(io::IntoInnerError::into_error)?,
            )),
        };
        Ok(Store { width: self.width, rows: self.rows, location })
    }
}

fn write(file: &mut impl Write, numbers: &[f32]) -> io::Result<()> {
    numbers.iter().try_for_each(|number| file.write_all(&number.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(most_in_memory: usize) -> Store {
        let mut writer = StoreWriter::within(most_in_memory, 3);
        for row in 0..100u16 {
            writer.push(&[f32::from(row), -0.5, f32::NAN]).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn a_file_holds_what_memory_holds() {
        let (memory, file) = (filled(usize::MAX), filled(100));
        assert!(!memory.is_in_file() && file.is_in_file());
        for indices in [vec![], vec![0, 1, 2, 3], vec![99, 5, 6, 7, 7, 0], (0..100).collect()] {
            let (mut a, mut b) = (vec![], vec![]);
            memory.read(&indices, &mut a).unwrap();
            file.read(&indices, &mut b).unwrap();
            let bits =
                |numbers: &[f32]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&a), bits(&b));
            assert_eq!(a.iter().step_by(3).map(|row| *row as u32).collect::<Vec<_>>(), indices);
        }
    }

    #[test]
    #[should_panic(expected = "row 101 of 100")]
    fn there_is_nothing_behind_the_end() {
        filled(100).read(&[100], &mut vec![]).unwrap();
    }
}
