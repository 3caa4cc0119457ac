"""Drains over real HTTP, decided by the real core."""

from __future__ import annotations

import pytest

from controller.core.events import DrainAsked
from tests.api.api_support import FakeHandle
from tests.builders import a_cluster, state_of
from tests.support.deciding_support import DecidingHandle, exchange

PATH = "/v1/brokers/1/drain"
UNDRAINED = {
    "broker_id": 1,
    "draining": False,
    "is_shutdown": False,
    "leaders": 1,
    "remaining_count": 1,
    "remaining": [{"topic": "orders", "partition": 0}],
}
DRAINED = {**UNDRAINED, "draining": True, "leaders": 0, "remaining_count": 0, "remaining": []}


async def test_a_broker_is_drained_and_undrained_and_each_again_is_200() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    handle = DecidingHandle(cluster)
    assert await exchange(cluster, "GET", PATH, handle=handle) == (200, UNDRAINED)
    for _ in range(2):
        assert await exchange(cluster, "POST", PATH, handle=handle) == (200, DRAINED)
    assert await exchange(cluster, "GET", PATH, handle=handle) == (200, DRAINED)
    assert state_of(cluster, "orders").leader == 2
    for _ in range(2):
        assert await exchange(cluster, "DELETE", PATH, {}, handle=handle) == (200, {**DRAINED, "draining": False})


async def test_partitions_without_another_candidate_stay_and_are_named() -> None:
    cluster = a_cluster(orders=[[1, 9]], alone=[[1]])
    status, body = await exchange(cluster, "POST", PATH)
    assert (status, body) == (200, {**UNDRAINED, "draining": True, "leaders": 2})


async def test_a_broker_that_shuts_down_is_shown_as_such_and_cannot_be_undrained() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    handle = DecidingHandle(cluster)
    handle.decide(DrainAsked(1, cluster.brokers[1].epoch, is_shutdown=True))
    assert await exchange(cluster, "GET", PATH, handle=handle) == (200, {**DRAINED, "is_shutdown": True})
    status, problem = await exchange(cluster, "DELETE", PATH, handle=handle)
    assert (status, problem["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_broker_that_is_not_live_cannot_be_drained(method: str) -> None:
    status, problem = await exchange(a_cluster(), method, "/v1/brokers/9/drain")
    assert (status, problem["code"]) == (404, "BROKER_ID_NOT_REGISTERED")


@pytest.mark.parametrize(("path", "body"), [("/v1/brokers/x/drain", {}), (PATH, {"colour": 1}), (PATH, b"[]")])
async def test_a_malformed_drain_is_400_and_reaches_no_controller(path: str, body: object) -> None:
    status, problem = await exchange(a_cluster(), "POST", path, body, handle=(handle := FakeHandle()))
    assert (status, problem["code"], handle.asked) == (400, "INVALID_REQUEST", [])
