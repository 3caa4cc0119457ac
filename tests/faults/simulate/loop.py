"""An event loop with virtual time: when no callback can run, it moves to the next timer. No socket, no thread, no wait.

It owns time and decides which process may run. The callbacks of a frozen process are kept in order until the process is
thawed. The callbacks of a dead process are dropped. The context of a task names its process.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar, copy_context
from typing import Any

START_S = 1_000.0


class StuckError(Exception):
    """No callback can run and no timer is set: every waiting task would wait for ever."""


class Process:
    """A set of tasks that freeze together and die together."""

    def __init__(self, name: str, loop: VirtualLoop) -> None:
        self.name = name
        self.is_frozen = False
        self.is_dead = False
        self._loop = loop
        self._put_by: list[asyncio.Handle] = []
        #: asked before each of its tasks goes on; may kill it instead
        self.before_step: Callable[[asyncio.Task[Any]], None] | None = None
        self.context = copy_context()
        self.context.run(_PROCESS.set, self)

    def put_by(self, handle: asyncio.Handle) -> None:
        self._put_by.append(handle)

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        """Resume. Callbacks that were ready run before those that became due during the freeze, because they were kept
        in that order."""
        self.is_frozen = False
        ready, self._put_by = self._put_by, []
        self._loop.make_ready(ready)

    def kill(self) -> None:
        """End the process: no callback of it ever runs again. Its unfinished tasks are cleared up at the end of the
        run."""
        self.is_dead = self.is_frozen = True

    def step(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback as an event loop would, unless the process dies of it."""
        task = getattr(callback, "__self__", None)
        if isinstance(task, asyncio.Task) and self.before_step is not None and not self.is_frozen:
            self.before_step(task)
        if self.is_frozen:
            self.put_by(asyncio.Handle(callback, args, self._loop, self.context))
        else:
            callback(*args)

    def start(self, coroutine: Any) -> asyncio.Task[Any]:
        return self._loop.create_task(coroutine, context=self.context)


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


def nobody() -> Context:
    """Return the context of code that belongs to no process: the server, the network."""
    return Context()


class _Nothing(selectors.BaseSelector):
    """Selects nothing, and lets time pass instead."""

    def __init__(self) -> None:
        self.now_s = START_S

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise StuckError
        self.now_s += timeout
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        raise AssertionError("nothing real is opened in a simulation")

    unregister = modify = register  # type: ignore[assignment]

    def get_map(self) -> Mapping[Any, Any]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual seconds."""

    def __init__(self) -> None:
        self._virtual = _Nothing()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual.now_s

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        context = copy_context() if context is None else context
        process = context.get(_PROCESS)
        if process is not None and process.is_frozen:
            handle = asyncio.Handle(callback, args, self, context)
            process.put_by(handle)
            return handle
        if process is not None and process.before_step is not None:
            return super().call_soon(process.step, callback, *args, context=context)
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        process = context.get(_PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        timers: list[asyncio.TimerHandle] = []

        def due() -> None:
            if process.is_frozen:
                process.put_by(asyncio.Handle(lambda: timers[0].cancelled() or callback(*args), (), self, context))
            else:
                callback(*args)

        timers.append(super().call_at(when, due, context=context))
        return timers[0]

    def make_ready(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def run_in_executor(self, *args: Any) -> Any:
        raise AssertionError("a thread in a simulation is not deterministic")

    def _make_self_pipe(self) -> None:
        """No thread calls from outside, so no pipe is needed."""

    def _close_self_pipe(self) -> None:
        """There is none."""


class Clock:
    """The loop's time where `tests.fakes.clock.FakeClock` stands otherwise."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._listeners: list[Callable[[], None]] = []

    def __call__(self) -> float:
        return self._loop.time()

    def on_advance(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def tick(self) -> None:
        for listener in self._listeners:
            listener()
