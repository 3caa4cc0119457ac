"""The proxy that follows HTTP: messages pass unchanged however they are cut, and each fault happens to one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientError, ClientSession, web
from hypothesis import given
from hypothesis import strategies as st

from brokerstub.lab.http_proxy import FOREIGN, GARBAGE, Exchange, HttpProxy, HttpScanner
from tests.waiting import DEADLINE_S

REQUEST = b"POST /rpc/v1/fetch HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
BARE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@given(st.lists(st.sampled_from([REQUEST, BARE, ANSWER]), max_size=5), st.lists(st.integers(1, 60), max_size=30))
def test_messages_are_found_however_the_bytes_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    scanner, sent, found, passed = HttpScanner(), b"".join(messages), [], b""
    while sent:
        size = cuts.pop() if cuts else len(sent)
        chunk, sent = sent[:size], sent[size:]
        for head, piece in scanner.pieces(chunk):
            passed += piece
            found += [] if head is None else [head.total_bytes]
    assert (found, passed) == ([len(one) for one in messages], b"".join(messages))


@pytest.mark.parametrize(
    "foreign",
    [b"\x16\x03\x01", b"hello", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
)
def test_bytes_that_cannot_be_cut_into_messages_pass_at_once(foreign: bytes) -> None:
    assert list(HttpScanner().pieces(foreign)) == [(FOREIGN, foreign)]


class Server:
    """Answers with how often it was asked."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.asked = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        self.asked.set()
        return web.json_response(len(self.bodies))


@asynccontextmanager
async def a_proxy() -> AsyncIterator[tuple[HttpProxy, Server, ClientSession]]:
    server, app = Server(), web.Application()
    app.router.add_post("/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    proxy = HttpProxy(runner.addresses[0][:2])
    await proxy.start()
    async with ClientSession() as client:
        try:
            yield proxy, server, client
        finally:
            await proxy.close()
            await runner.cleanup()


async def ask(proxy: HttpProxy, client: ClientSession, path: str = "/rpc/v1/fetch", body: bytes = b"x" * 999) -> object:
    async with client.post(f"http://{proxy.address}{path}", data=body) as answer:
        return await answer.json() if answer.status == 200 else answer.status


async def test_requests_pass_and_the_witness_hears_of_each() -> None:
    async with a_proxy() as (proxy, server, client):
        heard: list[Exchange] = []
        proxy.witness = heard.append
        assert [await ask(proxy, client, body=bytes([n]) * 100_000) for n in range(3)] == [1, 2, 3]
        asked, answered = heard[::2], heard[1::2]
        assert [one.path for one in heard] == ["/rpc/v1/fetch"] * 6
        assert [one.request[-100_000:] for one in asked] == server.bodies
        assert [one.answer[-1:] for one in heard] == [b"", b"1", b"", b"2", b"", b"3"]
        assert [(one.request, one.arrived_ms) for one in asked] == [(one.request, one.arrived_ms) for one in answered]
        assert proxy.is_followed


async def test_an_answer_is_lost_after_the_request_was_obeyed() -> None:
    async with a_proxy() as (proxy, server, client):
        happened = proxy.lose_answer("/rpc/", skip=1)
        assert await ask(proxy, client, "/v1/topics") == 1
        assert await ask(proxy, client) == 2
        assert not happened.is_set()
        with pytest.raises(ClientError):
            await ask(proxy, client)
        assert (happened.is_set(), len(server.bodies)) == (True, 3)
        assert await ask(proxy, client) == 4


async def test_a_dropped_request_never_arrives() -> None:
    async with a_proxy() as (proxy, server, client):
        happened = proxy.drop_request()
        with pytest.raises(ClientError):
            await ask(proxy, client)
        assert (happened.is_set(), server.bodies) == (True, [])
        proxy.drop_request()
        proxy.disarm()
        assert await ask(proxy, client) == 1


async def test_a_doubled_request_arrives_twice_byte_by_byte() -> None:
    async with a_proxy() as (proxy, server, client):
        happened = proxy.double()
        assert await ask(proxy, client, body=b"y" * 200_000) == 1
        assert happened.is_set()
        server.asked.clear()
        while len(server.bodies) < 2:
            await asyncio.wait_for(server.asked.wait(), DEADLINE_S)
            server.asked.clear()
        assert server.bodies == [b"y" * 200_000] * 2


@pytest.mark.parametrize("kind", sorted(GARBAGE))
async def test_an_answer_is_replaced_by_garbage_and_the_request_was_obeyed(kind: str) -> None:
    async with a_proxy() as (proxy, server, client):
        happened = proxy.garble(kind)
        if kind == "error":
            assert await ask(proxy, client) == 500
        else:
            with pytest.raises((ClientError, ValueError)):
                await ask(proxy, client)
        assert (happened.is_set(), len(server.bodies)) == (True, 1)
        assert await ask(proxy, client) == 2


@pytest.mark.parametrize("size", [3, 200_000])
async def test_some_requests_are_answered_in_their_receivers_stead_and_all_others_pass_whole(size: int) -> None:
    async with a_proxy() as (proxy, server, client):
        refused = b"x" * size

        def answer(request: bytes) -> bytes | None:
            return (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n-1"
                if request.endswith(refused)
                else None
            )

        proxy.steads["/a"] = answer
        assert await ask(proxy, client, path="/a", body=refused) == -1
        assert server.bodies == []
        assert await ask(proxy, client, path="/a", body=b"y" * size) == 1
        assert await ask(proxy, client, path="/b", body=refused) == 2
        proxy.steads.clear()
        assert await ask(proxy, client, path="/a", body=refused) == 3
        assert server.bodies == [b"y" * size, refused, refused]
