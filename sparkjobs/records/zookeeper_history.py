"""Of the transaction logs of an ensemble's servers, the one history that happened.

A server that was away may have been given a snapshot in place of the missed transactions. One that led may have written
transactions that no other had before it lost the lead. So the server that has most of the common ones is followed,
others fill its gaps, and the transactions of a lost leader alone are counted and not told. A gap that is left is
bridged by a snapshot, and said.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from sparkjobs.records import RecordError
from sparkjobs.records.discovery import TROUBLES, Source
from sparkjobs.records.zookeeper_files import Operation, Snapshot, operations_in, snapshot_in

#: an ensemble has some
MOST_SERVERS: Final = 100


class ZxidRange(NamedTuple):
    """Zxids that follow each other, both ends in it."""

    first: int
    last: int


class Stretch(NamedTuple):
    """The transactions that are read from one server."""

    first: int
    last: int
    server: int


class Bridge(NamedTuple):
    """The tree, read from a snapshot, where transactions are missing; all up to `zxid` are in it."""

    zxid: int
    source: Source
    snapshot: Snapshot


class ServerLog(msgspec.Struct):
    """One folder: which transactions it holds."""

    folder: str
    logs: list[Source]
    snapshots: list[Source]
    runs: list[ZxidRange] = []
    troubles: list[str] = []

    @property
    def last(self) -> int:
        return self.runs[-1].last if self.runs else -1

    def operations(self) -> Iterator[Operation]:
        """In order; a log is read as far as it can be, a copy of a transaction is passed over."""
        last = -1
        for one in self.logs:
            for operation in self._whole(one, last):
                last = operation.zxid
                yield operation

    def _whole(self, log: Source, last: int) -> Iterator[Operation]:
        """Yields the transactions after one. Half of a record that is being written looks damaged: damage counts only
        when a second read shows the same."""
        behind, reached = last, None
        while True:
            try:
                with log.open() as content:
                    for operation in operations_in(content):
                        if operation.zxid > behind:
                            last = operation.zxid
                            yield operation
                return
            except TROUBLES as error:
                if last == reached:
                    self._note(f"{log.path}: {error}; it is read up to there")
                    return
                behind = reached = last

    def _note(self, trouble: str) -> None:
        if trouble not in self.troubles:
            self.troubles.append(trouble)


class ZooKeeperHistory(msgspec.Struct):
    """Stretches in order, with the snapshots between them."""

    servers: list[ServerLog]
    stretches: list[Stretch]
    bridges: list[Source]  # each stands before the first transaction that is not in it
    void: dict[str, int]
    gaps: list[str]

    @property
    def troubles(self) -> list[str]:
        return [words for server in self.servers for words in server.troubles]

    def steps(self) -> Iterator[list[Operation] | Bridge]:
        """A transaction's operations, or the snapshot that stands in for those that are missing."""
        waiting = sorted(self.bridges, key=lambda one: one.first)
        last = -1
        transaction: list[Operation] = []
        for operation in heapq.merge(*(self._of_server(number) for number in range(len(self.servers))),
                                     key=lambda one: one.zxid):  # fmt: skip
            if transaction and operation.zxid != transaction[0].zxid:
                last = transaction[0].zxid
                yield transaction
                transaction = []
            while waiting and waiting[0].first <= operation.zxid:
                if (bridge := _opened(waiting.pop(0))).zxid > last:
                    yield bridge
            transaction.append(operation)
        if transaction:
            yield transaction
        for one in waiting:
            yield _opened(one)

    def _of_server(self, number: int) -> Iterator[Operation]:
        mine = [one for one in self.stretches if one.server == number]
        if not mine:
            return
        at = 0
        for operation in self.servers[number].operations():
            while at < len(mine) and operation.zxid > mine[at].last:
                at += 1
            if at == len(mine):
                return
            if operation.zxid >= mine[at].first:
                yield operation


def _opened(source: Source) -> Bridge:
    try:
        with source.open() as content:
            return Bridge(source.first - 1, source, snapshot_in(content))
    except TROUBLES as error:
        raise RecordError(f"{source.path}: {error}") from None


def zookeeper_history(sources: Sequence[Source]) -> ZooKeeperHistory | None:
    """None if there is nothing of ZooKeeper. Raises RecordError where no history can be told."""
    folders: defaultdict[str, list[Source]] = defaultdict(list)
    for one in sources:
        if one.kind.startswith("zookeeper"):
            folders[one.folder].append(one)
    if not folders:
        return None
    if len(folders) > MOST_SERVERS:
        count = f"ZooKeeper's files in {len(folders)} folders"
        raise RecordError(f"{count}: name those of one ensemble, {MOST_SERVERS} at most")
    servers = [_server_of(folder, found) for folder, found in sorted(folders.items())]
    base, pieces = _followed(servers)
    stretches = [one for one in pieces if one is not None]
    snapshots = sorted((one for server in servers for one in server.snapshots), key=lambda one: one.first)
    bridges, gaps = _bridges_for(stretches, snapshots)
    void = {server.folder: lost for server in servers if (lost := _void_in(server, servers[base], stretches))}
    return ZooKeeperHistory(servers, stretches, bridges, void, gaps)


def _server_of(folder: str, sources: Sequence[Source]) -> ServerLog:
    whole = sorted((one for one in sources if one.trouble is None), key=lambda one: one.first)
    server = ServerLog(
        folder,
        [one for one in whole if one.kind == "zookeeper log"],
        [one for one in whole if one.kind == "zookeeper snapshot"],
        troubles=[f"{one.path}: {one.trouble}" for one in sources if one.trouble is not None],
    )
    for operation in server.operations():
        if server.runs and operation.zxid in (server.last, server.last + 1):
            server.runs[-1] = ZxidRange(server.runs[-1].first, operation.zxid)
        else:
            server.runs.append(ZxidRange(operation.zxid, operation.zxid))
    return server


def _followed(servers: Sequence[ServerLog]) -> tuple[int, list[Stretch]]:
    """Returns the server to follow, and the stretches to read from each server."""
    edges = sorted({edge for server in servers for run in server.runs for edge in (run.first, run.last + 1)})
    cells = [(first, after - 1, _holders(servers, first)) for first, after in pairwise(edges)]
    cells = [cell for cell in cells if cell[2]]
    if not cells:
        return 0, []

    def weight(server: int) -> tuple[int, int]:
        mine = [(last - first + 1, len(holders)) for first, last, holders in cells if server in holders]
        return sum(size for size, held in mine if 2 * held > len(servers)), sum(size for size, _ in mine)

    base = max(range(len(servers)), key=weight)
    newest = max(server.last for server in servers) >> 32
    found = []
    for first, last, holders in cells:
        is_most = 2 * len(holders) > len(servers)
        # the last transactions in all logs that have them, while others went on in a later epoch, never happened
        is_lost = not is_most and all(servers[one].last >> 32 == last >> 32 < newest for one in holders)
        if not is_lost:
            found.append(Stretch(first, last, base if base in holders else min(holders)))
    return base, found


def _holders(servers: Sequence[ServerLog], zxid: int) -> set[int]:
    """By number. Runs are in the order of their zxids."""
    found = set()
    for number, server in enumerate(servers):
        at = bisect_right(server.runs, zxid, key=_first_of)
        if at and zxid <= server.runs[at - 1].last:
            found.add(number)
    return found


def _first_of(run: ZxidRange) -> int:
    return run.first


def _bridges_for(stretches: Sequence[Stretch], snapshots: Sequence[Source]) -> tuple[list[Source], list[str]]:
    """Returns a snapshot for each gap: the oldest that holds all that is missing."""
    if not stretches:
        return list(snapshots[-1:]), []
    bridges, gaps = [], []
    last = -1
    for one in stretches:
        is_start = last < 0 and one.first & 0xFFFFFFFF == 1 and one.first >> 32 <= 1
        is_next = last >= 0 and (one.first == last + 1 or one.first >> 32 > last >> 32)
        if not is_start and not is_next:
            bridge = next((each for each in snapshots if each.first >= one.first), None)
            missing = f"transactions {_shown(last)} to {one.first:#x} are in no log"
            if bridge is None:
                raise RecordError(
                    f"{missing}, and no snapshot leads over them: bring the snapshot.* files of any server"
                )
            bridges.append(bridge)
            gaps.append(f"{missing}; {bridge.path} says how things stood then, not how they came to be so")
        last = one.last
    return bridges, gaps


def _shown(zxid: int) -> str:
    return "from the beginning" if zxid < 0 else f"from {zxid + 1:#x}"


def _void_in(server: ServerLog, base: ServerLog, stretches: Sequence[Stretch]) -> int:
    """Returns how many transactions only this server has, that never happened."""
    if server is base:
        return 0
    count = 0
    for run in server.runs:
        kept = sum(max(0, min(run.last, one.last) - max(run.first, one.first) + 1) for one in stretches)
        count += run.last - run.first + 1 - kept
    return count
