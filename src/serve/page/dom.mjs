// The few ways in which this page makes and changes elements.
//
// All text goes in as text: nothing here takes markup. What is shown already is kept and changed in place, so that a selection,
// the focus and the place on the page survive the next second.

import { plain } from "./words.mjs";

// An element with these attributes; children are nodes or text.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, is_shown) {
  if (element.hidden === is_shown) element.hidden = !is_shown;
}

export function mark(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// Text from outside: isolated, so that its direction is its own affair.
export const outside = (attributes = {}) => make("bdi", attributes);

export function writeOutside(element, text, most) {
  const told = plain(text, most);
  write(element, told);
  mark(element, "title", told);
}

const items = new WeakMap();

// Makes the children of an element those of these things, in their order: new ones are made, each is told what it now is, and
// the rest are taken out first, so that what stays need not be moved. `key` tells them apart.
export function fill(parent, things, key, made, told) {
  const old = items.get(parent) ?? new Map();
  const now = new Map();
  for (const thing of things) {
    let name = key(thing);
    while (now.has(name)) name += "'"; // Two of the same name are two.
    now.set(name, thing);
  }
  for (const [name, item] of old) if (!now.has(name)) item.element.remove();
  let before = null;
  for (const [name, thing] of now) {
    const item = old.get(name) ?? made(thing);
    now.set(name, item);
    told(item, thing);
    const next = before === null ? parent.firstChild : before.nextSibling;
    if (item.element !== next) parent.insertBefore(item.element, next);
    before = item.element;
  }
  items.set(parent, now);
}

// A table of these columns, `[class, heading]`. Roles are said, for on a narrow screen its parts are laid out as blocks, and
// browsers then take them for no table.
export function table(caption, columns) {
  const headings = columns.map(([name, text]) => make("th", { scope: "col", role: "columnheader", class: name }, text));
  const body = make("tbody", { role: "rowgroup" });
  const element = make(
    "table",
    { role: "table" },
    make("caption", { class: "unseen" }, caption),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...headings)),
    body,
  );
  return { element, body };
}

// A row of such a table, a cell a column; on a narrow screen each names its column.
export function row(columns, cells) {
  const all = columns.map(([name, text], index) =>
    make("td", { role: "cell", class: name, "data-column": text }, ...[cells[index]].flat()),
  );
  return make("tr", { role: "row" }, ...all);
}

// A name and a number, with a word on it below.
export function fact(name) {
  const value = make("span", { class: "value" });
  const note = make("span", { class: "note" });
  const element = make("div", {}, make("dt", {}, name), make("dd", {}, value, note));
  return { element, value, note };
}

export function tellFact(of, value, note = "", level = null) {
  write(of.value, value);
  write(of.note, note);
  mark(of.element, "data-level", level);
}

// ---- commands ----

// A button that copies a line. Long lines are named shortly, and shown whole when they are copied.
export function commandButton(name = null) {
  const text = make("code");
  const element = make("button", { type: "button", class: "command" }, text);
  const button = { element, text, name, line: null };
  element.addEventListener("click", () => copy(button.line));
  return button;
}

export function tellCommand(button, line) {
  button.line = line;
  show(button.element, line !== null);
  if (line === null) return;
  write(button.text, button.name ?? line);
  mark(button.element, "title", `Copy: ${line}`);
  mark(button.element, "aria-label", `Copy: ${line}`);
}

let hiding;

async function copy(line) {
  const told = document.getElementById("copied");
  const code = make("code", {}, line);
  const copied = await written(line);
  told.replaceChildren(copied ? "Copied: " : "To be copied by hand: ", code);
  told.hidden = false;
  // Where there is no clipboard to write to, which plain HTTP from another machine has not, the line is at least selected.
  if (!copied) getSelection().selectAllChildren(code);
  clearTimeout(hiding);
  hiding = setTimeout(() => (told.hidden = true), copied ? 4000 : 20_000);
}

async function written(line) {
  try {
    await navigator.clipboard.writeText(line);
    return true;
  } catch {
    return false;
  }
}
