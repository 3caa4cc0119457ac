"""A topic's id when its znode does not say: brokers are asked for it before an id is drawn.

A search begins when a topic is met without an id, and no broker is told of the topic until it ends. Asked are the live
brokers that host its replicas; where none lives, all others that were told of it. It ends when all of them have
answered, or after one session time-out. An id that one of them knows is written; without one an id is drawn. Two ids
are a dispute: no broker is told until an operator decides, by writing an id into the znode or by deleting the topic. A
broker with replicas that could not be asked stays in doubt, and is asked when it comes, before it is told anything.

A broker that is told everything while a search lasts sets the topic's replicas aside, because it is not told of them.
If the id is not written then (the controller dies, ZooKeeper refuses the write), the next search finds no broker that
knows it. So where no broker knows an id, the set-aside replicas of ISR members tell it, unless their leader epochs are
above those of the topic.

A topic none of whose partitions was ever led is new: replicas on a disk under its name are left from an earlier topic
that was deleted while their broker was away. Of a new topic only requests to brokers count, and no broker is in doubt.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import Random

from controller.core.belief.cluster import Cluster
from controller.core.belief.id_searches import IdAnswer
from controller.core.causes import Cause, Reason
from controller.core.changes.cluster import TopicWritten
from controller.core.changes.duties import (
    DeletionQueued,
    DeletionWaits,
    TopicAsked,
    TopicIdAnswered,
    TopicIdDisputed,
    TopicIdDropped,
    TopicIdGiven,
    TopicIdSought,
    TopicIdTaken,
    topic_subject,
)
from controller.core.decide.misplaced import misplaced_in
from controller.core.decide.repair import LiveBrokers, led_first
from controller.core.decide.work import Context, Decided, Work, work_of
from controller.core.events import KnownId, TopicFact, TopicsDescribed
from controller.core.model import Assignment, Partition, Topic, assignment_of

#: why a request about a topic is refused meanwhile
UNKNOWN = "its topic id is not known yet: brokers are being asked; try again, and see health if it lasts"
_RESERVED_IDS = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ"})


def draw_topic_id(entropy: Random) -> str:
    """16 random bytes, as Kafka prints them; reserved values and a leading dash are drawn again."""
    while True:
        text = urlsafe_b64encode(entropy.randbytes(16)).rstrip(b"=").decode()
        if text not in _RESERVED_IDS and not text.startswith("-"):
            return text


def sought(
    context: Context, name: str, assignment: Mapping[int, Assignment], live_ids: frozenset[int], *, step: int
) -> Iterator[Decided]:
    """Begin to search: the brokers to ask, and until when."""
    yield step, TopicIdSought(name, context.now_ms + context.cluster.asking_ms)
    if asked := _holders_in(assignment) & live_ids or live_ids:
        yield step, TopicAsked(name, asked)


def missing(context: Context, fact: TopicFact, known: Topic | None) -> Iterator[Decided]:
    """A topic was seen without an id, which this term does not know. One that is searched for already is asked of
    brokers that host it since."""
    cluster, name = context.cluster, fact.name
    if known is None or not cluster.duties.ids.is_undecided(name):
        before = {} if known is None else assignment_of(known)
        yield from sought(context, name, {**fact.assignment, **before}, cluster.live_ids, step=1)
    elif name in cluster.duties.ids.open:
        new_ids = _holders_in(fact.assignment) & cluster.live_ids - holders_of(known)
        if new_ids and known.version != fact.version:
            yield 1, TopicAsked(name, new_ids)


def on_topics_described(context: Context, event: TopicsDescribed) -> Iterator[Work]:
    """A broker answers about topics: of use where their ids are searched for, or in doubt."""
    cluster, duties = context.cluster, context.cluster.duties
    broker = cluster.brokers.get(event.broker_id)
    is_of_now = broker is not None and broker.epoch == event.broker_epoch
    for name, known in sorted(event.topics.items()):
        topic = cluster.topics.get(name)
        ids = _counting(known, is_new=topic is not None and _is_new(topic))
        if not (ids or is_of_now):
            continue  # an id that it did not know in another incarnation, it may know in this one
        if name in duties.ids.open:
            answer = IdAnswer(ids, _set_aside(known, event.broker_id, cluster.topics[name]))
            yield Work(topic_subject(name), partial(_hear, context, name, event.broker_id, answer))
        elif event.broker_id in duties.ids.in_doubt.get(name, ()):
            yield Work(topic_subject(name), partial(_hear_late, context, name, event.broker_id, ids))


def on_live_brokers(context: Context, live_brokers: LiveBrokers) -> Iterator[Work]:
    """Brokers went, came or bounced: a broker that comes is asked in the same step, before it is told anything; one
    that goes is not waited for."""
    cluster, duties = context.cluster, context.cluster.duties
    come_ids = (live_brokers.online - cluster.live_ids) | live_brokers.returning
    for name in sorted(duties.ids.open):
        yield Work(topic_subject(name), partial(_go_on_with, context, name, live_brokers.online, come_ids))
    for name, in_doubt in sorted(duties.ids.in_doubt.items() if come_ids else ()):
        if asked := in_doubt & come_ids:
            yield work_of(0, TopicAsked(name, asked))


def on_time_passed(context: Context) -> Iterator[Work]:
    """A broker that did not answer in time is not waited for."""
    for name, search in sorted(context.cluster.duties.ids.open.items()):
        if context.now_ms >= search.until_ms:
            yield Work(topic_subject(name), partial(concluded, context, name, search.answers))
    duties = context.cluster.duties
    for name in sorted(duties.ids.disputes.keys() & duties.deletions.keys()):
        yield Work(topic_subject(name), partial(_decided_by_deletion, context, name))


def concluded(
    context: Context,
    name: str,
    answers: Mapping[int, IdAnswer],
    live_ids: frozenset[int] | None = None,
    *,
    step: int = 0,
) -> Iterator[Decided]:
    """A search's end, if all awaited brokers have answered, or its time is over: the id is written, then partitions
    that were never led are led."""
    cluster = context.cluster
    topic, search = cluster.topics[name], cluster.duties.ids.open[name]
    live_ids = cluster.live_ids if live_ids is None else live_ids
    holders, claims = holders_of(topic), claims_in(answers)
    is_to_go = name in cluster.duties.deletions
    if (name, None) in cluster.unreadable:
        return  # it is read again first
    if waiting_for(holders, answers, live_ids) and context.now_ms < search.until_ms:
        return
    if not (holders & live_ids or claims or is_to_go):
        return  # there is no broker to tell: the first that comes is asked
    in_doubt = frozenset[int]() if _is_new(topic) else holders - answers.keys()
    if len(claims) > 1 and not is_to_go:
        yield step, TopicIdDisputed(name, claims, in_doubt)
    else:
        yield from _written(context, topic, claims, in_doubt, live_ids, step=step)


def _written(
    context: Context,
    topic: Topic,
    claims: Mapping[str, Sequence[int]],
    in_doubt: frozenset[int],
    live_ids: frozenset[int],
    *,
    step: int,
) -> Iterator[Decided]:
    """The id that is known, or a new one; to be deleted, a topic may have any, best the one that most brokers know."""
    cluster, name = context.cluster, topic.name
    known_id = max(claims, key=lambda one: (len(claims[one]), one), default=None)
    yield step, TopicIdTaken(name, in_doubt)
    whole = assignment_of(topic) | misplaced_in(cluster, topic, live_ids)
    reason = "topic id was missing" if known_id is None else "topic id was missing, and brokers know it"
    yield step, TopicWritten(name, known_id or draw_topic_id(context.entropy), whole, reason, Cause.TOPIC_ID_MISSING)
    yield from _led(context, topic, whole, live_ids, step=step + 1)


def id_after(cluster: Cluster, fact: TopicFact, known: Topic | None) -> str | None:
    """Returns a topic's id once its znode is believed: it never changes while the topic lives, unless it is disputed or
    brokers refuse it, and then an id written into the znode decides."""
    before = None if known is None else known.topic_id
    is_open = cluster.duties.is_id_open(fact.name)
    return (fact.topic_id or before) if is_open else (before or fact.topic_id)


def given(cluster: Cluster, fact: TopicFact, topic: Topic) -> Iterator[Decided]:
    """If an operator decided a topic's id by writing it into its znode, it is believed (step 0) and told as if it were
    new. An id that brokers refuse and that is written again is no decision."""
    before, ids = topic.topic_id, cluster.duties.ids
    is_another = before != fact.topic_id and cluster.duties.is_id_refused(topic.name)
    if fact.topic_id is None or not (ids.is_undecided(topic.name) or is_another):
        return
    if before is not None and before != fact.topic_id:
        yield 1, TopicIdDropped(topic.name, before, tuple(topic.partitions))
    yield 2, TopicIdGiven(topic.name)


def told(topic: Topic, numbers: Iterable[int]) -> Iterable[int]:
    """Returns its partitions that may be led: a partition that was never led waits while the topic has no id."""
    if topic.topic_id is not None:
        return numbers
    return [number for number in numbers if topic.partitions[number].state is not None]


def holders_of(topic: Topic) -> frozenset[int]:
    return _holders_in(assignment_of(topic))


def _holders_in(assignment: Mapping[int, Assignment]) -> frozenset[int]:
    return frozenset(broker_id for one in assignment.values() for broker_id in one.replicas)


def waiting_for(holders: Collection[int], answers: Collection[int], live_ids: frozenset[int]) -> frozenset[int]:
    """Returns live brokers whose answer is awaited: of those with replicas, or of all where none of these lives."""
    return (live_ids.intersection(holders) or live_ids).difference(answers)


def claims_in(answers: Mapping[int, IdAnswer]) -> dict[str, tuple[int, ...]]:
    """Returns id -> the brokers that know it; where none knows any, those that set replicas of it aside."""
    claims: dict[str, tuple[int, ...]] = {}
    is_known = any(one.ids for one in answers.values())
    for broker_id, one in sorted(answers.items()):
        for topic_id in one.ids if is_known else one.aside:
            claims[topic_id] = (*claims.get(topic_id, ()), broker_id)
    return dict(sorted(claims.items()))


def _is_new(topic: Topic) -> bool:
    return topic.topic_id is None and all(one.state is None for one in topic.partitions.values())


def _counting(known: Collection[KnownId], *, is_new: bool) -> frozenset[str]:
    """A replica that was set aside is of a topic that is no more; so is any replica of a topic that was never
    led."""
    return frozenset(one.topic_id for one in known if one.topic_id and (one.is_told or (one.is_held and not is_new)))


def _set_aside(known: Collection[KnownId], broker_id: int, topic: Topic) -> frozenset[str]:
    """Returns ids of replicas that a broker set aside, and that were in sync: of a partition whose ISR it is in, and
    with no leader epoch that the topic has not had yet."""
    return frozenset(
        one.topic_id
        for one in known
        for number, leader_epoch in one.leader_epochs.items()
        if number in topic.partitions
        and (state := topic.partitions[number].state) is not None
        and broker_id in state.isr
        and leader_epoch <= state.leader_epoch
        and one.topic_id
    )


def _hear(context: Context, name: str, broker_id: int, answer: IdAnswer) -> Iterator[Decided]:
    before = context.cluster.duties.ids.open[name].answers
    if before.get(broker_id) != answer:
        yield 0, TopicIdAnswered(name, broker_id, answer)
    answers = {**before, broker_id: answer}
    yield from concluded(context, name, answers, step=1)


def _hear_late(context: Context, name: str, broker_id: int, ids: frozenset[str]) -> Iterator[Decided]:
    """Take an answer from a broker that could not be asked in time."""
    duties = context.cluster.duties
    topic_id, in_doubt = context.cluster.topics[name].topic_id, duties.ids.in_doubt[name] - {broker_id}
    before = duties.ids.disputes.get(name, {})
    claims = dict(before) or ({} if topic_id is None else {topic_id: ()})
    for one in sorted(ids):
        claims[one] = tuple(sorted({*claims.get(one, ()), broker_id}))
    if len(claims) > 1:
        yield 0, TopicIdDisputed(name, claims, in_doubt)
    else:
        yield 0, TopicIdTaken(name, in_doubt)


def _go_on_with(context: Context, name: str, online: frozenset[int], come_ids: frozenset[int]) -> Iterator[Decided]:
    """Brokers are live, or over, in step 0; a search may end without them from then on."""
    cluster = context.cluster
    search, holders = cluster.duties.ids.open[name], holders_of(cluster.topics[name])
    is_known = {broker_id for broker_id, one in search.answers.items() if one.ids}
    asked = (come_ids & holders if holders & online else come_ids) - is_known
    if not asked:
        yield from concluded(context, name, search.answers, online, step=1)
        return
    if context.now_ms >= search.until_ms:  # there was no broker to ask: the time begins now
        yield 0, TopicIdSought(name, context.now_ms + cluster.asking_ms)
    yield 0, TopicAsked(name, asked)


def _decided_by_deletion(context: Context, name: str) -> Iterator[Decided]:
    """A topic with a disputed id may be deleted: its id makes no difference any more."""
    cluster, duties = context.cluster, context.cluster.duties
    topic = cluster.topics[name]
    if topic.topic_id is None and (name, None) not in cluster.unreadable:
        yield from _written(context, topic, duties.ids.disputes[name], frozenset(), cluster.live_ids, step=0)


def _led(
    context: Context, topic: Topic, whole: Mapping[int, Assignment], live_ids: frozenset[int], *, step: int
) -> Iterator[Decided]:
    """The work that waited for the id. A topic whose deletion waited for it is deleted instead, as time passes."""
    cluster, name = context.cluster, topic.name
    if name in cluster.duties.deletions and cluster.delete_enabled:
        if not any(one.adding or one.removing for one in whole.values()):
            yield step, DeletionQueued(name, cluster.duties.deletions[name].abandon_offline, is_held=False)
            yield step, DeletionWaits(name, None)
        return
    for number, wanted in sorted(whole.items()):
        if topic.partitions[number].state is None and (name, number) not in cluster.unreadable:
            new = Partition(wanted.replicas, wanted.adding, wanted.removing)
            why = Reason(Cause.TOPIC_FOUND, "partition created")
            yield from led_first(context, name, number, new, live_ids, why, step=step)
