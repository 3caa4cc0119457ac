"""A plain reading of logs, line by line: every line of every file goes to exactly one place, and the counts say which.
With `plain.py`, which concludes, it is the reference that the engine is held against, and no part of it.

Files are read in the order of their hashes, so the rows do not depend on names or on the order of arguments.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import IO

import msgspec

from sparkjobs.clocks.causality import HourlyGaps, gaps_in, is_of_pair
from sparkjobs.clocks.skew import OF_TRIPS, Heard, ahead_of, all_trips_in, corrected, rows_for
from sparkjobs.commands.inputs import LogInputs
from sparkjobs.engine.local.conclude import UNREAD
from sparkjobs.input.files import lines_of, open_content
from sparkjobs.parse.lines import CONTINUES, LineReader, is_trace_head
from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.rules.facts import Place
from sparkjobs.tables.silver import (
    LINE_KEPT,
    BronzeFile,
    SilverCount,
    SilverEvent,
    SilverQuarantine,
    SilverSkew,
)


class Tally:
    """Where the lines of one file went."""

    def __init__(self) -> None:
        self.lines = self.events = self.continuations = self.duplicates = self.quarantined = 0

    def row(self, file: BronzeFile, path: str) -> SilverCount:
        return SilverCount(
            cluster=file.cluster,
            path=path,
            file_id=file.file_id,
            lines=self.lines,
            events=self.events,
            continuations=self.continuations,
            duplicates=self.duplicates,
            quarantined=self.quarantined,
        )


class Ingested(msgspec.Struct, frozen=True):
    """Silver of some files. `files` differs from the surveyed files where a file vanished since."""

    files: list[BronzeFile]
    events: list[SilverEvent]
    quarantine: list[SilverQuarantine]
    counts: list[SilverCount]


def ingest(
    files: Sequence[BronzeFile],
    *,
    open_file: Callable[[str], IO[bytes]] = open_content,
    on_file: Callable[[BronzeFile], None] = lambda file: None,
) -> Ingested:
    """Read them all. `on_file` is told of each that was read."""
    result = Ingested([], [], [], [])
    seen: set[str] = set()
    for file in sorted(files, key=lambda one: one.file_id):
        tally = Tally()
        if file.status in UNREAD:
            result.files.append(file)
            result.counts.append(tally.row(file, file.paths[0]))
            continue
        try:
            for row in read_file(file, tally, seen, open_file):
                (result.events if isinstance(row, SilverEvent) else result.quarantine).append(row)  # type: ignore[arg-type]
        except (OSError, EOFError, zlib.error) as error:
            status = "vanished" if isinstance(error, FileNotFoundError) else "unreadable"
            file = msgspec.structs.replace(file, status=status, trouble=f"{type(error).__name__}: {error}")  # noqa: PLW2901
        result.files.append(file)
        result.counts.append(tally.row(file, file.paths[0]))
        result.counts.extend(count_of_copy(file, path, tally.lines) for path in file.paths[1:])
        on_file(file)
    return result


def count_of_copy(file: BronzeFile, path: str, lines: int) -> SilverCount:
    """All lines of a copy are duplicates."""
    tally = Tally()
    tally.lines = tally.duplicates = lines
    return tally.row(file, path)


def read_file(
    file: BronzeFile,
    tally: Tally,
    seen: set[str],
    open_file: Callable[[str], IO[bytes]] = open_content,
) -> Iterator[SilverEvent | SilverQuarantine]:
    """Yields its rows in order, duplicates left out. `seen` holds the ids of the rows that were read before."""
    reader, pending = LineReader(file), None
    with open_file(file.paths[0]) as content:
        for line_no, line in enumerate(lines_of(content), start=1):
            read = reader.read(line, line_no, is_cut=line_no == file.lines and not file.is_whole)
            tally.lines += 1
            if read is CONTINUES:
                tally.continuations += 1
                if pending is not None and pending.line_no == line_no - 1:
                    text = reader.unwrap(line) or ""
                    if is_trace_head(text):
                        pending = msgspec.structs.replace(pending, trace=text[:LINE_KEPT])
                continue
            if pending is not None:
                yield pending
                pending = None
            if isinstance(read, str):
                tally.quarantined += 1
                yield SilverQuarantine(
                    cluster=file.cluster, file_id=file.file_id, line_no=line_no, reason=read, line=line[:LINE_KEPT]
                )
            elif read.event_id in seen:
                tally.duplicates += 1
            else:
                seen.add(read.event_id)
                tally.events += 1
                pending = read
    if pending is not None:
        yield pending


class Silver(msgspec.Struct, frozen=True):
    """Every line by itself, clocks corrected."""

    ingested: Ingested
    skew: list[SilverSkew]


def silver_of(inputs: LogInputs) -> Silver:
    ingested = ingest(inputs.files)
    skew = skew_of(ingested.events)
    return Silver(msgspec.structs.replace(ingested, events=corrected(ingested.events, skew)), skew)


def skew_of(events: Sequence[SilverEvent]) -> list[SilverSkew]:
    """By cluster, broker and hour; brokers that need no correction have a row as well."""
    by_cluster: defaultdict[str, list[SilverEvent]] = defaultdict(list)
    heard: defaultdict[str, Heard] = defaultdict(lambda: defaultdict(set))
    for event in events:
        if event.broker is not None:
            heard[event.cluster][event.broker].add(event.ts_utc // HOUR_MS * HOUR_MS)
            if event.event in OF_TRIPS:
                by_cluster[event.cluster].append(event)

    def gaps_of(cluster: str) -> HourlyGaps:
        return gaps_in(event for event in events if event.cluster == cluster and is_of_pair(event))

    return [
        row
        for cluster in sorted(heard)
        for row in rows_for(
            cluster, ahead_of(all_trips_in(by_cluster[cluster])), heard[cluster], partial(gaps_of, cluster)
        )
    ]


def whole_events(files: Iterable[BronzeFile], events: Iterable[SilverEvent]) -> dict[Place, list[str]]:
    """The full text of events: the line, and the lines below that belong to it."""
    begins: dict[str, set[int]] = defaultdict(set)
    for event in events:
        begins[event.file_id].add(event.line_no)
    found: dict[Place, list[str]] = {}
    for file in files:
        reader, at = LineReader(file), None
        with open_content(file.paths[0]) as content:
            for line_no, line in enumerate(lines_of(content), start=1):
                if line_no in begins[file.file_id]:
                    at = Place(file.file_id, line_no)
                    found[at] = [line]
                elif reader.read(line, line_no, is_cut=line_no == file.lines and not file.is_whole) is not CONTINUES:
                    at = None
                elif at is not None:
                    found[at].append(line)
    return found
