"""The fate of partitions when brokers die: by the rule of Kafka's controller in ZooKeeper mode, or of KRaft.

ZooKeeper mode elects the first live replica in the assignment that is in sync. If none lives and unclean election is
allowed, it elects the first live replica. KRaft, its plain case: the leader stays if it is in sync. Otherwise the first
of the assignment in sync leads, then the first of the eligible leader replicas, and then, if it is allowed, an unclean
leader. The last member stays in the ISR, or, with eligible leader replicas, goes there.

Brokers die one after the other, so the last to die is kept: each order that matters is an outcome. A case beyond these
rules is refused with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import permutations
from typing import Final

import msgspec

from sparkjobs.history.cluster import NOBODY, Cluster, Name, Partition

ELR_FEATURE: Final = "eligible.leader.replicas.version"
#: of one partition: orders are tried one by one
_REPLICAS_ORDERED: Final = 6
RULES: Final = {
    "zookeeper": "ZooKeeper mode: of those in sync the first in the assignment that lives",
    "kraft": "KRaft: the leader if it lives and is in sync, else the first of the assignment in sync",
    "kraft with ELR": "KRaft: the leader if it lives and is in sync, else the first of the assignment in sync; nobody "
    "being in sync, the first eligible leader replica",
}


class Outcome(msgspec.Struct, frozen=True):
    """How a partition would stand, and an order of deaths that comes to it; empty: any order does."""

    partition: Partition
    order: tuple[int, ...] = ()
    #: all orders that come to it, of the brokers that this partition knows
    orders: tuple[tuple[int, ...], ...] = ()


class PartitionFate(msgspec.Struct, frozen=True):
    """The fate of a partition: an outcome for each order that matters, or the reason why none is told."""

    name: Name
    before: Partition
    outcomes: tuple[Outcome, ...]
    refused: str | None = None

    @property
    def is_offline(self) -> bool:
        return any(one.partition.leader == NOBODY for one in self.outcomes)

    @property
    def is_moved(self) -> bool:
        return any(one.partition.leader not in (NOBODY, self.before.leader) for one in self.outcomes)

    @property
    def is_shrunk(self) -> bool:
        """Its leader stays, whatever the order; its ISR does not."""
        return bool(self.outcomes) and not self.is_offline and not self.is_moved


def rule_of(cluster: Cluster) -> str:
    """By which the answer is found."""
    return "kraft with ELR" if has_elr(cluster) else cluster.mode


def has_elr(cluster: Cluster) -> bool:
    level = cluster.configs.get(("feature", ""), {}).get(ELR_FEATURE, "0")
    return cluster.mode == "kraft" and level not in ("0", "")


def fates(cluster: Cluster, killed: AbstractSet[int]) -> list[PartitionFate]:
    """Of each partition that these brokers' deaths concern, in the order of their names."""
    found = []
    for name in sorted(cluster.partitions):
        before = cluster.partitions[name]
        if killed & {before.leader, *before.isr}:
            found.append(_fate_of(cluster, name, before, killed))
    return found


def _fate_of(cluster: Cluster, name: Name, before: Partition, killed: AbstractSet[int]) -> PartitionFate:
    if (reason := _beyond(cluster, before, killed)) is not None:
        return PartitionFate(name, before, (), reason)
    hit = sorted({one for one in (*before.isr, before.leader) if one in killed})
    if len(hit) > _REPLICAS_ORDERED:
        return PartitionFate(name, before, (), f"{len(hit)} of its replicas die: too many orders")
    # with eligible leader replicas it also matters which brokers left an ISR that was still large enough
    is_any = not (has_elr(cluster) or killed >= set(before.isr))
    ends: dict[tuple[object, ...], list[tuple[Partition, tuple[int, ...]]]] = {}
    for order in [tuple(hit)] if is_any else permutations(hit):
        partition = before
        dead: set[int] = set()
        for broker in order:
            dead.add(broker)
            partition = without(cluster, name, partition, broker, dead)
        ends.setdefault(_result_of(partition), []).append((partition, order))
    if len(ends) == 1:
        return PartitionFate(name, before, (Outcome(partition),))
    found = (Outcome(*same[0], tuple(order for _, order in same)) for same in ends.values())
    return PartitionFate(name, before, tuple(found))


def _result_of(partition: Partition) -> tuple[object, ...]:
    return partition.leader, frozenset(partition.isr), frozenset(partition.elr)


def _beyond(cluster: Cluster, before: Partition, killed: AbstractSet[int]) -> str | None:
    if before.is_moving:
        return "it is being reassigned: deaths may end that, too"
    lost = [
        one for one in before.replicas if (broker := cluster.brokers.get(one)) is not None and broker.has_lost_disks
    ]
    if lost:
        return f"broker {lost[0]} lost a log directory: which of its replicas can lead is not told here"
    known = ((one, cluster.brokers.get(one)) for one in before.replicas)
    leaving = [one for one, broker in known if broker is not None and broker.is_leaving and broker.is_serving]
    if leaving:
        return f"broker {leaving[0]} is shutting down: its leaderships are on their way"
    return None


def without(
    cluster: Cluster, name: Name, before: Partition, broker: int, dead: AbstractSet[int] = frozenset()
) -> Partition:
    """Returns the partition after one broker's death, `dead` being all that died so far."""
    living = {one for one, known in cluster.brokers.items() if known.is_serving} - dead - {broker}
    if broker not in before.isr and broker != before.leader:
        return before
    isr = tuple(one for one in before.isr if one != broker)
    is_unclean_allowed = cluster.config_of(name[0], "unclean.leader.election.enable", "false") == "true"
    if has_elr(cluster):
        return _with_elr(cluster, name, before, isr, living, is_unclean_allowed=is_unclean_allowed)
    able = [one for one in before.replicas if one in isr and one in living]
    if before.leader in able:
        return _changed(before, before.leader, isr)
    if able:
        return _changed(before, able[0], isr)
    if is_unclean_allowed and (left := [one for one in before.replicas if one in living]):
        return _changed(before, left[0], (left[0],), is_unclean=True)
    return _changed(before, NOBODY, isr or before.isr)


def _with_elr(
    cluster: Cluster,
    name: Name,
    before: Partition,
    isr: tuple[int, ...],
    living: AbstractSet[int],
    *,
    is_unclean_allowed: bool,
) -> Partition:
    """Returns the partition in which replicas that leave an ISR below its minimum stay eligible."""
    least = min(_least_in_sync(cluster, name[0]), len(before.replicas))
    kept = () if len(isr) >= least else tuple(one for one in (*before.elr, *before.isr) if one not in isr)
    elr = tuple(sorted(set(kept)))
    able = [one for one in before.replicas if one in isr and one in living]
    if before.leader in able:
        return _changed(before, before.leader, isr, elr)
    if able:
        return _changed(before, able[0], isr, elr)
    eligible = [one for one in before.replicas if one in elr and one in living]
    if not isr and eligible:
        chosen = eligible[0]
        return _changed(before, chosen, (chosen,), tuple(one for one in elr if one != chosen))
    if not isr and is_unclean_allowed and (left := [one for one in before.replicas if one in living]):
        return _changed(before, left[0], (left[0],), is_unclean=True)
    return _changed(before, NOBODY, isr, elr)


def _least_in_sync(cluster: Cluster, topic: str) -> int:
    value = cluster.config_of(topic, "min.insync.replicas", "1")
    return int(value) if value.isdecimal() else 1


def _changed(
    before: Partition, leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = (), *, is_unclean: bool = False
) -> Partition:
    is_elected = leader != before.leader
    return msgspec.structs.replace(
        before,
        leader=leader,
        leader_epoch=before.leader_epoch + is_elected,
        isr=isr,
        elr=elr,
        epoch=before.epoch + 1,
        is_recovering=before.is_recovering or is_unclean,
    )


class SafeOrder(msgspec.Struct, frozen=True):
    """Brokers that can stop one after the other, none coming back, and then the cost of stopping each other broker."""

    order: list[int]
    blocked: Mapping[int, list[Name]]


def safe_order(cluster: Cluster, asked: Sequence[int]) -> SafeOrder:
    """Returns the order. Each broker in it leaves no partition without a leader. Brokers that cost no partition its
    last in-sync replica come first."""
    now = msgspec.structs.replace(cluster, partitions=dict(cluster.partitions), brokers=dict(cluster.brokers))
    order: list[int] = []
    left = sorted(set(asked))
    while True:
        costs = {broker: _offline_without(now, broker) for broker in left}
        free = [broker for broker in left if not costs[broker]]
        if not free:
            return SafeOrder(order, costs)
        gone = free[0]
        for name, partition in list(now.partitions.items()):
            now.partitions[name] = without(now, name, partition, gone)
        now.brokers.pop(gone, None)
        order.append(gone)
        left.remove(gone)


def _offline_without(cluster: Cluster, broker: int) -> list[Name]:
    return [
        name
        for name, partition in sorted(cluster.partitions.items())
        if cluster.is_led(partition) and without(cluster, name, partition, broker).leader == NOBODY
    ]


def last_in_sync(found: Iterable[PartitionFate]) -> list[PartitionFate]:
    """Partitions whose last in-sync or eligible replicas would all be among the dead."""
    return [one for one in found if one.is_offline]
