"""Sessions and lost answers: known outcomes, unknown outcomes, and the end of a client for good."""

from __future__ import annotations

import asyncio

import pytest

from controller.core.operations import Create, Op, Set
from controller.seat.guard import TermGuard
from controller.zookeeper.port import (
    DeadlinePassedError,
    NotSentError,
    OutcomeUnknownError,
    SessionLostError,
    SessionState,
    ZooKeeper,
)
from tests.contract.labs import Lab, back, eventually, stays
from tests.waiting import DEADLINE_S


@pytest.fixture
async def client(lab: Lab) -> ZooKeeper:
    return await lab.connect()


async def expire(lab: Lab, client: ZooKeeper) -> None:
    """Another connection takes the session over and closes it."""
    other = await lab.connect(resume=(client.session_id, client.password))
    await other.close()


async def test_a_new_client_is_connected_and_names_its_session(client: ZooKeeper) -> None:
    assert client.state is SessionState.CONNECTED
    assert client.session_id != 0
    assert len(client.password) == 16
    assert client.session_timeout_ms == 4000


async def test_an_expired_session_is_lost_for_ever(lab: Lab, client: ZooKeeper) -> None:
    witness = await lab.connect()
    states: list[SessionState] = []
    client.on_state(states.append)
    await client.create("/e", b"", ephemeral=True)
    lab.cut(client)
    await expire(lab, client)
    assert await witness.get("/e") is None
    lab.heal(client)
    async with asyncio.timeout(DEADLINE_S):
        await client.lost()
    assert states == [SessionState.SUSPENDED, SessionState.LOST]
    for call in (client.get("/"), client.sync(), client.transact([])):
        with pytest.raises(SessionLostError):
            await call
    await client.close()
    assert states[-1] is client.state is SessionState.LOST


async def test_a_session_can_be_taken_up_with_its_id_and_password_only(lab: Lab, client: ZooKeeper) -> None:
    await client.create("/e", b"", ephemeral=True)
    lab.cut(client)
    with pytest.raises(SessionLostError):
        await lab.connect(resume=(client.session_id, b"?" * 16))
    heir = await lab.connect(resume=(client.session_id, client.password))
    assert (heir.session_id, heir.password) == (client.session_id, client.password)
    existence = await heir.exists("/e")
    assert existence.stat is not None
    assert existence.stat.ephemeral_owner == heir.session_id
    await heir.close()
    with pytest.raises(SessionLostError):
        await lab.connect(resume=(client.session_id, client.password))


async def test_a_lost_answer_leaves_the_outcome_unknown_and_the_write_done_once(lab: Lab, client: ZooKeeper) -> None:
    await client.create("/a", b"")
    session_id = client.session_id
    lab.lose_answer(client)
    with pytest.raises(OutcomeUnknownError):
        await client.transact([Set("/a", b"1", -1)])
    await back(client)
    await client.sync()
    node = await client.get("/a")
    assert node is not None
    assert (node.data, node.stat.version) == (b"1", 1)
    assert client.session_id == session_id


async def test_a_lost_request_leaves_the_outcome_unknown_and_is_not_sent_again(lab: Lab, client: ZooKeeper) -> None:
    lab.lose_request(client)
    with pytest.raises(OutcomeUnknownError):
        await client.create("/a", b"")
    await back(client)
    await client.sync()
    assert await client.get("/a") is None


async def test_all_requests_under_way_fail_when_the_connection_breaks(lab: Lab, client: ZooKeeper) -> None:
    lab.hold(client)
    calls = [asyncio.create_task(client.get("/")) for _ in range(20)]
    await asyncio.sleep(0)
    lab.cut(client)
    lab.release(client)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {OutcomeUnknownError}


async def test_without_a_connection_a_request_fails_at_once_and_never_happens(lab: Lab, client: ZooKeeper) -> None:
    lab.cut(client)
    await eventually(lambda: client.state is SessionState.SUSPENDED)
    for call in (client.create("/a", b""), client.get_many(["/"]), client.watch_many(["/"], [], 0)):
        with pytest.raises(NotSentError):
            await call
    lab.heal(client)
    await back(client)
    await client.sync()
    assert await client.get("/a") is None


async def test_a_session_outlives_a_cut_with_its_ephemeral_nodes(lab: Lab, client: ZooKeeper) -> None:
    await client.create("/e", b"", ephemeral=True)
    session_id = client.session_id
    for _ in range(3):
        lab.cut(client)
        await eventually(lambda: client.state is SessionState.SUSPENDED)
        lab.heal(client)
        await back(client)
    assert client.session_id == session_id
    assert await client.get("/e") is not None


async def test_the_deadline_counts_from_the_sending_of_the_answered_request(lab: Lab, client: ZooKeeper) -> None:
    await client.get("/")
    before = client.deadline
    await client.get("/")
    assert client.deadline >= before
    lab.hold(client)
    call = asyncio.create_task(client.get("/"))
    await asyncio.sleep(0)
    before = client.deadline
    await stays(lambda: client.deadline == before, 0.05)
    lab.release(client)
    await call
    assert client.deadline >= before


class CountingGuard:
    """Lets all pass and counts."""

    def __init__(self) -> None:
        self.checks = 0

    def check(self) -> None:
        self.checks += 1


async def test_requests_beyond_the_bound_wait_in_order_and_are_checked_when_they_leave(lab: Lab) -> None:
    client = await lab.connect(max_in_flight_requests=2)
    guard = CountingGuard()
    lab.hold(client)
    ops: list[Op] = [Create("/a", b""), *(Set("/a", b"%d" % number, number) for number in range(5))]
    calls = [asyncio.create_task(client.transact([op], guard=guard)) for op in ops]
    await eventually(lambda: guard.checks == 2)
    await stays(lambda: guard.checks == 2, 0.05)
    lab.release(client)
    answers = await asyncio.gather(*calls)
    assert [answer.refused for answer in answers] == [None] * 6
    assert guard.checks == 6


async def test_a_request_behind_the_bound_when_the_connection_breaks_was_not_sent(lab: Lab) -> None:
    client = await lab.connect(max_in_flight_requests=1)
    lab.hold(client)
    calls = [asyncio.create_task(client.get("/")) for _ in range(4)]
    await stays(lambda: not any(call.done() for call in calls), 0.05)
    lab.cut(client)
    lab.release(client)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [OutcomeUnknownError] + [NotSentError] * 3
    lab.heal(client)
    await back(client)
    assert await client.get("/") is not None


async def test_a_guard_that_refuses_keeps_the_request_here_and_latches(client: ZooKeeper) -> None:
    now, deadline = 10.0, 11.0
    guard = TermGuard(lambda: deadline, lambda: now)
    await client.transact([Create("/a", b"")], guard=guard)
    now = 11.0
    with pytest.raises(DeadlinePassedError):
        await client.transact([Set("/a", b"1", 0)], guard=guard)
    deadline = 99.0
    with pytest.raises(DeadlinePassedError):
        await client.transact([Set("/a", b"1", 0)], guard=guard)
    node = await client.get("/a")
    assert node is not None
    assert node.stat.version == 0


async def test_a_caller_that_is_cancelled_does_not_disturb_the_others(lab: Lab) -> None:
    client = await lab.connect(max_in_flight_requests=2)
    await client.create("/a", b"")
    lab.hold(client)
    calls = [asyncio.create_task(client.set("/a", b"%d" % number, -1)) for number in range(5)]
    await stays(lambda: not any(call.done() for call in calls), 0.02)
    for number in (0, 3):
        calls[number].cancel()
    await asyncio.sleep(0)
    lab.release(client)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False, False, True, False]
    node = await client.get("/a")
    assert node is not None
    assert node.data == b"4"
