"""The story of one partition around one moment, as a person would tell it, with the lines that say so. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sparkjobs.report.findings import removed
from sparkjobs.report.markup import Clock, clock, clock_for, lasting
from sparkjobs.report.page import Quoting
from sparkjobs.rules.facts import Place
from sparkjobs.rules.rules import Answers

#: how much is told before and after the moment
AROUND: Final = 6


#: tables about a partition that its story tells of
_TOLD: Final = ("isr_timeline", "partition_outages", "leader_changes", "unclean_elections", "truncations")


def places_of(answers: Answers, topic: str, partition: int) -> list[Place]:
    """Returns the lines that its story may quote."""
    rows = [row for rows in _of(answers, topic, partition).values() for row in rows]
    return [Place(row.file_id, row.line_no) for row in [*rows, *_rows(answers, "failovers")]]


def _of(answers: Answers, topic: str, partition: int) -> dict[str, list[Any]]:
    name = topic, partition
    return {table: [row for row in _rows(answers, table) if (row.topic, row.partition) == name] for table in _TOLD}


def story_for(answers: Answers, topic: str, partition: int, at_ms: int, quote: Quoting) -> Iterator[str]:
    """Yields the state at that moment, then its causes and its consequences."""
    of = _of(answers, topic, partition)
    yield f"{topic}-{partition} at {clock(at_ms, with_day=True)} UTC"
    at = clock_for(answers)
    if not any(of.values()):
        yield "  These logs do not name it."
        return
    yield from (f"  {line}" for line in _stood(of["isr_timeline"], of["partition_outages"], at_ms, at))
    yield from (f"  {line}" for line in _seat(_rows(answers, "controller_tenures"), at_ms, at))
    yield ""
    yield from _course(of, answers, at_ms, quote, at)


def _stood(states: Sequence[Any], outages: Sequence[Any], at_ms: int, at: Clock) -> Iterator[str]:
    state = next((s for s in states if s.from_ms <= at_ms and (s.to_ms is None or at_ms < s.to_ms)), None)
    if state is None:
        yield "Its state at that moment is not in these logs."
    else:
        leader = "nobody led it" if state.leader == -1 else f"broker {state.leader} led it"
        in_sync = ", ".join(map(str, state.isr))
        yield f"{leader}, leader epoch {state.leader_epoch}, in sync: {in_sync} (version {state.version})."
    for one in outages:
        felt_ms = one.start_lo_ms if one.leader_last_seen_ms is None else one.leader_last_seen_ms
        if felt_ms <= at_ms and (one.end_ms is None or at_ms < one.end_ms):
            began = (
                f"It was without a leader from {at(one.start_ms)}"
                if one.start_ms <= at_ms
                else (
                    f"Its leader, broker {one.first_broker}, had last been heard {at(felt_ms)} and was not missed "
                    f"yet; it was without a leader from {at(one.start_ms)}"
                )
            )
            end = "the end of the logs" if one.end_ms is None else at(one.end_ms)
            yield f"{began} until {end}."


def _seat(tenures: Sequence[Any], at_ms: int, at: Clock) -> Iterator[str]:
    holding = next((t for t in tenures if t.from_ms <= at_ms and (t.to_ms is None or at_ms <= t.to_ms)), None)
    if holding is None:
        yield "Nobody was controller, as far as these logs know."
    else:
        epoch = holding.controller_epoch
        yield f"Broker {holding.broker} was controller (epoch {epoch}, since {at(holding.from_ms)})."


def _course(of: dict[str, list[Any]], answers: Answers, at_ms: int, quote: Quoting, at: Clock) -> Iterator[str]:
    brokers = {broker for state in of["isr_timeline"] for broker in (*state.isr, state.leader)}
    told = [
        *((o.start_ms, _offline(o), o) for o in of["partition_outages"]),
        *((c.at_ms, _elected(c), c) for c in of["leader_changes"]),
        *((u.at_ms, f"that election was unclean ({u.proof}): data may be lost", u) for u in of["unclean_elections"]),
        *((t.at_ms, f"broker {t.broker} {removed(t)}", t) for t in of["truncations"]),
        *(
            (f.detected_ms, f"broker {f.broker} was missed ({f.how}), last heard {at(f.last_seen_ms)}", f)
            for f in _rows(answers, "failovers")
            if f.broker in brokers
        ),
    ]
    told.sort(key=lambda one: (one[0], one[1]))
    before = [one for one in told if one[0] <= at_ms][-AROUND:]
    after = [one for one in told if one[0] > at_ms][:AROUND]
    for heading, found in (("Before:", before), ("Afterwards:", after)):
        yield heading
        if not found:
            yield "  nothing in these logs"
        for when_ms, words, row in found:
            yield f"  {at(when_ms)}  {words}"
            said = quote(row.file_id, row.line_no)
            if said is not None:
                yield f"                {said.path}:{said.line_no}: {said.text[:200]}"


def _offline(outage: Any) -> str:
    how = (
        "" if outage.evidence == "exact" else f" (inferred, within {lasting(outage.start_hi_ms - outage.start_lo_ms)})"
    )
    who = "" if outage.first_broker is None else f", after broker {outage.first_broker} went"
    length = (
        "still so where the logs end" if outage.end_ms is None else f"for {lasting(outage.end_ms - outage.start_ms)}"
    )
    return f"without a leader{how}{who}, {length}"


def _elected(change: Any) -> str:
    acked = f", followed by {', '.join(map(str, change.acked))}" if change.acked else ""
    return f"broker {change.leader} elected ({change.why.replace('_', ' ')}), leader epoch {change.leader_epoch}{acked}"


def _rows(answers: Answers, table: str) -> Sequence[Any]:
    return answers[table]
