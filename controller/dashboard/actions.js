// What one can do to the cluster. Each action says first what it will do, and does it only when that is confirmed.

import { ask, isSilence } from "./api.js";
import { $, h, plural } from "./dom.js";

const at = (topic) => `/v1/topics/${encodeURIComponent(topic)}`;
const one = ({ topic, partition }) => ({ topic, partition });

/**
 * By name: the question, its details, the word on the button, and the request. `fields` are asked for beforehand,
 * `typed` must be typed as it is, `isGrave` is shown in red. A new action is an entry here, and a button somewhere.
 */
const ACTIONS = {
  create: () => ({
    title: "Create a topic",
    text: "The controller places the replicas, over racks if the brokers have them.",
    word: "Create",
    fields: [
      { name: "name", label: "Name", pattern: "[a-zA-Z0-9._\\-]{1,249}", title: "letters, digits, dot, underscore, hyphen" },
      { name: "partitions", label: "Partitions", type: "number", min: 1, value: 6 },
      { name: "factor", label: "Replicas of each", type: "number", min: 1, value: 3 },
    ],
    request: ({ name, partitions, factor }) => ["POST", "/v1/topics", { name, partitions: Number(partitions), replication_factor: Number(factor) }],
    done: ({ name }) => `Topic ${name} was created.`,
  }),
  delete: ({ topic }) => ({
    title: `Delete topic ${topic}?`,
    text: "Its partitions, its data and its configuration go, on every broker. Nothing brings them back.",
    word: "Delete",
    typed: topic,
    isGrave: true,
    request: () => ["DELETE", at(topic), {}],
    done: (_, answer) => `Topic ${topic}: ${answer.status}${answer.waits_for ? `, waits: ${answer.waits_for}` : ""}.`,
  }),
  drain: ({ id, leaders }) => ({
    title: `Drain broker ${id}?`,
    text: `${plural(leaders, "leadership")} will move to other in-sync replicas. It keeps running and stays in sync, and leads nothing until it is undrained.`,
    word: "Drain",
    request: () => ["POST", `/v1/brokers/${id}/drain`, {}],
    done: (_, answer) => `Broker ${id} is drained; it leads ${plural(answer.leaders, "partition")}${answer.remaining_count ? `, ${answer.remaining_count} of them nobody else can lead` : ""}.`,
  }),
  undrain: ({ id }) => ({
    title: `Let broker ${id} lead again?`,
    text: "Leaderships come back by preferred elections, not at once.",
    word: "Undrain",
    request: () => ["DELETE", `/v1/brokers/${id}/drain`, {}],
    done: () => `Broker ${id} may lead again.`,
  }),
  "elect-all": ({ notPreferred }) => ({
    title: "Elect all preferred leaders?",
    text: `${plural(notPreferred, "partition")} will be led by the first replica again, where that is in sync.`,
    word: "Elect",
    request: () => ["POST", "/v1/elections", { type: "preferred", partitions: null }],
    done: (_, answer) => told(answer, "elected"),
  }),
  elect: (partition) => ({
    title: `Elect the preferred leader of ${partition.topic}-${partition.partition}?`,
    text: `Broker ${partition.assigned[0]} will lead, if it is in sync.`,
    word: "Elect",
    request: () => ["POST", "/v1/elections", { type: "preferred", partitions: [one(partition)] }],
    done: (_, answer) => told(answer, "elected"),
  }),
  "elect-unclean": (partition) => ({
    title: `Elect any replica of ${partition.topic}-${partition.partition}?`,
    text: "Nobody in sync is left. A replica that is not will lead: what it lacks is lost, though it was committed.",
    word: "Elect and lose data",
    typed: `${partition.topic}-${partition.partition}`,
    isGrave: true,
    request: () => ["POST", "/v1/elections", { type: "unclean", partitions: [one(partition)] }],
    done: (_, answer) => told(answer, "elected"),
  }),
  reassign: (partition) => ({
    title: `Reassign ${partition.topic}-${partition.partition}`,
    text: `Now on ${partition.assigned.join(", ")}. New replicas catch up first; then the old ones go.`,
    word: "Reassign",
    fields: [{ name: "replicas", label: "Brokers, the preferred leader first", value: partition.assigned.join(", "), pattern: "\\s*\\d+(\\s*,\\s*\\d+)*\\s*", title: "broker ids, divided by commas" }],
    request: ({ replicas }) => ["POST", "/v1/reassignments", { partitions: [{ ...one(partition), replicas: replicas.split(",").map(Number) }] }],
    done: (_, answer) => told(answer, "being reassigned"),
  }),
  "cancel-reassignment": (partition) => ({
    title: `Take the reassignment of ${partition.topic}-${partition.partition} back?`,
    text: "Replicas that are being added go again; those that were there stay.",
    word: "Take it back",
    request: () => ["DELETE", `/v1/reassignments/${encodeURIComponent(partition.topic)}/${partition.partition}`, {}],
    done: (_, answer) => told({ partitions: [answer] }, "as before"),
  }),
};

let afterwards = () => {};

/** Called after every action: the page looks again. */
export const onDone = (callback) => (afterwards = callback);

/** Ask, confirm, do, say. */
export function act(name, about = {}) {
  const action = ACTIONS[name](about);
  const dialog = $("action");
  const inputs = (action.fields ?? []).map(({ label, ...given }) => h("input", { id: `action-${given.name}`, required: true, autocomplete: "off", "data-label": label, ...given }));
  const typed = action.typed === undefined ? null : h("input", { id: "action-typed", autocomplete: "off", "data-label": `Type ${action.typed} to confirm` });
  const said = h("p", { role: "alert" });
  const go = h("button", { type: "submit", class: action.isGrave ? "grave" : "primary" }, action.word);
  const form = h("form", { class: "action" },
    h("h2", { id: "action-title" }, action.title), h("p", null, action.text),
    [...inputs, typed].filter(Boolean).map((input) => h("label", { class: "field", for: input.id }, h("span", null, input.dataset.label), input)),
    said,
    h("div", { class: "choices" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go));
  if (typed !== null) {
    go.disabled = true;
    typed.oninput = () => (go.disabled = typed.value !== action.typed);
  }
  form.onsubmit = async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]));
    go.disabled = true;
    said.textContent = "";
    try {
      const [method, path, body] = action.request(values);
      const { json } = await ask(path, { method, body });
      dialog.close();
      say(action.done(values, json));
    } catch (error) {
      if (!isSilence(error)) throw error;
      said.textContent = error.message;
      go.disabled = false;
    }
    afterwards();
  };
  dialog.replaceChildren(form);
  dialog.showModal();
  (inputs[0] ?? typed ?? go).focus();
}

function say(text) {
  $("said").textContent = text;
}

function told({ partitions }, word) {
  const refused = partitions.filter((each) => !["NONE", "ELECTION_NOT_NEEDED"].includes(each.code));
  if (refused.length === 0) return partitions.length === 1 ? `${partitions[0].topic}-${partitions[0].partition} is ${word}.` : `${plural(partitions.length, "partition")} ${word}.`;
  return `Refused: ${refused.slice(0, 3).map((each) => `${each.topic}-${each.partition}: ${each.detail || each.code}`).join("; ")}`;
}
