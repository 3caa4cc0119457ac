"""A small run of the hostile inputs, with a fresh seed each time; the large one is recorded in SECURITY.md."""

from __future__ import annotations

from random import SystemRandom

from tests.security.hostile import run


async def test_nothing_hostile_gets_through() -> None:
    seed = SystemRandom().randrange(1 << 32)
    tally = await run(8_000, seed)
    assert tally.findings == [], f"again: python -m tests.security.hostile --inputs 8000 --seed {seed}"
    assert tally.total >= 8_000
