"""The words of lines whose place is known: a report quotes a few hundred of what may be millions."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, Final

from sparkjobs.input.files import lines_of, open_content
from sparkjobs.parse.lines import CONTINUES, LineReader
from sparkjobs.tables.silver import LINE_KEPT, BronzeFile

_CHUNK_BYTES: Final = 1 << 20
Place = tuple[str, int]


def lines_at(files: Iterable[BronzeFile], places: Iterable[Place]) -> Mapping[Place, str]:
    """Of each place its line, as much of it as an event keeps. What cannot be read any more is left out."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for file_id, line_no in places:
        wanted[file_id].add(line_no)
    found: dict[Place, str] = {}
    for file in files:
        try:
            for line_no, line in _lines(file.paths[0], sorted(wanted.get(file.file_id, ()))):
                line = line if line_no > 1 else line.removeprefix(BOM_UTF8)  # noqa: PLW2901
                found[file.file_id, line_no] = line.decode("utf-8", "replace")[:LINE_KEPT]
        except (OSError, EOFError, zlib.error):
            continue  # its row says so, or it went since; a finding stands without its quote
    return found


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
                    found[file.file_id, line_no] = lines
        except (OSError, EOFError, zlib.error):
            continue  # as above
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


def _lines(path: str, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """In order; only chunks that hold one of them are divided into lines."""
    if not numbers:
        return
    with open_content(path) as content:
        above, rest, done = 0, b"", 0
        while done < len(numbers):
            chunk = content.read(_CHUNK_BYTES)
            if not chunk:
                break
            newlines = chunk.count(b"\n")
            until = bisect_right(numbers, above + newlines)
            if until > done:
                lines = (rest + chunk).split(b"\n")
                for number in numbers[done:until]:
                    yield number, lines[number - above - 1]
                rest, done = lines[-1], until
            else:
                rest = rest + chunk if not newlines else chunk[chunk.rfind(b"\n") + 1 :]
            above += newlines
        if done < len(numbers) and numbers[done] == above + 1 and rest:
            yield numbers[done], rest
