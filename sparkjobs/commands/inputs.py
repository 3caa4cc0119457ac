"""Logs as a command sees them: what was named, what was found, and its silver by the engine that suits it.

Nothing here prints. `auto` takes the local engine up to LOCAL_LIMIT_BYTES of content: below that, starting Spark costs
more than the work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

import msgspec

from sparkjobs.clocks.skew import corrected, skew_of
from sparkjobs.engine.local.ingest import Ingested, ingest
from sparkjobs.engine.local.workers import worker_count_for, workers_of
from sparkjobs.engine.spark.session import is_submitted
from sparkjobs.input.files import (
    SCHEME,
    NoLogsError,
    Zones,
    find_logs,
    merged,
    numpy_if_there,
    open_content,
    survey,
)
from sparkjobs.tables.silver import BronzeFile, SilverSkew

#: of content, not compressed: where the local engine's memory ends to be modest
LOCAL_LIMIT_BYTES: Final = 400_000_000


class LogInputs(msgspec.Struct, frozen=True):
    """Files by content. `is_remote`: some lie where only Spark reads; `open_file` opens these as well."""

    files: list[BronzeFile]
    is_remote: bool = False
    open_file: Callable[[str], IO[bytes]] = open_content

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def engine(self, wanted: str) -> str:
        """What `auto` means here."""
        if self.is_remote:
            return "spark"
        if wanted != "auto":
            return wanted
        if is_submitted():
            return "spark"
        return "local" if self.size_bytes <= LOCAL_LIMIT_BYTES else "spark"

    @property
    def is_concluded_in_columns(self) -> bool:
        """Whether the local engine can read it without an object per line: all of one cluster, and numpy is there."""
        is_one = len({file.cluster for file in self.files}) == 1
        return is_one and not self.is_remote and find_spec("numpy") is not None


class BadZoneError(Exception):
    """A time zone that nobody knows."""


def inputs_of(
    named: Sequence[str],
    cluster: str,
    zones: Sequence[str],
    layout: str | None,
    master: str | None = None,
    *,
    records: Collection[str] = (),
) -> LogInputs:
    """Raises NoLogsError, BadZoneError, NoSparkError; ValueError for a layout that is none. `records`: files that are
    no logs; where there are some, a folder may be without a log."""
    known = zones_of(zones)
    elsewhere = [name for name in named if SCHEME.match(name)]
    if not elsewhere:
        return LogInputs(_surveyed(_logs_beside(named, records), cluster, known, layout))
    from sparkjobs.engine.spark.remote import RemoteFiles  # noqa: PLC0415 - pyspark only where it is needed
    from sparkjobs.engine.spark.session import session_for  # noqa: PLC0415

    remote = RemoteFiles(session_for(master))
    found = [path for name in elsewhere for path in remote.find(name)]
    files = survey(found, cluster, known, layout=layout, open_file=remote.open)
    here = find_logs([name for name in named if not SCHEME.match(name)])

    def open_file(path: str) -> IO[bytes]:
        return remote.open(path) if SCHEME.match(path) else open_content(path)

    return LogInputs(merged([*files, *survey(here, cluster, known, layout=layout)]), True, open_file)


def _logs_beside(named: Sequence[str], records: Collection[str]) -> list[str]:
    if not records:
        return find_logs(named)
    found: set[str] = set()
    for name in named:
        with suppress(NoLogsError):
            found |= set(find_logs([name]))
    return sorted(found - set(records))


def _surveyed(paths: Sequence[str], cluster: str, zones: Zones, layout: str | None) -> list[BronzeFile]:
    """Of this machine, on all cores where it is much."""
    size_bytes = sum(Path(path).stat().st_size for path in paths if Path(path).exists())
    members = worker_count_for(size_bytes)
    if members > 1:
        numpy_if_there()  # once, not by every member
    with workers_of(members) as workers:
        found = workers.spread(partial(survey, cluster=cluster, zones=zones, layout=layout), [[path] for path in paths])
    return merged(file for files in found for file in files)


def zones_of(words: Sequence[str]) -> Zones:
    """`Europe/Berlin` for all, `2=America/New_York` for a broker."""
    default, by_broker = "UTC", dict[int, str]()
    for word in words:
        broker, separator, zone = word.rpartition("=")
        if separator and not broker.isdecimal():
            raise BadZoneError(f"{word!r}; write it like Europe/Berlin, or 2=Europe/Berlin for one broker")
        _check_zone(zone)
        if separator:
            by_broker[int(broker)] = zone
        else:
            default = zone
    return Zones(default, by_broker)


def _check_zone(zone: str) -> None:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - most calls name none

    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise BadZoneError(f"there is no time zone {zone!r}; names are like Europe/Berlin or UTC") from None


class Silver(msgspec.Struct, frozen=True):
    """What the local engine read, its clocks corrected."""

    ingested: Ingested
    skew: list[SilverSkew]


def silver_of(inputs: LogInputs, on_file: Callable[[BronzeFile], None] = lambda file: None) -> Silver:
    """By the local engine."""
    ingested = ingest(inputs.files, open_file=inputs.open_file, on_file=on_file)
    skew = skew_of(ingested.events)
    events = corrected(ingested.events, skew)
    return Silver(msgspec.structs.replace(ingested, events=events), skew)
