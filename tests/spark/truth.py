"""ZooKeeper's own record of a cluster, in the terms of the answers: the history of each state znode and of
`/controller`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from tests.recordings import Recording

_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")


class Stood(NamedTuple):
    """One version of one state znode. `life` counts how often the znode was created."""

    topic: str
    partition: int
    life: int
    version: int
    at_ms: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class Seat(NamedTuple):
    """One stay of `/controller`."""

    controller_epoch: int
    broker: int
    from_ms: int
    to_ms: int | None


def states_of(recording: Recording) -> list[Stood]:
    """Every version of every state znode, in the order of commits."""
    lives: dict[tuple[str, int], int] = defaultdict(int)
    found = []
    for group in recording.transactions:
        for write in group:
            match = _STATE.fullmatch(write.path)
            if match is None or write.op not in ("create", "set"):
                continue
            key = (match[1], int(match[2]))
            version = write.version if write.op == "set" else 0
            lives[key] += write.op == "create"
            state = msgspec.json.decode((write.data or "").encode())
            found.append(Stood(*key, lives[key], version, write.at_ms, *_parts(state)))
    return found


def _parts(state: dict[str, Any]) -> tuple[int, int, tuple[int, ...], int]:
    return state["leader"], state["leader_epoch"], tuple(state["isr"]), state["controller_epoch"]


def seats_of(recording: Recording) -> list[Seat]:
    """The holders of the seat, from when to when; a session that closes takes its `/controller` with it."""
    epoch, open_seat, owner = 0, None, ""
    seats: list[Seat] = []
    for group in recording.transactions:
        for write in group:
            if (write.op, write.path) in (("set", "/controller_epoch"), ("create", "/controller_epoch")):
                epoch = int(write.data or "0")
        for write in group:
            if write.op == "create" and write.path == "/controller":
                broker = msgspec.json.decode((write.data or "").encode())["brokerid"]
                open_seat, owner = Seat(epoch, broker, write.at_ms, None), write.session
            elif open_seat is not None and _ends(write.op, write.path, write.session, owner):
                seats.append(open_seat._replace(to_ms=write.at_ms))
                open_seat = None
    return [*seats, *([open_seat] if open_seat is not None else [])]


def _ends(op: str, path: str, session: str, owner: str) -> bool:
    return (op, path) == ("delete", "/controller") or (op == "close" and session == owner)


def leaderless(states: Iterable[Stood]) -> list[tuple[str, int, int, int | None]]:
    """Topic, partition, from, to: times without a leader by ZooKeeper's own record."""
    since: dict[tuple[str, int], int] = {}
    found: list[tuple[str, int, int, int | None]] = []
    for state in states:
        key = (state.topic, state.partition)
        if state.leader == -1:
            since.setdefault(key, state.at_ms)
        elif key in since:
            found.append((*key, since.pop(key), state.at_ms))
    return found + [(*key, at_ms, None) for key, at_ms in since.items()]


def at_moments(rows: Iterable[Any], states: Iterable[Stood], lag_ms: int) -> Iterator[tuple[Any, Stood]]:
    """The answer `isr_timeline` about each partition and ZooKeeper's state, ten times a second; not while a write may
    have no line yet."""
    truth: dict[tuple[str, int], list[Stood]] = defaultdict(list)
    for state in states:
        truth[state.topic, state.partition].append(state)
    told: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for row in rows:
        told[row.topic, row.partition].append(row)
    for key, its in truth.items():
        for moment in range(its[0].at_ms, its[-1].at_ms + 1_000, 97):
            stood = [state for state in its if state.at_ms <= moment][-1]
            row = next((r for r in told[key] if r.from_ms <= moment and (r.to_ms is None or moment < r.to_ms)), None)
            if moment - stood.at_ms > lag_ms and row is not None:
                yield row, stood
