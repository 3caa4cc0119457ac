"""What a TaskGroup of asyncio does not do by itself before Python 3.13."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run work that has a TaskGroup in it in a task of its own. Returns or raises what the work does; but if the caller
    is cancelled meanwhile, the work is cancelled and waited for, and the cancellation is raised.

    Without this it would be lost: a group one of whose tasks fails in the turn in which the group is cancelled from
    outside raises only the failure, and whoever catches that goes on, though it was told to end.
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
        task.exception()  # it was told to end: nobody waits for how it ended
    raise told_to_end
