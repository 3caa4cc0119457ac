"""The changes that duties ask for: deletions, drains, request nodes, configuration, failed directories.

As all changes (`cluster.py`): each is one thing that should become true, and its class says all about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from controller.core import formats
from controller.core.belief import moves
from controller.core.belief.duties import Deletion, Drain, keep
from controller.core.belief.id_searches import IdAnswer, IdSearch, claims_said
from controller.core.belief.kept_states import dropped_key
from controller.core.bitset import bits_of
from controller.core.causes import Cause, Failure
from controller.core.changes.aspects import BelievesNothing, MovesNothing, SaysNothing, TellsNobody, WritesNothing
from controller.core.codes import name_of
from controller.core.formats import TermZnode, known_broker_for
from controller.core.model import Broker, BrokerRefusal, Replicas
from controller.core.operations import Create, Delete, Set
from controller.core.project.requests import EPOCH_DURING_DELETE, NO_EPOCH
from controller.core.project.znodes import (
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    CONTROLLER,
    DRAINING,
    FAILED_DIRS,
    KNOWN_BROKERS,
    PRODUCER_IDS,
    REASSIGN,
    TERMS,
    Put,
    Remove,
    RemoveBelow,
    Write,
    config_path,
    known_broker_path,
    marker_path,
    parents_of,
    partitions_path,
    state_path,
    topic_path,
)
from controller.core.states import PartitionStatus, ReplicaStatus, Status

if TYPE_CHECKING:
    from controller.core.belief.cluster import Cluster
    from controller.core.belief.kept_states import Mover
    from controller.core.changes.cluster import Committed
    from controller.core.project.lines import Line, Stamp, Stamped
    from controller.core.project.requests import Draft

_P, _R = PartitionStatus, ReplicaStatus
_DELETED: Final = Cause.TOPIC_DELETED.value


def topic_subject(name: str) -> str:
    return f"topic {name}"


def broker_subject(broker_id: int) -> str:
    return f"broker {broker_id}"


def node_subject(path: str) -> str:
    return f"node {path}"


def config_subject(kind: str, entity: str) -> str:
    return topic_subject(entity) if kind == "topics" else node_subject(config_path(kind, entity))


class OfTopic(msgspec.Struct, frozen=True):
    """A change whose subject is a topic."""

    topic: str

    @property
    def subject(self) -> str:
        return topic_subject(self.topic)


class OfBroker(msgspec.Struct, frozen=True):
    """A change whose subject is a broker."""

    broker_id: int

    @property
    def subject(self) -> str:
        return broker_subject(self.broker_id)


class DeletionMarked(MovesNothing, TellsNobody, SaysNothing, OfTopic, frozen=True):
    """Write a topic's deletion marker: from here on the deletion is durable."""

    abandon_offline: bool

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.deletions.setdefault(self.topic, Deletion()).abandon_offline = self.abandon_offline

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        return (Put(marker_path(self.topic), formats.encode_marker(abandon_offline=self.abandon_offline)),)

    def target_path(self, cluster: Cluster) -> str | None:
        return marker_path(self.topic)


class DeletionQueued(WritesNothing, OfTopic, frozen=True):
    """Believe a deletion marker. Unless something holds it, the topic is led no more, and everybody forgets it."""

    abandon_offline: bool
    is_held: bool = False

    def move(self, cluster: Cluster, mover: Mover) -> None:
        known = cluster.topics.get(self.topic)
        if self.is_held or known is None or cluster.duties.is_leaving(self.topic):
            return
        mover.partitions(self.topic, bits_of(known.partitions), _P.OFFLINE, cause=Cause.TOPIC_DELETED)
        for broker_id, bits in moves.replicas_by_broker(known.partitions).items():
            mover.replicas(broker_id, self.topic, bits, _R.OFFLINE, cause=Cause.TOPIC_DELETED)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        deletion = cluster.duties.deletions.setdefault(self.topic, Deletion())
        deletion.abandon_offline, deletion.is_queued = self.abandon_offline, not self.is_held
        if not self.is_held:  # brokers are told of it only to delete it, and the deletion reports refusals
            cluster.duties.forget_refusals(self.topic)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        """A broker that shuts down has stopped already, and no broker serves a replica on a failed directory."""
        name, leaving = self.topic, cluster.topics.get(self.topic)
        if self.is_held or leaving is None or leaving.topic_id is None:
            return
        key = name, leaving.topic_id
        draft.removed[key] = tuple(leaving.partitions)
        if cluster.duties.deletions[name].replicas:
            return  # it began before
        leaving_ids, failed_dirs = cluster.leaving_ids, cluster.duties.failed_dirs
        for number, known in leaving.partitions.items():
            for broker_id in known.replicas:
                if broker_id not in leaving_ids and (name, number) not in failed_dirs.get(broker_id, ()):
                    draft.stop(broker_id, key, number, EPOCH_DURING_DELETE, delete=False)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        if not self.is_held:
            ids = {"topic": self.topic, "topic_id": cluster.topic_id(self.topic)}
            yield stamped(kind="topic", target="deleting", cause=_DELETED, **ids)


class DeletionWaits(MovesNothing, WritesNothing, TellsNobody, OfTopic, frozen=True):
    """A deletion cannot go on, and why; None: it can again. It is looked at again when the term's
    clock says `retry_at_ms`."""

    reason: str | None
    retry_at_ms: int | None = None

    def believe(self, cluster: Cluster, one: Committed) -> None:
        deletion = cluster.duties.deletions[self.topic]
        deletion.failures += self.retry_at_ms is not None and self.retry_at_ms != deletion.retry_at_ms
        deletion.waits_for, deletion.retry_at_ms = self.reason, self.retry_at_ms

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        if self.reason is not None:
            ids = {"topic": self.topic, "topic_id": cluster.topic_id(self.topic)}
            yield stamped(kind="topic", target="waiting", reason=self.reason, cause=_DELETED, **ids)


class ReplicasMoved(WritesNothing, OfTopic, frozen=True):
    """Replicas of a topic being deleted moved, state by state; those that start are told to delete."""

    replicas: tuple[tuple[int, int], ...]  # partition and broker id
    way: tuple[ReplicaStatus, ...]

    @property
    def target(self) -> ReplicaStatus:
        return self.way[-1]

    def move(self, cluster: Cluster, mover: Mover) -> None:
        by_broker: dict[int, list[int]] = {}
        for number, broker_id in self.replicas:
            by_broker.setdefault(broker_id, []).append(number)
        for broker_id, numbers in by_broker.items():
            mover.replicas(broker_id, self.topic, bits_of(numbers), *self.way, cause=Cause.TOPIC_DELETED)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.deletions[self.topic].move(self.replicas, self.target)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        topic_id = cluster.topics[self.topic].topic_id if self.target is _R.DELETION_STARTED else None
        if topic_id is not None:
            for number, broker_id in self.replicas:
                draft.stop(broker_id, (self.topic, topic_id), number, EPOCH_DURING_DELETE)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        topic_id = cluster.topic_id(self.topic)
        for number, broker_id in self.replicas:
            ids = {"partition": number, "broker_id": broker_id, "topic_id": topic_id, "cause": _DELETED}
            yield stamped(kind="replica", topic=self.topic, target=self.target.value, **ids)


class DroppedMoved(WritesNothing, SaysNothing, OfTopic, frozen=True):
    """Replicas on one broker that a reassignment dropped moved, state by state; those that start are told to delete."""

    topic_id: str
    broker_id: int
    partitions: tuple[int, ...]
    way: tuple[ReplicaStatus, ...]
    #: how often the broker refused, and when it is told again, by the term's clock
    failures: int = 0
    retry_at_ms: int = 0

    def move(self, cluster: Cluster, mover: Mover) -> None:
        key = dropped_key(self.topic, self.topic_id)
        mover.replicas(self.broker_id, key, bits_of(self.partitions), *self.way, cause=Cause.REASSIGNMENT)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        """How often a broker refused is remembered until it has deleted all that it was told to."""
        key = dropped_key(self.topic, self.topic_id)
        dropped = cluster.duties.dropped[key][self.broker_id]
        dropped.failures, dropped.retry_at_ms = self.failures, self.retry_at_ms
        cluster.forget_deleted(key)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        if self.way[-1] is _R.DELETION_STARTED:
            told = cluster.duties.dropped[dropped_key(self.topic, self.topic_id)][self.broker_id]
            for number in self.partitions:
                draft.stop(self.broker_id, (self.topic, self.topic_id), number, told.leader_epochs[number])


class ReplicasStopped(WritesNothing, SaysNothing, OfTopic, frozen=True):
    """Replicas on a live broker that shuts down go offline and are stopped; they were in no ISR."""

    broker_id: int
    partitions: tuple[int, ...]

    def move(self, cluster: Cluster, mover: Mover) -> None:
        if mover.is_trial or self.broker_id in cluster.leaving_ids:
            cause = Cause.CONTROLLED_SHUTDOWN
            mover.replicas(self.broker_id, self.topic, bits_of(self.partitions), _R.OFFLINE, cause=cause)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        """Its replicas move, and nothing else."""

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        topic = cluster.topics[self.topic]
        if self.broker_id not in cluster.leaving_ids or topic.topic_id is None:
            return
        for number in self.partitions:
            stopped = topic.partitions[number].state
            epoch = NO_EPOCH if stopped is None else stopped.leader_epoch
            draft.stop(self.broker_id, (self.topic, topic.topic_id), number, epoch, delete=False)


class StateMembers(msgspec.Struct, frozen=True):
    """Which partitions, or replicas on one broker, are in a state: topic -> bits."""

    status: Status
    broker_id: int | None
    topics: Mapping[str, int]


class TermFound(MovesNothing, BelievesNothing, WritesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """Say in which state a term finds partitions and replicas: how many there are, and which are not online."""

    partitions: int
    replicas: int
    held: tuple[StateMembers, ...]

    @property
    def subject(self) -> str:
        return node_subject(CONTROLLER)


class ElectionsFailed(MovesNothing, BelievesNothing, WritesNothing, TellsNobody, SaysNothing, OfTopic, frozen=True):
    """Log that elections of these partitions (bits) chose no leader. No state changes by it."""

    failure: Failure
    bits: int
    cause: Cause


class PartitionErased(MovesNothing, BelievesNothing, TellsNobody, SaysNothing, OfTopic, frozen=True):
    """Remove one partition's znodes."""

    partition: int

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        path = state_path(self.topic, self.partition)
        return Remove(path), Remove(path.rpartition("/")[0])

    def target_path(self, cluster: Cluster) -> str | None:
        return partitions_path(self.topic)


class TopicErased(TellsNobody, OfTopic, frozen=True):
    """Remove the rest of a topic: its znode, its configuration, its marker last. Then it is forgotten."""

    topic_id: str | None
    partitions: tuple[int, ...]

    def move(self, cluster: Cluster, mover: Mover) -> None:
        moves.forgotten(cluster, self.topic, Cause.TOPIC_DELETED, mover)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.forget_topic(self.topic)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        """The marker last: until then a successor goes on."""
        paths = (topic_path(self.topic), f"{CONFIG_TOPICS}/{self.topic}", marker_path(self.topic))
        return (RemoveBelow(partitions_path(self.topic)), *(Remove(path) for path in paths))

    def target_path(self, cluster: Cluster) -> str | None:
        return partitions_path(self.topic)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        ids = {"topic": self.topic, "topic_id": self.topic_id, "zxid": one.zxid or None}
        yield stamped(kind="topic", target="deleted", cause=_DELETED, **ids)


class MarkerDropped(MovesNothing, TellsNobody, SaysNothing, OfTopic, frozen=True):
    """Remove a deletion marker without deleting: the topic is unknown, or deletion is not allowed."""

    reason: str

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.deletions.pop(self.topic, None)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        return (Remove(marker_path(self.topic)),)

    def target_path(self, cluster: Cluster) -> str | None:
        return marker_path(self.topic)


class OfDrain(msgspec.Struct, frozen=True):
    """The note of a broker's drain. A subject of its own: a broker does not live or die by it."""

    broker_id: int

    @property
    def path(self) -> str:
        return f"{DRAINING}/{self.broker_id}"

    @property
    def subject(self) -> str:
        return node_subject(self.path)


class DrainGranted(MovesNothing, OfDrain, frozen=True):
    """A broker incarnation is to lead nothing; with `is_shutdown`, also to be in no ISR that can do without it."""

    epoch: int
    is_shutdown: bool

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.drains[self.broker_id] = Drain(self.epoch, self.is_shutdown)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        data = formats.encode(formats.DrainZnode(self.epoch, "shutdown" if self.is_shutdown else "hand"))
        return (*parents_of(DRAINING), Put(self.path, data))

    def target_path(self, cluster: Cluster) -> str | None:
        return self.path

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        draft.brokers_changed = True

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        reason, cause = ("shuts down", Cause.CONTROLLED_SHUTDOWN) if self.is_shutdown else ("by hand", Cause.DRAIN)
        ids = {"broker_id": self.broker_id, "broker_epoch": self.epoch}
        yield stamped(kind="broker", target="draining", reason=reason, cause=cause.value, **ids)


class DrainEnded(MovesNothing, OfDrain, frozen=True):
    """A drain is over: by hand, or with the registration it was granted to."""

    reason: str

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.drains.pop(self.broker_id, None)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        return (Remove(self.path),)

    def target_path(self, cluster: Cluster) -> str | None:
        return self.path

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        draft.brokers_changed = True

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        if self.broker_id in cluster.brokers:
            said = {"source": "draining", "target": "live", "reason": self.reason}
            yield stamped(kind="broker", broker_id=self.broker_id, **said)


class BrokerNoted(MovesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """Write a registration down, so that a broker stays known when it is gone, over terms too. A subject of its own:
    a broker does not live or die by it."""

    broker: Broker

    @property
    def subject(self) -> str:
        return node_subject(known_broker_path(self.broker.broker_id))

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.noted[self.broker.broker_id] = known_broker_for(self.broker)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        data = formats.encode(known_broker_for(self.broker))
        return (*parents_of(KNOWN_BROKERS), Put(known_broker_path(self.broker.broker_id), data))

    def target_path(self, cluster: Cluster) -> str | None:
        return known_broker_path(self.broker.broker_id)


class BrokerForgotten(MovesNothing, OfBroker, frozen=True):
    """Remove the notes about a broker that is gone: it is known no more."""

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.gone.pop(self.broker_id, None)
        cluster.duties.noted.pop(self.broker_id, None)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        return (Remove(known_broker_path(self.broker_id)),)

    def target_path(self, cluster: Cluster) -> str | None:
        return known_broker_path(self.broker_id)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        draft.brokers_changed = True

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        said = {"reason": "asked", "cause": Cause.BROKER_FORGOTTEN.value}
        yield stamped(kind="broker", broker_id=self.broker_id, source="gone", target="forgotten", **said)


class FailedDirsFound(WritesNothing, OfBroker, frozen=True):
    """Which replicas of a broker incarnation lie on failed directories, all of them: (topic, partition)."""

    epoch: int
    failed: frozenset[tuple[str, int]]
    #: those that had failed and are served again
    mended: frozenset[tuple[str, int]] = frozenset()

    def move(self, cluster: Cluster, mover: Mover) -> None:
        """Replicas on a failed directory are offline though their broker lives, as are partitions that they led."""
        before = cluster.duties.failed_dirs.get(self.broker_id, frozenset())
        for target, cause, keys in (
            (_R.OFFLINE, Cause.DISK_FAILED, self.failed - before),
            (_R.ONLINE, Cause.DISK_MENDED, self.mended),
        ):
            by_topic: dict[str, list[int]] = {}
            for topic, number in sorted(keys):
                known = cluster.partition(topic, number)
                is_assigned = known is not None and self.broker_id in known.replicas
                if is_assigned and not cluster.duties.is_leaving(topic):
                    by_topic.setdefault(topic, []).append(number)
            for topic, numbers in by_topic.items():
                mover.replicas(self.broker_id, topic, bits_of(numbers), target, cause=cause)
                led = moves.led_by(self.broker_id, cluster.topics[topic].partitions, numbers)
                if led and target is _R.OFFLINE:
                    mover.partitions(topic, bits_of(led), _P.OFFLINE, cause=cause)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        keep(cluster.duties.failed_dirs, self.broker_id, self.failed)
        cluster.duties.suspect_ids -= {self.broker_id}

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        for topic, number in self.failed | self.mended:
            draft.tell(topic, (number,))

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        if not (self.failed or self.mended):
            return
        counts = f"{len(self.failed)} replicas cannot be served, {len(self.mended)} can be again"
        cause = Cause.DISK_FAILED if self.failed else Cause.DISK_MENDED
        said = {"source": "live", "target": "live", "reason": f"log directories: {counts}", "cause": cause.value}
        yield stamped(kind="broker", broker_id=self.broker_id, **said)


class FailedDirsNoted(MovesNothing, BelievesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """Write down whether a broker incarnation has replicas on failed directories. A subject of its own, as a drain is:
    elections do not wait for it."""

    broker_id: int
    epoch: int
    has_failed: bool

    @property
    def path(self) -> str:
        return f"{FAILED_DIRS}/{self.broker_id}"

    @property
    def subject(self) -> str:
        return node_subject(self.path)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        if not self.has_failed:
            return (Remove(self.path),)
        return (*parents_of(FAILED_DIRS), Put(self.path, formats.encode(formats.FailedDirsZnode(self.epoch))))

    def target_path(self, cluster: Cluster) -> str | None:
        return self.path


class ReplicasProbed(MovesNothing, BelievesNothing, WritesNothing, SaysNothing, OfBroker, frozen=True):
    """Ask a broker for all its replicas by a LeaderAndIsr whose only purpose is the answer."""

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        draft.probed_ids.add(self.broker_id)


class TopicAsked(MovesNothing, BelievesNothing, WritesNothing, SaysNothing, OfTopic, frozen=True):
    """Ask brokers for a topic's ids, and the leader epochs of its partitions."""

    broker_ids: frozenset[int]

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        draft.asked[self.topic] = draft.asked.get(self.topic, frozenset()) | self.broker_ids


class RefusalsFound(MovesNothing, WritesNothing, TellsNobody, OfBroker, frozen=True):
    """The states that a broker incarnation refuses, and those that it refuses no more: (topic, partition)."""

    refused: Mapping[tuple[str, int], BrokerRefusal]
    #: of these, refusals that are new, or have another reason
    begun: frozenset[tuple[str, int]] = frozenset()
    ended: tuple[tuple[str, int], ...] = ()

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.believe_refusals(self.broker_id, self.refused, self.ended)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        """One for each replica whose broker begins to refuse its state, or ends to."""
        told = [(key, self.refused[key]) for key in sorted(self.begun)]
        for (topic, number), refusal in (*told, *((key, None) for key in self.ended)):
            said: dict[str, object] = {"target": "obeyed"}
            if refusal is not None:
                epoch = f" with leader epoch {refusal.told_epoch}" if refusal.told_epoch >= 0 else ""
                reason = f"{refusal.request}{epoch}: {name_of(refusal.code)}"
                said = {"target": "refused", "reason": reason, "error_code": refusal.code}
            if topic:
                ids = {"topic": topic, "partition": number, "topic_id": cluster.topic_id(topic)}
                yield stamped(kind="replica", broker_id=self.broker_id, **ids, **said)
            else:
                yield stamped(kind="broker", broker_id=self.broker_id, **said)


class RepeatedTo(WritesNothing, SaysNothing, OfBroker, frozen=True):
    """Tell a broker again the standing state of these partitions; of none: everything."""

    partitions: tuple[tuple[str, int], ...]

    def move(self, cluster: Cluster, mover: Mover) -> None:
        if self.partitions or self.broker_id not in cluster.leaving_ids:
            return
        for topic, offline in list(mover.states.replicas_in(self.broker_id, _R.OFFLINE).items()):
            moves.resumed(cluster, topic, offline, self.broker_id, Cause.CONTROLLED_SHUTDOWN, mover)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        """Replicas that it is told to serve again move, and nothing else."""

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        draft.repeated[self.broker_id] = self.partitions


class TopicIdSought(MovesNothing, WritesNothing, TellsNobody, SaysNothing, OfTopic, frozen=True):
    """A topic has no id: it is searched for, until this moment of the term's clock at most."""

    until_ms: int

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.ids.open[self.topic] = IdSearch(self.until_ms)


class TopicIdAnswered(MovesNothing, WritesNothing, TellsNobody, SaysNothing, OfTopic, frozen=True):
    """A broker's ids for a topic whose id is searched for."""

    broker_id: int
    answer: IdAnswer

    def believe(self, cluster: Cluster, one: Committed) -> None:
        search = cluster.duties.ids.open[self.topic]
        answers = {**search.answers, self.broker_id: self.answer}
        cluster.duties.ids.open[self.topic] = IdSearch(search.until_ms, answers)


class TopicIdTaken(MovesNothing, WritesNothing, TellsNobody, SaysNothing, OfTopic, frozen=True):
    """A topic's id is searched for no more. `in_doubt`: brokers with replicas that did not answer."""

    in_doubt: frozenset[int]

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.ids.close(self.topic, self.in_doubt)


class TopicIdDisputed(MovesNothing, WritesNothing, TellsNobody, OfTopic, frozen=True):
    """More than one id is known for a topic, by these brokers (none: its znode): no broker is told of the topic until
    an id is decided."""

    claims: Mapping[str, tuple[int, ...]]
    in_doubt: frozenset[int]

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.ids.close(self.topic, self.in_doubt)
        cluster.duties.ids.disputes[self.topic] = self.claims

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        ids = {"topic": self.topic, "topic_id": cluster.topic_id(self.topic)}
        yield stamped(kind="topic", target="disputed", reason=claims_said(self.claims), **ids)


class TopicIdDropped(MovesNothing, BelievesNothing, WritesNothing, SaysNothing, OfTopic, frozen=True):
    """An id that a topic had is not its id: requests under it are taken back."""

    topic_id: str
    partitions: tuple[int, ...]

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        draft.removed[self.topic, self.topic_id] = self.partitions


class TopicIdGiven(MovesNothing, WritesNothing, OfTopic, frozen=True):
    """The id in a topic's znode is its id, by decision of its writer: brokers are told all of the topic."""

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.forget_refusals(self.topic)
        cluster.duties.ids.close(self.topic)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        for number in cluster.topics[self.topic].partitions:
            draft.lead(self.topic, number)  # nothing could be told of it while it had no id

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        yield stamped(kind="topic", target="decided", topic=self.topic, topic_id=cluster.topic_id(self.topic))


class OfConfig(msgspec.Struct, frozen=True):
    """The overrides of a topic or a broker, whole."""

    kind: str  # topics or brokers
    entity: str
    values: Mapping[str, str]

    @property
    def subject(self) -> str:
        return config_subject(self.kind, self.entity)


class ConfigFound(MovesNothing, WritesNothing, TellsNobody, SaysNothing, OfConfig, frozen=True):
    """Believe overrides that were read."""

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.configure(self.kind, self.entity, self.values)


class ConfigWritten(MovesNothing, TellsNobody, OfConfig, frozen=True):
    """Write overrides, and a notification of it."""

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.configure(self.kind, self.entity, self.values)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        entity_path = f"{self.kind}/{self.entity}"
        notification = formats.encode(formats.ConfigChangeZnode(version=2, entity_path=entity_path))
        return (
            Create(f"{CONFIG_CHANGES}/config_change_", notification, sequential=True),
            Put(config_path(self.kind, self.entity), formats.encode(formats.ConfigZnode(dict(self.values)))),
        )

    def target_path(self, cluster: Cluster) -> str | None:
        return config_path(self.kind, self.entity)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        if self.kind == "topics":
            yield stamped(kind="topic", topic=self.entity, target="configured", zxid=one.zxid or None)


class ReassignNodeWritten(MovesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """The plan that is left in `/admin/reassign_partitions`; none: the node is removed."""

    targets: Mapping[tuple[str, int], Replicas]

    @property
    def subject(self) -> str:
        return node_subject(REASSIGN)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        duties = cluster.duties
        duties.reassign_targets = self.targets
        known = duties.reassign_version
        duties.reassign_version = None if not self.targets or known is None else known + 1

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        known = cluster.duties.reassign_version
        if known is None:
            return ()
        targets = self.targets
        return (Set(REASSIGN, formats.encode_targets(targets), known) if targets else Delete(REASSIGN, known),)

    def target_path(self, cluster: Cluster) -> str | None:
        return REASSIGN


class ReassignNodeFound(MovesNothing, WritesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """Believe `/admin/reassign_partitions` (None: it is not there)."""

    targets: Mapping[tuple[str, int], Replicas]
    version: int | None

    @property
    def subject(self) -> str:
        return node_subject(REASSIGN)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.reassign_targets, cluster.duties.reassign_version = self.targets, self.version


class NodeRemoved(MovesNothing, BelievesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """Remove a request node that was carried out, or that made no sense."""

    path: str
    version: int
    reason: str

    @property
    def subject(self) -> str:
        return node_subject(self.path)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        return (Delete(self.path, self.version),)

    def target_path(self, cluster: Cluster) -> str | None:
        return self.path


class ProducerIdsFound(MovesNothing, WritesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """Believe `/latest_producer_id_block` (version None: it is not there)."""

    next_id: int
    version: int | None

    @property
    def subject(self) -> str:
        return node_subject(PRODUCER_IDS)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.next_producer_id = self.next_id
        cluster.duties.producer_ids_version = self.version


class ProducerIdsGranted(MovesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """Give a block of producer ids to a broker: from `start` on, so many."""

    broker_id: int
    start: int
    size: int

    @property
    def subject(self) -> str:
        return node_subject(PRODUCER_IDS)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        duties = cluster.duties
        duties.next_producer_id = self.start + self.size
        known = duties.producer_ids_version
        duties.producer_ids_version = 0 if known is None else known + 1

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        last = self.start + self.size - 1
        block = formats.encode(formats.ProducerIdsZnode(self.broker_id, str(self.start), str(last)))
        known = cluster.duties.producer_ids_version
        return (Create(PRODUCER_IDS, block) if known is None else Set(PRODUCER_IDS, block, known),)

    def target_path(self, cluster: Cluster) -> str | None:
        return PRODUCER_IDS


class TermRecorded(MovesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """Write down a term; None: it is too long ago."""

    controller_epoch: int
    record: TermZnode | None

    @property
    def path(self) -> str:
        return f"{TERMS}/{self.controller_epoch}"

    @property
    def subject(self) -> str:
        return node_subject(self.path)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        if self.record is None:
            cluster.duties.terms.pop(self.controller_epoch, None)
        else:
            cluster.duties.terms[self.controller_epoch] = self.record

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        if self.record is None:
            return (Remove(self.path),)
        return (*parents_of(TERMS), Put(self.path, formats.encode(self.record)))

    def target_path(self, cluster: Cluster) -> str | None:
        return self.path


class OperatorErrorReported(MovesNothing, BelievesNothing, WritesNothing, TellsNobody, msgspec.Struct, frozen=True):
    """Something that an operator did makes no sense: said once in the log."""

    subject: str
    trouble: str

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        yield stamped(kind="controller", target="reported", reason=f"{self.subject}: {self.trouble}")


DutyChange = (
    DeletionMarked
    | DeletionQueued
    | DeletionWaits
    | ReplicasMoved
    | DroppedMoved
    | ReplicasStopped
    | ElectionsFailed
    | TermFound
    | PartitionErased
    | TopicErased
    | MarkerDropped
    | DrainGranted
    | DrainEnded
    | BrokerNoted
    | BrokerForgotten
    | FailedDirsFound
    | FailedDirsNoted
    | ReplicasProbed
    | TopicAsked
    | RefusalsFound
    | RepeatedTo
    | TopicIdSought
    | TopicIdAnswered
    | TopicIdTaken
    | TopicIdDisputed
    | TopicIdDropped
    | TopicIdGiven
    | ConfigFound
    | ConfigWritten
    | ReassignNodeWritten
    | ReassignNodeFound
    | NodeRemoved
    | ProducerIdsFound
    | ProducerIdsGranted
    | TermRecorded
    | OperatorErrorReported
)
