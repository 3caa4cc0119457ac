"""How a term starts: everything loaded is looked at once, and everybody is told everything.

Brokers are read last, so the first decision knows who died during the load. A partition whose leader is dead gets its
new leader in one write. Brokers go live in the last step, so that what they are told is what was just decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from controller.core import deletion
from controller.core.admin import DirsFound, DrainEnded, broker_subject, topic_subject
from controller.core.changes import FOUND, BrokerLive, StateFound, Unreadable
from controller.core.elections import status_of
from controller.core.events import StateFact, TermStarted
from controller.core.model import Broker
from controller.core.repair import Presence, repair_topic
from controller.core.topics import made_whole
from controller.core.work import Context, Decided, Work

#: how far back the last decision of the previous controller may reach (interface, section 4)
FOUND_WITHIN_MS = 10_000


def found_states(
    facts: Iterable[StateFact], controller_epoch: int, recorded_epochs: Iterable[int] = ()
) -> list[StateFact]:
    """The last decision before this term: it may have been committed and not recorded. A term that was gone before it
    had loaded is passed over; one of `recorded_epochs` had loaded, and has found what was before it."""
    stamped = [(fact.state.controller_epoch, fact) for fact in facts if fact.state is not None]
    last_epoch = max((epoch for epoch, _ in stamped if epoch < controller_epoch), default=controller_epoch)
    if any(last_epoch < epoch < controller_epoch for epoch in recorded_epochs):
        return []
    before = [fact for epoch, fact in stamped if epoch == last_epoch < controller_epoch]
    newest_ms = max((fact.mtime_ms for fact in before), default=0)
    return [fact for fact in before if fact.mtime_ms > newest_ms - FOUND_WITHIN_MS]


def on_term_started(context: Context, event: TermStarted) -> Iterator[Work]:
    """Step 0: what makes no sense, missing topic ids, replicas on us, and what was found, recorded before it is written
    over. Step 1: leaderships, and brokers go live."""
    online = frozenset(event.brokers)
    for (name, number), (trouble, zxid) in sorted(context.cluster.unreadable.items(), key=str):
        change = Unreadable(name, number, trouble, zxid)
        yield Work(change.subject, partial(_say, change))
    found: dict[str, list[StateFact]] = {}
    for fact in event.found:
        found.setdefault(fact.topic, []).append(fact)
    for name in sorted(context.cluster.topics):
        is_leaving = deletion.begins(context.cluster, event.markers, name)
        run = partial(_start_topic, context, name, found.get(name, ()), online, is_leaving=is_leaving)
        yield Work(topic_subject(name), run)
    yield from deletion.on_term_started(context, event)
    for broker_id in sorted(event.stale_ids):
        yield Work(broker_subject(broker_id), partial(_forget_life, broker_id))
    for broker in sorted(event.brokers.values(), key=lambda broker: broker.broker_id):
        yield Work(broker_subject(broker.broker_id), partial(_start_broker, broker))


def _start_topic(
    context: Context, name: str, found: Sequence[StateFact], online: frozenset[int], *, is_leaving: bool
) -> Iterator[Decided]:
    topic = context.cluster.topics[name]
    for fact in found:
        if fact.state is None or fact.partition not in topic.partitions:
            continue
        target = status_of(fact.state, online)
        yield 0, StateFound(name, fact.partition, fact.state, fact.version, fact.zxid, FOUND, target)
    if not is_leaving or topic.topic_id is None:
        yield from made_whole(context, topic, online)
    if not is_leaving:
        yield from repair_topic(context, name, topic.partitions, Presence(online), "term started", step=1)


def _say(change: Unreadable) -> Iterator[Decided]:
    yield 0, change


def _forget_life(broker_id: int) -> Iterator[Decided]:
    """What was written down about an earlier registration of a broker is void."""
    yield 0, DrainEnded(broker_id, "registration over")
    yield 0, DirsFound(broker_id, -1, frozenset())


def _start_broker(broker: Broker) -> Iterator[Decided]:
    yield 1, BrokerLive(broker, "term started")
