// What was decided lately, as it comes from the stream: lines of one cause that say the same are one entry.

import { $, clock, h, plural, show, took } from "./dom.js";
import { isPhase } from "./failovers.js";

const NAMED_AT_MOST = 3;

/** Recent lines, the newest first; those of one cause that say the same are one entry. */
export class Events {
  #groups = [];

  constructor(kept = 120) {
    this.kept = kept;
  }

  add(line) {
    if (line.kind === "move") return; // the machines are drawn, and each write has a line of its own
    const what = isPhase(line) ? "phase" : line.target;
    const key = [line.controller_epoch, line.event_id, line.kind, what, line.reason, line.broker_id].join("|");
    const found = this.#groups.slice(0, 8).find((group) => group.key === key);
    if (found !== undefined) {
      if (isPhase(line)) found.line = line; // how far it is
      found.lines = [...found.lines.slice(0, NAMED_AT_MOST - 1), line].slice(0, NAMED_AT_MOST);
      found.count += 1;
      return;
    }
    this.#groups.unshift({ key, lines: [line], count: 1, line });
    this.#groups.length = Math.min(this.#groups.length, this.kept);
  }

  draw() {
    show($("events"), this.#groups.map(({ key, count }) => [key, count]), () =>
      this.#groups.length === 0
        ? h("li", { class: "quiet" }, "Nothing has happened yet.")
        : this.#groups.map((group) =>
            h("li", { class: `event ${tone(group.line)}` },
              h("time", { datetime: new Date(group.line.at_ms).toISOString() }, clock(group.line.at_ms)),
              h("div", null, h("strong", null, headline(group)), h("span", { class: "quiet" }, detail(group))))),
    );
  }
}

function tone(line) {
  if (isPhase(line)) return "seat-line";
  if (line.target === "gone" || line.target === "OfflinePartition" || ["parked", "refused"].includes(line.target)) return "bad";
  if (line.target === "draining" || line.target === "deleting") return "warn";
  return line.kind === "broker" ? "good" : "";
}

const PARTITION_WORDS = { OnlinePartition: "", OfflinePartition: "offline", NewPartition: "new", NonExistentPartition: "gone" };

const REASONS = { found: "as the controller before left them" };

function headline({ line, lines, count }) {
  const where = line.partition === undefined ? line.topic : `${line.topic}-${line.partition}`;
  switch (line.kind) {
    case "broker":
      return `Broker ${line.broker_id} ${line.target === "live" && line.source === "live" ? "changed" : `is ${line.target}`}`;
    case "topic":
      return `Topic ${line.topic} ${line.target}`;
    case "partition": {
      if (count > 1 && line.cause === "isr_asked") return `In-sync sets of ${plural(count, "partition")} changed`;
      if (count > 1) return `${plural(count, "partition")} ${PARTITION_WORDS[line.target] || "changed"}`;
      const word = PARTITION_WORDS[line.target] ?? line.target;
      return word ? `${where} is ${word}` : `${where} is led by ${line.leader}, in sync ${lines[0].isr.join(", ")}`;
    }
    case "reassignment":
      return count > 1 ? `${plural(count, "reassignment")} ${line.target}` : `${where}: reassignment ${line.target}`;
    case "replica":
      return count > 1 ? `${plural(count, "replica")}: ${line.target}` : `${where} on broker ${line.broker_id}: ${line.target}`;
    default:
      if (isPhase(line)) return `Broker ${line.broker_id} is the controller of epoch ${line.controller_epoch}`;
      return `Controller: ${line.target ?? "event"}`;
  }
}

function detail({ line, lines, count }) {
  const names = lines.filter((one) => one.partition !== undefined).map((one) => `${one.topic}-${one.partition}`);
  const named = count > 1 && names.length > 0 ? names.join(", ") + (count > names.length ? ` and ${count - names.length} more` : "") : "";
  if (isPhase(line)) return `${line.target} ${took(line.took_ms)} after the seat was seen vacant`;
  return [REASONS[line.cause] ?? line.reason, named].filter(Boolean).join(" · ");
}
