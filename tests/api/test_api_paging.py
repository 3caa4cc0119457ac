"""Long lists: stable pages and filters."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from tests.api.api_support import (
    FakeHandle,
    View,
    a_row,
    a_topic,
    asking,
)


async def page_of(client: aiohttp.ClientSession, path: str, **query: object) -> dict[str, Any]:
    asked = {key: str(value) for key, value in query.items() if value is not None}
    async with client.get(path, params=asked) as response:
        assert response.status == 200
        page: dict[str, Any] = await response.json()
        return page


async def names_of_all(client: aiohttp.ClientSession, limit: int, **query: object) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await page_of(client, "/v1/partitions", limit=limit, cursor=cursor, **query)
        assert len(page["items"]) <= limit
        found += [f"{item['topic']}-{item['partition']}" for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


CLUSTER = [
    a_topic("a", *(a_row(number, 1, [1, 2], [1, 2]) for number in range(12))),
    a_topic("b", a_row(0, 2, [2], [1, 2]), a_row(1, -1, [3], [3])),
    a_topic("c"),
    a_topic("d", *(a_row(number, 3, [3], [3]) for number in range(3))),
]
ALL = [f"a-{number}" for number in range(12)] + ["b-0", "b-1", "d-0", "d-1", "d-2"]


@pytest.mark.parametrize("limit", [1, 2, 12, 17, 100])
async def test_pages_of_any_size_make_up_the_whole_list(limit: int) -> None:
    async with asking(View(*CLUSTER), FakeHandle()) as client:
        assert await names_of_all(client, limit) == ALL


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"state": "offline"}, ["b-1"]),
        ({"state": "under-replicated"}, ["b-0"]),
        ({"state": "not-preferred"}, ["b-0"]),
        ({"state": "online", "topic": "b"}, ["b-0"]),
        ({"topic": "d"}, ["d-0", "d-1", "d-2"]),
        ({"topic": "nope"}, []),
        ({"broker": 3}, ["b-1", "d-0", "d-1", "d-2"]),
        ({"broker": 3, "state": "online"}, ["d-0", "d-1", "d-2"]),
    ],
)
async def test_filters_narrow_the_list_and_its_pages(query: dict[str, object], names: list[str]) -> None:
    async with asking(View(*CLUSTER), FakeHandle()) as client:
        assert await names_of_all(client, 100, **query) == names
        assert await names_of_all(client, 2, **query) == names


async def test_a_cursor_survives_that_topics_come_and_go() -> None:
    view = View(*CLUSTER)
    async with asking(view, FakeHandle()) as client:
        first = await page_of(client, "/v1/partitions", limit=13)
        assert first["items"][-1]["topic"] == "b"
        del view.by_name["b"]
        view.put(a_topic("aa", a_row(0, 1, [1], [1])))
        second = await page_of(client, "/v1/partitions", limit=13, cursor=first["next_cursor"])
        assert [item["topic"] for item in second["items"]] == ["d", "d", "d"]


async def test_topics_and_a_topics_partitions_have_pages_too() -> None:
    async with asking(View(*CLUSTER), FakeHandle()) as client:
        first = await page_of(client, "/v1/topics", limit=3)
        assert [item["name"] for item in first["items"]] == ["a", "b", "c"]
        second = await page_of(client, "/v1/topics", limit=3, cursor=first["next_cursor"])
        assert [item["name"] for item in second["items"]] == ["d"]
        assert second["next_cursor"] is None
        first = await page_of(client, "/v1/topics/a/partitions", limit=10)
        second = await page_of(client, "/v1/topics/a/partitions", limit=10, cursor=first["next_cursor"])
        assert [item["partition"] for item in first["items"] + second["items"]] == list(range(12))
