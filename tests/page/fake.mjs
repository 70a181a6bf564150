// A stand-in for a worker's endpoint: the page with the headers that it is served with, and events that a test makes.
//
// The pages and their headers are read from where the worker has them, so that what is tested here is what is served there.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const SERVE = new URL("../../src/serve/", import.meta.url);
const SOURCE = readFileSync(new URL("page.rs", SERVE), "utf8");
const CSP = SOURCE.match(/CONTENT_SECURITY_POLICY,\s*HeaderValue::from_static\(\s*"([^"]+)"/)[1].replaceAll(
  /\\\n\s*/g,
  "",
);
const TYPES = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  mjs: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};

export class Fake {
  #streams = new Set();
  #waiting = new Set();
  opened = 0; // Streams, so far.
  refuses = false; // Whether streams are refused.
  #told = { history: { step_ms: 5000, queues: {} }, status: null };

  static async start(port = 0) {
    const fake = new Fake();
    fake.server = createServer((request, response) => fake.#answer(request, response));
    await new Promise((listening) => fake.server.listen(port, "127.0.0.1", listening));
    fake.port = fake.server.address().port;
    fake.url = `http://127.0.0.1:${fake.port}/`;
    return fake;
  }

  // What is told from now on: the history to whoever comes, the status to all.
  tell({ history, status }) {
    if (history) this.#told.history = history;
    this.#told.status = status;
    for (const stream of this.#streams) this.#event(stream, "status", status);
  }

  get streams() {
    return this.#streams.size;
  }

  // Waits until this is so of its streams.
  until(is_so) {
    return new Promise((done) => {
      const look = () => is_so() && this.#waiting.delete(look) && done();
      this.#waiting.add(look);
      look();
    });
  }

  #changed() {
    for (const look of this.#waiting) look();
  }

  endStreams() {
    for (const stream of this.#streams) stream.end();
  }

  // Ends, as a worker does: its streams, its socket.
  async stop() {
    this.endStreams();
    this.server.closeAllConnections();
    await new Promise((closed) => this.server.close(closed));
  }

  #event(stream, name, data) {
    stream.write(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
  }

  #answer(request, response) {
    if (request.url === "/events" && !this.refuses) return this.#stream(response);
    if (request.url === "/events") return response.writeHead(503).end();
    const name =
      request.url === "/" ? "page.html" : request.url.startsWith("/page/") ? request.url.slice("/page/".length) : "";
    const type = TYPES[name.split(".").at(-1)];
    if (!/^[a-z]+\.[a-z]+$/.test(name) || !type) return response.writeHead(404).end();
    const headers = {
      "content-type": type,
      "content-security-policy": CSP,
      "x-content-type-options": "nosniff",
      "cross-origin-opener-policy": "same-origin",
    };
    response.writeHead(200, headers).end(readFileSync(new URL(`page/${name}`, SERVE)));
  }

  #stream(response) {
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    this.#streams.add(response);
    this.opened += 1;
    this.#changed();
    response.on("close", () => {
      this.#streams.delete(response);
      this.#changed();
    });
    this.#event(response, "history", this.#told.history);
    if (this.#told.status) this.#event(response, "status", this.#told.status);
  }
}
