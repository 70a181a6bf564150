// What the page says when it hears nothing: that it is cut off, since when, and that a worker which drained is gone.

import assert from "node:assert/strict";
import { test } from "node:test";

import { refused, says, text } from "./browser.mjs";
import { Fake } from "./fake.mjs";
import * as scenes from "./scenes.mjs";
import { later } from "./scenes.mjs";
import { stage } from "./stage.mjs";

const on = stage();

// With the page's clock in the test's hand, where that is asked for.
const look = (scene, clock = false) => on.look(scene, { before: (page) => clock && page.clock.install() });

test("a drain is shown to its end, and then that the worker is gone", async () => {
  const scene = scenes.drain();
  const { page, wrong } = await look(scene);
  await says(page, "#headline", "Draining: 12 s left, 3 handlers still run.");
  await on.worker.stop();
  await says(page, "#headline", "The worker is gone: it was draining, and was last heard at 03:12:40 UTC.");
  assert.match(await page.title(), /^Gone · /);
  assert.equal(await page.evaluate(() => document.body.dataset.old), "true");
  assert.deepEqual(
    wrong.filter((said) => !refused(said)),
    [],
  );
});

test("a worker that is lost is told at once, with since when its numbers are old, and found again", async () => {
  const scene = scenes.busy();
  const { page, wrong } = await look(scene);
  const { port } = on.worker;
  await on.worker.stop();
  await says(page, "#headline", "Cut off: nothing was heard of the worker since 03:12:40 UTC.");
  await says(page, ".more-of-it", "Its last word was: Working. 3 queues, all received from.");
  await says(page, "#summary", "s old.");
  assert.match(await page.title(), /^Cut off · /);
  assert.match(await text(page, "#spoken"), /^Cut off/);
  on.worker = await Fake.start(port);
  on.worker.tell({ ...scene, status: { ...later(scene.status, 9000), worker: "4712-000000" } });
  await says(page, "#headline", "Working.");
  await says(page, "#worker", "4712-000000");
  assert.equal(await page.evaluate(() => document.body.dataset.old), undefined);
  assert.deepEqual(
    wrong.filter((said) => !refused(said)),
    [],
  );
});

test("a stream that ends in its time is followed by another, and nothing is said of it", async () => {
  const { page, wrong } = await look(scenes.idle());
  const told = await page.evaluateHandle(() => {
    const told = [];
    new MutationObserver(() => told.push(document.getElementById("headline").textContent)).observe(
      document.getElementById("headline"),
      { childList: true },
    );
    return told;
  });
  on.worker.tell(scenes.drain());
  on.worker.endStreams();
  await on.worker.until(() => on.worker.opened === 2 && on.worker.streams === 1);
  on.worker.tell(scenes.idle());
  await says(page, "#headline", "Working, and idle");
  assert.ok(
    (await told.jsonValue()).every((headline) => /^(Draining|Working)/.test(headline)),
    "no word of an end",
  );
  assert.deepEqual(wrong, []);
});

test("a stream that is open and silent is no sign of life", async () => {
  const { page } = await look(scenes.idle(), true);
  await page.clock.runFor(3000);
  assert.match(await text(page, "#headline"), /^Working/);
  await page.clock.runFor(2000);
  await says(page, "#headline", "Cut off");
  assert.match(await text(page, "#summary"), /is \d s old/);
  assert.equal(on.worker.streams, 1);
  on.worker.tell({ status: later(scenes.idle().status, 6000) });
  await says(page, "#headline", "Working");
});

test("a stream that stays silent is opened anew", async () => {
  const { page } = await look(scenes.idle(), true);
  const first = on.worker.opened;
  await page.clock.runFor(12_000);
  await says(page, "#headline", "Working");
  assert.equal(on.worker.opened, first + 1);
  assert.equal(on.worker.streams, 1, "the old one is let go");
});

test("before the first answer it says that there is none, and goes on asking", async () => {
  on.worker.refuses = true;
  const { page } = await look(null, true);
  await says(page, "#headline", "The worker does not answer.");
  on.worker.refuses = false;
  on.worker.tell(scenes.idle());
  await page.clock.runFor(12_000);
  await says(page, "#headline", "Working, and idle.");
});

test("a page that nobody looks at lets go of its stream after a while, and takes it up again", async () => {
  const { page } = await look(scenes.idle(), true);
  const hide = (hidden) =>
    page.evaluate((is) => {
      Object.defineProperty(document, "hidden", { configurable: true, value: is });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  for (let minute = 0; minute < 4; minute += 1) await page.clock.runFor(60_000);
  await on.worker.until(() => on.worker.streams === 1);
  for (let minute = 0; minute < 2; minute += 1) await page.clock.runFor(60_000);
  await on.worker.until(() => on.worker.streams === 0);
  const { opened } = on.worker;
  await page.clock.runFor(60_000);
  assert.equal(on.worker.opened, opened, "nor does it ask again");
  await hide(false);
  await says(page, "#headline", "Working");
  await on.worker.until(() => on.worker.streams === 1);
});
