"""Outboxes: the requests to each broker, in order, once and again."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from controller.core.events import RefusalsAnswered, ToldRefused
from controller.core.model import Broker, Partition
from controller.core.project.requests import KnownBroker, Telling
from controller.tell.dialects import Envelope, NotAcknowledgedError
from controller.wire.bodies import (
    LEADER_AND_ISR,
    UPDATE_METADATA,
    Answer,
    Refusal,
)
from tests.tell.outbox_support import (
    SHORT,
    A,
    B,
    a_broker,
    a_state,
    outboxes,
    words_for,
)


async def test_a_joining_broker_hears_all_metadata_then_all_its_replicas_then_changes() -> None:
    everything = {A: {0: a_state(1), 1: a_state(1, (2, 3))}, B: {0: a_state(4, (3, 1)), 1: Partition((1,))}}
    async with outboxes() as o:
        o.tell(joined=[a_broker(1)], everything=everything, new_replicas=frozenset({("b-id", 0, 1), ("a-id", 1, 2)}))
        await o.until(lambda: bool(o.dialect.arrived))  # under way: later changes are no part of it
        o.tell(metadata={A: {0: a_state(2)}}, leaderships={1: {A: {0: a_state(2)}}})
        await o.settled()
        assert o.dialect.told(1) == [
            ("UM*B", "a-0@1", "a-1@1", "b-0@4", "b-1-"),
            ("LISR*", "a-0@2", "b-0@4+"),
            ("UM", "a-0@2"),
        ]


async def test_brokers_come_first_then_leaderships_then_metadata() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.tell(metadata={A: {0: a_state(1)}}, leaderships={1: {A: {0: a_state(1)}}})
        o.tell(joined=[a_broker(2)], everything={A: {0: a_state(1)}})
        await o.settled()
        assert o.dialect.told(1) == [("UMB",), ("LISR", "a-0@1"), ("UM", "a-0@1")]
        assert [envelope for broker, _, envelope in o.dialect.arrived if broker.broker_id == 1] == [
            Envelope(1, 7, "7-3")
        ] * 3
        assert o.outboxes.status()[1].acknowledged_event_id == "7-3"


async def test_a_removed_topic_is_told_as_metadata_and_its_leaderships_no_more() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.tell(leaderships={1: {A: {0: a_state(1)}, B: {0: a_state(1)}}}, metadata={A: {0: a_state(1)}})
        o.tell(removed={A: [0]})
        await o.settled()
        assert o.dialect.told(1) == [("LISR", "b-0@1"), ("UM", "a-0x")]


async def test_a_full_list_under_way_is_followed_by_the_removal_and_its_replicas_are_left_out() -> None:
    async with outboxes() as o:
        o.tell(joined=[a_broker(1)], everything={A: {0: a_state(1)}, B: {0: a_state(1)}})
        await o.until(lambda: bool(o.dialect.arrived))
        o.tell(removed={A: [0]})
        await o.settled()
        assert o.dialect.told(1) == [("UM*B", "a-0@1", "b-0@1"), ("LISR*", "b-0@1"), ("UM", "a-0x")]


async def test_lists_are_cut_at_the_limit_and_full_ones_are_numbered() -> None:
    rows = {A: {n: a_state(1, (1,)) for n in range(5)}, B: {n: a_state(1, (2,)) for n in range(2)}}
    async with outboxes(partitions_per_rpc=3) as o:
        o.tell(joined=[a_broker(1)], everything=rows)
        await o.settled()
        o.tell(metadata=rows)
        await o.settled()
        assert [
            (SHORT[r.path], r.part, r.parts, r.tells_brokers, sum(map(len, r.rows.values())))
            for _, r, _ in o.dialect.arrived
        ] == [
            ("UM", 1, 3, True, 3), ("UM", 2, 3, False, 3), ("UM", 3, 3, False, 1),
            ("LISR", 1, 2, False, 3), ("LISR", 2, 2, False, 2),
            ("UM", 1, 1, False, 3), ("UM", 1, 1, False, 3), ("UM", 1, 1, False, 1),
        ]  # fmt: skip


async def test_metadata_is_encoded_once_for_all_brokers_that_keep_up() -> None:
    async with outboxes() as o:
        o.tell(joined=[a_broker(n) for n in range(1, 11)], everything={A: {0: a_state(1, (99,))}})
        await o.settled()
        o.tell(metadata={A: {0: a_state(2)}})
        await o.settled()
        encoded = [words_for(request) for request in o.dialect.encoded.values()]
        assert encoded.count(("UM*B", "a-0@1")) == 1
        assert encoded.count(("UM", "a-0@2")) == 1
        assert len(o.dialect.arrived) == 30


async def test_a_broker_that_hangs_delays_no_other_and_costs_one_state_per_partition() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1), a_broker(2))
        held: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        o.dialect.behave = lambda broker, _: held if broker.broker_id == 1 else None
        for epoch in range(1, 101):
            rows = {A: {0: a_state(epoch), 1: a_state(epoch)}}
            o.tell(metadata=rows, leaderships={1: rows, 2: rows})
            o.now += 1
            await o.until(lambda: o.outboxes.status()[2].depth == 0)
        assert o.dialect.told(2)[-1] == ("UM", "a-0@100", "a-1@100")
        assert o.dialect.told(1) == [("LISR", "a-0@1", "a-1@1")]
        status = o.outboxes.status()[1]
        assert (status.depth, status.age_ms, status.acknowledged_event_id) == (4, 100_000, "7-1")
        assert not o.outboxes.is_settled
        held.set_result(Answer())
        await o.settled()
        assert o.dialect.told(1)[1:] == [("LISR", "a-0@100", "a-1@100"), ("UM", "a-0@100", "a-1@100")]
        assert o.outboxes.is_settled
        assert o.outboxes.status()[1].age_ms == 0


async def test_metadata_that_changes_while_it_is_told_is_told_again_and_nothing_else() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.tell(metadata={A: {0: a_state(1), 1: a_state(1)}})
        await o.until(lambda: bool(o.dialect.arrived))
        o.tell(metadata={A: {1: a_state(2)}})
        await o.settled()
        assert o.dialect.told(1) == [("UM", "a-0@1", "a-1@1"), ("UM", "a-1@2")]


async def test_an_unacknowledged_state_is_told_again_in_its_latest_version() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.dialect.behave = lambda *_: NotAcknowledgedError("no answer")
        o.tell(metadata={A: {0: a_state(1), 1: a_state(1)}}, leaderships={1: {A: {0: a_state(1)}}})
        await o.until(lambda: len(o.dialect.arrived) >= 3)
        assert set(o.dialect.told(1)) == {("LISR", "a-0@1")}
        o.tell(metadata={A: {0: a_state(2)}}, leaderships={1: {A: {0: a_state(2)}}})
        o.dialect.arrived.clear()
        o.dialect.behave = lambda *_: None
        await o.settled()
        assert o.dialect.told(1) == [("LISR", "a-0@2"), ("UM", "a-0@2", "a-1@1")]


async def test_a_full_list_told_again_starts_at_part_one_with_the_latest_states() -> None:
    everything = {A: {0: a_state(1), 1: a_state(1)}, B: {0: a_state(1)}}
    async with outboxes(partitions_per_rpc=2) as o:
        o.dialect.behave = lambda _, r: NotAcknowledgedError("no answer") if r.part == 2 else None
        o.tell(joined=[a_broker(1)], everything=everything)
        await o.until(lambda: len(o.dialect.arrived) >= 4)
        o.tell(metadata={A: {1: a_state(2)}}, removed={B: [0]})
        o.dialect.behave = lambda *_: None
        await o.settled()
        assert o.dialect.told(1)[:2] * 2 == o.dialect.told(1)[:4] == [("UM*B", "a-0@1", "a-1@1"), ("UM*", "b-0@1")] * 2
        assert o.dialect.told(1)[-2:] == [("UM*B", "a-0@1", "a-1@2"), ("LISR*", "a-0@1", "a-1@2")]


async def test_is_new_stays_until_it_is_acknowledged_and_is_then_not_said_again() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.dialect.behave = lambda *_: NotAcknowledgedError("no answer")
        o.tell(leaderships={1: {A: {0: a_state(0)}}}, new_replicas=frozenset({("a-id", 0, 1)}))
        await o.until(lambda: bool(o.dialect.arrived))
        o.tell(leaderships={1: {A: {0: a_state(1)}}})
        o.dialect.behave = lambda *_: None
        await o.settled()
        o.tell(leaderships={1: {A: {0: a_state(2)}}})
        await o.settled()
        told = o.dialect.told(1)
        assert set(told[:-2]) == {("LISR", "a-0@0+")}
        assert told[-2:] == [("LISR", "a-0@1+"), ("LISR", "a-0@2")]


async def test_a_state_found_to_be_new_while_it_is_told_is_told_again_as_new() -> None:
    rows = {A: {0: a_state(1)}}
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.tell(leaderships={1: rows})
        await o.until(lambda: bool(o.dialect.arrived))
        o.tell(leaderships={1: rows}, new_replicas=frozenset({("a-id", 0, 1)}))
        await o.settled()
        assert o.dialect.told(1) == [("LISR", "a-0@1"), ("LISR", "a-0@1+")]


async def test_a_state_queued_again_while_it_is_told_is_told_again() -> None:
    """A broker may have lost a directory since it took the request in: a probe rests on the answer alone."""
    rows = {A: {0: a_state(1)}}
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.tell(leaderships={1: rows})
        await o.until(lambda: bool(o.dialect.arrived))
        o.tell(leaderships={1: rows})
        await o.settled()
        assert o.dialect.told(1) == [("LISR", "a-0@1")] * 2


async def test_an_incarnation_that_is_gone_hears_nothing_more_and_the_next_one_starts_anew() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1, 1))
        o.dialect.behave = lambda broker, _: asyncio.get_running_loop().create_future() if broker.epoch == 1 else None
        o.tell(leaderships={1: {A: {0: a_state(1)}}}, new_replicas=frozenset({("a-id", 0, 1)}))
        await o.until(lambda: bool(o.dialect.arrived))
        o.tell(leaderships={1: {B: {0: a_state(1)}}})
        o.tell(gone=[(1, 1)], joined=[a_broker(1, 2)], everything={A: {0: a_state(2)}})
        await o.settled()
        assert o.dialect.told(1, 1) == [("LISR", "a-0@1+")]  # cut off under way
        assert o.dialect.told(1, 2) == [("UM*B", "a-0@2"), ("LISR*", "a-0@2")]
        assert o.dialect.in_flight[1] == 0


async def test_a_broker_is_told_at_its_newest_endpoint() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        moved = Broker(1, 1, "h", 1, ("HTTP://elsewhere:1",))
        known = [KnownBroker(moved, "live")]
        o.outboxes.accept(Telling(brokers=known, live_ids=frozenset({1}), brokers_changed=True), "7-9")
        await o.settled()
        assert [broker.endpoints for broker, _, _ in o.dialect.arrived] == [("HTTP://elsewhere:1",)]


async def test_another_active_controller_ends_all_telling_at_once() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1), a_broker(2))
        stale: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        o.dialect.behave = lambda *_: stale
        rows = {A: {0: a_state(1)}}
        o.tell(leaderships={1: rows, 2: rows})
        await o.until(lambda: o.dialect.in_flight == {1: 1, 2: 1})
        stale.set_result(Answer(11))
        await o.until(lambda: o.dialect.in_flight == {1: 0, 2: 0})
        o.tell(joined=[a_broker(3)], everything=rows)
        await o.settled()
        assert o.dialect.told(3) == []
        assert (o.fenced, o.answers, len(o.dialect.arrived)) == (1, [], 2)


async def test_a_broker_that_is_another_incarnation_is_told_nothing_more() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1), a_broker(2))
        o.dialect.behave = lambda broker, _: Answer(77) if broker.broker_id == 1 else None
        for epoch in (1, 2):
            o.tell(metadata={A: {0: a_state(epoch)}})
            await o.settled()
        assert (len(o.dialect.told(1)), len(o.dialect.told(2)), o.fenced, o.answers) == (1, 2, 0, [])


async def test_partitions_refused_are_said_once_in_the_log_and_handed_to_the_loop() -> None:
    with capture_logs() as logs:
        async with outboxes() as o:
            await o.join(a_broker(1))
            o.dialect.behave = lambda *_: Answer(0, [Refusal("a-id", 0, 3), Refusal("a-id", 1, 3)])
            o.tell(leaderships={1: {A: {0: a_state(1), 1: a_state(1), 2: a_state(1)}}})
            await o.settled()
            told = ToldRefused("LeaderAndIsr", 3, told_epoch=1)
            event = RefusalsAnswered(1, 1, {("a-id", 0): told, ("a-id", 1): told})
            assert (len(o.dialect.arrived), o.answers) == (1, [event])
    assert [(one["event"], one["path"], one["partitions"], one["code"]) for one in logs] == [
        ("request.refused", LEADER_AND_ISR, 2, 3)
    ]


async def test_a_guard_that_refuses_ends_the_tasks_of_the_term() -> None:
    class TooLateError(Exception):
        pass

    async def hold_a_term() -> None:
        async with outboxes() as o:
            o.dialect.behave = lambda *_: TooLateError()
            o.tell(joined=[a_broker(1)], everything={})
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as ended:
        await hold_a_term()
    assert ended.group_contains(TooLateError)


async def test_long_lists_leave_the_event_loop_a_turn_after_each_request() -> None:
    rows = {A: {n: a_state(1, (1, 2, 3)) for n in range(50)}}
    encoded_in_turn: list[int] = []
    async with outboxes(partitions_per_rpc=10) as o:
        o.tell(joined=[a_broker(n) for n in (1, 2, 3)], everything=rows)
        while not o.outboxes.is_settled:
            before = len(o.dialect.encoded)
            await asyncio.sleep(0)
            encoded_in_turn.append(len(o.dialect.encoded) - before)
    assert max(encoded_in_turn) == 1
    assert sum(encoded_in_turn) == 5 + 3 * 5


async def test_no_older_list_of_brokers_follows_a_newer_one() -> None:
    """Real brokers take the list from every UpdateMetadata, with any partitions."""
    async with outboxes() as fixture:
        await fixture.join(a_broker(1), a_broker(2))
        held: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        fixture.dialect.behave = lambda broker, _: held if broker.broker_id == 1 and not held.done() else None
        fixture.tell(leaderships={1: {A: {0: a_state(1)}}})
        await fixture.until(lambda: bool(fixture.dialect.arrived))
        fixture.tell(metadata={A: {0: a_state(1)}})
        fixture.tell(gone=[(2, 1)])
        held.set_result(Answer())
        await fixture.settled()
        heard = [request for broker, request, _ in fixture.dialect.arrived if broker.broker_id == 1]
        lists = [request.live_ids for request in heard if request.path == UPDATE_METADATA]
        assert lists == [frozenset({1})] * 2


@pytest.mark.parametrize(("said", "heard"), [(9, 9), (-1, -1)], ids=["one of ours", "one of Kafka's"])
async def test_whom_a_broker_obeys_instead_is_heard_of(said: int, heard: int) -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.dialect.behave = lambda *_: Answer(11, controller_epoch=said)
        o.tell(leaderships={1: {A: {0: a_state(1)}}})
        await o.until(lambda: o.fenced)
        assert o.obeyed == [heard]
