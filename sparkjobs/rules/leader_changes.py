"""Who was elected to lead a partition, when and why, and which brokers did what they were told; churn by the hour.

An acknowledgement is a line in a broker's own log that it leads or follows at that leader epoch, or, of our own logs,
that it did what that cause asked of it; what brokers of before 2.6 did, `receipts` finds out. Elections and
acknowledgements meet by the partition's life and the leader epoch, or by the cause, never by time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sparkjobs.parse.moments import HOUR_MS
from sparkjobs.rules.facts import Facts
from sparkjobs.rules.partitions import (
    NO_LEADER,
    by_controllers,
    is_unclean,
    lives_of,
)
from sparkjobs.rules.state_machines import OFFLINE, ONLINE
from sparkjobs.tables.gold import Churn, LeaderChange
from sparkjobs.tables.silver import SilverEvent

EVENTS: Final = frozenset(
    {"partition_changed", "partition_change_failed", "isr_changed", "leader_started", "follower_started"}
)


def leader_changes_of(events: Sequence[SilverEvent], facts: Facts) -> Iterator[LeaderChange]:
    """Of one partition; `events` in any order."""
    lives = lives_of(events)
    acks = _acks(events)
    leader: int | None = None
    before: SilverEvent | None = None
    epoch: tuple[int, int] | None = None
    for event in by_controllers(events, facts.terms):
        life = lives.of(event)
        if event.event == "partition_changed" and event.to_state == ONLINE and event.leader not in (None, NO_LEADER):
            key = (life, -1 if event.leader_epoch is None else event.leader_epoch)
            is_new = event.leader_epoch is None or epoch is None or key > epoch
            is_election = event.cause != "found" and (event.leader != leader or event.from_state != ONLINE)
            if is_new and is_election:
                acked = [(ms, broker) for broker, ms in acks.get(event.leader_epoch, {}).items()]
                acked = [one for one in acked if lives.topic_ids or lives.of_ms(one[0]) == life]
                acked += _answers(event, facts)
                yield _change(event, leader, is_unclean(event, before), sorted(acked))
            leader, epoch = event.leader, key
        elif event.leader is not None and event.leader != NO_LEADER:
            leader = event.leader
        before = event if event.isr is not None else before


def _acks(events: Sequence[SilverEvent]) -> dict[int | None, dict[int, int]]:
    """Leader epoch: broker: when it first said so. Over all lives; times tell these apart."""
    acks: dict[int | None, dict[int, int]] = defaultdict(dict)
    for event in events:
        if event.event in ("leader_started", "follower_started") and event.broker is not None:
            of_epoch = acks[event.leader_epoch]
            of_epoch[event.broker] = min(event.ts_adj, of_epoch.get(event.broker, event.ts_adj))
    return acks


def _answers(event: SilverEvent, facts: Facts) -> Iterator[tuple[int, int]]:
    """When each of the partition's brokers had done what the cause of this election asked of it."""
    answered = {} if event.cause_id is None else facts.answered.get(event.cause_id, {})
    for broker, at_ms in answered.items():
        if broker == event.leader or broker in (event.isr or ()):
            yield at_ms, broker


def _change(
    event: SilverEvent, leader_before: int | None, unclean: bool, acked: Sequence[tuple[int, int]]
) -> LeaderChange:
    assert event.leader is not None
    return LeaderChange(
        cluster=event.cluster,
        topic=str(event.topic),
        partition=-1 if event.partition is None else event.partition,
        at_ms=event.ts_adj,
        controller_epoch=event.controller_epoch,
        controller=event.broker,
        leader_before=leader_before,
        leader=event.leader,
        leader_epoch=event.leader_epoch,
        version=event.version,
        isr=event.isr,
        why=event.cause or _WHY.get(event.from_state or "", "election"),
        unclean=unclean,
        acked=tuple(broker for _, broker in acked),
        acked_ms=tuple(ms for ms, _ in acked),
        file_id=event.file_id,
        line_no=event.line_no,
    )


_WHY: Final = {"NewPartition": "created", OFFLINE: "offline_election", ONLINE: "election"}


def churn_of(changes: Iterable[LeaderChange]) -> Iterator[Churn]:
    """Of all partitions; what was created did not change."""
    counts: dict[tuple[str, str, int], Counter[int]] = defaultdict(Counter)
    for one in changes:
        if one.leader_before is not None and one.leader_before != one.leader:
            counts[one.cluster, one.topic, one.at_ms // HOUR_MS * HOUR_MS][one.partition] += 1
    for (cluster, topic, hour_ms), by_partition in counts.items():
        most = max(by_partition.values())
        yield Churn(
            cluster=cluster,
            topic=topic,
            hour_ms=hour_ms,
            partitions=len(by_partition),
            changes=by_partition.total(),
            most_partition=min(partition for partition, count in by_partition.items() if count == most),
            most_changes=most,
        )
