// Steps for handlers of `leasehold run`, with nothing but Node (18 or later). Copy it beside your app.
//
//     const job = await Job.ofRequest(request.headers);  // in an app, from the request's headers
//     const job = await Job.ofEnvironment();             // in a program
//
//     const charge = await job.step("charge", (key) => bank.charge(cents, { idempotencyKey: key }));
//     await job.stepOnce("mail", (key) => mail.send(charge));
//
// A step runs and its result, which must be JSON, is recorded; the next attempt gets the result and does not run it again. One
// whose result is none is recorded too, and the message dead-lettered: nobody knows what to go on with.
// The key is for the API that the step calls: it is the same on every attempt. A name is good for one step of a run: in a
// loop, `line-${number}`. A second use of it is refused, and the message dead-lettered.
//
// Side by side, wait for all of them before you answer, with Promise.allSettled: Promise.all gives up at the first error, and
// your answer ends the run while other steps are still at work. They may run again, beside what is left of them.
//
// A Stopped says that the run must not go on: let it end your handler with any failure. Whether that uses an attempt, or is
// for good, is known to Leasehold already.

import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

const TRIES = 5; // A reply can be lost; whatever is asked twice is done once.
const PAUSE = 200; // Milliseconds, before the first of them; doubled each time.
const TIMEOUT = 35_000; // Milliseconds. Leasehold itself gives up after 30 seconds.

// The run must not go on: it was told to stop, or a step may not run. `code` says why.
export class Stopped extends Error {
  constructor(code, what, permanent = false) {
    super(`${code}: ${what}`);
    Object.assign(this, { code, permanent });
  }
}

// To be thrown in a step: it certainly took no effect, and never will under its key. The next attempt has a new one.
export class Refused extends Error {}

// To be thrown in a step: nothing was done. Leaves no doubt about a stepOnce.
export class NotBegun extends Error {}

// One run. Good for nothing when it is over.
export class Job {
  #url;
  #token;
  recorded; // The results of the steps that earlier attempts recorded, by their names.

  static async ofRequest(headers) {
    const [url, token, steps] = ["job-url", "job-token", "steps"].map((name) => headers[`x-leasehold-${name}`]);
    return Job.#of(url, token, steps === undefined ? undefined : decodeURIComponent(steps));
  }

  static async ofEnvironment() {
    const { LEASEHOLD_JOB_URL, LEASEHOLD_JOB_TOKEN, LEASEHOLD_STEPS } = process.env;
    return Job.#of(LEASEHOLD_JOB_URL, LEASEHOLD_JOB_TOKEN, LEASEHOLD_STEPS);
  }

  static async #of(url, token, steps) {
    if (!url) throw new Stopped("no_steps", "this run has no steps: GUARD=none, or LEASEHOLD_STEPS_ADDR=off");
    const job = new Job();
    job.#url = url;
    job.#token = token;
    job.recorded = steps === undefined ? await job.#results() : JSON.parse(steps);
    return job;
  }

  // Runs work(key) and records what it returns, or returns what was recorded. After a crash in it, it runs again.
  step(name, work) {
    return this.#step(name, work, {});
  }

  // As step, but never again: a crash in it, or an error other than Refused and NotBegun, leaves it to a person.
  stepOnce(name, work) {
    return this.#step(name, work, { once: true });
  }

  // What is known of the run, unless it was told to stop or lost its lease: before what must not be done twice.
  check() {
    return this.#ask("GET", "");
  }

  // Sees to it that at least so much time is left from now on, whatever HANDLER_TIMEOUT gives.
  extend(seconds) {
    return this.#ask("POST", "/deadline", JSON.stringify({ at_least: seconds }));
  }

  async #step(name, work, how) {
    const path = `/steps/${encodeURIComponent(name)}`;
    // The call has a name of its own: a repeated request is no second use of the step's name, which would be refused.
    const begun = await this.#ask("POST", path, JSON.stringify({ ...how, call: randomUUID() }));
    if (begun.recorded) return begun.result;
    let result;
    try {
      result = (await work(begun.key)) ?? null;
    } catch (error) {
      const known = { refused: error instanceof Refused, not_begun: error instanceof NotBegun };
      await this.#ask("DELETE", path, JSON.stringify(known));
      throw error;
    }
    let text;
    try {
      text = JSON.stringify(result);
      if (text === undefined) throw new TypeError(`a ${typeof result} is no JSON`);
    } catch (error) {
      return this.#notKept(path, error);
    }
    await this.#ask("PUT", path, text);
    this.recorded[name] = result;
    return result;
  }

  // The step took effect, whatever its result is: that is recorded, so that it never runs again, and refused.
  async #notKept(path, why) {
    try {
      await this.#ask("PUT", `${path}?result=none`);
    } catch (stopped) {
      throw Object.assign(stopped, { cause: why });
    }
  }

  async #results() {
    const { steps } = await this.#ask("GET", "");
    return Object.fromEntries(Object.entries(steps).flatMap(([name, { result }]) => (result === undefined ? [] : [[name, result]])));
  }

  async #ask(method, path, body) {
    const headers = { Authorization: `Bearer ${this.#token}`, "Content-Type": "application/json" };
    for (let tries = 1; ; tries++) {
      let reply, text;
      try {
        const signal = AbortSignal.timeout(TIMEOUT);
        reply = await fetch(this.#url + path, { method, headers, signal, body });
        text = await reply.text();
      } catch (error) {
        if (tries === TRIES) throw new Stopped("unreachable", `${this.#url} does not answer: ${error.cause ?? error}`);
        await pause(PAUSE * 2 ** (tries - 1));
        continue;
      }
      const told = JSON.parse(text || "null");
      if (reply.ok) return told;
      throw new Stopped(told.error, `${told.what}; ${told.mend}`, told.permanent);
    }
  }
}
