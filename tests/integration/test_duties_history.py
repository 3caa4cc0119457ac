"""The terms of controllers, on real processes: kept in ZooKeeper over failovers and restarts, with their phases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster
from tests.integration.duties import a_duty_cluster, controlled_by, fail_over, items, klamm, read, with_topics
from tests.waiting import until

PHASES = ["claimed", "loaded", "decided", "committed", "told", "acknowledged"]

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_duty_cluster(zookeeper, tmp_path) as cluster:
        yield cluster


async def recorded(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the terms, once the newest claim's is among them and its brokers have acknowledged its requests. A slow
    machine may cost a controller its session at any time, and then there is one more."""

    async def are_recorded() -> list[dict[str, Any]]:
        epoch = cluster.order.claims()[-1].controller_epoch
        terms = await items(cluster, "/v1/controller/history") or []
        is_last = bool(terms) and terms[-1]["controller_epoch"] == epoch and "acknowledged" in terms[-1]["phases"]
        return terms if is_last else []

    terms: list[dict[str, Any]] = await until(are_recorded, "the newest claim's term is recorded")
    return terms


def seen_early(terms: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Terms as a reader saw them while the last was not over: only its end can have been added since."""
    return [*terms[:-1], {**terms[-1], "to_ms": None, "why": None}]


def started(cluster: Cluster, *, up_to: int) -> set[int]:
    """The epochs of the terms that got as far as to decide."""
    lines = [line for broker in cluster.brokers.values() for line in broker.log("term.started")]
    return {line["controller_epoch"] for line in lines if line["controller_epoch"] <= up_to}


@pytest.mark.slow
async def test_every_failover_is_recorded_with_its_phases_and_kept(cluster: Cluster) -> None:
    await controlled_by(cluster, 1)
    await with_topics(cluster, orders=[[1, 2, 3]] * 3)
    killed = (await recorded(cluster))[-1]["controller_epoch"]
    dead = await fail_over(cluster)
    await recorded(cluster)
    await cluster.start(dead.broker_id)
    stopped = (await recorded(cluster))[-1]["controller_epoch"]
    claim, second = cluster.order.claims()[-1], cluster.controller
    await second.stop()
    await cluster.claim_after(claim)
    terms = await recorded(cluster)
    by_epoch = {one["controller_epoch"]: one for one in terms}
    began = [one for one in cluster.order.claims() if one.controller_epoch in started(cluster, up_to=max(by_epoch))]
    assert [(one["controller_epoch"], one["broker_id"]) for one in terms] == [
        (claim.controller_epoch, claim.broker_id) for claim in began
    ]
    assert by_epoch[killed]["why"] == "session gone"
    assert by_epoch[stopped]["why"] not in (None, "session gone", "unknown")
    assert (terms[-1]["why"], terms[-1]["to_ms"]) == (None, None)
    assert [list(one["phases"]) for one in (by_epoch[killed], by_epoch[stopped], terms[-1])] == [PHASES] * 3
    for one in terms:
        assert list(one["phases"]) == PHASES[: len(one["phases"])]
        assert list(one["phases"].values()) == sorted(one["phases"].values())
    for earlier, later in pairwise(terms):
        assert earlier["from_ms"] < earlier["to_ms"] <= later["from_ms"]
    assert seen_early((await klamm(cluster, "history"))[: len(terms)]) == terms
    kept = [await read(cluster, f"/klamm/terms/{one}") for one in by_epoch]
    assert seen_early([{"controller_epoch": epoch, **one} for epoch, one in zip(by_epoch, kept, strict=True)]) == terms
    for broker in cluster.running:
        await broker.kill()
    await cluster.start()
    assert seen_early((await recorded(cluster))[: len(terms)]) == terms


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
