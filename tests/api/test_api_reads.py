"""The reads over real HTTP: every endpoint's shape, pinned."""

from __future__ import annotations

import pytest

from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    asking,
)

ORDERS = a_topic("orders", a_row(0, 1, [1, 2, 3], [1, 2, 3]), a_row(1, 3, [3], [2, 3, 1]), a_row(2, -1, [2], [2]))
ORDERS_BODY = {
    "name": "orders",
    "topic_id": "id-of-orders",
    "partitions": 3,
    "replication_factor": 3,
    "online": 2,
    "offline": 1,
    "under_replicated": 1,
    "not_preferred": 1,
    "new": 0,
}
CONTROLLER_BODY = {
    "broker_id": 1,
    "controller_epoch": 4,
    "since": "2023-11-14T22:13:20.123Z",
    "age_ms": 90_061_000,
    "phase": "active",
    "kind": "klamm",
}
BROKER_BODY = {
    "id": 1,
    "host": "127.0.0.1",
    "port": 8081,
    "rack": None,
    "broker_epoch": 101,
    "state": "live",
    "leaders": 1,
    "replicas": 2,
    "endpoints": ["HTTP://127.0.0.1:8081"],
    "refused": None,
}
PARTITION_BODY = {
    "topic": "orders",
    "partition": 1,
    "state": "under-replicated",
    "leader": 3,
    "leader_epoch": 7,
    "isr": [3],
    "replicas": [2, 3, 1],
    "adding": [],
    "removing": [],
    "version": 9,
    "controller_epoch": 4,
}
COUNTS = {
    "brokers_live": 3,
    "brokers_draining": 0,
    "brokers_gone": 0,
    "topics": 1,
    "partitions": 3,
    "online": 2,
    "offline": 1,
    "under_replicated": 1,
    "not_preferred": 1,
    "new": 0,
}

HEALTH = {"status": "red", "reasons": ["1 of 3 partitions is offline", "1 of 3 partitions is under-replicated"]}


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/livez", 200, {"status": "live", "reasons": []}),
        ("/readyz", 200, {"status": "ready", "reasons": []}),
        (
            "/v1/cluster",
            200,
            {"id": "cluster-of-tests", "controller": CONTROLLER_BODY, "counts": COUNTS, "health": HEALTH},
        ),
        ("/v1/controller", 200, CONTROLLER_BODY),
        ("/v1/brokers/1", 200, BROKER_BODY),
        ("/v1/topics", 200, {"items": [ORDERS_BODY], "next_cursor": None}),
        ("/v1/topics/orders", 200, ORDERS_BODY),
        ("/v1/partitions?state=under-replicated", 200, {"items": [PARTITION_BODY], "next_cursor": None}),
        (
            "/healthz/cluster",
            503,
            HEALTH,
        ),
    ],
)
async def test_every_read_has_its_shape_and_names_the_epoch_it_rests_on(path: str, status: int, body: object) -> None:
    async with asking(View(ORDERS), FakeHandle()) as client, client.get(path) as response:
        assert (response.status, await response.json()) == (status, body)
        assert response.headers["Klamm-Controller-Epoch"] == "4"
        assert response.content_type == "application/json"


async def test_brokers_that_are_gone_stay_listed() -> None:
    view = View(ORDERS, brokers=[a_broker(1), a_broker(3, "gone")])
    async with asking(view, FakeHandle()) as client, client.get("/v1/brokers") as response:
        brokers = (await response.json())["items"]
    assert [(broker["id"], broker["state"], broker["leaders"]) for broker in brokers] == [
        (1, "live", 1),
        (3, "gone", 0),
    ]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/topics/nope", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/v1/topics/nope/partitions", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/v1/topics/%ff%00", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/v1/brokers/9", 404, "BROKER_ID_NOT_REGISTERED"),
        ("/v1/brokers/x", 404, "BROKER_ID_NOT_REGISTERED"),
        ("/v1/nothing", 404, "UNKNOWN_PATH"),
        ("/%ed%a0%80", 404, "UNKNOWN_PATH"),
        ("/v1/partitions?state=bad", 400, "INVALID_REQUEST"),
        ("/v1/partitions?limit=0", 400, "INVALID_REQUEST"),
        ("/v1/partitions?limit=10001", 400, "INVALID_REQUEST"),
        ("/v1/partitions?limit=x", 400, "INVALID_REQUEST"),
        ("/v1/partitions?colour=red", 400, "INVALID_REQUEST"),
        ("/v1/partitions?state=offline&state=online", 400, "INVALID_REQUEST"),
        ("/v1/partitions?cursor=%ff", 400, "INVALID_REQUEST"),
        ("/v1/partitions?cursor=AAAA", 400, "INVALID_REQUEST"),
        ("/v1/partitions?cursor=a", 400, "INVALID_REQUEST"),
        ("/v1/partitions?cursor=%E2%82%AC", 400, "INVALID_REQUEST"),
        ("/v1/topics?state=offline", 400, "INVALID_REQUEST"),
    ],
)
async def test_an_unanswerable_read_is_a_problem_with_a_stable_code(path: str, status: int, code: str) -> None:
    async with asking(View(ORDERS), FakeHandle()) as client, client.get(path) as response:
        problem = await response.json(content_type="application/problem+json")
        assert (response.status, problem["code"]) == (status, code)
        assert set(problem) == {"type", "title", "status", "code", "detail"}
        assert problem["status"] == status
        assert problem["type"] == f"urn:klamm:problem:{code}"
        assert problem["detail"]


async def test_a_wrong_verb_is_405_and_says_which_are_right() -> None:
    async with (
        asking(View(), FakeHandle()) as client,
        client.delete("/v1/topics", headers={"Content-Type": "application/json"}) as response,
    ):
        problem = await response.json(content_type="application/problem+json")
        assert (response.status, problem["code"]) == (405, "METHOD_NOT_ALLOWED")
        assert response.headers["Allow"] == "GET, HEAD, POST"


async def test_a_broker_without_metadata_is_alive_but_not_ready() -> None:
    view = View(brokers=[a_broker(2)])
    async with asking(view, FakeHandle()) as client:
        async with client.get("/livez") as response:
            assert response.status == 200
        async with client.get("/readyz") as response:
            assert response.status == 503
            assert await response.json() == {
                "status": "not ready",
                "reasons": ["no controller has told broker 1 of the cluster yet"],
            }


@pytest.mark.parametrize(
    ("seat", "told_by", "body"),
    [
        (None, 2, {"broker_id": -1, "phase": "vacant", "kind": None}),
        ((2, 9), 2, {"broker_id": 2, "phase": "active", "kind": "klamm"}),
        ((3, 9), 2, {"broker_id": 3, "phase": "loading", "kind": "klamm"}),
        ((-1, 9), -1, {"broker_id": -1, "phase": "loading", "kind": None}),
    ],
)
async def test_a_standby_says_which_controller_it_knows(
    seat: tuple[int, int] | None, told_by: int, body: dict[str, object]
) -> None:
    view, handle = View(), FakeHandle()
    view.controller_id = told_by
    handle.stand_by(seat)
    async with asking(view, handle) as client, client.get("/v1/controller") as response:
        assert await response.json() == {"controller_epoch": 4, "since": None, "age_ms": None, **body}


async def test_a_controller_that_still_loads_says_so() -> None:
    handle = FakeHandle()
    handle.is_active, handle.phase, handle.controller_epoch = False, "loading", 5
    async with asking(View(), handle) as client:
        async with client.get("/v1/controller") as response:
            assert await response.json() == {**CONTROLLER_BODY, "controller_epoch": 5, "phase": "loading"}
        async with client.get("/healthz/cluster") as response:
            assert (await response.json())["reasons"] == ["a new controller is taking over"]


async def test_the_cluster_is_counted_once_per_version_of_the_metadata() -> None:
    view = View(ORDERS)
    async with asking(view, FakeHandle()) as client:
        for _ in range(3):
            async with client.get("/v1/cluster") as response:
                assert (await response.json())["counts"]["partitions"] == 3
        assert view.topics_read == 1
        view.put(a_topic("more", a_row(0, 1, [1], [1])))
        async with client.get("/v1/cluster") as response:
            assert (await response.json())["counts"]["partitions"] == 4
