"""Watches: one-shot, of each kind, over reconnects, and armed by the thousand."""

from __future__ import annotations

import pytest

from controller.core.operations import (
    Create,
    Delete,
    Op,
    Set,
)
from controller.zookeeper.port import (
    EventKind,
    OutcomeUnknownError,
    SessionState,
    WatchEvent,
    ZooKeeper,
)
from tests.contract.labs import Lab, back, eventually

CREATED, DELETED, CHANGED, CHILDREN = EventKind.CREATED, EventKind.DELETED, EventKind.CHANGED, EventKind.CHILDREN


class Watcher:
    """A client, the events that it was told, and another client that writes."""

    def __init__(self, lab: Lab, client: ZooKeeper, writer: ZooKeeper) -> None:
        self.lab, self.client, self.writer = lab, client, writer
        self.told: list[tuple[EventKind, str]] = []
        client.on_watch(self._on_watch)

    def _on_watch(self, event: WatchEvent) -> None:
        self.told.append((event.kind, event.path))

    async def events(self) -> list[tuple[EventKind, str]]:
        """Returns the events since the last call; a watch that fired by now was told before the answer to this."""
        await self.client.sync()
        await self.client.exists("/")
        told, self.told = sorted(self.told, key=lambda each: (each[1], each[0].value)), []
        return told

    async def missing(self) -> None:
        self.lab.cut(self.client)
        await eventually(lambda: self.client.state is SessionState.SUSPENDED)

    async def back(self) -> None:
        self.lab.heal(self.client)
        await back(self.client)


@pytest.fixture
async def watcher(lab: Lab) -> Watcher:
    return Watcher(lab, await lab.connect(), await lab.connect())


async def test_a_data_watch_tells_of_one_change_only(watcher: Watcher) -> None:
    await watcher.writer.create("/a", b"")
    await watcher.client.sync()
    assert await watcher.client.get("/a", watch=True) is not None
    await watcher.writer.set("/a", b"1", 0)
    await watcher.writer.set("/a", b"2", 1)
    assert await watcher.events() == [(CHANGED, "/a")]
    await watcher.client.get("/a", watch=True)
    await watcher.writer.create("/a/b", b"")
    assert await watcher.events() == []
    await watcher.writer.transact([Delete("/a/b", 0), Delete("/a", 2)])
    assert await watcher.events() == [(DELETED, "/a")]


async def test_reading_a_missing_znode_with_a_watch_tells_of_its_creation(watcher: Watcher) -> None:
    assert await watcher.client.get("/a", watch=True) is None
    assert (await watcher.client.exists("/b", watch=True)).stat is None
    await watcher.writer.transact([Create("/a", b""), Create("/b", b"")])
    assert await watcher.events() == [(CREATED, "/a"), (CREATED, "/b")]
    await watcher.writer.transact([Delete("/a", 0), Delete("/b", 0)])
    assert await watcher.events() == []


async def test_an_exist_watch_on_an_existing_node_tells_of_its_change(watcher: Watcher) -> None:
    await watcher.writer.create("/a", b"")
    await watcher.client.sync()
    assert (await watcher.client.exists("/a", watch=True)).stat is not None
    await watcher.writer.set("/a", b"1", 0)
    assert await watcher.events() == [(CHANGED, "/a")]


async def test_a_child_watch_tells_of_children_and_not_of_data(watcher: Watcher) -> None:
    await watcher.writer.create("/p", b"")
    await watcher.client.sync()
    assert await watcher.client.children("/p", watch=True) is not None
    await watcher.writer.set("/p", b"1", 0)
    assert await watcher.events() == []
    await watcher.writer.create("/p/a", b"")
    await watcher.writer.create("/p/b", b"")
    assert await watcher.events() == [(CHILDREN, "/p")]
    await watcher.client.children("/p", watch=True)
    await watcher.writer.delete("/p/a", 0)
    assert await watcher.events() == [(CHILDREN, "/p")]
    await watcher.client.children("/p", watch=True)
    await watcher.writer.transact([Delete("/p/b", 0), Delete("/p", 1)])
    assert {path for _, path in await watcher.events()} == {"/p"}


async def test_a_deletion_is_told_once_to_a_client_that_watches_data_and_children(watcher: Watcher) -> None:
    await watcher.writer.create("/p", b"")
    await watcher.client.sync()
    await watcher.client.get("/p", watch=True)
    await watcher.client.children("/p", watch=True)
    await watcher.writer.delete("/p", 0)
    assert await watcher.events() == [(DELETED, "/p")]
    await watcher.missing()
    await watcher.back()
    assert await watcher.events() == []


async def test_a_client_hears_of_its_own_writes_before_their_answer(watcher: Watcher) -> None:
    assert await watcher.client.get("/a", watch=True) is None
    await watcher.client.create("/a", b"")
    assert watcher.told == [(CREATED, "/a")]


async def test_a_refused_transaction_tells_nothing(watcher: Watcher) -> None:
    assert await watcher.client.get("/a", watch=True) is None
    await watcher.writer.transact([Create("/a", b""), Delete("/none", 0)])
    assert await watcher.events() == []


async def test_a_read_whose_answer_was_lost_has_armed_nothing(watcher: Watcher) -> None:
    await watcher.writer.transact([Create("/a", b""), Create("/p", b""), Create("/kept", b"")])
    await watcher.client.sync()
    await watcher.client.get("/kept", watch=True)
    for read in (
        watcher.client.get("/a", watch=True),
        watcher.client.exists("/none", watch=True),
        watcher.client.children("/p", watch=True),
        watcher.client.get("/kept", watch=True),
    ):
        watcher.lab.lose_answer(watcher.client)
        with pytest.raises(OutcomeUnknownError):
            await read
        await back(watcher.client)
    ops: list[Op] = [Set("/a", b"1", 0), Create("/none", b""), Create("/p/q", b""), Set("/kept", b"1", 0)]
    await watcher.writer.transact(ops)
    assert await watcher.events() == [(CHANGED, "/kept")]


async def test_a_handler_that_was_removed_is_told_nothing(watcher: Watcher) -> None:
    assert await watcher.client.get("/a", watch=True) is None
    watcher.client.remove_handler(watcher._on_watch)
    await watcher.writer.create("/a", b"")
    assert await watcher.events() == []


async def test_watches_armed_by_the_thousand_fire_at_once_for_changes_made_meanwhile(watcher: Watcher) -> None:
    paths = [f"/n{number:03}" + "x" * 200 for number in range(900)]  # several requests of 128 KiB
    await watcher.writer.transact([Create(path, b"") for path in paths])
    await watcher.client.sync()
    zxid = min(node.zxid for node in await watcher.client.get_many(paths) if node is not None)
    missing = [f"/m{number}" for number in range(3)]
    await watcher.writer.transact([Set(paths[0], b"", 0), Delete(paths[899], 0), Create("/m1", b"")])
    await watcher.client.sync()
    await watcher.client.watch_many(paths, missing, zxid)
    assert await watcher.events() == [(CREATED, "/m1"), (CHANGED, paths[0]), (DELETED, paths[899])]
    await watcher.writer.transact([Set(paths[0], b"", 1), Set(paths[450], b"", 0), Create("/m2", b"")])
    assert await watcher.events() == [(CREATED, "/m2"), (CHANGED, paths[450])]
    await watcher.missing()
    await watcher.writer.transact([Set(paths[450], b"", 1), Set(paths[451], b"", 0), Create("/m0", b"")])
    await watcher.back()
    assert await watcher.events() == [(CREATED, "/m0"), (CHANGED, paths[451])]


async def test_a_reconnect_tells_exactly_the_missed_changes(watcher: Watcher) -> None:
    names = ["/changed", "/deleted", "/parent", "/quiet", "/again", "/fired"]
    await watcher.writer.transact([Create(name, b"") for name in names])
    await watcher.client.sync()
    for name in names:
        await watcher.client.get(name, watch=True)
    for name in ("/created", "/still-missing"):
        assert await watcher.client.get(name, watch=True) is None
    await watcher.client.children("/parent", watch=True)
    await watcher.client.children("/quiet", watch=True)
    await watcher.writer.set("/fired", b"", 0)
    assert await watcher.events() == [(CHANGED, "/fired")]
    await watcher.missing()
    ops: list[Op] = [Set("/changed", b"", 0), Delete("/deleted", 0), Create("/parent/a", b""), Create("/created", b"")]
    await watcher.writer.transact([*ops, Set("/fired", b"", 1), Delete("/again", 0), Create("/again", b"")])
    await watcher.back()
    expected = [(CHANGED, "/again"), (CHANGED, "/changed"), (CREATED, "/created"), (DELETED, "/deleted")]
    assert await watcher.events() == [*expected, (CHILDREN, "/parent")]
    # a watch that did not fire is still armed, one that fired is not
    ops = [Set("/quiet", b"", 0), Create("/quiet/a", b""), Create("/still-missing", b""), Set("/parent", b"", 0)]
    await watcher.writer.transact([*ops, Set("/changed", b"", 1), Delete("/created", 0), Create("/parent/b", b"")])
    expected = [(CHANGED, "/parent"), (CHANGED, "/quiet"), (CHILDREN, "/quiet"), (CREATED, "/still-missing")]
    assert await watcher.events() == expected


async def test_reconnects_without_a_change_tell_nothing_however_many(watcher: Watcher) -> None:
    await watcher.writer.transact([Create("/a", b""), Create("/a/b", b"")])
    await watcher.client.sync()
    await watcher.client.get("/a", watch=True)
    await watcher.client.children("/a", watch=True)
    await watcher.client.get("/c", watch=True)
    for _ in range(3):
        await watcher.missing()
        await watcher.back()
    assert await watcher.events() == []
    await watcher.writer.set("/a", b"", 0)
    assert await watcher.events() == [(CHANGED, "/a")]


async def test_missed_changes_are_told_before_the_client_says_connected(watcher: Watcher) -> None:
    story: list[object] = []
    await watcher.client.get("/a", watch=True)
    watcher.client.on_watch(lambda event: story.append(event.kind))
    watcher.client.on_state(story.append)
    await watcher.missing()
    await watcher.writer.create("/a", b"")
    await watcher.back()
    assert story == [SessionState.SUSPENDED, CREATED, SessionState.CONNECTED]
