// The last fifteen minutes of each queue: what the worker told at first, and from then on what its counts have grown by.
//
// Pure, and in the worker's time alone. A count that has shrunk is of another worker, and begins anew.

export const SPAN = 15 * 60_000;

// A rate is that of the last so many milliseconds: long enough to be read.
const LIVELY = 10_000;

// Failed for good: copied, deleted, or left for the redrive policy.
export const deadOf = ({ dead_lettered, dropped, kept }) => dead_lettered + dropped + kept;

const totals = ({ outcomes, running_total, handler_p99_ms, visibility_timeout }) => ({
  done: outcomes.done,
  failed: outcomes.failed,
  suppressed: outcomes.suppressed,
  dead: deadOf(outcomes),
  in_flight: running_total,
  p99_ms: handler_p99_ms,
  visibility_timeout,
});

export const COUNTS = ["done", "failed", "suppressed", "dead"];

export class Past {
  #step = 5000;
  #queues = new Map();

  // What the worker remembers, at the beginning of a stream.
  load(history) {
    this.#step = history.step_ms;
    const from = (sample) => ({ ...sample, from: sample.at - history.step_ms });
    this.#queues = new Map(
      Object.entries(history.queues).map(([name, samples]) => [name, { samples: samples.map(from), recent: [] }]),
    );
  }

  add(status) {
    for (const name of this.#queues.keys()) if (!Object.hasOwn(status.queues, name)) this.#queues.delete(name);
    for (const [name, queue] of Object.entries(status.queues)) {
      if (!this.#queues.has(name)) this.#queues.set(name, { samples: [], recent: [] });
      this.#addTo(this.#queues.get(name), { at: status.now, ...totals(queue) });
    }
  }

  #addTo(past, point) {
    const is_before = (other) => point.at < other.at || COUNTS.some((count) => point[count] < other[count]);
    if (past.recent.some(is_before)) past.recent = [];
    past.recent.push(point);
    while (past.recent.length > 2 && past.recent[1].at <= point.at - LIVELY) past.recent.shift();
    // The moment at which a stream begins is in what was told of the past.
    past.since ??= point;
    if (is_before(past.since)) past.since = point;
    if (point.at - past.since.at >= this.#step) {
      const grown = COUNTS.map((count) => [count, point[count] - past.since[count]]);
      past.samples.push({ ...point, from: past.since.at, ...Object.fromEntries(grown) });
      past.since = point;
    }
    past.samples = past.samples.filter((sample) => sample.at > point.at - SPAN);
  }

  samples(name) {
    return this.#queues.get(name)?.samples ?? [];
  }

  // How many of each in the last fifteen minutes.
  sums(name) {
    const sums = Object.fromEntries(COUNTS.map((count) => [count, 0]));
    for (const sample of this.samples(name)) for (const count of COUNTS) sums[count] += sample[count];
    return sums;
  }

  // How many a second lately; null while that is not known.
  rate(name, count) {
    const { recent = [], samples = [] } = this.#queues.get(name) ?? {};
    const [first, last] = [recent[0], recent.at(-1)];
    if (first && last.at - first.at >= 3000) return ((last[count] - first[count]) * 1000) / (last.at - first.at);
    const sample = samples.at(-1);
    return sample ? (sample[count] * 1000) / (sample.at - sample.from) : null;
  }
}
