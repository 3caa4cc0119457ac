"""Outboxes: replicas to be stopped, and brokers' answers about replicas."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from controller.core.events import LeaderAndIsrAnswered, RefusalsAnswered, StopReplicaAnswered, ToldRefused
from controller.core.project.requests import Stop
from controller.tell.dialects import NotAcknowledgedError, Request
from controller.wire.bodies import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    Answer,
    Refusal,
)
from tests.tell.outbox_support import (
    A,
    B,
    Fixture,
    a_broker,
    a_state,
    outboxes,
)

STOP, DELETE, DELETE_TOPIC = Stop(5, delete=False), Stop(5, delete=True), Stop(-2, delete=True)
A0, A1, B0 = ("a-id", 0), ("a-id", 1), ("b-id", 0)


def stop_refused(code: int, leader_epoch: int) -> ToldRefused:
    return ToldRefused("StopReplica", code, leader_epoch)


async def until_told(o: Fixture) -> None:
    await o.until(lambda: bool(o.dialect.arrived))


async def test_stops_come_last_and_only_to_their_broker() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1), a_broker(2))
        rows = {A: {0: a_state(5)}}
        o.tell(metadata=rows, leaderships={1: rows, 2: rows}, stops={1: {A: {0: STOP}, B: {1: DELETE_TOPIC}}})
        assert o.outboxes.status()[1].depth == 4
        await o.settled()
        assert o.dialect.told(1) == [("LISR", "a-0@5"), ("UM", "a-0@5"), ("SR", "a-0@5", "b-1@-2!")]
        assert o.dialect.told(2) == [("LISR", "a-0@5"), ("UM", "a-0@5")]


async def test_a_joining_broker_gets_its_stops_after_its_full_lists() -> None:
    async with outboxes() as o:
        o.tell(joined=[a_broker(1)], everything={A: {0: a_state(1)}}, stops={1: {B: {0: DELETE_TOPIC}}})
        await o.settled()
        assert o.dialect.told(1) == [("UM*B", "a-0@1"), ("LISR*", "a-0@1"), ("SR", "b-0@-2!")]


async def test_stops_are_cut_at_the_limit_and_sent_until_they_are_acknowledged() -> None:
    async with outboxes(partitions_per_rpc=2) as o:
        await o.join(a_broker(1))
        fates = [NotAcknowledgedError("no answer"), None, None]
        o.dialect.behave = lambda *_: fates.pop(0)
        o.tell(stops={1: {A: dict.fromkeys(range(3), DELETE_TOPIC)}})
        await o.settled()
        both = ("SR", "a-0@-2!", "a-1@-2!")
        assert o.dialect.told(1) == [both, both, ("SR", "a-2@-2!")]


async def test_a_delete_is_not_undone_by_a_later_stop_nor_by_the_removal_of_its_topic() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.tell(stops={1: {A: {0: DELETE, 1: STOP}}})
        o.tell(stops={1: {A: {0: STOP, 1: DELETE_TOPIC}}}, removed={A: [0, 1]})
        await o.settled()
        assert o.dialect.told(1) == [("UM", "a-0x", "a-1x"), ("SR", "a-0@5!", "a-1@-2!")]


async def test_a_replica_wanted_again_is_deleted_first_but_not_stopped_any_more() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.tell(stops={1: {A: {0: DELETE, 1: STOP, 2: STOP}}})
        o.tell(leaderships={1: {A: {0: a_state(6), 1: a_state(6)}}}, new_replicas=frozenset({(*A0, 1)}))
        await o.settled()
        assert o.dialect.told(1) == [("SR", "a-0@5!"), ("LISR", "a-0@6+", "a-1@6"), ("SR", "a-2@5")]


async def test_a_topic_made_anew_under_its_name_leaves_the_stops_of_the_old_one_alone() -> None:
    anew = ("a", "other-id")
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.tell(stops={1: {A: {0: DELETE_TOPIC}}})
        o.tell(leaderships={1: {anew: {0: a_state(0)}}}, stops={1: {anew: {0: STOP}}})
        await o.settled()
        assert o.dialect.told(1) == [("LISR", "a-0@0"), ("SR", "a-0@-2!", "a-0@5")]


async def test_removed_and_added_while_it_is_still_told_as_new_it_is_new_once_more() -> None:
    new = frozenset({(*A0, 1)})
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.tell(leaderships={1: {A: {0: a_state(1)}}}, new_replicas=new)
        await until_told(o)
        o.tell(stops={1: {A: {0: DELETE}}})
        o.tell(leaderships={1: {A: {0: a_state(6)}}}, new_replicas=new)
        await o.settled()
        assert o.dialect.told(1) == [("LISR", "a-0@1+"), ("SR", "a-0@5!"), ("LISR", "a-0@6+")]


async def test_the_same_stop_after_a_leadership_is_another_one() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        for stop in (STOP, DELETE):
            o.dialect.arrived.clear()
            o.tell(stops={1: {A: {0: stop}}})
            await until_told(o)
            o.tell(leaderships={1: {A: {0: a_state(5)}}})
            o.tell(stops={1: {A: {0: stop}}})
            await o.settled()
            told = [words[0] for words in o.dialect.told(1)]
            assert (told[0], told[-2:]) == ("SR", ["LISR", "SR"])


async def test_a_full_list_leaves_out_a_replica_deleted_before_it_is_wanted_again() -> None:
    async with outboxes() as o:
        o.tell(joined=[a_broker(1)], everything={A: {0: a_state(1), 1: a_state(1)}})
        await until_told(o)
        o.tell(stops={1: {A: {0: DELETE}}})
        o.tell(leaderships={1: {A: {0: a_state(6), 1: a_state(6)}}}, new_replicas=frozenset({(*A0, 1)}))
        await o.settled()
        assert o.dialect.told(1)[1:] == [("LISR*", "a-1@6"), ("SR", "a-0@5!"), ("LISR", "a-0@6+")]


async def test_only_deletions_are_reported_with_those_refused() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.dialect.behave = lambda *_: Answer(0, [Refusal(*A0, 56), Refusal(*B0, 74)])
        o.tell(stops={1: {A: {0: DELETE, 1: DELETE}, B: {0: STOP}}})
        await o.settled()
        o.tell(stops={1: {B: {0: STOP}}})
        await o.settled()
        o.dialect.behave = lambda *_: Answer(-1)
        o.tell(stops={1: {B: {0: DELETE}}})
        await o.settled()
        assert o.answers == [
            StopReplicaAnswered(1, 1, frozenset({A0, A1}), frozenset({A0})),
            RefusalsAnswered(1, 1, {A0: stop_refused(56, 5), B0: stop_refused(74, 5)}),
            RefusalsAnswered(1, 1, {B0: stop_refused(74, 5)}),
            StopReplicaAnswered(1, 1, frozenset({B0}), frozenset({B0})),
            RefusalsAnswered(1, 1, {B0: stop_refused(-1, 5)}),
        ]


def storage_errors(*numbers: int) -> Answer:
    return Answer(0, [Refusal("a-id", number, 56) for number in numbers])


async def test_failed_directories_are_reported_with_the_served_replicas_and_so_is_their_return() -> None:
    with capture_logs() as logs:
        async with outboxes() as o:
            await o.join(a_broker(1))
            o.dialect.behave = lambda _, r: storage_errors(0) if r.path == LEADER_AND_ISR else None
            rows = {A: {0: a_state(1), 1: a_state(1)}}
            o.tell(metadata=rows, leaderships={1: rows})
            await o.settled()
            o.dialect.behave = lambda *_: None
            o.tell(metadata=rows, leaderships={1: {A: {0: a_state(2)}}})  # belief has not heard of it yet
            await o.settled()
    assert o.answers == [
        LeaderAndIsrAnswered(1, 1, frozenset({A1}), frozenset({A0})),
        LeaderAndIsrAnswered(1, 1, frozenset({A0})),
    ]
    assert logs == []


async def test_a_sound_brokers_replicas_are_no_event_but_a_suspects_are() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1), a_broker(2))
        rows = {A: {0: a_state(1), 1: a_state(1)}}
        o.dialect.behave = lambda *_: Answer(0, [Refusal(*A1, 3)])
        o.tell(leaderships={1: rows, 2: rows}, failed_dirs={2: frozenset()})
        await o.settled()
        assert [one for one in o.answers if not isinstance(one, RefusalsAnswered)] == [
            LeaderAndIsrAnswered(2, 1, frozenset({A0}))
        ]


async def test_the_answer_to_the_last_part_of_a_full_list_is_about_all_of_it() -> None:
    async with outboxes(partitions_per_rpc=2) as o:
        o.dialect.behave = lambda _, r: storage_errors(0) if r.path == LEADER_AND_ISR and r.part == r.parts else None
        o.tell(joined=[a_broker(1)], everything={A: {number: a_state(1) for number in range(3)}})
        await o.settled()
        assert o.answers == [LeaderAndIsrAnswered(1, 1, frozenset({A1, ("a-id", 2)}), frozenset({A0}))]


async def test_an_incarnation_that_is_over_is_not_waited_for() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def hold(_: object, request: Request) -> asyncio.Future[Answer]:
            assert request.path == STOP_REPLICA
            return answer

        o.dialect.behave = hold
        o.tell(stops={1: {A: {0: DELETE_TOPIC}}})
        await until_told(o)
        o.tell(gone=[(1, 1)])
        answer.set_result(Answer())
        await o.settled()
        assert o.answers == []
