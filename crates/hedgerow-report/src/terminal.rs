//! What a run found, as text for a terminal.

use hedgerow::method::{Reference, Role};
use hedgerow_lab::results::{MethodResult, Results};

use crate::table::Table;

/// Methods with their errors and costs. Of the single kernels the best gets a row and the others
/// share one.
pub fn summary(results: &Results) -> String {
    let classifies = results.methods.iter().any(|method| method.error_rate.is_some());
    let (error, second) = match classifies {
        true => ("errors ± sd", "mean loss"),
        false => ("MSE ± sd", "last window"),
    };
    let headings = ["method", error, second, "kernel", "up", "down", "regret ~ t^a", "time"];
    let shown = results.methods.iter().filter(|method| !is_other_kernel(method));
    let mut text = heading(results);
    text += &Table::of_numbers(headings, shown.map(row)).text();
    text += &other_kernels(results);
    text += &losses_to_trivial(results);
    text += "up, down: numbers per node and round";
    if let Some(best) = results.best_kernel {
        let marked = results.methods.iter().find(|method| method.best);
        let by = marked.map_or("the best fixed function", |method| &method.name);
        let kernel = &results.kernels[best - 1];
        text += &format!("; best kernel in hindsight, by {by}: {best} ({kernel})");
    }
    text + "\n"
}

fn heading(results: &Results) -> String {
    let Results { data, nodes, rounds, budget, trials, seed, partition, .. } = results;
    let mut text = format!(
        "{}: {} samples of {} numbers, {nodes} nodes ({partition}), {rounds} rounds, budget {budget}, {trials} trial{}, seed {seed}\n",
        data.name,
        data.samples,
        data.features,
        if *trials == 1 { "" } else { "s" }
    );
    for (name, words) in results.circumstances() {
        text += &format!("{}: {words}\n", name.to_lowercase());
    }
    text + "\n"
}

fn row(method: &MethodResult) -> Vec<String> {
    let (error, second) = match &method.error_rate {
        Some(rate) => {
            let percent = format!("{:.1}% ± {:.1}%", 100.0 * rate.mean, 100.0 * rate.sd);
            (percent, significant(method.mean_loss.mean))
        }
        None => {
            let error =
                format!("{} ± {}", significant(method.mse.mean), significant(method.mse.sd));
            (error, method.mse_last_window.map_or("-".to_owned(), |mse| significant(mse.mean)))
        }
    };
    let regret = method.regret.as_ref().and_then(|regret| regret.exponent);
    let count = |numbers: f64| match method.is(Reference::Hindsight) {
        true => "-".to_owned(),
        false => format!("{numbers:.1}"),
    };
    vec![
        if method.best { format!("{} (best)", method.name) } else { method.name.clone() },
        error,
        second,
        kernel(method),
        count(method.numbers_up),
        count(method.numbers_down),
        regret.map_or("-".to_owned(), |exponent| format!("{exponent:.2}")),
        format!("{:.2} s", method.seconds),
    ]
}

/// The kernel that made the most predictions, and how many.
fn kernel(method: &MethodResult) -> String {
    if let Some(kernel) = method.kernel {
        return kernel.to_string();
    }
    if method.selected.is_empty() {
        return "-".to_owned();
    }
    // The first of those that share the lead.
    let most = method.selected.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1));
    most.map_or("-".to_owned(), |(kernel, share)| format!("{} ({:.0}%)", kernel + 1, 100.0 * share))
}

/// A line for each method that one could choose and that has a larger error than a trivial
/// forecast.
fn losses_to_trivial(results: &Results) -> String {
    let trivial = results.methods.iter().filter(|method| method.is_trivial());
    let Some(best) = trivial.min_by(|a, b| a.mse.mean.total_cmp(&b.mse.mean)) else {
        return String::new();
    };
    let what = best.info().summary;
    let line = |method: &MethodResult| {
        let (name, times) = (&method.name, significant(method.mse.mean / best.mse.mean));
        format!("{name} loses to {what}, which takes no learning: {times} times its error\n")
    };
    let loses =
        |method: &&MethodResult| method.role() == Role::Choice && method.mse.mean > best.mse.mean;
    results.methods.iter().filter(loses).map(line).collect()
}

fn is_other_kernel(method: &&MethodResult) -> bool {
    method.info().takes_kernel && !method.best
}

fn other_kernels(results: &Results) -> String {
    let is_squared = results.loss == "squared";
    let others: Vec<&MethodResult> = results.methods.iter().filter(is_other_kernel).collect();
    let Some(MethodResult { name, .. }) = others.first() else { return String::new() };
    let errors = others
        .iter()
        .map(|method| if is_squared { method.mse.mean } else { method.mean_loss.mean });
    let least = significant(errors.clone().fold(f64::INFINITY, f64::min));
    let most = significant(errors.fold(0.0, f64::max));
    let measure = if is_squared { "MSE" } else { "mean loss" };
    format!("{name} with the other {} kernels: {measure} {least} to {most}\n", others.len())
}

/// Four digits that count.
pub fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    if (-5.0..6.0).contains(&magnitude) {
        let decimals = (3.0 - magnitude).max(0.0) as usize;
        format!("{value:.decimals$}")
    } else {
        format!("{value:.3e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::run;

    #[test]
    fn every_choice_that_loses_to_a_trivial_forecast_is_named() {
        let losing = [("linear", 3.0), ("gr+personal", 2.0), ("central", 4.0), ("mk", 0.5)];
        let text = summary(&run(&[&losing[..], &[("last", 1.0), ("mean", 5.0)]].concat()));
        let named: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(" loses to the node's last label,"))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(named, ["linear", "gr+personal"], "{text}");
        assert!(!summary(&run(&losing)).contains("loses"));
        let text = summary(&run(&[("gr", 2.0), ("last", 3.0), ("mean", 1.0)]));
        assert!(text.contains("gr loses to the mean of the node's labels so far,"), "{text}");
    }

    #[test]
    fn four_digits_count() {
        for (value, shown) in [
            (0.0, "0"),
            (0.006_437_8, "0.006438"),
            (12.3456, "12.35"),
            (123_456.0, "123456"),
            (1.5e-9, "1.500e-9"),
            (2.5e7, "2.500e7"),
        ] {
            assert_eq!(significant(value), shown);
        }
    }
}
