// What is said of the worker as a whole: all its queues in a table, and what it asks of AWS.

import { bars } from "./chart.mjs";
import { fact, fill, make, mark, outside, row, show, table, tellFact, write, writeOutside } from "./dom.mjs";
import { deadOf } from "./past.mjs";
import { beatsOf, stateOf } from "./queue.mjs";
import { number, rate, span } from "./words.mjs";

const at = (id) => document.getElementById(id);

const OVERVIEW = [
  ["queue-name", "Queue"],
  ["state-cell", "State"],
  ["n", "Done"],
  ["n", "In flight"],
  ["n", "Oldest"],
  ["n", "p50"],
  ["n wide", "p99 of timeout"],
  ["n", "Beats"],
  ["n", "Suppressed"],
  ["n", "Retries"],
  ["n", "Dead"],
  ["spark", "15 minutes"],
];
const overview = table("All queues", OVERVIEW);
at("overview-table").append(overview.element);

export function tellOverview(queues, status, past) {
  show(at("overview"), queues.length > 1);
  if (queues.length < 2) return;
  fill(
    overview.body,
    queues,
    ([name]) => name,
    madeOverview,
    (item, [name, queue]) => {
      const [level, word] = stateOf(queue, status.phase);
      write(item.state, word);
      mark(item.state, "data-level", level);
      const told = [
        rate(past.rate(name, "done")),
        `${queue.running_total} / ${queue.slots}`,
        span(queue.oldest_ms),
        span(queue.handler_p50_ms),
        `${span(queue.handler_p99_ms)} / ${queue.visibility_timeout} s`,
        number(beatsOf(queue)),
        number(queue.outcomes.suppressed),
        number(queue.outcomes.failed),
        number(deadOf(queue.outcomes)),
      ];
      item.numbers.forEach((cell, index) => write(cell, told[index]));
      const sums = past.sums(name);
      mark(item.numbers[7], "data-level", sums.failed > 0 ? "watch" : null);
      mark(item.numbers[8], "data-level", sums.dead > 0 ? "act" : null);
      item.spark.tell(past.samples(name), status.now);
    },
  );
}

function madeOverview([name]) {
  const link = make("a", { href: `#queue-${encodeURIComponent(name)}` }, outside());
  writeOutside(link.firstChild, name, 120);
  link.addEventListener("click", () => (document.getElementById(`queue-${encodeURIComponent(name)}`).open = true));
  const [state, numbers, spark] = [
    make("span", { class: "state" }),
    Array.from({ length: 9 }, () => make("span")),
    bars(),
  ];
  return {
    element: row(OVERVIEW, [[link], [state], ...numbers.map((cell) => [cell]), [spark.element]]),
    state,
    numbers,
    spark,
  };
}

// ---- requests ----

const perMessage = [fact("Calls per message"), fact("Write units per message"), fact("Write units")];
at("per-message").append(...perMessage.map((one) => one.element));
const CALLS = [
  ["what", "Operation"],
  ["count", "Requests"],
];
const calls = table("Requests since the start, by operation", CALLS);
at("calls").append(calls.element);

const ratio = (n) => (n === null ? "–" : n.toFixed(2));

export function tellRequests({ calls: counts, calls_per_message, write_units, write_units_per_message }) {
  // Other adapters than AWS's count no requests.
  const is_counted = Object.keys(counts).length > 0;
  show(at("requests"), is_counted);
  if (!is_counted) return;
  tellFact(
    perMessage[0],
    ratio(calls_per_message),
    calls_per_message === null ? "no message yet" : "of the last 5 minutes",
  );
  tellFact(
    perMessage[1],
    ratio(write_units_per_message),
    write_units_per_message === null ? "no message yet" : "DynamoDB’s, of the last 5 minutes",
  );
  tellFact(perMessage[2], number(write_units), "DynamoDB’s, since the start");
  const all = Object.entries(counts).sort(([, one], [, other]) => other - one);
  fill(
    calls.body,
    all,
    ([operation]) => operation,
    madeCall,
    (item, [operation, count]) => {
      writeOutside(item.what, operation, 80);
      write(item.count, number(count));
    },
  );
}

function madeCall() {
  const [what, count] = [outside(), make("span")];
  return { element: row(CALLS, [[what], [count]]), what, count };
}
