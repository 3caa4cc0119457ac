"""The two recorded clusters of real Kafka as histories, for traces. Only ZooKeeper's writes are known of them."""

from __future__ import annotations

from collections.abc import Iterator

from tests import recordings
from tests.faults.checker.history import Commit, History, Write
from tests.recordings import Recording


def history_of(recording: Recording) -> History:
    """Return a history of the recording's commits. The recording has no requests or answers of brokers."""
    return History(list(_commits(recording)), has_direct_leaders=False)


def _commits(recording: Recording) -> Iterator[Commit]:
    owned: dict[str, set[str]] = {}
    for group in recording.transactions:
        first = group[0]
        writes = [write for one in group for write in _writes(one, owned)]
        if writes:
            yield Commit(first.zxid, int(first.session, 16), first.at_ms, tuple(writes))


def _writes(one: recordings.Write, owned: dict[str, set[str]]) -> Iterator[Write]:
    data = (one.data or "").encode()
    match one.op:
        case "create":
            if one.ephemeral:
                owned.setdefault(one.session, set()).add(one.path)
            yield Write("create", one.path, data, 0, is_ephemeral=one.ephemeral)
        case "set":
            yield Write("set", one.path, data, one.version)
        case "delete":
            for paths in owned.values():
                paths.discard(one.path)
            yield Write("delete", one.path)
        case "check":
            yield Write("check", one.path, expected=one.version - 1)
        case "close":
            yield from (Write("delete", path) for path in sorted(owned.pop(one.session, ())))
