// Numbers as people read them.

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const plain = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 4 });
const units = ["B", "kB", "MB", "GB", "TB", "PB"];

export const nothing = "–";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  return isNumber(value) ? whole.format(value) : nothing;
}

// "1 node", "2 nodes": the noun is one whose plural ends in s.
export function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function number(value) {
  if (!isNumber(value)) return nothing;
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e7) ? value.toExponential(3) : plain.format(value);
}

export function bytes(value) {
  if (!isNumber(value)) return nothing;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value.toFixed(unit === 0 || value >= 99.95 ? 0 : 1)} ${units[unit]}`;
}

export function percent(share) {
  return isNumber(share) ? `${Math.round(100 * share)}%` : nothing;
}

export function span(milliseconds) {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${count(Math.floor(seconds / 86400))} days`;
}

export function ago(milliseconds) {
  return milliseconds < 2000 ? "now" : `${span(milliseconds)} ago`;
}
