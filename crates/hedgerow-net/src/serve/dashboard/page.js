// The page: listens to the server's events, shows the latest, and reconnects when the server comes
// back.

import { drawBytes, drawError, drawImportance, drawKernels, drawShares } from "./charts.js";
import { EventList } from "./events.js";
import { NodeTable, setText } from "./nodes.js";
import { Operators } from "./operators.js";
import { Track } from "./track.js";
import { bytes, count, counted, number, percent, span } from "./words.js";

// An event comes every second; after so long without one, nobody is there.
const silence = 8000;
const shortestWait = 1000;
const longestWait = 15000;

const track = new Track();
const operators = new Operators(({ reads }) => (reads ? connect() : lock()));
const table = new NodeTable((node) => operators.openFor(node));
const list = new EventList();
let status = null;
let events = null;
let heard = 0;
let wait = shortestWait;
let needsHistory = true;
let isAsking = false;
let beats = 0;
// Whether a login is needed.
let isLocked = false;

function connect() {
  isLocked = false;
  events?.close();
  needsHistory = true;
  heard = performance.now();
  events = new EventSource("events");
  events.addEventListener("status", (event) => receive(JSON.parse(event.data)));
  events.addEventListener("error", lost);
  operators.refresh().then((rights) => {
    if (rights?.reads === false) lock();
  });
}

function lock() {
  isLocked = true;
  events?.close();
  events = null;
  tell("waiting", "log in to see the run");
  operators.askToLogIn();
}

function lost() {
  if (!events) return;
  events.close();
  events = null;
  tell("away", "server away, trying again");
  // Many pages don't come back all at once.
  setTimeout(() => isLocked || connect(), wait * (0.75 + Math.random() / 2));
  wait = Math.min(2 * wait, longestWait);
}

function receive(latest) {
  heard = performance.now();
  wait = shortestWait;
  const isOther = status !== null && (latest.run !== status.run || latest.round < status.round);
  if (isOther) {
    track.load([]);
    table.clear();
    needsHistory = true;
  }
  status = latest;
  operators.status = status;
  tell("live", "live");
  grow();
  if (needsHistory) loadHistory();
  showNumbers();
  table.show(status);
  list.show(status);
  beats += 1;
  // Lines move with every event, bars more slowly.
  drawCharts(beats % 3 === 1);
}

async function loadHistory() {
  if (isAsking) return;
  isAsking = true;
  const { run } = status;
  try {
    const answer = await fetch("api/history", {
      cache: "no-store",
      signal: AbortSignal.timeout(silence),
    });
    if (!answer.ok) return;
    const points = await answer.json();
    // The server may have gone, and come back with another run, while this was on its way.
    if (status.run !== run) return;
    track.load(points);
    needsHistory = false;
    grow();
    drawCharts(true);
  } catch {
    // Asked again with the next event.
  } finally {
    isAsking = false;
  }
}

// The latest status as a point of the past: it knows all rounds before the open one.
function grow() {
  if (status.round === 0) return;
  const { at_ms, mse, window_mse, selected } = status;
  track.add({ round: status.round - 1, at_ms, mse, window_mse, selected });
}

function tell(state, words) {
  const connection = document.getElementById("connection");
  setText(connection, words);
  connection.dataset.state = state;
  document.body.dataset.state = state;
}

function say(id, text) {
  setText(document.getElementById(id), text);
}

function showNumbers() {
  const { needed, uploads, kernels, selected } = status;
  document.title = `Hedgerow, round ${count(status.round)}`;
  say(
    "run",
    `Run ${status.run}; method ${status.method}, budget ${count(status.budget)}; ` +
      `up for ${span(status.uptime_ms)}`,
  );
  say("mse", number(status.mse));
  say("samples", counted(status.samples, "sample"));
  say("window-mse", number(status.window_mse));
  say("window", `the last ${count(status.window_rounds)} rounds`);
  say("window-words", `Lately: the last ${count(status.window_rounds)} rounds.`);
  showMeanForecast();
  say("round", count(status.round));
  say("open-for", `open for ${span(status.open_ms)}`);
  say("uploads", needed === null ? count(uploads) : `${count(uploads)} of ${count(needed)}`);
  say("quorum", status.shortage ?? status.quorum);
  const progress = document.getElementById("progress");
  progress.max = Math.max(1, needed ?? 1);
  progress.value = Math.min(uploads, progress.max);
  progress.hidden = needed === null;
  say("pace", number(status.rounds_per_second));
  say("connected", count(status.connected));
  say("known", `of ${count(status.nodes_known)} that ever joined`);
  say("late", count(status.late));
  say("refused", count(status.refused));
  say("bytes-words", bytesWords());
  document.getElementById("warning").hidden = status.store_ok;
  document.getElementById("paused").hidden = !status.paused;
  showSettings(status.settings_changed ?? []);
  document.getElementById("kernels").hidden = kernels.length === 0;
  showImportance(status.importance ?? null);
  const kernel = kernels[selected];
  say("selected", kernel?.name ?? "none yet");
  say(
    "selected-words",
    kernel
      ? `number ${count(selected + 1)} of ${count(kernels.length)}; ` +
          `lately in ${percent(kernel.selected_share)} of rounds`
      : "",
  );
  say(
    "bars-caption",
    `Selected (coloured) and voted for (grey), in the last ${count(status.window_rounds)} rounds`,
  );
}

function showSettings(changed) {
  const words = changed.map(({ key, value, in_file }) => `${key} is ${value}, not ${in_file}`);
  document.getElementById("changed").hidden = words.length === 0;
  say("changed", `Settings that an operator has changed: ${words.join("; ")}.`);
}

// What a node has for free, beside the error that the federation reaches.
function showMeanForecast() {
  const { mean_forecast_mse: mean, mse, scale_version: scale } = status;
  const isKnown = typeof mean === "number";
  say("mean-forecast", number(mean));
  say("skill", isKnown ? skillWords(mse, mean) : "not known: nodes don't report their labels");
  say("scale", scale > 0 ? `lately; the scale changed ${times(scale - 1)}` : "lately");
  say(
    "mean-words",
    isKnown
      ? "The mean of a node's labels costs nothing: it is from the summaries of all labels that " +
          "nodes report for scaling."
      : "",
  );
}

function skillWords(mse, mean) {
  if (mse === null || mean <= 0) return "the mean of all its labels";
  const share = percent(Math.abs(1 - mse / mean));
  return mse <= mean ? `the run's error is ${share} less` : `the run's error is ${share} more`;
}

function times(many) {
  if (many === 0) return "never since the first";
  return many === 1 ? "once" : `${count(many)} times`;
}

function showImportance(importance) {
  document.getElementById("importance").hidden = importance === null;
  if (importance === null) return;
  const isKnown = importance.rounds.length > 0;
  document.getElementById("no-importance").hidden = isKnown;
  document.getElementById("importance-charts").hidden = !isKnown;
  say(
    "importance-unit",
    importance.has_label_unit ? "mean squared error" : "loss, in the scaled unit,",
  );
  const more = importance.left_out;
  say("importance-more", more > 0 ? `${count(more)} more columns are not listed.` : "");
}

function bytesWords() {
  const messages = status.messages_up + status.messages_down;
  const wire = status.wire_up + status.wire_down;
  const naive = status.naive_up + status.naive_down;
  if (messages === 0) return "Nothing was sent yet.";
  const words =
    `${bytes(messages)} in messages, ` +
    `${bytes(wire)} on the wire with frames and encryption.`;
  if (naive === 0) return words;
  const times = number(Number((naive / messages).toPrecision(3)));
  return (
    `${words} The naive extension's messages would have had ${bytes(naive)}: ` +
    `${times} times as many.`
  );
}

function chosen(name) {
  return document.querySelector(`input[name="${name}"]:checked`).value;
}

function drawCharts(all) {
  if (!status || document.hidden) return;
  const view = chosen("span");
  const points = view === "recent" ? track.recent : track.whole;
  drawError(points, chosen("axis"), view, status.mean_forecast_mse ?? null);
  if (!all) return;
  if (status.kernels.length > 0) {
    drawShares(track.whole, status.kernels);
    drawKernels(status.kernels, status.selected);
  }
  if (status.importance?.rounds.length > 0) drawImportance(status.importance);
  drawBytes(status);
}

for (const input of document.querySelectorAll("input[type=radio]"))
  input.addEventListener("change", () => drawCharts(false));
for (const change of ["(prefers-color-scheme: dark)", "(max-width: 40rem)"]) {
  matchMedia(change).addEventListener("change", () => drawCharts(true));
}
document.addEventListener("visibilitychange", () => drawCharts(true));
setInterval(() => {
  if (events && performance.now() - heard > silence) lost();
}, 1000);
connect();
