// What operators do: they log in, choose what the server shall do, confirm it, and see what came of
// it.

import { setText } from "./nodes.js";
import { count } from "./words.js";

const patience = 60000;

const ofNodes = [
  {
    action: "kick",
    label: "End its stream",
    words: "The node may join again at once.",
    fits: (node) => node.connected,
  },
  {
    action: "quarantine",
    label: "Put in quarantine",
    words: "It hears and predicts but contributes nothing, and rounds don't wait for it.",
    asks: "Reason",
    field: "reason",
    fits: (node) => !["quarantined", "banned", "revoked"].includes(node.state),
  },
  {
    action: "release",
    label: "Release from quarantine",
    words: "It contributes again.",
    fits: (node) => node.state === "quarantined",
  },
  {
    action: "ban",
    label: "Ban",
    words: "Its stream ends, and it can't join until the ban is lifted.",
    asks: "Reason, which the node hears",
    field: "reason",
    fits: (node) => node.state !== "banned",
  },
  {
    action: "unban",
    label: "Lift the ban",
    words: "It may join again.",
    fits: (node) => node.state === "banned",
  },
  {
    action: "forget",
    label: "Remove from the run",
    words: "It leaves all tables. If its name joins again, it is a new node.",
    isFinal: true,
    fits: (node) => !node.connected,
  },
];

const ofRun = [
  {
    action: "pause",
    label: "Pause",
    words: "The open round stays open until the run is resumed. Nodes go on predicting.",
    fits: (status) => !status.paused,
  },
  {
    action: "resume",
    label: "Resume",
    words: "Rounds close again.",
    fits: (status) => status.paused,
  },
  {
    action: "rollback",
    label: "Roll back",
    words: "What was learned since that round is lost. Nodes follow.",
    asks: "Round of a snapshot",
    field: "round",
    isFinal: true,
    fits: () => true,
  },
  {
    action: "reset-scale",
    label: "Reset the scale",
    words: "The scale and all reports are dropped, and nodes agree on a new scale.",
    isFinal: true,
    fits: () => true,
  },
  {
    action: "set",
    label: "Change a setting",
    words:
      "It holds at once, and over restarts. Without a value, the setting is that of the file again.",
    asks: "Such as rounds.quorum=80%",
    field: "setting",
    fits: () => true,
  },
  {
    action: "backup",
    label: "Back up",
    words: "The store is copied while the server runs, and the copy is checked.",
    asks: "Name of a new file beside the store",
    field: "path",
    fits: () => true,
  },
];

const find = (id) => document.getElementById(id);

export class Operators {
  // `changed` is called when somebody has logged in or out.
  constructor(changed) {
    this.changed = changed;
    this.csrf = null;
    this.status = null;
    find("log-in").addEventListener("click", () => this.askToLogIn());
    find("log-out").addEventListener("click", () => this.logOut());
    find("operate").addEventListener("click", () => this.open("This run", ofRun, this.status));
    this.onSubmit("login", () => this.logIn());
    this.onSubmit("deed", () => this.perform());
    find("deed-action").addEventListener("change", () => this.choose());
    for (const button of document.querySelectorAll("dialog button[value=close]"))
      button.addEventListener("click", () => button.closest("dialog").close());
  }

  onSubmit(id, handler) {
    find(id)
      .querySelector("form")
      .addEventListener("submit", (event) => {
        event.preventDefault();
        handler();
      });
  }

  // What this page may do; null if the server can't be asked.
  async refresh() {
    try {
      const answer = await fetch("api/session", { cache: "no-store" });
      if (!answer.ok) return null;
      const rights = await answer.json();
      this.take(rights);
      return rights;
    } catch {
      return null;
    }
  }

  take({ csrf }) {
    this.csrf = csrf;
    document.body.dataset.operator = csrf === null ? "no" : "yes";
  }

  askToLogIn() {
    setText(find("login-error"), "");
    if (!find("login").open) find("login").showModal();
    find("token").focus();
  }

  async logIn() {
    const { answer, told } = await this.post("api/login", { token: find("token").value });
    if (!answer?.ok) {
      setText(find("login-error"), told.message);
      return;
    }
    find("token").value = "";
    find("login").close();
    this.take(told);
    this.changed(told);
  }

  async logOut() {
    const { answer, told } = await this.post("api/logout", {});
    // A session that has ended needs no end.
    const rights = answer?.ok ? told : await this.refresh();
    if (rights === null) return;
    this.take(rights);
    this.changed(rights);
  }

  openFor(node) {
    this.open(`Node ${node.name}`, ofNodes, node);
  }

  open(title, all, subject) {
    if (subject === null) return;
    this.deeds = all.filter((deed) => deed.fits(subject));
    this.subject = subject;
    setText(find("deed-title"), title);
    const choices = this.deeds.map(({ action, label }) => new Option(label, action));
    find("deed-action").replaceChildren(...choices);
    this.choose();
    find("deed").showModal();
  }

  // Shows what the chosen action does and needs.
  choose() {
    const deed = this.deed();
    setText(find("deed-words"), deed?.words ?? "");
    setText(find("deed-asks"), deed?.asks ?? "");
    find("deed-value").value = "";
    find("deed-value-line").hidden = !deed?.asks;
    find("deed-sure").checked = false;
    find("deed-sure").required = Boolean(deed?.isFinal);
    find("deed-sure-line").hidden = !deed?.isFinal;
    find("deed-choices").replaceChildren();
    this.tell("", "");
    if (deed?.field === "round") this.offerSnapshots();
  }

  deed() {
    return this.deeds.find(({ action }) => action === find("deed-action").value);
  }

  async offerSnapshots() {
    const { answer, told } = await this.post("api/operate", { action: "snapshots" });
    if (!answer?.ok || this.deed()?.field !== "round") return;
    const choices = told.snapshots.map(({ round, at_ms }) => {
      const when = at_ms > 0 ? new Date(at_ms).toLocaleString("en-GB") : "";
      return new Option(when, round);
    });
    find("deed-choices").replaceChildren(...choices.reverse());
  }

  async perform() {
    const deed = this.deed();
    if (!deed) return;
    const request = { action: deed.action, ...argument(deed, find("deed-value").value.trim()) };
    if (ofNodes.includes(deed)) request.node = this.subject.name;
    find("deed-do").disabled = true;
    const { answer, told } = await this.post("api/operate", request);
    find("deed-do").disabled = false;
    find("deed-sure").checked = false;
    if (answer?.ok) this.tell("", outcomeWords(told));
    else this.tell(told.message, "");
    if (answer?.status === 403) this.refresh();
  }

  tell(error, outcome) {
    setText(find("deed-error"), error);
    setText(find("deed-outcome"), outcome);
  }

  async post(path, content) {
    try {
      const answer = await fetch(path, {
        method: "POST",
        headers: { "content-type": "application/json", "x-hedgerow-csrf": this.csrf ?? "" },
        body: JSON.stringify(content),
        signal: AbortSignal.timeout(patience),
      });
      return { answer, told: await answer.json() };
    } catch {
      return { answer: null, told: { message: "The server can't be reached." } };
    }
  }
}

// What an action needs beside its name.
function argument({ field }, value) {
  if (field === "round") return { to: { round: Number(value) } };
  if (field === "setting") {
    const at = value.indexOf("=");
    return at < 0
      ? { key: value }
      : { key: value.slice(0, at).trim(), value: value.slice(at + 1).trim() };
  }
  return field ? { [field]: value } : {};
}

function outcomeWords(told) {
  switch (told.outcome) {
    case "rolled-back":
      return `The run was set back from round ${count(told.from)} to round ${count(told.to)}.`;
    case "set":
      return `${told.key} is ${told.now}; it was ${told.before}.`;
    case "backed-up":
      return `${told.path} has round ${count(told.round)}.`;
    default:
      return told.message ?? "Done.";
  }
}
