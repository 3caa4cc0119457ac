"""Nobody takes more than a share: connections, slow heads and bodies, headers, readers that do not read, changes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller.api.app import build_app
from controller.api.bodies import read_body
from controller.api.connections import Connections, Site
from controller.api.problems import ProblemError, problems
from controller.api.quota import CALLERS_MAX, Bucket, Quotas
from controller.config import BrokerConfig, Limits
from controller.secrets import NO_SECRETS
from controller.tls import server_context_for
from tests.security.authority import Authority
from tests.security.lab import a_lab
from tests.shell.api_support import CONFIG, Door, View, address_of, asking, reserved

PATIENT = Limits(head_timeout_ms=20_000)


@asynccontextmanager
async def a_site(
    app: web.Application, limits: Limits, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, int]]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = Site(runner, Connections(limits), "127.0.0.1", port, tls)
    await site.start()
    try:
        yield runner.addresses[0][:2]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def the_api(limits: Limits, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, int]]:
    bound = reserved()
    own = address_of(bound)
    bound.close()
    app = build_app(View(), Door(), listeners=[own], config=CONFIG, limits=limits)
    async with a_site(app, limits, int(own.partition(":")[2]), tls) as address:
        yield address


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """The status and the problem of what comes before the end."""
    raw = await asyncio.wait_for(reader.read(), 10)
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, raw
    return int(head.split(b" ")[1]), json.loads(body)["code"]


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await asyncio.wait_for(asyncio.gather(writer.wait_closed(), return_exceptions=True), 5)


async def test_a_head_that_does_not_end_is_408() -> None:
    async with the_api(Limits(head_timeout_ms=1_000)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x")
        assert await answer_of(reader) == (408, "REQUEST_TIMED_OUT")
        await close(writer)


async def test_a_head_that_does_not_end_is_408_after_a_good_request_too() -> None:
    async with the_api(Limits(head_timeout_ms=1_000)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(f"GET /livez HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert head.startswith(b"HTTP/1.1 200")
        [length] = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        await reader.readexactly(int(length.split(b":")[1]))
        writer.write(b"GET /li")
        assert await answer_of(reader) == (408, "REQUEST_TIMED_OUT")
        await close(writer)


async def test_who_says_nothing_is_closed_without_a_word() -> None:
    async with the_api(Limits(head_timeout_ms=50)) as address:
        reader, writer = await asyncio.open_connection(*address)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        await close(writer)


async def test_a_body_that_does_not_end_is_408() -> None:
    async def slow(request: web.Request) -> web.Response:
        return web.Response(body=await read_body(request, 1_000, timeout_ms=50))

    app = web.Application(middlewares=[problems])
    app.router.add_post("/", slow)
    async with a_site(app, Limits(head_timeout_ms=1_000)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        assert await answer_of(reader) == (408, "REQUEST_TIMED_OUT")
        await close(writer)


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        (Limits(connections=2), (503, "TOO_MANY_CONNECTIONS")),
        (Limits(connections_per_peer=2), (429, "TOO_MANY_CONNECTIONS")),
    ],
)
async def test_connections_beyond_the_limit_are_told_so_and_one_that_ends_makes_room(
    limits: Limits, refusal: tuple[int, str]
) -> None:
    async with the_api(limits) as address:
        kept = [await asyncio.open_connection(*address) for _ in range(2)]
        reader, writer = await asyncio.open_connection(*address)
        assert await answer_of(reader) == refusal
        await close(writer)
        await close(kept[0][1])

        async def is_served() -> bool:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(f"GET /livez HTTP/1.0\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode())
            said = await asyncio.wait_for(reader.read(), 5)
            await close(writer)
            return said.startswith(b"HTTP/1.0 200")

        async with asyncio.timeout(10):
            while not await is_served():  # noqa: ASYNC110 - nobody sets an event for it
                await asyncio.sleep(0.01)
        await close(kept[1][1])


def tls_of(authority: Authority) -> ssl.SSLContext:
    keystore = authority.keystore("server")
    return server_context_for(BrokerConfig(zookeeper_connect="", log_dirs="d", ssl_keystore_location=keystore))


async def is_served_by_tls(address: tuple[str, int], authority: Authority) -> bool:
    """Whether a request is answered; an ended connection is a no."""
    context = ssl.create_default_context(cafile=authority.trust)
    try:
        reader, writer = await asyncio.open_connection(*address, ssl=context)
    except OSError:
        return False
    writer.write(f"GET /livez HTTP/1.0\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode())
    said = await asyncio.wait_for(reader.read(), 5)
    await close(writer)
    return said.startswith(b"HTTP/1.0 200")


@pytest.mark.parametrize("limits", [Limits(connections=2), Limits(connections_per_peer=2)])
async def test_on_a_tls_listener_who_has_not_shaken_hands_counts_too(tmp_path: Path, limits: Limits) -> None:
    authority = Authority(tmp_path, "ours")
    async with the_api(limits, tls_of(authority)) as address:
        silent = [await asyncio.open_connection(*address) for _ in range(20)]
        ended = [asyncio.create_task(reader.read()) for reader, _ in silent]
        async with asyncio.timeout(5):  # far less than a head may take: these are one too many
            while sum(task.done() for task in ended) < 18:  # noqa: ASYNC110 - nobody sets an event for it
                await asyncio.sleep(0.01)
        assert [task.done() for task in ended] == [False] * 2 + [True] * 18
        assert not await is_served_by_tls(address, authority)
        await close(silent[0][1])
        async with asyncio.timeout(10):
            while not await is_served_by_tls(address, authority):  # noqa: ASYNC110 - nobody sets an event for it
                await asyncio.sleep(0.01)
        await asyncio.gather(*(close(writer) for _, writer in silent))
        await asyncio.gather(*ended, return_exceptions=True)


async def test_a_handshake_that_does_not_end_is_closed_and_makes_room(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    async with the_api(Limits(head_timeout_ms=500, connections=2), tls_of(authority)) as address:
        silent = [await asyncio.open_connection(*address) for _ in range(2)]
        silent[1][1].write(b"\x16\x03\x01\x02\x00")  # the beginning of one
        for reader, writer in silent:
            assert await asyncio.wait_for(reader.read(), 10) == b""
            await close(writer)
        assert await is_served_by_tls(address, authority)


async def test_who_does_not_read_what_it_asked_for_is_cut_off() -> None:
    gone = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 100_000)
        finally:
            gone.set()

    app = web.Application()
    app.router.add_get("/", endless)
    async with a_site(app, Limits(stall_ms=50)) as address:
        _, writer = await asyncio.open_connection(*address, limit=1_000)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(gone.wait(), 10)
        await close(writer)


async def test_a_supervisor_is_bounded_like_the_api() -> None:
    limits = Limits(head_timeout_ms=1_000, body_timeout_ms=50, connections=1)
    async with a_lab(NO_SECRETS, limits) as (lab, url):
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        beyond = await asyncio.open_connection(host, int(port))
        assert await answer_of(beyond[0]) == (503, "TOO_MANY_CONNECTIONS")
        await close(beyond[1])
        heads = f"Host: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{{"
        writer.write(f"POST /lab/v1/kill HTTP/1.1\r\n{heads}".encode())
        assert await answer_of(reader) == (408, "REQUEST_TIMED_OUT")
        await close(writer)
        assert lab.obeyed == []


@pytest.mark.parametrize(
    "head",
    [
        b"X: " + b"a" * 9_000,
        b"\r\n".join(b"X%d: a" % number for number in range(100)),
        b"\r\n".join(b"X%d: " % number + b"a" * 5_000 for number in range(4)),
        b"X" * 9_000 + b": a",
    ],
    ids=["a long value", "too many", "too much in all", "a long name"],
)
async def test_large_headers_are_431(head: bytes) -> None:
    async with the_api(PATIENT) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n" % (host.encode(), port))
        writer.write(head + b"\r\n\r\n")
        assert await answer_of(reader) == (431, "HEADERS_TOO_LARGE")
        await close(writer)


@pytest.mark.parametrize("raw", [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"\r\nA\x00B / HTTP/1.1\r\n\r\n"])
async def test_what_is_no_http_is_a_problem_that_repeats_nothing(raw: bytes) -> None:
    async with the_api(PATIENT) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(raw)
        assert await answer_of(reader) == (400, "INVALID_REQUEST")
        await close(writer)


async def test_changes_beyond_the_quota_are_429_and_never_reach_the_controller() -> None:
    door = Door()
    async with asking(View(), door, Limits(changes_per_s=0, changes_at_once=2)) as client:
        for expected in (200, 200, 429):
            async with client.post("/v1/elections", json={"type": "preferred", "partitions": None}) as response:
                said = await response.json(content_type=None)
                assert response.status == expected or (expected == 200 and response.status < 429), said
        assert (said["code"], response.headers["Retry-After"]) == ("THROTTLING_QUOTA_EXCEEDED", "1")
        assert len(door.asked) <= 2


def test_a_bucket_fills_again_and_never_over_its_brim() -> None:
    bucket = Bucket(rate=2, burst=3, now=0)
    assert [bucket.takes(0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.takes(1) for _ in range(3)] == [True, True, False]
    assert [bucket.takes(1_000) for _ in range(4)] == [True, True, True, False]


def test_callers_without_number_cost_a_bounded_memory() -> None:
    quotas = Quotas(Limits(changes_per_s=1, changes_at_once=2))
    for number in range(CALLERS_MAX):
        quotas.check_change(f"caller {number}", 0)
    with pytest.raises(ProblemError):
        quotas.check_change("one more", 0)
    quotas.check_change("one more", 10)
