"""The changes: everything a decision can ask for. The only effect the core has.

A change is one thing that should become true, and its class says all about it: its moves, its belief, its writes, its
requests and its log lines (`aspects.py`). A change without a write (a broker is live) takes the same way. All changes
given to `Cluster.apply` have been committed. Here are the changes of brokers, topics and states; `duties.py` has those
of duties.

Changes are yielded in *slices*: (step number, some changes). A step is all slices of one number; the next step goes
out when the last one stands. Everything about one *subject* is decided before any of it is yielded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from controller.core import formats
from controller.core.belief import moves
from controller.core.belief.kept_states import dropped_key
from controller.core.bitset import bits_of
from controller.core.causes import Cause
from controller.core.changes.aspects import BelievesNothing, MovesNothing, SaysNothing, TellsNobody, WritesNothing
from controller.core.changes.duties import DutyChange, broker_subject, topic_subject
from controller.core.codes import Code
from controller.core.elections import status_of
from controller.core.events import TopicFact
from controller.core.model import (
    FIRST_LEADER_EPOCH,
    NO_LEADER,
    Assignment,
    Broker,
    Leadership,
    Partition,
    Replicas,
    Topic,
)
from controller.core.operations import Create, Delete, Set
from controller.core.project.lines import Line, Stamp, Stamped, partition_line
from controller.core.project.refusals import trouble_of
from controller.core.project.requests import NO_EPOCH, Draft
from controller.core.project.znodes import (
    CONFIG_TOPICS,
    Put,
    Write,
    state_path,
    state_writes,
    topic_path,
)
from controller.core.states import PartitionStatus, ReplicaStatus

if TYPE_CHECKING:
    from controller.core.belief.cluster import Cluster
    from controller.core.belief.kept_states import Mover

_P, _R = PartitionStatus, ReplicaStatus
#: looked up, which costs less than `value`: there may be a line for each partition
_WORDS: Final[Mapping[PartitionStatus | Cause, str]] = {one: one.value for one in (*PartitionStatus, *Cause)}


class BrokerLive(WritesNothing, msgspec.Struct, frozen=True):
    """A broker incarnation is live: it is told everything, all others are told of it."""

    broker: Broker
    reason: str
    cause: Cause

    @property
    def subject(self) -> str:
        return broker_subject(self.broker.broker_id)

    def move(self, cluster: Cluster, mover: Mover) -> None:
        broker_id = self.broker.broker_id
        offline = mover.states.replicas_in(broker_id, _R.OFFLINE)
        leaving = cluster.duties.is_leaving  # its deletion moves them
        back = {topic: bits for topic, bits in offline.items() if bits and ":" not in topic and not leaving(topic)}
        mover.all_back(broker_id, back, self.cause)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.set_broker(self.broker)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        draft.joined.append(self.broker)
        draft.brokers_changed = True

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        ids = {"broker_id": self.broker.broker_id, "broker_epoch": self.broker.epoch}
        # a broker that is there as a term begins did not come just now
        source = None if self.cause is Cause.TERM_STARTED else "gone"
        yield stamped(kind="broker", source=source, target="live", reason=self.reason, cause=self.cause.value, **ids)


class BrokerChanged(MovesNothing, WritesNothing, msgspec.Struct, frozen=True):
    """A live broker's endpoints, rack or features are new; its incarnation is not."""

    broker: Broker

    @property
    def subject(self) -> str:
        return broker_subject(self.broker.broker_id)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.set_broker(self.broker)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        draft.brokers_changed = True

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        ids = {"broker_id": self.broker.broker_id, "broker_epoch": self.broker.epoch}
        said = {"reason": "registration changed", "cause": Cause.BROKER_CHANGED.value}
        yield stamped(kind="broker", source="live", target="live", **said, **ids)


class BrokerGone(WritesNothing, msgspec.Struct, frozen=True):
    """A broker incarnation is over."""

    broker_id: int
    epoch: int
    reason: str
    cause: Cause

    @property
    def subject(self) -> str:
        return broker_subject(self.broker_id)

    def move(self, cluster: Cluster, mover: Mover) -> None:
        """Its replicas go offline, and the partitions that it led: at once, by bits."""
        broker_id, cause = self.broker_id, self.cause
        topics = {topic: hosted.bits for topic, hosted in cluster.hosted.get(broker_id, {}).items()}
        for topic in cluster.duties.deletions:
            if cluster.duties.is_leaving(topic):
                topics.pop(topic, None)  # its deletion moves them
        mover.all_online(broker_id, topics, _R.OFFLINE, cause)
        led = {topic: bits for topic, bits in cluster.led_by(broker_id).items() if topic in topics}
        mover.all_online(None, led, _P.OFFLINE, cause)
        for key in cluster.states.dropped_on(broker_id):
            started = mover.states.replicas_of(broker_id, key).get(_R.DELETION_STARTED, 0)
            mover.replicas(broker_id, key, started, _R.DELETION_INELIGIBLE, cause=cause)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.remove_broker(self.broker_id)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        draft.gone.append((self.broker_id, self.epoch))
        draft.brokers_changed = True

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        ids = {"broker_id": self.broker_id, "broker_epoch": self.epoch}
        yield stamped(kind="broker", source="live", target="gone", reason=self.reason, cause=self.cause.value, **ids)


class BrokerMissing(WritesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """A broker that hosts replicas is missing as a term starts: its replicas go offline."""

    broker_id: int
    cause: Cause

    @property
    def subject(self) -> str:
        return broker_subject(self.broker_id)

    def move(self, cluster: Cluster, mover: Mover) -> None:
        for topic, waiting in list(mover.states.replicas_in(self.broker_id, _R.DELETION_INELIGIBLE).items()):
            if waiting and ":" not in topic:
                mover.replica_move(self.broker_id, topic, waiting, _R.DELETION_INELIGIBLE, _R.OFFLINE, self.cause)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        """Its replicas move, and nothing else."""


class TopicFound(WritesNothing, TellsNobody, msgspec.Struct, frozen=True):
    """Believe a topic znode: a new topic, new partitions, or just a new version of it."""

    fact: TopicFact

    @property
    def subject(self) -> str:
        return topic_subject(self.fact.name)

    def move(self, cluster: Cluster, mover: Mover) -> None:
        fact = self.fact
        known = cluster.topics.get(fact.name)
        before = {} if known is None or known.czxid != fact.czxid else known.partitions
        new = {number: one for number, one in fact.assignment.items() if number not in before}
        moves.assigned(cluster, fact.name, {}, new, Cause.TOPIC_FOUND, mover)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.find_topic(self.fact)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        name = self.fact.name
        ids = {"topic": name, "topic_id": cluster.topic_id(name), "version": one.version, "zxid": one.zxid or None}
        yield stamped(kind="topic", target="found", cause=Cause.TOPIC_FOUND.value, **ids)


class Unreadable(MovesNothing, WritesNothing, TellsNobody, msgspec.Struct, frozen=True):
    """A topic's znode, or one of its state znodes, makes no sense: say so once, leave it alone, serve the others."""

    name: str
    partition: int | None
    trouble: str
    zxid: int

    @property
    def subject(self) -> str:
        return topic_subject(self.name)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.unreadable[self.name, self.partition] = (self.trouble, self.zxid)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        ids = {"topic": self.name, "topic_id": cluster.topic_id(self.name), "partition": self.partition}
        found = {"version": one.version, "zxid": one.zxid or None}
        yield stamped(kind="topic", target="unreadable", reason=self.trouble, **ids, **found)


class TopicCreated(TellsNobody, msgspec.Struct, frozen=True):
    """Write a new topic and its configuration."""

    name: str
    topic_id: str
    assignment: Mapping[int, Assignment]
    configs: Mapping[str, str]

    @property
    def subject(self) -> str:
        return topic_subject(self.name)

    def move(self, cluster: Cluster, mover: Mover) -> None:
        moves.assigned(cluster, self.name, {}, self.assignment, Cause.TOPIC_CREATED, mover)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.duties.configure("topics", self.name, self.configs)
        topic = Topic(self.name, self.topic_id, one.version or 0, one.zxid, one.zxid, {})
        cluster.put_topic(topic, self.assignment)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        config = formats.encode(formats.ConfigZnode(dict(self.configs)))
        topic_data = formats.encode_topic(self.topic_id, dict(self.assignment))
        return Put(f"{CONFIG_TOPICS}/{self.name}", config), Create(topic_path(self.name), topic_data)

    def target_path(self, cluster: Cluster) -> str | None:
        return topic_path(self.name)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        ids = {"topic": self.name, "topic_id": cluster.topic_id(self.name)}
        said = {"reason": "asked", "version": one.version, "zxid": one.zxid or None}
        yield stamped(kind="topic", target="created", cause=Cause.TOPIC_CREATED.value, **ids, **said)


class TopicWritten(msgspec.Struct, frozen=True):
    """Rewrite a topic znode, whole: an id was missing, partitions were added, replicas are to be others."""

    name: str
    topic_id: str
    assignment: Mapping[int, Assignment]
    reason: str
    cause: Cause
    #: partitions whose assignment this changes; None: all have to be told anew
    touched: tuple[int, ...] | None = None
    #: (partition, broker id) of replicas that are assigned no more: they are told to delete
    dropped: tuple[tuple[int, int], ...] = ()
    is_reassignment: bool = False
    #: leaderships written in the same transaction, so that no ISR ever leaves its assignment
    states: tuple[StateDecided, ...] = ()

    @property
    def subject(self) -> str:
        return topic_subject(self.name)

    def move(self, cluster: Cluster, mover: Mover) -> None:
        known = cluster.topics.get(self.name)
        before = {} if known is None else known.partitions
        numbers = self.assignment if self.touched is None else self.touched
        touched = {number: self.assignment[number] for number in numbers}
        moves.assigned(cluster, self.name, before, touched, self.cause, mover)
        for state in self.states:
            state.move(cluster, mover)
        mover.settle()
        self._move_dropped(cluster, before, touched, mover)

    def _move_dropped(
        self, cluster: Cluster, before: Mapping[int, Partition], touched: Mapping[int, Assignment], mover: Mover
    ) -> None:
        told = frozenset(self.dropped)
        dropped: dict[tuple[int, bool], list[int]] = {}
        for number, wanted in touched.items():
            old = before.get(number)
            for broker_id in () if old is None else old.replicas:
                if broker_id not in wanted.replicas:
                    dropped.setdefault((broker_id, (number, broker_id) in told), []).append(number)
        for (broker_id, is_told), gone in dropped.items():
            bits, key = bits_of(gone), dropped_key(self.name, self.topic_id)
            if not is_told:
                moves.ended(broker_id, self.name, bits, self.cause, mover)
                continue
            mover.replicas(broker_id, self.name, bits, _R.OFFLINE, cause=self.cause)
            target = _R.DELETION_STARTED if broker_id in cluster.live_ids else _R.DELETION_INELIGIBLE
            mover.replica_move(broker_id, self.name, bits, _R.OFFLINE, target, self.cause, to=key)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        assert one.version is not None
        czxid = cluster.topics[self.name].czxid
        topic = Topic(self.name, self.topic_id, one.version, czxid, one.zxid, {})
        cluster.put_topic(topic, self.assignment, is_ours=True)
        leader_epochs = {state.partition: state.state.leader_epoch for state in self.states}
        cluster.note_dropped(dropped_key(self.name, self.topic_id), self.dropped, leader_epochs)
        for state in self.states:
            before = cluster.topics[self.name].partitions[state.partition]
            cluster.set_state(self.name, state.partition, state.state, before.version + 1, one.zxid)

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        data = formats.encode_topic(self.topic_id, dict(self.assignment))
        together = [write for state in self.states for write in state.writes(cluster)]
        return (*together, Set(topic_path(self.name), data, cluster.topics[self.name].version))

    def target_path(self, cluster: Cluster) -> str | None:
        return topic_path(self.name)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        partitions = cluster.topics[self.name].partitions
        if self.touched is None:  # nothing could be told of it while it had no id
            for number in partitions:
                draft.lead(self.name, number)
            return
        draft.tell(self.name, self.touched)
        for state in self.states:
            draft.lead(self.name, state.partition)
        for number, broker_id in self.dropped:
            led = partitions[number].state
            epoch = NO_EPOCH if led is None else led.leader_epoch
            draft.stop(broker_id, (self.name, self.topic_id), number, epoch)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        if self.touched is None or not self.is_reassignment:
            ids = {"topic": self.name, "topic_id": cluster.topic_id(self.name)}
            said = {"reason": self.reason, "version": one.version, "zxid": one.zxid or None}
            yield stamped(kind="topic", target="rewritten", cause=self.cause.value, **ids, **said)
            return
        for state in self.states:
            version = cluster.topics[self.name].partitions[state.partition].version
            yield from state.lines(cluster, Committed(state, version, one.zxid), stamp, stamped)
        for number in self.touched:
            yield self._reassignment_line(number, one, stamped)

    def _reassignment_line(self, number: int, one: Committed, stamped: Stamped) -> Line:
        """Returns the line of a partition whose replicas are to change, or have changed."""
        wanted = self.assignment[number]
        is_running = bool(wanted.adding or wanted.removing)
        return stamped(
            kind="reassignment",
            topic=self.name,
            partition=number,
            target="running" if is_running else "done",
            reason=f"{self.reason}: replicas {_ids(wanted.replicas)}, adding {_ids(wanted.adding)}, "
            f"removing {_ids(wanted.removing)}",
            version=one.version,
            zxid=one.zxid,
            topic_id=self.topic_id,
            cause=self.cause.value,
        )


class TopicGone(WritesNothing, msgspec.Struct, frozen=True):
    """A topic's znode is gone: forget it, and tell brokers to."""

    name: str
    topic_id: str | None
    partitions: tuple[int, ...]

    @property
    def subject(self) -> str:
        return topic_subject(self.name)

    def move(self, cluster: Cluster, mover: Mover) -> None:
        moves.forgotten(cluster, self.name, Cause.TOPIC_GONE, mover)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.forget_topic(self.name)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        if self.topic_id is not None:
            draft.removed[self.name, self.topic_id] = self.partitions

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        ids = {"topic": self.name, "topic_id": self.topic_id, "version": one.version, "zxid": one.zxid or None}
        said = {"reason": "topic znode is gone", "cause": Cause.TOPIC_GONE.value}
        yield stamped(kind="topic", target="gone", **said, **ids)


class StateDecided(msgspec.Struct, frozen=True, gc=False):
    """Write this leadership. `source` and `target` are the partition's move.

    `by_leader` marks an ISR change that the leader asked for: it keeps the leader epoch, and only metadata is told.
    """

    topic: str
    partition: int
    state: Leadership
    source: PartitionStatus
    target: PartitionStatus
    reason: str
    cause: Cause
    by_leader: bool = False
    #: the leader was not in sync
    is_unclean: bool = False
    #: live brokers that shut down, whose replica goes offline by this and is stopped
    stopped: Replicas = ()
    #: of these the one that led
    deposed_id: int | None = None

    @property
    def subject(self) -> str:
        return topic_subject(self.topic)

    @property
    def is_first(self) -> bool:
        """Whether a partition is led for the first time, so that its replicas are new on their brokers."""
        return self.source is _P.NEW and self.state.leader_epoch == FIRST_LEADER_EPOCH

    def move(self, cluster: Cluster, mover: Mover) -> None:
        """They may only be noted for now: `Mover.settle` makes them."""
        move_together(cluster, (self,), mover)

    def move_replicas(self, cluster: Cluster, mover: Mover) -> None:
        """Of brokers that shut down, or went on after all."""
        topic, number, state, states = self.topic, self.partition, self.state, mover.states
        for broker_id in self.stopped:
            if not (mover.is_trial or broker_id in cluster.leaving_ids):
                continue  # that it shuts down could not be written: it goes on
            before_stop = states.of_replica(topic, number, broker_id)
            if before_stop is not _R.OFFLINE:
                mover.decided(broker_id, topic, number, before_stop, _R.OFFLINE, self.cause)
        if cluster.duties.drains:
            offline = states.replicas_in(state.leader, _R.OFFLINE).get(topic, 0) & 1 << number
            moves.resumed(cluster, topic, offline, state.leader, self.cause, mover)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        believe_together(cluster, (one,))

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        return state_writes(cluster, self.topic, self.partition, self.state)

    def target_path(self, cluster: Cluster) -> str | None:
        return state_path(self.topic, self.partition)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        topic, number = self.topic, self.partition
        if self.by_leader:
            draft.tell(topic, (number,))
        else:
            draft.lead(topic, number, is_new=self.is_first)
        topic_id = cluster.topics[topic].topic_id if self.stopped else None
        if topic_id is not None:
            for broker_id in cluster.leaving_ids.intersection(self.stopped):
                draft.stop(broker_id, (topic, topic_id), number, self.state.leader_epoch, delete=False)
            if self.deposed_id is not None:
                draft.deposed.setdefault(topic, {})[number] = self.deposed_id

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> tuple[Line, ...]:
        move, why = (_WORDS[self.source], _WORDS[self.target]), (self.reason, _WORDS[self.cause])
        written, topic_id = (one.version, one.zxid), cluster.topic_id(self.topic)
        return (
            partition_line(
                stamp, self.topic, self.partition, move, why, self.state, written, topic_id,
                unclean=self.is_unclean or None,
            ),
        )  # fmt: skip


def move_together(cluster: Cluster, led: Sequence[StateDecided], mover: Mover) -> None:
    """The moves of leaderships that are decided or stand together: tens of thousands may. They are only noted for now:
    `Mover.settle` makes them."""
    states, has_drains = mover.states, bool(cluster.duties.drains)
    topic: str | None = None
    elsewhere, has_new = 0, False
    partitions: Mapping[int, Partition] = {}
    for one in led:
        if one.topic != topic:
            topic = one.topic
            elsewhere, has_new = states.not_online(topic), states.new_on(topic)
            known_topic = cluster.topics.get(topic)  # none on trial, before it stands
            partitions = {} if known_topic is None else known_topic.partitions
        number, target = one.partition, one.target
        source = states.of_partition(topic, number) if elsewhere >> number & 1 else _P.ONLINE
        if source is not target:
            mover.decided(None, topic, number, source, target, one.cause)
        else:
            known = partitions.get(number)
            before = None if known is None or known.state is None else known.state.leader
            # a smaller ISR is the move of a replica, and a leader that stays moves nothing
            if before != one.state.leader or (target is _P.OFFLINE and before == NO_LEADER):
                mover.decided(None, topic, number, source, target, one.cause)
        if has_new:
            moves.in_sync(topic, number, one.state.isr, one.cause, mover)
        if has_drains or one.stopped:
            one.move_replicas(cluster, mover)


def believe_together(cluster: Cluster, led: Sequence[Committed]) -> None:
    """Takes leaderships into belief that stand together."""
    settled: dict[str, list[int]] = {}
    for one in led:
        change, version = one.change, one.version
        assert type(change) is StateDecided
        assert version is not None
        cluster.set_state(change.topic, change.partition, change.state, version, one.zxid)
        if not change.by_leader:
            settled.setdefault(change.topic, []).append(change.partition)
    if cluster.duties.departed:
        for topic, numbers in settled.items():
            cluster.duties.settle_departed(topic, bits_of(numbers))


class StateFound(WritesNothing, msgspec.Struct, frozen=True, gc=False):
    """Believe a state znode of another writer. Its cause is `FOUND` if an earlier term wrote it and this one reads it
    for the first time; or if it became readable again, unchanged."""

    topic: str
    partition: int
    state: Leadership
    version: int
    zxid: int
    reason: str
    cause: Cause
    #: where that puts the partition, if the brokers that decide it are not believed in yet
    target: PartitionStatus | None = None

    @property
    def subject(self) -> str:
        return topic_subject(self.topic)

    def move(self, cluster: Cluster, mover: Mover) -> None:
        target = self.target
        if target is None:
            target = _P.ONLINE if self.state.leader in cluster.live_ids else _P.OFFLINE
        source = mover.states.of_partition(self.topic, self.partition)
        if source is not target:
            mover.partition_move(self.topic, 1 << self.partition, source, target, self.cause)
        moves.in_sync(self.topic, self.partition, self.state.isr, self.cause, mover)
        mover.settle()

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.set_state(self.topic, self.partition, self.state, self.version, self.zxid)

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        if self.cause is Cause.FOUND:
            draft.lead(self.topic, self.partition)  # in this term its replicas were not told of it
        else:
            draft.tell(self.topic, (self.partition,))

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        # the controller whose epoch a found state carries decided it
        epoch = {"controller_epoch": self.state.controller_epoch} if self.cause is Cause.FOUND else {}
        yield stamped(
            kind="partition",
            topic=self.topic,
            partition=self.partition,
            target=(self.target or status_of(self.state, cluster.live_ids)).value,
            reason=self.reason,
            leader=self.state.leader,
            leader_epoch=self.state.leader_epoch,
            isr=self.state.isr,
            version=self.version,
            zxid=self.zxid,
            topic_id=cluster.topic_id(self.topic),
            cause=self.cause.value,
            **epoch,
        )


class StateLost(WritesNothing, TellsNobody, msgspec.Struct, frozen=True, gc=False):
    """A state znode that was believed is not there: the partition is new again."""

    topic: str
    partition: int
    zxid: int

    @property
    def subject(self) -> str:
        return topic_subject(self.topic)

    def move(self, cluster: Cluster, mover: Mover) -> None:
        if mover.states.of_partition(self.topic, self.partition) is not _P.NEW:
            bit, way = 1 << self.partition, (_P.OFFLINE, _P.NON_EXISTENT)
            mover.partitions(self.topic, bit, *way, cause=Cause.STATE_LOST)
            mover.partition_move(self.topic, bit, _P.NON_EXISTENT, _P.NEW, Cause.STATE_LOST)

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.lose_state(self.topic, self.partition, self.zxid)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        yield stamped(
            kind="partition",
            topic=self.topic,
            partition=self.partition,
            target=_P.NON_EXISTENT.value,
            reason="state znode is gone",
            zxid=self.zxid,
            topic_id=cluster.topic_id(self.topic),
            cause=Cause.STATE_LOST.value,
        )


class NotificationRead(MovesNothing, BelievesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """A notification has had its effect: remove it, unless it was rewritten since it was read."""

    path: str
    version: int = 0

    @property
    def subject(self) -> str:
        return f"node {self.path}"

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        return (Delete(self.path, self.version),)

    def target_path(self, cluster: Cluster) -> str | None:
        return self.path


class SubjectParked(MovesNothing, WritesNothing, TellsNobody, msgspec.Struct, frozen=True):
    """Deciding about this subject met a bug: leave it out for the rest of the term, and say so."""

    subject: str
    trouble: str

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.parked[self.subject] = self.trouble

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        yield stamped(kind="controller", target="parked", reason=f"{self.subject}: {self.trouble}")


class WriteRefused(MovesNothing, WritesNothing, TellsNobody, msgspec.Struct, frozen=True):
    """ZooKeeper refuses a write, and no reading explains it: it is left out alone, and tried again for as long as the
    term lasts. Told when it begins."""

    target: str
    subject: str
    change: Change
    verb: str  # create, read, write or delete
    path: str
    code: int
    since_ms: int
    #: how long it waits until it is tried again
    retry_ms: int
    attempts: int = 1
    #: of a deletion that is refused: foreign children of the znode
    below: tuple[str, ...] = ()
    #: a caller asked for it and was told: only the caller tries it again
    is_asked: bool = False

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.refused[self.target] = self

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        if self.attempts == 1:  # its end has a line, too; the attempts between have none
            yield stamped(kind="controller", target="refused", reason=f"{self.subject}: {trouble_of(self)}")


class RefusalEnded(MovesNothing, WritesNothing, TellsNobody, msgspec.Struct, frozen=True):
    """A write that ZooKeeper refused was made, or is wanted no more."""

    target: str
    subject: str
    reason: str

    def believe(self, cluster: Cluster, one: Committed) -> None:
        cluster.refused.pop(self.target, None)

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterator[Line]:
        reason = f"{self.subject}: {self.reason}"
        yield stamped(kind="controller", source="refused", target="taken", reason=reason)


class Refused(MovesNothing, BelievesNothing, WritesNothing, TellsNobody, SaysNothing, msgspec.Struct, frozen=True):
    """Part of a request is refused with one of Kafka's codes; nothing is changed by it."""

    subject: str
    code: Code
    detail: str
    topic_id: str = ""
    partition: int = -1


Change = (
    DutyChange
    | BrokerLive
    | BrokerChanged
    | BrokerGone
    | BrokerMissing
    | TopicFound
    | Unreadable
    | TopicCreated
    | TopicWritten
    | TopicGone
    | StateDecided
    | StateFound
    | StateLost
    | NotificationRead
    | SubjectParked
    | WriteRefused
    | RefusalEnded
    | Refused
)


class Slice(msgspec.Struct, frozen=True):
    """The changes of one yield of `decide`."""

    step: int
    changes: Sequence[Change]


class Committed(msgspec.Struct, frozen=True, gc=False):
    """A change that stands: since `zxid`, with its znode at `version` (None: it wrote none)."""

    change: Change
    version: int | None = None
    zxid: int = 0


def _ids(broker_ids: Replicas) -> str:
    return "[" + ",".join(map(str, broker_ids)) + "]"
