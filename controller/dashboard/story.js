// The story of one partition, in a dialog: who leads and why, who could, what was decided before, what can be done.

import { act } from "./actions.js";
import { ask, isSilence } from "./api.js";
import { $, button, clock, facts, h, table } from "./dom.js";

export async function openStory(topic, partition) {
  const dialog = $("story");
  const close = button("Close", () => dialog.close(), { kind: "close" });
  const head = h("header", null, h("h2", { id: "story-title" }, `${topic}-${partition}`), close);
  dialog.replaceChildren(head, h("p", { class: "quiet" }, "Asking the controller …"));
  if (!dialog.open) dialog.showModal();
  dialog.onclick = (event) => event.target === dialog && dialog.close();
  try {
    const path = `/v1/partitions/${encodeURIComponent(topic)}/${partition}/story`;
    dialog.replaceChildren(head, ...told((await ask(path)).json, { topic, partition }));
  } catch (error) {
    if (!isSilence(error)) throw error;
    dialog.replaceChildren(head, h("p", { role: "alert" }, `The story cannot be told now: ${error.message}`));
  }
  close.focus();
}

const word = (state) => (state ?? "").replace("Partition", "").toLowerCase();

function told(story, where) {
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
    h("h3", null, "What was decided"),
    story.story.length === 0
      ? h("p", { class: "quiet" }, "This controller has decided nothing about it yet; the state-change log has what came before.")
      : table(["when", "epoch", "to", "leader", "in sync", "why"], story.story.toReversed().map((one) => [
          clock(one.at_ms), one.controller_epoch, word(one.target), one.leader ?? "", (one.isr ?? []).join(", "), one.reason ?? "",
        ])),
  ];
}
