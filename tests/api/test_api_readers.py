"""Any number of badly behaved readers: how much one turn of the event loop does for them, how often an answer is made
for all of them, and which requests wait for them. Rounds of the loop, rows and bytes are counted, never time.
"""

from __future__ import annotations

import asyncio
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]  # where bytes leave
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import aiohttp
import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from controller.api.listing import Piece
from controller.api.metrics import PARTITION_GAUGES, Exposition, PartitionSeries
from controller.api.middleware.quota import ConcurrencyLimit
from controller.api.ports import TopicView
from controller.api.problems import ProblemError
from controller.api.reader_turns import ReaderTurns, SharedAnswers
from controller.base.config import LIMITS, Limits
from controller.statelog.journal import RecentLines
from controller.wire.bodies import PartitionRow
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    asking,
    served,
)
from tests.builders import a_cluster
from tests.faults.simulate.loop import VirtualLoop

READERS = 20
#: reads of a topic: for the answer, for the counts that it rests on or the process's own sample does, for its series
MADE_ONCE = 3


class Rounds:
    """Of the running loop: the work of each round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop: Any = asyncio.get_running_loop()
        run_once = loop._run_once
        self.number = 0
        self.rows: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()

        def counted() -> None:
            self.number += 1
            run_once()

        write = _SelectorSocketTransport.write

        def written(transport: Any, data: Any) -> None:
            self.bytes[self.number] += len(data)
            write(transport, data)

        monkeypatch.setattr(loop, "_run_once", counted)
        monkeypatch.setattr(_SelectorSocketTransport, "write", written)


class WatchedRow:
    """A row that says in which rounds it is looked at; its number says nothing, since all are put in order by it."""

    def __init__(self, row: PartitionRow, on_look: Callable[[WatchedRow], None]) -> None:
        self._row = row
        self._on_look = on_look
        self.partition = row.partition
        self.seen_in = 0

    def __getattr__(self, name: str) -> Any:
        self._on_look(self)
        return getattr(self._row, name)


class WatchedView(View):
    """Topics of so many partitions each; a broker that is gone led some of them."""

    def __init__(self, rounds: Rounds, sizes: Sequence[int]) -> None:
        super().__init__(brokers=[a_broker(1), a_broker(2), a_broker(3, "gone")])
        self._rounds = rounds
        self.read: Counter[str] = Counter()
        for number, size in enumerate(sizes):
            name = f"topic-{number:05}"
            rows = [
                WatchedRow(a_row(one, 1 + one % 3, [1, 2, 3], [1 + one % 3, 2, 3]), self._look) for one in range(size)
            ]
            self.by_name[name] = TopicView(name, f"id-of-{name}", cast(Sequence[PartitionRow], rows))

    def _look(self, row: WatchedRow) -> None:
        if row.seen_in != self._rounds.number:
            row.seen_in = self._rounds.number
            self._rounds.rows[self._rounds.number] += 1

    def topic(self, name: str) -> TopicView | None:
        self.read[name] += 1
        return super().topic(name)


def a_leading_handle() -> FakeHandle:
    handle = FakeHandle()
    handle.cluster = a_cluster(live=(1, 2, 3))
    return handle


COSTLY = [
    "/metrics",
    "/v1/matrix",
    "/v1/partitions?limit=10000",
    "/v1/partitions?state=offline",
    "/v1/topics?limit=10000",
    "/v1/topics/topic-00000/partitions?limit=10000",
    "/v1/topics/topic-00000",
    "/v1/cluster",
    "/v1/brokers",
    "/healthz/cluster",
]
SHAPES = {"topics of 50": [50] * 60, "one topic of 25,000": [25_000], "topics of one": [1] * 3_000}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("path", COSTLY)
async def test_no_round_of_the_loop_does_more_for_all_readers_than_one_turn(
    path: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(monkeypatch)
    view = WatchedView(rounds, SHAPES[shape])
    limits = Limits(costly_per_caller=READERS, partitions_per_exposition=30_000)

    async def ask(client: aiohttp.ClientSession) -> bytes:
        async with client.get(path) as response:
            assert response.status in (200, 503), await response.text()  # of health: it is red
            return await response.read()

    async with asking(view, a_leading_handle(), limits) as client:
        bodies = await asyncio.gather(*(ask(client) for _ in range(READERS)))
    assert len(set(bodies)) == 1
    assert max(rounds.rows.values()) <= LIMITS.partitions_per_turn
    # beside one piece of a body: small questions and heads, of all of them at once
    assert max(rounds.bytes.values()) <= LIMITS.bytes_per_turn + READERS * 1_000


@pytest.mark.parametrize("path", COSTLY)
async def test_callers_at_the_same_time_share_one_answer(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    view = WatchedView(Rounds(monkeypatch), [50] * 60)

    async def ask(client: aiohttp.ClientSession) -> int:
        async with client.get(path) as response:
            return len(await response.read())

    async with asking(view, a_leading_handle(), Limits(costly_per_caller=READERS, answer_kept_ms=3_600_000)) as client:
        await ask(client)
        await asyncio.gather(*(ask(client) for _ in range(READERS)))
        assert max(view.read.values()) <= MADE_ONCE
        view.read.clear()
        view.metadata_version += 1
        await asyncio.gather(*(ask(client) for _ in range(READERS)))
        assert max(view.read.values()) <= MADE_ONCE


async def test_a_change_is_in_the_next_answer_however_many_share_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = WatchedView(Rounds(monkeypatch), [50] * 60)

    async def names(client: aiohttp.ClientSession) -> list[str]:
        async with client.get("/v1/topics?limit=100") as response:
            return [item["name"] for item in (await response.json())["items"]]

    async with asking(view, a_leading_handle()) as client:
        early = [asyncio.create_task(names(client)) for _ in range(3)]
        while not view.read:  # noqa: ASYNC110 - it is the rounds that are waited for
            await asyncio.sleep(0)
        view.put(TopicView("a-new-one", "id", [a_row(0, 1, [1], [1])]))  # while the answer is being made
        assert "a-new-one" in await names(client)
        await asyncio.gather(*early)


async def test_probes_rpcs_and_writes_wait_for_no_reader() -> None:
    handle = a_leading_handle()
    handle.inbox_depth = 1  # it works: after a turn readers have none for so long
    limits = Limits(reader_pause_ms=3_600_000)
    async with asking(View(), handle, limits) as client, asyncio.TaskGroup() as group:
        waiting = [group.create_task(client.get(path).__aenter__()) for path in ("/metrics", "/v1/cluster")]
        for path in ("/livez", "/readyz"):
            async with client.get(path) as response:
                assert response.status == 200
        async with client.post("/rpc/v1/alter-partition", json={}) as response:
            assert response.status == 400  # by the handler that reads it, not by the queue
        async with client.post("/v1/elections", json={"type": "preferred", "partitions": None}) as response:
            assert response.status == 200, await response.text()
        assert not any(one.done() for one in waiting)
        for one in waiting:
            one.cancel()


async def test_an_answer_that_is_not_read_keeps_its_callers_place_until_it_is_cut_off() -> None:
    many = list(range(1_000, 1_100))  # so that an answer is more than the kernel keeps of it
    view = View(a_topic("orders", *(a_row(one, 1_000, many, many) for one in range(10_000))))
    limits = Limits(costly_per_caller=1, answer_timeout_ms=1_000)
    async with served(view, a_leading_handle(), limits=limits) as url, aiohttp.ClientSession(url) as client:
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(f"GET /v1/partitions?limit=10000 HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        statuses = []
        async with asyncio.timeout(60):
            while 429 not in statuses or statuses[-1] != 200:
                async with client.get("/v1/reassignments") as response:
                    statuses.append(response.status)
                    refusal = response.headers.get("Retry-After")
                    assert response.status == 200 or (response.status, refusal) == (429, "1")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_one_caller_cannot_have_all_streams() -> None:
    handle = a_leading_handle()
    handle.recent_lines = RecentLines(4)
    async with asking(View(), handle, Limits(event_subscribers_per_caller=1)) as client:
        async with client.get("/v1/events") as first, client.get("/v1/events") as second:
            assert (first.status, second.status, second.headers["Retry-After"]) == (200, 429, "1")
        async with asyncio.timeout(60):
            while True:  # until it is seen that the first has ended
                async with client.get("/v1/events?follow=false") as response:
                    if response.status == 200:
                        break


# ---------------------------------------------------------------------- turns


async def turns_taken(
    turns: ReaderTurns, caller: str, count: int, taken: list[tuple[int, str]], rounds: Rounds
) -> None:
    for _ in range(count):
        await turns.next(caller)
        taken.append((rounds.number, caller))


async def test_a_round_has_one_turn_and_callers_have_theirs_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, turns, taken = Rounds(monkeypatch), ReaderTurns(), list[tuple[int, str]]()
    many = [turns_taken(turns, "many", 10, taken, rounds) for _ in range(10)]
    await asyncio.gather(*many, turns_taken(turns, "one", 10, taken, rounds))
    assert len({number for number, _ in taken}) == len(taken) == 110
    assert [caller for _, caller in taken[:20]].count("one") >= 9


async def test_a_caller_that_leaves_while_waiting_has_no_turn_and_holds_up_no_other() -> None:
    turns = ReaderTurns()
    leaving = [asyncio.create_task(turns.next("a")) for _ in range(3)]
    staying = asyncio.create_task(turns.next("a"))
    await asyncio.sleep(0)
    for one in leaving:
        one.cancel()
    await staying


def test_while_the_controller_works_readers_have_a_turn_now_and_then() -> None:
    is_working, taken = True, list[float]()
    turns = ReaderTurns(lambda: is_working, Limits(reader_pause_ms=10))

    async def read() -> None:
        nonlocal is_working
        for number in range(200):
            await turns.next()
            taken.append(asyncio.get_running_loop().time())
            is_working = number < 100

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(read())
    assert taken[100] - taken[0] == pytest.approx(1.0)
    assert taken[-1] - taken[102] == pytest.approx(0.0)


# ---------------------------------------------------------------------- sharing


async def test_an_answer_begun_before_a_change_is_not_shared_with_callers_after_it() -> None:
    shared, version, made = SharedAnswers[int](kept_s=3_600), 1, 0
    gate = asyncio.Event()

    async def make() -> int:
        nonlocal made
        made += 1
        number = made
        await gate.wait()
        return number

    before = [asyncio.create_task(shared.ask("q", lambda: version, make)) for _ in range(3)]
    await asyncio.sleep(0)
    version = 2
    after = [asyncio.create_task(shared.ask("q", lambda: version, make)) for _ in range(3)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*before, *after) == [1, 1, 1, 2, 2, 2]
    assert await shared.ask("q", lambda: version, make) == 2
    version = 3
    assert await shared.ask("q", lambda: version, make) == 3


async def test_while_everything_changes_all_waiting_callers_share_the_next_answer() -> None:
    shared, made, versions = SharedAnswers[int](), 0, iter(range(1_000))

    async def make() -> int:
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        return made

    assert await asyncio.gather(*(shared.ask("q", lambda: next(versions), make) for _ in range(50)))
    assert made <= 3


async def test_callers_that_share_a_failure_are_told_and_the_next_one_is_not() -> None:
    shared, fails = SharedAnswers[str](kept_s=3_600), True

    async def make() -> str:
        await asyncio.sleep(0)
        if fails:
            raise LookupError("not now")
        return "made"

    both = await asyncio.gather(*(shared.ask("q", lambda: 1, make) for _ in range(2)), return_exceptions=True)
    assert [type(one) for one in both] == [LookupError, LookupError]
    fails = False
    assert await shared.ask("q", lambda: 1, make) == "made"


async def test_no_more_is_kept_than_may_be_and_nothing_for_long() -> None:
    shared, made = SharedAnswers[bytes](kept_s=3_600, sizes_max=100, size=len), Counter[int]()

    async def make(number: int) -> bytes:
        made[number] += 1
        return bytes(60)

    for _ in range(2):
        for number in range(2):
            await shared.ask(number, lambda: 1, partial(make, number))
    assert made == {0: 1, 1: 2}
    brief = SharedAnswers[bytes](kept_s=0)
    while made[7] < 2:
        await brief.ask(0, lambda: 1, partial(make, 7))
        await asyncio.sleep(0)  # until answers kept for no time at all are forgotten


# ---------------------------------------------------------------------- quotas


def test_a_room_has_places_for_all_callers_and_fewer_for_one() -> None:
    room = ConcurrencyLimit(in_all=3, of_one=2, what="costly questions")
    first = room.enter("a")
    room.enter("a")
    with pytest.raises(ProblemError, match="2 costly questions of yours"):
        room.enter("a")
    room.enter("b")
    with pytest.raises(ProblemError, match="3 costly questions are open here"):
        room.enter("c")
    first.leave()
    room.enter("c")


async def test_costly_questions_have_a_rate_and_cheap_ones_have_none() -> None:
    async with asking(View(), a_leading_handle(), Limits(costly_per_s=0, costly_at_once=2)) as client:
        said = []
        for _ in range(3):
            async with client.get("/v1/matrix") as response:
                said.append((response.status, (await response.json(content_type=None)).get("code")))
        assert said == [(200, None), (200, None), (429, "THROTTLING_QUOTA_EXCEEDED")]
        async with client.get("/v1/controller") as response:
            assert response.status == 200


def test_the_series_of_partitions_are_those_that_the_library_writes() -> None:
    names = ("plain", 'quoted "\\ and\nbroken')
    topics = [a_topic(name, a_row(0, -1, [3], [3, 1]), a_row(1, 1, [1, 2], [1, 2])) for name in names]
    series = PartitionSeries()
    families = {name: GaugeMetricFamily(name, text, labels=["topic"]) for name, text in PARTITION_GAUGES.items()}
    for topic in topics:
        for at, row in enumerate(topic.partitions):
            series.add(Piece(topic, [row], is_last=at == 1))
        families["kafka_topic_partitions"].add_metric([topic.topic], 2)
        for values, row in zip(((-1, 0, 2, 1, 1), (1, 1, 2, 2, 0)), topic.partitions, strict=True):
            for name, value in zip(list(families)[1:], values, strict=True):
                labels = {"topic": topic.topic, "partition": str(row.partition)}
                families[name].add_sample(name, labels, value)
    exposition = Exposition(list(families.values()))
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        encode, _ = choose_encoder(accept)
        assert encode(exposition) == series.whole() + encode(Exposition(()))
