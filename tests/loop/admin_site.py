"""A cluster on the fake ZooKeeper, and a client that writes into it as Kafka's own tools would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from controller.core.belief.cluster import Cluster
from controller.core.events import IsrProposal
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

ELECTION = "/admin/preferred_replica_election"
REASSIGN = "/admin/reassign_partitions"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CHANGES = "/config/changes"


class Site:
    """Brokers 1 to 3 with their sessions, and a session of a client with Kafka's tools."""

    def __init__(self, server: FakeZooKeeper, brokers: dict[int, FakeClient], tool: FakeClient) -> None:
        self.server = server
        self.brokers = brokers
        self.tool = tool

    async def write(self, path: str, value: object, *, sequential: bool = False) -> str:
        """JSON, or bytes as they are; made or replaced."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        if not sequential and self.server.read(path) is not None:
            await self.tool.set(path, data, -1)
            return path
        return (await self.tool.create(path, data, sequential=sequential))[0]

    async def topic(self, name: str, *replicas: list[int]) -> None:
        await self.write(f"/brokers/topics/{name}", topic_json(*replicas))
        await until(lambda: all(self.leader(name, number) is not None for number in range(len(replicas))))
        await settled()  # believed and told, too

    def leader(self, topic: str, partition: int = 0) -> object:
        return (state_of(self.server, topic, partition) or {}).get("leader")

    def die(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.server.expire(self.brokers.pop(broker_id))

    async def come(self, broker_id: int) -> None:
        self.brokers[broker_id] = await a_broker(self.server, broker_id)

    def names(self, path: str) -> list[str]:
        return sorted(self.server.tree.nodes[path].children)


async def a_site() -> Site:
    server = await a_server()
    brokers = {broker_id: await a_broker(server, broker_id) for broker_id in (1, 2, 3)}
    return Site(server, brokers, await server.connect())


@asynccontextmanager
async def leading(site: Site, **given: Any) -> AsyncIterator[Node]:
    """A controller that has loaded; its process is none of the three brokers."""
    async with a_controller(site.server, 9, **given) as node:
        await until(lambda: node.handle.is_active)
        await settled()
        yield node


def belief(node: Node) -> Cluster:
    """Returns the belief of an active controller."""
    assert node.handle.cluster is not None
    return node.handle.cluster


def proposal_for(node: Node, *isr: int) -> IsrProposal:
    """Returns the ISR change that the leader of orders-0 would ask for."""
    known = belief(node).topics["orders"]
    one = known.partitions[0]
    assert one.state is not None
    members = tuple((broker_id, belief(node).brokers[broker_id].epoch) for broker_id in isr)
    return IsrProposal(known.topic_id or "", 0, one.state.leader_epoch, one.version, 0, members)
