// What a stream of the state-change logs came to so far: since when, which partitions had no leader, and which moves.

import { $, count, h, plural, show, span, table, took } from "./dom.js";

const OLD_MS = 60_000; // by then whoever keeps them has looked again, or is gone
const NAMED = 12;

const moment = (ms) => new Date(ms).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** As `/v1/aggregates` says. */
export function aggregates({ kept, aggregates: found, age_ms, detail }) {
  $("aggregates").hidden = !kept;
  if (!kept) return;
  const { looked_ms: _, ...model } = found ?? {};
  $("aggregates-said").textContent = found === null ? detail : `${summary(found)} ${age(found, age_ms)}`;
  show($("aggregates-tables"), model, () => (found === null ? [] : [leaderless(found), moves(found)]));
}

function summary({ from_ms, events, outages, partitions, leaderless_now, leaderless_unknown, leaderless_ms, longest_felt_ms }) {
  if (from_ms === null) return "The logs tell nothing yet.";
  const since = `Since ${moment(from_ms)}, in ${plural(events, "line")}:`;
  if (outages === 0) return `${since} no partition was without a leader.`;
  const now = leaderless_now > 0 ? `${count(leaderless_now)} without one now` : "none without one now";
  const unknown = leaderless_unknown > 0 ? `, of ${count(leaderless_unknown)} the end is unknown` : "";
  const ended = outages - leaderless_now - leaderless_unknown;
  const long = ended > 0 ? ` ${took(leaderless_ms)} summed, from when a controller knew; the longest, as clients felt it, at most ${took(longest_felt_ms)}.` : "";
  return `${since} ${plural(partitions, "partition")} without a leader at some time, ${plural(outages, "time")}; ${now}${unknown}.${long}`;
}

const age = ({ kept_by }, ms) => `Kept by ${kept_by}, as of ${span(ms)} ago${ms > OLD_MS ? ": nobody looks at the logs any more" : ""}.`;

function leaderless({ latest, outages }) {
  const title = outages > NAMED ? `Without a leader, the latest ${NAMED} of ${count(outages)}` : "Without a leader";
  const rows = latest.slice(0, NAMED).map((one) => [
    `${one.topic}-${one.partition}`,
    moment(one.start_ms),
    one.end_ms !== null ? `${took(one.end_ms - one.start_ms)}, felt at most ${took(one.end_ms - one.felt_from_ms)}` : one.unseen === null ? "not over" : "unknown",
    `${one.cause.replaceAll("_", " ")}${one.first_broker === null ? "" : ` (broker ${one.first_broker})`}`,
    one.leader === null ? "–" : `broker ${one.leader}${one.unclean ? ", unclean" : ""}`,
  ]);
  return h("div", null, h("h3", null, title), rows.length === 0 ? h("p", { class: "quiet" }, "None.")
    : table(["partition", "since", "for", "because", "led by then"], rows));
}

function moves({ moves: found }) {
  const rows = found.map(({ machine, source, target, cause, times }) => [
    machine, `${source ?? "?"} → ${target}`, (cause ?? "–").replaceAll("_", " "), count(times)]);
  return h("div", null, h("h3", null, "Moves"), rows.length === 0 ? h("p", { class: "quiet" }, "None.")
    : table(["of a", "move", "because", "times"], rows));
}
