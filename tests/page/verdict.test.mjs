// What a status comes to in words: how the worker is, and what is to be done, worst first.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Past } from "../../src/serve/page/past.mjs";
import { judge, summary } from "../../src/serve/page/verdict.mjs";
import * as scenes from "./scenes.mjs";
import { job, queue, status } from "./scenes.mjs";

function judged({ history, status: of }) {
  const past = new Past();
  if (history) past.load(history);
  past.add(of);
  return judge(of, past);
}

const of = (queues, rest) => judged({ status: status(queues, rest) });
const kinds = ({ findings }) => findings.map(({ level, kind }) => `${level} ${kind}`);

const AWAY = {
  what: "the guard's table",
  cause: "no answer within 5 s",
  ends: "a probe in 4 s; a probe that passes ends this",
};
const OPERATOR = {
  what: "intake of q",
  cause: "paused by ada@ops since 03:00: OPS-1",
  ends: "`leasehold resume` ends this",
};
const BRAKE = {
  what: "the brake of q",
  cause: "20 messages have failed for good",
  ends: "a probe in 9 s; then a message is let through now and then",
};

test("a worker that is well says what it receives from", () => {
  assert.equal(judged(scenes.idle()).headline, "Working, and idle. payments is received from.");
  const busy = judged(scenes.busy());
  assert.deepEqual(
    [busy.level, busy.word, busy.headline],
    ["well", "Working", "Working. 3 queues, all received from."],
  );
  assert.equal(of({ q: queue({ oldest_ms: 3 }) }).headline, "Working. q is received from.");
});

test("what has died lately is known, and does not make a working worker unwell", () => {
  const busy = judged(scenes.busy());
  assert.deepEqual(kinds(busy), ["watch dead payments"]);
  assert.match(busy.findings[0].headline, /^\d+ of payments died in the last 15 minutes\.$/);
  assert.match(busy.findings[0].more, /19 account_closed and 7 malformed/);
  assert.deepEqual(busy.findings[0].commands, ["leasehold dlq ls payments"]);
});

test("an outage says what is away, when it is tried again, and which queues wait", () => {
  const all = of({ a: queue({ pauses: [AWAY] }), b: queue({ pauses: [AWAY] }) }, { ready: false });
  assert.deepEqual(
    [all.level, all.word, all.headline],
    ["act", "Paused", "Paused: the guard's table is away; a probe in 4 s."],
  );
  assert.equal(all.more, "No answer within 5 s. No queue is received from. A probe that passes ends this.");
  assert.deepEqual(all.commands, ["leasehold doctor"]);
  assert.deepEqual(all.findings, [], "one outage is one finding, however many queues it holds up");
  const one = of({ a: queue({ pauses: [AWAY] }), b: queue() });
  assert.match(one.more, /a receives nothing; the others go on\./);
});

test("a countdown is not news, and an outage more is", () => {
  const in_seconds = (n) => of({ q: queue({ pauses: [{ ...AWAY, ends: `a probe in ${n} s; rest` }] }) }).kind;
  assert.equal(in_seconds(4), in_seconds(3));
  assert.notEqual(in_seconds(4), of({ q: queue({ pauses: [AWAY, OPERATOR] }) }).kind);
  const draining = (n) => of({ q: queue() }, { phase: "draining", drain_left_ms: n }).kind;
  assert.equal(draining(9000), draining(8000));
});

test("who paused a queue and the brake have a command that ends it", () => {
  const operator = of({ q: queue({ pauses: [OPERATOR] }), r: queue() });
  assert.deepEqual(
    [operator.level, operator.headline, operator.commands],
    ["watch", "Paused: an operator has paused q.", ["leasehold resume q"]],
  );
  const brake = of({ q: queue({ pauses: [BRAKE] }) });
  assert.deepEqual([brake.level, brake.headline], ["act", "Paused: the brake of q is on; a probe in 9 s."]);
  assert.deepEqual(brake.commands, ["leasehold dlq ls q", "leasehold resume q"]);
});

test("what is for a person to mend comes before what is on purpose", () => {
  const both = of({ a: queue({ pauses: [{ ...OPERATOR, what: "intake of a" }] }), q: queue({ pauses: [BRAKE] }) });
  assert.match(both.headline, /the brake of q is on/);
  assert.deepEqual(kinds(both), ["watch paused intake of a"]);
});

test("a drain says how long it has and what still runs", () => {
  assert.equal(judged(scenes.drain()).headline, "Draining: 12 s left, 3 handlers still run.");
  const none = of({ q: queue() }, { phase: "draining", drain_left_ms: 900 });
  assert.equal(none.headline, "Draining: 900 ms left, no handler runs.");
});

test("a worker that hangs is to be restarted, whatever else is so", () => {
  const hanging = of({ q: queue({ polls_come_back: false, pauses: [AWAY] }) }, { live: false });
  assert.deepEqual([hanging.level, hanging.word], ["act", "Hanging"]);
  assert.match(hanging.more, /Restart this process/);
  assert.deepEqual(kinds(hanging), ["act paused the guard's table"]);
});

test("a start that waits says for what, and one that does not, that it looks", () => {
  const waits = of({}, { phase: "starting", problems: ['there is no table "leasehold"'] });
  assert.deepEqual([waits.level, waits.headline], ["act", 'Not started: there is no table "leasehold".']);
  assert.deepEqual([of({}, { phase: "starting" }).level, of({}, { phase: "starting" }).word], ["wait", "Starting"]);
  assert.match(of({ q: queue() }, { problems: ["no queue r"] }).headline, /^Not all of it was started: no queue r\.$/);
});

test("work without its guard is said before all pauses", () => {
  const unguarded = of({ q: queue({ guard_outage: "open", unguarded: AWAY }), r: queue({ pauses: [AWAY] }) });
  assert.equal(unguarded.headline, "Without a guard, since the guard's table is away: q may do work twice.");
  assert.deepEqual(kinds(unguarded), ["act paused the guard's table"]);
});

test("a trial says that little is received until work succeeds", () => {
  const trial = of({ q: queue({ trials: [{ ...AWAY, what: "the handler of q", ends: "a probe has passed" }] }) });
  assert.deepEqual(
    [trial.level, trial.word, trial.headline],
    ["watch", "Trickle", "At a trickle: the handler of q was away."],
  );
});

test("what is stuck, late, behind or stood still is found, worst first", () => {
  const late = job({ lease_left_ms: -10, key: "q#k" });
  const found = of(
    {
      q: queue({ stuck: 2, slots: 20, oldest_ms: 300_000, running: [late], running_total: 20 }),
    },
    { stalled_ms: 4100 },
  );
  assert.deepEqual(kinds(found), ["act stuck q", "watch ended q", "watch behind q"]);
  assert.match(found.headline, /stood still for 4\.1 s/);
  assert.deepEqual(found.findings[1].commands, ["leasehold guard get --pk 'q#k'"]);
  const unguarded = of({ q: queue({ guard: "none", running: [late] }) });
  assert.deepEqual(unguarded.findings[0].commands, [null], "without a guard there is no record to look at");
});

test("text of others is cut, and what could mislead is written out", () => {
  const { headline, findings } = judged(scenes.hostile());
  for (const said of [headline, ...findings.flatMap((one) => [one.headline, one.more])]) {
    assert.ok(said.length < 1200, said);
    assert.doesNotMatch(said, /[\u202e\u200b\u0000]/u);
  }
});

test("the summary counts what runs and what the last quarter of an hour brought", () => {
  const past = new Past();
  const { status: told } = scenes.idle();
  past.add(told);
  assert.equal(summary(told, past), "No handler runs now. In the last 15 minutes: nothing.");
  const busy = scenes.busy();
  past.load(busy.history);
  assert.match(
    summary(busy.status, past),
    /^19 handlers run now\. In the last 15 minutes: [\d,]+ done, [\d,]+ suppressed, \d+ failed and tried again, \d+ dead\.$/,
  );
});
