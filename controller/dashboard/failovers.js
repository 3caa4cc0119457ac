// Failovers: a stopwatch while one happens, the list of past ones, and each of them step by step.

import { $, button, clock, count, h, s, show, span, took } from "./dom.js";

/** In order; each with what it means. `noticed` ends when ZooKeeper shows the seat vacant, the others count from there. */
const PHASES = {
  noticed: "The seat is vacant: ZooKeeper has ended the session of the controller before, and its ephemeral /controller went with it. Every broker's watch fires.",
  claimed: "One transaction writes /controller and raises /controller_epoch. Whoever comes second is refused; whoever held the seat before can write nothing any more.",
  loaded: "Topics, assignments, states and configuration are read, a thousand znodes a request, and the watches are armed; who lives is read last.",
  decided: "One decision looks at every partition: dead leaders are replaced from their in-sync replicas, each in one step of its leader epoch.",
  committed: "What was decided stands in ZooKeeper, in transactions that name the epoch and every version.",
  told: "LeaderAndIsr and UpdateMetadata are on their way, to each broker in order.",
  acknowledged: "Every live broker has answered: the failover is over.",
};
const NAMES = Object.keys(PHASES);
const TENTH_MS = 100;
const LISTED = 8;
const RESULT_SHOWN_MS = 60_000;
const PLAY_MS = 1_800;

/** Whether a line of the stream says that a phase of a failover is over, so long after the seat was seen vacant. */
export const isPhase = (line) => line.kind === "controller" && line.took_ms !== undefined && line.target in PHASES;

export class Failovers {
  #awayAt = null; // since when nobody decides, as far as this page saw
  #epoch = null; // of the controller that decided last, as far as this page heard
  #run = null; // the failover on the stopwatch, from the first that is heard of it until a while after its end
  #noticedMs = new Map(); // epoch -> how long it took until the seat was seen vacant, of those that this page saw
  #decided = new Map(); // epoch -> what its first event decided, as far as the stream told

  constructor() {
    $("phases").replaceChildren(...NAMES.map((phase) => h("li", null, h("i", { class: `dot ${phase}` }), phase)));
  }

  /** The controller fell silent, so long ago. */
  begin(agoMs = 0) {
    this.#awayAt ??= Date.now() - agoMs;
  }

  /** Somebody decides of whom no beat is heard. */
  end() {
    this.#awayAt = null;
  }

  /** A beat of a controller: the one from before, or one that took over, whatever was heard of how. */
  decides({ broker_id, controller_epoch }, terms) {
    if (this.#epoch !== null) this.#takeOver(controller_epoch, broker_id);
    if (this.#run?.epoch === controller_epoch) {
      this.#run.silentMs ??= this.awayMs ?? 0;
      const record = terms.find((term) => term.controller_epoch === controller_epoch);
      if (record !== undefined) this.#learn(record.phases);
    }
    this.#epoch = Math.max(this.#epoch ?? controller_epoch, controller_epoch);
    this.end();
  }

  get awayMs() {
    return this.#awayAt === null ? null : Date.now() - this.#awayAt;
  }

  /** A line of the stream: a phase that is over, or what a term's first event, its failover, decided. */
  hear(line) {
    const epoch = line.controller_epoch;
    if (isPhase(line)) this.#onPhase(epoch, line);
    else if (line.event_id === `${epoch}-1` && line.kind === "partition") this.#decided.set(epoch, (this.#decided.get(epoch) ?? 0) + 1);
  }

  #onPhase(epoch, { broker_id, target, took_ms }) {
    if (target === "claimed" && (this.#epoch !== null || this.#awayAt !== null)) this.#takeOver(epoch, broker_id);
    if (this.#run?.epoch !== epoch) return;
    if (this.#run.isWholeSeen && this.#awayAt === this.#run.startedAt) {
      // a line may come late, and then this is too long: the one that came soonest says it best
      this.#noticedMs.set(epoch, Math.max(0, Math.min(this.awayMs - took_ms, this.#noticedMs.get(epoch) ?? Infinity)));
    }
    this.#learn({ [target]: took_ms });
  }

  /** Of an epoch later than the one before; `silentMs` is null until the first beat. */
  #takeOver(epoch, broker_id) {
    if (epoch <= Math.max(this.#epoch ?? -1, this.#run?.epoch ?? -1)) return;
    const now = Date.now();
    const isWholeSeen = this.#epoch !== null && this.#awayAt !== null;
    this.#run = { epoch, broker_id, startedAt: this.#awayAt ?? now, isWholeSeen, silentMs: null, phases: {}, newsAt: now };
  }

  #learn(phases) {
    const run = this.#run;
    if (Object.keys(phases).some((phase) => run.phases[phase] === undefined)) run.newsAt = Date.now();
    Object.assign(run.phases, phases);
  }

  draw(terms) {
    this.#stopwatch();
    const listed = terms.slice(-LISTED).reverse();
    show($("failovers"), [listed, [...this.#noticedMs]], () => listed.length === 0 ? h("li", { class: "quiet" }, "None is recorded.") :
      listed.map((term) => this.#item(term, terms[terms.indexOf(term) - 1])));
  }

  /** Silence first, then each phase as it is told, then what it came to; a silence of the same controller shows, and goes. */
  #stopwatch() {
    const isSilent = this.#awayAt !== null && this.#awayAt !== this.#run?.startedAt;
    const run = isSilent ? null : this.#run;
    if (run === null ? !isSilent : !isAwaited(run) && Date.now() > run.newsAt + RESULT_SHOWN_MS) {
      show($("stopwatch"), null, () => []);
      return;
    }
    const noticedMs = this.#noticedMs.get(run?.epoch);
    const laps = lapsOf(run, noticedMs);
    const [totalMs, said, isRunning] = this.#total(run, noticedMs);
    const known = laps.filter(({ ms }) => ms !== null).map(({ phase, ms }) => [phase, ms]);
    const since = known.filter(([phase]) => phase !== "noticed");
    const now = laps.find(({ state }) => state === "now");
    show($("stopwatch"), [laps, said, isRunning ? Math.floor(totalMs / TENTH_MS) : totalMs], () => [
      h("strong", { class: isRunning ? "away" : null }, isRunning ? `${(totalMs / 1000).toFixed(1)} s` : took(totalMs)), h("span", { class: "quiet" }, ` ${said}`),
      isRunning ? bar([...known, [now.phase, Math.max(0, totalMs - sumOf(known))]], "running") : bar(known),
      ...(noticedMs !== undefined && since.length > 0 ? [h("p", { class: "quiet" }, `of that since the seat was seen vacant: ${took(Math.max(...Object.values(run.phases)))}`), bar(since)] : []),
      h("ol", { class: "laps" }, laps.map(lap)),
    ]);
  }

  /** What the stopwatch says in large: how long, what that is, and whether it runs on. */
  #total(run, noticedMs) {
    const from = run === null ? this.#awayAt : run.startedAt;
    if (run === null) return [Date.now() - from, `since ${this.#epoch === null ? "this page asks" : "the controller fell silent"}: waiting until ZooKeeper notices`, true];
    const { acknowledged } = run.phases;
    if (acknowledged !== undefined && noticedMs !== undefined) return [noticedMs + acknowledged, `from silence to the last acknowledgement, by broker ${run.broker_id}`, false];
    if (acknowledged !== undefined) return [acknowledged, `from the vacant seat to the last acknowledgement, by broker ${run.broker_id}; when the seat became vacant was not seen from here`, false];
    const who = `broker ${run.broker_id} takes over, epoch ${run.epoch}`;
    if (isAwaited(run)) return [Date.now() - from, run.isWholeSeen ? who : `since this page heard of it: ${who}`, true];
    return [run.silentMs, `of silence, then broker ${run.broker_id} decides, epoch ${run.epoch}; its phases were not heard here`, false];
  }

  #item(term, before) {
    const steps = stepsOf(term.phases);
    const noticedMs = this.#noticedMs.get(term.controller_epoch);
    const over = term.to_ms === null ? "now" : `held ${span(term.to_ms - term.from_ms)}${term.why === null ? "" : `, ${term.why}`}`;
    const name = `Epoch ${term.controller_epoch}`;
    return h("li", null,
      h("p", null, h("strong", null, name), ` broker ${term.broker_id}`, h("span", { class: "right" }, steps.length > 0 ? took(sumOf(steps)) : "")),
      bar(steps),
      h("p", { class: "quiet" }, h("span", null, `${clock(term.from_ms)} · ${over}${noticedMs === undefined ? "" : ` · noticed after ${took(noticedMs)}`}`),
        button("Replay", () => new Replay(term, before, noticedMs, this.#decided.get(term.controller_epoch)).open(), { key: `replay-${term.controller_epoch}`, label: `Replay ${name}`, kind: "small right" })));
  }
}

/** One failover of the past, phase by phase. */
class Replay {
  #at = 0;
  #timer = null;

  constructor(term, before, noticedMs, decided) {
    Object.assign(this, { term, before, noticedMs, decided });
    this.steps = [["noticed", noticedMs ?? null], ...stepsOf(term.phases)];
  }

  open() {
    const dialog = $("replay");
    dialog.onclose = () => this.#stop();
    dialog.onkeydown = (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by !== undefined) this.#go(this.#at + by);
    };
    this.play = button("Play", () => (this.#timer === null ? this.#start() : this.#stop()), { kind: "primary" });
    this.back = button("Back", () => this.#go(this.#at - 1));
    this.next = button("Next", () => this.#go(this.#at + 1));
    this.stage = h("div", { "aria-live": "polite" });
    dialog.replaceChildren(
      h("header", null, h("h2", { id: "replay-title" }, `How broker ${this.term.broker_id} became the controller of epoch ${this.term.controller_epoch}`), button("Close", () => dialog.close(), { kind: "close" })),
      this.stage,
      h("div", { class: "choices" }, this.back, this.play, this.next));
    dialog.showModal();
    this.#go(0);
    this.next.focus();
  }

  #go(at) {
    this.#at = Math.max(0, Math.min(this.steps.length - 1, at));
    const [phase, ms] = this.steps[this.#at];
    this.back.disabled = this.#at === 0;
    this.next.disabled = this.#at === this.steps.length - 1;
    if (this.next.disabled) this.#stop();
    const since = this.#at === 0 ? 0 : sumOf(this.steps.slice(1, this.#at + 1));
    this.stage.replaceChildren(
      h("ol", { class: "steps" }, this.steps.map(([name], index) => h("li", { class: index < this.#at ? "done" : null, "aria-current": index === this.#at ? "step" : null }, h("i", { class: `dot ${name}` }), name))),
      scene(phase, this.term, this.before),
      h("h3", null, `${this.#at + 1}. ${phase}`, h("span", { class: "quiet" }, ms === null ? " · how long that took nobody saw" : ` · took ${took(ms)}${this.#at === 0 ? "" : `, over ${took(since)} after the seat was seen vacant`}`)),
      h("p", null, PHASES[phase]),
      h("p", { class: "quiet" }, this.#more(phase)));
  }

  #more(phase) {
    const { before, term, decided } = this;
    if (phase === "noticed") return before === undefined ? "Nobody is known to have held the seat before." : `Broker ${before.broker_id} had held it for ${span((before.to_ms ?? term.from_ms) - before.from_ms)}, until ${clock(before.to_ms ?? term.from_ms)}: ${before.why ?? "unknown"}.`;
    if (phase === "claimed") return `Broker ${term.broker_id} won, at ${clock(term.from_ms)}; the epoch is ${term.controller_epoch} now.`;
    if (phase === "decided" && decided !== undefined) return `${count(decided)} partitions got another state, as far as this page has heard.`;
    return "";
  }

  #start() {
    this.play.textContent = "Pause";
    if (this.next.disabled) this.#go(0);
    this.#timer = setInterval(() => this.#go(this.#at + 1), PLAY_MS);
  }

  #stop() {
    clearInterval(this.#timer);
    this.#timer = null;
    this.play.textContent = "Play";
  }
}

/** Who does what to whom: ZooKeeper above, the old controller, the new one, everybody else. */
function scene(phase, term, before) {
  const [x, y] = [{ zookeeper: 250, before: 90, now: 250, others: 410 }, { top: 8, bottom: 108 }];
  const node = (at, top, name, kind) => s("g", { class: `actor ${kind}` },
    s("rect", { x: at - 62, y: top, width: 124, height: 36, rx: 9 }), s("text", { x: at, y: top + 23 }, name));
  const way = (fromX, fromY, toX, toY) => s("path", { class: `way ${phase}`, d: `M${fromX} ${fromY}L${toX} ${toY}`, "marker-end": "url(#replay-tip)" });
  const [high, low] = [y.top + 38, y.bottom - 3];
  const ways = {
    noticed: [way(x.zookeeper - 20, high, x.before + 20, low), way(x.now, high, x.now, low), way(x.zookeeper + 20, high, x.others - 20, low)],
    claimed: [way(x.now, y.bottom - 1, x.now, high + 3)],
    loaded: [way(x.now, high, x.now, low)],
    decided: [],
    committed: [way(x.now, y.bottom - 1, x.now, high + 3)],
    told: [way(x.now + 63, y.bottom + 18, x.others - 66, y.bottom + 18)],
    acknowledged: [way(x.others - 63, y.bottom + 18, x.now + 66, y.bottom + 18)],
  }[phase];
  const hasSeat = phase !== "noticed";
  return s("svg", { class: "scene", viewBox: "0 0 500 152", role: "img", "aria-label": `${phase}: broker ${term.broker_id}` },
    s("defs", null, s("marker", { id: "replay-tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, s("path", { d: "M0 0L8 4L0 8Z" }))),
    ways,
    node(x.zookeeper, y.top, hasSeat ? `seat: broker ${term.broker_id}` : "seat: vacant", "keeper"),
    node(x.before, y.bottom, before === undefined ? "nobody" : `broker ${before.broker_id}`, "away"),
    node(x.now, y.bottom, `broker ${term.broker_id}`, hasSeat ? "seat" : ""),
    node(x.others, y.bottom, "all live brokers", phase === "acknowledged" ? "seat" : ""));
}

/** Whether more will be heard of a failover: not where all is acknowledged, nor where its lines passed this page by. */
const isAwaited = ({ phases, silentMs }) => phases.acknowledged === undefined && (silentMs === null || phases.told !== undefined);

/** Each phase on the stopwatch: over, running, or still to come. `ms` is null also where it is over and not known here. */
function lapsOf(run, noticedMs) {
  const phases = run?.phases ?? {};
  const heard = NAMES.findLastIndex((phase) => phases[phase] !== undefined);
  const begun = run === null ? -1 : run.silentMs === null ? 0 : NAMES.indexOf("told"); // who decides has told
  const over = Math.max(heard, begun);
  return NAMES.map((phase, index) => {
    const before = index === 1 ? 0 : phases[NAMES[index - 1]];
    const isKnown = phases[phase] !== undefined && before !== undefined;
    const ms = index === 0 ? noticedMs ?? null : isKnown ? Math.max(0, phases[phase] - before) : null;
    return { phase, ms, state: index <= over ? "over" : index === over + 1 ? "now" : "to-come" };
  });
}

function lap({ phase, ms, state }) {
  const said = { over: ms === null ? "unknown" : took(ms), now: "…", "to-come": "" }[state];
  return h("li", { class: state }, h("i", { class: `dot ${phase}` }), `${phase} `, h("b", null, said));
}

function bar(steps, kind = "") {
  const said = steps.map(([phase, ms]) => `${phase} ${took(ms)}`).join(", ");
  const pieces = h("div", { class: `phase-bar ${kind}`, role: "img", "aria-label": said || "phases unknown", title: said });
  for (const [phase, ms] of steps) {
    const piece = h("span", { class: phase });
    piece.style.flexGrow = String(Math.max(ms, sumOf(steps) / 200));
    pieces.append(piece);
  }
  return pieces;
}

const sumOf = (steps) => steps.reduce((sum, [, ms]) => sum + ms, 0);

/** Each phase with how long it took: they are recorded as when each was over. */
function stepsOf(phases) {
  let before = 0;
  const steps = [];
  for (const phase of NAMES) {
    if (phases[phase] === undefined) continue;
    steps.push([phase, Math.max(0, phases[phase] - before)]);
    before = Math.max(before, phases[phase]);
  }
  return steps;
}
