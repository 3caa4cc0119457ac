"""What remains of a stretch of a log: the events that rules walk through, packed, and numbers about all the others.

A log is read in stretches, by several processes. Numbers of lines count from the stretch's own first line until
`sparkjobs.local.quick` puts the stretches together. What a rule concludes is decided by the rules alone; this only
leaves out lines that none of them reads (`is_counted` says which, and the tests compare).
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from sparkjobs.answers import illegal, rules
from sparkjobs.answers.facts import CLUSTER_EVENTS, tally_key
from sparkjobs.causality import OF_PAIRS
from sparkjobs.files import open_content
from sparkjobs.local.pieces import CALL, NONE, SAME, WHO, Counted, Forms, Piece, Read, Reading
from sparkjobs.parse.lines import LineReader, is_trace_head
from sparkjobs.parse.templates import Template
from sparkjobs.schemas import LINE_KEPT, BronzeFile, SilverEvent
from sparkjobs.skew import HOUR_MS

PIECE_BYTES: Final = 4 << 20
#: what rules walk through; requests that are answered are few, their receipts are not
WALKED: Final = (
    rules.PARTITION_EVENTS
    | CLUSTER_EVENTS
    | rules.TOPIC_EVENTS
    | OF_PAIRS
    | {"replica_change_failed", "request_sent", "response_received"}
)
#: of these only their numbers are kept, for clocks and latencies
CALLS: Final = ("request_received", "request_done", "metadata_cached")

PACK: Final = msgspec.msgpack.Encoder()
UNPACK: Final = msgspec.msgpack.Decoder(list[SilverEvent])


class Stretch(NamedTuple):
    """Bytes of one file's content; lines that begin in it are its own. `skipped`: duplicates, by their numbers."""

    file: BronzeFile
    start: int
    end: int | None  # none: to the end, however far that is
    buckets: int
    skipped: frozenset[int] = frozenset()


#: of the lines of one hour: how many, the first (moment, number), the last moment
Count = tuple[int, int, int, int]


class Gist(NamedTuple):
    """Of one stretch."""

    lines: int
    events: int
    continuations: int
    quarantine: list[tuple[int, str, str]]
    trouble: str | None
    partitions: list[bytes]  # packed events about partitions, by bucket
    others: bytes  # packed events of all other kinds that are walked through
    sent: bytes  # packed: those about partitions that are requests sent
    tallies: dict[tuple[Any, ...], dict[int, Count]]  # what `tally_key` says: by hour
    heard: dict[int, Any]  # broker: moments
    marked: Any
    marks: Any
    calls: Any  # columns of `CALL_COLUMNS`, and of the topics the names
    topics: list[str | None]


CALL_COLUMNS: Final = ("call", "api", "line_no", "ts_utc", *WHO, *CALL, "topic")
APIS: Final = ("LeaderAndIsr", "UpdateMetadata", "StopReplica")


def is_counted(template: Template) -> bool:
    """Whether no rule walks through such lines, so that their numbers do."""
    event = template.same["event"]
    if any(name in template.texts for name in SAME):
        return False
    if event == "replica_changed":
        move = (template.same.get("from_state"), template.same.get("to_state"))
        return None in move or move in illegal.LEGAL
    return event not in WALKED


def gist_of(stretch: Stretch) -> Gist:
    """Read it."""
    reader, gatherer = LineReader(stretch.file), _Gatherer(stretch)
    forms, above, trouble = Forms(reader, is_counted), 0, None
    try:
        for content in pieces_of(stretch):
            cut = b""
            if not content.endswith(b"\n"):
                whole = content.rfind(b"\n") + 1
                content, cut = content[:whole], content[whole:]  # noqa: PLW2901
            read = Reading(forms, Piece(content, above), stretch.skipped).read()
            gatherer.take(read)
            above += read.lines
            if cut:
                above += 1
                gatherer.take_last(forms, Piece(cut, above - 1))
        gatherer.take_head(reader, _line_after(stretch), above + 1)
    except (OSError, EOFError, zlib.error) as error:
        trouble = f"{type(error).__name__}: {error}"
    return gatherer.gist(above, trouble)


def pieces_of(stretch: Stretch) -> Iterator[bytes]:
    """Whole lines; only the last piece of a file may end within one."""
    with open_content(stretch.file.paths[0]) as content:
        position = stretch.start
        if position:
            content.seek(position - 1)
            position += len(content.readline()) - 1
        rest = b""
        while stretch.end is None or position < stretch.end:
            want = PIECE_BYTES if stretch.end is None else min(PIECE_BYTES, stretch.end - position)
            chunk = content.read(want)
            if not chunk:
                break
            position += len(chunk)
            if position == stretch.end and not chunk.endswith(b"\n"):
                chunk += content.readline()
            whole = chunk.rfind(b"\n") + 1
            if whole:
                yield rest + chunk[:whole]
                rest = chunk[whole:]
            else:
                rest += chunk
        if rest:
            yield rest


def _line_after(stretch: Stretch) -> bytes:
    """It may name the exception of the stretch's last event."""
    if stretch.end is None:
        return b""
    with open_content(stretch.file.paths[0]) as content:
        content.seek(stretch.end - 1)
        content.readline()
        return content.readline().removesuffix(b"\n")


class _Gatherer:
    """Puts pieces together."""

    def __init__(self, stretch: Stretch) -> None:
        self.stretch = stretch
        self.events: list[SilverEvent] = []
        self.others: list[tuple[int, str, str]] = []
        self.heads: dict[int, str] = {}
        self.continuations = self.n_events = 0
        self.tallies: dict[tuple[Any, ...], dict[int, Count]] = defaultdict(dict)
        self.heard: dict[int, list[Any]] = defaultdict(list)
        self.marked: list[Any] = []
        self.marks: list[Any] = []
        self.calls: list[Any] = []
        self.topics: dict[str | None, int] = {}

    def take(self, read: Read) -> None:
        self.events += read.events
        self.others += read.others
        self.heads |= read.heads
        self.continuations += read.continuations
        self.n_events += len(read.events) + len(read.counted.ts_utc)
        self.marked.append(read.marked)
        self.marks.append(read.marks)
        for broker in np.unique(read.heard).tolist():
            if broker != NONE:
                self.heard[broker].append(read.heard_ms[read.heard == broker])
        self._count(read.counted)
        self._call(read.counted)

    def take_last(self, forms: Forms, piece: Piece) -> None:
        """The file's last line, which has no newline."""
        reading = Reading(forms, piece, self.stretch.skipped)
        reading.read_last(is_cut=not self.stretch.file.is_whole)
        self.take(reading.result())

    def take_head(self, reader: LineReader, line: bytes, line_no: int) -> None:
        text = reader.unwrap(line.decode("utf-8", "replace")) or ""
        if is_trace_head(text) and reader.read(line.decode("utf-8", "replace"), 0) == "continuation":
            self.heads[line_no] = text[:LINE_KEPT]

    def _count(self, counted: Counted) -> None:
        if not len(counted.ts_utc):
            return
        columns = [counted.kind, *counted.who.values(), counted.ts_utc // HOUR_MS]
        code = np.zeros(len(counted.ts_utc), np.int64)
        for column in columns:
            values, places = np.unique(column, return_inverse=True)
            if len(values) > 1:
                code = np.unique(code * len(values) + places, return_inverse=True)[1]
        order = np.lexsort((counted.ts_utc, code))  # stable: lines of one moment stay in order
        firsts = np.flatnonzero(np.diff(code[order], prepend=-1))
        lasts = np.append(firsts[1:], len(order)) - 1
        cluster = self.stretch.file.cluster
        for start, end in zip(firsts.tolist(), lasts.tolist(), strict=True):
            first = int(order[start])
            role, level, event, api, error = counted.kinds[counted.kind[first]]
            broker, controller, epoch = (_known(counted.who[name][first]) for name in WHO)
            key = (cluster, broker, role, level, event, controller, epoch, api, error, None, False)
            first_ms, last_ms = int(counted.ts_utc[first]), int(counted.ts_utc[order[end]])
            self._add(key, (end - start + 1, first_ms, int(counted.line_no[first]), last_ms))

    def _add(self, key: tuple[Any, ...], count: Count) -> None:
        hours, hour = self.tallies[key], count[1] // HOUR_MS * HOUR_MS
        hours[hour] = count if hour not in hours else together(hours[hour], count)

    def _call(self, counted: Counted) -> None:
        names = [kind[2] for kind in counted.kinds]
        call_of = np.array([CALLS.index(name) if name in CALLS else -1 for name in names] or [-1], np.int64)
        api_of = np.array([APIS.index(kind[3]) if kind[3] in APIS else -1 for kind in counted.kinds] or [-1], np.int64)
        numbered = counted.call["correlation_id"] != NONE
        places = np.flatnonzero(numbered & (call_of[counted.kind] >= 0) & (api_of[counted.kind] >= 0))
        if not len(places):
            return
        topic_of = np.array([self.topics.setdefault(topic, len(self.topics)) for topic in counted.topics], np.int64)
        kind = counted.kind[places]
        columns = [call_of[kind], api_of[kind], counted.line_no[places], counted.ts_utc[places]]
        columns += [column[places] for column in (*counted.who.values(), *counted.call.values())]
        self.calls.append(np.stack([*columns, topic_of[counted.topic[places]]]))

    def gist(self, lines: int, trouble: str | None) -> Gist:
        stretch = self.stretch
        buckets: list[list[SilverEvent]] = [[] for _ in range(stretch.buckets)]
        others, sent = [], []
        for event in self.events:
            if event.line_no + 1 in self.heads:
                event = msgspec.structs.replace(event, trace=self.heads[event.line_no + 1])  # noqa: PLW2901
            self._add(tally_key(event), (1, event.ts_utc, event.line_no, event.ts_utc))
            is_of_partition = event.event in rules.PARTITION_EVENTS
            if is_of_partition and event.topic is not None and event.partition is not None:
                buckets[bucket_of(event, stretch.buckets)].append(event)
                if event.event == "request_sent":
                    sent.append(event)
                if event.event not in rules.TOPIC_EVENTS:
                    continue
            if event.event in WALKED or event.event in rules.SINGLE_EVENTS:
                others.append(event)
        return Gist(
            lines=lines,
            events=self.n_events,
            continuations=self.continuations,
            quarantine=self.others,
            trouble=trouble,
            partitions=[PACK.encode(bucket) for bucket in buckets],
            others=PACK.encode(others),
            sent=PACK.encode(sent),
            tallies=dict(self.tallies),
            heard={broker: np.concatenate(moments) for broker, moments in self.heard.items()},
            marked=_joined(self.marked, np.int64),
            marks=_joined(self.marks, np.uint64),
            calls=np.concatenate(self.calls, axis=1) if self.calls else np.empty((len(CALL_COLUMNS), 0), np.int64),
            topics=list(self.topics),
        )


def bucket_of(event: SilverEvent, buckets: int) -> int:
    """All events of a partition go to the same."""
    return crc32(f"{event.topic}/{event.partition}".encode()) % buckets


def together(one: Count, other: Count) -> Count:
    """Of the same hour."""
    first = min(one[1:3], other[1:3])
    return one[0] + other[0], first[0], first[1], max(one[3], other[3])


def _known(number: Any) -> int | None:
    return None if number == NONE else int(number)


def _joined(columns: Iterable[Any], kind: Any) -> Any:
    columns = list(columns)
    return np.concatenate(columns) if columns else np.empty(0, kind)
