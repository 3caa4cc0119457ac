// The panels beside the matrix: each is a function from what is known to elements.

import { $, clock, h, plural, show, span, took } from "./dom.js";

const VERDICTS = { green: "Healthy", yellow: "Degraded", red: "In trouble" };
export const PHASES = ["claimed", "loaded", "decided", "committed", "told", "acknowledged"];
const LAB_VERBS = {
  running: [["kill", "Kill"], ["stop", "Stop"], ["freeze", "Freeze"]],
  frozen: [["thaw", "Thaw"], ["kill", "Kill"]],
  stopping: [["kill", "Kill"]],
  stopped: [["start", "Start"]],
  killed: [["start", "Start"]],
  exited: [["start", "Start"]],
};

export function verdict(health) {
  show($("verdict"), health, ({ status, reasons }) => [
    h("strong", { class: `pill ${status}` }, VERDICTS[status] ?? status),
    h("span", { class: "reasons" }, reasons.length === 0 ? "all partitions are led and in sync" : reasons.join(" · ")),
  ]);
}

/** Who decides; while nobody does, a running stopwatch. */
export function controller(seat, sinceMs, awayMs) {
  const isAway = awayMs !== null;
  const text = seat.broker_id < 0 ? "no controller" : `broker ${seat.broker_id}`;
  const word = seat.phase === "active" ? "does not answer" : seat.phase === "vacant" ? "the seat is vacant" : "is taking over";
  const age = sinceMs === null ? "" : ` · for ${span(Date.now() - sinceMs)}`;
  const detail = isAway ? `${word} · ${(awayMs / 1000).toFixed(1)} s` : `epoch ${seat.controller_epoch}${age}`;
  show($("controller"), [text, detail, isAway], () => [
    h("span", { class: "quiet" }, "Controller"),
    h("strong", { class: isAway ? "away" : null }, text),
    h("span", { class: `detail ${isAway ? "away" : ""}` }, detail),
  ]);
}

export function numbers({ counts }) {
  const tiles = [
    ["brokers live", counts.brokers_live + counts.brokers_draining, counts.brokers_gone > 0 ? "red" : null],
    ["topics", counts.topics],
    ["partitions", counts.partitions],
    ["offline", counts.offline, counts.offline > 0 ? "red" : null],
    ["under-replicated", counts.under_replicated, counts.under_replicated > 0 ? "yellow" : null],
    ["not preferred", counts.not_preferred, counts.not_preferred > 0 ? "yellow" : null],
  ];
  const whole = counts.brokers_live + counts.brokers_draining + counts.brokers_gone;
  show($("numbers"), [tiles, whole], () =>
    tiles.map(([name, value, colour], index) =>
      h("div", { class: `number ${colour ?? ""}` },
        h("strong", null, value.toLocaleString("en"), index === 0 ? h("small", null, ` / ${whole}`) : null),
        h("span", { class: "quiet" }, name)),
    ),
  );
}

const MANY_BROKERS = 12;
const rank = ({ state }) => ["gone", "draining"].indexOf(state) >>> 0;

/** `lab` maps broker ids to their processes; null outside a lab. */
export function brokers(all, seat, lab, onOrder) {
  // where they do not all fit into sight, those that need attention come first
  const items = all.length > MANY_BROKERS ? all.toSorted((one, other) => rank(one) - rank(other)) : all;
  const most = Math.max(1, ...items.map((one) => one.leaders));
  show($("brokers"), [items, seat.broker_id, seat.phase, lab], () =>
    items.map((one) => {
      const process = lab?.[one.id] ?? null;
      const isController = one.id === seat.broker_id;
      const fill = h("span");
      fill.style.width = `${(100 * one.leaders) / most}%`;
      const tags = [
        isController ? h("span", { class: "tag controller-tag" }, "controller") : null,
        h("span", { class: `tag ${one.state}` }, one.state),
        process !== null && process.state !== "running" ? h("span", { class: "tag lab" }, process.state) : null,
        process?.cut ? h("span", { class: "tag lab" }, "cut off") : null,
      ];
      return h("article", { class: `card ${one.state}${isController ? " seat" : ""}`, "aria-label": `broker ${one.id}, ${one.state}` },
        h("header", null, h("h3", null, `Broker ${one.id}`), h("span", { class: "tags" }, tags)),
        h("div", { class: "bar", "aria-hidden": "true" }, fill),
        h("p", null, `${plural(one.leaders, "leader")} · ${plural(one.replicas, "replica")}`),
        h("p", { class: "quiet" },
          one.host === null ? "address unknown" : h("a", { href: `http://${one.host}:${one.port}/` }, `${one.host}:${one.port}`),
          one.rack === null ? null : ` · rack ${one.rack}`),
        process === null ? null : h("div", { class: "buttons" }, orders(process).map(([verb, word]) =>
          h("button", { type: "button", "data-key": `${verb}-${one.id}`, "aria-label": `${word} broker ${one.id}`, onclick: () => onOrder(verb, one.id) }, word))));
    }),
  );
}

function orders(process) {
  const verbs = LAB_VERBS[process.state] ?? [];
  if (!["running", "frozen"].includes(process.state)) return verbs;
  return [...verbs, process.cut ? ["heal", "Heal"] : ["cut", "Cut"]];
}

const NAMED_AT_MOST = 3;

/** Recent lines, the newest first; those of one cause that say the same are one entry. */
export class Events {
  #groups = [];

  constructor(kept = 120) {
    this.kept = kept;
  }

  add(line) {
    const key = [line.controller_epoch, line.event_id, line.kind, line.target, line.reason, line.broker_id].join("|");
    const found = this.#groups.slice(0, 8).find((group) => group.key === key);
    if (found !== undefined) {
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
  if (line.kind === "mark") return "mark-line";
  if (line.target === "gone" || line.target === "OfflinePartition" || line.target === "parked") return "bad";
  if (line.target === "draining" || line.target === "deleting") return "warn";
  return line.kind === "broker" ? "good" : "";
}

const PARTITION_WORDS = { OnlinePartition: "", OfflinePartition: "offline", NewPartition: "new", NonExistentPartition: "gone" };

const ASKED_BY_LEADER = /^leader \d+ asked$/;
const REASONS = { found: "as the controller before left them" };

function headline({ line, lines, count }) {
  const where = line.partition === undefined ? line.topic : `${line.topic}-${line.partition}`;
  switch (line.kind) {
    case "mark":
      return line.text;
    case "broker":
      return `Broker ${line.broker_id} ${line.target === "live" && line.source === "live" ? "changed" : `is ${line.target}`}`;
    case "topic":
      return `Topic ${line.topic} ${line.target}`;
    case "partition": {
      if (count > 1 && ASKED_BY_LEADER.test(line.reason)) return `In-sync sets of ${plural(count, "partition")} changed`;
      if (count > 1) return `${plural(count, "partition")} ${PARTITION_WORDS[line.target] || "changed"}`;
      const word = PARTITION_WORDS[line.target] ?? line.target;
      return word ? `${where} is ${word}` : `${where} is led by ${line.leader}, in sync ${lines[0].isr.join(", ")}`;
    }
    case "reassignment":
      return count > 1 ? `${plural(count, "reassignment")} ${line.target}` : `${where}: reassignment ${line.target}`;
    case "replica":
      return count > 1 ? `${plural(count, "replica")}: ${line.target}` : `${where} on broker ${line.broker_id}: ${line.target}`;
    default:
      return `Controller: ${line.target ?? "event"}`;
  }
}

function detail({ line, lines, count }) {
  const names = lines.filter((one) => one.partition !== undefined).map((one) => `${one.topic}-${one.partition}`);
  const named = count > 1 && names.length > 0 ? names.join(", ") + (count > names.length ? ` and ${count - names.length} more` : "") : "";
  return [REASONS[line.reason] ?? line.reason, named].filter(Boolean).join(" · ");
}

export function phaseLegend() {
  $("phases").replaceChildren(...PHASES.map((phase) => h("li", null, h("i", { class: `dot ${phase}` }), phase)));
}

export function failovers(terms) {
  const newest = terms.slice(-8).reverse();
  show($("failovers"), newest, () => newest.length === 0 ? h("li", { class: "quiet" }, "None is recorded.") :
    newest.map((term) => {
      const steps = stepsOf(term.phases);
      const whole = steps.reduce((sum, [, ms]) => sum + ms, 0);
      const said = steps.map(([phase, ms]) => `${phase} ${took(ms)}`).join(", ");
      const bar = h("div", { class: "phase-bar", role: "img", "aria-label": said || "phases unknown", title: said });
      for (const [phase, ms] of steps) {
        const piece = h("span", { class: phase });
        piece.style.flexGrow = String(Math.max(ms, whole / 200));
        bar.append(piece);
      }
      const over = term.to_ms === null ? "now" : `held ${span(term.to_ms - term.from_ms)}${term.why === null ? "" : `, ${term.why}`}`;
      return h("li", null,
        h("p", null, h("strong", null, `Epoch ${term.controller_epoch}`), ` broker ${term.broker_id}`,
          h("span", { class: "right" }, whole > 0 ? took(whole) : "")),
        bar,
        h("p", { class: "quiet" }, `${clock(term.from_ms)} · ${over}`));
    }),
  );
}

/** Each phase with how long it took: they are recorded as when each was over. */
function stepsOf(phases) {
  let before = 0;
  const steps = [];
  for (const phase of PHASES) {
    if (phases[phase] === undefined) continue;
    steps.push([phase, Math.max(0, phases[phase] - before)]);
    before = Math.max(before, phases[phase]);
  }
  return steps;
}

export function whatIf(items, onAsk) {
  const live = items.filter((one) => one.state !== "gone").map((one) => one.id);
  const form = $("what-if");
  const picked = new Set([...form.querySelectorAll("input:checked")].map((box) => Number(box.value)));
  show(form, live, () => [
    h("div", { class: "picks", role: "group", "aria-label": "Brokers that would die" },
      live.map((id) => h("label", null,
        h("input", { type: "checkbox", value: id, checked: picked.has(id), "data-key": `pick-${id}` }), String(id)))),
    h("button", { type: "submit", "data-key": "ask" }, "Tell me"),
  ]);
  form.onsubmit = (event) => {
    event.preventDefault();
    const ids = [...form.querySelectorAll("input:checked")].map((box) => Number(box.value));
    if (ids.length === 0) $("what-if-said").replaceChildren(h("p", { class: "quiet" }, "Pick at least one broker."));
    else onAsk(ids);
  };
}

export function whatIfSaid(answer) {
  const rows = [
    ["leaders move", answer.moves.length],
    ["offline", answer.offline.length, answer.offline],
    ["left with one copy", answer.last_in_sync.length, answer.last_in_sync],
    ["unclean elections", answer.unclean_elections],
    ["state writes", answer.state_writes],
    ["transactions", answer.transactions],
    ["requests to brokers", answer.requests],
  ];
  $("what-if-said").replaceChildren(
    h("dl", { class: "facts" }, rows.map(([name, count, names]) => [
      h("dt", null, name),
      h("dd", { class: name === "offline" && count > 0 ? "bad" : null }, count.toLocaleString("en"),
        names?.length ? h("small", { class: "quiet" }, ` ${names.slice(0, 6).join(", ")}${names.length > 6 ? " …" : ""}`) : null),
    ])),
    h("p", { class: "quiet" }, "Decided by the controller's own code; nothing was written."),
  );
}
