"""Requests that were answered, or done by brokers that name them by their numbers alone, out of the numbers about all
of them: only these say anything of clocks, latencies and who did what.

What `skew.trips_in`, `rpc_latency` and `receipts` would pass over is left out here; what they look at becomes events
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sparkjobs.engine.local.digest import (
    APIS,
    CALL_COLUMNS,
    CALLS,
    StretchDigest,
    number_of,
)
from sparkjobs.engine.local.digits import MIXING_FACTOR, NONE
from sparkjobs.rules.facts import DONE
from sparkjobs.rules.receipts import API, Request, request_of
from sparkjobs.tables.silver import SilverEvent

_KEY: Final = ("controller", "controller_epoch", "broker", "correlation_id", "api")
_REQUEST: Final = Request._fields[1:]  # all are of one cluster
_ROWS: Final = [CALL_COLUMNS.index(name) for name in _REQUEST]
_FACTOR: Final = np.uint64(MIXING_FACTOR)


def answered_calls(
    places: Sequence[tuple[str, int]], digests: Sequence[StretchDigest], others: Iterable[SilverEvent], cluster: str
) -> list[SilverEvent]:
    """`places`: of each digest the file and how many lines stand above it; files in the order that counts."""
    keys = {key for event in others if event.event == "response_received" for key in _keys_of(event)}
    if not keys:
        return []
    columns, files, topics = _together(places, digests)
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
    return RpcColumns(columns, files, [file_id for file_id, _ in places], topics, cluster).only(chosen).events()


class RpcColumns(NamedTuple):
    """Some lines, as numbers."""

    columns: Any
    files: Any
    file_ids: Sequence[str]
    topics: Sequence[str | None]
    cluster: str

    def only(self, chosen: Any) -> RpcColumns:
        """Some of them."""
        return self._replace(columns=self.columns[:, chosen], files=self.files[chosen])

    def events(self) -> list[SilverEvent]:
        """As they were said."""
        return [
            _event(self.cluster, self.file_ids[file], self.topics, dict(zip(CALL_COLUMNS, row, strict=True)))
            for file, row in zip(self.files.tolist(), self.columns.T.tolist(), strict=True)
        ]


def calls_by_number(
    places: Sequence[tuple[str, int]],
    digests: Sequence[StretchDigest],
    others: Iterable[SilverEvent],
    cluster: str,
    brokers: frozenset[int],
) -> RpcColumns:
    """Lines of these brokers about requests that they both received and did. `others`: lines that are known already."""
    known = [(event.event == DONE, *request[1:]) for event in others if (request := request_of(event)) is not None]
    by_themselves = np.array(known, np.int64).reshape(-1, 1 + len(_REQUEST)).T
    own = [_told_by(digest.calls, sorted(brokers)) for digest in digests]
    # lines of other requests may have the same mark: they say nothing where they are looked at
    marks = [_marks(digest.calls[_ROWS][:, its]) for digest, its in zip(digests, own, strict=True)]
    is_done = [digest.calls[0, its] == CALLS.index(DONE) for digest, its in zip(digests, own, strict=True)]
    mark = np.concatenate((_marks(by_themselves[1:]), *marks))
    done = np.concatenate((by_themselves[0] != 0, *is_done))
    whole = np.intersect1d(mark[done], mark[~done])
    chosen = [its[np.isin(of_gist, whole)] for its, of_gist in zip(own, marks, strict=True)]
    few = [digest._replace(calls=digest.calls[:, its]) for digest, its in zip(digests, chosen, strict=True)]
    columns, files, topics = _together(places, few)
    return RpcColumns(columns, files, [file_id for file_id, _ in places], topics, cluster)


def _told_by(columns: Any, brokers: Sequence[int]) -> Any:
    """Where their lines stand about numbered requests of the kind that `receipts` is about."""
    named = dict(zip(CALL_COLUMNS, columns, strict=True))
    is_told = (named["api"] == APIS.index(API)) & (named["call"] != CALLS.index("metadata_cached"))
    return np.flatnonzero(is_told & (named["correlation_id"] != NONE) & np.isin(named["broker"], brokers))


def _marks(requests: Any) -> Any:
    """Equal where all columns are, and hardly ever else."""
    mark = np.zeros(requests.shape[1], np.uint64)
    for column in requests:
        mark = (mark ^ column.view(np.uint64)) * _FACTOR
    return mark


def by_share(calls: RpcColumns, size: int) -> list[RpcColumns]:
    """Those about partitions, by who keeps them."""
    topic, partition = (calls.columns[CALL_COLUMNS.index(name)] for name in ("topic", "partition"))
    numbers = np.array([0 if name is None else number_of(name) for name in calls.topics] or [0], np.int64)
    is_about = (partition != NONE) & ~np.isin(topic, [n for n, name in enumerate(calls.topics) if name is None])
    member = (numbers[topic] + partition) % size
    return [calls.only(is_about & (member == number)) for number in range(size)]


def _keys_of(event: SilverEvent) -> list[tuple[int, int, int, int, int]]:
    """By who says that it has the answer, and by whose request it was."""
    epoch, to, number = event.controller_epoch, event.peer_broker, event.correlation_id
    api = event.api or "LeaderAndIsr"  # up to 1.0 answers do not say; of what they may be, this tells of clocks
    if epoch is None or to is None or number is None or api not in APIS:
        return []
    who = {one for one in (event.broker, event.controller) if one is not None}
    return [(one, epoch, to, number, APIS.index(api)) for one in who]


def _together(places: Sequence[tuple[str, int]], digests: Sequence[StretchDigest]) -> tuple[Any, Any, list[str | None]]:
    topics: dict[str | None, int] = {}
    parts, files = [], []
    for number, ((_, above), digest) in enumerate(zip(places, digests, strict=True)):
        part = digest.calls.copy()
        part[CALL_COLUMNS.index("line_no")] += above
        if part.shape[1]:
            known = np.array([topics.setdefault(topic, len(topics)) for topic in digest.topics], np.int64)
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
