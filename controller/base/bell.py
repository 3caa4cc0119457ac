"""A bell: its next ring wakes every waiter. A ring carries no message."""

from __future__ import annotations

import asyncio


class Bell:
    """Keeps no list of waiters: a waiter that arrives after a ring waits for the next one."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def ring(self) -> None:
        told, self._next = self._next, asyncio.Event()
        told.set()

    async def wait(self) -> None:
        await self._next.wait()
