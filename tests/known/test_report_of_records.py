"""`klamm report` where files are records: beside logs, and alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sparkjobs.commands.cli import top
from tests.known.kraft_samples import KRAFT

DATA = Path(__file__).parents[1] / "data"
METADATA = "__cluster_metadata-0"


def reported(*words: object) -> Result:
    return CliRunner().invoke(top, ["report", "--engine", "local", *map(str, words)])


def document(out: Path) -> Any:
    return json.loads((out / "report.json").read_text())


def test_a_metadata_log_alone_is_a_report(tmp_path: Path) -> None:
    """The folder holds no log that anybody wrote for people: its segments are not taken for one."""
    done = reported(KRAFT / "4.3.1" / "controller-101" / METADATA, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0] == (
        "Known for certain: Over. 22 partitions without a leader at some time, none where the record ends. "
        "38 unclean elections, 35 of them of the last known leader. What 3 of them lost is not known: the "
        "state-change.log of broker 3 would tell."
    )
    page = (tmp_path / "report.html").read_text()
    assert "Known for certain, from KRaft&#x27;s metadata log" in page
    assert page.count("<svg") == 1
    assert "<script" not in page
    found = document(tmp_path)
    assert found["input"]["files"] == []
    assert len(found["tables"]["record_tenures"]) == 4
    assert (tmp_path / "gold" / "record_outages.parquet").stat().st_size > 0


def test_beside_logs_it_is_a_part_of_their_page(tmp_path: Path) -> None:
    done = reported(DATA / "kafka-3.9.1-info", "--out", tmp_path / "both")
    assert "Known for certain: Over. 49 partitions without a leader at some time" in done.output
    page = (tmp_path / "both" / "report.html").read_text()
    assert page.index('id="certain"') < page.index('id="findings"')
    alone = reported(*sorted((DATA / "kafka-3.9.1-info").glob("broker*")), "--out", tmp_path / "logs")
    assert "Known for certain" not in alone.output
    assert 'id="certain"' not in (tmp_path / "logs" / "report.html").read_text()
    both, logs = document(tmp_path / "both"), document(tmp_path / "logs")
    assert both["tables"].keys() > logs["tables"].keys()
    assert {name: rows for name, rows in both["tables"].items() if name in logs["tables"]} == logs["tables"]
    assert both["digest"] != logs["digest"]


def test_where_logs_do_not_tell_the_verdict_is_the_records(tmp_path: Path) -> None:
    """KRaft's logs alone do not name partitions without a leader; beside the record they name the losses."""
    logs = sorted((KRAFT / "4.3.1").glob("broker-*/state-change.log.gz"))
    done = reported(*logs, KRAFT / "4.3.1" / "controller-103" / METADATA, "--out", tmp_path)
    assert done.output.splitlines()[0].endswith("180 records of 3 partitions lost: offsets below.")
    assert "Not known" not in done.output
    page = (tmp_path / "report.html").read_text()
    assert page.count('class="verdict') == 1
    assert page.index('class="verdict bad"') < page.index('id="course"')
    assert "1851 to 1910" in page
    assert document(tmp_path)["verdict"]["sentence"] == done.output.splitlines()[0].removeprefix("Known for certain: ")
    alone = reported(*logs, "--out", tmp_path / "logs")
    assert alone.output.splitlines()[0].endswith("bring `__cluster_metadata-0` of any node, which does.")


@pytest.mark.parametrize(
    ("name", "count", "unclean_count", "inferred"),
    [("kafka-3.9.1", 345, 0, (0, 0)), ("kafka-3.9.1-info", 146, 7, (58, 0)), ("kraft/3.9.1-migration", 2, 0, (0, 3))],
)
def test_the_logs_answers_agree_with_the_records(
    tmp_path: Path, name: str, count: int, unclean_count: int, inferred: tuple[int, int]
) -> None:
    """Each outage of the record is one of the logs', and each of the logs' one of the record; both end as soon as the
    leader is written, which the controller says at once. An outage or tenure of which the logs infer the beginning has
    the record's within its bounds."""
    reported(DATA / name, "--out", tmp_path)
    tables = document(tmp_path)["tables"]
    assert len(tables["partition_outages"]) == len(tables["record_outages"]) == count
    left, bounded = list(tables["partition_outages"]), [0, 0]
    for one in tables["record_outages"]:
        same = (
            other
            for other in left
            if (other["topic"], other["partition"]) == (one["topic"], one["partition"])
            and other["start_lo_ms"] <= one["to_ms"]
            and other["end_ms"] >= one["from_ms"]
        )
        found = next(same, None)
        assert found is not None, one
        assert (found["leader"], found["unclean"]) == (one["leader"], one["unclean"])
        is_within = found["start_lo_ms"] <= one["from_ms"] <= found["start_hi_ms"]
        assert is_within or found["evidence"] == "exact", (found, one)
        bounded[0] += found["evidence"] == "inferred"
        left.remove(found)
    tenures = {one["epoch"]: one for one in tables["record_tenures"] if one["mode"] == "zookeeper"}
    for one in tables["controller_tenures"]:
        exact = tenures[one["controller_epoch"]]
        assert (exact["controller"], one["from_lo_ms"] <= exact["from_ms"] <= one["from_ms"]) == (one["broker"], True)
        bounded[1] += one["evidence"] == "inferred"
    assert tuple(bounded) == inferred
    said, unclean = tables["unclean_elections"], [one for one in tables["record_elections"] if one["unclean"]]
    assert len(said) == unclean_count
    assert {(one["topic"], one["partition"], one["leader_epoch"]) for one in said} == {
        (one["topic"], one["partition"], one["leader_epoch"]) for one in unclean
    }


def test_a_record_that_cannot_be_told_says_which_file_is_missing(tmp_path: Path) -> None:
    (segment,) = (KRAFT / "4.3.1" / "broker-4" / METADATA).glob("*.log.gz")
    folder = tmp_path / METADATA
    folder.mkdir()
    shutil.copy(segment, folder)
    done = reported(tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "begins at offset 1120 and no snapshot leads there: bring the *.checkpoint files" in done.output


def test_without_anything_named_the_history_of_the_labs_zookeeper_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    broker = tmp_path / "var" / "broker-1"
    broker.mkdir(parents=True)
    shutil.copy(DATA / "kafka-3.9.1" / "broker1" / "state-change.log.gz", broker)
    assert "Known for certain" not in reported().output
    shutil.copytree(DATA / "kafka-3.9.1" / "zookeeper", tmp_path / "var" / "zookeeper" / "version-2")
    assert "Known for certain: Over. 76 partitions without a leader" in reported().output


def test_redacted_no_folder_is_named(tmp_path: Path) -> None:
    secret = tmp_path / "kunde-meyer.example.org"
    shutil.copytree(KRAFT / "4.3.1" / "controller-102", secret / "controller-102")
    done = reported(secret / "controller-102", "--redact", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    for name in ("report.html", "report.json"):
        text = (tmp_path / "out" / name).read_text()
        assert "kunde-meyer" not in text, name
    assert "23 records that were never committed" in (tmp_path / "out" / "report.json").read_text()
