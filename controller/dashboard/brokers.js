// The brokers: a card each or, where there are many, a tile each that opens the card. Those that are gone stay.

import { act } from "./actions.js";
import { addressOf, isOurs } from "./api.js";
import { $, button, count, h, plural, show } from "./dom.js";

const MANY_BROKERS = 12;
const LAB_VERBS = {
  running: [["kill", "Kill"], ["stop", "Stop"], ["freeze", "Freeze"]],
  frozen: [["thaw", "Thaw"], ["kill", "Kill"]],
  stopping: [["kill", "Kill"]],
  stopped: [["start", "Start"]],
  killed: [["start", "Start"]],
  exited: [["start", "Start"]],
};
const rank = ({ state }) => ["gone", "draining"].indexOf(state) >>> 0;

let openId = null; // whose card is open in the dialog

/** `lab` maps broker ids to their processes; null outside a lab. */
export function brokers(all, seat, lab, onOrder) {
  const most = Math.max(1, ...all.map((one) => one.leaders));
  const cardOf = (one) => card(one, one.id === seat.broker_id, lab?.[one.id] ?? null, most, onOrder);
  const isCrowd = all.length > MANY_BROKERS;
  $("brokers").className = isCrowd ? "tiles" : "cards";
  show($("brokers"), [all, seat.broker_id, seat.phase, lab], () =>
    isCrowd ? all.toSorted((one, other) => rank(one) - rank(other)).map((one) => tile(one, one.id === seat.broker_id, () => open(one.id))) : all.map(cardOf));
  const opened = all.find((one) => one.id === openId);
  if (opened !== undefined) show($("broker-card"), [opened, seat, lab], () => [cardOf(opened), button("Close", () => $("broker").close(), { key: "close" })]);
  function open(id) {
    openId = id;
    brokers(all, seat, lab, onOrder);
    $("broker").showModal();
  }
}

$("broker").addEventListener("close", () => (openId = null));

function tile(one, isController, onOpen) {
  const said = `broker ${one.id}, ${one.state}${isController ? ", controller" : ""}, ${plural(one.leaders, "leader")}`;
  return h("button", { type: "button", class: `tile ${one.state}${isController ? " seat" : ""}`, "aria-label": said, "data-key": `tile-${one.id}`, onclick: onOpen },
    h("strong", null, String(one.id)), h("small", null, one.state === "live" ? count(one.leaders) : one.state));
}

function card(one, isController, process, most, onOrder) {
  const fill = h("span");
  fill.style.width = `${(100 * one.leaders) / most}%`;
  const broken = process?.broken_dirs.length > 0;
  const tags = [
    isController ? h("span", { class: "tag controller-tag" }, "controller") : null,
    h("span", { class: `tag ${one.state}` }, one.state),
    process !== null && process.state !== "running" ? h("span", { class: "tag lab" }, process.state) : null,
    process?.cut ? h("span", { class: "tag lab" }, "cut off") : null,
    broken ? h("span", { class: "tag lab" }, "bad disk") : null,
    one.refused > 0 ? h("span", { class: "tag refusing", title: "partitions of which it refuses what it is told" }, `refuses ${count(one.refused)}`) : null,
  ];
  return h("article", { class: `card ${one.state}${isController ? " seat" : ""}`, "aria-label": `broker ${one.id}, ${one.state}` },
    h("header", null, h("h3", null, `Broker ${one.id}`), h("span", { class: "tags" }, tags)),
    h("div", { class: "bar", "aria-hidden": "true" }, fill),
    h("p", null, `${plural(one.leaders, "leader")} · ${plural(one.replicas, "replica")}`),
    h("p", { class: "quiet" },
      one.host === null ? "address unknown" : !isOurs(one) ? `${one.host}:${one.port}` : h("a", { href: addressOf(one) }, `${one.host}:${one.port}`),
      one.rack === null ? null : ` · rack ${one.rack}`),
    h("div", { class: "buttons" },
      one.state === "live" ? button("Drain", () => act("drain", one), { key: `drain-${one.id}`, label: `Drain broker ${one.id}`, kind: "led" }) : null,
      one.state === "draining" ? button("Undrain", () => act("undrain", one), { key: `undrain-${one.id}`, label: `Undrain broker ${one.id}`, kind: "led" }) : null,
      process === null ? null : orders(process, broken).map(([verb, word]) =>
        button(word, () => onOrder(verb, one.id), { key: `${verb}-${one.id}`, label: `${word} broker ${one.id}`, kind: "of-lab" }))));
}

function orders(process, broken) {
  const verbs = LAB_VERBS[process.state] ?? [];
  if (!["running", "frozen"].includes(process.state)) return verbs;
  return [...verbs, process.cut ? ["heal", "Heal"] : ["cut", "Cut"], broken ? ["mend-disk", "Mend disk"] : ["break-disk", "Break disk"]];
}
