"""Records that replicas removed because their leader does not have them. Brokers of ours say so; of Kafka's,
`history/log_join.py` finds it in a record and the logs beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sparkjobs.rules.facts import Facts
from sparkjobs.tables.gold import Truncation
from sparkjobs.tables.silver import SilverEvent

EVENTS: Final = frozenset({"records_truncated"})


def truncations_of(events: Sequence[SilverEvent], facts: Facts) -> Iterator[Truncation]:
    """Of one partition. A line that does not say which records went is none."""
    for event in events:
        if None in (event.broker, event.leader, event.leader_epoch, event.offset) or not event.records:
            continue
        yield Truncation(
            cluster=event.cluster,
            topic=str(event.topic),
            partition=-1 if event.partition is None else event.partition,
            at_ms=event.ts_adj,
            broker=event.broker or 0,
            leader=event.leader or 0,
            leader_epoch=event.leader_epoch or 0,
            from_offset=event.offset or 0,
            to_offset=(event.offset or 0) + event.records - 1,
            records=event.records,
            committed=event.records_lost or 0,
            records_epoch=event.records_epoch,
            topic_id=event.topic_id,
            file_id=event.file_id,
            line_no=event.line_no,
        )


def records_lost(truncations: Iterable[Any]) -> Mapping[str, int]:
    """Returns how many committed records went, by partition: each once, on however many brokers."""
    ranges: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for one in truncations:
        if one.committed:
            key = (f"{one.topic}-{one.partition}", one.cluster, one.topic_id, one.records_epoch)
            ranges[key].append((one.from_offset, one.from_offset + one.committed))
    lost: dict[str, int] = defaultdict(int)
    for (name, *_), found in ranges.items():
        known = -1
        for start, end in sorted(found):
            lost[name] += max(0, end - max(start, known))
            known = max(known, end)
    return lost
