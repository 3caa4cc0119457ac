"""Selects the requests that were answered, and those done by brokers that name them by their numbers alone, out of the
numbers about all requests. Only these say anything of clocks, latencies and the acts of brokers.

Requests that `skew.trips_in`, `rpc_latency` and `receipts` would pass over are left out here; those that they read
become events again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sparkjobs.engine.local.digest import APIS, CALL_COLUMNS, CALLS, CallColumns
from sparkjobs.engine.local.forms import MIXING_FACTOR, NONE
from sparkjobs.engine.local.packed_events import StretchContext
from sparkjobs.rules.facts import DONE
from sparkjobs.rules.receipts import API, Request, request_of
from sparkjobs.tables.silver import SilverEvent

_KEY: Final = ("controller", "controller_epoch", "broker", "correlation_id", "api")
_REQUEST: Final = Request._fields[1:]  # all are of one cluster
_ROWS: Final = [CALL_COLUMNS.index(name) for name in _REQUEST]
_FACTOR: Final = np.uint64(MIXING_FACTOR)


#: columns of stretches, of which files in the order that counts
Called = Sequence[tuple[CallColumns, StretchContext]]


def answered_calls(called: Called, others: Iterable[SilverEvent], cluster: str) -> list[SilverEvent]:
    """`others`: answers, among lines that are known already."""
    keys = {key for event in others if event.event == "response_received" for key in _keys_of(event)}
    if not keys:
        return []
    calls = _together(called)
    if not calls.columns.shape[1]:
        return []
    named = dict(zip(CALL_COLUMNS, calls.columns, strict=True))
    wanted = np.array(sorted(keys), np.int64).T
    code = np.zeros(calls.columns.shape[1] + wanted.shape[1], np.int64)
    for name, column in zip(_KEY, wanted, strict=True):
        values, numbers = np.unique(np.concatenate((named[name], column)), return_inverse=True)
        code = np.unique(code * len(values) + numbers, return_inverse=True)[1]
    kept = np.isin(code[: calls.columns.shape[1]], code[calls.columns.shape[1] :])
    few, code = calls.only(kept), code[: len(kept)][kept]
    return few.only(_enough(few.columns, few.files, code)).events(cluster)


class _Together(NamedTuple):
    """Lines of several stretches, as numbers."""

    columns: Any
    files: Any
    file_ids: Sequence[str]
    topics: Sequence[str | None]

    def only(self, chosen: Any) -> _Together:
        """Some of them."""
        return self._replace(columns=self.columns[:, chosen], files=self.files[chosen])

    def events(self, cluster: str) -> list[SilverEvent]:
        """As they were said."""
        return [
            _event(cluster, self.file_ids[file], self.topics, dict(zip(CALL_COLUMNS, row, strict=True)))
            for file, row in zip(self.files.tolist(), self.columns.T.tolist(), strict=True)
        ]


def calls_by_number(
    called: Called, others: Iterable[SilverEvent], cluster: str, brokers: frozenset[int]
) -> list[SilverEvent]:
    """Lines of these brokers about requests that they both received and did. `others`: lines that are known already."""
    if not brokers:
        return []
    known = [(event.event == DONE, *request[1:]) for event in others if (request := request_of(event)) is not None]
    by_themselves = np.array(known, np.int64).reshape(-1, 1 + len(_REQUEST)).T
    own = [_told_by(calls.columns, sorted(brokers)) for calls, _ in called]
    # lines of other requests may have the same mark: they say nothing where they are looked at
    marks = [_marks(calls.columns[_ROWS][:, its]) for (calls, _), its in zip(called, own, strict=True)]
    is_done = [calls.columns[0, its] == CALLS.index(DONE) for (calls, _), its in zip(called, own, strict=True)]
    mark = np.concatenate((_marks(by_themselves[1:]), *marks))
    done = np.concatenate((by_themselves[0] != 0, *is_done))
    whole = np.intersect1d(mark[done], mark[~done])
    chosen = [its[np.isin(of_digest, whole)] for its, of_digest in zip(own, marks, strict=True)]
    few = [(calls.only(its), above) for (calls, above), its in zip(called, chosen, strict=True) if len(its)]
    return _together(few).events(cluster)


def _told_by(columns: Any, brokers: Sequence[int]) -> Any:
    """Returns where their lines stand about numbered requests of the kind that `receipts` is about."""
    named = dict(zip(CALL_COLUMNS, columns, strict=True))
    is_told = (named["api"] == APIS.index(API)) & (named["call"] != CALLS.index("metadata_cached"))
    return np.flatnonzero(is_told & (named["correlation_id"] != NONE) & np.isin(named["broker"], brokers))


def _marks(requests: Any) -> Any:
    """Equal where all columns are, and hardly ever else."""
    mark = np.zeros(requests.shape[1], np.uint64)
    for column in requests:
        mark = (mark ^ column.view(np.uint64)) * _FACTOR
    return mark


def _keys_of(event: SilverEvent) -> list[tuple[int, int, int, int, int]]:
    """Returns the keys of an event, by the broker that has the answer and by the sender of the request."""
    epoch, to, number = event.controller_epoch, event.peer_broker, event.correlation_id
    # up to 1.0 answers do not name their API; of the possible ones, this tells of clocks
    api = event.api or "LeaderAndIsr"
    if epoch is None or to is None or number is None or api not in APIS:
        return []
    who = {one for one in (event.broker, event.controller) if one is not None}
    return [(one, epoch, to, number, APIS.index(api)) for one in who]


def _together(called: Called) -> _Together:
    topics: dict[str | None, int] = {}
    parts, files = [np.empty((len(CALL_COLUMNS), 0), np.int64)], [np.empty(0, np.int64)]
    for number, (calls, above) in enumerate(called):
        part = calls.columns.copy()
        part[CALL_COLUMNS.index("line_no")] += above.lines
        if part.shape[1]:
            known = np.array([topics.setdefault(topic, len(topics)) for topic in calls.topics], np.int64)
            part[-1] = known[part[-1]]
        parts.append(part)
        files.append(np.full(part.shape[1], number, np.int64))
    file_ids = [above.file_id for _, above in called]
    return _Together(np.concatenate(parts, axis=1), np.concatenate(files), file_ids, list(topics))


def _enough(columns: Any, files: Any, code: Any) -> Any:
    """Returns the rows to keep: all receipts; the last line of each request that was done; of metadata the first line,
    and the first about many."""
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
