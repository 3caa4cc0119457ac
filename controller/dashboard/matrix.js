// Brokers across, partitions down. Only the rows in sight are in the document, so 100,000 partitions cost no more than 30.

import { h, plural } from "./dom.js";

const ROW_PX = 30;
const SPARE_ROWS = 6;
const MANY_BROKERS = 6;
const STATES = { o: "online", n: "not-preferred", u: "under-replicated", x: "offline" };
const FILTERS = {
  all: () => true,
  trouble: (row, at) => row.states[at] === "u" || row.states[at] === "x",
  offline: (row, at) => row.states[at] === "x",
  "under-replicated": (row, at) => row.states[at] === "u",
  "not-preferred": (row, at) => row.leaders[at] !== row.replicas[at][0] && row.states[at] !== "x",
  moving: (row, at) => row.partitions[at] in row.adding || row.partitions[at] in row.removing,
};
const WORDS = {
  leader: ["L", "leader"],
  insync: ["●", "in sync"],
  lagging: ["!", "out of sync"],
  offline: ["×", "offline"],
  adding: ["+", "being added"],
  removing: ["−", "being removed"],
};

/** What a broker is to a partition; null when it has no copy. */
function roleOf(row, at, brokerId, goneIds) {
  if (!row.replicas[at].includes(brokerId)) return null;
  const number = row.partitions[at];
  if (goneIds.has(brokerId)) return "offline";
  if (row.leaders[at] === brokerId) return "leader";
  const isr = row.isr[number];
  const isAdding = row.adding[number]?.includes(brokerId) ?? false;
  if (isAdding && !isr?.includes(brokerId)) return "adding";
  if (row.removing[number]?.includes(brokerId)) return "removing";
  return isr === undefined || isr.includes(brokerId) ? "insync" : "lagging";
}

export class Matrix {
  #rows = [];
  #brokers = [];
  #goneIds = new Set();
  #list = []; // [row, position] of what is shown
  #current = 0;
  #filter = { topic: "", state: "all" };

  constructor(container, { onOpen, onShown }) {
    this.on = { onOpen, onShown };
    this.box = container;
    this.head = h("div", { class: "matrix-row matrix-head", role: "row", "aria-rowindex": 1 });
    this.body = h("div", { class: "matrix-body", role: "rowgroup" });
    container.append(this.head, this.body);
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

  update(rows, brokers) {
    this.#rows = rows;
    this.#brokers = brokers;
    this.#goneIds = new Set(brokers.filter((broker) => broker.state === "gone").map((broker) => broker.id));
    this.box.style.setProperty("--brokers", brokers.length);
    this.box.style.setProperty("--cell", brokers.length > MANY_BROKERS ? "34px" : "minmax(36px, 84px)");
    this.box.setAttribute("aria-colcount", brokers.length + 2);
    this.head.replaceChildren(
      h("span", { role: "columnheader", class: "matrix-name" }, "partition"),
      h("span", { role: "columnheader", class: "matrix-state" }, "state"),
      ...brokers.map((broker) =>
        h(
          "span",
          { role: "columnheader", class: `matrix-cell ${broker.state}`, "aria-label": `broker ${broker.id}, ${broker.state}` },
          String(broker.id),
        ),
      ),
    );
    this.#select();
  }

  filter(topic, state) {
    this.#filter = { topic: topic.trim().toLowerCase(), state };
    this.#current = 0;
    this.box.scrollTop = 0;
    this.#select();
  }

  #select() {
    const { topic, state } = this.#filter;
    const matches = FILTERS[state];
    let all = 0;
    this.#list = [];
    for (const row of this.#rows) {
      all += row.partitions.length;
      if (!row.topic.toLowerCase().includes(topic)) continue;
      for (let at = 0; at < row.partitions.length; at += 1) if (matches(row, at)) this.#list.push([row, at]);
    }
    this.#current = Math.min(this.#current, Math.max(0, this.#list.length - 1));
    this.box.setAttribute("aria-rowcount", this.#list.length + 1);
    this.body.style.height = `${this.#list.length * ROW_PX}px`;
    this.on.onShown(
      this.#list.length === all ? plural(all, "partition") : `${this.#list.length.toLocaleString("en")} of ${plural(all, "partition")}`,
    );
    this.#draw();
  }

  #draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_PX) - SPARE_ROWS);
    const last = Math.min(this.#list.length, first + Math.ceil(this.box.clientHeight / ROW_PX) + 2 * SPARE_ROWS);
    const lines = [];
    for (let index = first; index < last; index += 1) lines.push(this.#line(index));
    this.body.replaceChildren(...lines);
    if (this.#list.length > 0) this.box.setAttribute("aria-activedescendant", `row-${this.#current}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  #line(index) {
    const [row, at] = this.#list[index];
    const state = STATES[row.states[at]];
    const name = `${row.topic}-${row.partitions[at]}`;
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
      h("span", { role: "gridcell", class: "matrix-state" }, state.replace("-", " ")),
      this.#brokers.map((broker) => {
        const role = roleOf(row, at, broker.id, this.#goneIds);
        if (role === null) return h("span", { role: "gridcell", class: "matrix-cell", "aria-label": "no copy" });
        const [mark, word] = WORDS[role];
        const label = `broker ${broker.id}: ${word}`;
        return h("span", { role: "gridcell", class: "matrix-cell", "aria-label": label, title: label }, h("i", { class: `mark ${role}` }, mark));
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
    this.on.onOpen(row.topic, row.partitions[at]);
  }
}
