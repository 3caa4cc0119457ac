// Tables that sort, filter and open out. The page says everything without it.
"use strict";
const SHOWN = 20;
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], frame = table.parentElement;
  let isWhole = body.rows.length <= SHOWN + 5, wanted = "";
  const show = () => [...body.rows].forEach((row, place) => {
    row.hidden = wanted ? !row.textContent.toLowerCase().includes(wanted) : !isWhole && place >= SHOWN;
  });
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const sign = (head.dataset.order = head.dataset.order === "up" ? "down" : "up") === "up" ? 1 : -1;
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        return sign * (isNaN(x) || isNaN(y) ? x.localeCompare(y, undefined, { numeric: true }) : x - y);
      };
      body.append(...[...body.rows].sort(compare));
      show();
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (pressed) => { if (pressed.key === "Enter") sort(); });
  });
  if (isWhole) continue;
  const field = document.createElement("input");
  field.placeholder = "filter " + body.rows.length + " rows";
  field.setAttribute("aria-label", field.placeholder);
  field.addEventListener("input", () => { wanted = field.value.toLowerCase(); show(); });
  frame.before(field);
  const button = document.createElement("button");
  button.textContent = "all " + body.rows.length + " rows";
  button.addEventListener("click", () => { isWhole = true; button.remove(); show(); });
  frame.after(button);
  show();
}
// Paper cannot be opened: what proves a finding is printed with it.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
