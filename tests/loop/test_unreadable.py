"""Znodes that may not be read, hold garbage, have foreign children or malformed names: each is left out by name, the
rest is served, and a repaired znode is taken up without a new term."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest

from controller.core.codes import Code
from controller.core.events import CreateTopicAsked
from controller.core.operations import Create, Set
from controller.core.project.znodes import numbers_in
from controller.loop.unreadable_nodes import (
    FIRST_RETRY_S,
    MAX_RETRY_S,
    UnreadableNodes,
    shown,
)
from tests.fakes.acls import ALL, READ, grant_to_all
from tests.loop.admin_site import (
    CHANGES,
    ELECTION,
    LOG_DIR_EVENTS,
    REASSIGN,
    Site,
    a_site,
    belief,
    leading,
)
from tests.support.harness import (
    Node,
    a_controller,
    broker_json,
    settled,
    state_of,
    topic_json,
    until,
)

HIDDEN = grant_to_all(ALL & ~READ)
STATE = "/brokers/topics/orders/partitions/0/state"
CONFIG = json.dumps({"version": 1, "config": {"retention.ms": "1"}}).encode()
#: its first content, or None: a parent that has a list
NODES: dict[str, bytes | None] = {
    "/brokers/topics/orders": topic_json([1, 2], topic_id="AAAAAAAAAAAAAAAAAAAAAw"),
    STATE: None,
    "/brokers/ids/3": broker_json(3),
    "/admin/delete_topics/nothing": b"",
    REASSIGN: b'{"version":1,"partitions":[]}',
    ELECTION: b'{"version":1,"partitions":[]}',
    "/config/topics/orders": CONFIG,
    "/config/brokers/<default>": CONFIG,
    f"{CHANGES}/config_change_0000000000": b'{"version":2,"entity_path":"topics/orders"}',
    "/isr_change_notification/isr_change_0000000000": b'{"version":1,"partitions":[]}',
    f"{LOG_DIR_EVENTS}/log_dir_event_0000000000": b'{"version":1,"broker":1,"event":1}',
    "/latest_producer_id_block": b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    "/klamm/draining/7": b'{"broker_epoch":1,"by":"hand"}',
    "/klamm/failed_dirs/7": b'{"broker_epoch":1}',
    "/klamm/brokers/2": b'{"broker_epoch":1}',
    "/klamm/terms/1": b'{"broker_id":7,"from_ms":1}',
}
LISTS = (
    "/brokers/ids", "/brokers/topics", "/admin/delete_topics", "/config/topics", "/config/brokers", CHANGES,
    "/isr_change_notification", LOG_DIR_EVENTS, "/klamm/draining", "/klamm/failed_dirs", "/klamm/brokers",
    "/klamm/terms",
)  # fmt: skip
HIDDEN_PATHS = [*NODES, *LISTS]
GARBAGE = {
    "nothing": b"",
    "cut": b'{"version":1,"part',
    "list": b"[]",
    "number": b"9" * 5_000,
    "huge": b'{"x":"' + b"x" * 900_000,
    "large ids": b'{"version":1,"partitions":{"0":[4294967297]},"broker":4294967297,"broker_epoch":1e400}',
}
NAMES = {
    "5,000 digits": "9" * 5_000,
    "over 31 bits": "4294967297",
    "2 to the 31st": "2147483648",
    "a zero in front": "007",
    "negative": "-1",
    "other digits": "٣",
    "a word": "foreign",
    "a space": " 3",
    "encoded slash": "a%2Fb",
    "quotes": "a\"b'c",
    "not printed": "a\u202eb",
}


async def a_prepared_site() -> Site:
    """Two topics that are led already, and something of everything that a controller reads."""
    site = await a_site()
    for path in ("/klamm", "/klamm/draining", "/klamm/failed_dirs", "/klamm/brokers", "/klamm/terms"):
        await site.write(path, b"")
    async with leading(site) as node:
        await site.write("/brokers/topics/orders", NODES["/brokers/topics/orders"])
        await site.topic("steady", [1, 2], [2, 3])
        await until(lambda: site.leader("orders") is not None)
        await settled()
        site.server.expire(node.zk)
    return site


def lay(site: Site, path: str, data: bytes) -> None:
    """Make the node and its parents, or replace it."""
    op = Create(path, data) if site.server.read(path) is None else Set(path, data, -1)
    assert site.server.commit(0, [op]).refused is None


async def goes_on(site: Site, node: Node, name: str, *, brokers: tuple[int, ...] = (1, 2)) -> None:
    """Another topic is created, led and told, and this is still the first term of this process."""
    asked = CreateTopicAsked(name, assignment={0: brokers})
    assert (await node.ask(asked)).code is Code.NONE
    await until(lambda: (state_of(site.server, name, 0) or {}).get("leader") == brokers[0])
    await settled()
    told = [telling for _, telling in node.heard.tellings if name in str(telling)]
    assert told, f"no broker was told of {name}"
    assert (site.leader("steady", 0), site.leader("steady", 1)) == (1, 2)
    assert node.handle.is_active
    assert len(node.heard.guards) == 1


def said(node: Node) -> str:
    """Returns all messages about unread znodes."""
    return str({**node.held.unread, **belief(node).unreadable})


def allow(site: Site, path: str) -> None:
    if site.server.read(path) is not None:
        site.server.set_acl(path, grant_to_all(ALL))


async def read_again(site: Site) -> None:
    for _ in range(8):
        site.server.clock.advance(MAX_RETRY_S)
        await settled()


@pytest.mark.parametrize("path", HIDDEN_PATHS)
async def test_an_unreadable_znode_is_left_out_by_name_at_the_start_and_taken_up_when_readable(path: str) -> None:
    site = await a_prepared_site()
    if (data := NODES.get(path)) is not None:
        lay(site, path, data)
    site.server.set_acl(path, HIDDEN)
    async with leading(site) as node:
        await goes_on(site, node, "users")
        is_over = site.server.read(path) is None or path.startswith(f"{CHANGES}/")  # done with, and not even looked at
        assert is_over or path in said(node) or "orders" in said(node)
        allow(site, path)
        await read_again(site)
        assert (node.held.unread, belief(node).unreadable) == ({}, {})
        await goes_on(site, node, "afterwards")
        assert sorted(belief(node).topics) == ["afterwards", "orders", "steady", "users"]
        assert (sorted(belief(node).brokers), site.leader("orders")) == ([1, 2, 3], 1)


async def test_a_malformed_state_is_read_again_though_no_watch_tells_that_it_was_put_right() -> None:
    site = await a_prepared_site()
    data = site.server.read(STATE)
    assert data is not None
    lay(site, STATE, b"null")
    async with leading(site) as node:
        await goes_on(site, node, "users")
        assert ("orders", 0) in belief(node).unreadable
        lay(site, STATE, data)
        await read_again(site)
        assert (node.held.unread, belief(node).unreadable) == ({}, {})
        assert any("orders" in str(telling.leaderships) for _, telling in node.heard.tellings)


@pytest.mark.parametrize("path", HIDDEN_PATHS)
async def test_a_znode_that_becomes_unreadable_stays_as_last_read(path: str) -> None:
    site = await a_prepared_site()
    async with leading(site) as node:
        before = site.leader("orders"), sorted(belief(node).brokers), sorted(belief(node).topics)
        if path in LISTS:
            name = {"/brokers/ids": "4294967297", "/brokers/topics": "odd one"}.get(path, "9")
            site.server.commit(0, [Create(f"{path}/{name}", b"")])
        else:
            lay(site, path, NODES[path] or site.server.read(path) or b"")
        site.server.set_acl(path, HIDDEN)  # before it was read
        await settled()
        await goes_on(site, node, "users")
        assert before == (site.leader("orders"), sorted(belief(node).brokers), ["orders", "steady"])
        allow(site, path)
        await read_again(site)
        await goes_on(site, node, "afterwards")
        assert sorted(belief(node).topics) == ["afterwards", "orders", "steady", "users"]
        assert sorted(belief(node).brokers) == [1, 2, 3]


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("path", NODES)
async def test_garbage_is_left_out_by_name_at_the_start_and_later(path: str, garbage: bytes) -> None:
    for is_later in (False, True):
        site = await a_prepared_site()
        if not is_later:
            lay(site, path, garbage)
        async with leading(site) as node:
            if is_later:
                lay(site, path, garbage)
            await settled()
            await goes_on(site, node, "users")
            if path in ("/brokers/ids/3", "/brokers/topics/orders"):
                assert path.rpartition("/")[2] in said(node)
            if site.server.read(path) == garbage and (data := NODES[path]) is not None:
                lay(site, path, data)
                await read_again(site)
                assert path not in said(node)
                await goes_on(site, node, "afterwards")


@pytest.mark.parametrize("path", [path for path in (*NODES, *LISTS) if path != "/brokers/ids/3"])  # that is ephemeral
async def test_foreign_children_disturb_nothing(path: str) -> None:
    for is_later in (False, True):
        site = await a_prepared_site()
        if (data := NODES.get(path)) is not None:
            lay(site, path, data)
        if not is_later:
            lay(site, f"{path}/foreign", b"x")
        async with leading(site) as node:
            if is_later and site.server.read(path) is not None:
                lay(site, f"{path}/foreign", b"x")
            await settled()
            await goes_on(site, node, "users")


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("parent", LISTS)
async def test_names_that_make_no_sense_are_left_out(parent: str, name: str) -> None:
    content = {"/brokers/ids": broker_json(3), "/brokers/topics": topic_json([3, 2], topic_id=None)}.get(parent, b"{}")
    for is_later in (False, True):
        site = await a_prepared_site()
        if not is_later:
            lay(site, f"{parent}/{name}", content)
        async with leading(site) as node:
            if is_later:
                lay(site, f"{parent}/{name}", content)
            await settled()
            await goes_on(site, node, "users")
            assert sorted(belief(node).brokers) == [1, 2, 3]
            if parent == "/brokers/ids":
                assert f"{parent}/{name}" in node.held.unread
            if parent == "/brokers/ids":
                await site.tool.delete(f"{parent}/{name}", -1)
                await until(lambda node=node: not node.held.unread)  # type: ignore[misc]


async def test_a_broker_whose_death_cannot_be_listed_is_gone_all_the_same_and_comes_back() -> None:
    site = await a_prepared_site()
    site.server.set_acl("/brokers/ids", HIDDEN)
    async with leading(site) as node:
        assert sorted(belief(node).brokers) == [1, 2, 3]
        site.die(1)
        await until(lambda: site.leader("steady") == 2)
        await site.come(1)
        await until(lambda: sorted(belief(node).brokers) == [1, 2, 3])
        assert "/brokers/ids" in node.held.unread


async def test_a_deletion_whose_topics_cannot_be_listed_is_neither_forgotten_nor_undone() -> None:
    site = await a_prepared_site()
    lay(site, "/config/topics/steady", CONFIG)  # the other one has none, as if an older tool had made it
    lay(site, "/admin/delete_topics/orders", b"")
    site.server.set_acl("/brokers/topics", HIDDEN)
    async with leading(site) as node:
        assert sorted(belief(node).topics) == ["steady"]
        assert site.server.read("/admin/delete_topics/orders") == b""
        site.server.set_acl("/brokers/topics", grant_to_all(ALL))
        await read_again(site)
        assert belief(node).duties.is_leaving("orders")


async def test_zookeeper_that_throttles_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.loop.reader.THROTTLED_S", 0.0)
    site = await a_prepared_site()
    site.server.refuse("/brokers/topics/orders", -127)
    async with a_controller(site.server, 9) as node:
        await until(lambda: node.handle.controller_epoch is not None)
        await settled()
        assert node.handle.cluster is None
        site.server.lift("/brokers/topics/orders")
        await until(lambda: node.handle.cluster is not None)
        await goes_on(site, node, "users")


def test_numbers_are_those_that_kafka_writes_and_has_room_for() -> None:
    names = [*NAMES.values(), "3", "0", "2147483647", "", "3x", "1" * 11]
    assert numbers_in(names) == [0, 3, 2147483647]


def test_an_unread_znode_is_read_again_after_twice_the_time() -> None:
    unread = UnreadableNodes()
    unread.put("/a", "no")

    def moments(until_s: float) -> Iterator[float]:
        now_s = 0.0
        while now_s < until_s:
            if unread.due(now_s):
                unread.put("/a", "no")
                yield now_s
            now_s += 0.5

    found = list(moments(130.0))
    assert found[:5] == [1.0, 3.0, 7.0, 15.0, 31.0]
    assert [later - before for before, later in pairwise(found[4:])] == [MAX_RETRY_S] * (len(found) - 5)
    assert FIRST_RETRY_S == 1.0
    unread.good("/a")
    assert not unread


def test_a_path_is_shown_with_any_characters() -> None:
    assert shown("/brokers/ids/3") == "/brokers/ids/3"
    assert shown("/a\u202eb\n") == "/a\\u202eb\\n"
    assert len(shown("/" + "9" * 5_000)) < 160
