"""Puts the lines of a simulated cluster on disk, in a layout and behind a wrapper, and as bad as real logs are.

Bad is: lines out of order, copies of lines and of files, junk, lines cut short or with bytes that no text has, a torn
end, a file for each hour, compressed or not. Only copies are damaged, so that no line is lost.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sparkjobs.parse.layouts import STOCK
from tests.spark.simulate import Line, Simulation

HOUR_MS: Final = 3_600_000
WRAPPERS: Final[dict[str | None, Callable[[str], str]]] = {
    None: lambda line: line,
    "docker": lambda line: f"kafka-1  | {line}",
    "json": lambda line: json.dumps({"stream": "stdout", "log": f"{line}\n"}),
}


def write(
    simulation: Simulation,
    folder: Path,
    level: str,
    *,
    bad: bool = False,
    layout: str = STOCK,
    wrapper: str | None = None,
) -> None:
    """A file for each broker, log and hour."""
    chance = random.Random(simulation.epoch) if bad else None
    for (broker, log), lines in sorted(simulation.lines.items()):
        by_hour: dict[int, list[str]] = defaultdict(list)
        for line in sorted(lines, key=lambda line: line.shown_ms):
            if level == "TRACE" or line.said.level != "TRACE":
                by_hour[line.shown_ms // HOUR_MS].append(WRAPPERS[wrapper](_rendered(line, layout)))
        for hour, texts in by_hour.items():
            suffix = datetime.fromtimestamp(hour * HOUR_MS // 1_000, UTC).strftime("%Y-%m-%d-%H")
            path = folder / f"broker{broker}" / f"{log}.log.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_one(path, texts, chance)


def _rendered(line: Line, layout: str) -> str:
    """Return the line as log4j would print it. A line of ours is JSON in every layout."""
    if line.said.words.startswith("{"):
        return f'{{"at_ms":{line.shown_ms},{line.said.words[1:]}'
    at = datetime.fromtimestamp(line.shown_ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    parts = {"%d": f"{at},{line.shown_ms % 1_000:03d}", "%-5p": f"{line.said.level:5}", "%p": line.said.level}
    parts |= {"%t": "main", "%c": line.said.logger, "%F": "A.scala", "%L": "103"}
    for conversion, text in parts.items():
        layout = layout.replace(conversion, text)
    return layout.replace("%m", line.said.words)


def _write_one(path: Path, texts: list[str], chance: random.Random | None) -> None:
    if chance is None:
        path.write_text("\n".join(texts) + "\n")
        return
    for index in range(len(texts) - 1):
        if chance.random() < 0.1:
            texts[index], texts[index + 1] = texts[index + 1], texts[index]
    lines = [text.encode() for text in texts]
    for _ in range(len(lines) // 10):
        lines.insert(chance.randrange(len(lines)), _damaged(chance.choice(texts).encode(), chance))
    data = b"\0\xff\x80 junk \x1b\n" + b"\n".join(lines) + b"\n[2026-11-18 07:4"  # torn
    if chance.random() < 0.5:
        with gzip.open(path.with_name(f"{path.name}.gz"), "wb") as packed:
            packed.write(data)
    else:
        path.write_bytes(data)
    if chance.random() < 0.3:
        path.with_name(f"{path.name}.copy").write_bytes(data)


def _damaged(line: bytes, chance: random.Random) -> bytes:
    """The same again, cut within its head, or with a byte that no text has."""
    place = chance.randrange(len(line))
    return chance.choice((line, line[:15], line[:place] + b"\0" + line[place:], line[:place] + b"\xff" + line[place:]))
