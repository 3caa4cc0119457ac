"""Waiting for a state that comes by itself. A deadline is no judgement of speed: it says that the state never comes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

#: enough on a machine that has much else to do
DEADLINE_S = 60.0
POLL_S = 0.02


async def until(question: Callable[[], Any], what: str, *, within_s: float = DEADLINE_S, poll_s: float = POLL_S) -> Any:
    """The first true answer, awaited if need be; by the loop's clock, which may be virtual."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + within_s
    while True:
        answer = question()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if loop.time() >= give_up_at:
            raise AssertionError(f"not within {within_s:.0f} s: {what}")
        await asyncio.sleep(poll_s)


def waited_for(question: Callable[[], Any], what: str, *, within_s: float = DEADLINE_S, poll_s: float = POLL_S) -> Any:
    """The same where no loop runs."""
    give_up_at = time.monotonic() + within_s
    while not (answer := question()):
        if time.monotonic() >= give_up_at:
            raise AssertionError(f"not within {within_s:.0f} s: {what}")
        time.sleep(poll_s)
    return answer
