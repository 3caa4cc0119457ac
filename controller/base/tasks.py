"""Functions that asyncio lacks before Python 3.13."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
#: of the event loop: a connection that was accepted gets its task, its transport, and then its protocol
_ROUNDS_TO_ACCEPT: Final = 3


async def end_accepting(server: asyncio.Server) -> None:
    """Accept no connection any more, and wait for the transports of those that were accepted. `close` comes after it.

    A connection that has no transport yet when its server closes never gets one, and its socket stays open: CPython's
    `Server._attach` asserts that the server still has sockets.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_ROUNDS_TO_ACCEPT):
        await asyncio.sleep(0)


async def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run work that has a TaskGroup in it in a task of its own. Returns or raises as the work does; but if the caller
    is cancelled meanwhile, the work is cancelled and waited for, and the cancellation is raised.

    Without this the cancellation would be lost: a group one of whose tasks fails in the turn in which the group is
    cancelled from outside raises only the failure, and a caller that catches the failure goes on, though it was told to
    end.
    """
    task = asyncio.create_task(work)
    told_to_end: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as cancelled:
            told_to_end = cancelled
            task.cancel()
    if told_to_end is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # it was told to end: no caller waits for the result
    raise told_to_end
