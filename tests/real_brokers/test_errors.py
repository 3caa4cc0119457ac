"""A broker that is shut down, killed and started again under our controller logs no error that it does not log under
Kafka's own, and neither do the others.

Errors are compared by logger and words, without numbers and names. Under Kafka's controller they come from the same
cluster, with the same actions, and from recorded clusters, since which of its errors come is a matter of chance.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.real_brokers.cluster import Cluster, a_cluster
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

DATA: Final = Path(__file__).parents[1] / "data"
RECORDED: Final = ("kafka-3.9.1", "kafka-3.9.1-deletions")
#: the logger and the words of an error, in the layouts of the cluster here and of the recordings
LIVE: Final = re.compile(r"^\S+ \S+ (?:ERROR|FATAL) +(?P<logger>\S+) +- (?P<words>.*)$", re.MULTILINE)
STOCK: Final = re.compile(r"^\[\S+ \S+\] (?:ERROR|FATAL) (?P<words>.*) \((?:\S+\.)?(?P<logger>[\w$]+)\)$", re.MULTILINE)
NAMES: Final = re.compile(r"\b[\w.-]*\d[\w.-]*\b|\b(?:orders|pairs|single)\b")
#: of three replicas, two and one
TOPICS: Final = {"orders": (6, 3), "pairs": (6, 2), "single": (3, 1)}
#: here a line goes on with the whole request
REQUEST: Final = " -- "


def errors_in(text: str, layout: re.Pattern[str]) -> set[tuple[str, str]]:
    """Return the logger and the words of each error, for any partition and broker."""
    return {
        (found["logger"].lower(), NAMES.sub("#", found["words"].partition(REQUEST)[0]))
        for found in layout.finditer(text)
    }


def recorded_errors() -> Iterator[tuple[str, str]]:
    for name in RECORDED:
        for path in (DATA / name).glob("broker*/*.log.gz"):
            yield from errors_in(gzip.decompress(path.read_bytes()).decode(), STOCK)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[None, "2.6"], ids=["3.9", "2.6"])
async def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with a_cluster(tmp_path_factory.mktemp("kafka-errors"), protocol=request.param) as cluster:
        for name, (partitions, replicas) in TOPICS.items():
            assigned = {n: [1 + (n + place) % 3 for place in range(replicas)] for n in range(partitions)}
            cluster.kazoo.create(f"/kafka/config/topics/{name}", b'{"version":1,"config":{}}')
            value = json.dumps({"version": 1, "partitions": assigned}).encode()
            cluster.kazoo.create(f"/kafka/brokers/topics/{name}", value)
        await until(lambda: is_whole(cluster), "all are in sync")
        yield cluster


def is_whole(cluster: Cluster) -> bool:
    for name, (partitions, replicas) in TOPICS.items():
        states = cluster.states(name).values()
        if len(states) < partitions or any(one["leader"] < 0 or len(one["isr"]) < replicas for one in states):
            return False
    return True


async def errors_of(cluster: Cluster, broker_id: int) -> dict[int, set[tuple[str, str]]]:
    """By broker, while this one is shut down and comes back, is killed and comes back."""
    begun = {one.broker_id: len(one.log_text()) for one in cluster.brokers.values()}
    broker = cluster.brokers[broker_id]
    for end in (broker.stop, broker.kill):
        await end()
        await until(lambda: not cluster.is_registered(broker_id), "its session has ended")
        await until(lambda: broker_id not in cluster.leaders("orders"), "others lead")
        await broker.start()
        await until(lambda: is_whole(cluster), "all are in sync again")
    return {one.broker_id: errors_in(one.log_text()[begun[one.broker_id] :], LIVE) for one in cluster.brokers.values()}


async def test_brokers_log_no_error_that_they_do_not_log_under_kafkas_own_controller(cluster: Cluster) -> None:
    broker_id = min({1, 2, 3} - {cluster.read("/controller")["brokerid"]})
    theirs = await errors_of(cluster, broker_id)
    await cluster.controller.take_over()
    await until(lambda: is_whole(cluster), "all are in sync")
    ours = await errors_of(cluster, broker_id)
    live = set().union(*theirs.values())
    # about a partition that only the dead broker had
    assert any("failed to change state" in words for _, words in live)
    known = live | set(recorded_errors())
    assert {one: errors - known for one, errors in ours.items()} == {1: set(), 2: set(), 3: set()}
