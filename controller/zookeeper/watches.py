"""The books about armed watches, and the message that arms them again.

Watches are one-shot and belong to a connection: after a reconnect they are armed again by SetWatches relative to
the last zxid seen, so that only changes since then fire. No I/O, no aiozk; paths are the server's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from controller.zookeeper.port import EventKind, WatchEvent

SET_WATCHES_BYTES = 128 * 1024
_INT = struct.Struct("!i")
_HEAD = struct.Struct("!iq")  # operation 101, relative zxid


class WatchLists:
    """Each path in the list that its last read put it in: it existed, it did not, its children were listed."""

    def __init__(self) -> None:
        self.present: set[str] = set()
        self.absent: set[str] = set()
        self.parents: set[str] = set()

    def arm(self, present: Iterable[str] = (), absent: Iterable[str] = ()) -> None:
        """For data watches on nodes that exist, exist watches on nodes that do not."""
        self.present.update(present)
        self.absent.difference_update(present)
        self.absent.update(absent)
        self.present.difference_update(absent)

    def on_event(self, event: WatchEvent) -> None:
        """A watch that fired is gone."""
        if event.kind is not EventKind.CHILDREN:
            self.present.discard(event.path)
            self.absent.discard(event.path)
        if event.kind in (EventKind.CHILDREN, EventKind.DELETED):
            self.parents.discard(event.path)

    def requests(self, zxid: int) -> list[bytes]:
        """Returns the requests that arm all of them on a new connection."""
        return list(set_watches_for(zxid, sorted(self.present), sorted(self.absent), sorted(self.parents)))


def set_watches_for(
    zxid: int, present: Iterable[str], absent: Iterable[str], parents: Iterable[str] = ()
) -> Iterator[bytes]:
    """SetWatches requests whose paths take at most SET_WATCHES_BYTES: a change after `zxid` fires at once."""
    lists: tuple[list[bytes], ...] = ([], [], [])
    size = 0
    for kind, paths in enumerate((present, absent, parents)):
        for path in paths:
            raw = path.encode()
            if size + len(raw) + _INT.size > SET_WATCHES_BYTES:
                yield _set_watches(zxid, lists)
                lists, size = ([], [], []), 0
            lists[kind].append(_INT.pack(len(raw)) + raw)
            size += len(raw) + _INT.size
    if size:
        yield _set_watches(zxid, lists)


def _set_watches(zxid: int, lists: tuple[list[bytes], ...]) -> bytes:
    vectors = (_INT.pack(len(paths)) + b"".join(paths) for paths in lists)
    return _HEAD.pack(101, zxid) + b"".join(vectors)
