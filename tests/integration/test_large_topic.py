"""One topic of very many partitions on a real ZooKeeper: it is made, failed over and deleted, and the seat is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.wire.client import ExchangeError
from tests.integration.cluster import Broker, Cluster, cluster_for
from tests.integration.duties import ask
from tests.integration.judging import bugs_in
from tests.waiting import until

PARTITIONS = 25_000
#: a machine that has much else to do may take longer than four seconds to let a process run; no test of speed
SESSION_MS = 10_000
#: says only that it never will happen
PATIENCE_S = 240.0

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
async def four(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """One more broker than there are replicas of a partition. The history of so many is too long for the checker."""
    cluster = cluster_for([zookeeper], tmp_path, brokers=4, session_timeout_ms=SESSION_MS)
    try:
        await cluster.open()
        yield cluster
    finally:
        await cluster.close()
    assert [bug for broker in cluster.brokers.values() for bug in bugs_in(broker.folder)] == []


async def everyone_says(cluster: Cluster, epoch: int, **wanted: int) -> None:
    """Wait until every running broker was told so by the controller of that epoch, and has acknowledged it."""
    said: dict[int, Any] = {}

    async def is_said() -> bool:
        for broker in cluster.running:
            topic, seat = await broker.get("/v1/topics/big"), await broker.get("/v1/controller")
            said[broker.broker_id] = topic, seat
            if topic is None or seat is None or seat["controller_epoch"] != epoch:
                return False
            if {name: topic.get(name) for name in wanted} != wanted:
                return False
        return True

    try:
        await until(is_said, f"everyone says {wanted} in epoch {epoch}", within_s=PATIENCE_S, poll_s=0.5)
    except AssertionError as error:
        error.add_note(f"{said}, claims {cluster.order.claims()}")
        raise


def epochs(cluster: Cluster) -> list[int]:
    return [claim.controller_epoch for claim in cluster.order.claims()]


async def all_acknowledged(broker: Broker) -> bool:
    """Whether the controller owes nothing to anybody."""
    page = await broker.get("/healthz/cluster")
    return page is not None and page["status"] == "green"


async def test_a_topic_of_25_000_is_created_failed_over_with_one_further_epoch_and_deleted(four: Cluster) -> None:
    await four.start()
    first = four.controller
    before = epochs(four)
    await first.create_topic("big", partitions=PARTITIONS)
    await everyone_says(four, before[-1], partitions=PARTITIONS, online=PARTITIONS, under_replicated=0)

    await first.kill()
    later = [*before, before[-1] + 1]
    # other brokers lead its partitions and leave it out of the ISRs, too
    await everyone_says(four, later[-1], partitions=PARTITIONS, online=PARTITIONS, under_replicated=PARTITIONS * 3 // 4)
    await first.start()
    await everyone_says(four, later[-1], partitions=PARTITIONS, online=PARTITIONS, under_replicated=0)
    await until(lambda: all_acknowledged(four.controller), "every backlog is empty", within_s=PATIENCE_S)
    assert epochs(four) == later, "no other broker had to claim"

    with suppress(ExchangeError, TimeoutError):  # the request is carried out, though its answer may come late
        await ask(four, "DELETE", "/v1/topics/big")

    async def is_gone() -> bool:
        topics = await four.zookeeper("get_children", "/brokers/topics")
        markers = await four.zookeeper("get_children", "/admin/delete_topics")
        return not topics and not markers

    await until(is_gone, "the topic and its marker are gone", within_s=PATIENCE_S, poll_s=0.5)
    assert epochs(four) == later, "no other broker had to claim"
