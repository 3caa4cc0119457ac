"""The findings that a person should know next, with the places of the lines that prove them. Pure, no markup."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sparkjobs.report.markup import Clock, clock_for, counted, lasting, named
from sparkjobs.report.verdict import UNSEEN
from sparkjobs.rules.operations import PREFERRED
from sparkjobs.rules.rules import Answers


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that happened, in words, with the place of the line that says so."""

    at_ms: int
    weight: int  # 0 is worst
    kind: str
    words: str
    file_id: str = ""
    line_no: int = 0


def findings_for(answers: Answers) -> list[Finding]:
    """Worst first, then as they happened."""
    at = clock_for(answers)
    found = [
        *_data(answers),
        *_open(answers),
        *_brokers(answers, at),
        *_controllers(answers, at),
        *_cluster(answers),
        *_others(answers, at),
        *_asked(answers),
    ]
    return sorted(found, key=lambda one: (one.weight, one.at_ms, one.words))


def _data(answers: Answers) -> Iterator[Finding]:
    for one in _rows(answers, "unclean_elections"):
        before = "unknown" if one.isr_before is None else f"[{','.join(map(str, one.isr_before))}]"
        words = (
            f"{one.topic}-{one.partition}: broker {one.leader} was elected though not in sync (ISR before: {before}). "
        )
        words += _PROOFS[one.proof]
        yield Finding(one.at_ms, 0, "data may be lost", words, one.file_id, one.line_no)
    for one in _rows(answers, "truncations"):
        words = f"{one.topic}-{one.partition}: broker {one.broker} {removed(one)}"
        weight, kind = (0, "records lost") if one.committed else (4, "records removed")
        yield Finding(one.at_ms, weight, kind, words, one.file_id, one.line_no)
    for one in _rows(answers, "illegal_transitions"):
        others = f" and {counted(one.partitions - 1, 'more partition')} of it" if one.partitions > 1 else ""
        words = f"{one.topic}-{one.partition}{others}: {one.from_state} to {one.to_state} was {one.how}"
        yield Finding(one.at_ms, 1, "illegal move", words, one.file_id, one.line_no)
    for one in _rows(answers, "moves_out_of_turn"):
        first = f"{one.topic}-{one.partition}" + ("" if one.replica is None else f" on broker {one.replica}")
        words = f"{counted(one.times, 'move')} from {one.source} to {one.target} under controller epoch "
        words += f"{one.controller_epoch} {'begins' if one.times == 1 else 'begin'} where nothing stood: it was in "
        words += f"{one.stood_in}{'' if one.times == 1 else f' (the first: {first})'}"
        words = words if one.times > 1 else f"{first}: {words}"
        words += ". Lines between are missing, or two controllers wrote as one"
        yield Finding(one.at_ms, 2, "move out of turn", words, one.file_id, one.line_no)


_PROOFS: Final = {"said": "A line says so.", "recovering": "The state says so.", "derived": "It follows from both."}


def removed(one: Any) -> str:
    """Returns what a replica did to its log."""
    which = f"offset {one.from_offset}" if one.records == 1 else f"offsets {one.from_offset} to {one.to_offset}"
    words = f"removed {which} from its log ({counted(one.records, 'record')}), which leader {one.leader} does not have"
    return f"{words}; {one.committed} of them had been committed and are lost" if one.committed else words


def _open(answers: Answers) -> Iterator[Finding]:
    groups: dict[tuple[int | None, str, str | None], list[Any]] = defaultdict(list)
    for one in _rows(answers, "partition_outages"):
        if one.open:
            groups[one.first_broker, one.cause, one.unseen].append(one)
    for (broker, cause, unseen), found in groups.items():
        names = ", ".join(f"{one.topic}-{one.partition}" for one in found[:8]) + (
            " and others" if len(found) > 8 else ""
        )
        who = "a broker that these logs do not name" if broker is None else f"broker {broker}"
        first, count = min(found, key=lambda one: one.start_ms), counted(len(found), "partition")
        if unseen is not None:
            words = f"{count} had no leader when last heard of: {names}. "
            words += f"It may be over: {UNSEEN[unseen]}"
            yield Finding(first.start_ms, 1, "not known", words, first.file_id, first.line_no)
            continue
        verb = "waits" if len(found) == 1 else "wait"
        words = f"{count} {verb} for {who} ({cause.replace('_', ' ')}): {names}"
        yield Finding(first.start_ms, 0, "still offline", words, first.file_id, first.line_no)


def _brokers(answers: Answers, at: Clock) -> Iterator[Finding]:
    how = {
        "crashed": "died",
        "stopped": "was stopped",
        "expired": "lost its session while it lived on",
        "lost": "was lost",
        "unknown": "was lost; it has no logs here",
    }
    for one in _rows(answers, "failovers"):
        seat = ", the controller," if one.was_controller else ""
        words = f"Broker {one.broker}{seat} {how[one.how]}. "
        if one.last_seen_ms is not None:
            words += f"Last heard {at(one.last_seen_ms)}, missed {at(one.detected_ms)}"
            words += f"; by its session's time-out it went about {at(one.went_about_ms)}" if one.went_about_ms else ""
            words += ". "
        if one.moved:
            took = lasting(one.last_elected_ms - one.detected_ms)
            words += f"{counted(one.moved, 'partition')} had {'another leader' if one.moved == 1 else 'other leaders'} "
            words += f"{took} after it was missed"
            words += (
                f"; broker {one.slowest} was the last to follow, {lasting(one.slowest_ms)} on" if one.slowest else ""
            )
            words += ". "
        words += f"{counted(one.left_offline, 'partition')} stayed offline." if one.left_offline else ""
        weight = 2 if one.left_offline else 3
        yield Finding(one.detected_ms, weight, f"broker {one.how}", words.strip(), one.file_id, one.line_no)
    for one in _rows(answers, "flapping"):
        if one.what == "broker":
            losses = [row for row in _rows(answers, "failovers") if row.broker == one.broker]
            times = sum(one.from_ms <= row.detected_ms <= one.to_ms for row in losses)
            words = f"Broker {one.broker} went {counted(times, 'time')} from {at(one.from_ms)} to {at(one.to_ms)}"
            yield Finding(one.from_ms, 3, "flapping", words)


def _controllers(answers: Answers, at: Clock) -> Iterator[Finding]:
    for one in _rows(answers, "controller_tenures"):
        if one.why_ended == "deposed":
            words = (
                f"Broker {one.broker} lost the seat (epoch {one.controller_epoch}) though it lived and had its session"
            )
            yield Finding(one.to_ms or one.from_ms, 3, "controller deposed", words, one.file_id, one.line_no)
    for one in _rows(answers, "zombies"):
        words = _ZOMBIES[one.kind].format(one=one, last=at(one.last_ms), times=counted(one.times, "time"))
        weight = 1 if one.kind.endswith("_obeyed") else 4
        yield Finding(one.first_ms, weight, "zombie", words, one.file_id, one.line_no)


_ZOMBIES: Final = {
    "controller_refused": "Broker {one.witness} refused what the deposed controller {one.stale} sent "
    "(epoch {one.controller_epoch}), {times}",
    "controller_obeyed": "Broker {one.witness} OBEYED what the deposed controller {one.stale} sent "
    "(epoch {one.controller_epoch}), {times}",
    "controller_spoke": "Broker {one.stale} worked as controller epoch {one.controller_epoch} until {last}, "
    "after broker {one.witness} had taken over",
    "leader_refused": "Broker {one.witness} refused a stale leader epoch of controller {one.stale} "
    "(epoch {one.controller_epoch}), {times}",
    "leader_obeyed": "Broker {one.witness} OBEYED a stale leader epoch of {one.topic}-{one.partition}",
    "isr_refused": "Broker {one.stale} led on a stale version and was refused, {times}",
}


def _cluster(answers: Answers) -> Iterator[Finding]:
    for one in _rows(answers, "zookeeper_outages"):
        length = "to the end of the logs" if one.to_ms is None else f"for {lasting(one.to_ms - one.from_ms)}"
        words = f"ZooKeeper was away {length}: {named('broker', one.brokers)} lost it, "
        words += f"and {named('broker', one.expired)} their sessions" if one.expired else "and kept their sessions"
        yield Finding(one.from_ms, 3, "ZooKeeper away", words, one.file_id, one.line_no)
    for one in _rows(answers, "cluster_silences"):
        words = f"No broker lived for {lasting(one.to_ms - one.from_ms)}, until broker {one.first_back} came back. "
        words += "This time counts neither as available nor as unavailable"
        yield Finding(one.from_ms, 2, "cluster off", words)


def _others(answers: Answers, at: Clock) -> Iterator[Finding]:
    for one in _rows(answers, "stuck_ops"):
        name = one.topic if one.partition is None else f"{one.topic}-{one.partition}"
        words = f"The {one.kind} of {name} has no end in these logs; last heard {at(one.last_step_ms)}: {one.last_step}"
        yield Finding(one.started_ms, 3, "unfinished", words[:300], one.file_id, one.line_no)


#: events that belong together have no longer pause between them
_PAUSE_MS: Final = 3_000
_ASKED_BY: Final = {
    "AdminClientTriggered": "by a tool",
    "ZkTriggered": "by the request znode",
    "AutoTriggered": "by the controller itself",
}
_CREATED: Final = ("created", "topic_created", "topic_grown", "topic_found")
_ELECTED: Final = ("preferred_election", "leader_imbalance")


def _asked(answers: Answers) -> Iterator[Finding]:
    """Operations that a person or Kafka itself started. They are no fault, but they explain other findings."""
    done: dict[tuple[str, str], list[tuple[int, int, Any]]] = defaultdict(list)  # when it began and ended, and its row
    for one in _rows(answers, "operations"):
        topic = "" if one.kind == PREFERRED else one.topic
        done[one.kind, topic].append((one.started_ms, one.ended_ms, one))
    for one in _rows(answers, "leader_changes"):
        if one.why in _CREATED:
            done["creation", one.topic].append((one.at_ms, one.at_ms, one))
        elif one.why in _ELECTED and one.leader != one.leader_before:
            done[PREFERRED, ""].append((one.at_ms, one.at_ms, one))
    for (kind, topic), rows in done.items():
        for group in _together(sorted(rows, key=_place_of)):
            begun_ms, ended_ms = group[0][0], max(row[1] for row in group)
            ones = [row[2] for row in group]
            length = f" Done {lasting(ended_ms - begun_ms)} later." if ended_ms > begun_ms else ""
            words = _done_words(kind, topic, ones) + length
            is_growth = kind == "creation" and min(one.partition for one in ones) > 0
            yield Finding(begun_ms, 5, "growth" if is_growth else kind, words, ones[0].file_id, ones[0].line_no)


def _together(rows: Sequence[tuple[int, int, Any]]) -> Iterator[list[tuple[int, int, Any]]]:
    """By time, where there is no pause."""
    group: list[tuple[int, int, Any]] = []
    for row in rows:
        if group and row[0] - max(one[1] for one in group[-1:]) > _PAUSE_MS:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _place_of(row: tuple[int, int, Any]) -> tuple[int, int, str, int]:
    return (*row[:2], row[2].topic or "", -1 if row[2].partition is None else row[2].partition)


def _done_words(kind: str, topic: str, ones: Sequence[Any]) -> str:
    partitions = counted(len({(one.topic, one.partition) for one in ones}), "partition")
    if kind == "deletion":
        waited = ", ".join(dict.fromkeys(one.why for one in ones if one.why))
        return f"Topic {topic} was deleted{f' after it had waited: {waited[:200]}' if waited else ''}."
    if kind == "creation":
        numbers = sorted({one.partition for one in ones})
        if len(numbers) == 1:
            return f"{topic}: partition {numbers[0]} came into being."
        return f"{topic}: {partitions} came into being, {numbers[0]} to {numbers[-1]}."
    if kind == PREFERRED:
        asked = [one for one in ones if one.topic is None]
        by = ", ".join(sorted({_ASKED_BY.get(one.why, one.why) for one in asked}))
        back = {(one.topic, one.partition) for one in ones if getattr(one, "leader_before", None) is not None}
        moved = counted(len(back), "partition")
        words = f"First replicas were to lead again{f', asked for {by}' if by else ''}"
        return f"{words}; {moved} went back to {'its own' if len(back) == 1 else 'theirs'}." if back else f"{words}."
    failed = sum(one.outcome != "done" for one in ones)
    return f"{partitions} of {topic} got other replicas{f', {failed} did not come to it' if failed else ''}."


def _rows(answers: Answers, table: str) -> Sequence[Any]:
    return answers[table]
