"use strict";

const charts = JSON.parse(document.getElementById("chart-data").textContent);
const chosen = {};

// Colours that change with the page; everything else comes with the traces.
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function painted(trace) {
  const named = (value) => (["ink", "faint"].includes(value) ? color(value) : value);
  const copy = { ...trace, line: { ...trace.line, color: named(trace.line.color) } };
  if (trace.fillcolor) copy.fillcolor = named(trace.fillcolor);
  if (trace.marker) copy.marker = { ...trace.marker, color: named(trace.marker.color) };
  return copy;
}

function layoutOf(id, narrow) {
  const { xaxis, yaxis, legend, ...rest } = charts[id].layout;
  const axis = {
    gridcolor: color("rule"), zerolinecolor: color("rule"), linecolor: color("soft"),
    showline: true, ticks: "outside", tickcolor: color("rule"), automargin: true, zeroline: false,
  };
  const beside = { x: 1.02, y: 1, xanchor: "left", yanchor: "top" };
  const below = { orientation: "h", x: 0, xanchor: "left", y: 0, yref: "container", yanchor: "bottom", maxheight: 280 };
  const wanted = chosen[id]?.axis;
  const view = chosen[id]?.view ?? Object.keys(charts[id].views)[0];
  const title = charts[id].titles?.[view];
  const range = charts[id].ranges?.[view]?.[wanted ?? "log"];
  return {
    ...rest,
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis, ...(wanted === "linear" ? { type: "linear", nticks: 0 } : {}),
      ...(title ? { title: { text: title } } : {}), ...(range ? { range } : {}) },
    legend: { ...legend, ...(narrow ? below : beside), groupclick: "togglegroup", bgcolor: "rgba(0,0,0,0)" },
    showlegend: true,
    margin: { l: 56, r: 12, t: 28, b: 48 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: color("ink") },
    hoverlabel: { bgcolor: color("paper"), bordercolor: color("rule"), font: { color: color("ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("faint"), activecolor: color("accent") },
    // Keeps zoom and hidden lines when only colours or traces change.
    uirevision: id + (wanted ?? ""),
  };
}

function draw(id) {
  const plot = document.getElementById(id);
  const { views } = charts[id];
  const traces = views[chosen[id]?.view] ?? Object.values(views)[0];
  const narrow = plot.clientWidth < 560;
  Plotly.react(plot, traces.map(painted), layoutOf(id, narrow), {
    responsive: true,
    displaylogo: false,
    displayModeBar: narrow ? false : "hover",
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
    modeBarButtonsToAdd: ["hoverclosest", "hovercompare"],
    toImageButtonOptions: { format: "svg", filename: id },
  });
}

function drawAll() {
  Object.keys(charts).forEach(draw);
}

function listenToSwitches() {
  for (const input of document.querySelectorAll("input[data-chart]")) {
    const { chart, purpose } = input.dataset;
    input.addEventListener("change", () => {
      (chosen[chart] ??= {})[purpose] = input.value;
      draw(chart);
    });
    // A browser may restore the switches of an earlier visit.
    if (input.checked) (chosen[chart] ??= {})[purpose] = input.value;
  }
}

// Numbers by their exact value, words by alphabet; cells without a value last, whichever way.
function sortBy(heading, headings, body) {
  const column = headings.indexOf(heading);
  const direction = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  for (const other of headings) other.setAttribute("aria-sort", other === heading ? direction : "none");
  const sign = direction === "ascending" ? 1 : -1;
  const cells = (row) => row.children[column];
  const key = (row) => (column === 0 ? cells(row).textContent : parseFloat(cells(row).dataset.key ?? "NaN"));
  const compare = (a, b) => {
    const [left, right] = [key(a), key(b)];
    if (column === 0) return sign * left.localeCompare(right, "en", { numeric: true });
    if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right);
    return sign * (left - right);
  };
  body.append(...[...body.rows].sort(compare));
}

function makeSortable(table) {
  const headings = [...table.tHead.rows[0].children];
  for (const heading of headings) {
    heading.querySelector("button").addEventListener("click", () => sortBy(heading, headings, table.tBodies[0]));
  }
}

function foldSingleKernels(button) {
  const show = (shown) => {
    for (const row of document.querySelectorAll(".sk-other")) row.hidden = !shown;
    button.setAttribute("aria-expanded", shown);
    button.textContent = (shown ? "Hide " : "Show ") + button.dataset.what;
  };
  button.hidden = false;
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") !== "true"));
  show(false);
}

// Columns beyond the edge would go unnoticed where scroll bars are hidden.
function hintAtMore(scroll, hint) {
  const check = () => { hint.hidden = scroll.scrollWidth <= scroll.clientWidth + 1; };
  new ResizeObserver(check).observe(scroll);
  check();
}

makeSortable(document.querySelector("table"));
const fold = document.getElementById("fold");
if (fold) foldSingleKernels(fold);
hintAtMore(document.querySelector(".scroll"), document.getElementById("more-columns"));
listenToSwitches();
drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
matchMedia("(max-width: 40rem)").addEventListener("change", drawAll);
