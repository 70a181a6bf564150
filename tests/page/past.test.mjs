// What the page remembers: the worker's own history, and what its counts have grown by since.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Past, SPAN } from "../../src/serve/page/past.mjs";
import { history, queue, status } from "./scenes.mjs";

const at = (now, outcomes, of = {}) => status({ q: queue({ outcomes, ...of }) }, { now });
const sample = (now, done) => ({
  at: now,
  done,
  failed: 0,
  suppressed: 0,
  dead: 0,
  in_flight: 0,
  p99_ms: null,
  visibility_timeout: 30,
});

test("it goes on where the worker's history ends, a sample every five seconds", () => {
  const past = new Past();
  past.load(history({ q: [sample(95_000, 7), sample(100_000, 3)] }));
  for (let second = 0; second <= 11; second += 1)
    past.add(
      at(101_000 + second * 1000, {
        done: 1000 + second * 2,
        dead_lettered: second >= 6 ? 1 : 0,
        dropped: second >= 6 ? 1 : 0,
      }),
    );
  assert.deepEqual(
    past.samples("q").map(({ at: when, done, dead }) => [when, done, dead]),
    [
      [95_000, 7, 0],
      [100_000, 3, 0],
      [106_000, 10, 0],
      [111_000, 10, 2],
    ],
  );
  assert.deepEqual(past.sums("q"), { done: 30, failed: 0, suppressed: 0, dead: 2 });
});

test("what is older than a quarter of an hour is forgotten", () => {
  const past = new Past();
  past.load(history({ q: [sample(1000, 5), sample(6000, 6)] }));
  past.add(at(1000 + SPAN, {}));
  assert.deepEqual(
    past.samples("q").map(({ done }) => done),
    [6],
  );
});

test("a rate is of the last seconds, and before that of the last sample", () => {
  const past = new Past();
  past.add(at(1000, { done: 10 }));
  assert.equal(past.rate("q", "done"), null);
  past.load(history({ q: [sample(1000, 20)] }));
  past.add(at(1000, { done: 10 }));
  assert.equal(past.rate("q", "done"), 4);
  for (let second = 2; second <= 30; second += 1)
    past.add(at(second * 1000, { done: 10 + (second > 20 ? (second - 20) * 5 : 0) }));
  assert.equal(past.rate("q", "done"), 5);
});

test("counts that have shrunk are another worker's, and nothing is made of the difference", () => {
  const past = new Past();
  past.add(at(1000, { done: 500 }));
  past.add(at(5000, { done: 3 }));
  past.add(at(9000, { done: 3 }));
  past.add(at(10_000, { done: 5 }));
  assert.deepEqual(
    past.samples("q").map(({ done }) => done),
    [2],
  );
  assert.equal(past.rate("q", "done"), 2 / 5);
});

test("a time in which nothing was told is one long sample, and nothing of it is lost", () => {
  const past = new Past();
  past.add(at(1000, { done: 0 }));
  past.add(at(61_000, { done: 600 }));
  past.add(at(66_000, { done: 610 }));
  assert.deepEqual(
    past.samples("q").map(({ from, at: to, done }) => [from, to, done]),
    [
      [1000, 61_000, 600],
      [61_000, 66_000, 10],
    ],
  );
});

test("a queue that is gone is forgotten, and names of its own are no trouble", () => {
  const past = new Past();
  const named = (name) => status({ [name]: queue({ outcomes: { done: 1 } }) });
  for (const name of ["constructor", "__proto__", "toString"]) {
    past.add(JSON.parse(JSON.stringify(named(name))));
    assert.deepEqual(past.samples(name), []);
  }
  past.load(history({ q: [sample(1000, 1)] }));
  past.add(named("other"));
  assert.deepEqual(past.samples("q"), []);
});
