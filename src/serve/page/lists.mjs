// The lists of one queue: what runs, what failed lately, and counts by a name.
//
// A list changes each second, and what is below it must not move; what it shows of messages is text from outside.

import {
  commandButton,
  fill,
  make,
  mark,
  outside,
  row,
  show,
  table,
  tellCommand,
  write,
  writeOutside,
} from "./dom.mjs";
import { clock, commands, number, seconds, span } from "./words.mjs";

// So many rows at first; a button shows the rest.
const FEW = 8;

// A table that shows a few rows, and all of them when it is told to. Its height follows slowly, so that what is below stays.
function list(name, title, caption, columns, made, told, key) {
  const count = make("span", { class: "note" });
  const empty = make("p", { class: "empty" });
  const { element: grid, body } = table(caption, columns);
  const frame = make("div", { class: "rows" }, grid, empty);
  const more = make("button", { type: "button", class: "more", "aria-expanded": "false", hidden: true });
  const element = make(
    "div",
    { class: `list ${name}` },
    make("div", { class: "title" }, make("h3", {}, title, " ", count), more),
    frame,
  );
  let [all, last, held] = [false, null, []];
  const tell = (things, words, none, now) => {
    last = [things, words, none, now];
    const shown = all ? things : things.slice(0, FEW);
    held = [...held.filter(([at]) => at > now - 30_000 && at <= now), [now, shown.length]];
    frame.style.setProperty("--rows", Math.max(...held.map(([, rows]) => rows)));
    write(count, words);
    show(grid, shown.length > 0);
    show(empty, shown.length === 0);
    write(empty, none);
    show(more, things.length > FEW);
    mark(more, "aria-expanded", all);
    write(more, all ? "Show fewer" : `Show all ${things.length}`);
    fill(body, shown, key, made, (item, thing) => told(item, thing, now));
  };
  more.addEventListener("click", () => {
    all = !all;
    held = [];
    tell(...last);
  });
  return { element, tell };
}

const RUNNING = [
  ["key", "Key"],
  ["attempt", "Attempt"],
  ["age", "Runs for"],
  ["step", "In step"],
  ["lease", "Lease left"],
  ["does", "Its record"],
];

export function running(guarded) {
  const made = () => {
    const [key, attempt, age, step, left] = [
      outside({ class: "key" }),
      make("span"),
      make("span"),
      outside(),
      make("span"),
    ];
    const [late, undo] = [make("span", { class: "tag" }, "past p99"), make("span", { class: "tag" }, "undo")];
    const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i"));
    const button = commandButton("guard get");
    const element = row(RUNNING, [[key], [attempt, undo], [age, late], [step], [bar, left], [button.element]]);
    return { element, key, attempt, age, step, left, late, undo, bar: bar.firstChild, button };
  };
  const told = (item, job) => {
    writeOutside(item.key, job.key ?? `message ${job.message_id}`);
    write(item.attempt, String(job.attempt));
    show(item.undo, job.undo);
    write(item.age, span(job.age_ms));
    show(item.late, job.past_p99);
    writeOutside(item.step, job.step ?? "–", 200);
    write(item.left, job.lease_left_ms > 0 ? `${seconds(job.lease_left_ms)} of ${seconds(job.lease_ms)}` : "ended");
    mark(item.element, "data-level", job.lease_left_ms > 0 ? null : "act");
    item.bar.style.transform = `scaleX(${Math.max(0, Math.min(1, job.lease_left_ms / Math.max(1, job.lease_ms)))})`;
    tellCommand(item.button, guarded({ key: job.key }));
  };
  return list(
    "running",
    "Running",
    "Handlers that run, the longest first",
    RUNNING,
    made,
    told,
    ({ message_id, attempt }) => `${message_id} ${attempt}`,
  );
}

const FAILURES = [
  ["when", "Time"],
  ["key", "Key"],
  ["attempt", "Attempt"],
  ["code", "Code"],
  ["error", "Error"],
  ["follows", "What follows"],
  ["does", "Look"],
];

export function failures(name, guarded) {
  const made = () => {
    const [ago, at, key, attempt] = [
      make("span"),
      make("span", { class: "note" }),
      outside({ class: "key" }),
      make("span"),
    ];
    const [code, error, follows, good] = [
      outside({ class: "code" }),
      outside(),
      outside(),
      make("span", { class: "tag" }, "for good"),
    ];
    const [record, dead] = [commandButton("guard get"), commandButton("dlq peek")];
    const cells = [[ago, at], [key], [attempt], [code, good], [error], [follows], [record.element, dead.element]];
    return { element: row(FAILURES, cells), ago, at, key, attempt, code, error, follows, good, record, dead };
  };
  const told = (item, failure, now) => {
    write(item.ago, `${span(Math.max(0, now - failure.at))} ago`);
    write(item.at, clock(failure.at));
    writeOutside(item.key, failure.key ?? `message ${failure.message_id}`);
    write(item.attempt, failure.attempt === 0 ? "–" : String(failure.attempt));
    writeOutside(item.code, failure.code, 100);
    show(item.good, failure.permanent);
    writeOutside(item.error, failure.error, 600);
    writeOutside(item.follows, failure.follows, 200);
    tellCommand(item.record, guarded(failure));
    tellCommand(item.dead, /dead-letter/.test(failure.follows) ? peek(name, failure) : null);
  };
  return list(
    "failures",
    "Recent failures",
    "Attempts that failed, the latest first",
    FAILURES,
    made,
    told,
    ({ at, message_id, attempt }) => `${at} ${message_id} ${attempt}`,
  );
}

const peek = (name, { key, code }) =>
  key === null ? commands.deadOfReason(name, code) : commands.deadOfKey(name, key);

// ---- counts ----

export function counts(title, none, command) {
  const columns = [["what", "What"], ["count", "Count"], ...(command ? [["does", "Look"]] : [])];
  const { element: grid, body } = table(title, columns);
  const empty = make("p", { class: "empty" }, none);
  const made = () => {
    const [what, count, button] = [outside(), make("span"), commandButton(command?.name)];
    return { element: row(columns, [[what], [count], ...(command ? [[button.element]] : [])]), what, count, button };
  };
  const tell = (things) => {
    show(grid, things.length > 0);
    show(empty, things.length === 0);
    fill(
      body,
      things,
      ([what]) => what,
      made,
      (item, [what, count]) => {
        writeOutside(item.what, what, 100);
        write(item.count, number(count));
        if (command) tellCommand(item.button, command.of(what));
      },
    );
  };
  return { element: make("div", {}, make("h3", {}, title), grid, empty), tell };
}
