"""Lists and maps in bodies have a length: a longer one is refused before any decision about it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from controller.api.serve.openapi import schemas_for
from controller.api.serve.operations import OPERATIONS
from controller.base.config import LIMITS
from tests.api.api_support import FakeHandle, View, asking

#: one too many
ITEMS: Final = range(LIMITS.api_list_max_items + 1)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/elections", {"type": "preferred", "partitions": [{"topic": "t", "partition": n} for n in ITEMS]}),
        ("POST", "/v1/reassignments", {"partitions": [{"topic": "t", "partition": n, "replicas": [1]} for n in ITEMS]}),
        ("POST", "/v1/reassignments", {"partitions": [{"topic": "t", "partition": 0, "replicas": list(ITEMS)}]}),
        ("POST", "/v1/topics", {"name": "t", "assignment": {n: [1] for n in ITEMS}}),
        ("POST", "/v1/topics/t/partitions", {"count": 1, "assignment": {n: [1] for n in ITEMS}}),
        ("POST", "/v1/what-if", {"kill": list(ITEMS)}),
        ("PATCH", "/v1/cluster/config", {"values": {str(n): "" for n in ITEMS}}),
    ],
)
async def test_a_list_beyond_its_length_is_refused_and_never_reaches_the_controller(
    method: str, path: str, body: Any
) -> None:
    handle = FakeHandle()
    async with asking(View(), handle) as client, client.request(method, path, json=body) as response:
        said = await response.json(content_type=None)
    assert (response.status, said["code"]) == (400, "INVALID_REQUEST")
    assert str(LIMITS.api_list_max_items) in said["detail"]
    assert handle.asked == []


def test_every_list_in_a_body_has_a_length_that_the_description_says() -> None:
    _, components = schemas_for([one for one in OPERATIONS if not one.path.startswith("/rpc/")])
    asked = [one.body.__name__ for one in OPERATIONS if one.body and not one.path.startswith("/rpc/")]
    schemas, seen, lengths = [components[name] for name in asked], set(asked), []
    while schemas:
        match schemas.pop():
            case {"$ref": str(ref)} if (name := ref.rpartition("/")[2]) not in seen:
                seen.add(name)
                schemas.append(components[name])
            case dict() as said:
                if said.get("type") == "array":
                    lengths.append(said.get("maxItems"))
                if isinstance(said.get("additionalProperties"), dict):
                    lengths.append(said.get("maxProperties"))
                schemas += said.values()
            case list() as several:
                schemas += several
    assert len(lengths) >= 7
    assert set(lengths) == {LIMITS.api_list_max_items}
