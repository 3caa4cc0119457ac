"""A failover in the browser: while it happens phase by phase, and replayed afterwards."""

from __future__ import annotations

import pytest

from controller.chronicle import Chronicle
from tests.browser.test_page import a_line, a_page
from tests.shell.api_support import Door, View, a_row, a_topic

pytestmark = pytest.mark.chromium

PHASES = ("noticed", "claimed", "loaded", "decided", "committed", "told", "acknowledged")
#: what is over and what is running on the stopwatch, in order
LAPS = (
    "[...document.querySelectorAll('.laps .over, .laps .now')]"
    ".map((one) => `${one.className} ${one.textContent.split(' ')[0]}`)"
)


async def test_the_stopwatch_fills_phase_by_phase_while_the_new_controller_still_takes_over() -> None:
    view, door = View(a_topic("orders", a_row(0, 1, [1], [1]))), Door()
    async with a_page(view, door) as visit:
        assert door.chronicle is not None
        door.chronicle.close()
        door.chronicle, cluster, door.cluster = None, door.cluster, None
        door.stand_by(None)
        door.seat_changes.tell()
        await visit.until(f"{LAPS}.join() === 'now noticed'")

        door.controller_epoch, door.phase, door.chronicle = 5, "loading", Chronicle(5)
        door.seat_changes.tell()
        for number, phase in enumerate(PHASES[1:]):
            mark = {"kind": "controller", "controller_epoch": 5, "event_id": "5-1", "target": phase, "broker_id": 1}
            door.chronicle.accept([a_line(0, **mark, partition=None, took_ms=10.0 * (number + 1))])
            over = [f"over {one}" for one in PHASES[: number + 2]]
            now = [f"now {one}" for one in PHASES[number + 2 : number + 3]]
            await visit.until(f"{LAPS}.join() === '{','.join(over + now)}'")
            assert "broker 1" in await visit.text("#stopwatch span")
            if phase == "loaded":
                assert await visit.text("#controller strong") == "broker 1"
                await visit.picture("stopwatch", is_whole=False)
                assert await visit.grave_faults() == []
        assert (await visit.page.locator(".laps b").all_inner_texts())[1:] == ["10 ms"] * 6

        door.is_active, door.phase, door.cluster = True, "active", cluster
        await visit.until("document.querySelector('#live .on') !== null")
        assert len(await visit.page.locator(".laps .over").all()) == 7  # it stays to be read


async def test_a_controller_that_says_nothing_is_noticed_though_its_stream_stays_open() -> None:
    door = Door()
    async with a_page(View(a_topic("orders", a_row(0, 1, [1], [1]))), door) as visit:
        door.cluster = None  # no beat any more
        await visit.until(f"{LAPS}.join() === 'now noticed'")
        assert "does not answer" in await visit.text("#controller")


async def test_a_past_failover_is_replayed_step_by_step() -> None:
    async with a_page(View(a_topic("orders", a_row(0, 1, [1], [1]))), Door()) as visit:
        await visit.page.get_by_role("button", name="Replay Epoch 4").click()
        seen = [await visit.text("#replay h3")]
        for _ in range(6):
            await visit.page.keyboard.press("ArrowRight")
            seen.append(await visit.text("#replay h3"))
        assert [one.split(" ")[1] for one in seen] == list(PHASES)
        assert "42 ms after the seat was seen vacant" in seen[-1]
        await visit.picture("replay", is_whole=False)
        assert await visit.grave_faults() == []
