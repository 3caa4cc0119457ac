"""A controller on the model ZooKeeper, and brokers that answer a StopReplica when a test lets them.

`happens` judges everything told and written (S23, S24) without reading the core's tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.core.belief.duties import Deletion
from controller.core.causes import Cause
from controller.core.changes.cluster import SubjectParked, TopicGone, TopicWritten
from controller.core.changes.duties import (
    DeletionMarked,
    DeletionQueued,
    ReplicasMoved,
    TopicErased,
)
from controller.core.events import CreateTopicAsked, DeleteTopicAsked, Event, StopReplicaAnswered, TimePassed
from controller.core.formats import encode_marker
from controller.core.model import Assignment, Topic
from controller.core.project.requests import EPOCH_DURING_DELETE, Telling
from controller.core.project.znodes import (
    CONFIG_TOPICS,
    broker_path,
    marker_path,
    topic_path,
)
from tests.builders import Settled, a_broker, commit, noted, settle
from tests.core.model_zookeeper import ModelZooKeeper

LONGEST_PAUSE_MS = 60_000
ORDERS = [[1, 2], [2, 3]]


class Deleting:
    """Topics, belief, and the deletions that each broker has not answered (`awaited`: topic id and partition)."""

    def __init__(self, *live: int, delete_enabled: bool = True, **topics: Sequence[Sequence[int]]) -> None:
        self.zookeeper = ModelZooKeeper()
        self.epoch = 0
        self.now_ms = 0
        self.delete_enabled = delete_enabled
        self.awaited: dict[int, set[tuple[str, int]]] = {}
        #: deletions that brokers acknowledged in this term: with the broker id first
        self.deleted: set[tuple[int, str, int]] = set()
        #: topics of which this term was once allowed to abandon the dead
        self.abandoning: set[str] = set()
        #: ids of topics that are no more
        self.erased_ids: set[str] = set()
        for broker_id in live:
            self.zookeeper.register(a_broker(broker_id))
        self.new_term()
        for name, replicas in topics.items():
            assert self.create(name, replicas).refusals == []

    # ------------------------------------------------------------------ events

    def new_term(self) -> Settled:
        self.epoch += 1
        self.cluster, event = self.zookeeper.new_term(self.epoch)
        self.cluster.delete_enabled = self.delete_enabled
        self.awaited.clear()
        self.deleted.clear()
        self.abandoning.clear()
        return self.happens(event)

    def create(self, name: str, replicas: Sequence[Sequence[int]]) -> Settled:
        assignment = {number: tuple(one) for number, one in enumerate(replicas)}
        return self.happens(CreateTopicAsked(name, assignment=assignment))

    def ask(self, name: str, *, abandon: bool = False) -> Settled:
        return self.happens(DeleteTopicAsked(name, abandon_offline=abandon))

    def mark(self, *names: str, abandon: bool = False) -> Settled:
        """As Kafka's tools do."""
        for name in names:
            self.zookeeper.put(marker_path(name), encode_marker(abandon_offline=abandon))
        return self.happens(self.zookeeper.deletions_seen())

    def unmark(self, name: str) -> Settled:
        self.zookeeper.remove(marker_path(name))
        return self.happens(self.zookeeper.deletions_seen())

    def go(self, *broker_ids: int) -> Settled:
        for broker_id in broker_ids:
            self.zookeeper.remove(broker_path(broker_id))
        return self.happens(self.zookeeper.brokers_seen())

    def come(self, *broker_ids: int) -> Settled:
        """Registered, for the first time or again."""
        for broker_id in broker_ids:
            self.zookeeper.register(a_broker(broker_id))
        return self.happens(self.zookeeper.brokers_seen())

    def answer(self, broker_id: int, *, refused: Iterable[int] = ()) -> Settled:
        """To all it was told; `refused` are numbers of partitions."""
        numbers = frozenset(refused)
        owed = frozenset(self.awaited.pop(broker_id, set()))
        failed = frozenset(one for one in owed if one[1] in numbers)
        self.deleted |= {(broker_id, *one) for one in owed - failed}
        return self.happens(StopReplicaAnswered(broker_id, self.cluster.brokers[broker_id].epoch, owed, failed))

    def wait(self, ms: int) -> Settled:
        self.now_ms += ms
        noted(self.cluster)  # the clock's other effects are not about deletions
        return self.happens(TimePassed())

    def finish(self, *broker_ids: int) -> None:
        """All brokers are live and answer, all due retries are made: twice, for changes held back until now."""
        self.come(*(one for one in broker_ids if one not in self.cluster.brokers))
        for _ in range(2):
            self.wait(LONGEST_PAUSE_MS)
            for broker_id in sorted(self.awaited):
                self.answer(broker_id)

    def happens(self, event: Event) -> Settled:
        topics = dict(self.cluster.topics)
        settled = settle(self.cluster, event, self.zookeeper, now_ms=self.now_ms, seed=self.zookeeper.zxid)
        assert settled.conflicts == []
        assert settled.of(SubjectParked) == []
        for telling in settled.tellings:
            self._hear(telling)
        for change in settled.changes:
            if isinstance(change, TopicErased | TopicGone):
                self.erased_ids.add(change.topic_id or "")
            if isinstance(change, DeletionMarked | DeletionQueued) and change.abandon_offline:
                self.abandoning.add(change.topic)
            if isinstance(change, TopicErased):
                self._judge_erased(topics[change.topic])
                self.abandoning.discard(change.topic)
        return settled

    # ------------------------------------------------------------------ observations

    def deletion(self, name: str) -> Deletion:
        return self.cluster.duties.deletions[name]

    def left_of(self, name: str) -> list[str]:
        """Every znode there is of a topic."""
        roots = tuple(f"{path}/" for path in (topic_path(name), f"{CONFIG_TOPICS}/{name}", marker_path(name)))
        return sorted(path for path in self.zookeeper.nodes if f"{path}/".startswith(roots))

    def _hear(self, telling: Telling) -> None:
        for broker_id, _ in telling.gone:
            self.awaited.pop(broker_id, None)
        everywhere = [telling.everything or {}, telling.metadata, *telling.leaderships.values()]
        for topic, topic_id in (key for rows in everywhere for key in rows):
            assert topic_id not in self.erased_ids, f"S24: {topic}"
            assert not self.cluster.duties.is_leaving(topic), f"told of {topic}, which is being deleted"
        for broker_id, stops in telling.stops.items():
            assert broker_id in self.cluster.live_ids
            for (_, topic_id), numbers in stops.items():
                for number, stop in numbers.items():
                    awaited = self.awaited.setdefault(broker_id, set())
                    assert stop.leader_epoch == EPOCH_DURING_DELETE
                    if stop.delete:
                        awaited.add((topic_id, number))
                    else:  # only as the deletion begins
                        assert (topic_id, number) not in awaited
                        assert (broker_id, topic_id, number) not in self.deleted

    def _judge_erased(self, topic: Topic) -> None:
        assert self.left_of(topic.name) == []
        for number, partition in topic.partitions.items():
            for broker_id in partition.replicas:
                is_deleted = (broker_id, topic.topic_id, number) in self.deleted
                assert is_deleted or topic.name in self.abandoning, f"S23: {topic.name}-{number} on {broker_id}"


def the_topic(*live: int, delete_enabled: bool = True) -> Deleting:
    """`orders`, all in sync; only then the brokers not named as live die."""
    live = live or (1, 2, 3)
    world = Deleting(*{1, 2, 3, *live}, orders=ORDERS, delete_enabled=delete_enabled)
    world.go(*({1, 2, 3} - {*live}))
    return world


def reassigned(world: Deleting, name: str, assignment: Assignment) -> None:
    """The writes of a reassignment of partition 0 at its beginning, or at its end."""
    known = world.cluster.topics[name]
    wanted = {0: assignment, 1: Assignment(known.partitions[1].replicas)}
    change = TopicWritten(name, known.topic_id or "", wanted, "reassigned", Cause.REASSIGNMENT)
    world.cluster.apply(commit(world.cluster, world.zookeeper, [change], []))


def moved(settled: Settled) -> list[tuple[str, list[tuple[int, int]]]]:
    """Each move of replicas: the last word of their state, and the replicas: partition and broker."""
    prefix = "ReplicaDeletion"
    return [(one.target.value.removeprefix(prefix), list(one.replicas)) for one in settled.of(ReplicasMoved)]


def shape(settled: Settled) -> list[list[str]]:
    """Returns the kinds of changes of each step, each named once."""
    return [list(dict.fromkeys(type(change).__name__ for change in step)) for step in settled.steps]
