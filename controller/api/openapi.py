"""`/openapi.json`, made of the table of operations and of the types that parse the bodies; `/docs`, a page that shows
it.

The page is three files of our own: it loads nothing from anywhere else, and runs no script that is not a file. Nothing
in here knows what an operation does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, cast

import msgspec
from aiohttp import web

from controller.api.operations import JSON, OPERATIONS, Operation
from controller.api.problems import MovedProblem, Problem

REF: Final = "#/components/schemas/{name}"
PROBLEM: Final = "application/problem+json"
#: parts of a path that are numbers
_NUMBERS: Final = {"broker", "partition"}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_FILES: Final = {"docs.css": "text/css", "docs.js": "text/javascript"}
_DESCRIPTION: Final = (
    "Klamm is a Kafka controller you can run, break, watch and measure. Every broker answers what it was told; the "
    "rest is the active controller's: another broker answers 307 or, asked with the header `Klamm-Forward: 1`, passes "
    "the request on. Each write is idempotent by its content, so a retry is safe; it needs the header "
    "`Content-Type: application/json`. Errors carry a stable `code`; `OUTCOME_UNKNOWN` (504) says in `detail` what to "
    "read to find out."
)

Schema = dict[str, Any]


class Docs:
    """Handlers of the description and of its page."""

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.get("/openapi.json", self.openapi),
            web.get("/docs", self.page),
            web.get("/docs/{name}", self.file),
        ]

    async def openapi(self, request: web.Request) -> web.Response:
        return web.Response(body=encoded_document(), content_type=JSON)

    async def page(self, request: web.Request) -> web.Response:
        return _file("docs.html", "text/html")

    async def file(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in _FILES:
            raise web.HTTPNotFound
        return _file(name, _FILES[name])


@cache
def encoded_document() -> bytes:
    return msgspec.json.encode(document())


def document(operations: Sequence[Operation] = OPERATIONS) -> Schema:
    """The whole description, OpenAPI 3.1."""
    schema, components = schemas_for(operations)
    paths: dict[str, Schema] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schema, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Klamm", "version": "1", "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components},
    }


def schemas_for(operations: Iterable[Operation]) -> tuple[Callable[[Any], Schema], Mapping[str, Any]]:
    """How to say a type, and all named types by name."""
    used = {kind for one in operations for kind in (one.answer, one.body, one.query) if kind is not None}
    kinds = sorted(used | {Problem, MovedProblem}, key=lambda kind: (kind.__module__, kind.__qualname__))
    said, components = msgspec.json.schema_components(kinds, ref_template=REF)
    by_kind = dict(zip(kinds, said, strict=True))
    return by_kind.__getitem__, components


def _operation(one: Operation, schema: Callable[[Any], Schema], components: Mapping[str, Any]) -> Schema:
    said: Schema = {
        "operationId": re.sub(r"\W+", "_", f"{one.method.lower()} {one.path}").strip("_"),
        "summary": one.summary,
        "tags": [_tag(one.path)],
        "parameters": [*_path_parameters(one), *_headers(one), *_query_parameters(one, schema, components)],
        "responses": _responses(one, schema),
    }
    if one.body is not None:
        is_required = bool(msgspec.structs.fields(one.body))
        said["requestBody"] = {"required": is_required, "content": {JSON: {"schema": schema(one.body)}}}
    return said


def _responses(one: Operation, schema: Callable[[Any], Schema]) -> Schema:
    said: Schema = {}
    good = _answer_schema(one, schema)
    for status in one.statuses:
        said[str(status)] = {
            "description": one.summary,
            "content": {one.media: {} if good is None else {"schema": good}},
        }
    if one.is_led:
        moved = {"Location": {"schema": {"type": "string"}}}
        said["307"] = _problem(schema(MovedProblem), "Another broker is the active controller", moved)
        retry = {"Retry-After": {"schema": {"type": "integer"}}}
        said["503"] = _problem(schema(Problem), "Nobody can do it now; nothing was changed", retry)
    if one.is_led and one.method != "GET":
        said["504"] = _problem(schema(Problem), "What became of it is not known; `detail` says what to read")
    said["default"] = _problem(schema(Problem), "Refused; nothing was changed")
    return said


def _answer_schema(one: Operation, schema: Callable[[Any], Schema]) -> Schema | None:
    if one.answer is None or not one.is_page:
        return None if one.answer is None else schema(one.answer)
    cursor = {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Asks for the next page; null: the last"}
    return {
        "type": "object",
        "properties": {"items": {"type": "array", "items": schema(one.answer)}, "next_cursor": cursor},
        "required": ["items", "next_cursor"],
    }


def _problem(schema: Schema, description: str, headers: Schema | None = None) -> Schema:
    return {"description": description, "content": {PROBLEM: {"schema": schema}}, "headers": headers or {}}


def _path_parameters(one: Operation) -> list[Schema]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0} if name in _NUMBERS else {"type": "string"},
        }
        for name in re.findall(r"{(\w+)}", one.path)
    ]


def _headers(one: Operation) -> list[Schema]:
    names = [*one.headers, *(["Klamm-Forward"] if one.is_led else [])]
    return [{"name": name, "in": "header", "schema": {"type": "string"}} for name in names]


def _query_parameters(one: Operation, schema: Callable[[Any], Schema], components: Mapping[str, Any]) -> list[Schema]:
    if one.query is None:
        return []
    said = components[schema(one.query)["$ref"].rpartition("/")[2]]
    required = said.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(one)}
        for name, one in said["properties"].items()
    ]


def _without_null(schema: Schema) -> Schema:
    """A parameter that is not given has no value; there is no other way to say null."""
    if "anyOf" not in schema:
        return schema
    [only] = [one for one in schema["anyOf"] if one != {"type": "null"}]
    return cast(Schema, only)


def _tag(path: str) -> str:
    parts = path.strip("/").split("/")
    return parts[1] if parts[0] == "v1" else "rpc" if parts[0] == "rpc" else "process"


def _file(name: str, content_type: str) -> web.Response:
    body = (resources.files("controller.api") / "docs" / name).read_bytes()
    return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_HEADERS)
