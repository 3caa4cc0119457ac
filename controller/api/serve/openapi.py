"""`/openapi.json`, made of the table of operations and of the types that parse the bodies; `/docs`, a page that shows
it.

The page is three files of our own: it loads nothing from anywhere else, and runs no script that is not a file. The
module knows nothing of the effect of an operation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, cast

import msgspec
from aiohttp import web

from controller.api.middleware.access import Access, access_for
from controller.api.middleware.quota import COSTLY
from controller.api.problems import MovedProblem, Problem
from controller.api.serve.operations import JSON, OPERATIONS, Operation
from controller.api.v1.lab import VERBS

REF: Final = "#/components/schemas/{name}"
REFUSAL_REF: Final = "#/components/responses/{name}"
PROBLEM: Final = "application/problem+json"
#: parts of a path that are not any text
_NUMBER: Final = {"type": "integer", "minimum": 0}
_PARTS: Final[Mapping[str, dict[str, Any]]] = {
    "broker": _NUMBER,
    "id": _NUMBER,
    "partition": _NUMBER,
    "verb": {"type": "string", "enum": VERBS},
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_FILES: Final = {"docs.css": "text/css", "docs.js": "text/javascript"}
#: by status: a name and a description
_REFUSALS: Final = {
    400: ("Invalid", "Something in the path, the query, a header or the body is not what is expected"),
    401: ("Unknown", "A token or a signature is missing or wrong"),
    403: ("Forbidden", "The token's right is too little, or Host or Origin are foreign"),
    404: ("Missing", "What the path or the body names is not there"),
    408: ("TooSlow", "The head or the body of the request took too long"),
    409: ("Conflict", "It does not go with what is there; `code` says why"),
    413: ("TooLarge", "The body is too large"),
    415: ("NotJson", "A write needs the header Content-Type: application/json"),
    422: ("AgainstPolicy", "A limit of the cluster stands against it"),
    429: ("TooMuch", "Too many changes, costly questions, streams or connections of one caller; ask again later"),
    431: ("TooManyHeaders", "The request line or the headers are too large"),
    503: ("Unavailable", "Nobody can do it now"),
    504: ("OutcomeUnknown", "What became of it is not known"),
}
_RETRY_AFTER: Final = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
#: a header of answers that are made once for several callers
_AGE: Final = {
    "Age": {
        "schema": {"type": "integer"},
        "description": "Seconds since this answer was begun, where it is one or more",
    }
}
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
    """Returns the whole description, OpenAPI 3.1."""
    schema, components = schemas_for(operations)
    paths: dict[str, Schema] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schema, components)
    problem = schema(Problem)
    refusals = {
        name: _problem(problem, f"{what}; nothing was changed", _RETRY_AFTER if status in (429, 503) else None)
        for status, (name, what) in _REFUSALS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Klamm", "version": "1", "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components, "responses": refusals},
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
        if one.method == "GET" and one.path in COSTLY:
            said[str(status)]["headers"] = _AGE
    if one.is_led:
        moved = {"Location": {"schema": {"type": "string"}}}
        said["307"] = _problem(schema(MovedProblem), "Another broker is the active controller", moved)
        said["503"] = _problem(schema(Problem), "Nobody can do it now; nothing was changed", _RETRY_AFTER)
    if one.is_led and one.method != "GET":
        said["504"] = _problem(schema(Problem), "What became of it is not known; `detail` says what to read")
    for status in sorted(_refusals_of(one)):
        said.setdefault(str(status), {"$ref": REFUSAL_REF.format(name=_REFUSALS[status][0])})
    said["default"] = _problem(schema(Problem), "A bug was met; the broker's log has it")
    return said


def _refusals_of(one: Operation) -> set[int]:
    """Returns the statuses with which it may be refused: by the middlewares before every handler, and by its own
    handler."""
    said = {400, 403, 408, 429, 431, 503, *one.refusals}
    if access_for(one.method, one.path) is not Access.OPEN:
        said.add(401)
    if "{" in one.path:
        said.add(404)
    if one.method != "GET":
        said |= {413, 415} | ({404, 409, 422} if one.is_led else set())
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
            "schema": _PARTS.get(name, {"type": "string"}),
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
