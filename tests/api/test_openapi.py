"""`/openapi.json` is valid and lists exactly the served paths; `/docs` shows it without a network."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

import controller.api
from controller.api.serve.app import build_app
from controller.api.serve.openapi import document
from controller.api.serve.operations import BROKER_RPCS, OPERATIONS
from tests.api.api_support import (
    CONFIG,
    FakeHandle,
    View,
    a_row,
    a_topic,
    asking,
    routes_of,
)

PAGE = Path(controller.api.__path__[0]) / "docs"


def the_document() -> Any:
    """As a client reads it."""
    return json.loads(msgspec.json.encode(document()))


async def test_the_document_is_valid_openapi_3_1() -> None:
    async with asking(View(), FakeHandle()) as client, client.get("/openapi.json") as response:
        assert response.content_type == "application/json"
        said = await response.json()
    assert said["openapi"].startswith("3.1.")
    OpenAPIV31SpecValidator(said).validate()


async def test_every_route_is_in_the_document_and_nothing_else() -> None:
    said = [(one.method, one.path) for one in OPERATIONS]
    assert len(said) == len(set(said))
    by_the_broker = {(one.method, one.path) for one in BROKER_RPCS}
    app = build_app(View(), FakeHandle(), listeners=["127.0.0.1:1"], config=CONFIG)
    assert set(said) == routes_of(app) | by_the_broker
    paths = the_document()["paths"]
    assert {(method.upper(), path) for path, item in paths.items() for method in item} == set(said)


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [one["operationId"] for item in the_document()["paths"].values() for one in item.values()]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z_0-9A-Z]+", name) for name in names)


def test_every_body_that_is_parsed_refuses_unknown_fields_and_says_so() -> None:
    said = the_document()
    for path, item in said["paths"].items():
        for one in item.values():
            if "requestBody" in one and not path.startswith("/rpc/"):
                ref = one["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                assert said["components"]["schemas"][ref.rpartition("/")[2]]["additionalProperties"] is False, path


@pytest.mark.parametrize(
    ("path", "said_at"),
    [
        ("/v1/cluster", "/v1/cluster"),
        ("/v1/controller", "/v1/controller"),
        ("/v1/brokers", "/v1/brokers"),
        ("/v1/brokers/1", "/v1/brokers/{id}"),
        ("/v1/topics", "/v1/topics"),
        ("/v1/topics/orders", "/v1/topics/{topic}"),
        ("/v1/partitions", "/v1/partitions"),
        ("/v1/matrix", "/v1/matrix"),
        ("/v1/controller/history", "/v1/controller/history"),
        ("/healthz/cluster", "/healthz/cluster"),
        ("/v1/topics/nowhere", "/v1/topics/{topic}"),
    ],
)
async def test_an_answer_has_the_shape_of_the_description(path: str, said_at: str) -> None:
    said = the_document()
    view = View(a_topic("orders", a_row(0, 1, [1, 2], [1, 2])))
    async with asking(view, FakeHandle()) as client, client.get(path) as response:
        body, status, media = await response.json(), str(response.status), response.content_type
    responses = said["paths"][said_at]["get"]["responses"]
    answer = responses[status]
    if "$ref" in answer:
        answer = said["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    schema = answer["content"][media]["schema"]
    OAS31Validator(schema | {"components": said["components"]}).validate(body)


class Links(HTMLParser):
    """The resources that a page loads, and whether it brings scripts or styles of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "link", "img"):
            self.loads.append(given.get("src") or given.get("href") or "")
        self.inline += [name for name in given if name.startswith("on") or name == "style"]
        self.inline += [tag] if tag == "style" or (tag == "script" and "src" not in given) else []


async def test_the_page_loads_only_its_own_files_under_a_strict_policy() -> None:
    async with asking(View(), FakeHandle()) as client:
        async with client.get("/docs") as response:
            assert response.status == 200
            assert response.content_type == "text/html"
            assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")
            links = Links()
            links.feed(await response.text())
        assert links.inline == []
        assert sorted(links.loads) == ["/docs/docs.css", "/docs/docs.js"]
        for path in links.loads:
            async with client.get(path) as response:
                assert response.status == 200
                assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ["nothing.js", "docs.html", "..%2fapp.py", "%2e%2e%2fapp.py"])
async def test_nothing_else_is_a_file_of_the_page(name: str) -> None:
    async with asking(View(), FakeHandle()) as client, client.get(f"/docs/{name}") as response:
        assert response.status == 404


def test_the_page_names_no_other_host_and_puts_nothing_in_as_markup() -> None:
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8")
        assert "//" not in re.sub(r"^\s*// .*$", "", text, flags=re.MULTILINE), path.name
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", text), path.name
