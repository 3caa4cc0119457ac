"""A visitor's view of a real cluster in trouble: a lab as `klamm up` starts it, driven by the page's own buttons."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.ports import free_port
from tests.browser.pages import Visit, a_visit
from tests.lab_support import free_port_base
from tests.waiting import DEADLINE_S

pytestmark = [pytest.mark.chromium, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(180)]

PARTITIONS = 6


async def klamm(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("klamm"),
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


@asynccontextmanager
async def a_lab(var: Path) -> AsyncIterator[int]:
    """Three brokers on a ZooKeeper; yields the port base."""
    port_base = free_port_base(3)
    ports = ("--port-base", str(port_base), "--zookeeper-port", str(free_port()), "--no-records")
    await klamm("up", "--var", str(var), *ports)
    try:
        yield port_base
    finally:
        await klamm("down", "--var", str(var))


async def asked(url: str) -> Any:
    def get() -> Any:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    return await asyncio.to_thread(get)


def logged(var: Path, by: int, **wanted: object) -> list[dict[str, Any]]:
    """Lines of a broker's state-change log that say this."""
    lines = (var / f"broker-{by}" / "state-change.log").read_bytes().splitlines(keepends=True)
    found = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [line for line in found if wanted.items() <= line.items()]


async def test_a_visitor_kills_brokers_and_sees_the_failover_as_it_happens(tmp_path: Path) -> None:
    var = tmp_path / "var"
    async with a_lab(var) as port_base, a_visit(width=1400, height=1000) as visit:
        controller = (await asked(f"http://127.0.0.1:{port_base + 1}/v1/controller"))["broker_id"]
        host, victim = sorted({1, 2, 3} - {controller})
        page, address = visit.page, f"127.0.0.1:{port_base + host}"
        await page.goto(f"http://{address}/")
        await visit.until("document.querySelector('#live .on') !== null")
        assert await visit.text(".card.seat h3") == f"Broker {controller}"
        await create_a_topic(visit)

        await page.get_by_role("button", name=f"Kill broker {victim}").click()
        await visit.until("document.querySelector('.card.gone') !== null")
        assert len(logged(var, controller, kind="broker", broker_id=victim, target="gone")) == 1
        assert await visit.text(".card.gone h3") == f"Broker {victim}"
        await visit.until(f"document.querySelectorAll('.matrix-row.under-replicated').length === {PARTITIONS}")
        await visit.picture("broker-killed")
        assert visit.complaints == []

        await page.get_by_role("button", name=f"Start broker {victim}").click()
        await visit.until("document.querySelector('#verdict strong').textContent === 'Healthy'")
        await page.get_by_role("button", name=f"Break disk broker {victim}").click()
        await page.get_by_text("bad disk", exact=True).wait_for()
        await page.get_by_role("button", name=f"Mend disk broker {victim}").click()
        await page.get_by_text("bad disk", exact=True).wait_for(state="detached")
        assert visit.complaints == []

        await watch_a_failover(visit, controller)
        await visit.until("document.querySelector('#verdict strong').textContent === 'Degraded'")
        await look_around(visit, controller)
        assert visit.complaints == []
        assert visit.foreign_brokers(address) == []


async def create_a_topic(visit: Visit) -> None:
    page = visit.page
    await page.get_by_role("button", name="Create a topic").click()
    await page.fill("#action-name", "orders")
    await page.fill("#action-partitions", str(PARTITIONS))
    await page.locator("#action").get_by_role("button", name="Create", exact=True).click()
    await visit.until(f"document.querySelectorAll('.matrix-row.online').length === {PARTITIONS}")


async def watch_a_failover(visit: Visit, controller: int) -> None:
    """The stopwatch runs, the badge moves, and the failover is told by phase; nothing is loaded anew."""
    await visit.page.evaluate("window.isSamePage = true")
    await visit.page.get_by_role("button", name=f"Kill broker {controller}").click()
    await visit.until("document.querySelector('#stopwatch .running') !== null")
    await visit.picture("failover-running", is_whole=False)
    moved = f"document.querySelector('.card.seat h3').textContent !== 'Broker {controller}'"
    await visit.until(f"document.querySelector('.card.seat') !== null && {moved}")
    await visit.until("document.querySelectorAll('#stopwatch .laps .over').length === 7")
    laps = await visit.page.locator(".laps li").all_inner_texts()
    assert [lap.split()[0] for lap in laps] == [
        "noticed", "claimed", "loaded", "decided", "committed", "told", "acknowledged",
    ]  # fmt: skip
    await visit.picture("failover")
    assert await visit.page.evaluate("window.isSamePage") is True


async def look_around(visit: Visit, dead: int) -> None:
    """Filter, ask what-if, delete the topic, and let axe check each page."""
    page = visit.page
    await page.fill("#filter-topic", "orders")
    await page.select_option("#filter-state", "offline")
    await visit.until(f"document.getElementById('shown').textContent === '0 of {PARTITIONS} partitions'")
    await page.select_option("#filter-state", "under-replicated")
    await visit.until(f"document.getElementById('shown').textContent === '{PARTITIONS} partitions'")
    await page.locator("#what-if input").first.check()
    await page.get_by_role("button", name="Tell me").click()
    await page.get_by_text("nothing was written").wait_for()
    assert await visit.grave_faults() == []
    await page.get_by_role("rowheader", name="orders-0").click()
    await page.locator("#story").get_by_role("button", name="Delete the topic").click()
    await page.fill("#action-typed", "orders")
    await page.locator("#action").get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_text(f"Topic orders: deleting, waits: broker {dead} is gone").wait_for()
