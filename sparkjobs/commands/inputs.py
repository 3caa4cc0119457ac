"""Logs as a command sees them: the names given, the files found, and their lines, one by one. This module prints
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sparkjobs.engine.local.executor import worker_count_for, workers_of
from sparkjobs.engine.spark.session import is_submitted, session_for
from sparkjobs.input.files import (
    SCHEME,
    NoLogsError,
    Zones,
    find_logs,
    merged,
    numpy_if_there,
    survey,
)
from sparkjobs.tables.silver import BronzeFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjobs.engine.spark.file_access import Survey


class LogInputs(msgspec.Struct, frozen=True):
    """Files by content. `is_remote`: some lie where only Spark reads."""

    files: list[BronzeFile]
    is_remote: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class BadZoneError(Exception):
    """An unknown time zone."""


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
    look = partial(survey, cluster=cluster, zones=zones_of(zones), layout=layout)
    elsewhere = [name for name in named if SCHEME.match(name)]
    is_cluster = is_submitted() if master is None else not master.startswith("local")
    if not elsewhere:
        paths = _logs_beside(named, records)
        return LogInputs(_surveyed_by(session_for(master), paths, look) if is_cluster else _surveyed(paths, look))
    spark = session_for(master)
    # pyspark only where it is needed
    from sparkjobs.engine.spark.file_access import RemoteFiles, surveyed_there  # noqa: PLC0415

    remote = RemoteFiles(spark)
    there = surveyed_there(spark, [path for name in elsewhere for path in remote.find(name)], look)
    paths = find_logs([name for name in named if not SCHEME.match(name)])
    here = _surveyed_by(spark, paths, look) if is_cluster else _surveyed(paths, look)

    return LogInputs(merged([*there, *here]), True)


def _logs_beside(named: Sequence[str], records: Collection[str]) -> list[str]:
    if not records:
        return find_logs(named)
    found: set[str] = set()
    for name in named:
        with suppress(NoLogsError):
            found |= set(find_logs([name]))
    return sorted(found - set(records))


def _surveyed(paths: Sequence[str], look: Survey) -> list[BronzeFile]:
    """Of this machine, on all cores where it is much."""
    size_bytes = sum(Path(path).stat().st_size for path in paths if Path(path).exists())
    members = worker_count_for(size_bytes)
    if members > 1:
        numpy_if_there()  # once, not by every member
    with workers_of(members) as workers:
        found = workers.spread(look, [[path] for path in paths])
    return merged(file for files in found for file in files)


def _surveyed_by(spark: SparkSession, paths: Sequence[str], look: Survey) -> list[BronzeFile]:
    from sparkjobs.engine.spark.file_access import surveyed_here  # noqa: PLC0415 - pyspark only where it is needed

    return merged(surveyed_here(spark, paths, look))


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
