//! The settings of the run: the ones that matter most as a list, and everything that was changed.

use serde_json::Value;

use crate::figures::markup::escape;
use crate::figures::{number, series};
use hedgerow_data::text::counted;
use hedgerow_lab::results::{DataSummary, Results};
use hedgerow_lab::settings::defaults_as_json;

/// A description list, the changes and the dictionary.
pub(super) fn settings(results: &Results) -> String {
    let present =
        |text: &str, otherwise: &str| if text.is_empty() { otherwise } else { text }.to_owned();
    let best = results
        .best_kernel
        .map_or("not known".to_owned(), |best| series::kernel_label(results, best));
    let rows = [
        ("Data", results.data.name.clone()),
        ("Provenance", present(&results.data.provenance, "not known")),
        ("Samples", number::fixed(results.data.samples as f64, 0)),
        ("Numbers per sample (d)", results.data.features.to_string()),
        ("Missing values", missing(&results.data)),
        ("Scaling", present(&results.scaling, "none")),
        ("Nodes (K)", results.nodes.to_string()),
        ("Rounds (T)", number::fixed(results.rounds as f64, 0)),
        ("Numbers per message (r)", results.budget.to_string()),
        ("Kernels (P)", results.kernels.len().to_string()),
        ("Best kernel in hindsight", best),
        ("Loss", results.loss.clone()),
        ("Samples dealt to nodes", results.partition.clone()),
        ("Participation", present(&results.participation, "every node in every round")),
        ("Window of the last errors", format!("{} rounds", results.window)),
        ("Trials", results.trials.to_string()),
        ("Seed", results.seed.to_string()),
        ("Wall time", format!("{} s", number::significant(results.seconds, 3))),
        ("Program", format!("Hedgerow {}", results.version)),
    ];
    let row = |(name, value): &(&str, String)| {
        format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escape(value))
    };
    let list: String = rows.iter().map(row).collect();
    format!(
        "<dl>{list}</dl>\n{}<details><summary>The dictionary of kernels</summary><ol>{}</ol></details>",
        folded_changes(&changes(&results.settings, &defaults_as_json())),
        items(&results.kernels)
    )
}

fn missing(data: &DataSummary) -> String {
    match (data.missing_inputs, data.missing_labels) {
        (0, 0) => "none".to_owned(),
        (inputs, labels) => {
            let (inputs, labels) = (counted(inputs, "input"), counted(labels, "sample"));
            format!("{inputs} imputed, {labels} without a label skipped")
        }
    }
}

fn folded_changes(changes: &[String]) -> String {
    if changes.is_empty() {
        return "<p class=\"caption\">All settings have their defaults.</p>\n".to_owned();
    }
    let count = changes.len();
    let changed =
        if count == 1 { "1 setting differs".into() } else { format!("{count} settings differ") };
    format!(
        "<details><summary>{changed} from the defaults</summary><ul>{}</ul></details>\n",
        items(changes)
    )
}

fn items(texts: &[String]) -> String {
    texts.iter().map(|text| format!("<li>{}</li>\n", escape(text))).collect()
}

/// `learning.ridge = 0.1 (default 0.01)` for each key with another value than its default. Where
/// results were written says nothing about them.
fn changes(settings: &Value, defaults: &Value) -> Vec<String> {
    let mut changes = Vec::new();
    for (section, keys) in settings.as_object().into_iter().flatten() {
        for (key, value) in keys.as_object().into_iter().flatten() {
            let default = &defaults[section][key];
            if same(value, default) || (section == "run" && key == "out") {
                continue;
            }
            let default =
                if default.is_null() { "no default".into() } else { format!("default {default}") };
            changes.push(format!("{section}.{key} = {value} ({default})"));
        }
    }
    changes
}

/// Numbers are the same however they are written: 1 is 1.0.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.as_f64() == b.as_f64() && a.is_f64() != b.is_f64())
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::settings::Settings;
    use hedgerow_lab::testing::results;

    fn page_with(flags: &[&str]) -> String {
        let layers = hedgerow_config::Layer::sets(flags).unwrap();
        let mut results = results(3, 5, 2);
        results.settings =
            serde_json::to_value(Settings::load(&layers).unwrap().effective).unwrap();
        settings(&results)
    }

    #[test]
    fn every_change_is_listed_with_its_default() {
        let page = page_with(&[
            "learning.ridge=0.1",
            "participation.arrivals=poisson:1.5",
            "run.out=elsewhere",
        ]);
        assert!(page.contains("<li>learning.ridge = 0.1 (default 0.01)</li>"), "{page}");
        let arrivals =
            "<li>participation.arrivals = &quot;poisson:1.5&quot; (default &quot;one&quot;)</li>";
        assert!(page.contains(arrivals), "{page}");
        assert!(page.contains("2 settings differ") && !page.contains("elsewhere"), "{page}");
    }

    #[test]
    fn the_same_number_in_other_digits_is_no_change() {
        let page = page_with(&[
            "learning.step_size=1",
            "kernels.variances=[0.00001, 1e-4, 0.001, 0.01, 0.1, 1, 10, 100, 1000, 1e4, 1e5]",
        ]);
        assert!(page.contains("All settings have their defaults"), "{page}");
    }

    #[test]
    fn unknown_keys_and_markup_are_shown_as_they_are() {
        let mut results = results(3, 5, 2);
        results.settings = serde_json::json!({ "new": { "<b>": "<script>" }, "odd": 3 });
        results.version = "<1>".into();
        let page = settings(&results);
        assert!(page.contains("new.&lt;b&gt; = &quot;&lt;script&gt;&quot; (no default)"), "{page}");
        assert!(
            page.contains("1 setting differs") && page.contains("Hedgerow &lt;1&gt;"),
            "{page}"
        );
    }
}
