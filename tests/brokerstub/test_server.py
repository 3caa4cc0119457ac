"""A broker's RPCs as bytes: fencing by epochs, malformed requests, and the line that each request leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from brokerstub.replicas import SetAside
from controller.core.codes import Code
from controller.wire import bodies
from controller.wire.bodies import (
    StatesRequest,
    StopReplicaRequest,
    StopRow,
    TopicRows,
    TopicStops,
)
from controller.wire.client import HttpClient
from tests.brokerstub.cluster import ANSWER_MS, JSON, OBEYED, WALL_MS, Controller, Node, serving
from tests.brokerstub.support import broker, fetch, row, topic

ROWS = StatesRequest(topics=[topic(row(epoch=3))])
KEY = ("id-orders", 0)
CONTROLLERS = (bodies.LEADER_AND_ISR, bodies.UPDATE_METADATA, bodies.STOP_REPLICA, bodies.DESCRIBE_TOPICS)


class Peer:
    """Broker 1 with epoch 100, served, and a peer that speaks to it."""

    def __init__(self, node: Node, http: HttpClient) -> None:
        self.node = node
        self.http = http
        self.controller = Controller(http)
        self.tell = self.controller.tell

    async def post(self, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
        heads = {"Klamm-Controller-Id": "9", "Klamm-Controller-Epoch": "1", "Klamm-Broker-Epoch": "100"}
        heads |= JSON | {"Klamm-Sender": "2 200"}
        heads |= {name.replace("_", "-"): value for name, value in headers.items()}
        heads = {name: value for name, value in heads.items() if value}
        status, answer = await self.http.post(self.node.url + path, body, heads, ANSWER_MS)
        return status, msgspec.json.decode(answer)


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    http = HttpClient()
    node = Node(1, tmp_path / "broker-1", http, lambda: 0)
    node.broker.begin(100)
    async with serving(node.app()) as node.port:
        yield Peer(node, http)
    await http.close()
    node.broker.close()


@pytest.mark.parametrize("path", CONTROLLERS)
async def test_an_older_controller_epoch_is_refused_whatever_it_asks(peer: Peer, path: str) -> None:
    """S6: the highest epoch seen counts for all of them, and over incarnations."""
    peer.controller.epoch = 7
    assert await peer.tell(peer.node, path, {}) == OBEYED
    peer.node.broker.begin(101)
    peer.controller.epoch = 6
    for other in CONTROLLERS:
        assert await peer.tell(peer.node, other, {}) == (200, Code.STALE_CONTROLLER_EPOCH, [])
    _, said = await peer.post(bodies.LEADER_AND_ISR, bodies.encode(ROWS), Klamm_Broker_Epoch="101")
    assert said["controller_epoch"] == 7, "so that the next one claims above it"
    assert peer.node.broker.controller_epoch == 7


@pytest.mark.parametrize("path", CONTROLLERS)
async def test_a_request_for_an_earlier_incarnation_is_refused(peer: Peer, path: str) -> None:
    """S7; after KIP-380 (M38)."""
    peer.node.broker.begin(200)
    peer.controller.epoch = 8
    assert await peer.tell(peer.node, path, {}, epoch=100) == (200, Code.STALE_BROKER_EPOCH, [])
    assert peer.node.broker.controller_epoch == -1


@pytest.mark.parametrize("path", CONTROLLERS)
async def test_a_request_for_an_incarnation_not_known_yet_is_to_be_sent_again(peer: Peer, path: str) -> None:
    status, problem = await peer.post(path, b"{}", Klamm_Broker_Epoch="101")
    assert (status, problem["code"]) == (503, "BROKER_NOT_AVAILABLE")
    peer.node.broker.begin(101)
    assert (await peer.post(path, b"{}", Klamm_Broker_Epoch="101"))[0] == 200


async def test_a_stop_meant_for_the_previous_life_leaves_the_new_one_alone(peer: Peer) -> None:
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, ROWS)
    peer.node.broker.begin(200)
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, ROWS)
    stop = StopReplicaRequest([TopicStops("orders", "id-orders", [StopRow(0, 3, True)])])
    assert await peer.tell(peer.node, bodies.STOP_REPLICA, stop, epoch=100) == (200, Code.STALE_BROKER_EPOCH, [])
    assert KEY in peer.node.broker.replicas.told
    assert await peer.tell(peer.node, bodies.STOP_REPLICA, stop) == OBEYED
    assert KEY not in peer.node.broker.replicas.held


async def test_a_request_that_comes_after_later_ones_changes_nothing(peer: Peer) -> None:
    """Its sender gave it up and sent all anew; S28."""
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, ROWS, event="7-20")
    stop = StopReplicaRequest([TopicStops("orders", "id-orders", [StopRow(0, -2, True)])])
    assert await peer.tell(peer.node, bodies.STOP_REPLICA, stop, event="7-21") == OBEYED
    refused = (200, Code.INVALID_REQUEST, [])
    assert await peer.tell(peer.node, bodies.LEADER_AND_ISR, ROWS, event="7-20") == refused
    assert await peer.tell(peer.node, bodies.UPDATE_METADATA, ROWS, event="7-9") == refused
    assert (peer.node.broker.replicas.held, list(peer.node.broker.metadata.topic_names)) == ({}, [])
    assert await peer.tell(peer.node, bodies.UPDATE_METADATA, ROWS, event="8-1") == OBEYED
    peer.node.broker.begin(200)
    assert await peer.tell(peer.node, bodies.LEADER_AND_ISR, ROWS, event="7-1") == OBEYED


async def test_an_attempt_that_comes_after_a_later_one_about_the_same_event_changes_nothing(peer: Peer) -> None:
    """A full list came late and brought a replica back that the next request had deleted (SEED=181219515)."""
    full = StatesRequest(full=True, topics=ROWS.topics)
    assert await peer.tell(peer.node, bodies.LEADER_AND_ISR, full, event="7-20", sequence=4) == OBEYED
    stop = StopReplicaRequest([TopicStops("orders", "id-orders", [StopRow(0, 3, True)])])
    assert await peer.tell(peer.node, bodies.STOP_REPLICA, stop, event="7-20", sequence=6) == OBEYED
    refused = (200, Code.INVALID_REQUEST, [])
    assert await peer.tell(peer.node, bodies.LEADER_AND_ISR, full, event="7-20", sequence=4) == refused
    assert KEY not in peer.node.broker.replicas.held


async def test_only_refused_partitions_are_answered(peer: Peer) -> None:
    assert await peer.tell(peer.node, bodies.LEADER_AND_ISR, ROWS) == OBEYED
    older = StatesRequest(topics=[topic(row(0, epoch=2), row(1), row(2, replicas=(2, 3)))])
    assert await peer.tell(peer.node, bodies.LEADER_AND_ISR, older) == (200, 0, [(0, 11), (2, 3)])


async def test_a_full_list_takes_effect_with_its_last_part(peer: Peer) -> None:
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, ROWS)
    first = StatesRequest(full=True, part=1, parts=2, topics=[topic(row(1))])
    last = StatesRequest(full=True, part=2, parts=2, topics=[topic(row(2), row(3, replicas=(2,)))])
    assert await peer.tell(peer.node, bodies.LEADER_AND_ISR, last) == (200, Code.INVALID_REQUEST, [])
    assert await peer.tell(peer.node, bodies.LEADER_AND_ISR, first) == OBEYED
    assert set(peer.node.broker.replicas.told) == {KEY}
    for _ in range(2):  # the answer was lost: the last part again
        assert await peer.tell(peer.node, bodies.LEADER_AND_ISR, last) == (200, 0, [(3, 3)])
    replicas = peer.node.broker.replicas
    assert (set(replicas.told), set(replicas.strays)) == ({("id-orders", 1), ("id-orders", 2)}, {KEY})


async def test_strays_are_kept_with_reason_and_time_and_logged_once(peer: Peer, tmp_path: Path) -> None:
    """After KAFKA-15605 (M93)."""
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, ROWS)
    with capture_logs() as logged:
        for _ in range(2):
            await peer.tell(peer.node, bodies.LEADER_AND_ISR, StatesRequest(full=True))
    assert [(one["replicas"], one["of"]) for one in logged if one["event"] == "strays.set_aside"] == [
        (1, ["orders-0 (id-orders)"])
    ]
    again = Node(1, tmp_path / "broker-1", peer.http, lambda: 0)
    aside = SetAside("not in the full list of controller epoch 1", WALL_MS)
    assert {key: one.stray for key, one in again.broker.replicas.strays.items()} == {KEY: aside}
    again.broker.close()


async def test_replicas_and_their_log_ids_survive_the_process(peer: Peer, tmp_path: Path) -> None:
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, ROWS)
    held = dict(peer.node.broker.replicas.held)
    again = Node(1, tmp_path / "broker-1", peer.http, lambda: 0)
    assert again.broker.replicas.held == held
    again.broker.close()
    elsewhere = Node(1, tmp_path / "empty", peer.http, lambda: 0)
    assert elsewhere.broker.replicas.held == {}
    elsewhere.broker.close()


async def test_each_request_of_a_controller_leaves_one_line(peer: Peer) -> None:
    await peer.tell(peer.node, bodies.UPDATE_METADATA, StatesRequest(full=True, brokers=[broker(1), broker(2)]))
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, StatesRequest(topics=[topic(row(), row(1, replicas=(2,)))]))
    await peer.tell(peer.node, bodies.STOP_REPLICA, StopReplicaRequest(), epoch=99)
    await peer.post(bodies.FETCH, b"{}")
    lines = [line for line in peer.node.lines if line.kind == "rpc"]
    assert [line.reason for line in lines] == [
        "update-metadata: 0 topics, 2 brokers, part 1 of 1 of a full list",
        "leader-and-isr: 2 partitions, 1 refused",
        "stop-replica: 0 partitions, 0 to be deleted",
    ]
    line = lines[2]
    assert (line.kind, line.broker_id, line.broker_epoch, line.error_code) == ("rpc", 1, 99, 77)
    assert (line.controller_id, line.controller_epoch, line.event_id, line.cluster_id) == (9, 1, "1-5", "cluster")
    assert line.took_ms is not None


def transitions_in(node: Node) -> list[tuple[str | None, dict[str, str] | None]]:
    """Taken out of the node's lines."""
    found = [(line.target, line.partitions) for line in node.lines if line.kind == "transition"]
    node.lines.clear()
    return found


async def test_the_log_says_of_which_partitions_a_broker_became_leader_or_follower(peer: Peer) -> None:
    led = [row(number, leader=1, epoch=3) for number in (0, 1, 2, 5)]
    followed = [row(number, leader=2, epoch=3) for number in (3, 4)]
    strange = row(6, replicas=(2,))  # refused: it is not on this broker
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, StatesRequest(topics=[topic(*led, *followed, strange)]))
    assert [line.kind for line in peer.node.lines] == ["transition", "transition", "rpc"]
    assert {line.event_id for line in peer.node.lines} == {"1-5"}
    assert {(line.broker_id, line.broker_epoch, line.controller_epoch) for line in peer.node.lines} == {(1, 100, 1)}
    assert transitions_in(peer.node) == [("leader", {"orders": "0-2,5"}), ("follower", {"orders": "3-4"})]

    again = StatesRequest(topics=[topic(row(0, leader=1, epoch=3, isr=(1,), version=9), row(1, leader=2, epoch=4))])
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, again)
    assert transitions_in(peer.node) == [("follower", {"orders": "1"})], "a new ISR alone moves no replica"

    stops = [StopRow(0, 4, delete=True), StopRow(3, 4, delete=False), StopRow(4, 2, delete=True)]  # the last is too old
    await peer.tell(peer.node, bodies.STOP_REPLICA, StopReplicaRequest([TopicStops("orders", "id-orders", stops)]))
    assert transitions_in(peer.node) == [("deleted", {"orders": "0"}), ("stopped", {"orders": "3"})]

    whole = StatesRequest(full=True, topics=[topic(row(1, leader=1, epoch=5))])
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, whole)
    assert transitions_in(peer.node) == [("set aside", {"orders": "2-5"}), ("leader", {"orders": "1"})]


async def test_lines_about_many_partitions_are_cut_at_64_kib(peer: Peer) -> None:
    names = [f"topic-with-a-name-that-is-rather-long-{number:05}" for number in range(3_000)]
    topics = [TopicRows(name, f"id-{name}", [row(0, leader=1)]) for name in names]
    await peer.tell(peer.node, bodies.LEADER_AND_ISR, StatesRequest(topics=topics))
    lines = [line for line in peer.node.lines if line.kind == "transition"]
    assert len(lines) > 1
    assert max(len(msgspec.json.encode(line)) for line in lines) <= 64 * 1024
    assert sorted(name for line in lines for name in line.partitions or ()) == names


@pytest.mark.parametrize("path", [*CONTROLLERS, bodies.FETCH])
@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"topics":7}', b"\xff", b'{"topics":["\xff"]}', b"[" * 100_000, b'{"topics":[{}]}']
)
async def test_a_malformed_request_is_refused_and_changes_nothing(peer: Peer, path: str, body: bytes) -> None:
    status, problem = await peer.post(path, body)
    assert (status, problem["code"]) == (400, "INVALID_REQUEST")
    broker = peer.node.broker
    assert (broker.controller_epoch, broker.replicas.told, broker.sessions.of(2)) == (-1, {}, None)


@pytest.mark.parametrize("header", ["Klamm_Controller_Id", "Klamm_Controller_Epoch", "Klamm_Broker_Epoch"])
@pytest.mark.parametrize("value", ["", "-1", "x", "1.5", "²"])
async def test_headers_of_a_controller_are_checked(peer: Peer, header: str, value: str) -> None:
    for path in CONTROLLERS:
        assert (await peer.post(path, b"{}", **{header: value}))[0] == 400


@pytest.mark.parametrize("sender", ["", "2", "2 x", "2 200 1", "-2 200"])
async def test_the_sender_of_a_fetch_is_checked(peer: Peer, sender: str) -> None:
    assert (await peer.post(bodies.FETCH, b"{}", Klamm_Sender=sender))[0] == 400


async def test_a_body_may_have_8_mib_and_no_more(peer: Peer) -> None:
    limit = 8 * 1024 * 1024
    assert (await peer.post(bodies.UPDATE_METADATA, b"{" + b" " * (limit - 2) + b"}"))[0] == 200
    status, problem = await peer.post(bodies.UPDATE_METADATA, b"{" + b" " * limit + b"}")
    assert (status, problem["code"]) == (413, "BODY_TOO_LARGE")


async def test_a_fetch_by_an_incarnation_that_is_over_is_refused(peer: Peer) -> None:
    await peer.tell(peer.node, bodies.UPDATE_METADATA, StatesRequest(brokers=[broker(2, 250)]))
    body = bodies.encode(fetch((0, 3)))
    assert (await peer.post(bodies.FETCH, body))[1]["error_code"] == Code.STALE_BROKER_EPOCH
    assert (await peer.post(bodies.FETCH, body, Klamm_Sender="2 250"))[1]["error_code"] == Code.NONE


async def test_before_it_is_registered_a_broker_answers_503(peer: Peer, tmp_path: Path) -> None:
    node = Node(2, tmp_path / "broker-2", peer.http, lambda: 0)
    async with serving(node.app()) as node.port:
        unregistered = Peer(node, peer.http)
        for path in (*CONTROLLERS, bodies.FETCH):
            assert (await unregistered.post(path, b"{}"))[0] == 503
    node.broker.close()


@pytest.fixture
def full_disk() -> Iterator[FileIO]:
    with Path("/dev/full").open("ab", buffering=0) as file:
        yield file


async def test_a_disk_that_fails_ends_the_broker(peer: Peer, full_disk: FileIO) -> None:
    """As with Kafka when no log directory is left."""
    peer.node.broker.close()
    peer.node.broker._dirs._logs[0]._file = full_disk
    for _ in range(2):
        assert (await peer.post(bodies.LEADER_AND_ISR, bodies.encode(ROWS)))[0] == 503
    with pytest.raises(ExceptionGroup) as raised:
        await peer.node.broker.run()
    assert raised.group_contains(OSError)
