//! The tables of a comparison: one run method by method, or a grid with a table per partition and
//! variant, one that compares variants, and one for all.

use hedgerow::method::find;
use hedgerow_lab::compare::{
    BudgetPoint, Cell, Comparison, GridSummary, Interval, RankedMethod, Ranking, TRIALS_TO_TELL,
    Worst, geometric_mean, recommended,
};

use super::advice::{advice, reference, worth};
use crate::figures::number::{fixed, significant};
use crate::table::{NOTHING, Table, or_nothing};

/// Marks of the least error, and of those that may equal it.
const LEAST: &str = "*";
const LEVEL: &str = "≈";

/// All tables and the advice, for a terminal.
pub fn text(comparison: &Comparison) -> String {
    let table = |(heading, table): &(String, Table)| format!("{heading}\n\n{}\n", table.text());
    let all = tables(comparison);
    let tables = all.iter().map(table).collect::<String>() + &legend(&all);
    let worth = worth(comparison).map_or(String::new(), |sentence| format!("{sentence}\n\n"));
    let left_out = match comparison.left_out().as_slice() {
        [] => String::new(),
        each => format!("Left out: {}\n\n", each.join("; ")),
    };
    left_out + &worth + &tables + &advice(comparison) + "\n"
}

/// Every table with its heading.
pub(super) fn tables(comparison: &Comparison) -> Vec<(String, Table)> {
    if let Some((results, ranking)) = comparison.only() {
        let heading = format!("{} ({})", results.data_name(), results.partition);
        return vec![(heading, of_run(ranking))];
    }
    let table = |case: String| (case.clone(), of_case(comparison, &case));
    let mut tables: Vec<(String, Table)> = comparison.cases().into_iter().map(table).collect();
    let points = comparison.budgets();
    if !points.is_empty() {
        tables.push(("Error against bytes, budget by budget".to_owned(), of_budgets(&points)));
    } else if let [first, others @ ..] = comparison.each_once(|cell| &cell.variant).as_slice()
        && !others.is_empty()
    {
        let heading = format!("Errors as multiples of those with: {first}");
        tables.push((heading, of_variants(comparison, others)));
    }
    tables.push(("All runs".to_owned(), of_all(comparison)));
    tables
}

/// The meaning of the marks that occur, in a line; empty if none does.
fn legend(tables: &[(String, Table)]) -> String {
    let has = |mark: &str, is_meant: fn(usize) -> bool| {
        let rows = tables.iter().flat_map(|(_, table)| &table.rows);
        let mut cells = rows.flat_map(|row| row.iter().enumerate());
        cells.any(|(column, cell)| is_meant(column) && cell.ends_with(&format!(" {mark}")))
    };
    let mut meanings = Vec::new();
    if has(LEAST, |column| column > 0) {
        meanings.push(format!("{LEAST}: the least error of those one could choose"));
    }
    if has(LEVEL, |column| column > 0) {
        meanings.push(format!("{LEVEL}: may equal it (p of at least 0.05)"));
    }
    if has(LEAST, |column| column == 0) {
        let chosen = "the fewest bytes within 10% of the least error";
        meanings.push(format!("{LEAST} at a method with its budget: {chosen}"));
    }
    if meanings.is_empty() { String::new() } else { format!("{}\n\n", meanings.join("; ")) }
}

/// How to read the tables.
pub(super) fn note(comparison: &Comparison) -> String {
    match comparison.only() {
        Some((results, _)) => {
            let mut note = String::new();
            if results.trials >= TRIALS_TO_TELL {
                note += &format!(
                    "Intervals hold with a confidence of 95% over {} trials, that is over random features and the dealing of samples: \
                     they say nothing of other streams. Ratios and p are trial by trial (Student's t on logarithms, Holm's \
                     correction) against the method with the least mean, which the same trials have chosen. ",
                    results.trials
                );
            }
            note + "Without a rank: only for comparison. Numbers and bytes are per node and round."
        }
        None => format!(
            "{LEAST}: the least error of those one could choose; {LEVEL}: may equal it (p of at least 0.05 trial by trial, after Holm's \
             correction; only from {TRIALS_TO_TELL} trials on). Ratios are geometric means of errors as multiples of those of {}; worst is the largest of them. First: runs with the least error, and in \
             parentheses those in which no other may equal it. Above the best sk: runs with more error than the best single kernel in \
             hindsight, and in parentheses those in which that is no chance. Bytes are up and down together, per node and round.{}",
            reference(comparison),
            match comparison.budgets().as_slice() {
                [] => String::new(),
                _ => format!(
                    " Budget by budget, {LEAST} is what to choose: the fewest bytes within 10% of the least error."
                ),
            }
        ),
    }
}

fn of_run(ranking: &Ranking) -> Table {
    let measure = format!("{} [95%]", ranking.measure);
    let ratio = "ratio to best [95%]";
    let headings =
        ["method", "rank", &measure, ratio, "p", "numbers up", "down", "bytes up", "down"];
    let row = |entry: &RankedMethod| {
        let ratio = match entry.to_best {
            None if entry.rank == Some(1) => "1".to_owned(),
            None => NOTHING.to_owned(),
            Some(ratio) => with_interval(ratio.value, ratio.interval),
        };
        let per_turn = |count: f64| match entry.bytes() {
            Some(_) => fixed(count, usize::from(count.fract() > 0.05 && count < 1000.0)),
            None => NOTHING.to_owned(),
        };
        vec![
            entry.label(),
            entry.rank.map_or(rankless(entry), |rank| rank.to_string()),
            with_interval(entry.error.mean, entry.interval),
            ratio,
            or_nothing(entry.p_holm, p_value),
            per_turn(entry.numbers_up),
            per_turn(entry.numbers_down),
            per_turn(entry.bytes_up),
            per_turn(entry.bytes_down),
        ]
    };
    Table::of_numbers(headings, ranking.methods.iter().map(row))
}

fn rankless(entry: &RankedMethod) -> String {
    match entry.role.words() {
        "" => "diverged".to_owned(),
        words => words.to_owned(),
    }
}

/// `<0.001`, `0.012`
fn p_value(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { significant(p, 2) }
}

/// `0.0139 [0.0134, 0.0144]`
fn with_interval(value: f64, interval: Option<Interval>) -> String {
    let value = significant(value, 3);
    match interval {
        Some(Interval { low, high }) => {
            format!("{value} [{}, {}]", significant(low, 3), significant(high, 3))
        }
        None => value,
    }
}

/// Errors of all methods on all data sets, dealt in one way, in one variant.
fn of_case(comparison: &Comparison, case: &str) -> Table {
    let titles = comparison.each_once(|cell| &cell.title);
    let against = &comparison.against;
    let powers: Vec<i32> = titles.iter().map(|title| power(comparison, title)).collect();
    let mut headings = vec!["method".to_owned()];
    headings.extend(titles.iter().zip(&powers).map(|(title, power)| match power {
        0 => (*title).to_owned(),
        power => format!("{title}, in units of {}", unit(*power)),
    }));
    headings.push(ratio_heading(comparison));
    let cells: Vec<Option<(&Ranking, usize)>> = titles
        .iter()
        .map(|title| {
            let cell = comparison.cell(title, case)?;
            Some((cell.ranking.as_ref()?, cell.results.as_ref()?.trials))
        })
        .collect();
    let row = |summary: &GridSummary| {
        let name = &summary.name;
        let mut row = vec![shown_name(name)];
        row.extend(cells.iter().zip(&powers).map(|(ranking, power)| match ranking {
            None => "not available".to_owned(),
            Some((ranking, trials)) => {
                or_nothing(ranking.method(name), |entry| scaled(ranking, *trials, entry, *power))
            }
        }));
        let ratios: Vec<f64> = cells
            .iter()
            .flatten()
            .filter_map(|(ranking, _)| ranking.ratio(name, against))
            .collect();
        row.push(or_nothing(geometric_mean(&ratios), |ratio| significant(ratio, 3)));
        row
    };
    Table::of_numbers(headings, comparison.summaries.iter().map(row))
}

/// `ratio to mk`; of several methods only how many there are, because they would fill the table.
fn ratio_heading(comparison: &Comparison) -> String {
    match comparison.against.split(',').count() {
        1 => format!("ratio to {}", comparison.against),
        several => format!("ratio to the best of {several}"),
    }
}

/// `0.001`: what a value is to be multiplied by that was multiplied by a power of ten.
fn unit(power: i32) -> String {
    significant(10f64.powi(-power), 1)
}

fn scaled(ranking: &Ranking, trials: usize, entry: &RankedMethod, power: i32) -> String {
    let can_tell = trials >= TRIALS_TO_TELL;
    let mark = match (entry.rank, ranking.best()) {
        (Some(1), _) => LEAST,
        (Some(_), Some(best)) if can_tell && entry.may_equal(best) => LEVEL,
        _ => "",
    };
    let error = significant(entry.error.mean * 10f64.powi(power), 3);
    if mark.is_empty() { error } else { format!("{error} {mark}") }
}

/// The power of ten that makes the errors on a data set readable: the middle one of them has one
/// digit before its point. The same for all partitions, so that they compare.
fn power(comparison: &Comparison, title: &str) -> i32 {
    let mut errors: Vec<f64> = comparison
        .found()
        .filter(|(cell, ..)| cell.title == title)
        .flat_map(|(.., ranking)| &ranking.methods)
        .map(|entry| entry.error.mean)
        .filter(|error| error.is_finite() && *error > 0.0)
        .collect();
    errors.sort_by(f64::total_cmp);
    let Some(middle) = errors.get(errors.len() / 2) else { return 0 };
    let magnitude = middle.log10().floor() as i32;
    // Numbers that read well are left alone.
    if (0..4).contains(&magnitude) { 0 } else { -magnitude }
}

/// Errors in each variant as multiples of those in the first: the geometric mean over data sets,
/// and the largest.
fn of_variants(comparison: &Comparison, variants: &[&str]) -> Table {
    let partitions = comparison.each_once(|cell| &cell.partition);
    let columns =
        || partitions.iter().flat_map(|one| variants.iter().map(move |other| (one, other)));
    let mut headings = vec!["method".to_owned()];
    headings.extend(columns().map(|(partition, variant)| format!("{partition}, {variant}")));
    let row = |summary: &GridSummary| {
        let ratio = |(partition, variant): (&&str, &&str)| {
            let ratios = comparison.to_first_variant(&summary.name, partition, variant);
            let worst = ratios.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            let all: Vec<f64> = ratios.iter().map(|(_, ratio)| *ratio).collect();
            or_nothing(geometric_mean(&all).zip(worst), |(mean, (title, worst))| {
                format!("{} ({title} {})", significant(mean, 3), significant(*worst, 3))
            })
        };
        let mut row = vec![shown_name(&summary.name)];
        row.extend(columns().map(ratio));
        row
    };
    Table::of_numbers(headings, comparison.summaries.iter().map(row))
}

/// The error and the bytes of every method with every budget, the least error first.
fn of_budgets(points: &[BudgetPoint]) -> Table {
    let chosen = recommended(points);
    let mut sorted: Vec<&BudgetPoint> = points.iter().collect();
    sorted.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let row = |point: &&BudgetPoint| {
        let mark = if chosen == Some(*point) { format!(" {LEAST}") } else { String::new() };
        vec![
            format!("{}{mark}", shown_name(&point.method)),
            point.budget.to_string(),
            significant(point.ratio, 3),
            fixed(point.bytes, 0),
        ]
    };
    let headings = ["method", "budget", "error as a multiple of the least", "bytes"];
    Table::of_numbers(headings, sorted.iter().map(row))
}

fn of_all(comparison: &Comparison) -> Table {
    let has_sk = comparison.summaries.iter().any(|summary| summary.worst_to_sk.is_some());
    let ratio = ratio_heading(comparison);
    let mut headings = vec!["method", "runs", &ratio, "worst", "first (clearly)"];
    if has_sk {
        headings.extend(["above the best sk (clearly)", "worst to the best sk"]);
    }
    headings.push("bytes");
    let largest = |worst: &Worst| {
        let title = title(comparison, &worst.data);
        format!("{} ({title}, {})", significant(worst.ratio, 3), worst.partition)
    };
    let row = |summary: &GridSummary| {
        let is_choice = summary.role.words().is_empty();
        let runs = match summary.diverged {
            0 => summary.runs.to_string(),
            diverged => format!("{} ({diverged} diverged)", summary.runs + diverged),
        };
        let wins = format!("{} ({})", summary.wins, summary.clear_wins);
        let above = format!("{} ({})", summary.above_sk, summary.clearly_above_sk);
        let worst = summary.worst_to_sk.as_ref();
        let mut row = vec![
            shown_name(&summary.name),
            runs,
            or_nothing(summary.ratio, |ratio| significant(ratio, 3)),
            or_nothing(summary.worst.as_ref(), largest),
            if is_choice { wins } else { summary.role.words().to_owned() },
        ];
        if has_sk {
            row.extend([or_nothing(worst, |_| above), or_nothing(worst, largest)]);
        }
        row.push(or_nothing(summary.bytes, |bytes| fixed(bytes, 0)));
        row
    };
    Table::of_numbers(headings, comparison.summaries.iter().map(row))
}

fn title<'c>(comparison: &'c Comparison, data: &'c str) -> &'c str {
    let found: Option<&Cell> = comparison.cells.iter().find(|cell| cell.data == data);
    found.map_or(data, |cell| &cell.title)
}

/// Of a method with a single kernel, the best kernel of each run.
pub(super) fn shown_name(name: &str) -> String {
    let (method, _) = name.split_once('/').unwrap_or((name, ""));
    match find(method) {
        Some(info) if info.takes_kernel => format!("{name} (best)"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::{grid, one, run, with_bytes, with_trials};

    fn cell<'t>(table: &'t Table, row: &str, heading: &str) -> &'t str {
        let column = table.headings.iter().position(|h| h == heading).unwrap();
        &table.rows.iter().find(|cells| cells[0] == row).unwrap()[column]
    }

    #[test]
    fn a_run_has_ranks_intervals_and_costs() {
        let mut results = run(&[("mk", 1.1), ("naive", 1.05), ("gr", 1.0), ("last", 5.0)]);
        with_bytes(&mut results, "mk", 400.5, 404.0);
        with_trials(&mut results, "gr", &[f64::NAN; 4]);
        let tables = tables(&one(results));
        let [(heading, table)] = tables.as_slice() else { panic!("{tables:?}") };
        assert_eq!(heading, "twitter (round-robin)");
        assert_eq!(cell(table, "naive", "rank"), "1");
        assert_eq!(
            (cell(table, "last", "rank"), cell(table, "gr", "rank")),
            ("trivial", "diverged")
        );
        assert_eq!(cell(table, "sk 2 (best)", "rank"), "hindsight");
        assert_eq!(cell(table, "naive", "ratio to best [95%]"), "1");
        assert!(cell(table, "mk", "ratio to best [95%]").starts_with("1.05 [1.05, 1.05]"));
        assert!(
            cell(table, "mk", "MSE [95%]").starts_with("0.00660 [0.0063"),
            "{}",
            cell(table, "mk", "MSE [95%]")
        );
        assert_eq!((cell(table, "mk", "p"), cell(table, "last", "p")), ("<0.001", "–"));
        assert_eq!(
            (cell(table, "mk", "bytes up"), cell(table, "hindsight 2", "bytes up")),
            ("400.5", "–")
        );
        assert!(table.rows.iter().all(|row| row.len() == table.headings.len()));
    }

    #[test]
    fn a_grid_has_a_table_per_partition_and_one_for_all() {
        let comparison = grid();
        let tables = tables(&comparison);
        let headings: Vec<&str> = tables.iter().map(|(heading, _)| heading.as_str()).collect();
        assert_eq!(headings, ["shuffled", "blocks", "All runs"]);
        let (shuffled, blocks, all) = (&tables[0].1, &tables[1].1, &tables[2].1);
        assert_eq!(
            shuffled.headings,
            ["method", "one, in units of 0.001", "two, in units of 0.001", "ratio to mk"]
        );
        assert_eq!(cell(shuffled, "gr", "one, in units of 0.001"), "6.00 *");
        assert_eq!(cell(shuffled, "mk", "one, in units of 0.001"), "12.0");
        assert_eq!(cell(shuffled, "gr", "ratio to mk"), "0.775");
        assert_eq!(
            (cell(blocks, "mk", "two, in units of 0.001"), cell(blocks, "gr", "ratio to mk")),
            ("not available", "0.450")
        );
        assert_eq!(cell(all, "gr", "first (clearly)"), "2 (2)");
        assert_eq!(cell(all, "last", "first (clearly)"), "trivial");
        assert_eq!(cell(all, "gr", "worst to the best sk"), "1.20 (two, shuffled)");
        assert_eq!(cell(all, "sk (best)", "worst to the best sk"), "–");
        assert_eq!(cell(all, "gr", "worst"), "1.20 (two, shuffled)");
        assert_eq!(cell(all, "mk", "worst"), "–");
    }

    #[test]
    fn variants_are_compared_with_the_first() {
        let mut cells = Vec::new();
        for (data, factor) in [("one", 2.0), ("two", 8.0)] {
            for (variant, factor) in [("all", 1.0), ("half", factor)] {
                let mut results = run(&[("mk", 3.0), ("gr", factor)]);
                results.methods.retain(|method| !method.info().takes_kernel);
                let cell = hedgerow_lab::testing::cell(data, "blocks", Some(results));
                cells.push(Cell { variant: variant.into(), ..cell });
            }
        }
        let comparison = Comparison::new(cells, "mk,gr");
        let tables = tables(&comparison);
        let headings: Vec<&str> = tables.iter().map(|(heading, _)| heading.as_str()).collect();
        let variants = "Errors as multiples of those with: all";
        assert_eq!(headings, ["blocks, all", "blocks, half", variants, "All runs"]);
        assert_eq!(cell(&tables[2].1, "gr", "blocks, half"), "4.00 (two 8.00)");
        assert!(cell(&tables[2].1, "mk", "blocks, half").starts_with("1.00 ("));
        let all = &tables[3].1;
        assert!(!all.headings.iter().any(|heading| heading.contains("sk")), "{:?}", all.headings);
        assert_eq!(cell(all, "gr", "worst"), "2.67 (two, blocks, half)");
        assert!(note(&comparison).contains("those of the best of mk and gr;"));
        assert_eq!(all.headings[2], "ratio to the best of 2");
    }

    #[test]
    fn who_may_equal_the_least_is_marked() {
        let mut comparison = grid();
        let mut results = comparison.cells[0].results.clone().unwrap();
        with_trials(&mut results, "mk", &[1.0, 1.1, 0.9, 1.0]);
        with_trials(&mut results, "gr", &[1.1, 1.0, 1.0, 0.92]);
        comparison.cells[0] = Cell::new("one", "one", "shuffled", Some(results));
        let comparison = Comparison::new(comparison.cells, "mk");
        let table = &tables(&comparison)[0].1;
        let marks: Vec<&str> =
            ["mk", "gr"].map(|name| cell(table, name, "one, in units of 0.001")).to_vec();
        assert!(marks[0].ends_with(" *") && marks[1].ends_with(" ≈"), "{marks:?}");
        let told = text(&comparison);
        let legend = "\n*: the least error of those one could choose; ≈: may equal it (p of at";
        assert!(told.contains(legend), "{told}");
        // Two trials can't tell.
        let mut cells = comparison.cells;
        for cell in &mut cells {
            cell.results.iter_mut().for_each(|results| results.trials = 2);
        }
        let told = text(&Comparison::new(cells, "mk"));
        assert!(told.contains("\n*: the least") && !told.contains('≈'), "{told}");
    }

    #[test]
    fn errors_are_scaled_to_be_read_and_only_then() {
        let mut large = run(&[("mk", 1.0)]);
        large.methods.retain(|method| method.name == "mk");
        for (error, known) in [(5.0, 0), (4321.0, 0), (43_210.0, -4), (0.5, 1)] {
            with_trials(&mut large, "mk", &[error; 4]);
            assert_eq!(power(&one(large.clone()), "Twitter"), known, "{error}");
        }
        // One that diverged, or one that is exact, does not count.
        let mut mixed = run(&[("mk", 1.0), ("naive", 1.0), ("gr", 1.0)]);
        with_trials(&mut mixed, "naive", &[1e12; 4]);
        with_trials(&mut mixed, "gr", &[0.0; 4]);
        assert_eq!(power(&one(mixed), "Twitter"), 3);
    }
}
