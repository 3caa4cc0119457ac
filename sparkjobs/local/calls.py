"""Requests that were answered, out of the numbers about all of them: only these say anything of clocks and latencies.

What `skew.trips_in` and `rpc_latency` would pass over is left out here; what they look at becomes events again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from sparkjobs.local.digits import NONE
from sparkjobs.local.gist import APIS, CALL_COLUMNS, CALLS, Gist
from sparkjobs.schemas import SilverEvent

_KEY: Final = ("controller", "controller_epoch", "broker", "correlation_id", "api")


def answered_calls(
    places: Sequence[tuple[str, int]], gists: Sequence[Gist], others: Iterable[SilverEvent], cluster: str
) -> list[SilverEvent]:
    """`places`: of each gist the file and how many lines stand above it; files in the order that counts."""
    keys = {key for event in others if event.event == "response_received" for key in _keys_of(event)}
    if not keys:
        return []
    columns, files, topics = _together(places, gists)
    if not columns.shape[1]:
        return []
    named = dict(zip(CALL_COLUMNS, columns, strict=True))
    wanted = np.array(sorted(keys), np.int64).T
    code = np.zeros(columns.shape[1] + wanted.shape[1], np.int64)
    for name, column in zip(_KEY, wanted, strict=True):
        values, numbers = np.unique(np.concatenate((named[name], column)), return_inverse=True)
        code = np.unique(code * len(values) + numbers, return_inverse=True)[1]
    kept = np.isin(code[: columns.shape[1]], code[columns.shape[1] :])
    columns, files, code = columns[:, kept], files[kept], code[: len(kept)][kept]
    chosen = _enough(columns, files, code)
    names = [file_id for file_id, _ in places]
    return [
        _event(cluster, names[file], topics, dict(zip(CALL_COLUMNS, row, strict=True)))
        for file, row in zip(files[chosen].tolist(), columns[:, chosen].T.tolist(), strict=True)
    ]


def _keys_of(event: SilverEvent) -> list[tuple[int, int, int, int, int]]:
    """By who says that it has the answer, and by whose request it was."""
    epoch, to, number = event.controller_epoch, event.peer_broker, event.correlation_id
    api = event.api or "LeaderAndIsr"  # up to 1.0 answers do not say; of what they may be, this tells of clocks
    if epoch is None or to is None or number is None or api not in APIS:
        return []
    who = {one for one in (event.broker, event.controller) if one is not None}
    return [(one, epoch, to, number, APIS.index(api)) for one in who]


def _together(places: Sequence[tuple[str, int]], gists: Sequence[Gist]) -> tuple[Any, Any, list[str | None]]:
    topics: dict[str | None, int] = {}
    parts, files = [], []
    for number, ((_, above), gist) in enumerate(zip(places, gists, strict=True)):
        part = gist.calls.copy()
        part[CALL_COLUMNS.index("line_no")] += above
        if part.shape[1]:
            known = np.array([topics.setdefault(topic, len(topics)) for topic in gist.topics], np.int64)
            part[-1] = known[part[-1]]
        parts.append(part)
        files.append(np.full(part.shape[1], number, np.int64))
    return np.concatenate(parts, axis=1), np.concatenate(files), list(topics)


def _enough(columns: Any, files: Any, code: Any) -> Any:
    """All receipts; of what was done the last line of a request; of metadata the first, and the first about many."""
    call, line_no, ts_utc = (columns[CALL_COLUMNS.index(name)] for name in ("call", "line_no", "ts_utc"))
    topic_and_many = columns[CALL_COLUMNS.index("n_partitions")] != NONE
    chosen = [np.flatnonzero(call == CALLS.index("request_received"))]
    done = np.flatnonzero(call == CALLS.index("request_done"))
    order = done[np.lexsort((line_no[done], files[done], code[done]))]
    chosen.append(order[np.append(np.flatnonzero(np.diff(code[order])), len(order) - 1)] if len(order) else order)
    cached = np.flatnonzero(call == CALLS.index("metadata_cached"))
    group = code[cached] * 2 + topic_and_many[cached]
    sort = np.lexsort((line_no[cached], files[cached], ts_utc[cached], group))
    chosen.append(cached[sort][np.flatnonzero(np.diff(group[sort], prepend=-1))])
    return np.concatenate(chosen)


def _event(cluster: str, file_id: str, topics: Sequence[str | None], row: dict[str, int]) -> SilverEvent:
    def number(name: str) -> int | None:
        return None if row[name] == NONE else row[name]

    return SilverEvent(
        cluster=cluster,
        dt="",
        event_id="",
        ts_raw="",
        ts_utc=row["ts_utc"],
        ts_adj=row["ts_utc"],
        broker=number("broker"),
        role="broker",
        level="",
        controller=number("controller"),
        controller_epoch=number("controller_epoch"),
        event=CALLS[row["call"]],
        topic=topics[row["topic"]],
        partition=number("partition"),
        leader_epoch=number("leader_epoch"),
        peer_broker=number("peer_broker"),
        correlation_id=number("correlation_id"),
        api=APIS[row["api"]],
        n_partitions=number("n_partitions"),
        file_id=file_id,
        line_no=row["line_no"],
        shape_id="",
        line="",
    )
