"""Growing and deleting topics over real HTTP, decided by the real core."""

from __future__ import annotations

import pytest

from controller.api.ports import Reply
from controller.base.clock import monotonic_ms, wall_ms
from controller.core.belief.duties import Deletion
from controller.core.codes import Code
from controller.core.events import DeleteTopicAsked, Event, GrowTopicAsked
from controller.loop.inbox import ChangeReply
from tests.api.api_support import FakeHandle, View, asking
from tests.builders import a_cluster
from tests.support.deciding_support import BelievedView, DecidingHandle, exchange


async def test_a_topic_grows_and_the_same_again_is_200() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 3]])
    async with asking(BelievedView(cluster), handle := DecidingHandle(cluster)) as client:
        for status in (201, 200):
            async with client.post("/v1/topics/orders/partitions", json={"count": 4}) as response:
                body = await response.json()
                assert (response.status, body["name"], body["partitions"], body["online"]) == (status, "orders", 4, 4)
    assert handle.asked == [GrowTopicAsked("orders", 4)] * 2


async def test_new_partitions_go_where_they_are_told_to() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    body = {"count": 2, "assignment": {"1": [3, 1]}}
    assert (await exchange(cluster, "POST", "/v1/topics/orders/partitions", body))[0] == 201
    assert cluster.topics["orders"].partitions[1].replicas == (3, 1)


@pytest.mark.parametrize(
    ("topic", "body", "status", "code"),
    [
        ("orders", {"count": 1}, 400, "INVALID_PARTITIONS"),
        ("orders", {"count": 3, "assignment": {"0": [1, 2]}}, 400, "INVALID_REPLICA_ASSIGNMENT"),
        ("nope", {"count": 3}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders", {}, 400, "INVALID_REQUEST"),
        ("orders", {"count": "3"}, 400, "INVALID_REQUEST"),
        ("orders", {"count": 3, "colour": 1}, 400, "INVALID_REQUEST"),
        ("orders", {"count": 2**31}, 400, "INVALID_REQUEST"),
    ],
)
async def test_an_invalid_growth_is_refused_and_the_topic_stays_as_it_is(
    topic: str, body: object, status: int, code: str
) -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 3]])
    answered, problem = await exchange(cluster, "POST", f"/v1/topics/{topic}/partitions", body)
    assert (answered, problem["code"]) == (status, code)
    assert len(cluster.topics["orders"].partitions) == 2


DELETING = {
    "topic": "orders",
    "status": "deleting",
    "abandon_offline": False,
    "replicas": 2,
    "replicas_deleted": 0,
    "failures": 0,
    "waits_for": None,
    "retry_at_ms": None,
    "was_there": True,
}


async def test_a_deletion_is_202_while_it_runs_and_is_listed() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    async with asking(BelievedView(cluster), DecidingHandle(cluster)) as client:
        for _ in range(2):
            async with client.delete("/v1/topics/orders", headers={"Content-Type": "application/json"}) as response:
                assert (response.status, await response.json()) == (202, DELETING)
        async with client.get("/v1/deletions") as response:
            assert await response.json() == {"items": [DELETING], "next_cursor": None}
        async with client.get("/v1/topics/orders") as response:
            assert response.status == 404


async def test_a_deletion_names_the_brokers_that_it_waits_for() -> None:
    cluster = a_cluster(orders=[[1, 9]])
    status, body = await exchange(cluster, "DELETE", "/v1/topics/orders")
    assert (status, body["status"]) == (202, "deleting")
    assert "9" in body["waits_for"]
    assert (await exchange(cluster, "GET", "/v1/deletions"))[1]["items"] == [body]


async def test_deleting_can_go_on_without_the_dead() -> None:
    cluster = a_cluster(orders=[[1, 9]])
    handle = DecidingHandle(cluster)
    status, body = await exchange(cluster, "DELETE", "/v1/topics/orders?abandon_offline=true", handle=handle)
    assert (status, body["abandon_offline"], body["waits_for"]) == (202, True, None)
    assert handle.asked == [DeleteTopicAsked("orders", abandon_offline=True)]


async def test_a_topic_that_is_not_there_is_deleted_already() -> None:
    gone = {**DELETING, "topic": "nope", "status": "deleted", "replicas": 0, "was_there": False}
    assert await exchange(a_cluster(), "DELETE", "/v1/topics/nope", {}) == (200, gone)


async def test_a_topic_that_makes_no_sense_is_not_called_deleted() -> None:
    cluster = a_cluster()
    cluster.unreadable["orders", None] = ("no JSON", 7)
    status, problem = await exchange(cluster, "DELETE", "/v1/topics/orders")
    assert (status, problem["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_a_deletion_says_by_the_clock_on_the_wall_when_it_is_tried_again() -> None:
    cluster = a_cluster(orders=[[1]])
    begun_ms = wall_ms()
    cluster.duties.deletions["orders"] = Deletion(is_queued=True, retry_at_ms=monotonic_ms() + 60_000)
    _, page = await exchange(cluster, "GET", "/v1/deletions")
    assert begun_ms + 59_999 <= page["items"][0]["retry_at_ms"] <= wall_ms() + 60_001


async def test_deletions_are_listed_in_pages() -> None:
    cluster = a_cluster(a=[[1]], b=[[1]], c=[[1]])
    handle = DecidingHandle(cluster)
    for name in "abc":
        handle.decide(DeleteTopicAsked(name))
    status, first = await exchange(cluster, "GET", "/v1/deletions?limit=2", handle=handle)
    assert (status, [one["topic"] for one in first["items"]]) == (200, ["a", "b"])
    _, last = await exchange(cluster, "GET", f"/v1/deletions?limit=2&cursor={first['next_cursor']}", handle=handle)
    assert ([one["topic"] for one in last["items"]], last["next_cursor"]) == (["c"], None)


@pytest.mark.parametrize(
    ("path", "body"),
    [("?abandon_offline=maybe", None), ("?colour=red", None), ("", {"force": True}), ("", b"{")],
)
async def test_a_malformed_deletion_is_400(path: str, body: object) -> None:
    cluster = a_cluster(orders=[[1]])
    status, problem = await exchange(cluster, "DELETE", f"/v1/topics/orders{path}", body)
    assert (status, problem["code"]) == (400, "INVALID_REQUEST")
    assert cluster.duties.deletions == {}


async def test_a_term_that_ends_meanwhile_leaves_a_deletion_that_goes_on() -> None:
    handle = FakeHandle()
    handle.cluster = a_cluster(orders=[[1]])

    def answer(_: Event) -> Reply:
        handle.stand_by(None)
        return ChangeReply()

    handle.answer = answer
    async with (
        asking(View(), handle) as client,
        client.delete("/v1/topics/orders", headers={"Content-Type": "application/json"}) as response,
    ):
        assert (response.status, (await response.json())["status"]) == (202, "deleting")


async def test_a_refusal_keeps_its_code() -> None:
    handle = FakeHandle(lambda _: Reply(Code.TOPIC_DELETION_DISABLED, "delete.topic.enable is false"))
    status, problem = await exchange(a_cluster(), "DELETE", "/v1/topics/orders", handle=handle)
    assert (status, problem["code"]) == (403, "TOPIC_DELETION_DISABLED")
