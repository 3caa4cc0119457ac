"""Elections: which broker was elected to lead a partition, when and why, which brokers obeyed, and which flapped.

An acknowledgement is a line in a broker's own log that it leads or follows at that leader epoch; in our own logs, that
it obeyed that cause. `receipts` finds the acknowledgements of brokers before 2.6. Elections and acknowledgements are
joined by the partition's life and the leader epoch, or by the cause, never by time.

Flapping is brokers that came and went, and partitions whose leader or ISR did not stay. A stretch is a run of changes,
none more than `QUIET_MS` after the one before; it counts if at some time more than `LIMIT` of them fall into
`WINDOW_MS`. The two bounds keep a single fault from counting as flapping, and a pause from splitting a stretch.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.rules.facts import Facts
from sparkjobs.rules.partitions import NO_LEADER, by_controllers, is_unclean, lives_of
from sparkjobs.rules.state_machines import OFFLINE, ONLINE
from sparkjobs.tables.gold import Churn, Flapping, IsrState, LeaderChange
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
    """Returns each of the partition's brokers that had carried out the cause of this election, and when."""
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
    """Returns the churn of all partitions. The creation of a partition is no change."""
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


WINDOW_MS: Final = 600_000
QUIET_MS: Final = 1_800_000
LIMIT: Final = {"broker": 3, "leader": 6, "isr": 8}


def stretches_of(moments: Iterable[int], what: str) -> Iterator[tuple[int, int, int, int]]:
    """First, last, how many, most in a window: of each stretch that is worth telling."""
    run: list[int] = []
    for at_ms in [*sorted(moments), None]:
        if at_ms is not None and (not run or at_ms - run[-1] <= QUIET_MS):
            run.append(at_ms)
            continue
        most = _most_in_window(run)
        if most > LIMIT[what]:
            yield run[0], run[-1], len(run), most
        run = [] if at_ms is None else [at_ms]


def _most_in_window(run: Sequence[int]) -> int:
    most = first = 0
    for last, at_ms in enumerate(run):
        while at_ms - run[first] > WINDOW_MS:
            first += 1
        most = max(most, last - first + 1)
    return most


def flapping_brokers(facts: Facts) -> Iterator[Flapping]:
    """Each loss is one change; each return is another."""
    moments: dict[int, list[int]] = defaultdict(list)
    for loss in facts.losses:
        moments[loss.broker].append(loss.detected_ms)
        back = next((ms for ms in facts.returns.get(loss.broker, ()) if ms >= loss.detected_ms), None)
        if back is not None:
            moments[loss.broker].append(back)
    for broker, of_broker in sorted(moments.items()):
        for from_ms, to_ms, count, most in stretches_of(set(of_broker), "broker"):
            yield Flapping(
                cluster=facts.cluster,
                what="broker",
                broker=broker,
                from_ms=from_ms,
                to_ms=to_ms,
                transitions=count,
                most_in_window=most,
            )


def flapping_of(changes: Sequence[LeaderChange], states: Sequence[IsrState]) -> Iterator[Flapping]:
    """Of one partition."""
    leaders = [one.at_ms for one in changes if one.leader_before is not None and one.leader != one.leader_before]
    ordered = sorted(states, key=lambda state: state.from_ms)
    isrs = [b.from_ms for a, b in itertools.pairwise(ordered) if set(a.isr) != set(b.isr)]
    for what, moments in (("leader", leaders), ("isr", isrs)):
        for from_ms, to_ms, count, most in stretches_of(moments, what):
            of: LeaderChange | IsrState = changes[0] if what == "leader" else states[0]
            yield Flapping(
                cluster=of.cluster,
                what=what,
                topic=of.topic,
                partition=of.partition,
                from_ms=from_ms,
                to_ms=to_ms,
                transitions=count,
                most_in_window=most,
            )
