"""The data directory of one broker process: its lock, and the ZooKeeper session kept over restarts.

The lock is held for the life of the process. `save_session` must be called for each new session before anything is
registered under it: what a session owns can then always be told from what a stranger owns. It must never print or
log a password, and knows nothing of ZooKeeper itself.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Annotated

import msgspec
import structlog

from controller.base.files import write_atomically
from controller.wire import bodies

log = structlog.get_logger()


class DirectoryLockedError(Exception):
    """Another process has the data directory (a frozen one too)."""

    def __init__(self, path: Path, owner: str) -> None:
        self.path, self.owner = path, owner
        super().__init__(f"the data directory {path} is in use by the process with pid {owner}")


class SavedSession(msgspec.Struct, frozen=True):
    """A session that this data directory had."""

    session_id: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    password: bytes

    def __repr__(self) -> str:
        return f"SavedSession({self.session_id:#x})"


class DataDirectory:
    """One broker's directory, locked as long as this object is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = (path / ".lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise DirectoryLockedError(path, owner) from None
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()

    def close(self) -> None:
        """Let go of the lock; idempotent. The end of the process does the same."""
        self._lock.close()

    def earlier_session(self) -> SavedSession | None:
        """The session saved last; None on a first start."""
        try:
            data = self._session_path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return bodies.decode(data, SavedSession)
        except msgspec.MsgspecError as error:
            # Somebody has been editing: as good as none, and the wait for a foreign owner covers that.
            log.warning("session_file.ignored", path=str(self._session_path), reason=str(error))
            return None

    def save_session(self, session_id: int, password: bytes) -> None:
        write_atomically(self._session_path, msgspec.json.encode(SavedSession(session_id, password)))

    @property
    def _session_path(self) -> Path:
        return self.path / "session"
