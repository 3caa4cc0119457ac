"""The identity of a broker process: the lock of its data directory, its last ZooKeeper session, and `meta.properties`.

The lock is held for the life of the process. `save_session` must be called for each new session before any node is
registered under it: then a session of this process can always be told from a stranger's. It must never print or log a
password.

`meta.properties` in each log directory is Kafka's own file, version 0: it names the broker and the cluster that the
directory belongs to. A directory of another broker, or of another cluster, is refused at start, because its replicas
are not this broker's. The module knows nothing of ZooKeeper itself.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import msgspec
import structlog

from controller.base.config import ConfigError, read_properties
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
        """Returns the session saved last; None on a first start."""
        try:
            data = self._session_path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return bodies.decode(data, SavedSession)
        except msgspec.MsgspecError as error:
            # The file was edited: it counts as missing, and the wait for a foreign owner covers that.
            log.warning("session_file.ignored", path=str(self._session_path), reason=str(error))
            return None

    def save_session(self, session_id: int, password: bytes) -> None:
        write_atomically(self._session_path, msgspec.json.encode(SavedSession(session_id, password)))

    @property
    def _session_path(self) -> Path:
        return self.path / "session"


FILE: Final = "meta.properties"
_ID: Final = re.compile(r"[0-9]{1,10}")


class MetaPropertiesError(ConfigError):
    """A log directory belongs to another broker or cluster."""


class MetaProperties(msgspec.Struct, frozen=True):
    """The content of one file; None for a missing value."""

    path: Path
    broker_id: int | None
    cluster_id: str | None


def read_meta_properties(directories: Iterable[Path]) -> list[MetaProperties]:
    """Of the directories that have one."""
    return [_read(path) for directory in directories if (path := directory / FILE).exists()]


def broker_id_of(files: Iterable[MetaProperties], configured: int) -> int | None:
    """Returns the broker's id, checked against every directory; None when it has none yet."""
    found = None if configured < 0 else configured
    source = "property broker.id"
    for meta in files:
        if meta.broker_id is None:
            continue
        if found is None:
            found, source = meta.broker_id, str(meta.path)
        if meta.broker_id != found:
            raise MetaPropertiesError(f"{meta.path} belongs to broker {meta.broker_id}, and {source} says {found}")
    return found


def check_cluster(files: Iterable[MetaProperties], cluster_id: str) -> None:
    for meta in files:
        if meta.cluster_id not in (None, cluster_id):
            raise MetaPropertiesError(
                f"{meta.path} belongs to cluster {meta.cluster_id}, and ZooKeeper has cluster {cluster_id}"
            )


def write_meta_properties(directories: Iterable[Path], broker_id: int, cluster_id: str) -> None:
    """Where the file is missing or says less."""
    for directory in directories:
        wanted = MetaProperties(directory / FILE, broker_id, cluster_id)
        if wanted not in read_meta_properties([directory]):
            text = f"# which broker of which cluster\nversion=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n"
            write_atomically(wanted.path, text.encode())


def _read(path: Path) -> MetaProperties:
    properties = read_properties(path)
    broker_id = properties.get("broker.id")
    if properties.get("version") != "0" or not (broker_id is None or _ID.fullmatch(broker_id)):
        raise MetaPropertiesError(f"{path} is no meta.properties of version 0")
    return MetaProperties(path, None if broker_id is None else int(broker_id), properties.get("cluster.id"))
