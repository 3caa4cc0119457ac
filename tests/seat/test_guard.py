"""The guard of a term: it compares, latches, and wakes the waiters for the end."""

from __future__ import annotations

import asyncio

import pytest

from controller.seat.guard import TermGuard
from controller.zookeeper.port import DeadlinePassedError, NotSentError
from tests.fakes.zookeeper import FakeClock, FakeZooKeeper


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_term_may_act_until_one_time_out_after_the_last_answered_request_was_sent() -> None:
    server = FakeZooKeeper()
    client = await server.connect(session_timeout_ms=4000)
    guard = TermGuard(lambda: client.deadline, server.clock, server.clock.sleep)
    guard.check()
    server.clock.advance(3)
    await client.get("/")
    server.disconnect(client)
    server.clock.advance(3.9)
    guard.check()
    server.clock.advance(0.1)
    with pytest.raises(DeadlinePassedError, match="no answer from ZooKeeper"):
        guard.check()


async def test_the_first_failure_latches_though_the_deadline_moves_again() -> None:
    clock = FakeClock()
    deadline = clock() + 1
    guard = TermGuard(lambda: deadline, clock, clock.sleep)
    clock.advance(1)
    with pytest.raises(NotSentError):
        guard.check()
    deadline = clock() + 100
    with pytest.raises(DeadlinePassedError):
        guard.check()
    assert (await guard.tripped()) == guard.reason


async def test_an_idle_term_is_told_when_the_deadline_stops_moving_and_not_before() -> None:
    clock = FakeClock()
    deadline = clock() + 4
    guard = TermGuard(lambda: deadline, clock, clock.sleep)
    waiter = asyncio.create_task(guard.tripped())
    for _ in range(5):
        await settle()
        clock.advance(3)
        deadline = clock() + 4
    await settle()
    assert not waiter.done()
    clock.advance(4)
    await settle()
    assert waiter.done()
    assert "session time-out" in await waiter


async def test_after_a_freeze_the_check_fails_before_any_timer_has_run() -> None:
    clock = FakeClock()
    deadline = clock() + 4
    guard = TermGuard(lambda: deadline, clock, clock.sleep)
    waiter = asyncio.create_task(guard.tripped())
    await settle()
    clock.advance(60)
    with pytest.raises(DeadlinePassedError):
        guard.check()
    assert not waiter.done()
    await waiter


async def test_a_term_can_be_ended_at_once_and_the_first_reason_stays() -> None:
    clock = FakeClock()
    guard = TermGuard(lambda: clock() + 100, clock, clock.sleep)
    waiters = [asyncio.create_task(guard.tripped()) for _ in range(2)]
    await settle()
    guard.trip("deposed")
    guard.trip("session gone")
    assert await asyncio.gather(*waiters) == ["deposed", "deposed"]
    with pytest.raises(DeadlinePassedError, match="deposed"):
        guard.check()


async def test_no_waiter_is_left_behind_when_it_stops_waiting() -> None:
    guard = TermGuard(lambda: asyncio.get_running_loop().time() + 100)
    waiter = asyncio.create_task(guard.tripped())
    await settle()
    waiter.cancel()
    await asyncio.wait((waiter,))
    assert waiter.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
