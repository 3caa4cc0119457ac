"""Every proof that the checklist in `tests/KAFKA.md` names is there: it is worth nothing once a test is renamed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS / "KAFKA.md"


def named() -> Iterator[tuple[str, str]]:
    """Pairs of file and test, in the order of the page; a transcript stands for itself."""
    file = ""
    for word in re.findall(r"`([^`]+)`", PAGE.read_text()):
        if word.endswith((".py", ".txt")):
            file = word
            yield file, ""
        else:
            yield file, word


def test_every_test_that_the_checklist_names_exists() -> None:
    missing = []
    for file, test in named():
        path = TESTS / file
        if not path.is_file() or (test and f"def {test}(" not in path.read_text()):
            missing.append((file, test))
    assert missing == []
    assert sum(1 for _, test in named() if test) > 100
