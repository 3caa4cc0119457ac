// Brokers across, partitions or topics down. Only the rows in sight are in the document, so 100,000 partitions cost no
// more than 30.

import { count, h, plural } from "./dom.js";

const ROW_PX = 30;
const SPARE_ROWS = 6;
const MANY_BROKERS = 6;
const STATES = { o: "online", n: "not-preferred", u: "under-replicated", x: "offline", c: "new" };
const FILTERS = {
  all: () => true,
  trouble: (row, at) => row.states[at] === "u" || row.states[at] === "x",
  offline: (row, at) => row.states[at] === "x",
  new: (row, at) => row.states[at] === "c",
  "under-replicated": (row, at) => row.states[at] === "u",
  "not-preferred": (row, at) => row.leaders[at] !== row.replicas[at][0] && !"xc".includes(row.states[at]),
  moving: (row, at) => row.partitions[at] in row.adding || row.partitions[at] in row.removing,
};
const MANY_PARTITIONS = 2_000; // from here on topics are shown, until somebody chooses otherwise
const WORDS = {
  leader: ["L", "leader"],
  insync: ["●", "in sync"],
  lagging: ["!", "out of sync"],
  offline: ["×", "offline"],
  adding: ["+", "being added"],
  new: ["○", "new: never led"],
  removing: ["−", "being removed"],
};

/** What a broker is to a partition; null when it has no copy. */
function roleOf(row, at, brokerId, goneIds) {
  if (!row.replicas[at].includes(brokerId)) return null;
  const number = row.partitions[at];
  if (goneIds.has(brokerId)) return "offline";
  if (row.states[at] === "c") return "new";
  if (row.leaders[at] === brokerId) return "leader";
  const isr = row.isr[number];
  const isAdding = row.adding[number]?.includes(brokerId) ?? false;
  if (isAdding && !isr?.includes(brokerId)) return "adding";
  if (row.removing[number]?.includes(brokerId)) return "removing";
  return isr === undefined || isr.includes(brokerId) ? "insync" : "lagging";
}

/** What a topic is in numbers: by state, and what each broker leads and holds of it. Counted when first shown. */
function sumsOf(row) {
  let sums = SUMS.get(row);
  if (sums === undefined) {
    const [leaders, replicas, states] = [new Map(), new Map(), { o: 0, n: 0, u: 0, x: 0, c: 0 }];
    const add = (map, id) => map.set(id, (map.get(id) ?? 0) + 1);
    row.partitions.forEach((_, at) => {
      states[row.states[at]] += 1;
      add(leaders, row.leaders[at]);
      row.replicas[at].forEach((id) => add(replicas, id));
    });
    SUMS.set(row, (sums = { leaders, replicas, states, most: Math.max(...leaders.values()) }));
  }
  return sums;
}
const SUMS = new WeakMap();

export class Matrix {
  #rows = [];
  #brokers = [];
  #goneIds = new Set();
  #list = []; // [row, position] of what is shown; the position of a whole topic is null
  #current = 0;
  #filter = { topic: "", state: "all", view: null };

  constructor(container, on) {
    this.on = on; // onOpen(topic, partition), onTopic(topic), onShown(text, view)
    this.box = container;
    this.head = h("div", { class: "matrix-row matrix-head", role: "row", "aria-rowindex": 1 });
    this.body = h("div", { class: "matrix-body", role: "rowgroup" });
    container.append(h("div", { role: "rowgroup" }, this.head), this.body);
    container.addEventListener("scroll", () => this.#draw(), { passive: true });
    container.addEventListener("keydown", (event) => this.#key(event));
    this.body.addEventListener("click", (event) => {
      const line = event.target.closest(".matrix-row");
      if (line === null) return;
      this.#current = Number(line.dataset.index);
      this.#draw();
      this.#open();
    });
    new ResizeObserver(() => this.#draw()).observe(container);
  }

  /** Partitions or topics: as chosen, or as there are few or many. */
  get view() {
    const { view } = this.#filter;
    if (view !== null) return view;
    return this.#rows.reduce((sum, row) => sum + row.partitions.length, 0) > MANY_PARTITIONS ? "topics" : "partitions";
  }

  update(rows, brokers) {
    this.#rows = rows;
    this.#brokers = brokers;
    this.#head();
    this.#select();
  }

  #head() {
    const brokers = this.#brokers;
    this.#goneIds = new Set(brokers.filter((broker) => broker.state === "gone").map((broker) => broker.id));
    this.box.style.setProperty("--brokers", brokers.length);
    this.box.style.setProperty("--cell", brokers.length > MANY_BROKERS ? "34px" : "84px");
    this.box.setAttribute("aria-colcount", brokers.length + 2);
    this.head.replaceChildren(
      h("span", { role: "columnheader", class: "matrix-name" }, this.view === "topics" ? "topic" : "partition"),
      h("span", { role: "columnheader", class: "matrix-state" }, "state"),
      ...brokers.map((broker) =>
        h(
          "span",
          { role: "columnheader", class: `matrix-cell ${broker.state}`, "aria-label": `broker ${broker.id}, ${broker.state}` },
          String(broker.id),
        ),
      ),
    );
  }

  /** `topic` is a part of the name or, with an equals sign before it, all of it. */
  filter(topic, state, view) {
    this.#filter = { topic: topic.trim().toLowerCase(), state, view };
    this.#head();
    this.#current = 0;
    this.box.scrollTop = 0;
    this.#select();
  }

  #select() {
    const { topic, state } = this.#filter;
    const matches = FILTERS[state];
    const isWhole = topic.startsWith("=");
    const areTopics = this.view === "topics";
    let all = 0;
    this.#list = [];
    for (const row of this.#rows) {
      all += areTopics ? 1 : row.partitions.length;
      const name = row.topic.toLowerCase();
      if (isWhole ? name !== topic.slice(1) : !name.includes(topic)) continue;
      if (areTopics) {
        if (row.partitions.some((_, at) => matches(row, at))) this.#list.push([row, null]);
      } else for (let at = 0; at < row.partitions.length; at += 1) if (matches(row, at)) this.#list.push([row, at]);
    }
    this.#current = Math.min(this.#current, Math.max(0, this.#list.length - 1));
    this.box.setAttribute("aria-rowcount", this.#list.length + 1);
    this.body.style.height = `${this.#list.length * ROW_PX}px`;
    this.on.onShown(
      (this.#list.length === all ? "" : `${count(this.#list.length)} of `) + plural(all, areTopics ? "topic" : "partition"),
      this.view,
    );
    this.#draw();
  }

  #draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_PX) - SPARE_ROWS);
    const last = Math.min(this.#list.length, first + Math.ceil(this.box.clientHeight / ROW_PX) + 2 * SPARE_ROWS);
    const lines = [];
    for (let index = first; index < last; index += 1) lines.push(this.#list[index][1] === null ? this.#topic(index) : this.#line(index));
    this.body.replaceChildren(...lines);
    if (this.#list.length > 0) this.box.setAttribute("aria-activedescendant", `row-${this.#current}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  #line(index) {
    const [row, at] = this.#list[index];
    return this.#row(index, `${row.topic}-${row.partitions[at]}`, STATES[row.states[at]], STATES[row.states[at]].replace("-", " "), (broker) => {
      const role = roleOf(row, at, broker.id, this.#goneIds);
      if (role === null) return null;
      const [mark, word] = WORDS[role];
      return [h("i", { class: `mark ${role}` }, mark), word];
    });
  }

  #topic(index) {
    const [row] = this.#list[index];
    const { leaders, replicas, states, most } = sumsOf(row);
    const worst = states.x > 0 ? "offline" : states.c > 0 ? "new" : states.u > 0 ? "under-replicated" : "online";
    const text = states.x > 0 ? `${count(states.x)} offline` : states.c > 0 ? `${count(states.c)} never led` : states.u > 0 ? `${count(states.u)} under repl.` : plural(row.partitions.length, "partition");
    return this.#row(index, row.topic, worst, text, (broker) => {
      if (!replicas.has(broker.id)) return null;
      const led = leaders.get(broker.id) ?? 0;
      const heat = this.#goneIds.has(broker.id) ? "gone" : led === 0 ? "none" : led > most / 2 ? "much" : "some";
      return [h("i", { class: `heat ${heat}` }, led > 999 ? `${Math.round(led / 1000)}k` : String(led)), `leads ${count(led)}, holds ${count(replicas.get(broker.id))}`];
    });
  }

  #row(index, name, state, text, cell) {
    const line = h(
      "div",
      {
        class: `matrix-row ${state}${index === this.#current ? " current" : ""}`,
        role: "row",
        id: `row-${index}`,
        "aria-rowindex": index + 2,
        "data-index": index,
      },
      h("span", { role: "rowheader", class: "matrix-name", title: `${name}: ${state}`, "aria-label": `${name}, ${state}` }, name),
      h("span", { role: "gridcell", class: "matrix-state" }, text),
      this.#brokers.map((broker) => {
        const shown = cell(broker);
        if (shown === null) return h("span", { role: "gridcell", class: "matrix-cell", "aria-label": "no copy" });
        const label = `broker ${broker.id}: ${shown[1]}`;
        return h("span", { role: "gridcell", class: "matrix-cell", "aria-label": label, title: label }, shown[0]);
      }),
    );
    line.style.transform = `translateY(${index * ROW_PX}px)`;
    return line;
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW_PX) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.#list.length, End: this.#list.length };
    if (event.key === "Enter" && this.#list.length > 0) {
      this.#open();
    } else if (event.key in steps) {
      this.#current = Math.max(0, Math.min(this.#list.length - 1, this.#current + steps[event.key]));
      this.#scrollToCurrent();
      this.#draw();
    } else return;
    event.preventDefault();
  }

  #scrollToCurrent() {
    const top = this.#current * ROW_PX;
    const height = this.box.clientHeight - 2 * ROW_PX; // the head stands on top
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top > this.box.scrollTop + height) this.box.scrollTop = top - height;
  }

  #open() {
    const [row, at] = this.#list[this.#current];
    if (at === null) this.on.onTopic(row.topic);
    else this.on.onOpen(row.topic, row.partitions[at]);
  }
}
