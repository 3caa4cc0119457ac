"""The dashboard in a real browser, on a cluster of plain values behind the real API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from aiohttp import web

from controller.api.v1.records import LogsView
from controller.base.config import BrokerConfig
from controller.core.model import Assignment
from controller.core.project.lines import Line
from controller.statelog.journal import RecentLines
from controller.term.term import TermRecord
from controller.wire.bodies import BrokerEntry
from tests.api.api_support import (
    CONFIG,
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    reserved,
    served,
)
from tests.api.test_api_aggregates import KEPT
from tests.api.test_api_records import Logs
from tests.browser.pages import Visit, a_visit
from tests.builders import a_cluster
from tests.support.deciding_support import BelievedView, DecidingHandle
from tests.waiting import until

pytestmark = pytest.mark.chromium

HOSTILE = '<img src=x onerror="document.title=1">'
ROWS = "document.querySelectorAll('.matrix-body .matrix-row').length"
SHOWN = "document.getElementById('shown').textContent"
EVENTS = "document.getElementById('events').textContent"
IS_LIVE = "document.querySelector('#live .on') !== null && document.querySelector('#brokers').children.length > 0"
TERMS = [
    TermRecord(3, 2, 1_700_000_000_000, 1_700_000_060_000, "session gone", {"claimed": 5.0, "loaded": 9.0}),
    TermRecord(
        4,
        1,
        1_700_000_060_000,
        None,
        None,
        {"claimed": 4.5, "loaded": 28.3, "decided": 28.5, "committed": 30.2, "told": 30.7, "acknowledged": 42.3},
    ),
]


@asynccontextmanager
async def a_page(
    view: View, handle: FakeHandle, config: BrokerConfig = CONFIG, logs: LogsView | None = None, **given: Any
) -> AsyncIterator[Visit]:
    """The page, loaded, live, and in the end without a complaint and with no stranger asked."""
    if handle.recent_lines is None:
        handle.recent_lines = RecentLines(handle.controller_epoch or 0)
    handle.terms = handle.terms or list(TERMS)
    handle.cluster = handle.cluster or a_cluster(live=(1,))
    async with a_visit(**given) as visit, served(view, handle, config=config, logs=logs) as url:
        await visit.page.goto(url)
        await visit.until(IS_LIVE)
        yield visit
        assert visit.complaints == []
        assert visit.foreign_brokers(urlsplit(url).netloc) == []
        handle.recent_lines.close()


def a_line(number: int, **more: object) -> Line:
    stamp = Line(at_ms=1_700_000_000_000, cluster_id="c", controller_id=1, controller_epoch=4, kind="partition")
    return type(stamp)(
        **{name: getattr(stamp, name) for name in stamp.__struct_fields__} | {"partition": number} | more
    )


async def test_a_dead_broker_stays_and_an_event_shows_without_reloading() -> None:
    brokers = [a_broker(1), a_broker(2), a_broker(3, "gone")]
    view, handle = View(a_topic("orders", a_row(0, 1, [1, 2], [1, 2, 3])), brokers=brokers), FakeHandle()
    async with a_page(view, handle) as visit:
        assert await visit.text(".card.gone h3") == "Broker 3"
        assert await visit.text(".card.seat h3") == "Broker 1"
        assert await visit.text("#verdict strong") == "Degraded"
        await visit.until(f"{SHOWN} === '1 partition'")
        assert handle.recent_lines is not None
        view.put(a_topic("payments", a_row(0, 2, [2], [2])))
        handle.recent_lines.accept(
            [a_line(0, topic="payments", target="OnlinePartition", leader=2, isr=(2,), reason="new")]
        )
        await visit.until(f"{SHOWN} === '2 partitions' && {EVENTS}.includes('payments-0 is led by 2')")


async def test_names_are_shown_as_text_whatever_they_say() -> None:
    view, handle = View(a_topic(HOSTILE, a_row(0, 1, [1], [1]))), FakeHandle()
    async with a_page(view, handle) as visit:
        assert handle.recent_lines is not None
        handle.recent_lines.accept(
            [a_line(0, topic=HOSTILE, target="OfflinePartition", leader=-1, isr=(1,), reason=HOSTILE)]
        )
        await visit.until(f"{EVENTS}.includes('onerror')")
        assert await visit.text(".matrix-body .matrix-name") == f"{HOSTILE}-0"
        assert await visit.page.evaluate("[document.querySelectorAll('main img').length, document.title]") == [
            0,
            "Klamm",
        ]


def a_large_view(brokers: int = 100, topics: int = 100, partitions: int = 1_000) -> View:
    """One broker is gone, one drains, and one partition is offline."""
    entries: Sequence[BrokerEntry] = [a_broker(one, {7: "gone", 9: "draining"}.get(one, "live")) for one in
                                      range(1, brokers + 1)]  # fmt: skip
    found = []
    for number in range(topics):
        rows = []
        for row in range(partitions):
            ids = [1 + (number * 31 + row + step * 7) % brokers for step in range(3)]
            isr = [one for one in ids if one != 7]
            rows.append(a_row(row, isr[0], isr, ids))
        found.append(a_topic(f"topic-{number:03}", *rows))
    return View(*found, a_topic("broken", a_row(0, -1, [7], [7])), brokers=entries)


async def test_a_hundred_brokers_with_a_hundred_thousand_partitions_are_a_screenful() -> None:
    async with a_page(a_large_view(), FakeHandle(), width=1600, height=1000) as visit:
        await visit.until(f"{SHOWN} === '101 topics'")
        assert await visit.page.locator(".tile").count() == 100
        assert await visit.text(".tile") == "7\ngone"  # brokers that need attention come first
        assert await visit.page.evaluate(ROWS) < 60
        assert await visit.text("[data-index='0'] .matrix-state") == "1 offline"
        await visit.picture("100-brokers")
        assert await visit.grave_faults() == []
        await visit.page.select_option("#filter-view", "partitions")
        await visit.until(f"{SHOWN} === '100,001 partitions'")
        await visit.page.focus("#matrix")
        await visit.page.keyboard.press("End")
        await visit.until("document.getElementById('row-100000') !== null")
        assert await visit.page.evaluate(ROWS) < 60
        await visit.page.select_option("#filter-state", "offline")
        await visit.until(f"{SHOWN} === '1 of 100,001 partitions'")
        assert await visit.text(".matrix-body .matrix-name") == "broken-0"
        await visit.page.locator(".tile.draining").click()
        assert await visit.text("#broker h3") == "Broker 9"


async def test_a_topics_row_opens_its_partitions() -> None:
    async with a_page(a_large_view(brokers=3, topics=3), FakeHandle()) as visit:
        await visit.until(f"{SHOWN} === '4 topics'")
        await visit.page.get_by_role("rowheader", name="topic-001").click()
        await visit.until(f"{SHOWN} === '1,000 of 3,001 partitions'")


async def test_enter_opens_the_story_and_what_if_is_answered() -> None:
    cluster = a_cluster(orders=[[1, 2], [3]])
    handle = DecidingHandle(cluster)
    async with a_page(BelievedView(cluster), handle) as visit:
        await visit.until(f"{SHOWN} === '2 partitions'")
        await visit.page.focus("#matrix")
        await visit.page.keyboard.press("ArrowDown")
        await visit.page.keyboard.press("Enter")
        await visit.until("document.querySelector('#story[open] .facts') !== null")
        assert await visit.text("#story-title") == "orders-1"
        assert await visit.grave_faults() == []
        await visit.page.keyboard.press("Escape")
        await visit.page.check("#what-if input[value='3']")
        await visit.page.click("#what-if button")
        await visit.until("document.getElementById('what-if-said').textContent.includes('orders-1')")


async def test_the_story_shows_how_far_the_logs_are_and_what_was_lost_and_follows_them() -> None:
    cluster, logs = a_cluster(orders=[[1, 2]]), Logs()
    async with a_page(BelievedView(cluster), DecidingHandle(cluster), logs=logs) as visit:
        await visit.until(f"{SHOWN} === '1 partition'")
        await open_story(visit, "orders-0")
        await visit.until("document.querySelectorAll('#logs tbody tr').length === 3")
        said = await visit.text("#logs")
        assert "An unclean election lost 2 committed records." in said
        assert "3 to 6" in said
        assert await visit.page.evaluate(
            "[...document.querySelectorAll('#logs tbody tr')[1].cells].map(c => c.textContent)"
        ) == [
            *("2", "-", "3", "-", "4", "gone"),
        ]
        assert await visit.grave_faults() == []
        await until(lambda: len(logs.asked) > 1, "it is asked again while somebody looks")
        await visit.page.keyboard.press("Escape")


async def test_every_action_asks_first_and_then_is_done() -> None:
    cluster = a_cluster(orders=[[1, 2, 3], [2, 3, 1]])
    handle = DecidingHandle(cluster)
    handle.has_deleting_brokers = True
    async with a_page(BelievedView(cluster), handle) as visit:
        page = visit.page

        async def confirm(word: str, said: str) -> None:
            await page.locator("#action").get_by_role("button", name=word, exact=True).click()
            await visit.until(f"document.getElementById('said').textContent.includes({said!r})")

        await page.get_by_role("button", name="Create a topic").click()
        assert await visit.grave_faults() == []
        await page.fill("#action-name", "payments")
        await page.fill("#action-partitions", "2")
        await page.fill("#action-factor", "9")
        await page.locator("#action").get_by_role("button", name="Create").click()
        await visit.until("document.querySelector('#action [role=alert]').textContent.includes('9')")  # refused, said
        assert "payments" not in cluster.topics
        await page.fill("#action-factor", "3")
        refused = "Failed to load resource: the server responded with a status of 400 (Bad Request)"
        assert visit.complaints == [refused]  # the browser's own note of an answer that the page has shown
        visit.complaints.clear()
        await confirm("Create", "payments was created")
        assert len(cluster.topics["payments"].partitions) == 2

        await page.get_by_role("button", name="Drain broker 1").click()
        assert not cluster.duties.drains  # not before it is confirmed
        await confirm("Drain", "Broker 1 is drained")
        assert set(cluster.duties.drains) == {1}

        await open_story(visit, "orders-0")
        await page.locator("#story").get_by_role("button", name="Reassign").click()
        await page.fill("#action-replicas", "2, 3")
        await confirm("Reassign", "orders-0 is being reassigned")
        assert cluster.topics["orders"].partitions[0].replicas == Assignment((2, 3)).replicas
        await page.locator("#story").get_by_role("button", name="Close").click()

        await open_story(visit, "orders-1")
        await page.locator("#story").get_by_role("button", name="Delete the topic").click()
        delete = page.locator("#action").get_by_role("button", name="Delete", exact=True)
        assert await delete.is_disabled()
        await page.fill("#action-typed", "orders")
        await confirm("Delete", "orders: delet")
        assert "orders" not in cluster.topics


async def open_story(visit: Visit, name: str) -> None:
    await visit.page.get_by_role("rowheader", name=name).click()
    await visit.until("document.querySelector('#story[open] .facts') !== null")


async def test_charts_and_machines_show_the_controllers_counts() -> None:
    cluster = a_cluster(orders=[[1, 2], [4]])
    handle = DecidingHandle(cluster)
    async with a_page(BelievedView(cluster), handle) as visit:
        await visit.until("document.querySelectorAll('.chart').length === 6")
        label = visit.page.locator(".machine svg").first
        assert await label.get_attribute("aria-label") == ("partitions: non existent 0, new 0, online 1, offline 1")
        handle.inbox_depth = 17
        await visit.until("document.querySelector('#charts').textContent.includes('17')")


async def test_the_aggregates_of_a_stream_of_the_logs_are_shown_with_their_age(tmp_path: Path) -> None:
    path = tmp_path / "aggregates.json"
    config = msgspec.structs.replace(CONFIG, klamm_aggregates_file=str(path))
    async with a_page(View(), FakeHandle(), config) as visit:
        await visit.until("document.getElementById('aggregates-said').textContent.startsWith('none yet')")
        kept = path.with_name("kept")
        kept.write_bytes(msgspec.json.encode(KEPT))
        os.utime(kept, (KEPT["looked_ms"] / 1_000,) * 2)  # its keeper has ended long ago
        kept.rename(path)
        await visit.until("document.querySelectorAll('#aggregates-tables tbody tr').length === 2")
        said = await visit.text("#aggregates-said")
        assert "in 12 lines: 1 partition without a leader at some time, 1 time; none without one now." in said
        assert "the longest, as clients felt it, at most 5.90 s. Kept by Spark 4.3.0 on this machine, as of" in said
        assert said.endswith("nobody looks at the logs any more.")
        shown = await visit.text("#aggregates-tables")
        for words in ("orders-0", "900 ms, felt at most 5.90 s", "broker lost (broker 2)", "broker 3", "broker gone"):
            assert words in shown
        assert "OnlinePartition → OfflinePartition" in shown
        assert await visit.grave_faults() == []
        await visit.picture("aggregates")


async def test_without_aggregates_there_is_no_panel_of_them() -> None:
    async with a_page(View(), FakeHandle()) as visit:
        assert await visit.page.locator("#aggregates").is_hidden()


async def test_a_cluster_that_wants_a_token_is_given_it_once() -> None:
    async def guarded(request: web.Request, handler: Any) -> web.StreamResponse:
        is_open = request.path == "/" or request.path.startswith("/dashboard/")
        if not is_open and request.headers.get("Authorization") != "Bearer sesame":
            return web.json_response({"code": "UNAUTHORIZED", "detail": "a token"}, status=401)
        response: web.StreamResponse = await handler(request)
        return response

    handle, view = FakeHandle(), View(a_topic("orders", a_row(0, 1, [1], [1])))
    handle.recent_lines, handle.cluster = RecentLines(4), a_cluster(live=(1,))
    bound = reserved()
    async with a_visit() as visit, served(view, handle, bound=bound, extra=[web.middleware(guarded)]) as url:
        await visit.page.goto(url)
        await visit.page.fill("#token-input", "wrong")
        await visit.page.keyboard.press("Enter")
        await visit.page.get_by_text("That token was refused").wait_for()
        assert await visit.grave_faults() == []
        await visit.page.fill("#token-input", "sesame")
        await visit.page.keyboard.press("Enter")
        await visit.until(IS_LIVE)  # the stream carries it too
        assert await visit.page.evaluate("document.querySelector('#token').open") is False
        assert await visit.page.evaluate("[sessionStorage.getItem('token'), localStorage.length]") == ["sesame", 0]
        handle.recent_lines.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("phone", 360, "light"), ("3-brokers-light", 1280, "light"), ("3-brokers-dark", 1280, "dark")],
)
async def test_the_page_fits_and_has_no_grave_fault(name: str, width: int, scheme: str) -> None:
    brokers = [a_broker(1), a_broker(2, "draining"), a_broker(3, "gone")]
    rows = [a_row(number, -1 if number == 7 else 1 + number % 2, [1, 2], [1, 2, 3]) for number in range(20)]
    async with a_page(
        View(a_topic("orders", *rows), brokers=brokers), FakeHandle(), width=width, height=800, scheme=scheme
    ) as visit:
        await visit.until(f"{SHOWN} === '20 partitions' && document.querySelectorAll('.machine').length === 2")
        assert await visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await visit.picture(name)
        assert await visit.grave_faults() == []
