"""The port by which work is distributed, and the local executor: processes of this machine that share it.

A task is divided into parts, and each part belongs to a share of some kind: all parts about one partition, or about one
broker, fall to the same share, from all tasks. A share answers a question with all of its parts at hand. Only the
results of tasks and the answers of shares return to the caller, so both have to be small; the parts stay with the
executor. Nothing here knows of logs. Spark implements the same port (`engine/spark/executor.py`).

The local executor's processes keep their shares from one question to the next. A function given to them must be defined
in a module, and its result must be sendable. A process that fails writes the reason to standard error, and its caller
gets a `WorkerError`. `SingleProcess` does the same without processes, for little work.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, NamedTuple, Protocol


class DividedTask(NamedTuple):
    """The division of a task, or of a portion of a task that is large."""

    told: Any
    parts: dict[tuple[str, int], Any]  # by kind, and by number of the share


class Share:
    """Parts of all tasks that belong together, each with the number of its task, in order. `kept` holds results for the
    next question; it is empty again where another process is asked."""

    def __init__(self, parts: list[tuple[int, Any]]) -> None:
        self.parts, self.kept = parts, dict[str, Any]()


class Task(Protocol):
    """Work on a stretch of a file. Another process may have to read or copy the file for it."""

    @property
    def stretch(self) -> Any: ...

    def at(self, path: str) -> Any: ...

    def reading(self, content: Iterable[bytes]) -> Any: ...


#: reads a task; must be a function of a module, or a `partial` of one
Divide = Callable[[Any], Iterable[DividedTask]]
OnDone = Callable[[int], None]


def nobody(task: int) -> None:
    """Is told of tasks that are done, and does nothing."""


class Shares(Protocol):
    """The divided tasks."""

    @property
    def told(self) -> list[list[Any]]:
        """Returns the results of each task, in the order of its portions."""

    def ask(self, kind: str, function: Callable[[Share, Any], Any], given: Sequence[Any]) -> list[Any]:
        """Returns the answers of all shares of a kind. `given`: for each share, its own argument."""

    def ask_one(self, kind: str, number: int, function: Callable[[Share, Any], Any], given: Any) -> Any:
        """Returns the answer of one share: for answers that are large, so that the caller has one at a time."""

    def replace(self, tasks: Mapping[int, Any]) -> None:
        """Divide these tasks anew: their earlier division counts no more."""


class Executor(Protocol):
    """Does the work."""

    #: its name in a report
    name: str

    def shares_for(self, size_bytes: int) -> int:
        """Into how many shares so much content is divided."""

    def spread(self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: OnDone = nobody) -> list[Any]:
        """Returns the results in the order of the tasks, from any worker; `on_done` is told the number of each."""

    def divide(
        self, function: Divide, tasks: Sequence[Task], kinds: Mapping[str, int], on_done: OnDone = nobody
    ) -> Shares:
        """Read the tasks. `kinds`: how many shares there are of each kind."""


#: less than that is read faster by one process
SHARED_BYTES: Final = 8_000_000
#: names of the C library for when memory goes back to the system
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 1 << 30
#: the bytes that a member keeps
WorkerState = dict[str, Any]


class WorkerError(Exception):
    """A worker process ended before its work was done."""


class Workers(Protocol):
    """Processes that share the work, or this process alone."""

    name: str
    size: int

    def shares_for(self, size_bytes: int) -> int: ...

    def spread(self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: OnDone = nobody) -> list[Any]: ...

    def each(self, function: Callable[[WorkerState, Any], Any], given: Sequence[Any]) -> list[Any]:
        """Every member calls the function, with its kept state and its own share."""

    def divide(
        self, function: Divide, tasks: Sequence[Any], kinds: Mapping[str, int], on_done: OnDone = nobody
    ) -> LocalShares: ...


class _ExecutorBase:
    """The part that all executors have in common."""

    name = "processes of one machine, without Spark"
    size = 1

    def shares_for(self, size_bytes: int) -> int:
        """Returns one share for each member: a member keeps its share between questions."""
        return self.size

    def divide(
        self: Workers, function: Divide, tasks: Sequence[Any], kinds: Mapping[str, int], on_done: OnDone = nobody
    ) -> LocalShares:
        return LocalShares(self, function, tasks, kinds, on_done)


class SingleProcess(_ExecutorBase):
    """No worker but this process."""

    def __init__(self) -> None:
        self._state: WorkerState = {}

    def spread(self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: OnDone = nobody) -> list[Any]:
        found = []
        for number, task in enumerate(tasks):
            found.append(function(task))
            on_done(number)
        return found

    def each(self, function: Callable[[WorkerState, Any], Any], given: Sequence[Any]) -> list[Any]:
        return [function(self._state, one) for one in given]


class LocalShares:
    """Parts are here until their share is asked for the first time, and then with the member that was asked."""

    _numbers = count()

    def __init__(
        self, workers: Workers, function: Divide, tasks: Sequence[Any], kinds: Mapping[str, int], on_done: OnDone
    ) -> None:
        self._workers, self._divide, self._kinds = workers, partial(_all_of, function), kinds
        self._number, self._sent = next(self._numbers), set[str]()
        self._divided: list[list[DividedTask]] = workers.spread(self._divide, tasks, on_done)

    @property
    def told(self) -> list[list[Any]]:
        return [[portion.told for portion in portions] for portions in self._divided]

    def replace(self, tasks: Mapping[int, Any]) -> None:
        for number, portions in zip(tasks, self._workers.spread(self._divide, [*tasks.values()]), strict=True):
            self._divided[number] = portions

    def ask(self, kind: str, function: Callable[[Share, Any], Any], given: Sequence[Any]) -> list[Any]:
        found = self._asked(kind, function, dict(enumerate(given)))
        return [found[number] for number in range(self._kinds[kind])]

    def ask_one(self, kind: str, number: int, function: Callable[[Share, Any], Any], given: Any) -> Any:
        return self._asked(kind, function, {number: given})[number]

    def _asked(self, kind: str, function: Callable[[Share, Any], Any], given: Mapping[int, Any]) -> dict[int, Any]:
        size, questions = self._workers.size, list[_ShareRequest]()
        for member in range(size):
            numbers = range(member, self._kinds[kind], size)
            name = f"{self._number} {kind}"
            parts = None if kind in self._sent else {number: self._parts(kind, number) for number in numbers}
            own = {number: given[number] for number in numbers if number in given}
            questions.append(_ShareRequest(function, name, parts, own))
        self._sent.add(kind)
        found: dict[int, Any] = {}
        for answers in self._workers.each(_answers, questions):
            found |= answers
        return found

    def _parts(self, kind: str, number: int) -> list[tuple[int, Any]]:
        return [
            (task, portion.parts.pop((kind, number)))
            for task, portions in enumerate(self._divided)
            for portion in portions
            if (kind, number) in portion.parts
        ]


class _ShareRequest(NamedTuple):
    """To one member, about its shares of a kind. `parts`: none where it has them already."""

    function: Callable[[Share, Any], Any]
    name: str
    parts: Mapping[int, list[tuple[int, Any]]] | None
    given: Mapping[int, Any]


def _answers(state: WorkerState, asked: _ShareRequest) -> dict[int, Any]:
    if asked.parts is not None:
        state[asked.name] = {number: Share(parts) for number, parts in asked.parts.items()}
    return {number: asked.function(state[asked.name][number], given) for number, given in asked.given.items()}


def _all_of(function: Divide, task: Any) -> list[DividedTask]:
    return list(function(task))


class WorkerProcesses(_ExecutorBase):
    """A process for each worker."""

    def __init__(self, members: Sequence[Connection]) -> None:
        self._members = members
        self.size = len(members)

    def spread(self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: OnDone = nobody) -> list[Any]:
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
    """Returns how many are worth their start for so much to read."""
    return (os.cpu_count() or 1) if size_bytes > SHARED_BYTES else 1


@contextmanager
def workers_of(size: int) -> Iterator[Workers]:
    """That many processes, for as long as it lasts; none besides this one where one is enough."""
    if size < 2:
        yield SingleProcess()
        return
    # a fork starts in no time and shares the loaded modules; nothing else runs in this process by now
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
        yield WorkerProcesses([ours for ours, _ in pairs])
    finally:
        for ours, _ in pairs:
            ours.close()  # a member that hears no more goes home
        for process in processes:
            process.join()


def _serve(questions: Connection, others: Sequence[Connection]) -> None:
    for other in others:
        other.close()
    keep_freed_memory()
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


def keep_freed_memory() -> None:
    """Arrays come and go by the megabyte. The system would clear every page of them each time, a fifth of all work."""
    import ctypes  # noqa: PLC0415 - saves a process without members a hundredth of a second

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
