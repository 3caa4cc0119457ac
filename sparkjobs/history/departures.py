"""KRaft: why brokers and controllers went, and the phases until others acted in their place. Pure.

The record tells when a broker was fenced, and not why. The incarnation of its next registration tells: the same one
lived on in silence (frozen, cut off, or its heartbeats went elsewhere), another one is a new process. A controller's
process registers, too, as it starts. Logs add the last line before a silence, lines of a stop, and the acts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import msgspec

from sparkjobs.tables.record import RecordDeparture, RecordTakeover

Tables = Mapping[str, Sequence[Any]]
UNEXPLAINED: Final = "unexplained"
#: a broker that stops is fenced at its word, and a batch may begin shortly before the line
_AT_ITS_WORD_MS: Final = 5_000
#: a controller that begins gives brokers a session's time to be heard; the default is 9 s
_NEW_CONTROLLER_MS: Final = 10_000


def departures_of(records: Tables, logs: Tables) -> Iterator[RecordDeparture]:
    """One for each end of a life. `records` are joined with logs already: elections and fencings know their lines."""
    lives = sorted((one for one in records["record_broker_lives"] if one.mode == "kraft"), key=lambda one: one.position)
    tenures = [one for one in records["record_tenures"] if one.mode == "kraft"]
    stops = [one for one in logs.get("node_signs", ()) if one.sign == "stopping"]
    holder_at = partial(_holder, tenures)
    for number, life in enumerate(lives):
        if life.disk_lost_ms is not None:
            yield _departure(life, records, life.disk_lost_ms, life.disk_lost_ms, holder_at, *_LOST_A_DISK)
        if life.to_ms is None or life.ended in ("handed over", "rolled back"):
            continue
        after = next((one for one in lives[number + 1 :] if one.broker == life.broker), None)
        since = life.to_ms if life.leaving_ms is None else life.leaving_ms
        fencing = next(
            (one for one in records["record_fencings"] if (one.broker, one.done_ms) == (life.broker, life.to_ms)), None
        )
        is_stopped = any(one.node == life.broker and abs(one.at_ms - since) <= _AT_ITS_WORD_MS for one in stops)
        row = _departure(life, records, since, life.to_ms, holder_at, "", "")
        has_led = row.elected + row.leaderless > 0
        cause, said = _cause_of(life, after, holder_at(life.to_ms), fencing, is_stopped=is_stopped, has_led=has_led)
        yield msgspec.structs.replace(
            row,
            heard_ms=None if fencing is None else fencing.heard_ms,
            asked_ms=life.leaving_ms,
            fencing_ms=None if fencing is None else fencing.at_ms,
            back_ms=None if after is None else after.from_ms,
            cause=cause,
            said=said,
        )


_LOST_A_DISK: Final = ("lost a disk", "a log directory of it failed; it stayed")


def _holder(tenures: Sequence[Any], at_ms: int) -> Any:
    return next((one for one in reversed(tenures) if one.from_ms <= at_ms), None)


def _departure(
    life: Any, records: Tables, since: int, gone_ms: int, holder_at: Callable[[int], Any], cause: str, said: str
) -> RecordDeparture:
    """With the partitions that the broker led until then."""
    taken = [
        one
        for one in records["record_elections"]
        if one.mode == "kraft" and one.leader_before == life.broker and since <= one.at_ms <= gone_ms
    ]
    left = [
        one
        for one in records["record_outages"]
        if one.mode == "kraft" and one.leader_before == life.broker and since <= one.from_ms <= gone_ms
    ]
    holder = holder_at(gone_ms)
    return RecordDeparture(
        cluster=life.cluster,
        mode=life.mode,
        broker=life.broker,
        broker_epoch=life.broker_epoch,
        gone_ms=gone_ms,
        acted_ms=max((one.acted_ms for one in taken if one.acted_ms is not None), default=None),
        cause=cause,
        said=said,
        elected=len(taken),
        leaderless=len(left),
        controller=None if holder is None else holder.controller,
        grade=life.grade,
    )


def _cause_of(life: Any, after: Any, holder: Any, fencing: Any, *, is_stopped: bool, has_led: bool) -> tuple[str, str]:
    if life.leaving_ms is not None:
        return "shut down", "it asked the controller for it"
    if is_stopped:
        return "shut down", "its server.log says so, and it had nothing to hand over"
    if life.ended == "registered":
        return "restarted", "its next process registered before the session of this one ended"
    if life.ended == "unregistered":
        return "unregistered", "an operator removed it"
    if after is None:
        return "unknown", "it never came back: its server.log would tell a stop from a crash"
    if after.incarnation != life.incarnation:
        if not has_led:
            return (
                "unknown",
                "it led nothing to hand over: its server.log would tell a stop from a crash",
            )
        return "died", "a new process of it registered later, and this one had not asked to be shut down"
    words = "the same process was heard again: it was frozen or cut off, or its heartbeats went elsewhere"
    if holder is not None and holder.from_ms > life.from_ms and life.to_ms - holder.from_ms < _NEW_CONTROLLER_MS:
        words += f"; controller {holder.controller} had begun {life.to_ms - holder.from_ms} ms before"
        if fencing is not None and fencing.heard_ms is not None and fencing.heard_ms >= holder.from_ms:
            words += ", and the broker wrote lines meanwhile"
    return "silent", words


def takeovers_of(records: Tables, logs: Tables) -> Iterator[RecordTakeover]:
    """One for each controller that followed another."""
    tenures = sorted((one for one in records["record_tenures"] if one.mode == "kraft"), key=lambda one: one.position)
    signs = sorted(logs.get("node_signs", ()), key=lambda one: one.at_ms)
    for before, one in pairwise(tenures):
        last_ms = before.to_lo_ms if before.to_lo_ms is not None else before.from_ms
        stood = [
            sign.at_ms
            for sign in signs
            if sign.sign in ("prospective", "candidate") and last_ms < sign.at_ms <= one.from_ms + _AT_ITS_WORD_MS
            if sign.epoch is None or sign.epoch <= one.epoch
        ]
        cause, said = _end_of(before, one, signs)
        yield RecordTakeover(
            cluster=one.cluster,
            mode=one.mode,
            epoch=one.epoch,
            controller=one.controller,
            before=before.controller,
            last_ms=last_ms,
            renounced_ms=before.renounced_ms,
            noticed_ms=min(stood, default=None),
            won_ms=one.from_ms,
            active_ms=one.active_ms,
            first_ms=one.first_ms,
            cause=cause,
            said=said,
            position=one.position,
            grade=one.grade,
        )


def _end_of(before: Any, after: Any, signs: Sequence[Any]) -> tuple[str, str]:
    """Why a controller's time ended, as far as its own lines or its next process tell."""
    last_ms = before.to_lo_ms if before.to_lo_ms is not None else before.from_ms
    if any(
        one.node == before.controller and one.sign == "stopping" and last_ms - _AT_ITS_WORD_MS <= one.at_ms
        for one in signs
        if one.at_ms <= after.from_ms
    ):
        return "stopped", "its server.log says so"
    if before.renounced_ms is not None and before.renounced_ms < after.from_ms:
        return "no majority", "it gave up by its own line before another was elected"
    if before.renounced_ms is not None:
        return "silent", "it lived and learned of its successor later: it was frozen or cut off"
    if before.restarted_ms is not None and before.active_ms is not None:
        return "died", "its log says nothing of an end, and its next process registered later"
    if before.restarted_ms is not None:
        return "unknown", "its next process registered later: its controller.log would tell when this one ended"
    return "unknown", "its controller.log would tell"


def explained(outages: Sequence[Any], departures: Sequence[RecordDeparture]) -> Iterator[Any]:
    """KRaft's outages with the departure that began each, or `unexplained`."""
    for one in outages:
        if one.mode != "kraft":
            yield one
            continue
        went = next(
            (
                each
                for each in departures
                if each.broker == one.leader_before
                and (each.gone_ms if each.asked_ms is None else each.asked_ms) <= one.from_ms <= each.gone_ms
            ),
            None,
        )
        why = UNEXPLAINED if went is None else f"broker {went.broker}: {went.cause}"
        yield msgspec.structs.replace(one, why=why)
