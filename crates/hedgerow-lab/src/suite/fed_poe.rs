//! [`FedPoe`]: the benchmark of Fed-POE (Ghari & Shen, NeurIPS 2024), rebuilt from the files of
//! four stations in Beijing.
//!
//! Of each station the first 25,000 rows without gaps count. A client has 250 samples: 175 of the
//! station of its group, and 25 of each other one, in random order. Rows of a station are dealt in
//! order of time: first to the hundred clients of its own group, then to those of the others. The
//! label is NO₂, as in the authors' published code; the inputs are month, day, hour and the other
//! measurements, with directions of the wind numbered as they appear. Inputs are divided by the
//! largest norm of a sample, and labels are scaled to [0, 1].

use std::fmt::Write;
use std::path::{Path, PathBuf};

use hedgerow::random::{CounterRng, Purpose};
use hedgerow_config::Layer;
use hedgerow_data::DataError;
use hedgerow_data::rows::{self, Cell, Format, Row, usual_markers};

use super::{Runs, SuiteError};
use crate::output::write_file;
use crate::results::Results;
use crate::run::RunError;
use crate::settings::{Settings, SettingsError, Source};

const EXPERIMENT: &str = include_str!("../../experiments/fed-poe.toml");
const TITLE: &str = "Fed-POE's benchmark";

const STATIONS: [&str; 4] = ["Aotizhongxin", "Changping", "Dingling", "Dongsi"];
const LABEL: &str = "NO2";
const INPUTS: [&str; 14] = [
    "month", "day", "hour", "PM2.5", "PM10", "SO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN",
    "wd", "WSPM",
];

/// Where the order of each client's samples begins.
const SEED: u64 = 1;

/// The benchmark, finished or not.
pub struct FedPoe {
    /// Its only run.
    pub runs: Runs,
}

impl FedPoe {
    /// Makes the table in `folder`, and looks whether the run is stored there. Flags change its
    /// settings.
    pub fn prepare(flags: &[Layer], folder: &Path) -> Result<Self, SuiteError> {
        let stations = flags.iter().cloned().chain([Layer::value("", "data.name", "beijing")]);
        let settings = match Settings::load(&stations.collect::<Vec<_>>()) {
            Ok(stations) => {
                let table = folder.join("fed-poe-air.csv");
                let files = files(&stations)?;
                write_file(&table, made(&files, Deal::BENCHMARK)?.as_bytes())?;
                let name = table.display().to_string();
                let mut layers = vec![experiment()?];
                layers.extend(flags.iter().cloned());
                layers.push(Layer::value("", "data.name", name));
                Settings::load(&layers)
            }
            Err(error) => Err(error),
        };
        let mut runs = Runs::new(folder);
        runs.add("fed-poe", TITLE, settings, |_, _| {})?;
        Ok(Self { runs })
    }

    /// What the run found; none if it isn't finished.
    pub fn results(&self) -> Option<&Results> {
        self.runs.results(0)
    }
}

fn experiment() -> Result<Layer, SettingsError> {
    Ok(Layer::toml("experiments/fed-poe.toml", EXPERIMENT)?)
}

/// The file of each station.
fn files(settings: &Settings) -> Result<Vec<PathBuf>, SuiteError> {
    let files = match &settings.data.source {
        Source::Files { files, .. } => &files[..],
        _ => &[],
    };
    let of = |name: &'static str| {
        let part = format!("_{name}_");
        let found = files.iter().find(|file| file.to_string_lossy().contains(&part));
        found.cloned().ok_or(SuiteError::NoFile { name })
    };
    STATIONS.into_iter().map(of).collect()
}

/// How samples are dealt.
#[derive(Debug, Clone, Copy)]
struct Deal {
    clients: usize,
    samples: usize,
}

impl Deal {
    const BENCHMARK: Self = Self { clients: 400, samples: 250 };

    /// Clients of a station.
    fn group(self) -> usize {
        self.clients / STATIONS.len()
    }

    /// A client's samples of its own station, and of each other one.
    fn shares(self) -> (usize, usize) {
        (self.samples * 7 / 10, self.samples / 10)
    }

    /// Rows that a station must have.
    fn rows(self) -> usize {
        let (own, other) = self.shares();
        self.group() * (own + (STATIONS.len() - 1) * other)
    }

    /// The rows of each station that a client gets: station and first and last row.
    fn of_client(self, client: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        let (own, other) = self.shares();
        let (home, place) = (client / self.group(), client % self.group());
        (0..STATIONS.len()).map(move |station| {
            if station == home {
                return (station, own * place..own * (place + 1));
            }
            // Groups other than the station's own have their rows one after the other.
            let turn = if home < station { home } else { home - 1 };
            let first = self.group() * (own + turn * other) + other * place;
            (station, first..first + other)
        })
    }
}

/// A row of a station: inputs, then the label.
type Measured = [f64; INPUTS.len() + 1];

/// The benchmark as CSV: a round of all clients after the other.
fn made(files: &[PathBuf], deal: Deal) -> Result<String, SuiteError> {
    let mut stations = Vec::new();
    for file in files {
        let rows = complete_rows(file, deal.rows())?;
        if rows.len() < deal.rows() {
            let (path, expected, found) = (file.clone(), deal.rows(), rows.len());
            return Err(SuiteError::TooFewRows { path, expected, found });
        }
        stations.push(rows);
    }
    let clients: Vec<Vec<&Measured>> = (0..deal.clients)
        .map(|client| {
            let parts = deal.of_client(client);
            let mut rows: Vec<&Measured> =
                parts.flat_map(|(station, rows)| &stations[station][rows]).collect();
            shuffle(&mut rows, client);
            rows
        })
        .collect();
    let all = || clients.iter().flatten();
    let norm2 = |row: &Measured| row[..INPUTS.len()].iter().map(|x| x * x).sum::<f64>();
    let norm = all().map(|row| norm2(row)).fold(f64::MIN_POSITIVE, f64::max).sqrt();
    let labels = || all().map(|row| row[INPUTS.len()]);
    let (least, most) =
        (labels().fold(f64::INFINITY, f64::min), labels().fold(f64::NEG_INFINITY, f64::max));
    let width = (most - least).max(f64::MIN_POSITIVE);
    let mut table = format!("client,{},{LABEL}\n", INPUTS.join(","));
    for round in 0..deal.samples {
        for (client, rows) in clients.iter().enumerate() {
            let (inputs, label) = rows[round].split_at(INPUTS.len());
            // Writing to a text can't fail.
            _ = write!(table, "{client}");
            inputs.iter().for_each(|x| _ = write!(table, ",{}", (x / norm) as f32));
            _ = writeln!(table, ",{}", ((label[0] - least) / width) as f32);
        }
    }
    Ok(table)
}

/// A random order that depends on the client only.
fn shuffle(rows: &mut [&Measured], client: usize) {
    let random = CounterRng::from_seed(SEED).derive(Purpose::Partition, client as u64);
    for last in (1..rows.len()).rev() {
        rows.swap(last, (random.bits_at(last as u64) % (last as u64 + 1)) as usize);
    }
}

/// The first rows of a station in which nothing is missing, at most so many.
fn complete_rows(file: &Path, most: usize) -> Result<Vec<Measured>, SuiteError> {
    let data = |error: DataError| SuiteError::Run(RunError::from(error));
    let format = Format { missing: usual_markers([]), ..Format::default() };
    let mut table = rows::open(file, &format).map_err(|error| data(error.into()))?;
    let place = |name: &str| table.columns().iter().position(|column| column == name);
    let missing = |column| SuiteError::NoColumn { path: file.to_owned(), column };
    let wanted: Vec<usize> = INPUTS
        .iter()
        .chain([&LABEL])
        .map(|column| place(column).ok_or_else(|| missing(*column)))
        .collect::<Result<_, _>>()?;
    let (mut row, mut texts, mut found) = (Row::default(), Vec::<String>::new(), Vec::new());
    while found.len() < most && table.next(&mut row).map_err(|error| data(error.into()))? {
        if (0..row.len()).any(|column| row.cell(column) == Cell::Missing) {
            continue;
        }
        let numbers = wanted.iter().map(|column| match row.cell(*column) {
            Cell::Number(number) => number,
            Cell::Text(text) => {
                let known = texts.iter().position(|known| known == text);
                known.unwrap_or_else(|| {
                    texts.push(text.to_owned());
                    texts.len() - 1
                }) as f64
            }
            Cell::Missing => 0.0,
        });
        let mut measured: Measured = [0.0; INPUTS.len() + 1];
        measured.iter_mut().zip(numbers).for_each(|(cell, number)| *cell = number);
        found.push(measured);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Deal = Deal { clients: 8, samples: 20 };

    /// Stations whose rows say where they come from; every fifth has a gap.
    fn generated(folder: &Path, rows: usize) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for (number, station) in STATIONS.iter().enumerate() {
            let mut text = format!("No,year,{},{LABEL},station\n", INPUTS.join(","));
            for row in 0..rows {
                let gap = if row % 5 == 4 { "NA" } else { "1" };
                let wind = ["N", "SE", "W"][(row + number) % 3];
                // PM2.5 is the station and PM10 the row; NO2 grows with both.
                text += &format!("{row},2013,1,2,3,{number},{row},{gap},1,1,1,1,1,1,{wind},1,");
                text += &format!("{},{station}\n", 100 * number + row);
            }
            let file = folder.join(format!("PRSA_Data_{station}_x.csv"));
            std::fs::write(&file, text).unwrap();
            files.push(file);
        }
        files
    }

    /// Client, station, row, wind and label of each line of a table.
    fn lines(table: &str) -> Vec<[f64; 5]> {
        let line = |line: &str| {
            let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
            [cells[0], cells[4], cells[5], cells[13], cells[15]]
        };
        table.lines().skip(1).map(line).collect()
    }

    #[test]
    fn clients_have_most_rows_of_their_own_station_and_no_row_is_used_twice() {
        let folder = tempfile::tempdir().unwrap();
        let files = generated(folder.path(), 60);
        assert_eq!((SMALL.rows(), Deal::BENCHMARK.rows()), (40, 25_000));
        let table = made(&files, SMALL).unwrap();
        let lines = lines(&table);
        assert_eq!(lines.len(), 8 * 20);
        // What inputs were divided by: the year is no input, and nothing else is that large.
        let norm = lines.iter().map(|line| line[1]).fold(0.0, f64::max) / 3.0;
        let mut used = std::collections::HashSet::new();
        let mut of_home = [0; 8];
        for (at, [client, station, row, wind, label]) in lines.iter().enumerate() {
            let [station, row, wind] = [station, row, wind].map(|x| (x / norm).round() as usize);
            assert_eq!(*client as usize, at % 8, "round after round");
            assert!(used.insert((station, row)) && row % 5 != 4, "{station} {row}");
            of_home[at % 8] += usize::from(station == at % 8 / 2);
            assert!((0.0..=1.0).contains(label) && wind < 3);
            // The first wind of every station has the number 0.
            assert_eq!(wind, row % 3);
        }
        assert_eq!(of_home, [14; 8]);
        let labels = || lines.iter().map(|line| line[4]);
        assert_eq!((labels().fold(1.0, f64::min), labels().fold(0.0, f64::max)), (0.0, 1.0));
        assert_eq!(made(&files, SMALL).unwrap(), table);
        let few = generated(folder.path(), 40);
        let message = made(&few, SMALL).unwrap_err().to_string();
        assert!(message.contains("Aotizhongxin") && message.contains("40"), "{message}");
    }

    #[test]
    fn a_small_one_of_real_files_can_be_run() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
        let layers =
            [("data.dir", folder), ("data.name", "beijing")].map(|(k, v)| Layer::value("", k, v));
        let Ok(stations) = Settings::load(&layers) else { return };
        let table = made(&files(&stations).unwrap(), Deal { clients: 20, samples: 50 }).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.csv");
        std::fs::write(&file, table).unwrap();
        let methods = Layer::value("", "federation.methods", vec!["gr", "mk"]);
        let name = Layer::value("", "data.name", file.display().to_string());
        let layers = [experiment().unwrap(), Layer::value("", "run.trials", 1), methods, name];
        let settings = Settings::load(&layers).unwrap();
        let data = crate::run::load_data(&settings, &|_| {}).unwrap();
        let results = crate::run::Experiment::new(&settings, &data).unwrap().run(&|| {}).unwrap();
        assert_eq!((results.nodes, results.rounds, results.data.features), (20, 50, 14));
        let error = |name: &str| results.method(name).unwrap().mse.mean;
        assert!(error("gr") < 0.5 * error("mk"), "{} {}", error("gr"), error("mk"));
    }
}
