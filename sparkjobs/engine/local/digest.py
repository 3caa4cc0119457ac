"""The digest of a stretch of a log: the events that rules walk through, packed, and numbers about all the others.

A log is read in stretches, by several processes. Numbers of lines count from the stretch's own first line until
`sparkjobs.engine.local.conclude` puts the stretches together. The rules alone decide their conclusions; this module
only leaves out lines that no rule reads (`is_counted` says which, and the tests compare).
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

import numpy as np

from sparkjobs.clocks.causality import OF_PAIRS, STARTS
from sparkjobs.clocks.skew import OF_TRIPS
from sparkjobs.engine.local.executor import DividedTask
from sparkjobs.engine.local.forms import NONE, EventLines, Forms, LineSink, PieceReading
from sparkjobs.engine.local.packed_events import (
    BROKER,
    CAUSE_ID,
    EVENT,
    LINE_NO,
    PACK,
    PARTITION,
    PEER_BROKER,
    TOPIC,
    Values,
    values_in,
    values_of,
    with_trace,
)
from sparkjobs.engine.local.stretches import STRETCH_BYTES, Stretch, pieces_of
from sparkjobs.parse.lines import LineReader
from sparkjobs.parse.templates import Template
from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.rules import moves, receipts, rpc_latency, rules
from sparkjobs.rules.facts import CLUSTER_EVENTS, DONE, tally_key
from sparkjobs.rules.state_machines import MACHINE_OF
from sparkjobs.tables.silver import BronzeFile, SilverEvent

_S = TypeVar("_S", bound=LineSink)
#: events that rules walk through; requests that are answered are few, their receipts are not
WALKED: Final = (
    rules.PARTITION_EVENTS
    | CLUSTER_EVENTS
    | rules.TOPIC_EVENTS
    | OF_PAIRS
    | {"replica_change_failed", "request_sent", "response_received"}
)
#: of these only their numbers are kept, for clocks and latencies
CALLS: Final = ("request_received", "request_done", "metadata_cached")
CALL_COLUMNS: Final = (
    *("call", "api", "line_no", "ts_utc", "broker", "controller", "controller_epoch"),
    *("correlation_id", "partition", "leader_epoch", "peer_broker", "n_partitions", "topic"),
)
APIS: Final = ("LeaderAndIsr", "UpdateMetadata", "StopReplica")
#: lines about requests, of either side
_OF_REQUESTS: Final = rpc_latency.EVENTS | OF_TRIPS

#: kinds of shares: by partition, by broker that is asked, by broker that was heard, by mark
EVENTS: Final = "events"
CALLS_OF: Final = "calls"
HEARD: Final = "heard"
MARKS: Final = "marks"
_CALL_SHARES: Final = 8
PORTION_BYTES: Final = STRETCH_BYTES
#: lines in quarantine that a stretch tells of; all are counted
QUARANTINE_KEPT: Final = 10_000


class CallColumns(NamedTuple):
    """Rows of `CALL_COLUMNS`; the last says which of the topics."""

    columns: Any
    topics: list[str | None]

    def __bool__(self) -> bool:
        return bool(self.columns.shape[1])

    def only(self, chosen: Any) -> CallColumns:
        return self._replace(columns=self.columns[:, chosen])

    @property
    def named(self) -> dict[str, Any]:
        return dict(zip(CALL_COLUMNS, self.columns, strict=True))


#: of a replica: topic, partition, controller epoch, moment, number of the line, writer, owner of the replica, from, to
SaidMove = tuple[str, int, int | None, int, int, int | None, int | None, str | None, str]
#: of the lines of one hour: how many, the first (moment, number), the last moment
Count = tuple[int, int, int, int]


class StretchDigest(NamedTuple):
    """The small facts of one stretch, or of a portion of it. Numbers of lines count from the stretch's own first."""

    first_line: int
    lines: int
    events: int
    continuations: int
    quarantined: int
    quarantine: list[tuple[int, str, str]]  # the first of them
    trouble: str | None
    others: bytes  # packed events about the cluster, and other rare events
    head: str | None  # the first line, where it names the exception of the event above
    tallies: dict[tuple[Any, ...], dict[int, Count]]  # the counts of `tally_key`: by hour


class EventsPart(NamedTuple):
    """About partitions of one share."""

    packed: bytes
    moves: bytes  # packed `SaidMove`s of replicas
    told: CallColumns  # acts of brokers on numbered requests, also those of lines that were read one by one
    told_packed: bytes


class CallsPart(NamedTuple):
    """About requests to brokers of one share."""

    columns: CallColumns
    packed: bytes  # of lines that were read one by one, and those that controllers write
    sent: bytes  # requests sent, partition by partition


class MarksPart(NamedTuple):
    """Of events: equal where their ids are, and hardly ever else."""

    marks: Any
    line_nos: Any


def kinds_for(shares: int) -> dict[str, int]:
    """Returns how many shares there are of each kind. A request belongs to the broker that it goes to; a request
    without a named broker belongs to all of them. So there are not many shares of that kind."""
    return {EVENTS: shares, CALLS_OF: min(shares, _CALL_SHARES), HEARD: shares, MARKS: shares}


def is_counted(template: Template) -> bool:
    """Returns whether no rule walks through such lines, so that their numbers do."""
    event = template.same["event"]
    if event == "replica_changed":
        move = (template.same.get("from_state"), template.same.get("to_state"))
        return None in move or move in moves.NO_FINDING
    return event not in WALKED


def digest_stretch(stretch: Stretch) -> Iterator[DividedTask]:
    """Read it."""
    for gatherer, above, trouble in read_portions(stretch, partial(_Gatherer, stretch)):
        yield gatherer.divided(above, trouble)


def read_portions(stretch: Stretch, sink_for: Callable[[int], _S]) -> Iterator[tuple[_S, int, str | None]]:
    """Yields each sink, how many lines of the stretch have been read by then, and the error that stopped the reading.

    A portion has as much content as an ordinary stretch, so that a large compressed file, which is one stretch, takes
    no more memory than others. `sink_for` makes the sink that takes lines from this number on.
    """
    sink, above, size, trouble = sink_for(1), 0, 0, None
    try:
        for content in pieces_of(stretch):
            if size >= PORTION_BYTES:
                yield sink, above, None
                sink, size = sink_for(above + 1), 0
            size += len(content)
            above = read_piece(stretch, content, above, sink)
    except (OSError, EOFError, zlib.error) as error:
        trouble = f"{type(error).__name__}: {error}"
    yield sink, above, trouble


def read_piece(stretch: Stretch, content: bytes, above: int, sink: LineSink) -> int:
    """Read a piece of it; returns how many lines of the stretch have been read by then."""
    forms, cut = forms_of(stretch.file), b""
    if not content.endswith(b"\n"):
        whole = content.rfind(b"\n") + 1
        content, cut = content[:whole], content[whole:]
    if content:
        above += PieceReading(forms, content, above, stretch.skipped, sink).read()
    if cut:
        PieceReading(forms, cut, above, stretch.skipped, sink).read_last(is_cut=not stretch.file.is_whole)
        above += 1
    return above


@lru_cache(maxsize=1)
def forms_of(file: BronzeFile) -> Forms:
    """Returns the forms of a file. A process that reads several stretches of a file in turn learns its forms once."""
    return Forms(LineReader(file))


class _Gatherer:
    """Takes the lines of a stretch."""

    def __init__(self, stretch: Stretch, first_line: int) -> None:
        self.stretch, self.first_line = stretch, first_line
        # events, as tuples: about partitions, those of them that are requests sent, and about anything else
        self.partitions, self.sent, self.others = list[Values](), list[Values](), list[Values]()
        self.quarantine: list[tuple[int, str, str]] = []
        self.heads: dict[int, str] = {}  # the line that names an exception, below the event that it belongs to
        self.continuations = self.events = 0
        self.tallies: dict[tuple[Any, ...], dict[int, Count]] = defaultdict(dict)
        self.heard: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self.marked: list[Any] = []
        self.marks: list[Any] = []
        self.moves: list[list[SaidMove]] = [[] for _ in range(stretch.kinds[EVENTS])]
        self.calls: list[Any] = []
        self.topics: dict[str | None, int] = {None: 0}

    def take_alike(self, alike: EventLines) -> None:
        """Events of one form."""
        self.events += len(alike)
        self.marked.append(alike.line_no)
        self.marks.append(alike.digits.marks())
        self._count(alike)
        same = alike.template.same
        if is_counted(alike.template):
            if same["event"] == "replica_changed":
                self._move(alike)
            elif same["event"] in CALLS and same.get("api") in APIS and "correlation_id" in alike.template.numbers:
                self._call(alike)
            return
        values = values_in(alike, self.stretch.file)
        for of_kind in self._kinds_of(same["event"], alike.has("topic"), alike.has("partition")):
            of_kind.extend(values)

    def take_event(self, event: SilverEvent, mark: int) -> None:
        """One that was read by itself."""
        self.events += 1
        self.marked.append([event.line_no])
        self.marks.append(np.array([mark], np.uint64))
        self._add(tally_key(event), (1, event.ts_utc, event.line_no, event.ts_utc))
        if event.broker is not None:
            self.heard[event.broker, event.ts_utc // HOUR_MS * HOUR_MS].append([event.ts_utc])
        for of_kind in self._kinds_of(event.event, event.topic is not None, event.partition is not None):
            of_kind.append(values_of(event))

    def take_other(self, line_no: int, why: str, line: str) -> None:
        """Takes a line that is no event."""
        self.quarantine.append((line_no, why, line))

    def take_continuations(self, count: int, heads: dict[int, str]) -> None:
        """Takes lines that belong to the event above."""
        self.continuations += count
        self.heads |= heads

    def _kinds_of(self, event: str, has_topic: bool, has_partition: bool) -> Iterator[list[Values]]:
        """Where such events go."""
        if event in rules.PARTITION_EVENTS and has_topic and has_partition:
            yield self.partitions
            if event == "request_sent":
                yield self.sent
            if event not in rules.TOPIC_EVENTS:
                return
        if event in WALKED or event in rules.SINGLE_EVENTS:
            yield self.others

    def _count(self, alike: EventLines) -> None:
        """Counts as `tally_key` would, and notes when each broker was heard."""
        same, ts_utc = alike.template.same, alike.ts_utc
        has_peer = same["event"] == "isr_changed" and same["role"] == "controller"
        columns = [alike.number(name) for name in ("broker", "controller", "controller_epoch")]
        columns += [alike.number("peer_broker") if has_peer else None, ts_utc // HOUR_MS * HOUR_MS]
        words = [same.get(name) for name in ("cluster", "role", "level", "event", "api", "error")]
        cluster, role, level, event, api, error = words
        for (broker, controller, epoch, peer, hour), places in _agreeing(columns):
            key = (
                cluster,
                broker,
                role,
                level,
                event,
                controller,
                epoch,
                api,
                error,
                peer,
                same.get("cause") == "found",
            )
            own = ts_utc[places]
            first = int(own.argmin())
            self._add(key, (len(own), int(own[first]), int(alike.line_no[places][first]), int(own.max())))
            if broker is not None:
                self.heard[broker, hour].append(own)

    def _add(self, key: tuple[Any, ...], count: Count) -> None:
        hours, hour = self.tallies[key], count[1] // HOUR_MS * HOUR_MS
        hours[hour] = count if hour not in hours else together(hours[hour], count)

    def _call(self, alike: EventLines) -> None:
        same, columns = alike.template.same, np.full((len(CALL_COLUMNS), len(alike)), NONE, np.int64)
        names, which = alike.words("topic")
        known = {
            "call": CALLS.index(same["event"]),
            "api": APIS.index(same["api"]),
            "line_no": alike.line_no,
            "ts_utc": alike.ts_utc,
            "topic": np.array([self.topics.setdefault(name, len(self.topics)) for name in names])[which],
        }
        for row, name in enumerate(CALL_COLUMNS):
            value = known[name] if name in known else alike.number(name)
            if value is not None:
                columns[row] = value
        self.calls.append(columns)

    def _move(self, alike: EventLines) -> None:
        """Of replicas: most lines of a controller at TRACE, of which no rule walks through anything else."""
        same, (names, which) = alike.template.same, alike.words("topic")
        if same["role"] != "controller" or same.get("to_state") not in MACHINE_OF:
            return
        columns = [alike.number(name) for name in ("partition", "controller_epoch", "broker", "peer_broker")]
        columns = [one.tolist() if isinstance(one, np.ndarray) else repeat(one) for one in columns]
        partition, epoch, broker, replica = columns
        source, target, size = repeat(same.get("from_state")), repeat(same["to_state"]), len(self.moves)
        topics = [names[number] for number in which.tolist()]
        places = (alike.ts_utc.tolist(), alike.line_no.tolist())
        for row in zip(topics, partition, epoch, *places, broker, replica, source, target, strict=False):
            self.moves[bucket_of(row[0], row[1], size)].append(row)

    def divided(self, above: int, trouble: str | None) -> DividedTask:
        """All of it; `above`: how many lines of the stretch have been read by now."""
        calls = CallColumns(
            np.concatenate(self.calls, axis=1) if self.calls else np.empty((len(CALL_COLUMNS), 0), np.int64),
            list(self.topics),
        )
        others = self._in_order(self.others)
        of_requests = [values for values in others if values[EVENT] in _OF_REQUESTS]
        parts: dict[tuple[str, int], Any] = {}
        for kind, divide in (
            (EVENTS, partial(self._about_partitions, calls, of_requests)),
            (CALLS_OF, partial(self._about_requests, calls, of_requests)),
            (HEARD, self._heard),
            (MARKS, self._marks),
        ):
            parts |= {(kind, number): part for number, part in enumerate(divide(self.stretch.kinds[kind])) if part}
        told = StretchDigest(
            first_line=self.first_line,
            lines=above + 1 - self.first_line,
            events=self.events,
            continuations=self.continuations,
            quarantined=len(self.quarantine),
            quarantine=sorted(self.quarantine)[:QUARANTINE_KEPT],
            trouble=trouble,
            others=PACK.encode([values for values in others if _is_of_all(values)]),
            head=self.heads.get(self.first_line),
            tallies=dict(self.tallies),
        )
        return DividedTask(told, parts)

    def _about_partitions(
        self, calls: CallColumns, of_requests: Iterable[Values], shares: int
    ) -> Iterator[EventsPart | None]:
        packed: list[list[Values]] = [[] for _ in range(shares)]
        for values in self._in_order(self.partitions):
            packed[bucket_of(values[TOPIC], values[PARTITION], shares)].append(values)
        told_packed: list[list[Values]] = [[] for _ in range(shares)]
        for values in of_requests:
            if values[EVENT] in receipts.EVENTS and values[TOPIC] is not None and values[PARTITION] is not None:
                told_packed[bucket_of(values[TOPIC], values[PARTITION], shares)].append(values)
        told, numbers = self._told(calls)
        topic, partition = told.named["topic"], told.named["partition"]
        member = (numbers[topic] + partition) % shares if told else partition
        for number in range(shares):
            own = told.only(np.flatnonzero(member == number))
            moves = self.moves[number]
            if own or packed[number] or moves or told_packed[number]:
                yield EventsPart(PACK.encode(packed[number]), PACK.encode(moves), own, PACK.encode(told_packed[number]))
            else:
                yield None

    def _told(self, calls: CallColumns) -> tuple[CallColumns, Any]:
        """Returns the acts of brokers that name a partition by a request's number alone, and a number of each topic. A
        broker that logs the leader epoch at which it begins is not among these brokers."""
        numbers = np.array([0 if name is None else number_of(name) for name in calls.topics], np.int64)
        named = calls.named
        is_told = (named["api"] == APIS.index(receipts.API)) & (named["call"] != CALLS.index("metadata_cached"))
        is_told &= (named["correlation_id"] != NONE) & (named["partition"] != NONE)
        is_told &= named["topic"] != calls.topics.index(None)
        begin = [key[1] for key in self.tallies if key[4] in STARTS and key[2] == "broker" and key[1] is not None]
        return calls.only(np.flatnonzero(is_told & ~np.isin(named["broker"], begin))), numbers

    def _about_requests(
        self, calls: CallColumns, of_requests: Iterable[Values], shares: int
    ) -> Iterator[CallsPart | None]:
        packed, sent = ([list[Values]() for _ in range(shares)] for _ in range(2))
        for events, found in ((of_requests, packed), (self._in_order(self.sent), sent)):
            for values in events:
                is_controllers = values[EVENT] in ("request_sent", "response_received")
                to = values[PEER_BROKER] if is_controllers else values[BROKER]
                for own in found if to is None else (found[to % shares],):
                    own.append(values)
        broker = calls.named["broker"]
        for number in range(shares):
            received = calls.only(np.flatnonzero(broker % shares == number))
            if received or packed[number] or sent[number]:
                yield CallsPart(received, PACK.encode(packed[number]), PACK.encode(sent[number]))
            else:
                yield None

    def _heard(self, shares: int) -> Iterator[dict[tuple[int, int], Any]]:
        for number in range(shares):
            yield {key: np.concatenate(moments) for key, moments in self.heard.items() if key[0] % shares == number}

    def _marks(self, shares: int) -> Iterator[MarksPart | None]:
        marks, line_nos = _joined(self.marks, np.uint64), _joined(self.marked, np.int64).astype(np.int32)
        of_share = marks % np.uint64(shares)
        for number in range(shares):
            own = of_share == number
            yield MarksPart(marks[own], line_nos[own]) if own.any() else None

    def _in_order(self, events: list[Values]) -> list[Values]:
        events.sort(key=itemgetter(LINE_NO))
        if not self.heads:
            return events
        traces = [self.heads.get(values[LINE_NO] + 1) for values in events]
        return [
            values if trace is None else with_trace(values, trace) for values, trace in zip(events, traces, strict=True)
        ]


def _is_of_all(values: Values) -> bool:
    """Returns whether the cluster's facts, or a table that is about all of it, may rest on it."""
    event = values[EVENT]
    if event not in _OF_REQUESTS:
        return True
    return event == DONE and values[CAUSE_ID] is not None


def bucket_of(topic: str, partition: int, buckets: int) -> int:
    """All events of a partition go to the same."""
    return (number_of(topic) + partition) % buckets


@lru_cache(maxsize=65_536)
def number_of(topic: str) -> int:
    """Any, and always the same."""
    return crc32(topic.encode())


def together(one: Count, other: Count) -> Count:
    """Of the same hour."""
    first = min(one[1:3], other[1:3])
    return one[0] + other[0], first[0], first[1], max(one[3], other[3])


def _agreeing(columns: Sequence[Any]) -> Iterator[tuple[list[Any], Any]]:
    """Yields groups of lines that agree in all columns, and their common values. Most columns have one value
    everywhere, so only the others are sorted. A column that is no array holds the value of all lines."""
    said = [int(one[0]) if isinstance(one, np.ndarray) else one for one in columns]
    varying = [place for place, one in enumerate(columns) if isinstance(one, np.ndarray) and (one != one[0]).any()]
    if not varying:
        yield said, slice(None)
        return
    chosen = np.stack([columns[place] for place in varying])
    order = np.lexsort(chosen)  # stable: lines of one group stay in order
    cuts = np.flatnonzero((np.diff(chosen[:, order]) != 0).any(axis=0)) + 1
    for places in np.split(order, cuts):
        for place in varying:
            said[place] = int(columns[place][places[0]])
        yield said, places


def _joined(columns: Iterable[Any], kind: Any) -> Any:
    columns = list(columns)
    return np.concatenate(columns) if columns else np.empty(0, kind)
