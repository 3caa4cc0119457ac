"""How brokers are spoken to. A dialect turns requests into bytes and carries them to one broker.

This module owns the seam: what the outbox hands to a dialect and gets back. It knows no protocol. The part that is the
same for all brokers is in the `Request`, so that its bytes can be shared; the part per broker is in the `Envelope`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from controller.core.model import Broker, Partition
from controller.core.project.requests import KnownBroker, Stop, TopicKey
from controller.tell.dialects.row_cache import RowCache
from controller.wire.bodies import Answer

#: the states a broker should know; None: the partition is removed
Wanted = Mapping[TopicKey, Mapping[int, Partition | None]]
#: the replicas a broker should stop
Unwanted = Mapping[TopicKey, Mapping[int, Stop]]


class NotAcknowledgedError(Exception):
    """No usable answer came: the broker may or may not have taken it in, so it has to be told again."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as it is for every broker. `path` (of `wire.bodies`) says which; a full list comes in
    parts 1 to `parts`."""

    path: str
    #: every known broker and those that are live; to be told only where `tells_brokers`
    brokers: Sequence[KnownBroker]
    live_ids: frozenset[int]
    #: (topic, partition) that a live broker cannot serve
    failed_dirs: Mapping[int, frozenset[tuple[str, int]]] = {}
    tells_brokers: bool = False
    rows: Wanted = {}
    #: in a StopReplica, which has nothing else
    stops: Unwanted = {}
    #: topics that the receiver is asked about, which has nothing else either
    names: Sequence[str] = ()
    #: (topic id, partition) of replicas that are new on the receiver
    new: frozenset[tuple[str, int]] = frozenset()
    full: bool = False
    part: int = 1
    parts: int = 1
    #: of all requests with the same `live_ids` and `failed_dirs`: for the dialect alone; None: nothing is kept
    row_cache: RowCache | None = None


class Envelope(msgspec.Struct, frozen=True):
    """The sending controller, and the newest event behind a request. The receiver's incarnation is in its Broker."""

    controller_id: int
    controller_epoch: int
    event_id: str


class Dialect(Protocol):
    """One per cluster."""

    def encode(self, request: Request) -> bytes:
        """Returns the bytes for any broker. Synchronous: a request is bounded, and its caller lets others run in
        between."""

    async def send(self, broker: Broker, request: Request, body: bytes, envelope: Envelope) -> Answer:
        """Returns the broker's answer; `body` is the bytes that `encode` returned for the request.

        Raises NotAcknowledgedError, or what the term's guard raises."""
