"""Configuration on real processes: changed at run time from three sides, in force at once, and to be seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster
from tests.integration.duties import (
    a_duty_cluster,
    as_json,
    ask,
    controlled_by,
    fail_over,
    is_offline,
    jump_clock,
    klamm,
    read,
    take_offline,
    with_topics,
)
from tests.waiting import until

UNCLEAN = "unclean.leader.election.enable"

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_duty_cluster(zookeeper, tmp_path, {"controlled.shutdown.enable": "false"}) as cluster:
        yield cluster


async def configure(cluster: Cluster, kind: str, entity: str, values: dict[str, str], *, version: int = 2) -> None:
    """As Kafka's tools do: the values, then an announcement, whose two versions differ in how they name the entity."""
    path, data = f"/config/{kind}/{entity}", as_json({"version": 1, "config": values})
    if await cluster.zookeeper("exists", path) is None:
        await cluster.zookeeper("create", path, data)
    else:
        await cluster.zookeeper("set", path, data)
    named = {"entity_path": f"{kind}/{entity}"} if version == 2 else {"entity_type": kind, "entity_name": entity}
    change = as_json({"version": version, **named})
    await cluster.zookeeper("create", "/config/changes/config_change_", change, sequence=True)


async def in_force(cluster: Cluster, path: str) -> dict[str, tuple[str, str]]:
    """Values and where they come from, by name."""
    status, said = await ask(cluster, "GET", path)
    return {one["name"]: (one["value"], one["source"]) for one in said["values"]} if status == 200 else {}


async def until_in_force(cluster: Cluster, path: str, name: str, wanted: tuple[str, str]) -> None:
    async def is_so() -> bool:
        return (await in_force(cluster, path)).get(name) == wanted

    await until(is_so, f"{name} is {wanted}")


def values_of(said: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["name"]: (one["value"], one["source"]) for one in said["values"]}


async def test_a_topic_is_configured_by_both_announcements_by_the_api_and_by_the_command(cluster: Cluster) -> None:
    await with_topics(cluster, a=[[1, 2]])
    path = "/v1/topics/a/config"
    for version, value in ((1, "1000"), (2, "2000")):
        await configure(cluster, "topics", "a", {"retention.ms": value}, version=version)
        await until_in_force(cluster, path, "retention.ms", (value, "DYNAMIC_TOPIC_CONFIG"))
    status, said = await ask(cluster, "PATCH", path, {"values": {"retention.ms": "3000", "segment.ms": "1"}})
    assert (status, values_of(said)["retention.ms"]) == (200, ("3000", "DYNAMIC_TOPIC_CONFIG"))
    said = await klamm(cluster, "topics", "config", "a", "--set", "retention.ms=4000", "--unset", "segment.ms")
    assert values_of(said) == {
        "retention.ms": ("4000", "DYNAMIC_TOPIC_CONFIG"),
        UNCLEAN: ("false", "DEFAULT_CONFIG"),
    }
    assert await read(cluster, "/config/topics/a") == {"version": 1, "config": {"retention.ms": "4000"}}
    names = await cluster.zookeeper("get_children", "/config/changes")
    announced = [await read(cluster, f"/config/changes/{name}") for name in sorted(names)]
    assert announced[-1] == {"version": 2, "entity_path": "topics/a"}
    status, problem = await ask(cluster, "PATCH", path, {"values": {UNCLEAN: "maybe"}})
    assert (status, problem["code"]) == (400, "INVALID_CONFIG")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in await klamm(cluster, "topics", "config", "b", "--set", "a=b", code=1)
    assert values_of(await klamm(cluster, "topics", "config", "a")) == values_of(said)


async def test_announcements_are_kept_for_all_who_read_them_though_the_controllers_clock_is_ahead(
    cluster: Cluster,
) -> None:
    await with_topics(cluster, a=[[1, 2]])
    await jump_clock(cluster, 3_600_000)
    for value in ("1000", "2000"):
        await configure(cluster, "topics", "a", {"retention.ms": value})
        await until_in_force(cluster, "/v1/topics/a/config", "retention.ms", (value, "DYNAMIC_TOPIC_CONFIG"))
    assert len(await cluster.zookeeper("get_children", "/config/changes")) == 2


@pytest.mark.slow
async def test_brokers_and_the_cluster_are_configured_likewise_and_a_successor_knows(cluster: Cluster) -> None:
    await controlled_by(cluster, 1)
    await configure(cluster, "brokers", "2", {"log.cleaner.threads": "2"})
    own = ("2", "DYNAMIC_BROKER_CONFIG")
    await until_in_force(cluster, "/v1/brokers/2/config", "log.cleaner.threads", own)
    await configure(cluster, "brokers", "<default>", {UNCLEAN: "true"}, version=1)
    default = ("true", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    await until_in_force(cluster, "/v1/cluster/config", UNCLEAN, default)
    await klamm(cluster, "brokers", "config", "--set", "background.threads=7")
    dead = await fail_over(cluster)
    said = values_of(await klamm(cluster, "brokers", "config", "2"))
    assert await in_force(cluster, "/v1/brokers/2/config") == said
    assert said["log.cleaner.threads"] == own
    assert said[UNCLEAN] == default
    assert said["background.threads"] == ("7", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    await cluster.start(dead.broker_id)


@pytest.mark.slow
async def test_an_unclean_election_is_allowed_at_run_time_for_a_topic_and_for_the_cluster(cluster: Cluster) -> None:
    topics = ("by-znode", "by-api", "by-command", "by-default", "forbidden")
    await controlled_by(cluster, 3)
    await with_topics(cluster, **{topic: [[1, 2]] for topic in topics})
    await configure(cluster, "topics", "forbidden", {UNCLEAN: "false"})
    await take_offline(cluster, *topics)

    async def led() -> set[str]:
        return {topic for (topic, _), state in (await cluster.states()).items() if state.leader == 2}

    await configure(cluster, "topics", "by-znode", {UNCLEAN: "true"}, version=1)
    await until(lambda: until_led(cluster, "by-znode"), "it is led")
    assert await led() == {"by-znode"}
    await ask(cluster, "PATCH", "/v1/topics/by-api/config", {"values": {UNCLEAN: "true"}})
    assert await led() == {"by-znode", "by-api"}
    await klamm(cluster, "topics", "config", "by-command", "--set", f"{UNCLEAN}=true")
    assert await led() == {"by-znode", "by-api", "by-command"}
    await klamm(cluster, "brokers", "config", "--set", f"{UNCLEAN}=true")
    assert await led() == set(topics) - {"forbidden"}
    assert await is_offline(cluster, "forbidden")
    marked = {
        (one.path or "").split("/")[3]
        for one in cluster.order.operations()
        if one.kind == "set" and b'"leader_recovery_state":1' in (one.data or b"")
    }
    assert marked == set(topics) - {"forbidden"}
    await cluster.start(1)


async def until_led(cluster: Cluster, topic: str) -> bool:
    return not await is_offline(cluster, topic)


async def test_a_malformed_announcement_stops_no_other(cluster: Cluster) -> None:
    await with_topics(cluster, a=[[1, 2]])
    for nonsense in (b"{nonsense", b"", as_json({"version": 2, "entity_path": "nobody"})):
        await cluster.zookeeper("create", "/config/changes/config_change_", nonsense, sequence=True)
    await configure(cluster, "topics", "a", {"retention.ms": "1000"})
    await until_in_force(cluster, "/v1/topics/a/config", "retention.ms", ("1000", "DYNAMIC_TOPIC_CONFIG"))
