"""The faults that a broker is made to suffer, in a file: log directories that fail, partitions it does not fetch, a
clock that jumps, clients that wait for answers.

The lab writes the file and a broker with `klamm.faults.file` watches it, so a fault can be set while the broker is
down, and there is no port by which any other process could set one. The broker writes beside it the faults that it has
taken up. This module owns the format, and inflicts nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from controller.base.files import write_atomically
from controller.wire import bodies

POLL_INTERVAL_MS: Final = 100

log = structlog.get_logger()


class ClientFaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The faults that Kafka's clients suffer from one broker."""

    #: every request waits so long before anything is done about it
    slow_ms: int = 0
    #: requests wait until it is over
    is_silent: bool = False
    #: of so many Produce requests the records are written, and the connection breaks in place of the answer
    lost_answers: int = 0
    #: another one means the same once more
    number: int = 0


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All faults of one broker."""

    #: by their place in `log.dirs`, from 0
    broken_dirs: frozenset[int] = frozenset()
    #: topic and partition
    held: frozenset[tuple[str, int]] = frozenset()
    #: its wall clock is so much ahead of the machine's
    clock_ahead_ms: int = 0
    clients: ClientFaults = ClientFaults()


NO_FAULTS: Final = Faults()


def read_faults(path: Path) -> Faults:
    """Returns the faults in the file; without a file, no faults. Raises msgspec.MsgspecError if it is malformed."""
    try:
        return bodies.decode(path.read_bytes(), Faults)
    except FileNotFoundError:
        return NO_FAULTS


def write_faults(path: Path, faults: Faults) -> None:
    write_atomically(path, msgspec.json.encode(faults, order="sorted") + b"\n")


def taken_from(path: Path) -> Faults:
    """Returns the faults that the broker suffers by its own word, which it writes beside the file."""
    return read_faults(_taken_path(path))


async def watch_faults(path: Path, on_faults: Callable[[Faults], None]) -> None:
    """Passes on the file's content now, and whenever it was replaced. A failed read is repeated."""
    seen: tuple[int, int] | None = (0, 0)
    is_unread = False
    while True:
        stamp = _stamp_of(path)
        if stamp != seen:
            try:
                faults = read_faults(path)
            except msgspec.MsgspecError as error:
                log.warning("faults.ignored", path=str(path), reason=str(error))
                seen = stamp
            except OSError as error:  # no files are left
                if not is_unread:
                    log.warning("faults.unread", path=str(path), reason=str(error))
                is_unread = True
            else:
                seen, is_unread = stamp, False
                on_faults(faults)
                _say_taken(path, faults)
        await asyncio.sleep(POLL_INTERVAL_MS / 1_000)


def _say_taken(path: Path, faults: Faults) -> None:
    if not path.parent.is_dir():
        return  # there is no lab that would read it
    try:
        write_faults(_taken_path(path), faults)
    except OSError as error:
        log.warning("faults.untold", path=str(path), reason=str(error))


def _taken_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.taken")


def _stamp_of(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns
