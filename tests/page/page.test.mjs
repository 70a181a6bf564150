// The page in a browser, before a worker that does what a test wants: what it shows, and what it never does.

import assert from "node:assert/strict";
import { test } from "node:test";

import { DESK, PHONE, says, text, tooFaint, tooWide } from "./browser.mjs";
import * as scenes from "./scenes.mjs";
import { failure, job, later, queue, status } from "./scenes.mjs";
import { stage } from "./stage.mjs";

const on = stage();
const { look } = on;

const one = (of, rest) => ({ status: status({ payments: queue(of) }, rest) });

// ---- what it shows ----

test("it loads by itself alone, under a policy that allows nothing else", async () => {
  const { page, wrong } = await look(scenes.busy());
  await says(page, "#headline", "Working. 3 queues, all received from.");
  assert.match(await page.title(), /^Working · 4711-ab12cd · Leasehold$/);
  assert.equal(await page.locator(".queue").count(), 3);
  assert.equal(await page.locator("#overview tbody tr").count(), 3);
  const inline = await page.evaluate(
    () => document.querySelectorAll("script:not([src]), style, [style*=expression], [onclick]").length,
  );
  assert.equal(inline, 0);
  assert.deepEqual(wrong, []);
});

test("markup cannot be put in, even by a slip", async () => {
  const { page } = await look(scenes.idle());
  const outcome = await page.evaluate(() => {
    try {
      document.querySelector("main").innerHTML = "<b>x</b>";
      return "put in";
    } catch (error) {
      return error.name;
    }
  });
  assert.equal(outcome, "TypeError", "the policy asks for trusted types, and there are none");
});

// Where everything stands that is not a row of a list.
const places = (page) =>
  page.evaluate(() =>
    [...document.querySelectorAll("h1, h2, h3, dt, figure, svg, th, .commands, footer")]
      .filter((e) => e.checkVisibility())
      .map((e) =>
        [e.tagName, e.className, Math.round(e.getBoundingClientRect().x), Math.round(e.getBoundingClientRect().y)].join(
          " ",
        ),
      ),
  );

test("numbers follow while jobs run, and nothing on the page moves", async () => {
  const scene = scenes.busy();
  const { page, wrong } = await look(scene);
  const before = await places(page);
  const { payments } = scene.status.queues;
  for (let second = 1; second <= 12; second += 1) {
    const running = payments.running
      .slice((second * 5) % 12)
      .map((of) => ({ ...of, age_ms: of.age_ms + second * 1000 }));
    const outcomes = { ...payments.outcomes, done: payments.outcomes.done + second * 20 };
    const queues = {
      ...scene.status.queues,
      payments: { ...payments, running, running_total: running.length, outcomes, polled_ms_ago: second * 97 },
    };
    on.worker.tell({ status: later({ ...scene.status, queues }, second * 1000) });
    await says(page, "#worker", `03:12:${40 + second} UTC`);
    assert.deepEqual(await places(page), before, `after ${second} s, with ${running.length} running`);
  }
  assert.match(await text(page, "#queue-payments .facts"), /20\/s\s+52,080 since the start/);
  assert.match(await text(page, "#queue-payments .running td.age"), /21 s/);
  assert.deepEqual(wrong, []);
});

test("what is selected, focused and unfolded stays so from second to second", async () => {
  const scene = scenes.busy();
  const { page } = await look(scene);
  await page.locator("#queue-payments .running .more").click();
  assert.equal(await page.locator("#queue-payments .running tbody tr").count(), 12);
  await page.locator("#queue-payments .failures .command").first().focus();
  await page.evaluate(() =>
    getSelection().selectAllChildren(document.querySelector("#queue-payments .running td.key bdi")),
  );
  const running = scene.status.queues.payments.running.filter((_, index) => index !== 1);
  const queues = { ...scene.status.queues, payments: { ...scene.status.queues.payments, running, running_total: 11 } };
  on.worker.tell({ status: later({ ...scene.status, queues }, 1000) });
  await page.waitForFunction(() => document.querySelectorAll("#queue-payments .running tbody tr").length === 11);
  assert.equal(await page.evaluate(() => String(getSelection())), "payments#pay-081204");
  assert.equal(await page.evaluate(() => document.activeElement.closest(".failures") !== null), true);
});

test("a failure is shown with what follows, and the commands that look at it", async () => {
  const { page } = await look(one({}));
  await says(page, ".failures .empty", "No attempt has failed lately.");
  const dead = failure({
    code: "account_closed",
    error: "the account is closed",
    follows: "dead-lettered",
    permanent: true,
  });
  const outcomes = { failed: 1, dead_lettered: 1 };
  on.worker.tell(
    one({
      failures: [dead, failure({ message_id: "m" })],
      outcomes,
      dead_by_code: { account_closed: 1 },
      failed_by_code: { account_closed: 1, mail_busy: 1 },
    }),
  );
  await says(page, ".failures td.code", "account_closed");
  const shown = await text(page, ".failures tbody");
  for (const told of [
    "20 s ago",
    "03:12:20",
    "payments#pay-000007",
    "for good",
    "the account is closed",
    "dead-lettered",
    "again in 12 s",
  ]) {
    assert.ok(shown.includes(told), `${told} in ${shown}`);
  }
  const lines = await page
    .locator("button.command:visible")
    .evaluateAll((all) => all.map((button) => button.title.replace("Copy: ", "")));
  for (const line of [
    "leasehold guard get --pk 'payments#pay-000007'",
    "leasehold dlq peek --key 'payments#pay-000007' payments",
    "leasehold dlq peek --reason account_closed payments",
    "leasehold dlq ls payments",
    "leasehold pause payments",
  ]) {
    assert.ok(lines.includes(line), `${line} in ${lines}`);
  }
});

test("a command is copied by a click, and by the keyboard", async () => {
  const { page } = await look(scenes.idle(), { permissions: ["clipboard-read", "clipboard-write"] });
  await page.locator(".queue > .commands button").nth(1).click();
  await says(page, "#copied", "Copied: leasehold dlq ls payments");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "leasehold dlq ls payments");
  await page.locator(".queue > .commands button").first().focus();
  await page.keyboard.press("Enter");
  await says(page, "#copied", "Copied: leasehold pause payments");
});

test("where there is no clipboard the command is selected", async () => {
  const { page } = await look(scenes.idle(), {
    before: (page) => page.addInitScript(() => Object.defineProperty(navigator, "clipboard", { value: undefined })),
  });
  await page.locator(".queue > .commands button").first().click();
  await says(page, "#copied", "To be copied by hand: leasehold pause payments");
  assert.equal(await page.evaluate(() => String(getSelection())), "leasehold pause payments");
});

test("without a guard there is neither a record to look at nor a word that could be heard", async () => {
  const { page } = await look(one({ guard: "none", running: [job()], running_total: 1 }));
  const lines = await page.locator("button.command:visible").evaluateAll((all) => all.map((button) => button.title));
  assert.deepEqual(lines, ["Copy: leasehold dlq ls payments"]);
});

test("many queues are folded, and told when they are opened from the overview", async () => {
  const names = ["a", "b", "c", "d", "e", "f g"];
  const { page } = await look({
    status: status(Object.fromEntries(names.map((name) => [name, queue({ slots: 7, free_slots: 7 })]))),
  });
  assert.equal(await page.locator(".queue[open]").count(), 0);
  await page.locator("#overview a").last().click();
  await says(page, ".queue[open] .facts", "0 of 7");
  assert.equal(await page.evaluate(() => document.querySelector(":target h2").textContent), "f g");
});

test("the verdict is spoken when it changes, and not at each second of a countdown", async () => {
  const scene = scenes.drain();
  const { page } = await look(scene);
  await says(page, "#spoken", "Draining: 12 s left");
  await page.evaluate(() => {
    globalThis.spoken = [];
    new MutationObserver(() => globalThis.spoken.push(document.getElementById("spoken").textContent)).observe(
      document.getElementById("spoken"),
      { childList: true },
    );
  });
  for (let second = 1; second <= 3; second += 1) {
    on.worker.tell({ status: { ...later(scene.status, second * 1000), drain_left_ms: 12_300 - second * 1000 } });
    await says(
      page,
      "#headline",
      `Draining: ${(12_300 - second * 1000) / 1000 >= 10 ? 12 - second : (12.3 - second).toFixed(1)} s left`,
    );
  }
  on.worker.tell({ status: { ...scene.status, phase: "running", drain_left_ms: null } });
  await says(page, "#headline", "Working.");
  const spoken = await page.evaluate(() => globalThis.spoken);
  assert.equal(spoken.length, 1);
  assert.match(spoken[0], /^Working\./);
});

// ---- what it looks like ----

const SCENES = ["idle", "busy", "outage", "drain", "hostile"];

for (const name of SCENES) {
  test(`${name}: nothing sticks out at any width, and all text stands out in light and in dark`, async () => {
    for (const colorScheme of ["light", "dark"]) {
      const { page, wrong } = await look(scenes[name](), { colorScheme, viewport: DESK });
      for (const viewport of [
        DESK,
        { width: 1000, height: 800 },
        { width: 768, height: 1024 },
        PHONE,
        { width: 320, height: 600 },
      ]) {
        await page.setViewportSize(viewport);
        assert.deepEqual(await tooWide(page), [], `${viewport.width}`);
      }
      assert.deepEqual(await tooFaint(page), [], colorScheme);
      const paper = await page.evaluate(() =>
        getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number),
      );
      assert.equal(paper[0] < 128, colorScheme === "dark");
      assert.deepEqual(wrong, []);
    }
  });
}

test("tables are tables on a phone too, with rows whose cells name their columns", async () => {
  const { page } = await look(scenes.busy(), { viewport: PHONE });
  const table = page.getByRole("table", { name: "Handlers that run, the longest first" }).last();
  assert.equal(await table.getByRole("columnheader").count(), 6);
  assert.equal(await table.getByRole("row").first().isVisible(), true);
  assert.equal(await page.locator(".running td.lease").last().getAttribute("data-column"), "Lease left");
});

// ---- text that means harm ----

test("hostile text is shown as text, turns nothing around, and does not run", async () => {
  const { page, wrong } = await look(scenes.hostile());
  await says(page, ".failures td.error", scenes.HARM);
  await says(page, ".failures td.code", "pay\\u{202e}3-gnorw");
  const made = await page.evaluate(
    () => document.querySelectorAll("main img, main script, header img, header script, [onerror]").length,
  );
  assert.equal(made, 0);
  const hidden = await page.evaluate(() =>
    document.body.innerText.match(/[\u200b-\u200f\u202a-\u202e\u2066-\u2069\u0000-\u0008\u001b]/g),
  );
  assert.equal(hidden, null);
  assert.deepEqual(wrong, []);
});

test("a hostile key is copied as a line that a terminal can take", async () => {
  const { page } = await look(scenes.hostile(), { permissions: ["clipboard-read", "clipboard-write"] });
  const row = page.locator(".running tbody tr", { hasText: "reboot" });
  await row.locator("button").click();
  await says(page, "#copied", "reboot");
  assert.equal(
    await page.evaluate(() => navigator.clipboard.readText()),
    "leasehold guard get --pk $'p#a\\047b\\012$(reboot)\\033[2J'",
  );
  const unsayable = page.locator(".running tbody tr", { hasText: "\\u{0}" });
  assert.equal(await unsayable.locator("button").isVisible(), false, "no shell can hand over a NUL");
});
