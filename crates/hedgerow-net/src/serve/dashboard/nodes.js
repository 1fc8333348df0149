// The table of nodes. Rows are made once, and then only changed cells are written, so that a
// thousand rows stay responsive.

import { ago, bytes, count, counted, nothing, number } from "./words.js";

const page = 100;

// Words, the value that is sorted by, and what a cell says.
const columns = [
  { name: "Name", text: true, value: (node) => node.name, says: (node) => node.name },
  {
    name: "State",
    text: true,
    value: (node) => node.state,
    kind: "state",
    says: (node) => (node.reason ? `${node.state}: ${node.reason}` : node.state),
  },
  {
    name: "Last seen",
    value: (node) => -node.last_seen_ms,
    says: (node, now) => ago(now - node.last_seen_ms),
  },
  {
    name: "Last sample",
    value: (node) => (node.last_sample_ms ? -node.last_sample_ms : null),
    says: (node, now) => (node.last_sample_ms ? ago(now - node.last_sample_ms) : nothing),
  },
  { name: "Error", value: (node) => node.mse, says: (node) => number(node.mse) },
  {
    name: "Error, lately",
    value: (node) => node.window_mse,
    says: (node) => number(node.window_mse),
  },
  {
    name: "Of its mean",
    value: (node) => node.mean_forecast_mse ?? null,
    says: (node) => number(node.mean_forecast_mse),
  },
  { name: "Samples", value: (node) => node.samples, says: (node) => count(node.samples) },
  { name: "Up", value: (node) => node.bytes_up, says: (node) => bytes(node.bytes_up) },
  { name: "Down", value: (node) => node.bytes_down, says: (node) => bytes(node.bytes_down) },
  { name: "Uploads", value: (node) => node.uploads, says: (node) => count(node.uploads) },
  { name: "Refused", value: (node) => node.refused, says: (node) => count(node.refused) },
  { name: "Round", value: (node) => node.round, says: (node) => count(node.round) },
  { name: "Address", text: true, value: (node) => node.address, says: (node) => node.address },
  { name: "Software", text: true, value: (node) => node.software, says: (node) => node.software },
];

const words = new Intl.Collator("en", { numeric: true });

export class NodeTable {
  // `operate` is called with the node that an operator has chosen.
  constructor(operate) {
    this.operate = operate;
    this.table = document.getElementById("nodes");
    this.body = this.table.tBodies[0];
    this.filter = document.getElementById("filter");
    this.more = document.getElementById("more");
    this.headings = columns.map((column, index) => this.heading(column, index));
    const last = document.createElement("th");
    last.scope = "col";
    last.className = "operate";
    last.textContent = "Actions";
    this.table.tHead.rows[0].append(last);
    this.filter.addEventListener("input", () => this.arrange());
    this.more.addEventListener("click", () => {
      this.limit += page;
      this.arrange();
    });
    // Columns beyond the edge would go unnoticed where scroll bars are hidden.
    const frame = this.table.parentElement;
    const check = () => {
      document.getElementById("sideways").hidden = frame.scrollWidth <= frame.clientWidth + 1;
    };
    for (const part of [frame, this.table]) new ResizeObserver(check).observe(part);
    this.sort = { column: columns[0], sign: 1 };
    this.limit = page;
    this.clear();
  }

  heading(column, index) {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = column.name;
    cell.scope = "col";
    cell.className = column.text ? "text" : "";
    cell.setAttribute("aria-sort", index === 0 ? "ascending" : "none");
    cell.append(button);
    button.addEventListener("click", () => this.sortBy(index));
    this.table.tHead.rows[0].append(cell);
    return cell;
  }

  sortBy(index) {
    const direction =
      this.headings[index].getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const cell of this.headings) cell.setAttribute("aria-sort", "none");
    this.headings[index].setAttribute("aria-sort", direction);
    this.sort = { column: columns[index], sign: direction === "ascending" ? 1 : -1 };
    this.arrange();
  }

  clear() {
    this.rows = new Map();
    this.nodes = [];
    this.leftOut = 0;
    this.now = 0;
    this.arrange();
  }

  show(status) {
    this.nodes = status.nodes;
    this.leftOut = status.nodes_left_out;
    this.now = status.at_ms;
    const isRead = this.body.matches(":hover") || this.body.contains(document.activeElement);
    this.arrange(isRead);
  }

  // Which rows, in which order, saying what.
  arrange(keepOrder = false) {
    const wanted = this.filter.value.trim().toLowerCase();
    const fits = (node) =>
      [node.name, node.state, node.reason ?? "", node.address, node.software]
        .join("\n")
        .toLowerCase()
        .includes(wanted);
    const found = wanted === "" ? this.nodes.slice() : this.nodes.filter(fits);
    found.sort((a, b) => this.compare(a, b));
    const place = keepOrder
      ? new Map([...this.body.rows].map((row, index) => [row.node, index]))
      : new Map();
    const shown = found.slice(0, this.limit);
    if (keepOrder)
      shown.sort(
        (a, b) => (place.get(a.number) ?? Infinity) - (place.get(b.number) ?? Infinity) || 0,
      );
    const rows = shown.map((node) => this.row(node));
    const isSame =
      rows.length === this.body.rows.length &&
      rows.every((row, index) => row === this.body.rows[index]);
    if (!isSame) this.body.replaceChildren(...rows);
    this.tell(found.length, shown.length);
  }

  compare(a, b) {
    const { column, sign } = this.sort;
    const [left, right] = [column.value(a), column.value(b)];
    if (column.text) return sign * words.compare(left, right) || a.number - b.number;
    // What isn't known comes last, whichever way.
    if (left === null || right === null)
      return (left === null) - (right === null) || a.number - b.number;
    return sign * (left - right) || a.number - b.number;
  }

  row(node) {
    let row = this.rows.get(node.number);
    if (!row) {
      row = document.createElement("tr");
      row.node = node.number;
      columns.forEach((column, index) => {
        const cell = document.createElement(index === 0 ? "th" : "td");
        if (index === 0) cell.scope = "row";
        cell.className = [column.text ? "text" : "", column.kind ?? ""].join(" ").trim();
        row.append(cell);
      });
      row.append(this.operateCell(row));
      row.said = [];
      this.rows.set(node.number, row);
    }
    columns.forEach((column, index) => {
      const says = column.says(node, this.now);
      if (row.said[index] === says) return;
      row.said[index] = says;
      row.children[index].textContent = says;
      if (column.text) row.children[index].title = says;
    });
    row.className = node.state;
    row.of = node;
    return row;
  }

  operateCell(row) {
    const [cell, button] = ["td", "button"].map((name) => document.createElement(name));
    cell.className = "operate";
    button.type = "button";
    button.textContent = "Operate";
    button.addEventListener("click", () => this.operate(row.of));
    cell.append(button);
    return cell;
  }

  tell(found, shown) {
    const all = this.nodes.length + this.leftOut;
    const parts = [
      found === all ? counted(all, "node") : `${count(found)} of ${counted(all, "node")}`,
    ];
    if (shown < found) parts.push(`${count(shown)} shown`);
    if (this.leftOut > 0) parts.push(`${count(this.leftOut)} more are not listed`);
    setText(document.getElementById("node-count"), parts.join("; "));
    document.getElementById("no-nodes").hidden = all > 0;
    this.table.hidden = all === 0;
    this.more.hidden = shown >= found;
  }
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
