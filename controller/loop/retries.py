"""When writes that ZooKeeper refuses are tried again: after a pause that grows, by the term's own clock.

A target whose pause is not over is held back: it costs nothing, whatever happens meanwhile. All due targets are tried
in the same turn, so that many go out in few transactions.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from controller.base.config import Limits

#: a write that nothing asked for in so many turns that it was due in is wanted no more
TURNS_UNASKED = 2


class Waiting(msgspec.Struct):
    """One target: how often it was refused, until when it waits, and in how many turns it was due since."""

    attempts: int = 0
    due_at_s: float = 0.0
    turns_due: int = 0


class Retries:
    """Of one term. Monotonic time: the wall clock may jump."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._waiting: dict[str, Waiting] = {}

    def refused(self, target: str) -> tuple[int, int]:
        """It was tried and refused: for which time, and how many milliseconds it waits now."""
        waiting = self._waiting.setdefault(target, Waiting())
        exponent = min(waiting.attempts, 30)
        pause_ms = min(self._limits.refusal_retry_min_ms << exponent, self._limits.refusal_retry_max_ms)
        waiting.attempts += 1
        waiting.due_at_s = self._clock() + pause_ms / 1_000
        waiting.turns_due = 0
        return waiting.attempts, pause_ms

    def holds(self, target: str) -> bool:
        """Returns whether it is not to be tried yet."""
        waiting = self._waiting.get(target)
        return waiting is not None and self._clock() < waiting.due_at_s

    def end(self, target: str) -> None:
        self._waiting.pop(target, None)

    def due(self) -> list[str]:
        """Targets to be tried in this turn."""
        now_s = self._clock()
        found = [target for target, waiting in self._waiting.items() if now_s >= waiting.due_at_s]
        for target in found:
            self._waiting[target].turns_due += 1
        return found

    def is_unwanted(self, target: str, *, is_asked: bool) -> bool:
        """Returns whether nothing tried it though it was due: a caller has the longest pause to come again."""
        waiting = self._waiting.get(target)
        if waiting is None or waiting.turns_due < TURNS_UNASKED:
            return False
        return not is_asked or self._clock() >= waiting.due_at_s + self._limits.refusal_retry_max_ms / 1_000
