"""Idempotent producers of one partition: a batch that comes twice is appended once, and none is left out.

Of each producer id: its epoch and its last five batches, since a producer has five under way at most. All of it follows
from the batches in the log. Bounded: what nobody used for long is forgotten, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from brokerstub.records.batches import NO_PRODUCER, Header
from brokerstub.records.errors import OutOfOrderSequenceError, StaleProducerError

BATCHES_KEPT: Final = 5
#: of one partition; the one that was silent for longest is forgotten
PRODUCERS_MAX: Final = 100_000
#: sequence numbers go round: 0 comes after the highest
_SEQUENCES: Final = 1 << 31


class Kept(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A batch that was appended."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Producer(msgspec.Struct, frozen=True, array_like=True):
    """One producer id, the newest batch last."""

    producer_id: int
    epoch: int
    batches: tuple[Kept, ...]


class Producers:
    """By id, the one that was silent for longest first."""

    def __init__(self, known: Iterable[Producer] = (), producers_max: int = PRODUCERS_MAX) -> None:
        self._known = {one.producer_id: one for one in known}
        self._producers_max = producers_max

    def all(self) -> list[Producer]:
        return list(self._known.values())

    def copy(self) -> Producers:
        return Producers(self._known.values(), self._producers_max)

    def check(self, header: Header) -> Kept | None:
        """A batch is about to be appended by the leader. Returns the one of the last five that it repeats; raises when
        it must not be appended. An unknown producer may begin anywhere, since it may have been forgotten."""
        known = self._known.get(header.producer_id)
        if header.producer_id == NO_PRODUCER or known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise StaleProducerError(
                f"producer {header.producer_id} has epoch {known.epoch}, and this batch {header.producer_epoch}"
            )
        expected = 0
        if header.producer_epoch == known.epoch:
            first, last = header.base_sequence, _last_sequence_of(header)
            for kept in known.batches:
                if (kept.first_sequence, kept.last_sequence) == (first, last):
                    return kept
            expected = (known.batches[-1].last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} at epoch {header.producer_epoch}: sequence number {expected} is"
                f" expected, not {header.base_sequence}"
            )
        return None

    def take(self, header: Header) -> None:
        """A batch was appended, here or by the leader that this replica follows."""
        if header.producer_id == NO_PRODUCER:
            return
        known = self._known.pop(header.producer_id, None)
        before = known.batches if known is not None and known.epoch == header.producer_epoch else ()
        kept = Kept(
            header.base_sequence,
            _last_sequence_of(header),
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        self._known[header.producer_id] = Producer(
            header.producer_id, header.producer_epoch, (*before, kept)[-BATCHES_KEPT:]
        )
        if len(self._known) > self._producers_max:
            del self._known[next(iter(self._known))]

    def forget_silent(self, since_ms: int) -> None:
        """Those whose last batch is older, by its own timestamp, as in Kafka."""
        for producer in self.all():
            if producer.batches[-1].timestamp < since_ms:
                del self._known[producer.producer_id]


def _last_sequence_of(header: Header) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
