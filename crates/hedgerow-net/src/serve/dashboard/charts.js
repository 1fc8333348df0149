// The charts. Each is drawn anew from what is known, in the colours of the page, and holds still under a mouse that reads it.

import { bytes } from "./words.js";

// More kernels than this can't be told apart: the rest are drawn together.
const mostKernels = 12;
const columns = 48;
const held = new Set();

for (const plot of document.querySelectorAll(".plot")) {
  plot.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && held.add(plot.id));
  plot.addEventListener("pointerleave", () => held.delete(plot.id));
}

export function drawError(points, axis, view) {
  const x = points.map((point) => point.round);
  const when = points.map((point) => new Date(point.at_ms).toLocaleString("en-GB"));
  const line = (name, key, shown) => ({
    type: "scatter", mode: points.length < 2 ? "markers" : "lines", name, x, customdata: when,
    y: points.map((point) => point[key]), line: { color: color(shown), width: 2 },
    hovertemplate: "%{y:.4g}<extra>" + name + ", round %{x:,}, %{customdata}</extra>",
  });
  draw("error-chart", [line("lately", "window_mse", "windowed"), line("whole run", "mse", "running")], {
    xaxis: { title: { text: "round" }, tickformat: "~s", nticks: 6 },
    yaxis: { type: axis, title: { text: "mean squared error" }, ...(axis === "log" ? logTicks(points) : { rangemode: "tozero", nticks: 7 }) },
    showlegend: true,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    uirevision: axis + view,
  });
}

// One, two and five of each power of ten, as long as there is room for them.
function logTicks(points) {
  const errors = points.flatMap((point) => [point.mse, point.window_mse]).filter((error) => error > 0);
  const powers = errors.length === 0 ? 0 : Math.log10(Math.max(...errors) / Math.min(...errors));
  return { tickformat: "~g", dtick: powers < 2 ? "D2" : Math.max(1, Math.ceil(powers / 6)) };
}

// Shares of the rounds in each column, from the points that fall into it.
export function drawShares(points, kernels) {
  const known = points.filter((point) => Number.isInteger(point.selected) && point.selected < kernels.length);
  if (known.length === 0) return;
  const first = known[0].round;
  const width = Math.max(1, Math.ceil((known.at(-1).round - first + 1) / columns));
  const used = Array.from({ length: Math.ceil((known.at(-1).round - first + 1) / width) }, () => new Map());
  for (const { round, selected } of known) {
    const column = used[Math.floor((round - first) / width)];
    column.set(selected, (column.get(selected) ?? 0) + 1);
  }
  // Of a column that nothing was told of, what was known before still holds.
  for (let index = 1; index < used.length; index += 1) if (used[index].size === 0) used[index] = used[index - 1];
  const often = new Map();
  for (const { selected } of known) often.set(selected, (often.get(selected) ?? 0) + 1);
  const shown = new Set([...often.keys()].sort((a, b) => often.get(b) - often.get(a)).slice(0, mostKernels));
  const x = used.map((_, index) => first + (index + 0.5) * width);
  const trace = (name, fill, belongs) => ({
    type: "bar", name, x, width, marker: { color: fill, line: { width: 0 } },
    y: used.map((column) => {
      const [mine, all] = sums(column, belongs);
      return all === 0 ? null : mine / all;
    }),
    hovertemplate: "%{y:.0%}<extra>" + escaped(name) + "</extra>",
  });
  const traces = [...shown].sort((a, b) => a - b)
    .map((kernel) => trace(kernels[kernel].name, shade(kernel, kernels.length), (other) => other === kernel));
  if (shown.size < often.size) traces.push(trace("all others", color("faint"), (other) => !shown.has(other)));
  draw("shares-chart", traces, {
    barmode: "stack", bargap: 0,
    xaxis: { title: { text: "round" }, tickformat: "~s", nticks: 6 },
    yaxis: { tickformat: ".0%", range: [0, 1], fixedrange: true },
    uirevision: "shares",
  });
}

function sums(column, belongs) {
  let [mine, all] = [0, 0];
  for (const [kernel, times] of column) {
    all += times;
    if (belongs(kernel)) mine += times;
  }
  return [mine, all];
}

export function drawKernels(kernels, selected) {
  const order = kernels.map((kernel, index) => ({ ...kernel, index }));
  const weight = ({ index, selected_share, vote_share }) => (index === selected ? 2 : 0) + selected_share + vote_share;
  const shown = order.sort((a, b) => weight(b) - weight(a)).slice(0, mostKernels).sort((a, b) => b.index - a.index);
  const names = shown.map(({ name, index }) => (index === selected ? `<b>${escaped(name)}</b>` : escaped(name)));
  const trace = (name, key, marker) => ({
    type: "bar", orientation: "h", name, x: shown.map((kernel) => kernel[key]), y: shown.map((kernel) => kernel.index),
    marker, hovertemplate: "%{x:.1%}<extra>" + name + "</extra>",
  });
  // Kernels stand by their place in the list: two may have the same name.
  const place = new Map(shown.map(({ index }, row) => [index, row]));
  const traces = [
    trace("votes", "vote_share", { color: color("faint") }),
    trace("selected", "selected_share", { color: shown.map(({ index }) => shade(index, kernels.length)) }),
  ].map((bars) => ({ ...bars, y: bars.y.map((index) => place.get(index)) }));
  draw("kernels-chart", traces, {
    barmode: "group", bargap: 0.25, bargroupgap: 0,
    xaxis: { tickformat: ".0%", rangemode: "tozero", nticks: 5, fixedrange: true },
    yaxis: { tickvals: names.map((_, row) => row), ticktext: names, ticks: "", fixedrange: true },
    uirevision: "kernels",
  });
}

export function drawBytes(status) {
  const rows = [
    ["on the wire", status.wire_up, status.wire_down],
    ["messages", status.messages_up, status.messages_down],
    ["naive extension", status.naive_up, status.naive_down],
  ];
  const trace = (name, column, shown) => ({
    type: "bar", orientation: "h", name, y: rows.map(([row]) => row), x: rows.map((row) => row[column]),
    marker: { color: color(shown) }, customdata: rows.map((row) => bytes(row[column])),
    hovertemplate: "%{customdata}<extra>" + name + "</extra>",
  });
  draw("bytes-chart", [trace("up, from nodes", 1, "up"), trace("down, to nodes", 2, "down")], {
    barmode: "stack", bargap: 0.35,
    xaxis: { tickformat: "~s", ticksuffix: "B", rangemode: "tozero", nticks: 4, fixedrange: true },
    yaxis: { ticks: "", fixedrange: true },
    showlegend: true,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" },
    uirevision: "bytes",
  });
}

function draw(id, traces, layout) {
  const plot = document.getElementById(id);
  if (!window.Plotly || held.has(id) || plot.clientWidth === 0) return;
  const narrow = plot.clientWidth < 560;
  const axis = {
    gridcolor: color("rule"), linecolor: color("soft"), tickcolor: color("rule"), zeroline: false,
    showline: true, ticks: "outside", automargin: true,
  };
  const clear = "rgba(0,0,0,0)";
  const font = { family: getComputedStyle(document.body).fontFamily, size: narrow ? 12 : 13, color: color("ink") };
  window.Plotly.react(plot, traces, {
    showlegend: false,
    margin: { l: 40, r: 10, t: 24, b: 40 },
    paper_bgcolor: clear,
    plot_bgcolor: clear,
    font,
    hovermode: "closest",
    hoverlabel: { bgcolor: color("paper"), bordercolor: color("rule"), font: { color: color("ink") }, namelength: -1 },
    modebar: { bgcolor: clear, color: color("faint"), activecolor: color("accent") },
    ...layout,
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  }, {
    responsive: true,
    displaylogo: false,
    displayModeBar: narrow ? false : "hover",
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
    toImageButtonOptions: { format: "svg", filename: "hedgerow-" + id },
  });
  // The chart has a name of its own; its parts, and where the library measures text, have nothing to add to it.
  for (const part of [plot.firstElementChild, document.getElementById("js-plotly-tester")]) {
    if (part) part.ariaHidden = "true";
  }
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

// Charts read a little markup in names; theirs is to be read as it stands.
function escaped(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "% {");
}

// From violet to yellow in the order of the dictionary; the darkest would drown in a dark page.
const stops = [[72, 30, 112], [62, 74, 137], [38, 130, 142], [53, 183, 121], [181, 222, 43], [253, 231, 37]];
const night = matchMedia("(prefers-color-scheme: dark)");

function shade(index, many) {
  const from = night.matches ? 0.18 : 0;
  const place = (many > 1 ? from + (1 - from) * (index / (many - 1)) : 0.5) * (stops.length - 1);
  const below = Math.min(Math.floor(place), stops.length - 2);
  const mix = stops[below].map((part, i) => Math.round(part + (stops[below + 1][i] - part) * (place - below)));
  return `rgb(${mix.join(",")})`;
}
