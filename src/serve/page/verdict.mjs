// What a status means, in words: how the worker is, and what somebody has to do, worst first.
//
// Pure. `act` is for a person to mend; `watch` mends itself, or is on purpose, and should be known. Says nothing that the status
// does not say.

import { commands, listed, number, plain, several, span } from "./words.mjs";

const outside = (text) => plain(text, 300);

const named = (queues) => listed(queues.map((queue) => plain(queue, 60)));

// A pause as the worker tells it, with the queues that it holds up.
function pauses(status, kind) {
  const found = new Map();
  for (const [queue, of] of Object.entries(status.queues)) {
    for (const pause of [of[kind] ?? []].flat()) {
      const { what, cause, ends } = pause;
      const key = JSON.stringify([what, cause]);
      if (!found.has(key)) found.set(key, { what, cause, ends, queues: [] });
      found.get(key).queues.push(queue);
    }
  }
  return [...found.values()];
}

// Who or what holds up a queue, by the worker's name for it.
function kindOf(what) {
  if (what === "an operator" || what.startsWith("intake of ")) return "operator";
  if (what.startsWith("the brake of ")) return "brake";
  if (what.startsWith("receiving from ")) return "receiving";
  if (what.startsWith("deletes from ")) return "deletes";
  return "away";
}

function headlineOf({ what, queues }) {
  const names = named(queues);
  switch (kindOf(what)) {
    case "operator":
      return `an operator has paused ${names}`;
    case "brake":
      return `the brake of ${names} is on`;
    case "receiving":
      return `nothing can be received from ${names}`;
    case "deletes":
      return `what is finished cannot be deleted from ${names}`;
    default:
      return `${plain(what, 80)} is away`;
  }
}

function commandsOf({ what, queues }) {
  const each = (command) => queues.slice(0, 4).map(command);
  switch (kindOf(what)) {
    case "operator":
      return each(commands.resume);
    case "brake":
      return [...each(commands.dead), ...each(commands.resume)];
    default:
      return [commands.doctor()];
  }
}

// What that means for the queues. Those that something else holds up do not go on either.
function held(queues, status) {
  const all = Object.entries(status.queues);
  if (queues.length === all.length) return all.length === 1 ? "Nothing is received." : "No queue is received from.";
  const others = all.filter(([name]) => !queues.includes(name));
  const rest = others.every(([, queue]) => queue.pauses.length === 0) ? "; the others go on" : "";
  return `${named(queues)} ${queues.length === 1 ? "receives" : "receive"} nothing${rest}.`;
}

// Everything that is to be said of a status, worst first.
function findings(status, past) {
  const all = Object.entries(status.queues);
  const found = [];
  const find = (level, kind, headline, more = "", lines = []) =>
    found.push({ level, kind, headline: `${headline}${stop(headline)}`, more, commands: lines });

  for (const [name, queue] of all) {
    if (queue.polls_come_back) continue;
    find(
      "act",
      "hangs",
      `Hanging: a poll of ${plain(name, 60)} has not come back in its time`,
      "Restart this process. Nothing is lost: what it had comes back at its visibility timeout.",
    );
  }
  if (!status.live && found.length === 0) {
    find("act", "hangs", "Hanging: the process stands still", "Restart it, and give it more processor time.");
  }
  for (const problem of status.problems) {
    const headline = status.phase === "starting" ? "Not started" : "Not all of it was started";
    find("act", "problem", `${headline}: ${outside(problem)}`, "", [commands.doctor()]);
  }
  for (const { what, cause, ends, queues } of pauses(status, "unguarded")) {
    find(
      "act",
      "unguarded",
      `Without a guard, since ${plain(what, 80)} is away: ${named(queues)} may do work twice`,
      `${sentence(cause)} ${sentence(ends)}`,
      [commands.doctor()],
    );
  }
  for (const pause of pauses(status, "pauses")) {
    const level = kindOf(pause.what) === "operator" ? "watch" : "act";
    find(
      level,
      `paused ${pause.what}`,
      `Paused: ${headlineOf(pause)}${sinceProbe(pause.ends)}`,
      `${sentence(pause.cause)} ${held(pause.queues, status)} ${sentence(withoutProbe(pause.ends))}`,
      commandsOf(pause),
    );
  }
  if (status.phase === "draining") {
    const left = status.drain_left_ms === null ? "" : ` ${span(status.drain_left_ms)} left,`;
    const running = all.reduce((sum, [, queue]) => sum + queue.running_total, 0);
    find(
      "watch",
      "draining",
      `Draining:${left} ${running === 0 ? "no handler runs" : `${several(running, "handler")} still ${running === 1 ? "runs" : "run"}`}`,
      "It was told to stop. It takes nothing new, lets what runs finish, and gives the rest back.",
    );
  }
  for (const pause of pauses(status, "trials")) {
    find(
      "watch",
      `trial ${pause.what}`,
      `At a trickle: ${headlineOf(pause).replace(/ is away$/, " was away")}`,
      `${sentence(pause.cause)} ${sentence(pause.ends)}`,
      commandsOf(pause),
    );
  }
  for (const [name, queue] of all) found.push(...ofQueue(plain(name, 60), name, queue, past));
  if (status.stalled_ms !== null) {
    find(
      "watch",
      "stalled",
      `The process stood still for ${span(status.stalled_ms)} within the last minute`,
      "Leases may have ended meanwhile. It wants more processor time or memory, or its machine was suspended.",
    );
  }
  return found.sort((one, other) => order(one) - order(other));
}

// Stable beside that, so that what was found first stands first.
const order = ({ level }) => ["act", "watch"].indexOf(level);

function ofQueue(told, name, queue, past) {
  const found = [];
  const find = (level, kind, headline, more = "", lines = []) =>
    found.push({ level, kind: `${kind} ${name}`, headline: `${headline}.`, more, commands: lines, remark: true });
  if (queue.stuck > 0) {
    find(
      "act",
      "stuck",
      `${several(queue.stuck, "handler")} of ${told} ignore${queue.stuck === 1 ? "s" : ""} cancellation`,
      `${number(queue.stuck)} of ${several(queue.slots, "slot")} ${queue.stuck === 1 ? "is" : "are"} lost until they return. Look at what they wait for; restart if slots run out.`,
    );
  }
  const ended = queue.running.filter(({ lease_left_ms }) => lease_left_ms <= 0);
  if (ended.length > 0) {
    find(
      "watch",
      "ended",
      `${several(ended.length, "handler")} of ${told} run${ended.length === 1 ? "s" : ""} past the end of its lease`,
      "Its beats do not get through, and another worker may have taken the work over.",
      ended.slice(0, 1).map(recordOf(queue)),
    );
  }
  const dead = past.sums(name).dead;
  if (dead > 0) {
    find("watch", "dead", `${number(dead)} of ${told} died in the last 15 minutes`, deathsOf(queue), [
      commands.dead(name),
    ]);
  }
  if (queue.running_total >= queue.slots && queue.oldest_ms !== null && queue.oldest_ms >= 5 * 60_000) {
    find(
      "watch",
      "behind",
      `${told} falls behind: all ${several(queue.slots, "slot")} are busy, and messages wait for ${span(queue.oldest_ms)}`,
      "Its handlers are slow, or its CONCURRENCY is low.",
    );
  }
  return found;
}

function deathsOf(queue) {
  const codes = Object.entries(queue.dead_by_code).sort(([, one], [, other]) => other - one);
  return codes.length === 0
    ? ""
    : `Since the start: ${listed(codes.map(([code, n]) => `${number(n)} ${plain(code, 60)}`))}.`;
}

export const recordOf =
  (queue) =>
  ({ key }) =>
    queue.guard === "none" || key === null ? null : commands.record(key);

const stop = (text) => (/[.!?…]$/.test(text) ? "" : ".");

// The worker's own words, as a sentence.
function sentence(text) {
  const told = outside(text).trim();
  if (told === "") return "";
  return `${told[0].toUpperCase()}${told.slice(1)}${stop(told)}`;
}

// When it is tried again stands in the headline; how it ends, below.
const PROBE = /^(a probe in \d+ s); /;
const sinceProbe = (ends) => (PROBE.test(ends) ? `; ${PROBE.exec(ends)[1]}` : "");
const withoutProbe = (ends) => ends.replace(PROBE, "");

// The verdict: its level, a word for the title, a headline, what is found, and what stays the same of it from second to second.
export function judge(status, past) {
  const found = findings(status, past);
  const worst = found.find(({ remark }) => !remark);
  const rest = found.filter((finding) => finding !== worst);
  if (worst) {
    const { level, kind, headline, more, commands: lines } = worst;
    return {
      level,
      word: wordOf(kind),
      headline,
      more,
      commands: lines,
      findings: rest,
      kind: [kind, ...rest.map((one) => one.kind)].join(),
    };
  }
  const [level, word, headline] = well(status);
  return {
    level,
    word,
    headline,
    more: "",
    commands: [],
    findings: rest,
    kind: [headline, ...rest.map((one) => one.kind)].join(),
  };
}

const WORDS = {
  hangs: "Hanging",
  problem: "Not started",
  unguarded: "Unguarded",
  paused: "Paused",
  draining: "Draining",
  trial: "Trickle",
  stalled: "Stalled",
};
const wordOf = (kind) => WORDS[kind.split(" ")[0]];

function well(status) {
  const names = Object.keys(status.queues);
  if (status.phase === "starting") return ["wait", "Starting", "Starting: it looks at its queues and its table."];
  if (names.length === 0) return ["watch", "No queue", "Working, but on no queue."];
  const queues =
    names.length === 1 ? `${plain(names[0], 60)} is received from.` : `${names.length} queues, all received from.`;
  const is_idle = Object.values(status.queues).every((queue) => queue.in_hand === 0 && queue.oldest_ms === null);
  return ["well", "Working", `${is_idle ? "Working, and idle" : "Working"}. ${queues}`];
}

// What it does, in a line of numbers.
export function summary(status, past) {
  const all = Object.entries(status.queues);
  if (all.length === 0) return "";
  const running = all.reduce((sum, [, queue]) => sum + queue.running_total, 0);
  const sums = all.map(([name]) => past.sums(name));
  const of = (count) => sums.reduce((sum, one) => sum + one[count], 0);
  const now = running === 0 ? "No handler runs" : `${several(running, "handler")} ${running === 1 ? "runs" : "run"}`;
  const counts = [
    [of("done"), "done"],
    [of("suppressed"), "suppressed"],
    [of("failed"), "failed and tried again"],
    [of("dead"), "dead"],
  ];
  const told = counts.filter(([n]) => n > 0).map(([n, what]) => `${number(n)} ${what}`);
  return `${now} now. In the last 15 minutes: ${told.length === 0 ? "nothing" : told.join(", ")}.`;
}
