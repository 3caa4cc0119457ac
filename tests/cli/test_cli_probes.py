"""How long a command waits for a silent broker as it looks for the one that knows best: real sockets, virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.cli.output import UnreachableClusterError
from controller.cli.remote import Remote
from tests.contract.virtual import in_virtual_time

NEVER_S = 1e9
SINCE = "2023-11-14T22:13:20.123Z"


@asynccontextmanager
async def brokers(*told: tuple[float, int, str | None]) -> AsyncIterator[list[str]]:
    """Their addresses. Of each: after how long it answers, the epoch that it knows, and since when it controls."""

    answering: set[asyncio.Task[None]] = set()

    async def serve(after_s: float, epoch: int, since: str | None) -> asyncio.Server:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            answering.add(task)
            body = json.dumps({"controller_epoch": epoch, "since": since, "phase": "active"}).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            try:
                await reader.readuntil(b"\r\n\r\n")
                await asyncio.sleep(after_s)
                writer.write(head + body)
                await writer.drain()
            finally:
                writer.close()

        return await asyncio.start_server(answer, "127.0.0.1", 0)

    servers = [await serve(*one) for one in told]
    try:
        yield [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    finally:
        for server in servers:
            server.close()
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)


@pytest.mark.parametrize(
    ("told", "chosen", "waited_s"),
    [
        pytest.param([(0.0, 4, None), (NEVER_S, 5, SINCE)], 0, 1, id="another has answered"),
        pytest.param([(0.0, 4, None), (0.7, 5, None), (NEVER_S, 6, SINCE)], 1, 1, id="others have answered"),
        pytest.param([(3.0, 4, None), (NEVER_S, 5, SINCE)], 0, 3, id="another has answered late"),
        pytest.param([(3.0, 4, None)], 0, 3, id="it is alone and slow"),
        pytest.param([(NEVER_S, 4, None), (0.5, 5, SINCE)], 1, 0.5, id="the controller has answered"),
    ],
)
@in_virtual_time
async def test_a_silent_broker_is_waited_for(
    told: list[tuple[float, int, str | None]], chosen: int, waited_s: float
) -> None:
    async with brokers(*told) as urls, Remote(urls) as remote:
        began = asyncio.get_running_loop().time()
        assert await remote.home() == urls[chosen]
        assert asyncio.get_running_loop().time() - began == pytest.approx(waited_s)


@in_virtual_time
async def test_where_all_are_silent_the_cluster_is_out_of_reach_after_five_seconds() -> None:
    async with brokers((NEVER_S, 4, None), (NEVER_S, 5, SINCE)) as urls, Remote(urls) as remote:
        began = asyncio.get_running_loop().time()
        with pytest.raises(UnreachableClusterError, match="cannot reach a cluster at"):
            await remote.home()
        assert asyncio.get_running_loop().time() - began == pytest.approx(5)
