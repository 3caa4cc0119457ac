"""Topics seen and topics asked for: new topics, new partitions, missing ids, topics that are gone.

A topic's znode is believed first (step 0); its partitions are led next (step 2), but only once its id is known
(`topic_ids.py`), since nothing can be told about a topic without an id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause, Reason
from controller.core.changes.cluster import (
    Refused,
    TopicCreated,
    TopicFound,
    TopicGone,
    TopicWritten,
    Unreadable,
)
from controller.core.changes.duties import DeletionQueued, DeletionWaits, topic_subject
from controller.core.codes import Code
from controller.core.decide import topic_ids
from controller.core.decide.deletion import on_topic_gone
from controller.core.decide.misplaced import MISPLACED, misplaced_in, without_controller
from controller.core.decide.placement import Place, place_at_random, placement_trouble
from controller.core.decide.repair import led_first
from controller.core.decide.topic_configs import trouble_with
from controller.core.decide.topic_ids import draw_topic_id
from controller.core.decide.work import Context, Decided, Work
from controller.core.events import CreateTopicAsked, TopicFact, TopicsSeen
from controller.core.formats import ConfigZnode, encode, encode_topic
from controller.core.model import Assignment, Partition, Replicas, Topic, assignment_of

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: ZooKeeper refuses a request of 1 MiB: at about 63,000 partitions with three replicas, 40,000 if ids have four digits
MAX_TOPIC_ZNODE_BYTES = 1_000_000
#: nothing as large as this is even placed
MAX_REPLICAS_PER_TOPIC = 500_000
MAX_CONFIG_CHARACTERS = 100_000


def on_topics_seen(context: Context, event: TopicsSeen) -> Iterator[Work]:
    """The list of topics, or the znodes of some, were read."""
    topics = context.cluster.topics
    for fact in event.facts:
        yield Work(topic_subject(fact.name), partial(_see_topic, context, fact))
    if event.names is not None:
        unreadable = {name for name, number in context.cluster.unreadable if number is None}
        for name in sorted((topics.keys() | unreadable) - event.names):
            gone = topics.get(name) or Topic(name, None, 0, 0, 0, {})
            if gone.zxid <= event.zxid:  # otherwise made after the list was read
                yield Work(topic_subject(name), partial(_lose_topic, context, gone))


def on_create_topic_asked(context: Context, event: CreateTopicAsked) -> Iterator[Work]:
    """A request to create a topic. Creating an existing topic again, the same way, is no mistake."""
    yield Work(topic_subject(event.name), partial(_create_topic, context, event))


def made_whole(context: Context, topic: Topic, live_ids: frozenset[int]) -> Iterator[Decided]:
    """At the start of a term: search for the id that a topic lacks, when brokers are live, before they are told
    anything; write the partitions that were placed on us."""
    mended = misplaced_in(context.cluster, topic, live_ids)
    if topic.topic_id is None:
        yield from topic_ids.sought(context, topic.name, assignment_of(topic), live_ids, step=1)
    elif mended:
        yield 0, TopicWritten(topic.name, topic.topic_id, assignment_of(topic) | mended, MISPLACED, Cause.MISPLACED)


def name_trouble(name: str) -> str | None:
    """Why Kafka would refuse this name; None when it would not."""
    if name in (".", ".."):
        return "a topic cannot be named . or .."
    if _LEGAL_NAME.fullmatch(name) is None:
        return "a topic name has 1 to 249 characters, each a letter, a digit, or one of . _ -"
    return None


def size_trouble(size: int, partitions: int) -> str | None:
    """Returns why a topic's znode cannot be written, and an alternative; None when it can."""
    if size <= MAX_TOPIC_ZNODE_BYTES:
        return None
    fewer = MAX_TOPIC_ZNODE_BYTES * partitions // size
    return (
        f"{partitions} partitions would make {size} bytes of znode, and ZooKeeper (jute.maxbuffer) has room for "
        f"{MAX_TOPIC_ZNODE_BYTES}: ask for at most about {fewer} partitions, or spread them over several topics"
    )


def assignment_trouble(assignment: Mapping[int, Replicas]) -> str | None:
    """Why an explicit assignment is no assignment; None when it is one."""
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        return "partitions must be numbered from 0 without gaps"
    for number, replicas in assignment.items():
        if not replicas or len(set(replicas)) != len(replicas) or min(replicas) < 0:
            return f"partition {number} needs one or more different broker ids, not {list(replicas)}"
    if len({len(replicas) for replicas in assignment.values()}) > 1:
        return "all partitions need the same number of replicas"
    return None


def _see_topic(context: Context, fact: TopicFact) -> Iterator[Decided]:
    cluster = context.cluster
    known = cluster.topics.get(fact.name)
    if known is not None and fact.zxid < known.zxid:
        return  # older than our own write
    if fact.trouble is not None:
        if cluster.unreadable.get((fact.name, None), ("", 0))[0] != fact.trouble:
            yield 0, Unreadable(fact.name, None, fact.trouble, fact.zxid)
        return
    if known is not None and known.czxid != fact.czxid:
        yield from _lose_topic(context, known)
        known = None
    mended = {} if known is not None and _is_whole(known) else _mended(cluster, fact, known)
    topic_id = topic_ids.id_after(cluster, fact, known)
    written_back = [] if topic_id is None else list(_written_back(fact, topic_id, known, mended))
    if known is None or known.version != fact.version or (fact.name, None) in cluster.unreadable:
        yield 0, TopicFound(fact)  # also one that may be read again, as it was
    elif _is_whole(known) and not written_back:  # nothing that was refused, either
        return
    if topic_id is None:
        yield from topic_ids.missing(context, fact, known)
        return
    if known is not None and known.version != fact.version:
        yield from topic_ids.given(cluster, fact, known)
    yield from written_back
    if fact.name not in cluster.topics and _is_to_go(cluster, fact):
        yield 2, DeletionQueued(fact.name, cluster.duties.deletions[fact.name].abandon_offline, is_held=False)
        yield 2, DeletionWaits(fact.name, None)  # for nothing any more: it goes on as time passes
        return
    if known is not None and cluster.duties.is_leaving(fact.name):
        return
    placed = {} if known is None else assignment_of(known)
    for number, wanted in sorted({**fact.assignment, **placed, **mended}.items()):
        # also known partitions whose first leadership met a conflict
        is_new = known is None or number not in known.partitions
        if is_new or (known is not None and _is_unled(cluster, known, number)):
            yield from _lead_first(context, fact.name, number, wanted, Cause.TOPIC_FOUND, is_new=is_new)


def _is_to_go(cluster: Cluster, fact: TopicFact) -> bool:
    """Whether a topic that makes sense at last is deleted at once: an earlier term may have erased states already, and
    to lead it first would begin its leader epochs anew."""
    is_moving = any(one.adding or one.removing for one in fact.assignment.values())
    return cluster.delete_enabled and fact.name in cluster.duties.deletions and not is_moving


def _is_unled(cluster: Cluster, topic: Topic, number: int) -> bool:
    return topic.partitions[number].state is None and (topic.name, number) not in cluster.unreadable


def _is_whole(topic: Topic) -> bool:
    """Returns whether nothing that a topic needs is still to be written."""
    return topic.topic_id is not None and all(one.state is not None for one in topic.partitions.values())


def _mended(cluster: Cluster, fact: TopicFact, known: Topic | None) -> dict[int, Assignment]:
    """Partitions never led that were placed on the controller, though it is no broker."""
    before = {} if known is None else known.partitions
    return {
        number: mended
        for number, wanted in fact.assignment.items()
        if (number not in before or before[number].state is None)
        and (mended := without_controller(cluster, wanted, cluster.live_ids)) is not None
    }


def _written_back(
    fact: TopicFact, topic_id: str, known: Topic | None, mended: Mapping[int, Assignment]
) -> Iterator[Decided]:
    """Fields that an older tool dropped and did not mean to: an id never changes while its topic lives, unless it is
    disputed, and a reassignment goes on. Replicas that another writer changed are passed over, as Kafka does, until we
    write."""
    before = {} if known is None else assignment_of(known)
    running = [number for number, one in before.items() if one.adding or one.removing]
    whole = {**fact.assignment, **before, **mended}
    if topic_id != fact.topic_id or any(fact.assignment.get(number) != before[number] for number in running):
        yield 1, TopicWritten(fact.name, topic_id, whole, "written back what was lost", Cause.WRITTEN_BACK)
    elif mended:
        yield 1, TopicWritten(fact.name, topic_id, whole, MISPLACED, Cause.MISPLACED)


def _lead_first(
    context: Context, topic: str, number: int, wanted: Assignment, cause: Cause, *, is_new: bool = True
) -> Iterator[Decided]:
    new, why = Partition(wanted.replicas, wanted.adding, wanted.removing), Reason(cause, "partition created")
    live_ids = context.cluster.live_ids
    yield from led_first(context, topic, number, new, live_ids, why, step=2, is_new=is_new, is_anew=is_new)


def _lose_topic(context: Context, topic: Topic) -> Iterator[Decided]:
    yield 0, TopicGone(topic.name, topic.topic_id, tuple(topic.partitions))
    yield from on_topic_gone(context, topic.name)


def _create_topic(context: Context, event: CreateTopicAsked) -> Iterator[Decided]:
    refusal = _creation_trouble(context, event)
    if refusal is not None:
        code, detail = refusal
        yield 0, Refused(topic_subject(event.name), code, detail)
        return
    assignment = {number: Assignment(replicas) for number, replicas in _assignment_for(context, event).items()}
    topic_id = draw_topic_id(context.entropy)
    # both znodes are made in one transaction
    size = len(encode_topic(topic_id, assignment)) + len(encode(ConfigZnode(dict(event.configs))))
    if (too_large := size_trouble(size, len(assignment))) is not None:
        yield 0, Refused(topic_subject(event.name), Code.INVALID_PARTITIONS, too_large)
        return
    yield 0, TopicCreated(event.name, topic_id, assignment, event.configs)
    for number, wanted in assignment.items():
        yield from _lead_first(context, event.name, number, wanted, Cause.TOPIC_CREATED)


def _assignment_for(context: Context, event: CreateTopicAsked) -> dict[int, Replicas]:
    if event.assignment is not None:
        return dict(event.assignment)
    places = [Place(broker.broker_id, broker.rack) for broker in context.cluster.brokers.values()]
    return place_at_random(places, event.partitions or 1, event.replication_factor or 1, context.entropy)


def _creation_trouble(context: Context, event: CreateTopicAsked) -> tuple[Code, str] | None:
    cluster = context.cluster
    if (trouble := name_trouble(event.name)) is not None:
        return Code.INVALID_TOPIC_EXCEPTION, trouble
    if event.name in cluster.duties.deletions:
        return Code.TOPIC_ALREADY_EXISTS, f"topic {event.name} is being deleted"
    known = cluster.topics.get(event.name)
    if known is not None:
        if _is_same(known, event):
            return Code.NONE, "exists"
        return Code.TOPIC_ALREADY_EXISTS, f"topic {event.name} exists with another assignment"
    if (event.name, None) in cluster.unreadable:
        return Code.TOPIC_ALREADY_EXISTS, f"topic {event.name} exists and its znode is malformed"
    if (twin := cluster.twin_of(event.name)) is not None:
        return Code.INVALID_TOPIC_EXCEPTION, f"{event.name} collides with {twin}: metrics cannot tell . from _"
    partitions, factor = event.partitions or 0, event.replication_factor or 0
    replicas = partitions * factor if event.assignment is None else sum(map(len, event.assignment.values()))
    if replicas > MAX_REPLICAS_PER_TOPIC:
        return Code.INVALID_PARTITIONS, f"a topic znode holds at most {MAX_REPLICAS_PER_TOPIC} replicas"
    if sum(len(key) + len(value) for key, value in event.configs.items()) > MAX_CONFIG_CHARACTERS:
        return Code.INVALID_CONFIG, f"a topic's configuration has at most {MAX_CONFIG_CHARACTERS} characters"
    if (trouble := trouble_with(event.configs)) is not None:
        return Code.INVALID_CONFIG, trouble
    if event.assignment is not None:
        if (trouble := assignment_trouble(event.assignment)) is not None:
            return Code.INVALID_REPLICA_ASSIGNMENT, trouble
        unknown = {b for replicas in event.assignment.values() for b in replicas} - cluster.live_ids
        if unknown - cluster.gone.keys():
            return Code.INVALID_REPLICA_ASSIGNMENT, f"unknown brokers: {sorted(unknown - cluster.gone.keys())}"
        return None
    return placement_trouble(len(cluster.brokers), partitions, factor)


def _is_same(known: Topic, event: CreateTopicAsked) -> bool:
    have = {number: partition.replicas for number, partition in known.partitions.items()}
    if event.assignment is not None:
        return have == dict(event.assignment)
    factors = {len(replicas) for replicas in have.values()}
    return len(have) == event.partitions and factors == {event.replication_factor}
