"""A cluster as of a moment: from a record, a snapshot alone, a live ZooKeeper, or the output of `kafka-topics
--describe`.

Histories are found by the files' content and told by cluster. `kafka-topics --describe`, of any release, says of a
broker only that it leads or is in sync. These brokers are taken to live, where the partition has a leader. It does not
say the rule of elections: a list with `Elr:` is KRaft's with eligible leader replicas; any other gets the rule that
both modes share.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkjobs.history.answers import answers_of
from sparkjobs.history.cluster import NOBODY, Broker, Cluster, Mode, Name, Partition, PartitionStep, Replay, Step
from sparkjobs.history.elections import ELR_FEATURE
from sparkjobs.history.kraft import KraftReplay
from sparkjobs.history.migration import KraftSide, ZooKeeperSide, handed_over, migration_rows
from sparkjobs.history.zookeeper import ZooKeeperReplay, chroots_in
from sparkjobs.records import RecordError
from sparkjobs.records.discovery import Source, find_records
from sparkjobs.records.kraft_history import KraftHistory, kraft_history
from sparkjobs.records.zookeeper_history import ZooKeeperHistory, zookeeper_history
from sparkjobs.records.zookeeper_live import SCHEME, live_tree
from sparkjobs.tables.record import RECORD, RecordSource
from sparkjobs.tables.silver import Row

_FIELD: Final = re.compile(
    r"(Topic|TopicId|PartitionCount|Configs|Partition|Leader|Replicas|Isr|Elr|LastKnownElr|Adding Replicas|"
    r"Removing Replicas): *([^\t]*?)(?=[\t ]+(?:[A-Z]\w*|Adding Replicas|Removing Replicas):|\s*$)",
    re.ASCII,
)
#: Kafka 3.7 to 3.9 says this of a cluster without eligible leader replicas
_NO_ELR: Final = "N/A"
#: its first line, perhaps after warnings of the tool's libraries
_TOPIC: Final = re.compile(rb"^\s*Topic: ?\S+[\t ]", re.MULTILINE)
#: a description of 100,000 partitions has 15 MB
MAX_BYTES: Final = 256 * 1024 * 1024


def cluster_in(text: str) -> Cluster:
    """Raises RecordError for a line that names a partition and does not say the rest."""
    cluster = Cluster("zookeeper")
    for number, line in enumerate(text.splitlines(), 1):
        said = {key: value.strip() for key, value in _FIELD.findall(line)}
        if "Topic" not in said:
            continue
        if "Partition" not in said:
            _take_topic(cluster, said)
            continue
        try:
            _take_partition(cluster, said)
        except (KeyError, ValueError):
            raise RecordError(f"line {number} names a partition and not its leader, replicas and ISR") from None
    if not cluster.partitions:
        raise RecordError("no line of it describes a partition")
    for partition in cluster.partitions.values():
        if partition.leader != NOBODY:  # without a leader, those that were in sync last are dead
            cluster.brokers |= {broker: Broker(0) for broker in (partition.leader, *partition.isr)}
    return cluster


def _take_topic(cluster: Cluster, said: dict[str, str]) -> None:
    if said.get("TopicId"):
        cluster.topic_ids[said["Topic"]] = said["TopicId"]
    pairs = [one.partition("=") for one in said.get("Configs", "").split(",") if "=" in one]
    if pairs:
        cluster.configs["topic", said["Topic"]] = {key.strip(): value.strip() for key, _, value in pairs}


def _take_partition(cluster: Cluster, said: dict[str, str]) -> None:
    leader = NOBODY if said["Leader"] in ("none", "-1") else int(said["Leader"])
    if said.get("Elr", _NO_ELR) != _NO_ELR:
        cluster.mode = "kraft"
        cluster.configs["feature", ""] = {ELR_FEATURE: "1"}
    cluster.partitions[said["Topic"], int(said["Partition"])] = Partition(
        leader=leader,
        leader_epoch=0,
        isr=_numbers(said["Isr"]),
        replicas=_numbers(said["Replicas"]),
        epoch=0,
        adding=_numbers(said.get("Adding Replicas", "")),
        removing=_numbers(said.get("Removing Replicas", "")),
        elr=_numbers(said.get("Elr", "")),
        last_known_elr=_numbers(said.get("LastKnownElr", "")),
    )


def _numbers(words: str) -> tuple[int, ...]:
    return tuple(int(one) for one in words.replace(" ", "").split(",") if one and one != _NO_ELR)


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
    """Returns the histories of all records below the named paths: ZooKeeper's, a history for each chroot, then
    KRaft's."""
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
    """Returns all tables of `sparkjobs.tables.record`. A history that cannot be told is a row that says why."""
    tables: dict[str, list[Row]] = {name: [] for name in RECORD}
    moves = _Moves(cluster)
    for mode in ("zookeeper", "kraft"):
        mine = [one for one in sources if one.kind.startswith(mode)]
        try:
            histories = histories_of(mine)
            if not histories and (unread := [f"{one.path}: {one.trouble}" for one in mine if one.trouble is not None]):
                raise RecordError("; ".join(unread[:TROUBLES_SAID]))
            for history in histories:
                replay = history.replay()
                watch = moves.watching(history)
                answers = answers_of(replay, f"{cluster}{history.chroot}", history.committed, watch)
                for name, rows in answers.items():
                    tables[name] += rows
                unknown = getattr(replay, "unknown", {})
                tables["record_sources"] += _sources_of(history, f"{cluster}{history.chroot}", unknown)
        except RecordError as error:
            row = RecordSource(cluster=cluster, mode=mode, kind="trouble", said=str(error))
            tables["record_sources"].append(row)
    return moves.told(tables)


class _Moves:
    """The sides of a migration from ZooKeeper to KRaft. Of several clusters in one ZooKeeper, one can be KRaft's."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._zookeeper: list[tuple[str, ZooKeeperSide]] = []
        self._kraft: tuple[KraftSide, str | None] | None = None

    def watching(self, history: History) -> Callable[[Step, Cluster], None]:
        """ZooKeeper's histories come first: one names the offset at which it is compared with KRaft's."""
        if isinstance(history.record, KraftHistory):
            _, side = self._moved(history.record.cluster_id)
            watch = KraftSide(history.committed, side)
            self._kraft = watch, history.record.cluster_id
            return watch
        side = ZooKeeperSide()
        self._zookeeper.append((f"{self._cluster}{history.chroot}", side))
        return side

    def _moved(self, cluster_id: str | None) -> tuple[str, ZooKeeperSide | None]:
        """Returns the cluster in ZooKeeper that moves to a KRaft cluster."""
        for name, side in self._zookeeper:
            own = None if side.cluster is None else side.cluster.cluster_id
            if side.marked is not None and (own is None or cluster_id is None or own == cluster_id):
                return name, side
        return self._cluster, None

    def told(self, tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """With the tables of the migration. Where KRaft's log goes on, ZooKeeper's open rows end with its claim."""
        kraft, cluster_id = (None, None) if self._kraft is None else self._kraft
        name, side = self._moved(cluster_id)
        kept: list[Any] = [
            one
            for one in tables["record_tenures"]
            if (one.mode, one.cluster) in (("zookeeper", name), ("kraft", self._cluster))  # type: ignore[attr-defined]
        ]
        found = migration_rows(name, side, kraft, kept)
        if side is not None and kraft is not None and side.claims:
            tables = handed_over(tables, name, side, kraft)
        return {table: rows + found.get(table, []) for table, rows in tables.items()}


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


#: of files of which none can be read
TROUBLES_SAID: Final = 20
#: of a partition's past, as many changes are told
PAST_KEPT: Final = 12


class Moment(msgspec.Struct, frozen=True):
    """The state of the cluster at a moment, and its evidence."""

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
    if any(one.startswith(SCHEME) for one in named):
        return _of_live(named, at_ms, of)
    described = _described(named)
    if described is not None:
        return Moment(described, f"{named[0]}, printed by kafka-topics --describe", [], None)
    history = the_history(named, mode, chroot, at_ms)
    replay = history.replay()
    past: deque[tuple[Step, PartitionStep]] = deque(maxlen=PAST_KEPT)
    is_begun = False
    for step in replay.steps(at_ms):
        is_begun = True
        if of is not None:
            past += [(step, one) for one in step.changes if isinstance(one, PartitionStep) and one.name == of]
    if not is_begun:
        raise RecordError("the record begins after that time")
    return Moment(replay.cluster, _rests_on(history), list(past), replay.next_ms)


def _of_live(named: Sequence[str], at_ms: int | None, of: Name | None) -> Moment:
    if len(named) > 1:
        raise RecordError("name a live ZooKeeper alone, without files")
    if at_ms is not None:
        raise RecordError("a live ZooKeeper knows only the present: --at end; its log.* and snapshot.* know more")
    live = live_tree(named[0])
    replay = ZooKeeperReplay(live, live.chroot)
    past = [(step, one) for step in replay.steps() for one in step.changes
            if isinstance(one, PartitionStep) and one.name == of]  # fmt: skip
    return Moment(replay.cluster, f"the live ZooKeeper at {live.servers}{live.chroot}", past, None)


def the_history(named: Sequence[str], mode: str | None, chroot: str | None, at_ms: int | None = None) -> History:
    """The only one that fits; of a cluster that moved from ZooKeeper to KRaft, the one that was the truth then. Raises
    RecordError if there is none, or several."""
    found = [one for one in histories_in(named) if mode in (None, one.mode) and chroot in (None, one.chroot or "/")]
    if not found:
        raise RecordError(
            "no record of ZooKeeper or KRaft is there: name folders with ZooKeeper's log.* and snapshot.*, KRaft's "
            "__cluster_metadata-0, a file with what kafka-topics --describe printed, or zookeeper://HOST:PORT/CHROOT"
        )
    if len(found) == 2 and (moved := _imported(*found)) is not None:
        return found[1] if at_ms is None or at_ms >= moved else found[0]
    if len(found) > 1:
        which = ", ".join(
            f"--mode {one.mode}" + (f" --chroot {one.chroot or '/'}" if one.chroot else "") for one in found
        )
        raise RecordError(f"there are {len(found)} histories; say which: {which}")
    return found[0]


def _imported(one: History, other: History) -> int | None:
    """Returns when KRaft's log became the truth, where it is the same cluster's as ZooKeeper's history."""
    if (one.mode, other.mode) != ("zookeeper", "kraft") or not isinstance(other.record, KraftHistory):
        return None
    old, new = ZooKeeperSide(), KraftSide(None, None)
    for side, history in ((old, one), (new, other)):
        replay = history.replay()
        for step in replay.steps():
            side(step, replay.cluster)
    ids = {other.record.cluster_id, None if old.cluster is None else old.cluster.cluster_id} - {None}
    done = new.states.get("migration")
    return done.at_ms if old.claims and old.returned is None and len(ids) <= 1 and done is not None else None


def _rests_on(history: History) -> str:
    record = history.record
    if isinstance(record, KraftHistory):
        return f"KRaft's metadata log of node {record.base.node}"
    servers = sorted({record.servers[one.server].folder for one in record.stretches})
    return f"ZooKeeper's transactions of {', '.join(servers) or 'a snapshot alone'}"


def _described(named: Sequence[str]) -> Cluster | None:
    """If one text file was named that begins as the output of Kafka's tool."""
    if len(named) != 1 or not (path := Path(named[0])).is_file():
        return None
    with path.open("rb") as content:
        head = content.read(4096)
        if not _TOPIC.search(head):
            return None
        rest = content.read(MAX_BYTES)
    if len(rest) == MAX_BYTES:
        raise RecordError(f"{path} has more than {MAX_BYTES >> 20} MiB")
    return cluster_in((head + rest).decode("utf-8", "replace"))
