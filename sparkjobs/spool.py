"""Growing logs, cut into pieces that never change: what a stream may be made of.

Spark's file source reads a file once and never looks at what is appended. So complete lines that are new go into a
piece of their own, named by the log, the bytes and the lines before it; the pieces alone say how far each log was
read, and a run that dies is continued by the next. A log is known by its folder and its first line: renaming it at
rotation, or compressing it, does not make it another.
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

from sparkjobs.files import open_content

#: the label, folder and name of the log, tells its kind and its broker as the log's own path would
_PIECE: Final = re.compile(r"([0-9a-f]{32})-(\d{15})-(\d{12})-(\d{15})(-cut)?-[\w.-]*\.log", re.ASCII)
#: as much of a log goes into one piece
PIECE_BYTES: Final = 64 << 20


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


class Spool:
    """A folder of pieces, and beside it which paths each log was seen at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def pieces(self) -> list[Piece]:
        found = (piece_of(str(path)) for path in self.folder.iterdir())
        return sorted((one for one in found if one is not None), key=lambda one: (one.log_id, one.start_bytes))

    def advance(self, paths: Iterable[str], *, is_end: bool = False) -> list[Piece]:
        """Take what is new. `is_end`: nothing will be appended any more, so half lines count."""
        reached = {piece.log_id: (piece.end_bytes, piece.first_line) for piece in self.pieces()}
        lines = {piece.log_id: _lines_in(piece) for piece in self.pieces()}
        taken: list[Piece] = []
        for path in paths:
            try:
                taken += self._advance_one(path, reached, lines, is_end=is_end)
            except (OSError, EOFError, zlib.error):
                continue  # it vanished or is being compressed just now: the next look, or its successor, has it
        return taken

    def _advance_one(
        self, path: str, reached: dict[str, tuple[int, int]], lines: dict[str, int], *, is_end: bool
    ) -> list[Piece]:
        taken = []
        with open_content(path) as content:
            first = content.readline()
            if not first.endswith(b"\n") and not (is_end and first):
                return []
            log_id = _log_id(path, first)
            end_bytes, first_line = reached.get(log_id, (0, 1))
            next_line = first_line + lines.get(log_id, 0)
            content.seek(end_bytes)
            while chunk := content.read(PIECE_BYTES):
                whole = chunk[: chunk.rfind(b"\n") + 1]
                is_cut = is_end and len(whole) < len(chunk) < PIECE_BYTES
                kept = chunk if is_cut else whole
                if not kept:
                    break
                piece = self._write(_label(path), log_id, end_bytes, next_line, kept, is_cut=is_cut)
                taken.append(piece)
                end_bytes, next_line = piece.end_bytes, next_line + kept.count(b"\n")
                reached[log_id], lines[log_id] = (end_bytes, next_line), 0
                content.seek(end_bytes)
        return taken

    def _write(self, label: str, log_id: str, start_bytes: int, first_line: int, kept: bytes, *, is_cut: bool) -> Piece:
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


def log_id_of(path: str) -> str:
    """Which log a file is."""
    with open_content(path) as content:
        return _log_id(path, content.readline())


def _log_id(path: str, first_line: bytes) -> str:
    return sha256(os.fsencode(Path(path).resolve().parent) + b"\0" + first_line).hexdigest()[:32]


def _lines_in(piece: Piece) -> int:
    return Path(piece.path).read_bytes().count(b"\n")
