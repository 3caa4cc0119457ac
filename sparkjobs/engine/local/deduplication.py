"""Lines that were read before: which numbers are to be skipped, the first copy staying. Identity is the event id alone;
marks only say which lines can have the same."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from sparkjobs.engine.local.digest import StretchDigest
from sparkjobs.engine.local.stretches import Stretch, pieces_of
from sparkjobs.engine.local.workers import Workers
from sparkjobs.parse.lines import LineReader
from sparkjobs.tables.silver import SilverEvent


class Asked(NamedTuple):
    """Lines of a stretch, by their numbers in it."""

    stretch: Stretch
    numbers: list[int]


def skipped_in(
    workers: Workers, stretches: Sequence[Stretch], digests: Sequence[StretchDigest]
) -> list[frozenset[int]]:
    """Of each stretch; all in the order in which their lines count."""
    sizes = [len(digest.marks) for digest in digests]
    marks = np.concatenate([digest.marks for digest in digests]) if digests else np.empty(0, np.uint64)
    ordered = np.sort(marks)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(twice):
        return [frozenset()] * len(stretches)
    asked = []
    for stretch, digest, alike in zip(
        stretches, digests, np.split(np.isin(marks, twice), np.cumsum(sizes)), strict=False
    ):
        asked.append(Asked(stretch, np.sort(digest.marked[alike]).tolist()))
    seen: set[str] = set()
    skipped = []
    for one, event_ids in zip(asked, workers.spread(ids_of, asked), strict=True):
        again = []
        for number in one.numbers:
            event_id = event_ids.get(number)
            if event_id in seen:
                again.append(number)
            elif event_id is not None:
                seen.add(event_id)
        skipped.append(frozenset(again))
    return skipped


def ids_of(asked: Asked) -> dict[int, str]:
    """Their event ids; a line that went since has none."""
    file = asked.stretch.file
    reader, found, above = LineReader(file), dict[int, str](), 0
    wanted = iter(asked.numbers)
    number = next(wanted, None)
    with suppress(OSError, EOFError, zlib.error):  # the stretch's digest has the trouble
        pieces = pieces_of(asked.stretch)
        while number is not None and (content := next(pieces, None)) is not None:
            lines = content.split(b"\n")
            is_cut = bool(lines[-1])
            while number is not None and number - above <= len(lines) - (not is_cut):
                place = number - above - 1
                is_last = is_cut and place == len(lines) - 1
                line = lines[place].decode("utf-8", "replace")
                read = reader.read(line, number, is_cut=is_last and not file.is_whole)
                if isinstance(read, SilverEvent):
                    found[number] = read.event_id
                number = next(wanted, None)
            above += len(lines) - 1
    return found
