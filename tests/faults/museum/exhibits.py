"""The exhibits as they lie in this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
MUTANTS: Final = HERE.parent / "mutants"
WORDS: Final = ("entry", "klamm", "test")
#: the owner of the bug: Kafka or a system like it, or ourselves, shown by others
WHOSE: Final = {"kafka": "in Kafka", "once": "once in Klamm"}


class Exhibit(NamedTuple):
    """One entry: the bug and its place, how we hold, the test that plays it, and the patch that fails it."""

    entry: str
    wrong: str
    klamm: str
    test: str
    patch: Path


def exhibits() -> list[Exhibit]:
    return [exhibit_in(path) for path in sorted(HERE.glob("*.patch"))]


def exhibit_in(path: Path) -> Exhibit:
    head = path.read_text(encoding="utf-8").partition("\n\n")[0]
    said = dict(line.split(": ", 1) for line in head.splitlines())
    missing = [word for word in WORDS if word not in said]
    wrong = [f"{where}: {said[word]}" for word, where in WHOSE.items() if word in said]
    if missing or len(wrong) != 1:
        raise ValueError(f"{path.name} does not say {', '.join(missing)}, or whose bug it was: {', '.join(WHOSE)}")
    patch = MUTANTS / f"{said['mutant']}.patch" if "mutant" in said else path
    return Exhibit(said["entry"], wrong[0], said["klamm"], said["test"], patch)
