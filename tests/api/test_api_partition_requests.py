"""Reassignments and elections over real HTTP, decided by the real core: outcomes for each partition."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.ports import Reply
from controller.core.codes import Code
from controller.core.events import ElectAsked, ReassignAsked
from tests.api.api_support import FakeHandle
from tests.builders import a_cluster, a_leadership, brokers_seen
from tests.support.deciding_support import DecidingHandle, exchange

REASSIGNMENTS, ELECTIONS = "/v1/reassignments", "/v1/elections"


def plan(*entries: tuple[str, int, list[int] | None]) -> dict[str, object]:
    """Kafka's JSON."""
    partitions = [{"topic": topic, "partition": number, "replicas": ids} for topic, number, ids in entries]
    return {"version": 1, "partitions": partitions}


def codes(body: Any) -> dict[str, str]:
    return {f"{one['topic']}-{one['partition']}": one["code"] for one in body["partitions"]}


async def test_a_reassignment_is_asked_for_in_kafkas_json_and_shown_while_it_runs() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    handle = DecidingHandle(cluster)
    asked = {
        "version": 1,
        "partitions": [{"topic": "orders", "partition": 0, "replicas": [3, 2], "log_dirs": ["any", "any"]}],
    }
    for _ in range(2):
        status, body = await exchange(cluster, "POST", REASSIGNMENTS, asked, handle=handle)
        assert (status, codes(body)) == (200, {"orders-0": "NONE"})
    shown = {
        "topic": "orders",
        "partition": 0,
        "leader": 1,
        "isr": [1, 2],
        "replicas": [3, 2, 1],
        "adding": [3],
        "removing": [1],
        "target": [3, 2],
        "waits_for": [3],
        "gone": [],
    }
    assert await exchange(cluster, "GET", REASSIGNMENTS) == (200, {"items": [shown], "next_cursor": None})


async def test_a_target_that_went_away_is_named() -> None:
    cluster = a_cluster(live=(1, 2, 3, 4), orders=[[1, 2]])
    handle = DecidingHandle(cluster)
    await exchange(cluster, "POST", REASSIGNMENTS, plan(("orders", 0, [3, 4])), handle=handle)
    handle.decide(brokers_seen(1, 2, 3, zxid=10_000))
    _, body = await exchange(cluster, "GET", REASSIGNMENTS)
    assert (body["items"][0]["waits_for"], body["items"][0]["gone"]) == ([3, 4], [4])


async def test_each_partition_has_its_own_outcome() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 1]])
    asked = plan(("orders", 0, [3]), ("orders", 1, [9]), ("nope", 0, [1]), ("orders", 7, None))
    status, body = await exchange(cluster, "POST", REASSIGNMENTS, asked)
    assert (status, codes(body)) == (
        200,
        {
            "orders-0": "NONE",
            "orders-1": "INVALID_REPLICA_ASSIGNMENT",
            "nope-0": "UNKNOWN_TOPIC_OR_PARTITION",
            "orders-7": "UNKNOWN_TOPIC_OR_PARTITION",
        },
    )
    assert all(set(one) == {"topic", "partition", "code", "detail"} for one in body["partitions"])


async def test_cancelling_ends_it_and_again_is_200() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    handle = DecidingHandle(cluster)
    await exchange(cluster, "POST", REASSIGNMENTS, plan(("orders", 0, [3, 2])), handle=handle)
    for code in ("NONE", "NO_REASSIGNMENT_IN_PROGRESS"):
        status, body = await exchange(cluster, "DELETE", f"{REASSIGNMENTS}/orders/0", handle=handle)
        assert (status, body["topic"], body["partition"], body["code"]) == (200, "orders", 0, code)
    assert cluster.reassigning == set()
    assert handle.asked[-1] == ReassignAsked({("orders", 0): None})


async def test_cancelling_an_unknown_reassignment_is_404() -> None:
    status, problem = await exchange(a_cluster(), "DELETE", f"{REASSIGNMENTS}/nope/0")
    assert (status, problem["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_reassignments_are_listed_in_pages() -> None:
    cluster = a_cluster(orders=[[1], [1], [1]])
    await exchange(cluster, "POST", REASSIGNMENTS, plan(*(("orders", number, [2]) for number in range(3))))
    path, seen = f"{REASSIGNMENTS}?limit=2", []
    while path:
        _, page = await exchange(cluster, "GET", path)
        seen.append([one["partition"] for one in page["items"]])
        path = page["next_cursor"] and f"{REASSIGNMENTS}?limit=2&cursor={page['next_cursor']}"
    assert seen == [[0, 1], [2]]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        {},
        {"partitions": []},
        {"version": 2, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]},
        {"partitions": [{"topic": "orders", "partition": 0}]},
        {"partitions": [{"topic": "orders", "partition": 0, "replicas": ["1"]}]},
        {"partitions": [{"topic": "orders", "partition": 0, "replicas": [4294967297]}]},
        {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1], "colour": 1}]},
        {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1], "log_dirs": ["/data"]}]},
        {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}] * 2},
    ],
)
async def test_a_malformed_reassignment_is_400_and_reaches_no_controller(body: object) -> None:
    handle = FakeHandle()
    status, problem = await exchange(a_cluster(), "POST", REASSIGNMENTS, body, handle=handle)
    assert (status, problem["code"], handle.asked) == (400, "INVALID_REQUEST", [])


@pytest.mark.parametrize("path", ["orders/x", "orders/-1", "orders/99999999999", "orders/%D9%A1"])
async def test_a_path_without_a_number_is_400(path: str) -> None:
    status, problem = await exchange(a_cluster(), "DELETE", f"{REASSIGNMENTS}/{path}", handle=(handle := FakeHandle()))
    assert (status, problem["code"], handle.asked) == (400, "INVALID_REQUEST", [])


async def test_preferred_leaders_are_elected_where_they_are_named() -> None:
    cluster = a_cluster(orders=[[1, 2], [1, 2], [3, 2]], states={"orders-0": a_leadership(2, [2, 1])})
    names = [{"topic": "orders", "partition": number} for number in (0, 1, 5)]
    status, body = await exchange(cluster, "POST", ELECTIONS, {"type": "preferred", "partitions": names})
    assert (status, codes(body)) == (
        200,
        {"orders-0": "NONE", "orders-1": "ELECTION_NOT_NEEDED", "orders-5": "UNKNOWN_TOPIC_OR_PARTITION"},
    )


async def test_an_election_of_all_names_only_those_that_needed_it() -> None:
    cluster = a_cluster(orders=[[1, 2], [1, 2]], states={"orders-0": a_leadership(2, [2, 1])})
    status, body = await exchange(cluster, "POST", ELECTIONS, {"type": "preferred", "partitions": None})
    assert (status, codes(body)) == (200, {"orders-0": "NONE"})


async def test_an_unclean_election_reaches_the_controller_as_such() -> None:
    cluster = a_cluster(live=(2,), orders=[[1, 2]], states={"orders-0": a_leadership(-1, [1])})
    handle = DecidingHandle(cluster)
    asked = {"type": "unclean", "partitions": [{"topic": "orders", "partition": 0}]}
    status, body = await exchange(cluster, "POST", ELECTIONS, asked, handle=handle)
    assert (status, codes(body)) == (200, {"orders-0": "NONE"})
    assert handle.asked == [ElectAsked(is_unclean=True, partitions=[("orders", 0)])]


@pytest.mark.parametrize(
    "body",
    [
        {"type": "preferred"},  # all of them must be said, not left out
        {"partitions": None},
        {"type": "fair", "partitions": None},
        {"type": "unclean", "partitions": []},
        {"type": "unclean", "partitions": [{"topic": "orders"}]},
        {"type": "unclean", "partitions": [{"topic": "orders", "partition": 0}] * 2},
    ],
)
async def test_a_malformed_election_is_400_and_reaches_no_controller(body: object) -> None:
    status, problem = await exchange(a_cluster(), "POST", ELECTIONS, body, handle=(handle := FakeHandle()))
    assert (status, problem["code"], handle.asked) == (400, "INVALID_REQUEST", [])


async def test_a_request_refused_as_a_whole_is_a_problem_and_an_unknown_one_names_the_resource_to_read() -> None:
    asked = plan(("orders", 0, [1]))
    handle = FakeHandle(lambda _: Reply(Code.UNKNOWN_SERVER_ERROR, "a bug"))
    status, problem = await exchange(a_cluster(), "POST", REASSIGNMENTS, asked, handle=handle)
    assert (status, problem["code"]) == (500, "UNKNOWN_SERVER_ERROR")
    status, problem = await exchange(
        a_cluster(), "POST", REASSIGNMENTS, asked, handle=FakeHandle(lambda _: Reply(is_unknown=True))
    )
    assert (status, problem["code"]) == (504, "OUTCOME_UNKNOWN")
    assert "GET /v1/reassignments" in problem["detail"]
