// Chromium for the tests: started once a file, and a page of it that minds what must never happen.
//
// Waits for what a page shows, never for a time to pass.

import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";

// Installed by `make page`, which keeps it out of the sources.
const { chromium } = createRequire(new URL("../../target/page/package.json", import.meta.url))("playwright-core");

// Nothing of it but a page: no updates, no calls home.
const ARGS = [
  "--headless=new",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--font-render-hinting=none",
];

const CHROMIUM = execFileSync("/bin/sh", ["-c", 'command -v "${CHROMIUM:-chromium}"'], { encoding: "utf8" }).trim();

// Playwright gives each launch a profile of its own, and removes it.
export const launch = () => chromium.launch({ executablePath: CHROMIUM, args: ARGS });

export const DESK = { width: 1360, height: 900 };
export const PHONE = { width: 390, height: 844 };

// A page, and what went wrong on it: errors, warnings, violations of its policy, and anything that was asked of somebody else.
export async function visit(browser, url, of = {}) {
  const context = await browser.newContext({ viewport: DESK, ...of });
  const page = await context.newPage();
  const wrong = [];
  page.on(
    "console",
    (said) => ["error", "warning"].includes(said.type()) && wrong.push(`${said.text()} ${said.location().url}`),
  );
  page.on("pageerror", (error) => wrong.push(String(error.stack)));
  page.on("dialog", (dialog) => wrong.push(`a dialog: ${dialog.message()}`));
  page.on(
    "request",
    (request) => new URL(request.url()).origin === new URL(url).origin || wrong.push(`a request to ${request.url()}`),
  );
  await page.addInitScript(() => {
    globalThis.harmed = () => console.error("harmed");
    addEventListener("securitypolicyviolation", (event) => console.error(`violation of ${event.violatedDirective}`));
  });
  if (of.before) await of.before(page);
  await page.goto(url);
  return { page, wrong, close: () => context.close() };
}

// A browser reports of a worker that is gone what became of its connection, and nothing else.
export const refused = (said) =>
  /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/.test(said);

// Waits until this text is shown in what the selector finds: soon, but a machine that has much else to do takes its time.
export const says = (page, selector, text, soon = 60_000) =>
  page.waitForFunction(
    ([one, what]) => [...document.querySelectorAll(one)].some((element) => element.textContent.includes(what)),
    [selector, text],
    { timeout: soon },
  );

export const text = (page, selector) => page.locator(selector).first().innerText();

// What sticks out of the page to the right.
export const tooWide = (page) =>
  page.evaluate(() => {
    const wide = [...document.querySelectorAll("body *")].filter(
      (e) => e.getBoundingClientRect().right > innerWidth + 1,
    );
    return document.documentElement.scrollWidth > innerWidth
      ? wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 200))
      : [];
  });

// Text that stands out too little from what is behind it, by https://www.w3.org/TR/WCAG22/#contrast-minimum.
export const tooFaint = (page) =>
  page.evaluate(() => {
    const channel = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const parsed = (color) => color.match(/[\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
    const behind = (element) => {
      for (let e = element; e; e = e.parentElement) {
        const color = parsed(getComputedStyle(e).backgroundColor);
        if (color.length < 4 || color[3] === 1) return color;
      }
      return [255, 255, 255];
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (!node.data.trim() || !element.checkVisibility() || element.closest(".unseen, noscript")) continue;
      const [one, other] = [luminance(parsed(getComputedStyle(element).color)), luminance(behind(element))].sort(
        (a, b) => b - a,
      );
      const contrast = (one + 0.05) / (other + 0.05);
      if (contrast < 4.5) found.push(`${contrast.toFixed(2)} ${element.outerHTML.slice(0, 120)}`);
    }
    return found;
  });
