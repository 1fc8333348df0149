//! Traces and axes as Plotly reads them.

use serde_json::{Value, json};

use crate::figures::markup::escape;
use crate::figures::palette::{self, Dash, LineStyle};
use crate::figures::scale::{Axis, Spacing};
use crate::figures::series::{Line, Point};

/// As Plotly wants it: exponents on a logarithmic axis.
pub(super) fn range(axis: &Axis) -> Value {
    let ends = [axis.low(), axis.high()];
    let spaced = ends.map(|end| if axis.spacing() == Spacing::Log { end.log10() } else { end });
    rounded(spaced.into_iter())
}

/// Plotly has no such axis: the values are moved, and the ticks say what they were.
pub(super) fn root_axis(axis: &mut Value, traces: &mut [Value], last: f64) {
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

/// Bands first, so that they lie below every line; in the legend the highest end first, as in the
/// picture.
pub(super) fn traces(lines: &[Line]) -> impl Iterator<Item = Value> {
    let rank = |line: &Line| 1 + lines.iter().filter(|other| other.last() > line.last()).count();
    let ranked = move |line: &Line| {
        let mut trace = line_trace(line);
        trace["legendrank"] = json!(rank(line));
        trace
    };
    lines.iter().rev().filter_map(band_trace).chain(lines.iter().rev().map(ranked))
}

pub(super) fn line_trace(line: &Line) -> Value {
    let lone = line.points.len() == 1;
    json!({
        "name": escape(&line.label),
        "legendgroup": escape(&line.label),
        "x": rounded(line.points.iter().map(|point| point.round)),
        "y": rounded(line.points.iter().map(|point| point.mean)),
        "mode": if lone { "markers" } else { "lines" },
        "opacity": line.style.opacity,
        "line": { "color": color(line.style), "width": line.style.width, "dash": dash(line.style.dash) },
        "marker": { "color": color(line.style), "size": 9 },
        "hovertemplate": "round %{x}: %{y:.4g}",
    })
}

fn dash(dash: Dash) -> &'static str {
    match dash {
        Dash::Solid => "solid",
        Dash::Dashes => "dash",
        Dash::Dots => "dot",
    }
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

pub(super) fn layout(x: Value, y: Value) -> Value {
    json!({ "xaxis": x, "yaxis": y, "hovermode": "closest" })
}

pub(super) fn axis(title: &str) -> Value {
    json!({ "title": { "text": title } })
}

pub(super) fn rounds_axis() -> Value {
    json!({ "title": { "text": "round t" }, "rangemode": "tozero" })
}

/// Few ticks, each with its whole value: by itself Plotly writes every digit between the powers of
/// ten.
pub(super) fn log_axis(title: &str) -> Value {
    json!({ "title": { "text": title }, "type": "log", "nticks": 4, "tickformat": "~g" })
}

pub(super) fn share_axis(title: &str) -> Value {
    json!({ "title": { "text": title }, "range": [0, 1], "tickformat": ".0%" })
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
pub(super) fn plain(text: &str) -> String {
    escape(text).replace("%{", "% {")
}

/// Six digits are more than a screen shows, and half the size.
pub(super) fn rounded(values: impl Iterator<Item = f64>) -> Value {
    values
        .map(|value| {
            let short: f64 = format!("{value:.5e}").parse().unwrap_or(value);
            if short.fract() == 0.0 && short.abs() < 1e9 {
                json!(short as i64)
            } else {
                json!(short)
            }
        })
        .collect()
}
