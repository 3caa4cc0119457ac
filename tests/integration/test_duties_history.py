"""Who was controller, on real processes: kept in ZooKeeper over failovers and restarts, with the phases of each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster, until
from tests.integration.duties import a_duty_cluster, controlled_by, fail_over, items, klamm, read, with_topics

PHASES = ["claimed", "loaded", "decided", "committed", "told", "acknowledged"]

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_duty_cluster(zookeeper, tmp_path) as cluster:
        yield cluster


async def recorded(cluster: Cluster, count: int) -> list[dict[str, Any]]:
    """So many terms, once the last one's brokers have acknowledged what it told them."""

    async def are_recorded() -> list[dict[str, Any]]:
        terms = await items(cluster, "/v1/controller/history") or []
        return terms if len(terms) == count and "acknowledged" in terms[-1]["phases"] else []

    terms: list[dict[str, Any]] = await until(are_recorded, f"{count} terms are recorded")
    return terms


@pytest.mark.slow
async def test_every_failover_is_recorded_with_its_phases_and_kept(cluster: Cluster) -> None:
    await controlled_by(cluster, 1)
    await with_topics(cluster, orders=[[1, 2, 3]] * 3)
    dead = await fail_over(cluster)
    await recorded(cluster, 2)
    await cluster.start(dead.broker_id)
    second = cluster.controller
    await second.stop()
    await until(lambda: len(cluster.order.claims()) == 3, "a third one leads")
    terms = await recorded(cluster, 3)
    claims = cluster.order.claims()
    assert [(one["controller_epoch"], one["broker_id"]) for one in terms] == [
        (claim.controller_epoch, claim.broker_id) for claim in claims
    ]
    assert terms[0]["why"] == "session gone"
    assert terms[1]["why"] not in (None, "session gone", "unknown")
    assert (terms[2]["why"], terms[2]["to_ms"]) == (None, None)
    for one in terms:
        assert list(one["phases"]) == PHASES
        assert list(one["phases"].values()) == sorted(one["phases"].values())
    for earlier, later in pairwise(terms):
        assert earlier["from_ms"] < earlier["to_ms"] <= later["from_ms"]
    assert await klamm(cluster, "history") == terms
    for one in terms:
        kept = await read(cluster, f"/klamm/terms/{one['controller_epoch']}")
        assert kept == {key: value for key, value in one.items() if key != "controller_epoch"}
    for broker in cluster.running:
        await broker.kill()
    await cluster.start()
    assert (await recorded(cluster, len(cluster.order.claims())))[:2] == terms[:2]


@pytest.mark.slow
async def test_a_broker_that_died_is_known_to_the_next_term_with_its_address_until_forgotten(cluster: Cluster) -> None:
    await controlled_by(cluster, 1)
    await with_topics(cluster, orders=[[1, 2]])

    async def is_noted() -> bool:
        return await read(cluster, "/klamm/brokers/3") is not None

    await until(is_noted, "broker 3 is written down")
    await cluster.brokers[3].kill()

    async def known() -> dict[int, tuple[str, int]]:
        rows = await items(cluster, "/v1/brokers") or []
        return {row["id"]: (row["state"], row["port"]) for row in rows}

    async def is_gone() -> bool:
        return (await known()).get(3, ("", 0))[0] == "gone"

    await until(is_gone, "broker 3 is gone")
    await cluster.brokers[1].kill()
    await until(lambda: len(cluster.order.claims()) == 2, "2 leads")

    async def is_known() -> bool:
        return (await known()).get(3) == ("gone", cluster.brokers[3].port)

    await until(is_known, "the successor knows broker 3")
    await klamm(cluster, "brokers", "forget", "3")

    async def is_forgotten() -> bool:
        return 3 not in await known()

    await until(is_forgotten, "broker 3 is forgotten")
    assert await read(cluster, "/klamm/brokers/3") is None
