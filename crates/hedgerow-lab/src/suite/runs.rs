//! [`Runs`]: several runs, each stored as it finishes by everything that its results depend on.
//! What is stored is not run again.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use sha2::{Digest, Sha256};

use super::{RESULTS_REVISION, SuiteError};
use crate::given::GivenSamples;
use crate::output::{OutputError, write_file};
use crate::results::{Curve, Results, from_stored_json, to_stored_json};
use crate::run::{Experiment, RunError, load_data};
use crate::settings::{Scaling, Settings, SettingsError, Source};
use hedgerow_data::Dataset;
use hedgerow_data::catalog::NotFound;

/// Runs, finished or not.
pub struct Runs {
    items: Vec<Item>,
    folder: PathBuf,
    keeps_courses: bool,
    /// Samples that take the place of the data that settings name.
    given: Option<GivenSamples>,
}

/// One run on one data set.
struct Item {
    /// Beginning of the name of its file.
    name: String,
    /// The title for users.
    title: String,
    state: State,
}

enum State {
    Missing(NotFound),
    Pending(Box<Settings>, Rc<Dataset>),
    /// Another machine makes it and stores it in this file.
    Elsewhere(PathBuf),
    Done(Box<Results>),
}

impl Runs {
    /// No runs yet; they will be stored in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { items: Vec::new(), folder: folder.to_owned(), keeps_courses: true, given: None }
    }

    /// Curves are stored, but not kept in memory: those of many runs would fill it.
    pub(crate) fn without_courses(self) -> Self {
        Self { keeps_courses: false, ..self }
    }

    /// All runs are on these samples.
    pub(crate) fn on_samples(self, given: Option<GivenSamples>) -> Self {
        Self { given, ..self }
    }

    /// Adds a run: takes it from the folder if it is stored, else reads its data. `adapt` may
    /// change settings to fit the data.
    pub(crate) fn add(
        &mut self,
        name: &str,
        title: &str,
        settings: Result<Settings, SettingsError>,
        adapt: impl FnOnce(&mut Settings, &Dataset),
    ) -> Result<(), SuiteError> {
        let state = match settings {
            Err(SettingsError::NotFound(missing)) => State::Missing(missing),
            Err(error) => return Err(error.into()),
            Ok(mut settings) => match stored(&self.file(name, &settings)) {
                Some(results) => self.done(results),
                None => {
                    let data = match self.loaded(&settings) {
                        Some(data) => data,
                        None => Rc::new(self.read(&settings)?),
                    };
                    adapt(&mut settings, &data);
                    State::Pending(Box::new(settings), data)
                }
            },
        };
        self.items.push(Item { name: name.to_owned(), title: title.to_owned(), state });
        Ok(())
    }

    /// Adds a run that another machine makes, which shares the folder.
    pub(crate) fn add_elsewhere(
        &mut self,
        name: &str,
        title: &str,
        settings: Result<Settings, SettingsError>,
    ) -> Result<(), SuiteError> {
        let state = match settings {
            Err(SettingsError::NotFound(missing)) => State::Missing(missing),
            Err(error) => return Err(error.into()),
            Ok(settings) => {
                let file = self.file(name, &settings);
                stored(&file).map_or(State::Elsewhere(file), |results| self.done(results))
            }
        };
        self.items.push(Item { name: name.to_owned(), title: title.to_owned(), state });
        Ok(())
    }

    /// Takes the runs that other machines have stored meanwhile.
    fn collect(&mut self) {
        for at in 0..self.items.len() {
            if let State::Elsewhere(file) = &self.items[at].state
                && let Some(results) = stored(file)
            {
                self.items[at].state = self.done(results);
            }
        }
    }

    fn done(&self, mut results: Results) -> State {
        if !self.keeps_courses {
            results.methods.iter_mut().for_each(|method| method.curve = Curve::default());
        }
        State::Done(Box::new(results))
    }

    /// The same data, if another run has it already.
    fn loaded(&self, settings: &Settings) -> Option<Rc<Dataset>> {
        self.items.iter().find_map(|item| match &item.state {
            State::Pending(known, data) if have_same_data(known, settings) => Some(data.clone()),
            _ => None,
        })
    }

    fn read(&self, settings: &Settings) -> Result<Dataset, RunError> {
        match &self.given {
            Some(given) => given.clone().dataset(settings),
            None => load_data(settings, &|_| {}),
        }
    }

    fn file(&self, name: &str, settings: &Settings) -> PathBuf {
        file(&self.folder, name, settings, self.given.as_ref())
    }

    /// Steps of progress that are left.
    pub fn steps(&self) -> Result<u64, SuiteError> {
        let mut steps = 0;
        for item in &self.items {
            if let State::Pending(settings, data) = &item.state {
                steps += Experiment::new(settings, data)?.steps();
            }
        }
        Ok(steps)
    }

    /// How many runs are finished, and how many there are.
    pub fn finished(&self) -> (usize, usize) {
        let count = |wanted: fn(&State) -> bool| {
            self.items.iter().filter(|item| wanted(&item.state)).count()
        };
        let done = count(|state| matches!(state, State::Done(_)));
        (done, count(|state| !matches!(state, State::Missing(_))))
    }

    /// Data sets that are not available, each once.
    pub fn missing(&self) -> Vec<&NotFound> {
        let mut missing: Vec<&NotFound> = Vec::new();
        for item in &self.items {
            if let State::Missing(one) = &item.state
                && !missing.iter().any(|known| known.name == one.name)
            {
                missing.push(one);
            }
        }
        missing
    }

    /// Runs the unfinished runs of this machine in order and stores each. `start` gets the title of
    /// each run, `step` is called for each step.
    pub fn run(
        &mut self,
        start: &dyn Fn(&str),
        step: &(dyn Fn() + Sync),
    ) -> Result<(), SuiteError> {
        for at in 0..self.items.len() {
            let item = &self.items[at];
            let State::Pending(settings, data) = &item.state else { continue };
            start(&item.title);
            let results = Experiment::new(settings, data)?.run(step)?;
            let text = to_stored_json(&results).map_err(OutputError::from)?;
            write_file(&self.file(&item.name, settings), text.as_bytes())?;
            self.items[at].state = self.done(results);
        }
        self.collect();
        Ok(())
    }

    /// The results of the run at this place; none if it isn't finished.
    pub(crate) fn results(&self, place: usize) -> Option<&Results> {
        match &self.items.get(place)?.state {
            State::Done(results) => Some(results),
            State::Missing(_) | State::Pending(..) | State::Elsewhere(_) => None,
        }
    }

    /// Name and title of the run at this place.
    pub(crate) fn names(&self, place: usize) -> Option<(&str, &str)> {
        self.items.get(place).map(|item| (item.name.as_str(), item.title.as_str()))
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}

/// Whether two runs have the same data.
fn have_same_data(a: &Settings, b: &Settings) -> bool {
    (&a.data, &a.scaling, a.nodes, a.rounds, a.seed, &a.participation, a.loss())
        == (&b.data, &b.scaling, b.nodes, b.rounds, b.seed, &b.participation, b.loss())
}

fn stored(file: &Path) -> Option<Results> {
    from_stored_json(&std::fs::read_to_string(file).ok()?).ok()
}

/// Where a run is stored: by everything that its results depend on.
pub(super) fn file(
    folder: &Path,
    name: &str,
    settings: &Settings,
    given: Option<&GivenSamples>,
) -> PathBuf {
    let mut effective = settings.effective.clone();
    // Folders, threads and memory don't change results.
    if let Some(run) = effective.get_mut("run").and_then(toml::Value::as_table_mut) {
        run.remove("out");
        run.remove("threads");
        run.remove("memory_limit");
    }
    if let Some(data) = effective.get_mut("data").and_then(toml::Value::as_table_mut) {
        data.remove("dir");
    }
    let mut hash = Sha256::new();
    hash.update(format!("{} {RESULTS_REVISION} {effective}", env!("CARGO_PKG_VERSION")));
    let files = match &settings.data.source {
        Source::Files { files, .. } => files.as_slice(),
        Source::Builtin(_) => &[],
    };
    let ranges = if let Scaling::Ranges(file) = &settings.scaling { Some(file) } else { None };
    for file in files.iter().chain(ranges) {
        // An unreadable file is reported when the data is read.
        if let Ok(mut file) = std::fs::File::open(file) {
            _ = std::io::copy(&mut file, &mut HashWriter(&mut hash));
        }
        hash.update([0]);
    }
    if let Some(given) = given {
        hash.update(given.digest());
    }
    let name_of_hash: String =
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("{name}-{name_of_hash}.json"))
}

/// Takes what is written to it into a hash.
struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_config::Layer;

    #[test]
    fn a_run_is_stored_by_what_its_results_depend_on() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("t.csv");
        let ranges = folder.path().join("ranges.toml");
        std::fs::write(&table, "a,y\n1,2\n3,4\n").unwrap();
        std::fs::write(&ranges, "[ranges]\na = [0, 1]\ny = [0, 1]\n").unwrap();
        let name = format!("data.name={}", table.display());
        let file_for = |flag: &str| {
            let layers = Layer::sets([name.as_str(), flag]).unwrap();
            file(Path::new("f"), "t", &Settings::load(&layers).unwrap(), None)
        };
        let plain = file_for("run.seed=1");
        for flag in
            ["run.threads=7", "run.memory_limit=3.0", "run.out=elsewhere", "data.dir=elsewhere"]
        {
            assert_eq!(file_for(flag), plain, "{flag}");
        }
        for flag in ["run.seed=2", "data.lags=1", "federation.nodes=2", "data.scaling=none"] {
            assert_ne!(file_for(flag), plain, "{flag}");
        }
        let by_ranges = || file_for(&format!("data.scaling={}", ranges.display()));
        let before = by_ranges();
        std::fs::write(&ranges, "[ranges]\na = [0, 2]\ny = [0, 1]\n").unwrap();
        assert_ne!(by_ranges(), before);
        std::fs::write(&table, "a,y\n1,2\n3,44\n").unwrap();
        assert_ne!(file_for("run.seed=1"), plain);
    }
}
