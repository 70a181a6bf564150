// The pictures in docs/: drawn anew with UPDATE=1, and in any case there and small.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";

import { launch, says, visit } from "./browser.mjs";
import { Fake } from "./fake.mjs";
import * as scenes from "./scenes.mjs";

const LARGEST = 200_000;
const PICTURES = { light: "status-page.png", dark: "status-page-dark.png" };
const file = (name) => new URL(`../../docs/${name}`, import.meta.url);

async function draw() {
  const [browser, worker] = [await launch(), await Fake.start()];
  worker.tell(scenes.busy());
  for (const [colorScheme, name] of Object.entries(PICTURES)) {
    const { page, close } = await visit(browser, worker.url, { colorScheme, viewport: { width: 1180, height: 1010 } });
    await says(page, "#headline", "Working");
    writeFileSync(file(name), await page.screenshot());
    await close();
  }
  await browser.close();
  await worker.stop();
}

test("the pictures in docs/ are there, and no larger than a page may be", async () => {
  if (process.env.UPDATE === "1") await draw();
  for (const name of Object.values(PICTURES)) {
    const picture = readFileSync(file(name));
    assert.equal(picture.subarray(1, 4).toString(), "PNG");
    assert.ok(picture.length < LARGEST, `${name}: ${picture.length} bytes; UPDATE=1 make page draws it anew`);
  }
});
