// Building the page from plain values. Strings become text nodes, never markup: topic names are other people's words.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

/** An element: h("p", {class: "quiet", onclick: f}, "text", child, …); what is null or false is left out. */
export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);

/** The same in a drawing. */
export const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A button; `key` names it, so that the focus finds it again after it was drawn anew. */
export const button = (word, onclick, { key = null, label = null, kind = null } = {}) =>
  h("button", { type: "button", onclick, class: kind, "data-key": key, "aria-label": label }, word);

const shown = new WeakMap();

/** Put what `build` makes of `model` into the container, unless the same is there already; the focus stays. */
export function show(container, model, build) {
  const text = JSON.stringify(model);
  if (shown.get(container) === text) return;
  shown.set(container, text);
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  container.replaceChildren(...[build(model)].flat().filter((child) => child !== null));
  if (focused !== undefined) container.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

export function table(names, rows) {
  return h("div", { class: "table", tabindex: 0, role: "region", "aria-label": names.join(", ") }, h("table", null,
    h("thead", null, h("tr", null, names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((cell) => h("td", null, String(cell))))))));
}

export const facts = (pairs) => h("dl", { class: "facts" }, pairs.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));

export const count = (number) => number.toLocaleString("en");

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export const took = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`);
