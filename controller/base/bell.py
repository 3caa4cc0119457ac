"""A bell: whoever waits is woken by the next ring, however many they are. It says nothing of what happened."""

from __future__ import annotations

import asyncio


class Bell:
    """Keeps no list of who waits: who comes later waits for a later ring."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def ring(self) -> None:
        told, self._next = self._next, asyncio.Event()
        told.set()

    async def wait(self) -> None:
        await self._next.wait()
