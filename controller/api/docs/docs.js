// Shows /openapi.json. Everything is put in as text, never as markup.

const METHODS = ["get", "post", "patch", "delete"];

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

// A type in one line: names are links, the rest is text.
function typeOf(schema) {
  if (!schema || Object.keys(schema).length === 0) return ["anything"];
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return [make("a", { href: `#type-${name}` }, name)];
  }
  if (schema.enum) return [schema.enum.map((one) => JSON.stringify(one)).join(" | ")];
  if (schema.anyOf) return schema.anyOf.flatMap((one, index) => [index ? " or " : "", ...typeOf(one)]);
  if (schema.prefixItems) return ["[", ...schema.prefixItems.flatMap((one, i) => [i ? ", " : "", ...typeOf(one)]), "]"];
  if (schema.type === "array") return ["list of ", ...typeOf(schema.items)];
  if (schema.properties) return ["object: ", ...fieldsInline(schema)];
  if (schema.additionalProperties) return ["map to ", ...typeOf(schema.additionalProperties)];
  const bounds = [schema.minimum, schema.maximum].some((one) => one !== undefined)
    ? ` (${schema.minimum ?? ""} … ${schema.maximum ?? ""})`
    : "";
  return [`${schema.type ?? "anything"}${bounds}`];
}

function fieldsInline(schema) {
  return Object.entries(schema.properties).flatMap(([name, one], index) => [
    index ? ", " : "", make("code", {}, name), " ", ...typeOf(one),
  ]);
}

function table(rows) {
  return make("table", {}, make("tbody", {}, ...rows.map(([head, ...cells]) => make("tr", {},
    make("th", { scope: "row" }, make("code", {}, head)),
    ...cells.map((cell) => make("td", {}, ...cell))))));
}

function parameterRow(one) {
  const where = `${one.in}${one.required ? ", required" : ""}`;
  const usual = one.schema.default === undefined ? "" : `, otherwise ${JSON.stringify(one.schema.default)}`;
  return [one.name, typeOf(one.schema), [where + usual]];
}

function responseRow([status, one]) {
  const kinds = Object.entries(one.content ?? {});
  const said = kinds.flatMap(([media, { schema }]) => [`${media}: `, ...(schema ? typeOf(schema) : ["as it is"])]);
  return [status, [one.description], said];
}

// What is refused alike everywhere is one row.
function responseRows(responses) {
  const own = Object.entries(responses).filter(([, one]) => !one.$ref);
  const shared = Object.keys(responses).filter((status) => responses[status].$ref);
  const refused = [shared.join(", "), ["Refused; nothing was changed"],
    ["application/problem+json: ", make("a", { href: "#type-Problem" }, "Problem")]];
  return [...own.map(responseRow), ...(shared.length ? [refused] : [])];
}

function titled(title, content) {
  return content ? [make("h3", {}, title), content] : [];
}

function operation(path, method, one) {
  const name = method.toUpperCase();
  const body = one.requestBody && Object.values(one.requestBody.content)[0].schema;
  return make("details", { id: one.operationId },
    make("summary", {},
      make("span", { class: `method ${name}` }, name), make("code", {}, path), make("span", { class: "what" }, one.summary)),
    make("div", {},
      ...titled("Parameters", one.parameters.length ? table(one.parameters.map(parameterRow)) : null),
      ...titled("Body", body ? make("p", {}, ...typeOf(body)) : null),
      ...titled("Answers", table(responseRows(one.responses)))));
}

function type(name, schema) {
  const required = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([field, one]) => [
    field, typeOf(one), [required.has(field) ? "" : "optional"],
  ]);
  return make("details", { id: `type-${name}` },
    make("summary", {}, make("code", {}, name), make("span", { class: "what" }, schema.description ?? "")),
    make("div", {}, rows.length ? table(rows) : make("p", {}, ...typeOf(schema))));
}

function openTarget() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target) {
    target.open = true;
    target.scrollIntoView();
  }
}

function filterBy(words) {
  const wanted = words.trim().toLowerCase();
  for (const one of document.querySelectorAll("#operations details")) {
    one.hidden = !one.firstChild.textContent.toLowerCase().includes(wanted);
  }
  for (const group of document.querySelectorAll("#operations section")) {
    group.hidden = !group.querySelector("details:not([hidden])");
  }
}

async function show() {
  const main = document.getElementById("operations");
  const answer = await fetch("/openapi.json");
  if (!answer.ok) {
    main.replaceChildren(make("p", { role: "alert" }, `/openapi.json cannot be had: ${answer.status}`));
    return;
  }
  const api = await answer.json();
  const said = api.info.description.split("`").map((part, index) => (index % 2 ? make("code", {}, part) : part));
  document.getElementById("about").replaceChildren(...said);
  const groups = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((one) => item[one])) {
      const tag = item[method].tags[0];
      groups.set(tag, [...(groups.get(tag) ?? []), operation(path, method, item[method])]);
    }
  }
  main.replaceChildren(...[...groups].map(([tag, all]) => make("section", {}, make("h2", {}, tag), ...all)));
  document.getElementById("types").replaceChildren(
    ...Object.entries(api.components.schemas).map(([name, schema]) => type(name, schema)));
  document.getElementById("filter").addEventListener("input", (event) => filterBy(event.target.value));
  addEventListener("hashchange", openTarget);
  openTarget();
}

show();
