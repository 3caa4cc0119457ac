"""`klamm logs`: the commands of a person, and their output."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from controller.cli.group import klamm
from sparkjobs.commands.cli import top
from sparkjobs.engine.spark.session import NoSparkError
from tests.spark.lines import TS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).parents[1] / "data"
RECORDED = str(DATA / "kafka-3.9.1-info")


def run(*words: str) -> Result:
    return CliRunner().invoke(top, ["logs", *words])


def run_here(*words: str) -> Result:
    """Without Spark, whose start would be most of it."""
    return run(*words, "--engine", "local")


def a_log(folder: Path, broker: int, *messages: str, minute: int = 49) -> Path:
    path = folder / f"broker{broker}" / "state-change.log"
    path.parent.mkdir()
    when = TS.replace(":49:", f":{minute}:")
    path.write_text("".join(f"[{when}] INFO {message} (state.change.logger)\n" for message in messages))
    return path


def test_merge_puts_lines_of_all_brokers_in_order_and_keeps_them_as_they_are(tmp_path: Path) -> None:
    late = a_log(
        tmp_path, 1, "[Controller id=1 epoch=3] Changed partition a-0 state from OnlinePartition to OfflinePartition"
    )
    early = a_log(
        tmp_path,
        2,
        "[Broker id=2] Finished LeaderAndIsr request in 3ms correlationId 1 from controller 1 for 6 partitions",
        minute=48,
    )
    done = run_here("merge", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert done.stdout == early.read_text() + late.read_text()
    assert run_here("merge", str(tmp_path), "--topic", "a").stdout == late.read_text()
    assert run_here("merge", str(tmp_path), "--topic", "a", "--partitions", "1").stdout == ""
    assert run_here("merge", str(tmp_path), "--from", "2026-11-18T07:49:00").stdout == late.read_text()
    assert run_here("merge", str(tmp_path), "--where", "--topic", "a").stdout.startswith(
        "broker1/state-change.log:1: [2026"
    )


def test_merge_cuts_no_line_and_keeps_whole_traces(tmp_path: Path) -> None:
    moved = "[Controller id=1 epoch=3] Changed partition a-0 state from OnlinePartition to OfflinePartition"
    long = f"[Controller id=1 epoch=3] Received error {'x' * 5_000}"
    text = a_log(tmp_path, 1, moved, long, minute=48).read_text()
    first, second = text.splitlines()
    trace = ["java.lang.IllegalStateException: no", "\tat a.b(C.java:1)", "Caused by: x.YException", "\t... 9 more"]
    lines = [second.replace("state.change.logger", "a.b.C"), first, *trace]
    (tmp_path / "broker1" / "state-change.log").write_text("\n".join([*lines, lines[0], ""]))
    assert run_here("merge", str(tmp_path)).stdout.splitlines() == lines
    said = run_here("merge", str(tmp_path), "--where", "--topic", "a").stdout.splitlines()
    assert said == [f"broker1/state-change.log:{number}: {line}" for number, line in enumerate(lines[1:], start=2)]


def test_doctor_accounts_for_every_file_and_names_missing_ones() -> None:
    done = run_here("doctor", RECORDED)
    assert done.exit_code == 0, done.output
    assert "broker3/state-change.log.gz" in done.stdout
    assert "needs TRACE" in done.stdout


def test_a_brokers_time_zone_is_that_of_its_lines_wherever_they_stand_and_doctor_says_so(tmp_path: Path) -> None:
    moved = "Changed partition a-0 state from OnlinePartition to OfflinePartition"
    both = a_log(tmp_path, 1, f"[Controller id=1 epoch=3] {moved}", f"[Controller id=2 epoch=4] {moved}")
    a_log(tmp_path, 2, f"[Controller id=2 epoch=5] {moved}")
    said = run_here("doctor", str(tmp_path), "--timezone", "2=Asia/Tokyo").stdout
    assert f"In {both} broker 2 speaks as well: its lines are read as Asia/Tokyo." in said
    assert said.count("speaks as well") == 1
    assert "From 2026-11-17T22:49:10.504Z to 2026-11-18T07:49:10.504Z" in said


def test_doctor_fails_where_a_line_of_a_state_change_log_was_not_understood(tmp_path: Path) -> None:
    a_log(tmp_path, 1, "[Controller id=1 epoch=3] Did what nobody knows", "[KafkaServer id=1] started")
    done = run_here("doctor", str(tmp_path))
    assert done.exit_code == 1
    assert "unknown_shape: 1, the first at broker1/state-change.log:1" in done.stdout


def test_explain_tells_a_partitions_story_with_the_lines_quoted() -> None:
    done = run_here("explain", "orders-3-1", str(DATA / "kafka-3.9.1"), "--at", "2026-11-18T07:51:05", "--within", "2")
    assert done.exit_code == 0, done.output
    assert "broker 1: server stopping" in done.stdout
    assert "controller 3: isr changed: leader 2, leader epoch 9, ISR [3, 2]" in done.stdout
    assert "broker3/state-change.log.gz:4098: [2026-11-18 07:51:05,041] INFO [Controller id=3 epoch=5]" in done.stdout


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("words", [("merge", "--where"), ("doctor",), ("explain", "a-0")])
def test_spark_shows_what_the_processes_of_this_machine_show_and_reads_files_that_only_it_reads(
    spark: SparkSession, tmp_path: Path, words: tuple[str, ...]
) -> None:
    moved = "[Controller id=1 epoch=3] Changed partition a-0 state from OnlinePartition to OfflinePartition"
    failed = "[Controller id=1 epoch=3] Controller 1 epoch 3 failed to change state for partition a-0 from "
    failed += "OfflinePartition to OnlinePartition"
    text = a_log(tmp_path, 1, moved, failed).read_text() + "java.lang.IllegalStateException: no\n\tat a.b(C.java:1)\n"
    (tmp_path / "broker1" / "state-change.log").write_text(text)
    here = a_log(tmp_path, 2, "[Controller id=2 epoch=4] " + moved.partition("] ")[2], minute=51)
    (tmp_path / "broker2" / "controller.log.gz").write_bytes(gzip.compress(here.read_bytes().replace(b"a-0", b"a-1")))
    expected = run_here(*words, str(tmp_path))
    assert expected.exit_code == 0, expected.output
    assert len(expected.stdout.splitlines()) > 3
    found = run(*words, f"file:{tmp_path}/broker1", str(tmp_path / "broker2"))
    assert found.exit_code == 0, found.output
    assert found.stdout.replace(f"file:{tmp_path}", str(tmp_path)) == expected.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("merge", "nowhere"), "there is no nowhere"),
        (("doctor", RECORDED, "--timezone", "Mars/Olympus"), "there is no time zone 'Mars/Olympus'"),
        (("doctor", RECORDED, "--layout", "%p"), "needs a date (%d)"),
        (("stream", RECORDED, "--out", "nowhere", "--layout", "%p"), "needs a date (%d)"),
        (("explain", "orders", RECORDED), "write it like orders-0"),
        (("merge", RECORDED, "--partitions", "1"), "--partitions needs --topic"),
    ],
)
def test_wrong_usage_is_one_line_with_a_remedy(words: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sparkjobs", "logs", *words], capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("klamm: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_klamm_hands_its_words_on_as_they_are() -> None:
    found = klamm.commands
    assert {"logs", "report"} <= found.keys()
    done = subprocess.run(
        [sys.executable, "-c", "from controller.cli import main; main()", "logs", "merge", "--help"],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0
    assert "Usage: klamm logs merge" in done.stdout


def test_report_prints_the_verdict_and_its_engine(tmp_path: Path) -> None:
    done = CliRunner().invoke(top, ["report", RECORDED, "--engine", "local", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    known, told, *_ = done.stdout.splitlines()
    assert known.startswith("Known for certain: Over. 49 partitions without a leader at some time")
    assert told == "From logs: Over, but data may be lost: 7 unclean elections."
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert len(page) < 2_000_000
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert "Concluded by processes of one machine, without Spark." in page


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_concludes_wherever_it_starts_and_says_nothing_of_its_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sparkjobs", "report", RECORDED, "--out", str(tmp_path / "spark")],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Concluded by Spark 4.3.0 on one machine." in (tmp_path / "spark" / "report.html").read_text()
    local = ["report", RECORDED, "--engine", "local", "--out", str(tmp_path / "local")]
    assert CliRunner().invoke(top, local).stdout.splitlines()[0] == done.stdout.splitlines()[0]
    for file in ("digest.txt", "report.json"):
        assert (tmp_path / "spark" / file).read_text() == (tmp_path / "local" / file).read_text()
    assert sorted(one.name for one in (tmp_path / "spark").iterdir()) == sorted(
        one.name for one in (tmp_path / "local").iterdir()
    )


def test_where_spark_does_not_start_a_line_says_why_unless_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    done = run("slo", RECORDED, "--target", "0")
    assert done.exit_code == 0, done.output
    assert done.stderr == (
        "klamm: Spark needs Java 17 or later, and neither JAVA_HOME nor PATH names one: concluded without Spark\n"
    )
    assert run("slo", RECORDED, "--target", "0", "--engine", "local").stderr == ""
    refused = run("slo", RECORDED, "--engine", "spark")
    assert isinstance(refused.exception, NoSparkError)


def test_a_report_does_not_read_the_one_before_it(tmp_path: Path) -> None:
    a_log(tmp_path, 1, "[Controller id=1 epoch=3] Changed partition a-0 state from OnlinePartition to OfflinePartition")
    for _ in range(2):
        done = CliRunner().invoke(
            top, ["report", str(tmp_path), "--engine", "local", "--out", str(tmp_path / "report")]
        )
        assert done.exit_code == 0, done.output
    counts = json.loads((tmp_path / "report" / "report.json").read_text())["input"]["counts"]
    assert [Path(one["path"]).name for one in counts] == ["state-change.log"]


def test_slo_fails_below_its_target(tmp_path: Path) -> None:
    assert run("slo", RECORDED, "--engine", "local", "--target", "100").exit_code == 1
    assert run("slo", RECORDED, "--engine", "local", "--target", "0").exit_code == 0


def test_analyze_gives_the_same_bytes_for_the_same_content_in_another_order(tmp_path: Path) -> None:
    turned = tmp_path / "turned"
    for number, path in enumerate(sorted(Path(RECORDED).glob("broker*/*.gz"), reverse=True)):
        target = turned / f"{number}-{path.parent.name}" / path.name
        target.parent.mkdir(parents=True)
        target.write_bytes(path.read_bytes())
    for name, logs in (("one", RECORDED), ("other", str(turned))):
        assert run("analyze", logs, "--engine", "local", "--out", str(tmp_path / name)).exit_code == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name


def test_without_the_extra_the_command_names_the_package_to_install(tmp_path: Path) -> None:
    """As in a base install, and in one that has numpy for reasons of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}

    def without(*names: str) -> None:
        text = f"import sys\nsys.modules |= dict.fromkeys({names})\n"
        (tmp_path / "sitecustomize.py").write_text(text)

    def klamm_in_base(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sparkjobs", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=110, env=environment)

    of_spark = ("pyspark", "pyarrow", "pandas", "py4j")
    without(*of_spark)
    done = klamm_in_base("logs", "slo", RECORDED, "--target", "0")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "klamm: Spark is not installed (pip install 'klamm[spark]'): concluded without Spark\n"
    done = klamm_in_base("logs", "slo", RECORDED, "--engine", "spark")
    assert done.returncode == 1
    assert "pip install 'klamm[spark]'" in done.stderr
    without(*of_spark, "numpy")
    done = klamm_in_base("report", RECORDED, "--engine", "local", "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (
        1,
        "klamm: without numpy nothing is concluded from logs: pip install 'klamm[spark]'\n",
    )
