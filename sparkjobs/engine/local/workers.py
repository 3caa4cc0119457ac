"""Processes that share the work, each with something of its own that it keeps from one question to the next.

A function that is given must be a module's own, and what it returns must be sendable. A member that fails says why on
standard error, and its caller gets a `WorkerError`. `Alone` is the same without processes, for what is little.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Protocol

#: less than that is read faster by one process
SHARED_BYTES: Final = 8_000_000
#: names of the C library for when memory goes back to the system
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 1 << 30
#: what a member keeps
WorkerState = dict[str, Any]


class WorkerError(Exception):
    """A worker process ended before its work was done."""


class Workers(Protocol):
    """Processes that share the work, or this process alone."""

    size: int

    def spread(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: Callable[[int], None] = lambda task: None
    ) -> list[Any]:
        """The results in the order of the tasks, whoever did them; `on_done` is told the number of each."""

    def each(self, function: Callable[[WorkerState, Any], Any], given: Sequence[Any]) -> list[Any]:
        """Every member does it, with what it keeps and its own share."""


class Alone:
    """No worker but this process."""

    size = 1

    def __init__(self) -> None:
        self._state: WorkerState = {}

    def spread(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: Callable[[int], None] = lambda task: None
    ) -> list[Any]:
        found = []
        for number, task in enumerate(tasks):
            found.append(function(task))
            on_done(number)
        return found

    def each(self, function: Callable[[WorkerState, Any], Any], given: Sequence[Any]) -> list[Any]:
        return [function(self._state, one) for one in given]


class Processes:
    """A process for each worker."""

    def __init__(self, members: Sequence[Connection]) -> None:
        self._members = members
        self.size = len(members)

    def spread(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: Callable[[int], None] = lambda task: None
    ) -> list[Any]:
        found: list[Any] = [None] * len(tasks)
        waiting = iter(enumerate(tasks))
        busy: dict[Connection, int] = {}
        for member, (number, task) in zip(self._members, waiting, strict=False):
            member.send((_without_state, (function, task)))
            busy[member] = number
            if len(busy) == self.size:
                break
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                number = busy.pop(ready)
                found[number] = _answer(ready)
                on_done(number)
                following = next(waiting, None)
                if following is not None:
                    ready.send((_without_state, (function, following[1])))
                    busy[ready] = following[0]
        return found

    def each(self, function: Callable[[WorkerState, Any], Any], given: Sequence[Any]) -> list[Any]:
        for member, one in zip(self._members, given, strict=True):
            member.send((function, one))
        return [_answer(member) for member in self._members]


def worker_count_for(size_bytes: int) -> int:
    """How many are worth their start for so much to read."""
    return (os.cpu_count() or 1) if size_bytes > SHARED_BYTES else 1


@contextmanager
def workers_of(size: int) -> Iterator[Workers]:
    """That many processes, for as long as it lasts; none besides this one where one is enough."""
    if size < 2:
        yield Alone()
        return
    # a fork starts in no time and shares what is loaded; nothing else runs in this process by now
    context: Any = get_context("fork" if hasattr(os, "fork") else "spawn")
    pairs = [context.Pipe() for _ in range(size)]
    processes: list[BaseProcess] = []
    for number, (_, theirs) in enumerate(pairs):
        others = [one for pair in pairs[: number + 1] for one in pair if one is not theirs]
        process = context.Process(target=_serve, args=(theirs, others), daemon=True)
        process.start()
        processes.append(process)
    for _, theirs in pairs:
        theirs.close()
    try:
        yield Processes([ours for ours, _ in pairs])
    finally:
        for ours, _ in pairs:
            ours.close()  # a member that hears no more goes home
        for process in processes:
            process.join()


def _serve(questions: Connection, others: Sequence[Connection]) -> None:
    for other in others:
        other.close()
    _keep_freed_memory()
    gc.disable()  # rows and events hold no circles; to look for some among all of them costs a twentieth of the work
    state: WorkerState = {}
    while True:
        try:
            function, given = questions.recv()
        except EOFError:
            return
        try:
            questions.send(function(state, given))
        except BrokenPipeError:
            return


def _keep_freed_memory() -> None:
    """Arrays come and go by the megabyte. The system would clear every page of them each time, a fifth of all work."""
    import ctypes  # noqa: PLC0415 - a hundredth of a second for who starts no members

    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # the C library of GNU, not every other
        for what in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            libc.mallopt(what, _KEPT_BYTES)


def _without_state(state: WorkerState, given: tuple[Callable[[Any], Any], Any]) -> Any:
    function, task = given
    return function(task)


def _answer(member: Connection) -> Any:
    try:
        return member.recv()
    except EOFError:
        raise WorkerError(
            "a process that shared the work ended before it was done; what it said last is above"
        ) from None
