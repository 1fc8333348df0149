// The latest events, the newest first.

import { ago, count } from "./words.js";

const few = 8;

export class EventList {
  constructor() {
    this.list = document.getElementById("events");
    this.more = document.getElementById("more-events");
    this.limit = few;
    this.shown = "";
    this.more.addEventListener("click", () => {
      this.limit = this.limit === few ? Infinity : few;
      this.show(this.status);
    });
  }

  show(status) {
    this.status = status;
    const all = status.events ?? [];
    const shown = all.slice(-Math.min(this.limit, all.length || 1)).reverse();
    document.getElementById("no-events").hidden = all.length > 0;
    this.more.hidden = all.length <= few;
    this.more.textContent = this.limit === few ? `Show all ${count(all.length)}` : "Show fewer";
    // Rows are made anew only if one is new; times move on.
    const state = `${status.run} ${this.limit} ${all.at(-1)?.number}`;
    if (state !== this.shown) {
      this.shown = state;
      this.list.replaceChildren(...shown.map(item));
    }
    shown.forEach((event, index) => {
      const when = this.list.children[index].firstChild;
      const says = ago(status.at_ms - event.at_ms);
      if (when.textContent !== says) when.textContent = says;
    });
  }
}

function item({ at_ms, severity, text }) {
  const [line, when, what] = ["li", "time", "span"].map((name) => document.createElement(name));
  line.className = severity;
  when.dateTime = new Date(at_ms).toISOString();
  when.title = new Date(at_ms).toLocaleString("en-GB");
  what.textContent = text;
  line.append(when, what);
  return line;
}
