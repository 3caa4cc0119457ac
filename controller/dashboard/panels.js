// The small panels: verdict, controller, numbers, what-if. Each is a function from what is known to elements.

import { act } from "./actions.js";
import { $, count, h, show, span } from "./dom.js";

const VERDICTS = { green: "Healthy", yellow: "Degraded", red: "In trouble", unknown: "Unknown" };

export function verdict(health) {
  show($("verdict"), health, ({ status, reasons }) => [
    h("strong", { class: `pill ${status}` }, VERDICTS[status] ?? status),
    h("span", { class: "reasons" }, reasons.length === 0 ? "all partitions are led and in sync" : reasons.join(" · ")),
  ]);
}

/** Who decides; while nobody does, a running stopwatch. */
export function controller(seat, awayMs) {
  const isAway = awayMs !== null;
  const text = seat.broker_id < 0 ? "no controller" : `broker ${seat.broker_id}`;
  const word = seat.phase === "active" ? "does not answer" : seat.phase === "vacant" ? "the seat is vacant" : "is taking over";
  const age = seat.age_ms == null ? "" : ` · for ${span(seat.age_ms)}`;
  const kafka = seat.kind === "kafka" ? "one of Kafka's own · " : "";
  const detail = isAway ? `${word} · ${(awayMs / 1000).toFixed(1)} s` : `${kafka}epoch ${seat.controller_epoch}${age}`;
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
    ...(counts.new > 0 ? [["never led", counts.new, "yellow"]] : []),
    ["under-replicated", counts.under_replicated, counts.under_replicated > 0 ? "yellow" : null],
    ["not preferred", counts.not_preferred, counts.not_preferred > 0 ? "yellow" : null],
  ];
  const whole = counts.brokers_live + counts.brokers_draining + counts.brokers_gone;
  show($("numbers"), [tiles, whole], () =>
    tiles.map(([name, value, colour], index) =>
      h("div", { class: `number ${colour ?? ""}` },
        h("strong", null, count(value), index === 0 ? h("small", null, ` / ${whole}`) : null),
        h("span", { class: "quiet" }, name)),
    ),
  );
}

/** Offered where there is something to do. */
export function tools({ counts }) {
  $("elect-all").hidden = counts.not_preferred === 0;
  $("elect-all").onclick = () => act("elect-all", { notPreferred: counts.not_preferred });
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
    ...answer.state_moves.map((move) => [`${move.source} → ${move.target}`, move.count]),
  ];
  $("what-if-said").replaceChildren(
    h("dl", { class: "facts" }, rows.map(([name, number, names]) => [
      h("dt", null, name),
      h("dd", { class: name === "offline" && number > 0 ? "bad" : null }, count(number),
        names?.length ? h("small", { class: "quiet" }, ` ${names.slice(0, 6).join(", ")}${names.length > 6 ? " …" : ""}`) : null),
    ])),
    h("p", { class: "quiet" }, "Decided by the controller's own code; nothing was written."),
  );
}
