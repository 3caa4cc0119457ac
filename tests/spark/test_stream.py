"""A stream over growing logs ends where a batch over the finished ones does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from sparkjobs.files import Zones, find_logs, survey
from sparkjobs.local.ingest import ingest
from sparkjobs.schemas import Row, SilverEvent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]


class Down(Row, kw_only=True, frozen=True):
    """A simple conclusion, so that this test is about the stream alone: when a partition went down and came back."""

    cluster: str
    topic: str
    partition: int
    start_ms: int
    end_ms: int | None = None


def downs(events: Iterable[SilverEvent]) -> Sequence[Down]:
    changes = sorted(
        (one for one in events if one.event == "partition_changed" and one.topic), key=lambda one: one.ts_utc
    )
    found: list[Down] = []
    for one in changes:
        assert one.topic is not None
        assert one.partition is not None
        mine = [down for down in found if (down.topic, down.partition, down.end_ms) == (one.topic, one.partition, None)]
        if one.to_state == "OfflinePartition" and not mine:
            found.append(Down(cluster=one.cluster, topic=one.topic, partition=one.partition, start_ms=one.ts_utc))
        elif one.to_state == "OnlinePartition" and mine:
            found[found.index(mine[0])] = msgspec.structs.replace(mine[0], end_ms=one.ts_utc)
    return found


def line(broker: int, second: int, text: str) -> str:
    return f"[2026-11-18 07:49:{second:02},000] TRACE [Controller id={broker} epoch=3] {text} (state.change.logger)\n"


def test_late_lines_revise_what_was_told_and_the_end_is_that_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    from sparkjobs.spark.ingest import rows_of
    from sparkjobs.spark.stream import Stream

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
        watched = Stream(spark, tmp_path / "out", "test", Zones(), downs)  # as after a crash: nothing is remembered
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
    ended, batch = Stream(spark, tmp_path / "out", "test", Zones(), downs).finish(files), ingest(files)
    key = lambda row: (row.file_id, row.line_no)  # noqa: E731
    assert sorted(rows_of(ended.events, SilverEvent), key=key) == sorted(batch.events, key=key)
    assert sorted(map(msgspec.structs.astuple, ended.counts)) == sorted(map(msgspec.structs.astuple, batch.counts))
    assert sum(count.duplicates for count in batch.counts) == 1
    assert sum(count.quarantined for count in batch.counts) == 1
