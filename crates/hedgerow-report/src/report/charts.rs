//! Charts for the script, and the markup around them.

use serde_json::{Value, json};

use super::traces::{
    axis, layout, line_trace, log_axis, plain, range, root_axis, rounded, rounds_axis, share_axis,
    traces,
};
use crate::figures::markup::escape;
use crate::figures::number::percent;
use crate::figures::palette;
use crate::figures::scale::Axis;
use crate::figures::series::{self, Line, Point};
use crate::figures::{errors, last_round, spread_note};
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::Results;

/// What the regret is.
pub(super) const REGRET: &str = "sum of losses, ridge term included, minus that of the best fixed function known afterwards: of \
                                 its own kernel for sk, of the best kernel for the others";
/// How its growth is measured.
pub(super) const GROWTH: &str = "exponent of t fitted over the last two decades of rounds; a dash where regret is not positive or was \
                                 not measured";

/// One chart of the report.
pub(super) struct Chart {
    pub(super) id: &'static str,
    heading: String,
    /// The chart in words.
    alternative: String,
    /// What to know to read it.
    caption: String,
    /// Ready markup of its switches.
    controls: String,
    /// `views` (traces by name), `layout`, and of the vertical axis `ranges` by view and kind, and
    /// `titles` where they differ between views. None if the caption says why there is nothing to
    /// draw.
    pub(super) figure: Option<Value>,
}

/// All charts that there is data for.
pub(super) fn charts(results: &Results) -> Vec<Chart> {
    [mse(results), kernels(results), convergence(results), regret(results)]
        .into_iter()
        .flatten()
        .collect()
}

impl Chart {
    /// Its part of the page.
    pub(super) fn section(&self) -> String {
        let Self { id, heading, alternative, caption, controls, .. } = self;
        let (heading, alternative, caption) =
            (escape(heading), escape(alternative), escape(caption));
        let plot = match self.figure {
            Some(_) => {
                format!(
                    "<div class=\"plot\" id=\"{id}\" role=\"img\" aria-label=\"{alternative}\"></div>\n"
                )
            }
            None => String::new(),
        };
        format!(
            "<section aria-labelledby=\"{id}-heading\">\n<h2 id=\"{id}-heading\">{heading}</h2>\n{controls}{plot}\
             <p class=\"caption\">{caption}</p>\n</section>\n"
        )
    }
}

fn mse(results: &Results) -> Option<Chart> {
    let running = errors::errors(results, errors::Error::Running)?;
    let measure = Measure::of(results);
    let name = measure.name(results);
    let heading = match measure {
        Measure::Mse => "Error over time".to_owned(),
        Measure::Loss => format!("{} over time", measure.title(results)),
    };
    if running.log_axis().is_none() {
        let (alternative, caption) = (String::new(), errors::NOTHING_POSITIVE.into());
        return Some(Chart {
            id: "mse",
            heading,
            alternative,
            caption,
            controls: String::new(),
            figure: None,
        });
    }
    let mut caption = spread_note(results);
    if running.others.len() < running.others_in_all {
        caption += &format!(
            "{} of {} other single kernels are drawn. ",
            running.others.len(),
            running.others_in_all
        );
    }
    caption += "Solid: federated methods; dashed or dotted: for comparison.";
    let (mut views, mut ranges) = (serde_json::Map::new(), serde_json::Map::new());
    views.insert("running".into(), error_traces(&running));
    ranges.insert("running".into(), error_ranges(&running));
    let mut controls =
        switch("mse", "axis", "Vertical axis", &[("log", "logarithmic"), ("linear", "linear")]);
    let of_window = format!("last {} rounds", results.window);
    if let Some(windowed) = errors::errors(results, errors::Error::Windowed) {
        views.insert("windowed".into(), error_traces(&windowed));
        ranges.insert("windowed".into(), error_ranges(&windowed));
        controls += &switch(
            "mse",
            "view",
            "Error over",
            &[("running", "all rounds so far"), ("windowed", &of_window)],
        );
    }
    Some(Chart {
        id: "mse",
        heading,
        alternative: series::describe(&running.lines, &format!("Running {name}")),
        caption,
        controls: format!("<div class=\"controls\">{controls}</div>\n"),
        figure: Some(json!({
            "views": views,
            "ranges": ranges,
            "layout": layout(rounds_axis(), log_axis(&escape(&measure.axis(results)))),
            "titles": { "windowed": format!("{name} of the {of_window}") },
        })),
    })
}

/// How far the vertical axis goes, by its kind: by itself Plotly would make room for every spread.
fn error_ranges(errors: &errors::Errors) -> Value {
    let mut ranges = json!({ "linear": range(&errors.linear_axis()) });
    if let Some(axis) = errors.log_axis() {
        ranges["log"] = range(&axis);
    }
    ranges
}

fn error_traces(errors: &errors::Errors) -> Value {
    let others = errors.others.iter().enumerate().map(|(i, line)| {
        let mut trace = line_trace(line);
        trace["legendgroup"] = json!("others");
        trace["showlegend"] = json!(i == 0);
        // The legend names the group, the pointer each of them.
        trace["hovertemplate"] =
            json!(format!("{}<br>round %{{x}}: %{{y:.3g}}<extra></extra>", plain(&line.label)));
        trace["name"] = json!("sk, other kernels");
        trace["legendrank"] = json!(2000);
        trace
    });
    Value::Array(others.chain(traces(&errors.lines)).collect())
}

fn kernels(results: &Results) -> Option<Chart> {
    let shares = series::shares(results)?;
    let count = shares.groups.len();
    let traces: Vec<Value> = shares
        .groups
        .iter()
        .enumerate()
        .map(|(i, group)| {
            let name = escape(&group.label);
            json!({
                "name": if group.has_best { format!("<b>{name}</b>") } else { name },
                "x": rounded(shares.rounds.iter().copied()),
                "y": rounded(group.shares.iter().copied()),
                "mode": "lines", "stackgroup": "kernels",
                "line": { "width": 0.5, "color": "rgba(255,255,255,0.7)" },
                "fillcolor": palette::hex(palette::kernel(i, count)),
                "hovertemplate": "%{y:.0%}",
            })
        })
        .collect();
    let best = shares.groups.iter().find(|group| group.has_best);
    let mut caption = format!("Share of each kernel in the predictions of {}. ", shares.method);
    if let Some(best) = best {
        caption += &format!("Bold in the legend: the best in hindsight, {}. ", best.label);
    }
    if shares.averaged > 1 {
        caption += &format!("Averages of {} neighbouring points.", shares.averaged);
    }
    let at_end = |group: &&series::Group| group.shares.last().copied().unwrap_or(0.0);
    let leading = shares.groups.iter().max_by(|a, b| at_end(a).total_cmp(&at_end(b)))?;
    let share = percent(at_end(&leading));
    let mut layout = layout(rounds_axis(), share_axis("share of the predictions"));
    layout["hovermode"] = json!("x unified");
    layout["legend"] = json!({ "traceorder": "reversed" });
    Some(Chart {
        id: "kernels",
        heading: format!("Kernels used by {}", shares.method),
        alternative: format!("At the end, the largest share is {share}, of {}.", leading.label),
        caption,
        controls: String::new(),
        figure: Some(json!({ "views": { "shares": traces }, "layout": layout })),
    })
}

fn convergence(results: &Results) -> Option<Chart> {
    let convergence = series::convergence(results)?;
    let raw = convergence.raw.iter().map(|line| {
        let mut trace = line_trace(line);
        trace["showlegend"] = json!(false);
        trace["hoverinfo"] = json!("skip");
        trace["hovertemplate"] = json!("");
        trace
    });
    let mut caption = format!(
        "Best in hindsight: kernel {}. Where a method selects one kernel, its share is the fraction of trials that \
         selected it; where it mixes kernels, the mean weight.",
        series::kernel_label(results, convergence.kernel)
    );
    if !convergence.raw.is_empty() {
        caption +=
            &format!(" Strong lines: averages of {} neighbouring points.", convergence.averaged);
    }
    Some(Chart {
        id: "convergence",
        heading: "Convergence to the best kernel".into(),
        alternative: series::describe(&convergence.lines, "Share of the best kernel"),
        caption,
        controls: String::new(),
        figure: Some(json!({
            "views": { "shares": raw.chain(traces(&convergence.lines)).collect::<Vec<_>>() },
            "layout": layout(rounds_axis(), share_axis("share of the best kernel")),
        })),
    })
}

fn regret(results: &Results) -> Option<Chart> {
    let lines = series::regrets(results);
    if lines.is_empty() {
        return None;
    }
    let logarithmic = series::mostly_positive(&lines);
    let mut traces: Vec<Value> = traces(&lines).collect();
    let values = || lines.iter().flat_map(|line| &line.points).map(|point| point.mean);
    let (mut x, mut y) = (rounds_axis(), axis("regret R(t)"));
    let mut caption = spread_note(results);
    if logarithmic {
        (x, y) = (log_axis("round t"), log_axis("regret R(t)"));
        y["range"] = range(&Axis::log(values(), 0.04));
        caption +=
            "On these axes powers of t are straight, t^a with slope a; the guide grows as √t.";
        traces.extend(series::root_guide(&lines).map(|ends| {
            let points = ends.map(|(round, mean)| Point { round, mean, sd: 0.0 }).to_vec();
            let mut trace = line_trace(&Line {
                label: "slope of √t".into(),
                method: String::new(),
                style: palette::GUIDE,
                points,
                in_hindsight: false,
            });
            trace["hoverinfo"] = json!("skip");
            trace["hovertemplate"] = json!("");
            trace
        }));
    } else {
        root_axis(&mut x, &mut traces, last_round(lines.iter()));
        y["range"] = range(&Axis::around(values().chain([0.0])));
        caption += "The horizontal axis is spaced by √t: growth as √t is a straight line.";
    }
    caption += &format!(" Regret: {REGRET}; growth: {GROWTH}.");
    Some(Chart {
        id: "regret",
        heading: "Regret against the best fixed function".into(),
        alternative: series::describe(&lines, "Regret"),
        caption,
        controls: String::new(),
        figure: Some(json!({ "views": { "regret": traces }, "layout": layout(x, y) })),
    })
}

/// A group of radio buttons; the first option is on.
fn switch(chart: &str, purpose: &str, legend: &str, options: &[(&str, &str)]) -> String {
    let option = |(i, (value, label)): (usize, &(&str, &str))| {
        let checked = if i == 0 { " checked" } else { "" };
        format!(
            "<label><input type=\"radio\" name=\"{chart}-{purpose}\" value=\"{value}\" data-chart=\"{chart}\" \
             data-purpose=\"{purpose}\"{checked}> {label}</label>\n"
        )
    };
    let options: String = options.iter().enumerate().map(option).collect();
    format!("<fieldset><legend>{legend}</legend>\n{options}</fieldset>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::results;

    #[test]
    fn both_errors_can_be_shown_if_both_are_there() {
        let mut results = results(3, 20, 2);
        let chart = mse(&results).unwrap();
        assert_eq!(chart.figure.as_ref().unwrap()["views"].as_object().unwrap().len(), 2);
        assert!(
            chart.controls.contains("value=\"windowed\"")
                && chart.controls.contains("value=\"linear\"")
        );
        results.methods.iter_mut().for_each(|method| method.curve.mse_window.clear());
        assert!(!mse(&results).unwrap().controls.contains("windowed"));
    }

    #[test]
    fn a_method_has_the_colour_of_the_figures() {
        let results = results(3, 20, 2);
        let expected = palette::hex(palette::method(&results, "naive").color);
        for chart in charts(&results).iter().filter(|chart| chart.id != "kernels") {
            let views = chart.figure.as_ref().unwrap()["views"].as_object().unwrap();
            let traces = views.values().flat_map(|view| view.as_array().unwrap());
            let lines: Vec<_> = traces
                .filter(|trace| trace["name"] == "naive" && trace["fill"].is_null())
                .collect();
            assert!(
                !lines.is_empty()
                    && lines.iter().all(|line| line["line"]["color"] == expected.as_str())
            );
        }
    }

    #[test]
    fn other_single_kernels_share_one_entry_of_the_legend() {
        let chart = mse(&results(11, 20, 2)).unwrap();
        let traces = chart.figure.as_ref().unwrap()["views"]["running"].as_array().unwrap();
        let others: Vec<_> =
            traces.iter().filter(|trace| trace["legendgroup"] == "others").collect();
        assert_eq!(others.len(), 10);
        assert_eq!(others.iter().filter(|trace| trace["showlegend"] == true).count(), 1);
    }

    #[test]
    fn negative_regret_is_spaced_by_square_root() {
        let mut results = results(3, 100, 2);
        results.methods[0].curve.regret.iter_mut().for_each(|regret| regret.mean -= 100.0);
        let chart = regret(&results).unwrap();
        assert!(chart.figure.as_ref().unwrap()["layout"]["xaxis"]["tickvals"].is_array());
        let trace = &chart.figure.as_ref().unwrap()["views"]["regret"][0];
        assert_eq!(
            trace["x"].as_array().unwrap().len(),
            trace["customdata"].as_array().unwrap().len()
        );
        assert!(chart.caption.contains("spaced by √t"));
    }

    #[test]
    fn bands_stay_positive_where_means_are() {
        let mut results = results(1, 20, 2);
        results.methods[0].curve.mse[3].sd = 1e9;
        let chart = mse(&results).unwrap();
        let traces = chart.figure.as_ref().unwrap()["views"]["running"].as_array().unwrap();
        let values = traces.iter().flat_map(|trace| trace["y"].as_array().unwrap());
        assert!(values.into_iter().all(|value| value.as_f64().unwrap() > 0.0));
    }

    #[test]
    fn the_axis_goes_as_far_as_the_means() {
        let mut results = results(3, 100, 2);
        results.methods[0].curve.mse[0].sd = 1e9;
        results.methods[0].curve.regret[0].sd = 1e9;
        let [mse, regret] =
            [mse(&results), regret(&results)].map(|chart| chart.unwrap().figure.unwrap());
        let ranges = &mse["ranges"]["running"];
        let high = |range: &Value| range[1].as_f64().unwrap();
        assert!((-0.5..0.5).contains(&high(&ranges["log"])), "{ranges}");
        assert!((0.5..2.0).contains(&high(&ranges["linear"])), "{ranges}");
        assert!(high(&regret["layout"]["yaxis"]["range"]) < 3.0);
    }

    #[test]
    fn another_loss_has_its_own_words_and_no_window() {
        let mut results = results(3, 20, 2);
        results.loss = "logistic".into();
        let chart = mse(&results).unwrap();
        assert_eq!(chart.heading, "Mean logistic loss over time");
        assert_eq!(
            chart.figure.unwrap()["layout"]["yaxis"]["title"]["text"],
            "mean logistic loss up to t"
        );
        assert!(!chart.controls.contains("windowed") && !chart.alternative.contains("MSE"));
    }

    #[test]
    fn zero_errors_are_said_and_not_drawn() {
        let mut results = results(2, 5, 2);
        for method in &mut results.methods {
            method.mse.mean = 0.0;
            method.curve.mse.iter_mut().for_each(|mse| mse.mean = 0.0);
        }
        let section = mse(&results).unwrap().section();
        assert!(
            section.contains("Every error is zero") && !section.contains("class=\"plot\""),
            "{section}"
        );
    }

    #[test]
    fn the_regret_is_defined_below_its_chart() {
        let caption = regret(&results(3, 20, 2)).unwrap().caption;
        assert!(caption.contains(REGRET) && caption.contains(GROWTH), "{caption}");
    }
}
