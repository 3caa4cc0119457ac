"""The state of a log beside its batches, at one offset: leader epochs and idempotent producers.

All of it follows from the batches before that offset, so it can be rebuilt from any offset at which it was written
down.

Leader epochs say under which leaders the records were appended, and from which offsets on. The common part of two
replicas ends where the same leader epoch ends in both; so a follower learns where to truncate, and an offset alone
never tells.

For each producer id the last epoch and five batches are kept, since a producer has at most five on their way: a batch
that comes twice is appended once, and none is left out. Producers that were idle for long are forgotten, as in Kafka.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import msgspec
from crc32c import crc32c

from brokerstub.records.batches import NO_PRODUCER, Header
from brokerstub.records.errors import OutOfOrderSequenceError, StaleProducerError

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class EpochEnd(msgspec.Struct, frozen=True, gc=False):
    """Where records of a leader epoch end: the offset behind the last one. Both -1: nothing is known of it."""

    leader_epoch: int
    offset: int


class Epochs:
    """Ascending, both the epochs and their first offsets."""

    def __init__(self, epochs: list[int] | None = None, starts: list[int] | None = None) -> None:
        self._epochs = epochs or []
        self._starts = starts or []

    @property
    def latest(self) -> int:
        """-1: none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Each with its first offset."""
        return list(zip(self._epochs, self._starts, strict=True))

    def copy(self) -> Epochs:
        return Epochs(self._epochs.copy(), self._starts.copy())

    def begin(self, leader_epoch: int, offset: int) -> None:
        """A leader epoch begins at the log's end. One that began there and has no records is over."""
        if leader_epoch <= self.latest:
            return
        self.forget_from(offset)
        self._epochs.append(leader_epoch)
        self._starts.append(offset)

    def at(self, offset: int) -> int:
        """Under which leader epoch the record with this offset was appended; -1: none has it."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else NO_EPOCH

    def end_of(self, leader_epoch: int, log_end: int) -> EpochEnd:
        """Of the highest leader epoch here that is not above the one asked for, as Kafka answers
        OffsetForLeaderEpoch."""
        if not self._epochs or leader_epoch > self.latest:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        index = bisect_right(self._epochs, leader_epoch)
        if index == 0:  # all of its records are gone, or there never were any
            return EpochEnd(leader_epoch, self._starts[0])
        end = self._starts[index] if index < len(self._starts) else log_end
        return EpochEnd(self._epochs[index - 1], end)

    def forget_from(self, log_end: int) -> None:
        """The log ends there now."""
        while self._starts and self._starts[-1] >= log_end:
            self._epochs.pop()
            self._starts.pop()

    def forget_before(self, log_start: int) -> None:
        """Records before were removed."""
        gone = bisect_right(self._starts, log_start) - 1
        if gone > 0:
            del self._epochs[:gone], self._starts[:gone]
        if self._starts:
            self._starts[0] = max(self._starts[0], log_start)


BATCHES_KEPT: Final = 5
#: of one partition; the one that was silent for longest is forgotten
PRODUCERS_MAX: Final = 100_000
#: sequence numbers go round: 0 comes after the highest
_SEQUENCES: Final = 1 << 31


class AppendedBatch(msgspec.Struct, frozen=True, gc=False, array_like=True):
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
    batches: tuple[AppendedBatch, ...]


class Producers:
    """By id, the one that was silent for longest first."""

    def __init__(self, known: Iterable[Producer] = (), producers_max: int = PRODUCERS_MAX) -> None:
        self._known = {one.producer_id: one for one in known}
        self._producers_max = producers_max

    def all(self) -> list[Producer]:
        return list(self._known.values())

    def copy(self) -> Producers:
        return Producers(self._known.values(), self._producers_max)

    def check(self, header: Header) -> AppendedBatch | None:
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
        kept = AppendedBatch(
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


class _Snapshot(msgspec.Struct):
    """As it is written down. `offset` is the file's own: a file that was renamed is none."""

    offset: int
    epochs: list[tuple[int, int]]
    producers: list[Producer]


class _Sealed(msgspec.Struct):
    """A snapshot with its checksum: a wrong snapshot would lead to a cut log."""

    checksum: int
    snapshot: msgspec.Raw


class State:
    """At the log's end, or where a segment begins."""

    def __init__(self, epochs: Epochs | None = None, producers: Producers | None = None) -> None:
        self.epochs = epochs or Epochs()
        self.producers = producers or Producers()

    def copy(self) -> State:
        return State(self.epochs.copy(), self.producers.copy())

    def take(self, header: Header) -> None:
        """The next batch of the log."""
        self.epochs.begin(header.leader_epoch, header.base_offset)
        self.producers.take(header)


def encode_state(state: State, offset: int) -> bytes:
    data = msgspec.json.encode(_Snapshot(offset, state.epochs.entries, state.producers.all()))
    return msgspec.json.encode(_Sealed(crc32c(data), msgspec.Raw(data)))


def decode_state(data: bytes, offset: int) -> State | None:
    """Returns None for data that were not written at this offset; the log rebuilds the state."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if sealed.checksum != crc32c(sealed.snapshot):
            return None
        snapshot = msgspec.json.decode(sealed.snapshot, type=_Snapshot)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if snapshot.offset != offset:
        return None
    epochs = Epochs([epoch for epoch, _ in snapshot.epochs], [start for _, start in snapshot.epochs])
    return State(epochs, Producers(snapshot.producers))
