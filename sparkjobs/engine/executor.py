"""How work is distributed: what a conclusion asks of whoever carries it out, processes of this machine or Spark.

A task comes to parts, and each part belongs to a share of some kind: all that is about one partition, or about one
broker, falls to the same share, whichever task it came from. A share is asked a question with all of its parts at
hand. Only what tasks tell and what shares answer comes back to who asks, so both have to be small; the parts stay with
the executor. Nothing here knows of logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Divided(NamedTuple):
    """What a task comes to, or a portion of a task that is large."""

    told: Any
    parts: dict[tuple[str, int], Any]  # by kind, and by number of the share


class Share:
    """Parts of all tasks that belong together, each with the number of its task, in order. `kept` is what was made of
    them for the next question; it is empty again where another process is asked."""

    def __init__(self, parts: list[tuple[int, Any]]) -> None:
        self.parts, self.kept = parts, dict[str, Any]()


class Task(Protocol):
    """About a stretch of a file, which somebody may have to read for it, or to copy."""

    @property
    def stretch(self) -> Any: ...

    def at(self, path: str) -> Any: ...

    def reading(self, content: Iterable[bytes]) -> Any: ...


#: reads a task; must be a function of a module, or a `partial` of one
Divide = Callable[[Any], Iterable[Divided]]
OnDone = Callable[[int], None]


def nobody(task: int) -> None:
    """Is told of tasks that are done, and does nothing."""


class Shares(Protocol):
    """What tasks came to."""

    @property
    def told(self) -> list[list[Any]]:
        """What each task told, in the order of its portions."""

    def ask(self, kind: str, function: Callable[[Share, Any], Any], given: Sequence[Any]) -> list[Any]:
        """The answers of all shares of a kind. `given`: to each what is its own to know."""

    def replace(self, tasks: Mapping[int, Any]) -> None:
        """Divide these tasks anew: what they came to before counts no more."""


class Executor(Protocol):
    """Who does the work."""

    #: who it is, as a report names it
    name: str

    def shares_for(self, size_bytes: int) -> int:
        """Into how many shares so much content is divided."""

    def spread(self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: OnDone = nobody) -> list[Any]:
        """The results in the order of the tasks, whoever did them; `on_done` is told the number of each."""

    def divide(
        self, function: Divide, tasks: Sequence[Task], kinds: Mapping[str, int], on_done: OnDone = nobody
    ) -> Shares:
        """Read the tasks. `kinds`: how many shares there are of each kind."""
