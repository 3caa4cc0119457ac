"""Writes the state-change log: one JSON object per line, one write for lines that are accepted together.

It owns the file and its rotation. It never blocks its caller and never stops the controller: lines that cannot be
kept are counted and reported. A single thread encodes and writes; its queue is bounded in lines. The file is opened
for every write, so one that was moved, removed or torn by a kill is noticed without keeping books.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import structlog

from controller.base.config import LIMITS, Limits
from controller.core.project.lines import Line

log = structlog.get_logger()

#: encoded in one go: other threads wait meanwhile
_LINES_PER_PIECE = 5_000


class Journal:
    """One per process. `accept` from one thread; the counters may be read from any."""

    def __init__(self, path: Path, limits: Limits = LIMITS, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._limits = limits
        self._encoder = msgspec.json.Encoder()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._lock = threading.Lock()
        self._lines_queued = 0
        self._clock = clock
        self._lines_lost = self._lines_lost_lately = 0
        self._lost_at = clock()
        self._write_failed = False

    @property
    def lines_lost(self) -> int:
        return self._lines_lost

    @property
    def lines_lost_lately(self) -> int:
        """Returns 0 again when none was lost for a while: lines that cannot be had back are no trouble for ever."""
        with self._lock:
            return self._lines_lost_lately if self._is_shown() else 0

    @property
    def write_failed(self) -> bool:
        """Whether the last lines accepted were lost."""
        return self._write_failed

    def accept(self, lines: Sequence[Line]) -> None:
        """Have these written, together. The sequence must not be changed afterwards."""
        if not lines:
            return
        with self._lock:
            has_room = self._lines_queued + len(lines) <= self._limits.log_lines_queued
            if has_room:
                self._lines_queued += len(lines)
        if not has_room:
            self._lose(len(lines), "the queue is full")
            return
        self._writer.submit(self._write, lines).add_done_callback(partial(self._on_done, len(lines)))

    async def close(self) -> None:
        """Return when everything accepted is written or lost."""
        await asyncio.to_thread(self._writer.shutdown)

    def _write(self, lines: Sequence[Line]) -> None:
        pieces = range(0, len(lines), _LINES_PER_PIECE)
        data = b"".join(self._encoder.encode_lines(lines[start : start + _LINES_PER_PIECE]) for start in pieces)
        written = 0
        try:
            descriptor = self._open(len(data))
            try:
                if not _ends_with_newline(descriptor):
                    os.write(descriptor, b"\n")
                while written < len(data):
                    written += os.write(descriptor, memoryview(data)[written:])
            finally:
                os.close(descriptor)
        except OSError as error:
            self._lose(data.count(b"\n", written), str(error))
        else:
            self._recover()

    def _open(self, size_bytes: int) -> int:
        try:
            present_bytes = self._path.stat().st_size
        except FileNotFoundError:
            present_bytes = 0
        if present_bytes and present_bytes + size_bytes > self._limits.log_rotation_bytes:
            self._rotate()
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)

    def _rotate(self) -> None:
        """state-change.log becomes .1, .1 becomes .2, and so on; the last one goes."""
        for number in range(self._limits.log_files_kept - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number + 1}"))
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))

    def _on_done(self, count: int, future: Future[None]) -> None:
        with self._lock:
            self._lines_queued -= count
        error = future.exception()
        if error is not None:  # a bug of ours: nothing of it was written
            self._lose(count, repr(error))

    def _lose(self, count: int, reason: str) -> None:
        with self._lock:
            self._lines_lost += count
            self._lines_lost_lately = count + (self._lines_lost_lately if self._is_shown() else 0)
            self._lost_at = self._clock()
            is_news = not self._write_failed
            self._write_failed = True
        if is_news:
            log.error("journal.failed", path=str(self._path), reason=reason)

    def _is_shown(self) -> bool:
        return self._write_failed or (self._clock() - self._lost_at) * 1_000 < self._limits.log_loss_shown_ms

    def _recover(self) -> None:
        with self._lock:
            is_news = self._write_failed
            self._write_failed = False
        if is_news:
            log.warning("journal.recovered", path=str(self._path), lines_lost=self._lines_lost)


def _ends_with_newline(descriptor: int) -> bool:
    """Whether the file is empty or its last line complete."""
    size_bytes = os.fstat(descriptor).st_size
    return size_bytes == 0 or os.pread(descriptor, 1, size_bytes - 1) == b"\n"
