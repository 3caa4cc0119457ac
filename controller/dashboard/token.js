// The token of a guarded cluster: asked for once, kept until this tab is closed, sent by api.js and by nobody else.

import { $, h } from "./dom.js";

let asking = null;

/** A token other than the one that was refused; all who wait at the same time share one dialog. */
export async function askToken(refused) {
  const kept = sessionStorage.getItem("token");
  if (kept !== null && kept !== refused) return kept; // given meanwhile
  asking ??= asked(refused !== "").finally(() => (asking = null));
  return asking;
}

function asked(wasRefused) {
  const dialog = $("token");
  const input = h("input", { type: "password", id: "token-input", autocomplete: "off", required: true });
  const form = h("form", { method: "dialog" },
    h("h2", { id: "token-title" }, "This cluster wants a token"),
    h("p", { class: "quiet" }, "The value of KLAMM_API_TOKEN, or of KLAMM_READ_TOKEN to only look. It is kept in this tab alone."),
    wasRefused ? h("p", { role: "alert" }, "That token was refused. Another one?") : null,
    h("label", { class: "field" }, h("span", null, "Token"), input),
    h("div", { class: "choices" }, h("button", { type: "submit", class: "primary" }, "Use it")));
  dialog.replaceChildren(form);
  dialog.oncancel = (event) => event.preventDefault(); // nothing can be shown without
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    form.onsubmit = () => {
      sessionStorage.setItem("token", input.value);
      resolve(input.value);
    };
  });
}
