"""Explanations and what-if on real processes: a kill then has the foretold effect, and the commands write nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster
from tests.integration.duties import a_duty_cluster, ask, controlled_by, klamm, with_topics
from tests.waiting import until

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_duty_cluster(zookeeper, tmp_path) as cluster:
        yield cluster


async def test_a_kill_does_what_the_what_if_foretold_and_can_be_explained(cluster: Cluster) -> None:
    await controlled_by(cluster, 1)
    await with_topics(cluster, orders=[[2, 3, 1], [1, 2, 3]], pairs=[[3, 2]], alone=[[2]])
    before = await cluster.states()

    foretold = await klamm(cluster, "what-if", "kill", "2")
    assert await cluster.states() == before
    assert foretold["offline"] == ["alone-0"]
    assert foretold["last_in_sync"] == ["pairs-0"]
    assert [(one["topic"], one["source"], one["target"]) for one in foretold["moves"]] == [("orders", 2, 3)]

    await cluster.brokers[2].kill()

    async def has_come_true() -> bool:
        states = await cluster.states()
        leaders = {f"{topic}-{number}": state.leader for (topic, number), state in states.items()}
        return leaders == {"orders-0": 3, "orders-1": 1, "pairs-0": 3, "alone-0": -1}

    await until(has_come_true, "the prediction is true")
    await until(cluster.is_agreed, "all were told")

    explained = await klamm(cluster, "explain", "orders-0")
    able = {one["broker_id"]: one["is_eligible"] for one in explained["replicas"]}
    assert able == {2: False, 3: True, 1: True}
    assert explained["leader"] == 3
    assert explained["story"][-1]["leader"] == 3
    assert "gone 2" in explained["story"][-1]["reason"]
    assert (await klamm(cluster, "explain", "alone-0"))["offline_election"] == "nobody can lead"


async def test_an_election_asked_without_need_changes_nothing_and_says_so(cluster: Cluster) -> None:
    await with_topics(cluster, orders=[[1, 2, 3]])
    before = await cluster.states()
    for kind in ("preferred", "unclean"):
        wanted = {"type": kind, "partitions": [{"topic": "orders", "partition": 0}]}
        status, answer = await ask(cluster, "POST", "/v1/elections", wanted)
        assert status == 200
        assert [one["code"] for one in answer["partitions"]] == ["ELECTION_NOT_NEEDED"]
    assert await cluster.states() == before
