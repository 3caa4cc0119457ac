// The story of one partition, in a dialog: who leads and why, who could, and what was decided before.

import { ask } from "./api.js";
import { $, clock, h } from "./dom.js";

export async function openStory(topic, partition) {
  const dialog = $("story");
  const name = `${topic}-${partition}`;
  const close = h("button", { type: "button", class: "close", onclick: () => dialog.close() }, "Close");
  const head = h("header", null, h("h2", { id: "story-title" }, name), close);
  dialog.replaceChildren(head, h("p", { class: "quiet" }, "Asking the controller …"));
  if (!dialog.open) dialog.showModal();
  dialog.onclick = (event) => event.target === dialog && dialog.close();
  try {
    const path = `/v1/partitions/${encodeURIComponent(topic)}/${partition}/story`;
    dialog.replaceChildren(head, ...told((await ask(path)).json));
  } catch (error) {
    dialog.replaceChildren(head, h("p", { role: "alert" }, `The story cannot be told now: ${error.message}`));
  }
  close.focus();
}

function told(story) {
  const facts = [
    ["state", story.state.replace("Partition", "").toLowerCase()],
    ["leader", story.leader < 0 ? "none" : `broker ${story.leader}`],
    ["leader epoch", story.leader_epoch],
    ["in sync", story.isr.join(", ")],
    ["assigned", story.assigned.join(", ")],
    ["if it had no leader", story.offline_election],
    ["preferred election", story.preferred_election],
    ["unclean election", story.unclean_election],
  ];
  return [
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, String(value))])),
    h("h3", null, "Replicas"),
    table(["broker", "role", "eligible", "why"], story.replicas.map((one) => [
      one.broker_id, one.is_leader ? "leader" : one.is_in_sync ? "in sync" : "out of sync", one.is_eligible ? "yes" : "no", one.why,
    ])),
    h("h3", null, "What was decided"),
    story.story.length === 0
      ? h("p", { class: "quiet" }, "This controller has decided nothing about it yet; the state-change log has what came before.")
      : table(["when", "epoch", "to", "leader", "in sync", "why"], story.story.toReversed().map((one) => [
          clock(one.at_ms), one.controller_epoch, (one.target ?? "").replace("Partition", "").toLowerCase(),
          one.leader ?? "", (one.isr ?? []).join(", "), one.reason ?? "",
        ])),
  ];
}

function table(names, rows) {
  return h("div", { class: "table" }, h("table", null,
    h("thead", null, h("tr", null, names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((cell) => h("td", null, String(cell))))))));
}
