"""How a term starts: everything loaded is looked at once, and everybody is told everything.

Brokers are read last, so the first decision knows the brokers that died during the load. A partition whose leader is
dead gets its new leader in one write. Brokers go live in the last step, so that they are told the new decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause, Reason
from controller.core.changes.cluster import (
    BrokerLive,
    BrokerMissing,
    StateFound,
    Unreadable,
)
from controller.core.changes.duties import (
    DrainEnded,
    FailedDirsNoted,
    StateMembers,
    TermFound,
    broker_subject,
    topic_subject,
)
from controller.core.decide import deletion, topic_ids
from controller.core.decide.repair import LiveBrokers, repair_topic
from controller.core.decide.topics import made_whole
from controller.core.decide.work import Context, Decided, Work, work_of
from controller.core.elections import status_of
from controller.core.events import StateFact, TermStarted
from controller.core.model import Broker

#: how far back the last decision of the previous controller may reach
FOUND_WITHIN_MS = 10_000
_STARTED: Final = Reason(Cause.TERM_STARTED, "term started")


def epochs_in(facts: Iterable[StateFact]) -> set[int]:
    """Returns the epochs of the controllers that wrote these states: few, however many states there are."""
    return {fact.state.controller_epoch for fact in facts if fact.state is not None}


def found_states(
    facts: Collection[StateFact], controller_epoch: int, loaded_epochs: Iterable[int] = ()
) -> list[StateFact]:
    """The last decision before this term: it may have been committed and not recorded. A term that was gone before it
    had loaded is passed over; a term among `loaded_epochs` has found all states before it."""
    before_us = [epoch for epoch in epochs_in(facts) if epoch < controller_epoch]
    last_epoch = max(before_us, default=controller_epoch)
    if not before_us or any(last_epoch < epoch < controller_epoch for epoch in loaded_epochs):
        return []
    before = [fact for fact in facts if fact.state is not None and fact.state.controller_epoch == last_epoch]
    newest_ms = max((fact.mtime_ms for fact in before), default=0)
    return [fact for fact in before if fact.mtime_ms > newest_ms - FOUND_WITHIN_MS]


def on_term_started(context: Context, event: TermStarted) -> Iterator[Work]:
    """Step 0: the state of everything, malformed znodes, replicas on us, and found states, recorded before they are
    written over. Step 1: leaderships, and brokers go live; brokers are asked for topic ids before they are told
    anything."""
    live_brokers = LiveBrokers(frozenset(event.brokers))
    yield work_of(0, _found(context.cluster))
    for (name, number), (trouble, zxid) in sorted(context.cluster.unreadable.items(), key=str):
        change = Unreadable(name, number, trouble, zxid)
        yield work_of(0, change)
    found: dict[str, list[StateFact]] = {}
    for fact in event.found:
        found.setdefault(fact.topic, []).append(fact)
    for name in sorted(context.cluster.topics):
        is_leaving = deletion.begins(context.cluster, event.markers, name)
        run = partial(_start_topic, context, name, found.get(name, ()), live_brokers, is_leaving=is_leaving)
        yield Work(topic_subject(name), run)
    yield from deletion.on_term_started(context, event)
    for broker_id in sorted(event.stale_ids):
        yield Work(broker_subject(broker_id), partial(_forget_life, broker_id))
    for broker_id in sorted(context.cluster.hosted.keys() - event.brokers.keys()):
        missing = BrokerMissing(broker_id, Cause.TERM_STARTED)
        yield work_of(0, missing)
    for broker in sorted(event.brokers.values(), key=lambda broker: broker.broker_id):
        yield Work(broker_subject(broker.broker_id), partial(_start_broker, broker))


def _found(cluster: Cluster) -> TermFound:
    replicas = sum(one.bits.bit_count() for hosted in cluster.hosted.values() for one in hosted.values())
    partitions = sum(len(topic.partitions) for topic in cluster.topics.values())
    return TermFound(partitions, replicas, tuple(StateMembers(*one) for one in cluster.states.held()))


def _start_topic(
    context: Context, name: str, found: Sequence[StateFact], live_brokers: LiveBrokers, *, is_leaving: bool
) -> Iterator[Decided]:
    topic = context.cluster.topics[name]
    for fact in found:
        if fact.state is None or fact.partition not in topic.partitions:
            continue
        target = status_of(fact.state, live_brokers.online)
        yield 0, StateFound(name, fact.partition, fact.state, fact.version, fact.zxid, "found", Cause.FOUND, target)
    if not is_leaving or topic.topic_id is None:
        yield from made_whole(context, topic, live_brokers.online)
    if not is_leaving:
        numbers = topic_ids.told(topic, topic.partitions)
        yield from repair_topic(context, name, numbers, live_brokers, _STARTED, step=1)


def _forget_life(broker_id: int) -> Iterator[Decided]:
    """Notes about an earlier registration of a broker are void."""
    yield 0, DrainEnded(broker_id, "registration over")
    yield 0, FailedDirsNoted(broker_id, -1, has_failed=False)


def _start_broker(broker: Broker) -> Iterator[Decided]:
    yield 1, BrokerLive(broker, _STARTED.words, _STARTED.cause)
