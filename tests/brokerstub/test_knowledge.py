"""A broker's knowledge of topics: from requests, from replicas on its disks, and from those set aside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.wire import bodies
from controller.wire.bodies import (
    DescribedId,
    DescribedTopic,
    KnownEpoch,
    StatesRequest,
    StopReplicaRequest,
    StopRow,
    TopicStops,
)
from controller.wire.client import HttpClient
from tests.brokerstub.cluster import ANSWER_MS, JSON, OBEYED, Controller, Node, serving
from tests.brokerstub.support import broker, row, topic

UNKNOWN = DescribedTopic("orders", [])


class Asked:
    """Broker 1 with epoch 100, and a peer that asks it."""

    def __init__(self, directory: Path, http: HttpClient) -> None:
        self.directory, self.http = directory, http
        self.controller = Controller(http)
        self.node = Node(1, directory, http, lambda: 0)
        self.node.broker.begin(100)

    async def tells(self, path: str, request: object) -> None:
        assert await self.controller.tell(self.node, path, request) == OBEYED

    async def of(self, *names: str) -> list[DescribedTopic]:
        heads = {bodies.CONTROLLER_ID: "9", bodies.CONTROLLER_EPOCH: str(self.controller.epoch), bodies.EVENT_ID: "1-9"}
        heads |= {bodies.BROKER_EPOCH: str(self.node.broker.broker_epoch)}
        body = bodies.encode(bodies.DescribeTopicsRequest(names))
        status, raw = await self.http.post(self.node.url + bodies.DESCRIBE_TOPICS, body, JSON | heads, ANSWER_MS)
        assert status == 200
        return list(bodies.decode(raw, bodies.DescribeTopicsAnswer).topics)


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    http = HttpClient()
    asked = Asked(tmp_path / "broker-1", http)
    async with serving(asked.node.app()) as asked.node.port:
        yield asked
    await http.close()
    asked.node.broker.close()


async def test_a_broker_knows_the_topics_that_it_was_told_of_and_no_other(asked: Asked) -> None:
    metadata = StatesRequest(full=True, brokers=[broker(1)], topics=[topic(row(0, epoch=4), row(2, epoch=7))])
    await asked.tells(bodies.UPDATE_METADATA, metadata)
    told = DescribedId("id-orders", told=True, held=False, leader_epochs=[KnownEpoch(0, 4), KnownEpoch(2, 7)])
    assert await asked.of("new", "orders", "new") == [DescribedTopic("new", []), DescribedTopic("orders", [told])]
    assert await asked.of() == []


async def test_replicas_tell_their_id_and_the_highest_leader_epoch_after_a_restart_too(asked: Asked) -> None:
    for epoch in (3, 8):
        await asked.tells(bodies.LEADER_AND_ISR, StatesRequest(topics=[topic(row(epoch=epoch))]))
    held = DescribedTopic("orders", [DescribedId("id-orders", told=False, held=True, leader_epochs=[KnownEpoch(0, 8)])])
    assert await asked.of("orders") == [held]
    asked.node.broker.close()
    again = Node(1, asked.directory, asked.http, lambda: 0)
    again.broker.begin(101)
    async with serving(again.app()) as again.port:
        asked.node, before = again, asked.node
        assert await asked.of("orders") == [held]
        asked.node = before
    again.broker.close()


async def test_replicas_set_aside_and_replicas_told_of_are_told_apart(asked: Asked) -> None:
    await asked.tells(bodies.LEADER_AND_ISR, StatesRequest(topics=[topic(row(epoch=8))]))
    await asked.tells(bodies.LEADER_AND_ISR, StatesRequest(full=True))
    metadata = StatesRequest(topics=[topic(row(epoch=1), topic_id="id-new")])
    await asked.tells(bodies.UPDATE_METADATA, metadata)
    aside = DescribedId("id-orders", told=False, held=False, leader_epochs=[KnownEpoch(0, 8)])
    told = DescribedId("id-new", told=True, held=False, leader_epochs=[KnownEpoch(0, 1)])
    assert await asked.of("orders") == [DescribedTopic("orders", [told, aside])]


async def test_a_deleted_replica_is_known_no_more(asked: Asked) -> None:
    await asked.tells(bodies.LEADER_AND_ISR, StatesRequest(topics=[topic(row(epoch=8))]))
    stop = StopReplicaRequest([TopicStops("orders", "id-orders", [StopRow(0, -2, True)])])
    await asked.tells(bodies.STOP_REPLICA, stop)
    assert await asked.of("orders") == [UNKNOWN]
