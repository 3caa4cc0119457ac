"""A stream over growing logs ends where a batch over the finished ones does."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from sparkjobs.clocks.skew import corrected
from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.report.write import digest_of
from sparkjobs.tables.gold import Outage
from tests.processes import started
from tests.spark.plain import answers_for
from tests.spark.reading import ingest, skew_of
from tests.waiting import waited_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(1_500)]

DATA = Path(__file__).parents[1] / "data"
KLAMM = (sys.executable, "-m", "sparkjobs", "logs", "stream")


def line(broker: int, second: int, text: str) -> str:
    return f"[2026-11-18 07:49:{second:02},000] TRACE [Controller id={broker} epoch=3] {text} (state.change.logger)\n"


def test_late_lines_revise_alerts_and_the_end_is_that_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    from sparkjobs.engine.spark.stream import Stream

    logs = tmp_path / "logs"
    one, other = logs / "broker1" / "state-change.log", logs / "broker2" / "state-change.log"
    one.parent.mkdir(parents=True)
    other.parent.mkdir()
    off = line(1, 10, "Changed partition a-0 state from OnlinePartition to OfflinePartition")
    on = line(
        2,
        30,
        "Changed partition a-0 from OfflinePartition to OnlinePartition with state "
        "LeaderAndIsr(leader=2, leaderEpoch=4, isr=List(2), zkVersion=5)",
    )

    def look(*, is_end: bool = False) -> None:
        watched = Stream(spark, tmp_path / "out", "test", Zones())  # as after a crash: nothing is remembered
        watched.spool.advance(find_logs([str(logs)]), is_end=is_end)
        watched.run_once()

    one.write_text(line(1, 40, "Changed partition b-0 state from OnlinePartition to OfflinePartition") + off[:30])
    look()
    # the other broker's lines are older, and come later; the half line is completed
    other.write_text(on)
    one.write_text(line(1, 40, "Changed partition b-0 state from OnlinePartition to OfflinePartition") + off)
    look()
    # the log is rotated, a copy of a line comes along, and the input ends with half a line
    one.rename(one.with_name("state-change.log.1"))
    one.write_text(line(1, 50, "Changed partition a-0 state from OnlinePartition to OfflinePartition") + off + off[:40])
    look(is_end=True)

    alerts = [json.loads(text) for text in (tmp_path / "out" / "alerts.jsonl").read_text().splitlines()]
    told = [(alert["topic"], alert["rev"], alert["end_ms"] is not None) for alert in alerts]
    assert told == [("b", 1, False), ("a", 1, True), ("a", 1, False)]

    files = survey(find_logs([str(logs)]), "test", Zones())
    batch = ingest(files)
    assert sum(count.duplicates for count in batch.counts) == 1
    assert sum(count.quarantined for count in batch.counts) == 1
    expected = answers_for(batch.events)
    assert digest_of(Stream(spark, tmp_path / "out", "test", Zones()).finish(files)) == digest_of(expected)
    assert standing(tmp_path / "out" / "alerts.jsonl") == by_start(expected["partition_outages"])


def test_logs_that_are_truncated_replaced_and_packed_meanwhile_end_as_a_batch_of_their_last_content(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each look is another process, as if the one before had been killed."""
    from sparkjobs.engine.spark.stream import Stream

    logs, out = tmp_path / "logs", tmp_path / "out"
    texts = {
        source.parent.name: gzip.decompress(source.read_bytes())
        for source in (DATA / "kafka-3.9.1-info").glob("broker*/state-change.log.gz")
    }
    first, second, third = (logs / name / "state-change.log" for name in sorted(texts)[:3])
    half = {path: texts[path.parent.name][: len(texts[path.parent.name]) // 2] for path in (first, second, third)}
    for path, text in half.items():
        path.parent.mkdir(parents=True)
        path.write_bytes(text)

    def look() -> None:
        watched = Stream(spark, out, "test", Zones())
        watched.spool.advance(find_logs([str(logs)]))
        watched.run_once()

    look()
    # one is cut to its first lines and grows otherwise; one makes way for another's; one is packed, and begins anew
    lines = texts[first.parent.name].splitlines(keepends=True)
    first.write_bytes(b"".join(lines[:40]) + b"".join(lines[200:]))
    second.write_bytes(texts[third.parent.name])
    third.unlink()
    (third.parent / "state-change.log.1.gz").write_bytes(gzip.compress(half[third]))
    look()
    third.write_bytes(texts[third.parent.name][len(half[third]) :])
    look()
    files = survey(find_logs([str(logs)]), "test", Zones())
    events = ingest(files).events
    expected = answers_for(corrected(events, skew_of(events)))
    assert expected["partition_outages"]
    assert digest_of(Stream(spark, out, "test", Zones()).finish(files)) == digest_of(expected)
    assert standing(out / "alerts.jsonl") == by_start(expected["partition_outages"])


def test_clocks_are_corrected_at_the_end_and_changed_alerts_are_revised(spark: SparkSession, tmp_path: Path) -> None:
    from sparkjobs.engine.spark.stream import Stream

    zones = Zones(by_broker={3: "Asia/Tokyo"})  # nine hours off, as if its clock were
    named = [str(DATA / "kafka-3.9.1" / f"broker{broker}") for broker in (1, 2, 3)]
    watched = Stream(spark, tmp_path / "out", "test", zones)
    for paths in named[1:], named:
        watched.spool.advance(find_logs(paths), is_end=True)
        watched.run_once()
    files = survey(find_logs(named), "test", zones)
    events = ingest(files).events
    expected = answers_for(corrected(events, skew_of(events)))
    assert digest_of(watched.finish(files)) == digest_of(expected)
    assert standing(tmp_path / "out" / "alerts.jsonl") == by_start(expected["partition_outages"])
    assert any(json.loads(text)["rev"] > 1 for text in (tmp_path / "out" / "alerts.jsonl").read_text().splitlines())


def standing(alerts: Path) -> list[tuple[object, ...]]:
    """The outages that a reader of every revision believes."""
    last = {one["outage_id"]: one for one in map(json.loads, alerts.read_text().splitlines())}
    told = [msgspec.convert(one, Outage) for one in last.values() if not one["retracted"]]
    return by_start(told)


def by_start(outages: Iterable[Any]) -> list[tuple[object, ...]]:
    return sorted((one.topic, one.partition, one.start_ms, str(one.end_ms), one.evidence, one.cause) for one in outages)


def has_staged(out: Path, batches: int) -> bool:
    return len(list((out / "staged").glob("batch=*"))) >= batches


def test_a_stream_that_is_killed_goes_on_from_its_checkpoint_and_ends_as_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the logs still grow, and again; every line counts once."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # each of the processes is short
    logs, out, sources = tmp_path / "logs", tmp_path / "out", DATA / "kafka-3.9.1-info"
    texts = {
        source.parent.name: gzip.decompress(source.read_bytes())
        for source in sources.glob("broker*/state-change.log.gz")
    }
    for name in texts:
        (logs / name).mkdir(parents=True)
    for third in (1, 2):
        for name, text in texts.items():
            with (logs / name / "state-change.log").open("ab") as file:
                file.write(text[(third - 1) * len(text) // 3 : third * len(text) // 3])
        with started([*KLAMM, str(logs), "--out", str(out), "--every", "0.1"]) as one:
            waited_for(partial(has_staged, out, third), f"batch {third} is staged", within_s=200)
            one.kill()  # in the middle of its work: staged rows are not told or not committed yet
    for name, text in texts.items():
        (logs / name / "state-change.log").write_bytes(text)
    subprocess.run([*KLAMM, str(logs), "--out", str(out), "--end"], check=True, capture_output=True, timeout=400)
    batch = [sys.executable, "-m", "sparkjobs", "logs", "analyze", str(logs), "--engine", "local", "--out"]
    subprocess.run([*batch, str(tmp_path / "batch")], check=True, capture_output=True, timeout=200)
    for path in (tmp_path / "batch").iterdir():
        assert (out / "gold" / path.name).read_bytes() == path.read_bytes(), path.name
    told = (out / "gold" / "partition_outages.jsonl").read_bytes().splitlines()
    rows = [msgspec.json.decode(text, type=Outage) for text in told]
    assert rows
    assert standing(out / "alerts.jsonl") == by_start(rows)
