"""Outboxes: a state that a broker refuses, and takes at last, becomes an event; one that it always took does not."""

from __future__ import annotations

from controller.core.codes import Code
from controller.core.decide.broker_refusals import METADATA
from controller.core.events import RefusalsAnswered, ToldRefused
from controller.wire.bodies import (
    LEADER_AND_ISR,
    UPDATE_METADATA,
    Answer,
    Refusal,
)
from tests.tell.outbox_support import (
    A,
    B,
    a_broker,
    a_state,
    outboxes,
)

A0, A1, A2, B0 = ("a-id", 0), ("a-id", 1), ("a-id", 2), ("b-id", 0)


def stale(told: int, known: int) -> ToldRefused:
    return ToldRefused("LeaderAndIsr", Code.STALE_CONTROLLER_EPOCH, told, known)


async def test_a_refusal_has_the_refused_state_and_the_brokers_epoch_and_ends_when_it_is_taken() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.dialect.behave = lambda _, r: Answer(0, [Refusal(*A0, 11, 9)]) if r.path == LEADER_AND_ISR else None
        rows = {A: {0: a_state(3), 1: a_state(4)}}
        o.tell(metadata=rows, leaderships={1: rows})
        await o.settled()
        o.dialect.behave = lambda *_: None
        o.tell(metadata=rows, leaderships={1: {A: {1: a_state(5)}}})
        await o.settled()
        assert o.answers == [RefusalsAnswered(1, 1, {A0: stale(3, 9)})]
        for _ in range(2):
            o.tell(leaderships={1: {A: {0: a_state(10)}}})
            await o.settled()
        assert o.answers[1:] == [RefusalsAnswered(1, 1, {}, frozenset({A0}))], "once"


async def test_a_request_refused_as_a_whole_is_refused_for_all_that_it_tells() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.dialect.behave = lambda _, r: Answer(31) if r.path == LEADER_AND_ISR else None
        o.tell(leaderships={1: {A: {0: a_state(3), 1: a_state(4)}, B: {0: a_state(5)}}})
        await o.settled()
        refused = {key: ToldRefused("LeaderAndIsr", 31, epoch) for key, epoch in ((A0, 3), (A1, 4), (B0, 5))}
        assert o.answers == [RefusalsAnswered(1, 1, refused)]


async def test_metadata_refused_is_taken_with_the_whole_list_that_is_told_again() -> None:
    async with outboxes() as o:
        o.dialect.behave = lambda _, r: Answer(42) if r.path == UPDATE_METADATA else None
        rows = {A: {0: a_state(3)}}
        o.tell(joined=[a_broker(1)], everything=rows)
        await o.settled()
        o.dialect.behave = lambda *_: None
        o.tell(metadata=rows)
        await o.settled()
        assert o.answers == [RefusalsAnswered(1, 1, {METADATA: ToldRefused("UpdateMetadata", 42)})]
        o.tell(joined=[a_broker(1)], everything=rows)
        await o.settled()
        assert o.answers[1:] == [RefusalsAnswered(1, 1, {}, frozenset({METADATA}))]


async def test_a_refusal_of_one_part_of_a_full_list_is_not_ended_by_the_last_one() -> None:
    async with outboxes(partitions_per_rpc=1) as o:
        o.dialect.behave = lambda _, r: (
            Answer(0, [Refusal(*A0, 11, 9)]) if r.path == LEADER_AND_ISR and r.part == 1 else None
        )
        everything = {A: {number: a_state(3) for number in range(3)}}
        for _ in range(2):
            o.tell(joined=[a_broker(1)], everything=everything)
            await o.settled()
        assert o.answers == [RefusalsAnswered(1, 1, {A0: stale(3, 9)})] * 2
