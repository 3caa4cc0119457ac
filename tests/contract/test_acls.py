"""Permissions: ZooKeeper's ACLs and refusals, on the fake and on the real one."""

from __future__ import annotations

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
    Denied,
    EventKind,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RefusedError,
    ZooKeeper,
)
from tests.contract.labs import Lab, back, eventually
from tests.contract.test_faults import told_by
from tests.fakes.acls import ALL, CREATE, DELETE, READ, WRITE, grant_to, grant_to_all
from tests.fakes.tree import brief_of

FRIEND = "digest:user:pass:word"


@pytest.fixture
async def client(lab: Lab) -> ZooKeeper:
    """A stranger: it has proved nothing."""
    client = await lab.connect()
    made = await client.transact(
        [
            *(Create(f"/{name}", b"0") for name in ("open", "hidden", "kept", "parent", "write-only")),
            *(Create(f"/parent/{name}", b"") for name in ("a", "full")),
            Create("/parent/full/x", b""),
            Create("/hidden/below", b"1"),
            Create("/parent/own", b"0"),
        ]
    )
    assert made.refused is None
    await lab.set_acl("/hidden", grant_to(FRIEND, ALL))
    await lab.set_acl("/kept", grant_to(FRIEND, ALL), grant_to_all(READ))
    await lab.set_acl("/parent", grant_to(FRIEND, ALL), grant_to_all(READ))
    await lab.set_acl("/write-only", grant_to(FRIEND, ALL), grant_to_all(WRITE))
    await client.sync()
    return client


async def test_one_path_that_may_not_be_read_is_said_in_its_place_and_stops_no_other(client: ZooKeeper) -> None:
    paths = ["/open", "/hidden", "/none", "/hidden/below", "/write-only", "/kept"]
    found = await client.get_many(paths)
    zxid = next(node.zxid for node in found if node is not None)
    denied = Denied(NoAuthError.code, zxid)
    assert [node if node is None or isinstance(node, Denied) else node.data for node in found] == [
        b"0", denied, None, b"1", denied, b"0",
    ]  # fmt: skip
    assert await client.brief_many(paths) == [brief_of(node) for node in found]
    lists = await client.children_many(["/hidden", "/parent", "/none", "/kept"])
    assert [one if one is None or isinstance(one, Denied) else sorted(one.names) for one in lists] == [
        denied, ["a", "full", "own"], None, [],
    ]  # fmt: skip


async def test_single_reads_of_it_raise_and_a_permitted_client_reads(lab: Lab, client: ZooKeeper) -> None:
    for read in (client.get, client.exists, client.children):
        for watch in (False, True):
            with pytest.raises(NoAuthError) as refused:
                await read("/hidden", watch=watch)
            assert (refused.value.path, refused.value.refusal) == ("/hidden", -102)
    assert (await client.exists("/hidden/below")).stat is not None
    friend = await lab.connect(auth=FRIEND)
    node = await friend.get("/hidden")
    assert node is not None
    assert (node.data, node.stat.acl_version, node.stat.version) == (b"0", 1, 0)
    assert await friend.get_many(["/hidden"]) == [node]


@pytest.mark.parametrize(
    ("op", "code"),
    [
        (Check("/kept", 0), None),
        (Check("/hidden", 0), NoAuthError.code),
        (Check("/hidden", 7), NoAuthError.code),
        (Check("/write-only", 0), NoAuthError.code),
        (Set("/write-only", b"1", 0), None),
        (Set("/kept", b"1", 0), NoAuthError.code),
        (Set("/kept", b"1", 7), NoAuthError.code),
        (Create("/parent/new", b""), NoAuthError.code),
        (Create("/parent/a", b""), NoAuthError.code),
        (Create("/parent/a/b", b""), None),
        (Create("/none/a", b""), NoNodeError.code),
        (Create("/open", b""), NodeExistsError.code),
        (Delete("/parent/a", 0), NoAuthError.code),
        (Delete("/parent/a", 7), NoAuthError.code),
        (Delete("/parent/full", 0), NoAuthError.code),
        (Delete("/parent/none", 0), NoAuthError.code),
        (Delete("/kept", 0), None),
        (Delete("/kept", 7), BadVersionError.code),
        (Delete("/hidden", 0), NotEmptyError.code),
        (Delete("/hidden/below", 0), NoAuthError.code),
    ],
)
async def test_a_transaction_is_refused_by_the_operation_that_may_not_be(
    client: ZooKeeper, op: Op, code: int | None
) -> None:
    answer = await client.transact([Set("/open", b"1", 0), op, Create("/later", b"")])
    if code is None:
        assert answer.refused is None
        return
    assert answer.refused == (1, code)
    assert [result.code for result in answer.results] == [0, code, -2]
    found = await client.get_many(["/open", "/later"])
    assert [node and brief_of(node) for node in found] == [await brief_at(client, "/open"), None]
    single = client.create(op.path, b"") if isinstance(op, Create) else None
    single = client.delete(op.path, op.version) if isinstance(op, Delete) else single
    single = client.set(op.path, op.data, op.version) if isinstance(op, Set) else single
    if single is not None:
        with pytest.raises(RefusedError) as refused:
            await single
        assert (refused.value.path, refused.value.refusal) == (op.path, code)


async def brief_at(client: ZooKeeper, path: str) -> object:
    return brief_of(await client.get(path))


async def test_each_permission_is_of_its_own(lab: Lab, client: ZooKeeper) -> None:
    await lab.set_acl("/open", grant_to_all(CREATE | READ))
    await client.create("/open/a", b"")
    for refused in (client.delete("/open/a", -1), client.set("/open", b"", -1)):
        with pytest.raises(NoAuthError):
            await refused
    await lab.set_acl("/open", grant_to_all(DELETE))
    await client.delete("/open/a", -1)
    for refused in (client.create("/open/a", b""), client.get("/open")):
        with pytest.raises(NoAuthError):
            await refused


async def test_nodes_of_an_owning_client_are_its_own_and_others_may_read(lab: Lab, client: ZooKeeper) -> None:
    owner = await lab.connect(auth=FRIEND, owns=True)
    made = await owner.transact([Create("/mine", b"0"), Create("/config", b""), Create("/config/users", b"")])
    assert made.refused is None
    assert (await client.get("/mine")) == (await owner.get("/mine"))
    with pytest.raises(NoAuthError):
        await client.set("/mine", b"1", 0)
    with pytest.raises(NoAuthError):
        await client.create("/mine/below", b"")
    with pytest.raises(NoAuthError):
        await client.get("/config/users")
    await owner.set("/mine", b"1", 0)
    stranger = await lab.connect(owns=True)
    assert (await stranger.transact([Set("/open", b"", 0), Create("/theirs", b"")])).refused == (1, -114)
    with pytest.raises(RefusedError) as refused:
        await stranger.create("/theirs", b"")
    assert refused.value.refusal == -114


async def test_an_acl_that_changes_fires_no_watch_and_used_up_watches_stay_silent(lab: Lab, client: ZooKeeper) -> None:
    friend, told = await lab.connect(auth=FRIEND), told_by(client)
    position = (await client.exists("/open")).zxid
    await client.watch_many(["/hidden", "/kept"], ["/parent/new"], position)  # it is not refused
    assert await client.children("/parent", watch=True) is not None
    await friend.set("/hidden", b"1", 0)  # the watch on it is used up, and no client hears
    await lab.set_acl("/hidden", grant_to(FRIEND, ALL), grant_to_all(READ))
    await friend.set("/hidden", b"2", 1)
    await lab.set_acl("/kept", grant_to(FRIEND, ALL))
    await friend.set("/kept", b"1", 0)
    await friend.create("/parent/new", b"")
    await eventually(lambda: (EventKind.CHILDREN, "/parent") in told)
    await client.sync()
    assert sorted(told, key=str) == sorted(
        [(EventKind.CREATED, "/parent/new"), (EventKind.CHILDREN, "/parent")], key=str
    )
    assert (await client.get("/hidden", watch=True)) is not None  # armed anew by a reading that is allowed
    await friend.set("/hidden", b"3", 2)
    await eventually(lambda: (EventKind.CHANGED, "/hidden") in told)


async def test_a_reconnect_tells_the_change_that_a_watch_kept_back(lab: Lab, client: ZooKeeper) -> None:
    friend, told = await lab.connect(auth=FRIEND), told_by(client)
    assert await client.get("/kept", watch=True) is not None
    await lab.set_acl("/kept", grant_to(FRIEND, ALL))
    lab.cut(client)
    await friend.set("/kept", b"1", 0)
    await lab.set_acl("/kept", grant_to(FRIEND, ALL), grant_to_all(READ))
    lab.heal(client)
    await back(client)
    await eventually(lambda: told == [(EventKind.CHANGED, "/kept")])
