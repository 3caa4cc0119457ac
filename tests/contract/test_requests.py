"""Transactions, reads, creates: ZooKeeper's answers, on the fake and on the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from controller.core.operations import (
    Check,
    Create,
    Delete,
    Op,
    Set,
)
from controller.zookeeper.port import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OpResult,
    SessionLostError,
    TooLargeError,
    TransactionAnswer,
    ZooKeeper,
)
from tests.contract.labs import Lab
from tests.fakes.tree import brief_of

Transact = Callable[[Sequence[Op]], Awaitable[TransactionAnswer]]


@pytest.fixture
async def client(lab: Lab) -> ZooKeeper:
    return await lab.connect()


async def data_of(client: ZooKeeper, path: str) -> bytes | None:
    node = await client.get(path)
    return None if node is None else node.data


@pytest.fixture(params=["transact", "transact_by_aiozk"])
def transact(client: ZooKeeper, request: pytest.FixtureRequest) -> Transact:
    """Both ways to send a transaction."""
    method: Transact = getattr(client, request.param)
    return method


async def test_a_transaction_has_a_result_for_each_operation(client: ZooKeeper, transact: Transact) -> None:
    await client.create("/a", b"0")
    answer = await transact(
        [Check("/a", 0), Set("/a", b"1", 0), Create("/b", b"2"), Delete("/b", 0), Create("/c-", b"", sequential=True)]
    )
    assert answer.refused is None
    assert answer.results[:4] == (OpResult(0), OpResult(0, 1), OpResult(0, 0, "/b"), OpResult(0))
    assert answer.results[4].path == "/c-0000000002"
    assert answer.results[4].version == 0
    node = await client.get("/a")
    assert node is not None
    assert (node.data, node.stat.version, node.stat.mzxid) == (b"1", 1, answer.zxid)
    assert await data_of(client, "/b") is None


@pytest.mark.parametrize(
    ("op", "code"),
    [
        (Check("/a", 1), BadVersionError.code),
        (Check("/none", 0), NoNodeError.code),
        (Set("/a", b"", 7), BadVersionError.code),
        (Set("/none", b"", 0), NoNodeError.code),
        (Create("/a", b""), NodeExistsError.code),
        (Create("/none/b", b""), NoNodeError.code),
        (Delete("/a", 3), BadVersionError.code),
        (Delete("/none", 0), NoNodeError.code),
        (Delete("/p", 0), NotEmptyError.code),
        (Create("/e/child", b""), -108),
    ],
)
async def test_a_refused_transaction_names_the_cause_and_does_nothing(
    client: ZooKeeper, transact: Transact, op: Op, code: int
) -> None:
    await client.transact([Create("/a", b"0"), Create("/p", b""), Create("/p/q", b"")])
    await client.create("/e", b"", ephemeral=True)
    answer = await transact([Create("/x", b""), Set("/x", b"1", 0), Delete("/x", 1), op, Create("/y", b"")])
    assert answer.refused == (3, code)
    assert [result.code for result in answer.results] == [0, 0, 0, code, -2]
    assert await client.get_many(["/x", "/y"]) == [None, None]


async def test_an_empty_transaction_is_done(client: ZooKeeper) -> None:
    answer = await client.transact([])
    assert (answer.results, answer.refused) == ((), None)


async def test_a_later_operation_sees_an_earlier_one_of_its_transaction(client: ZooKeeper) -> None:
    answer = await client.transact([Create("/a", b"0"), Set("/a", b"1", 0), Check("/a", 1), Create("/a/b", b"")])
    assert answer.refused is None
    assert await data_of(client, "/a/b") == b""


async def test_pipelined_transactions_are_done_in_the_order_of_the_calls(client: ZooKeeper) -> None:
    await client.create("/a", b"")
    answers = await asyncio.gather(*(client.transact([Set("/a", b"%d" % n, n)]) for n in range(50)))
    assert [answer.refused for answer in answers] == [None] * 50
    assert [answer.zxid for answer in answers] == sorted({answer.zxid for answer in answers})
    assert await data_of(client, "/a") == b"49"


async def test_single_writes_raise_their_refusal(client: ZooKeeper) -> None:
    await client.create("/a", b"0")
    with pytest.raises(NodeExistsError) as refused:
        await client.create("/a", b"")
    assert (refused.value.path, refused.value.refusal) == ("/a", -110)
    with pytest.raises(BadVersionError):
        await client.set("/a", b"", 5)
    with pytest.raises(NoNodeError):
        await client.delete("/none", -1)
    await client.create("/a/b", b"")
    with pytest.raises(NotEmptyError):
        await client.delete("/a", -1)
    assert (await client.set("/a", b"1", -1)).version == 1
    assert (await client.set("/a", b"2", 1)).version == 2
    await client.delete("/a/b", 0)
    await client.delete("/a", 2)
    assert await client.get("/a") is None


async def test_a_stat_tells_the_history_of_its_znode(client: ZooKeeper) -> None:
    _, made = await client.create("/a", b"abc")
    assert (made.version, made.data_length, made.ephemeral_owner, made.children_count) == (0, 3, 0, 0)
    assert made.czxid == made.mzxid == made.pzxid
    await client.create("/a/b", b"")
    changed = await client.set("/a", b"", 0)
    node = await client.get("/a")
    assert node is not None
    assert node.stat == changed
    assert changed.czxid == made.czxid < changed.pzxid < changed.mzxid <= node.zxid
    assert (changed.version, changed.children_version, changed.children_count) == (1, 1, 1)
    assert changed.ctime_ms == made.ctime_ms <= changed.mtime_ms
    await client.delete("/a/b", 0)
    after = (await client.exists("/a")).stat
    assert after is not None
    assert (after.children_version, after.children_count) == (2, 0)
    assert after.pzxid > changed.mzxid


async def test_an_ephemeral_node_names_its_session_and_goes_with_it_at_once(lab: Lab, client: ZooKeeper) -> None:
    owner = await lab.connect()
    _, stat = await owner.create("/e", b"", ephemeral=True)
    assert stat.ephemeral_owner == owner.session_id
    assert (await owner.transact([Create("/f", b"", ephemeral=True)])).refused is None
    await client.sync()
    assert (await client.exists("/f")).stat is not None
    await owner.close()
    assert await client.get_many(["/e", "/f"]) == [None, None]
    await owner.close()
    with pytest.raises(SessionLostError):
        await owner.get("/")


async def test_sequence_numbers_rise_and_never_come_back(client: ZooKeeper) -> None:
    await client.create("/q", b"")
    first = [(await client.create("/q/n-", b"", sequential=True))[0] for _ in range(3)]
    assert first == [f"/q/n-{number:010d}" for number in range(3)]
    await client.delete(first[2], 0)
    assert (await client.create("/q/n-", b"", ephemeral=True, sequential=True))[0] == "/q/n-0000000003"


async def test_many_reads_come_in_order_and_a_missing_node_is_none(client: ZooKeeper) -> None:
    for start in range(0, 2400, 400):
        ops = [Create(f"/n{number}", b"%d" % number) for number in range(start, start + 400)]
        assert (await client.transact(ops)).refused is None
    paths = [f"/n{number}" for number in reversed(range(2500))]
    found = await client.get_many(paths)
    assert [node and node.data for node in found] == [None] * 100 + [b"%d" % n for n in reversed(range(2400))]
    assert {node.stat.version for node in found if node is not None} == {0}
    assert await client.brief_many(paths) == [brief_of(node) for node in found]
    assert await client.get_many([]) == []
    listed = await client.children("/")
    assert listed is not None
    assert sorted(listed.names) == sorted(f"n{number}" for number in range(2400))


async def test_many_child_lists_come_in_order_with_their_stats(client: ZooKeeper) -> None:
    await client.transact([Create("/a", b"data"), Create("/a/b", b""), Create("/a/c", b""), Create("/d", b"")])
    a, missing, d = await client.children_many(["/a", "/none", "/d"])
    assert missing is None
    assert a is not None
    assert d is not None
    assert (set(a.names), a.stat.children_count, d.names) == ({"b", "c"}, 2, ())
    assert a == await client.children("/a")
    assert await client.children("/none") is None


async def test_a_read_tells_the_position_of_the_server(client: ZooKeeper) -> None:
    _, stat = await client.create("/a", b"")
    node, missing, listed = await client.get("/a"), await client.exists("/none"), await client.children("/")
    assert node is not None
    assert listed is not None
    assert node.zxid == missing.zxid == listed.zxid == stat.czxid
    assert missing.stat is None


async def test_paths_are_without_the_chroot_in_both_directions(lab: Lab, client: ZooKeeper) -> None:
    outside = await lab.connect(chroot="")
    assert (await client.create("/a", b"x"))[0] == "/a"
    assert await data_of(outside, f"{lab.chroot}/a") == b"x"
    root = await client.children("/")
    assert root is not None
    assert root.names == ("a",)
    answer = await client.transact([Create("/a/s-", b"", sequential=True), Set("/", b"root", 0)])
    assert answer.results[0].path == "/a/s-0000000000"
    assert await data_of(outside, lab.chroot) == b"root"


async def test_a_request_over_the_limit_is_refused_before_it_is_sent(client: ZooKeeper, transact: Transact) -> None:
    await client.create("/a", b"")
    with pytest.raises(TooLargeError):
        await transact([Set("/a", b"x" * 600_000, 0), Set("/a", b"x" * 600_000, 1)])
    with pytest.raises(TooLargeError):
        await client.set("/a", b"x" * 1_100_000, 0)
    assert (await client.transact([Set("/a", b"x" * 1_000_000, 0)])).refused is None
    node = await client.get("/a")
    assert node is not None
    assert (len(node.data), node.stat.version) == (1_000_000, 1)
