"""Clocks that are wrong are found from round trips, and only what is proven is corrected."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from sparkjobs.schemas import SilverEvent
from sparkjobs.skew import HOUR_MS, corrected, skew_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = 1_794_988_800_000 // HOUR_MS * HOUR_MS


def an_event(broker: int, at_ms: int, **more: Any) -> SilverEvent:
    known = {"cluster": "c", "dt": "", "ts_raw": "", "role": "", "level": "TRACE", "shape_id": "", "line": ""}
    return SilverEvent(
        **{**known, "event": "other", **more},
        event_id=f"{broker}-{at_ms}-{more}",
        ts_utc=at_ms,
        ts_adj=at_ms,
        broker=broker,
        file_id=str(broker),
        line_no=at_ms,
    )


def trips(controller: int, brokers: dict[int, int], count: int, seed: int = 1) -> list[SilverEvent]:
    """`brokers`: how far each clock is ahead. Ways take 1 to 40 ms, each way its own."""
    draw, events = random.Random(seed), []
    for number in range(count):
        for broker, ahead_ms in brokers.items():
            sent = START_MS + number * 1_000
            received = sent + draw.randint(1, 40)
            done = received + draw.randint(1, 30)
            answered = done + draw.randint(1, 40)
            same = {"controller": controller, "controller_epoch": 1, "api": "LeaderAndIsr"}
            state = {"topic": "t", "partition": 0, "leader_epoch": number}
            known = {**same, "correlation_id": number}
            here = brokers.get(controller, 0)
            events += [
                an_event(controller, sent + here, event="request_sent", peer_broker=broker, **same, **state),
                an_event(broker, received + ahead_ms, event="request_received", **known, **state),
                an_event(broker, done + ahead_ms, event="request_done", **known),
                an_event(controller, answered + here, event="response_received", peer_broker=broker, **known),
            ]
    return events


def test_an_offset_of_minutes_is_found_to_milliseconds() -> None:
    ahead = {1: 0, 2: 300_000, 3: -299_000, 4: 2}
    events = trips(1, ahead, 200)
    found = {row.broker: row for row in skew_of(events)}
    for broker, offset_ms in ahead.items():
        assert abs(found[broker].offset_ms - offset_ms) <= 10
        assert found[broker].err_ms is not None
        assert abs(found[broker].offset_ms - offset_ms) <= found[broker].err_ms
    times = {event.event_id: event.ts_adj for event in corrected(events, list(found.values()))}
    for event in events:
        assert event.broker is not None
        assert abs(times[event.event_id] - (event.ts_utc - ahead[event.broker])) <= 10


def test_clocks_are_followed_from_one_controller_to_the_next() -> None:
    first, second = trips(1, {2: 50_000}, 30), trips(2, {2: 50_000, 3: 80_000}, 30)
    found = {row.broker: row for row in skew_of(first + second)}
    assert found[2].method == "reference"
    assert abs(found[1].offset_ms + 50_000) <= 10
    assert abs(found[3].offset_ms - 30_000) <= 10


def test_what_is_within_its_own_error_is_left_alone() -> None:
    events = trips(1, {2: 0}, 50)
    assert all(event.ts_adj == event.ts_utc for event in corrected(events, skew_of(events)))


def test_a_broker_without_round_trips_keeps_its_time_and_its_error_is_unknown() -> None:
    [row] = [row for row in skew_of([*trips(1, {2: 0}, 10), an_event(7, START_MS)]) if row.broker == 7]
    assert (row.method, row.offset_ms, row.err_ms, row.samples) == ("assumed", 0, None, 0)


def test_two_trips_are_too_few() -> None:
    assert {row.method for row in skew_of(trips(1, {2: 9_000}, 2))} == {"reference", "assumed"}


@pytest.mark.java
@pytest.mark.slow
def test_spark_finds_the_same_offsets_also_where_lines_repeat_and_requests_are_about_many_partitions(
    spark: SparkSession,
) -> None:
    from sparkjobs.spark import clocks
    from sparkjobs.spark.ingest import as_table, rows_of

    several = [
        replace(event, partition=number % 3, leader_epoch=number % 5, line_no=event.line_no + number)
        for event in trips(1, {2: 777, 3: -90_000}, 40, seed=3)
        for number in range(3)
    ]
    far = [replace(event, cluster="another", ts_utc=event.ts_utc + HOUR_MS) for event in trips(4, {5: 7_000}, 30)]
    events = [*trips(1, {1: 0, 2: 300_000, 3: -299_000, 4: 2}, 60), *several, *far, an_event(9, START_MS)]
    found = clocks.skew_of(table := as_table(spark, events, SilverEvent))
    assert found == skew_of(events)
    assert {row.method for row in found} == {"reference", "round_trips", "assumed"}
    assert sorted(rows_of(clocks.corrected(table, found), SilverEvent), key=str) == sorted(
        corrected(events, found), key=str
    )
