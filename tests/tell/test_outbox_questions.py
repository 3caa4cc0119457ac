"""Outboxes: questions to brokers, before any other request, and the events of their answers."""

from __future__ import annotations

import asyncio

from controller.core.events import KnownId, TopicsDescribed
from controller.tell.dialects import NotAcknowledgedError, Request
from controller.wire.bodies import (
    DESCRIBE_TOPICS,
    Answer,
    DescribedId,
    DescribedTopic,
    DescribeTopicsAnswer,
    KnownEpoch,
)
from tests.tell.outbox_support import (
    A,
    Fixture,
    a_broker,
    a_state,
    outboxes,
)

ROWS = {A: {0: a_state(1)}}


def asked(o: Fixture, broker_id: int = 1) -> list[tuple[str, ...]]:
    return [tuple(r.names) for b, r, _ in o.dialect.arrived if (b.broker_id, r.path) == (broker_id, DESCRIBE_TOPICS)]


async def test_a_broker_that_joins_is_asked_before_its_full_lists() -> None:
    """A full list changes its knowledge."""
    async with outboxes() as o:
        o.tell(joined=[a_broker(1), a_broker(2)], everything=ROWS, questions={1: {"orders": 3}})
        await o.settled()
        assert o.dialect.told(1) == [("ASK", "orders"), ("UM*B", "a-0@1"), ("LISR*", "a-0@1")]
        assert o.dialect.told(2) == [("UM*B", "a-0@1"), ("LISR*", "a-0@1")]


async def test_a_brokers_answer_is_an_event_with_every_topic_it_was_asked_about() -> None:
    known = DescribedId("id-1", told=True, held=False, leader_epochs=[KnownEpoch(0, 4), KnownEpoch(2, 7)])
    answer = DescribeTopicsAnswer(topics=[DescribedTopic("orders", [known]), DescribedTopic("never asked", [known])])
    async with outboxes() as o:
        await o.join(a_broker(1, epoch=5))
        o.dialect.behave = lambda *_: answer
        o.tell(questions={1: {"orders": 3, "new": 1}})
        await o.settled()
        described = KnownId("id-1", is_told=True, is_held=False, leader_epochs={0: 4, 2: 7})
        assert o.answers == [TopicsDescribed(1, 5, {"orders": (described,), "new": ()})]


async def test_a_broker_without_an_answer_is_asked_again_and_topics_added_meanwhile_once_more() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1), a_broker(2))
        held: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        fates: list[Answer | Exception | asyncio.Future[Answer]] = [NotAcknowledgedError("no answer"), held]
        o.dialect.behave = lambda broker, _: fates.pop(0) if broker.broker_id == 1 and fates else DescribeTopicsAnswer()
        o.tell(questions={1: {"a": 1}, 2: {"a": 1}})
        await o.until(lambda: len(asked(o)) == 2)
        o.tell(questions={1: {"a": 1, "b": 1}}, metadata=ROWS)
        held.set_result(DescribeTopicsAnswer())
        await o.settled()
        assert o.dialect.told(1) == [("ASK", "a"), ("ASK", "a"), ("ASK", "a", "b"), ("UM", "a-0@1")]
        assert o.dialect.told(2) == [("ASK", "a"), ("UM", "a-0@1")]


async def test_questions_are_cut_by_the_partitions_that_answers_may_have() -> None:
    async with outboxes(partitions_per_rpc=10) as o:
        await o.join(a_broker(1))
        o.tell(questions={1: {"a": 4, "b": 4, "c": 30, "d": 0, "e": 0}})
        await o.settled()
        assert asked(o) == [("a", "b"), ("c",), ("d", "e")]


async def test_no_broker_is_asked_in_a_request_that_tells() -> None:
    async with outboxes() as o:
        await o.join(a_broker(1))
        o.tell(questions={1: {"a": 1}}, metadata=ROWS, leaderships={1: ROWS})
        await o.settled()

        def is_pure(request: Request) -> bool:
            return bool(request.names) == (request.path == DESCRIBE_TOPICS) and not (request.names and request.rows)

        assert all(is_pure(request) for _, request, _ in o.dialect.arrived)
