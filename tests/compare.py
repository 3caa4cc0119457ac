"""`make compare`: shows that a commit changes nothing that it should not change, file by file, byte by byte.

Two commits are checked out side by side. Each writes its behaviour into a folder: the traces of simulated schedules,
the transcripts of the scenarios, the OpenAPI description, the machine formats of the command, and the report on every
recorded cluster. The two folders must be equal. A commit that means to change one of these lands alone, and the
difference that this command prints is listed in its message.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pool
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEEDS = 200
#: tests that rewrite their pinned files when KLAMM_REWRITE is 1, wherever they stand in the tree
PINNED = ("test_scenarios.py", "test_cli_formats.py")
#: a recorded cluster is a folder with one of these in it
MARKS = ("timeline.jsonl", "timeline.jsonl.gz", "broker1")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make compare")
    parser.add_argument("base", nargs="?", default="HEAD~1", help="the commit to compare with")
    parser.add_argument("--head", default="HEAD", help="the commit that is compared")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many simulated schedules")
    parser.add_argument("--write", type=Path, help="only write this tree's behaviour into a folder")
    options = parser.parse_args(arguments)
    if options.write is not None:
        write_all(options.write, options.seeds)
        return 0
    with tempfile.TemporaryDirectory(prefix="klamm-compare-") as folder:
        here = Path(folder)
        sides = [(options.base, here / "base"), (options.head, here / "head")]
        with ThreadPoolExecutor(2) as pool:
            said = list(pool.map(lambda side: written_by(*side, options.seeds), sides))
        base, head = said
        different = differences(base, head)
        count = sum(path.is_file() for path in head.rglob("*"))
    sys.stdout.write("".join(f"{line}\n" for line in different))
    sys.stdout.write(f"{count} files compared, {len(different)} different\n")
    return 1 if different else 0


def written_by(commit: str, copy: Path, seeds: int) -> Path:
    """Returns the folder with a commit's behaviour."""
    git("worktree", "add", "--quiet", "--detach", str(copy), commit)
    try:
        out = copy.with_name(f"{copy.name}-does")
        environment = {**os.environ, "PYTHONPATH": str(copy), "KLAMM_REWRITE": "1"}
        pinned = [str(path) for name in PINNED for path in sorted((copy / "tests").rglob(name))]
        run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *pinned], copy, environment)
        run([sys.executable, "-m", "tests.compare", "--write", str(out), "--seeds", str(seeds)], copy, environment)
        for path in (*(copy / "tests" / "scenarios").glob("*.txt"), *(copy / "tests").rglob("cli_formats.json")):
            shutil.copy(path, out / path.name)
        return out
    finally:
        git("worktree", "remove", "--force", str(copy))


def write_all(out: Path, seeds: int) -> None:
    """Write this tree's behaviour into a folder."""
    out.mkdir(parents=True)
    (out / "openapi.json").write_text(openapi(), encoding="utf-8")
    with Pool(1) as pool:
        for seed, trace in pool.imap(trace_of, [str(seed) for seed in range(seeds)]):
            (out / f"seed-{seed}").write_text(trace, encoding="utf-8")
    for recording in recordings():
        name = "-".join(recording.relative_to(ROOT / "tests" / "data").parts)
        write_report(recording, out / f"report-{name}")


def openapi() -> str:
    from controller.api.serve.openapi import document

    return json.dumps(document(), indent=1, sort_keys=True, default=str)


def trace_of(seed: str) -> tuple[str, str]:
    """A simulated schedule: the hash of its trace, and its judge's findings."""
    from tests.faults.simulate.run import run as simulate

    outcome = simulate(seed)
    return seed, "\n".join([outcome.trace, *map(str, outcome.findings)])


def recordings() -> list[Path]:
    found = {path.parent for mark in MARKS for path in (ROOT / "tests" / "data").rglob(mark)}
    return sorted(found)


def write_report(recording: Path, out: Path) -> None:
    """The report by the local engine. Large files are kept as their hashes."""
    command = "from controller.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder:
        words = ["report", str(recording.relative_to(ROOT)), "--engine", "local", "--out", folder]
        run([sys.executable, "-c", command, *words], ROOT, {**os.environ, "PYTHONPATH": str(ROOT)})
        out.mkdir()
        for name in ("report.json", "report.html", "digest.txt"):
            content = (Path(folder) / name).read_bytes()
            (out / name).write_text(hashlib.sha256(content).hexdigest(), encoding="utf-8")


def differences(base: Path, head: Path) -> list[str]:
    """A line for each file that is not the same on both sides."""
    names = sorted({str(path.relative_to(side)) for side in (base, head) for path in side.rglob("*") if path.is_file()})
    lines = []
    for name in names:
        if not (base / name).exists():
            lines.append(f"{name}: only after")
        elif not (head / name).exists():
            lines.append(f"{name}: only before")
        elif not filecmp.cmp(base / name, head / name, shallow=False):
            lines.append(f"{name}: different")
    return lines


def git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True)


def run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed in {folder}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
