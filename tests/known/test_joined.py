"""Additions of logs to a record: held against the faults of the recorded clusters, and their clients' losses."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sparkjobs.commands.shared import inputs_of
from sparkjobs.engine.local.conclude import Concluded, conclude
from sparkjobs.history.as_of import answers_for_records
from sparkjobs.history.log_join import joined
from sparkjobs.records.discovery import find_records
from tests.known.kraft_samples import KRAFT

CLUSTER = KRAFT / "4.3.1"
NODES = sorted(CLUSTER.glob("*-*"))


@cache
def logs_of(*zones: str, named: Sequence[Path] = tuple(NODES)) -> Concluded:
    logs = [str(path) for folder in named for path in sorted(folder.glob("*.log.gz"))]
    return conclude(inputs_of(logs, "kafka", zones, None, None).files)


@cache
def record() -> dict[str, list[Any]]:
    return answers_for_records(find_records([str(CLUSTER)]), "kafka")  # type: ignore[return-value]


def both(*zones: str) -> dict[str, list[Any]]:
    return joined(record(), logs_of(*zones).answers)  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["4.3.1", "3.9.1-migration"])
def test_each_line_of_krafts_logs_goes_to_one_place(name: str) -> None:
    done = logs_of(named=tuple(sorted((KRAFT / name).glob("*-*"))))
    assert {count.path.rpartition("/")[2] for count in done.counts} >= {
        *("state-change.log.gz", "server.log.gz", "controller.log.gz"),
    }
    for count in done.counts:
        assert count.lines == count.events + count.continuations + count.duplicates + count.quarantined, count
    assert [(row.reason, row.line) for row in done.quarantine] == []


def test_a_fencing_that_no_record_confirms_is_void() -> None:
    """The frozen controller that woke, and the last one without a majority, fenced healthy brokers in vain; a broker
    that shut down in order is fenced by a timer that has nothing to do any more."""
    rows = both()["record_fencings"]
    assert Counter(one.outcome for one in rows) == {"done": 11, "no change": 4, "void": 2}
    assert [(one.controller, one.broker) for one in rows if one.outcome == "void"] == [(101, 3), (102, 3)]
    ends = Counter((one.broker, one.to_ms) for one in record()["record_broker_lives"] if one.ended == "fenced")
    assert all((one.broker, one.done_ms) in ends for one in rows if one.outcome == "done")


def test_the_lost_ranges_hold_each_record_that_clients_lost_and_no_more() -> None:
    loss = json.loads(gzip.decompress((CLUSTER / "loss.json.gz").read_bytes()))
    gone = {name: sorted(each["offset"] for each in one["gone"]) for name, one in loss.items() if one["gone"]}
    rows = both()["record_losses"]
    assert len(rows) == 38
    said = {
        f"{one.topic}-{one.partition}": list(range(one.from_offset, one.to_offset))
        for one in rows
        if one.extent == "exact"
    }
    assert said == gone
    assert {one.extent for one in rows} == {"exact", "nothing"}


def test_without_the_logs_of_the_returning_broker_the_end_of_a_loss_is_open() -> None:
    some = tuple(one for one in NODES if one.name != "broker-1")
    rows = joined(record(), logs_of(named=some).answers)["record_losses"]
    told: list[Any] = [one for one in rows if one.how == "unclean"]  # type: ignore[attr-defined]
    assert [(one.extent, one.from_offset, one.to_offset) for one in told] == [("unbounded", 1851, None)] * 3
    assert "broker 1 came back: its state-change.log would" in told[0].why


def test_without_logs_it_is_not_known_and_the_file_is_named() -> None:
    rows: list[Any] = joined(record(), {})["record_losses"]
    told = [one for one in rows if one.how == "unclean"]
    assert {(one.extent, one.from_offset) for one in told} == {("unknown", None)}
    assert "broker 3 begin at leader epoch 7: its state-change.log would" in told[0].why


def test_each_election_knows_when_its_leader_acted() -> None:
    """But those of brokers that were fenced before they heard of it."""
    rows = both()["record_elections"]
    late = [one.acted_ms - one.at_ms for one in rows if one.acted_ms is not None]
    assert (len(rows), len(late)) == (164, 158)
    assert (min(late), max(late)) == (30, 244)
    lives = [one for one in record()["record_broker_lives"] if one.to_ms is not None]
    for one in rows:
        if one.acted_ms is None:
            assert any(life.broker == one.leader and 0 <= life.to_ms - one.at_ms <= 100 for life in lives), one
    ended = [one for one in both()["record_outages"] if one.ended == "elected"]
    assert sum(one.acted_ms is not None for one in ended) >= len(ended) - 6


def test_a_tenure_has_its_holders_own_words() -> None:
    rows = both()["record_tenures"]
    assert [(one.epoch, one.controller) for one in rows] == [(1, 102), (3, 101), (4, 102), (5, 103)]
    assert all(20 <= one.active_ms - one.from_ms <= 130 for one in rows)
    # a killed broker says nothing; one that was frozen, or lost its majority, learns it late
    assert [one.renounced_ms is None for one in rows] == [True, False, False, True]


def test_a_clock_that_is_behind_is_said_and_changes_no_order() -> None:
    rows = both()["record_clocks"]
    assert {one.broker for one in rows} == {1, 2, 3}
    assert all(30 <= one.least_ms <= one.median_ms <= one.most_ms for one in rows)
    wrong = both("2=Europe/Berlin")
    hour_ms = datetime(2026, 11, 19, tzinfo=UTC).replace(hour=1).hour * 3_600_000
    behind = {one.broker for one in wrong["record_clocks"] if one.least_ms < 0}
    assert behind == {2}
    assert min(one.least_ms for one in wrong["record_clocks"]) == min(
        one.least_ms - hour_ms for one in rows if one.broker == 2
    )
    keys = [(one.topic, one.partition, one.leader_epoch, one.offset) for one in both()["record_elections"]]
    assert keys == [(one.topic, one.partition, one.leader_epoch, one.offset) for one in wrong["record_elections"]]


def test_a_topic_that_was_made_anew_takes_no_line_of_the_old_one() -> None:
    rows = [one for one in record()["record_elections"] if one.topic == "t_new"]
    again = [one.__class__(**{**_fields(one), "at_ms": one.at_ms + 600_000}) for one in rows]
    told = joined({**record(), "record_elections": [*rows, *again]}, logs_of().answers)["record_elections"]
    acted: list[Any] = told
    assert sum(one.acted_ms is not None for one in acted[: len(rows)]) > 0
    assert [one.acted_ms for one in acted[len(rows) :]] == [None] * len(again)


def _fields(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}
