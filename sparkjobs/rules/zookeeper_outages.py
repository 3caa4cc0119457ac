"""When ZooKeeper was away: most of the brokers that lived had lost it at the same time.

One broker without it was frozen, or cut off by itself; that is the broker's own story. Nothing else tells the two
apart, so of a single broker nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sparkjobs.rules.facts import Facts, Gap, Place
from sparkjobs.tables.gold import BrokerLife, ZookeeperOutage
from sparkjobs.tables.silver import SilverEvent


def gaps_of(events: Iterable[SilverEvent]) -> Iterator[Gap]:
    """Each broker's stretches without ZooKeeper, of at least a millisecond. `events` in order of time."""
    lost: dict[int, Gap] = {}
    for event in events:
        if event.broker is None:
            continue
        gap = lost.get(event.broker)
        if event.event == "zookeeper_lost" and gap is None:
            lost[event.broker] = Gap(event.broker, event.ts_adj, Place(event.file_id, event.line_no))
        elif event.event == "session_expired" and gap is not None:
            lost[event.broker] = gap._replace(has_expired=True)
        elif event.event in ("session_established", "server_starting") and gap is not None:
            del lost[event.broker]
            if gap.from_ms < event.ts_adj:
                yield gap._replace(to_ms=event.ts_adj)
    yield from lost.values()


def zookeeper_outages_of(facts: Facts, lives: Sequence[BrokerLife]) -> Iterator[ZookeeperOutage]:
    """From when more than half of the brokers that lived were without it, until they were no more."""
    edges = [(gap.from_ms, 1, gap) for gap in facts.gaps]
    edges += [(gap.to_ms, 0, gap) for gap in facts.gaps if gap.to_ms is not None]
    without: list[Gap] = []
    during: list[Gap] = []  # all that were without it at some time of the present outage
    from_ms = 0
    for at_ms, begins, gap in sorted(edges, key=lambda edge: (*edge[:2], edge[2].broker)):
        if not begins:
            without.remove(gap)
        else:
            without.append(gap)
        alive = {life.broker for life in lives if life.from_ms <= at_ms <= life.last_seen_ms}
        is_away = len(without) >= max(2, len(alive) // 2 + 1)
        if is_away and not during:
            from_ms = at_ms
        if is_away:
            during += [one for one in without if one not in during]
        elif during:
            yield _row(facts.cluster, from_ms, at_ms, during)
            during = []
    if during:
        yield _row(facts.cluster, from_ms, None, during)


def _row(cluster: str, from_ms: int, to_ms: int | None, gaps: Sequence[Gap]) -> ZookeeperOutage:
    place = min(gaps, key=lambda gap: (gap.from_ms, gap.broker)).place
    return ZookeeperOutage(
        cluster=cluster,
        from_ms=from_ms,
        to_ms=to_ms,
        brokers=tuple(sorted({gap.broker for gap in gaps})),
        expired=tuple(sorted({gap.broker for gap in gaps if gap.has_expired})),
        file_id=place.file_id,
        line_no=place.line_no,
    )
