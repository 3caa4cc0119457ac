"""The seat goes from ours to Kafka's and back in the middle of everything, and neither rewrites the other's states.

The permitted writes are named to the znode: the election that was asked for while no controller could decide, and the
writes of Kafka's controller at each failover, its own as well: it raises the leader epochs of partitions that cannot be
led, and of those being reassigned. Ours may write the election and nothing else.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from signal import Signals

import pytest

from tests.real_brokers.cluster import Cluster, a_cluster
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.long]
TOPICS = "/kafka/brokers/topics"
ELECTION = "/kafka/admin/preferred_replica_election"


def state_of(topic: str, number: int = 0) -> str:
    return f"{TOPICS}/{topic}/partitions/{number}/state"


def written(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """Nodes that were there before and were written, or removed, since."""
    return {path for path, zxid in before.items() if after.get(path) != zxid}


def holder_id(cluster: Cluster) -> int:
    return int((cluster.read("/controller") or {}).get("brokerid", -1))


def ask_for_election(cluster: Cluster, number: int) -> None:
    """As the tool of old did it: the controller takes the node up when it can, and removes it."""
    told = {"version": 1, "partitions": [{"topic": "elected", "partition": number}]}
    cluster.kazoo.create(ELECTION, json.dumps(told).encode())


async def settled(cluster: Cluster, name: str) -> None:
    """The controller of the moment has loaded, and decides: a topic that is asked for is led."""
    await cluster.create(name, "--replica-assignment", "1:2")
    await until(lambda: cluster.is_in_sync(name, 1, 2), f"{name} is led")
    await until(lambda: cluster.kazoo.exists(ELECTION) is None, "the election that was asked for is over")


async def lose_directory(cluster: Cluster, broker_id: int) -> Path:
    """A log directory of a broker fails, which holds only replicas of `dirs` and of topics made to ask for the
    controller; they are led by others and out of sync."""
    for directory in cluster.brokers[broker_id].log_directories:
        held = [path.name.rpartition("-")[::2] for path in directory.glob("*-[0-9]*")] if directory.is_dir() else []
        if {"dirs"} <= {topic for topic, _ in held} <= {"dirs", "by-ours", "by-theirs"}:
            break
    else:
        pytest.fail("no directory has only that")
    gone = directory.rename(directory.with_suffix(".gone"))
    directory.write_bytes(b"not a directory any more")
    shutil.rmtree(gone, ignore_errors=True)  # a broker writes there until it notices

    def is_known() -> bool:
        return all(broker_id not in cluster.states(topic)[int(number)]["isr"] for topic, number in held)

    await until(is_known, "it is known which replicas failed")
    return directory


@asynccontextmanager
async def frozen(cluster: Cluster, broker_id: int) -> AsyncIterator[None]:
    cluster.brokers[broker_id].send(Signals.SIGSTOP)
    try:
        yield
    finally:
        cluster.brokers[broker_id].send(Signals.SIGCONT)


async def reassign(cluster: Cluster, rows: Iterable[tuple[str, int, list[int]]]) -> None:
    plan = [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in rows]
    status, body = await cluster.controller.ask("POST", "/v1/reassignments", {"partitions": plan})
    assert status in (200, 202), body
    assert all(one["code"] == "NONE" for one in body["partitions"]), body


async def trouble(cluster: Cluster) -> Path:
    """Broker 3 is dead, and with it an ISR has shrunk, a partition is offline, a reassignment and a deletion wait; two
    partitions are not led by their first replica; a log directory of broker 2 has failed."""
    await cluster.create("shrunk", "--replica-assignment", "1:2:3")
    await cluster.create("alone", "--replica-assignment", "3")
    await cluster.create("leaving", "--replica-assignment", "3:1")
    await cluster.create("moving", "--replica-assignment", "1:2")
    await cluster.create("elected", "--replica-assignment", "2:1,2:1")
    await cluster.create("dirs", "--replica-assignment", ",".join(["2:1"] * 12))
    await until(lambda: cluster.is_in_sync("shrunk", 1, 2, 3) and cluster.is_in_sync("dirs", 1, 2), "all are in sync")
    await until(lambda: cluster.is_in_sync("elected", 1, 2) and cluster.is_in_sync("moving", 1, 2), "these, too")
    await reassign(cluster, [("elected", 0, [1, 2]), ("elected", 1, [1, 2])])
    await until(
        lambda: cluster.read("/brokers/topics/elected")["partitions"] == {"0": [1, 2], "1": [1, 2]}, "reordered"
    )
    assert cluster.leaders("elected") == {2}
    directory = await lose_directory(cluster, 2)
    async with frozen(cluster, 3):  # registered, and joins nothing any more
        await reassign(cluster, [("moving", 0, [1, 3])])
        await cluster.brokers[3].kill()
    await until(lambda: cluster.states("alone")[0]["leader"] == -1, "a partition is offline")
    await until(lambda: 3 not in cluster.states("shrunk")[0]["isr"], "an ISR has shrunk")
    await cluster.tool("TopicCommand", "--delete", "--topic", "leaving")
    assert cluster.read("/brokers/topics/moving")["adding_replicas"] == {"0": [3]}
    return directory


@pytest.mark.timeout(400)
async def test_amid_everything_either_goes_on_where_the_other_was(tmp_path: Path) -> None:
    async with a_cluster(tmp_path, log_dirs=6) as cluster:
        await cluster.controller.take_over()
        failed = [await trouble(cluster)]
        await settled(cluster, "by-ours")
        await to_kafka(cluster)
        assert cluster.leaders("elected") == {1, 2}, "the election that ours could not see"
        failed.append(await lose_directory(cluster, 2))  # while Kafka's controller leads
        await to_ours(cluster)
        assert cluster.leaders("elected") == {1}, "the election that Kafka's could not see"
        await mended(cluster, failed)


async def to_kafka(cluster: Cluster) -> None:
    """Ours falls silent, an election is asked for, and one of Kafka's brokers takes over by itself."""
    before = cluster.zxids()
    epochs = {name: cluster.states(name)[0]["leader_epoch"] for name in ("alone", "moving")}
    cluster.controller.send(Signals.SIGSTOP)
    ask_for_election(cluster, 0)
    await until(lambda: holder_id(cluster) in (1, 2), "one of Kafka's is the controller")
    cluster.controller.send(Signals.SIGCONT)
    await settled(cluster, "by-theirs")
    habit = {state_of("alone"), state_of("moving")}
    changed = written(before, cluster.zxids())
    assert changed - habit == {state_of("elected", 0)}
    for name, epoch in epochs.items():  # nothing else about them is different
        state = cluster.states(name)[0]
        assert state["leader_epoch"] in (epoch, epoch + 1)
        assert (state["leader"], state["isr"]) == {"alone": (-1, [3]), "moving": (1, [1, 2])}[name]


async def to_ours(cluster: Cluster) -> None:
    """Kafka's controller stands still for a moment, an election is asked for, and ours takes the seat from it."""
    before = cluster.zxids()
    async with frozen(cluster, holder_id(cluster)):
        ask_for_election(cluster, 1)
        await cluster.controller.take_over()
    await settled(cluster, "by-ours-again")
    assert written(before, cluster.zxids()) == {state_of("elected", 1)}


async def mended(cluster: Cluster, failed: Iterable[Path]) -> None:
    """Waiting work goes on, under ours: nothing was forgotten on the way."""
    await cluster.brokers[3].start()
    await until(lambda: cluster.read("/brokers/topics/leaving") is None, "the topic that waited is deleted")
    await until(lambda: cluster.states("alone")[0]["leader"] == 3, "the offline partition is led again")
    await until(lambda: cluster.read("/brokers/topics/moving")["partitions"] == {"0": [1, 3]}, "they have moved")
    assert cluster.read("/brokers/topics/moving").get("adding_replicas") == {}
    await cluster.brokers[2].stop()
    for directory in failed:
        directory.unlink()
    await cluster.brokers[2].start()
    await until(lambda: cluster.is_in_sync("dirs", 1, 2) and cluster.is_in_sync("shrunk", 1, 2, 3), "all are in sync")


@pytest.mark.timeout(300)
async def test_a_takeover_asks_brokers_for_the_id_that_an_old_tool_dropped(tmp_path: Path) -> None:
    """Its znode is of version 1, which has no id, when ours takes the seat from Kafka's controller."""
    async with a_cluster(tmp_path) as cluster:
        await cluster.create("orders", "--replica-assignment", "1:2:3,2:3:1")
        await until(lambda: cluster.is_in_sync("orders", 1, 2, 3), "all are in sync")
        before = cluster.read("/brokers/topics/orders")
        old = {"version": 1, "partitions": before["partitions"]}
        cluster.kazoo.set(f"{TOPICS}/orders", json.dumps(old).encode())
        await cluster.controller.take_over()
        await until(lambda: "topic_id" in cluster.read("/brokers/topics/orders"), "it has an id")
        assert cluster.read("/brokers/topics/orders")["topic_id"] == before["topic_id"]

        async def is_green() -> bool:
            _, body = await cluster.controller.ask("GET", "/healthz/cluster")
            return bool(body) and body["status"] == "green"

        await until(is_green, "health is green")
        await cluster.brokers[3].kill()
        await until(lambda: 3 not in cluster.leaders("orders") and not cluster.is_registered(3), "it is led by others")
        assert len(await cluster.produce("orders", 20)) == 20
