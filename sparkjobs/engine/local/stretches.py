"""Stretches of a log: the share that one process reads at a time, in pieces of whole lines.

`lines_in` finds the words of lines whose places are known: a report quotes a few hundred of millions of lines.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from gzip import GzipFile
from typing import IO, Final, NamedTuple, cast

from sparkjobs.engine.local.executor import DividedTask
from sparkjobs.input.files import BLOCK_BYTES, SCHEME, open_content
from sparkjobs.tables.silver import LINE_KEPT, BronzeFile

#: as much of a file is one task
STRETCH_BYTES: Final = 16_000_000
PIECE_BYTES: Final = 8 << 20


class Stretch(NamedTuple):
    """Bytes of one file's content; lines that begin in it are its own. `skipped`: duplicates, by their numbers."""

    file: BronzeFile
    start: int
    end: int | None  # none: to the end, however far that is
    kinds: Mapping[str, int]  # how many shares of each kind its parts belong to
    path: str  # absolute: the reader may work elsewhere
    skipped: frozenset[int] = frozenset()
    content: Iterable[bytes] | None = None  # the content from another reader, where Python cannot read the file

    @property
    def stretch(self) -> Stretch:
        """Any task about a stretch says which."""
        return self

    def at(self, path: str) -> Stretch:
        """A copy lies there."""
        return self._replace(path=path)

    def reading(self, content: Iterable[bytes]) -> Stretch:
        """Returns this stretch with its content, in pieces of whole lines."""
        return self._replace(content=content)


def stretches_of(file: BronzeFile, kinds: Mapping[str, int]) -> Iterator[Stretch]:
    """Returns the stretches of a file. A compressed file is one stretch. A file that only Spark can read is divided as
    Spark does."""
    starts, path = [0], file.paths[0]
    if SCHEME.match(path):
        starts += [BLOCK_BYTES * number for number in range(1, 1 if file.is_gzip else len(file.blocks) + 1)]
    elif file.size_bytes > STRETCH_BYTES and not file.is_gzip:
        starts = list(range(0, file.size_bytes - STRETCH_BYTES // 2, STRETCH_BYTES))
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        yield Stretch(file, start, end, kinds, path if SCHEME.match(path) else os.path.abspath(path))  # noqa: PTH100


def pieces_of(stretch: Stretch) -> Iterator[bytes]:
    """Whole lines; only the last piece of a file may end within one."""
    if stretch.content is not None:
        yield from stretch.content
        return
    with open_content(stretch.path) as content:
        position = stretch.start
        if position:
            content.seek(position - 1)
            position += len(content.readline()) - 1
        while stretch.end is None or position < stretch.end:
            size = PIECE_BYTES if stretch.end is None else min(PIECE_BYTES, stretch.end - position)
            piece = (
                content.read(size)
                if isinstance(cast(object, content), GzipFile)
                else _whole_lines(content, position, size)
            )
            if piece and not piece.endswith(b"\n"):
                piece += content.readline()
            if not piece:
                break
            yield piece if position else piece.removeprefix(BOM_UTF8)
            position += len(piece)


def _whole_lines(content: IO[bytes], position: int, size: int) -> bytes:
    """Read at once: to put them together would take as long as to read them."""
    content.seek(position + size - 1)
    size += len(content.readline()) - 1
    content.seek(position)
    return content.read(size)


class WantedLines(NamedTuple):
    """Lines of a stretch, by their numbers in it, in order."""

    stretch: Stretch
    line_nos: Sequence[int]

    def at(self, path: str) -> WantedLines:
        """A copy of the file lies there."""
        return self._replace(stretch=self.stretch.at(path))

    def reading(self, content: Iterable[bytes]) -> WantedLines:
        """Returns this task with the content of the stretch."""
        return self._replace(stretch=self.stretch.reading(content))


def lines_in(wanted: WantedLines) -> Iterator[DividedTask]:
    """Tells each line with its number, as much of it as an event keeps. A line that can no longer be read is left
    out."""
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
    yield DividedTask(found, {})
