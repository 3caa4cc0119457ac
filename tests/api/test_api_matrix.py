"""The matrix over real HTTP: a row per topic, whole topics in pages, and nothing sent twice."""

from __future__ import annotations

from typing import Any

import aiohttp

from controller.base.config import Limits
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    asking,
)


async def read(client: aiohttp.ClientSession, path: str) -> dict[str, Any]:
    async with client.get(path) as response:
        assert response.status == 200, await response.text()
        body: dict[str, Any] = await response.json()
        return body


async def test_a_topic_is_a_row_of_arrays_and_its_unusual_partitions() -> None:
    orders = a_topic(
        "orders",
        a_row(2, -1, [3], [3]),
        a_row(0, 1, [2, 1], [1, 2]),
        a_row(1, 2, [2], [1, 2]),
        a_row(3, 2, [1, 2], [1, 2]),
        a_row(4, 1, [1, 2], [1, 2, 4], adding=(4,), removing=(2,)),
    )
    view = View(orders, brokers=[a_broker(1), a_broker(2), a_broker(3, "gone")])
    async with asking(view, FakeHandle()) as client:
        assert await read(client, "/v1/matrix") == {
            "items": [
                {
                    "topic": "orders",
                    "partitions": [0, 1, 2, 3, 4],
                    "leaders": [1, 2, -1, 2, 1],
                    "states": "ouxno",
                    "replicas": [[1, 2], [1, 2], [3], [1, 2], [1, 2, 4]],
                    "isr": {"1": [2]},
                    "adding": {"4": [4]},
                    "removing": {"4": [2]},
                }
            ],
            "next_cursor": None,
        }


async def test_pages_hold_whole_topics_and_end_after_enough_partitions() -> None:
    topics = [a_topic(name, *(a_row(number, 1, [1], [1]) for number in range(3))) for name in "abcde"]
    view = View(*topics)
    async with asking(view, FakeHandle(), Limits(matrix_partitions_per_page=4)) as client:
        found, cursor = [], ""
        while True:
            page = await read(client, f"/v1/matrix?limit=4{cursor}")
            found.append([row["topic"] for row in page["items"]])
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
            del view.by_name["b"]  # a topic that goes between two pages moves no other
            view.by_name["b"] = topics[1]
        assert found == [["a", "b"], ["c", "d"], ["e"]]
        assert [row["topic"] for row in (await read(client, "/v1/matrix?limit=1"))["items"]] == ["a"]


async def test_an_empty_cluster_is_an_empty_matrix() -> None:
    async with asking(View(), FakeHandle()) as client:
        assert await read(client, "/v1/matrix") == {"items": [], "next_cursor": None}


async def test_an_unchanged_matrix_is_not_sent_again() -> None:
    view = View(a_topic("a", a_row(0, 1, [1], [1])))
    async with asking(view, FakeHandle()) as client:
        async with client.get("/v1/matrix") as response:
            headers = {"If-None-Match": response.headers["ETag"]}
        async with client.get("/v1/matrix", headers=headers) as response:
            assert (response.status, await response.read()) == (304, b"")
        view.put(a_topic("b", a_row(0, 1, [1], [1])))
        async with client.get("/v1/matrix", headers=headers) as response:
            assert response.status == 200


async def test_a_query_that_makes_no_sense_is_refused() -> None:
    async with asking(View(), FakeHandle()) as client:
        for query in ("limit=0", "limit=x", "cursor=%F0%9F", "colour=red", "limit=1&limit=2"):
            async with client.get(f"/v1/matrix?{query}") as response:
                assert response.status == 400, query
