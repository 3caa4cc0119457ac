"""A log is the list of its batches, under any operations and after any death."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.records.log_and_model import Twin

OFFSETS = st.floats(0, 1)
COUNTS = st.integers(1, 4)
POWER = st.none() | st.builds(Random, st.integers(0, 1 << 30))


class LogMachine(RuleBasedStateMachine):
    """Anything in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = Twin()

    def at(self, share: float) -> int:
        """An offset of the log."""
        return self.twin.start + round(share * (self.twin.end - self.twin.start))

    def operations(self, counts: list[int], share: float) -> dict[str, Callable[[], None]]:
        twin, offset = self.twin, self.at(share)
        return {
            "append": lambda: twin.append(counts[0], producer_id=len(counts) - 2),
            "append_fetched": lambda: twin.append_fetched(counts),
            "truncate": lambda: twin.truncate(offset),
            "start_anew": lambda: twin.start_anew(twin.end + 7),
            "advance_start": lambda: twin.advance_start(offset),
            "retain": lambda: twin.retain(offset),
            "flush": twin.flush,
            "settle": twin.settle,
        }

    @rule(count=COUNTS, producer_id=st.integers(-1, 2))
    def append(self, count: int, producer_id: int) -> None:
        self.twin.append(count, producer_id)

    @rule(counts=st.lists(COUNTS, min_size=1, max_size=6))
    def append_fetched(self, counts: list[int]) -> None:
        self.twin.append_fetched(counts)

    @rule(more=st.integers(1, 3))
    def begin_epoch(self, more: int) -> None:
        self.twin.begin_epoch(more)

    @rule(name=st.sampled_from(["truncate", "advance_start", "retain", "flush", "settle"]), share=OFFSETS)
    def change(self, name: str, share: float) -> None:
        self.operations([1], share)[name]()

    @rule(offset=st.integers(0, 100))
    def start_anew(self, offset: int) -> None:
        self.twin.start_anew(offset)

    @rule(seconds=st.integers(1, 100))
    def pass_time(self, seconds: int) -> None:
        self.twin.now_ms += 1_000 * seconds

    @rule(power=POWER)
    def reopen(self, power: Random | None) -> None:
        self.twin.reopen(power)

    @rule(
        name=st.sampled_from(sorted(Twin.__dict__.keys() & {"append", "append_fetched", "truncate", "start_anew",
                                                            "advance_start", "retain", "flush", "settle"})),
        counts=st.lists(COUNTS, min_size=1, max_size=4),
        share=OFFSETS,
        fuse=st.integers(0, 40) | st.integers(0, 600),
        power=POWER,
    )  # fmt: skip
    def die(self, name: str, counts: list[int], share: float, fuse: int, power: Random | None) -> None:
        self.twin.dying(fuse, power, self.operations(counts, share)[name])

    @precondition(lambda self: self.twin.batches)
    @rule(index=st.integers(0, 1_000))
    def repeat(self, index: int) -> None:
        self.twin.repeat(index)

    @rule(share=st.floats(-0.2, 1.2), max_bytes=st.integers(0, 1_000), below=OFFSETS)
    def read(self, share: float, max_bytes: int, below: float) -> None:
        self.twin.check_read(self.at(share), max_bytes, self.at(below))

    @rule(seconds=st.integers(0, 300))
    def seek(self, seconds: int) -> None:
        self.twin.check_times(self.twin.now_ms - 1_000 * seconds)

    @invariant()
    def epochs(self) -> None:
        self.twin.check_epochs()


TestLog = LogMachine.TestCase
TestLog.settings = settings(stateful_step_count=40, max_examples=settings.default.max_examples)


def a_life(twin: Twin) -> None:
    """Everything that writes, over several segments."""
    for index in range(9):
        twin.append(2, producer_id=index % 3 - 1)
        twin.now_ms += 10_000
    twin.flush()
    twin.append_fetched([1, 2, 1])
    twin.settle()
    twin.begin_epoch(2)
    for _ in range(4):
        twin.append(1, producer_id=1)
    twin.truncate(13)
    for _ in range(6):
        twin.append(1, producer_id=0)
    twin.advance_start(8)
    twin.settle()
    twin.append(3)
    twin.start_anew(100)
    twin.append(1)
    twin.flush()


@pytest.mark.parametrize("is_machine", [False, True], ids=["the process", "the machine"])
def test_a_log_survives_a_death_at_every_byte_and_operation(is_machine: bool) -> None:
    whole = Twin()
    a_life(whole)
    died = 0
    for fuse in range(whole.disk.steps):
        twin = Twin()
        died += twin.dying(fuse, Random(fuse) if is_machine else None, lambda twin=twin: a_life(twin))  # type: ignore[misc]
        twin.append(1, producer_id=5)
        twin.check_epochs()
    assert died > 1_500
