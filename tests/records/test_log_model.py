"""A log is the list of its batches, under any operations and after any death."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.records.log_and_model import LogAndModel

OFFSETS = st.floats(0, 1)
COUNTS = st.integers(1, 4)
POWER = st.none() | st.builds(Random, st.integers(0, 1 << 30))


class LogMachine(RuleBasedStateMachine):
    """Anything in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = LogAndModel()

    def at(self, share: float) -> int:
        """An offset of the log."""
        return self.pair.start + round(share * (self.pair.end - self.pair.start))

    def operations(self, counts: list[int], share: float) -> dict[str, Callable[[], None]]:
        pair, offset = self.pair, self.at(share)
        return {
            "append": lambda: pair.append(counts[0], producer_id=len(counts) - 2),
            "append_fetched": lambda: pair.append_fetched(counts),
            "truncate": lambda: pair.truncate(offset),
            "start_anew": lambda: pair.start_anew(pair.end + 7),
            "advance_start": lambda: pair.advance_start(offset),
            "retain": lambda: pair.retain(offset),
            "flush": pair.flush,
            "settle": pair.settle,
        }

    @rule(count=COUNTS, producer_id=st.integers(-1, 2))
    def append(self, count: int, producer_id: int) -> None:
        self.pair.append(count, producer_id)

    @rule(counts=st.lists(COUNTS, min_size=1, max_size=6))
    def append_fetched(self, counts: list[int]) -> None:
        self.pair.append_fetched(counts)

    @rule(more=st.integers(1, 3))
    def begin_epoch(self, more: int) -> None:
        self.pair.begin_epoch(more)

    @rule(name=st.sampled_from(["truncate", "advance_start", "retain", "flush", "settle"]), share=OFFSETS)
    def change(self, name: str, share: float) -> None:
        self.operations([1], share)[name]()

    @rule(offset=st.integers(0, 100))
    def start_anew(self, offset: int) -> None:
        self.pair.start_anew(offset)

    @rule(seconds=st.integers(1, 100))
    def pass_time(self, seconds: int) -> None:
        self.pair.now_ms += 1_000 * seconds

    @rule(power=POWER)
    def reopen(self, power: Random | None) -> None:
        self.pair.reopen(power)

    @rule(
        name=st.sampled_from(sorted(LogAndModel.__dict__.keys() & {"append", "append_fetched", "truncate", "start_anew",
                                                            "advance_start", "retain", "flush", "settle"})),
        counts=st.lists(COUNTS, min_size=1, max_size=4),
        share=OFFSETS,
        fuse=st.integers(0, 40) | st.integers(0, 600),
        power=POWER,
    )  # fmt: skip
    def die(self, name: str, counts: list[int], share: float, fuse: int, power: Random | None) -> None:
        self.pair.dying(fuse, power, self.operations(counts, share)[name])

    @precondition(lambda self: self.pair.batches)
    @rule(index=st.integers(0, 1_000))
    def repeat(self, index: int) -> None:
        self.pair.repeat(index)

    @rule(share=st.floats(-0.2, 1.2), max_bytes=st.integers(0, 1_000), below=OFFSETS)
    def read(self, share: float, max_bytes: int, below: float) -> None:
        self.pair.check_read(self.at(share), max_bytes, self.at(below))

    @rule(seconds=st.integers(0, 300))
    def seek(self, seconds: int) -> None:
        self.pair.check_times(self.pair.now_ms - 1_000 * seconds)

    @invariant()
    def epochs(self) -> None:
        self.pair.check_epochs()


TestLog = LogMachine.TestCase
TestLog.settings = settings(stateful_step_count=40, max_examples=settings.default.max_examples)


def a_life(pair: LogAndModel) -> None:
    """Everything that writes, over several segments."""
    for index in range(9):
        pair.append(2, producer_id=index % 3 - 1)
        pair.now_ms += 10_000
    pair.flush()
    pair.append_fetched([1, 2, 1])
    pair.settle()
    pair.begin_epoch(2)
    for _ in range(4):
        pair.append(1, producer_id=1)
    pair.truncate(13)
    for _ in range(6):
        pair.append(1, producer_id=0)
    pair.advance_start(8)
    pair.settle()
    pair.append(3)
    pair.start_anew(100)
    pair.append(1)
    pair.flush()


@pytest.mark.parametrize("is_machine", [False, True], ids=["the process", "the machine"])
def test_a_log_survives_a_death_at_every_byte_and_operation(is_machine: bool) -> None:
    whole = LogAndModel()
    a_life(whole)
    died = 0
    for fuse in range(whole.disk.steps):
        pair = LogAndModel()
        died += pair.dying(fuse, Random(fuse) if is_machine else None, lambda pair=pair: a_life(pair))  # type: ignore[misc]
        pair.append(1, producer_id=5)
        pair.check_epochs()
    assert died > 1_500
