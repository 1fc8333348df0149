//! A comparison as a document, a page, a table of numbers and JSON.

use serde_json::{Value, json};

use hedgerow_lab::compare::{Cell, Comparison, Interval, RankedMethod, Ratio, Standing};

use super::sections::{self, Part, Section};
use super::{advice, pictures};
use crate::figures::markup::escape;
use crate::page;
use crate::table::{plain, quoted};
use hedgerow_lab::results::Results;

/// `compare.md`; the figures are expected beside it.
pub fn document(comparison: &Comparison) -> String {
    let mut parts = vec![format!("# {}", plain(&sections::title(comparison)))];
    parts.extend(sections::circumstances(comparison).iter().map(|line| plain(line)));
    for Section { heading, parts: content, .. } in sections::sections(comparison) {
        parts.push(format!("## {heading}"));
        for part in content {
            match part {
                Part::Text(text) | Part::Note(text) => parts.push(plain(&text)),
                Part::Table(heading, table) => {
                    if !heading.is_empty() {
                        parts.push(format!("### {}", plain(&heading)));
                    }
                    parts.push(table.markdown());
                }
                Part::Figure(file, caption) => {
                    parts.push(format!("![{caption}]({file})", caption = plain(&caption)))
                }
            }
        }
    }
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end()).collect();
    parts.join("\n\n") + "\n"
}

/// `compare.html`: one page with its figures inside, without scripts, that opens without a network.
pub fn page(comparison: &Comparison) -> String {
    let figures = pictures::figures(comparison);
    let markup = |part: &Part| match part {
        Part::Text(text) => format!("<p class=\"verdict\">{}</p>\n", escape(text)),
        Part::Note(text) => format!("<p class=\"caption\">{}</p>\n", escape(text)),
        Part::Table(heading, table) if heading.is_empty() => table.html("Numbers"),
        Part::Table(heading, table) => {
            format!("<h3>{}</h3>\n{}", escape(heading), table.html(heading))
        }
        Part::Figure(file, caption) => {
            let svg = figures.iter().find(|(name, _)| name == file).map_or("", |(_, svg)| svg);
            format!("<figure>\n{svg}<figcaption>{}</figcaption>\n</figure>\n", escape(caption))
        }
    };
    let setting: Vec<String> =
        sections::circumstances(comparison).iter().map(|line| escape(line)).collect();
    let section = |Section { id, heading, parts }: Section| page::Section {
        id,
        heading,
        content: parts.iter().map(markup).collect(),
    };
    let sections: Vec<page::Section> =
        sections::sections(comparison).into_iter().map(section).collect();
    page::page(&sections::title(comparison), &setting.join("<br>"), &sections)
}

/// `compare.csv`: one row per run and method, every number as it was measured; cells of what is not
/// there are empty.
pub fn csv(comparison: &Comparison) -> String {
    const HEADINGS: [&str; 28] = [
        "data",
        "partition",
        "nodes",
        "rounds",
        "trials",
        "seed",
        "budget",
        "measure",
        "method",
        "kernel",
        "role",
        "rank",
        "error",
        "error_sd",
        "error_low",
        "error_high",
        "ratio_to_best",
        "ratio_low",
        "ratio_high",
        "p",
        "p_holm",
        "ratio_to_sk",
        "to_sk_low",
        "to_sk_high",
        "numbers_up",
        "numbers_down",
        "bytes_up",
        "bytes_down",
    ];
    let mut csv = HEADINGS.join(",") + "\n";
    for (cell, results, ranking) in comparison.found() {
        for entry in &ranking.methods {
            let line = [of_run(cell, results, &ranking.measure), of_method(entry)].concat();
            csv.push_str(&line.join(","));
            csv.push('\n');
        }
    }
    csv
}

fn of_run(cell: &Cell, results: &Results, measure: &str) -> Vec<String> {
    let Results { nodes, rounds, trials, seed, budget, .. } = results;
    let mut cells = vec![quoted(&cell.data), quoted(&cell.partition)];
    cells.extend([nodes, rounds, trials].map(ToString::to_string));
    cells.extend([seed.to_string(), budget.to_string(), quoted(measure)]);
    cells
}

fn of_method(entry: &RankedMethod) -> Vec<String> {
    let number = |value: Option<f64>| {
        value.filter(|v| v.is_finite()).map_or(String::new(), |v| v.to_string())
    };
    let whole = |value: Option<usize>| value.map_or(String::new(), |v| v.to_string());
    let ends = |interval: Option<Interval>| {
        [interval.map(|i| i.low), interval.map(|i| i.high)].map(number)
    };
    let ratio = |ratio: Option<Ratio>| {
        let [low, high] = ends(ratio.and_then(|ratio| ratio.interval));
        [number(ratio.map(|ratio| ratio.value)), low, high]
    };
    let mut cells = vec![quoted(&entry.name), whole(entry.kernel)];
    let role =
        serde_json::to_value(entry.role).ok().and_then(|role| role.as_str().map(str::to_owned));
    cells.extend([role.unwrap_or_default(), whole(entry.rank)]);
    cells.extend([number(Some(entry.error.mean)), number(Some(entry.error.sd))]);
    cells.extend(ends(entry.interval));
    cells.extend(ratio(entry.to_best));
    cells.extend([number(entry.to_best.and_then(|ratio| ratio.p)), number(entry.p_holm)]);
    cells.extend(ratio(entry.to_sk));
    cells.extend(
        [entry.numbers_up, entry.numbers_down, entry.bytes_up, entry.bytes_down]
            .map(|n| number(Some(n))),
    );
    cells
}

/// `compare.json`; `missing` names data sets that were not available.
pub fn json(comparison: &Comparison, missing: &[String]) -> Value {
    let run = |cell: &Cell| {
        let Some((results, ranking)) = cell.results.as_ref().zip(cell.ranking.as_ref()) else {
            return json!({ "data": cell.data, "partition": cell.partition, "methods": null });
        };
        json!({
            "data": cell.data,
            "partition": cell.partition,
            "samples": results.data.samples,
            "features": results.data.features,
            "nodes": results.nodes,
            "rounds": results.rounds,
            "budget": results.budget,
            "trials": results.trials,
            "seed": results.seed,
            "scaling": results.scaling,
            "measure": ranking.measure,
            "best": ranking.best().map(|best| &best.name),
            "advice": advice::of_run(results, ranking),
            "methods": ranking.methods,
        })
    };
    let all: Option<&[Standing]> = (comparison.cells.len() > 1).then_some(&comparison.standings);
    json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "against": comparison.against,
        "advice": advice::advice(comparison),
        "missing": missing,
        "runs": comparison.cells.iter().map(run).collect::<Vec<_>>(),
        "all_runs": all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::{grid, one, run, with_trials};

    #[test]
    fn advice_tables_and_figures_are_in_document_and_page() {
        for comparison in [one(run(&[("mk", 1.1), ("gr/q8", 1.0)])), grid()] {
            let (document, page) = (document(&comparison), page(&comparison));
            for id in ["advice", "numbers", "figures"] {
                assert!(
                    page.contains(&format!("<section id=\"{id}\""))
                        && page.contains(&format!("#{id}")),
                    "{id}"
                );
            }
            for file in ["](compare.svg)", "](bytes.svg)"] {
                assert!(document.contains(file), "{file}");
            }
            assert!(document.contains(&plain(&advice::advice(&comparison))));
            assert!(page.contains(&escape(&advice::advice(&comparison))));
            assert_eq!(page.matches("role=\"img\"").count(), 2);
            assert!(
                !document.contains("\n\n\n") && document.ends_with('\n') && !page.contains("{{")
            );
        }
        let document = document(&grid());
        let order = [
            "### All runs",
            "### shuffled",
            "### blocks",
            "## Figures",
            "| two, blocks | not available |",
        ];
        let places: Vec<usize> = order.iter().map(|part| document.find(part).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn foreign_text_stays_text_and_nothing_is_fetched() {
        let attack = "</title></svg><script>alert(1)</script>{{style}}|[x](y)\"'";
        let mut results = run(&[("mk", 1.0), ("naive", 2.0)]);
        results.data.name = attack.into();
        results.partition = attack.into();
        results.scaling = attack.into();
        results
            .methods
            .iter_mut()
            .filter(|m| m.name == "naive")
            .for_each(|m| m.name = attack.into());
        let cells =
            [attack, "two"].map(|data| Cell::new(data, data, "p", Some(results.clone()))).to_vec();
        for comparison in [one(results), Comparison::new(cells, "mk")] {
            let (document, page) = (document(&comparison), page(&comparison));
            assert!(
                !page.contains("<script")
                    && !document.contains("<script")
                    && !document.contains("[x](")
            );
            assert_eq!(page.matches("</svg>").count(), 2);
            let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
            for foreign in ["http:", "https:", "src=", "href=\"h", "@import", "url("] {
                assert!(!page.contains(foreign), "{foreign}");
            }
        }
    }

    #[test]
    fn every_line_of_the_csv_has_every_cell() {
        let mut results = run(&[("mk", 1.1), ("naive", 1.0), ("gr", 1.0)]);
        with_trials(&mut results, "gr", &[f64::INFINITY; 4]);
        results.partition = "column:a,b".into();
        let comparison = one(results);
        let table = csv(&comparison);
        let mut reader = ::csv::Reader::from_reader(table.as_bytes());
        let headings = reader.headers().unwrap().clone();
        let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let get = |method: &str, heading: &str| {
            let at = |heading: &str| headings.iter().position(|h| h == heading).unwrap();
            rows.iter().find(|row| &row[at("method")] == method).unwrap()[at(heading)].to_owned()
        };
        assert_eq!(rows.len(), 5);
        let mk = comparison.cells[0].ranking.as_ref().unwrap().method("mk").unwrap();
        assert_eq!(get("mk", "error"), mk.error.mean.to_string());
        assert_eq!(get("mk", "ratio_high"), mk.to_best.unwrap().interval.unwrap().high.to_string());
        assert_eq!(
            (get("sk", "kernel"), get("sk", "role"), get("sk", "rank")),
            ("2".into(), "hindsight".into(), "".into())
        );
        assert_eq!(
            (get("gr", "error"), get("naive", "p_holm"), get("mk", "partition")),
            ("".into(), "".into(), "column:a,b".into())
        );
        assert_eq!(get("mk", "bytes_down"), "404");
        assert_eq!(get("mk", "ratio_to_sk"), mk.to_sk.unwrap().value.to_string());
        assert_eq!(get("mk", "to_sk_low"), mk.to_sk.unwrap().interval.unwrap().low.to_string());
    }

    #[test]
    fn json_has_every_run_and_the_standings_of_a_grid() {
        let found = json(&grid(), &["two".to_owned()]);
        assert_eq!(
            (&found["schema"], &found["missing"], &found["against"]),
            (&1.into(), &json!(["two"]), &"mk".into())
        );
        let runs = found["runs"].as_array().unwrap();
        assert_eq!(
            (runs.len(), &runs[3]["methods"], &runs[0]["best"]),
            (4, &Value::Null, &"gr".into())
        );
        assert_eq!(found["all_runs"].as_array().unwrap().len(), 5);
        let alone = json(&one(run(&[("mk", 1.0)])), &[]);
        assert_eq!(alone["all_runs"], Value::Null);
        assert!(alone["runs"][0]["methods"][0]["interval"]["low"].is_f64());
    }
}
