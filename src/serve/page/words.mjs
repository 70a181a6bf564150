// Numbers, times and commands as people read them, and text from outside made harmless to read.
//
// Pure, and knows nothing of the page. What comes from outside is never markup here: it is text, in which what is not seen or
// turns a line around is written out.

const UNITS = [
  ["days", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
];

// How long, in the largest unit of which there are at least two: 340 ms, 4.2 s, 119 s, 2 min. Rounded down.
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  for (const [unit, length] of UNITS) if (ms >= 2 * length) return `${Math.floor(ms / length)} ${unit}`;
  if (ms >= 10_000) return `${Math.floor(ms / 1000)} s`;
  return ms >= 1000 ? `${(Math.floor(ms / 100) / 10).toFixed(1)} s` : `${Math.max(0, Math.round(ms))} ms`;
}

export const seconds = (ms) => `${Math.max(0, Math.floor(ms / 1000))} s`;

export const number = (n) => n.toLocaleString("en");

// `1 handler`, `2 handlers`.
export const several = (n, thing, things = `${thing}s`) => `${number(n)} ${n === 1 ? thing : things}`;

// So many a second; a minute, where that is less than one.
export function rate(perSecond) {
  if (perSecond === null) return "–";
  if (perSecond >= 10) return `${number(Math.round(perSecond))}/s`;
  if (perSecond >= 1) return `${perSecond.toFixed(1)}/s`;
  const perMinute = Math.round(perSecond * 60);
  return perSecond > 0 ? `${Math.max(1, perMinute)}/min` : "0/s";
}

// The time of day, in UTC.
export const clock = (ms) => new Date(ms).toISOString().slice(11, 19);

// Several things in a sentence: `a`, `a and b`, `a, b and 3 more`.
export function listed(things, most = 3) {
  const shown = things.length > most ? things.slice(0, most - 1) : things;
  const rest = things.length - shown.length;
  const parts = rest > 0 ? [...shown, `${rest} more`] : shown;
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

// Controls, and format characters that change the direction of a line, break it, or are not seen: those that `leasehold`
// writes out on a terminal. https://www.unicode.org/reports/tr9/, https://www.unicode.org/reports/tr36/
const STEERS =
  String.raw`[\p{Cc}\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb]` +
  String.raw`|[\u{e0000}-\u{e007f}]`;
const STEERING = new RegExp(STEERS, "gu");
const HAS_STEERING = new RegExp(STEERS, "u");
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

// Text from outside, with what could mislead its reader written out, as `\u{202e}`; and no more than fits.
export function plain(text, most = 2000) {
  const characters = Array.from(String(text));
  const cut = characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : String(text);
  return cut.replace(STEERING, (c) => SHORT[c] ?? `\\u{${c.codePointAt(0).toString(16)}}`);
}

// Left as they are by every shell, anywhere in a line.
const BARE = /^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*$/;

// A word for a POSIX shell. What could steer a terminal at which it is pasted is written as bytes, in $'…' (bash, zsh, ksh).
export function quote(word) {
  if (BARE.test(word)) return word;
  if (!HAS_STEERING.test(word)) return `'${word.replaceAll("'", "'\\''")}'`;
  const bytes = (c) =>
    Array.from(new TextEncoder().encode(c), (byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
  return `$'${word.replace(/[\\'!]/g, bytes).replace(STEERING, bytes)}'`;
}

// A line to copy, or null where no shell can hand it over. Options are `[name, value]`.
function leasehold(verbs, operands, options = []) {
  const all = [...operands, ...options.map(([, value]) => value)];
  if (all.some((word) => word.includes("\0") || word === "")) return null;
  const dashed = operands.some((word) => word.startsWith("-")) ? ["--"] : [];
  const valued = options.map(([name, value]) =>
    value.startsWith("-") ? `${name}=${quote(value)}` : `${name} ${quote(value)}`,
  );
  return ["leasehold", ...verbs, ...valued, ...dashed, ...operands.map(quote)].join(" ");
}

export const commands = {
  doctor: () => "leasehold doctor",
  pause: (queue) => leasehold(["pause"], [queue]),
  resume: (queue) => leasehold(["resume"], [queue]),
  dead: (queue) => leasehold(["dlq", "ls"], [queue]),
  deadOfReason: (queue, code) => leasehold(["dlq", "peek"], [queue], [["--reason", code]]),
  deadOfKey: (queue, key) => leasehold(["dlq", "peek"], [queue], [["--key", key]]),
  record: (key) => leasehold(["guard", "get"], [], [["--pk", key]]),
};
