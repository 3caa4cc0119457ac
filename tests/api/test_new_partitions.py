"""A partition that was never led is new, and not offline, wherever partitions are shown, by controller and standby."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from controller.api.counts import state_of
from controller.api.ports import TopicView
from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import Deletion
from controller.core.causes import Cause
from controller.core.changes.cluster import Committed, StateDecided, TopicGone
from controller.core.states import PartitionStatus
from controller.kafka.cluster.foreign_cluster import BeliefView, ForeignCluster
from tests.api.api_support import FakeHandle, View, a_broker, a_row, a_topic, address_of, reserved, served
from tests.builders import a_cluster, a_leadership, topic_id_of

#: of `orders` broker 1 leads a partition, and the other one was never led; `parcels` waits for its only broker
TOLD = a_topic("orders", a_row(0, 1, [1, 2], [1, 2]))
NEVER_LED = {
    "leader": -1,
    "leader_epoch": -1,
    "isr": [],
    "adding": [],
    "removing": [],
    "version": -1,
    "controller_epoch": -1,
}
NEW = [
    {"topic": "orders", "partition": 1, "state": "new", "replicas": [3, 1], **NEVER_LED},
    {"topic": "parcels", "partition": 0, "state": "new", "replicas": [3], **NEVER_LED},
]


def a_belief() -> Cluster:
    never_led = {"orders-1": None, "parcels-0": None}
    cluster = a_cluster(orders=[[1, 2], [3, 1]], parcels=[[3]], live=(1, 2), states=never_led)
    assert cluster.states.of_partition("parcels", 0) is PartitionStatus.NEW
    return cluster


class Pair:
    """An active controller and a standby, each behind its API."""

    def __init__(self, cluster: Cluster, active_url: str, standby: View, standby_url: str) -> None:
        self.cluster = cluster
        self.standby = standby
        self.urls = (active_url, standby_url)

    async def told(self, path: str) -> list[Any]:
        """Returns the answer of each process."""
        return [await get(url, path) for url in self.urls]


async def get(url: str, path: str) -> Any:
    async with aiohttp.ClientSession(url) as client, client.get(path) as response:
        assert response.status == 200, await response.text()
        return await response.json()


@asynccontextmanager
async def a_pair(*told: TopicView) -> AsyncIterator[Pair]:
    bound, cluster, active, standby = reserved(), a_belief(), FakeHandle(), FakeHandle()
    brokers = [a_broker(1, port=int(address_of(bound).partition(":")[2])), a_broker(2), a_broker(3, "gone")]
    active.cluster = cluster
    standby.stand_by((1, 77))
    other = View(*told, brokers=brokers, own_id=2)
    async with (
        served(View(*told, brokers=brokers), active, bound=bound) as first,
        served(other, standby) as second,
    ):
        yield Pair(cluster, first, other, second)


async def test_partitions_are_listed_as_new_by_the_controller_and_by_a_standby_that_asks_it() -> None:
    async with a_pair(TOLD) as pair:
        for said in await pair.told("/v1/partitions?state=new"):
            assert said == {"items": NEW, "next_cursor": None}
        for said in await pair.told("/v1/partitions"):
            names = [(one["topic"], one["partition"], one["state"]) for one in said["items"]]
            assert names == [("orders", 0, "online"), ("orders", 1, "new"), ("parcels", 0, "new")]
        for state in ("offline", "online", "under-replicated", "not-preferred"):
            for said in await pair.told(f"/v1/partitions?state={state}"):
                assert [one for one in said["items"] if one["state"] == "new"] == []
        for said in await pair.told("/v1/partitions?state=new&limit=1"):
            assert (said["items"], said["next_cursor"] is None) == (NEW[:1], False)


async def test_topics_matrix_counts_and_health_say_new_and_not_offline() -> None:
    async with a_pair(TOLD) as pair:
        for said in await pair.told("/v1/topics"):
            found = [(one["name"], one["online"], one["offline"], one["new"]) for one in said["items"]]
            assert found == [("orders", 1, 0, 1), ("parcels", 0, 0, 1)]
        for said in await pair.told("/v1/matrix"):
            assert [(row["topic"], row["states"]) for row in said["items"]] == [("orders", "oc"), ("parcels", "c")]
        for said in await pair.told("/v1/cluster"):
            counts = said["counts"]
            assert [counts[key] for key in ("partitions", "online", "offline", "new")] == [3, 1, 0, 2]
            assert said["health"]["status"] == "yellow"
            assert "2 of 3 partitions are new: never led" in said["health"]["reasons"]


async def test_the_id_of_a_topic_that_no_broker_was_told_of_comes_from_the_controller() -> None:
    async with a_pair(TOLD) as pair:
        ids = [(await get(url, "/v1/topics/parcels"))["topic_id"] for url in pair.urls]
    assert ids == [topic_id_of("parcels"), None]


async def test_a_partition_that_is_led_at_last_is_new_no_more() -> None:
    """Also not to a broker that was told of it before it asks again; and a topic that is gone is not shown."""
    async with a_pair(TOLD) as pair:
        before = [await get(url, "/v1/matrix") for url in pair.urls]
        state = a_leadership(1, [1])
        led = StateDecided("orders", 1, state, PartitionStatus.NEW, PartitionStatus.ONLINE, "", Cause.BROKER_JOINED)
        pair.cluster.apply([Committed(led, 0, 200)])
        topic_id = pair.cluster.topics["parcels"].topic_id
        pair.cluster.apply([Committed(TopicGone("parcels", topic_id, (0,)), 0, 201)])
        assert [said["items"] for said in await pair.told("/v1/partitions?state=new")] == [[], []]
        assert [len(said["items"]) for said in await pair.told("/v1/matrix")] == [1, 1]
        assert [len(said["items"]) for said in before] == [2, 2]
        for said in await pair.told("/v1/cluster"):
            assert (said["counts"]["new"], said["counts"]["topics"]) == (0, 1)


async def test_a_dedicated_controller_shows_its_own() -> None:
    handle = FakeHandle()
    handle.cluster = a_belief()
    view = BeliefView(handle, ForeignCluster(handle, lambda: None), "a-cluster", 9)
    assert view.topics_with_new == ["orders", "parcels"]
    states = [(one.topic, state_of(row, {1, 2})) for one in view.topics() for row in one.partitions]
    assert states == [("orders", "online"), ("orders", "new"), ("parcels", "new")]


async def test_a_dedicated_controller_does_not_show_what_is_being_deleted() -> None:
    """As brokers are told that it is gone; it is among the deletions, and `explain` says so."""
    handle = FakeHandle()
    handle.cluster = a_belief()
    view = BeliefView(handle, ForeignCluster(handle, lambda: None), "a-cluster", 9)
    handle.cluster.duties.deletions["orders"] = Deletion(is_queued=True, waits_for="broker 2 is gone")
    assert (view.topic_names, view.topics_with_new) == (["parcels"], ["parcels"])
    assert (view.topic("orders"), [one.topic for one in view.topics()]) == (None, ["parcels"])
    handle.cluster.duties.deletions["orders"] = Deletion(is_queued=False, waits_for="its topic id is not written yet")
    assert view.topic_names == ["orders", "parcels"]


async def test_a_broker_that_was_told_of_a_partition_knows_better_than_the_controller_said() -> None:
    async with a_pair(TOLD) as pair:
        url = pair.urls[1]
        pair.standby.put(a_topic("parcels", a_row(0, 3, [3], [3])))
        pair.standby.brokers = [a_broker(1, port=1), a_broker(2), a_broker(3)]
        assert (await get(url, "/v1/topics/parcels"))["online"] == 1


@pytest.mark.parametrize("path", ["/v1/matrix", "/v1/partitions?state=new"])
async def test_without_a_controller_the_last_known_state_is_shown(path: str) -> None:
    async with a_pair(TOLD) as pair:
        url = pair.urls[1]
        heard = await get(url, path)
        pair.standby.brokers = [a_broker(1, port=1), *pair.standby.brokers[1:]]  # no process listens there
        assert await get(url, path) == heard
        assert heard["items"]
