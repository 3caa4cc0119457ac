"""Replicas move on real processes: by every way to ask, with some held back, and when the controller dies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster
from tests.integration.duties import (
    TRANSACTION,
    a_duty_cluster,
    ask,
    controlled_by,
    fail_over,
    items,
    kill_when,
    klamm,
    on_disk,
    read,
    topic_id_of,
    with_topics,
    write,
)
from tests.waiting import until

NODE = "/admin/reassign_partitions"
API = "/v1/reassignments"

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_duty_cluster(zookeeper, tmp_path) as cluster:
        yield cluster


def plan(replicas: list[int], *topics: str) -> dict[str, Any]:
    """Kafka's JSON: partition 0 of each."""
    return {
        "version": 1,
        "partitions": [{"topic": topic, "partition": 0, "replicas": replicas} for topic in topics],
    }


def hold(cluster: Cluster, broker_id: int, *topics: str) -> None:
    """To be called before it is started: then it knows in time."""
    for topic in topics:
        assert cluster.brokers[broker_id].hold(topic, 0)


def release(cluster: Cluster, broker_id: int, *topics: str) -> None:
    for topic in topics:
        assert cluster.brokers[broker_id].release(topic, 0)


async def assignment_of(cluster: Cluster, topic: str) -> tuple[list[int], list[int], list[int]]:
    """Replicas, adding, removing: as the topic's znode has them."""
    znode = await read(cluster, f"/brokers/topics/{topic}")
    return znode["partitions"]["0"], znode["adding_replicas"].get("0", []), znode["removing_replicas"].get("0", [])


async def until_running(cluster: Cluster, *topics: str) -> dict[str, dict[str, Any]]:
    """Returns the API's answer about the running reassignments, once it is these."""

    async def are_running() -> dict[str, dict[str, Any]] | None:
        listed = {one["topic"]: one for one in await items(cluster, API) or []}
        return listed if listed.keys() == set(topics) else None

    found: dict[str, dict[str, Any]] = await until(are_running, f"reassignments of {topics} run")
    return found


async def until_assigned(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    async def is_so() -> bool:
        return await assignment_of(cluster, topic) == (replicas, [], [])

    await until(is_so, f"{topic} is on {replicas}")
    await until(cluster.is_agreed, "all were told")


async def is_idle(cluster: Cluster) -> bool:
    return await items(cluster, API) == [] and await cluster.zookeeper("exists", NODE) is None


async def test_partitions_move_by_the_node_by_the_api_and_by_the_command_once_they_are_in_sync(
    cluster: Cluster, tmp_path: Path
) -> None:
    hold(cluster, 3, "a", "b", "c")
    await with_topics(cluster, a=[[1, 2]], b=[[1, 2]], c=[[1, 2]])
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan([3, 2], "c")))
    await write(cluster, NODE, plan([3, 2], "a"))
    status, answer = await ask(cluster, "POST", API, plan([3, 2], "b"))
    assert (status, [one["code"] for one in answer["partitions"]]) == (200, ["NONE"])
    await klamm(cluster, "reassign", "execute", str(file))
    running = await until_running(cluster, "a", "b", "c")
    for topic, one in running.items():
        assert await assignment_of(cluster, topic) == ([3, 2, 1], [3], [1])
        assert (one["target"], one["waits_for"], one["gone"]) == ([3, 2], [3], [])
    assert {one["topic"] for one in await klamm(cluster, "reassign", "list")} == {"a", "b", "c"}
    assert [one["state"] for one in await klamm(cluster, "reassign", "verify", str(file), code=1)] == ["running"]
    states = await cluster.states()
    assert {(state.leader, state.isr) for state in states.values()} == {(1, (1, 2))}

    release(cluster, 3, "a")
    await until_assigned(cluster, "a", [3, 2])
    await until_running(cluster, "b", "c")
    release(cluster, 3, "b", "c")
    for topic in "bc":
        await until_assigned(cluster, topic, [3, 2])
    await until(lambda: is_idle(cluster), "nothing is left to do")
    assert [one["state"] for one in await klamm(cluster, "reassign", "verify", str(file))] == ["complete"]
    after = await cluster.states()
    assert {key: (state.leader, set(state.isr)) for key, state in after.items()} == dict.fromkeys(after, (3, {2, 3}))
    assert all(after[key].leader_epoch > states[key].leader_epoch for key in states)
    await until(lambda: on_disk(cluster.brokers[1]) == {}, "a broker that is no replica any more has deleted it")


async def test_the_end_is_decided_by_the_write_that_makes_the_target_the_isr_and_not_before(cluster: Cluster) -> None:
    hold(cluster, 3, "a")
    await with_topics(cluster, a=[[1, 2]])
    await write(cluster, NODE, plan([3, 2], "a"))
    await until_running(cluster, "a")
    release(cluster, 3, "a")
    await until_assigned(cluster, "a", [3, 2])
    operations = cluster.order.operations()
    path = "/brokers/topics/a"
    topics = [(one.zxid, json.loads(one.data or b"")) for one in operations if one.path == path and one.data]
    states = {one.zxid: json.loads(one.data or b"") for one in operations if one.path == f"{path}/partitions/0/state"}
    ended_zxid, ended = topics[-1]
    assert (ended["partitions"]["0"], topics[-2][1]["partitions"]["0"]) == ([3, 2], [3, 2, 1])
    assert sorted(states[ended_zxid]["isr"]) == [2, 3], "one transaction"
    grown = max(zxid for zxid in states if zxid < ended_zxid)
    assert sorted(states[grown]["isr"]) == [1, 2, 3]


async def test_a_reassignment_is_cancelled_or_overridden_by_a_later_request(cluster: Cluster) -> None:
    hold(cluster, 3, "a", "b", "c", "d")
    await with_topics(cluster, a=[[1, 2]], b=[[1, 2]], c=[[1, 2]], d=[[1, 2]])
    await write(cluster, NODE, plan([1, 3], "a", "b", "c", "d"))
    await until_running(cluster, "a", "b", "c", "d")
    status, outcome = await ask(cluster, "DELETE", f"{API}/a/0")
    assert (status, outcome["code"]) == (200, "NONE")
    await klamm(cluster, "reassign", "cancel", "--topic", "b", "--partition", "0")
    await ask(cluster, "POST", API, plan([2, 1], "c"))
    await ask(cluster, "POST", API, plan([3, 2], "d"))
    await until_running(cluster, "d")
    for topic, replicas in {"a": [1, 2], "b": [1, 2], "c": [2, 1]}.items():
        await until_assigned(cluster, topic, replicas)
    assert await assignment_of(cluster, "d") == ([3, 2, 1], [3], [1])
    release(cluster, 3, "d")
    await until_assigned(cluster, "d", [3, 2])
    await until(lambda: is_idle(cluster), "nothing is left to do")
    status, outcome = await ask(cluster, "DELETE", f"{API}/a/0")
    assert (status, outcome["code"]) == (200, "NO_REASSIGNMENT_IN_PROGRESS"), "again is no mistake"
    await cluster.whole()


async def test_a_target_that_never_comes_can_be_seen_and_cancelled(cluster: Cluster) -> None:
    await controlled_by(cluster, 1)
    await with_topics(cluster, a=[[1, 2]])
    await cluster.brokers[3].stop()
    await until(cluster.is_agreed, "it is gone")
    status, answer = await ask(cluster, "POST", API, plan([1, 3], "a"))
    assert (status, [one["code"] for one in answer["partitions"]]) == (200, ["INVALID_REPLICA_ASSIGNMENT"])
    await write(cluster, NODE, plan([1, 3], "a"))
    running = await until_running(cluster, "a")
    assert (running["a"]["waits_for"], running["a"]["gone"]) == ([3], [3])
    await klamm(cluster, "reassign", "cancel", "--all")
    await until_assigned(cluster, "a", [1, 2])
    await until(lambda: is_idle(cluster), "nothing is left to do")
    await cluster.start(3)
    assert on_disk(cluster.brokers[3]) == {}


async def test_a_tool_that_knows_less_loses_neither_the_topic_id_nor_a_reassignment(cluster: Cluster) -> None:
    hold(cluster, 3, "a")
    await with_topics(cluster, a=[[1, 2]])
    topic_id = await topic_id_of(cluster, "a")
    await ask(cluster, "POST", API, plan([3, 2], "a"))
    await until_running(cluster, "a")
    old = {"version": 1, "partitions": {"0": [3, 2, 1], "1": [2, 3]}}
    await cluster.zookeeper("set", "/brokers/topics/a", json.dumps(old).encode())

    async def is_written_back() -> bool:
        return "topic_id" in await read(cluster, "/brokers/topics/a") and await topic_id_of(cluster, "a") == topic_id

    await until(is_written_back, "the id is back")
    assert await assignment_of(cluster, "a") == ([3, 2, 1], [3], [1])
    release(cluster, 3, "a")
    await until_assigned(cluster, "a", [3, 2])
    await cluster.whole()
    assert (await cluster.states())["a", 1].leader == 2


async def test_a_malformed_node_is_removed_and_stops_no_other(cluster: Cluster) -> None:
    await with_topics(cluster, a=[[1, 2]])
    for nonsense in (b"{nonsense", b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,1]}]}'):
        await cluster.zookeeper("create", NODE, nonsense)
        await until(lambda: is_idle(cluster), "it is removed")
    await write(cluster, NODE, plan([2, 3], "a", "unheard-of"))
    await until_assigned(cluster, "a", [2, 3])
    await until(lambda: is_idle(cluster), "it is removed")
    await cluster.whole()


@pytest.mark.slow
async def test_a_reassignment_that_is_held_back_survives_the_controller(cluster: Cluster) -> None:
    hold(cluster, 3, "a", "b")
    await with_topics(cluster, a=[[1, 2]], b=[[1, 2]])
    await write(cluster, NODE, plan([3, 2], "a"))
    await ask(cluster, "POST", API, plan([3, 2], "b"))
    await until_running(cluster, "a", "b")
    dead = await fail_over(cluster)
    running = await until_running(cluster, "a", "b")
    assert all(3 in one["waits_for"] for one in running.values())
    await dead.start()
    release(cluster, 3, "a", "b")
    for topic in "ab":
        await until_assigned(cluster, topic, [3, 2])
    await until(lambda: is_idle(cluster), "nothing is left to do")
    await cluster.whole()


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "nth"), [("begun", 1), ("grown", 1), ("ended", 2)])
async def test_a_reassignment_comes_to_its_end_though_the_controller_dies_with_the_answer(
    cluster: Cluster, moment: str, nth: int
) -> None:
    """Its write stands and no broker was told: of the beginning, of the ISR with the new replica, of the end."""
    hold(cluster, 3, "a")
    await with_topics(cluster, a=[[1, 2]])
    claim, dead = cluster.order.claims()[-1], cluster.controller
    if moment != "begun":
        await write(cluster, NODE, plan([3, 2], "a"))
        await until_running(cluster, "a")
    # a term writes other znodes, too: the terms before it, its own phases
    *_, written = [dead.proxies[0].lose_answer(TRANSACTION, about="/brokers/topics/a") for _ in range(nth)]
    if moment == "begun":
        await write(cluster, NODE, plan([3, 2], "a"))
    else:
        release(cluster, 3, "a")
    await kill_when(written, dead)
    replicas = [3, 2] if moment == "ended" else [3, 2, 1]
    assert (await assignment_of(cluster, "a"))[0] == replicas
    is_grown = 3 in (await read(cluster, "/brokers/topics/a/partitions/0/state"))["isr"]
    assert is_grown == (moment != "begun")
    await dead.start()
    if moment == "begun":
        release(cluster, 3, "a")
    await cluster.claim_after(claim)
    await until_assigned(cluster, "a", [3, 2])
    await until(lambda: is_idle(cluster), "nothing is left to do")
    await cluster.whole()
    assert set((await cluster.states())["a", 0].isr) == {2, 3}
    # a broker that could not be told to delete its replica learns it from the next full list: it is set aside
    await until(lambda: all(on_disk(cluster.brokers[1]).values()), "a broker that is no replica any more uses none")
