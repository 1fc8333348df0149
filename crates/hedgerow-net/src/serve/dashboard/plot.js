// Draws a chart as SVG: lines or boxes over two axes, values at the pointer, zoom by dragging.
//
// A chart is { x, y, lines, boxes, readout, legend, key, zooms }.
// An axis is { range, log, title, format, labels }. Without `range` it fits the visible lines;
// `labels` are [value, text, isBold] in place of ticks.
// A line is { name, color, x, y }: all lines share x, and null interrupts one. `readout(index)` is
// the text for a point. A box is { x, y, color, text } with x and y as [from, to].
// Zoom stays as long as `key` is the same.

const svgName = "http://www.w3.org/2000/svg";
const states = new WeakMap();
const resizes = new ResizeObserver((entries) => {
  for (const { target } of entries)
    if (states.get(target)?.chart) paint(target, states.get(target));
});
const ruler = document.createElement("canvas").getContext("2d");

export function color(name) {
  return getComputedStyle(document.documentElement)
    .getPropertyValue("--" + name)
    .trim();
}

export function draw(id, chart) {
  const element = document.getElementById(id);
  const state = states.get(element) ?? prepare(element);
  // A chart does not change under a mouse that reads it.
  if (state.isHeld) return;
  if (state.chart?.key !== chart.key) state.zoom = null;
  state.chart = chart;
  paint(element, state);
}

function prepare(element) {
  const [picture, readout, save] = [
    svg("svg", { "aria-hidden": true }),
    tag("div", "readout"),
    tag("button", "save"),
  ];
  const state = { picture, readout, save, isHeld: false, zoom: null, dragFrom: null };
  save.textContent = "Save SVG";
  save.tabIndex = -1;
  save.addEventListener("click", () => download(picture, element.id));
  element.replaceChildren(picture, readout, save);
  element.addEventListener(
    "pointerenter",
    (event) => (state.isHeld = event.pointerType === "mouse"),
  );
  element.addEventListener("pointerleave", () => {
    Object.assign(state, { isHeld: false, dragFrom: null });
    readout.hidden = true;
    state.mark?.replaceChildren();
  });
  picture.addEventListener("pointerdown", (event) => {
    if (state.chart.zooms && event.pointerType === "mouse") state.dragFrom = event.offsetX;
    point(element, state, event);
  });
  picture.addEventListener("pointermove", (event) => point(element, state, event));
  picture.addEventListener("pointerup", (event) => zoom(element, state, event.offsetX));
  picture.addEventListener("dblclick", () => {
    state.zoom = null;
    paint(element, state);
  });
  readout.hidden = true;
  states.set(element, state);
  resizes.observe(element);
  return state;
}

function paint(element, state) {
  const { chart, picture } = state;
  const [width, height] = [element.clientWidth, element.clientHeight];
  if (width === 0 || height === 0) return;
  const size = width < 560 ? 12 : 13;
  const family = getComputedStyle(document.body).fontFamily;
  ruler.font = `${size}px ${family}`;
  const x = { ...chart.x, range: state.zoom ?? wide(chart.x.range) };
  const y = { ...chart.y, range: chart.y.range ?? fit(chart, x.range) };
  y.labels ??= labels(y, height / 45);
  x.labels ??= labels(x, Math.min(6, width / 80));
  const widest = Math.max(...y.labels.map(([, text]) => ruler.measureText(text).width));
  const left = Math.min(widest, 0.4 * width) + 12 + (y.title ? 1.5 * size : 0);
  const [right, top] = [width - 14, chart.legend ? 2 * size : 8];
  const bottom = height - 12 - size - (x.title ? 1.5 * size : 0);
  const across = scale(x, left, right);
  const up = scale(y, bottom, top);
  Object.assign(state, { across, up, left, right, top, bottom });

  const attributes = {
    viewBox: `0 0 ${width} ${height}`,
    "font-family": family,
    "font-size": size,
    fill: color("ink"),
  };
  set(picture, { ...attributes, width, height });
  const [grid, shapes, words, mark] = ["g", "svg", "g", "g"].map((name) => svg(name));
  state.mark = mark;
  picture.replaceChildren(grid, shapes, words, mark);
  set(grid, { stroke: color("rule") });
  // The inner picture has the same coordinates, and cuts off what lies outside of the axes.
  const inside = { x: left, y: top, width: right - left, height: bottom - top };
  set(shapes, { ...inside, viewBox: Object.values(inside).join(" ") });
  for (const [value, text, isBold] of y.labels) {
    if (!chart.y.labels) add(grid, "line", { x1: left, x2: right, y1: up(value), y2: up(value) });
    const place = { x: left - 8, y: up(value) + 0.35 * size, "text-anchor": "end" };
    add(
      words,
      "text",
      { ...place, "font-weight": isBold ? "bold" : "normal" },
      shortened(text, left - 12),
    );
  }
  for (const [value, text] of x.labels) {
    add(grid, "line", { x1: across(value), x2: across(value), y1: top, y2: bottom });
    // The text of a tick at the edge moves inwards, so that it isn't cut off.
    const half = ruler.measureText(text).width / 2;
    const middle = Math.max(half, Math.min(across(value), width - half));
    add(words, "text", { x: middle, y: bottom + 1.3 * size, "text-anchor": "middle" }, text);
  }
  add(grid, "path", {
    d: `M${left} ${top}V${bottom}H${right}`,
    fill: "none",
    stroke: color("soft"),
  });
  if (x.title)
    add(words, "text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, x.title);
  if (y.title) {
    const turned = `translate(${size} ${(top + bottom) / 2}) rotate(-90)`;
    add(words, "text", { transform: turned, "text-anchor": "middle" }, y.title);
  }
  let at = width < 560 ? 4 : left;
  for (const [name, shown] of chart.legend ?? []) {
    add(words, "rect", { x: at, y: 0.35 * size, width: size, height: 0.7 * size, fill: shown });
    add(words, "text", { x: at + 1.4 * size, y: size }, name);
    at += ruler.measureText(name).width + 2.8 * size;
  }
  for (const box of chart.boxes ?? [])
    add(shapes, "rect", { ...area(state, box), fill: box.color, "shape-rendering": "crispEdges" });
  for (const line of chart.lines ?? []) {
    add(shapes, "path", {
      d: path(line, across, up, y.log),
      fill: "none",
      stroke: line.color,
      "stroke-width": line.x.length > 1 ? 2 : 8,
      "stroke-linejoin": "round",
      "stroke-linecap": "round",
    });
  }
  element.chart = { ...chart, x, y };
}

// A single point is a line of no length, which round ends make visible.
function path({ x, y }, across, up, isLog) {
  let [text, isDown] = ["", false];
  x.forEach((value, index) => {
    if (y[index] === null || (isLog && y[index] <= 0)) {
      isDown = false;
      return;
    }
    const place = `${across(value).toFixed(1)} ${up(y[index]).toFixed(1)}`;
    text += isDown ? `L${place}` : `M${place}L${place}`;
    isDown = true;
  });
  return text;
}

// What the pointer is at: the nearest point of the lines, or a box.
function point(element, state, { offsetX, offsetY }) {
  const { chart, mark, across, left, right, top, bottom, readout } = state;
  mark.replaceChildren();
  let text = null;
  if (state.dragFrom !== null) {
    const [from, to] = [state.dragFrom, offsetX].sort((a, b) => a - b);
    add(mark, "rect", {
      x: from,
      y: top,
      width: to - from,
      height: bottom - top,
      fill: color("accent"),
      opacity: 0.2,
    });
  } else if (offsetX >= left && offsetX <= right && chart.lines) {
    const { x } = chart.lines[0];
    const distance = (index) => Math.abs(across(x[index]) - offsetX);
    const nearest = x.reduce(
      (best, _, index) => (distance(index) < distance(best) ? index : best),
      0,
    );
    const at = across(x[nearest]);
    if (at >= left && at <= right) {
      add(mark, "line", {
        x1: at,
        x2: at,
        y1: top,
        y2: bottom,
        stroke: color("soft"),
        "stroke-dasharray": "3 3",
      });
      text = chart.readout(nearest);
    }
  } else if (chart.boxes) {
    text =
      chart.boxes.find((box) => {
        const { x, y, width, height } = area(state, box);
        return offsetX >= x && offsetX <= x + width && offsetY >= y && offsetY <= y + height;
      })?.text ?? null;
  }
  readout.hidden = text === null;
  if (text === null) return;
  readout.textContent = text;
  const { offsetWidth, offsetHeight } = readout;
  const beside =
    offsetX + 14 + offsetWidth > element.clientWidth ? offsetX - 14 - offsetWidth : offsetX + 14;
  readout.style.left = `${Math.max(0, beside)}px`;
  const lowest = element.clientHeight - offsetHeight;
  readout.style.top = `${Math.max(0, Math.min(offsetY - offsetHeight / 2, lowest))}px`;
}

function zoom(element, state, to) {
  const { dragFrom, across, left, right } = state;
  state.dragFrom = null;
  if (dragFrom === null || Math.abs(to - dragFrom) < 8) return;
  const inside = [dragFrom, to].map((at) => across.value(Math.min(Math.max(at, left), right)));
  state.zoom = inside.sort((a, b) => a - b);
  paint(element, state);
}

function area({ across, up }, { x, y }) {
  const [left, bottom] = [across(x[0]), up(y[0])];
  return {
    x: left,
    y: up(y[1]),
    width: Math.max(0, across(x[1]) - left),
    height: Math.max(0, bottom - up(y[1])),
  };
}

// The values of lines within this range of x, with a margin.
function fit({ lines, y: { log } }, [from, to]) {
  const visible = lines.flatMap(({ x, y }) =>
    y.filter((_, index) => x[index] >= from && x[index] <= to),
  );
  const values = visible.filter((value) => value !== null && (!log || value > 0));
  if (values.length === 0) return log ? [0.1, 10] : [0, 1];
  const high = Math.max(...values);
  return log ? [Math.min(...values) / 1.2, high * 1.2] : [0, 1.05 * high || 1];
}

function wide([from, to]) {
  return from < to ? [from, to] : [from - 0.5, from + 0.5];
}

function scale({ log, range }, from, to) {
  const [first, last] = log ? range.map(Math.log10) : range;
  const step = (to - from) / (last - first);
  const place = (value) => from + ((log ? Math.log10(value) : value) - first) * step;
  place.value = (at) => first + (at - from) / step;
  return place;
}

function labels(axis, most) {
  const all = ticks(axis, most).map((value) => [value, axis.format(value)]);
  return all.filter(([, text], index) => text !== all[index - 1]?.[1]);
}

// Multiples of 1, 2 or 5 times a power of ten. On a logarithmic axis powers of ten, and their
// multiples by 2 and 5 if there is room.
function ticks({ log, range: [low, high] }, most) {
  const decades = log ? Math.log10(high / low) : 0;
  if (decades > 0.7) {
    const every = Math.ceil(decades / most);
    const powers = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every)
      powers.push(power);
    const values = powers.flatMap((power) =>
      (decades < 2 ? [1, 2, 5] : [1]).map((factor) => Number(`${factor}e${power}`)),
    );
    return values.filter((value) => value >= low && value <= high);
  }
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const many = Math.max(0, Math.floor(high / step + 1e-9) - first + 1);
  return Array.from({ length: many }, (_, index) =>
    Number(((first + index) * step).toPrecision(12)),
  );
}

function shortened(text, room) {
  if (ruler.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && ruler.measureText(`${text.slice(0, end)}…`).width > room) end -= 1;
  return `${text.slice(0, end)}…`;
}

function download(picture, id) {
  const text = new XMLSerializer().serializeToString(picture);
  const link = tag("a", "");
  link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  link.download = `hedgerow-${id}.svg`;
  link.click();
  URL.revokeObjectURL(link.href);
}

function tag(name, kind) {
  const element = document.createElement(name);
  element.className = kind;
  return element;
}

function svg(name, attributes = {}) {
  const element = document.createElementNS(svgName, name);
  set(element, attributes);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

function add(parent, name, attributes, text = "") {
  const element = svg(name, attributes);
  element.textContent = text;
  parent.append(element);
}
