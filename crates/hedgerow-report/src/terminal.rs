//! What a run found, as text for a terminal.

use hedgerow_lab::results::{MethodResult, Results};

use crate::table::Table;

/// Methods with their errors and costs. Of `sk` the best kernel gets a row and the others share
/// one.
pub fn summary(results: &Results) -> String {
    let classifies = results.methods.iter().any(|method| method.error_rate.is_some());
    let (error, second) = match classifies {
        true => ("errors ± sd", "mean loss"),
        false => ("MSE ± sd", "last window"),
    };
    let headings = ["method", error, second, "kernel", "up", "down", "regret ~ t^a", "time"];
    let shown = results.methods.iter().filter(|method| method.name != "sk" || method.best);
    let mut text = heading(results);
    text += &Table::of_numbers(headings, shown.map(row)).text();
    text += &other_kernels(results);
    for name in ["gr", "gr+personal", "mk"] {
        if let (Some(method), Some(last)) = (results.method(name), results.method("last"))
            && method.mse.mean > last.mse.mean
        {
            let times = significant(method.mse.mean / last.mse.mean);
            text += &format!(
                "{name} loses to the last value, which takes no learning: {times} times its error\n"
            );
        }
    }
    text += "up, down: numbers per node and round";
    if let Some(best) = results.best_kernel {
        let by = match results.methods.iter().any(|method| method.best) {
            true => "sk",
            false => "the best fixed function",
        };
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
    let count = |numbers: f64| match method.name.as_str() {
        "hindsight" => "-".to_owned(),
        _ => format!("{numbers:.1}"),
    };
    vec![
        if method.best { "sk (best)".to_owned() } else { method.name.clone() },
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

fn other_kernels(results: &Results) -> String {
    let is_squared = results.loss == "squared";
    let others: Vec<f64> = results
        .methods
        .iter()
        .filter(|method| method.name == "sk" && !method.best)
        .map(|method| if is_squared { method.mse.mean } else { method.mean_loss.mean })
        .collect();
    if others.is_empty() {
        return String::new();
    }
    let least = significant(others.iter().copied().fold(f64::INFINITY, f64::min));
    let most = significant(others.iter().copied().fold(0.0, f64::max));
    let measure = if is_squared { "MSE" } else { "mean loss" };
    format!("sk with the other {} kernels: {measure} {least} to {most}\n", others.len())
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
