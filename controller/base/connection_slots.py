"""Places for connections: so many in all, and so many of one peer. When none is left, the connection that matters least
gives way to the new one, so that readers and silent peers can keep no other out.

All connections of a lab come from one address, so the address of a peer says nothing; the use of its connections does.

Each connection is an open file of the process. `limits_within` leaves enough files for ZooKeeper, for other brokers,
and for logs.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import msgspec

from controller.base.config import LIMITS, Limits


class ConnectionRank(IntEnum):
    """The use of a connection. The lowest rank gives way first, among equals the connection silent for longest."""

    #: it waits, and has asked for nothing yet, or only read
    IDLE = 0
    #: a reader is being answered
    READING = 1
    #: it waits, and its last request was a change, or a broker's request
    KEPT = 2
    #: that is being answered; it never gives way
    WORKING = 3


class NoSlotError(Exception):
    """There is no place, and every connection is at work, so none can give way."""

    def __init__(self, is_of_peer: bool) -> None:
        super().__init__("no place is left")
        self.is_of_peer = is_of_peer


class ConnectionSlots:
    """All that are taken. Each call costs the same however many there are."""

    def __init__(self, in_all: int, of_peer: int) -> None:
        self._in_all = in_all
        self._of_peer = of_peer
        self._all = _Ranks()
        self._peers: dict[str, _Ranks] = {}

    @property
    def taken(self) -> int:
        return self._all.count

    def open(self, peer: str, give_way: Callable[[], None]) -> ConnectionSlot:
        """Returns a place for a new connection; another may be told to give way. Raises FullError."""
        ranks = self._peers.get(peer)
        if ranks is not None and ranks.count >= self._of_peer:
            self._make_room(ranks, is_of_peer=True)
        elif self._all.count >= self._in_all:
            self._make_room(self._all, is_of_peer=False)
        place = ConnectionSlot(self, peer, give_way)
        self._all.put(place)
        self._peers.setdefault(peer, _Ranks()).put(place)
        return place

    def _make_room(self, ranks: _Ranks, *, is_of_peer: bool) -> None:
        victim = ranks.least
        if victim is None:
            raise NoSlotError(is_of_peer)
        victim.leave()
        victim.give_way()

    def _ranks_of(self, place: ConnectionSlot) -> tuple[_Ranks, _Ranks]:
        return self._all, self._peers[place.peer]

    def move(self, place: ConnectionSlot, rank: ConnectionRank) -> None:
        both = self._ranks_of(place)
        for ranks in both:
            ranks.drop(place)
        place.rank = rank
        for ranks in both:
            ranks.put(place)

    def remove(self, place: ConnectionSlot) -> None:
        for ranks in self._ranks_of(place):
            ranks.drop(place)
        if not self._peers[place.peer].count:
            del self._peers[place.peer]


class ConnectionSlot:
    """Of one connection, until it leaves or gives way."""

    def __init__(self, places: ConnectionSlots, peer: str, give_way: Callable[[], None]) -> None:
        self.peer = peer
        self.give_way: Final = give_way
        self.rank = ConnectionRank.IDLE
        self._places = places
        self._is_left = False

    def hear(self) -> None:
        """It said something: those that are silent give way before it."""
        if not self._is_left:
            self._places.move(self, self.rank)

    def work(self, *, is_reading: bool) -> None:
        """It is let in, and answered until `rest`."""
        if not self._is_left:
            self._places.move(self, ConnectionRank.READING if is_reading else ConnectionRank.WORKING)

    def rest(self) -> None:
        """It has its answer, and may ask again."""
        if not self._is_left and self.rank in (ConnectionRank.READING, ConnectionRank.WORKING):
            self._places.move(self, ConnectionRank.KEPT if self.rank is ConnectionRank.WORKING else ConnectionRank.IDLE)

    def leave(self) -> None:
        """Again and again, if need be."""
        if not self._is_left:
            self._is_left = True
            self._places.remove(self)


class _Ranks:
    """Places by rank, in the order in which they last moved."""

    def __init__(self) -> None:
        self._by_rank: dict[ConnectionRank, dict[ConnectionSlot, None]] = {rank: {} for rank in ConnectionRank}
        self.count = 0

    def put(self, place: ConnectionSlot) -> None:
        self._by_rank[place.rank][place] = None
        self.count += 1

    def drop(self, place: ConnectionSlot) -> None:
        del self._by_rank[place.rank][place]
        self.count -= 1

    @property
    def least(self) -> ConnectionSlot | None:
        """Returns the connection that gives way first; None when all are at work."""
        for rank in (ConnectionRank.IDLE, ConnectionRank.READING, ConnectionRank.KEPT):
            if self._by_rank[rank]:
                return next(iter(self._by_rank[rank]))
        return None


FILES_WANTED: Final = 65_536


def allow_files() -> int:
    """As many as this process wants, if the system lets it; returns how many there may be."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if most < 0 else min(most, FILES_WANTED)
    if 0 <= now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        return wanted
    return FILES_WANTED if now < 0 else now


def limits_within(files: int, limits: Limits = LIMITS) -> Limits:
    """With no more connections of a kind than a quarter of these files."""
    share = max(1, files // 4)
    return msgspec.structs.replace(
        limits,
        connections=min(limits.connections, share),
        connections_per_peer=min(limits.connections_per_peer, share),
        kafka_connections=min(limits.kafka_connections, share),
        kafka_connections_per_peer=min(limits.kafka_connections_per_peer, share),
    )
