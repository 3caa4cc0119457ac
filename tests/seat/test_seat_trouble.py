"""Trouble with `/controller` and `/controller_epoch` ends a term at most: it is said, waited out, and never asked about
in a circle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from controller.base.config import Limits
from controller.core.operations import Delete
from controller.zookeeper.port import SessionLostError
from tests.fakes.acls import ALL, CREATE, DELETE, READ, WRITE, grant_to, grant_to_all
from tests.fakes.client import FakeClient
from tests.fakes.zookeeper import FakeZooKeeper
from tests.support.harness import (
    Node,
    a_broker,
    a_controller,
    a_server,
    settled,
    state_of,
    topic_json,
    until,
)

SEAT, EPOCH = "/controller", "/controller_epoch"
OPERATOR = "digest:operator:secret"
#: requests in so many seconds of trouble, at most: looks grow rarer, and each is a handful
LOOKS_MAX = 200


async def seconds(server: FakeZooKeeper, count: float) -> None:
    """Let virtual time pass in small steps, so that due tasks run."""
    for _ in range(round(count * 10)):
        server.clock.advance(0.1)
        await settled(20)


def asked(*nodes: Node) -> int:
    return sum(len(node.zk.calls) for node in nodes)


class Process(Node):
    """A process that outlives its sessions, as a broker's does."""

    is_running = False
    sessions = 0

    async def run(self) -> None:
        self.is_running = True
        try:
            while True:
                self.sessions += 1
                try:
                    await self.daemon.run()
                except SessionLostError:
                    self.zk = await self.server.connect()
                    self.daemon = self.daemon_on(self.zk)
        finally:
            self.is_running = False


@asynccontextmanager
async def processes(server: FakeZooKeeper, *broker_ids: int) -> AsyncIterator[list[Process]]:
    """Of these ids, until the scope ends. One that ends earlier fails the test."""
    made = [Process(server, await server.connect(), broker_id, Limits()) for broker_id in broker_ids]
    tasks = [asyncio.create_task(one.run()) for one in made]
    try:
        yield made
        assert [one.broker_id for one in made if not one.is_running] == [], "a process has ended"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def leader_of(made: list[Process]) -> Process | None:
    return next((one for one in made if one.handle.is_active), None)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"abc", "b'abc'"),
        (b"", "b''"),
        (b"-1", "b'-1'"),
        (b"7_0", "b'7_0'"),
        (b"\xff\xfe", r"b'\xff\xfe'"),
        (b"2147483648", "b'2147483648'"),
        (b"2147483647", "b'2147483647'"),
        (b"9" * 5000, "b'9999"),
    ],
    ids=["letters", "empty", "negative", "python's own", "no text", "too large", "the last there is", "enormous"],
)
@pytest.mark.parametrize("mending", [b"7", None], ids=["written", "deleted"])
async def test_nonsense_in_the_epoch_is_said_and_waited_out(data: bytes, shown: str, mending: bytes | None) -> None:
    server = await a_server()
    tool = await server.connect()
    await tool.create(EPOCH, data)
    async with processes(server, 1, 2) as made:
        await until(lambda: all(one.daemon.seat_trouble for one in made))
        for one in made:
            said = one.daemon.seat_trouble or ""
            assert said.startswith(f"no controller can be elected: /controller_epoch holds {shown}")
            assert said.endswith("write the number of the last epoch into it, or delete it")
        before = asked(*made)
        await seconds(server, 60)
        assert asked(*made) - before < LOOKS_MAX
        assert server.read(EPOCH) == data, "an operator must say which was the last"
        if mending is None:
            await tool.delete(EPOCH, -1)
        else:
            await tool.set(EPOCH, mending, -1)
        await until(lambda: leader_of(made))
        assert server.read(EPOCH) == (b"1" if mending is None else b"8")
        await settled()
        assert [one.daemon.seat_trouble for one in made] == [None, None]


async def test_a_trouble_is_logged_once_for_each_change() -> None:
    server = await a_server()
    tool = await server.connect()
    await tool.create(EPOCH, b"abc")
    with capture_logs() as lines:
        async with processes(server, 1):
            await seconds(server, 20)
            await tool.set(EPOCH, b"def", -1)
            await seconds(server, 20)
    assert [b in line["trouble"] for line in lines if line["event"] == "seat.blocked" for b in ("abc", "def")] == [
        True, False, False, True,
    ]  # fmt: skip


async def test_a_term_that_finds_nonsense_in_the_epoch_ends_at_once_and_puts_it_right() -> None:
    """The holder of the seat knows the last epoch: it was its own."""
    server = await a_server()
    tool = await server.connect()
    async with processes(server, 1) as made:
        await until(lambda: leader_of(made))
        await tool.set(EPOCH, b"abc", -1)
        await until(lambda: made[0].handle.controller_epoch == 2)
        await until(lambda: leader_of(made))
        assert server.read(EPOCH) == b"2"
        assert made[0].heard.guards[0].reason == "/controller_epoch was changed"


def remove(server: FakeZooKeeper, *paths: str) -> None:
    """By the test itself, which may do all."""
    assert server.commit(0, [Delete(path, -1) for path in paths]).refused is None


def unreadable_epoch(server: FakeZooKeeper) -> Callable[[], None]:
    server.set_acl(EPOCH, grant_to(OPERATOR, ALL))
    return lambda: server.set_acl(EPOCH, grant_to_all(ALL))


def unwritable_epoch(server: FakeZooKeeper) -> Callable[[], None]:
    server.set_acl(EPOCH, grant_to(OPERATOR, ALL), grant_to_all(READ))
    return lambda: server.set_acl(EPOCH, grant_to_all(ALL))


def no_room_for_the_seat(server: FakeZooKeeper) -> Callable[[], None]:
    server.set_acl("/", grant_to_all(READ | WRITE | DELETE))
    return lambda: server.set_acl("/", grant_to_all(ALL))


def seat_of_a_tool(server: FakeZooKeeper) -> Callable[[], None]:
    server.seed({SEAT: b'{"version":1,"brokerid":1,"timestamp":"0"}', f"{SEAT}/child": b""})

    return lambda: remove(server, f"{SEAT}/child", SEAT)


def hidden_seat_of_a_tool(server: FakeZooKeeper) -> Callable[[], None]:
    server.seed({SEAT: b"{"})
    server.set_acl(SEAT, grant_to(OPERATOR, ALL))
    return lambda: remove(server, SEAT)


TROUBLES = {
    unreadable_epoch: "no controller can be elected: /controller_epoch may not be read; allow",
    unwritable_epoch: "ZooKeeper refuses that /controller_epoch is written (code -102); allow",
    no_room_for_the_seat: "ZooKeeper refuses that /controller is made (code -102); allow",
    seat_of_a_tool: "and goes with no session; delete it",
    hidden_seat_of_a_tool: "the controller cannot be told: /controller may not be read; allow",
}


@pytest.mark.parametrize("spoil", TROUBLES, ids=lambda spoil: spoil.__name__)
async def test_a_trouble_that_forbids_a_claim_is_reported_and_waited_out(
    spoil: Callable[[FakeZooKeeper], Callable[[], None]],
) -> None:
    server = await a_server()
    tool = await server.connect()
    await tool.create(EPOCH, b"4")
    mend = spoil(server)
    async with processes(server, 1, 2) as made:
        await until(lambda: all(one.daemon.seat_trouble for one in made))
        assert all(TROUBLES[spoil] in (one.daemon.seat_trouble or "") for one in made), made[0].daemon.seat_trouble
        before = asked(*made)
        await seconds(server, 60)
        assert asked(*made) - before < LOOKS_MAX
        mend()
        await seconds(server, 6)
        await until(lambda: leader_of(made))
        assert server.read(EPOCH) == b"5"
        assert [one.daemon.seat_trouble for one in made] == [None, None]


@pytest.mark.parametrize(
    ("path", "perms"), [(EPOCH, WRITE), (SEAT, WRITE), ("/", READ | CREATE | WRITE)], ids=["epoch", "seat", "parent"]
)
async def test_a_seat_that_cannot_be_released_goes_with_its_session(path: str, perms: int) -> None:
    """A process that is no controller must not hold the seat: no other could."""
    server = await a_server()
    for broker_id in (2, 3):
        await a_broker(server, broker_id)
    tool = await server.connect()
    async with processes(server, 1) as made:
        await until(lambda: leader_of(made))
        holder = made[0].zk.session_id
        server.set_acl(path, grant_to(OPERATOR, ALL), grant_to_all(perms))
        if path == "/":
            await tool.set(EPOCH, b"3", -1)  # its term ends, and its node may not be deleted
        else:
            await tool.create("/brokers/topics/orders", topic_json([2, 3]))  # its next write shows it
        await seconds(server, 2)
        seat = server.tree.nodes.get(SEAT)
        assert seat is None or seat.owner != holder
        assert made[0].sessions > 1
        server.set_acl(path, grant_to_all(ALL)) if path in server.tree.nodes else None
        await tool.create("/brokers/topics/more", topic_json([2, 3]))
        await seconds(server, 10)
        await until(lambda: leader_of(made))
        assert state_of(server, "more", 0) is not None


async def test_a_seat_that_another_client_writes_into_is_given_up_and_won_anew() -> None:
    server = await a_server()
    tool = await server.connect()
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        await tool.set(SEAT, b"nonsense", -1)
        await until(lambda: node.handle.controller_epoch == 2)
        assert node.heard.guards[0].reason == "/controller was changed"


async def test_a_takeover_is_told_the_trouble_that_keeps_the_seat() -> None:
    server = await a_server()
    tool = await server.connect()
    await tool.create(EPOCH, b"abc")
    async with a_controller(server, 100, is_dedicated=True) as node:
        await settled()
        with pytest.raises(Exception, match="holds b'abc'"):
            await node.daemon.take_over()


async def test_claims_that_are_always_overtaken_do_not_go_round_in_a_circle() -> None:
    server = await a_server()

    async def overtake(client: FakeClient, call: str) -> None:
        if call == "transact_by_aiozk" and server.read(SEAT) is None:
            server.tree.nodes[EPOCH].version += 1

    server.on_request = overtake
    server.seed({EPOCH: b"1"})
    async with processes(server, 1) as made:
        await seconds(server, 60)
        assert asked(*made) < LOOKS_MAX
        assert "each claim is overtaken" in (made[0].daemon.seat_trouble or "")
        server.on_request = None
        await seconds(server, 6)
        await until(lambda: leader_of(made))
