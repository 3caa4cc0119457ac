"""Figures computed from the told partitions: their states, the counts, and whether the cluster is healthy. Pure.

`state` of a partition is the worst that is true of it: new or offline, then under-replicated, then not-preferred, then
online. A filter asks for any state that is true of it, so a partition can match several. A new one (a NewPartition) was
never led: no replica could lead it since it was created, and it is not offline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from controller.core.model import NO_LEADER, NO_VERSION, RECOVERED, Partition
from controller.wire.bodies import BrokerEntry, PartitionRow

GONE = "gone"
#: of a partition that was never led
NO_EPOCH: Final = -1


class PartitionState(StrEnum):
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    UNDER_REPLICATED = "under-replicated"
    NOT_PREFERRED = "not-preferred"


def row_never_led(number: int, partition: Partition) -> PartitionRow:
    """Returns a NewPartition as a row, of which brokers are never told."""
    assigned = (partition.replicas, partition.adding, partition.removing)
    return PartitionRow(
        number, NO_EPOCH, NO_LEADER, NO_EPOCH, (), NO_VERSION, *assigned, offline=(), is_new=True, recovery=RECOVERED
    )


def is_never_led(row: PartitionRow) -> bool:
    return row.leader_epoch == NO_EPOCH


def is_online(row: PartitionRow, live_ids: Collection[int]) -> bool:
    """It has a leader, and that one is there."""
    return row.leader in live_ids


def is_under_replicated(row: PartitionRow) -> bool:
    """Fewer in sync than the assignment wants; replicas being added do not count yet (Kafka's rule)."""
    return len(row.isr) < len(row.replicas) - len(row.adding)


def is_preferred(row: PartitionRow) -> bool:
    """Led by its first replica; one still being added is not missed until it is in sync (Kafka's rule)."""
    first = row.replicas[0] if row.replicas else row.leader
    return row.leader == first or (first in row.adding and first not in row.isr)


def has_state(row: PartitionRow, state: PartitionState, live_ids: Collection[int]) -> bool:
    """Returns whether `state` is true of the partition. Under-replicated and not-preferred are said of online ones
    only."""
    if is_never_led(row):
        return state is PartitionState.NEW
    if not is_online(row, live_ids):
        return state is PartitionState.OFFLINE
    match state:
        case PartitionState.ONLINE:
            return True
        case PartitionState.UNDER_REPLICATED:
            return is_under_replicated(row)
        case PartitionState.NOT_PREFERRED:
            return not is_preferred(row)
        case PartitionState.OFFLINE | PartitionState.NEW:
            return False


def state_of(row: PartitionRow, live_ids: Collection[int]) -> PartitionState:
    """Returns the worst that is true of the partition."""
    return next((state for state in WORST_FIRST if has_state(row, state, live_ids)), PartitionState.ONLINE)


WORST_FIRST: Final = (
    PartitionState.NEW,
    PartitionState.OFFLINE,
    PartitionState.UNDER_REPLICATED,
    PartitionState.NOT_PREFERRED,
)


def live_ids_of(brokers: Iterable[BrokerEntry]) -> frozenset[int]:
    """Live or draining: all brokers that are not gone."""
    return frozenset(broker.id for broker in brokers if broker.state != GONE)


class Counts(msgspec.Struct):
    """Partitions by what is true of them: online + offline + new is all of them."""

    partitions: int = 0
    online: int = 0
    offline: int = 0
    under_replicated: int = 0
    not_preferred: int = 0
    #: never led
    new: int = 0


class Summary(msgspec.Struct):
    """The whole cluster in numbers."""

    topics: int = 0
    counts: Counts = msgspec.field(default_factory=Counts)
    leaders: Counter[int] = msgspec.field(default_factory=Counter)
    replicas: Counter[int] = msgspec.field(default_factory=Counter)
    #: under-replicated partitions by their leader
    lagging: Counter[int] = msgspec.field(default_factory=Counter)
    #: partitions that were ever led, and that their first replica should lead and does not (Kafka's imbalance)
    imbalanced: int = 0
    #: of partitions that are led, by topic: how many have an ISR of this size
    isr_sizes: dict[str, Counter[int]] = msgspec.field(default_factory=dict)

    def take(self, topic: str, rows: Sequence[PartitionRow], live_ids: Collection[int]) -> None:
        """Count these partitions of a topic too; there may be more of them."""
        if topic not in self.isr_sizes:
            self.topics += 1
            self.isr_sizes[topic] = Counter()
        add_to(self.counts, rows, live_ids)
        self.isr_sizes[topic].update(len(row.isr) for row in rows if row.leader in live_ids)
        for row in rows:
            self.replicas.update(row.replicas)
            if row.leader in live_ids:
                self.leaders[row.leader] += 1
                if is_under_replicated(row):
                    self.lagging[row.leader] += 1
            self.imbalanced += not is_never_led(row) and not is_preferred(row)


def add_to(counts: Counts, rows: Iterable[PartitionRow], live_ids: Collection[int]) -> Counts:
    """Count these partitions too."""
    for row in rows:
        counts.partitions += 1
        if is_never_led(row):
            counts.new += 1
            continue
        if not is_online(row, live_ids):
            counts.offline += 1
            continue
        counts.online += 1
        counts.under_replicated += is_under_replicated(row)
        counts.not_preferred += not is_preferred(row)
    return counts


CUT_OFF: Final = "this broker is cut off from ZooKeeper: what it says may be old"
GREEN, YELLOW, RED, UNKNOWN = "green", "yellow", "red", "unknown"


class Verdict(msgspec.Struct, frozen=True):
    """green, yellow, red or, without a controller, unknown; and why."""

    status: str
    reasons: Sequence[str]


def verdict_for(
    phase: str,
    brokers: Sequence[BrokerEntry],
    counts: Counts,
    *,
    is_cut_off: bool = False,
    warnings: Sequence[str] = (),
) -> Verdict:
    """By the figures of this process. Red: partitions cannot be used. Yellow: it works, but one more fault may hurt, or
    something is left undone (`warnings`). Whether anybody decides is not asked here (`api/routing/health.py`)."""
    red, yellow = [], []
    if is_cut_off:
        yellow.append(CUT_OFF)
    if not brokers:
        red.append("this broker was not told of the cluster yet")
    if phase == "loading":
        yellow.append("a new controller is taking over")
    if counts.offline:
        red.append(f"{_share(counts.offline, counts.partitions)} offline")
    if counts.new:
        yellow.append(f"{_share(counts.new, counts.partitions)} new: never led")
    if counts.under_replicated:
        yellow.append(f"{_share(counts.under_replicated, counts.partitions)} under-replicated")
    gone = [str(broker.id) for broker in brokers if broker.state == GONE]
    if gone:
        yellow.append(f"broker {gone[0]} is gone" if len(gone) == 1 else f"brokers {', '.join(gone)} are gone")
    yellow += warnings
    return Verdict(RED if red else YELLOW if yellow else GREEN, red + yellow)


def _share(number: int, whole: int) -> str:
    return f"{number:,} of {whole:,} partition{'' if whole == 1 else 's'} {'is' if number == 1 else 'are'}"
