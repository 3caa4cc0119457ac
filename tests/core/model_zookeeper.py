"""A model ZooKeeper: a dict of znodes with versions and zxids, and the values that a store would read from it.

It treats each kind of write as ZooKeeper does, all or nothing, and it counts zxids.
Sessions, watches and lost answers belong to the fake that the shell is tested on, not here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import Drain, Duties
from controller.core.decide.startup import found_states
from controller.core.events import BrokersSeen, DeletionsSeen, StateFact, StatesSeen, TermStarted, TopicFact, TopicsSeen
from controller.core.formats import (
    BrokerZnode,
    ConfigZnode,
    DrainZnode,
    FailedDirsZnode,
    FormatError,
    KnownBrokerZnode,
    TermZnode,
    decode,
    decode_broker,
    decode_marker,
    decode_state,
    decode_topic,
    encode,
)
from controller.core.model import Broker
from controller.core.operations import Create, Delete, Set
from controller.core.project.znodes import (
    BROKER_IDS,
    CONFIG_BROKERS,
    CONFIG_TOPICS,
    DELETE_TOPICS,
    DRAINING,
    FAILED_DIRS,
    KNOWN_BROKERS,
    TERMS,
    TOPICS,
    Ensure,
    Put,
    Remove,
    RemoveBelow,
    Write,
    broker_path,
    marker_path,
    state_path,
    topic_path,
)


class Node(NamedTuple):
    data: bytes
    version: int
    czxid: int
    mzxid: int


class ModelZooKeeper:
    """Znodes by path. `zxid` is that of the last write."""

    def __init__(self, zxid: int = 0) -> None:
        self.nodes: dict[str, Node] = {}
        self.zxid = zxid
        #: every write that took effect, by whomever, in order
        self.log: list[Write] = []

    def copy(self) -> ModelZooKeeper:
        other = ModelZooKeeper(self.zxid)
        other.nodes = self.nodes.copy()
        return other

    def commit(self, writes: Iterable[Write]) -> bool:
        """A transaction: False when any operation is refused, and then nothing happened."""
        staged = dict(self.nodes)
        zxid = self.zxid + 1
        effective = [write for write in writes if self._has_effect(write)]
        if not all(_takes(staged, write, zxid) for write in effective):
            return False
        self.nodes, self.zxid = staged, zxid
        self.log += effective
        return True

    def _has_effect(self, write: Write) -> bool:
        match write:
            case Ensure(path=path):
                return path not in self.nodes
            case Remove(path=path) | RemoveBelow(path=path):
                return path in self.nodes
            case _:
                return True

    def put(self, path: str, data: bytes) -> None:
        """A foreign write, made or replaced, parents and all."""
        parents = [path[:at] for at in range(1, len(path)) if path[at] == "/"]
        assert self.commit([*(Ensure(parent) for parent in parents), Put(path, data)])

    def remove(self, path: str) -> None:
        """A foreign recursive delete."""
        self.nodes = {name: node for name, node in self.nodes.items() if not f"{name}/".startswith(f"{path}/")}
        self.zxid += 1

    def children(self, path: str) -> list[str]:
        names = (name.removeprefix(f"{path}/") for name in self.nodes if name.startswith(f"{path}/"))
        return sorted(name for name in names if "/" not in name)

    # ------------------------------------------------------------------ as a broker

    def register(self, broker: Broker) -> Broker:
        """A new registration; the broker epoch is its czxid."""
        self.nodes.pop(broker_path(broker.broker_id), None)
        znode = BrokerZnode(broker.host, broker.port, broker.endpoints, broker.rack, {"HTTP": "PLAINTEXT"}, {})
        self.put(broker_path(broker.broker_id), encode(znode))
        return self.brokers()[broker.broker_id]

    # ------------------------------------------------------------------ as a store reads

    def brokers(self) -> dict[int, Broker]:
        ids = sorted(int(name) for name in self.children(BROKER_IDS))
        nodes = {broker_id: self.nodes[broker_path(broker_id)] for broker_id in ids}
        return {broker_id: decode_broker(node.data, broker_id, node.czxid) for broker_id, node in nodes.items()}

    def brokers_seen(self) -> BrokersSeen:
        return BrokersSeen(self.brokers(), self.zxid)

    def topic_fact(self, name: str) -> TopicFact:
        node = self.nodes[topic_path(name)]
        try:
            topic_id, assignment = decode_topic(node.data)
        except FormatError as error:
            return TopicFact(name, node.version, node.czxid, self.zxid, trouble=str(error))
        return TopicFact(name, node.version, node.czxid, self.zxid, topic_id, assignment)

    def topics_seen(self) -> TopicsSeen:
        names = self.children(TOPICS)
        return TopicsSeen([self.topic_fact(name) for name in names], self.zxid, frozenset(names))

    def state_fact(self, topic: str, partition: int) -> StateFact:
        node = self.nodes.get(state_path(topic, partition))
        if node is None:
            return StateFact(topic, partition, None, -1, self.zxid)
        try:
            return StateFact(topic, partition, decode_state(node.data), node.version, self.zxid)
        except FormatError as error:
            return StateFact(topic, partition, None, node.version, self.zxid, trouble=str(error))

    def states_seen(self, *partitions: tuple[str, int], notifications: Iterable[str] = ()) -> StatesSeen:
        return StatesSeen([self.state_fact(*one) for one in partitions], dict.fromkeys(notifications, 0))

    def markers(self) -> dict[str, bool]:
        return {name: decode_marker(self.nodes[marker_path(name)].data) for name in self.children(DELETE_TOPICS)}

    def deletions_seen(self) -> DeletionsSeen:
        return DeletionsSeen(self.markers(), self.zxid)

    def new_term(self, controller_epoch: int) -> tuple[Cluster, TermStarted]:
        """Returns the cluster that a new controller loads, and the event that starts its term."""
        cluster = Cluster(controller_id=1, controller_epoch=controller_epoch)
        facts = self.topics_seen().facts
        states = [self.state_fact(fact.name, number) for fact in facts for number in fact.assignment]
        duties, stale_ids = self._duties()
        cluster.load(facts, states, duties, self.brokers())
        found = found_states(states, controller_epoch)
        return cluster, TermStarted(self.brokers(), self.zxid, found, self.markers(), stale_ids)

    def _duties(self) -> tuple[Duties, frozenset[int]]:
        """Returns the notes beside topics; and the noted brokers that are in another incarnation now."""
        epochs = {broker_id: broker.epoch for broker_id, broker in self.brokers().items()}
        drains = {int(b): decode(node.data, DrainZnode) for b, node in self._below(DRAINING)}
        failed = {int(b): decode(node.data, FailedDirsZnode) for b, node in self._below(FAILED_DIRS)}
        duties = Duties()
        for table, path in ((duties.topic_configs, CONFIG_TOPICS), (duties.broker_configs, CONFIG_BROKERS)):
            table.update((name, decode(node.data, ConfigZnode).config) for name, node in self._below(path))
        duties.drains = {
            b: Drain(drain.broker_epoch, drain.by == "shutdown")
            for b, drain in drains.items()
            if epochs.get(b) == drain.broker_epoch
        }
        duties.suspect_ids = frozenset(b for b, one in failed.items() if epochs.get(b) == one.broker_epoch)
        duties.noted = {int(b): decode(node.data, KnownBrokerZnode) for b, node in self._below(KNOWN_BROKERS)}
        duties.terms = {int(epoch): decode(node.data, TermZnode) for epoch, node in self._below(TERMS)}
        return duties, frozenset((drains.keys() - duties.drains.keys()) | (failed.keys() - duties.suspect_ids))

    def _below(self, path: str) -> list[tuple[str, Node]]:
        return [(name, self.nodes[f"{path}/{name}"]) for name in self.children(path)]


def _takes(nodes: dict[str, Node], write: Write, zxid: int) -> bool:
    path = write.path
    known, parent = nodes.get(path), path.rpartition("/")[0]
    match write:
        case Ensure():
            if known is None:
                nodes[path] = Node(b"", 0, zxid, zxid)
        case Put(data=data):
            version, czxid = (0, zxid) if known is None else (known.version + 1, known.czxid)
            nodes[path] = Node(data, version, czxid, zxid)
        case Create(data=data, sequential=True):
            nodes[f"{path}{len(nodes):010}"] = Node(data, 0, zxid, zxid)
        case Create(data=data):
            if known is not None or (parent.startswith(f"{TOPICS}/") and parent not in nodes):
                return False
            nodes[path] = Node(data, 0, zxid, zxid)
        case Set(data=data, version=version):
            if known is None or known.version != version:
                return False
            nodes[path] = Node(data, version + 1, known.czxid, zxid)
        case Delete(version=version):
            if known is None or known.version != version:
                return False
            del nodes[path]
        case RemoveBelow():
            for below in [other for other in nodes if other.startswith(f"{path}/")]:
                del nodes[below]
            nodes.pop(path, None)
        case Remove():
            if any(other.startswith(f"{path}/") for other in nodes):
                return False
            nodes.pop(path, None)
    return True
