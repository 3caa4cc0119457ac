"""Deleting a topic: from its marker to its last znode, over the deaths of brokers and controllers.

The marker (`/admin/delete_topics/T`) is the intent and all that has to survive: a successor that finds it replays the
whole deletion, and it is removed last. A deletion begins once nothing holds it (a reassignment of the topic does): then
the topic is led no more, all brokers forget it, and each replica goes its way through the deletion states. Every event
that concerns the topic ends in `_go_on`, which looks at all its replicas; so nothing waits for an event that has
passed. Only an answer while others are still asked concerns none but the replicas that it names: very many answers may
come, and none of them costs as much as the topic is large. Unlike Kafka, it tries a refusal again after a while, and a
deletion can go on without dead brokers.

Nothing here may lead a partition, nor undo a deletion that began: brokers may have deleted already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import Deletion
from controller.core.changes.cluster import Refused
from controller.core.changes.duties import (
    DeletionMarked,
    DeletionQueued,
    DeletionWaits,
    MarkerDropped,
    PartitionErased,
    ReplicasMoved,
    TopicErased,
    topic_subject,
)
from controller.core.codes import Code
from controller.core.decide import dropped_replicas
from controller.core.decide.repair import LiveBrokers
from controller.core.decide.work import Context, Decided, Work
from controller.core.events import DeleteTopicAsked, DeletionsSeen, StopReplicaAnswered, TermStarted, TimePassed
from controller.core.model import Partition, Topic
from controller.core.states import ReplicaStatus

RETRY_MIN_MS = 1_000
RETRY_MAX_MS = 60_000
#: a reason names at most so many partitions of one broker
PARTITIONS_NAMED = 3

OFFLINE = ReplicaStatus.OFFLINE
STARTED = ReplicaStatus.DELETION_STARTED
SUCCESSFUL = ReplicaStatus.DELETION_SUCCESSFUL
INELIGIBLE = ReplicaStatus.DELETION_INELIGIBLE
#: from ineligible, when its broker is back: its replicas come online, and then the deletion goes on from offline
BACK = (OFFLINE, ReplicaStatus.ONLINE, OFFLINE, STARTED)

#: a replica of the topic concerned: partition and broker id
Replica = tuple[int, int]
Way = tuple[ReplicaStatus, ...]


class DeletionFacts(msgspec.Struct, frozen=True):
    """The facts of one event that move a deletion on: which brokers are online, and what they answered."""

    online: frozenset[int]
    #: of those, brokers that came or bounced in this very event: earlier requests to them are lost
    back_ids: frozenset[int] = frozenset()
    #: whether refused deletions are to be tried again
    is_due: bool = False
    answers: Mapping[Replica, ReplicaStatus] = {}


# ---------------------------------------------------------------------- events


def on_delete_topic_asked(context: Context, event: DeleteTopicAsked) -> Iterator[Work]:
    """A request to delete a topic. Its answer rests on the marker alone; asking again is no mistake."""
    yield Work(topic_subject(event.name), partial(_ask, context, event))


def on_deletions_seen(context: Context, event: DeletionsSeen) -> Iterator[Work]:
    """The list of markers was read."""
    believed = context.cluster.duties.deletions
    online = context.cluster.live_ids
    for name in sorted(event.markers.keys() | believed.keys()):
        if name in event.markers:
            run = partial(_see_marker, context, name, event.markers[name], event.zxid, online, (0, 1))
        else:
            run = partial(_miss_marker, context, name)
        yield Work(topic_subject(name), run)


def on_term_started(context: Context, event: TermStarted) -> Iterator[Work]:
    """Every deletion is replayed: believed before anybody is told anything, begun when the brokers are live."""
    online = frozenset(event.brokers)
    for name, abandon in sorted(event.markers.items()):
        run = partial(_see_marker, context, name, abandon, event.zxid, online, (0, 2))
        yield Work(topic_subject(name), run)


def on_stop_replica_answered(context: Context, event: StopReplicaAnswered) -> Iterator[Work]:
    """A broker has deleted replicas, or refused to. Only replicas that this incarnation was asked for count."""
    cluster = context.cluster
    broker = cluster.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        return
    answers: dict[str, dict[Replica, ReplicaStatus]] = {}
    for topic_id, number in event.replicas:
        name = cluster.names_by_id.get(topic_id, "")
        deletion = cluster.duties.deletions.get(name)
        replica = (number, event.broker_id)
        if deletion is not None and deletion.replicas.get(replica) is STARTED:
            target = INELIGIBLE if (topic_id, number) in event.refused else SUCCESSFUL
            answers.setdefault(name, {})[replica] = target
    yield from dropped_replicas.on_stop_replica_answered(context, event)
    for name, answered in sorted(answers.items()):
        yield Work(topic_subject(name), partial(_take_answer, context, name, answered))


def on_time_passed(context: Context, event: TimePassed) -> Iterator[Work]:
    """Held deletions may begin, refused ones are tried again, one that met a conflict is erased after all."""
    del event
    cluster = context.cluster
    for name, deletion in sorted(cluster.duties.deletions.items()):
        is_due = deletion.retry_at_ms is not None and deletion.retry_at_ms <= context.now_ms
        is_stuck = deletion.waits_for is None and not deletion.started
        if not deletion.is_queued:
            if holding(cluster, name) is None:
                run = partial(_begin, context, name, deletion.abandon_offline, cluster.live_ids, (0, 1))
                yield Work(topic_subject(name), run)
        elif is_due or is_stuck:
            facts = DeletionFacts(cluster.live_ids, is_due=is_due)
            yield Work(topic_subject(name), partial(_go_on, context, name, deletion, facts, 0))


def on_live_brokers(context: Context, topic: str, live_brokers: LiveBrokers) -> Iterator[Decided]:
    """Brokers with replicas of a topic being deleted went, came or bounced. They are told after they are live."""
    back_ids = (live_brokers.online - context.cluster.live_ids) | live_brokers.returning
    yield from _go_on(
        context, topic, context.cluster.duties.deletions[topic], DeletionFacts(live_brokers.online, back_ids), 1
    )


def on_topic_gone(context: Context, topic: str) -> Iterator[Decided]:
    """A tool removed the topic's znode: its marker must not meet a later topic of that name."""
    if topic in context.cluster.duties.deletions:
        yield 1, MarkerDropped(topic, "its topic is gone")


def begins(cluster: Cluster, markers: Mapping[str, bool], topic: str) -> bool:
    """Returns whether the deletion of a topic begins with the term: then it is not led first."""
    return topic in markers and cluster.delete_enabled and holding(cluster, topic) is None


def holding(cluster: Cluster, name: str) -> str | None:
    """Why a deletion cannot begin; None when it can."""
    topic = cluster.topics.get(name)
    if topic is None:
        return "its znode is malformed"
    if topic.topic_id is None:
        return "its topic id is not written yet"
    if any(_is_moving(cluster, name, number, one) for number, one in topic.partitions.items()):
        return "reassignment in progress"
    return None


def _is_moving(cluster: Cluster, name: str, number: int, partition: Partition) -> bool:
    """Returns whether a reassignment has to end first. One of a partition without a state never would: it has no
    leader, and to lead it anew only to delete it would begin its leader epochs anew."""
    if (name, number) not in cluster.reassigning:
        return False
    return partition.state is not None or (name, number) in cluster.unreadable


# ---------------------------------------------------------------------- deciding about one topic


def _ask(context: Context, event: DeleteTopicAsked) -> Iterator[Decided]:
    cluster, name = context.cluster, event.name
    deletion = cluster.duties.deletions.get(name)
    if not cluster.delete_enabled:
        yield 0, Refused(topic_subject(name), Code.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    elif name not in cluster.topics:
        trouble = "its znode is malformed" if (name, None) in cluster.unreadable else "there is none"
        yield 0, Refused(topic_subject(name), Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}: {trouble}")
    elif deletion is None:
        yield 0, DeletionMarked(name, event.abandon_offline)
        yield from _begin(context, name, event.abandon_offline, cluster.live_ids, (1, 2))
    elif event.abandon_offline and not deletion.abandon_offline:
        yield 0, DeletionMarked(name, abandon_offline=True)
        yield from _change(context, name, deletion, abandon=True)
    else:
        yield 0, Refused(topic_subject(name), Code.NONE, f"topic {name} is being deleted")


def _see_marker(
    context: Context, name: str, abandon: bool, zxid: int, online: frozenset[int], steps: tuple[int, int]
) -> Iterator[Decided]:
    cluster = context.cluster
    topic, deletion = cluster.topics.get(name), cluster.duties.deletions.get(name)
    if not cluster.delete_enabled:
        yield 0, MarkerDropped(name, "delete.topic.enable is false")
    elif topic is None and (name, None) not in cluster.unreadable:
        yield 0, MarkerDropped(name, "there is no such topic")
    elif topic is not None and topic.czxid > zxid:
        return  # made after the markers were read: that one was about its predecessor
    elif deletion is None:
        yield from _begin(context, name, abandon, online, steps)
    elif abandon != deletion.abandon_offline:
        yield 0, DeletionQueued(name, abandon, is_held=not deletion.is_queued)
        yield from _change(context, name, deletion, abandon=abandon)


def _miss_marker(context: Context, name: str) -> Iterator[Decided]:
    """Its marker is missing. A deletion that began goes on, as Kafka's does from memory: a successor must finish it."""
    deletion = context.cluster.duties.deletions[name]
    if deletion.is_queued:
        yield 0, DeletionMarked(name, deletion.abandon_offline)
    else:
        yield 0, MarkerDropped(name, "it was taken back before it began")


def _begin(
    context: Context, name: str, abandon: bool, online: frozenset[int], steps: tuple[int, int]
) -> Iterator[Decided]:
    """The first of the steps believes it, the second one starts it."""
    held = holding(context.cluster, name)
    yield steps[0], DeletionQueued(name, abandon, is_held=held is not None)
    if held is not None:
        yield steps[0], DeletionWaits(name, held)
        return
    deletion = context.cluster.duties.deletions.get(name, Deletion())
    deletion = msgspec.structs.replace(deletion, abandon_offline=abandon)
    yield from _go_on(context, name, deletion, DeletionFacts(online), steps[1])


def _change(context: Context, name: str, deletion: Deletion, *, abandon: bool) -> Iterator[Decided]:
    """From now on the dead are waited for, or not."""
    if deletion.is_queued:
        changed = msgspec.structs.replace(deletion, abandon_offline=abandon)
        yield from _go_on(context, name, changed, DeletionFacts(context.cluster.live_ids), 1)


def _take_answer(context: Context, name: str, answered: Mapping[Replica, ReplicaStatus]) -> Iterator[Decided]:
    """The awaited brokers change only with a refusal; nothing can be erased while a live broker is still asked."""
    cluster, deletion = context.cluster, context.cluster.duties.deletions[name]
    are_done = all(status is SUCCESSFUL for status in answered.values())
    if are_done and any(one not in answered and _is_asked(cluster, name, one) for one in deletion.started):
        yield 0, ReplicasMoved(name, tuple(sorted(answered)), (SUCCESSFUL,))
    else:
        yield from _go_on(context, name, deletion, DeletionFacts(cluster.live_ids, answers=answered), 0)


def _is_asked(cluster: Cluster, name: str, replica: Replica) -> bool:
    """Returns whether a live broker is to answer for it; a later write of the topic's znode may have removed it."""
    number, broker_id = replica
    partition = cluster.topics[name].partitions.get(number)
    return partition is not None and broker_id in partition.replicas and broker_id in cluster.live_ids


def _go_on(context: Context, name: str, deletion: Deletion, facts: DeletionFacts, step: int) -> Iterator[Decided]:
    """Move every replica as far as it can go; name the awaited brokers; erase a topic without replicas."""
    topic = context.cluster.topics[name]
    after: dict[Replica, ReplicaStatus] = {}
    moved: dict[Way, list[Replica]] = {}
    for number, partition in topic.partitions.items():
        for broker_id in partition.replicas:
            replica = (number, broker_id)
            # led no more: offline, until it was looked at
            before = deletion.replicas.get(replica, OFFLINE)
            way: Way = (facts.answers[replica],) if replica in facts.answers else ()
            way += _way(way[-1] if way else before, broker_id, facts, abandon=deletion.abandon_offline)
            after[replica] = way[-1] if way else before
            if way:
                moved.setdefault(way, []).append(replica)
    for taken, replicas in moved.items():
        yield step, ReplicasMoved(name, tuple(replicas), taken)
    waits = _wait_for(context, name, deletion, after, facts.online)
    if (waits.reason, waits.retry_at_ms) != (deletion.waits_for, deletion.retry_at_ms):
        yield step, waits
    if all(status is SUCCESSFUL for status in after.values()):
        yield from _erase(topic, step + 1)


def _way(status: ReplicaStatus, broker_id: int, facts: DeletionFacts, *, abandon: bool) -> Way:
    """The moves that a replica makes now, one after the other."""
    if status is SUCCESSFUL:
        return ()
    if broker_id not in facts.online:
        left: Way = () if status is INELIGIBLE else (INELIGIBLE,)
        return (*left, OFFLINE, STARTED, SUCCESSFUL) if abandon else left
    if status is OFFLINE:
        return (STARTED,)
    if broker_id in facts.back_ids:
        return (INELIGIBLE, *BACK) if status is STARTED else BACK
    return (OFFLINE, STARTED) if status is INELIGIBLE and facts.is_due else ()


def _wait_for(
    context: Context, name: str, deletion: Deletion, after: Mapping[Replica, ReplicaStatus], online: frozenset[int]
) -> DeletionWaits:
    """Ineligible replicas are those of brokers that are gone, and those that were refused."""
    waiting = [replica for replica, status in after.items() if status is INELIGIBLE]
    gone_ids = sorted({broker_id for _, broker_id in waiting} - online)
    refused: dict[int, list[str]] = {}
    for number, broker_id in waiting:
        if broker_id in online:
            refused.setdefault(broker_id, []).append(f"{name}-{number}")
    reasons = []
    if gone_ids:
        noun, verb = ("broker", "is") if len(gone_ids) == 1 else ("brokers", "are")
        reasons.append(f"{noun} {', '.join(map(str, gone_ids))} {verb} gone")
    for broker_id, names in sorted(refused.items()):
        more = f" and {len(names) - PARTITIONS_NAMED} more" if len(names) > PARTITIONS_NAMED else ""
        reasons.append(f"broker {broker_id} refused to delete {', '.join(names[:PARTITIONS_NAMED])}{more}")
    retry_at_ms = None
    if refused:
        pause_ms = min(RETRY_MIN_MS << min(deletion.failures, 6), RETRY_MAX_MS)
        retry_at_ms = context.now_ms + pause_ms if deletion.retry_at_ms is None else deletion.retry_at_ms
    return DeletionWaits(name, "; ".join(reasons) or None, retry_at_ms)


def _erase(topic: Topic, step: int) -> Iterator[Decided]:
    """Partitions first; then the rest in one transaction, the marker last: a crash in between is resumed."""
    for number in topic.partitions:
        yield step, PartitionErased(topic.name, number)
    yield step + 1, TopicErased(topic.name, topic.topic_id, tuple(topic.partitions))
