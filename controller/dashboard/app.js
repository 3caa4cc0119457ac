// Holds what is known, and brings the page up to date: by the stream as things happen, by asking now and then anyway.

import { ask, matrix as askMatrix, ProblemError, Stream } from "./api.js";
import { $, h, show } from "./dom.js";
import { Matrix } from "./matrix.js";
import * as panels from "./panels.js";
import { openStory } from "./story.js";

const CALM_MS = 2_000; // between two looks while the stream lives
const WORRIED_MS = 800; // and while it does not
const SOON_MS = 120; // after an event: metadata follow it within milliseconds
const PROBE_MS = 800;
const AFTER_MS = 1_200; // and once more, in case they did not

const known = { cluster: null, brokers: [], terms: [], lab: null, isLab: true, tag: null, rows: [] };
let isLive = false;
let liveEpoch = null;
let awaySince = null;
let timer = null;
let isLooking = false;
let isLookWanted = false;
let silences = 0; // of our own broker, one after another

const events = new panels.Events();
const grid = new Matrix($("matrix"), { onOpen: openStory, onShown: (text) => ($("shown").textContent = text) });

const stream = new Stream({
  onEvent(kind, data) {
    if (kind === "reset") known.tag = null;
    else events.add(data);
    lookIn(SOON_MS);
  },
  onUp(epoch) {
    if (liveEpoch !== epoch) events.add({ kind: "mark", at_ms: Date.now(), text: liveEpoch === null ? `Listening to the controller of epoch ${epoch}` : `A new controller decides: epoch ${epoch}` });
    isLive = true;
    liveEpoch = epoch;
    awaySince = null;
    drawLive();
    lookIn(0);
  },
  onDown() {
    awaySince ??= performance.now();
    isLive = false;
    drawLive();
    lookIn(0);
  },
});

/** Look again this soon, unless that will be anyway. */
function lookIn(ms) {
  const at = performance.now() + ms;
  if (timer !== null && timer.at <= at) return;
  if (timer !== null) clearTimeout(timer.id);
  timer = { at, id: setTimeout(look, ms) };
}

async function look() {
  timer = null;
  if (isLooking) {
    isLookWanted = true;
    return;
  }
  isLooking = true;
  const startedAt = performance.now();
  try {
    await lookOnce();
    $("alert").hidden = true;
    silences = 0;
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof DOMException || error instanceof ProblemError)) throw error;
    await onSilence();
  } finally {
    isLooking = false;
    const costMs = performance.now() - startedAt; // a page of 100,000 partitions is looked at less often
    lookIn(isLookWanted ? Math.max(AFTER_MS, 4 * costMs) : Math.max(isLive ? CALM_MS : WORRIED_MS, 4 * costMs));
    isLookWanted = false;
  }
}

async function lookOnce() {
  const [cluster, health, brokers, matrix] = await Promise.all([
    ask("/v1/cluster"),
    ask("/healthz/cluster", { accept: [503] }),
    ask("/v1/brokers"),
    askMatrix(known.tag),
  ]);
  const seat = cluster.json.controller;
  const hasMoved = isLive && liveEpoch !== null && seat.controller_epoch > liveEpoch;
  known.cluster = cluster.json;
  known.brokers = brokers.json.items;
  if (matrix !== null) [known.rows, known.tag] = [matrix.rows, matrix.tag];
  await Promise.all([lookAtTerms(seat), lookAtLab()]);
  panels.verdict(health.json);
  draw(matrix !== null);
  if (hasMoved) stream.restart();
}

/** Only the controller knows them; without one the old ones stay. */
async function lookAtTerms(seat) {
  const newest = known.terms.at(-1);
  if (newest?.controller_epoch === seat.controller_epoch && newest.phases.acknowledged !== undefined) return;
  try {
    known.terms = (await ask("/v1/controller/history")).json.items;
  } catch (error) {
    if (!(error instanceof ProblemError || error instanceof DOMException)) throw error;
  }
}

async function lookAtLab() {
  if (!known.isLab) return;
  try {
    const { processes } = (await ask("/v1/lab")).json;
    known.isLab = processes.length > 0;
    if (known.isLab) known.lab = Object.fromEntries(
      processes.filter((one) => one.name.startsWith("broker-")).map((one) => [Number(one.name.slice(7)), { state: one.state, cut: one.cut }]),
    );
  } catch (error) {
    if (!(error instanceof ProblemError || error instanceof DOMException)) throw error;
    known.lab = null;
  }
}

async function order(verb, broker) {
  $("lab-said").textContent = `${verb} broker ${broker} …`;
  try {
    const { json } = await ask(`/v1/lab/${verb}`, { method: "POST", body: { broker } });
    $("lab-said").textContent = `broker ${broker}: ${json.process.state}${json.process.cut ? ", cut from ZooKeeper" : ""}`;
  } catch (error) {
    $("lab-said").textContent = `${verb} broker ${broker}: ${error.message}`;
  }
  lookIn(0);
}

async function tellWhatIf(kill) {
  try {
    panels.whatIfSaid((await ask("/v1/what-if", { method: "POST", body: { kill } })).json);
  } catch (error) {
    $("what-if-said").replaceChildren(h("p", { role: "alert" }, error.message));
  }
}

function draw(hasNewRows) {
  const { cluster, brokers } = known;
  $("cluster-id").textContent = cluster.id;
  drawController();
  panels.numbers(cluster);
  panels.brokers(brokers, cluster.controller, known.lab, order);
  panels.failovers(known.terms);
  panels.whatIf(brokers, tellWhatIf);
  events.draw();
  const columns = JSON.stringify(brokers.map(({ id, state }) => [id, state]));
  if (hasNewRows || columns !== known.columns) grid.update(known.rows, brokers);
  known.columns = columns;
}

function drawController() {
  if (known.cluster === null) return;
  const seat = known.cluster.controller;
  const term = known.terms.at(-1);
  const sinceMs = term?.controller_epoch === seat.controller_epoch ? term.from_ms : null;
  if (seat.phase !== "active") awaySince ??= performance.now();
  else if (isLive) awaySince = null;
  panels.controller(seat, sinceMs, awaySince === null ? null : performance.now() - awaySince);
}

function drawLive() {
  show($("live"), isLive, () => [h("i", { class: isLive ? "on" : "off" }), isLive ? "live" : "looking every second"]);
}

/** Our own broker is silent: say so, and at the second time go to the page of one that lives. */
async function onSilence() {
  const others = known.brokers.filter((one) => one.host !== null && `${one.host}:${one.port}` !== location.host);
  const links = others.flatMap(({ id, host, port }, index) => [index > 0 ? ", " : "", h("a", { href: `http://${host}:${port}/` }, `broker ${id}`)]);
  $("alert").hidden = false;
  show($("alert"), others.map((one) => one.id), () => [
    `The broker that serves this page (${location.host}) does not answer; what you see is old. `,
    links.length > 0 ? "The others have the same page: " : "",
    ...links,
  ]);
  silences += 1;
  if (silences < 2) return;
  for (const { host, port } of others) {
    const address = `http://${host}:${port}/`;
    try {
      await fetch(`${address}livez`, { mode: "no-cors", signal: AbortSignal.timeout(PROBE_MS), cache: "no-store" });
      location.replace(address);
      return;
    } catch (error) {
      if (!(error instanceof TypeError || error instanceof DOMException)) throw error;
    }
  }
}

const filter = () => grid.filter($("filter-topic").value, $("filter-state").value);
$("filter").addEventListener("submit", (event) => event.preventDefault());
$("filter-topic").addEventListener("input", filter);
$("filter-state").addEventListener("change", filter);

panels.phaseLegend();
drawLive();
lookIn(0);
setInterval(drawController, 100);
stream.run();
