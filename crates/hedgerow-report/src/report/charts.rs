//! The charts of the report and the markup around them.

use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::{MethodResult, Results};

use crate::figures::chart::Chart;
use crate::figures::confusion::Confusion;
use crate::figures::errors::{self, Error};
use crate::figures::importance::{importance_bars, importance_chart};
use crate::figures::markup::escape;
use crate::figures::predictions::{self, Stretch, coverage_chart, scatter_chart};
use crate::figures::{convergence_chart, error_chart, kernel_chart, regret_chart};

/// How the growth of the regret is measured.
pub(super) const GROWTH: &str = "exponent of t fitted over the last two decades of rounds; a dash \
    where regret is not positive or was not measured";

/// One section of the report with a chart.
pub(super) struct ChartSection {
    id: &'static str,
    heading: String,
    /// What to know to read it.
    caption: String,
    switches: Vec<Switch>,
    /// Charts by what the switches say, with blanks between; the first is shown. None if the
    /// caption says why there is nothing to draw.
    views: Vec<(String, Chart)>,
}

/// A choice between views; the first option is on.
struct Switch {
    name: &'static str,
    legend: &'static str,
    /// Value and label of each.
    options: Vec<(String, String)>,
}

/// All charts that there is data for.
pub(super) fn charts(results: &Results) -> Vec<ChartSection> {
    [
        errors_over_time(results),
        results.subject().and_then(|subject| courses(results, subject)),
        results.subject().and_then(|subject| {
            Some(ChartSection::of("scatter", results, scatter_chart(results, subject)?))
        }),
        results.subject().and_then(|subject| {
            Some(ChartSection::of("coverage", results, coverage_chart(results, subject)?))
        }),
        kernel_chart(results).map(|chart| ChartSection::of("kernels", results, chart)),
        convergence_chart(results).map(|chart| ChartSection::of("convergence", results, chart)),
        regret_chart(results).map(|chart| {
            let mut section = ChartSection::of("regret", results, chart);
            section.caption += &format!(" Growth: {GROWTH}.");
            section
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl ChartSection {
    /// A chart without switches; its title and note become heading and caption. The page's own
    /// title names the data.
    fn of(id: &'static str, results: &Results, chart: Chart) -> Self {
        let title = &chart.words.title;
        let heading = title.strip_suffix(&format!(" on {}", results.data_name()));
        Self {
            id,
            heading: heading.unwrap_or(title).to_owned(),
            caption: chart.note.replace('\n', " "),
            switches: Vec::new(),
            views: vec![(String::new(), chart)],
        }
    }

    /// Its part of the page.
    pub(super) fn markup(&self) -> String {
        let (id, heading, caption) = (self.id, escape(&self.heading), escape(&self.caption));
        let switches: String = self.switches.iter().map(|switch| switch.markup(id)).collect();
        let controls = match self.switches.is_empty() {
            true => String::new(),
            false => format!("<div class=\"controls\">{switches}</div>\n"),
        };
        let view = |(place, (name, chart)): (usize, &(String, Chart))| {
            let hidden = if place == 0 { "" } else { " hidden" };
            let chart = chart.in_page();
            format!("<div class=\"view\" data-view=\"{name}\"{hidden}>\n{chart}</div>\n")
        };
        let views: String = self.views.iter().enumerate().map(view).collect();
        let chart = match self.views.is_empty() {
            true => String::new(),
            false => format!("<div class=\"chart\" id=\"{id}\">\n{views}</div>\n"),
        };
        format!(
            "<section aria-labelledby=\"{id}-heading\">\n<h2 id=\"{id}-heading\">{heading}</h2>\n\
             {controls}{chart}<p class=\"caption\">{caption}</p>\n</section>\n"
        )
    }
}

impl Switch {
    /// A group of radio buttons.
    fn markup(&self, chart: &str) -> String {
        let option = |(i, (value, label)): (usize, &(String, String))| {
            let (name, checked) = (self.name, if i == 0 { " checked" } else { "" });
            let label = escape(label);
            format!(
                "<label><input type=\"radio\" name=\"{chart}-{name}\" value=\"{value}\" \
                 data-chart=\"{chart}\"{checked}> {label}</label>\n"
            )
        };
        let options: String = self.options.iter().enumerate().map(option).collect();
        format!("<fieldset><legend>{}</legend>\n{options}</fieldset>\n", self.legend)
    }
}

/// How often each class was taken for which; empty for numbers.
pub(super) fn confusion(results: &Results, subject: &MethodResult) -> String {
    let Some(confusion) = Confusion::of(results, subject) else { return String::new() };
    format!(
        "<section aria-labelledby=\"confusion-heading\">\n\
         <h2 id=\"confusion-heading\">Confusion of classes by {}</h2>\n{}\
         <p class=\"caption\">{}</p>\n</section>\n",
        escape(&subject.label()),
        confusion.in_page(),
        escape(&confusion.note)
    )
}

/// The importance of columns, as bars and over time; empty if it was not measured.
pub(super) fn importance(results: &Results, subject: &MethodResult) -> String {
    let Some(bars) = importance_bars(results, subject) else { return String::new() };
    let chart = importance_chart(results, subject);
    let chart = chart.map(|chart| ChartSection::of("importance-over-time", results, chart));
    format!(
        "<section aria-labelledby=\"importance-heading\">\n\
         <h2 id=\"importance-heading\">Importance of columns</h2>\n{}\
         <p class=\"caption\">{}</p>\n</section>\n{}",
        bars.in_page(),
        escape(&bars.note),
        chart.map_or(String::new(), |chart| chart.markup())
    )
}

/// The errors on a logarithmic and on a linear axis, over all rounds and over a window.
fn errors_over_time(results: &Results) -> Option<ChartSection> {
    let running = errors::errors(results, Error::Running)?;
    let measure = Measure::of(results);
    let heading = match measure {
        Measure::Mse => "Error over time".to_owned(),
        Measure::ErrorRate | Measure::Loss => format!("{} over time", measure.title(results)),
    };
    let mut section = ChartSection {
        id: "mse",
        heading,
        caption: errors::NOTHING_POSITIVE.to_owned(),
        switches: Vec::new(),
        views: Vec::new(),
    };
    if running.log_axis().is_none() {
        return Some(section);
    }
    let windowed = errors::errors(results, Error::Windowed);
    let axes = [("log", "logarithmic"), ("linear", "linear")];
    section.switches.push(Switch {
        name: "axis",
        legend: "Vertical axis",
        options: axes.map(|(value, label)| (value.to_owned(), label.to_owned())).to_vec(),
    });
    if windowed.is_some() {
        let of_window = format!("last {} rounds", results.window);
        section.switches.push(Switch {
            name: "error",
            legend: "Error over",
            options: vec![
                ("running".into(), "all rounds so far".into()),
                ("windowed".into(), of_window),
            ],
        });
    }
    let has_window = windowed.is_some();
    let all = [(Error::Running, Some(running)), (Error::Windowed, windowed)];
    for (axis, _) in axes {
        for (error, found) in &all {
            let Some(found) = found else { continue };
            let linear = Some(found.linear_axis());
            let y = if axis == "log" { found.log_axis().or(linear) } else { linear };
            let Some(y) = y else { continue };
            let name = match error {
                Error::Running => "running",
                Error::Windowed => "windowed",
            };
            let view = if has_window { format!("{axis} {name}") } else { axis.to_owned() };
            section.views.push((view, error_chart(results, found, *error, y)));
        }
    }
    let note = section.views.first().map_or("", |(_, chart)| chart.note.trim_end());
    section.caption = format!("{note} Solid: federated methods; dashed or dotted: for comparison.");
    Some(section)
}

/// Predictions and labels over time, at the device and over the stretch that the reader chooses.
fn courses(results: &Results, subject: &MethodResult) -> Option<ChartSection> {
    let devices = &subject.sampled.as_ref()?.devices;
    let count = devices.len();
    // The typical device comes first.
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by_key(|place| predictions::rank(*place, count) != "typical");
    let stretches =
        [("recent", Stretch::Recent, "latest predictions"), ("whole", Stretch::Whole, "whole run")];
    let is_long = devices.iter().any(|course| course.whole.len() > course.recent.len());
    let stretches = &stretches[..if is_long { 2 } else { 1 }];
    let mut switches = Vec::new();
    if count > 1 {
        let option = |place: &usize| {
            let name = predictions::device_name(results, devices[*place].node as usize);
            let label = match predictions::rank(*place, count) {
                "" => name,
                rank => format!("{name} ({rank})"),
            };
            (place.to_string(), label)
        };
        let options = places.iter().map(option).collect();
        switches.push(Switch { name: "device", legend: "Device", options });
    }
    if is_long {
        let option =
            |(value, _, label): &(&str, Stretch, &str)| ((*value).to_owned(), (*label).to_owned());
        let options = stretches.iter().map(option).collect();
        switches.push(Switch { name: "stretch", legend: "Show", options });
    }
    let mut views = Vec::new();
    for place in &places {
        for (value, stretch, _) in stretches {
            let place_name = if count > 1 { place.to_string() } else { String::new() };
            let name = format!("{place_name} {}", if is_long { value } else { "" });
            let chart = predictions::course_chart(results, subject, *place, *stretch)?;
            views.push((name.trim().to_owned(), chart));
        }
    }
    let note = views.first().map_or("", |(_, chart)| chart.note.as_str());
    let which = match count {
        1 => String::new(),
        _ => format!(
            " Devices from the largest error to the least, {count} of {}; the first trial.",
            results.nodes
        ),
    };
    Some(ChartSection {
        id: "predictions",
        heading: "Predictions and truth over time".to_owned(),
        caption: format!("{note}{which}"),
        switches,
        views,
    })
}

#[cfg(test)]
mod tests {
    use hedgerow_lab::testing::results;

    use super::*;
    use crate::figures::{REGRET_MEANING, palette};

    fn views(section: &ChartSection) -> Vec<&str> {
        section.views.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn section(results: &Results, id: &str) -> ChartSection {
        charts(results).into_iter().find(|section| section.id == id).unwrap()
    }

    #[test]
    fn both_errors_can_be_shown_if_both_are_there() {
        let mut results = results(3, 20, 2);
        let all = ["log running", "log windowed", "linear running", "linear windowed"];
        let found = section(&results, "mse");
        assert_eq!(views(&found), all);
        let markup = found.markup();
        assert!(markup.contains("value=\"windowed\"") && markup.contains("value=\"linear\""));
        assert_eq!(markup.matches(" hidden>").count(), 3);
        results.methods.iter_mut().for_each(|method| method.curve.mse_window.clear());
        let found = section(&results, "mse");
        assert_eq!(views(&found), ["log", "linear"]);
        assert!(!found.markup().contains("windowed"));
    }

    #[test]
    fn the_reader_chooses_a_device_and_a_stretch() {
        let mut results = results(3, 20, 2);
        hedgerow_lab::testing::add_predictions(&mut results, 5, 40);
        results.node_names = (0..5).map(|node| format!("meter <{node}>")).collect();
        let found = section(&results, "predictions");
        assert_eq!(views(&found)[..3], ["2 recent", "2 whole", "0 recent"]);
        assert_eq!(found.views.len(), 10);
        let markup = found.markup();
        for part in ["meter &lt;2&gt; (typical)", "meter &lt;4&gt; (worst)", "value=\"whole\""] {
            assert!(markup.contains(part), "{part}: {markup}");
        }
        hedgerow_lab::testing::add_predictions(&mut results, 1, 1);
        let found = section(&results, "predictions");
        assert_eq!(views(&found), [""]);
        assert!(found.switches.is_empty() && !found.markup().contains("NaN"));
    }

    #[test]
    fn a_method_has_the_colour_of_the_figures() {
        let results = results(3, 20, 2);
        let color = palette::method(&results, "naive").color.hex();
        let has_naive = |section: &&ChartSection| !["kernels", "coverage"].contains(&section.id);
        for section in charts(&results).iter().filter(has_naive) {
            let markup = section.markup();
            let (_, line) = markup.split_once("data-label=\"naive\"").unwrap();
            let (line, _) = line.split_once("</g>").unwrap();
            assert!(line.contains(&color), "{}: {line}", section.id);
        }
    }

    #[test]
    fn other_single_kernels_share_one_entry_of_the_legend() {
        let section = section(&results(11, 20, 2), "mse");
        let markup = section.views[0].1.in_page();
        assert_eq!(markup.matches("data-readout=\"nearest\"").count(), 10);
        assert_eq!(markup.matches("<span>sk, other kernels</span>").count(), 1);
    }

    #[test]
    fn negative_regret_is_spaced_by_square_root() {
        let mut results = results(3, 100, 2);
        results.methods[0].curve.regret.iter_mut().for_each(|regret| regret.mean -= 100.0);
        let markup = section(&results, "regret").markup();
        assert!(markup.contains("data-x=\"root 0 ") && markup.contains("√ scale"), "{markup}");
    }

    #[test]
    fn the_axis_goes_as_far_as_the_means() {
        let mut results = results(3, 100, 2);
        results.methods[0].curve.mse[0].sd = 1e9;
        results.methods[0].curve.regret[0].sd = 1e9;
        for (id, most) in [("mse", 2.0), ("regret", 1000.0)] {
            for (view, chart) in section(&results, id).views {
                assert!(chart.y.high() < most, "{id} {view}: {}", chart.y.high());
            }
        }
    }

    #[test]
    fn another_loss_has_its_own_words_and_no_window() {
        let mut results = results(3, 20, 2);
        results.loss = "logistic".into();
        let section = section(&results, "mse");
        assert_eq!(section.heading, "Mean logistic loss over time");
        assert_eq!(section.views[0].1.words.y, "mean logistic loss up to t");
        let markup = section.markup();
        assert!(!markup.contains("windowed") && !markup.contains("MSE"), "{markup}");
    }

    #[test]
    fn zero_errors_are_said_and_not_drawn() {
        let mut results = results(2, 5, 2);
        for method in &mut results.methods {
            method.mse.mean = 0.0;
            method.curve.mse.iter_mut().for_each(|mse| mse.mean = 0.0);
        }
        let markup = section(&results, "mse").markup();
        assert!(markup.contains("Every error is zero") && !markup.contains("<svg"), "{markup}");
    }

    #[test]
    fn the_regret_is_defined_below_its_chart() {
        let caption = section(&results(3, 20, 2), "regret").caption;
        assert!(caption.contains(REGRET_MEANING) && caption.contains(GROWTH), "{caption}");
    }
}
