"""The museum and the mutants: every patch applies, every exhibit names an existing test."""

from __future__ import annotations

import subprocess

from tests.faults.museum.exhibits import MUTANTS, exhibits
from tests.faults.mutants.__main__ import ROOT


def test_every_patch_applies_to_the_code_as_it_is() -> None:
    patches = sorted({*MUTANTS.glob("*.patch"), *(exhibit.patch for exhibit in exhibits())})
    stale = []
    for patch in patches:
        command = ["git", "apply", "--check", str(patch)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            stale.append(f"{patch.name}: {done.stderr.strip()}")
    assert not stale, "rewrite these patches for the code as it is now:\n" + "\n".join(stale)


def test_every_exhibit_names_a_test_that_there_is() -> None:
    for exhibit in exhibits():
        file, _, name = exhibit.test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8"), exhibit.entry


def test_no_entry_is_shown_twice() -> None:
    entries = [exhibit.entry for exhibit in exhibits()]
    assert len(entries) == len(set(entries))
