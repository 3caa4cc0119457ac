"""What these logs can answer and what they cannot, said before somebody believes too much."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from sparkjobs.answers.facts import Facts, Tally
from sparkjobs.gold import Coverage

EVENTS: Final = frozenset[str]()


def coverage_of(tallies: Sequence[Tally], facts: Facts) -> Iterator[Coverage]:
    """Of one cluster."""
    seen = {one.event for one in tallies}
    levels = {(one.event, one.level) for one in tallies}
    has_trace = ("partition_changed", "TRACE") in levels or ("request_received", "TRACE") in levels
    is_ours = any(one.level == "" or one.event == "broker_changed" for one in tallies)
    has_controller = "controller_elected" in seen or "controller_epoch_raised" in seen
    has_server = "server_starting" in seen or "registered" in seen

    def row(question: str, grade: str, why: str) -> Coverage:
        return Coverage(cluster=facts.cluster, question=question, grade=grade, why=why)

    if is_ours:
        yield row(
            "start of an outage",
            "inferred",
            "our controller replaces a lost leader in one write; the outage began with that broker's last word",
        )
    elif has_trace:
        yield row("start of an outage", "exact", "TRACE: each move to offline has a line")
    elif has_controller:
        yield row(
            "start of an outage",
            "inferred",
            "INFO: a move to offline has no line; bounded by the lost leader's last line and the election",
        )
    else:
        yield row("start of an outage", "partial", "INFO without controller.log: bounded by the start of the logs")
    has_elections = "partition_changed" in seen
    yield row(
        "end of an outage",
        "exact" if has_elections else "none",
        "each election has a line" if has_elections else "no controller's state-change.log among the files",
    )
    why = (
        "controller.log says who was elected"
        if has_controller
        else "no controller.log: from the first line of an epoch"
    )
    yield row("who was controller", "exact" if has_controller else "inferred", why)
    acked = "leader_started" in seen or "request_done" in seen
    yield row(
        "which brokers acknowledged",
        "exact" if acked else "none",
        "brokers' own lines" if acked else "no broker's state-change.log among the files",
    )
    isr = "isr_changed" in seen or is_ours
    yield row(
        "in-sync replicas",
        "exact" if isr and (has_server or is_ours) else "partial",
        "changes have lines"
        if isr and (has_server or is_ours)
        else "no server.log: what leaders asked for is seen only with the next election",
    )
    yield row(
        "crash or clean stop",
        "exact" if has_server else "none",
        "server.log tells a stop from a crash" if has_server else "no server.log: a broker that went was just lost",
    )
    known = {term.broker for term in facts.terms}
    heard = {one.broker for one in tallies if one.broker is not None}
    silent = sorted((known | {loss.broker for loss in facts.losses}) - heard)
    yield row(
        "all brokers",
        "partial" if silent else "exact",
        f"no logs of broker {', '.join(map(str, silent))}" if silent else "every broker that is named has logs here",
    )
    epochs = [term.controller_epoch for term in facts.terms]
    gaps = [f"{a + 1} to {b - 1}" for a, b in itertools.pairwise(epochs) if b > a + 1]
    yield row(
        "all controllers",
        "partial" if gaps else "exact",
        f"controller epochs missing: {', '.join(gaps)}" if gaps else "no epoch is missing in between",
    )
