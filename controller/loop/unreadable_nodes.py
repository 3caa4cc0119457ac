"""The book of znodes that could not be read, or are malformed: each with its reason, and when to look again.

A watch tells when a znode changes, and never when its ACL does; so each of these is read again after a while, for as
long as the term lasts. Nothing is read or decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import structlog

from controller.zookeeper.port import Denied, NoAuthError, RefusedError

log = structlog.get_logger()

FIRST_RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 30.0
#: a path is shown by so many characters of it
SHOWN_MAX: Final = 120


class _Entry(msgspec.Struct):
    trouble: str
    #: whether belief says it, too: then it is not said twice
    is_believed: bool
    retry_s: float = FIRST_RETRY_S
    due_at_s: float | None = None


def trouble_with(refusal: Denied | RefusedError) -> str:
    """Returns the meaning of ZooKeeper's refusal for an operator."""
    code = refusal.code if isinstance(refusal, Denied) else refusal.refusal
    if code == NoAuthError.code:
        return f"this controller may not read it (ZooKeeper says {code}): grant it READ in its ACL"
    return f"ZooKeeper refuses to have it read (it says {code}): see ZooKeeper's own log"


def shown(path: str) -> str:
    """Returns a path as it can stand in a sentence, with any characters."""
    text = path if path.isascii() and path.isprintable() else ascii(path)[1:-1]
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}... ({len(path)} characters)"


class UnreadableNodes:
    """By path. Each reader of a znode reports the result."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._entries

    def __bool__(self) -> bool:
        return bool(self._entries)

    def below(self, parent: str) -> list[str]:
        """Returns those of `parent` and the paths below it that are left out."""
        return [path for path in self._entries if path == parent or path.startswith(f"{parent}/")]

    @property
    def troubles(self) -> Mapping[str, str]:
        """Returns the troubles that are reported nowhere else, by path."""
        return {path: entry.trouble for path, entry in self._entries.items() if not entry.is_believed}

    def put(self, path: str, trouble: str, *, is_believed: bool = False) -> None:
        """It is left out."""
        known = self._entries.get(path)
        if known is not None:
            known.trouble, known.is_believed = trouble, is_believed
            return
        self._entries[path] = _Entry(trouble, is_believed)
        if not is_believed:
            log.warning("znode.unreadable", path=shown(path), trouble=trouble)

    def good(self, path: str) -> None:
        """It was read, or is gone."""
        entry = self._entries.pop(path, None)
        if entry is not None:
            log.info("znode.readable", path=shown(path))

    def keep(self, parent: str, names: Iterable[str]) -> None:
        """The list of `parent` was read: a node that is not on it is gone, with all below it."""
        self.good(parent)
        if not self._entries:
            return
        listed, prefix = frozenset(names), f"{parent}/"
        for path in [path for path in self._entries if path.startswith(prefix)]:
            if path[len(prefix) :].partition("/")[0] not in listed:
                self.good(path)

    def due(self, now_s: float) -> list[str]:
        """Returns the paths to be read again now; each time it is in vain, after twice the time."""
        found = []
        for path, entry in self._entries.items():
            if entry.due_at_s is None:
                entry.due_at_s = now_s + entry.retry_s
            elif entry.due_at_s <= now_s:
                entry.retry_s = min(entry.retry_s * 2, MAX_RETRY_S)
                entry.due_at_s = now_s + entry.retry_s
                found.append(path)
        return found
