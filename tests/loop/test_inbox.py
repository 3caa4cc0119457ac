"""The inbox: events that wait for the loop, how they are merged, and those that a turn takes."""

from __future__ import annotations

import asyncio

import pytest

from controller.base.config import LIMITS
from controller.core.events import (
    AlterPartitionAsked,
    CreateTopicAsked,
    ElectAsked,
    Event,
    ForgetBrokerAsked,
    GrowTopicAsked,
    LeaderAndIsrAnswered,
    ProducerIdsAsked,
    ReassignAsked,
    RefusalsAnswered,
    StopReplicaAnswered,
    TermTold,
    TimePassed,
    ToldRefused,
    UndrainAsked,
)
from controller.loop.inbox import REPLY_TO, ChangeReply, Inbox, NotControllerError, Reply
from controller.loop.replies import reply_for
from controller.statelog.metrics import Meters
from tests.builders import a_cluster, settle, zookeeper_of
from tests.faults.simulate.loop import VirtualLoop
from tests.waiting import DEADLINE_S

P0, P1, P2 = ("a-id", 0), ("a-id", 1), ("b-id", 0)


def replicas(*keys: tuple[str, int]) -> frozenset[tuple[str, int]]:
    return frozenset(keys)


async def test_a_turn_takes_all_paths_and_facts_and_one_request() -> None:
    inbox = Inbox(LIMITS)
    asking = [asyncio.ensure_future(inbox.ask(UndrainAsked(n))) for n in (1, 2)]
    await asyncio.sleep(0)
    inbox.put(TimePassed())
    inbox.put(StopReplicaAnswered(1, 7, replicas(P0)))
    inbox.mark_dirty(["/a", "/b"])
    inbox.mark_dirty(["/a"])
    assert inbox.depth == 6
    turn = await inbox.take()
    assert (turn.dirty, turn.facts) == ({"/a", "/b"}, (TimePassed(), StopReplicaAnswered(1, 7, replicas(P0))))
    assert turn.request is not None
    assert turn.request.event == UndrainAsked(1)
    turn.request.answer(Reply())
    rest = await inbox.take()
    assert rest.request is not None
    assert (rest.dirty, rest.facts, rest.request.event, inbox.depth) == (set(), (), UndrainAsked(2), 0)
    rest.request.answer(Reply())
    assert await asyncio.gather(*asking) == [Reply(), Reply()]


class Waits(Meters):
    """How long each turn had waited, and each request."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[float] = []
        self.requests: list[float] = []

    def turn_taken(self, waited_s: float) -> None:
        self.turns.append(waited_s)

    def request_taken(self, waited_s: float) -> None:
        self.requests.append(waited_s)


async def _elapse(seconds: float) -> None:
    """In virtual time."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    while loop.time() < end_s:  # noqa: ASYNC110 - it is the time itself that is waited for
        await asyncio.sleep(seconds)


async def _waits_of_turns(meters: Meters) -> None:
    inbox = Inbox(LIMITS, meters)
    asking = [asyncio.ensure_future(inbox.ask(UndrainAsked(n))) for n in (1, 2)]
    await _elapse(1)
    inbox.mark_dirty(["/a"])
    await _elapse(2)
    first, second = await inbox.take(), await inbox.take()
    assert second.request is not None
    await _elapse(1)
    inbox.put_back(second.request)
    await _elapse(0.5)
    await inbox.take()
    inbox.put(TimePassed())
    inbox.put(TimePassed())
    await _elapse(0.25)
    await inbox.take()
    for turn in (first, second):
        assert turn.request is not None
        turn.request.answer(Reply())
    await asyncio.gather(*asking)


def test_a_turn_has_waited_as_long_as_its_oldest_event_and_an_event_put_back_waits_anew() -> None:
    meters = Waits()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_waits_of_turns(meters))
    assert meters.turns == [3, 3, 0.5, 0.25]
    assert meters.requests == [3, 3, 0.5]


async def test_a_fact_ends_the_wait() -> None:
    inbox = Inbox(LIMITS)
    taking = asyncio.ensure_future(inbox.take())
    await asyncio.sleep(0)
    inbox.put(TimePassed())
    assert (await taking).facts == (TimePassed(),)


async def test_the_end_of_a_term_and_of_the_one_before_are_not_lost_when_phases_are_told_after_them() -> None:
    inbox = Inbox(LIMITS)
    inbox.put(TermTold(5_000, {"told": 20.0}, why_before="session gone"))
    inbox.put(TermTold(5_000, {"told": 20.0}, to_ms=9_000, why="handed back"))
    inbox.put(TermTold(5_000, {"told": 20.0, "acknowledged": 33.0}))
    [fact] = (await inbox.take()).facts
    assert fact == TermTold(5_000, {"told": 20.0, "acknowledged": 33.0}, 9_000, "handed back", "session gone")


async def test_of_a_refusal_and_an_acknowledgement_the_later_one_stands() -> None:
    inbox, told = Inbox(LIMITS), ToldRefused("LeaderAndIsr", 11, 2, 5)
    one, other, third = ("a", 0), ("a", 1), ("a", 2)
    inbox.put(RefusalsAnswered(1, 7, {one: told, other: told}, frozenset({third})))
    inbox.put(RefusalsAnswered(1, 7, {third: told}, frozenset({one})))
    inbox.put(RefusalsAnswered(1, 8, {}, frozenset({other})))
    assert (await inbox.take()).facts == (
        RefusalsAnswered(1, 7, {other: told, third: told}, frozenset({one})),
        RefusalsAnswered(1, 8, {}, frozenset({other})),
    )


async def test_answers_are_merged_by_incarnation_and_kind_and_the_later_word_on_a_replica_stands() -> None:
    inbox = Inbox(LIMITS)
    inbox.put(LeaderAndIsrAnswered(1, 7, served=replicas(P0), failed=replicas(P1, P2)))
    inbox.put(StopReplicaAnswered(1, 7, replicas(P0, P1), refused=replicas(P0, P1)))
    inbox.put(LeaderAndIsrAnswered(1, 8, served=replicas(P1)))
    inbox.put(LeaderAndIsrAnswered(1, 7, served=replicas(P1), failed=replicas(P0)))
    inbox.put(StopReplicaAnswered(1, 7, replicas(P1, P2), refused=replicas(P2)))
    inbox.put(StopReplicaAnswered(2, 7, replicas(P2)))
    assert (await inbox.take()).facts == (
        LeaderAndIsrAnswered(1, 7, served=replicas(P1), failed=replicas(P0, P2)),
        StopReplicaAnswered(1, 7, replicas(P0, P1, P2), refused=replicas(P0, P2)),
        LeaderAndIsrAnswered(1, 8, served=replicas(P1)),
        StopReplicaAnswered(2, 7, replicas(P2)),
    )


@pytest.mark.parametrize("due", [(True, False), (False, True)])
async def test_time_passed_once_for_all_and_a_balance_stays_due(due: tuple[bool, bool]) -> None:
    inbox = Inbox(LIMITS)
    for is_due in due:
        inbox.put(TimePassed(is_balance_due=is_due))
    assert (await inbox.take()).facts == (TimePassed(is_balance_due=True),)


async def test_a_caller_that_waits_when_the_term_ends_is_told_and_a_late_answer_does_no_harm() -> None:
    inbox = Inbox(LIMITS)
    asking = [asyncio.ensure_future(inbox.ask(UndrainAsked(n))) for n in (1, 2)]
    await asyncio.sleep(0)
    assert (await inbox.take()).request is not None
    inbox.close()
    inbox.put(TimePassed())
    async with asyncio.timeout(DEADLINE_S):
        in_hand, waiting = await asyncio.gather(*asking, return_exceptions=True)
    assert not isinstance(in_hand, BaseException)
    assert in_hand.is_unknown
    assert isinstance(waiting, NotControllerError)
    with pytest.raises(NotControllerError):
        await inbox.ask(UndrainAsked(3))


@pytest.mark.parametrize("kind", sorted(REPLY_TO, key=lambda one: one.__name__))
def test_every_request_has_its_reply(kind: type[Event]) -> None:
    """Every request that is carried out is answered with the reply of its kind, whatever the request's content."""
    asked: dict[type[Event], Event] = {
        CreateTopicAsked: CreateTopicAsked("more", partitions=1, replication_factor=1),
        GrowTopicAsked: GrowTopicAsked("orders", 2),
        AlterPartitionAsked: AlterPartitionAsked(1, 11, []),
        ProducerIdsAsked: ProducerIdsAsked(1, 11),
        ElectAsked: ElectAsked(is_unclean=False, partitions=[("orders", 0)]),
        ReassignAsked: ReassignAsked({("orders", 0): (2, 1)}),
        ForgetBrokerAsked: ForgetBrokerAsked(3),
    }
    cluster = a_cluster(orders=[[1, 2]], live=(1, 2))
    settled = settle(cluster, asked[kind], zookeeper_of(cluster))
    assert type(reply_for(cluster, asked[kind], settled.committed)) is REPLY_TO[kind]


def test_a_request_for_the_present_state_has_changed_nothing() -> None:
    cluster = a_cluster(orders=[[1, 2]], live=(1, 2))
    for asked in (CreateTopicAsked("orders", 1, 2), GrowTopicAsked("orders", 1)):
        settled = settle(cluster, asked, zookeeper_of(cluster))
        reply = reply_for(cluster, asked, settled.committed)
        assert isinstance(reply, ChangeReply)
        assert not reply.has_changed
