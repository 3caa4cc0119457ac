"""Says which questions these logs can answer and which they cannot, before a reader believes too much."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sparkjobs.rules.facts import Facts, Tally
from sparkjobs.tables.gold import Coverage

#: the question without whose answer a report is blind
ENDS: Final = "end of an outage"
KRAFT: Final = "these are logs of KRaft: what its controllers decided stands in `__cluster_metadata-0` of any node"


class _SeenLines(NamedTuple):
    """Which kinds of lines there are."""

    events: frozenset[str]
    has_trace: bool
    is_ours: bool
    has_trips: bool
    has_durations: bool
    has_states: bool
    has_receipts: bool

    @property
    def has_controller_log(self) -> bool:
        return bool(self.events & {"controller_elected", "controller_epoch_raised"})

    @property
    def has_server_log(self) -> bool:
        return bool(self.events & {"server_starting", "registered"})


def coverage_of(tallies: Sequence[Tally], facts: Facts) -> Iterator[Coverage]:
    """Of one cluster."""
    seen = _SeenLines(
        frozenset(one.event for one in tallies),
        any(one.level == "TRACE" and one.event in ("partition_changed", "request_received") for one in tallies),
        any(one.event == "broker_changed" for one in tallies),
        any(one.event == "response_received" and one.api is not None for one in tallies),
        any(one.event == "request_done" and one.level != "TRACE" for one in tallies),
        any(one.event == "partition_changed" and one.level == "INFO" for one in tallies),
        bool(facts.by_number),
    )
    answers = {
        "start of an outage": _starts(seen),
        ENDS: _ends(seen, facts),
        "who was controller": _tenures(seen),
        "which brokers acknowledged": _acks(seen),
        "in-sync replicas": _isrs(seen),
        "crash or clean stop": _crashes(seen),
        "which broker first": _clocks(facts),
        "zookeeper away": _zookeeper(seen),
        "latency of requests": _latencies(seen),
        "moves of both machines": _moves(seen, facts),
        "all brokers": _brokers(tallies, facts),
        "all controllers": _epochs(facts),
    }
    for question, (grade, why) in answers.items():
        yield Coverage(cluster=facts.cluster, question=question, grade=grade, why=why)


def _starts(seen: _SeenLines) -> tuple[str, str]:
    if seen.is_ours:
        return "inferred", "our controller replaces a lost leader in one write; it began with that broker's last word"
    if seen.has_trace:
        return "exact", "TRACE: each move to offline has a line"
    if seen.has_controller_log:
        return (
            "inferred",
            "INFO: a move to offline has no line; bounded by the lost leader's last line and the election",
        )
    return "partial", "INFO without controller.log: bounded by the start of the logs"


def _ends(seen: _SeenLines, facts: Facts) -> tuple[str, str]:
    if "partition_changed" in seen.events:
        silent = {term.broker for term in facts.terms} - facts.tell_deletions
        if silent:
            brokers = ", ".join(map(str, sorted(silent)))
            return "partial", f"each election has a line; a deletion has none without the controller.log of {brokers}"
        if not facts.is_end_told:
            return "partial", "brokers did later what a controller bade whose lines are missing: its state-change.log"
        return "exact", "each election has a line"
    if any(event.startswith(("quorum_", "metadata_s")) for event in seen.events):
        return "none", KRAFT
    return "none", "no controller's state-change.log among the files"


def _tenures(seen: _SeenLines) -> tuple[str, str]:
    if seen.has_controller_log:
        return "exact", "controller.log says who was elected"
    if seen.is_ours:
        return "exact", "our controller's lines carry its epoch, and its first line is of its claim"
    return "inferred", "no controller.log: a tenure begins with the first line under its epoch"


def _acks(seen: _SeenLines) -> tuple[str, str]:
    if "follower_started" in seen.events or (seen.is_ours and "request_done" in seen.events):
        return "exact", "brokers' own lines"
    if seen.has_receipts:
        return "exact", "TRACE: brokers' own lines say which requests they did, since 0.8.1 of what leader epoch"
    if "leader_started" in seen.events:
        return "partial", "only new leaders say at which leader epoch they began"
    if "request_done" in seen.events:
        return "none", "before 2.6 brokers do not say at which leader epoch they did what they were told"
    return "none", "no broker's state-change.log among the files"


def _isrs(seen: _SeenLines) -> tuple[str, str]:
    if seen.is_ours:
        return "exact", "changes have lines"
    if not seen.has_states:
        return "partial", "before 2.6 versions of states are printed with elections only, before 1.0 not at all"
    if "isr_changed" in seen.events and seen.has_server_log:
        return "exact", "changes have lines"
    return "partial", "no server.log: what leaders asked for is seen only with the next election"


def _crashes(seen: _SeenLines) -> tuple[str, str]:
    if seen.has_server_log:
        return "exact", "server.log tells a stop from a crash"
    if seen.is_ours:
        return (
            "partial",
            "a stop is told by the drain before it; a crash and a lost session look alike, and so do a cluster that "
            "was killed as a whole and one that lost ZooKeeper",
        )
    return "none", "no server.log: a broker that went was just lost"


def _clocks(facts: Facts) -> tuple[str, str]:
    unknown = sorted(broker for broker, err_ms in facts.clock_err_ms.items() if err_ms is None)
    if unknown:
        brokers = ", ".join(map(str, unknown))
        return "partial", f"nothing tells how far the clocks of brokers {brokers} are off: taken as right"
    known = [err_ms for err_ms in facts.clock_err_ms.values() if err_ms is not None]
    if not known:
        return "partial", "clocks were not compared: taken as right"
    return "exact", f"clocks were compared, and are known to within {max(known)} ms"


def _zookeeper(seen: _SeenLines) -> tuple[str, str]:
    if seen.events & {"zookeeper_lost", "session_established"}:
        return "exact", "brokers' server.log says when they lost ZooKeeper and found it again"
    return "none", "no broker says anything of its connection to ZooKeeper: that needs Kafka's server.log"


def _moves(seen: _SeenLines, facts: Facts) -> tuple[str, str]:
    silent = [term.controller_epoch for term in facts.terms if term.controller_epoch not in facts.told_epochs]
    if facts.told_epochs and not silent:
        return "exact", "each move of a partition or a replica has a line"
    if facts.told_epochs:
        return "partial", f"only at TRACE each move has a line: not those of controller {_epochs_named(silent)}"
    if "partition_changed" in seen.events:
        return "partial", "INFO: moves to offline, and those of replicas, have no line; TRACE has"
    return "none", "no controller's state-change.log among the files"


def _epochs_named(epochs: Sequence[int]) -> str:
    named = ", ".join(map(str, epochs[:8])) + (" and others" if len(epochs) > 8 else "")
    return f"epoch {named}" if len(epochs) == 1 else f"epochs {named}"


def _latencies(seen: _SeenLines) -> tuple[str, str]:
    if seen.has_trips and seen.events & {"request_received", "metadata_cached"}:
        return "exact", "TRACE: both sides of requests have lines"
    if seen.is_ours or seen.has_durations:
        return "partial", "brokers say how long they worked; the controller's side needs TRACE"
    if seen.has_receipts and "response_received" in seen.events and not seen.has_trips:
        return (
            "partial",
            "TRACE: brokers' own lines say how long they worked on LeaderAndIsr; the controller's say which request "
            "was answered only in 0.8.0, 0.8.1 and since 1.1",
        )
    if seen.has_receipts:
        return "partial", "TRACE: brokers' own lines say how long they worked on LeaderAndIsr"
    if "response_received" in seen.events and not seen.has_trips:
        return "none", "before 1.1 a response does not say which request it answers"
    return "none", "neither TRACE of both sides nor lines that say how long a request took"


def _brokers(tallies: Sequence[Tally], facts: Facts) -> tuple[str, str]:
    heard = {one.broker for one in tallies}
    silent = sorted({*(term.broker for term in facts.terms), *(loss.broker for loss in facts.losses)} - heard)
    if silent:
        return "partial", f"no logs of broker {', '.join(map(str, silent))}"
    return "exact", "every broker that is named has logs here"


def _epochs(facts: Facts) -> tuple[str, str]:
    epochs = [term.controller_epoch for term in facts.terms]
    gaps = [f"{a + 1} to {b - 1}" for a, b in itertools.pairwise(epochs) if b > a + 1]
    if gaps:
        return "partial", f"controller epochs missing: {', '.join(gaps)}"
    return "exact", "no epoch is missing in between"
