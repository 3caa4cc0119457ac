"""The order of the lines about one partition, and which of its lives a line is about.

Epochs order, not clocks: first the controller epoch, then, in our own logs, the zxid of the commit. Lines of one
controller epoch come from one process, so its own clock is good enough within the epoch, whatever it shows. At the same
millisecond a partition goes offline before it is led again.

A topic may be deleted and made anew under its name, and its leader epochs and versions then begin again: each such
*life* is counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from sparkjobs.rules.facts import Term
from sparkjobs.rules.state_machines import GONE, NEW, OFFLINE, ONLINE
from sparkjobs.tables.silver import SilverEvent

#: leaders and ISRs of partitions, as controllers say them
STATE_EVENTS: Final = frozenset({"partition_changed", "partition_change_failed", "isr_changed", "unclean_elected"})
_RANKS: Final = {NEW: 0, OFFLINE: 1, GONE: 2, ONLINE: 4}
_RANK_OF_OTHERS: Final = 3
NO_LEADER: Final = -1


def order_key(event: SilverEvent) -> tuple[int, int, int, int, int, int, str]:
    """Returns a key that sorts the controllers' lines about one partition into the order of their decisions."""
    to_state = event.to_state
    return (
        -1 if event.controller_epoch is None else event.controller_epoch,
        event.zxid or 0,
        event.ts_utc,
        _RANK_OF_OTHERS
        if to_state is None or event.event != "partition_changed"
        else _RANKS.get(to_state, _RANK_OF_OTHERS),
        -1 if event.leader_epoch is None else event.leader_epoch,
        -1 if event.version is None else event.version,
        event.event_id,
    )


def by_controllers(events: Iterable[SilverEvent], terms: Sequence[Term]) -> list[SilverEvent]:
    """Returns the controllers' events in order, each one once. Of a state that our logs tell twice it keeps the line of
    the controller that decided it."""
    controllers = [e for e in events if e.role == "controller" and e.event in STATE_EVENTS]
    if _is_in_order(controllers):
        return controllers
    said = sorted((with_epoch(e, terms) for e in controllers), key=order_key)
    decided = {_state_key(e) for e in said if e.zxid is not None and e.cause != "found"}
    kept, seen = [], set[object]()
    for event in said:
        is_ours = event.zxid is not None and event.version is not None
        key: object = (_state_key(event), event.cause == "found") if is_ours else event.event_id
        if key in seen or (is_ours and event.cause == "found" and _state_key(event) in decided):
            continue
        seen.add(key)
        kept.append(event)
    return kept


def _is_in_order(events: Iterable[SilverEvent]) -> bool:
    """Returns whether each event is of a later moment than the one before, in the same epoch or a later one. Then there
    is no event to sort and none is told twice. Most partitions are like this, and sorting is half of the cost of their
    rules."""
    epoch, at_ms = -1, -1
    for event in events:
        its = event.controller_epoch
        if its is None or event.zxid is not None or its < epoch or (its == epoch and event.ts_utc <= at_ms):
            return False
        epoch, at_ms = its, event.ts_utc
    return True


def with_epoch(event: SilverEvent, terms: Sequence[Term]) -> SilverEvent:
    """Some lines of old controllers do not say their epoch: it is that of the term which their writer held."""
    if event.controller_epoch is not None:
        return event
    epoch = epoch_held(event.broker, event.ts_adj, terms)
    return event if epoch is None else msgspec.structs.replace(event, controller_epoch=epoch)


def epoch_held(broker: int | None, at_ms: int, terms: Sequence[Term]) -> int | None:
    """Of the term that this broker held then, or last before."""
    held = [term for term in terms if term.broker == broker and term.from_ms <= at_ms]
    return held[-1].controller_epoch if held else None


def _state_key(event: SilverEvent) -> tuple[str | None, int | None]:
    return event.topic_id, event.version


class Lives(NamedTuple):
    """When each life of a partition began; the first one may have begun before the logs do."""

    topic_ids: tuple[str, ...]  # in the order of their first mention
    births_ms: tuple[int, ...]
    births: tuple[tuple[int, int], ...] = ()  # the same by controller epoch and that controller's own clock

    def of(self, event: SilverEvent) -> int:
        """Returns the number of the life that the line is about."""
        if event.topic_id is not None and event.topic_id in self.topic_ids:
            return self.topic_ids.index(event.topic_id)
        if event.role == "controller" and event.controller_epoch is not None:
            return bisect_right(self.births, (event.controller_epoch, event.ts_utc))
        return self.of_ms(event.ts_adj)

    def of_ms(self, at_ms: int) -> int:
        """Returns the number of the life at that moment, where no line has the topic's id."""
        return bisect_right(self.births_ms, at_ms)


def lives_of(events: Sequence[SilverEvent]) -> Lives:
    """By the topic id where every controller's line has it (our logs), else by when partitions came into being."""
    first: dict[str, int] = {}
    for event in events:
        if event.topic_id is not None and event.zxid is not None:
            first[event.topic_id] = min(first.get(event.topic_id, event.zxid), event.zxid)
    if first:
        return Lives(tuple(sorted(first, key=lambda topic_id: (first[topic_id], topic_id))), ())
    born = [
        event
        for event in events
        if event.event == "partition_changed" and event.from_state == GONE and event.role == "controller"
    ]
    by_epoch = sorted(
        (-1 if event.controller_epoch is None else event.controller_epoch, event.ts_utc) for event in born
    )
    return Lives((), tuple(sorted(event.ts_adj for event in born)), tuple(by_epoch))


def is_unclean(event: SilverEvent, before: SilverEvent | None) -> bool:
    """Returns whether this election took a leader that was not in sync, as far as that is certain: because it is said,
    or because the ISR of the very version before is known and does not have it."""
    if event.recovery == "RECOVERING" or event.unclean:
        return True
    if before is None or before.isr is None or before.version is None or event.version != before.version + 1:
        return False
    return event.leader is not None and event.leader >= 0 and event.leader not in before.isr
