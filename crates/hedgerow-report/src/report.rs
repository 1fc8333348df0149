//! The report: one HTML page with interactive charts that opens without a network.
//!
//! The words and the table are plain HTML, readable without the script; `charts` hands the same
//! curves as the figures to the script, and `verdict` says in a paragraph what they amount to. All
//! foreign text is escaped on the way in.

mod charts;
pub(crate) mod compare;
mod settings;
mod table;
mod traces;
mod verdict;

use crate::figures::markup::escape;
use hedgerow_lab::results::Results;

/// The whole report as one HTML document. Nothing is written and nothing is fetched.
pub fn render(results: &Results) -> String {
    let charts = charts::charts(results);
    let sections: String = charts.iter().map(charts::Chart::section).collect();
    let data: serde_json::Map<String, serde_json::Value> =
        charts.into_iter().filter_map(|chart| Some((chart.id.to_owned(), chart.figure?))).collect();
    fill(
        include_str!("report/template.html"),
        &[
            ("title", &escape(&format!("Hedgerow on {}", results.data_name()))),
            ("setting", &escape(&results.sizes())),
            ("circumstances", &circumstances(results)),
            ("verdict", &escape(&verdict::verdict(results))),
            ("table", &table::table(results)),
            ("charts", &sections),
            ("settings", &settings::settings(results)),
            ("style", include_str!("report/report.css")),
            ("data", &inside_script(&serde_json::Value::Object(data).to_string())),
            ("plotly", plotly_script(&plotly::Plot::offline_js_sources())),
            ("script", include_str!("report/report.js")),
        ],
    )
}

/// What a reader should know of the data and the nodes, for the head of the page.
fn circumstances(results: &Results) -> String {
    let line = |(name, words): (&str, String)| {
        format!("<p class=\"setting\">{name}: {}</p>\n", escape(&words))
    };
    results.circumstances().into_iter().map(line).collect()
}

/// Replaces each `{{name}}` once, from left to right, so that no value is searched for names.
pub(crate) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, name, after)) = rest.split_once("{{").and_then(|(before, after)| {
        after.split_once("}}").map(|(name, after)| (before, name, after))
    }) {
        page.push_str(before);
        page.push_str(
            values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value),
        );
        rest = after;
    }
    page.push_str(rest);
    page
}

/// JSON that can stand inside a script element: no text in it can end the element or open a
/// comment.
fn inside_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// The crate offers Plotly and, behind it, a typesetter for formulas of two megabytes: only the
/// first is needed.
fn plotly_script(offline_sources: &str) -> &str {
    let script = offline_sources.split_once('>').map_or("", |(_, script)| script);
    script.split_once("</script").map_or(script, |(script, _)| script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing as sample;

    /// The page without the charting library, whose text is not ours.
    fn own_markup(results: &Results) -> String {
        let page = render(results);
        let library = plotly::Plot::offline_js_sources();
        page.replace(plotly_script(&library), "")
    }

    fn chart_data(page: &str) -> serde_json::Value {
        let start = "<script type=\"application/json\" id=\"chart-data\">";
        let (_, rest) = page.split_once(start).unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn the_page_holds_plotly_and_no_typesetter() {
        let library = plotly::Plot::offline_js_sources();
        let script = plotly_script(&library);
        assert!(script.len() > 1_000_000 && script.contains("plotly.js"));
        assert!(!script.contains("MathJax.loader") && script.len() < library.len() - 1_000_000);
        assert!(render(&sample::results(3, 20, 2)).contains(script));
    }

    #[test]
    fn every_slot_of_the_template_is_filled() {
        let page = own_markup(&sample::results(3, 20, 2));
        assert!(!page.contains("{{"), "{}", &page[page.find("{{").unwrap()..][..40]);
        for part in [
            "<table",
            "id=\"mse\"",
            "id=\"kernels\"",
            "id=\"convergence\"",
            "id=\"regret\"",
            "<dl>",
            "prefers-color-scheme",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn nothing_is_fetched() {
        let page = own_markup(&sample::results(3, 20, 2));
        for foreign in ["http://", "https://", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn foreign_text_cannot_break_out() {
        let attack = "</script><script>alert(1)</script><!-- {{plotly}} \" '";
        let mut results = sample::results(2, 5, 2);
        results.data.name = attack.into();
        results.kernels = vec![attack.into(); 2];
        results.partition = attack.into();
        results.loss = attack.into();
        results.participation = attack.into();
        results.methods[0].name = attack.into();
        let page = own_markup(&results);
        let plain = own_markup(&sample::results(2, 5, 2));
        for tag in ["<script", "</script", "<!--"] {
            assert_eq!(page.matches(tag).count(), plain.matches(tag).count(), "{tag}");
        }
        assert!(
            chart_data(&page)["mse"]["views"]["running"].to_string().contains("&lt;/script&gt;")
        );
    }

    #[test]
    fn data_of_the_charts_is_json_without_holes() {
        for (kernels, rounds, trials) in [(1, 1, 1), (11, 700, 5), (1000, 30, 2)] {
            let page = own_markup(&sample::results(kernels, rounds, trials));
            let data = chart_data(&page);
            assert_eq!(data.as_object().unwrap().len(), 4);
            assert!(!data.to_string().contains("null"));
        }
        let mut empty = sample::results(1, 1, 1);
        empty.methods.clear();
        assert_eq!(chart_data(&own_markup(&empty)), serde_json::json!({}));
    }

    #[test]
    fn a_long_dictionary_stays_a_page() {
        assert!(own_markup(&sample::results(1000, 300, 3)).len() < 3_000_000);
    }

    #[test]
    fn values_are_not_searched_for_slots() {
        assert_eq!(fill("a {{x}} b {{y}}{{none}}", &[("x", "{{y}}"), ("y", "1")]), "a {{y}} b 1");
    }

    #[test]
    fn participation_and_scaling_are_told_at_the_head_if_there_is_something_to_tell() {
        let mut results = sample::results(2, 5, 2);
        assert!(!own_markup(&results).contains("Participation: "));
        results.participation = "nodes join <late>".into();
        results.scaling = "by <hindsight>".into();
        let page = own_markup(&results);
        let (head, _) = page.split_once("</header>").unwrap();
        assert!(head.contains("Participation: nodes join &lt;late&gt;"), "{head}");
        assert!(head.contains("Scaling: by &lt;hindsight&gt;"), "{head}");
    }
}
