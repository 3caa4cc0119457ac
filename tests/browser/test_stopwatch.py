"""A failover in the browser: while it happens phase by phase, and replayed afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.statelog.journal import RecentLines
from controller.term.term import TermRecord
from tests.api.api_support import (
    FakeHandle,
    View,
    a_row,
    a_topic,
    served,
)
from tests.browser.pages import Visit, a_visit
from tests.browser.test_page import a_line, a_page

pytestmark = pytest.mark.chromium

PHASES = ("noticed", "claimed", "loaded", "decided", "committed", "told", "acknowledged")
#: the phases that are over and the one that is running on the stopwatch, in order
LAPS = (
    "[...document.querySelectorAll('.laps .over, .laps .now')]"
    ".map((one) => `${one.className} ${one.textContent.split(' ')[0]}`)"
)
#: the stopwatch alone, fed with a page's messages, on a clock of its own: steps are [call, its argument], 10 ms apart
TOLD = """async (steps) => {
  const { Failovers } = await import("/dashboard/failovers.js");
  let now = 1_700_000_000_000;
  Date.now = () => now;
  const failovers = new Failovers();
  let terms = [];
  for (const [what, more] of steps) {
    now += 10;
    if (what === "silence") failovers.begin();
    if (what === "line") failovers.hear(more);
    if (what === "beat") {
      terms = more.terms ?? terms;
      failovers.decides({ broker_id: 1, controller_epoch: more.epoch }, terms);
    }
    failovers.draw(terms);
  }
  const laps = [...document.querySelectorAll(".laps li")];
  return [
    document.querySelector("#stopwatch strong")?.textContent ?? null,
    laps.map((lap) => [lap.className, lap.textContent.split(" ")[0], lap.querySelector("b").textContent].join(" ")),
  ];
}"""


def a_mark(phase: str, took_ms: float) -> dict[str, Any]:
    names = {"kind": "controller", "controller_epoch": 5, "event_id": "5-1", "target": phase, "broker_id": 1}
    return {**names, "partition": None, "took_ms": took_ms}


def over(phase: str, said: str = "10 ms") -> str:
    return f"over {phase} {said}"


async def test_the_stopwatch_fills_phase_by_phase_while_the_new_controller_still_takes_over() -> None:
    view, handle = View(a_topic("orders", a_row(0, 1, [1], [1]))), FakeHandle()
    async with a_page(view, handle) as visit:
        assert handle.recent_lines is not None
        handle.recent_lines.close()
        handle.recent_lines, cluster, handle.cluster = None, handle.cluster, None
        handle.stand_by(None)
        handle.seat_changes.ring()
        await visit.until(f"{LAPS}.join() === 'now noticed'")

        handle.controller_epoch, handle.phase, handle.recent_lines = 5, "loading", RecentLines(5)
        handle.seat_changes.ring()
        for number, phase in enumerate(PHASES[1:]):
            handle.recent_lines.accept([a_line(0, **a_mark(phase, 10.0 * (number + 1)))])
            over = [f"over {one}" for one in PHASES[: number + 2]]
            now = [f"now {one}" for one in PHASES[number + 2 : number + 3]]
            await visit.until(f"{LAPS}.join() === '{','.join(over + now)}'")
            assert "broker 1" in await visit.text("#stopwatch span")
            if phase == "loaded":
                assert await visit.text("#controller strong") == "broker 1"
                await visit.picture("stopwatch", is_whole=False)
                assert await visit.grave_faults() == []
        assert (await visit.page.locator(".laps b").all_inner_texts())[1:] == ["10 ms"] * 6

        handle.is_active, handle.phase, handle.cluster = True, "active", cluster
        await visit.until("document.querySelector('#live .on') !== null")
        assert len(await visit.page.locator(".laps .over").all()) == 7  # it stays to be read


async def test_a_failover_that_is_over_before_the_stream_is_taken_up_again_is_told_by_its_record() -> None:
    view, handle = View(a_topic("orders", a_row(0, 1, [1], [1]))), FakeHandle()
    async with a_page(view, handle) as visit:
        assert handle.recent_lines is not None
        handle.recent_lines.close()
        handle.recent_lines, cluster, handle.cluster = None, handle.cluster, None
        handle.stand_by(None)
        handle.seat_changes.ring()
        await visit.until(f"{LAPS}.join() === 'now noticed'")

        lines = [a_line(0, **a_mark(phase, 10.0 * number)) for number, phase in enumerate(PHASES[1:], 1)]
        handle.recent_lines, handle.controller_epoch = RecentLines(5), 5
        handle.recent_lines.accept(lines)  # on a stream that begins now a beat comes first
        handle.terms.append(TermRecord(5, 1, 1_700_000_090_000, None, None, {one.target: one.took_ms for one in lines}))
        handle.controller_epoch, handle.phase, handle.is_active, handle.cluster = 5, "active", True, cluster
        handle.seat_changes.ring()
        await visit.until(f"{LAPS}.join() === '{','.join(f'over {one}' for one in PHASES)}'")
        assert await visit.page.locator(".laps b").all_inner_texts() == ["unknown", *["10 ms"] * 6]
        assert (await visit.text("#stopwatch")).startswith("60 ms from the vacant seat to the last acknowledgement")


async def test_a_controller_that_says_nothing_is_noticed_though_its_stream_stays_open() -> None:
    handle = FakeHandle()
    async with a_page(View(a_topic("orders", a_row(0, 1, [1], [1]))), handle) as visit:
        handle.cluster = None  # no beat any more
        await visit.until(f"{LAPS}.join() === 'now noticed'")
        assert "does not answer" in await visit.text("#controller")


async def test_a_past_failover_is_replayed_step_by_step() -> None:
    async with a_page(View(a_topic("orders", a_row(0, 1, [1], [1]))), FakeHandle()) as visit:
        await visit.page.get_by_role("button", name="Replay Epoch 4").click()
        seen = [await visit.text("#replay h3")]
        for _ in range(6):
            await visit.page.keyboard.press("ArrowRight")
            seen.append(await visit.text("#replay h3"))
        assert [one.split(" ")[1] for one in seen] == list(PHASES)
        assert "42 ms after the seat was seen vacant" in seen[-1]
        await visit.picture("replay", is_whole=False)
        assert await visit.grave_faults() == []


Step = tuple[str, Any]
#: as the stream tells them: each came 10 ms after the one before
LINES: list[Step] = [("line", a_mark(phase, 10.0 * number)) for number, phase in enumerate(PHASES[1:], 1)]
RECORD = {"controller_epoch": 5, "phases": {line["target"]: line["took_ms"] for _, line in LINES}}
BEFORE: list[Step] = [("beat", {"epoch": 4}), ("silence", None)]
BEAT: Step = ("beat", {"epoch": 5})
BEAT_WITH_RECORD: Step = ("beat", {"epoch": 5, "terms": [RECORD]})


@asynccontextmanager
async def the_stopwatch() -> AsyncIterator[Visit]:
    """The page without its data."""
    async with a_visit() as visit, served(View(), FakeHandle()) as url:
        await visit.page.route("**/app.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
        await visit.page.goto(url)
        yield visit
        assert visit.complaints == []


async def told(visit: Visit, steps: Sequence[Step]) -> tuple[str | None, list[str]]:
    """Returns the stopwatch's large text, and its phases, after a page that begins heard all of this."""
    total, laps = await visit.page.evaluate(TOLD, [list(step) for step in steps])
    return total, laps


async def test_the_stopwatch_says_the_same_in_whatever_order_lines_and_beats_are_heard() -> None:
    async with the_stopwatch() as visit:
        for first_beat in range(len(LINES) + 1):
            heard = [*LINES[:first_beat], BEAT, *LINES[first_beat:], BEAT_WITH_RECORD]
            total, laps = await told(visit, [*BEFORE, *heard])
            # the silence began with the first step: when the seat became vacant is known by a line that came in time
            noticed = ("0 ms", "60 ms") if first_beat > 0 else ("unknown", "60 ms")
            assert (laps, total) == ([over("noticed", noticed[0]), *map(over, PHASES[1:])], noticed[1]), first_beat


async def test_phases_whose_lines_were_missed_are_unknown_until_a_beat_brings_the_record() -> None:
    async with the_stopwatch() as visit:
        for missed in range(1, len(LINES) + 1):
            heard = [*BEFORE, BEAT, *LINES[missed:]]
            total, laps = await told(visit, heard)
            assert total == ("10 ms" if missed == len(LINES) else "60 ms")  # of silence; since the seat was vacant
            expected = [over("noticed", "unknown")]
            for number, phase in enumerate(PHASES[1:]):
                # how long a phase took is known by its line and the one before
                expected.append(over(phase, "10 ms" if number > missed else "unknown"))
            if missed == len(LINES):
                expected[-1] = "now acknowledged …"
            assert laps == expected, missed
            total, laps = await told(visit, [*heard, BEAT_WITH_RECORD])
            assert (laps, total) == ([over("noticed", "unknown"), *map(over, PHASES[1:])], "60 ms"), missed


async def test_a_silence_of_the_same_controller_is_no_failover_and_takes_nothing_from_the_one_before() -> None:
    async with the_stopwatch() as visit:
        taken_over = [*BEFORE, *LINES, BEAT]
        said = await told(visit, taken_over)
        assert (said[0], len(said[1])) == ("60 ms", 7)
        assert (await told(visit, [*taken_over, ("silence", None)]))[1][0] == "now noticed …"
        assert await told(visit, [*taken_over, ("silence", None), BEAT]) == said
        assert await told(visit, [*taken_over, ("silence", None), *LINES, BEAT]) == said  # lines that are heard again
        assert await told(visit, [BEAT, ("silence", None), *LINES, BEAT]) == (None, [])


async def test_a_failover_without_a_silence_that_was_heard_is_shown_from_the_vacant_seat_on() -> None:
    async with the_stopwatch() as visit:
        for heard in ([*LINES, BEAT], [BEAT, *LINES], [BEAT_WITH_RECORD]):
            total, laps = await told(visit, [("beat", {"epoch": 4}), *heard])
            assert (laps, total) == ([over("noticed", "unknown"), *map(over, PHASES[1:])], "60 ms")
