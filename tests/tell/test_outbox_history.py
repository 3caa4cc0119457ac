"""Outboxes under random histories: leaderships, stops, bounces, lost requests and lost answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Broker, Partition
from controller.core.project.requests import (
    Rows,
    Stop,
    Stops,
    TopicKey,
)
from controller.tell.dialects import NotAcknowledgedError, Request
from controller.wire.bodies import UPDATE_METADATA
from tests.tell.outbox_support import (
    A,
    B,
    Fixture,
    a_broker,
    a_state,
    outboxes,
)

PARTITIONS = st.sets(st.tuples(st.sampled_from([A, B]), st.integers(0, 2)), min_size=1)
# One letter of a random history: a telling about some partitions, a broker that bounces, or turns of the loop.
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("lead"), PARTITIONS, st.booleans()),
        st.tuples(st.just("stop"), PARTITIONS, st.booleans()),
        st.tuples(st.just("bounce"), st.integers(1, 2)),
        st.tuples(st.just("run"), st.integers(1, 8)),
    ),
    max_size=25,
)
FATES = st.lists(st.sampled_from(["good", "lost request", "lost answer"]), max_size=40)
#: a number that rises with each decision and stands for the leader epoch, and: lead, new, stop or delete
Word = tuple[int, str]
#: broker id, broker epoch, topic, partition
Replica = tuple[int, int, TopicKey, int]


class History:
    """The decisions, and the requests that each incarnation heard of them."""

    def __init__(self, fates: list[str]) -> None:
        self.fates = fates
        self.decisions = 0
        self.epochs = {1: 1, 2: 1}
        self.states: dict[TopicKey, dict[int, Partition]] = defaultdict(dict)
        self.decided: dict[Replica, list[Word]] = defaultdict(list)
        self.heard: dict[Replica, list[Word]] = defaultdict(list)
        self.metadata: dict[Replica, list[int]] = defaultdict(list)

    def lead(self, o: Fixture, where: set[tuple[TopicKey, int]], is_new: bool) -> None:
        rows: Rows = defaultdict(dict)
        self._decide(where, "new" if is_new else "lead")
        for key, number in where:
            self.states[key][number] = rows[key][number] = a_state(self.decisions)
        new = {(key[1], number, broker_id) for key, number in where for broker_id in self.epochs if is_new}
        o.tell(metadata=rows, leaderships={1: rows, 2: rows}, new_replicas=frozenset(new))

    def stop(self, o: Fixture, where: set[tuple[TopicKey, int]], is_deleted: bool) -> None:
        stops: Stops = defaultdict(dict)
        self._decide(where, "delete" if is_deleted else "stop")
        for key, number in where:
            stops[key][number] = Stop(self.decisions, is_deleted)
        o.tell(stops={1: stops, 2: stops})

    def bounce(self, o: Fixture, broker_id: int) -> None:
        gone = (broker_id, self.epochs[broker_id])
        epoch = self.epochs[broker_id] = self.epochs[broker_id] + 1
        everything = {key: dict(rows) for key, rows in self.states.items()}
        for key, rows in everything.items():
            for number, partition in rows.items():
                self.decided[broker_id, epoch, key, number] = [(partition.version, "lead")]
        o.tell(gone=[gone], joined=[a_broker(broker_id, epoch)], everything=everything)

    def hear(self, broker: Broker, request: Request) -> Exception | None:
        fate = self.fates.pop() if self.fates else "good"
        if fate != "lost request":
            incarnation = broker.broker_id, broker.epoch
            for key, partitions in request.rows.items():
                for number, partition in partitions.items():
                    assert partition is not None
                    replica = (*incarnation, key, number)
                    if request.path == UPDATE_METADATA:
                        self.metadata[replica].append(partition.version)
                    else:
                        kind = "new" if (key[1], number) in request.new else "lead"
                        self.heard[replica].append((partition.version, kind))
            for key, stops in request.stops.items():
                for number, stop in stops.items():
                    kind = "delete" if stop.delete else "stop"
                    self.heard[*incarnation, key, number].append((stop.leader_epoch, kind))
        return None if fate == "good" else NotAcknowledgedError(fate)

    def check(self) -> None:
        for told in (*self.metadata.values(), *([at for at, _ in heard] for heard in self.heard.values())):
            assert told == sorted(told), "an older decision followed a newer one"
        for replica, decided in self.decided.items():
            if self.epochs[replica[0]] == replica[1]:
                check_replica(decided, self.heard[replica])
        for broker_id, epoch in self.epochs.items():
            for key, partitions in self.states.items():
                for number, partition in partitions.items():
                    assert self.metadata[broker_id, epoch, key, number][-1] == partition.version

    def _decide(self, where: set[tuple[TopicKey, int]], kind: str) -> None:
        self.decisions += 1
        for key, number in where:
            for incarnation in self.epochs.items():
                self.decided[*incarnation, key, number].append((self.decisions, kind))


def check_replica(decided: list[Word], heard: list[Word]) -> None:
    """One incarnation's replica, after all was acknowledged."""
    assert {at for at, _ in heard} <= {at for at, _ in decided}
    last_at, last_kind = heard[-1] if heard else (-1, "")
    after = [kind for at, kind in decided if at > last_at]
    assert not after or (last_kind == "delete" and set(after) == {"stop"}), "the last decision was not heard"
    for at, kind in decided:
        since = [word for word in heard if word[0] >= at]
        if kind == "delete":
            assert since[0][1] == "delete", "a delete was merged away"
        elif kind == "new":
            assert next(kind for _, kind in since if kind in ("lead", "new")) == "new", "is_new was merged away"


@given(moves=MOVES, fates=FATES, limit=st.integers(1, 4))
def test_each_incarnation_hears_a_subsequence_of_the_decisions_ending_with_the_last(
    moves: list[tuple], fates: list[str], limit: int
) -> None:
    asyncio.run(tell_all(moves, History(fates), limit))


async def tell_all(moves: list[tuple], history: History, limit: int) -> None:
    async with outboxes(partitions_per_rpc=limit) as o:
        o.dialect.behave = history.hear
        o.tell(joined=[a_broker(1), a_broker(2)], everything={})
        for kind, *what in moves:
            if kind == "run":
                for _ in range(*what):
                    await asyncio.sleep(0)
            else:
                getattr(history, kind)(o, *what)
        await o.settled()
    history.check()
