"""The words of lines whose place is known: a report quotes a few hundred of what may be millions."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import IO, NamedTuple

from sparkjobs.engine.executor import Divided
from sparkjobs.engine.local.stretches import Stretch, pieces_of
from sparkjobs.input.files import lines_of, open_content
from sparkjobs.parse.lines import CONTINUES, LineReader
from sparkjobs.rules.facts import Place
from sparkjobs.tables.silver import LINE_KEPT, BronzeFile


class Wanted(NamedTuple):
    """Lines of a stretch, by their numbers in it, in order."""

    stretch: Stretch
    line_nos: Sequence[int]

    def at(self, path: str) -> Wanted:
        """A copy of the file lies there."""
        return self._replace(stretch=self.stretch.at(path))

    def reading(self, content: Iterable[bytes]) -> Wanted:
        """With what is in the stretch."""
        return self._replace(stretch=self.stretch.reading(content))


def lines_in(wanted: Wanted) -> Iterator[Divided]:
    """Tells each line with its number, as much of it as an event keeps. What cannot be read any more is left out."""
    found, above = list[tuple[int, str]](), 0
    with suppress(OSError, EOFError, zlib.error):  # its row says so, or it went since; a finding stands without a quote
        for content in pieces_of(wanted.stretch):
            newlines = content.count(b"\n") + (not content.endswith(b"\n"))
            own = wanted.line_nos[
                bisect_right(wanted.line_nos, above) : bisect_right(wanted.line_nos, above + newlines)
            ]
            if own:
                lines = content.split(b"\n")
                found += [(number, lines[number - above - 1].decode("utf-8", "replace")[:LINE_KEPT]) for number in own]
            above += newlines
            if above >= wanted.line_nos[-1]:
                break
    yield Divided(found, {})


def whole_events(
    files: Iterable[BronzeFile], places: Iterable[Place], open_file: Callable[[str], IO[bytes]] = open_content
) -> Mapping[Place, Sequence[str]]:
    """Of events that are more than what silver keeps of their line: the line, and what belongs to it below."""
    events: dict[str, set[int]] = defaultdict(set)
    for file_id, line_no in places:
        events[file_id].add(line_no)
    found: dict[Place, Sequence[str]] = {}
    for file in files:
        try:
            with open_file(file.paths[0]) as content:
                for line_no, lines in _continued(lines_of(content), events[file.file_id], LineReader(file)):
                    found[Place(file.file_id, line_no)] = lines
        except (OSError, EOFError, zlib.error):
            continue  # it went since
    return found


def _continued(lines: Iterable[str], events: Collection[int], reader: LineReader) -> Iterator[tuple[int, list[str]]]:
    at, whole = 0, list[str]()
    for line_no, line in enumerate(chain(lines, [None]), start=1):
        if line is not None and line_no not in events and whole and reader.read(line, line_no) is CONTINUES:
            whole.append(line)
            continue
        if len(whole) > 1 or sum(map(len, whole)) > LINE_KEPT:
            yield at, whole
        at, whole = line_no, [line] if line is not None and line_no in events else []
