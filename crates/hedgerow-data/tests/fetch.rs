//! Fetches data sets from servers that disconnect, send wrong data or do not exist. Each test runs
//! its own server on this machine.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::{Compression, write::GzEncoder};
use hedgerow_data::catalog::{Catalog, Entry};
use hedgerow_data::fetch::{
    Checked, FetchError, Fetched, Mirror, Options, Patience, Progress, fetch,
};
use tempfile::TempDir;
use zip::write::{SimpleFileOptions, ZipWriter};

mod archives;
mod download;
mod files;
mod server;
