"""A child process that cannot outlive its owner, however that one ends.

Owns the process, the pipe that ties its life to ours, and where its log began. It must never signal a process that
has ended, nor leave one behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

TAIL_LINES = 12
TAIL_BYTES = 64 * 1024

# The shell becomes the process (same pid); the child it leaves behind reads a pipe whose only writer is the owner:
# end-of-file means that the owner is gone, a line that the process is. Unlike a death signal (prctl) this works on
# every POSIX system, and a frozen process dies too. (The watcher takes the pipe as descriptor 3 because a shell gives a
# background command an empty input.)
_RUN_WATCHED = 'exec 3<&0; (read -r _ <&3 || kill -9 $$) & exec "$@" </dev/null 3<&-'


class Child:
    """One process, from its launch to its end. Made by `launched`."""

    def __init__(
        self, process: asyncio.subprocess.Process, lifeline: int, log_path: Path, log_start_bytes: int
    ) -> None:
        self.pid = process.pid
        self.log_path = log_path
        self._process = process
        self._lifeline = lifeline
        self._log_start_bytes = log_start_bytes
        self._end = asyncio.create_task(self._until_end())

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -n when signal n ended it."""
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def wait(self) -> None:
        """Wait until it has ended; the caller that launched it must wait for this at last."""
        await asyncio.shield(self._end)

    def last_lines(self) -> list[str]:
        """Returns the last lines of its log, since its launch."""
        return last_lines(self.log_path, self._log_start_bytes)

    async def _until_end(self) -> None:
        await self._process.wait()
        # The watcher must not shoot at a pid that may be another's by now. It may be gone itself.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._lifeline, b"\n")
        os.close(self._lifeline)


async def launched(command: Sequence[str], log_path: Path) -> Child:
    """Start it, with its output appended to the log."""
    read_end, lifeline = os.pipe()
    try:
        with log_path.open("ab") as log:
            log_start_bytes = log.tell()
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _RUN_WATCHED, "sh", *command),
                stdin=read_end,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is for the owner, which then stops it
            )
    except BaseException:
        os.close(lifeline)  # the watcher, if there is one already, takes it for our end
        raise
    finally:
        os.close(read_end)
    return Child(process, lifeline, log_path, log_start_bytes)


def last_lines(path: Path, start_bytes: int = 0) -> list[str]:
    """Returns the last lines that were written to a log after `start_bytes`."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start_bytes, size - TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    except FileNotFoundError:
        return []
