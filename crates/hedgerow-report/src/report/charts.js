"use strict";

// Charts: the page holds finished pictures. This script fits them to the width of the page, shows
// values at the pointer, zooms where the pointer is dragged, and hides what the legend hides.

const svgName = "http://www.w3.org/2000/svg";
const space = { linear: (value) => value, root: Math.sqrt, log: Math.log10, date: (value) => value };
const value = { linear: (place) => place, root: (place) => place * place, log: (place) => 10 ** place, date: (place) => place };
// Steps between dates: seconds, from a week on months.
const dateSteps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
const monthSteps = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000, 24000];
const whole = [0, 0, 1, 1];

// The text of an axis is its spacing, its ends and the least step between ticks.
function axisOf(text) {
  const [spacing, ...numbers] = text.split(" ");
  return axis(spacing, ...numbers.map(Number));
}

function axis(spacing, low, high, leastStep) {
  const [from, to] = [space[spacing](low), space[spacing](high)];
  return {
    spacing, low, high, leastStep,
    share: (number) => (space[spacing](number) - from) / (to - from),
    at: (share) => value[spacing](from + share * (to - from)),
  };
}

// The part of an axis between two shares of its length.
function part(whole, from, to) {
  return axis(whole.spacing, whole.at(from), whole.at(to), whole.leastStep);
}

function fixed(number, decimals) {
  const [digits, fraction] = Math.abs(number).toFixed(decimals).split(".");
  const grouped = digits.length > 4 ? digits.replace(/\B(?=(\d{3})+$)/g, "\u202f") : digits;
  const sign = number < 0 && /[1-9]/.test(digits + fraction) ? "−" : "";
  return sign + grouped + (fraction ? "." + fraction : "");
}

function power(exponent) {
  return "10" + [...String(exponent)].map((digit) => (digit === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])).join("");
}

function significant(number, digits) {
  if (number === 0) return "0";
  const [mantissa, exponent] = number.toExponential(digits - 1).split("e");
  if (exponent < -4 || exponent >= 7) return `${mantissa.replace("-", "−")}·${power(Number(exponent))}`;
  return fixed(number, Math.max(0, digits - 1 - exponent));
}

// Values and labels; a label is empty on a line of the fine grid.
function ticks(axis, about) {
  if (axis.spacing === "date") return dateTicks(axis, about);
  if (axis.spacing === "log") return logTicks(axis, about) ?? evenTicks(axis, about);
  if (axis.spacing === "root") return rootTicks(axis) ?? evenTicks(axis, about);
  return evenTicks(axis, about);
}

function evenTicks({ low, high, leastStep }, about) {
  const rough = Math.max((high - low) / about, leastStep);
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = magnitude * ([1, 2, 5].find((factor) => factor * magnitude >= rough * 0.999) ?? 10);
  const isReadable = step >= 1e-4 && Math.max(Math.abs(low), Math.abs(high)) < 1e7;
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let count = Math.ceil(low / step - 1e-9); count * step <= high + step * 1e-9 && found.length < 50; count += 1) {
    found.push([count * step, isReadable ? fixed(count * step, decimals) : significant(count * step, 3)]);
  }
  return found;
}

function isoDate(seconds) {
  return new Date(1000 * seconds).toISOString();
}

function dateTicks({ low, high }, about) {
  const rough = (high - low) / about;
  const step = dateSteps.find((seconds) => seconds >= rough * 0.999);
  const found = [];
  if (step) {
    // Weeks begin on Mondays.
    const from = step === 604800 ? 345600 : 0;
    for (let at = from + Math.ceil((low - from) / step) * step; at <= high && found.length < 50; at += step) {
      const [text, isMidnight] = [isoDate(at), at % 86400 === 0];
      found.push([at, step >= 86400 ? text.slice(0, 10) : isMidnight ? text.slice(5, 10) : text.slice(11, step < 60 ? 19 : 16)]);
    }
    return found;
  }
  const months = monthSteps.find((count) => count * 2629746 >= rough * 0.999) ?? monthSteps.at(-1);
  const first = new Date(1000 * low);
  for (let month = Math.floor((12 * first.getUTCFullYear() + first.getUTCMonth()) / months) * months; found.length < 50; month += months) {
    const at = Date.UTC(Math.floor(month / 12), month % 12, 1) / 1000;
    if (at > high) return found;
    if (at >= low) found.push([at, isoDate(at).slice(0, months >= 12 ? 4 : 7)]);
  }
  return found;
}

function rootTicks(axis) {
  const found = [];
  for (let exponent = -1; 10 ** exponent <= axis.high; exponent += 1) {
    for (const factor of exponent < 0 ? [0] : [1, 2, 5]) {
      const number = factor * 10 ** Math.max(0, exponent);
      const isClear = found.length === 0 || axis.share(number) - axis.share(found.at(-1)[0]) > 0.07;
      if (number >= axis.low && number <= axis.high && isClear) found.push([number, fixed(number, 0)]);
    }
  }
  return found.length < 3 ? null : found;
}

function logTicks({ low, high }, about) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const every = Math.max(1, Math.ceil((last - first) / about));
  const all = [];
  for (let exponent = first; exponent <= last; exponent += 1) {
    for (let factor = 1; factor <= (every > 1 ? 1 : 9); factor += 1) {
      const number = factor * 10 ** exponent;
      if (number >= low && number <= high) all.push({ number, factor, exponent });
    }
  }
  const isNamed = (named) => ({ factor, exponent }) => named.includes(factor) && (exponent - first) % every === 0;
  const named = [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]].find((named) => all.filter(isNamed(named)).length >= 3);
  if (!named) return null;
  return all.map(({ number, factor, exponent }) => {
    if (!isNamed(named)({ factor, exponent })) return [number, ""];
    if (first >= -4 && last <= 5) return [number, fixed(number, Math.max(0, -exponent))];
    return [number, factor === 1 ? power(exponent) : `${factor}·${power(exponent)}`];
  });
}

function shape(parent, name, attributes, text = "") {
  const element = document.createElementNS(svgName, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  parent.append(element);
}

// What the script knows of a view: where things were drawn, and the lines that can be read.
function readView(view) {
  const picture = view.querySelector(".plot > svg");
  const marks = picture.querySelector(".marks");
  const [left, top, width, height] = marks.getAttribute("viewBox").split(" ").map(Number);
  const { x, y, xTitle, yTitle, rounds } = picture.dataset;
  const lines = [...marks.querySelectorAll("[data-label]")].map((group) => {
    const own = (group.dataset.rounds ?? rounds).split(" ").map(Number);
    const spots = group.firstElementChild.getAttribute("points").split(" ").map((spot) => spot.split(",").map(Number));
    const { stroke, fill } = group.firstElementChild.attributes;
    const color = fill.value === "none" ? stroke.value : fill.value;
    const { label, readout, entry } = group.dataset;
    return { group, label, readout, entry, color, rounds: own, spots: spots.slice(0, own.length) };
  });
  return {
    view, picture, marks, lines, xTitle, yTitle, zoom: whole, from: null,
    x: axisOf(x), y: axisOf(y), drawn: { left, top, width, height },
  };
}

// Draws the axes for the width that there is, and lets the marks fill the frame.
function fit(chart) {
  const plot = chart.picture.parentElement;
  const width = plot.clientWidth;
  if (width === 0) return;
  const height = Math.max(300, Math.min(430, width * 0.6));
  const frame = { left: 64, top: 10, right: width - 12, bottom: height - 46 };
  const [right, bottom] = [frame.right - frame.left, frame.bottom - frame.top];
  const { drawn, zoom: [fromX, fromY, toX, toY] } = chart;
  const x = part(chart.x, fromX, toX);
  const y = part(chart.y, 1 - toY, 1 - fromY);
  Object.assign(chart, { frame, shown: { x, y } });
  chart.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const window = [
    drawn.left + fromX * drawn.width, drawn.top + fromY * drawn.height,
    (toX - fromX) * drawn.width, (toY - fromY) * drawn.height,
  ];
  chart.marks.setAttribute("viewBox", window.join(" "));
  const place = { x: frame.left, y: frame.top, width: right, height: bottom };
  for (const [key, value] of Object.entries(place)) chart.marks.setAttribute(key, value);
  plot.classList.toggle("zoomed", chart.zoom !== whole);
  const grid = chart.picture.querySelector(".grid");
  grid.replaceChildren();
  const text = { class: "soft-fill", "font-size": 12, dy: "0.5ex" };
  const across = ticks(x, Math.max(3, Math.min(8, width / 90)));
  const up = ticks(y, 6);
  for (const isFine of [true, false]) {
    const kind = isFine ? "fine-stroke" : "grid-stroke";
    for (const [number, label] of across.filter(([, label]) => (label === "") === isFine)) {
      const at = frame.left + right * x.share(number);
      shape(grid, "path", { class: kind, d: `M${at} ${frame.top}V${frame.bottom}` });
      shape(grid, "text", { ...text, x: at, y: frame.bottom + 16, "text-anchor": "middle" }, label);
    }
    for (const [number, label] of up.filter(([, label]) => (label === "") === isFine)) {
      const at = frame.bottom - bottom * y.share(number);
      shape(grid, "path", { class: kind, d: `M${frame.left} ${at}H${frame.right}` });
      shape(grid, "text", { ...text, x: frame.left - 8, y: at, "text-anchor": "end" }, label);
    }
  }
  const title = { class: "ink-fill", "font-size": 13, dy: "0.5ex", "text-anchor": "middle" };
  shape(grid, "text", { ...title, x: frame.left + right / 2, y: height - 9 }, chart.xTitle);
  const turned = `translate(10 ${frame.top + bottom / 2}) rotate(270)`;
  shape(grid, "text", { ...title, transform: turned }, chart.yTitle);
  const rules = chart.picture.querySelector(".rules");
  rules.replaceChildren();
  shape(rules, "path", { class: "soft-stroke", fill: "none", d: `M${frame.left} ${frame.top}V${frame.bottom}H${frame.right}` });
}

// Where the pointer is, as shares of the frame from its upper left corner.
function shares(chart, event) {
  const { left, top } = chart.picture.getBoundingClientRect();
  const { frame } = chart;
  const share = (at, from, to) => Math.min(1, Math.max(0, (at - from) / (to - from)));
  return [share(event.clientX - left, frame.left, frame.right), share(event.clientY - top, frame.top, frame.bottom)];
}

// The value of each shown line at its point nearest to the pointer.
function read(chart, [across, down]) {
  const { drawn, zoom: [fromX, fromY, toX, toY] } = chart;
  const at = drawn.left + (fromX + across * (toX - fromX)) * drawn.width;
  const height = drawn.top + (fromY + down * (toY - fromY)) * drawn.height;
  const number = ([, spot]) => chart.y.at(1 - (spot - drawn.top) / drawn.height);
  const shown = chart.lines.filter(({ group }) => !group.hasAttribute("hidden"));
  const found = shown.map((line) => {
    const nearest = line.spots.reduce((best, [x], index) => (Math.abs(x - at) < Math.abs(line.spots[best][0] - at) ? index : best), 0);
    const spot = line.spots[nearest];
    const below = height - spot[1];
    // The pointer is in the layer whose top is next above it.
    const distance = line.readout === "layer" && below < 0 ? Infinity : Math.abs(below);
    return { ...line, spot, round: line.rounds[nearest], number: number(spot), distance };
  });
  const near = (line) => line.distance === Math.min(...found.map(({ distance }) => distance));
  const listed = found.filter((line) => line.readout !== "nearest" || near(line));
  // Layers are told by their own heights, not by their tops.
  listed.forEach((line, place) => {
    const below = line.readout === "layer" ? listed[place + 1]?.number ?? 0 : 0;
    line.text = line.readout === "layer" ? `${fixed(100 * (line.number - below), 0)}%` : significant(line.number, 4);
  });
  if (listed[0]?.readout !== "layer") listed.sort((a, b) => b.number - a.number);
  return { listed, near };
}

function point(chart, event) {
  const pointer = chart.picture.querySelector(".pointer");
  const readout = chart.readout;
  pointer.replaceChildren();
  const now = shares(chart, event);
  const { frame } = chart;
  const [width, height] = [frame.right - frame.left, frame.bottom - frame.top];
  if (chart.from) {
    const [x, y, toX, toY] = dragged(chart.from, now);
    const box = { x: frame.left + x * width, y: frame.top + y * height, width: (toX - x) * width, height: (toY - y) * height };
    shape(pointer, "rect", { ...box, class: "soft-fill", opacity: 0.15 });
    readout.hidden = true;
    return;
  }
  const { listed, near } = read(chart, now);
  if (listed.length === 0) return;
  const { drawn, zoom: [fromX, fromY, toX, toY] } = chart;
  const round = listed.find(near)?.round ?? listed[0].round;
  for (const { spot, color, readout: kind } of listed) {
    const [x, y] = [((spot[0] - drawn.left) / drawn.width - fromX) / (toX - fromX), ((spot[1] - drawn.top) / drawn.height - fromY) / (toY - fromY)];
    const isInside = x >= 0 && x <= 1 && y >= 0 && y <= 1;
    if (isInside && kind !== "layer") shape(pointer, "circle", { cx: frame.left + x * width, cy: frame.top + y * height, r: 3.5, fill: color, class: "paper-stroke" });
  }
  const line = (first, second, isBold) => {
    const row = document.createElement("p");
    for (const text of [first, second]) row.append(Object.assign(document.createElement("span"), { textContent: text }));
    if (isBold) row.style.fontWeight = "600";
    return row;
  };
  readout.replaceChildren(line(when(chart, round), ""), ...listed.map((one) => line(one.label, one.text, near(one))));
  readout.hidden = false;
  const place = frame.left + now[0] * width;
  const beside = now[0] > 0.5 ? place - 14 - readout.offsetWidth : place + 14;
  readout.style.left = `${Math.max(0, beside)}px`;
  readout.style.top = `${frame.top + 4}px`;
}

function when(chart, round) {
  return chart.x.spacing === "date" ? isoDate(round).slice(0, 16).replace("T", " ") : `round ${fixed(round, 0)}`;
}

// A drag along an axis keeps the other axis whole.
function dragged([fromX, fromY], [toX, toY]) {
  const sorted = (a, b) => (Math.abs(a - b) < 0.06 ? [0, 1] : [Math.min(a, b), Math.max(a, b)]);
  const [[left, right], [top, bottom]] = [sorted(fromX, toX), sorted(fromY, toY)];
  return [left, top, right, bottom];
}

function zoom(chart, to) {
  const [left, top, right, bottom] = dragged(chart.from, to);
  const [fromX, fromY, toX, toY] = chart.zoom;
  chart.from = null;
  if (right - left === 1 && bottom - top === 1) return;
  const inside = (from, to, share) => from + share * (to - from);
  setZoom(chart, [inside(fromX, toX, left), inside(fromY, toY, top), inside(fromX, toX, right), inside(fromY, toY, bottom)]);
}

function setZoom(chart, window) {
  chart.zoom = window;
  chart.reset.hidden = window === whole;
  chart.picture.querySelector(".pointer").replaceChildren();
  fit(chart);
}

function listenTo(chart) {
  const { picture } = chart;
  const plot = picture.parentElement;
  chart.readout = Object.assign(document.createElement("div"), { className: "readout", hidden: true });
  chart.reset = Object.assign(document.createElement("button"), { className: "reset", type: "button", textContent: "Whole chart", hidden: true });
  plot.append(chart.readout, chart.reset);
  chart.reset.addEventListener("click", () => setZoom(chart, whole));
  picture.addEventListener("pointermove", (event) => point(chart, event));
  picture.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse") return point(chart, event);
    event.preventDefault();
    chart.from = shares(chart, event);
  });
  picture.addEventListener("pointerup", (event) => chart.from && zoom(chart, shares(chart, event)));
  picture.addEventListener("dblclick", () => setZoom(chart, whole));
  picture.addEventListener("pointerleave", () => {
    chart.from = null;
    chart.readout.hidden = true;
    picture.querySelector(".pointer").replaceChildren();
  });
  new ResizeObserver(() => fit(chart)).observe(plot);
}

// A button of a legend shows and hides what it names, in all views of its chart.
function listenToLegend(button, charts) {
  const isLayer = charts.some(({ lines }) => lines.some(({ readout }) => readout === "layer"));
  if (isLayer) button.style.cursor = "default";
  button.addEventListener("click", () => {
    if (isLayer) return;
    const [name, shown] = [button.children[1].textContent, button.getAttribute("aria-pressed") !== "true"];
    for (const { view, marks } of charts) {
      const same = [...view.querySelectorAll(".legend button")].filter((other) => other.children[1].textContent === name);
      for (const other of same) {
        other.setAttribute("aria-pressed", shown);
        for (const group of marks.querySelectorAll(`[data-entry="${other.dataset.entry}"]`)) group.toggleAttribute("hidden", !shown);
      }
    }
  });
}

for (const element of document.querySelectorAll(".chart")) {
  const charts = [...element.querySelectorAll(".view")].map(readView);
  charts.forEach(listenTo);
  element.querySelectorAll(".legend button").forEach((button) => listenToLegend(button, charts));
  const inputs = [...document.querySelectorAll(`input[data-chart="${element.id}"]`)];
  const choose = () => {
    const wanted = inputs.filter(({ checked }) => checked).map(({ value }) => value).join(" ");
    for (const { view } of charts) view.hidden = view.dataset.view !== wanted;
  };
  inputs.forEach((input) => input.addEventListener("change", choose));
  // A browser may restore the switches of an earlier visit.
  choose();
}

