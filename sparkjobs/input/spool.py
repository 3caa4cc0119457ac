"""Growing logs, cut into pieces that never change: the input of a stream.

Spark's file source reads a file once and never looks at appended lines. So complete new lines go into a piece of their
own, named by the log, the bytes and the lines before it. The pieces alone say how far each log was read, and the next
run continues one that died. A log is known by its folder and by its beginning, up to its first line with a time of day:
renaming it at rotation, or compressing it, does not make it another.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from sparkjobs.input.files import open_content

#: the label, folder and name of the log, tells its kind and its broker as the log's own path would
_PIECE: Final = re.compile(r"([0-9a-f]{32})-(\d{15})-(\d{12})-(\d{15})(-cut)?-[\w.-]*\.log", re.ASCII)
#: as much of a log goes into one piece
PIECE_BYTES: Final = 64 << 20
#: a log is known by no more than this
_HEAD_BYTES: Final = 64 << 10
_TIMED: Final = re.compile(rb"\d\d:\d\d:\d\d|\"at_ms\":")


class Piece(msgspec.Struct, frozen=True):
    """Lines of one log, from `first_line` on (1 is the first)."""

    path: str
    log_id: str
    start_bytes: int
    first_line: int
    end_bytes: int
    is_cut: bool  # its last line has no newline, and none will come


def piece_of(path: str) -> Piece | None:
    """From its name."""
    found = _PIECE.fullmatch(path.rpartition("/")[2])
    if found is None:
        return None
    return Piece(path, found[1], int(found[2]), int(found[3]), int(found[4]), bool(found[5]))


class _SpoolProgress(msgspec.Struct):
    """How far a log was taken."""

    end_bytes: int = 0
    next_line: int = 1


class Spool:
    """A folder of pieces, which one process at a time adds to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._first: dict[str, Piece] = {}
        self._reached: dict[str, _SpoolProgress] = {}
        self._unchanged: dict[str, tuple[int, int, int]] = {}  # path: the file's stat when all of it was taken
        last = {piece.log_id: piece for piece in self.pieces()}
        for piece in self.pieces():
            self._first.setdefault(piece.log_id, piece)
        for piece in last.values():
            lines = Path(piece.path).read_bytes().count(b"\n")
            self._reached[piece.log_id] = _SpoolProgress(piece.end_bytes, piece.first_line + lines)

    def pieces(self) -> list[Piece]:
        found = (piece_of(str(path)) for path in self.folder.iterdir())
        return sorted((one for one in found if one is not None), key=lambda one: (one.log_id, one.start_bytes))

    def first(self, log_id: str) -> Piece:
        """With which a log begins."""
        return self._first[log_id]

    def advance(self, paths: Iterable[str], *, is_end: bool = False) -> list[Piece]:
        """Takes the new lines. `is_end`: nothing will be appended any more, so half lines count."""
        taken: list[Piece] = []
        for path in paths:
            try:
                state = Path(path).stat()
                now = (state.st_ino, state.st_size, state.st_mtime_ns)
                if is_end or self._unchanged.get(path) != now:
                    taken += self._advance_one(path, is_end=is_end)
                    self._unchanged[path] = now
            except (OSError, EOFError, zlib.error):
                continue  # it vanished or is being compressed just now: the next look, or its successor, has it
        return taken

    def _advance_one(self, path: str, *, is_end: bool) -> list[Piece]:
        taken = []
        with open_content(path) as content:
            start = content.read(_HEAD_BYTES)
            head = _head_of(start) or (start if is_end else b"")
            if not head:
                return []  # it does not say yet which log it is
            log_id = _log_id(path, head)
            reached = self._reached.setdefault(log_id, _SpoolProgress())
            content.seek(reached.end_bytes)
            while chunk := content.read(PIECE_BYTES):
                whole = chunk[: chunk.rfind(b"\n") + 1]
                is_cut = is_end and len(whole) < len(chunk) < PIECE_BYTES
                kept = chunk if is_cut else whole
                if not kept:
                    break
                piece = self._write(_label(path), log_id, reached, kept, is_cut=is_cut)
                self._first.setdefault(log_id, piece)
                taken.append(piece)
                reached.end_bytes, reached.next_line = piece.end_bytes, reached.next_line + kept.count(b"\n")
                content.seek(reached.end_bytes)
        return taken

    def _write(self, label: str, log_id: str, reached: _SpoolProgress, kept: bytes, *, is_cut: bool) -> Piece:
        start_bytes, first_line = reached.end_bytes, reached.next_line
        end_bytes = start_bytes + len(kept)
        cut = "-cut" if is_cut else ""
        name = f"{log_id}-{start_bytes:015}-{first_line:012}-{end_bytes:015}{cut}-{label}.log"
        hidden = self.folder / f".{name}"
        hidden.write_bytes(kept)
        hidden.replace(self.folder / name)
        return Piece(str(self.folder / name), log_id, start_bytes, first_line, end_bytes, is_cut)


def _label(path: str) -> str:
    whole = Path(path).resolve()
    return re.sub(r"[^\w.-]+", "_", f"{whole.parent.name}-{whole.name}", flags=re.ASCII)[:100]


def _head_of(start: bytes) -> bytes:
    """Whole lines through the first that says when it was written; nothing as long as it may still come."""
    timed = _TIMED.search(start)
    end = -1 if timed is None else start.find(b"\n", timed.end())
    if end >= 0:
        return start[: end + 1]
    return start if len(start) == _HEAD_BYTES else b""


def log_id_of(path: str) -> str | None:
    """Returns the identity of a log, under any name; None before it has its first line with a time."""
    with open_content(path) as content:
        head = _head_of(content.read(_HEAD_BYTES))
    return _log_id(path, head) if head else None


def _log_id(path: str, head: bytes) -> str:
    return sha256(os.fsencode(Path(path).resolve().parent) + b"\0" + head).hexdigest()[:32]
