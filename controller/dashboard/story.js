// The story of one partition, in a dialog: who leads and why, who could, what was decided before, what can be done.

import { act } from "./actions.js";
import { ask, isSilence } from "./api.js";
import { $, button, clock, count, facts, h, plural, show, table } from "./dom.js";

/** While a story is open its logs are asked for so often. */
const LOGS_EVERY_MS = 2000;

export async function openStory(topic, partition) {
  const dialog = $("story");
  const close = button("Close", () => dialog.close(), { kind: "close" });
  const head = h("header", null, h("h2", { id: "story-title" }, `${topic}-${partition}`), close);
  dialog.replaceChildren(head, h("p", { class: "quiet" }, "Asking the controller …"));
  if (!dialog.open) dialog.showModal();
  dialog.onclick = (event) => event.target === dialog && dialog.close();
  try {
    const path = `/v1/partitions/${encodeURIComponent(topic)}/${partition}/story`;
    const logs = h("div", { id: "logs" });
    dialog.replaceChildren(head, ...told((await ask(path)).json, { topic, partition }, logs));
    follow(logs, path.replace(/story$/, "log"));
  } catch (error) {
    if (!isSilence(error)) throw error;
    dialog.replaceChildren(head, h("p", { role: "alert" }, `The story cannot be told now: ${error.message}`));
  }
  close.focus();
}

const word = (state) => (state ?? "").replace("Partition", "").toLowerCase();

/** Draw how far the logs are, again and again, as long as somebody looks at them. */
async function follow(place, path) {
  while (place.isConnected && $("story").open) {
    try {
      if (!document.hidden) show(place, (await ask(path)).json, logsOf);
    } catch (error) {
      if (!isSilence(error)) throw error;
      show(place, { error: error.message }, () => h("p", { class: "quiet" }, `How far the logs are is not known now: ${error.message}`));
    }
    await new Promise((resolve) => setTimeout(resolve, LOGS_EVERY_MS));
  }
}

const known = (number) => (number === null || number === undefined ? "-" : count(number));

function logsOf(logs) {
  if (!logs.kept) return null;
  const lost = logs.records_lost > 0;
  return [
    h("h3", null, "Records"),
    table(["broker", "log start", "log end", "high watermark", "lag", ""], logs.replicas.map((one) => [
      one.broker_id, known(one.log_start), known(one.log_end), known(one.high_watermark), known(one.lag),
      one.why ?? (one.is_leader ? "leads" : one.is_in_sync ? "in sync" : "out of sync"),
    ])),
    lost ? h("p", { role: "alert" }, `An unclean election lost ${plural(logs.records_lost, "committed record")}.`) : null,
    logs.truncations.length === 0 ? null : table(["when", "broker", "truncated", "records", "of them committed", "as leader", "of leader epoch"],
      logs.truncations.toReversed().map((one) => [
        clock(one.at_ms), one.broker_id, `${one.start} to ${one.end - 1}`, count(one.end - one.start), count(one.committed), one.leader, one.leader_epoch,
      ])),
  ];
}

function told(story, where, logs) {
  const partition = { ...where, assigned: story.assigned };
  return [
    facts([
      ["state", word(story.state)],
      ["leader", story.leader < 0 ? "none" : `broker ${story.leader}`],
      ["leader epoch", String(story.leader_epoch)],
      ["in sync", story.isr.join(", ")],
      ["assigned", story.assigned.join(", ")],
      ["if it had no leader", story.offline_election],
      ["preferred election", story.preferred_election],
      ["unclean election", story.unclean_election],
    ]),
    h("div", { class: "buttons" },
      button("Elect the preferred leader", () => act("elect", partition)),
      story.leader < 0 ? button("Elect unclean", () => act("elect-unclean", partition), { kind: "grave" }) : null,
      button("Reassign", () => act("reassign", partition)),
      story.adding?.length || story.removing?.length ? button("Cancel the reassignment", () => act("cancel-reassignment", partition)) : null,
      button("Delete the topic", () => act("delete", partition), { kind: "grave" })),
    h("h3", null, "Replicas"),
    table(["broker", "role", "eligible", "why"], story.replicas.map((one) => [
      one.broker_id, one.is_leader ? "leader" : one.is_in_sync ? "in sync" : "out of sync", one.is_eligible ? "yes" : "no", one.why,
    ])),
    logs,
    h("h3", null, "What was decided"),
    story.story.length === 0
      ? h("p", { class: "quiet" }, "This controller has decided nothing about it yet; the state-change log has what came before.")
      : table(["when", "epoch", "to", "leader", "in sync", "why"], story.story.toReversed().map((one) => [
          clock(one.at_ms), one.controller_epoch, word(one.target), one.leader ?? "", (one.isr ?? []).join(", "), one.reason ?? "",
        ])),
  ];
}
