"""A proxy that follows ZooKeeper's messages, so that a single answer, request or handshake can be lost.

Owns the faults that are armed, and where each of its connections stands in its messages. It must never hold back
more than a header, or touch a connection that does not speak ZooKeeper's protocol (the four-letter words).
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from brokerstub.lab.proxy import Direction, Link, Proxy

MAX_FRAME_BYTES = 64 * 1024 * 1024
_HEADER_BYTES = 12
_PING_OPCODE = 11
_PING_XID = -2
_NOTIFICATION_XID = -1


class Frame(NamedTuple):
    """The start of a message: its length with the prefix, and the field that tells its kind."""

    total_bytes: int
    is_handshake: bool
    xid: int
    opcode: int  # of a request; in an answer these four bytes belong to the zxid


# A four-letter word, or the answer to it: one endless message that no fault concerns.
FOREIGN = Frame(sys.maxsize, is_handshake=False, xid=0, opcode=0)


class FrameScanner:
    """Finds where messages begin in one direction of a connection. Pure."""

    def __init__(self) -> None:
        self._header = b""  # the beginning of one that is too short to say which it is
        self._left_bytes = 0
        self._is_first = True

    def pieces(self, chunk: bytes) -> Iterator[tuple[Frame | None, bytes]]:
        """The chunk, cut where messages begin; a message's first piece comes with its frame."""
        chunk = self._header + chunk
        at = 0
        while at < len(chunk):
            frame = None
            if self._left_bytes == 0:
                frame = self._frame_at(chunk, at)
                if frame is None:
                    break
                self._left_bytes, self._is_first = frame.total_bytes, False
            piece = chunk[at : at + self._left_bytes]
            self._left_bytes -= len(piece)
            at += len(piece)
            yield frame, piece
        self._header = chunk[at:]

    def _frame_at(self, chunk: bytes, at: int) -> Frame | None:
        available_bytes = len(chunk) - at
        size = int.from_bytes(chunk[at : at + 4], "big", signed=True)
        if available_bytes >= 4 and not _HEADER_BYTES - 4 <= size <= MAX_FRAME_BYTES:
            return FOREIGN
        if available_bytes < _HEADER_BYTES:
            return None
        xid, opcode = struct.unpack_from(">ii", chunk, at + 4)
        return Frame(4 + size, self._is_first, xid, opcode)


@dataclass(eq=False)
class Fault:
    """Waits for the first message that fits, after `skip` others that do."""

    kind: Literal["lose_answer", "swallow_handshake", "close_mid_message", "drop_request"]
    opcode: int | None = None  # any request, for None, but no ping
    skip: int = 0
    about: bytes = b""  # stands in the first bytes of the message to arrive: a path that it names
    happened: asyncio.Event = field(default_factory=asyncio.Event)


class ZooKeeperLink(Link):
    """Follows the messages both ways and lets the armed faults happen to them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, faults: list[Fault]) -> None:
        super().__init__(reader, writer)
        self._faults = faults  # the proxy's own list: whichever link has a message that fits takes a fault out
        self._scanners: dict[Direction, FrameScanner] = {"up": FrameScanner(), "down": FrameScanner()}
        # the bytes of the present message that may pass
        self._allowance_bytes: dict[Direction, int] = {"up": 0, "down": 0}
        self._ends_after: set[Direction] = set()  # where the link ends once the allowance is used up
        self._answers_to_lose: dict[int, Fault] = {}  # by xid

    def passed(self, direction: Direction, chunk: bytes) -> bytes:
        out = bytearray()
        for frame, piece in self._scanners[direction].pieces(chunk):
            if frame is FOREIGN:
                self._allowance_bytes[direction] = frame.total_bytes
            elif frame is not None:
                self._judge(direction, frame, piece)
            passing = piece[: self._allowance_bytes[direction]]
            self._allowance_bytes[direction] -= len(passing)
            out += passing
            if direction in self._ends_after and self._allowance_bytes[direction] == 0:
                self.is_ending = True
                break
        return bytes(out)

    def _judge(self, direction: Direction, frame: Frame, piece: bytes) -> None:
        """How much of a message may pass, and whether the link lives on after it."""
        allowance_bytes = frame.total_bytes
        fault = self._request_fault(frame, piece) if direction == "up" else self._answer_fault(frame)
        if fault is not None:
            fault.happened.set()
            allowance_bytes = frame.total_bytes // 2 if fault.kind == "close_mid_message" else 0
            if fault.kind != "swallow_handshake":
                self._ends_after.add(direction)
        self._allowance_bytes[direction] = allowance_bytes

    def _request_fault(self, frame: Frame, piece: bytes) -> Fault | None:
        if frame.is_handshake:
            return None
        if fault := self._take("drop_request", frame.opcode, piece):
            return fault
        if fault := self._take("lose_answer", frame.opcode, piece):
            self._answers_to_lose[frame.xid] = fault
        return None

    def _answer_fault(self, frame: Frame) -> Fault | None:
        if frame.is_handshake:
            return self._take("swallow_handshake")
        if frame.xid in self._answers_to_lose:
            return self._answers_to_lose.pop(frame.xid)
        return self._take("close_mid_message") if frame.xid not in (_PING_XID, _NOTIFICATION_XID) else None

    def _take(self, kind: str, opcode: int | None = None, piece: bytes = b"") -> Fault | None:
        for fault in self._faults:
            is_asked = fault.opcode == opcode or (fault.opcode is None and opcode != _PING_OPCODE)
            if fault.kind == kind and is_asked and fault.about in piece:
                if fault.skip == 0:
                    self._faults.remove(fault)
                    return fault
                fault.skip -= 1
        return None


class ZooKeeperProxy(Proxy):
    """Each fault happens once, to the first message of any connection that fits; its Event tells when."""

    def __init__(self, target: tuple[str, int], *, port: int = 0) -> None:
        super().__init__(target, port=port)
        self._faults: list[Fault] = []

    def lose_answer(self, opcode: int | None = None, *, skip: int = 0, about: str = "") -> asyncio.Event:
        """The next such request is answered by the server; instead of the answer the client sees the end."""
        return self._arm(Fault("lose_answer", opcode, skip, about.encode()))

    def drop_request(self, opcode: int | None = None, *, skip: int = 0, about: str = "") -> asyncio.Event:
        """The next such request never reaches the server, and its connection ends."""
        return self._arm(Fault("drop_request", opcode, skip, about.encode()))

    def swallow_handshake(self) -> asyncio.Event:
        """The next handshake is never answered, on a connection that stays open."""
        return self._arm(Fault("swallow_handshake"))

    def close_mid_message(self) -> asyncio.Event:
        """Of the next answer (no ping's, no notification) the first half arrives, then the end."""
        return self._arm(Fault("close_mid_message"))

    def disarm(self, *happened: asyncio.Event) -> None:
        """Remove the faults that have not happened yet: these, or all."""
        self._faults[:] = [fault for fault in self._faults if happened and fault.happened not in happened]

    def _arm(self, fault: Fault) -> asyncio.Event:
        self._faults.append(fault)
        return fault.happened

    def _link_for(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Link:
        return ZooKeeperLink(reader, writer, self._faults)
