// Small charts of the last fifteen minutes, drawn as SVG paths: bars of counts, or lines under a limit.
//
// No text in the drawing: what a chart shows is said beside it in words, and to those who cannot see it. Bars stand where their
// five seconds were, so that a time in which nothing was told is a gap.

import { make, mark } from "./dom.mjs";
import { COUNTS, SPAN } from "./past.mjs";

const WIDTH = 360;
const HEIGHT = 60;
const STEP = 5000;
const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function drawing(classes) {
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const paths = Object.fromEntries(classes.map((name) => [name, shape("path", { class: name, d: "" })]));
  svg.append(...Object.values(paths));
  return { svg, paths };
}

const round = (n) => Math.round(n * 100) / 100;

// From a time to its place. The window moves on by whole steps: a chart that creeps cannot be read.
const place = (now) => {
  const end = Math.ceil(now / STEP) * STEP;
  return (at) => round(WIDTH * (1 - (end - at) / SPAN));
};

// From the bottom up: what should be seen first stands on the ground.
export const STACK = ["dead", "failed", "done", "suppressed"];

export function bars() {
  const { svg, paths } = drawing(STACK);
  const tell = (samples, now) => {
    const x = place(now);
    const perSecond = ({ at, from, ...sample }, count) => (sample[count] * 1000) / (at - from);
    const whole = (sample) => COUNTS.reduce((sum, count) => sum + perSecond(sample, count), 0);
    const highest = Math.max(0, ...samples.map(whole));
    const drawn = Object.fromEntries(STACK.map((count) => [count, ""]));
    for (const sample of samples) {
      let bottom = HEIGHT;
      const [left, width] = [x(sample.from), 0.82 * (x(sample.at) - x(sample.from))];
      for (const count of STACK) {
        if (sample[count] === 0) continue;
        // One of a thousand is to be seen.
        const height = Math.max(1.5, (perSecond(sample, count) / highest) * (HEIGHT - 4));
        drawn[count] += `M${left} ${round(bottom)}h${round(width)}v${round(-height)}h${round(-width)}z`;
        bottom -= height;
      }
    }
    for (const count of STACK) mark(paths[count], "d", drawn[count]);
    return highest;
  };
  return { element: svg, tell };
}

// Values under a limit, either of which may change: `[at, value, limit]`, a value may be null.
export function lines() {
  const { svg, paths } = drawing(["area", "line", "limit"]);
  const tell = (points, now) => {
    const x = place(now);
    const highest = Math.max(1, ...points.map(([, value, limit]) => Math.max(value ?? 0, limit)));
    const y = (value) => round(HEIGHT - 2 - (value / highest) * (HEIGHT - 6));
    let [area, line, limit, last, begun] = ["", "", "", null, null];
    const close = () => (begun === null ? "" : `L${last} ${HEIGHT}L${begun} ${HEIGHT}z`);
    points.forEach(([at, value, most], index) => {
      const gap = index === 0 || at - points[index - 1][0] > 3 * STEP;
      limit += `${gap ? "M" : "L"}${x(at)} ${y(most)}`;
      if (value === null || gap) {
        area += close();
        begun = null;
      }
      if (value === null) return;
      const move = begun === null ? "M" : "L";
      begun ??= x(at);
      last = x(at);
      line += `${move}${last} ${y(value)}`;
      area += `${move}${last} ${y(value)}`;
    });
    mark(paths.area, "d", area + close());
    mark(paths.line, "d", line);
    mark(paths.limit, "d", limit);
  };
  return { element: svg, tell };
}

// A chart with its heading, and in words what it shows.
export function figure(title, chart, legend = []) {
  const [note, words] = [make("span", { class: "note" }), make("p", { class: "words" })];
  const keys = legend.map(([name, text]) => make("span", { class: `key ${name}` }, text));
  const element = make(
    "figure",
    {},
    make("figcaption", {}, make("span", { class: "name" }, title), note),
    chart.element,
    legend.length > 0 ? make("p", { class: "legend" }, ...keys) : words,
  );
  return { element, note, words, keys, tell: chart.tell };
}
