"""The course of a failover: from a broker's last word until its partitions had leaders and all brokers had obeyed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sparkjobs.rules.facts import (
    Facts,
    Loss,
    Term,
    how_it_went,
)
from sparkjobs.tables.gold import Failover, LeaderChange, Outage


class Moves(NamedTuple):
    """The sums over the elections that followed one loss."""

    moved: int
    first_elected_ms: int
    last_elected_ms: int
    expected: tuple[int, ...]
    acked_ms: tuple[tuple[int, int], ...]  # broker, when it had done the last of its partitions


def cause_of(change: LeaderChange, facts: Facts) -> Loss | None:
    """Returns the loss that this election repaired: of the leader before, which was not back yet, by the same
    controller."""
    if change.leader_before is None or change.leader_before == change.leader:
        return None
    loss = facts.loss_of(change.leader_before, change.at_ms)
    if loss is None or loss.controller_epoch != change.controller_epoch:
        return None
    was_back = any(loss.detected_ms < ms < change.at_ms for ms in facts.returns.get(loss.broker, ()))
    return None if was_back else loss


def moves_of(changes: Iterable[LeaderChange], facts: Facts) -> dict[tuple[int, int], Moves]:
    """By broker and moment of the loss."""
    found: dict[tuple[int, int], list[LeaderChange]] = {}
    for change in changes:
        loss = cause_of(change, facts)
        if loss is not None:
            found.setdefault((loss.broker, loss.detected_ms), []).append(change)
    return {key: _moves(of_loss) for key, of_loss in found.items()}


def _moves(changes: Sequence[LeaderChange]) -> Moves:
    acked: dict[int, int] = {}
    for change in changes:
        for broker, at_ms in zip(change.acked, change.acked_ms, strict=True):
            if broker in (change.isr or ()) or broker == change.leader:
                acked[broker] = max(at_ms, acked.get(broker, at_ms))
    return Moves(
        moved=len(changes),
        first_elected_ms=min(change.at_ms for change in changes),
        last_elected_ms=max(change.at_ms for change in changes),
        expected=tuple(sorted({broker for change in changes for broker in (change.isr or (change.leader,))})),
        acked_ms=tuple(sorted(acked.items())),
    )


def failovers_of(facts: Facts, moves: dict[tuple[int, int], Moves], outages: Iterable[Outage]) -> Iterator[Failover]:
    """One for each broker that went."""
    left: dict[tuple[int, int], int] = {}
    for outage in outages if facts.losses else ():
        loss = facts.loss_of(outage.first_broker, outage.start_hi_ms)
        is_quick = outage.end_ms is not None and outage.ended_by == "elected" and outage.election_attempts <= 1
        if loss is not None and not is_quick:
            key = (loss.broker, loss.detected_ms)
            left[key] = left.get(key, 0) + 1
    for loss in facts.losses:
        key = (loss.broker, loss.detected_ms)
        yield _failover(loss, facts, moves.get(key), left.get(key, 0))


def _failover(loss: Loss, facts: Facts, moves: Moves | None, left_offline: int) -> Failover:
    acked = dict(moves.acked_ms) if moves is not None else {}
    slowest = max(acked, key=lambda broker: (acked[broker], -broker), default=None)
    at_ms = moves.last_elected_ms if moves is not None else None
    return Failover(
        cluster=facts.cluster,
        broker=loss.broker,
        was_controller=loss.was_controller,
        how=how_it_went(loss, facts),
        last_seen_ms=facts.last_heard_ms(loss),
        detected_ms=loss.detected_ms,
        detected_evidence=loss.evidence,
        went_about_ms=facts.went_about_ms(loss),
        controller=loss.controller,
        controller_epoch=loss.controller_epoch,
        ready_ms=_ready_ms(loss, facts.terms),
        first_elected_ms=None if moves is None else moves.first_elected_ms,
        last_elected_ms=at_ms,
        last_acked_ms=max(acked.values(), default=None),
        moved=0 if moves is None else moves.moved,
        left_offline=left_offline,
        expected=() if moves is None else moves.expected,
        acked=tuple(sorted(acked)),
        slowest=slowest,
        slowest_ms=None if slowest is None or at_ms is None else acked[slowest] - at_ms,
        returned_ms=next((ms for ms in facts.returns.get(loss.broker, ()) if ms >= loss.detected_ms), None),
        file_id=loss.place.file_id,
        line_no=loss.place.line_no,
    )


def _ready_ms(loss: Loss, terms: Sequence[Term]) -> int | None:
    if loss.evidence == "exact":
        return None
    return next((term.ready_ms for term in terms if term.controller_epoch == loss.controller_epoch), None)
