"""A cluster as of a moment: what was named is a record, a snapshot alone, or what `kafka-topics --describe` printed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from sparkjobs.history.cluster import Cluster, Name, PartitionStep, Step
from sparkjobs.history.described import MAX_BYTES, cluster_in
from sparkjobs.history.opened import History, histories_in
from sparkjobs.records.errors import RecordError
from sparkjobs.records.kraft_history import KraftHistory

#: of a partition's past, as many changes are told
PAST_KEPT: Final = 12


class Moment(msgspec.Struct, frozen=True):
    """The cluster as it stood, and what that rests on."""

    cluster: Cluster
    rests_on: str
    #: of the partition that was asked about, the last of its changes
    past: list[tuple[Step, PartitionStep]]
    #: when the record goes on; None where the moment is its end
    next_ms: int | None


def moment_of(
    named: Sequence[str],
    at_ms: int | None,
    *,
    mode: str | None = None,
    chroot: str | None = None,
    of: Name | None = None,
) -> Moment:
    """As of a time; None: the end. Raises RecordError where that cannot be told."""
    described = _described(named)
    if described is not None:
        return Moment(described, f"{named[0]}, printed by kafka-topics --describe", [], None)
    history = the_history(named, mode, chroot)
    count, next_ms = _steps_until(history, at_ms)
    if not count:
        raise RecordError("the record begins after that time")
    replay = history.replay()
    past: deque[tuple[Step, PartitionStep]] = deque(maxlen=PAST_KEPT)
    for step in islice(replay.steps(), count):
        past += [(step, one) for one in step.changes if isinstance(one, PartitionStep) and one.name == of]
    return Moment(replay.cluster, _rests_on(history), list(past), next_ms)


def _steps_until(history: History, at_ms: int | None) -> tuple[int, int | None]:
    """How many steps were taken by then, and when the next was. The record's order counts: the first later one ends
    the search, though another controller's clock may be behind."""
    count = 0
    for step in history.replay().steps():
        if at_ms is not None and step.at_ms > at_ms:
            return count, step.at_ms
        count += 1
    return count, None


def the_history(named: Sequence[str], mode: str | None, chroot: str | None) -> History:
    """The only one that fits. Raises RecordError if there is none, or several."""
    found = [one for one in histories_in(named) if mode in (None, one.mode) and chroot in (None, one.chroot or "/")]
    if not found:
        raise RecordError(
            "no record of ZooKeeper or KRaft is there: name folders with ZooKeeper's log.* and snapshot.*, KRaft's "
            "__cluster_metadata-0, or a file with what kafka-topics --describe printed"
        )
    if len(found) > 1:
        which = ", ".join(
            f"--mode {one.mode}" + (f" --chroot {one.chroot or '/'}" if one.chroot else "") for one in found
        )
        raise RecordError(f"there are {len(found)} histories; say which: {which}")
    return found[0]


def _rests_on(history: History) -> str:
    record = history.record
    if isinstance(record, KraftHistory):
        return f"KRaft's metadata log of node {record.base.node}"
    servers = sorted({record.servers[one.server].folder for one in record.stretches})
    return f"ZooKeeper's transactions of {', '.join(servers) or 'a snapshot alone'}"


def _described(named: Sequence[str]) -> Cluster | None:
    """If one text file was named that begins as Kafka's tool begins."""
    if len(named) != 1 or not (path := Path(named[0])).is_file():
        return None
    with path.open("rb") as content:
        head = content.read(4096)
        if not head.lstrip().startswith(b"Topic:"):
            return None
        rest = content.read(MAX_BYTES)
    if len(rest) == MAX_BYTES:
        raise RecordError(f"{path} has more than {MAX_BYTES >> 20} MiB")
    return cluster_in((head + rest).decode("utf-8", "replace"))
