"""What answers to administrators have in common: how long they wait for what was decided, pieces of messages, and
validating without doing (`validate_only`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from controller.api.ports import ControllerHandle
from controller.base.clock import monotonic_ms
from controller.core.changes.cluster import Refused
from controller.core.codes import Code
from controller.core.decide.dispatch import decide
from controller.core.events import Event
from controller.kafka.protocol.codec import Reader, Writer
from controller.loop.inbox import Reply

WAIT_MAX_MS: Final = 30_000
TOLD_MAX_MS: Final = 1_000
T = TypeVar("T")


async def told(handle: ControllerHandle, timeout_ms: int) -> None:
    """Until brokers have what was decided, so that whoever asked finds it wherever it looks."""
    term = handle.term
    if term is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_ms, TOLD_MAX_MS) / 1_000):
                await term.told()


async def believed(handle: ControllerHandle, is_so: Callable[[], bool], timeout_ms: int) -> None:
    """Until belief says so, or the term is over. At most for so long, and in no case for longer than the longest."""
    term = handle.term
    with suppress(TimeoutError):
        async with asyncio.timeout(min(timeout_ms, WAIT_MAX_MS) / 1_000):
            while term is not None and not term.is_over and not is_so():
                await term.believed.wait()


def tagged(reader: Reader, value: T) -> T:
    """The value, when its tags were read, too."""
    reader.tags()
    return value


def coded(writer: Writer, code: Code, detail: str) -> None:
    """A code, and what it is for if it is one."""
    writer.i16(code).string((detail or code.name) if code is not Code.NONE else None).tags()


def dry_run(handle: ControllerHandle, event: Event) -> Reply:
    """What a request would be answered now. Nothing is written, told or kept."""
    cluster = handle.cluster
    if cluster is None:
        return Reply(Code.NOT_CONTROLLER, "this is not the active controller")
    pieces = list(decide(cluster, event, monotonic_ms(), 0))
    refusals = (change for piece in pieces for change in piece.changes if isinstance(change, Refused))
    refusal = next(refusals, None)
    return Reply(Code.NONE, "") if refusal is None else Reply(refusal.code, refusal.detail)
