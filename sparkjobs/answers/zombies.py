"""Who acted on an epoch that was over: refused, as it should be, or obeyed.

`controller_obeyed` compares a broker's lines with each other only, by its own clock, so it needs no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sparkjobs.answers.facts import Facts, Tally
from sparkjobs.gold import Zombie

EVENTS: Final = frozenset({"request_ignored", "isr_version_conflict", "request_done"})
_REFUSALS: Final = {
    "stale_controller_epoch": "controller_refused",
    "stale_leader_epoch": "leader_refused",
}
#: clocks are known to about this much; what a controller says so shortly after its successor's claim proves nothing
_MARGIN_MS: Final = 2_000


def zombies_of(tallies: Sequence[Tally], facts: Facts) -> Iterator[Zombie]:
    """Of one cluster."""
    groups: dict[tuple[str, int | None, int | None, int | None], list[Tally]] = defaultdict(list)
    for one in tallies:
        kind = _REFUSALS.get(one.error or "") if one.event == "request_ignored" else None
        if one.event == "isr_version_conflict":
            groups["isr_refused", one.broker, None, None].append(one)
        elif kind is not None:
            groups[kind, one.controller, one.broker, one.controller_epoch].append(one)
    for (kind, stale, witness, epoch), found in groups.items():
        yield _zombie(facts.cluster, kind, stale, witness, epoch, found)
    yield from _obeyed(tallies, facts.cluster)
    yield from _spoke(tallies, facts)


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
        topic=None,
        first_ms=found[0].first_ms,
        last_ms=max(one.last_ms for one in found),
        times=sum(one.times for one in found),
        file_id=found[0].first.file_id,
        line_no=found[0].first.line_no,
    )


def _obeyed(tallies: Sequence[Tally], cluster: str) -> Iterator[Zombie]:
    """A broker did what an older controller asked after it had done what a newer one asked."""
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
            if one.broker == term.broker and one.last_ms > after.from_ms + _MARGIN_MS
        ]
        if late:
            yield _zombie(facts.cluster, "controller_spoke", term.broker, after.broker, term.controller_epoch, late)
