"""The state-change log: its lines on disk, and the latest of this term in memory.

`Journal` owns the file and its rotation: one JSON object per line, one write for lines that are accepted together. It
never blocks its caller and never stops the controller: lines that cannot be kept are counted and reported. A single
thread encodes and writes; its queue is bounded in lines. The file is opened for every write, so one that was moved,
removed or torn by a kill is noticed without keeping books.

`RecentLines` holds the last 10,000 lines of this term, numbered, for stories and streams. The log on disk is the whole
truth; these lines can be read at once. Nothing is kept per reader: each reader remembers the number of its last line,
and waits for more.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
import structlog

from controller.base.bell import Bell
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
    """Returns whether the file is empty or its last line complete."""
    size_bytes = os.fstat(descriptor).st_size
    return size_bytes == 0 or os.pread(descriptor, 1, size_bytes - 1) == b"\n"


LINES_KEPT = 10_000


class Entry:
    """One line; the first sender encodes it into `frame`, so that the others need not encode it again."""

    __slots__ = ("frame", "line", "number")

    def __init__(self, number: int, line: Line) -> None:
        self.number = number
        self.line = line
        self.frame: bytes | None = None


class RecentLines:
    """Built anew for each term, and closed with it; `accept` as a journal's. Lines are numbered from 1."""

    def __init__(self, controller_epoch: int, lines_kept: int = LINES_KEPT) -> None:
        self.controller_epoch = controller_epoch
        self.is_closed = False
        #: the newest line's
        self.number = 0
        self._kept = lines_kept
        self._entries: deque[Entry] = deque(maxlen=lines_kept)
        self._bell = Bell()

    def accept(self, lines: Sequence[Line]) -> None:
        if not lines:
            return
        first = self.number + 1
        self.number += len(lines)
        kept = lines[-self._kept :]
        self._entries.extend(Entry(number, line) for number, line in enumerate(kept, first + len(lines) - len(kept)))
        self._bell.ring()

    def close(self) -> None:
        """The term is over: readers end, also those that wait."""
        self.is_closed = True
        self._bell.ring()

    def about(self, topic: str, partition: int) -> list[Line]:
        """The oldest first."""
        return [one.line for one in self._entries if one.line.topic == topic and one.line.partition == partition]

    @property
    def forgotten(self) -> int:
        """The number of the newest line that is not kept any more; 0 while all are."""
        return self.number - len(self._entries)

    def after(self, number: int) -> list[Entry]:
        """Returns the lines after the line `number`, the oldest first: costs as much as there are, not as are kept."""
        newer = list(islice(reversed(self._entries), max(self.number - number, 0)))
        newer.reverse()
        return newer

    async def wait(self) -> None:
        """Until something was accepted, or the term is over."""
        if not self.is_closed:
            await self._bell.wait()
