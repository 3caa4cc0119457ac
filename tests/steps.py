"""Counts the steps that the product takes, so that cost can be judged without a clock.

A step is a call, a line, or a turn of a loop or comprehension in the counted packages; tests, fakes and libraries
cost nothing. Loops in C are not seen, except over a `Number`: each comparison and each hash of one is a step, so that
a list in which numbers are looked up costs its length.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PRODUCT = ("controller",)


class Number(int):
    """A partition's number that is noticed whenever it is compared or hashed."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other)

    def __lt__(self, other: int) -> bool:
        return int.__lt__(self, other)

    def __hash__(self) -> int:
        return int.__hash__(self)


class Steps:
    """How many there were so far, and where most of them were."""

    def __init__(self) -> None:
        self.count = 0
        #: by file and function; counted only if asked for, since it takes longer
        self.places: dict[tuple[str, str], int] = {}

    def worst(self, many: int = 10) -> list[tuple[tuple[str, str], int]]:
        return sorted(self.places.items(), key=lambda place: -place[1])[:many]


@contextmanager
def counted(packages: tuple[str, ...] = PRODUCT, *, by_place: bool = False) -> Iterator[Steps]:
    """Counts the steps of this thread within the scope. Coverage and debuggers use the same hook, and are put back."""
    steps = Steps()
    folders = tuple(f"{ROOT / package}/" for package in packages)

    @cache
    def is_counted(filename: str) -> bool:
        return filename.startswith(folders) or filename == __file__

    def on_step(frame: FrameType, event: str, arg: Any) -> Any:
        steps.count += event == "line"
        return on_step

    def on_placed_step(frame: FrameType, event: str, arg: Any) -> Any:
        place = (frame.f_code.co_filename, frame.f_code.co_name)
        steps.places[place] = steps.places.get(place, 0) + 1
        steps.count += event == "line"
        return on_placed_step

    local = on_placed_step if by_place else on_step

    def on_call(frame: FrameType, event: str, arg: Any) -> Any:
        if not is_counted(frame.f_code.co_filename):
            return None
        steps.count += 1
        return local

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield steps
    finally:
        sys.settrace(before)
