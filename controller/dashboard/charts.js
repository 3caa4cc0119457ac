// Small charts of the controller's last minutes. A new one is an entry in CHARTS; what it reads is a field of
// the pulse, or a difference of two samples.

import { $, count, h, s, show } from "./dom.js";

const WINDOW_MS = 5 * 60_000;
const WIDTH = 300;
const HEIGHT = 64;

const field = (name) => (now) => now[name];
const rate = (name) => (now, before) => (1000 * (now[name] - before[name])) / (now.at_ms - before.at_ms);

const CHARTS = [
  { title: "Offline partitions", value: field("offline"), colour: "red" },
  { title: "Under-replicated partitions", value: field("under_replicated"), colour: "yellow" },
  { title: "ISR changes per second", value: rate("isr_changes"), colour: "accent" },
  { title: "Leader elections per second", value: rate("leader_elections"), colour: "accent" },
  { title: "Waiting: events and states to tell", value: (now) => now.queue_length + now.outbox_depth, colour: "accent" },
  {
    title: "Milliseconds per event",
    value: (now, before) => (now.events > before.events ? (now.event_ms - before.event_ms) / (now.events - before.events) : 0),
    colour: "green",
  },
];

/** Samples of all controllers that this page has heard of, in order of time. */
export class Pulse {
  #samples = [];

  get newest() {
    return this.#samples.at(-1)?.at_ms ?? 0;
  }

  add(samples) {
    this.#samples.push(...samples.filter((one) => one.at_ms > this.newest));
    const first = this.#samples.findIndex((one) => one.at_ms > this.newest - WINDOW_MS - 5_000);
    this.#samples.splice(0, Math.max(0, first));
  }

  draw() {
    show($("charts"), this.newest, () => CHARTS.map((chart) => drawn(chart, this.#points(chart), this.newest)));
  }

  /** Pairs of time and value; totals are compared within one term only. */
  #points({ value }) {
    const points = [];
    for (let at = 1; at < this.#samples.length; at += 1) {
      const [before, now] = [this.#samples[at - 1], this.#samples[at]];
      const isSame = before.controller_epoch === now.controller_epoch;
      points.push([now.at_ms, isSame ? Math.max(0, value(now, before)) : value(now, now) || 0]);
    }
    return points;
  }
}

const rounded = (number) => (number < 10 ? String(Math.round(number * 10) / 10) : count(Math.round(number)));

function drawn({ title, colour }, points, newest) {
  const values = points.map(([, value]) => value);
  const now = values.at(-1) ?? 0;
  const most = Math.max(...values, 0);
  const x = (ms) => WIDTH - (WIDTH * (newest - ms)) / WINDOW_MS;
  const y = (value) => HEIGHT - 3 - ((HEIGHT - 8) * value) / (most || 1);
  const path = points.map(([ms, value], at) => `${at === 0 ? "M" : "L"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const said = `${title}: now ${rounded(now)}, at most ${rounded(most)} in the last five minutes`;
  return h("figure", { class: `chart ${colour}` },
    h("figcaption", null, h("span", null, title), h("strong", null, rounded(now))),
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": said },
      s("title", null, said),
      points.length === 0 ? null : [
        s("path", { class: "area", d: `${path}L${x(points.at(-1)[0]).toFixed(1)} ${HEIGHT}L${x(points[0][0]).toFixed(1)} ${HEIGHT}Z` }),
        s("path", { class: "line", d: path }),
      ]),
    h("p", { class: "quiet scale" }, h("span", null, "5 min"), h("span", null, `at most ${rounded(most)}`)));
}
