// The page before real workers: `leasehold demo` with a stream that does not end, and `leasehold dev` with a handler whose
// messages say what it does.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { after, afterEach, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { PHONE, launch, refused, says, text, tooWide, visit } from "./browser.mjs";
import { HARM } from "./scenes.mjs";

const PROGRAM = fileURLToPath(new URL("../../target/debug/leasehold", import.meta.url));
const HANDLER = fileURLToPath(new URL("handler.sh", import.meta.url));
const SOON = 60_000;

let browser;
const open = [];

before(async () => (browser = await launch()));
after(() => browser.close());
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});

// A process of `leasehold`, killed at the latest when the test ends.
class Running {
  #said = "";
  #waiting = new Set();

  constructor(args, variables = {}) {
    this.process = spawn(PROGRAM, args, { env: { PATH: process.env.PATH, ...variables } });
    this.ended = new Promise((done) => this.process.on("exit", (code, signal) => done(code ?? signal)));
    for (const stream of [this.process.stdout, this.process.stderr]) stream.on("data", (bytes) => this.#hear(bytes));
    open.push({ close: () => this.process.kill("SIGKILL") && this.ended });
  }

  #hear(bytes) {
    this.#said += bytes;
    for (const look of this.#waiting) look();
  }

  // Waits until it has said this, and gives what the pattern took out of it.
  async says(pattern) {
    return new Promise((found, failed) => {
      const late = setTimeout(() => failed(new Error(`${pattern} is not in: ${this.#said}`)), SOON);
      const look = () => {
        const said = this.#said.match(pattern);
        if (!said) return;
        clearTimeout(late);
        this.#waiting.delete(look);
        found(said[1]);
      };
      this.#waiting.add(look);
      look();
    });
  }
}

async function look(url, of) {
  const visited = await visit(browser, url, of);
  open.push(visited);
  return visited;
}

const number = async (page, selector) => Number((await text(page, selector)).replaceAll(/[^\d]/g, ""));

// Waits until the number there is larger.
const grows = (page, selector, than) =>
  page.waitForFunction(
    ([one, least]) => Number(document.querySelector(one).textContent.replaceAll(/[^\d]/g, "")) > least,
    [selector, than],
    { timeout: SOON },
  );

const DONE = "#queue-payments .facts > :first-child .note";

test(
  "an endless demonstration with a killed worker is watched, and its commands look into it",
  { timeout: 240_000 },
  async () => {
    const demo = new Running(["demo", "--endless", "--crash"]);
    const url = await demo.says(/look on at (\S+)/);
    const variables = await demo.says(/want: export (.*)/);
    const { page, wrong } = await look(url, { permissions: ["clipboard-read", "clipboard-write"] });
    await says(page, "#headline", "Working");
    await says(page, "#queue-payments .state", "receiving");
    const first = await number(page, DONE);
    await grows(page, DONE, first);
    await grows(page, DONE, first + 50);
    await says(page, ".failures td.code", "mail_busy");
    await says(page, ".failures td.follows", "again in");
    await says(page, ".failures td.code", "account_closed");
    await says(page, "#findings", "died in the last 15 minutes");
    await says(page, ".counts", "malformed");
    await page.waitForSelector(".running .tag:visible", { timeout: SOON });

    const copied = async (button) => {
      await button.click();
      return page.evaluate(() => navigator.clipboard.readText());
    };
    const run = async (line) => {
      const shell = `export ${variables}; leasehold() { ${PROGRAM} "$@"; }; ${line}`;
      return (await promisify(execFile)("bash", ["-c", shell], { env: { PATH: process.env.PATH } })).stdout;
    };
    const dead = await copied(page.locator("#findings button").first());
    assert.equal(dead, "leasehold dlq ls payments");
    assert.match(await run(dead), /account_closed/);
    const reason = await copied(page.locator(".counts tr", { hasText: "account_closed" }).locator("button").first());
    assert.match(await run(reason), /account_closed[^]*payments#pay-/);
    const record = await copied(page.locator(".failures td.does button").first());
    assert.match(record, /^leasehold guard get --pk 'payments#pay-\d+'$/);
    assert.match(await run(record), /payments#pay-/);

    const paused = await copied(page.locator(".queue > .commands button").first());
    await run(paused);
    await says(page, "#headline", "Paused: an operator has paused payments.");
    await run(await copied(page.locator("#verdict > .commands button").first()));
    await says(page, "#queue-payments .state", "receiving");

    await page.setViewportSize(PHONE);
    assert.deepEqual(await tooWide(page), []);
    assert.deepEqual(wrong, []);
    demo.process.kill("SIGINT");
    // What was sent is worked off first, which takes a busy machine a while.
    await says(page, "#headline", "The worker is gone", 2 * SOON);
    assert.equal(await demo.ended, 0, "no payment was lost, and none had more than one effect");
    assert.deepEqual(
      wrong.filter((said) => !refused(said)),
      [],
    );
  },
);

test("hostile messages and a drain are shown as they are", { timeout: 120_000 }, async () => {
  const args = ["dev", "payments", "--key", "/id", "--handler", `exec:sh ${HANDLER}`, "--port", "0"];
  const worker = new Running(args, { LEASEHOLD_HTTP_ADDR: "127.0.0.1:0", LEASEHOLD_DRAIN_TIMEOUT: "20s" });
  const url = await worker.says(/how it is at (\S+)/);
  const endpoint = await worker.says(/in this process, at (\S+)/);
  const { page, wrong } = await look(url);
  await says(page, "#headline", "Working, and idle. payments is received from.");
  await says(page, ".running .empty", "No handler runs. That is normal while no message comes.");

  const send = (...bodies) => promisify(execFile)(PROGRAM, ["send", "--endpoint-url", endpoint, "payments", ...bodies]);
  const turned = "pay\u202e-\u200bzero\u0007";
  await send(...[HARM, turned, "k".repeat(900)].map((id) => JSON.stringify({ id, does: "fail", says: HARM })));
  // As the record has it: a key is escaped where it stands in another name.
  await says(page, ".failures td.key", `payments#${HARM.replaceAll("/", "%2F")}`);
  await says(page, ".failures td.key", "payments#pay\\u{202e}-\\u{200b}zero%07");
  await says(page, ".failures td.error", "<script>harmed()</script>");
  await says(page, ".failures td.follows", "dead-lettered");
  await page.setViewportSize(PHONE);
  assert.deepEqual(await tooWide(page), []);

  await send(JSON.stringify({ id: "long", does: "wait" }));
  await says(page, ".running td.key", "payments#long");
  await says(page, ".running td.lease", "of 4 s");
  assert.deepEqual(wrong, []);
  worker.process.kill("SIGTERM");
  await page.waitForFunction(() =>
    /^Draining: \d+ s left, 1 handler still runs\.$/.test(document.getElementById("headline").textContent),
  );
  await says(page, "#headline", "The worker is gone: it was draining, and was last heard at");
  assert.equal(await worker.ended, 0);
  assert.deepEqual(
    wrong.filter((said) => !refused(said)),
    [],
  );
});
