"""How long brokers worked on the controller's requests: percentiles by broker, request and hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from sparkjobs.gold import RpcLatency
from sparkjobs.schemas import SilverEvent

EVENTS: Final = frozenset({"request_done"})
HOUR_MS: Final = 3_600_000


def rpc_latency_of(events: Iterable[SilverEvent]) -> Iterator[RpcLatency]:
    """Of the requests that say how long they took."""
    found: dict[tuple[str, int, int, str], list[float]] = defaultdict(list)
    for event in events:
        if event.event == "request_done" and event.elapsed_ms is not None and event.broker is not None:
            hour_ms = event.ts_adj // HOUR_MS * HOUR_MS
            found[event.cluster, hour_ms, event.broker, event.api or "unknown"].append(event.elapsed_ms)
    for (cluster, hour_ms, broker, api), times in found.items():
        times.sort()
        yield RpcLatency(
            cluster=cluster,
            hour_ms=hour_ms,
            broker=broker,
            api=api,
            side="broker",
            requests=len(times),
            p50_ms=nearest_rank(times, 50),
            p95_ms=nearest_rank(times, 95),
            p99_ms=nearest_rank(times, 99),
            max_ms=times[-1],
        )


def nearest_rank(times: list[float], percent: int) -> float:
    """The smallest value that at least `percent` of the sorted values do not exceed."""
    return times[max(0, -(-len(times) * percent // 100) - 1)]
