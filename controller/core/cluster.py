"""What the active controller believes. `apply` is its only mutator, and it is given only what has been committed.

Indexes (who hosts what, names by topic id) live here beside what they index, and are kept by the same method, so
that a broker's failure costs that broker's partitions and nothing more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from controller.core.admin import BrokerForgotten, ConfigFound, TopicErased
from controller.core.changes import (
    BrokerChanged,
    BrokerGone,
    BrokerLive,
    Committed,
    NotificationRead,
    Refused,
    StateDecided,
    StateFound,
    StateLost,
    SubjectParked,
    TopicCreated,
    TopicFound,
    TopicGone,
    TopicWritten,
    Unreadable,
)
from controller.core.duties import Duties
from controller.core.events import StateFact, TopicFact
from controller.core.formats import known_broker_for, known_broker_in
from controller.core.model import NO_VERSION, Assignment, Broker, Leadership, Partition, Replicas, Topic, TopicPartition
from controller.core.numbers import Numbers

PARTITIONS_PER_PIECE = 5_000


class Cluster:
    """Belief. Read it freely; change it only through `apply`."""

    def __init__(
        self,
        *,
        controller_id: int,
        controller_epoch: int,
        unclean_default: bool = False,
        delete_enabled: bool = True,
        imbalance_percentage: int = 10,
        is_dedicated: bool = False,
    ) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.unclean_default = unclean_default
        self.delete_enabled = delete_enabled
        self.imbalance_percentage = imbalance_percentage
        #: the controller is no broker, and its id no broker's
        self.is_dedicated = is_dedicated
        self.brokers: dict[int, Broker] = {}
        #: last registrations of brokers that are gone
        self.gone: dict[int, Broker] = {}
        self.live_ids: frozenset[int] = frozenset()
        self.topics: dict[str, Topic] = {}
        self.names_by_id: dict[str, str] = {}
        #: broker id -> topic -> its partitions there, live or not
        self.hosted: dict[int, dict[str, Numbers]] = {}
        #: partitions with replicas being added or removed
        self.reassigning: set[tuple[str, int]] = set()
        self.duties = Duties()
        #: what made no sense, with the reason and the zxid it was read at: said once, left alone
        self.unreadable: dict[tuple[str, int | None], tuple[str, int]] = {}
        #: subjects left out after a bug, with the reason
        self.parked: dict[str, str] = {}

    def partition(self, topic: str, partition: int) -> Partition | None:
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(partition)

    def hosted_by(self, broker_ids: Iterable[int]) -> dict[str, Numbers]:
        """Topic -> partitions that have a replica on any of these brokers."""
        merged: dict[str, int] = {}
        for broker_id in broker_ids:
            for topic, partitions in self.hosted.get(broker_id, {}).items():
                merged[topic] = merged.get(topic, 0) | partitions.bits
        return {topic: Numbers(bits=bits) for topic, bits in merged.items()}

    def is_unclean_allowed(self, topic: str) -> bool:
        """Whether a leader may be elected that was not in sync, for this topic."""
        return self.duties.is_unclean_allowed(topic, default=self.unclean_default)

    def serving_ids(self, topic: str, number: int, live_ids: frozenset[int]) -> frozenset[int]:
        """Of these live brokers, those that can serve a partition: its replica's directory has not failed there."""
        failed = self.duties.failed_dirs
        if not failed:
            return live_ids
        return live_ids.difference(broker_id for broker_id, replicas in failed.items() if (topic, number) in replicas)

    @property
    def unnoted(self) -> list[Broker]:
        """Live brokers whose registration is not written down as it is."""
        noted = self.duties.noted
        return [broker for broker in self.brokers.values() if noted.get(broker.broker_id) != known_broker_for(broker)]

    @property
    def draining_ids(self) -> frozenset[int]:
        return frozenset(self.duties.drains)

    @property
    def avoided_ids(self) -> frozenset[int]:
        """Brokers elected only if there is nobody else: they drain, or have a bad directory and did not say which."""
        return self.draining_ids | self.duties.suspect_ids if self.duties.drains else self.duties.suspect_ids

    @property
    def leaving_ids(self) -> frozenset[int]:
        """Brokers that are shutting down."""
        return frozenset(broker_id for broker_id, drain in self.duties.drains.items() if drain.is_shutdown)

    def all_partitions(self) -> Iterator[tuple[TopicPartition, Partition]]:
        for name, topic in self.topics.items():
            yield from ((TopicPartition(name, number), partition) for number, partition in topic.partitions.items())

    # ------------------------------------------------------------------ the only mutators

    def load(self, topics: Iterable[TopicFact], states: Iterable[StateFact], duties: Duties | None = None) -> None:
        """Fill a new, empty belief from what a term has read. Everything later goes through `apply`."""
        for _ in self.loading(topics, states, duties):
            pass

    def loading(
        self, topics: Iterable[TopicFact], states: Iterable[StateFact], duties: Duties | None = None
    ) -> Iterator[None]:
        """`load` in pieces of some thousand partitions, so that its caller can let others run in between."""
        assert not self.topics, "a term loads once"
        if duties is not None:
            self.duties = duties  # who of those that were noted is registered, the term's first decision says
            self.gone = {broker_id: known_broker_in(znode, broker_id) for broker_id, znode in duties.noted.items()}
        found: defaultdict[str, dict[int, StateFact]] = defaultdict(dict)
        for index, state in enumerate(states, start=1):
            if (trouble := state.trouble_in(self.controller_epoch)) is not None:
                self.unreadable[state.topic, state.partition] = (trouble, state.zxid)
            elif state.state is not None:
                found[state.topic][state.partition] = state
            if index % PARTITIONS_PER_PIECE == 0:
                yield
        done = 0
        for fact in topics:
            if fact.trouble is not None:
                self.unreadable[fact.name, None] = (fact.trouble, fact.zxid)
                continue
            self._load_topic(fact, found.get(fact.name, {}))
            done += len(fact.assignment)
            if done >= PARTITIONS_PER_PIECE:
                done = 0
                yield

    def _load_topic(self, fact: TopicFact, states: Mapping[int, StateFact]) -> None:
        """A topic that was not known, with the states that were found: what `_put_topic` and `_set_state` come to."""
        partitions: dict[int, Partition] = {}
        hosted: dict[int, int] = {}
        for number, wanted in sorted(fact.assignment.items()):
            replicas, adding, removing = wanted.replicas, wanted.adding, wanted.removing
            found = states.get(number)
            if found is None:
                partitions[number] = Partition(replicas, adding, removing)
            else:
                partitions[number] = Partition(replicas, adding, removing, found.state, found.version, found.zxid)
            bit = 1 << number
            for broker_id in replicas:
                hosted[broker_id] = hosted.get(broker_id, 0) | bit
            if adding or removing:
                self.reassigning.add((fact.name, number))
        for broker_id, bits in hosted.items():
            self.hosted.setdefault(broker_id, {})[fact.name] = Numbers(bits=bits)
        self.topics[fact.name] = Topic(fact.name, fact.topic_id, fact.version, fact.czxid, fact.zxid, partitions)
        if fact.topic_id is not None:
            self.names_by_id[fact.topic_id] = fact.name

    def apply(self, committed: Iterable[Committed]) -> None:
        """Believe what stands."""
        for one in committed:
            match one.change:
                case StateDecided(topic=topic, partition=number, state=state, by_leader=by_leader):
                    assert one.version is not None
                    self._set_state(topic, number, state, one.version, one.zxid)
                    if not by_leader:
                        self.duties.departed.pop((topic, number), None)
                case StateFound(topic=topic, partition=number, state=state, version=version, zxid=zxid):
                    self._set_state(topic, number, state, version, zxid)
                case StateLost(topic=topic, partition=number, zxid=zxid):
                    self._set_state(topic, number, None, NO_VERSION, zxid)
                case BrokerLive(broker=broker) | BrokerChanged(broker=broker):
                    self._set_broker(broker)
                case BrokerGone(broker_id=broker_id):
                    self.gone[broker_id] = self.brokers.pop(broker_id)
                    self.live_ids = frozenset(self.brokers)
                    self.duties.forget_broker(broker_id, self._in_sync_on(broker_id))
                case TopicFound(fact=fact):
                    self._find_topic(fact)
                case TopicCreated(name=name, topic_id=topic_id, assignment=assignment, configs=configs):
                    self.duties.apply(ConfigFound("topics", name, configs))
                    self._put_topic(Topic(name, topic_id, one.version or 0, one.zxid, one.zxid, {}), assignment)
                case TopicWritten(name=name, topic_id=topic_id, assignment=assignment, states=states):
                    assert one.version is not None
                    czxid = self.topics[name].czxid
                    self._put_topic(Topic(name, topic_id, one.version, czxid, one.zxid, {}), assignment, is_ours=True)
                    for each in states:
                        before = self.topics[name].partitions[each.partition]
                        self._set_state(name, each.partition, each.state, before.version + 1, one.zxid)
                case TopicGone(name=name) | TopicErased(topic=name):
                    self._forget_topic(name)
                    self.duties.forget(name)
                case Unreadable(name=name, partition=partition, trouble=trouble, zxid=zxid):
                    self.unreadable[name, partition] = (trouble, zxid)
                case SubjectParked(subject=subject, trouble=trouble):
                    self.parked[subject] = trouble
                case BrokerForgotten(broker_id=broker_id) as change:
                    self.gone.pop(broker_id, None)
                    self.duties.apply(change)
                case Refused() | NotificationRead():
                    pass  # nothing to believe
                case change:
                    self.duties.apply(change)

    def _in_sync_on(self, broker_id: int) -> list[tuple[str, int]]:
        held = ((name, number) for name, numbers in self.hosted.get(broker_id, {}).items() for number in numbers)
        states = [(name, number, self.topics[name].partitions[number].state) for name, number in held]
        return [(name, number) for name, number, state in states if state is not None and broker_id in state.isr]

    def _set_broker(self, broker: Broker) -> None:
        self.gone.pop(broker.broker_id, None)
        self.brokers[broker.broker_id] = broker
        self.live_ids = frozenset(self.brokers)

    def _find_topic(self, fact: TopicFact) -> None:
        known = self.topics.get(fact.name)
        topic_id = fact.topic_id if known is None or known.topic_id is None else known.topic_id
        self.unreadable.pop((fact.name, None), None)
        self._put_topic(Topic(fact.name, topic_id, fact.version, fact.czxid, fact.zxid, {}), fact.assignment)

    def _put_topic(self, topic: Topic, assignment: Mapping[int, Assignment], *, is_ours: bool = False) -> None:
        """Partitions keep their state. Those that a foreign znode lacks or changes stay as they are (so does Kafka);
        what we wrote ourselves is as written."""
        known = self.topics.get(topic.name)
        before = {} if known is None or known.czxid != topic.czxid else known.partitions
        for number in sorted({*before, *assignment}):
            old, wanted = before.get(number), assignment.get(number)
            if old is not None and (wanted is None or not is_ours):
                topic.partitions[number] = old
                continue
            assert wanted is not None
            placed = Partition(wanted.replicas, wanted.adding, wanted.removing)
            if old is not None:
                placed = Partition(wanted.replicas, wanted.adding, wanted.removing, old.state, old.version, old.zxid)
            topic.partitions[number] = placed
            self._host(topic.name, number, wanted, () if old is None else old.replicas)
        self.topics[topic.name] = topic
        if topic.topic_id is not None:
            self.names_by_id[topic.topic_id] = topic.name

    def _host(self, topic: str, number: int, assignment: Assignment, before: Replicas) -> None:
        """Keep the indexes: who hosts this partition, and whether it is being reassigned."""
        for broker_id in set(before).difference(assignment.replicas):
            self._unhost(topic, number, broker_id)
        for broker_id in assignment.replicas:
            hosted = self.hosted.setdefault(broker_id, {})
            if topic not in hosted:
                hosted[topic] = Numbers()
            hosted[topic].add(number)
        if assignment.adding or assignment.removing:
            self.reassigning.add((topic, number))
        else:
            self.reassigning.discard((topic, number))

    def _unhost(self, topic: str, number: int, broker_id: int) -> None:
        """Brokers that nothing names any more leave no trace."""
        hosted = self.hosted[broker_id]
        hosted[topic].discard(number)
        if not hosted[topic]:
            del hosted[topic]
        if not hosted:
            del self.hosted[broker_id]

    def _forget_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.names_by_id.pop(topic.topic_id or "", None)
            for broker_id in {broker_id for one in topic.partitions.values() for broker_id in one.replicas}:
                self.hosted[broker_id].pop(name, None)
                if not self.hosted[broker_id]:
                    del self.hosted[broker_id]  # nothing names it any more
            self.reassigning.difference_update((name, number) for number in topic.partitions)
        for key in [key for key in self.unreadable if key[0] == name]:
            del self.unreadable[key]

    def _set_state(self, topic: str, number: int, state: Leadership | None, version: int, zxid: int) -> None:
        partitions = self.topics[topic].partitions
        old = partitions[number]
        partitions[number] = Partition(old.replicas, old.adding, old.removing, state, version, zxid)
        if self.unreadable:
            self.unreadable.pop((topic, number), None)
