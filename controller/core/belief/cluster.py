"""The active controller's belief. `apply` is its only mutator, and it is given only committed changes.

Indexes (replicas by broker, names by topic id) live here beside their data, and are kept by the same method, so
that a broker's failure costs that broker's partitions and nothing more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import cast

from controller.core.belief.duties import Dropped, Duties
from controller.core.belief.kept_states import KeptStates, Move, Mover, Moves, TriedStates
from controller.core.bitset import Bitset, bits_of, numbers_of
from controller.core.changes.aspects import BelievesNothing
from controller.core.changes.cluster import Committed, StateDecided, WriteRefused, believe_together, move_together
from controller.core.events import StateFact, TopicFact
from controller.core.formats import known_broker_for, known_broker_in
from controller.core.model import (
    NO_VERSION,
    Assignment,
    Broker,
    Leadership,
    Partition,
    Replicas,
    Topic,
    TopicPartition,
)
from controller.core.states import PartitionStatus, ReplicaStatus

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
        asking_ms: int = 18_000,
    ) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.unclean_default = unclean_default
        self.delete_enabled = delete_enabled
        self.imbalance_percentage = imbalance_percentage
        #: the controller is no broker, and its id no broker's
        self.is_dedicated = is_dedicated
        #: brokers are asked for topic ids for so long: one session time-out, after which a silent broker is gone
        self.asking_ms = asking_ms
        self.brokers: dict[int, Broker] = {}
        #: last registrations of brokers that are gone
        self.gone: dict[int, Broker] = {}
        self.live_ids: frozenset[int] = frozenset()
        self.topics: dict[str, Topic] = {}
        self.names_by_id: dict[str, str] = {}
        #: names with a dot or an underscore, by their names in metrics
        self._names_by_likeness: dict[str, tuple[str, ...]] = {}
        #: broker id -> topic -> its partitions there, live or not
        self.hosted: dict[int, dict[str, Bitset]] = {}
        #: partitions with replicas being added or removed
        self.reassigning: set[tuple[str, int]] = set()
        self.duties = Duties()
        #: in which state partitions and replicas are
        self.states = KeptStates()
        #: malformed znodes, with the reason and the zxid they were read at: reported once, left alone
        self.unreadable: dict[tuple[str, int | None], tuple[str, int]] = {}
        #: subjects left out after a bug, with the reason
        self.parked: dict[str, str] = {}
        #: writes that ZooKeeper refuses, by the znode that each is about
        self.refused: dict[str, WriteRefused] = {}
        #: rises with every change of belief: work that spans two of its values rests on neither
        self.revision = 0

    def partition(self, topic: str, partition: int) -> Partition | None:
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(partition)

    def twin_of(self, name: str) -> str | None:
        """Returns a topic of another name that metrics cannot tell from this one: they make an underscore of a dot."""
        return next((one for one in self._names_by_likeness.get(_likeness_of(name), ()) if one != name), None)

    def topic_id(self, name: str) -> str | None:
        known = self.topics.get(name)
        return None if known is None else known.topic_id

    def hosted_by(self, broker_ids: Iterable[int]) -> dict[str, Bitset]:
        """Topic -> partitions that have a replica on any of these brokers."""
        merged: dict[str, int] = {}
        for broker_id in broker_ids:
            for topic, partitions in self.hosted.get(broker_id, {}).items():
                merged[topic] = merged.get(topic, 0) | partitions.bits
        return {topic: Bitset(bits=bits) for topic, bits in merged.items()}

    def led_by(self, broker_id: int) -> dict[str, int]:
        """Topic -> bits of the partitions that a broker leads."""
        led: dict[str, int] = {}
        for topic, hosted in self.hosted.get(broker_id, {}).items():
            known = self.topics[topic].partitions.get
            some = [
                number
                for number in numbers_of(hosted.bits)
                if (one := known(number)) is not None and one.state is not None and one.state.leader == broker_id
            ]
            if some:
                led[topic] = bits_of(some)
        return led

    def in_sync_on(self, broker_id: int) -> dict[str, int]:
        """Topic -> bits of the partitions in whose ISR a broker is."""
        in_sync: dict[str, int] = {}
        for topic, hosted in self.hosted.get(broker_id, {}).items():
            known = self.topics[topic].partitions
            numbers = numbers_of(hosted.bits)
            some = [n for n in numbers if (state := known[n].state) is not None and broker_id in state.isr]
            if some:
                in_sync[topic] = hosted.bits if len(some) == len(numbers) else bits_of(some)
        return in_sync

    def is_unclean_allowed(self, topic: str) -> bool:
        """Returns whether a leader may be elected that was not in sync, for this topic."""
        return self.duties.is_unclean_allowed(topic, default=self.unclean_default)

    def serving_ids(self, topic: str, number: int, live_ids: frozenset[int]) -> frozenset[int]:
        """Of these live brokers, those that can serve a partition: its replica's directory has not failed there."""
        failed = self.duties.failed_dirs
        if not failed:
            return live_ids
        return live_ids.difference(broker_id for broker_id, replicas in failed.items() if (topic, number) in replicas)

    @property
    def unnoted(self) -> list[Broker]:
        """Returns live brokers whose note differs from their registration."""
        return self.unnoted_of(self.brokers.values())

    def unnoted_of(self, registered: Iterable[Broker]) -> list[Broker]:
        """Returns the brokers whose note differs from this registration."""
        noted = self.duties.noted
        return [broker for broker in registered if noted.get(broker.broker_id) != known_broker_for(broker)]

    @property
    def draining_ids(self) -> frozenset[int]:
        return frozenset(self.duties.drains)

    @property
    def avoided_ids(self) -> frozenset[int]:
        """Returns brokers elected only without another candidate: they drain, or have an unnamed bad directory."""
        return self.draining_ids | self.duties.suspect_ids if self.duties.drains else self.duties.suspect_ids

    @property
    def leaving_ids(self) -> frozenset[int]:
        """Brokers that are shutting down."""
        return frozenset(broker_id for broker_id, drain in self.duties.drains.items() if drain.is_shutdown)

    def all_partitions(self) -> Iterator[tuple[TopicPartition, Partition]]:
        for name, topic in self.topics.items():
            yield from ((TopicPartition(name, number), partition) for number, partition in topic.partitions.items())

    # ------------------------------------------------------------------ the only mutators

    def load(
        self,
        topics: Iterable[TopicFact],
        states: Iterable[StateFact],
        duties: Duties | None = None,
        live_ids: Container[int] = (),
    ) -> None:
        """Fill a new, empty belief from a term's first reading. Everything later goes through `apply`."""
        for _ in self.loading(topics, states, duties, live_ids):
            pass

    def loading(
        self,
        topics: Iterable[TopicFact],
        states: Iterable[StateFact],
        duties: Duties | None = None,
        live_ids: Container[int] = (),
    ) -> Iterator[None]:
        """`load` in pieces of some thousand partitions, so that its caller can let others run in between. `live_ids`:
        the registered brokers, from which the first states of partitions and replicas follow."""
        assert not self.topics, "a term loads once"
        if duties is not None:
            self.duties = duties  # the term's first decision learns which noted brokers are registered
            self.gone = {broker_id: known_broker_in(znode, broker_id) for broker_id, znode in duties.noted.items()}
        found: defaultdict[str, dict[int, StateFact]] = defaultdict(dict)
        for index, fact in enumerate(states, start=1):
            state = fact.state
            if state is not None and fact.trouble is None and state.controller_epoch <= self.controller_epoch:
                found[fact.topic][fact.partition] = fact
            elif (trouble := fact.trouble_in(self.controller_epoch)) is not None:
                self.unreadable[fact.topic, fact.partition] = (trouble, fact.zxid)
            if index % PARTITIONS_PER_PIECE == 0:
                yield
        done = 0
        for topic in topics:
            if topic.trouble is not None:
                self.unreadable[topic.name, None] = (topic.trouble, topic.zxid)
                continue
            self._load_topic(topic, found.get(topic.name, {}), live_ids)
            done += len(topic.assignment)
            if done >= PARTITIONS_PER_PIECE:
                done = 0
                yield

    def _load_topic(self, fact: TopicFact, states: Mapping[int, StateFact], live_ids: Container[int]) -> None:
        """Load a topic that was not known, with its states: the same as `put_topic` and `set_state`."""
        partitions: dict[int, Partition] = {}
        hosted: dict[int, int] = {}
        unled: list[int] = []
        offline: list[int] = []
        new: dict[int, list[int]] = {}
        for number, wanted in sorted(fact.assignment.items()):
            replicas, adding, removing = wanted.replicas, wanted.adding, wanted.removing
            found = states.get(number)
            if found is None or found.state is None:
                partitions[number] = Partition(replicas, adding, removing)
                unled.append(number)
                for broker_id in replicas:
                    new.setdefault(broker_id, []).append(number)
            else:
                if found.state.leader not in live_ids:
                    offline.append(number)
                for broker_id in adding:
                    if broker_id not in found.state.isr:
                        new.setdefault(broker_id, []).append(number)
                partitions[number] = Partition(replicas, adding, removing, found.state, found.version, found.zxid)
            bit = 1 << number
            for broker_id in replicas:
                hosted[broker_id] = hosted.get(broker_id, 0) | bit
            if adding or removing:
                self.reassigning.add((fact.name, number))
        for broker_id, bits in hosted.items():
            self.hosted.setdefault(broker_id, {})[fact.name] = Bitset(bits=bits)
            if broker_id not in live_ids:
                self.states.begin_replicas(broker_id, fact.name, bits, ReplicaStatus.DELETION_INELIGIBLE)
            elif broker_id in new:
                self.states.begin_replicas(broker_id, fact.name, bits_of(new[broker_id]), ReplicaStatus.NEW)
        for status, numbers in ((PartitionStatus.NEW, unled), (PartitionStatus.OFFLINE, offline)):
            if numbers:
                self.states.begin_partitions(fact.name, bits_of(numbers), status)
        self._name(fact.name)
        self.topics[fact.name] = Topic(fact.name, fact.topic_id, fact.version, fact.czxid, fact.zxid, partitions)
        if fact.topic_id is not None:
            self.names_by_id[fact.topic_id] = fact.name

    def trial(self) -> Mover:
        """Makes the moves of changes that are decided and do not stand yet; a move that no table has is refused."""
        return Mover(TriedStates(self.states))

    def apply(self, committed: Iterable[Committed]) -> list[Move]:
        """Believe changes that stand; returns the moves that they made, whether a table has their moves or not."""
        moves = Moves()
        mover = Mover(self.states, moves)
        led: list[Committed] = []
        for one in committed:
            change = one.change
            if type(change) is StateDecided:  # tens of thousands of these may come together: they move as one
                led.append(one)
                continue
            if led:
                self._apply_led(led, mover)
                led = []
            mover.settle()
            change.move(self, mover)
            if not isinstance(change, BelievesNothing):
                change.believe(self, one)
                self.revision += 1
        if led:
            self._apply_led(led, mover)
        mover.settle()
        return moves.made

    def _apply_led(self, led: list[Committed], mover: Mover) -> None:
        """Leaderships that stand together."""
        move_together(self, [cast("StateDecided", one.change) for one in led], mover)
        believe_together(self, led)
        self.revision += len(led)

    # ------------------------------------------------------------------ effects of changes on belief, called by `apply`

    def set_broker(self, broker: Broker) -> None:
        self.gone.pop(broker.broker_id, None)
        self.brokers[broker.broker_id] = broker
        self.live_ids = frozenset(self.brokers)

    def remove_broker(self, broker_id: int) -> None:
        in_sync = self.in_sync_on(broker_id)
        self.gone[broker_id] = self.brokers.pop(broker_id)
        self.live_ids = frozenset(self.brokers)
        self.duties.forget_broker(broker_id, in_sync)
        for key in self.states.dropped_on(broker_id):
            dropped = self.duties.dropped[key][broker_id]
            dropped.failures, dropped.retry_at_ms = 0, 0  # told again as soon as it is back

    def note_dropped(self, key: str, replicas: Iterable[tuple[int, int]], leader_epochs: Mapping[int, int]) -> None:
        """By which decision replicas (partition, broker id) were dropped: their brokers are told its leader epoch."""
        for number, broker_id in replicas:
            by_broker = self.duties.dropped.setdefault(key, {})
            by_broker.setdefault(broker_id, Dropped()).leader_epochs[number] = leader_epochs[number]
        if key in self.duties.dropped:
            self.forget_deleted(key)

    def forget_deleted(self, key: str) -> None:
        """Forget a replica that was deleted, or is assigned again."""
        by_broker = self.duties.dropped[key]
        for broker_id, dropped in list(by_broker.items()):
            held = 0
            for bits in self.states.replicas_of(broker_id, key).values():
                held |= bits
            for number in [number for number in dropped.leader_epochs if not held >> number & 1]:
                del dropped.leader_epochs[number]
            if not dropped.leader_epochs:
                del by_broker[broker_id]
        if not by_broker:
            del self.duties.dropped[key]

    def find_topic(self, fact: TopicFact) -> None:
        known = self.topics.get(fact.name)
        before = None if known is None else known.topic_id
        topic_id = before or fact.topic_id
        if fact.topic_id is not None and self.duties.is_id_open(fact.name):
            self.names_by_id.pop(before or "", None)  # an id was decided
            topic_id = fact.topic_id
        self.unreadable.pop((fact.name, None), None)
        self.put_topic(Topic(fact.name, topic_id, fact.version, fact.czxid, fact.zxid, {}), fact.assignment)

    def put_topic(self, topic: Topic, assignment: Mapping[int, Assignment], *, is_ours: bool = False) -> None:
        """Partitions keep their state. Those that a foreign znode lacks or changes stay as they are (so does Kafka);
        a znode of our own counts as written."""
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
        self._name(topic.name)
        self.topics[topic.name] = topic
        if topic.topic_id is not None:
            self.names_by_id[topic.topic_id] = topic.name

    def _host(self, topic: str, number: int, assignment: Assignment, before: Replicas) -> None:
        """Keep the indexes: the brokers that host this partition, and whether it is being reassigned."""
        for broker_id in set(before).difference(assignment.replicas):
            self._unhost(topic, number, broker_id)
        for broker_id in assignment.replicas:
            hosted = self.hosted.setdefault(broker_id, {})
            if topic not in hosted:
                hosted[topic] = Bitset()
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

    def _name(self, name: str) -> None:
        """To be called before the topic is believed."""
        likeness = _likeness_of(name)
        if "_" in likeness and name not in self.topics:
            self._names_by_likeness[likeness] = (*self._names_by_likeness.get(likeness, ()), name)

    def _unname(self, name: str) -> None:
        likeness = _likeness_of(name)
        others = tuple(one for one in self._names_by_likeness.pop(likeness, ()) if one != name)
        if others:
            self._names_by_likeness[likeness] = others

    def forget_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self._unname(name)
            self.names_by_id.pop(topic.topic_id or "", None)
            for broker_id in {broker_id for one in topic.partitions.values() for broker_id in one.replicas}:
                self.hosted[broker_id].pop(name, None)
                if not self.hosted[broker_id]:
                    del self.hosted[broker_id]  # nothing names it any more
            self.reassigning.difference_update((name, number) for number in topic.partitions)
        for key in [key for key in self.unreadable if key[0] == name]:
            del self.unreadable[key]
        self.duties.forget(name)

    def set_state(self, topic: str, number: int, state: Leadership | None, version: int, zxid: int) -> None:
        partitions = self.topics[topic].partitions
        old = partitions[number]
        partitions[number] = Partition(old.replicas, old.adding, old.removing, state, version, zxid)
        if self.unreadable:
            self.unreadable.pop((topic, number), None)
        if state is not None and self.duties.lost_states:
            self.duties.lost_states.pop((topic, number), None)

    def lose_state(self, topic: str, number: int, zxid: int) -> None:
        """The state's znode vanished. Its last content still decides which replica may lead next."""
        known = self.topics[topic]
        last = known.partitions[number].state or self.lost_state(topic, number)
        self.set_state(topic, number, None, NO_VERSION, zxid)
        if last is not None:
            self.duties.lost_states[topic, number] = (known.czxid, last)

    def lost_state(self, topic: str, number: int) -> Leadership | None:
        """Returns the last state of a partition whose znode vanished, until another one stands."""
        if not self.duties.lost_states or (lost := self.duties.lost_states.get((topic, number))) is None:
            return None
        known = self.topics.get(topic)
        return lost[1] if known is not None and known.czxid == lost[0] else None


def _likeness_of(name: str) -> str:
    return name.replace(".", "_")
