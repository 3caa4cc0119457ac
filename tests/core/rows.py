"""Holds the writes and tellings of a step against the rows of both tables in `controller/core/states.py`.

Each thing has a *carrier*: the move that writes or tells it. A state, and the LeaderAndIsr and UpdateMetadata about a
partition, are carried by the last move of the partition in that step; if it did not move, by the moves of its replicas;
if none of them moved, by a row of `WITHOUT_A_MOVE`. A StopReplica is carried by a move of that replica. Each thing of a
carrier has to stand in its row, with that receiver. The rows that alone carried a thing are collected, so that a row
that says too much is found, too. Rests on moves, writes and tellings, not on how they were made.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from controller.core import states
from controller.core.belief.cluster import Cluster
from controller.core.belief.kept_states import Move
from controller.core.bitset import numbers_of
from controller.core.changes.cluster import (
    BrokerGone,
    BrokerLive,
    Committed,
    StateDecided,
    StateFound,
    TopicGone,
    TopicWritten,
)
from controller.core.changes.duties import DeletionQueued, RepeatedTo, ReplicasProbed, TopicIdDropped, TopicIdGiven
from controller.core.operations import Create, Delete
from controller.core.project.requests import Telling
from controller.core.project.znodes import Remove, RemoveBelow, Write
from controller.core.states import Cost, Item, Receivers, ReplicaStatus, Status, TellingWithoutMove, Tells

Row = tuple[Status, Status] | TellingWithoutMove
#: a partition: topic and number
Key = tuple[str, int]

_PATH: Final = re.compile(r"/brokers/topics/([^/]+)(?:(/partitions)(?:/(\d+)(/state)?)?)?")


_WAY_OUT: Final = (
    ReplicaStatus.DELETION_STARTED,
    ReplicaStatus.DELETION_SUCCESSFUL,
    ReplicaStatus.DELETION_INELIGIBLE,
    ReplicaStatus.NON_EXISTENT,
)
#: carries nothing: it follows from a state that was written for another reason
_IN_SYNC: Final = (ReplicaStatus.NEW, ReplicaStatus.ONLINE)
_RETURNS: Final = (ReplicaStatus.OFFLINE, ReplicaStatus.ONLINE)


class Thing(msgspec.Struct, frozen=True):
    """One thing that was written, or told to a broker, about a partition or all of a topic."""

    item: Item
    topic: str
    number: int | None = None
    receiver: int | None = None

    def __str__(self) -> str:
        about = self.topic if self.number is None else f"{self.topic}-{self.number}"
        return f"{self.item.value} of {about}" + ("" if self.receiver is None else f" to {self.receiver}")


class Step(msgspec.Struct):
    """The results of one step of a decision."""

    committed: list[Committed] = []
    moves: list[Move] = []
    writes: list[Write] = []
    #: replicas as they were before it
    replicas: dict[Key, tuple[int, ...]] = {}


class Judge:
    """Judges step after step; `outside` are the things in no row, `carried` those that each row carried alone."""

    def __init__(self) -> None:
        self.outside: list[str] = []
        self.carried: set[tuple[Row, Item]] = set()
        self.made: set[tuple[Status, Status]] = set()
        self._steps: WeakKeyDictionary[Cluster, Step] = WeakKeyDictionary()

    def apply(self, cluster: Cluster, committed: Sequence[Committed], moves: list[Move], writes: list[Write]) -> None:
        step = self._steps.setdefault(cluster, Step())
        step.committed += committed
        step.moves += moves
        step.writes += writes

    def tell(self, cluster: Cluster, telling: Telling) -> None:
        step = self._steps.pop(cluster, Step())
        carriers = _Carriers(cluster, step, telling)
        self.made |= {(move.source, move.target) for move in step.moves}
        for thing in (*_written(step.writes), *_told(telling)):
            rows = carriers.of(thing)
            allowing = {row for row, broker_id in rows if carriers.allows(row, thing, broker_id)}
            if not allowing:
                said = ", ".join(sorted({name_of(row) for row, _ in rows})) or "nothing"
                causes = sorted({type(one.change).__name__ for one in step.committed})
                self.outside.append(f"{thing}: carried by {said} ({', '.join(causes)})")
            elif len(allowing) == 1:
                self.carried.add((allowing.pop(), thing.item))


class _Carriers:
    def __init__(self, cluster: Cluster, step: Step, telling: Telling) -> None:
        self._cluster, self._telling = cluster, telling
        self._partitions: dict[Key, tuple[Status, Status]] = {}
        self._replicas: defaultdict[Key, list[tuple[int, tuple[Status, Status]]]] = defaultdict(list)
        for move in step.moves:
            for topic, bits in move.topics.items():
                for number in numbers_of(bits):
                    if move.broker_id is None:
                        self._partitions[topic, number] = (move.source, move.target)
                    else:
                        self._note_replica((topic, number), move.broker_id, (move.source, move.target))
        self._without: dict[Key | str, TellingWithoutMove] = {}
        self._again: set[int] = set()
        self._came_or_went: set[int] = set()
        for one in step.committed:
            self._note(one.change)

    def _note_replica(self, key: Key, broker_id: int, row: tuple[Status, Status]) -> None:
        """Of a replica on its way out, the last move counts."""
        before = self._replicas[key]
        if row[1] in _WAY_OUT:
            before[:] = [one for one in before if one[0] != broker_id]
        before.append((broker_id, row))

    def _note(self, change: object) -> None:
        match change:
            case StateDecided(by_leader=True, topic=topic, partition=number):
                self._without[topic, number] = TellingWithoutMove.ISR_ASKED
            case StateDecided(topic=topic, partition=number):
                self._without[topic, number] = TellingWithoutMove.LED_ON
            case TopicWritten(name=topic, touched=None) | TopicIdGiven(topic=topic):
                self._without[topic] = TellingWithoutMove.TOLD_ANEW
            case TopicWritten(name=topic, states=states):
                self._without[topic] = TellingWithoutMove.REASSIGNED
                for state in states:
                    self._without[topic, state.partition] = TellingWithoutMove.LED_ON
            case StateFound(topic=topic, partition=number):
                self._without[topic, number] = TellingWithoutMove.FOUND
            case TopicIdDropped(topic=topic) | DeletionQueued(topic=topic) | TopicGone(name=topic):
                self._without[topic] = TellingWithoutMove.FORGOTTEN
            case RepeatedTo(broker_id=broker_id) | ReplicasProbed(broker_id=broker_id):
                self._again.add(broker_id)
            case BrokerLive(broker=broker):
                self._came_or_went.add(broker.broker_id)
            case BrokerGone(broker_id=broker_id):
                self._came_or_went.add(broker_id)
            case _:
                pass

    def of(self, thing: Thing) -> list[tuple[Row, int | None]]:
        """Returns the rows that may carry it, each with the broker whose replica moved."""
        if thing.number is None:
            moved = {row for key, rows in self._replicas.items() if key[0] == thing.topic for _, row in rows}
            if thing.item in (Item.PARTITIONS, Item.ERASE_PARTITIONS):
                moved = {row for key, row in self._partitions.items() if key[0] == thing.topic}
            without = self._without.get(thing.topic)
            return [(row, None) for row in moved] or [(without or TellingWithoutMove.ERASED, None)]
        key = thing.topic, thing.number
        moved_replicas = ((row, broker_id) for broker_id, row in self._replicas[key] if row != _IN_SYNC)
        replicas: list[tuple[Row, int | None]] = list(moved_replicas)
        if thing.item in (Item.STOP, Item.DELETE):
            return [(row, broker_id) for row, broker_id in replicas if broker_id == thing.receiver]
        if thing.item in (Item.ERASE_STATE, Item.ERASE_PARTITION):
            return [(TellingWithoutMove.ERASED, None)]
        joined = {broker.broker_id for broker in self._telling.joined}
        if thing.receiver in joined:
            own = [one for one in replicas if one[1] == thing.receiver]
            return own if own and thing.item is Item.LEADER_AND_ISR else [(TellingWithoutMove.BROKER_COMES, None)]
        without = self._without.get(key)
        if without is TellingWithoutMove.ISR_ASKED:
            return [(without, None)]
        if key in self._partitions:
            found: list[tuple[Row, int | None]] = [(without, None)] if without is TellingWithoutMove.FOUND else []
            return [(self._partitions[key], None), *found]
        only_return = bool(replicas) and {row for row, _ in replicas} == {_RETURNS}
        if (
            only_return
            and without is TellingWithoutMove.LED_ON
            and not any(self.allows(row, thing, broker_id) for row, broker_id in replicas)
        ):
            return [(without, None)]  # a replica came back while the others were led on, for a reason of their own
        if replicas:
            return replicas
        if without is None and thing.receiver in self._again and thing.item is Item.LEADER_AND_ISR:
            return [(TellingWithoutMove.TOLD_AGAIN, None)]
        without = without or self._without.get(thing.topic)
        if without is None and self._hosts(key):
            without = TellingWithoutMove.BROKER_COMES
        return [] if without is None else [(without, None)]

    def _hosts(self, key: Key) -> bool:
        known = self._cluster.partition(*key)
        return known is not None and not self._came_or_went.isdisjoint(known.replicas)

    def allows(self, row: Row, thing: Thing, broker_id: int | None) -> bool:
        cost = _cost_of(row)
        if thing.receiver is None:
            return cost is not None and thing.item in cost.writes
        tells = [] if cost is None else [one for one in cost.tells if one.item is thing.item]
        return any(self._is_receiver(one, thing, broker_id) for one in tells)

    def _is_receiver(self, tells: Tells, thing: Thing, broker_id: int | None) -> bool:
        known = None if thing.number is None else self._cluster.partition(thing.topic, thing.number)
        if thing.receiver not in self._cluster.live_ids:
            return False
        hosts = known is not None and thing.receiver in known.replicas
        match tells.to:
            case Receivers.ALL:
                return True
            case Receivers.REPLICAS:
                return hosts
            case Receivers.OTHERS:
                return hosts and thing.receiver != broker_id
            case Receivers.OWN:
                return thing.receiver == broker_id
            case Receivers.COMING:
                return thing.receiver in self._came_or_went or bool(self._telling.joined)


def _cost_of(row: Row) -> Cost | None:
    if isinstance(row, TellingWithoutMove):
        return states.WITHOUT_A_MOVE.get(row)
    tables: dict[Any, Cost] = {**states.PARTITION_MOVES, **states.REPLICA_MOVES}
    return tables.get(row)


def name_of(row: Row) -> str:
    return row.value if isinstance(row, TellingWithoutMove) else f"{row[0].value} -> {row[1].value}"


def _written(writes: Iterable[Write]) -> Iterator[Thing]:
    """Of the znodes of topics. Other writes of requests (configuration, markers, notes) belong to no machine."""
    for write in writes:
        match = _PATH.fullmatch(write.path)
        if match is None:
            continue
        topic, parent, number, state = match.groups()
        is_end = isinstance(write, Delete | Remove | RemoveBelow)
        if number is not None:
            one = (Item.ERASE_STATE if is_end else Item.STATE) if state else None
            one = one or (Item.ERASE_PARTITION if is_end else Item.PARTITION)
            yield Thing(one, topic, int(number))
        elif parent is not None:
            yield Thing(Item.ERASE_PARTITIONS if is_end else Item.PARTITIONS, topic)
        elif is_end:
            yield Thing(Item.ERASE_TOPIC, topic)
        elif not isinstance(write, Create):  # a request's own node
            yield Thing(Item.TOPIC, topic)


def _told(telling: Telling) -> Iterator[Thing]:
    joined = {broker.broker_id for broker in telling.joined}
    for (topic, _), rows in (telling.everything or {}).items():
        for number, one in rows.items():
            for broker_id in joined:
                yield Thing(Item.UPDATE_METADATA, topic, number, broker_id)
                if broker_id in one.replicas:
                    yield Thing(Item.LEADER_AND_ISR, topic, number, broker_id)
    for broker_id, some in telling.leaderships.items():
        for (topic, _), rows in some.items():
            yield from (Thing(Item.LEADER_AND_ISR, topic, number, broker_id) for number in rows)
    for broker_id in telling.live_ids - joined:
        for (topic, _), rows in telling.metadata.items():
            yield from (Thing(Item.UPDATE_METADATA, topic, number, broker_id) for number in rows)
    for broker_id in telling.live_ids:
        for (topic, _), numbers in telling.removed.items():
            yield from (Thing(Item.UPDATE_METADATA, topic, number, broker_id) for number in numbers)
    for broker_id, stops in telling.stops.items():
        for (topic, _), wanted in stops.items():
            for number, stop in wanted.items():
                yield Thing(Item.DELETE if stop.delete else Item.STOP, topic, number, broker_id)


@contextmanager
def judging() -> Iterator[Judge]:
    """Judges every step of every cluster meanwhile."""
    from controller.loop import loop
    from tests import builders

    judge = Judge()
    apply, requests_for = Cluster.apply, loop.requests_for

    def applied(self: Cluster, committed: Iterable[Committed]) -> list[Move]:
        stood = list(committed)
        writes = [write for one in stood for write in one.change.writes(self)]
        moves = apply(self, stood)
        judge.apply(self, stood, moves, writes)
        return moves

    def told(cluster: Cluster, committed: Sequence[Committed]) -> Telling:
        telling = requests_for(cluster, committed)
        judge.tell(cluster, telling)
        return telling

    places = ((Cluster, "apply", applied), (loop, "requests_for", told), (builders, "requests_for", told))
    before = [(place, name, getattr(place, name)) for place, name, _ in places]
    for place, name, watched in places:
        setattr(place, name, watched)
    try:
        yield judge
    finally:
        for place, name, was in before:
            setattr(place, name, was)
