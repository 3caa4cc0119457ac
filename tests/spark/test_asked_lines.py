"""Lines that somebody asked to see: those of a plain reading, whoever carries it out and wherever stretches end."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjobs.commands.inputs import LogInputs
from sparkjobs.engine.local import stretches
from sparkjobs.engine.local.asked_lines import Choice, Shown, merged, told_about
from sparkjobs.engine.local.conclude import ClusterLogs
from sparkjobs.engine.local.executor import Executor, workers_of
from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.rules.facts import Place
from sparkjobs.tables.silver import SilverEvent
from tests.spark.reading import Silver, silver_of, whole_events
from tests.spark.test_engines import write_anything

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOVED = "Changed partition a-0 state from OnlinePartition to OfflinePartition (state.change.logger)"


def in_order(events: list[SilverEvent]) -> list[SilverEvent]:
    return sorted(events, key=lambda event: (event.ts_adj, event.file_id, event.line_no))


def shown_plainly(silver: Silver, choice: Choice) -> list[Shown]:
    whole = whole_events(silver.ingested.files, silver.ingested.events)
    chosen = [event for event in in_order(silver.ingested.events) if choice.event(event)]
    places = [(event.ts_adj, Place(event.file_id, event.line_no)) for event in chosen]
    return [Shown(at_ms, place, whole[place]) for at_ms, place in places]


def agree(executor: Executor, folder: Path, draw: random.Random) -> None:
    """Everything; what names a topic, a partition; and what is told about one, with what else happened."""
    files = survey(find_logs([str(folder)]), "c", Zones())
    silver, logs = silver_of(LogInputs(files)), ClusterLogs(executor, sorted(files, key=lambda file: file.file_id))
    named = [event for event in silver.ingested.events if event.topic is not None and event.partition is not None]
    one = draw.choice(named)
    own = frozenset({one.partition if one.partition is not None else -1})
    for choice in (Choice(), Choice(one.topic), Choice(one.topic, own)):
        expected = shown_plainly(silver, choice)
        assert expected
        assert list(merged(logs, choice)) == expected
    told = Choice(one.topic, own, frozenset({one.event}), frozenset({"server_starting"}))
    found = told_about(logs, told, silver.skew)
    places = [(event.ts_adj, event.file_id, event.line_no, event.line) for event in found]
    events = [event for event in in_order(silver.ingested.events) if told.event(event)]
    assert places == [(event.ts_adj, event.file_id, event.line_no, event.line) for event in events]


@pytest.mark.parametrize("seed", range(4))
def test_processes_of_this_machine_show_the_lines_of_a_plain_reading(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In stretches and pieces of a few lines, so that texts go on in the next."""
    monkeypatch.setattr(stretches, "STRETCH_BYTES", 2_000)
    monkeypatch.setattr(stretches, "PIECE_BYTES", 700)
    draw = random.Random(seed)
    write_anything(tmp_path, draw)
    with workers_of(1 + seed % 2) as workers:
        agree(workers, tmp_path, draw)


def test_a_text_over_several_stretches_is_shown_whole_below_its_own_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "STRETCH_BYTES", 400)
    trace = ["java.lang.IllegalStateException: no", *(f"\tat a.b(C{number}.java:1)" for number in range(60))]
    first, second = (f"[2026-11-18 07:49:1{number},504] INFO [Controller id=1 epoch=3] {MOVED}" for number in (1, 0))
    (tmp_path / "state-change.log").write_text("\n".join([first, *trace, second, ""]))
    with workers_of(1) as workers:
        logs = ClusterLogs(workers, survey(find_logs([str(tmp_path)]), "c", Zones()))
        assert len(logs.stretches) > 3
        shown = [(one.place.line_no, one.lines) for one in merged(logs, Choice())]
    assert shown == [(len(trace) + 2, [second]), (1, [first, *trace])]


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2))
def test_spark_shows_the_lines_of_a_plain_reading(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.engine.spark.executor import SparkExecutor

    monkeypatch.setattr(stretches, "STRETCH_BYTES", 20_000)
    monkeypatch.setattr("sparkjobs.engine.spark.executor._SHARE_BYTES", 20_000)
    draw = random.Random(seed)
    write_anything(tmp_path / "logs", draw)
    agree(SparkExecutor(spark, tmp_path), tmp_path / "logs", draw)
