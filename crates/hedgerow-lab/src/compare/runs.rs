//! [`Grid`]: the runs of a comparison. Every finished one is stored at once, and what is stored is
//! not run again.

use std::path::{Path, PathBuf};

use hedgerow::method::{Reference, Role, find};
use toml::Value;

use super::axes::{axis, canonical, empty, variants, with_budgets};
use super::grid_config::{GridConfig, GridVariant, default_methods};
use super::{Cell, Comparison};
use crate::given::GivenSamples;
use crate::role::role_of;
use crate::run::{CHANGING_FEATURES, Experiment};
use crate::settings::{MethodChoice, Settings, SettingsError};
use crate::suite::{Runs, SuiteError};
use hedgerow_config::Layer;
use hedgerow_data::Dataset;
use hedgerow_data::streams;

/// The default folder of a comparison.
const DEFAULT_FOLDER: &str = "hedgerow-compare";

/// The runs of a comparison, finished or not.
pub struct Grid {
    /// One per data set, partition and variant.
    pub runs: Runs,
    positions: Vec<GridPosition>,
    against: String,
    out: PathBuf,
}

/// Where a run stands in the grid.
struct GridPosition {
    data: String,
    title: String,
    partition: String,
    variant: String,
    budget: Option<usize>,
}

impl Grid {
    /// Checks everything, finds stored runs, and reads the data of the others. Flags change the
    /// settings of all runs.
    pub fn prepare(config: &GridConfig, flags: &[Layer]) -> Result<Self, SuiteError> {
        Self::prepare_on(config, flags, None)
    }

    /// The same on samples that the caller has, instead of the data that settings name.
    pub fn prepare_given(
        config: &GridConfig,
        flags: &[Layer],
        given: GivenSamples,
    ) -> Result<Self, SuiteError> {
        Self::prepare_on(config, flags, Some(given))
    }

    fn prepare_on(
        config: &GridConfig,
        flags: &[Layer],
        mut given: Option<GivenSamples>,
    ) -> Result<Self, SuiteError> {
        let samples = given.as_ref().map(|given| given.name.clone());
        let data = axis(config.data.as_deref(), "data.name", "data set", flags)?;
        let partitions =
            axis(config.partitions.as_deref(), "federation.partition", "partition", flags)?;
        let partitions = partitions.map(canonical);
        let unsaid = vec![None];
        let each = |names: Option<Vec<String>>| {
            names.map_or(unsaid.clone(), |names| names.into_iter().map(Some).collect::<Vec<_>>())
        };
        let (data, partitions) = (each(data), each(partitions));
        let titles = titles(&data);
        // Curves are drawn of a single run, and of streams that change.
        let changes = |name: &String| {
            streams::find(name).is_some_and(|stream| !stream.changes(1000).is_empty())
        };
        let variants = with_budgets(variants(&config.variants)?, config, flags)?;
        let cases: Vec<_> = partitions
            .iter()
            .flat_map(|one| variants.iter().map(move |other| (one, other)))
            .collect();
        let draws_courses = data.len() * cases.len() == 1 || data.iter().flatten().any(changes);
        let mut grid: Option<Self> = None;
        for (name, title) in data.iter().zip(&titles) {
            for (partition, (variant, budget)) in &cases {
                let (name, partition) = (name.as_deref(), partition.as_deref());
                let settings = cell_settings(config, flags, name, partition, variant);
                if let Ok(settings) = &settings {
                    settings.data.check_rereadable()?;
                }
                let grid = match &mut grid {
                    Some(grid) => grid,
                    None => {
                        let mut new = Self::empty(config, flags, draws_courses)?;
                        new.runs = new.runs.on_samples(given.take());
                        grid.insert(new)
                    }
                };
                let name = samples.as_deref().or(name);
                let position = grid.position(name, title, partition, &settings);
                let position =
                    GridPosition { variant: variant.name.clone(), budget: *budget, ..position };
                let told = [&position.title, &position.partition, &position.variant];
                let told = told.map(String::as_str).join(", ");
                let file = file_name(&position.data);
                let is_here = config.shard.has(grid.positions.len());
                grid.positions.push(position);
                let adapt = |settings: &mut Settings, data: &Dataset| {
                    if !names_methods(config, flags) {
                        leave_out_hindsight(settings, data);
                    }
                };
                let title = told.trim_end_matches(", ");
                if is_here {
                    grid.runs.add(&file, title, settings, adapt)?;
                } else {
                    grid.runs.add_elsewhere(&file, title, settings)?;
                }
            }
        }
        let Some(grid) = grid else { return Err(empty("data.name", "data set").into()) };
        if let (0, Some(missing)) = (grid.runs.finished().1, grid.runs.missing().first()) {
            return Err(SettingsError::NotFound((*missing).clone()).into());
        }
        Ok(grid)
    }

    /// No runs yet, but everything that all of them share, which does not depend on the data.
    fn empty(
        config: &GridConfig,
        flags: &[Layer],
        draws_courses: bool,
    ) -> Result<Self, SuiteError> {
        // So settings of the data are left out.
        let flags: Vec<Layer> =
            flags.iter().filter(|flag| !flag.changes("data")).cloned().collect();
        let mut config = config.clone();
        config.settings.remove("data");
        let (config, flags) = (&config, &flags[..]);
        let settings =
            cell_settings(config, flags, Some("friedman"), Some("auto"), &GridVariant::default())?;
        let out = settings.out.clone();
        let runs = Runs::new(&out.join("runs"));
        let runs = if draws_courses { runs } else { runs.without_courses() };
        Ok(Self { runs, positions: Vec::new(), against: against(config, &settings)?, out })
    }

    fn position(
        &self,
        name: Option<&str>,
        title: &str,
        partition: Option<&str>,
        settings: &Result<Settings, SettingsError>,
    ) -> GridPosition {
        let known = settings.as_ref().ok();
        let data = name.or(known.map(|settings| settings.data.name.as_str())).unwrap_or_default();
        let title = if title.is_empty() { self::title(data) } else { title.to_owned() };
        let own = known.map(|settings| settings.partition.name());
        let partition = partition.map(str::to_owned).or(own).unwrap_or_default();
        let (data, variant) = (data.to_owned(), String::new());
        GridPosition { data, title, partition, variant, budget: None }
    }

    /// The folder for results.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// The comparison of all finished runs.
    pub fn comparison(&self) -> Comparison {
        let cell = |(at, position): (usize, &GridPosition)| {
            let GridPosition { data, title, partition, variant, budget } = position;
            let cell = Cell::new(data, title, partition, self.runs.results(at).cloned());
            Cell { variant: variant.clone(), budget: *budget, ..cell }
        };
        Comparison::new(self.positions.iter().enumerate().map(cell).collect(), &self.against)
    }
}

/// The settings of one run. Its variant, data and partition come last, so that nothing changes
/// them.
fn cell_settings(
    config: &GridConfig,
    flags: &[Layer],
    data: Option<&str>,
    partition: Option<&str>,
    variant: &GridVariant,
) -> Result<Settings, SettingsError> {
    let mut table = config.settings.clone();
    let run = table.entry("run").or_insert_with(|| Value::Table(toml::Table::new()));
    if let Some(run) = run.as_table_mut() {
        run.entry("out").or_insert_with(|| DEFAULT_FOLDER.into());
    }
    let layer = |key: &str, value: Value| Layer::value("the grid", key, value);
    let mut layers = vec![Layer::table("the grid", table)];
    layers.extend(flags.iter().cloned());
    layers.push(Layer::table(&format!("variant {:?}", variant.name), variant.settings.clone()));
    layers.extend(data.map(|name| layer("data.name", name.into())));
    layers.extend(partition.map(|name| layer("federation.partition", name.into())));
    let mut settings = Settings::load(&layers)?;
    if names_methods(config, flags) {
        return Ok(settings);
    }
    settings.left_out.clear();
    let methods = settings.keep_possible(default_methods());
    let names: Vec<Value> = methods.into_iter().map(|choice| choice.name().into()).collect();
    layers.push(layer("federation.methods", names.into()));
    let mut all = Settings::load(&layers)?;
    all.left_out = settings.left_out;
    Ok(all)
}

fn names_methods(config: &GridConfig, flags: &[Layer]) -> bool {
    config.names_methods() || flags.iter().any(|flag| flag.changes("federation.methods"))
}

/// `hindsight` is left out if it was not named and has no meaning because features change with an
/// agreed scale.
fn leave_out_hindsight(settings: &mut Settings, data: &Dataset) {
    let mut without = settings.clone();
    let (gone, kept): (Vec<MethodChoice>, _) =
        settings.methods.iter().partition(|choice| choice.is(Reference::Hindsight));
    without.methods = kept;
    gone.iter().for_each(|choice| without.leave_out(*choice, CHANGING_FEATURES));
    if Experiment::new(settings, data).is_err() && Experiment::new(&without, data).is_ok() {
        *settings = without;
    }
}

/// The methods that ratios are to: as asked for, else the baseline, else the first that one could
/// choose.
fn against(config: &GridConfig, settings: &Settings) -> Result<String, SettingsError> {
    let shared = |choice: &MethodChoice| choice.reports_shared.then(|| choice.shared_name());
    let reported = |choice: &MethodChoice| [Some(choice.name()), shared(choice)];
    let names: Vec<String> = settings.methods.iter().flat_map(reported).flatten().collect();
    match &config.against {
        Some(asked) => {
            let asked: Vec<&str> = asked.split(',').map(str::trim).collect();
            match asked.iter().find(|name| !names.iter().any(|known| known == *name)) {
                None => Ok(asked.join(",")),
                Some(name) => {
                    let bound = format!("one of the methods that are run ({})", names.join(", "));
                    Err(out_of_bounds("against", bound, format!("{name:?}")))
                }
            }
        }
        None => {
            let is_baseline = |name: &&String| find(name).is_some_and(|info| info.is_baseline);
            let usual = names.iter().find(is_baseline);
            let chosen = usual.or(names.iter().find(|name| role_of(name) == Role::Choice));
            Ok(chosen.or(names.first()).cloned().unwrap_or_default())
        }
    }
}

/// What to call the data sets; full names where short ones would be the same.
fn titles(data: &[Option<String>]) -> Vec<String> {
    let short: Vec<String> =
        data.iter().map(|name| name.as_deref().map_or(String::new(), title)).collect();
    let full = |(position, short_one): (usize, &String)| {
        let is_shared = short.iter().filter(|other| *other == short_one).count() > 1;
        if is_shared { data[position].clone().unwrap_or_default() } else { short_one.clone() }
    };
    short.iter().enumerate().map(full).collect()
}

/// The name of a stream or data set, or a file's name without its folders.
fn title(name: &str) -> String {
    name.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or(name).to_owned()
}

/// Longest beginning of the name of a stored run.
const LONGEST_NAME: usize = 40;

/// Something that any file system takes.
fn file_name(data: &str) -> String {
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' }
    };
    let name: String = title(data).chars().map(plain).take(LONGEST_NAME).collect();
    if name.is_empty() { "run".to_owned() } else { name }
}

fn out_of_bounds(key: &str, bound: impl ToString, value: impl ToString) -> SettingsError {
    SettingsError::out_of_bounds(key, bound, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(data: &[&str], partitions: &[&str]) -> GridConfig {
        let list = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        GridConfig { data: list(data), partitions: list(partitions), ..GridConfig::default() }
    }

    fn flags(texts: &[&str]) -> Vec<Layer> {
        Layer::sets(texts).unwrap()
    }

    fn refusal(config: &GridConfig, texts: &[&str]) -> String {
        Grid::prepare(config, &flags(texts))
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn given_samples_take_the_place_of_named_data() {
        let folder = tempfile::tempdir().unwrap();
        let rows = 60;
        let x: Vec<f32> = (0..rows).map(|row| (row * 7 % 13) as f32 / 13.0).collect();
        let given = |y: Vec<f32>| GivenSamples {
            name: "mine".into(),
            features: 1,
            x: x.clone(),
            y,
            owners: None,
        };
        let out = format!("run.out={}", folder.path().display());
        let texts = [&out, "run.rounds=60", "run.trials=2", "federation.nodes=2"];
        let flags = flags(&[texts.as_slice(), &["federation.methods=[\"linear\"]"]].concat());
        let compared = |y: Vec<f32>| {
            let mut grid = Grid::prepare_given(&GridConfig::default(), &flags, given(y)).unwrap();
            let was_finished = grid.runs.finished().0;
            grid.runs.run(&|_| {}, &|| {}).unwrap();
            let comparison = grid.comparison();
            let (results, ranking) = comparison.only().unwrap();
            assert_eq!((results.data.samples, comparison.cells[0].title.as_str()), (60, "mine"));
            (was_finished, ranking.methods[0].error.mean)
        };
        let (fresh, error) = compared(x.clone());
        assert_eq!((fresh, compared(x.clone())), (0, (1, error)));
        // Other samples are another run.
        let (fresh, other) = compared(x.iter().map(|x| 1.0 - 2.0 * x).collect());
        assert!(fresh == 0 && other != error);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_key_bound_and_value() {
        let usual = config(&["friedman"], &["blocks"]);
        let against = GridConfig { against: Some("grr".into()), ..usual.clone() };
        for (config, flags, parts) in [
            (
                &config(&["friedmann"], &["blocks"]),
                &[][..],
                ["data.name", "friedman", "\"friedmann\""],
            ),
            (&config(&[], &["blocks"]), &[], ["data.name", "at least 1 data set", "empty"]),
            (&config(&[" "], &["blocks"]), &[], ["data.name", "at least 1 data set", "empty"]),
            (
                &config(&["friedman"], &[""]),
                &[],
                ["federation.partition", "at least 1 partition", "empty"],
            ),
            (
                &config(&["friedman"], &["block"]),
                &[],
                ["federation.partition", "blocks", "\"block\""],
            ),
            (&config(&["-"], &["blocks"]), &[], ["data.name", "read again", "\"-\""]),
            (&usual, &["federation.methods=[\"mc\"]"], ["federation.methods", "mk", "\"mc\""]),
            (
                &usual,
                &["federation.methods=[]"],
                ["federation.methods", "at least 1 method", "empty"],
            ),
            (
                &usual,
                &["federation.partition=shuffled"],
                ["federation.partition", "once", "shuffled"],
            ),
            (&usual, &["run.trials=0"], ["run.trials", "at least 1", "0"]),
            (&against, &[], ["against", "(gr, gr+shared, ", "\"grr\""]),
        ] {
            let message = refusal(config, flags);
            assert!(
                parts.iter().all(|part| message.contains(part)),
                "{message:?} lacks one of {parts:?}"
            );
        }
    }

    #[test]
    fn names_are_taken_once_and_the_settings_decide_where_there_are_none() {
        let twice =
            config(&["friedman", "friedman"], &["dirichlet:0.3", "dirichlet:0.30", "blocks"]);
        let small = flags(&["run.rounds=5", "run.trials=2", "federation.nodes=2"]);
        let grid = Grid::prepare(&twice, &small).unwrap();
        let partitions: Vec<&str> =
            grid.positions.iter().map(|position| position.partition.as_str()).collect();
        assert_eq!(partitions, ["dirichlet:0.3", "blocks"]);
        let named = flags(&["data.name=narma", "federation.partition=blocks", "run.out=there"]);
        let grid = Grid::prepare(&GridConfig::default(), &[small, named].concat()).unwrap();
        let position = &grid.positions[0];
        assert_eq!(
            (position.data.as_str(), position.partition.as_str(), grid.positions.len()),
            ("narma", "blocks", 1)
        );
        assert_eq!((grid.out(), grid.against.as_str()), (Path::new("there"), "mk"));
    }

    fn settings_of(flags: &[Layer], data: Option<&str>) -> Result<Settings, SettingsError> {
        cell_settings(&GridConfig::default(), flags, data, None, &GridVariant::default())
    }

    #[test]
    fn what_a_loss_or_an_aggregation_has_not_is_left_out_unless_asked_for() {
        let loss = |loss: &str| settings_of(&flags(&[loss]), Some("rings")).unwrap();
        let has =
            |settings: &Settings, name: &str| settings.methods.iter().any(|c| c.name() == name);
        assert!(has(&loss("learning.loss=squared"), "hindsight"));
        let huber = loss("learning.loss=huber");
        assert!(!has(&huber, "hindsight") && has(&huber, "last"));
        let logistic = loss("learning.loss=logistic");
        assert!(!has(&logistic, "hindsight") && has(&logistic, "last") && has(&logistic, "mk"));
        let median = loss("learning.aggregation=median");
        assert!(
            has(&median, "mk")
                && !["gr", "pof", "linear-newton"].iter().any(|name| has(&median, name))
        );
        let asked = flags(&["learning.loss=huber", "federation.methods=[\"mk\", \"hindsight\"]"]);
        assert!(settings_of(&asked, None).is_err());
    }

    #[test]
    fn every_run_is_made_in_each_variant() {
        let variant = |name: &str, late: f64| {
            let settings = toml::Table::from_iter([("late".to_owned(), late.into())]);
            let settings = toml::Table::from_iter([("participation".to_owned(), settings.into())]);
            GridVariant { name: name.into(), settings }
        };
        let variants = vec![variant("all", 0.0), variant("half", 0.5)];
        let both = GridConfig { variants, ..config(&["friedman"], &["blocks", "shuffled"]) };
        let folder = tempfile::tempdir().unwrap();
        let out = format!("run.out={}", folder.path().display());
        let small = ["run.rounds=5", "run.trials=1", "federation.methods=[\"mk\"]", &out];
        let mut grid = Grid::prepare(&both, &flags(&small)).unwrap();
        grid.runs.run(&|_| {}, &|| {}).unwrap();
        let comparison = grid.comparison();
        assert_eq!(
            comparison.cases(),
            ["blocks, all", "blocks, half", "shuffled, all", "shuffled, half"]
        );
        let ratios = |variant| comparison.to_first_variant("mk", "shuffled", variant);
        assert_eq!(ratios("all"), [("friedman", 1.0)]);
        assert!(ratios("half")[0].1 != 1.0 && ratios("none").is_empty());
        for names in [["all", "all"], ["all", " "]] {
            let variants = names.map(|name| variant(name, 0.0)).to_vec();
            let message = refusal(&GridConfig { variants, ..both.clone() }, &[]);
            assert!(message.contains("variants.name") && message.contains(names[1]), "{message}");
        }
    }

    #[test]
    fn files_of_runs_have_plain_names() {
        assert_eq!(file_name("../a b/Häuser.csv"), "h-user-csv");
        assert_eq!(file_name("x".repeat(300).as_str()).len(), LONGEST_NAME);
        assert_eq!(
            titles(&[Some("a/t.csv".into()), Some("b/t.csv".into()), Some("narma".into())]),
            ["a/t.csv", "b/t.csv", "narma"]
        );
    }
}
