// The dashboard's charts, drawn from what the page knows, in its colours.

import { color, draw } from "./plot.js";
import { bytes, count, number, percent } from "./words.js";

// More kernels or columns than this can't be told apart: the rest share one colour, or are left
// out.
const mostKernels = 12;
// And more lines than this.
const mostLines = 5;
const columns = 48;
const compact = new Intl.NumberFormat("en-GB", {
  notation: "compact",
  maximumSignificantDigits: 6,
});
const rounds = {
  title: "round",
  format: (round) => (round < 1e6 ? count(round) : compact.format(round)),
};

export function drawError(points, axis, view, mean) {
  if (points.length === 0) return;
  const x = points.map((point) => point.round);
  const line = (name, key, shown) => ({
    name,
    x,
    y: points.map((point) => point[key]),
    color: color(shown),
  });
  const lines = [line("lately", "window_mse", "windowed"), line("whole run", "mse", "running")];
  if (mean !== null)
    lines.push({ name: "each node's mean", x, y: x.map(() => mean), color: color("faint") });
  draw("error-chart", {
    x: { ...rounds, range: [x[0], x.at(-1)] },
    y: { log: axis === "log", title: "mean squared error", format: number },
    lines,
    readout: (index) => {
      const time = new Date(points[index].at_ms).toLocaleString("en-GB");
      const values = lines.map(({ name, y }) => `${name}: ${number(y[index])}`);
      return [`round ${count(x[index])}, ${time}`, ...values].join("\n");
    },
    legend: lines.map((line) => [line.name, line.color]),
    key: axis + view,
    zooms: true,
  });
}

// Shares of the rounds in each column, from the points that fall into it.
export function drawShares(points, kernels) {
  const known = points.filter(
    (point) => Number.isInteger(point.selected) && point.selected < kernels.length,
  );
  if (known.length === 0) return;
  const first = known[0].round;
  const width = Math.max(1, Math.ceil((known.at(-1).round - first + 1) / columns));
  const used = Array.from(
    { length: Math.ceil((known.at(-1).round - first + 1) / width) },
    () => new Map(),
  );
  const often = new Map();
  for (const { round, selected } of known) {
    for (const counts of [used[Math.floor((round - first) / width)], often]) {
      counts.set(selected, (counts.get(selected) ?? 0) + 1);
    }
  }
  // A column without a point repeats the one before.
  for (let index = 1; index < used.length; index += 1)
    if (used[index].size === 0) used[index] = used[index - 1];
  const shown = [...often.keys()]
    .sort((a, b) => often.get(b) - often.get(a))
    .slice(0, mostKernels)
    .sort((a, b) => a - b);
  const parts = shown.map((kernel) => ({
    name: kernels[kernel].name,
    color: shade(kernel, kernels.length),
    kernels: [kernel],
  }));
  const others = [...often.keys()].filter((kernel) => !shown.includes(kernel));
  if (others.length > 0) parts.push({ name: "all others", color: color("faint"), kernels: others });
  const boxes = used.flatMap((counts, index) => {
    const times = (which) => which.reduce((sum, kernel) => sum + (counts.get(kernel) ?? 0), 0);
    const all = times([...counts.keys()]);
    const x = [first + index * width, first + (index + 1) * width];
    let below = 0;
    return parts.map(({ name, color, kernels }) => {
      const y = [below, below + times(kernels) / all];
      [, below] = y;
      const text = `${name}: ${percent(y[1] - y[0])}\nrounds ${count(x[0])} to ${count(x[1] - 1)}`;
      return { x, y, color, text };
    });
  });
  const x = { ...rounds, range: [first, first + used.length * width] };
  draw("shares-chart", {
    x,
    y: { range: [0, 1], format: percent },
    boxes: boxes.filter(({ y }) => y[1] > y[0]),
  });
}

export function drawKernels(kernels, selected) {
  const weight = ({ index, selected_share, vote_share }) =>
    (index === selected ? 2 : 0) + selected_share + vote_share;
  const shown = kernels
    .map((kernel, index) => ({ ...kernel, index }))
    .sort((a, b) => weight(b) - weight(a))
    .slice(0, mostKernels)
    .sort((a, b) => b.index - a.index);
  const boxes = shown.flatMap(({ name, index, vote_share, selected_share }, row) => [
    {
      x: [0, vote_share],
      y: [row - 0.38, row],
      color: color("faint"),
      text: `${name}\nvotes: ${percent(vote_share)}`,
    },
    {
      x: [0, selected_share],
      y: [row, row + 0.38],
      color: shade(index, kernels.length),
      text: `${name}\nselected: ${percent(selected_share)}`,
    },
  ]);
  draw("kernels-chart", {
    x: { range: [0, largest(boxes)], format: percent },
    y: {
      range: [-0.5, shown.length - 0.5],
      labels: shown.map(({ name, index }, row) => [row, name, index === selected]),
    },
    boxes,
  });
}

// Bars of the most important columns, and lines of the first few of them.
export function drawImportance({ columns: all, rounds: ends, has_label_unit }) {
  const shown = all.slice(0, mostKernels);
  const tint = (index) => shade(index, shown.length);
  const bar = (value, y, color, text) => ({
    x: [Math.min(0, value), Math.max(0, value)],
    y,
    color,
    text: `${text}: ${number(value)}`,
  });
  const boxes = shown.flatMap(({ name, increase, recent, measured }, index) => {
    const row = shown.length - 1 - index;
    const times = `${name}, measured ${count(measured)} times`;
    return [
      bar(increase, [row - 0.38, row], color("faint"), `${times}\nwhole run`),
      bar(recent, [row, row + 0.38], tint(index), `${times}\nlately`),
    ];
  });
  draw("importance-bars", {
    x: { range: [1.02 * Math.min(...boxes.map(({ x }) => x[0])), largest(boxes)], format: number },
    y: {
      range: [-0.5, shown.length - 0.5],
      labels: shown.map(({ name }, index) => [shown.length - 1 - index, name]),
    },
    boxes,
  });
  const lines = shown.slice(0, mostLines).map(({ name, windows }, index) => ({
    name,
    x: ends,
    y: windows,
    color: tint(index),
  }));
  draw("importance-lines", {
    x: { ...rounds, range: [ends[0], ends.at(-1)] },
    y: { title: has_label_unit ? "growth of the error" : "growth of the loss", format: number },
    lines,
    readout: (index) =>
      [
        `up to round ${count(ends[index])}`,
        ...lines.map(({ name, y }) => `${name}: ${number(y[index])}`),
      ].join("\n"),
  });
}

export function drawBytes(status) {
  const rows = [
    ["on the wire", status.wire_up, status.wire_down],
    ["messages", status.messages_up, status.messages_down],
    ["naive extension", status.naive_up, status.naive_down],
  ];
  const [up, down] = [
    ["up, from nodes", color("up")],
    ["down, to nodes", color("down")],
  ];
  const boxes = rows.flatMap(([name, sent, received], row) => {
    const y = [row - 0.33, row + 0.33];
    return [
      { x: [0, sent], y, color: up[1], text: `${name}\n${up[0]}: ${bytes(sent)}` },
      {
        x: [sent, sent + received],
        y,
        color: down[1],
        text: `${name}\n${down[0]}: ${bytes(received)}`,
      },
    ];
  });
  draw("bytes-chart", {
    x: { range: [0, largest(boxes)], format: bytes },
    y: { range: [-0.5, 2.5], labels: rows.map(([name], row) => [row, name]) },
    boxes,
    legend: [up, down],
  });
}

function largest(boxes) {
  return 1.02 * Math.max(...boxes.map(({ x }) => x[1])) || 1;
}

// From violet to yellow in the order of the dictionary. The darkest is too dark for a dark page.
const stops = [
  [72, 30, 112],
  [62, 74, 137],
  [38, 130, 142],
  [53, 183, 121],
  [181, 222, 43],
  [253, 231, 37],
];
const night = matchMedia("(prefers-color-scheme: dark)");

function shade(index, many) {
  const from = night.matches ? 0.18 : 0;
  const place = (many > 1 ? from + (1 - from) * (index / (many - 1)) : 0.5) * (stops.length - 1);
  const below = Math.min(Math.floor(place), stops.length - 2);
  const mix = stops[below].map((part, i) =>
    Math.round(part + (stops[below + 1][i] - part) * (place - below)),
  );
  return `rgb(${mix.join(",")})`;
}
