"""Configuration over real HTTP, decided by the real core: values in force, their sources, changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controller.base.config import BrokerConfig
from controller.core.belief.cluster import Cluster
from controller.core.events import ConfigAsked
from tests.api.api_support import CONFIG, FakeHandle, asking
from tests.builders import a_cluster
from tests.support.deciding_support import BelievedView, DecidingHandle, exchange

UNCLEAN = "unclean.leader.election.enable"
TOPIC, BROKER, CLUSTER = "/v1/topics/orders/config", "/v1/brokers/1/config", "/v1/cluster/config"


def config_of(**properties: object) -> BrokerConfig:
    return msgspec.structs.replace(CONFIG, **properties)


async def sources(cluster: Cluster, path: str, config: BrokerConfig = CONFIG) -> dict[str, tuple[str, str]]:
    """Name -> value and source."""
    handle = DecidingHandle(cluster)
    async with asking(BelievedView(cluster), handle, config=config) as client, client.get(path) as response:
        assert response.status == 200
        body: Any = await response.json()
    assert list(body) == ["kind", "entity", "values"]
    assert [one["name"] for one in body["values"]] == sorted(one["name"] for one in body["values"])
    return {one["name"]: (one["value"], one["source"]) for one in body["values"]}


async def test_a_topics_own_value_comes_before_the_clusters_and_that_before_the_process() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    assert await sources(cluster, TOPIC, config_of()) == {UNCLEAN: ("false", "DEFAULT_CONFIG")}
    static = config_of(unclean_leader_election_enable=True)
    assert await sources(cluster, TOPIC, static) == {UNCLEAN: ("true", "STATIC_BROKER_CONFIG")}
    await exchange(cluster, "PATCH", CLUSTER, {"values": {UNCLEAN: "false", "log.retention.ms": "5"}})
    assert await sources(cluster, TOPIC, static) == {UNCLEAN: ("false", "DYNAMIC_DEFAULT_BROKER_CONFIG")}
    await exchange(cluster, "PATCH", TOPIC, {"values": {UNCLEAN: "true", "retention.ms": "7"}})
    assert await sources(cluster, TOPIC, static) == {
        UNCLEAN: ("true", "DYNAMIC_TOPIC_CONFIG"),
        "retention.ms": ("7", "DYNAMIC_TOPIC_CONFIG"),
    }


async def test_the_controllers_own_broker_shows_its_properties_and_the_others_their_dynamic_configuration() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    await exchange(cluster, "PATCH", "/v1/brokers/2/config", {"values": {"log.cleaner.threads": "3"}})
    own = await sources(cluster, BROKER, config_of(broker_rack="a"))
    assert own["broker.rack"] == ("a", "STATIC_BROKER_CONFIG")
    assert own["delete.topic.enable"] == ("true", "DEFAULT_CONFIG")
    assert "advertised.listeners" not in own
    other = await sources(cluster, "/v1/brokers/2/config", config_of(broker_rack="a"))
    assert other == {"log.cleaner.threads": ("3", "DYNAMIC_BROKER_CONFIG")}


async def test_the_cluster_shows_the_configuration_of_its_controller() -> None:
    values = await sources(a_cluster(), CLUSTER, config_of(delete_topic_enable=False))
    assert values == {
        UNCLEAN: ("false", "DEFAULT_CONFIG"),
        "auto.leader.rebalance.enable": ("true", "DEFAULT_CONFIG"),
        "leader.imbalance.per.broker.percentage": ("10", "DEFAULT_CONFIG"),
        "leader.imbalance.check.interval.seconds": ("300", "DEFAULT_CONFIG"),
        "delete.topic.enable": ("false", "STATIC_BROKER_CONFIG"),
    }


async def test_a_change_is_answered_with_the_values_in_force_and_null_removes() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    handle = DecidingHandle(cluster)
    for value, values in (("7", [{"name": "flush.ms", "value": "7", "source": "DYNAMIC_TOPIC_CONFIG"}]), (None, [])):
        for _ in range(2):
            status, body = await exchange(cluster, "PATCH", TOPIC, {"values": {"flush.ms": value}}, handle=handle)
            assert (status, body["kind"], body["entity"]) == (200, "topic", "orders")
            assert [one for one in body["values"] if one["name"] == "flush.ms"] == values
    assert handle.asked[0] == ConfigAsked("topics", "orders", {"flush.ms": "7"})
    assert handle.asked[-1] == ConfigAsked("topics", "orders", {"flush.ms": None})


@pytest.mark.parametrize(("path", "entity", "kind"), [(BROKER, "1", "broker"), (CLUSTER, "<default>", "cluster")])
async def test_brokers_and_the_cluster_are_changed_by_their_own_paths(path: str, entity: str, kind: str) -> None:
    cluster = a_cluster()
    handle = DecidingHandle(cluster)
    status, body = await exchange(cluster, "PATCH", path, {"values": {"x": "7"}}, handle=handle)
    assert (status, body["kind"], body["entity"]) == (200, kind, entity)
    assert handle.asked == [ConfigAsked("brokers", entity, {"x": "7"})]
    assert cluster.duties.broker_configs[entity] == {"x": "7"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/topics/nope/config", None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("PATCH", "/v1/topics/nope/config", {"values": {"a": "1"}}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("GET", "/v1/brokers/9/config", None, 404, "BROKER_ID_NOT_REGISTERED"),
        ("GET", "/v1/brokers/x/config", None, 400, "INVALID_REQUEST"),
        ("PATCH", TOPIC, {"values": {UNCLEAN: "perhaps"}}, 400, "INVALID_CONFIG"),
        ("PATCH", TOPIC, {"values": {}}, 400, "INVALID_REQUEST"),
        ("PATCH", TOPIC, {"values": {"a": 1}}, 400, "INVALID_REQUEST"),
        ("PATCH", TOPIC, {"values": {"a": "1"}, "colour": 1}, 400, "INVALID_REQUEST"),
        ("PATCH", TOPIC, {"a": "1"}, 400, "INVALID_REQUEST"),
        ("PATCH", TOPIC, b"", 400, "INVALID_REQUEST"),
    ],
)
async def test_an_invalid_configuration_is_refused_and_changes_nothing(
    method: str, path: str, body: object, status: int, code: str
) -> None:
    cluster = a_cluster(orders=[[1, 2]])
    answered, problem = await exchange(cluster, method, path, body)
    assert (answered, problem["code"]) == (status, code)
    assert cluster.duties.topic_configs == {}


async def test_a_refused_change_reaches_no_controller() -> None:
    handle = FakeHandle()
    await exchange(a_cluster(), "PATCH", BROKER, {"values": {"a": 1}}, handle=handle)
    assert handle.asked == []
