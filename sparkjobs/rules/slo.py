"""Availability by topic and day, and the rest of the error budget.

Only the time that the logs cover counts. A partition counts from the first to the last line that names any partition of
its topic, so that a topic made at noon is not blamed for the morning. While no broker lived at all no time counts: the
cluster was off. Overlaps of a day are cut at midnight UTC.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sparkjobs.parse.timestamps import DAY_MS
from sparkjobs.rules.tenures import Stretch, spoken_of
from sparkjobs.tables.gold import ClusterSilence, Outage, SloDay

DEFAULT_TARGET: Final = 99.95


class Extent(NamedTuple):
    """The logs' knowledge of one topic."""

    partitions: int
    first_ms: int
    last_ms: int


def slo_of(
    outages: Iterable[Outage],
    extents: Mapping[str, Extent],
    cluster: str,
    target: float = DEFAULT_TARGET,
    silences: Sequence[ClusterSilence] = (),
) -> Iterator[SloDay]:
    """A row for each topic and day, and one for the whole cluster and day."""
    silent = [Stretch(one.from_ms, one.to_ms) for one in silences]
    gone: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)  # earliest and likeliest start, end
    for outage in outages:
        seen_ms = outage.start_lo_ms if outage.leader_last_seen_ms is None else outage.leader_last_seen_ms
        end_ms = extents[outage.topic].last_ms if outage.end_ms is None else outage.end_ms
        gone[outage.topic, outage.partition].append((min(outage.start_lo_ms, seen_ms), outage.start_ms, end_ms))
    lost: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for (topic, _), of_partition in gone.items():
        likely, earliest = (sorted((one[index], one[2]) for one in of_partition) for index in (1, 0))
        lengths = _lengths(likely, extents[topic], silent)
        # of exact starts both are the same, and nearly all are exact
        longer = lengths if earliest == likely else _lengths(earliest, extents[topic], silent)
        for index, of_days in enumerate((lengths, longer)):
            for day, length_ms in of_days.items():
                lost[topic, day][index] += length_ms
    total: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for topic, extent in sorted(extents.items()):
        for day, length_ms in _by_day(extent.first_ms, extent.last_ms, silent).items():
            gone_ms, gone_hi_ms = lost.get((topic, day), (0, 0))
            observed_ms = length_ms * extent.partitions
            yield _row(cluster, day, topic, (extent.partitions, observed_ms, gone_ms, gone_hi_ms), target)
            for index, value in enumerate((extent.partitions, observed_ms, gone_ms, gone_hi_ms)):
                total[day][index] += value
    for day, sums in total.items():
        yield _row(cluster, day, None, (sums[0], sums[1], sums[2], sums[3]), target)


def _lengths(stretches: Iterable[tuple[int, int]], extent: Extent, silent: Sequence[Stretch]) -> dict[int, int]:
    """Returns how long they are together on each day."""
    found: dict[int, int] = defaultdict(int)
    for from_ms, to_ms in _union(stretches, extent):
        if not silent and from_ms // DAY_MS == (to_ms - 1) // DAY_MS:
            found[from_ms // DAY_MS] += to_ms - from_ms
            continue
        for day, length_ms in _by_day(from_ms, to_ms, silent).items():
            found[day] += length_ms
    return found


def _union(stretches: Iterable[tuple[int, int]], extent: Extent) -> Iterator[tuple[int, int]]:
    """Returns the union of the stretches within the time that the logs cover. Lines that contradict each other, as by
    clocks that no rule compares, may tell of outages that overlap. `stretches` are in order."""
    covered_ms = extent.first_ms
    for from_ms, to_ms in stretches:
        begins_ms, ends_ms = max(from_ms, covered_ms), min(to_ms, extent.last_ms)
        if begins_ms < ends_ms:
            yield begins_ms, ends_ms
            covered_ms = ends_ms


def _by_day(from_ms: int, to_ms: int, silent: Sequence[Stretch]) -> dict[int, int]:
    """Returns how long on each day."""
    found: dict[int, int] = defaultdict(int)
    for begins_ms, ends_ms in spoken_of(from_ms, to_ms, silent):
        here_ms = begins_ms
        while here_ms < ends_ms:
            end_ms = min(ends_ms, (here_ms // DAY_MS + 1) * DAY_MS)
            found[here_ms // DAY_MS] += end_ms - here_ms
            here_ms = end_ms
    return found


def _row(cluster: str, day: int, topic: str | None, sums: tuple[int, int, int, int], target: float) -> SloDay:
    partitions, observed_ms, gone_ms, gone_hi_ms = sums
    budget_ms = round(observed_ms * (100 - target) / 100)
    availability = 100.0 if observed_ms == 0 else round(100 * (1 - gone_ms / observed_ms), 6)
    used = gone_ms / budget_ms if budget_ms else float(gone_ms > 0)
    return SloDay(
        cluster=cluster,
        dt=datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat(),
        topic=topic,
        partitions=partitions,
        observed_ms=observed_ms,
        unavailable_ms=gone_ms,
        unavailable_hi_ms=gone_hi_ms,
        availability=availability,
        budget_ms=budget_ms,
        budget_used=round(used, 6),
        is_met=gone_ms <= budget_ms,
    )
