// What the tests of a file share that look at the page before a fake worker: one browser for all, one worker for each.

import { after, afterEach, before, beforeEach } from "node:test";

import { launch, says, visit } from "./browser.mjs";
import { Fake } from "./fake.mjs";

// The hooks of a file. `stage.worker` is the worker of the test that runs; one that a test starts in its place is stopped with it.
export function stage() {
  const open = [];
  const on = {
    worker: null,
    browser: null,
    // The page, once it shows this scene if there is one.
    async look(scene, of) {
      if (scene) on.worker.tell(scene);
      const visited = await visit(on.browser, on.worker.url, of);
      open.push(visited);
      if (scene) await says(visited.page, "#worker", "UTC");
      return visited;
    },
  };
  before(async () => (on.browser = await launch()));
  after(() => on.browser.close());
  beforeEach(async () => (on.worker = await Fake.start()));
  afterEach(async () => {
    for (const one of open.splice(0)) await one.close();
    await on.worker.stop();
  });
  return on;
}
