// The past of a run, in bounded memory however long the page stays open.

const most = 2000;
const recentSpan = 10 * 60 * 1000;

export class Track {
  constructor() {
    this.load([]);
  }

  // Points are in the order of their rounds.
  load(points) {
    this.whole = points.slice();
    this.recent = points.slice();
    this.step = 1;
    this.fit();
  }

  add(point) {
    const last = this.whole.at(-1);
    if (last && point.round <= last.round) return;
    // The newest is always there; it stays if it is a step away from the one before.
    const before = this.whole.at(-2);
    if (before && last.round - before.round < this.step) this.whole.pop();
    this.whole.push(point);
    this.recent.push(point);
    this.fit();
  }

  fit() {
    while (this.whole.length > most) {
      this.step *= 2;
      this.whole = spaced(this.whole, this.step);
    }
    const newest = this.recent.at(-1)?.at_ms ?? 0;
    const first = this.recent.findIndex((point) => point.at_ms >= newest - recentSpan);
    this.recent = this.recent.slice(Math.max(first, this.recent.length - most));
  }
}

// Those at least `step` rounds apart, and the last.
function spaced(points, step) {
  let next = -Infinity;
  return points.filter((point, index) => {
    if (point.round < next && index < points.length - 1) return false;
    next = point.round + step;
    return true;
  });
}
