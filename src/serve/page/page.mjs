// The status page: listens to the worker's events, and shows each second what they say.
//
// Owns the stream and the clock of silence: when nothing is heard any more the page says so at once, for numbers that are old
// look like numbers that are new. Computes nothing from the browser's time of day.

import { commandButton, fill, make, mark, outside, show, tellCommand, write } from "./dom.mjs";
import { tellOverview, tellRequests } from "./overview.mjs";
import { Past } from "./past.mjs";
import { queueView } from "./queue.mjs";
import { judge, summary } from "./verdict.mjs";
import { clock, plain, seconds, span } from "./words.mjs";

// A status comes each second. Without one for so long, what is shown is not how it is.
const SILENCE = 3500;
// A stream that is silent for so long, or was refused, is opened anew.
const PATIENCE = 10_000;
// A page that nobody looks at for so long lets go of its stream, of which a worker has few.
const UNSEEN = 5 * 60_000;
// With more queues than these each is folded, but for the overview.
const UNFOLDED = 4;

const at = (id) => document.getElementById(id);
const past = new Past();
let [last, heard, opened, broken, source] = [null, null, 0, false, null];

// ---- the stream ----

function open() {
  source?.close();
  [source, opened] = [new EventSource("/events"), performance.now()];
  let is_heard = false;
  source.addEventListener("history", (event) => past.load(JSON.parse(event.data)));
  source.addEventListener("status", (event) => {
    is_heard = true;
    [last, heard, broken] = [JSON.parse(event.data), performance.now(), false];
    past.add(last);
    tell();
  });
  source.addEventListener("error", () => {
    // A stream ends now and then, for its worker hands out none for ever: the first failure says nothing yet.
    if (is_heard) return open();
    broken = true;
    tell();
  });
}

function tick() {
  const now = performance.now();
  if (document.hidden && now - hiddenSince > UNSEEN) return close();
  const is_silent = now - (heard ?? 0) > PATIENCE;
  if (source === null || ((source.readyState === EventSource.CLOSED || is_silent) && now - opened > PATIENCE / 2))
    open();
  if (broken || heard === null || now - heard > SILENCE) tell();
}

let hiddenSince = 0;

function close() {
  source?.close();
  [source, broken] = [null, true];
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) hiddenSince = performance.now();
  else if (source === null) open();
  else tell();
});

// ---- the verdict ----

const verdict = { level: null, kind: null };

function tell() {
  const silent = heard === null ? null : performance.now() - heard;
  if (last === null) return tellVerdict(broken ? unanswered() : asking());
  const judged = judge(last, past);
  const is_old = broken || silent > SILENCE;
  mark(document.body, "data-old", is_old || null);
  if (is_old) return tellVerdict(cutOff(judged, silent));
  tellVerdict({ ...judged, note: summary(last, past) });
  if (!document.hidden) tellAll(last);
}

const asking = () => ({
  level: "wait",
  word: "Asking",
  headline: "Asking the worker how it is.",
  note: "",
  kind: "asking",
  findings: [],
});

const unanswered = () => ({
  ...asking(),
  level: "act",
  word: "No answer",
  headline: "The worker does not answer.",
  kind: "unanswered",
  note: "Nothing was heard of it yet. This page asks again by itself: it may be starting, or too many such pages are open.",
});

// What is shown is as old as the silence is long.
function cutOff(judged, silent) {
  const since = `${clock(last.now)} UTC`;
  const known = `Its last word was: ${judged.headline}`;
  const note = `What stands below is ${seconds(silent)} old. This page asks again by itself.`;
  const is_gone = last.phase === "draining";
  return {
    level: is_gone ? "watch" : "act",
    word: is_gone ? "Gone" : "Cut off",
    headline: is_gone
      ? `The worker is gone: it was draining, and was last heard at ${since}.`
      : `Cut off: nothing was heard of the worker since ${since}.`,
    more: known,
    note,
    kind: is_gone ? "gone" : "cut off",
    findings: [],
    commands: [],
  };
}

const lead = { more: make("p", { class: "more-of-it" }), commands: make("p", { class: "commands" }) };
at("headline").after(lead.more, lead.commands);

function tellVerdict({ level, word, headline, more = "", note, kind, commands = [], findings }) {
  mark(at("verdict"), "data-level", level);
  write(at("headline"), headline);
  write(lead.more, more);
  show(lead.more, more !== "");
  tellCommands(lead.commands, commands);
  write(at("summary"), note);
  fill(at("findings"), findings, (finding) => finding.kind, madeFinding, toldFinding);
  const title = `${word}${last?.worker ? ` · ${plain(last.worker, 60)}` : ""} · Leasehold`;
  if (document.title !== title) document.title = title;
  // Spoken when it changes, and not at every second of a countdown.
  if (verdict.kind !== kind)
    write(at("spoken"), `${headline} ${findings.map((finding) => finding.headline).join(" ")}`);
  verdict.kind = kind;
}

function tellCommands(parent, lines) {
  const all = lines.filter((line) => line !== null);
  show(parent, all.length > 0);
  fill(
    parent,
    all,
    (line) => line,
    () => commandButton(),
    tellCommand,
  );
}

function madeFinding() {
  const parts = {
    label: make("span", { class: "label" }),
    text: outside({ class: "headline" }),
    more: outside({ class: "note" }),
    commands: make("span", { class: "commands" }),
  };
  return {
    element: make("li", {}, parts.label, make("div", {}, parts.text, " ", parts.more, parts.commands)),
    ...parts,
  };
}

function toldFinding(item, { level, headline, more, commands }) {
  mark(item.element, "data-level", level);
  write(item.label, level === "act" ? "Act" : "Watch");
  write(item.text, headline);
  write(item.more, more);
  tellCommands(item.commands, commands);
}

// ---- the rest ----

const workerFacts = ["Worker", "Version", "Up", "Its time"].map((name) => ({ name, value: outside() }));
at("worker").append(
  ...workerFacts.map(({ name, value }) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
);

function tellAll(status) {
  const told = [plain(status.worker, 60), plain(status.version, 40), span(status.up_ms), `${clock(status.now)} UTC`];
  workerFacts.forEach(({ value }, index) => write(value, told[index]));
  const queues = Object.entries(status.queues);
  tellOverview(queues, status, past);
  fill(
    at("queues"),
    queues,
    ([name]) => name,
    ([name]) => madeQueue(name, queues.length),
    (view, [name, queue]) => view.tell(queue, status, past),
  );
  tellRequests(status);
}

function madeQueue(name, count) {
  const view = queueView(name);
  view.element.open = count <= UNFOLDED;
  // What is folded is not told; when it is opened it is told at once.
  view.element.addEventListener("toggle", () => view.element.open && last && view.tell(last.queues[name], last, past));
  return view;
}

open();
setInterval(tick, 1000);
