// Holds what is known, and brings the page up to date: by the stream as things happen, by asking now and then anyway.
//
// Where things are: charts.js, machines.js, failovers.js, brokers.js, matrix.js, events.js and panels.js draw what their
// names say; actions.js and story.js are dialogs; api.js asks; dom.js builds. A new panel is a section in index.html, a
// module that fills it, and a line in `draw`.

import { act, onDone } from "./actions.js";
import { aggregates } from "./aggregates.js";
import { addressOf, ask, isOurs, isSilence, items, matrix as askMatrix, Stream } from "./api.js";
import { brokers } from "./brokers.js";
import { Pulse } from "./charts.js";
import { $, h, show } from "./dom.js";
import { Events } from "./events.js";
import { Failovers } from "./failovers.js";
import { machines } from "./machines.js";
import { Matrix } from "./matrix.js";
import * as panels from "./panels.js";
import { openStory } from "./story.js";

const CALM_MS = 2_000; // between two looks while the stream lives
const WORRIED_MS = 400; // and while it does not
const SOON_MS = 120; // after an event: metadata follow it within milliseconds
const PROBE_MS = 800;
const AFTER_MS = 1_200; // and once more, in case they did not
const TICK_MS = 100;
const AGGREGATES_MS = 5_000; // as often as a stream of the logs looks at them
const SILENCE_MS = 3_000; // there is a beat each second: without, the controller does not answer

const known = { cluster: null, brokers: [], seat: null, terms: [], machines: [], refused: {}, lab: null, isLab: true, tag: null, rows: [] };
let isLive = false; // somebody decides, and we hear it
let beatAt = 0; // when the last beat was heard
let timer = null;
let isLooking = false;
let isLookWanted = false;
let silences = 0; // of our own broker, one after another

const events = new Events();
const pulse = new Pulse();
const failovers = new Failovers();
const grid = new Matrix($("matrix"), {
  onOpen: openStory,
  onTopic(topic) {
    $("filter-topic").value = `=${topic}`;
    $("filter-view").value = "partitions";
    filter();
  },
  onShown(text, view) {
    $("shown").textContent = text;
    $("filter-view").value = view;
    $("marks").hidden = view === "topics";
    $("sums").hidden = view !== "topics";
  },
});

const stream = new Stream({
  onEvent(kind, data) {
    if (kind === "pulse") {
      onBeat(data);
      return;
    }
    if (kind === "reset") known.tag = null;
    else {
      events.add(data);
      failovers.hear(data);
      if (data.target === "claimed" && !isLive && known.cluster !== null) {
        known.cluster.controller = { broker_id: data.broker_id, controller_epoch: data.controller_epoch, phase: "loading", kind: "klamm" };
        drawController();
      }
    }
    lookIn(SOON_MS);
  },
  onDown: () => onQuiet(),
});

/** Once a second, of a controller that decides. */
function onBeat({ controller, samples, machines: counted, terms, refused = {} }) {
  beatAt = performance.now();
  known.seat = controller;
  known.machines = counted;
  known.refused = refused;
  known.terms = terms ?? known.terms;
  pulse.add(samples);
  failovers.decides(controller, known.terms);
  if (!isLive) {
    isLive = true;
    drawLive();
    lookIn(0);
  }
  if (known.cluster !== null) drawBeat();
}

/** Nobody decides, as far as we hear; since then, if that was long ago. */
function onQuiet(agoMs = 0) {
  if (isLive) failovers.begin(agoMs);
  isLive = false;
  drawLive();
  lookIn(0);
}

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
    if (!isSilence(error)) throw error;
    await onSilence();
  } finally {
    isLooking = false;
    const costMs = performance.now() - startedAt; // a page of 100,000 partitions is looked at less often
    lookIn(isLookWanted ? Math.min(AFTER_MS, Math.max(SOON_MS, 4 * costMs)) : Math.max(isLive ? CALM_MS : WORRIED_MS, 4 * costMs));
    isLookWanted = false;
  }
}

async function lookOnce() {
  const [cluster, brokersNow, matrix] = await Promise.all([ask("/v1/cluster"), items("/v1/brokers"), askMatrix(known.tag)]);
  known.cluster = cluster.json;
  known.brokers = brokersNow;
  if (matrix !== null) [known.rows, known.tag] = [matrix.rows, matrix.tag];
  if (isLedByKafka()) failovers.end();
  else if (!isLive && cluster.json.controller.phase !== "active") failovers.begin();
  await lookAtLab();
  draw(matrix !== null);
}

/** One of Kafka's own brokers decides: ours stands by, and cannot be asked for anything. */
const isLedByKafka = () => known.cluster?.controller.kind === "kafka";

async function lookAtLab() {
  if (!known.isLab) return;
  try {
    const { processes } = (await ask("/v1/lab")).json;
    known.isLab = processes.length > 0;
    if (known.isLab) known.lab = Object.fromEntries(
      processes.filter((one) => one.name.startsWith("broker-")).map(({ name, state, cut, broken_dirs }) => [Number(name.slice(7)), { state, cut, broken_dirs }]),
    );
  } catch (error) {
    if (!isSilence(error)) throw error;
    known.lab = null;
  }
}

/** The report of the Spark jobs is linked where this broker's API has one. */
async function lookForReport() {
  const { paths } = (await ask("/openapi.json")).json;
  $("report").hidden = !("/v1/reports/latest" in paths);
}

/** What a stream of the logs came to so far, where somebody keeps that; nobody begins to while this broker runs. */
async function lookAtAggregates() {
  let isKept = true;
  try {
    const { json } = await ask("/v1/aggregates");
    isKept = json.kept;
    aggregates(json);
  } catch (error) {
    if (!isSilence(error)) throw error; // what is shown says how old it is, and the page who is silent
  }
  if (isKept) setTimeout(lookAtAggregates, AGGREGATES_MS);
}

async function order(verb, broker) {
  $("said").textContent = `${verb} broker ${broker} …`;
  try {
    const { json } = await ask(`/v1/lab/${verb}`, { method: "POST", body: { broker } });
    $("said").textContent = `broker ${broker}: ${json.process.state}${json.process.cut ? ", cut from ZooKeeper" : ""}${json.process.broken_dirs.length > 0 ? ", with a bad disk" : ""}`;
  } catch (error) {
    if (!isSilence(error)) throw error;
    $("said").textContent = `${verb} broker ${broker}: ${error.message}`;
  }
  lookIn(0);
}

async function tellWhatIf(kill) {
  try {
    panels.whatIfSaid((await ask("/v1/what-if", { method: "POST", body: { kill } })).json);
  } catch (error) {
    if (!isSilence(error)) throw error;
    $("what-if-said").replaceChildren(h("p", { role: "alert" }, error.message));
  }
}

function draw(hasNewRows) {
  const { cluster } = known;
  $("cluster-id").textContent = cluster.id;
  document.body.classList.toggle("led-by-kafka", isLedByKafka());
  drawController();
  drawBeat();
  panels.verdict(cluster.health);
  panels.numbers(cluster);
  panels.tools(cluster);
  panels.whatIf(known.brokers, tellWhatIf);
  events.draw();
  const columns = JSON.stringify(known.brokers.map(({ id, state }) => [id, state]));
  if (hasNewRows || columns !== known.columns) grid.update(known.rows, known.brokers);
  known.columns = columns;
}

/** What only the controller knows; without one the old stays. */
function drawBeat() {
  pulse.draw();
  if (known.machines.length > 0) machines(known.machines);
  brokers(known.brokers.map((one) => ({ ...one, refused: known.refused[one.id] ?? 0 })), known.cluster.controller, known.lab, order);
}

/** Also ten times a second: ages and the stopwatch run, and silence is heard. */
function drawController() {
  const quietMs = performance.now() - beatAt;
  if (isLive && quietMs > SILENCE_MS) onQuiet(quietMs);
  if (known.cluster === null) return;
  failovers.draw(known.terms);
  panels.controller(isLive ? known.seat : known.cluster.controller, isLive ? null : failovers.awayMs);
}

function drawLive() {
  show($("live"), isLive, () => [h("i", { class: isLive ? "on" : "off" }), isLive ? "live" : "looking twice a second"]);
}

/** Our own broker is silent: say so, and at the second time go to the page of one that lives. */
async function onSilence() {
  const others = known.brokers.filter((one) => isOurs(one) && `${one.host}:${one.port}` !== location.host);
  const links = others.flatMap((one, index) => [index > 0 ? ", " : "", h("a", { href: addressOf(one) }, `broker ${one.id}`)]);
  $("alert").hidden = false;
  show($("alert"), others.map((one) => one.id), () => [
    `The broker that serves this page (${location.host}) does not answer; what you see is old. `,
    links.length > 0 ? "The others have the same page: " : "",
    ...links,
  ]);
  silences += 1;
  if (silences < 2) return;
  for (const address of others.map(addressOf)) {
    try {
      await fetch(`${address}livez`, { mode: "no-cors", signal: AbortSignal.timeout(PROBE_MS), cache: "no-store" });
      location.replace(address);
      return;
    } catch (error) {
      if (!isSilence(error)) throw error;
    }
  }
}

const filter = () => grid.filter($("filter-topic").value, $("filter-state").value, $("filter-view").value);
$("filter").addEventListener("submit", (event) => event.preventDefault());
$("filter-topic").addEventListener("input", filter);
for (const id of ["filter-state", "filter-view"]) $(id).addEventListener("change", filter);
$("create").addEventListener("click", () => act("create"));
onDone(() => lookIn(0));

drawLive();
lookIn(0);
lookForReport();
lookAtAggregates();
setInterval(drawController, TICK_MS);
stream.run();
