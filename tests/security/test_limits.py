"""No client takes more than a share: connections, slow heads and bodies, headers, slow readers, changes."""

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

from brokerstub.lab.ports import free_port
from controller.api.bodies import read_body
from controller.api.middleware.access import Gate, guard_for, nobody
from controller.api.middleware.connections import BoundedListener, Connections
from controller.api.middleware.quota import CALLERS_MAX, Bucket, Quotas
from controller.api.problems import ProblemError, problems
from controller.api.reader_turns import ReaderTurns
from controller.api.serve.app import build_app
from controller.base.config import BrokerConfig, Limits
from controller.security.secrets import NO_SECRETS
from controller.security.tls import server_context_for
from tests.api.api_support import (
    CONFIG,
    FakeHandle,
    View,
    asking,
)
from tests.security.authority import Authority
from tests.security.lab import a_lab
from tests.waiting import DEADLINE_S, until

HOUR_MS = 3_600_000
PATIENT = Limits(head_timeout_ms=HOUR_MS)


@asynccontextmanager
async def a_site(
    app: web.Application, limits: Limits, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, int]]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = BoundedListener(runner, Connections(limits), "127.0.0.1", port, tls)
    await site.start()
    try:
        yield runner.addresses[0][:2]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def the_api(limits: Limits, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, int]]:
    own = f"127.0.0.1:{free_port()}"
    app = build_app(View(), FakeHandle(), listeners=[own], config=CONFIG, limits=limits)
    async with a_site(app, limits, int(own.partition(":")[2]), tls) as address:
        yield address


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """Returns the status and the problem before the end."""
    raw = await asyncio.wait_for(reader.read(), DEADLINE_S)
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, raw
    return int(head.split(b" ")[1]), json.loads(body)["code"]


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await asyncio.wait_for(asyncio.gather(writer.wait_closed(), return_exceptions=True), DEADLINE_S)


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
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
        assert head.startswith(b"HTTP/1.1 200")
        [length] = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        await reader.readexactly(int(length.split(b":")[1]))
        writer.write(b"GET /li")
        assert await answer_of(reader) == (408, "REQUEST_TIMED_OUT")
        await close(writer)


async def test_a_silent_connection_is_closed_without_a_word() -> None:
    async with the_api(Limits(head_timeout_ms=50)) as address:
        reader, writer = await asyncio.open_connection(*address)
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
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


SMALL = [
    (Limits(connections=2, head_timeout_ms=HOUR_MS, body_timeout_ms=HOUR_MS), (503, "TOO_MANY_CONNECTIONS")),
    (Limits(connections_per_peer=2, head_timeout_ms=HOUR_MS, body_timeout_ms=HOUR_MS), (429, "TOO_MANY_CONNECTIONS")),
]


def change_for(address: tuple[str, int], *, keeps: bool = True) -> bytes:
    """Its body does not come: a command that is being served."""
    head = f"POST /v1/topics HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nContent-Type: application/json\r\n"
    return f"{head}Connection: {'keep-alive' if keeps else 'close'}\r\nContent-Length: 2\r\n\r\n".encode()


def read_for(address: tuple[str, int], path: str = "/livez") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode()


async def status_of(reader: asyncio.StreamReader) -> int:
    """Of the next answer, which is taken whole; 0 when the connection has ended."""
    head = await asyncio.wait_for(reader.readline(), DEADLINE_S)
    length = 0
    while (line := await asyncio.wait_for(reader.readline(), DEADLINE_S)).strip():
        name, _, value = line.decode().partition(":")
        length = int(value) if name.lower() == "content-length" else length
    await reader.readexactly(length)
    return int(head.split(b" ")[1]) if head else 0


@pytest.mark.parametrize("limits", [limits for limits, _ in SMALL], ids=["in all", "of one peer"])
async def test_a_silent_connection_keeps_no_other_out(limits: Limits) -> None:
    """A hundred connections that ask for nothing, or are kept alive after a read: each new one is served."""
    async with the_api(limits) as address:
        kept = []
        for number in range(100):
            reader, writer = await asyncio.open_connection(*address)
            kept.append((reader, writer))
            if number % 2:
                writer.write(read_for(address))
                assert await status_of(reader) == 200
        assert [await asyncio.wait_for(reader.read(), DEADLINE_S) for reader, _ in kept[:-2]] == [b""] * 98
        kept[-1][1].write(read_for(address))
        assert await status_of(kept[-1][0]) == 200, "the newest one still has its place"
        await asyncio.gather(*(close(writer) for _, writer in kept))


@pytest.mark.parametrize("limits", [limits for limits, _ in SMALL], ids=["in all", "of one peer"])
async def test_a_stream_gives_way_to_a_command(limits: Limits) -> None:
    over = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await over.wait()
        return response

    async def change(_: web.Request) -> web.Response:
        return web.Response(status=201)

    own = f"127.0.0.1:{free_port()}"
    app = web.Application(middlewares=[problems, guard_for([own], Gate(NO_SECRETS, nobody, limits))])
    app.router.add_get("/v1/events", stream)
    app.router.add_post("/v1/topics", change)
    async with a_site(app, limits, int(own.partition(":")[2])) as address:
        opened = []
        for ask, status in ((read_for(address, "/v1/events"), 200), (change_for(address) + b"{}", 201)):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(ask)
            assert await status_of(reader) == status
            opened.append((reader, writer))
        reader, writer = await asyncio.open_connection(*address)
        writer.write(change_for(address) + b"{}")
        assert await status_of(reader) == 201
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(opened[0][0].readexactly(1), DEADLINE_S)
        opened[1][1].write(change_for(address) + b"{}")
        assert await status_of(opened[1][0]) == 201, "a connection that waits to change something is the last to go"
        over.set()
        await asyncio.gather(close(writer), *(close(one) for _, one in opened))


@pytest.mark.parametrize(("limits", "refusal"), SMALL, ids=["in all", "of one peer"])
async def test_where_all_work_for_a_change_a_new_connection_is_told_so_and_one_that_ends_makes_room(
    limits: Limits, refusal: tuple[int, str]
) -> None:
    async with the_api(limits) as address:
        working = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(change_for(address, keeps=False))
            working.append((reader, writer))

        async def is_refused() -> bool:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(read_for(address))
            said = await asyncio.wait_for(reader.read(400), DEADLINE_S)
            await close(writer)
            return said.startswith(f"HTTP/1.1 {refusal[0]} {refusal[1]}".encode())

        await until(is_refused, "both changes have begun")
        working[0][1].write(b"{}")
        assert await status_of(working[0][0]) == 400
        assert await asyncio.wait_for(working[0][0].read(), DEADLINE_S) == b""

        async def is_served() -> bool:
            return not await is_refused()

        await until(is_served, "the one that has ended makes room")
        working[1][1].write(b"{}")
        assert await status_of(working[1][0]) == 400, "no other took its place"
        await asyncio.gather(*(close(writer) for _, writer in working))


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
    said = await asyncio.wait_for(reader.read(), DEADLINE_S)
    await close(writer)
    return said.startswith(b"HTTP/1.0 200")


@pytest.mark.parametrize(
    "limits",
    [Limits(connections=2, head_timeout_ms=HOUR_MS), Limits(connections_per_peer=2, head_timeout_ms=HOUR_MS)],
)
async def test_on_a_tls_listener_a_connection_before_its_handshake_counts_too(tmp_path: Path, limits: Limits) -> None:
    authority = Authority(tmp_path, "ours")
    async with the_api(limits, tls_of(authority)) as address:
        silent = [await asyncio.open_connection(*address) for _ in range(20)]
        ended = [asyncio.create_task(reader.read()) for reader, _ in silent]
        await until(lambda: sum(task.done() for task in ended) == 18, "these were one too many")  # a head has an hour
        assert [task.done() for task in ended] == [True] * 18 + [False] * 2
        assert await is_served_by_tls(address, authority)
        await until(ended[18].done, "the one that was silent for longest has given way")
        assert not ended[19].done()
        await asyncio.gather(*(close(writer) for _, writer in silent))
        await asyncio.gather(*ended, return_exceptions=True)


async def test_a_handshake_that_does_not_end_is_closed_and_makes_room(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    async with the_api(Limits(head_timeout_ms=2_000, connections=2), tls_of(authority)) as address:
        silent = [await asyncio.open_connection(*address) for _ in range(2)]
        silent[1][1].write(b"\x16\x03\x01\x02\x00")  # the beginning of one
        for reader, writer in silent:
            assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
            await close(writer)
        assert await is_served_by_tls(address, authority)


async def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
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
        await asyncio.wait_for(gone.wait(), DEADLINE_S)
        await close(writer)


async def test_a_supervisor_is_bounded_like_the_api() -> None:
    limits = Limits(head_timeout_ms=1_000, body_timeout_ms=50, connections=1)
    async with a_lab(NO_SECRETS, limits) as (lab, url):
        host, _, port = url.removeprefix("http://").partition(":")
        silent = await asyncio.open_connection(host, int(port))
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await asyncio.wait_for(silent[0].read(), DEADLINE_S) == b""
        await close(silent[1])
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
async def test_bytes_that_are_no_http_get_a_problem_that_repeats_nothing(raw: bytes) -> None:
    async with the_api(PATIENT) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(raw)
        assert await answer_of(reader) == (400, "INVALID_REQUEST")
        await close(writer)


async def test_changes_beyond_the_quota_are_429_and_never_reach_the_controller() -> None:
    handle = FakeHandle()
    async with asking(View(), handle, Limits(changes_per_s=0, changes_at_once=2)) as client:
        for expected in (200, 200, 429):
            async with client.post("/v1/elections", json={"type": "preferred", "partitions": None}) as response:
                said = await response.json(content_type=None)
                assert response.status == expected or (expected == 200 and response.status < 429), said
        assert (said["code"], response.headers["Retry-After"]) == ("THROTTLING_QUOTA_EXCEEDED", "1")
        assert len(handle.asked) <= 2


def test_a_bucket_fills_again_and_never_over_its_brim() -> None:
    bucket = Bucket(rate=2, burst=3, now=0)
    assert [bucket.takes(0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.takes(1) for _ in range(3)] == [True, True, False]
    assert [bucket.takes(1_000) for _ in range(4)] == [True, True, True, False]


def test_callers_without_number_cost_a_bounded_memory() -> None:
    quotas = Quotas(Limits(changes_per_s=1, changes_at_once=2), ReaderTurns())
    for number in range(CALLERS_MAX):
        quotas.check_change(f"caller {number}", 0)
    with pytest.raises(ProblemError):
        quotas.check_change("one more", 0)
    quotas.check_change("one more", 10)
