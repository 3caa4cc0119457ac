"""Which moves a change makes: asked once while it is decided, on trial, and once when it stands, before it is believed.

A change says where partitions and replicas go, and on which way; where they come from is what is kept. So a move that
no table has is found out before anything is written. What a broker's coming or going moves is moved at once, by bits:
its replicas, and the partitions that it led. The leaderships decided because of it move their partitions one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from controller.core.belief.kept_states import Mover, bits_of, dropped_key, numbers_of
from controller.core.causes import Cause
from controller.core.changes.cluster import (
    BrokerGone,
    BrokerLive,
    BrokerMissing,
    Change,
    StateDecided,
    StateFound,
    StateLost,
    TopicCreated,
    TopicFound,
    TopicGone,
    TopicWritten,
)
from controller.core.changes.duties import (
    DeletionQueued,
    DirsFound,
    DroppedMoved,
    RepeatedTo,
    ReplicasMoved,
    ReplicasStopped,
    TopicErased,
)
from controller.core.model import NO_LEADER, Assignment, Leadership, Partition, Replicas
from controller.core.states import PartitionStatus, ReplicaStatus, is_legal

if TYPE_CHECKING:
    from controller.core.belief.cluster import Cluster

_P, _R = PartitionStatus, ReplicaStatus
_ONLINE: Final = PartitionStatus.ONLINE

#: how a replica that nobody has to be told of any more ends, from each state
_END: Final[Mapping[ReplicaStatus, tuple[ReplicaStatus, ...]]] = {
    _R.NEW: (_R.OFFLINE, _R.DELETION_STARTED, _R.DELETION_SUCCESSFUL, _R.NON_EXISTENT),
    _R.ONLINE: (_R.OFFLINE, _R.DELETION_STARTED, _R.DELETION_SUCCESSFUL, _R.NON_EXISTENT),
    _R.OFFLINE: (_R.DELETION_STARTED, _R.DELETION_SUCCESSFUL, _R.NON_EXISTENT),
    _R.DELETION_INELIGIBLE: (_R.OFFLINE, _R.DELETION_STARTED, _R.DELETION_SUCCESSFUL, _R.NON_EXISTENT),
    _R.DELETION_STARTED: (_R.DELETION_SUCCESSFUL, _R.NON_EXISTENT),
    _R.DELETION_SUCCESSFUL: (_R.NON_EXISTENT,),
}


def make_moves(cluster: Cluster, change: Change, mover: Mover) -> None:
    """The moves of one change, in the order in which they happen. Belief is what it was before the change."""
    if type(change) is StateDecided:  # tens of thousands may come together
        _state_decided(cluster, change, mover)
        return
    match change:
        case StateFound(topic=topic, partition=number, state=state):
            _led(cluster, topic, number, state, change.target, change.cause, mover)
        case StateLost(topic=topic, partition=number):
            if mover.states.of_partition(topic, number) is not _P.NEW:
                way = (_P.OFFLINE, _P.NON_EXISTENT)
                mover.partitions(topic, 1 << number, *way, cause=Cause.STATE_LOST)
                mover.partition_move(topic, 1 << number, _P.NON_EXISTENT, _P.NEW, Cause.STATE_LOST)
        case BrokerGone(broker_id=broker_id, cause=cause):
            _broker_gone(cluster, broker_id, cause, mover)
        case BrokerMissing(broker_id=broker_id, cause=cause):
            for topic, waiting in list(mover.states.replicas_in(broker_id, _R.DELETION_INELIGIBLE).items()):
                if waiting and ":" not in topic:
                    mover.replica_move(broker_id, topic, waiting, _R.DELETION_INELIGIBLE, _R.OFFLINE, cause)
        case BrokerLive(broker=broker, cause=cause):
            for topic, offline in list(mover.states.replicas_in(broker.broker_id, _R.OFFLINE).items()):
                if offline and ":" not in topic and not cluster.duties.is_leaving(topic):  # its deletion moves them
                    mover.replica_move(broker.broker_id, topic, offline, _R.OFFLINE, _R.ONLINE, cause)
        case DirsFound():
            _dirs_found(cluster, change, mover)
        case TopicCreated(name=name, assignment=assignment):
            _assigned(cluster, name, {}, assignment, Cause.TOPIC_CREATED, mover)
        case TopicFound(fact=fact):
            known = cluster.topics.get(fact.name)
            before = {} if known is None or known.czxid != fact.czxid else known.partitions
            new = {number: one for number, one in fact.assignment.items() if number not in before}
            _assigned(cluster, fact.name, {}, new, Cause.TOPIC_FOUND, mover)
        case TopicWritten():
            _topic_written(cluster, change, mover)
        case TopicGone(name=name):
            _forgotten(cluster, name, Cause.TOPIC_GONE, mover)
        case TopicErased(topic=name):
            _forgotten(cluster, name, Cause.TOPIC_DELETED, mover)
        case _:
            _duty_moves(cluster, change, mover)


def _duty_moves(cluster: Cluster, change: Change, mover: Mover) -> None:
    """Of topics being deleted, of replicas that were dropped, of brokers that shut down."""
    match change:
        case DeletionQueued(topic=name, is_held=False) if not cluster.duties.is_leaving(name):
            known = cluster.topics.get(name)
            if known is not None:
                mover.partitions(name, bits_of(known.partitions), _P.OFFLINE, cause=Cause.TOPIC_DELETED)
                for broker_id, bits in _replicas_by_broker(known.partitions).items():
                    mover.replicas(broker_id, name, bits, _R.OFFLINE, cause=Cause.TOPIC_DELETED)
        case ReplicasMoved(topic=name, replicas=replicas, way=way):
            by_broker: dict[int, list[int]] = {}
            for number, broker_id in replicas:
                by_broker.setdefault(broker_id, []).append(number)
            for broker_id, numbers in by_broker.items():
                mover.replicas(broker_id, name, bits_of(numbers), *way, cause=Cause.TOPIC_DELETED)
        case DroppedMoved(topic=name, topic_id=topic_id, broker_id=broker_id, partitions=partitions, way=way):
            cause = Cause.REASSIGNMENT
            mover.replicas(broker_id, dropped_key(name, topic_id), bits_of(partitions), *way, cause=cause)
        case ReplicasStopped(topic=name, broker_id=broker_id, partitions=partitions) if (
            mover.is_trial or broker_id in cluster.leaving_ids
        ):
            mover.replicas(broker_id, name, bits_of(partitions), _R.OFFLINE, cause=Cause.CONTROLLED_SHUTDOWN)
        case RepeatedTo(broker_id=broker_id, partitions=()) if broker_id in cluster.leaving_ids:
            for topic, offline in list(mover.states.replicas_in(broker_id, _R.OFFLINE).items()):
                _resumed(cluster, topic, offline, broker_id, Cause.CONTROLLED_SHUTDOWN, mover)
        case _:
            pass  # nothing moves


def try_moves(cluster: Cluster, changes: Iterable[Change], trial: Mover) -> None:
    """The moves of what was decided about one subject, on trial."""
    states = trial.states
    can_stay = is_legal(_P.ONLINE, _P.ONLINE) and not cluster.duties.drains
    for change in changes:
        if (
            type(change) is StateDecided
            and change.target is _ONLINE
            and can_stay
            and not change.stopped
            and states.of_partition(change.topic, change.partition) is _ONLINE
            and not states.new_on(change.topic)
        ):
            continue  # it stays where it is, as most do when a broker dies
        make_moves(cluster, change, trial)


def _state_decided(cluster: Cluster, change: StateDecided, mover: Mover) -> None:
    topic, number, state = change.topic, change.partition, change.state
    source, target = mover.states.of_partition(topic, number), change.target
    if source is target:
        known = cluster.topics[topic].partitions.get(number)
        before = None if known is None or known.state is None else known.state.leader
        # a smaller ISR is the move of a replica, and a leader that stays moves nothing
        if before != state.leader or (target is _P.OFFLINE and state.leader == NO_LEADER):
            mover.partition_move(topic, 1 << number, source, target, change.cause)
    else:
        mover.partition_move(topic, 1 << number, source, target, change.cause)
    if mover.states.new_on(topic):
        _in_sync(topic, number, state.isr, change.cause, mover)
    for broker_id in change.stopped:
        if not (mover.is_trial or broker_id in cluster.leaving_ids):
            continue  # that it shuts down could not be written: it goes on
        before_stop = mover.states.of_replica(topic, number, broker_id)
        if before_stop is not _R.OFFLINE:
            mover.replica_move(broker_id, topic, 1 << number, before_stop, _R.OFFLINE, change.cause)
    if cluster.duties.drains:
        offline = mover.states.replicas_in(state.leader, _R.OFFLINE).get(topic, 0) & 1 << number
        _resumed(cluster, topic, offline, state.leader, change.cause, mover)


def _resumed(cluster: Cluster, topic: str, offline: int, broker_id: int, cause: Cause, mover: Mover) -> None:
    """Replicas that their broker stopped as it began to shut down, and that it is told to lead or to follow again."""
    failed = cluster.duties.failed_dirs.get(broker_id, frozenset())
    numbers = [number for number in numbers_of(offline) if (topic, number) not in failed] if offline else ()
    if numbers and broker_id in cluster.live_ids and ":" not in topic and not cluster.duties.is_leaving(topic):
        mover.replica_move(broker_id, topic, bits_of(numbers), _R.OFFLINE, _R.ONLINE, cause)


def _led(
    cluster: Cluster,
    topic: str,
    number: int,
    state: Leadership,
    target: PartitionStatus | None,
    cause: Cause,
    mover: Mover,
) -> None:
    """Somebody else's leadership is believed."""
    if target is None:
        target = _P.ONLINE if state.leader in cluster.live_ids else _P.OFFLINE
    source = mover.states.of_partition(topic, number)
    if source is not target:
        mover.partition_move(topic, 1 << number, source, target, cause)
    _in_sync(topic, number, state.isr, cause, mover)


def _in_sync(topic: str, number: int, isr: Replicas, cause: Cause, mover: Mover) -> None:
    """A replica is new until it is in sync."""
    for broker_id in isr:
        if mover.states.of_replica(topic, number, broker_id) is _R.NEW:
            mover.replica_move(broker_id, topic, 1 << number, _R.NEW, _R.ONLINE, cause)


def _broker_gone(cluster: Cluster, broker_id: int, cause: Cause, mover: Mover) -> None:
    for topic, hosted in cluster.hosted.get(broker_id, {}).items():
        if cluster.duties.is_leaving(topic):
            continue  # its deletion moves them
        mover.replicas(broker_id, topic, hosted.bits, _R.OFFLINE, cause=cause)
        partitions = cluster.topics[topic].partitions
        led = _led_by(broker_id, partitions, numbers_of(hosted.bits))
        if led:
            mover.partitions(topic, bits_of(led), _P.OFFLINE, cause=cause)
    for key in cluster.states.dropped_on(broker_id):
        started = mover.states.replicas_of(broker_id, key).get(_R.DELETION_STARTED, 0)
        mover.replicas(broker_id, key, started, _R.DELETION_INELIGIBLE, cause=cause)


def _led_by(broker_id: int, partitions: Mapping[int, Partition], numbers: Iterable[int]) -> list[int]:
    known = partitions.get
    return [
        number
        for number in numbers
        if (one := known(number)) is not None and one.state is not None and one.state.leader == broker_id
    ]


def _dirs_found(cluster: Cluster, change: DirsFound, mover: Mover) -> None:
    """Replicas on a directory that failed are offline though their broker lives, and so is what they led."""
    before = cluster.duties.failed_dirs.get(change.broker_id, frozenset())
    for target, cause, keys in (
        (_R.OFFLINE, Cause.DISK_FAILED, change.failed - before),
        (_R.ONLINE, Cause.DISK_MENDED, change.mended),
    ):
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(keys):
            known = cluster.partition(topic, number)
            is_assigned = known is not None and change.broker_id in known.replicas
            if is_assigned and not cluster.duties.is_leaving(topic):
                by_topic.setdefault(topic, []).append(number)
        for topic, numbers in by_topic.items():
            mover.replicas(change.broker_id, topic, bits_of(numbers), target, cause=cause)
            partitions = cluster.topics[topic].partitions
            led = _led_by(change.broker_id, partitions, numbers)
            if led and target is _R.OFFLINE:
                mover.partitions(topic, bits_of(led), _P.OFFLINE, cause=cause)


def _assigned(
    cluster: Cluster,
    topic: str,
    before: Mapping[int, Partition],
    assignment: Mapping[int, Assignment],
    cause: Cause,
    mover: Mover,
) -> None:
    """Partitions and replicas that were not there are new; a replica whose broker is not live goes offline at once, and
    all of them do whose topic is being deleted."""
    is_leaving = cluster.duties.is_leaving(topic)
    new = [number for number in assignment if number not in before]
    if new:
        mover.partition_move(topic, bits_of(new), _P.NON_EXISTENT, _P.NEW, cause)
        if is_leaving:
            mover.partition_move(topic, bits_of(new), _P.NEW, _P.OFFLINE, cause)
    by_broker: dict[int, list[int]] = {}
    for number, wanted in assignment.items():
        known = before.get(number)
        for broker_id in wanted.replicas:
            if known is None or broker_id not in known.replicas:
                by_broker.setdefault(broker_id, []).append(number)
    known_topic = cluster.topics.get(topic)
    key = dropped_key(topic, "" if known_topic is None else known_topic.topic_id or "")
    for broker_id, numbers in by_broker.items():
        bits = bits_of(numbers)
        for source, held in list(mover.states.replicas_of(broker_id, key).items()):
            if some := held & bits:
                bits &= ~some
                _taken_back(cluster, broker_id, topic, key, some, source, cause, mover)
        if not bits:
            continue
        mover.replica_move(broker_id, topic, bits, _R.NON_EXISTENT, _R.NEW, cause)
        if is_leaving or broker_id not in cluster.live_ids:
            mover.replica_move(broker_id, topic, bits, _R.NEW, _R.OFFLINE, cause)


def _taken_back(
    cluster: Cluster,
    broker_id: int,
    topic: str,
    key: str,
    bits: int,
    source: ReplicaStatus,
    cause: Cause,
    mover: Mover,
) -> None:
    """Replicas that were dropped and are assigned again before their broker said that it deleted them."""
    if source is _R.DELETION_STARTED:
        mover.replica_move(broker_id, key, bits, source, _R.DELETION_INELIGIBLE, cause)
        source = _R.DELETION_INELIGIBLE
    target = _R.ONLINE if broker_id in cluster.live_ids else _R.OFFLINE
    mover.replica_move(broker_id, key, bits, source, target, cause, to=topic)


def _topic_written(cluster: Cluster, change: TopicWritten, mover: Mover) -> None:
    known = cluster.topics.get(change.name)
    before = {} if known is None else known.partitions
    numbers = change.assignment if change.touched is None else change.touched
    touched = {number: change.assignment[number] for number in numbers}
    _assigned(cluster, change.name, before, touched, change.cause, mover)
    for state in change.states:
        _state_decided(cluster, state, mover)
    told = frozenset(change.dropped)
    dropped: dict[tuple[int, bool], list[int]] = {}
    for number, wanted in touched.items():
        old = before.get(number)
        for broker_id in () if old is None else old.replicas:
            if broker_id not in wanted.replicas:
                dropped.setdefault((broker_id, (number, broker_id) in told), []).append(number)
    for (broker_id, is_told), gone in dropped.items():
        if not is_told:
            _end(broker_id, change.name, bits_of(gone), change.cause, mover)
            continue
        bits, key = bits_of(gone), dropped_key(change.name, change.topic_id)
        mover.replicas(broker_id, change.name, bits, _R.OFFLINE, cause=change.cause)
        target = _R.DELETION_STARTED if broker_id in cluster.live_ids else _R.DELETION_INELIGIBLE
        mover.replica_move(broker_id, change.name, bits, _R.OFFLINE, target, change.cause, to=key)


def _end(broker_id: int, topic: str, bits: int, cause: Cause, mover: Mover) -> None:
    """Replicas that nobody assigns any more, from whatever state they are in."""
    rest = bits
    for source, held in list(mover.states.replicas_of(broker_id, topic).items()):
        if some := held & rest:
            rest &= ~some
            _walk(broker_id, topic, some, source, cause, mover)
    if rest:
        _walk(broker_id, topic, rest, _R.ONLINE, cause, mover)


def _walk(broker_id: int, topic: str, bits: int, source: ReplicaStatus, cause: Cause, mover: Mover) -> None:
    for target in _END[source]:
        mover.replica_move(broker_id, topic, bits, source, target, cause)
        source = target


def _forgotten(cluster: Cluster, topic: str, cause: Cause, mover: Mover) -> None:
    """All of a topic, with its znode."""
    known = cluster.topics.get(topic)
    if known is None:
        return
    mover.partitions(topic, bits_of(known.partitions), _P.OFFLINE, _P.NON_EXISTENT, cause=cause)
    for broker_id, bits in _replicas_by_broker(known.partitions).items():
        _end(broker_id, topic, bits, cause, mover)
    key = dropped_key(topic, known.topic_id or "")
    for broker_id in list(cluster.states.replicas):
        for source, held in list(mover.states.replicas_of(broker_id, key).items()):
            if held:
                _walk(broker_id, key, held, source, cause, mover)


def _replicas_by_broker(partitions: Mapping[int, Partition]) -> dict[int, int]:
    numbers: dict[int, list[int]] = {}
    for number, one in partitions.items():
        for broker_id in one.replicas:
            numbers.setdefault(broker_id, []).append(number)
    return {broker_id: bits_of(some) for broker_id, some in numbers.items()}
