"""Faults on demand: a log directory that fails and comes back, and a partition that is held back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path

import msgspec
import pytest

from brokerstub.faults import NO_FAULTS, Faults, read_faults, taken_from, watch_faults, write_faults
from brokerstub.log_dirs import NoLogDirectoryError
from brokerstub.notifications import Notifications
from controller.core.codes import Code
from controller.wire import bodies
from controller.wire.bodies import (
    BrokerEntry,
    StatesRequest,
    StopReplicaRequest,
    StopRow,
    TopicStops,
)
from controller.wire.client import HttpClient
from tests.brokerstub.cluster import Controller, Node, serving
from tests.brokerstub.support import eventually, row, topic

KEYS = [("id-orders", number) for number in range(4)]
BROKEN_1 = Faults(frozenset({1}))
#: dirs 0 and 1 get partitions 0, 2 and 1, 3; this broker leads all but 3
ROWS = StatesRequest(full=True, topics=[topic(row(0), row(1), row(2), row(3, 2))])


class Peer(Controller):
    """A broker with two log directories, told of four partitions, and a way to tell it more."""

    def __init__(self, node: Node, http: HttpClient) -> None:
        super().__init__(http)
        self.node = node

    @property
    def directories(self) -> list[list[int]]:
        """Partitions in each."""
        held = self.node.broker.replicas.held.values()
        return [[one.partition for one in held if one.directory == index] for index in (0, 1)]

    @property
    def is_announced(self) -> bool:
        return self.notifications._is_log_dir_due

    @property
    def notifications(self) -> Notifications:
        return self.node.broker.notifications

    async def tell_rows(self, request: StatesRequest = ROWS) -> list[tuple[int, int]]:
        status, code, refused = await self.tell(self.node, bodies.LEADER_AND_ISR, request)
        assert (status, code) == (200, 0)
        return refused


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    http = HttpClient()
    node = Node(1, tmp_path, http, lambda: 0, disks=("a", "b"))
    async with serving(node.app()) as node.port:
        node.broker.begin(100)
        peer = Peer(node, http)
        await peer.tell_rows()
        yield peer
    node.broker.close()
    await http.close()


@asynccontextmanager
async def started_again(peer: Peer, tmp_path: Path, faults: Faults = NO_FAULTS) -> AsyncIterator[Peer]:
    """Its process ended and another one began."""
    peer.node.broker.close()
    node = Node(1, tmp_path, peer.http, lambda: 0, disks=("a", "b"), faults=faults)
    node.broker.begin(101)
    async with serving(node.app()) as node.port:
        yield Peer(node, peer.http)
    node.broker.close()


@pytest.fixture
def full_disk() -> Iterator[FileIO]:
    with Path("/dev/full").open("ab", buffering=0) as file:
        yield file


async def test_replicas_are_spread_over_the_log_directories(peer: Peer, tmp_path: Path) -> None:
    assert peer.directories == [[0, 2], [1, 3]]
    async with started_again(peer, tmp_path) as later:
        assert later.directories == [[0, 2], [1, 3]]


async def test_a_failed_directory_s_replicas_are_neither_led_nor_followed_and_a_probe_says_so(peer: Peer) -> None:
    peer.node.broker.on_faults(BROKEN_1)
    replicas = peer.node.broker.replicas
    assert [replicas.led(key) is not None for key in KEYS] == [True, False, True, False]
    assert peer.is_announced
    probe = StatesRequest(topics=ROWS.topics)
    assert await peer.tell_rows(probe) == [(1, 56), (3, 56)]
    later = StatesRequest(topics=[topic(row(1, 2, epoch=1), row(0, epoch=1))])
    assert await peer.tell_rows(later) == [(1, 56)]


async def test_a_stop_for_a_replica_on_a_failed_directory_is_refused_with_56(peer: Peer) -> None:
    peer.node.broker.on_faults(BROKEN_1)
    stop = StopReplicaRequest([TopicStops("orders", "id-orders", [StopRow(0, -2, True), StopRow(1, -2, True)])])
    assert await peer.tell(peer.node, bodies.STOP_REPLICA, stop) == (200, 0, [(1, Code.KAFKA_STORAGE_ERROR)])
    assert peer.directories == [[2], [1, 3]]


async def test_while_a_directory_is_failed_only_new_replicas_are_made(peer: Peer) -> None:
    """A missing one may be where we cannot look."""
    peer.node.broker.on_faults(BROKEN_1)
    rows = StatesRequest(topics=[topic(row(7), row(8, is_new=True))])
    assert await peer.tell_rows(rows) == [(7, Code.KAFKA_STORAGE_ERROR)]
    assert peer.directories == [[0, 2, 8], [1, 3]]


async def test_a_mended_directory_serves_again_at_the_next_probe(peer: Peer) -> None:
    log_ids = {key: replica.log_id for key, replica in peer.node.broker.replicas.held.items()}
    peer.node.broker.on_faults(BROKEN_1)
    peer.notifications._is_log_dir_due = False
    peer.node.broker.on_faults(NO_FAULTS)
    assert peer.is_announced
    assert await peer.tell_rows(StatesRequest(topics=ROWS.topics)) == []
    replicas = peer.node.broker.replicas
    assert [replicas.led(key) is not None for key in KEYS] == [True, True, True, False]
    assert {key: replica.log_id for key, replica in replicas.held.items()} == log_ids


async def test_a_directory_that_is_failed_at_the_start_is_not_read_and_not_made_anew(
    peer: Peer, tmp_path: Path
) -> None:
    async with started_again(peer, tmp_path, BROKEN_1) as later:
        assert later.directories == [[0, 2], []]
        assert await later.tell_rows() == [(1, 56), (3, 56)]
        later.node.broker.on_faults(NO_FAULTS)
        assert await later.tell_rows() == []
        assert later.directories == [[0, 2], [1, 3]]


async def test_a_replica_made_anew_elsewhere_counts_when_its_old_directory_is_back(peer: Peer, tmp_path: Path) -> None:
    async with started_again(peer, tmp_path, BROKEN_1) as later:
        await later.tell_rows(StatesRequest(topics=[topic(row(1, epoch=4, is_new=True))]))
        assert later.directories == [[0, 2, 1], []]
        later.node.broker.on_faults(NO_FAULTS)
        assert later.directories == [[0, 2, 1], [3]]
        async with started_again(later, tmp_path) as last:
            assert [sorted(each) for each in last.directories] == [[0, 1, 2], [3]]


async def test_a_replica_removed_meanwhile_is_set_aside_when_its_directory_is_back(peer: Peer) -> None:
    """No request could delete it, and none will ask for it again before the next full list."""
    peer.node.broker.on_faults(BROKEN_1)
    us = BrokerEntry(1, peer.node.broker.broker_epoch or 0, "live", None, ("HTTP://127.0.0.1:1",))
    rows = [row(0), row(1, 2, replicas=(2, 3)), row(2), row(3, 2)]
    told = StatesRequest(full=True, brokers=[us], topics=[topic(*rows)])
    assert await peer.tell(peer.node, bodies.UPDATE_METADATA, told) == (200, 0, [])
    peer.node.broker.on_faults(NO_FAULTS)
    assert peer.directories == [[0, 2], [3]]
    assert list(peer.node.broker.replicas.strays) == [("id-orders", 1)]


async def test_a_topic_made_anew_meanwhile_leaves_the_old_one_aside_when_its_directory_is_back(
    peer: Peer, tmp_path: Path
) -> None:
    peer.node.broker.on_faults(BROKEN_1)
    new = topic(row(1, is_new=True), topic_id="id-new")
    assert await peer.tell_rows(StatesRequest(full=True, topics=[new])) == []
    peer.node.broker.on_faults(NO_FAULTS)
    replicas = peer.node.broker.replicas
    assert {key: replica.stray is None for key, replica in (replicas.held | replicas.strays).items()} == {
        ("id-new", 1): True,
        ("id-orders", 0): False,
        ("id-orders", 1): False,
        ("id-orders", 2): False,
        ("id-orders", 3): True,  # its name is free: the next full list tells
    }
    assert await peer.tell_rows(StatesRequest(topics=[new])) == []


async def test_a_directory_that_cannot_be_written_fails_by_itself(peer: Peer, full_disk: FileIO) -> None:
    peer.node.broker._dirs._logs[1].close()
    peer.node.broker._dirs._logs[1]._file = full_disk
    later = StatesRequest(topics=[topic(row(0, epoch=1), row(1, epoch=1))])
    assert await peer.tell_rows(later) == [(1, Code.KAFKA_STORAGE_ERROR)]
    replicas = peer.node.broker.replicas
    assert ([replicas.led(key) is not None for key in KEYS[:2]], peer.is_announced) == ([True, False], True)


async def test_with_the_last_directory_the_broker_ends(peer: Peer, tmp_path: Path) -> None:
    peer.node.broker.on_faults(Faults(frozenset({0, 1})))
    status, _, _ = await peer.tell(peer.node, bodies.LEADER_AND_ISR, ROWS)
    assert status == 503
    with pytest.raises(ExceptionGroup) as raised:
        await peer.node.broker.run()
    assert raised.group_contains(NoLogDirectoryError)
    with pytest.raises(NoLogDirectoryError):
        Node(1, tmp_path, peer.http, lambda: 0, disks=("a", "b"), faults=Faults(frozenset({0, 1})))


def followed(node: Node) -> set[int]:
    return {key[1] for following in node.broker._fetcher._followings.values() for key in following.wanted}


async def test_a_partition_that_is_held_back_is_not_fetched_until_it_is_released(peer: Peer) -> None:
    assert followed(peer.node) == {3}
    held = Faults(held=frozenset({("orders", 3), ("orders", 4)}))
    peer.node.broker.on_faults(held)
    assert followed(peer.node) == set()
    await peer.tell_rows(StatesRequest(topics=[topic(row(3, 3, epoch=1), row(4, 2), row(5, 2))]))
    assert followed(peer.node) == {5}
    peer.node.broker.on_faults(NO_FAULTS)
    assert followed(peer.node) == {3, 4, 5}
    assert peer.node.broker.replicas.told[KEYS[3]].leader == 3


async def test_a_file_that_cannot_be_read_now_is_read_again(tmp_path: Path) -> None:
    """No files were left to open, and the broker ended (chaos SEED=47.22). A folder can be seen and not read, too."""
    path, seen = tmp_path / "faults.json", list[Faults]()
    path.mkdir()
    watching = asyncio.ensure_future(watch_faults(path, seen.append))
    await asyncio.sleep(0)
    assert not watching.done()
    path.rmdir()
    write_faults(path, BROKEN_1)
    await eventually(lambda: seen[-1:] == [BROKEN_1])
    watching.cancel()


async def test_the_file_is_watched_and_nonsense_is_passed_over(tmp_path: Path) -> None:
    path, seen = tmp_path / "faults.json", list[Faults]()
    watching = asyncio.ensure_future(watch_faults(path, seen.append))
    faults = Faults(frozenset({1}), frozenset({("orders", 0)}))
    await eventually(lambda: seen == [NO_FAULTS])
    write_faults(path, faults)
    await eventually(lambda: seen == [NO_FAULTS, faults])
    await eventually(lambda: taken_from(path) == faults)
    path.write_text("{")
    with pytest.raises(msgspec.MsgspecError):
        read_faults(path)
    write_faults(path, NO_FAULTS)
    await eventually(lambda: seen == [NO_FAULTS, faults, NO_FAULTS])
    watching.cancel()
    await asyncio.wait([watching])


async def test_a_broker_told_by_the_file_suffers_and_recovers(tmp_path: Path) -> None:
    http, path = HttpClient(), tmp_path / "faults.json"
    node = Node(1, tmp_path, http, lambda: 0, disks=("a", "b"), klamm_faults_file=str(path))
    running = asyncio.ensure_future(node.broker.run())
    write_faults(path, BROKEN_1)
    await eventually(lambda: node.broker._dirs.broken == {1})
    write_faults(path, NO_FAULTS)
    await eventually(lambda: node.broker._dirs.broken == frozenset())
    running.cancel()
    await asyncio.wait([running])
    node.broker.close()
    await http.close()
