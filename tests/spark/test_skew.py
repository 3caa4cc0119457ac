"""Clocks that are wrong are found from round trips, and only proven skew is corrected."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from sparkjobs.clocks.skew import (
    applied_ms,
    corrected,
    left_ms,
    zone_hint,
)
from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.tables.silver import SilverEvent, SilverSkew
from tests.spark.reading import skew_of

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


def in_words_of_08(events: list[SilverEvent]) -> list[SilverEvent]:
    """A request has its number; an answer only that, which answers to other requests of its batch share."""
    number_of = {event.line_no: event.leader_epoch for event in events if event.event == "request_sent"}
    found = []
    for event in events:
        if event.event == "request_sent":
            found.append(replace(event, correlation_id=number_of[event.line_no]))
        elif event.event == "response_received":
            later = {"ts_utc": event.ts_utc + 400, "line_no": event.line_no + 400, "event_id": f"{event.event_id}-2"}
            found += [replace(event, api=None), replace(event, api=None, **later)]
        else:
            found.append(event)
    return found


def in_words_of_010(events: list[SilverEvent]) -> list[SilverEvent]:
    """A request has no number, nor has an answer, but the first partition that it is about. So has one to a
    StopReplica, which no line awaits; and one answer is missing."""
    found = []
    for event in events:
        if event.event == "response_received":
            known = {"api": None, "correlation_id": None, "topic": "t", "partition": 0}
            answer = replace(event, **known)
            later = {"ts_utc": event.ts_utc + 400, "line_no": event.line_no + 400, "event_id": f"{event.event_id}-2"}
            number = event.correlation_id or 0
            found += [] if number == 5 else [answer, replace(answer, **later)][: 1 + number % 2]
        else:
            found.append(event)
    return found


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


@pytest.mark.parametrize("worded", [list, in_words_of_08, in_words_of_010])
def test_an_offset_of_minutes_is_found_to_milliseconds(
    worded: Callable[[list[SilverEvent]], list[SilverEvent]],
) -> None:
    ahead = {1: 0, 2: 300_000, 3: -299_000, 4: 2}
    events = worded(trips(1, ahead, 200))
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


def test_a_skew_within_its_own_error_is_left_alone() -> None:
    events = trips(1, {2: 0}, 50)
    assert all(event.ts_adj == event.ts_utc for event in corrected(events, skew_of(events)))


def test_a_broker_without_round_trips_keeps_its_time_and_its_error_is_unknown() -> None:
    [row] = [row for row in skew_of([*trips(1, {2: 0}, 10), an_event(7, START_MS)]) if row.broker == 7]
    assert (row.method, row.offset_ms, row.err_ms, row.samples) == ("assumed", 0, None, 0)


def test_two_trips_are_too_few() -> None:
    assert {row.method for row in skew_of(trips(1, {2: 9_000}, 2))} == {"reference", "assumed"}


@pytest.mark.long
@pytest.mark.java
@pytest.mark.slow
def test_spark_finds_the_same_offsets_also_where_lines_repeat_and_requests_are_about_many_partitions(
    spark: SparkSession,
) -> None:
    from sparkjobs.engine.spark import silver
    from sparkjobs.engine.spark.frames import as_table, rows_of

    several = [
        replace(event, partition=number % 3, leader_epoch=number % 5, line_no=event.line_no + number)
        for event in trips(1, {2: 777, 3: -90_000}, 40, seed=3)
        for number in range(3)
    ]
    old = [replace(event, cluster="old") for event in in_words_of_08(trips(1, {1: 0, 2: -40_000}, 30))]
    old += [
        replace(event, cluster="older")
        for event in in_words_of_010([*trips(1, {1: 0, 2: -40_000}, 30), *trips(4, {1: 0, 2: 9_000}, 30, seed=5)])
    ]
    far = [replace(event, cluster="another", ts_utc=event.ts_utc + HOUR_MS) for event in trips(4, {5: 7_000}, 30)]
    events = [*trips(1, {1: 0, 2: 300_000, 3: -299_000, 4: 2}, 60), *several, *old, *far, an_event(9, START_MS)]
    found = silver.skew_of(table := as_table(spark, events, SilverEvent))
    assert found == skew_of(events)
    assert {row.method for row in found} == {"reference", "round_trips", "assumed"}
    assert {row.method for row in found if row.cluster == "old"} == {"reference", "round_trips"}
    assert {row.method for row in found if row.cluster == "older"} == {"reference", "round_trips"}
    assert sorted(rows_of(silver.corrected(table, found), SilverEvent), key=str) == sorted(
        corrected(events, found), key=str
    )


def one_way(
    ahead: dict[int, int], count: int = 20, seed: int = 1, controller: int = 1, hour: int = 0
) -> list[SilverEvent]:
    """The lines at INFO: elections by the controller, followed by the others, and registrations that it learns of."""
    draw, events, start_ms = random.Random(seed), [], START_MS + hour * HOUR_MS
    for broker, ahead_ms in ahead.items():
        for number in range(count):
            at = start_ms + number * 9_000
            state = {"topic": "t", "partition": broker, "leader_epoch": 100 * hour + number}
            led = at + draw.randint(5, 40)
            elected = {"event": "partition_changed", "to_state": "OnlinePartition", **state}
            events.append(an_event(controller, at + ahead[controller], **elected))
            events.append(an_event(broker, led + ahead_ms, event="leader_started", **state))
        epoch = 100 * (hour + 1) + broker
        begins, registered, known = start_ms + 5_000, start_ms + 5_020, start_ms + 5_090
        events += [
            an_event(broker, begins + ahead_ms, event="registering"),
            an_event(broker, registered + ahead_ms, event="registered", broker_epoch=epoch),
            an_event(
                controller,
                known + ahead[controller],
                event="broker_epochs",
                reason=f"HashMap({broker} -> {epoch})",
            ),
        ]
    return events


def test_at_info_a_clock_is_bound_by_the_events_that_must_have_come_first() -> None:
    ahead = {1: 0, 2: 300_000, 3: -299_000}
    found = {row.broker: row for row in skew_of(one_way(ahead))}
    assert {broker: row.method for broker, row in found.items()} == {1: "reference", 2: "one_way", 3: "one_way"}
    for broker in (2, 3):
        row = found[broker]
        assert row.err_ms is not None
        assert abs(row.offset_ms - ahead[broker]) <= row.err_ms <= 50


def test_at_info_only_the_broker_that_binds_the_others_most_is_believed() -> None:
    """Broker 1 was heard, and binds nothing."""
    events = [an_event(1, START_MS), *one_way({2: 0, 3: 60_000}, controller=2)]
    found = {row.broker: (row.method, row.err_ms) for row in skew_of(events)}
    assert (found[1], found[2]) == (("assumed", None), ("reference", 0))
    assert found[3][0] == "one_way"


def test_a_topic_made_anew_proves_nothing_by_its_epochs() -> None:
    events = one_way({1: 0, 2: 1_000})
    again = [replace(event, ts_utc=event.ts_utc + 900_000) for event in events if event.topic == "t"]
    again = [replace(event, event_id=f"again {event.event_id}") for event in again]
    found = {row.broker: row.method for row in skew_of([*events, *again])}
    assert found == {1: "reference", 2: "assumed"}


def test_a_clock_that_was_set_right_is_followed_from_hour_to_hour() -> None:
    ahead = {1: 0, 2: 60_000, 3: 5_000}
    later = one_way({**ahead, 2: 0}, hour=2)
    found = {(row.broker, (row.hour - START_MS) // HOUR_MS): row for row in skew_of([*one_way(ahead), *later])}
    for (broker, hour), offset_ms in {(2, 0): 60_000, (2, 2): 0, (3, 0): 5_000, (3, 2): 5_000}.items():
        row = found[broker, hour]
        assert row.method == "one_way"
        assert row.err_ms is not None
        assert abs(row.offset_ms - offset_ms) <= row.err_ms <= 50


def test_clocks_that_contradict_each_other_are_not_corrected() -> None:
    events = one_way({1: 0, 2: 1_000})
    moved = [
        replace(event, ts_utc=event.ts_utc - 5_000) if event.broker == 2 and event.topic else event for event in events
    ]
    assert {row.broker: row.method for row in skew_of(moved)} == {1: "reference", 2: "assumed"}


def test_an_uncorrected_skew_stays_in_the_error() -> None:
    row = SilverSkew(cluster="c", broker=2, hour=0, offset_ms=-40, err_ms=50, method="one_way", samples=9)
    assert (applied_ms(row), left_ms(row)) == (0, 90)
    certain = replace(row, err_ms=10)
    assert (applied_ms(certain), left_ms(certain)) == (-40, 10)


def a_term(ahead: dict[int, int], gone: tuple[int, ...] = ()) -> list[SilverEvent]:
    """Our log's lines about a term of broker 1: live brokers, the work of each on request, that all of them have."""
    same = {"controller": 1, "controller_epoch": 5, "cause_id": "5-1"}
    events = [
        an_event(1, START_MS + ahead[1], event="broker_changed", peer_broker=b, to_state="live", **same) for b in ahead
    ]
    for broker, ahead_ms in ahead.items():
        done_ms = START_MS + 10 + 5 * broker + ahead_ms
        events.append(an_event(broker, done_ms, event="request_done", elapsed_ms=3.7, **same))
    left = {**same, "cause_id": "5-2", "to_state": "gone"}
    events += [an_event(1, START_MS + 15 + ahead[1], event="broker_changed", peer_broker=b, **left) for b in gone]
    known = an_event(1, START_MS + 60 + ahead[1], event="controller_reported", to_state="acknowledged", **same)
    return [*events, known]


def test_our_own_lines_bind_the_clock_of_a_broker_that_was_told_and_answered() -> None:
    ahead = {1: 0, 2: 300_000, 3: -299_000}
    found = {row.broker: row for row in skew_of(a_term(ahead))}
    assert {broker: row.method for broker, row in found.items()} == {1: "reference", 2: "one_way", 3: "one_way"}
    for broker in (2, 3):
        row = found[broker]
        assert row.err_ms is not None
        assert abs(row.offset_ms - ahead[broker]) <= row.err_ms <= 40


def test_a_broker_gone_before_all_had_answered_may_have_done_it_later() -> None:
    found = {row.broker: row for row in skew_of(a_term({1: 0, 2: 0, 3: 90_000}, gone=(3,)))}
    assert {broker: row.method for broker, row in found.items()} == {1: "reference", 2: "one_way", 3: "assumed"}


@pytest.mark.parametrize(
    ("offset_ms", "err_ms", "hours"),
    [(32_400_012, 40, "+9 h"), (-19_800_400, 40, "-5.5 h"), (299_000, 5, None), (0, 5, None), (7_200_000, None, None)],
)
def test_an_offset_of_quarters_of_hours_is_called_a_time_zone(
    offset_ms: int, err_ms: int | None, hours: str | None
) -> None:
    known = {"cluster": "c", "broker": 2, "hour": 0, "method": "one_way", "samples": 9}
    hint = zone_hint(SilverSkew(offset_ms=offset_ms, err_ms=err_ms, **known))  # type: ignore[arg-type]
    assert hint == (None if hours is None else f"as in a time zone {hours} off: see --timezone 2=...")
