"""A stretch of a log: what one process reads of it at a time, in pieces of whole lines."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from gzip import GzipFile
from typing import IO, Final, NamedTuple, cast

from sparkjobs.input.files import open_content
from sparkjobs.tables.silver import BronzeFile

#: as much of a file is one task
STRETCH_BYTES: Final = 16_000_000
PIECE_BYTES: Final = 8 << 20


class Stretch(NamedTuple):
    """Bytes of one file's content; lines that begin in it are its own. `skipped`: duplicates, by their numbers."""

    file: BronzeFile
    start: int
    end: int | None  # none: to the end, however far that is
    kinds: Mapping[str, int]  # what is in it belongs to so many shares of each kind
    skipped: frozenset[int] = frozenset()


def stretches_of(file: BronzeFile, kinds: Mapping[str, int]) -> Iterator[Stretch]:
    """A compressed file is one."""
    starts = [0]
    if file.size_bytes > STRETCH_BYTES and not file.is_gzip:
        starts = list(range(0, file.size_bytes - STRETCH_BYTES // 2, STRETCH_BYTES))
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        yield Stretch(file, start, end, kinds)


def pieces_of(stretch: Stretch) -> Iterator[bytes]:
    """Whole lines; only the last piece of a file may end within one."""
    with open_content(stretch.file.paths[0]) as content:
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
