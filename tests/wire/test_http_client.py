"""The HTTP client against real sockets on loopback: its requests, their times and number, and their results."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from controller.wire.client import (
    PIECE_BYTES,
    HttpClient,
    NoAnswerError,
    UnreachableError,
)

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class TooLateError(Exception):
    """The error of a guard."""


@asynccontextmanager
async def a_server(handle: Handler) -> AsyncIterator[str]:
    """A server that speaks bytes; its handlers are awaited at the end."""
    done: list[asyncio.Task[None]] = []

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(
        lambda reader, writer: done.append(asyncio.ensure_future(on_connection(reader, writer))), "127.0.0.1", 0
    )
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}/"
    finally:
        server.close()
        await asyncio.gather(*done)


@asynccontextmanager
async def a_client(check: Callable[[], None] | None = None, answer_max_bytes: int = 1_000) -> AsyncIterator[HttpClient]:
    client = HttpClient(check, answer_max_bytes=answer_max_bytes)
    try:
        yield client
    finally:
        await client.close()


async def a_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return await reader.readexactly(length)


@asynccontextmanager
async def a_real_server(handle: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/rpc", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        yield f"http://{host}:{port}/rpc"
    finally:
        await runner.cleanup()


async def test_a_real_server_gets_body_and_headers_and_its_status_and_body_come_back() -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(status=409, body=request.headers["Klamm-Event-Id"].encode() + await request.read())

    async with a_real_server(echo) as url, a_client() as client:
        assert await client.post(url, b" and a body", {"Klamm-Event-Id": "5-1"}, 60_000) == (409, b"5-1 and a body")
        assert await client.get(url, {"Klamm-Event-Id": "5-2"}, 60_000) == (409, b"5-2")


async def test_a_routed_address_is_reached_another_way_and_the_request_still_names_it() -> None:
    heads: list[bytes] = []

    async def on_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 None\r\n\r\n")

    async with a_server(on_request) as url:
        client = HttpClient(routes={"127.0.0.1:1": url.split("/")[2]})
        try:
            assert await client.get("http://127.0.0.1:1/livez?all=1", {}, 60_000) == (204, b"")
        finally:
            await client.close()
    assert heads[0].startswith(b"GET /livez?all=1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n")


async def test_a_peer_that_refuses_is_connected_to_anew_since_another_may_have_the_address_now() -> None:
    connections: list[object] = []

    async def refuse(request: web.Request) -> web.Response:
        connections.append(request.transport)
        return web.Response(status=403 if len(connections) < 3 else 200)

    async with a_real_server(refuse) as url, a_client() as client:
        said = [(await client.post(url, b"", {}, 60_000))[0] for _ in range(6)]
    assert said == [403, 403, 200, 200, 200, 200]
    first, second, third, *others = connections
    assert first is second is not third
    assert len({*others}) == 1, "a sound peer is kept"


async def test_requests_to_one_host_share_a_connection() -> None:
    connections: set[object] = set()

    async def note(request: web.Request) -> web.Response:
        connections.add(request.transport)
        return web.Response()

    async with a_real_server(note) as url, a_client() as client:
        assert [(await client.post(url, b"body", {}, 60_000))[0] for _ in range(2)] == [200, 200]
    assert len(connections) == 1


async def test_an_idle_connection_closed_by_the_server_is_not_used_again() -> None:
    bodies = []
    closed = asyncio.Event()

    async def answer_one_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append(await a_request(reader))
        writer.write(GOOD)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with a_server(answer_one_and_close) as url, a_server(answer_one_and_close) as other, a_client() as client:
        await client.post(url, b"first", {}, 60_000)
        await closed.wait()
        await client.post(other, b"elsewhere", {}, 60_000)  # a round trip: the loop has seen the end of the stream
        assert await client.post(url, b"second", {}, 60_000) == (200, b"ok")
    assert bodies == [b"first", b"elsewhere", b"second"]


async def test_a_reused_connection_that_breaks_is_no_answer_and_the_post_is_not_sent_again() -> None:
    bodies = []

    async def break_at_the_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append(await a_request(reader))
        writer.write(GOOD)
        bodies.append(await a_request(reader))

    async with a_server(break_at_the_second) as url, a_client() as client:
        await client.post(url, b"first", {}, 60_000)
        with pytest.raises(NoAnswerError):
            await client.post(url, b"second", {}, 60_000)
    assert bodies == [b"first", b"second"]


async def test_a_guard_that_refuses_after_the_connection_stands_lets_no_byte_out_and_closes_it() -> None:
    received = []

    async def listen(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())

    def check() -> None:
        raise TooLateError

    async with a_server(listen) as url, a_client(check) as client:
        with pytest.raises(TooLateError):
            await client.post(url, b"body", {}, 60_000)
        with pytest.raises(TooLateError):
            await client.get(url, {}, 60_000)
    assert received == [b"", b""]  # connected, nothing came, end of the stream


async def test_a_guard_that_refuses_on_a_reused_connection_lets_no_byte_out() -> None:
    bodies = []
    is_over = False

    async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append(await a_request(reader))
        writer.write(GOOD)
        bodies.append(await reader.read())

    def check() -> None:
        if is_over:
            raise TooLateError

    async with a_server(answer_all) as url, a_client(check) as client:
        await client.post(url, b"in time", {}, 60_000)
        is_over = True
        with pytest.raises(TooLateError):
            await client.post(url, b"too late", {}, 60_000)
    assert bodies == [b"in time", b""]


async def test_a_guard_that_refuses_in_the_middle_of_a_body_leaves_the_request_incomplete() -> None:
    asked = 0
    complete = []

    async def listen(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        with pytest.raises(asyncio.IncompleteReadError):
            complete.append(await a_request(reader))

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked >= 3:
            raise TooLateError

    async with a_server(listen) as url, a_client(check) as client:
        with pytest.raises(TooLateError):
            await client.post(url, bytes(4 * PIECE_BYTES), {}, 60_000)
    assert complete == []


async def test_without_a_connection_it_is_unreachable_and_the_guard_is_not_even_asked() -> None:
    asked = []
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, not listening: refused
        async with a_client(lambda: asked.append(1)) as client:
            with pytest.raises(UnreachableError, match="POST http://127"):
                await client.post(f"http://127.0.0.1:{held.getsockname()[1]}/", b"body", {}, 60_000)
            with pytest.raises(UnreachableError):
                await client.post("no address at all", b"body", {}, 60_000)
    assert asked == []


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="closed without a word"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="bad status line"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", id="cut off"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", id="bad chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + bytes(5_000), id="larger than allowed"),
    ],
)
async def test_sent_without_a_usable_answer_is_no_answer(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await a_request(reader)
        writer.write(answer)

    async with a_server(reply) as url, a_client() as client:
        with pytest.raises(NoAnswerError):
            await client.post(url, b"body", {}, 60_000)


async def test_an_answer_that_does_not_end_in_time_or_in_size_is_given_up_and_its_connection_closed() -> None:
    ended = []

    async def never_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await a_request(reader) == b"endless":
            writer.write(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + bytes(1_000) + b"\r\n3e8\r\n"
            )
            writer.write(bytes(1_000))
        ended.append(await reader.read())

    async with a_server(never_end) as url, a_client() as client:
        with pytest.raises(NoAnswerError, match="larger than 1000 bytes"):
            await client.post(url, b"endless", {}, 60_000)
        with pytest.raises(NoAnswerError):
            await client.post(url, b"silent", {}, 50)
    assert ended == [b"", b""]


async def test_a_large_body_arrives_whole() -> None:
    bodies = []

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append(await a_request(reader))
        writer.write(GOOD)

    body = bytes(range(256)) * 20_000  # 5 MB
    async with a_server(count) as url, a_client() as client:
        assert await client.post(url, body, {}, 10_000) == (200, b"ok")
    assert bodies == [body]


async def test_a_cancelled_request_closes_its_connection() -> None:
    got = asyncio.Event()
    rest = []

    async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await a_request(reader)
        got.set()
        rest.append(await reader.read())

    async with a_server(hang) as url, a_client() as client:
        request = asyncio.ensure_future(client.post(url, b"body", {}, 60_000))
        await got.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
    assert rest == [b""]
