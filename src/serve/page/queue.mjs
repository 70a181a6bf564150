// One queue on the page: how it does, what runs, what failed lately, and how its deliveries ended.
//
// Made once, and told each second. What it shows of messages is text from outside.

import { commandButton, fact, make, mark, outside, show, tellCommand, tellFact, write, writeOutside } from "./dom.mjs";
import { counts, failures, running } from "./lists.mjs";
import { bars, figure, lines } from "./chart.mjs";
import { deadOf } from "./past.mjs";
import { recordOf } from "./verdict.mjs";
import { commands, number, rate, seconds, several, span } from "./words.mjs";

// A name that leaves no room for commands beside it.
const LONG = 20;

export function stateOf(queue, phase) {
  if (!queue.polls_come_back) return ["act", "hangs"];
  if (queue.pauses.length > 0) return ["act", "paused"];
  if (queue.unguarded) return ["act", "unguarded"];
  if (phase === "draining") return ["watch", "draining"];
  if (queue.trials.length > 0) return ["watch", "trickle"];
  return ["well", "receiving"];
}

export const beatsOf = ({ beats }) => beats.delivery.renewed + beats.execution.renewed;
const lostOf = ({ beats, leases_lost }) =>
  Math.max(beats.delivery.lost + beats.execution.lost, leases_lost.delivery + leases_lost.execution);

// ---- the numbers ----

function facts() {
  const names = [
    "Done",
    "In flight",
    "Oldest message",
    "p50",
    "p99 of visibility timeout",
    "Waiting in SQS",
    "Beats",
    "Suppressed",
    "Retries",
    "Dead",
  ];
  const all = names.map(fact);
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i"));
  all[4].value.after(bar);
  const element = make("dl", { class: "facts" }, ...all.map((one) => one.element));
  const tell = (name, queue, past) => {
    const [done, flight, oldest, p50, p99, depth, beats, suppressed, retries, dead] = all;
    const timeout = queue.visibility_timeout * 1000;
    const [lost, sums] = [lostOf(queue), past.sums(name)];
    tellFact(done, rate(past.rate(name, "done")), `${number(queue.outcomes.done)} since the start`);
    tellFact(
      flight,
      `${queue.running_total} of ${queue.slots}`,
      queue.stuck > 0 ? `${queue.stuck} stuck` : `${several(queue.in_hand, "delivery", "deliveries")} in hand`,
      queue.stuck > 0 ? "act" : null,
    );
    tellFact(
      oldest,
      span(queue.oldest_ms),
      queue.oldest_ms === null ? "none came in a minute" : "of the last minute’s",
    );
    tellFact(
      p50,
      span(queue.handler_p50_ms),
      queue.handler_p50_ms === null ? "no run yet" : "half the runs are shorter",
    );
    const part = queue.handler_p99_ms === null ? 0 : queue.handler_p99_ms / timeout;
    tellFact(
      p99,
      `${span(queue.handler_p99_ms)} of ${seconds(timeout)}`,
      queue.handler_p99_ms === null ? "no run yet" : p99Note(part),
      part > 1 ? "watch" : null,
    );
    bar.firstChild.style.transform = `scaleX(${Math.min(1, part)})`;
    tellFact(
      depth,
      queue.depth === null ? "–" : number(queue.depth.visible),
      queue.depth === null ? "SQS is being asked" : depthNote(queue.depth),
    );
    tellFact(
      beats,
      number(beatsOf(queue)),
      lost > 0
        ? `${several(lost, "lease")} lost`
        : queue.late_beats > 0
          ? `${number(queue.late_beats)} late`
          : "none late, none lost",
      lost > 0 ? "watch" : null,
    );
    tellFact(suppressed, number(queue.outcomes.suppressed), "duplicates, not run");
    tellFact(retries, number(queue.outcomes.failed), lately(sums.failed), sums.failed > 0 ? "watch" : null);
    tellFact(dead, number(deadOf(queue.outcomes)), lately(sums.dead), sums.dead > 0 ? "act" : null);
  };
  return { element, tell };
}

const lately = (n) => `${n === 0 ? "none" : number(n)} in 15 minutes`;
const p99Note = (part) => (part > 1 ? "longer: runs need beats" : `${Math.round(part * 100)} %`);
const depthNote = ({ in_flight, delayed }) => `about; ${number(in_flight)} in flight, ${number(delayed)} delayed`;

// ---- the charts ----

function charts() {
  const legend = [
    ["done", "done"],
    ["suppressed", "suppressed"],
    ["failed", "failed"],
    ["dead", "dead"],
  ];
  const outcomes = figure("Outcomes", bars(), legend);
  const flight = figure("Handlers running", lines());
  const p99 = figure("p99 and visibility timeout", lines());
  const element = make("div", { class: "charts" }, outcomes.element, flight.element, p99.element);
  const tell = (name, queue, past, now) => {
    const [samples, sums] = [past.samples(name), past.sums(name)];
    const highest = outcomes.tell(samples, now);
    write(outcomes.note, highest === 0 ? "none" : `up to ${rate(highest)}`);
    legend.forEach(([count, text], index) => write(outcomes.keys[index], `${number(sums[count])} ${text}`));
    flight.tell(
      samples.map(({ at, in_flight }) => [at, in_flight, queue.slots]),
      now,
    );
    write(flight.note, `${queue.slots} slots`);
    const most = Math.max(0, ...samples.map(({ in_flight }) => in_flight));
    write(flight.words, most === 0 ? "none ran" : `at most ${number(most)} at once`);
    p99.tell(
      samples.map(({ at, p99_ms, visibility_timeout }) => [at, p99_ms, visibility_timeout * 1000]),
      now,
    );
    write(p99.note, `${queue.visibility_timeout} s`);
    const known = samples.map(({ p99_ms }) => p99_ms).filter((ms) => ms !== null);
    write(p99.words, known.length === 0 ? "no run yet" : `p99 at most ${span(Math.max(...known))}`);
  };
  return { element, tell };
}

// ---- counts since the start ----

const ENDS = [
  ["done", "done"],
  ["suppressed", "suppressed: done or dead before"],
  ["failed", "failed, tried again"],
  ["dead_lettered", "dead-lettered"],
  ["dropped", "dropped"],
  ["not_yet", "not yet, said the handler"],
  ["unavailable", "the handler was not there"],
  ["interrupted", "interrupted"],
  ["held", "held by another run"],
  ["no_verdict", "the table gave no verdict"],
  ["body_away", "the body was not there"],
  ["kept", "kept, for the redrive policy"],
  ["left", "left to come again"],
];
const ALWAYS = ["done", "suppressed", "failed", "dead_lettered"];

const largestFirst = (of) => Object.entries(of).sort(([a, one], [b, other]) => other - one || (a < b ? -1 : 1));

function beatCounts({ beats, leases_lost, late_beats }) {
  const of = (which, name) => [
    [`${name}: renewed`, beats[which].renewed],
    [`${name}: failed, tried again`, beats[which].transient],
    [`${name}: lost`, Math.max(beats[which].lost, leases_lost[which])],
    [`${name}: cannot be extended any more`, beats[which].final],
  ];
  const all = [...of("delivery", "delivery lease"), ...of("execution", "execution lease"), ["late beats", late_beats]];
  return all.filter(([what, count]) => count > 0 || what.endsWith("renewed"));
}

// ---- the whole ----

export function queueView(name) {
  const id = `queue-${encodeURIComponent(name)}`;
  const [state, kind, brief] = [
    make("span", { class: "state" }),
    make("span", { class: "note" }),
    make("span", { class: "brief" }),
  ];
  const heading = outside();
  writeOutside(heading, name, 120);
  let guard = null;
  const guarded = (job) => recordOf({ guard })(job);
  const views = { facts: facts(), charts: charts(), running: running(guarded), failures: failures(name, guarded) };
  const ends = counts("How deliveries ended", "None has ended yet.");
  const dead = counts("Dead, by reason", "Nothing has died since the start.", {
    name: "dlq peek",
    of: (code) => commands.deadOfReason(name, code),
  });
  const failed = counts("Failed attempts, by reason", "No attempt has failed since the start.");
  const beats = counts("Beats", "");
  const buttons = [commandButton(), commandButton()];
  const element = make(
    "details",
    { class: name.length > LONG ? "queue long" : "queue", id, open: true },
    make("summary", {}, make("h2", {}, heading), state, kind, brief),
    make("p", { class: "commands" }, ...buttons.map((button) => button.element)),
    views.facts.element,
    views.charts.element,
    views.running.element,
    views.failures.element,
    make("div", { class: "counts" }, ends.element, dead.element, failed.element, beats.element),
  );
  const tell = (queue, status, past) => {
    guard = queue.guard;
    const [level, word] = stateOf(queue, status.phase);
    write(state, word);
    mark(state, "data-level", level);
    write(kind, `${queue.fifo ? "FIFO" : "standard"}, guard ${queue.guard === "none" ? "none" : "on"}${polled(queue)}`);
    write(brief, `${rate(past.rate(name, "done"))} done, ${queue.running_total} of ${queue.slots} running`);
    const is_paused = queue.pauses.length > 0;
    tellCommand(buttons[0], is_paused ? commands.resume(name) : commands.pause(name));
    tellCommand(buttons[1], commands.dead(name));
    show(
      buttons[0].element,
      Object.values(status.queues).some((one) => one.guard !== "none"),
    );
    if (!element.open) return;
    views.facts.tell(name, queue, past);
    views.charts.tell(name, queue, past, status.now);
    views.running.tell(
      queue.running,
      runningWords(queue),
      "No handler runs. That is normal while no message comes.",
      status.now,
    );
    views.failures.tell(queue.failures, failureWords(queue), "No attempt has failed lately.", status.now);
    ends.tell(
      ENDS.filter(([end]) => queue.outcomes[end] > 0 || ALWAYS.includes(end)).map(([end, words]) => [
        words,
        queue.outcomes[end],
      ]),
    );
    dead.tell(largestFirst(queue.dead_by_code));
    failed.tell(largestFirst(queue.failed_by_code));
    beats.tell(beatCounts(queue));
  };
  return { element, id, tell };
}

const polled = ({ polled_ms_ago }) =>
  polled_ms_ago === null ? ", not yet polled" : `, polled ${span(polled_ms_ago)} ago`;

function runningWords({ running: shown, running_total, past_p99 }) {
  const late = shown.filter((job) => job.past_p99).length;
  const of =
    running_total > shown.length ? `the ${shown.length} longest of ${number(running_total)}` : number(running_total);
  return `${of}${late > 0 ? `, ${late} past p99` : ""}`;
}

const failureWords = ({ failures: shown }) => (shown.length === 0 ? "" : `the last ${shown.length}`);
