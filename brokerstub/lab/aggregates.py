"""The lab's streaming job: `klamm logs stream` over the brokers' logs, whose sums the brokers serve.

Owns that process. Nothing waits for it, and nothing of the cluster rests on it: a job that ended is a fact to look at.
"""

from __future__ import annotations

import asyncio
import glob
import signal
import sys
from pathlib import Path

from brokerstub.lab.bodies import AGGREGATES, ProcessRow, State
from brokerstub.lab.child import Child, launched

#: it may be killed at any moment: what it had not kept yet it reads again
STOP_TIMEOUT_MS = 5_000


class Aggregating:
    """One process, started once."""

    def __init__(self, var: Path) -> None:
        self._logs = f"{glob.escape(str(var))}/broker-*/state-change.log*"
        self._folder = var / "aggregates"
        self._child: Child | None = None
        self._is_ending = False

    @property
    def row(self) -> ProcessRow:
        child, state = self._child, self._state
        pid = child.pid if child is not None and state in ("running", "stopping") else None
        last_lines = child.last_lines() if child is not None and state == "exited" else []
        exit_code = None if child is None else child.exit_code
        return ProcessRow(AGGREGATES, pid, state, "-", exit_code, log=str(self._log), last_lines=last_lines)

    async def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "sparkjobs", "logs", "stream", self._logs, "--out", str(self._folder)]
        self._child = await launched(command, self._log)

    async def stop(self) -> None:
        if self._child is None:
            return
        self._is_ending = True
        self._child.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_MS / 1000):
                await self._child.wait()
        except TimeoutError:
            self._child.signal(signal.SIGKILL)
            await self._child.wait()

    @property
    def _log(self) -> Path:
        return self._folder / "aggregates.log"

    @property
    def _state(self) -> State:
        if self._child is None:
            return "stopped"
        if self._child.exit_code is None:
            return "stopping" if self._is_ending else "running"
        return "stopped" if self._is_ending else "exited"
