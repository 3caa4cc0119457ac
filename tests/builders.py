"""Clusters as literals, and one round of the loop without I/O, so that a test shows its cluster at a glance.

    cluster = a_cluster(orders=[[1, 2, 3], [2, 3, 1]], live=(1, 2, 3))
    settled = settle(cluster, brokers_seen(1, 3))

`settle` decides, commits on a model ZooKeeper exactly as the store would (versions checked against the model's),
applies and projects. It must never be cleverer than the loop: no retries, nothing hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.belief.kept_states import Move
from controller.core.causes import Cause
from controller.core.changes.cluster import (
    BrokerLive,
    BrokerMissing,
    Change,
    Committed,
    Refused,
    StateDecided,
)
from controller.core.decide.dispatch import decide
from controller.core.events import BrokersSeen, Event, IsrProposal, KnownId, StateFact, TopicFact, TopicsDescribed
from controller.core.formats import encode_state, encode_topic, known_broker_for
from controller.core.model import Assignment, Broker, Leadership, Partition
from controller.core.project.lines import Line, Stamp, grouped_lines, lines_for
from controller.core.project.requests import Telling, requests_for
from controller.core.project.znodes import (
    Write,
    partitions_path,
    state_path,
    topic_path,
)
from tests.core.model_zookeeper import ModelZooKeeper, Node

EPOCH = 7
#: zxid of everything that a literal cluster was loaded from; a later event happens after it
LOADED = 100
STAMP = Stamp(at_ms=1_000, cluster_id="c", controller_id=1, controller_epoch=EPOCH, event_id=f"{EPOCH}-1")


def a_broker(broker_id: int, epoch: int | None = None, rack: str | None = None, port: int | None = None) -> Broker:
    """Broker 2 listens on port 8082 and was registered at zxid 12, unless told otherwise."""
    port = 8080 + broker_id if port is None else port
    epoch = 10 + broker_id if epoch is None else epoch
    endpoints = (f"HTTP://127.0.0.1:{port}",)
    return Broker(broker_id, epoch, None, -1, endpoints, rack, {"HTTP": "PLAINTEXT"}, {})


def brokers(*members: int | Broker) -> dict[int, Broker]:
    listed = [one if isinstance(one, Broker) else a_broker(one) for one in members]
    return {broker.broker_id: broker for broker in listed}


def brokers_seen(*members: int | Broker, zxid: int = LOADED + 1) -> BrokersSeen:
    return BrokersSeen(brokers(*members), zxid)


def a_leadership(
    leader: int, isr: Sequence[int], epoch: int = 0, *, controller_epoch: int = EPOCH, recovery: int = 0
) -> Leadership:
    return Leadership(leader, epoch, tuple(isr), controller_epoch, recovery)


def topic_id_of(name: str) -> str:
    """The id that literal topics have: readable, and as long as Kafka's."""
    return f"{name:x<22}"[:22]


def a_topic_fact(name: str, *replicas: Sequence[int], **given: Any) -> TopicFact:
    """The content of a topic znode: `a_topic_fact("orders", [1, 2], [2, 1])`."""
    assignment = {number: Assignment(tuple(one)) for number, one in enumerate(replicas)}
    known = {"version": 0, "czxid": LOADED, "zxid": LOADED, "topic_id": topic_id_of(name), "assignment": assignment}
    return TopicFact(name, **{**known, **given})


def a_state_fact(
    topic: str, partition: int, state: Leadership | None, version: int = 1, zxid: int = LOADED + 1, **given: Any
) -> StateFact:
    return StateFact(topic, partition, state, version if state is not None else -1, zxid, **given)


def a_proposal(cluster: Cluster, topic: str, partition: int, /, *isr: int, **given: Any) -> IsrProposal:
    """The ISR that a leader with all of the controller's knowledge would ask for; `given` overrides a field."""
    known = cluster.topics[topic].partitions[partition]
    assert known.state is not None
    pairs = tuple((one, cluster.brokers[one].epoch if one in cluster.brokers else 0) for one in isr)
    fields: dict[str, Any] = {
        "topic_id": cluster.topics[topic].topic_id or "",
        "partition": partition,
        "leader_epoch": known.state.leader_epoch,
        "version": known.version,
        "recovery": known.state.recovery,
        "isr": pairs,
    }
    return IsrProposal(**{**fields, **given})


def a_cluster(
    *,
    live: Iterable[int | Broker] = (1, 2, 3),
    states: Mapping[str, Leadership | None] | None = None,
    ids: Mapping[str, str | None] | None = None,
    unclean: bool = False,
    version: int = 0,
    topics: Mapping[str, Sequence[Sequence[int]]] | None = None,
    **named: Sequence[Sequence[int]],
) -> Cluster:
    """A cluster led by its first replicas, all in sync. `states={"orders-0": a_leadership(2, [2])}` overrides one
    (None: never led); `ids={"orders": None}` takes a topic's id away."""
    states, ids = states or {}, ids or {}
    facts, found = [], []
    for name, replicas in {**(topics or {}), **named}.items():
        topic_id = ids.get(name, topic_id_of(name))
        facts.append(a_topic_fact(name, *replicas, topic_id=topic_id))
        for number, one in enumerate(replicas):
            state = states.get(f"{name}-{number}", a_leadership(one[0], one))
            if state is not None:
                found.append(StateFact(name, number, state, version, LOADED))
    cluster = Cluster(controller_id=1, controller_epoch=EPOCH, unclean_default=unclean)
    present = brokers(*live)
    cluster.load(facts, found, live_ids=present)
    cluster.apply(Committed(BrokerLive(broker, "literal", Cause.FOUND)) for broker in present.values())
    cluster.apply(Committed(BrokerMissing(one, Cause.FOUND)) for one in cluster.hosted.keys() - present.keys())
    return noted(cluster)


def noted(cluster: Cluster) -> Cluster:
    """Its registrations are written down: the clock has nothing to do about them."""
    cluster.duties.noted.update((broker.broker_id, known_broker_for(broker)) for broker in cluster.brokers.values())
    return cluster


def zookeeper_of(cluster: Cluster) -> ModelZooKeeper:
    """The znodes that belief was read from."""
    zookeeper = ModelZooKeeper(zxid=LOADED + 10)
    for name, topic in cluster.topics.items():
        assignment = {number: Assignment(one.replicas) for number, one in topic.partitions.items()}
        data = encode_topic(topic.topic_id or "", assignment)
        zookeeper.nodes[topic_path(name)] = Node(data, topic.version, topic.czxid, topic.zxid)
        for number, one in topic.partitions.items():
            if one.state is not None:
                path = state_path(name, number)
                for parent in (partitions_path(name), path.rpartition("/")[0]):
                    zookeeper.nodes.setdefault(parent, Node(b"", 0, LOADED, LOADED))
                zookeeper.nodes[path] = Node(encode_state(one.state), one.version, LOADED, one.zxid)
    return zookeeper


class Settled(msgspec.Struct):
    """The results of one event; one telling, one list of writes and one of lines per step."""

    steps: list[list[Change]] = []
    committed: list[Committed] = []
    conflicts: list[Change] = []
    writes: list[list[Write]] = []
    tellings: list[Telling] = []
    lines_by_step: list[list[Line]] = []
    moves: list[Move] = []

    @property
    def lines(self) -> list[Line]:
        return [line for lines in self.lines_by_step for line in lines]

    @property
    def changes(self) -> list[Change]:
        return [change for step in self.steps for change in step]

    @property
    def states(self) -> dict[str, Leadership]:
        """The leaderships that were written, by partition: `{"orders-0": …}`."""
        return {f"{c.topic}-{c.partition}": c.state for c in self.changes if isinstance(c, StateDecided)}

    @property
    def refusals(self) -> list[Refused]:
        return [change for change in self.changes if isinstance(change, Refused)]

    def of_states(self) -> list[StateDecided]:
        return [change for change in self.changes if isinstance(change, StateDecided)]

    def of(self, kind: type) -> list[Any]:
        return [change for change in self.changes if isinstance(change, kind)]


def steps_of(cluster: Cluster, event: Event, *, now_ms: int = 0, seed: int = 0, **limits: int) -> list[list[Change]]:
    """A decision, slices joined into the steps they belong to; a step without changes is left out."""
    steps: dict[int, list[Change]] = {}
    for one in decide(cluster, event, now_ms, seed, **limits):
        steps.setdefault(one.step, []).extend(one.changes)
    return [steps[number] for number in sorted(steps)]


def settle(
    cluster: Cluster,
    event: Event,
    zookeeper: ModelZooKeeper | None = None,
    *,
    now_ms: int = 0,
    seed: int = 0,
    stamp: Stamp = STAMP,
) -> Settled:
    """One event through decide, commit and believe, with its requests and lines. Without a ZooKeeper, one that belief
    was read from: then nothing may conflict. With one, a step with conflicts is the last, and they are reported."""
    model = zookeeper_of(cluster) if zookeeper is None else zookeeper
    settled = Settled(steps=steps_of(cluster, event, now_ms=now_ms, seed=seed))
    for step in settled.steps:
        done = len(model.log)
        committed = commit(cluster, model, step, settled.conflicts)
        settled.moves.extend(cluster.apply(committed))
        settled.committed.extend(committed)
        settled.writes.append(model.log[done:])
        settled.tellings.append(requests_for(cluster, committed))
        lines = [*lines_for(cluster, committed, stamp), *grouped_lines(committed, stamp)]
        settled.lines_by_step.append(lines)
        if settled.conflicts:
            assert zookeeper is not None, f"belief and its own ZooKeeper disagree: {settled.conflicts}"
            break
    return settled


def commit(
    cluster: Cluster, zookeeper: ModelZooKeeper, changes: Iterable[Change], conflicts: list[Change]
) -> list[Committed]:
    """Each change as a transaction of its own, with the writes projected from belief just before."""
    committed = []
    for change, writes in [(change, change.writes(cluster)) for change in changes]:
        if not writes:
            committed.append(Committed(change))
        elif zookeeper.commit(writes):
            node = zookeeper.nodes.get(writes[-1].path)
            version = None if node is None else node.version
            committed.append(Committed(change, version, zookeeper.zxid))
        else:
            conflicts.append(change)
    return committed


def knowing(broker: Broker, **ids: str | tuple[str, ...]) -> TopicsDescribed:
    """A broker's answer: the ids that it knows by topic, none where it says ""."""
    known = {name: (one,) if isinstance(one, str) else one for name, one in ids.items()}
    topics = {
        name: tuple(KnownId(one, is_told=True, is_held=True) for one in several if one)
        for name, several in known.items()
    }
    return TopicsDescribed(broker.broker_id, broker.epoch, topics)


def asked_of(settled: Settled) -> dict[int, list[str]]:
    """Returns for each broker the topics that it is asked about."""
    asked: dict[int, list[str]] = {}
    for telling in settled.tellings:
        for broker_id, names in telling.questions.items():
            asked.setdefault(broker_id, []).extend(names)
    return dict(sorted(asked.items()))


def believed(cluster: Cluster) -> dict[str, Partition]:
    return {str(partition): one for partition, one in cluster.all_partitions()}


def state_of(cluster: Cluster, topic: str, partition: int = 0) -> Leadership:
    known = cluster.partition(topic, partition)
    assert known is not None
    assert known.state is not None
    return known.state


def snapshot(cluster: Cluster) -> dict[str, Any]:
    """All of belief, detached from it: leaves are frozen, so copies of the containers suffice."""
    copied = {key: value.copy() if isinstance(value, dict) else value for key, value in vars(cluster).items()}
    copied["duties"] = deepcopy(vars(cluster.duties))
    copied["topics"] = {
        name: (one.topic_id, one.version, one.czxid, one.zxid, one.partitions.copy())
        for name, one in cluster.topics.items()
    }
    copied["hosted"] = {
        broker_id: {topic: frozenset(numbers) for topic, numbers in hosted.items()}
        for broker_id, hosted in cluster.hosted.items()
    }
    return copied
