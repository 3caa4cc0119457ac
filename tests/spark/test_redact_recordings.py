"""Every recorded cluster, with all names in its logs replaced by a marker: a redacted report has none of them left, nor
has the command's output.
"""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sparkjobs.commands.cli import top

pytestmark = pytest.mark.long

DATA = Path(__file__).parents[1] / "data"
RECORDINGS = (*sorted((DATA / "kafka-older").glob("[0-9]*")), DATA / "kafka-3.9.1", DATA / "kafka-3.9.1-info",
              DATA / "kraft" / "3.9.1-migration", DATA / "kraft" / "4.3.1")  # fmt: skip
#: the names in these logs: by name before a port and where no address can be, by address elsewhere
NAMED = (
    (re.compile(r"(?<![/\d.])127\.0\.0\.1(?=:\d)"), "markhost7"),
    (re.compile(r"(?<![\d.])127\.0\.0\.1(?![\d.]*\d)"), "10.66.77.88"),
    (re.compile(r"\blocalhost\b"), "markhost"),
    (re.compile(r"\brack: ?\w+"), "rack: markrack"),
    (re.compile(r"\bclientId=[^,)\s]+"), "clientId=markclient"),
    (re.compile(r"\bUser:\w+"), "User:markuser"),
)
MARK = re.compile(r"mark(?:host|rack|client|user)|10\.66\.77", re.IGNORECASE)


def with_markers(recording: Path, copy: Path) -> int:
    """Returns how many lines of the copy hold a name. A file that is no log is copied as it is."""
    named = 0
    for path in sorted(one for one in recording.rglob("*") if one.is_file() and "dump" not in one.parts):
        target = copy / path.relative_to(recording)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not path.name.endswith(".log.gz") or "__cluster_metadata-0" in path.parts or "tail" in str(path.parent):
            shutil.copy(path, target)
            continue
        text = gzip.decompress(path.read_bytes()).decode()
        for pattern, mark in NAMED:
            text = pattern.sub(mark, text)
        named += sum(MARK.search(line) is not None for line in text.splitlines())
        target.write_bytes(gzip.compress(text.encode(), 1))
    return named


def text_of(path: Path) -> str:
    return str(pq.read_table(path).to_pylist()) if path.suffix == ".parquet" else path.read_text(encoding="utf-8")


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_of_a_recorded_cluster_no_output_names_anybody(recording: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "markhost9"
    assert with_markers(recording, bundle) > 50
    said = {}
    for how, words in (("open", ()), ("redacted", ("--redact",))):
        done = CliRunner().invoke(
            top, ["report", str(bundle), "--engine", "local", "--out", str(tmp_path / how), *words]
        )
        assert done.exit_code == 0, done.output
        said[how] = {"terminal": done.output.replace(str(tmp_path), ""), **{
            str(path.relative_to(tmp_path / how)): text_of(path)
            for path in sorted((tmp_path / how).rglob("*")) if path.is_file()
        }}  # fmt: skip
    assert said["open"].keys() == said["redacted"].keys() >= {"report.html", "report.json", "terminal"}
    assert MARK.search("".join(said["open"].values()))
    around = re.compile(rf".{{0,80}}(?:{MARK.pattern}).{{0,40}}", re.IGNORECASE)
    left = {name: found[0] for name, text in said["redacted"].items() if (found := around.search(text))}
    assert left == {}
