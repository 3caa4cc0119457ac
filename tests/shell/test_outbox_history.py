"""Outboxes under random histories: tellings, bounces, lost requests and lost answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Broker, Partition
from controller.core.requests import Rows, TopicKey
from controller.dialects import NotAcknowledgedError, Request
from controller.wire import LEADER_AND_ISR, UPDATE_METADATA
from tests.shell.outbox_support import A, B, Fixture, a_broker, a_state, outboxes

PARTITIONS = st.tuples(st.sampled_from([A, B]), st.integers(0, 2))
# One letter of a random history: a telling about some partitions, a broker that bounces, or turns of the loop.
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.sets(PARTITIONS, min_size=1), st.booleans()),
        st.tuples(st.just("bounce"), st.integers(1, 2)),
        st.tuples(st.just("run"), st.integers(1, 8)),
    ),
    max_size=25,
)
FATES = st.lists(st.sampled_from(["good", "lost request", "lost answer"]), max_size=40)


class History:
    """What was decided, and what each incarnation (broker id, epoch) heard of it."""

    def __init__(self, fates: list[str]) -> None:
        self.fates = fates
        self.epochs = {1: 1, 2: 1}
        self.states: dict[TopicKey, dict[int, Partition]] = defaultdict(dict)
        self.heard: dict[tuple, list[int]] = defaultdict(list)
        self.heard_new: set[tuple] = set()
        self.wanted_new: set[tuple] = set()

    def decide(self, o: Fixture, where: set[tuple[TopicKey, int]], is_new: bool) -> None:
        rows: Rows = defaultdict(dict)
        for key, number in where:
            before = self.states[key].get(number)
            leader_epoch = 0 if before is None or before.state is None else before.state.leader_epoch + 1
            self.states[key][number] = rows[key][number] = a_state(leader_epoch)
        new = {(key[1], number, broker_id) for key, number in where for broker_id in self.epochs if is_new}
        self.wanted_new |= {(broker_id, self.epochs[broker_id], *replica) for *replica, broker_id in new}
        o.tell(metadata=rows, leaderships={1: rows, 2: rows}, new_replicas=frozenset(new))

    def bounce(self, o: Fixture, broker_id: int) -> None:
        gone = (broker_id, self.epochs[broker_id])
        self.epochs[broker_id] += 1
        everything = {key: dict(rows) for key, rows in self.states.items()}
        o.tell(gone=[gone], joined=[a_broker(broker_id, self.epochs[broker_id])], everything=everything)

    def hear(self, broker: Broker, request: Request) -> Exception | None:
        fate = self.fates.pop() if self.fates else "good"
        if fate != "lost request":
            incarnation = (broker.broker_id, broker.epoch)
            for key, partitions in request.rows.items():
                for number, partition in partitions.items():
                    assert partition is not None
                    assert partition.state is not None
                    self.heard[*incarnation, request.path, key, number].append(partition.state.leader_epoch)
            self.heard_new |= {(*incarnation, *replica) for replica in request.new}
        return None if fate == "good" else NotAcknowledgedError(fate)

    def check(self) -> None:
        for told in self.heard.values():
            assert told == sorted(told), "an older state followed a newer one"
        for incarnation in self.epochs.items():
            for key, partitions in self.states.items():
                for number, partition in partitions.items():
                    assert partition.state is not None
                    for path in (LEADER_AND_ISR, UPDATE_METADATA):
                        assert self.heard[*incarnation, path, key, number][-1] == partition.state.leader_epoch
            lost = {mark for mark in self.wanted_new - self.heard_new if mark[:2] == incarnation}
            assert not lost, "is_new was merged away"


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
            if kind == "tell":
                history.decide(o, *what)
            elif kind == "bounce":
                history.bounce(o, *what)
            else:
                for _ in range(*what):
                    await asyncio.sleep(0)
        await o.settled()
    history.check()
