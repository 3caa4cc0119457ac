"""Every await of the shell, numbered, and at which of them a task stands. Sources and frames are read, nothing is run.

A process can die only between two of its steps as far as others can tell, and a step ends at an await.
"""

from __future__ import annotations

import ast
import asyncio
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[3]
SHELL = ("controller", "brokerstub")
#: beside the shell: the API, the command, the lab, and the code for Kafka's protocol
BESIDE = ("controller/api/", "controller/cli/", "controller/core/", "controller/kafka/", "brokerstub/lab/")


class Await(NamedTuple):
    """One of them; it prints as `17 controller/loop/store.py:88 commit`."""

    number: int
    file: str
    line: int
    end_line: int
    function: str

    def __str__(self) -> str:
        return f"{self.number} {self.file}:{self.line} {self.function}"


@cache
def awaits() -> tuple[Await, ...]:
    """All of the shell, by file and line."""
    found: list[tuple[str, int, int, str]] = []
    for package in SHELL:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(BESIDE):
                found += [(name, *one) for one in _awaits_in(ast.parse(path.read_bytes()))]
    return tuple(Await(number, *one) for number, one in enumerate(sorted(found), start=1))


def _awaits_in(tree: ast.Module) -> list[tuple[int, int, str]]:
    found = []
    for function in ast.walk(tree):
        if isinstance(function, ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Await):
                    found.append((node.lineno, node.end_lineno or node.lineno, function.name))
                elif isinstance(node, ast.AsyncWith | ast.AsyncFor):
                    found.append((node.lineno, node.lineno, function.name))
    return found


@cache
def _by_file() -> dict[str, list[Await]]:
    by_file: dict[str, list[Await]] = {}
    for one in awaits():
        by_file.setdefault(str(ROOT / one.file), []).append(one)
    return by_file


def awaits_of(task: asyncio.Task[Any]) -> list[Await]:
    """Where it stands: at the last of these, within the others; nowhere before it has begun, or outside the shell."""
    found, coroutine = [], task.get_coro()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        here = None
        if frame is not None and frame.f_lasti >= 0:
            here = _await_at(frame.f_code.co_filename, frame.f_lineno)
        found += [] if here is None else [here]
        coroutine = getattr(coroutine, "cr_await", None)
    return found


def _await_at(file: str, line: int) -> Await | None:
    around = [one for one in _by_file().get(file, ()) if one.line <= line <= one.end_line]
    return min(around, key=lambda one: one.end_line - one.line, default=None)
