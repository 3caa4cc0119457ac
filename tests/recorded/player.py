"""Our controller in the place of Kafka's, for one moment of a recording: belief from the tree before it, its cause as
an event, and the state after it on a model ZooKeeper.

Events are followed up as the loop follows them up; nothing here may be cleverer than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause
from controller.core.changes.cluster import BrokerLive, Committed
from controller.core.changes.duties import ConfigFound
from controller.core.decide.reassignment import due_after
from controller.core.events import (
    AlterPartitionAsked,
    DrainAsked,
    ElectAsked,
    Event,
    IsrProposal,
    ReassignAsked,
    StopReplicaAnswered,
    TermStarted,
    TimePassed,
)
from controller.core.formats import ConfigZnode, decode, decode_epoch, decode_state, decode_topic
from controller.core.model import Assignment, Leadership
from controller.core.project.znodes import (
    CONFIG_TOPICS,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    TOPICS,
    state_path,
)
from controller.core.states import ReplicaStatus
from tests.builders import settle
from tests.core.model_zookeeper import ModelZooKeeper, Node
from tests.recorded.moments import ASKED, Kind, Moment, partition_of
from tests.recordings import Tree, Write


class Seen(msgspec.Struct, frozen=True):
    """All that ZooKeeper says of one partition."""

    assignment: Assignment
    state: Leadership | None


class Picture(msgspec.Struct, frozen=True):
    """ZooKeeper's state of topics. `nodes`: topics, markers of deletion, configurations."""

    partitions: Mapping[str, Seen]
    nodes: frozenset[str]


def zookeeper_of(tree: Tree, zxid: int) -> ModelZooKeeper:
    zookeeper = ModelZooKeeper(zxid)
    zookeeper.nodes = {path: Node(one.data, one.version, one.czxid, one.mzxid) for path, one in tree.items()}
    return zookeeper


def picture_of(zookeeper: ModelZooKeeper) -> Picture:
    nodes, partitions = zookeeper.nodes, {}
    for topic in zookeeper.children(TOPICS):
        for number, assignment in decode_topic(nodes[f"{TOPICS}/{topic}"].data)[1].items():
            known = nodes.get(state_path(topic, number))
            partitions[f"{topic}-{number}"] = Seen(assignment, None if known is None else decode_state(known.data))
    parents = {TOPICS, DELETE_TOPICS, CONFIG_TOPICS}
    return Picture(partitions, frozenset(path for path in nodes if path.rpartition("/")[0] in parents))


def played(moment: Moment, before: Tree, at: Tree) -> ModelZooKeeper:
    """Returns the state after our controller's decision, given the trees before a moment and at its first write."""
    zookeeper = zookeeper_of(before if moment.kind in ASKED else at, moment.zxid)
    if moment.kind is Kind.CONTROLLER_CHANGED:
        cluster, started = taken_over(zookeeper)
        happens(cluster, started, zookeeper)
        return zookeeper
    then = zookeeper_of(before, moment.zxid - 1)
    cluster, _ = taken_over(then)
    cluster.apply(Committed(BrokerLive(one, "registered", Cause.FOUND)) for one in then.brokers().values())
    for event in events_of(moment, cluster, zookeeper):
        happens(cluster, event, zookeeper)
    return zookeeper


def taken_over(zookeeper: ModelZooKeeper) -> tuple[Cluster, TermStarted]:
    cluster, started = zookeeper.new_term(decode_epoch(zookeeper.nodes[CONTROLLER_EPOCH].data))
    for topic in zookeeper.children(CONFIG_TOPICS):
        values = decode(zookeeper.nodes[f"{CONFIG_TOPICS}/{topic}"].data, ConfigZnode).config
        cluster.apply([Committed(ConfigFound("topics", topic, values))])
    return cluster, started


def happens(cluster: Cluster, event: Event, zookeeper: ModelZooKeeper) -> None:
    settled = settle(cluster, event, zookeeper)
    assert settled.conflicts == []
    assert cluster.parked == {}
    due = due_after(cluster, settled.committed)
    if due is not None:
        happens(cluster, due, zookeeper)


def events_of(moment: Moment, cluster: Cluster, zookeeper: ModelZooKeeper) -> Iterator[Event]:
    match moment.kind:
        case Kind.BROKER_GONE | Kind.BROKER_CAME:
            yield zookeeper.brokers_seen()
        case Kind.TOPIC_CREATED | Kind.TOPIC_GROWN:
            yield zookeeper.topics_seen()
        case Kind.TOPIC_DELETED:
            yield zookeeper.deletions_seen()
            yield from answers_of_all(cluster)
        case Kind.REASSIGNED:
            yield ReassignAsked({(moment.topic, moment.partition): moment.target})
        case Kind.LEADER_ASKED:
            for write in moment.proposals:
                yield proposal_of(cluster, write)
        case Kind.SHUTDOWN_ASKED:
            yield DrainAsked(moment.broker_id, cluster.brokers[moment.broker_id].epoch, is_shutdown=True)
        case Kind.ELECTION_ASKED:
            yield ElectAsked(is_unclean=False)
        case Kind.BALANCED:
            yield TimePassed(is_balance_due=True)
        case Kind.CONTROLLER_CHANGED:
            raise AssertionError("a new controller loads first")


def answers_of_all(cluster: Cluster) -> Iterator[StopReplicaAnswered]:
    """Every broker has deleted the replicas that it was told to."""
    told: dict[int, set[tuple[str, int]]] = {}
    for topic, deletion in cluster.duties.deletions.items():
        for (number, broker_id), status in deletion.replicas.items():
            assert status is ReplicaStatus.DELETION_STARTED
            told.setdefault(broker_id, set()).add((cluster.topics[topic].topic_id or "", number))
    for broker_id, replicas in told.items():
        yield StopReplicaAnswered(broker_id, cluster.brokers[broker_id].epoch, frozenset(replicas))


def proposal_of(cluster: Cluster, write: Write) -> AlterPartitionAsked:
    """Returns the leader's request behind a write of its state."""
    topic, number = partition_of(write.path)
    wanted = decode_state((write.data or "").encode())
    known = cluster.topics[topic]
    isr = tuple((one, cluster.brokers[one].epoch) for one in wanted.isr)
    version = known.partitions[number].version
    proposal = IsrProposal(known.topic_id or "", number, wanted.leader_epoch, version, wanted.recovery, isr)
    return AlterPartitionAsked(wanted.leader, cluster.brokers[wanted.leader].epoch, [proposal])
