// Building the page from plain values. Strings become text nodes, never markup: topic names are other people's words.

export const $ = (id) => document.getElementById(id);

/** An element: h("p", {class: "quiet", onclick: f}, "text", child, …); what is null or false is left out. */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const shown = new WeakMap();

/** Put what `build` makes of `model` into the container, unless the same is there already; the focus stays. */
export function show(container, model, build) {
  const text = JSON.stringify(model);
  if (shown.get(container) === text) return;
  shown.set(container, text);
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  container.replaceChildren(...[build(model)].flat());
  if (focused !== undefined) container.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

export const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export const took = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`);
