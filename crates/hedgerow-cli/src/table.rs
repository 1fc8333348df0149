//! The table at the end of a run.

use hedgerow_lab::results::{MethodResult, Results};

/// Methods with their errors and costs. Of `sk` the best kernel gets a row and the others share
/// one.
pub(crate) fn render(results: &Results) -> String {
    let mut rows = vec![
        ["method", "MSE ± sd", "last window", "kernel", "up", "down", "regret ~ t^a", "time"]
            .map(str::to_owned),
    ];
    let classifies = results.methods.iter().any(|method| method.error_rate.is_some());
    if classifies {
        rows[0][1] = "errors ± sd".to_owned();
        rows[0][2] = "mean loss".to_owned();
    }
    for method in results.methods.iter().filter(|method| method.name != "sk" || method.best) {
        rows.push(row(method));
    }
    let mut text = heading(results);
    text.push_str(&aligned(&rows));
    text.push_str(&other_kernels(results));
    for name in ["gr", "gr+personal", "mk"] {
        if let (Some(method), Some(last)) = (results.method(name), results.method("last"))
            && method.mse.mean > last.mse.mean
        {
            let times = significant(method.mse.mean / last.mse.mean);
            text.push_str(&format!(
                "{name} loses to the last value, which takes no learning: {times} times its error\n"
            ));
        }
    }
    text.push_str("up, down: numbers per node and round");
    if let Some(best) = results.best_kernel {
        let by = if results.methods.iter().any(|method| method.best) {
            "sk"
        } else {
            "the best fixed function"
        };
        text.push_str(&format!(
            "; best kernel in hindsight, by {by}: {best} ({})",
            results.kernels[best - 1]
        ));
    }
    text.push('\n');
    text
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
        text.push_str(&format!("{}: {words}\n", name.to_lowercase()));
    }
    text.push('\n');
    text
}

fn row(method: &MethodResult) -> [String; 8] {
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
    let hindsight = method.name == "hindsight";
    [
        if method.best { "sk (best)".to_owned() } else { method.name.clone() },
        error,
        second,
        kernel(method),
        count(method.numbers_up, hindsight),
        count(method.numbers_down, hindsight),
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

fn count(numbers: f64, absent: bool) -> String {
    if absent { "-".to_owned() } else { format!("{numbers:.1}") }
}

fn other_kernels(results: &Results) -> String {
    let others: Vec<f64> = results
        .methods
        .iter()
        .filter(|method| method.name == "sk" && !method.best)
        .map(
            |method| {
                if results.loss == "squared" { method.mse.mean } else { method.mean_loss.mean }
            },
        )
        .collect();
    if others.is_empty() {
        return String::new();
    }
    let (least, most) = others
        .iter()
        .fold((f64::INFINITY, 0.0f64), |(least, most), loss| (least.min(*loss), most.max(*loss)));
    let measure = if results.loss == "squared" { "MSE" } else { "mean loss" };
    format!(
        "sk with the other {} kernels: {measure} {} to {}\n",
        others.len(),
        significant(least),
        significant(most)
    )
}

/// Four digits that count.
pub(crate) fn significant(value: f64) -> String {
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

/// Columns as wide as their widest cell; numbers to the right.
pub(crate) fn aligned(rows: &[impl AsRef<[String]>]) -> String {
    let cell_width =
        |row: &[String], column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let width =
        |column: usize| rows.iter().map(|row| cell_width(row.as_ref(), column)).max().unwrap_or(0);
    let mut text = String::new();
    for (index, row) in rows.iter().map(AsRef::as_ref).enumerate() {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column);
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
        if index == 0 {
            let total: usize =
                (0..row.len()).map(width).sum::<usize>() + 2 * row.len().saturating_sub(1);
            text.push_str(&"─".repeat(total));
            text.push('\n');
        }
    }
    text
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

    #[test]
    fn columns_line_up() {
        let row =
            |first: &str, second: &str| [first, second, "", "", "", "", "", "x"].map(str::to_owned);
        let text = aligned(&[row("method", "MSE"), row("a", "0.1 ± 0.2")]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].chars().count(), lines[2].chars().count());
        assert_eq!(lines[1].chars().count(), lines[0].chars().count());
    }
}
