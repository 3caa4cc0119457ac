"""The dashboard in a real browser, on a cluster of plain values behind the real API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.chronicle import Chronicle
from controller.core.lines import Line
from tests.browser.chromium import Tab, a_browser
from tests.builders import a_cluster
from tests.shell.api_support import Door, View, a_broker, a_row, a_topic, served
from tests.shell.deciding_support import BelievedView, DecidingDoor

pytestmark = pytest.mark.chromium

HOSTILE = '<img src=x onerror="document.title=1">'
ROWS = "document.querySelectorAll('.matrix-body .matrix-row').length"
SHOWN = "document.getElementById('shown').textContent"
EVENTS = "document.getElementById('events').textContent"


@asynccontextmanager
async def a_page(view: View, door: Door, folder: Path) -> AsyncIterator[Tab]:
    """The page, loaded, live, and with no complaint so far."""
    if door.chronicle is None:
        door.chronicle = Chronicle(door.controller_epoch or 0)
    async with a_browser(folder) as tab, served(view, door) as url:
        await tab.open(url)
        await tab.until("document.querySelectorAll('.card').length > 0 && document.querySelector('#live .on') !== null")
        yield tab
        door.chronicle.close()
        # of a cluster in trouble the health is 503, which the browser logs
        assert [one for one in tab.complaints if not one.endswith("/healthz/cluster")] == []
        assert [one for one in tab.urls if not one.startswith(f"{url}/") and one != "about:blank"] == []


def a_line(number: int, **more: object) -> Line:
    stamp = Line(at_ms=1_700_000_000_000, cluster_id="c", controller_id=1, controller_epoch=4, kind="partition")
    return type(stamp)(
        **{name: getattr(stamp, name) for name in stamp.__struct_fields__} | {"partition": number} | more
    )


async def test_a_dead_broker_stays_and_an_event_shows_without_reloading(tmp_path: Path) -> None:
    brokers = [a_broker(1), a_broker(2), a_broker(3, "gone")]
    view, door = View(a_topic("orders", a_row(0, 1, [1, 2], [1, 2, 3])), brokers=brokers), Door()
    async with a_page(view, door, tmp_path) as tab:
        assert await tab.value("document.querySelector('.card.gone h3').textContent") == "Broker 3"
        assert await tab.value("document.querySelector('.card.seat h3').textContent") == "Broker 1"
        assert await tab.value("document.querySelector('#verdict strong').textContent") == "Degraded"
        assert await tab.value(SHOWN) == "1 partition"
        assert door.chronicle is not None
        view.put(a_topic("payments", a_row(0, 2, [2], [2])))
        door.chronicle.accept([a_line(0, topic="payments", target="OnlinePartition", leader=2, isr=(2,), reason="new")])
        await tab.until(f"{SHOWN} === '2 partitions' && {EVENTS}.includes('payments-0 is led by 2')", timeout_s=2)
        await tab.screenshot(tmp_path / "page.png")


async def test_names_are_shown_as_text_whatever_they_say(tmp_path: Path) -> None:
    view, door = View(a_topic(HOSTILE, a_row(0, 1, [1], [1]))), Door()
    async with a_page(view, door, tmp_path) as tab:
        assert door.chronicle is not None
        door.chronicle.accept(
            [a_line(0, topic=HOSTILE, target="OfflinePartition", leader=-1, isr=(1,), reason=HOSTILE)]
        )
        await tab.until(f"{EVENTS}.includes('onerror')")
        assert await tab.value("document.querySelector('.matrix-body .matrix-name').textContent") == f"{HOSTILE}-0"
        assert await tab.value("[document.querySelectorAll('main img').length, document.title]") == [0, "Klamm"]


async def test_a_hundred_thousand_partitions_are_a_screenful_of_rows_and_can_be_filtered(tmp_path: Path) -> None:
    topics = [
        a_topic(
            f"topic-{number:03}",
            *(a_row(row, 1 + row % 3, [1, 2, 3], [1 + row % 3, 1 + (row + 1) % 3]) for row in range(1_000)),
        )
        for number in range(100)
    ]
    topics.append(a_topic("broken", a_row(0, -1, [3], [3])))
    async with a_page(View(*topics), Door(), tmp_path) as tab:
        await tab.until(f"{SHOWN} === '100,001 partitions'")
        assert await tab.value(ROWS) < 60
        await tab.value("document.getElementById('matrix').focus()")
        await tab.key("End")
        await tab.until("document.getElementById('row-100000') !== null")
        assert await tab.value(ROWS) < 60
        await tab.value(
            "const state = document.getElementById('filter-state');"
            "state.value = 'offline'; state.dispatchEvent(new Event('change'))"
        )
        assert await tab.until(f"{SHOWN}.includes(' of ') && {SHOWN}") == "1 of 100,001 partitions"
        assert await tab.value("document.querySelector('.matrix-body .matrix-name').textContent") == "broken-0"


async def test_enter_opens_the_story_and_what_if_is_answered(tmp_path: Path) -> None:
    cluster = a_cluster(orders=[[1, 2], [3]])
    door = DecidingDoor(cluster)
    async with a_page(BelievedView(cluster), door, tmp_path) as tab:
        await tab.until(f"{SHOWN} === '2 partitions'")
        await tab.value("document.getElementById('matrix').focus()")
        await tab.key("ArrowDown")
        await tab.key("Enter")
        await tab.until("document.querySelector('#story[open] .facts') !== null")
        assert await tab.value("document.getElementById('story-title').textContent") == "orders-1"
        await tab.key("Escape")
        await tab.until("document.querySelector('#story[open]') === null")
        await tab.value("document.querySelector('#what-if input[value=\"3\"]').click()")
        await tab.value("document.getElementById('what-if').requestSubmit()")
        await tab.until("document.getElementById('what-if-said').textContent.includes('orders-1')")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
async def test_the_page_fits_a_phone_and_the_dark(width: int, scheme: str, tmp_path: Path) -> None:
    view = View(a_topic("orders", *(a_row(number, 1, [1, 2], [1, 2, 3]) for number in range(20))))
    async with a_page(view, Door(), tmp_path) as tab:
        url = await tab.value("location.href")
        await tab.open(url, width=width, height=800, scheme=scheme)
        await tab.until("document.querySelectorAll('.card').length > 0")
        assert await tab.value("document.documentElement.scrollWidth <= innerWidth")
        await tab.screenshot(tmp_path / "page.png")
