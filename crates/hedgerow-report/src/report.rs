//! The report: one HTML page that opens without a network.
//!
//! Words, table and charts are plain HTML and SVG, readable without the script; the charts are
//! drawn from the same descriptions as the figures. The script shows values at the pointer, zooms,
//! hides lines and sorts the table. `verdict` says in a paragraph what the numbers amount to. All
//! foreign text is escaped.

mod charts;
pub(crate) mod compare;
mod devices;
mod settings;
mod table;
mod verdict;

use crate::figures::markup::escape;
use crate::page::{fill, page};
use crate::worth;
use hedgerow_lab::results::Results;

/// The whole report as one HTML document. Nothing is written and nothing is fetched.
pub fn render(results: &Results) -> String {
    let line = |(name, words): (&str, String)| {
        format!("<p class=\"setting\">{name}: {}</p>\n", escape(&words))
    };
    let circumstances: String = results.circumstances().into_iter().map(line).collect();
    let sizes = escape(&results.sizes());
    let charts: String = charts::charts(results).iter().map(charts::ChartSection::markup).collect();
    let worth = worth::sentence(results);
    let worth = worth.map_or(String::new(), |worth| {
        format!("<p class=\"verdict\"><strong>{}</strong></p>\n", escape(&worth))
    });
    let devices = results
        .subject()
        .map(|subject| devices::devices(results, subject) + &devices::calendar(results, subject));
    let confusion = results.subject().map(|subject| charts::confusion(results, subject));
    let importance = results.subject().map(|subject| charts::importance(results, subject));
    let body = fill(
        include_str!("report/body.html"),
        &[
            ("worth", &worth),
            ("verdict", &escape(&verdict::verdict(results))),
            ("table", &table::table(results)),
            ("charts", &charts),
            ("confusion", &confusion.unwrap_or_default()),
            ("importance", &importance.unwrap_or_default()),
            ("devices", &devices.unwrap_or_default()),
            ("settings", &settings::settings(results)),
        ],
    );
    page(
        &format!("Hedgerow on {}", results.data_name()),
        &format!("<p class=\"setting\">{sizes}</p>\n{circumstances}"),
        &body,
        ("", concat!(include_str!("report/charts.js"), include_str!("report/table.js"))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing as sample;

    #[test]
    fn every_slot_of_the_template_is_filled() {
        let page = render(&sample::results(3, 20, 2));
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
    fn classes_have_their_confusion() {
        let mut results = sample::results(3, 20, 2);
        assert!(!render(&results).contains("id=\"confusion-heading\""));
        sample::add_classes(&mut results, 3);
        let page = render(&results);
        assert!(page.contains("Confusion of classes by mk</h2>") && page.contains("class 2&lt;"));
    }

    #[test]
    fn nothing_is_fetched() {
        let page = render(&sample::results(3, 20, 2)).replace("http://www.w3.org/2000/svg", "");
        for foreign in ["http://", "https://", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn foreign_text_cannot_break_out() {
        let attack = "</script><script>alert(1)</script><!-- {{script}} \" '";
        let mut results = sample::results(2, 5, 2);
        results.data.name = attack.into();
        results.kernels = vec![attack.into(); 2];
        results.partition = attack.into();
        results.loss = attack.into();
        results.participation = attack.into();
        results.methods[0].name = attack.into();
        let page = render(&results);
        let plain = render(&sample::results(2, 5, 2));
        for tag in ["<script", "</script", "<!--"] {
            assert_eq!(page.matches(tag).count(), plain.matches(tag).count(), "{tag}");
        }
        assert!(page.contains("data-label=\"&lt;/script&gt;"));
    }

    #[test]
    fn no_number_of_a_chart_is_lost() {
        for (kernels, rounds, trials) in [(1, 1, 1), (11, 700, 5), (1000, 30, 2)] {
            let page = render(&sample::results(kernels, rounds, trials));
            assert_eq!(page.matches("<div class=\"chart\"").count(), 5);
            let (charts, _) = page.split_once("<script>").unwrap();
            assert!(!charts.contains("NaN") && !charts.contains("\"inf"));
        }
        let mut empty = sample::results(1, 1, 1);
        empty.methods.clear();
        assert!(!render(&empty).contains("<div class=\"chart\""));
    }

    #[test]
    fn a_long_dictionary_stays_a_page() {
        assert!(render(&sample::results(1000, 300, 3)).len() < 3_000_000);
    }

    #[test]
    fn participation_and_scaling_are_told_at_the_head_if_there_is_something_to_tell() {
        let mut results = sample::results(2, 5, 2);
        assert!(!render(&results).contains("Participation: "));
        results.participation = "nodes join <late>".into();
        results.scaling = "by <hindsight>".into();
        let page = render(&results);
        let (head, _) = page.split_once("</header>").unwrap();
        assert!(head.contains("Participation: nodes join &lt;late&gt;"), "{head}");
        assert!(head.contains("Scaling: by &lt;hindsight&gt;"), "{head}");
    }
}
