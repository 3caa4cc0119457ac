"""Lines that were read before: which numbers are to be skipped, the first copy staying. Identity is the event id alone;
marks only say which lines can have the same. Of lines that occur once nothing leaves the executor."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from sparkjobs.engine.local.digest import MARKS
from sparkjobs.engine.local.executor import DividedTask, Executor, Share, Shares
from sparkjobs.engine.local.stretches import Stretch, pieces_of
from sparkjobs.parse.lines import LineReader
from sparkjobs.tables.silver import SilverEvent

_IDS: Final = "ids"


class AskedLines(NamedTuple):
    """Lines of a stretch, by their numbers in it."""

    number: int
    stretch: Stretch
    line_nos: Sequence[int]

    def at(self, path: str) -> AskedLines:
        """A copy of the file lies there."""
        return self._replace(stretch=self.stretch.at(path))

    def reading(self, content: Iterable[bytes]) -> AskedLines:
        """Returns this task with the content of the stretch."""
        return self._replace(stretch=self.stretch.reading(content))


def skipped_in(executor: Executor, stretches: Sequence[Stretch], digests: Shares) -> dict[int, frozenset[int]]:
    """Of each stretch that has some, by its number; stretches are in the order in which their lines count."""
    if not stretches:
        return {}
    shares = stretches[0].kinds[MARKS]
    alike = _joined(digests.ask(MARKS, alike_in, [None] * shares))
    if not alike:
        return {}
    asked = [AskedLines(number, stretches[number], np.sort(its).tolist()) for number, its in sorted(alike.items())]
    ids = executor.divide(ids_of, asked, {_IDS: shares})
    return {
        number: frozenset(its.tolist()) for number, its in _joined(ids.ask(_IDS, again_in, [None] * shares)).items()
    }


def _joined(found: Sequence[Mapping[int, Any]]) -> dict[int, Any]:
    numbers = sorted({number for its in found for number in its})
    return {number: np.concatenate([its[number] for its in found if number in its]) for number in numbers}


def alike_in(share: Share, _: Any) -> dict[int, Any]:
    """By stretch the numbers of lines of which another has the same mark."""
    if not share.parts:
        return {}
    marks = np.concatenate([part.marks for _, part in share.parts])
    ordered = np.sort(marks)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(twice):
        return {}
    is_alike = np.split(np.isin(marks, twice), np.cumsum([len(part.marks) for _, part in share.parts])[:-1])
    found: dict[int, list[Any]] = {}
    for (number, part), its in zip(share.parts, is_alike, strict=True):
        if its.any():
            found.setdefault(number, []).append(part.line_nos[its])
    return {number: np.concatenate(its) for number, its in found.items()}


def ids_of(asked: AskedLines) -> Iterator[DividedTask]:
    """Their event ids; a line that went since has none."""
    shares = asked.stretch.kinds[MARKS]
    parts: dict[tuple[str, int], Any] = {}
    for line_no, event_id in _ids_in(asked):
        parts.setdefault((_IDS, int(event_id[:8], 16) % shares), []).append((asked.number, line_no, event_id))
    yield DividedTask(None, parts)


def _ids_in(asked: AskedLines) -> Iterator[tuple[int, str]]:
    file = asked.stretch.file
    reader, above = LineReader(file), 0
    wanted = iter(asked.line_nos)
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
                    yield number, read.event_id
                number = next(wanted, None)
            above += len(lines) - 1


def again_in(share: Share, _: Any) -> dict[int, Any]:
    """By stretch the numbers of lines that an earlier one is equal to."""
    seen, again = set[str](), dict[int, list[int]]()
    for number, line_no, event_id in sorted(one for _, part in share.parts for one in part):
        if event_id in seen:
            again.setdefault(number, []).append(line_no)
        seen.add(event_id)
    return {number: np.array(its, np.int64) for number, its in again.items()}
