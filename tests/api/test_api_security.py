"""Access: the table of Host, Origin and Content-Type, on every path; and that no nonsense is ever a 5xx."""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from controller.api.middleware.access import allowed_hosts_for
from controller.api.serve.app import build_app
from controller.base.config import Limits
from tests.api.api_support import (
    CONFIG,
    FakeHandle,
    View,
    address_of,
    asking,
    creating,
    reserved,
    served,
)
from tests.waiting import DEADLINE_S

ORDERS: Final = b'{"name":"orders","partitions":1,"replication_factor":1}'
JSON: Final = {"Content-Type": "application/json"}


async def status_of(
    method: str, path: str, headers: dict[str, str], body: bytes | None = None
) -> tuple[int, str | None, int]:
    """Status, code of the problem, and how often the controller was asked. `@` in a header stands for our address."""
    view = View()
    handle = FakeHandle(creating(view))
    async with served(view, handle) as url, aiohttp.ClientSession(url) as client:
        filled = {key: value.replace("@", url.removeprefix("http://")) for key, value in headers.items()}
        async with client.request(method, path, headers=filled, data=body) as response:
            problem = await response.json(content_type=None) if response.status >= 400 else {}
            return response.status, problem.get("code"), len(handle.asked)


@pytest.mark.parametrize("path", ["/livez", "/v1/topics", "/nothing", "/v1/partitions"])
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, "FOREIGN_HOST"),
        ({"Host": "127.0.0.1"}, "FOREIGN_HOST"),
        ({"Host": "evil.example:8081"}, "FOREIGN_HOST"),
        ({"Host": ""}, "FOREIGN_HOST"),
        ({"Origin": "http://evil.example"}, "FOREIGN_ORIGIN"),
        ({"Origin": "null"}, "FOREIGN_ORIGIN"),
        ({"Origin": "https://@"}, "FOREIGN_ORIGIN"),
        ({"Origin": "http://@.evil.example"}, "FOREIGN_ORIGIN"),
    ],
)
async def test_a_foreign_host_or_origin_is_403_on_every_path(path: str, headers: dict[str, str], code: str) -> None:
    assert await status_of("GET", path, headers) == (403, code, 0)


@pytest.mark.parametrize("path", ["/v1/topics", "/rpc/v1/alter-partition"])
@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
async def test_a_foreign_write_changes_nothing(path: str, headers: dict[str, str]) -> None:
    status, _, asked = await status_of("POST", path, {**JSON, **headers}, ORDERS)
    assert (status, asked) == (403, 0)


@pytest.mark.parametrize("path", ["/v1/topics", "/rpc/v1/alter-partition"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
async def test_a_write_that_a_web_page_could_send_unasked_is_415(path: str, kind: str) -> None:
    assert await status_of("POST", path, {"Content-Type": kind}, ORDERS) == (415, "UNSUPPORTED_MEDIA_TYPE", 0)


async def test_our_own_page_may_write_and_a_charset_does_no_harm() -> None:
    headers = {"Content-Type": "application/json; charset=utf-8", "Origin": "http://@"}
    assert await status_of("POST", "/v1/topics", headers, ORDERS) == (201, None, 1)


def test_localhost_is_allowed_where_loopback_is() -> None:
    assert allowed_hosts_for(["127.0.0.1:8081", "Broker-1:9000"]) == {
        "127.0.0.1:8081",
        "localhost:8081",
        "broker-1:9000",
    }


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_an_oversized_body_is_413_and_changes_nothing(is_chunked: bool) -> None:
    async def pieces() -> object:
        for _ in range(20):
            yield b" " * 1_000

    handle = FakeHandle()
    body: object = pieces() if is_chunked else b" " * 20_000
    async with (
        asking(View(), handle, Limits(api_body_max_bytes=10_000)) as client,
        client.post("/v1/topics", data=body, headers=JSON) as response,
    ):
        assert (response.status, (await response.json(content_type=None))["code"]) == (413, "BODY_TOO_LARGE")
    assert handle.asked == []


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"no gzip at all", 400), (gzip.compress(b" " * 20_000), 413)],
    ids=["not compressed", "large once unpacked"],
)
async def test_compressed_bodies_cannot_break_it(body: bytes, status: int) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}
    async with (
        asking(View(), FakeHandle(), Limits(api_body_max_bytes=10_000)) as client,
        client.post("/v1/topics", data=body, headers=headers) as response,
    ):
        assert response.status == status


POST: Final = b"POST /v1/topics HTTP/1.1\r\nHost: @\r\nContent-Type: application/json\r\n"
RAW: Final = [
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET /livez HTTP/1.1\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: @\r\nHost: evil.example\r\n\r\n",
    b"GET http://evil.example/livez HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"GET /livez HTTP/9.9\r\nHost: @\r\n\r\n",
    b"G\xffT /livez HTTP/1.1\r\nHost: @\r\n\r\n",
    POST + b"Content-Length: -1\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    POST + b"Expect: tea\r\n\r\n",
    b"GET /v1/partitions?cursor=%ed%a0%80 HTTP/1.1\r\nHost: @\r\n\r\n",
    b"GET /v1/topics/\xff\xfe HTTP/1.1\r\nHost: @\r\n\r\n",
]


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
async def test_malformed_http_is_a_4xx(raw: bytes) -> None:
    async with served(View(), FakeHandle()) as url:
        own = url.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*own.split(":"))
        writer.write(raw.replace(b"@", own.encode()))
        status_line = await asyncio.wait_for(reader.readline(), DEADLINE_S)
        writer.close()
        await writer.wait_closed()
    assert status_line.split(b" ")[1].startswith(b"4"), status_line


async def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    handle = FakeHandle()
    async with served(View(), handle) as url:
        own = url.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*own.split(":"))
        begun = POST + b"Expect: 100-continue\r\nContent-Length: 100\r\n\r\n{"
        writer.write(begun.replace(b"@", own.encode()))
        assert (await asyncio.wait_for(reader.readline(), DEADLINE_S)).split(b" ")[1] == b"100"
        writer.transport.abort()
        async with aiohttp.ClientSession(url) as client, client.get("/livez") as response:
            assert response.status == 200
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []
    assert handle.asked == []


async def test_routes_added_by_the_broker_are_guarded_and_explained_like_ours() -> None:
    async def refuse(request: web.Request) -> web.Response:
        raise web.HTTPBadRequest(text="no such part")

    with reserved() as bound:
        app = build_app(View(), FakeHandle(), listeners=[address_of(bound)], config=CONFIG)
        app.router.add_post("/rpc/v1/update-metadata", refuse)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.SockSite(runner, bound).start()
        async with aiohttp.ClientSession(f"http://{address_of(bound)}") as client:
            for headers, status, detail in (
                (JSON, 400, "no such part"),
                ({**JSON, "Host": "evil.example"}, 403, "the Host header must be one of"),
            ):
                async with client.post("/rpc/v1/update-metadata", headers=headers) as response:
                    problem = await response.json(content_type="application/problem+json")
                    assert (response.status, problem["detail"].partition(":")[0]) == (status, detail)
        await runner.cleanup()
