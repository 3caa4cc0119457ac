"""Topics seen and topics asked for: new topics, new partitions, missing ids, topics that are gone.

A topic's znode is believed first (step 0), which may include writing the id it lacks; its partitions are led next
(step 1), since nothing can be told about a topic without an id.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from random import Random

from controller.core.admin import DeletionQueued, DeletionWaits, topic_subject
from controller.core.changes import Refused, TopicCreated, TopicFound, TopicGone, TopicWritten, Unreadable
from controller.core.cluster import Cluster
from controller.core.codes import Code
from controller.core.deletion import on_topic_gone
from controller.core.events import CreateTopicAsked, TopicFact, TopicsSeen
from controller.core.formats import encode_topic
from controller.core.misplaced import MISPLACED, misplaced_in, without_controller
from controller.core.model import Assignment, Partition, Replicas, Topic
from controller.core.placement import Place, place_at_random, placement_trouble
from controller.core.repair import Presence, repair_partition
from controller.core.topic_configs import trouble_with
from controller.core.work import Context, Decided, Work

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_RESERVED_IDS = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ"})
#: ZooKeeper refuses a request of 1 MiB, at about 65,000 partitions with three replicas
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
    """A request to create a topic. Creating what is there already, the same way, is no mistake."""
    yield Work(topic_subject(event.name), partial(_create_topic, context, event))


def made_whole(context: Context, topic: Topic, live_ids: AbstractSet[int]) -> Iterator[Decided]:
    """At the start of a term: write the id that a topic made by an older tool lacks, and what was placed on us."""
    mended = misplaced_in(context.cluster, topic, live_ids)
    if topic.topic_id is None:
        whole = assignment_of(topic) | mended
        yield 0, TopicWritten(topic.name, draw_topic_id(context.entropy), whole, "topic id was missing")
    elif mended:
        yield 0, TopicWritten(topic.name, topic.topic_id, assignment_of(topic) | mended, MISPLACED)


def assignment_of(topic: Topic) -> dict[int, Assignment]:
    """All of a topic, as its znode has it."""
    return {
        number: Assignment(partition.replicas, partition.adding, partition.removing)
        for number, partition in topic.partitions.items()
    }


def draw_topic_id(entropy: Random) -> str:
    """16 random bytes, as Kafka prints them; reserved values and a leading dash are drawn again."""
    while True:
        text = urlsafe_b64encode(entropy.randbytes(16)).rstrip(b"=").decode()
        if text not in _RESERVED_IDS and not text.startswith("-"):
            return text


def name_trouble(name: str) -> str | None:
    """Why Kafka would refuse this name; None when it would not."""
    if name in (".", ".."):
        return "a topic cannot be named . or .."
    if _LEGAL_NAME.fullmatch(name) is None:
        return "a topic name has 1 to 249 characters, each a letter, a digit, or one of . _ -"
    return None


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
    if known is None or known.version != fact.version:
        yield 0, TopicFound(fact)
    elif _is_whole(known):
        return
    mended = {} if known is not None and _is_whole(known) else _mended(cluster, fact, known)
    yield from _written_back(context, fact, known, mended)
    if fact.name not in cluster.topics and _is_to_go(cluster, fact):
        yield 2, DeletionQueued(fact.name, cluster.duties.deletions[fact.name].abandon_offline, is_held=False)
        yield 2, DeletionWaits(fact.name, None)  # for nothing any more: it goes on as time passes
        return
    if known is not None and cluster.duties.is_leaving(fact.name):
        return
    placed = {} if known is None else assignment_of(known)
    for number, wanted in sorted({**fact.assignment, **placed, **mended}.items()):
        # also those believed already whose first leadership met a conflict
        if known is None or number not in known.partitions or _is_unled(cluster, known, number):
            yield from _lead_first(context, fact.name, number, wanted)


def _is_to_go(cluster: Cluster, fact: TopicFact) -> bool:
    """Whether a topic that makes sense at last is deleted at once: an earlier term may have erased states already, and
    to lead it first would begin its leader epochs anew."""
    is_moving = any(one.adding or one.removing for one in fact.assignment.values())
    return cluster.delete_enabled and fact.name in cluster.duties.deletions and not is_moving


def _is_unled(cluster: Cluster, topic: Topic, number: int) -> bool:
    return topic.partitions[number].state is None and (topic.name, number) not in cluster.unreadable


def _is_whole(topic: Topic) -> bool:
    """Whether nothing that a topic needs is still to be written."""
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
    context: Context, fact: TopicFact, known: Topic | None, mended: Mapping[int, Assignment]
) -> Iterator[Decided]:
    """What a tool that knows less dropped and did not mean to: an id never changes while its topic lives, and a
    reassignment goes on. Replicas that somebody else changed are passed over, as Kafka does, until we write."""
    before = {} if known is None else assignment_of(known)
    running = [number for number, one in before.items() if one.adding or one.removing]
    topic_id = fact.topic_id if known is None or known.topic_id is None else known.topic_id
    whole = {**fact.assignment, **before, **mended}
    if topic_id is None:
        yield 1, TopicWritten(fact.name, draw_topic_id(context.entropy), whole, "topic id was missing")
    elif topic_id != fact.topic_id or any(fact.assignment.get(number) != before[number] for number in running):
        yield 1, TopicWritten(fact.name, topic_id, whole, "written back what was lost")
    elif mended:
        yield 1, TopicWritten(fact.name, topic_id, whole, MISPLACED)


def _lead_first(context: Context, topic: str, number: int, wanted: Assignment) -> Iterator[Decided]:
    new = Partition(wanted.replicas, wanted.adding, wanted.removing)
    change = repair_partition(context, topic, number, new, Presence(context.cluster.live_ids), "partition created")
    if change is not None:
        yield 2, change


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
    size = len(encode_topic(topic_id, assignment))
    if size > MAX_TOPIC_ZNODE_BYTES:
        detail = f"the topic's znode would have {size} bytes, more than {MAX_TOPIC_ZNODE_BYTES}"
        yield 0, Refused(topic_subject(event.name), Code.INVALID_PARTITIONS, detail)
        return
    yield 0, TopicCreated(event.name, topic_id, assignment, event.configs)
    for number, wanted in assignment.items():
        yield from _lead_first(context, event.name, number, wanted)


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
        return Code.TOPIC_ALREADY_EXISTS, f"topic {event.name} exists and its znode makes no sense"
    likeness = event.name.replace(".", "_")
    twin = next((name for name in cluster.topics if name.replace(".", "_") == likeness), None)
    if twin is not None:
        return Code.INVALID_TOPIC_EXCEPTION, f"{event.name} collides with {twin}: metrics cannot tell . from _"
    partitions, factor = event.partitions or 0, event.replication_factor or 0
    replicas = partitions * factor if event.assignment is None else sum(map(len, event.assignment.values()))
    if replicas > MAX_REPLICAS_PER_TOPIC:
        return Code.INVALID_PARTITIONS, f"a topic znode holds at most {MAX_REPLICAS_PER_TOPIC} replicas"
    if sum(len(key) + len(value) for key, value in event.configs.items()) > MAX_CONFIG_CHARACTERS:
        return Code.INVALID_CONFIG, f"a topic's configuration has at most {MAX_CONFIG_CHARACTERS} characters"
    if cluster.is_dedicated and (trouble := trouble_with(event.configs)) is not None:
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
