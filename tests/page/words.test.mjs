// Numbers, times, text from outside, and commands to copy: what they come to, and that a shell reads them as they are meant.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import { commands, listed, plain, quote, rate, several, span } from "../../src/serve/page/words.mjs";
import { HARM, TURNED } from "./scenes.mjs";

test("times are told in the largest unit of which there are two", () => {
  const told = [
    [null, "–"],
    [-3, "0 ms"],
    [999, "999 ms"],
    [1000, "1.0 s"],
    [9999, "9.9 s"],
    [10_000, "10 s"],
    [119_999, "119 s"],
    [120_000, "2 min"],
    [7_199_999, "119 min"],
    [7_200_000, "2 h"],
    [172_799_999, "47 h"],
    [172_800_000, "2 days"],
  ];
  for (const [ms, words] of told) assert.equal(span(ms), words);
});

test("rates are of a second, or of a minute where that is less than one", () => {
  for (const [n, words] of [
    [null, "–"],
    [0, "0/s"],
    [0.001, "1/min"],
    [0.5, "30/min"],
    [1, "1.0/s"],
    [9.94, "9.9/s"],
    [1234.6, "1,235/s"],
  ]) {
    assert.equal(rate(n), words);
  }
});

test("several things are counted and listed in words", () => {
  assert.deepEqual(
    [several(1, "slot"), several(1200, "slot"), several(2, "delivery", "deliveries")],
    ["1 slot", "1,200 slots", "2 deliveries"],
  );
  assert.deepEqual(
    [listed([]), listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b", "c", "d"])],
    ["", "a", "a, b and c", "a, b and 2 more"],
  );
});

test("what is not seen or turns a line around is written out, and the rest is left", () => {
  assert.equal(plain("a\u001b[2J\n\u202eü\u{e0041}"), "a\\u{1b}[2J\\n\\u{202e}ü\\u{e0041}");
  for (const hidden of ["\u061c", "\u200b", "\u2066", "\ufeff", "\u00ad", "\u2028"])
    assert.match(plain(hidden), /^\\u\{[0-9a-f]+\}$/);
  assert.equal(plain("<b>&amp;"), "<b>&amp;");
  assert.equal(plain("😀😀😀", 2), "😀…", "characters are not cut in two");
});

// What a shell hands over of a line.
const handedOver = (shell, line) =>
  execFileSync(shell, ["-c", `leasehold() { printf '%s\\0' "$@"; }; ${line}`])
    .toString("utf8")
    .split("\0")
    .slice(0, -1);

const WORDS = [
  "payments",
  "a b",
  "a'b",
  "$(reboot)",
  "`id`",
  "!!",
  "*",
  "~",
  "#a",
  "=a",
  "\\",
  '"',
  "{a,b}",
  "p#a;rm -rf",
  "ünder",
  "مفتاح",
  HARM,
];
const STEERING = ["a\nb", "\u001b[2J1", TURNED, "it's\t\u202e!", "\u0007\\x41", "\u{e0041}"];

test("a shell reads quoted words as they were", () => {
  for (const word of WORDS) assert.deepEqual(handedOver("sh", `leasehold ${quote(word)}`), [word], quote(word));
  for (const word of [...WORDS, ...STEERING])
    assert.deepEqual(handedOver("bash", `leasehold ${quote(word)}`), [word], quote(word));
});

test("nothing that could steer a terminal is in a line to copy", () => {
  for (const word of STEERING) assert.match(quote(word), /^[\x20-\x7e]+$/);
});

test("commands are those of the command line, also for names that look like options", () => {
  assert.equal(commands.pause("payments"), "leasehold pause payments");
  assert.equal(commands.deadOfReason("payments", "mail_busy"), "leasehold dlq peek --reason mail_busy payments");
  assert.equal(commands.record("payments#p 1"), "leasehold guard get --pk 'payments#p 1'");
  assert.deepEqual(handedOver("bash", commands.deadOfKey("-q", "-k")), ["dlq", "peek", "--key=-k", "--", "-q"]);
});

test("what no shell can hand over has no command", () => {
  assert.equal(commands.record("p#\0"), null);
  assert.equal(commands.pause(""), null);
});
