"""The stream of events over real HTTP: its lines, how it is resumed, which readers are dropped, and when it ends."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest

from controller.base.config import LIMITS, Limits
from controller.core.project.lines import Line
from controller.statelog.journal import RecentLines
from tests.api.api_support import (
    FakeHandle,
    View,
    asking,
    served,
)
from tests.support.harness import a_broker as a_registered
from tests.support.harness import a_controller, a_server, until
from tests.waiting import DEADLINE_S

EPOCH = 4
KINDS = ("partition", "broker", "topic", "reassignment", "replica", "controller")


class Frame(NamedTuple):
    id: str
    kind: str
    data: dict[str, Any]


def a_line(kind: str = "partition", **more: Any) -> Line:
    return Line(at_ms=1, cluster_id="c", controller_id=1, controller_epoch=EPOCH, kind=kind, event_id="4-1", **more)


def a_leader(count: int = 0, *, lines_kept: int = 10_000) -> tuple[FakeHandle, RecentLines]:
    """A handle whose term has made `count` decisions; line n is about partition n."""
    handle, recent_lines = FakeHandle(), RecentLines(EPOCH, lines_kept)
    recent_lines.accept([a_line(topic="orders", partition=number) for number in range(1, count + 1)])
    handle.recent_lines = recent_lines
    return handle, recent_lines


class Stream:
    """The frames that a subscriber gets, one at a time."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.comments: list[str] = []

    async def block(self) -> str | None:
        """Returns the text between two blank lines; None at the end."""
        lines: list[str] = []
        while line := await asyncio.wait_for(self.response.content.readline(), DEADLINE_S):
            if line == b"\n":
                return "".join(lines)
            lines.append(line.decode())
        return None

    async def frame(self) -> Frame | None:
        """The next event; None at the end."""
        while (block := await self.block()) is not None:
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "data" in fields:
                return Frame(fields["id"], fields["event"], json.loads(fields["data"]))
            self.comments += [line for line in block.splitlines() if line.startswith(":")]
        return None

    async def ids(self, count: int) -> list[str]:
        frames = [await self.frame() for _ in range(count)]
        return [frame.id for frame in frames if frame is not None]


@asynccontextmanager
async def listening(client: aiohttp.ClientSession, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.get(f"/v1/events{query}", headers=sent) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream"), await response.text()
        yield Stream(response)


async def test_each_line_is_an_event_of_its_kind_with_an_id_that_rises() -> None:
    handle, recent_lines = a_leader()
    async with asking(View(), handle) as client, listening(client) as stream:
        recent_lines.accept([a_line(kind) for kind in KINDS])
        frames = [await stream.frame() for _ in KINDS]
        assert [frame and (frame.id, frame.kind, frame.data["kind"]) for frame in frames] == [
            (f"4-{number}", kind, kind) for number, kind in enumerate(KINDS, 1)
        ]
        assert stream.response.headers["Klamm-Controller-Epoch"] == "4"


async def test_the_past_comes_first_as_far_as_asked() -> None:
    handle, recent_lines = a_leader(5)
    async with asking(View(), handle) as client:
        async with listening(client, "?last=2") as stream:
            assert await stream.ids(2) == ["4-4", "4-5"]
        async with listening(client) as stream:
            recent_lines.accept([a_line()])
            assert await stream.ids(1) == ["4-6"]


async def test_a_stream_goes_on_after_the_last_id_that_was_had() -> None:
    handle, recent_lines = a_leader(5)
    async with asking(View(), handle) as client, listening(client, "?last=1", Last_Event_ID="4-2") as stream:
        assert await stream.ids(3) == ["4-3", "4-4", "4-5"]
        recent_lines.accept([a_line()])
        assert await stream.ids(1) == ["4-6"]


@pytest.mark.parametrize("last_id", ["3-12", "5-1", "4-1", "4-6", "4-", "4", "x-y", "4-²", "4--1", "9" * 40 + "-1"])
async def test_an_id_that_cannot_be_resumed_gets_one_reset_with_the_present_state(last_id: str) -> None:
    handle, recent_lines = a_leader(5, lines_kept=3)  # 1 and 2 are forgotten; to go on after 2 is possible
    async with asking(View(), handle) as client, listening(client, Last_Event_ID=last_id) as stream:
        frame = await stream.frame()
        assert frame is not None
        assert (frame.id, frame.kind, frame.data["controller"]["controller_epoch"]) == ("4-5", "reset", EPOCH)
        recent_lines.accept([a_line()])
        assert await stream.ids(1) == ["4-6"]


async def test_after_a_reset_the_past_comes_as_far_as_asked() -> None:
    handle, _ = a_leader(5, lines_kept=3)
    async with asking(View(), handle) as client, listening(client, "?last=9", Last_Event_ID="3-1") as stream:
        frames = [await stream.frame() for _ in range(4)]
        assert [frame and (frame.id, frame.kind) for frame in frames] == [
            ("4-2", "reset"),
            *((f"4-{number}", "partition") for number in (3, 4, 5)),
        ]


async def test_a_burst_larger_than_the_kept_lines_is_a_reset_to_subscribers() -> None:
    handle, recent_lines = a_leader(lines_kept=3)
    async with asking(View(), handle) as client, listening(client) as stream:
        await stream.block()  # it has begun
        recent_lines.accept([a_line() for _ in range(7)])
        frames = [await stream.frame() for _ in range(4)]
        assert [frame and (frame.id, frame.kind) for frame in frames][:2] == [("4-4", "reset"), ("4-5", "partition")]


async def test_the_stream_ends_with_the_term_after_its_last_line() -> None:
    handle, recent_lines = a_leader(1)
    async with asking(View(), handle) as client, listening(client, "?last=1") as stream:
        recent_lines.accept([a_line()])
        recent_lines.close()
        assert await stream.ids(2) == ["4-1", "4-2"]
        assert await stream.frame() is None


async def test_silence_is_filled_with_comments() -> None:
    handle, _ = a_leader()
    async with asking(View(), handle, Limits(event_heartbeat_ms=5)) as client, listening(client) as stream:
        assert await stream.block() == "retry: 1000\n"
        assert await stream.block() == ": nothing new\n"


@pytest.mark.slow
async def test_a_hundred_subscribers_all_get_ten_thousand_changes() -> None:
    count, subscribers = 10_000, 100
    handle, recent_lines = a_leader()
    lines = [a_line(topic="orders", partition=number) for number in range(count)]
    began: asyncio.Semaphore = asyncio.Semaphore(0)

    async def listen(client: aiohttp.ClientSession) -> list[int]:
        """The numbers of the lines, as they came."""
        async with listening(client) as stream:
            began.release()
            got = bytearray()
            while not got.endswith(b"\n\n") or b"id: 4-%d\n" % count not in got[-2_000:]:
                got += await asyncio.wait_for(stream.response.content.readany(), 60)
        return [int(number) for number in re.findall(rb"^id: 4-(\d+)$", got, re.MULTILINE)]

    limits = Limits(event_subscribers_per_caller=subscribers)
    async with asking(View(), handle, limits) as client, asyncio.TaskGroup() as group:
        listeners = [group.create_task(listen(client)) for _ in range(subscribers)]
        for _ in range(subscribers):
            await began.acquire()
        for start in range(0, count, 500):
            handle.inbox_depth = int(start < count - 500)  # it works until the last of them
            recent_lines.accept(lines[start : start + 500])
            await asyncio.sleep(0)
    assert all(listener.result() == list(range(1, count + 1)) for listener in listeners)


async def test_a_controller_that_works_is_given_way_but_not_for_ever() -> None:
    handle, recent_lines = a_leader()
    limits = msgspec.structs.replace(LIMITS, event_gives_way_ms=200)
    async with asking(View(), handle, limits) as client, listening(client) as stream:
        loop = asyncio.get_running_loop()
        handle.inbox_depth = 1
        started = loop.time()
        recent_lines.accept([a_line()])
        assert await stream.ids(1) == ["4-1"]
        assert loop.time() - started >= 0.2
        handle.inbox_depth = 0
        recent_lines.accept([a_line()])
        assert await stream.ids(1) == ["4-2"]


async def test_a_subscriber_that_does_not_read_is_dropped_and_the_others_are_not() -> None:
    handle, recent_lines = a_leader()
    limits = msgspec.structs.replace(LIMITS, event_write_timeout_ms=100, event_subscribers=2)
    async with asking(View(), handle, limits) as client, listening(client) as reads:
        async with listening(client) as idle:
            sent = 0
            while True:  # until the buffers of the connection are full, and it is dropped: then there is room for one
                recent_lines.accept([a_line(reason="x" * 20_000) for _ in range(100)])
                sent += 100
                assert await reads.ids(100) == [f"4-{number}" for number in range(sent - 99, sent + 1)]
                async with client.get("/v1/events") as response:
                    if response.status == 200:
                        break
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                await idle.response.read()
        recent_lines.accept([a_line()])
        assert await reads.ids(1) == [f"4-{sent + 1}"]


async def test_there_is_a_limit_to_the_streams_of_a_process() -> None:
    handle, _ = a_leader()
    async with (
        asking(View(), handle, Limits(event_subscribers=1)) as client,
        listening(client),
        client.get("/v1/events") as response,
    ):
        problem = await response.json(content_type="application/problem+json")
        assert (response.status, problem["code"], response.headers["Retry-After"]) == (503, "BUSY", "1")


async def test_a_stream_does_not_keep_a_process_from_ending() -> None:
    handle, _ = a_leader()
    async with aiohttp.ClientSession() as client:
        async with served(View(), handle, shutdown_timeout_s=3_600) as url:  # so long it waits for handlers
            response = await client.get(f"{url}/v1/events")
        response.close()


async def test_a_term_has_a_stream_of_its_own_until_it_is_over() -> None:
    server = await a_server()
    await a_registered(server, 1)
    async with a_controller(server) as node:
        await until(lambda: node.handle.is_active)
        recent_lines = node.held.recent_lines
        assert recent_lines is not None
        assert recent_lines.controller_epoch == node.handle.controller_epoch
        assert [entry.line for entry in recent_lines.after(0)] == node.heard.lines
    assert recent_lines.is_closed
    assert node.handle.term is None
