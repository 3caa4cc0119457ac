"""Which code counts as judging the wall clock, and which does not."""

from __future__ import annotations

import ast
import textwrap

import pytest

from tests.clocks import judgements, measured_by_the_wall, moments_reckoned_with, short_deadlines, wall_readers

HELPER = "import time\ndef now_ms() -> int:\n    return time.time_ns() // 1_000_000\n"


def found(source: str) -> tuple[int, int]:
    """How many judgements, and how many short deadlines."""
    modules = {"tests.it": ast.parse(textwrap.dedent(source)), "tests.helper": ast.parse(HELPER)}
    return len(list(judgements(modules, {"tests.it"}))), len(list(short_deadlines(modules, {"tests.it"})))


@pytest.mark.parametrize(
    "source",
    [
        "import time as t\nbegun = t.monotonic()\nassert 1 > t.monotonic() - begun",
        "import time\nbegun = time.perf_counter()\ntook = time.perf_counter() - begun\nassert (took <= X) is True",
        "from time import monotonic as now\ndeadline = now() + 5\nassert now() < deadline, 'late'",
        "import time\ngaps = []\ngaps.append((time.time() - before) * 1_000)\nassert max(gaps) < 250",
        "import time\nclass A:\n    def f(self): self.gap = time.monotonic() - self.last\nassert a.gap < 2",
        "from tests.helper import now_ms\nbegun_ms = now_ms()\nassert line.at_ms - begun_ms < 200",
        "from tests.helper import now_ms\ndue_ms = now_ms() + 5\nassert now_ms() <= due_ms + 3",
        "import asyncio\nnow = asyncio.get_running_loop().time\nbegun = now()\nassert 0.9 > now() - begun",
    ],
)
def test_an_assertion_on_elapsed_time_is_found(source: str) -> None:
    assert found(source) == (1, 0)


@pytest.mark.parametrize(
    "source",
    [
        "import time\nbegun = time.monotonic()\nassert time.monotonic() - begun >= 0.05",
        "import time\nassert time.monotonic() > deadline == client.deadline",
        "from tests.helper import now_ms\nkilled_at_ms = now_ms()\nassert killed_at_ms <= outage.end_ms",
        "from tests.contract.virtual import in_virtual_time\nbegun = loop.time()\nassert loop.time() - begun < 1",
        "import time\nwhile time.monotonic() < deadline: pass",
        "clock = FakeClock()\nbegun = clock()\nassert clock() - begun < 1",
    ],
)
def test_an_assertion_that_a_slow_machine_cannot_fail_is_allowed(source: str) -> None:
    assert found(source) == (0, 0)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("async def f():\n    async with asyncio.timeout(10): ...", 1),
        ("SOON_S = 5\nasync def f():\n    await asyncio.wait_for(said(), SOON_S)", 1),
        ("def f():\n    subprocess.run(command, timeout=20)", 1),
        ("async def f():\n    async with asyncio.timeout(60): ...", 0),
        ("def f():\n    subprocess.run(command, timeout=DEADLINE_S)", 0),
        ("async def f():\n    with pytest.raises(TimeoutError):\n        await asyncio.wait_for(said(), 0.1)", 0),
        ("async def f():\n    await asyncio.wait(tasks, timeout=1)", 0),
    ],
)
def test_a_wait_that_fails_lasts_a_minute_unless_silence_is_expected(source: str, count: int) -> None:
    assert found(source) == (0, count)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("begun = self._tools.wall_ms()\nif self._tools.wall_ms() - begun > 5: ...", 2),
        (
            "class A:\n    def f(self): self.due_ms = self._wall_ms() + 5\n    def g(self): return x >= self.due_ms",
            1,
        ),
        ("from controller.base.clock import wall_ms as now\noldest = now() - KEPT_MS", 1),
        ("import time\nif time.time() > deadline: ...", 1),
        ("from datetime import UTC, datetime\nage = datetime.now(UTC) - since", 1),
        ("import time\nbegun = time.monotonic()\nif time.monotonic() - begun > 5: ...", 0),
        ("at_ms = self._wall_ms()\nself.told = Line(at_ms)", 0),
        ("retry_at_ms = wall_ms() + pause_ms", 0),
        ("loop = asyncio.get_running_loop()\nif loop.time() > give_up_at: ...", 0),
    ],
)
def test_a_measurement_by_the_wall_clock_is_found(source: str, count: int) -> None:
    assert len(list(measured_by_the_wall({"it": ast.parse(source)}, {"it"}))) == count


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("from controller.base.clock import wall_ms\nTools(wall_ms=wall_ms)", True),
        ("import time as t\nstarted = t.time()", True),
        ("import datetime\ndatetime.datetime.now()", True),
        ("import time\ntime.monotonic()", False),
        ("from datetime import datetime\ndatetime.fromtimestamp(line.at_ms / 1_000)", False),
        ("class A:\n    def f(self): return self._wall_ms()", False),
    ],
)
def test_a_reader_of_the_wall_clock_is_found(source: str, is_found: bool) -> None:
    assert bool(wall_readers({"it": ast.parse(source)}, {"it"})) == is_found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("age_ms = context.now_ms - event.from_ms", 1),
        ("if one.at_ms <= newest: ...", 1),
        ("if known.to_ms is None: ...", 0),
        ("fact.mtime_ms > newest_ms - FOUND_WITHIN_MS", 0),
        ("seconds = at_ms // 1_000 % 86_400", 0),
    ],
)
def test_arithmetic_with_moments_of_the_wall_clock_is_found(source: str, count: int) -> None:
    assert len(list(moments_reckoned_with({"it": ast.parse(source)}, {"it"}))) == count
