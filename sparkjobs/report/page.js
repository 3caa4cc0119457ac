// Tables that sort and filter. The page says everything without it.
"use strict";
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => head.addEventListener("click", () => {
    const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const sign = (head.dataset.order = head.dataset.order === "up" ? "down" : "up") === "up" ? 1 : -1;
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      return sign * (isNaN(x) || isNaN(y) ? x.localeCompare(y, undefined, { numeric: true }) : x - y);
    };
    body.append(...[...body.rows].sort(compare));
  }));
  if (body.rows.length > 8) {
    const field = document.createElement("input");
    field.placeholder = "filter " + body.rows.length + " rows";
    field.setAttribute("aria-label", field.placeholder);
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(field);
  }
}
