//! Charts for the script: traces and layouts as Plotly reads them, and the markup around them.

use serde_json::{Value, json};

use crate::figures::markup::escape;
use crate::figures::number::percent;
use crate::figures::palette::{self, LineStyle};
use crate::figures::scale::{Axis, Spacing};
use crate::figures::series::{self, Line, Point};
use crate::figures::{last_round, spread_note};
use crate::results::Results;

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
    /// `views` (traces by name), `layout`, and `titles` of the vertical axis where they differ between views.
    pub(super) figure: Value,
}

/// All charts that there is data for.
pub(super) fn charts(results: &Results) -> Vec<Chart> {
    [mse(results), kernels(results), convergence(results), regret(results)].into_iter().flatten().collect()
}

impl Chart {
    /// Its part of the page.
    pub(super) fn section(&self) -> String {
        let Self { id, heading, alternative, caption, controls, .. } = self;
        let (heading, alternative, caption) = (escape(heading), escape(alternative), escape(caption));
        format!(
            "<section aria-labelledby=\"{id}-heading\">\n<h2 id=\"{id}-heading\">{heading}</h2>\n{controls}\
             <div class=\"plot\" id=\"{id}\" role=\"img\" aria-label=\"{alternative}\"></div>\n\
             <p class=\"caption\">{caption}</p>\n</section>\n"
        )
    }
}

fn mse(results: &Results) -> Option<Chart> {
    let running = series::errors(results, series::Error::Running)?;
    let of_window = format!("last {} rounds", results.window);
    let mut views = serde_json::Map::new();
    let alternative = series::describe(&running.lines, "Running MSE");
    let mut caption = spread_note(results);
    if running.others.len() < running.others_in_all {
        caption += &format!(
            "{} of {} other single kernels are drawn. ",
            running.others.len(),
            running.others_in_all
        );
    }
    caption += "Solid: federated methods; dashed: for comparison.";
    views.insert("running".into(), error_traces(&running));
    let mut controls =
        switch("mse", "axis", "Vertical axis", &[("log", "logarithmic"), ("linear", "linear")]);
    if let Some(windowed) = series::errors(results, series::Error::Windowed) {
        views.insert("windowed".into(), error_traces(&windowed));
        controls += &switch(
            "mse",
            "view",
            "Error over",
            &[("running", "all rounds so far"), ("windowed", &of_window)],
        );
    }
    Some(Chart {
        id: "mse",
        heading: "Error over time".into(),
        alternative,
        caption,
        controls: format!("<div class=\"controls\">{controls}</div>\n"),
        figure: json!({
            "views": views,
            "layout": layout(rounds_axis(), log_axis("MSE(t)")),
            "titles": { "windowed": format!("MSE of the {of_window}") },
        }),
    })
}

fn error_traces(errors: &series::Errors) -> Value {
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
        figure: json!({ "views": { "shares": traces }, "layout": layout }),
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
        caption += &format!(" Strong lines: averages of {} neighbouring points.", convergence.averaged);
    }
    Some(Chart {
        id: "convergence",
        heading: "Convergence to the best kernel".into(),
        alternative: series::describe(&convergence.lines, "Share of the best kernel"),
        caption,
        controls: String::new(),
        figure: json!({
            "views": { "shares": raw.chain(traces(&convergence.lines)).collect::<Vec<_>>() },
            "layout": layout(rounds_axis(), share_axis("share of the best kernel")),
        }),
    })
}

fn regret(results: &Results) -> Option<Chart> {
    let lines = series::regrets(results);
    if lines.is_empty() {
        return None;
    }
    let logarithmic = series::mostly_positive(&lines);
    let mut traces: Vec<Value> = traces(&lines).collect();
    let (mut x, mut y) = (rounds_axis(), axis("regret R(t)"));
    let mut caption = spread_note(results);
    if logarithmic {
        (x, y) = (log_axis("round t"), log_axis("regret R(t)"));
        caption += "On these axes powers of t are straight, t^a with slope a; the guide grows as √t.";
        traces.extend(series::root_guide(&lines).map(|ends| {
            let points = ends.map(|(round, mean)| Point { round, mean, sd: 0.0 }).to_vec();
            let mut trace =
                line_trace(&Line { label: "slope of √t".into(), style: palette::GUIDE, points });
            trace["hoverinfo"] = json!("skip");
            trace["hovertemplate"] = json!("");
            trace
        }));
    } else {
        root_axis(&mut x, &mut traces, last_round(lines.iter()));
        caption += "The horizontal axis is spaced by √t: growth as √t is a straight line.";
    }
    Some(Chart {
        id: "regret",
        heading: "Regret against the best fixed function".into(),
        alternative: series::describe(&lines, "Regret"),
        caption,
        controls: String::new(),
        figure: json!({ "views": { "regret": traces }, "layout": layout(x, y) }),
    })
}

/// Plotly has no such axis: the values are moved, and the ticks say what they were.
fn root_axis(axis: &mut Value, traces: &mut [Value], last: f64) {
    let ticks = Axis::rounds(Spacing::Root, last).ticks(7);
    axis["tickvals"] = rounded(ticks.iter().map(|tick| tick.value.sqrt()));
    axis["ticktext"] = ticks.iter().map(|tick| tick.label.as_str()).collect();
    for trace in traces {
        trace["customdata"] = trace["x"].take();
        let rounds = trace["customdata"].as_array().into_iter().flatten().filter_map(Value::as_f64);
        trace["x"] = rounded(rounds.map(f64::sqrt));
        if trace["hoverinfo"] != "skip" {
            trace["hovertemplate"] = json!("round %{customdata}: %{y:.4g}");
        }
    }
}

/// Bands first, so that they lie below every line; in the legend the highest end first, as in the picture.
fn traces(lines: &[Line]) -> impl Iterator<Item = Value> {
    let rank = |line: &Line| 1 + lines.iter().filter(|other| other.last() > line.last()).count();
    let ranked = move |line: &Line| {
        let mut trace = line_trace(line);
        trace["legendrank"] = json!(rank(line));
        trace
    };
    lines.iter().rev().filter_map(band_trace).chain(lines.iter().rev().map(ranked))
}

fn line_trace(line: &Line) -> Value {
    let lone = line.points.len() == 1;
    json!({
        "name": escape(&line.label),
        "legendgroup": escape(&line.label),
        "x": rounded(line.points.iter().map(|point| point.round)),
        "y": rounded(line.points.iter().map(|point| point.mean)),
        "mode": if lone { "markers" } else { "lines" },
        "opacity": line.style.opacity,
        "line": { "color": color(line.style), "width": line.style.width, "dash": if line.style.dashed { "dash" } else { "solid" } },
        "marker": { "color": color(line.style), "size": 9 },
        "hovertemplate": "round %{x}: %{y:.4g}",
    })
}

/// Mean ± standard deviation as one outline, there and back.
fn band_trace(line: &Line) -> Option<Value> {
    if line.points.len() < 2 || line.points.iter().all(|point| point.sd <= 0.0) {
        return None;
    }
    // A logarithmic axis has no place for zero: the band goes far down instead.
    let lower = |point: &Point| {
        let edge = point.mean - point.sd;
        if point.mean > 0.0 { edge.max(point.mean * 1e-2) } else { edge }
    };
    let there = line.points.iter().map(|point| (point.round, point.mean + point.sd));
    let back = line.points.iter().rev().map(|point| (point.round, lower(point)));
    let outline: Vec<(f64, f64)> = there.chain(back).collect();
    Some(json!({
        "name": escape(&line.label),
        "legendgroup": escape(&line.label),
        "showlegend": false,
        "x": rounded(outline.iter().map(|spot| spot.0)),
        "y": rounded(outline.iter().map(|spot| spot.1)),
        "mode": "lines", "fill": "toself", "opacity": 0.16,
        "fillcolor": color(line.style),
        "line": { "width": 0 },
        "hoverinfo": "skip",
    }))
}

fn layout(x: Value, y: Value) -> Value {
    json!({ "xaxis": x, "yaxis": y, "hovermode": "closest" })
}

fn axis(title: &str) -> Value {
    json!({ "title": { "text": title } })
}

fn rounds_axis() -> Value {
    json!({ "title": { "text": "round t" }, "rangemode": "tozero" })
}

/// Few ticks, each with its whole value: by itself Plotly writes every digit between the powers of ten.
fn log_axis(title: &str) -> Value {
    json!({ "title": { "text": title }, "type": "log", "nticks": 4, "tickformat": "~g" })
}

fn share_axis(title: &str) -> Value {
    json!({ "title": { "text": title }, "range": [0, 1], "tickformat": ".0%" })
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

/// The script fills in the colours that differ between light and dark.
fn color(style: LineStyle) -> String {
    match style.color {
        palette::INK => "ink".into(),
        palette::FAINT => "faint".into(),
        other => palette::hex(other),
    }
}

/// Escaped for a template of Plotly, where `%{` would mean something.
fn plain(text: &str) -> String {
    escape(text).replace("%{", "% {")
}

/// Six digits are more than a screen shows, and half the size.
fn rounded(values: impl Iterator<Item = f64>) -> Value {
    values
        .map(|value| {
            let short: f64 = format!("{value:.5e}").parse().unwrap_or(value);
            if short.fract() == 0.0 && short.abs() < 1e9 { json!(short as i64) } else { json!(short) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::sample::results;

    #[test]
    fn both_errors_can_be_shown_if_both_are_there() {
        let mut results = results(3, 20, 2);
        let chart = mse(&results).unwrap();
        assert_eq!(chart.figure["views"].as_object().unwrap().len(), 2);
        assert!(chart.controls.contains("value=\"windowed\"") && chart.controls.contains("value=\"linear\""));
        results.methods.iter_mut().for_each(|method| method.curve.mse_window.clear());
        assert!(!mse(&results).unwrap().controls.contains("windowed"));
    }

    #[test]
    fn a_method_has_the_colour_of_the_figures() {
        let results = results(3, 20, 2);
        let expected = palette::hex(palette::method(&results, "naive").color);
        for chart in charts(&results).iter().filter(|chart| chart.id != "kernels") {
            let views = chart.figure["views"].as_object().unwrap();
            let traces = views.values().flat_map(|view| view.as_array().unwrap());
            let lines: Vec<_> =
                traces.filter(|trace| trace["name"] == "naive" && trace["fill"].is_null()).collect();
            assert!(!lines.is_empty() && lines.iter().all(|line| line["line"]["color"] == expected.as_str()));
        }
    }

    #[test]
    fn other_single_kernels_share_one_entry_of_the_legend() {
        let chart = mse(&results(11, 20, 2)).unwrap();
        let traces = chart.figure["views"]["running"].as_array().unwrap();
        let others: Vec<_> = traces.iter().filter(|trace| trace["legendgroup"] == "others").collect();
        assert_eq!(others.len(), 10);
        assert_eq!(others.iter().filter(|trace| trace["showlegend"] == true).count(), 1);
    }

    #[test]
    fn negative_regret_is_spaced_by_square_root() {
        let mut results = results(3, 100, 2);
        results.methods[0].curve.regret.iter_mut().for_each(|regret| regret.mean -= 100.0);
        let chart = regret(&results).unwrap();
        assert!(chart.figure["layout"]["xaxis"]["tickvals"].is_array());
        let trace = &chart.figure["views"]["regret"][0];
        assert_eq!(trace["x"].as_array().unwrap().len(), trace["customdata"].as_array().unwrap().len());
        assert!(chart.caption.contains("spaced by √t"));
    }

    #[test]
    fn bands_stay_positive_where_means_are() {
        let mut results = results(1, 20, 2);
        results.methods[0].curve.mse[3].sd = 1e9;
        let chart = mse(&results).unwrap();
        let traces = chart.figure["views"]["running"].as_array().unwrap();
        let values = traces.iter().flat_map(|trace| trace["y"].as_array().unwrap());
        assert!(values.into_iter().all(|value| value.as_f64().unwrap() > 0.0));
    }
}
