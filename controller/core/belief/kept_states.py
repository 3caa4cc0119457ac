"""In which state each partition and each replica is: kept, and changed by moves only.

Nearly all of them are online, so that state is not written down: a partition in no other state is online. Sets of
partitions are the bits of plain integers, and moves are carried out by bits, never partition by partition. A replica
that a reassignment dropped is in no assignment any more and has a state still: it is kept by its topic's id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, TypeVar

import msgspec

from controller.core.bitset import bits_of
from controller.core.causes import Cause
from controller.core.states import (
    IllegalMoveError,
    PartitionStatus,
    ReplicaStatus,
    Status,
    is_legal,
)

_P, _R = PartitionStatus, ReplicaStatus
_ONLINE: Final = PartitionStatus.ONLINE
_S = TypeVar("_S", PartitionStatus, ReplicaStatus)
#: which partitions of one topic are in which state; online ones are not named
Kept = dict[_S, int]


def dropped_key(topic: str, topic_id: str) -> str:
    """Under which replicas of a topic are kept that are assigned no more. No topic has a colon in its name."""
    return f"{topic}:{topic_id}"


def topic_of(key: str) -> str:
    return key.partition(":")[0]


class Move(msgspec.Struct):
    """One kind of move with one cause, of partitions, or of the replicas on one broker: topic -> bits."""

    source: Status
    target: Status
    cause: Cause
    #: of replicas
    broker_id: int | None
    topics: dict[str, int]

    @property
    def is_legal(self) -> bool:
        return is_legal(self.source, self.target)

    @property
    def count(self) -> int:
        return sum(bits.bit_count() for bits in self.topics.values())


class Moves:
    """Moves in the order in which they happen, grouped as far as that order allows."""

    def __init__(self) -> None:
        self.made: list[Move] = []
        self._places: dict[tuple[Status, Status, Cause, int | None], int] = {}
        #: where the newest move of a topic's partitions, or of its replicas on one broker, stands: broker id -> topic
        self._newest: dict[int | None, dict[str, int]] = {}

    def add_all(
        self, source: Status, target: Status, cause: Cause, broker_id: int | None, topics: dict[str, int]
    ) -> None:
        """Of many topics at once."""
        key, newest = (source, target, cause, broker_id), self._newest.get(broker_id)
        if newest or key in self._places:
            for topic, bits in topics.items():
                self.add(source, target, cause, broker_id, topic, bits)
            return
        place = self._places[key] = len(self.made)
        self.made.append(Move(source, target, cause, broker_id, dict(topics)))
        self._newest[broker_id] = dict.fromkeys(topics, place)

    def add(self, source: Status, target: Status, cause: Cause, broker_id: int | None, topic: str, bits: int) -> None:
        key, mine = (source, target, cause, broker_id), self._newest.get(broker_id)
        if mine is None:
            mine = self._newest[broker_id] = {}
        place, newest = self._places.get(key, -1), mine.get(topic, -1)
        if place < 0 or (newest > place and self._moved_after(place, newest, broker_id, topic, bits)):
            place = self._places[key] = len(self.made)
            self.made.append(Move(source, target, cause, broker_id, {}))
        topics = self.made[place].topics
        topics[topic] = topics.get(topic, 0) | bits
        if place > newest:
            mine[topic] = place

    def _moved_after(self, place: int, newest: int, broker_id: int | None, topic: str, bits: int) -> bool:
        later = self.made[place + 1 : newest + 1]
        return any(one.broker_id == broker_id and one.topics.get(topic, 0) & bits for one in later)


#: no bits stand for these: an existing replica is online unless a bit says otherwise, a missing one has no state
_WITHOUT_BITS: Final = frozenset((_P.ONLINE, _P.NON_EXISTENT, _R.ONLINE, _R.NON_EXISTENT))


class KeptStates:
    """Part of the `Cluster`; only `Cluster.load` and `Cluster.apply` change it."""

    def __init__(self) -> None:
        #: state -> topic -> bits
        self.partitions: dict[PartitionStatus, dict[str, int]] = {}
        #: broker id -> state -> topic -> bits
        self.replicas: dict[int, dict[ReplicaStatus, dict[str, int]]] = {}
        #: topic -> on how many brokers it has new replicas
        self.new: dict[str, int] = {}

    def replicas_of(self, broker_id: int, topic: str) -> Kept[ReplicaStatus]:
        kept = self.replicas.get(broker_id)
        if not kept:
            return {}
        return {status: bits for status, topics in kept.items() if (bits := topics.get(topic))}

    def partitions_of(self, topic: str) -> Kept[PartitionStatus]:
        return {status: bits for status, topics in self.partitions.items() if (bits := topics.get(topic))}

    def not_online(self, topic: str) -> int:
        """Bits of the partitions of a topic that are in another state."""
        bits = 0
        for topics in self.partitions.values():
            bits |= topics.get(topic, 0)
        return bits

    def of_partition(self, topic: str, number: int) -> PartitionStatus:
        """Of one that exists."""
        for status, topics in self.partitions.items():
            if (bits := topics.get(topic)) is not None and bits >> number & 1:
                return status
        return _ONLINE

    def of_replica(self, topic: str, number: int, broker_id: int) -> ReplicaStatus:
        """Of one that exists."""
        for status, topics in self.replicas.get(broker_id, {}).items():
            if topics.get(topic, 0) >> number & 1:
                return status
        return _R.ONLINE

    def replicas_in(self, broker_id: int, status: ReplicaStatus) -> dict[str, int]:
        """Topic -> those of its replicas on a broker that are in this state."""
        return self.replicas.get(broker_id, {}).get(status, {})

    def new_on(self, topic: str) -> bool:
        """Returns whether any replica of a topic is new."""
        return topic in self.new

    def dropped_on(self, broker_id: int) -> list[str]:
        """Returns the keys of replicas that a reassignment dropped and that are not deleted yet."""
        kept = self.replicas.get(broker_id, {})
        return sorted({key for topics in kept.values() for key in topics if ":" in key})

    def held(self) -> Iterator[tuple[Status, int | None, dict[str, int]]]:
        """All that is not online: state, broker id if these are replicas, and topic -> bits; as it is now."""
        for status, topics in self.partitions.items():
            yield status, None, dict(topics)
        for broker_id, kept in sorted(self.replicas.items()):
            for replica_status, topics in kept.items():
                yield replica_status, broker_id, dict(topics)

    def begin_partitions(self, topic: str, bits: int, status: PartitionStatus) -> None:
        """As a term finds them."""
        self.shift_partitions(topic, bits, _P.NON_EXISTENT, status)

    def begin_replicas(self, broker_id: int, topic: str, bits: int, status: ReplicaStatus) -> None:
        self.shift_replicas(broker_id, topic, bits, _R.NON_EXISTENT, status, topic)

    def unlike_online(self, broker_id: int | None, topics: Collection[str]) -> set[str]:
        """Of these topics, those of which any partition, or any replica on a broker, is not online."""
        kept = self.partitions if broker_id is None else self.replicas.get(broker_id, {})
        return {topic for some in kept.values() for topic in some if topic in topics}

    def leave_online(self, broker_id: int | None, topics: dict[str, int], target: Status) -> None:
        """All of these are online."""
        kept: Any = self.partitions if broker_id is None else self.replicas.setdefault(broker_id, {})
        kept.setdefault(target, {}).update(topics)

    def return_online(self, broker_id: int, topics: Collection[str]) -> None:
        """All that is offline on a broker of these."""
        kept = self.replicas[broker_id]
        left = {topic: bits for topic, bits in kept[_R.OFFLINE].items() if topic not in topics}
        if left:
            kept[_R.OFFLINE] = left
            return
        del kept[_R.OFFLINE]
        if not kept:
            del self.replicas[broker_id]

    def shift_partitions(self, topic: str, bits: int, source: PartitionStatus, target: PartitionStatus) -> None:
        _shift(self.partitions, topic, topic, bits, source, target)

    def shift_replicas(
        self, broker_id: int, topic: str, bits: int, source: ReplicaStatus, target: ReplicaStatus, to: str
    ) -> None:
        kept = self.replicas.get(broker_id)
        if kept is None:
            kept = self.replicas[broker_id] = {}
        if target is _R.NEW and to not in kept.get(_R.NEW, ()):
            self.new[to] = self.new.get(to, 0) + 1
        _shift(kept, topic, to, bits, source, target)
        if source is _R.NEW and topic not in kept.get(_R.NEW, ()):
            self.new[topic] -= 1
            if not self.new[topic]:
                del self.new[topic]
        if not kept:
            del self.replicas[broker_id]


def _shift(kept: dict[_S, dict[str, int]], topic: str, to: str, bits: int, source: _S, target: _S) -> None:
    if source not in _WITHOUT_BITS:
        topics = kept[source]
        left = topics[topic] & ~bits
        if left:
            topics[topic] = left
        else:
            del topics[topic]
            if not topics:
                del kept[source]
    if target not in _WITHOUT_BITS:
        topics = kept.get(target) or kept.setdefault(target, {})
        topics[to] = topics.get(to, 0) | bits


class TriedStates(KeptStates):
    """The kept states as they will be once the decided changes stand; the kept ones are left as they are."""

    def __init__(self, kept: KeptStates) -> None:
        super().__init__()
        self._kept = kept
        self._partitions: dict[str, Kept[PartitionStatus]] = {}
        self._replicas: dict[int, dict[str, Kept[ReplicaStatus]]] = {}
        self._new: set[str] = set()

    def partitions_of(self, topic: str) -> Kept[PartitionStatus]:
        tried = self._partitions.get(topic)
        return self._kept.partitions_of(topic) if tried is None else tried

    def replicas_of(self, broker_id: int, topic: str) -> Kept[ReplicaStatus]:
        tried = self._replicas.get(broker_id, {}).get(topic)
        return self._kept.replicas_of(broker_id, topic) if tried is None else tried

    def not_online(self, topic: str) -> int:
        tried = self._partitions.get(topic)
        if tried is None:
            return self._kept.not_online(topic)
        bits = 0
        for held in tried.values():
            bits |= held
        return bits

    def of_partition(self, topic: str, number: int) -> PartitionStatus:
        tried = self._partitions.get(topic)
        if tried is None:
            return self._kept.of_partition(topic, number) if self._kept.partitions else _ONLINE
        for status, bits in tried.items():
            if bits >> number & 1:
                return status
        return _ONLINE

    def of_replica(self, topic: str, number: int, broker_id: int) -> ReplicaStatus:
        for status, bits in self.replicas_of(broker_id, topic).items():
            if bits >> number & 1:
                return status
        return _R.ONLINE

    def replicas_in(self, broker_id: int, status: ReplicaStatus) -> dict[str, int]:
        kept, tried = self._kept.replicas_in(broker_id, status), self._replicas.get(broker_id)
        if not tried:
            return kept
        return kept | {topic: one.get(status, 0) for topic, one in tried.items()}

    def new_on(self, topic: str) -> bool:
        return topic in self._new or topic in self._kept.new

    def unlike_online(self, broker_id: int | None, topics: Collection[str]) -> set[str]:
        tried = self._partitions if broker_id is None else self._replicas.get(broker_id, {})
        return self._kept.unlike_online(broker_id, topics).union(topic for topic in tried if topic in topics)

    def leave_online(self, broker_id: int | None, topics: dict[str, int], target: Status) -> None:
        tried: dict[str, Any] = self._partitions if broker_id is None else self._replicas.setdefault(broker_id, {})
        tried.update({topic: {target: bits} for topic, bits in topics.items()})

    def return_online(self, broker_id: int, topics: Collection[str]) -> None:
        here = self._replicas.setdefault(broker_id, {})
        kept = self._kept.replicas.get(broker_id, {})
        others = [held for status, held in kept.items() if status is not _R.OFFLINE]
        for topic in topics:
            tried = here.get(topic)
            if tried is None and any(topic in held for held in others):
                tried = self._kept.replicas_of(broker_id, topic)
            here[topic] = {} if tried is None else {one: bits for one, bits in tried.items() if one is not _R.OFFLINE}

    def shift_partitions(self, topic: str, bits: int, source: PartitionStatus, target: PartitionStatus) -> None:
        tried = self._partitions.get(topic)
        if tried is None:
            tried = self._partitions[topic] = self._kept.partitions_of(topic)
        _shift_tried(tried, tried, bits, source, target)

    def shift_replicas(
        self, broker_id: int, topic: str, bits: int, source: ReplicaStatus, target: ReplicaStatus, to: str
    ) -> None:
        here = self._replicas.setdefault(broker_id, {})
        for key in (topic, to):
            if key not in here:
                here[key] = self._kept.replicas_of(broker_id, key)
        _shift_tried(here[topic], here[to], bits, source, target)
        if target is _R.NEW:
            self._new.add(to)


def _shift_tried(before: Kept[_S], after: Kept[_S], bits: int, source: _S, target: _S) -> None:
    if source not in _WITHOUT_BITS:
        before[source] &= ~bits
    if target not in _WITHOUT_BITS:
        after[target] = after.get(target, 0) | bits


class Mover:
    """Carries out moves: from the kept state, state by state along the way. With `moves` it believes and notes every
    move; without, it is a trial, which refuses a move that no table has."""

    def __init__(self, states: KeptStates, moves: Moves | None = None) -> None:
        self.states = states
        self._moves = moves
        #: moves of leaderships decided together: (broker id or None, source, target, cause) -> topic -> numbers
        self._soon: dict[tuple[int | None, Any, Any, Cause], dict[str, list[int]]] = {}

    @property
    def is_trial(self) -> bool:
        return self._moves is None

    def partitions(self, topic: str, bits: int, *way: PartitionStatus, cause: Cause) -> None:
        """Of partitions that exist, those that are not there yet."""
        for target in way:
            rest = bits
            for source, held in list(self.states.partitions_of(topic).items()):
                if some := held & rest:
                    rest &= ~some
                    if source is not target:
                        self.partition_move(topic, some, source, target, cause)
            if rest and target is not _P.ONLINE:
                self.partition_move(topic, rest, _P.ONLINE, target, cause)

    def replicas(self, broker_id: int, topic: str, bits: int, *way: ReplicaStatus, cause: Cause) -> None:
        for target in way:
            rest = bits
            for source, held in list(self.states.replicas_of(broker_id, topic).items()):
                if some := held & rest:
                    rest &= ~some
                    if source is not target:
                        self.replica_move(broker_id, topic, some, source, target, cause)
            if rest and target is not _R.ONLINE:
                self.replica_move(broker_id, topic, rest, _R.ONLINE, target, cause)

    def all_online(self, broker_id: int | None, topics: dict[str, int], target: Status, cause: Cause) -> None:
        """Of partitions (None), or of replicas on one broker, in many topics: at once where all of them are online, as
        nearly all are when a broker dies."""
        unlike = self.states.unlike_online(broker_id, topics)
        online = {topic: bits for topic, bits in topics.items() if topic not in unlike} if unlike else topics
        if online:
            source: Status = _P.ONLINE if broker_id is None else _R.ONLINE
            if self._moves is not None:
                self._moves.add_all(source, target, cause, broker_id, online)
            elif not is_legal(source, target):
                raise IllegalMoveError(f"nothing moves from {source.value} to {target.value}: {min(online)}")
            self.states.leave_online(broker_id, online, target)
        for topic in sorted(unlike):
            if broker_id is None:
                assert isinstance(target, PartitionStatus)
                self.partitions(topic, topics[topic], target, cause=cause)
            else:
                assert isinstance(target, ReplicaStatus)
                self.replicas(broker_id, topic, topics[topic], target, cause=cause)

    def all_back(self, broker_id: int, topics: dict[str, int], cause: Cause) -> None:
        """All that is offline on a broker of these topics: online, at once."""
        if not topics:
            return
        if self._moves is not None:
            self._moves.add_all(_R.OFFLINE, _R.ONLINE, cause, broker_id, topics)
        elif not is_legal(_R.OFFLINE, _R.ONLINE):
            raise IllegalMoveError(f"nothing moves from {_R.OFFLINE.value} to {_R.ONLINE.value}: {next(iter(topics))}")
        self.states.return_online(broker_id, topics)

    def decided(self, broker_id: int | None, topic: str, number: int, source: _S, target: _S, cause: Cause) -> None:
        """Of a partition (None), or of its replica on a broker: with others of its topic, when `settle` is called.
        Until then their states must not be read."""
        key = (broker_id, source, target, cause)
        soon = self._soon.get(key)
        if soon is None:
            if self._moves is None and not is_legal(source, target):
                raise IllegalMoveError(f"nothing moves from {source.value} to {target.value}: {topic}")
            soon = self._soon[key] = {}
        numbers = soon.get(topic)
        if numbers is None:
            soon[topic] = [number]
        else:
            numbers.append(number)

    def settle(self) -> None:
        """Make the moves that were only noted."""
        if self._soon:
            soon, self._soon = self._soon, {}
            for (broker_id, source, target, cause), topics in soon.items():
                for topic, numbers in topics.items():
                    if broker_id is None:
                        self.partition_move(topic, bits_of(numbers), source, target, cause)
                    else:
                        self.replica_move(broker_id, topic, bits_of(numbers), source, target, cause)

    def partition_move(
        self, topic: str, bits: int, source: PartitionStatus, target: PartitionStatus, cause: Cause
    ) -> None:
        """All of these, from where they are."""
        self._note(source, target, cause, None, topic, bits)
        if source is not target:
            self.states.shift_partitions(topic, bits, source, target)

    def replica_move(
        self,
        broker_id: int,
        topic: str,
        bits: int,
        source: ReplicaStatus,
        target: ReplicaStatus,
        cause: Cause,
        *,
        to: str | None = None,
    ) -> None:
        """All of these, from where they are. `to`: under this key they are kept from now on, since they are assigned no
        more, or again."""
        self._note(source, target, cause, broker_id, topic, bits)
        self.states.shift_replicas(broker_id, topic, bits, source, target, topic if to is None else to)

    def _note(self, source: Status, target: Status, cause: Cause, broker_id: int | None, topic: str, bits: int) -> None:
        if self._moves is not None:
            self._moves.add(source, target, cause, broker_id, topic_of(topic), bits)
        elif not is_legal(source, target):
            raise IllegalMoveError(f"nothing moves from {source.value} to {target.value}: {topic}")
