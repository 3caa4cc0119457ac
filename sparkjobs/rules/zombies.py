"""Actors on an epoch that was over: refused, as they should be, or obeyed.

An obeyed zombie is found by comparing a broker's lines with each other only, by its own clock, so no other clock is
asked: the epochs of controllers in the counts, those of leaders partition by partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sparkjobs.rules.facts import MARGIN_MS, Facts, Tally
from sparkjobs.rules.partitions import lives_of
from sparkjobs.tables.gold import Zombie
from sparkjobs.tables.silver import SilverEvent

#: lines in which a broker obeys a leader's epoch; births tell the lives of a topic apart
EVENTS: Final = frozenset({"leader_started", "follower_started", "partition_changed"})
_REFUSALS: Final = {
    "stale_controller_epoch": "controller_refused",
    "stale_leader_epoch": "leader_refused",
}


def zombies_of(tallies: Sequence[Tally], facts: Facts) -> Iterator[Zombie]:
    """Of one cluster."""
    groups: dict[tuple[str, int | None, int | None, int | None], list[Tally]] = defaultdict(list)
    for one in tallies:
        kind = _REFUSALS.get(one.error or "") if one.event == "request_ignored" else None
        if one.event == "isr_version_conflict":
            groups["isr_refused", one.broker, None, None].append(one)
        elif kind is not None and not (kind == "leader_refused" and _is_current(one, facts)):
            groups[kind, one.controller, one.broker, one.controller_epoch].append(one)
    for (kind, stale, witness, epoch), found in groups.items():
        yield _zombie(facts.cluster, kind, stale, witness, epoch, found)
    yield from _obeyed(tallies, facts.cluster)
    yield from _spoke(tallies, facts)


def _is_current(one: Tally, facts: Facts) -> bool:
    """Returns whether no broker had taken over from the controller whose old leader epoch was refused. Up to 0.11 and
    after a restart a controller sends again a state that brokers know already, which is ordinary."""
    after = None if one.controller_epoch is None else facts.term_after(one.controller_epoch)
    return after is None or one.last_ms <= after.from_ms


def obeyed_leaders_of(events: Sequence[SilverEvent], facts: Facts) -> Iterator[Zombie]:
    """Of one partition: a broker led or followed at a leader epoch below one that it had led or followed at before.
    A topic that is made anew begins at 0 again, whether or not a line says that it was."""
    starts = [event for event in events if event.event != "partition_changed"]
    lives, highest = lives_of(events) if starts else None, dict[tuple[int, int], int]()
    for event in sorted(starts, key=lambda event: (event.ts_utc, event.file_id, event.line_no)):
        epoch, broker = event.leader_epoch, event.broker
        if lives is None or epoch is None or broker is None:
            continue
        key = (broker, lives.of(event))
        if epoch > 0 and epoch < highest.get(key, 0):
            yield Zombie(
                cluster=event.cluster,
                kind="leader_obeyed",
                stale=event.broker if event.event == "leader_started" else event.leader,
                witness=broker,
                controller_epoch=event.controller_epoch,
                topic=event.topic,
                partition=event.partition,
                first_ms=event.ts_adj,
                last_ms=event.ts_adj,
                times=1,
                file_id=event.file_id,
                line_no=event.line_no,
            )
        highest[key] = max(epoch, highest.get(key, 0)) if epoch else 0


def _zombie(
    cluster: str, kind: str, stale: int | None, witness: int | None, epoch: int | None, found: Iterable[Tally]
) -> Zombie:
    found = sorted(found, key=lambda one: (one.first_ms, one.first))
    return Zombie(
        cluster=cluster,
        kind=kind,
        stale=stale,
        witness=witness,
        controller_epoch=epoch,
        first_ms=found[0].first_ms,
        last_ms=max(one.last_ms for one in found),
        times=sum(one.times for one in found),
        file_id=found[0].first.file_id,
        line_no=found[0].first.line_no,
    )


def _obeyed(tallies: Sequence[Tally], cluster: str) -> Iterator[Zombie]:
    """Returns the brokers that obeyed an older controller after they had obeyed a newer one."""
    done: dict[int, list[Tally]] = defaultdict(list)
    for one in tallies:
        if one.event == "request_done" and one.controller_epoch is not None and one.broker is not None:
            done[one.broker].append(one)
    for broker, found in done.items():
        by_epoch: dict[int, list[Tally]] = defaultdict(list)
        for one in found:
            by_epoch[one.controller_epoch or 0].append(one)
        for epoch, of_epoch in by_epoch.items():
            newer_ms = min(
                (one.first_ms for other in by_epoch if other > epoch for one in by_epoch[other]), default=None
            )
            late = [one for one in of_epoch if newer_ms is not None and one.last_ms > newer_ms]
            if late:
                yield _zombie(cluster, "controller_obeyed", late[0].controller, broker, epoch, late)


def _spoke(tallies: Sequence[Tally], facts: Facts) -> Iterator[Zombie]:
    """A controller went on working after its successor had begun: it had not noticed."""
    for term, after in zip(facts.terms, facts.terms[1:], strict=False):
        late = [
            one
            for one in tallies
            if one.role == "controller" and one.controller_epoch == term.controller_epoch and not one.is_found
            if one.broker == term.broker and one.last_ms > after.from_ms + MARGIN_MS
        ]
        if late:
            yield _zombie(facts.cluster, "controller_spoke", term.broker, after.broker, term.controller_epoch, late)
