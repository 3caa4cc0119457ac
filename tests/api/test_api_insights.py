"""Stories, what-if and history over real HTTP: computed from belief, nothing changed."""

from __future__ import annotations

import pytest

from controller.term.term import TermRecord
from tests.builders import a_cluster, snapshot
from tests.support.deciding_support import DecidingHandle, exchange


async def test_a_story_says_of_each_replica_whether_it_can_lead_and_why() -> None:
    cluster = a_cluster(orders=[[1, 2, 9]])
    status, body = await exchange(cluster, "GET", "/v1/partitions/orders/0/story")
    assert (status, body["topic"], body["partition"], body["leader"]) == (200, "orders", 0, 1)
    assert [(one["broker_id"], one["is_eligible"]) for one in body["replicas"]] == [(1, True), (2, True), (9, False)]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("nope/0", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders/7", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders/x", 400, "INVALID_REQUEST"),
    ],
)
async def test_a_partition_that_is_not_there_has_no_story(path: str, status: int, code: str) -> None:
    answered, problem = await exchange(a_cluster(orders=[[1]]), "GET", f"/v1/partitions/{path}/story")
    assert (answered, problem["code"]) == (status, code)


async def test_what_if_counts_the_effects_and_changes_nothing() -> None:
    cluster = a_cluster(orders=[[1, 2], [3]], more=[[2, 3, 1]])
    before, handle = snapshot(cluster), DecidingHandle(cluster)
    status, body = await exchange(cluster, "POST", "/v1/what-if", {"kill": [3, 1]}, handle=handle)
    assert (status, body["kill"]) == (200, [1, 3])
    assert [(one["topic"], one["partition"], one["source"], one["target"]) for one in body["moves"]] == [
        ("orders", 0, 1, 2)
    ]
    assert body["offline"] == ["orders-1"]
    assert sorted(body["last_in_sync"]) == ["more-0", "orders-0"]
    assert (snapshot(cluster), handle.asked, handle.zookeeper.log) == (before, [], [])


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"kill": []}, 400, "INVALID_REQUEST"),
        ({"kill": [1, 1]}, 400, "INVALID_REQUEST"),
        ({"kill": ["1"]}, 400, "INVALID_REQUEST"),
        ({"kill": [1], "revive": [2]}, 400, "INVALID_REQUEST"),
        ({}, 400, "INVALID_REQUEST"),
        ({"kill": [9]}, 404, "BROKER_ID_NOT_REGISTERED"),
        ({"kill": [-1]}, 404, "BROKER_ID_NOT_REGISTERED"),
    ],
)
async def test_a_malformed_what_if_is_refused(body: object, status: int, code: str) -> None:
    answered, problem = await exchange(a_cluster(orders=[[1]]), "POST", "/v1/what-if", body)
    assert (answered, problem["code"]) == (status, code)


async def test_history_lists_the_terms_and_their_phases() -> None:
    cluster = a_cluster()
    handle = DecidingHandle(cluster)
    handle.terms = [
        TermRecord(6, 2, 1_000, 5_000, "session gone", {"claimed": 3.5, "loaded": 8.25}),
        TermRecord(7, 1, 5_000, None, None, {}),
    ]
    past: dict[str, object] = {
        "controller_epoch": 6,
        "broker_id": 2,
        "from_ms": 1_000,
        "to_ms": 5_000,
        "why": "session gone",
    }
    now: dict[str, object] = {
        "controller_epoch": 7,
        "broker_id": 1,
        "from_ms": 5_000,
        "to_ms": None,
        "why": None,
        "phases": {},
    }
    status, body = await exchange(cluster, "GET", "/v1/controller/history", handle=handle)
    assert status == 200
    assert body == {"items": [{**past, "phases": {"claimed": 3.5, "loaded": 8.25}}, now], "next_cursor": None}
