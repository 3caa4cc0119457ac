"""Brokers that refuse requests: the reason, a new decision that they can obey, and the refusals that stay.

A broker refuses a leader epoch lower than one that it knows: the state znode was lost, or is older than an earlier
request. Then the leadership that stands gets a leader epoch above. Any other refused state is told again, after a
while, as it stands by then. The loop reads the znodes again before any of this (`read_first`); so a refusal of a state
that stands no more changes nothing. A StopReplica is not repeated here: a deletion repeats its own, and one at the end
of a reassignment is believed, and shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause, Reason
from controller.core.changes.cluster import StateDecided
from controller.core.changes.duties import (
    RefusalsFound,
    RepeatedTo,
    topic_subject,
)
from controller.core.codes import Code
from controller.core.decide.reassignment_plan import is_free
from controller.core.decide.repair import state_decided
from controller.core.decide.work import Context, Decided, Work, work_of
from controller.core.elections import repaired
from controller.core.events import Event, RefusalsAnswered, TimePassed, ToldRefused
from controller.core.model import LEADER_EPOCH_MAX, BrokerRefusal, Leadership, Partition, PartitionKey
from controller.core.project.znodes import state_path, topic_path

LEADER_AND_ISR: Final = "LeaderAndIsr"
UPDATE_METADATA: Final = "UpdateMetadata"
STOP_REPLICA: Final = "StopReplica"
#: a request that is about no partition
METADATA: Final[PartitionKey] = ("", -1)

RETRY_MIN_MS: Final = 1_000
RETRY_MAX_MS: Final = 60_000
#: an unknown leader epoch is looked for in steps that double, so often
STEPS_MAX: Final = 16
#: a leader epoch that is too low, as Kafka's brokers say it
STALE: Final = frozenset({Code.STALE_CONTROLLER_EPOCH, Code.FENCED_LEADER_EPOCH})


def on_refusals_answered(context: Context, event: RefusalsAnswered) -> Iterator[Work]:
    """Step 0: the refusals that begin, and those that end. Step 1: leader epochs that brokers take."""
    broker = context.cluster.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        return  # of an earlier life
    known = context.cluster.duties.refusals.get(event.broker_id, {})
    found: dict[PartitionKey, BrokerRefusal] = {}
    raised: dict[PartitionKey, BrokerRefusal] = {}
    begun: set[PartitionKey] = set()
    for key, told in _refused(context.cluster, event):
        before = known.get(key[0], {}).get(key[1])
        one = _refusal_for(told, before, context.now_ms)
        if before is None or before.code != one.code:
            begun.add(key)
        is_new = before is None or before.request != one.request
        if (is_new or _is_over(before or one, context.now_ms)) and _leader_epoch_for(context.cluster, key, one):
            one = raised[key] = _tried(one, context.now_ms)
        found[key] = one
    obeyed = _named(context.cluster, event.obeyed)
    ended = tuple((topic, number) for topic, number in obeyed if number in known.get(topic, {}))
    if found or ended:
        change = RefusalsFound(event.broker_id, found, frozenset(begun), ended)
        yield work_of(0, change)
    yield from _raised(context, event.broker_id, raised)


def on_time_passed(context: Context) -> Iterator[Work]:
    """Refused states are tried again; those that a broker no longer has to obey are forgotten."""
    for broker_id in sorted(context.cluster.duties.refusals):
        over = dict(_over(context.cluster, broker_id, context.now_ms))
        ended = tuple(key for key, one in over.items() if not _is_wanted(context.cluster, broker_id, key, one.request))
        due = {key: _tried(one, context.now_ms) for key, one in over.items() if key not in set(ended)}
        if not over:
            continue
        change = RefusalsFound(broker_id, due, ended=ended)
        yield work_of(0, change)
        raised = {key: one for key, one in due.items() if _leader_epoch_for(context.cluster, key, one)}
        yield from _raised(context, broker_id, raised)
        again = tuple(key for key in due if key not in raised and key != METADATA)
        if METADATA in due:
            again = ()  # everything
        if again or METADATA in due:
            yield work_of(1, RepeatedTo(broker_id, again))


def read_first(cluster: Cluster, events: Iterable[Event], now_ms: int) -> Iterator[str]:
    """The znodes of refused states, if these events are about refusals: the new decision rests on their content."""
    for event in events:
        keys: Iterable[PartitionKey] = ()
        if isinstance(event, RefusalsAnswered):
            keys = _named(cluster, event.refused)
        elif isinstance(event, TimePassed):
            keys = (key for one in cluster.duties.refusals for key, _ in _over(cluster, one, now_ms))
        for topic, number in keys:
            if topic in cluster.topics:
                yield topic_path(topic)
                yield state_path(topic, number)


# ---------------------------------------------------------------------- the refusals


def _over(cluster: Cluster, broker_id: int, now_ms: int) -> Iterator[tuple[PartitionKey, BrokerRefusal]]:
    """Refusals of a broker that are due to be tried again."""
    for topic, numbers in cluster.duties.refusals.get(broker_id, {}).items():
        yield from (((topic, number), one) for number, one in numbers.items() if _is_over(one, now_ms))


def _named(cluster: Cluster, replicas: Iterable[tuple[str, int]]) -> Iterator[PartitionKey]:
    """By topic name, those of topics that are there."""
    for topic_id, number in replicas:
        if (topic_id, number) == METADATA:
            yield METADATA
        elif (name := cluster.names_by_id.get(topic_id)) is not None and number in cluster.topics[name].partitions:
            yield name, number


def _refused(cluster: Cluster, event: RefusalsAnswered) -> Iterator[tuple[PartitionKey, ToldRefused]]:
    """Refusals of states that stand. Another state was told anew, and will have its own answer."""
    for replica, told in event.refused.items():
        for key in _named(cluster, [replica]):
            if _is_wanted(cluster, event.broker_id, key, told.request) and not _is_overtaken(cluster, key, told):
                yield key, told


def _refusal_for(told: ToldRefused, before: BrokerRefusal | None, now_ms: int) -> BrokerRefusal:
    tries, tried_ms = (0, now_ms) if before is None else (before.tries, before.tried_ms)
    return BrokerRefusal(told.request, told.code, told.told_epoch, told.known_epoch, tries, tried_ms)


def _is_wanted(cluster: Cluster, broker_id: int, key: PartitionKey, request: str) -> bool:
    """Returns whether the broker should still do as it was told."""
    if key == METADATA:
        return True
    partition = cluster.partition(*key)
    if partition is None or cluster.duties.is_leaving(key[0]):
        return False  # gone, or told of by its deletion
    return request == STOP_REPLICA or broker_id in partition.replicas


def _is_overtaken(cluster: Cluster, key: PartitionKey, told: ToldRefused) -> bool:
    partition = cluster.partition(*key)
    if told.request != LEADER_AND_ISR or partition is None or partition.state is None:
        return False
    leader_epoch = partition.state.leader_epoch
    return told.told_epoch != leader_epoch and told.known_epoch <= leader_epoch


def _is_over(one: BrokerRefusal, now_ms: int) -> bool:
    """Returns whether its pause is over."""
    pause_ms = min(RETRY_MIN_MS << min(one.tries, 6), RETRY_MAX_MS)
    return one.request != STOP_REPLICA and now_ms - one.tried_ms >= pause_ms


def _tried(one: BrokerRefusal, now_ms: int) -> BrokerRefusal:
    return msgspec.structs.replace(one, tries=one.tries + 1, tried_ms=now_ms)


# ---------------------------------------------------------------------- the new decisions


def _leader_epoch_for(cluster: Cluster, key: PartitionKey, one: BrokerRefusal) -> int | None:
    """Returns the leader epoch with which a broker takes the leadership that stands; None if another one does not
    help."""
    partition = cluster.partition(*key)
    if one.request != LEADER_AND_ISR or one.code not in STALE or partition is None or partition.state is None:
        return None
    before = partition.state.leader_epoch
    if one.known_epoch >= 0:
        is_above = one.known_epoch > before or one.known_epoch == before == one.told_epoch  # equal: of another leader
        after = one.known_epoch + 1 if is_above else before
    else:
        is_what_stands = one.told_epoch == before and one.tries <= STEPS_MAX
        after = before + (1 << max(one.tries - 1, 0)) if is_what_stands else before
    if not before < after <= LEADER_EPOCH_MAX or not is_free(cluster, key):
        return None
    return after if set(partition.state.isr) <= set(partition.replicas) else None


def _raised(context: Context, broker_id: int, refused: Mapping[PartitionKey, BrokerRefusal]) -> Iterator[Work]:
    by_topic: dict[str, dict[int, BrokerRefusal]] = {}
    for (topic, number), one in refused.items():
        by_topic.setdefault(topic, {})[number] = one
    for topic, numbers in sorted(by_topic.items()):
        yield Work(topic_subject(topic), partial(_raise, context, broker_id, topic, numbers))


def _raise(context: Context, broker_id: int, topic: str, refused: Mapping[int, BrokerRefusal]) -> Iterator[Decided]:
    cluster = context.cluster
    for number, one in sorted(refused.items()):
        leader_epoch = _leader_epoch_for(cluster, (topic, number), one)
        if leader_epoch is not None:
            why = Reason(Cause.EPOCH_REFUSED, f"broker {broker_id} refused leader epoch {one.told_epoch}")
            known = cluster.topics[topic].partitions[number]
            yield 1, _with_leader_epoch(context, topic, number, known, leader_epoch, why)


def _with_leader_epoch(
    context: Context, topic: str, number: int, known: Partition, leader_epoch: int, why: Reason
) -> StateDecided:
    cluster, state = context.cluster, known.state
    assert state is not None, "only what was led is refused"
    online = cluster.serving_ids(topic, number, cluster.live_ids)
    after = repaired(known.replicas, state, online, context.epoch, draining=cluster.avoided_ids) or state
    anew = Leadership(after.leader, leader_epoch, after.isr, context.epoch, after.recovery)
    return state_decided(context, topic, number, state, anew, why)
