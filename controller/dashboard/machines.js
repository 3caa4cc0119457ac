// Both state machines as the controller has them: how many are in each state, and the moves of the last seconds.
// States and moves come from the controller's own tables; here is only where they are drawn.

import { $, count, h, s, show } from "./dom.js";

const [BOX_W, BOX_H] = [136, 46];
/** Where each state stands, in boxes: column and row. One that is not listed is put below the others. */
const PLACES = {
  NonExistentPartition: [0, 0], NewPartition: [1, 0], OnlinePartition: [2, 0], OfflinePartition: [1, 1.5],
  NonExistentReplica: [0, 0], NewReplica: [1, 0], OnlineReplica: [2, 0], OfflineReplica: [2, 1.5],
  ReplicaDeletionStarted: [1, 1.5], ReplicaDeletionSuccessful: [0, 1.5], ReplicaDeletionIneligible: [1, 2.75],
};
const [STEP_X, STEP_Y, MARGIN_X, MARGIN_Y] = [190, 84, 10, 34];

/** As the pulse says. */
export const machines = (all) => show($("machines"), all, () => all.map(drawn));

const short = (state) => state.replace(/^Replica(?=Deletion)|Partition$|Replica$/g, "").replace(/(?<=.)([A-Z])/g, " $1").toLowerCase();

function placeOf(state, index) {
  const [column, row] = PLACES[state] ?? [index % 3, 4 + Math.floor(index / 3)];
  return { x: MARGIN_X + column * STEP_X, y: MARGIN_Y + row * STEP_Y };
}

function drawn({ name, states, moves }) {
  const places = Object.fromEntries(states.map(({ state }, index) => [state, placeOf(state, index)]));
  const bottom = Math.max(...Object.values(places).map(({ y }) => y)) + BOX_H + 24;
  const active = moves.filter((move) => move.recent > 0);
  const said = [
    ...states.map(({ state, count: number }) => `${short(state)} ${number}`),
    ...active.map(({ source, target, recent }) => `${short(source)} to ${short(target)} ${recent} times lately`),
  ].join(", ");
  return h("figure", { class: "machine" },
    h("figcaption", null, name),
    s("svg", { viewBox: `0 0 ${2 * STEP_X + BOX_W + 2 * MARGIN_X} ${bottom}`, role: "img", "aria-label": `${name}: ${said}` },
      s("defs", null, ["quiet", "hot"].map((kind) =>
        s("marker", { id: `tip-${name}-${kind}`, class: kind, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
          s("path", { d: "M0 0L8 4L0 8Z" })))),
      moves.toSorted((one, other) => one.recent - other.recent).map((move) => arrow(name, places, move)),
      states.map(({ state, count: number }) => box(state, number, places[state]))));
}

function box(state, number, { x, y }) {
  const isNothing = state.startsWith("NonExistent");
  const kind = number === 0 ? "empty" : state.startsWith("Offline") || state.endsWith("Ineligible") ? "bad" : "held";
  return s("g", { class: `state ${isNothing ? "nothing" : kind}` },
    s("rect", { x, y, width: BOX_W, height: BOX_H, rx: 9 }),
    s("text", { x: x + BOX_W / 2, y: y + 18 }, short(state)),
    s("text", { class: "number", x: x + BOX_W / 2, y: y + 37 }, isNothing ? "—" : count(number)));
}

function arrow(name, places, { source, target, recent }) {
  const [from, to] = [places[source], places[target]];
  const d = source === target ? loop(from) : line(from, to);
  const kind = recent > 0 ? "hot" : "quiet";
  const label = source === target ? { x: from.x + BOX_W / 2, y: from.y - 22 }
    : { x: (from.x + to.x + BOX_W) / 2 + side(from, to) * 12, y: (from.y + to.y + BOX_H) / 2 - side(from, to) * 9 };
  return s("g", { class: `move ${kind}` },
    s("path", { d, "marker-end": `url(#tip-${name}-${kind})` }),
    recent > 0 ? s("text", label, `+${count(recent)}`) : null);
}

const loop = ({ x, y }) => `M${x + BOX_W / 2 - 14} ${y}C${x + BOX_W / 2 - 24} ${y - 26} ${x + BOX_W / 2 + 24} ${y - 26} ${x + BOX_W / 2 + 14} ${y - 1}`;

/** There and back lie beside each other. */
const side = (from, to) => (to.x > from.x || (to.x === from.x && to.y > from.y) ? 1 : -1);

function line(from, to) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy);
  const [ux, uy] = [dx / length, dy / length];
  const [ox, oy] = [-uy * 7, ux * 7]; // beside the line between the centres
  const reach = (vx, vy) => Math.min( // from there to the edge of a box
    vx === 0 ? Infinity : (Math.sign(vx) * BOX_W / 2 - ox) / vx, vy === 0 ? Infinity : (Math.sign(vy) * BOX_H / 2 - oy) / vy);
  const end = ({ x, y }, vx, vy) => `${x + BOX_W / 2 + ox + vx * (reach(vx, vy) + 2)} ${y + BOX_H / 2 + oy + vy * (reach(vx, vy) + 2)}`;
  return `M${end(from, ux, uy)}L${end(to, -ux, -uy)}`;
}
