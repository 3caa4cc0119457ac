"""Histories out of what was named: files are found by their content, and told by cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sparkjobs.history.answers import answers_of
from sparkjobs.history.cluster import Mode, Replay
from sparkjobs.history.kraft import KraftReplay
from sparkjobs.history.zookeeper import ZooKeeperReplay, chroots_in
from sparkjobs.records.errors import RecordError
from sparkjobs.records.found import Source, find_records
from sparkjobs.records.kraft_history import KraftHistory, kraft_history
from sparkjobs.records.zookeeper_history import ZooKeeperHistory, zookeeper_history
from sparkjobs.tables.record import RECORD, RecordSource
from sparkjobs.tables.silver import Row


class History(msgspec.Struct, frozen=True):
    """One cluster's, in one mode; it can be walked through as often as wanted."""

    mode: Mode
    chroot: str
    record: KraftHistory | ZooKeeperHistory
    committed: int | None

    def replay(self) -> Replay:
        """From the beginning."""
        if isinstance(self.record, KraftHistory):
            return KraftReplay(self.record)
        return ZooKeeperReplay(self.record, self.chroot)


def histories_in(named: Iterable[str]) -> list[History]:
    """Of all records below what was named: ZooKeeper's, a history for each chroot, then KRaft's."""
    return histories_of(find_records(named))


def histories_of(sources: Sequence[Source]) -> list[History]:
    """Raises RecordError where one cannot be told."""
    found: list[History] = []
    zookeeper = zookeeper_history(sources)
    if zookeeper is not None:
        found += [History("zookeeper", chroot, zookeeper, None) for chroot in chroots_in(zookeeper)]
    kraft = kraft_history(sources)
    if kraft is not None:
        found.append(History("kraft", "", kraft, kraft.committed))
    return found


def answers_for_records(sources: Sequence[Source], cluster: str) -> dict[str, list[Row]]:
    """All tables of `sparkjobs.tables.record`. A history that cannot be told is a row that says why."""
    tables: dict[str, list[Row]] = {name: [] for name in RECORD}
    for mode in ("zookeeper", "kraft"):
        mine = [one for one in sources if one.kind.startswith(mode)]
        try:
            for history in histories_of(mine):
                replay = history.replay()
                answers = answers_of(replay, f"{cluster}{history.chroot}", history.committed)
                for name, rows in answers.items():
                    tables[name] += rows
                unknown = getattr(replay, "unknown", {})
                tables["record_sources"] += _sources_of(history, f"{cluster}{history.chroot}", unknown)
        except RecordError as error:
            row = RecordSource(cluster=cluster, mode=mode, kind="trouble", said=str(error))
            tables["record_sources"].append(row)
    return tables


def _sources_of(history: History, cluster: str, unknown: dict[str, int]) -> list[RecordSource]:
    record = history.record
    said: list[tuple[str, str | None, str]] = []
    if isinstance(record, KraftHistory):
        first = record.pieces[0].first
        last = max(record.base.rank[1], record.pieces[-1].end) - 1
        said.append(("history", record.base.node, f"offsets {first} to {last}, from {record.base.folder}"))
        if record.committed <= last:
            words = f"offsets {record.committed} to {last}: no file proves that they were committed"
            said.append(("uncommitted", record.base.node, words))
        void = {folder: f"{count} records that were never committed" for folder, count in record.void.items()}
    else:
        ends = [(one.first, one.last) for one in record.stretches]
        where = ", ".join(sorted({record.servers[one.server].folder for one in record.stretches}))
        if ends:
            said.append(("history", None, f"transactions {ends[0][0]:#x} to {ends[-1][1]:#x}, from {where}"))
        void = {folder: f"{count} transactions that never happened" for folder, count in record.void.items()}
    said += [("void", folder, words) for folder, words in void.items()]
    said += [("gap", None, words) for words in record.gaps]
    said += [("trouble", None, words) for words in record.troubles]
    said += [("unknown", None, f"{words} ({count} times)") for words, count in unknown.items()]
    return [
        RecordSource(cluster=cluster, mode=history.mode, kind=kind, node=node, said=words) for kind, node, words in said
    ]
