//! A table of any length is read in bounded memory. The test counts allocations, so it is a program
//! of its own.

#![allow(unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use hedgerow_data::rows::{self, Cell, Format, Row};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: u64 = 600_000;
/// The only row with text instead of a number, and its line.
const ODD_ROW: u64 = 500_000;

/// A table that generates its rows on demand.
struct Made {
    rows: u64,
    line: fn(&mut Vec<u8>, u64) -> io::Result<()>,
    pending: Vec<u8>,
    given: usize,
}

impl Made {
    fn new(head: &str, line: fn(&mut Vec<u8>, u64) -> io::Result<()>) -> Self {
        Self { rows: 0, line, pending: head.into(), given: 0 }
    }
}

impl Read for Made {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.pending.len() && self.rows < ROWS {
            self.rows += 1;
            self.pending.clear();
            self.given = 0;
            (self.line)(&mut self.pending, self.rows)?;
        }
        let length = (&self.pending[self.given..]).read(buffer)?;
        self.given += length;
        Ok(length)
    }
}

fn value(row: u64) -> &'static str {
    if row == ODD_ROW { "broken" } else { "0.25" }
}

#[test]
fn memory_does_not_grow_with_the_rows() {
    let csv = Made::new("a,b,c\n", |text, row| writeln!(text, "{row},{},-1e-3", value(row)));
    let quoted =
        Made::new("a;b;c\r\n", |text, row| write!(text, "\"{row}\n\";\"{}\";0,5\r\n", value(row)));
    let json = Made::new("", |text, row| {
        writeln!(text, "{{\"a\":{row},\"b\":\"{}\",\"c\":null}}", value(row))
    });
    // Lines per row, and the line of the first row.
    for (name, table, height, first) in
        [("csv", csv, 1, 2), ("quoted", quoted, 2, 2), ("json", json, 1, 1)]
    {
        let mut rows = rows::read(table, Path::new(name), &Format::default()).unwrap();
        let mut row = Row::default();
        let mut seen = 0;
        let mut early = (0, 0);
        while rows.next(&mut row).unwrap() {
            seen += 1;
            assert_eq!(row.line(), first + (seen - 1) * height, "{name}");
            assert_eq!(row.cell(0), Cell::Number(seen as f64));
            match row.cell(1) {
                Cell::Text(text) => assert_eq!((seen, text), (ODD_ROW, "broken")),
                cell => assert_eq!(cell, Cell::Number(0.25)),
            }
            if seen == 1000 {
                PEAK.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
                early = (HELD.load(Ordering::Relaxed), ALLOCATIONS.load(Ordering::Relaxed));
            }
        }
        assert_eq!(seen, ROWS, "{name}");
        let grown = PEAK.load(Ordering::Relaxed) - early.0;
        assert!(grown < 4096, "{name}: {grown} bytes more at the end than after 1000 rows");
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - early.1;
        assert!(allocations < 100, "{name}: {allocations} allocations in rows that are all alike");
    }
}
