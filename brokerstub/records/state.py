"""What a log knows beside its batches, at one offset: leader epochs and producers. All of it follows from the batches
before that offset, so that it can be told again from any offset at which it was written down."""

from __future__ import annotations

import msgspec
from crc32c import crc32c

from brokerstub.records.batches import Header
from brokerstub.records.epochs import Epochs
from brokerstub.records.producers import Producer, Producers


class _Snapshot(msgspec.Struct):
    """As it is written down. `offset` is the file's own: a file that was renamed is none."""

    offset: int
    epochs: list[tuple[int, int]]
    producers: list[Producer]


class _Sealed(msgspec.Struct):
    """A snapshot with its checksum: what follows from a wrong one would cut the log."""

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
    """None: not what was written at this offset; the log tells it again."""
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
