"""No controller epoch is used twice, even if the node that keeps it is changed or removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from controller.base.config import Limits
from controller.core.events import CreateTopicAsked
from controller.core.formats import TermZnode, encode, encode_state
from controller.core.model import Leadership
from controller.core.operations import Create, Delete, Set
from controller.loop.store import FencedError
from controller.seat.claim import WITNESSED_MAX, KnownEpochs, claim, read_seat, release
from controller.term.parts import OnAnswer
from tests.fakes.client import FakeClient
from tests.fakes.zookeeper import FakeZooKeeper
from tests.loop.test_fencing import (
    a_belief,
    a_change,
    a_store,
    nothing_more,
)
from tests.support.harness import (
    Heard,
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


async def acting(node: Node, epoch: int) -> None:
    await until(lambda: node.handle.is_active and node.handle.controller_epoch == epoch)
    await settled()


async def test_a_term_that_sees_its_epoch_gone_ends_at_once_and_the_next_one_is_higher() -> None:
    server = await a_server()
    for broker_id in (2, 3):
        await a_broker(server, broker_id)
    tool = await server.connect()
    await tool.create(EPOCH, b"6")
    async with a_controller(server, 1) as node:
        await acting(node, 7)
        await tool.delete(EPOCH, -1)
        await acting(node, 8)
        assert node.heard.guards[0].reason == "/controller_epoch was deleted"
        reply = await node.ask(CreateTopicAsked("orders", partitions=1, replication_factor=2))
        assert (reply.event_id or "").startswith("8-"), "brokers take it for new"
        assert (state_of(server, "orders", 0) or {})["controller_epoch"] == 8
        assert server.read(EPOCH) == b"8"


@pytest.mark.parametrize("data", [b"1", b"7", b"40"], ids=["back", "as it was", "ahead"])
async def test_a_term_that_sees_its_epoch_changed_ends_at_once(data: bytes) -> None:
    server = await a_server()
    tool = await server.connect()
    await tool.create(EPOCH, b"6")
    async with a_controller(server, 1) as node:
        await acting(node, 7)
        await tool.set(EPOCH, data, -1)
        await acting(node, max(8, int(data) + 1))
        assert node.heard.guards[0].reason == "/controller_epoch was changed"


async def test_a_node_made_anew_with_the_same_number_and_version_fools_no_term() -> None:
    server = await a_server()
    async with a_controller(server, 1) as node:
        await acting(node, 1)
        version = server.tree.nodes[EPOCH].version
        again = [Set(EPOCH, b"1", at) for at in range(version)]
        assert server.commit(0, [Delete(EPOCH, -1), Create(EPOCH, b"1"), *again]).refused is None
        assert server.tree.nodes[EPOCH].version == version
        await acting(node, 2)


async def test_a_write_under_way_meets_another_version_though_the_seat_and_the_epoch_were_made_anew() -> None:
    """Both nodes begin at version 0 again: the version of the epoch still tells the terms apart."""
    server = await a_server()
    zk, other = await server.connect(), await server.connect()
    await zk.create("/brokers/topics/orders", topic_json([1, 2]))
    known = KnownEpochs()
    store, _ = await a_store(server, zk)
    known.note(1)
    for epoch in range(2, 12):
        paths = [path for path in (SEAT, EPOCH) if server.read(path) is not None]
        assert server.commit(0, [Delete(path, -1) for path in paths]).refused is None
        won = await claim(other, 2, 0, known)
        assert won is not None
        assert won.controller_epoch == epoch
        with pytest.raises(FencedError):
            await store.commit(a_belief(), [a_change()], nothing_more)
    assert state_of(server, "orders", 0) is None


async def test_the_first_write_of_a_term_meets_another_version_though_nothing_told_of_its_claim_but_the_note() -> None:
    """Both nodes are removed before it, and the next process to claim knows of no epoch."""
    server = await a_server()
    zk, other = await server.connect(), await server.connect()
    await zk.create("/brokers/topics/orders", topic_json([1, 2]))
    store, _ = await a_store(server, zk)
    assert server.commit(0, [Delete(path, -1) for path in (SEAT, EPOCH)]).refused is None
    won = await claim(other, 2, 0)
    assert won is not None
    assert won.controller_epoch == 2
    with pytest.raises(FencedError):
        await store.commit(a_belief(), [a_change()], nothing_more)
    assert state_of(server, "orders", 0) is None


async def test_a_claim_that_only_noted_its_epoch_does_not_hide_the_decisions_before_it() -> None:
    """It found nothing: the next term has to record the decisions of the term before it."""
    server = await a_server()
    await with_a_state(server, 4)
    loaded, noted = (encode(TermZnode(2, 9, phases=phases)) for phases in ({"loaded": 1.0}, {}))
    server.seed({EPOCH: b"5", "/klamm/terms/4": loaded, "/klamm/terms/5": noted})
    async with a_controller(server, 100) as node:
        await acting(node, 6)
        assert "found" in [line.reason for line in node.held.recent_lines.about("orders", 0)]


async def test_noted_terms_are_known_to_a_process_that_never_saw_them() -> None:
    server = await a_server()
    tool = await server.connect()
    async with a_controller(server, 1) as node:
        for epoch in (1, 2, 3):
            await acting(node, epoch)
            await tool.delete(SEAT, -1)
        await acting(node, 4)
    server.expire(node.zk)
    await tool.delete(EPOCH, -1)
    async with a_controller(server, 2) as node:
        await acting(node, 5)


@pytest.mark.parametrize(
    "name", [str(2**31 - 1), "9" * 5000, "none", "-3", "٣"], ids=["last", "long", "no", "-", "arab"]
)
async def test_a_record_of_no_epoch_is_passed_over(name: str) -> None:
    server = await a_server()
    server.seed({f"/klamm/terms/{name}": b"{}", "/klamm/terms/3": b"{}"})
    zk = await server.connect()
    won = await claim(zk, 1, 0)
    assert won is not None
    assert won.controller_epoch == 4


def led_in(epoch: int) -> bytes:
    return encode_state(Leadership(2, 0, (2, 3), epoch))


async def with_a_state(server: FakeZooKeeper, epoch: int) -> None:
    for broker_id in (2, 3):
        await a_broker(server, broker_id)
    server.seed(
        {"/brokers/topics/orders": topic_json([2, 3]), "/brokers/topics/orders/partitions/0/state": led_in(epoch)}
    )


@pytest.mark.parametrize("is_dedicated", [False, True], ids=["a broker", "beside Kafka's brokers"])
async def test_states_that_know_of_a_higher_epoch_end_the_term_before_it_writes(is_dedicated: bool) -> None:
    """As Kafka leaves them: it writes down no terms."""
    server = await a_server()
    await with_a_state(server, 40)
    async with a_controller(server, 100, is_dedicated=is_dedicated) as node:
        await acting(node, 41)
        said = "/controller_epoch was behind: states were written by controller epoch 40"
        assert node.heard.guards[0].reason == said
        [raised] = [one for one in server.history if any(isinstance(op, Delete) and op.path == SEAT for op in one.ops)]
        assert any(isinstance(op, Set) and (op.path, op.data) == (EPOCH, b"40") for op in raised.ops)
        assert state_of(server, "orders", 0) == {
            "controller_epoch": 40, "leader": 2, "version": 1, "leader_epoch": 0, "isr": [2, 3],
        }  # fmt: skip


async def test_a_state_of_an_epoch_never_drawn_ends_no_term() -> None:
    """Believed, it would leave no room for those to come: one node would stop everything."""
    server = await a_server()
    await with_a_state(server, WITNESSED_MAX + 1)
    async with a_controller(server, 100) as node:
        await acting(node, 1)


class Deposing(Heard):
    """A broker obeys a later controller than those below `obeyed`; it may say which."""

    def __init__(self, obeyed: int) -> None:
        super().__init__()
        self.obeyed = obeyed

    def open_outboxes(
        self,
        claim: object,
        guard: object,
        group: asyncio.TaskGroup,
        on_fenced: Callable[[str], None],
        on_answer: OnAnswer,
    ) -> Heard:
        if claim.controller_epoch < self.obeyed:  # type: ignore[attr-defined]
            asyncio.get_running_loop().call_soon(on_fenced, "a broker obeys a later controller")
        return super().open_outboxes(claim, guard, group, on_fenced, on_answer)  # type: ignore[arg-type]


@pytest.mark.parametrize("obeyed", [2, 3, 20, 3_000])
async def test_a_broker_that_obeys_a_later_controller_and_does_not_say_which_is_overtaken_in_leaps(obeyed: int) -> None:
    """Kafka's brokers refuse, and no more."""
    server = await a_server()
    node = Node(server, await server.connect(), 1, Limits())
    node.heard = heard = Deposing(obeyed)
    node.retool(open_outboxes=heard.open_outboxes)
    task = asyncio.create_task(node.run())
    for _ in range(400):
        if node.handle.is_active and (node.handle.controller_epoch or 0) >= obeyed:
            break
        server.clock.advance(0.1)
        await settled(20)
    assert node.handle.is_active
    assert (node.handle.controller_epoch or 0) >= obeyed
    assert len(heard.guards) <= 5
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_process_that_heard_of_an_epoch_claims_above_it() -> None:
    server = await a_server()
    told = KnownEpochs(lambda: 12)
    async with a_controller(server, 1, epochs=told) as node:
        await acting(node, 13)
    assert told.highest == 13


async def test_a_number_that_is_no_epoch_is_not_noted() -> None:
    known = KnownEpochs(lambda: WITNESSED_MAX + 1)
    known.note(2**31 - 1)
    assert known.highest == 0
    known.note(5)
    known.note_refused(5, 1)
    assert known.highest == 6
    known.note_refused(4, 1)
    assert known.highest == 6, "that it is above is known already"


async def test_a_seat_is_released_though_the_epoch_is_gone_and_the_node_is_made_again() -> None:
    server = await a_server()
    zk, other = await server.connect(), await server.connect()
    won = await claim(zk, 1, 0)
    assert won is not None
    await other.delete(EPOCH, -1)
    assert not await release(zk, epoch_version=won.epoch_version)
    assert await release(zk, at_least=1)
    assert await read_seat(zk) is None
    assert server.read(EPOCH) == b"1", "Kafka's own brokers draw from the node alone"


async def test_a_node_that_is_made_again_by_a_release_is_never_below_a_claim_that_was_noted() -> None:
    """A process that ends as its epoch is gone knows no epoch; it wrote 0."""
    server = await a_server()
    zk, other = await server.connect(), await server.connect()
    assert await claim(zk, 1, 0, KnownEpochs(lambda: 6)) is not None
    await other.delete(EPOCH, -1)
    assert await release(zk)
    assert server.read(EPOCH) == b"7"


async def test_a_late_release_meets_the_next_claim() -> None:
    """Between its readings another process claims: the node is there by then, so nothing is deleted."""
    server = await a_server()
    zk, other = await server.connect(), await server.connect()
    assert await claim(zk, 1, 0) is not None
    await other.delete(EPOCH, -1)

    async def overtake(client: FakeClient, call: str) -> None:
        if client is zk and call == "transact_by_aiozk":
            server.on_request = None
            await other.delete(SEAT, -1)
            assert await claim(other, 2, 0, KnownEpochs(lambda: 1)) is not None

    server.on_request = overtake
    assert not await release(zk, at_least=1)
    seat = await read_seat(other)
    assert seat is not None
    assert seat.owner == other.session_id


async def test_a_claim_is_one_transaction_that_checks_the_nodes_it_read() -> None:
    server = await a_server()
    zk = await server.connect()
    await claim(zk, 1, 0)
    [made] = [one for one in server.history if any(op.path == SEAT for op in one.ops)]
    assert [(type(op), op.path) for op in made.ops[:2]] == [(Create, SEAT), (Create, EPOCH)]
    await zk.delete(SEAT, -1)
    won = await claim(zk, 1, 0)
    assert won is not None
    [op] = [op for op in server.history[-1].ops if op.path == EPOCH]
    assert isinstance(op, Set)
    assert (op.version, won.epoch_version) == (1, 2), "one write, as a rule: version and epoch agree"
